"""Which tests and examples `make test` leaves to `make test-all`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests import examples
from tests.conftest import quick


@dataclass(eq=False)
class FakeItem:
    nodeid: str
    markers: tuple[pytest.Mark, ...] = field(default=())

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((marker for marker in self.markers if marker.name == name), None)


def kept(*items: FakeItem) -> list[str]:
    chosen = quick(cast(Any, items))
    return [item.nodeid for item in items if item in cast(Any, chosen)]


@pytest.fixture(autouse=True)
def quick_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "ALL", False)
    monkeypatch.setattr(examples, "ORDER", "")


def test_a_long_test_is_left_out() -> None:
    assert kept(FakeItem("a::one", (pytest.mark.long.mark,)), FakeItem("a::two")) == ["a::two"]


def test_of_a_table_with_a_sample_so_many_cases_stay_in_each_test() -> None:
    marks = (pytest.mark.sample(3).mark,)
    items = [FakeItem(f"a::{test}[{number}]", marks) for test in ("one", "two") for number in range(10)]
    chosen = kept(*items, FakeItem("a::other[1]"))
    assert [sum(name.startswith(test) for name in chosen) for test in ("a::one", "a::two", "a::other")] == [3, 3, 1]
    assert chosen == kept(*items, FakeItem("a::other[1]")), "the same every time"


def test_a_sample_keeps_the_tables_order_and_a_seed_chooses_others(monkeypatch: pytest.MonkeyPatch) -> None:
    first = examples.sample(range(100), 10)
    assert list(first) == sorted(first)
    monkeypatch.setattr(examples, "ORDER", "another")
    assert examples.sample(range(100), 10) != first


def test_a_whole_run_takes_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "ALL", True)
    assert list(examples.sample(range(100), 10)) == list(range(100))
