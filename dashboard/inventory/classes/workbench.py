"""What stands around the editors of a class: verdicts, guards, cost, the difference, what saving would change.

Everything is worked out from the form as it stands; nothing is stored.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from claims.devices.cache import read_devices
from claims.devices.pools import DeviceSnapshot
from claims.devices.published import CandidateDevice
from claims.devices.states import DeviceState
from dashboard.inventory.classes import attributes as class_attributes
from dashboard.inventory.classes import map as class_map
from dashboard.inventory.classes import users as class_claims
from dashboard.inventory.classes.form import (
    ClassForm,
    Draft,
    SelectorRow,
    complain,
    draft_of,
    from_class,
    guarded,
    to_class,
)
from dashboard.inventory.classes.manifest import manifest
from dashboard.inventory.classes.places import spelled
from dashboard.inventory.classes.spelling import Misspelling, misspellings
from dashboard.inventory.classes.users import ClassRequest
from dashboard.inventory.classes.verdicts import ClassVerdicts, VerdictGroup, judge, matches
from dashboard.inventory.devices.grid import STATES, how_many
from dashboard.kit.differences import DiffLine, difference, lines_changed
from insight.how_many_fit import NOTHING, Count, count
from insight.selector_matches import JudgedDevices, judged_devices
from inventory.kinds.devices import DeviceClass
from manciple.people import Person
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.registry import Kind, registry
from manciple.wire.resources import CLASSES
from scheduling.cel import COST_LIMIT, CompileError, compile_selector

#: Matching devices that are named at once, and when all are asked for.
SHOWN, LISTED = 6, 120
#: Groups of devices that are told apart, and devices that are named in one.
GROUPS, NAMED = 10, 24

_MISSING = re.compile(r"no such key: (\w+)")
_LOOKUP = re.compile(r'device\.(?:attributes|capacity)\["[^"]*"\]\.')


def class_kind() -> Kind:
    return registry.by_resource(CLASSES)


def expressions_of(device_class: DeviceClass) -> tuple[str, ...]:
    return tuple(selector.cel.expression for selector in device_class.spec.selectors if selector.cel)


@dataclass(frozen=True, slots=True)
class ShownDevice:
    candidate: CandidateDevice
    state: DeviceState

    @property
    def state_name(self) -> str:
        return STATES[self.state]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGroup:
    """A group as it is drawn. `fixed`: the selector with the guard in front, where a guard would help."""

    group: VerdictGroup
    row: SelectorRow
    count: int
    guard: str = ""
    fixed: str = ""

    @property
    def devices(self) -> tuple[CandidateDevice, ...]:
        return self.group.devices[:NAMED]

    @property
    def more(self) -> int:
        return max(0, self.count - NAMED)

    @property
    def text(self) -> str:
        """The operand without where its names come from; what went wrong without advice that the page gives itself."""
        return _LOOKUP.sub("", self.group.text).partition(". consider ")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of the most expensive selector on the worst device that could be published."""

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
    """A form, evaluated."""

    form: ClassForm
    existing: DeviceClass | None
    verdicts: ClassVerdicts
    snapshot: DeviceSnapshot = field(repr=False)
    compiling: tuple[str, ...]
    milliseconds: float
    cost: Cost
    impact: Impact
    lines: tuple[DiffLine, ...]
    users: class_claims.Users = field(repr=False)

    @property
    def name(self) -> str:
        return self.existing.metadata.name if self.existing else self.form.text("name")

    @cached_property
    def draft(self) -> Draft:
        """What of the form is not saved."""
        return draft_of(self.form, from_class(self.existing) if self.existing else ClassForm())

    @cached_property
    def map(self) -> class_map.Map:
        return class_map.draw(self.verdicts)

    @cached_property
    def count(self) -> Count:
        """The devices that match, by state, and how many more claims fit; from what compiles, if there is time."""
        if self.verdicts.unjudged or (self.broken and not self.compiling):
            return NOTHING
        try:
            return count(self.snapshot, self.compiling)
        except TimeLimitExceeded:
            return NOTHING

    @property
    def seconds(self) -> str:
        return f"{self.milliseconds / 1000:.1f}"

    @property
    def fits(self) -> str:
        return how_many(self.count.fits)

    @property
    def shown(self) -> list[ShownDevice]:
        """The first that match, the free ones before the others."""
        return self._matching[:SHOWN]

    @property
    def rest(self) -> list[ShownDevice]:
        return self._matching[SHOWN:LISTED]

    @property
    def more(self) -> int:
        return max(0, self.verdicts.matched - SHOWN)

    @property
    def unlisted(self) -> int:
        return max(0, self.verdicts.matched - LISTED)

    @cached_property
    def more_on(self) -> str:
        return spelled(one.candidate.place for one in self._matching[SHOWN:])

    @cached_property
    def _matching(self) -> list[ShownDevice]:
        found = [ShownDevice(device, self.snapshot.state_of(device)) for device in self.verdicts.matching]
        return sorted(found, key=lambda one: one.state is not DeviceState.FREE)

    @cached_property
    def refusals(self) -> list[ShownGroup]:
        return [self._group(group) for group in self.verdicts.refusals[:GROUPS]]

    @property
    def refusals_left_out(self) -> int:
        return sum(len(group.devices) for group in self.verdicts.refusals[GROUPS:])

    @cached_property
    def failures(self) -> list[ShownGroup]:
        return [self._group(group) for group in self.verdicts.failures[:GROUPS]]

    @cached_property
    def misspelt(self) -> list[tuple[SelectorRow, Misspelling]]:
        """What selectors name that nobody publishes, though something like it is; if there is time."""
        if self.verdicts.unjudged:
            return []
        rows = [row for row in self.form.kept_selectors if row.judged and not row.judged.error]
        return [(row, one) for row in rows for one in misspellings(row.expression, self.verdicts.devices)]

    def _group(self, group: VerdictGroup) -> ShownGroup:
        row = self.form.kept_selectors[group.selector]
        missing = _MISSING.match(group.text)
        misspelt = missing and any(each is row and one.written == missing[1] for each, one in self.misspelt)
        guard = "" if misspelt else guard_of(row.expression, group.text)
        fixed = guarded(row.expression, guard) if guard else ""
        return ShownGroup(group=group, row=row, count=len(group.devices), guard=guard, fixed=fixed)

    @property
    def changed(self) -> int:
        return lines_changed(self.lines)

    @property
    def broken(self) -> list[int | str]:
        """The numbers, in the form, of the selectors that do not compile."""
        return [row.number for row in self.form.selectors if row.judged and row.judged.error]

    @property
    def savable(self) -> bool:
        return not self.broken and not self.cost.exceeds and not self.form.wrong


