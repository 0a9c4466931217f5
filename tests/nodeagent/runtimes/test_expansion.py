"""`$(NAME)` as Kubernetes expands it."""

from __future__ import annotations

import pytest

from nodeagent.runtimes.protocol import expanded

VARIABLES = {"A": "a", "B": "$(A)", "EMPTY": "", "with space": "s"}

TEXTS = {
    "plain": "plain",
    "$(A)": "a",
    "x$(A)y$(A)z": "xayaz",
    "$(EMPTY)": "",
    "$(UNKNOWN)": "$(UNKNOWN)",
    "$(B)": "$(A)",
    "$$(A)": "$(A)",
    "$$$(A)": "$a",
    "$$$$(A)": "$$(A)",
    "$A": "$A",
    "$": "$",
    "$$": "$",
    "$(A": "$(A",
    "$(": "$(",
    "$()": "$()",
    "$(with space)": "s",
    "a$)(A)": "a$)(A)",
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_reference_is_replaced_and_everything_else_stays(text: str) -> None:
    assert expanded(text, VARIABLES) == TEXTS[text]
