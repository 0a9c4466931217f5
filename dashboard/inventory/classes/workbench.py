"""The workbench of a class: a form, evaluated. What its devices, its claims and the API say to it; nothing is stored.

`evaluate` judges the form as it stands and returns a `Bench`, from which the page is drawn: verdicts, guards, cost, the
map, the difference, what saving would change. The page asks again at each keystroke.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import groupby
from typing import Any

from django.conf import settings

from claims.devices.cache import DeviceSnapshot, read_devices
from claims.devices.published import CandidateDevice
from claims.devices.states import DeviceState
from dashboard.inventory.classes.forms import (
    ClassForm,
    Draft,
    SelectorRow,
    complain,
    draft_of,
    from_class,
    guarded,
    manifest,
    to_class,
)
from dashboard.inventory.classes.queries import (
    ClassProperty,
    ClassRequest,
    ClassVerdicts,
    Domain,
    Users,
    VerdictGroup,
    domains,
    drivers,
    examples,
    judge,
    spelled,
    users_of,
)
from dashboard.inventory.devices.grid import STATES
from dashboard.kit.differences import DiffLine, difference, lines_changed
from dashboard.kit.forms import plain
from dashboard.templatetags.kit import counted, device_url, known_count
from insight.how_many_fit import NOTHING, Count, count, how_many
from insight.selector_matches import JudgedDevices, judged_devices, matches, places
from inventory.kinds.devices import DeviceClass
from manciple.people import Person
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.resources import CLASSES, kind
from manciple.wire.validation import natural
from scheduling.cel import COST_LIMIT, CompileError, compile_selector
from scheduling.cel.clauses import shown
from scheduling.cel.environment import stored_environment
from scheduling.cel.selector import DeviceReference
from scheduling.cel.spelling import nearest

#: Matching devices that are listed at once, and in all.
SHOWN, LISTED = 6, 120
#: Groups of devices that are drawn.
GROUPS = 10

_MISSING = re.compile(r"no such key: (\w+)")
_LOOKUP = re.compile(r'device\.(?:attributes|capacity)\["[^"]*"\]\.')


def expressions_of(device_class: DeviceClass) -> tuple[str, ...]:
    return tuple(selector.cel.expression for selector in device_class.spec.selectors if selector.cel)


@dataclass(frozen=True, slots=True)
class ShownDevice:
    """A device that matches. state: None while a selector does not compile, for then nobody is given it."""

    candidate: CandidateDevice
    state: DeviceState | None

    @property
    def url(self) -> str:
        return device_url(*self.candidate.key)

    @property
    def state_name(self) -> str:
        return STATES[self.state] if self.state else ""


@dataclass(frozen=True, slots=True)
class ShownGroup:
    """A group of devices. guard: what to ask first, if that helps; fixed: the selector with it in front."""

    group: VerdictGroup
    row: SelectorRow
    guard: str = ""
    fixed: str = ""

    @property
    def text(self) -> str:
        """The operand without domains; an error without cel-go's advice, as the page gives its own."""
        return plain(_LOOKUP.sub("", self.group.text).partition(". consider ")[0])

    @property
    def selector(self) -> str:
        return f"selector {self.row.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of the most expensive selector on the worst device that could be published. known: every selector compiles."""

    cost: int
    known: bool
    limit: int = COST_LIMIT

    @property
    def percent(self) -> float:
        """Its place on a logarithmic scale."""
        return round(100 * min(1.0, math.log10(max(self.cost, 1)) / math.log10(self.limit)), 1) if self.known else 0

    @property
    def share(self) -> str:
        part = 100 * self.cost / self.limit
        return f"{part:.0f}%" if part >= 10 else f"{part:.2g}%"  # noqa: PLR2004 - percent

    @property
    def exceeds(self) -> bool:
        return self.cost > self.limit


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A form, evaluated. compiling: its expressions that compile; lines: how the class differs from the stored one."""

    form: ClassForm
    existing: DeviceClass | None
    may_edit: bool
    verdicts: ClassVerdicts
    snapshot: DeviceSnapshot = field(repr=False)
    compiling: tuple[str, ...]
    milliseconds: float
    cost: Cost
    impact: Impact
    lines: tuple[DiffLine, ...]
    users: Users = field(repr=False)
    sees_all: bool  # whether the person sees every namespace

    @cached_property
    def draft(self) -> Draft:
        """What of the form is not saved."""
        return draft_of(self.form, from_class(self.existing) if self.existing else ClassForm())

    @cached_property
    def map(self) -> Map:
        return draw(self.verdicts)

    @cached_property
    def count(self) -> Count:
        """The devices that match, by state, and how many more claims fit; if every selector compiles, in time."""
        if self.verdicts.unjudged or self.broken:
            return NOTHING
        try:
            return count(self.snapshot, self.compiling)
        except TimeLimitExceeded:
            return NOTHING

    @cached_property
    def _matching(self) -> list[ShownDevice]:
        """The free ones first."""
        if self.broken:
            return [ShownDevice(device, None) for device in self.verdicts.matching]
        devices = [ShownDevice(device, self.snapshot.state_of(device)) for device in self.verdicts.matching]
        return sorted(devices, key=lambda device: device.state is not DeviceState.FREE)

    @property
    def shown(self) -> list[ShownDevice]:
        return self._matching[:SHOWN]

    @property
    def rest(self) -> list[ShownDevice]:
        return self._matching[SHOWN:LISTED]

    @property
    def more(self) -> str:
        """`18 more on gpu-a02 to gpu-a04`."""
        hidden = self._matching[SHOWN:]
        return f"{len(hidden)} more on {spelled(one.candidate.place for one in hidden)}" if hidden else ""

    @property
    def unlisted(self) -> int:
        return max(0, self.verdicts.matched - LISTED)

    @property
    def refusals(self) -> list[ShownGroup]:
        rows = self.form.kept_selectors
        return [ShownGroup(group, rows[group.selector]) for group in self.verdicts.refusals[:GROUPS]]

    @property
    def refusals_left_out(self) -> int:
        return sum(group.count for group in self.verdicts.refusals[GROUPS:])

    @property
    def failures(self) -> list[ShownGroup]:
        """With guards, unless the missing key is a misspelling."""
        shown = list[ShownGroup]()
        for group in self.verdicts.failures[:GROUPS]:
            row, missing = self.form.kept_selectors[group.selector], _MISSING.match(group.text)
            misspelt = missing and any(each is row and one.written == missing[1] for each, one in self.misspelt)
            guard = "" if misspelt else guard_of(row.expression, group.text)
            shown.append(ShownGroup(group, row, guard, guarded(row.expression, guard) if guard else ""))
        return shown

    @cached_property
    def misspelt(self) -> list[tuple[SelectorRow, Misspelling]]:
        """Names and values in selectors that no device has, though something similar is published; if there is time."""
        if self.verdicts.unjudged:
            return []
        rows = [row for row in self.form.kept_selectors if row.judged and not row.judged.error]
        return [(row, one) for row in rows for one in misspellings(row.expression, self.verdicts.devices)]

    @property
    def broken(self) -> list[str]:
        """The numbers, in the form, of the selectors that do not compile."""
        return [str(row.number) for row in self.form.selectors if row.judged and row.judged.error]

    @property
    def judges(self) -> bool:
        """Whether there are verdicts: without selectors every device matches; if none compiles, nobody can tell."""
        return not self.broken or bool(self.compiling)

    @property
    def savable(self) -> bool:
        return not self.broken and not self.cost.exceeds and not self.form.wrong

    @property
    def must_pass(self) -> str:
        number = len(self.verdicts.selectors)
        if number > 1:
            return f"a device must pass all {number}"
        return "a device must pass it" if number else "every device matches"

    @property
    def judged_sentence(self) -> str:
        behind = f", judged in {self.milliseconds:.0f} ms"
        if self.broken:
            behind = ", from what compiles" if self.judges else ", none judged"
        return f"{known_count(self.verdicts.total, 'published device', of='devices')}{behind}"

    @property
    def broken_sentence(self) -> str:
        numbers = ", ".join(self.broken)
        one = "Selector" if len(self.broken) == 1 else "Selectors"
        verb = "does" if len(self.broken) == 1 else "do"
        return f"{one} {numbers} {verb} not compile; until then the class serves no claim."

    @property
    def partial_sentence(self) -> str:
        devices = f"{self.verdicts.judged:,} of {self.verdicts.total:,} devices"
        return (
            f"Evaluated {devices} in {self.milliseconds / 1000:.1f} s, the limit. Simplify the selectors, or check "
            "again."
        )

    @property
    def matched_sentence(self) -> str:
        """Said aloud as the verdicts change."""
        if not self.judges:
            return "No selector compiles."
        matched, total = self.verdicts.matched, self.verdicts.total
        devices, verb = "device" if total == 1 else "devices", "matches" if matched == 1 else "match"
        return f"{matched} of {total} {devices} {verb}{' the selectors that compile' if self.broken else ''}"

    @property
    def fits_sentence(self) -> str:
        verdicts = self.verdicts
        if verdicts.unjudged:
            return f"of {verdicts.judged:,} evaluated"
        if self.broken:
            return f"of {verdicts.judged:,} by the selectors that compile"
        return f"of {verdicts.judged:,} · {self.count.free:,} free, {how_many(self.count.fits)} more fit"

    @property
    def cost_sentence(self) -> str:
        if not self.cost.known:
            return "Unknown until every selector compiles."
        if self.cost.exceeds:
            return "May exceed the limit: use fewer attributes or shorter lists."
        if not self.cost.cost:
            return "No selector is evaluated."
        return f"{self.cost.share} of the limit, on a logarithmic scale."

    @property
    def used_sentence(self) -> str:
        claims, namespaces = len(self.users.waiting) + len(self.users.holding), len(self.users.by_namespace)
        seen = "" if self.sees_all else " that you see"
        if not claims:
            return f"No claim{seen} uses it."
        return f"Used by {known_count(claims, 'claim')} in {counted(namespaces, 'namespace')}{seen}."

    @property
    def effects(self) -> tuple[Effect, ...]:
        """On the first few claims."""
        if self.broken:
            return ()
        return (*self.impact.fewer[:SHOWN], *self.impact.more[:SHOWN])

    @property
    def title(self) -> str:
        """Of the bar with the buttons: whether the form can be saved, and what that changes."""
        if not self.may_edit:
            return "Nothing is stored"
        if not self.savable:
            return "Cannot save yet"
        if not self.existing:
            return "Not saved yet"
        return f"{counted(lines_changed(self.lines), 'line')} changed" if self.lines else "No change"

    @property
    def explanation(self) -> str:
        """Behind the title; empty where `impact` says it."""
        if not self.may_edit:
            said = self.broken_sentence if self.broken else self.impact.sentence
            if settings.MIRROR:
                return f"You may not change classes of {settings.MIRROR_OF} from here. {said}"
            return f"Administrators save classes. {said}"
        if not self.savable:
            why = "A field is invalid."
            if self.form.non_field_errors():
                why = "It was refused; the reason is above."
            if self.cost.exceeds:
                why = "A selector may cost too much."
            if self.broken:
                subject, verb = ("Selector", "does") if len(self.broken) == 1 else ("Selectors", "do")
                why = f"{subject} {' and '.join(self.broken)} {verb} not compile."
            return why
        return ""

    @property
    def domains(self) -> tuple[Domain, ...]:
        return domains(self.verdicts.devices)

    @property
    def drivers(self) -> tuple[str, ...]:
        return drivers(self.verdicts.devices)

    @property
    def examples(self) -> tuple[tuple[str, str], ...]:
        return examples(self.verdicts.devices)


def guard_of(expression: str, error: str) -> str:
    """What to ask first, so that a missing key is no error; "" where that does not help."""
    missing = _MISSING.match(error)
    named = [ref for ref in sorted(_references(expression)) if missing and ref.identifier == missing[1]]
    return f'"{named[0].identifier}" in device.{named[0].field}["{named[0].domain}"]' if named else ""


def _references(expression: str) -> frozenset[DeviceReference]:
    """Empty for an expression that does not compile."""
    try:
        return compile_selector(expression).references or frozenset()
    except CompileError:
        return frozenset()


def evaluate(form: ClassForm, *, existing: DeviceClass | None, person: Person, refused: bool = False) -> Bench:
    """refused: the form has what the API said to it; otherwise the API's rules are applied, if anything changed."""
    began = time.perf_counter()
    snapshot = read_devices()
    expressions = [row.expression for row in form.kept_selectors]
    verdicts = judge(expressions, judged_devices(snapshot.published))
    took = time.perf_counter() - began
    for row, judged in zip(form.kept_selectors, verdicts.selectors, strict=True):
        row.judged = judged
    edited = to_class(form, existing=existing)
    if not refused and edited != existing:
        with suppress(TimeLimitExceeded):  # saving checks again
            for error in kind(CLASSES).validate_create(edited):
                # Not for a name that is not typed yet, nor for what editors say.
                unnamed = error.field.startswith("metadata.name") and not form.text("name")
                if not unnamed and not error.field.startswith("spec.selectors["):
                    complain(form, [{"field": error.field, "message": error.body}])
    users = users_of(edited.metadata.name, person, extended=edited.spec.extended_resource_name)
    compiling = tuple(text for text, judged in zip(expressions, verdicts.selectors, strict=True) if not judged.error)
    change = Impact(before=None, after=verdicts.matched, partial=True)
    if not verdicts.unjudged:
        before, held = expressions_of(existing) if existing else None, len(users.holding)
        with suppress(TimeLimitExceeded):  # waiting claims have selectors of their own
            name, waiting = edited.metadata.name, users.waiting
            change = impact(name, before=before, after=compiling, devices=verdicts.devices, waiting=waiting, held=held)
    return Bench(
        form=form,
        existing=existing,
        may_edit=person.may("update", CLASSES),
        verdicts=verdicts,
        snapshot=snapshot,
        compiling=compiling,
        milliseconds=1000 * took,
        cost=Cost(cost=verdicts.cost, known=verdicts.compiles),
        impact=change,
        lines=() if edited == existing else difference(manifest(existing) if existing else "", manifest(edited)),
        users=users,
        sees_all=not person.namespaces,
    )


