"""What every key does: the page `/keys`, and `?` on every page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyLine:
    """keys: those that do it; a combination is one of them ("Ctrl K")."""

    keys: tuple[str, ...]
    does: str


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """Where they do it."""

    title: str
    lines: tuple[KeyLine, ...]


KEYS: Sequence[KeyGroup] = (
    KeyGroup(
        "On every page",
        (
            KeyLine(("/", "Ctrl K"), "Find anything, go anywhere, do something"),
            KeyLine(("?",), "Show these keys"),
            KeyLine(("Tab",), "Go from control to control; the device grid is one stop"),
            KeyLine(("Esc",), "Close panel, menu or dialog; from the panel back to its device"),
        ),
    ),
    KeyGroup(
        "In what is found",
        (
            KeyLine(("↓", "↑"), "Go to the next one and back"),
            KeyLine(("Enter",), "Open it, or do it"),
            KeyLine(("Ctrl Enter",), "Open it in a new tab"),
        ),
    ),
    KeyGroup(
        "In a list",
        (
            KeyLine(("j", "k"), "Go to the next row and back"),
            KeyLine(("Enter",), "Open the row"),
            KeyLine(("x",), "Choose the row"),
            KeyLine(("Shift X",), "Choose all rows from the last one up to here"),
            KeyLine(("a",), "Go to what can be done with the chosen rows; Esc goes back"),
        ),
    ),
    KeyGroup(
        "In the device grid",
        (
            KeyLine(("←", "→"), "Go along a node, whose name is the first cell, and on to the next one"),
            KeyLine(("↑", "↓", "PgUp", "PgDn"), "Go to the nearest device above or below"),
            KeyLine(("Home", "End"), "Go to the node's first and last device; with Ctrl to the grid's"),
            KeyLine(("Enter",), "Open the device's panel and go into it"),
            KeyLine(("x", "Shift X"), "Choose the device; all from the last one up to here"),
        ),
    ),
    KeyGroup(
        "On the timeline",
        (
            KeyLine(("←", "→"), "Read along the axis"),
            KeyLine(("Enter",), "Mark one end of a stretch, then the other, and show it"),
            KeyLine(("Esc",), "Take the mark back"),
        ),
    ),
    KeyGroup("On the wallboard", (KeyLine(("Esc",), "Leave it"),)),
    KeyGroup(
        "In an editor",
        (KeyLine(("Ctrl Space",), "Complete what is allowed there"), KeyLine(("Tab",), "Leave the editor")),
    ),
)
