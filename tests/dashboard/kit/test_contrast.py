"""The marks of device states can be told from what is around them, by day and by night (WCAG 2.2 AA)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dashboard.inventory.devices.grid import STATES

ROOT = Path(__file__).resolve().parents[3]
CSS = re.sub(
    r"/\*.*?\*/",
    "",
    "".join(path.read_text() for path in sorted((ROOT / "static" / "manciple").rglob("*.css"))),
    flags=re.S,
)
THEMES = ("light", "dark")
#: 1.4.11 of what is no text, 1.4.3 of text.
GRAPHIC, TEXT = 3.0, 4.5


def token(name: str, theme: str) -> str:
    """The colour of `--name`."""
    found = re.search(rf"{name}: light-dark\((#\w+), (#\w+)\);", CSS)
    assert found, f"{name} has no colour"
    return found[1 + THEMES.index(theme)]


def luminance(colour: str) -> float:
    """WCAG's relative luminance of #rrggbb."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def declared(state: str) -> dict[str, set[str]]:
    """What the rules of a mark say -> the tokens in it. An outline counts as a line."""
    found: dict[str, set[str]] = {"line": set(), "background": set(), "text": set()}
    kinds = {"--m-line": "line", "outline": "line", "--m-bg": "background", "--m-text": "text"}
    for body in re.findall(rf'\[data-s="{state}"\]\s*\{{([^}}]*)\}}', CSS):
        for name, value in re.findall(r"(--m-line|--m-bg|--m-text|outline):([^;]*);", body):
            found[kinds[name]] |= set(re.findall(r"var\((--[a-z0-9-]+)\)", value)) - {"--hatch", "--period"}
    return found


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("state", STATES)
def test_a_states_mark_stands_out_from_the_sheet_and_its_word_is_legible(state: str, theme: str) -> None:
    rules = declared(state)
    surface = token("--surface", theme)
    assert rules["line"] | rules["background"], "it has no mark"
    marks = {name: contrast(token(name, theme), surface) for name in rules["line"] | rules["background"]}
    assert max(marks.values()) >= GRAPHIC, marks
    assert all(contrast(token(name, theme), surface) >= TEXT for name in rules["text"])


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("state", ["blocked", "gone", "bad", "held"])
def test_the_area_of_a_state_in_a_chart_stands_out_from_the_sheet(state: str, theme: str) -> None:
    rules = re.findall(rf"\.of-{state}\s*\{{([^}}]*)\}}", CSS)
    names = {
        name
        for body in rules
        for name in re.findall(r"(?:fill|stroke|background|border):[^;]*var\((--[a-z0-9-]+)\)", body)
    }
    assert max(contrast(token(name, theme), token("--surface", theme)) for name in names) >= GRAPHIC


def test_the_contrast_of_black_and_white_is_21() -> None:
    assert round(contrast("#000000", "#ffffff"), 2) == 21.0
