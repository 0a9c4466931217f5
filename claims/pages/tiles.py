"""Draws tiles as HTML: one element each, no template, because a page may hold five thousand of them."""

from __future__ import annotations

from urllib.parse import quote

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from claims.pages.grid import Line, Tile


def draw_line(line: Line, *, current: str = "") -> SafeString:
    """All tiles of a line. `current` is the address of the device whose panel is open."""
    return mark_safe("".join(draw_tile(tile, current=tile.address == current) for tile in line.tiles))  # noqa: S308 - every value is escaped below


def draw_tile(tile: Tile, *, current: bool = False) -> str:
    """One tile as an anchor to its device's panel."""
    attributes = [
        f'class="tile" href="?at={quote(tile.address)}" tabindex="-1" data-at="{escape(tile.address)}"',
        f'data-s="{tile.state}" aria-label="{escape(tile.label)}"',
    ]
    if tile.claim_uid:
        attributes.append(f'data-c="{escape(tile.claim_uid)}"')
    if tile.namespace:
        attributes.append(f'data-ns="{escape(tile.namespace)}"')
    if tile.joined:
        attributes.append("data-j")
    if tile.state == "taint" and tile.holders:
        attributes.append("data-held")
    if current:
        attributes.append('aria-current="true"')
    return f"<a {' '.join(attributes)}>{_name(tile)}</a>"


def _name(tile: Tile) -> str:
    """The holder's namespace, on the first tile of a run; the stylesheet cuts it to the room there is."""
    if not tile.run or not tile.namespace or tile.state == "part":
        return ""
    return f'<b style="--n:{tile.run}">{escape(tile.namespace)}</b>'