def guard_of(expression: str, error: str) -> str:
    """What to ask first, so that a missing key is no error; "" where that does not help."""
    missing = _MISSING.match(error)
    try:
        references = compile_selector(expression).references or ()
    except CompileError:
        return ""
    for one in sorted(references):
        if missing and one.identifier == missing[1]:
            return f'"{one.identifier}" in device.{one.field}["{one.domain}"]'
    return ""


def evaluate(form: ClassForm, *, existing: DeviceClass | None, person: Person, refused: bool = False) -> Bench:
    """refused: the form has what the API said on an attempt to save; else the rules are asked of what is filled in."""
    began = time.perf_counter()
    snapshot = read_devices()
    now = judged_devices(snapshot.published)
    expressions = [row.expression for row in form.kept_selectors]
    verdicts = judge(expressions, now)
    took = time.perf_counter() - began
    for row, judged in zip(form.kept_selectors, verdicts.selectors, strict=True):
        row.judged = judged
    wanted = to_class(form, existing=existing)
    if not refused:
        with suppress(TimeLimitExceeded):  # saving checks again
            check(form, wanted)
    users = class_claims.users_of(wanted.metadata.name, person)
    compiling = [text for text, judged in zip(expressions, verdicts.selectors, strict=True) if not judged.error]
    return Bench(
        form=form,
        existing=existing,
        verdicts=verdicts,
        snapshot=snapshot,
        compiling=tuple(compiling),
        milliseconds=1000 * took,
        cost=Cost(cost=verdicts.cost, known=verdicts.compiles),
        impact=_impact_in_time(wanted, existing, verdicts, compiling, users),
        lines=difference(manifest(existing) if existing else "", manifest(wanted)),
        users=users,
    )


def _impact_in_time(
    wanted: DeviceClass,
    existing: DeviceClass | None,
    verdicts: ClassVerdicts,
    compiling: Sequence[str],
    users: class_claims.Users,
) -> Impact:
    """Claims that wait have selectors of their own, which may take too long as well."""
    if not verdicts.unjudged:
        with suppress(TimeLimitExceeded):
            return impact(
                wanted.metadata.name,
                before=expressions_of(existing) if existing else None,
                after=compiling,
                devices=verdicts.devices,
                waiting=users.waiting,
                held=len(users.holding),
            )
    return Impact(before=None, after=verdicts.matched, partial=True)


