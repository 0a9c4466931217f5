"""What an outline of a text is equal to."""

from __future__ import annotations

import pytest

from tests.outlines import Outline

TEXT = "request `gpu` accepts 3 devices, of which 2 are free"


@pytest.mark.parametrize("outline", [TEXT, "request `gpu` … 3 … 2 are free", "…", "… free"])
def test_an_outline_equals_a_text_that_has_its_parts_in_their_order(outline: str) -> None:
    assert Outline(outline) == TEXT


@pytest.mark.parametrize("outline", ["request `gpu`", "… 2 … 3 …", "3 …", "", "… `nic` …", ".*"])
def test_an_outline_differs_from_any_other_text(outline: str) -> None:
    assert Outline(outline) != TEXT
    assert Outline(outline) != 3
