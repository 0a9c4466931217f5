"""Numbers that a mirror may not know."""

from __future__ import annotations

import pytest
from django.template import Context, Template

from dashboard.kit.mirrored import UNKNOWN, MirrorHeader, ahead
from manciple.gaps import Gap
from manciple.wire.resources import CLAIMS, NODES, PODS, SLICES


def header(*resources: str) -> MirrorHeader:
    missing = [Gap(one, f"you may not list {one}") for one in resources]
    return MirrorHeader(context="prod", acts=False, away_since=None, gaps=missing)


@pytest.mark.parametrize(
    ("number", "of", "missing", "expected"),
    [
        (1204, "free", (), "1,204"),
        (0, "free", (CLAIMS,), UNKNOWN),
        (3, "free", (CLAIMS,), UNKNOWN),
        (3, "free", (NODES, PODS), UNKNOWN),
        (3, "taint", (CLAIMS,), "3"),
        (3, "taint", (NODES,), UNKNOWN),
        (12, "devices", (CLAIMS,), "12"),
        (12, "devices", (SLICES,), "12+"),
        (0, "devices", (SLICES,), UNKNOWN),
        (4, "claims: pods: nodes", (CLAIMS,), "4+"),
        (4, "claims: pods: nodes", (SLICES,), "4"),
        (4, "claims:team-a", (CLAIMS,), "4+"),
        (4, "nothing of the cluster", (CLAIMS,), "4"),
    ],
)
def test_a_figure_is_told_as_far_as_it_is_known(number: int, of: str, missing: tuple[str, ...], expected: str) -> None:
    drawn = Template("{% figure number of %}").render(Context({"number": number, "of": of, "mirror": header(*missing)}))
    assert drawn == expected


def test_outside_of_a_mirror_it_is_the_number() -> None:
    assert Template('{% figure 1204 "free" %}').render(Context({"mirror": None})) == "1,204"
    assert Template('{% figure 1204 "free" %}').render(Context()) == "1,204"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, ""), (20.0, ""), (-20.0, ""), (240.0, "4 min ahead of"), (-7200.0, "2 h behind")],
)
def test_a_clock_that_is_off_by_little_is_right(seconds: float, expected: str) -> None:
    assert ahead(seconds) == expected
