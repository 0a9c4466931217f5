"""Draws tiles as HTML: one element each, no template, because a page may hold five thousand of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import NamedTuple
from urllib.parse import quote
from weakref import WeakKeyDictionary

from django.utils.safestring import SafeString, mark_safe

from claims.devices.cards import WHOLE, Part, Unit
from claims.devices.holdings import Holder
from claims.devices.states import DeviceState
from dashboard.inventory.devices.lines import GridLine
from dashboard.inventory.devices.words import STATES
from dashboard.kit.links import node_url
from manciple.per_process import PerProcess

#: A partition at least this large has room for its profile, in thousandths of the card.
_NAMED = WHOLE // 5
#: Letters at the end of a node's name that are never cut.
ENDING = 8
#: Letters of a claim's uid by which a page knows its devices: random ones are a third of what is sent of a large grid.
KIN = 13
#: What is said of a node that is marked as cordoned.
CORDONED = "Cordoned: no new pod comes here"


def draw_lines(
    lines: Iterable[tuple[str, GridLine]], *, current: str = "", matches: Callable[[Unit], bool] | None = None
) -> SafeString:
    """Lines as list items. lines: (id, line). current: the address of the device whose panel is open.

    What does not match is dim.
    """
    drawn = []
    for id_, line in lines:
        tiles = (
            _tiles(line, current)
            if matches is None
            else (draw_tile(tile, at, dim=not matches(tile), current=current) for tile, at in places(line))
        )
        marks = {"many": line.many, "cards": line.cut, "warn": line.trouble, "cordoned": line.cordoned}
        kinds = " ".join(["node", *(mark for mark, told in marks.items() if told)])
        topics = escape(" ".join(line.topics))
        drawn.append(
            f'<div class="{kinds}" role="row" id="{escape(id_)}" data-topics="{topics}"'
            # What stands on it is laid out by itself, which an item of a CSS grid is not.
            f' data-name="{escape(line.name)}"><div class="line">{_line_name(line)}{"".join(tiles)}</div></div>'
        )
    return mark_safe("".join(drawn))  # noqa: S308 - every value is escaped


#: a line's tiles when nothing is dim and no panel is open, for as long as the line stays as it is
_plain = PerProcess(WeakKeyDictionary[GridLine, str])


def _tiles(line: GridLine, current: str) -> Iterable[str]:
    if current and any(_shows(tile, current) for tile in line.tiles):
        return (draw_tile(tile, at, current=current) for tile, at in places(line))
    known = _plain.value.get(line)
    if known is None:
        known = _plain.value[line] = "".join(draw_tile(tile, at) for tile, at in places(line))
    return (known,)


class TilePlace(NamedTuple):
    """A tile on its line. place: as `GridLine.place`. run: as `GridLine.runs` has it.

    goes_on: the next tile is of the same run. first_gauge: it is the first of the narrow ones.
    """

    place: str = ""
    run: int = 1
    goes_on: bool = False
    first_gauge: bool = False


def places(line: GridLine) -> Iterator[tuple[Unit, TilePlace]]:
    place, runs = line.place, (*line.runs, 1)
    first = len(line.tiles) - line.gauges  # gauges stand at the end
    for index, tile in enumerate(line.tiles):
        yield tile, TilePlace(place, runs[index], not runs[index + 1], index == first)


def _line_name(line: GridLine) -> str:
    name = escape(line.name)
    said = [CORDONED] if line.cordoned else []
    said += [line.trouble] if line.trouble else []
    free = f"{line.free} of {len(line.main)} free"
    if beside := len(line.tiles) - len(line.main):
        free += f", and {line.counts[DeviceState.FREE] - line.free} of {beside} network interfaces"
    title = f"{name}, {free}" + "".join(f". {escape(one)}" for one in said)
    inside = _kept_end(line.name) + "".join(f'<span class="sr">, {escape(one)}</span>' for one in said)
    if line.node:
        whole = escape(", ".join((line.name, *said)))
        inside = f'<a href="{escape(node_url(line.node))}" tabindex="-1" aria-label="{whole}">{inside}</a>'
    return f'<span class="name" role="rowheader" title="{title}">{inside}</span>'


def _kept_end(name: str) -> str:
    """Names of nodes begin alike: where one does not fit, its beginning is cut."""
    if len(name) <= ENDING:
        return escape(name)
    return f'<span class="start">{escape(name[:-ENDING])}</span><span>{escape(name[-ENDING:])}</span>'


#: A tile by itself.
_ALONE = TilePlace()


def draw_tile(tile: Unit, at: TilePlace = _ALONE, *, current: str = "", dim: bool = False) -> str:
    """One tile as a cell, with an anchor to its device's panel."""
    address = tile.address
    kinds = "tile" + (" nic" if tile.gauge else "") + (" parts" if tile.cut else "") + (" dim" if dim else "")
    attributes = [
        f'class="{kinds}{" first" if at.first_gauge else ""}" href="?at={quote(address)}" tabindex="-1"',
        f'data-at="{escape(address)}" data-s="{tile.state}" aria-label="{escape(label(tile, at.place))}"',
    ]
    if tile.claim_uid:
        attributes.append(f'data-c="{escape(tile.claim_uid[:KIN])}"')
    if tile.namespace:
        attributes.append(f'data-ns="{escape(tile.namespace)}"')
    if not at.run:
        attributes.append("data-j")
    if at.goes_on:
        attributes.append("data-k")
    if tile.state == "taint" and tile.holders:
        attributes.append("data-held")
    if tile.state == "part" and not tile.parts:
        attributes.append(f'style="--lvl:{tile.level}%"')
    if current and _shows(tile, current):
        attributes.append('aria-current="true"')
    inside = "".join(map(_part, tile.parts or _uncut(tile))) if tile.cut else _name(tile, at.run)
    return f'<span role="gridcell"><a {" ".join(attributes)}>{inside}</a></span>'