def published_devices() -> JudgedDevices:
    return judged_devices(read_devices().published)


# What saving would mean for claims -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """On a waiting claim: how many devices one of its requests sees, before and after."""

    claim: ClassRequest
    before: int
    after: int

    @property
    def sentence(self) -> str:
        return f"sees {self.before} → {self.after} {'device' if self.after == 1 else 'devices'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """before, after: devices that match; `before` is None for a new class."""

    before: int | None
    after: int
    fewer: tuple[Effect, ...] = ()
    more: tuple[Effect, ...] = ()
    held: int = 0  # claims that hold devices through the class
    partial: bool = False  # there was no time to judge all devices

    @property
    def sentence(self) -> str:
        """`Matches 160 → 48. 9 waiting claims would see fewer devices; 22 held claims are not touched.`"""
        if self.partial:
            return "Effect on claims unknown: the selectors take too long."
        if self.before is None:
            return f"Matches {known_count(self.after, 'device')}."
        same = self.before == self.after
        head = f"Matches {self.after}, as now." if same else f"Matches {self.before} → {self.after}."
        parts = [
            f"{counted(len(effects), 'waiting claim')} would see {what} devices"
            for effects, what in ((self.fewer, "fewer"), (self.more, "more"))
            if effects
        ]
        if self.held:
            parts.append(f"{counted(self.held, 'held claim is', 'held claims are')} not touched")
        return f"{head} {'; '.join(parts)}." if parts else head


def impact(
    name: str,
    *,
    before: Sequence[str] | None,
    after: Sequence[str],
    devices: JudgedDevices,
    waiting: Iterable[ClassRequest],
    held: int,
) -> Impact:
    """name: of the class. before, after: its selectors, stored (None for a new class) and as they would be."""
    new = matches(after, devices)
    if before is None:
        return Impact(before=None, after=new.bit_count())
    old = matches(before, devices)
    effects = [_effect(claim, name, old, new, devices) for claim in waiting] if old != new else []
    fewer = tuple(effect for effect in effects if effect.after < effect.before)
    more = tuple(effect for effect in effects if effect.after > effect.before)
    return Impact(before=old.bit_count(), after=new.bit_count(), fewer=fewer, more=more, held=held)


def _effect(claim: ClassRequest, name: str, old: int, new: int, devices: JudgedDevices) -> Effect:
    """On the request that loses most; where none loses, on the one that gains most."""
    seen = (matches(selectors, devices) for selectors in claim.requests[name])
    counts = (((old & mask).bit_count(), (new & mask).bit_count()) for mask in seen)
    before, after = min(counts, key=lambda pair: (min(pair[1] - pair[0], 0), pair[0] - pair[1]))
    return Effect(claim=claim, before=before, after=after)


def pressed(form: ClassForm, data: Any) -> ClassForm | None:
    """The form after a button that saves nothing: add, check, guard, spelling or example. None without one."""
    if data.get("add") in ("selector", "config"):
        return form.with_selector(len(form.selectors), "") if data["add"] == "selector" else form.with_blank_config()
    devices = published_devices()
    if data.get("example") in {expression for _, expression in examples(devices)}:
        blank = next((row.place for row in form.selectors if row.blank), len(form.selectors))
        return form.with_selector(int(blank), data["example"])
    rows = form.kept_selectors
    for row in rows if "spelling" in data else ():
        misspelt = misspellings(row.expression, devices) if str(row.place) == data["spelling"] else []
        if misspelt:
            return form.with_selector(int(row.place), misspelt[0].fixed)
    for group in judge([row.expression for row in rows], devices).failures if "guard" in data else ():
        row = rows[group.selector]
        guard = guard_of(row.expression, group.text) if str(row.place) == data["guard"] else ""
        if guard:
            return form.with_selector(int(row.place), guarded(row.expression, guard))
    return form if data.keys() & {"check", "guard", "spelling", "example"} else None


# The map of all devices ----------------------------------------------------------------------------------------------

#: Width of the drawing, in its own units, which are pixels where the sheet has its full width.
WIDTH = 388
#: (most devices, distance of two marks)
PITCHES = ((480, 8), (1600, 6))
SMALLEST = 4
#: Marks in a row of one node; a node with more has further rows.
ROW = 16


@dataclass(frozen=True, slots=True)
class Map:
    """A line of marks for each node, several nodes side by side, drawn as three paths: a run of devices with the same
    verdict is one dashed stroke, so that 5,000 devices are a few thousand characters.
    """

    width: int
    height: int
    mark: float  # a mark's width
    thickness: float
    miss: str  # the paths
    match: str
    error: str
    label: str


#: Of devices in the map: left, middle, their places among all.
MapRow = tuple[int, float, tuple[int, ...]]


def draw(verdicts: ClassVerdicts) -> Map:
    devices = verdicts.devices
    rows, height, pitch, nodes = devices.derived("map", lambda: _rows(devices))
    verdict = bytearray(len(devices.candidates))
    for place in places(verdicts.match):
        verdict[place] = 1
    for place in places(verdicts.error):
        verdict[place] = 2
    paths: tuple[list[str], ...] = ([], [], [])
    for left, middle, row in rows:
        start = 0
        for which, run in groupby(verdict[place] for place in row):
            length = sum(1 for _ in run)
            paths[which].append(f"M{left + start * pitch} {middle:g}h{length * pitch - 1}")
            start += length
    miss, match, error = map("".join, paths)
    return Map(WIDTH, height, pitch - 1, pitch - 0.5, miss, match, error, _label(verdicts, nodes))


def _rows(devices: JudgedDevices) -> tuple[list[MapRow], int, int, int]:
    """The rows, the height of the map, the distance of two marks, and how many nodes there are."""
    nodes: dict[str, list[int]] = {}
    for place, candidate in enumerate(devices.candidates):
        nodes.setdefault(candidate.place, []).append(place)
    pitch = next((pitch for most, pitch in PITCHES if len(devices.candidates) <= most), SMALLEST)
    # As wide as most nodes are: the few with more devices have further rows.
    usual = Counter(map(len, nodes.values())).most_common(1)
    row = min(usual[0][0] if usual else 1, ROW)
    wide = row * pitch
    columns = max(1, (WIDTH + 8) // (wide + 8))
    gap = (WIDTH - columns * wide) // (columns - 1) if columns > 1 else 0
    height = pitch + 3
    rows = list[MapRow]()
    for name in sorted(nodes, key=natural):
        for first in range(0, len(nodes[name]), row):
            across, down = len(rows) % columns, len(rows) // columns
            rows.append((across * (wide + gap), down * height + height / 2, tuple(nodes[name][first : first + row])))
    return rows, -(-len(rows) // columns) * height, pitch, len(nodes)


def _label(verdicts: ClassVerdicts, nodes: int) -> str:
    """What the map shows, for screen readers."""

    def on(mask: int) -> str:
        names = {device.place for _, device in verdicts.devices.chosen(mask)}
        return f", on {spelled(names)}" if names else ""

    parts = [f"{verdicts.matched} {'device matches' if verdicts.matched == 1 else 'devices match'}{on(verdicts.match)}"]
    if verdicts.failed:
        parts.append(f"{verdicts.failed} {'raises' if verdicts.failed == 1 else 'raise'} an error{on(verdicts.error)}")
    parts.append(f"{verdicts.missed} {'does' if verdicts.missed == 1 else 'do'} not match")
    return f"Map of {nodes} {'node' if nodes == 1 else 'nodes'}: {'; '.join(parts)}"


# Misspellings --------------------------------------------------------------------------------------------------------

#: Dots of a version.
VERSION_DOTS = 2
#: A text in quotes; a bracket before it says that it is the name of a domain.
_LITERAL = re.compile(r"""(?P<before>[\[]?)(?P<quote>["'])(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Misspelling:
    """A name or value in a selector that no device has. A missing key is an error on every device, and such a value
    refuses all of them: both are more often typed wrong than meant.

    meant: something similar that is published; devices: that have the name, 0 for a value; fixed: the selector with it.
    """

    written: str
    meant: str
    devices: int
    fixed: str

    @property
    def sentence(self) -> str:
        """Behind "Nobody publishes `written`"."""
        return f"; {counted(self.devices, 'device has', 'devices have')} the other" if self.devices else ""


def misspellings(expression: str, devices: JudgedDevices) -> list[Misspelling]:
    """None in an expression that does not compile."""
    references = _references(expression)
    if not references or not devices.candidates:
        return []
    published = [prop for domain in domains(devices) for prop in domain.properties]
    names = _misspelt_names(expression, sorted(references), published)
    return [
        *names,
        *_misspelt_values(expression, references, published, devices),
        *_quoted_values(expression, references, published),
    ]


#: A comparison with a text: what is compared, and the text with its quotes.
_COMPARED = re.compile(r"""\.\s*(?P<name>\w+)\s*(?P<by>[=!<>]=?)\s*(?P<literal>(["'])(?P<text>[^"']*)\4)""")


def _quoted_values(
    expression: str, references: Collection[DeviceReference], published: Sequence[ClassProperty]
) -> Iterator[Misspelling]:
    """Numbers, booleans and versions in quotes: no device has such a text."""
    looked_at = {(ref.field, ref.domain, ref.identifier) for ref in references}
    types = {prop.name: prop.type for prop in published if (prop.field, prop.domain, prop.name) in looked_at}
    for compared in _COMPARED.finditer(expression):
        text, literal, type_ = compared["text"], compared["literal"], types.get(compared["name"], "")
        meant = ""
        if (type_ == "int" and re.fullmatch(r"-?\d+", text)) or (type_ == "bool" and text in ("true", "false")):
            meant = text
        elif type_ == "semver" and text.count(".") == VERSION_DOTS and compared["by"] in ("==", "!="):
            meant = f"semver({literal})"
        if meant:
            fixed = expression[: compared.start("literal")] + meant + expression[compared.end("literal") :]
            yield Misspelling(written=literal, meant=meant, devices=0, fixed=fixed)


def _misspelt_names(
    expression: str, references: Sequence[DeviceReference], published: Sequence[ClassProperty]
) -> Iterator[Misspelling]:
    """Domains and identifiers."""
    for ref in references:
        if ref.field not in ("attributes", "capacity") or not ref.domain:
            continue
        inside = {prop.name: prop.devices for prop in published if (prop.field, prop.domain) == (ref.field, ref.domain)}
        if inside:
            written, sizes = ref.identifier, inside
        else:
            written, sizes = ref.domain, {prop.domain: prop.devices for prop in published if prop.field == ref.field}
        meant = nearest(written, sizes) if written and written not in inside else ""
        if not meant:
            continue
        if inside:  # behind its domain, and where its presence is asked
            domain, name = re.escape(ref.domain), re.escape(written)
            fixed = re.sub(rf"""(\[\s*["']{domain}["']\s*\]\s*\.\s*){name}\b""", rf"\g<1>{meant}", expression)
            fixed = re.sub(rf"""(["']){name}(["'])(\s+in\b)""", rf"\g<1>{meant}\g<2>\g<3>", fixed)
        else:
            fixed = expression.replace(f'"{written}"', f'"{meant}"').replace(f"'{written}'", f"'{meant}'")
        yield Misspelling(written=written, meant=meant, devices=sizes[meant], fixed=fixed)


def _misspelt_values(
    expression: str, references: Collection[DeviceReference], published: Sequence[ClassProperty], devices: JudgedDevices
) -> Iterator[Misspelling]:
    """Texts in quotes that are no value of what the selector looks at."""
    looked_at = {(ref.field, ref.domain, ref.identifier) for ref in references}
    values = {
        str(value)
        for prop in published
        if prop.type == "string" and not prop.more and (prop.field, prop.domain, prop.name) in looked_at
        for value in prop.values
    }
    if any(ref.field == "driver" for ref in references):
        values |= {*drivers(devices)}
    if not values:
        return
    domain_names = {prop.domain for prop in published} | {ref.domain for ref in references}
    names = {ref.identifier for ref in references} | {prop.name for prop in published}
    for literal in _LITERAL.finditer(expression):
        text, quote = literal["text"], literal["quote"]
        is_name = literal["before"] == "[" and text in domain_names
        if is_name or text in names or any(text in value for value in values):
            continue
        if meant := nearest(text, values):
            fixed = expression.replace(f"{quote}{text}{quote}", f"{quote}{meant}{quote}")
            yield Misspelling(written=text, meant=meant, devices=0, fixed=fixed)


# Completions ---------------------------------------------------------------------------------------------------------

#: Values of one attribute that are suggested.
COMPLETED = 50

Option = dict[str, str]

#: type -> (method, its result); the caret stands inside of the parentheses afterwards
_METHODS: dict[str, tuple[tuple[str, str], ...]] = {
    "string": (
        ("startsWith(", "bool"), ("endsWith(", "bool"), ("contains(", "bool"), ("matches(", "regular expression"),
        ("lowerAscii()", "string"), ("size()", "int"),
    ),
    "semver": (
        ("isGreaterThan(semver(", "bool"), ("isLessThan(semver(", "bool"), ("compareTo(semver(", "-1, 0 or 1"),
        ("major()", "int"), ("minor()", "int"), ("patch()", "int"),
    ),
    "quantity": (
        ("compareTo(quantity(", "-1, 0 or 1"), ("isGreaterThan(quantity(", "bool"), ("isLessThan(quantity(", "bool"),
        ("asInteger()", "int"), ("asApproximateFloat()", "double"),
    ),
    "list": (("exists(value, value == ", "bool"), ("all(value, value == ", "bool"), ("size()", "int")),
}  # fmt: skip

_WORDS: tuple[Option, ...] = (
    {"label": "device", "detail": "what is judged", "apply": "device."},
    {"label": "quantity", "detail": "amount", "apply": "quantity("},
    {"label": "semver", "detail": "version", "apply": "semver("},
    {"label": "isSemver", "detail": "bool", "apply": "isSemver("},
    {"label": "isQuantity", "detail": "bool", "apply": "isQuantity("},
    {"label": "has", "detail": "is it there", "apply": "has("},
    {"label": "cel.bind", "detail": "name a value", "apply": "cel.bind(x, "},
    {"label": "true", "detail": "bool"},
    {"label": "false", "detail": "bool"},
)
_FIELDS: tuple[Option, ...] = (
    {"label": "driver", "detail": "string"},
    {"label": "attributes", "detail": "by domain", "apply": 'attributes["'},
    {"label": "capacity", "detail": "by domain", "apply": 'capacity["'},
    {"label": "allowMultipleAllocations", "detail": "bool"},
)


def cel_table(devices: JudgedDevices) -> Mapping[str, list[Option]]:
    """For editors of selectors: a text before the caret -> what may follow."""

    def table() -> dict[str, list[Option]]:
        options_after: dict[str, list[Option]] = {"": [*_WORDS, *_functions()], "device.": list(_FIELDS)}
        options_after |= _after_comparison("device.driver", [f'"{name}"' for name in drivers(devices)])
        for domain in domains(devices):
            apply, size = f'{domain.name}"].', str(len(domain.properties))
            for name in sorted({prop.field for prop in domain.properties}):
                options = options_after.setdefault(f'device.{name}["', [])
                options.append({"label": domain.name, "apply": apply, "detail": size})
            for prop in domain.properties:
                detail = prop.summary if prop.type == "quantity" else prop.type
                options = options_after.setdefault(f'device.{prop.field}["{prop.domain}"].', [])
                options.append({"label": prop.name, "detail": detail})
                options_after |= _after_property(prop)
        return options_after

    return devices.derived("completions", table)


def _after_property(prop: ClassProperty) -> dict[str, list[Option]]:
    table: dict[str, list[Option]] = {}
    if methods := _METHODS.get(prop.type):
        options = [{"label": name.partition("(")[0], "apply": name, "detail": detail} for name, detail in methods]
        table[f"{prop.text}."] = options
    values = [shown(value) for value in prop.values[:COMPLETED]]
    if prop.type not in ("semver", "quantity"):
        return table | _after_comparison(prop.text, values)
    for method in ("isGreaterThan", "isLessThan", "compareTo"):
        start = f"{prop.text}.{method}({prop.type}("
        table[start] = [{"label": f'"{value}"', "apply": f'"{value}")'} for value in values]
        table[f'{start}"'] = [{"label": value, "apply": f'{value}")'} for value in values]
    return table


def _after_comparison(text: str, values: Sequence[str]) -> dict[str, list[Option]]:
    """After == and !=, in quotes where a value has some; the opening quote may have been typed."""
    table: dict[str, list[Option]] = {}
    quoted = [value[1:-1] for value in values if value.startswith('"')]
    for operator in ("==", "!="):
        table[f"{text}{operator}"] = [{"label": value} for value in values]
        if quoted:
            table[f'{text}{operator}"'] = [{"label": value, "apply": f'{value}"'} for value in quoted]
    return table


@cache
def _functions() -> list[Option]:
    """The functions that need no receiver, as the compiler declares them."""
    listed = {"in", *(option["label"] for option in _WORDS)}
    return [
        {"label": name, "detail": "function", "apply": f"{name}("}
        for name, overloads in sorted(stored_environment().functions.items())
        if name.isidentifier() and name[0] != "_" and name not in listed and not all(one.is_member for one in overloads)
    ]