def check(form: ClassForm, wanted: DeviceClass) -> None:
    """Put what the API's rules say at the fields, leaving out what is not filled in yet and what editors say."""
    for one in class_kind().validate_create(wanted):
        unnamed = one.field.startswith("metadata.name") and not form.text("name")
        if not unnamed and not one.field.startswith("spec.selectors["):
            complain(form, [{"field": one.field, "message": one.body}])


def published_devices() -> JudgedDevices:
    """As they are now."""
    return judged_devices(read_devices().published)


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """What is published, for an editor. examples: (what it chooses, expression)."""

    domains: tuple[class_attributes.Domain, ...]
    drivers: tuple[str, ...]
    examples: list[tuple[str, str]]


def palette(now: JudgedDevices) -> Palette:
    return Palette(
        domains=class_attributes.domains(now),
        drivers=class_attributes.drivers(now),
        examples=list(class_attributes.examples(now)),
    )


# What a change would mean for claims ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """On one claim that waits: how many devices one of its requests sees, before and after."""

    claim: ClassRequest
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """`before` is None where the class is new."""

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
            return "What the change means for claims is not known: the selectors take too long to evaluate."
        if self.before is None:
            return f"Matches {_counted(self.after, 'device')}."
        head = (
            f"Matches {self.before} → {self.after}." if self.before != self.after else f"Matches {self.after}, as now."
        )
        parts = []
        for effects, what in ((self.fewer, "fewer"), (self.more, "more")):
            if effects:
                parts.append(f"{_counted(len(effects), 'waiting claim')} would see {what} devices")
        if self.held:
            parts.append(f"{_counted(self.held, 'held claim')} {'is' if self.held == 1 else 'are'} not touched")
        if not parts:
            return head
        return f"{head} {'; '.join(parts)}."


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def impact(
    name: str,
    *,
    before: Sequence[str] | None,
    after: Sequence[str],
    devices: JudgedDevices,
    waiting: Iterable[ClassRequest],
    held: int,
) -> Impact:
    """name: the class. before, after: its selectors as stored (None for a new class) and as they would be."""
    new = matches(after, devices)
    if before is None:
        return Impact(before=None, after=new.bit_count())
    old = matches(before, devices)
    fewer: list[Effect] = []
    more: list[Effect] = []
    for claim in waiting if old != new else ():
        effect = _effect(claim, name, old, new, devices)
        if effect.after < effect.before:
            fewer.append(effect)
        elif effect.after > effect.before:
            more.append(effect)
    return Impact(before=old.bit_count(), after=new.bit_count(), fewer=tuple(fewer), more=tuple(more), held=held)


def _effect(claim: ClassRequest, name: str, old: int, new: int, devices: JudgedDevices) -> Effect:
    """On the request that loses most; where none loses, on the one that gains most."""
    found = []
    for selectors in claim.requests[name]:
        seen = matches(selectors, devices)
        found.append(((old & seen).bit_count(), (new & seen).bit_count()))
    before, after = min(found, key=lambda one: (min(one[1] - one[0], 0), -(one[1] - one[0])))
    return Effect(claim=claim, before=before, after=after)


# Buttons that save nothing --------------------------------------------------------------------------------------------


def pressed(form: ClassForm, data: Any) -> ClassForm | None:
    """The form after a button that saves nothing: add, check, guard or example; None where none was pressed."""
    if data.get("add") == "selector":
        return form.with_selector(len(form.selectors), "")
    if data.get("add") == "config":
        return form.with_blank_config()
    if "example" in data:
        known = {expression for _, expression in class_attributes.examples(published_devices())}
        return with_example(form, data["example"]) if data["example"] in known else form
    if "spelling" in data:
        return _with_spelling(form, data["spelling"])
    if "guard" in data:
        return _with_guards(form, data["guard"])
    return form if "check" in data else None


def with_example(form: ClassForm, expression: str) -> ClassForm:
    """In the first blank selector, or in one of its own."""
    blank = next((row.place for row in form.selectors if row.blank), len(form.selectors))
    return form.with_selector(int(blank), expression)


def _with_spelling(form: ClassForm, number: str) -> ClassForm:
    """The selector with this number in the form, its first misspelling fixed."""
    for row in form.kept_selectors:
        for one in misspellings(row.expression, published_devices()) if str(row.place) == number else ():
            return form.with_selector(int(number), one.fixed)
    return form


def _with_guards(form: ClassForm, number: str) -> ClassForm:
    """The selector with this number in the form, asked only where its keys are there."""
    verdicts = judge([row.expression for row in form.kept_selectors], published_devices())
    for group in verdicts.failures:
        row = form.kept_selectors[group.selector]
        guard = guard_of(row.expression, group.text)
        if str(row.place) == number and guard:
            return form.with_selector(int(number), guarded(row.expression, guard))
    return form