def label(tile: Unit, place: str = "") -> str:
    """What a screen reader says and the tip shows: name, place (as `GridLine.place`), state, share, holders."""
    name = f"{tile.name} {place}" if place else tile.name
    words = [name, STATES[tile.state].lower()]
    if tile.parts:
        shown = [part for part in tile.parts if part.candidate]
        words = [name, f"cut into {len(shown)} partition{'' if len(shown) == 1 else 's'}", _tally(shown)]
    elif tile.state == "part":
        words.append(f"{tile.level}% in use")
    if held := "; ".join(dict.fromkeys(holder_label(holder) for holder in tile.holders)):
        words.append(held)
    return ", ".join(words)


def holder_label(holder: Holder) -> str:
    return holder.label if holder.claim else holder.namespace


def _tally(parts: list[Part]) -> str:
    counts = {state: sum(part.state == state for part in parts) for state in STATES}
    return ", ".join(f"{count} {STATES[state].lower()}" for state, count in counts.items() if count)


def _shows(tile: Unit, address: str) -> bool:
    return tile.address == address or any(candidate.address == address for candidate in tile.candidates)


def _uncut(tile: Unit) -> tuple[Part, ...]:
    """A card that is free or held as a whole fills its frame."""
    return (Part(candidate=tile.candidates[0], state=tile.state, weight=WHOLE, holders=tile.holders),)


def _part(part: Part) -> str:
    attributes = [f'data-s="{part.state}" style="--w:{part.weight}"']
    if part.candidate:
        attributes.append(f'data-at="{escape(part.candidate.address)}"')
        if part.weight >= _NAMED and (text := _text(part)):
            attributes.append(f'data-p="{escape(text)}"')
    if part.state == "taint" and part.holders:
        attributes.append("data-held")
    return f"<i {' '.join(attributes)}></i>"


def _text(part: Part) -> str:
    """Who holds the whole card; of a partition the short form of its profile: "3g" of "3g.40gb"."""
    if part.weight == WHOLE and part.holders:
        return part.holders[0].namespace
    facts = dict(part.candidate.facts) if part.candidate else {}
    return facts.get("profile", "").partition(".")[0]


def _name(tile: Unit, run: int) -> str:
    """The holder's namespace, on the first tile of a run; the stylesheet cuts it to the room there is."""
    if not run or not tile.claim_uid or tile.state == "part" or tile.gauge:
        return ""
    return f'<b style="--n:{run}">{escape(tile.namespace)}</b>'
