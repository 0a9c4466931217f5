"""Names and values in a selector that nobody publishes, and the published ones that are probably meant. Pure.

A missing key is an error on every device, and a value that no device has refuses all of them: both are more often typed
wrong than meant. What is near enough to something published is offered in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial

from dashboard.inventory.classes.attributes import ClassProperty, domains, drivers
from insight.selector_matches import JudgedDevices
from scheduling.cel import CompileError, compile_selector
from scheduling.cel.selector import DeviceReference

#: How much of two words must be alike, of 1.
NEAR = 0.74
#: A text in quotes; what stands in brackets before or behind it says that it is the name of a domain.
_LITERAL = re.compile(r"""(?P<before>[\[]?)(?P<quote>["'])(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Misspelling:
    """written: as the selector has it; meant: what is published; devices: that have the name, 0 of a value; fixed: the
    selector with it."""

    written: str
    meant: str
    devices: int
    fixed: str


def misspellings(expression: str, devices: JudgedDevices) -> list[Misspelling]:
    """None for a text that does not compile: that is told otherwise."""
    try:
        references = compile_selector(expression).references
    except CompileError:
        return []
    if not devices.candidates:
        return []
    published = [one for domain in domains(devices) for one in domain.properties]
    names = list(_names(expression, sorted(references or ()), published))
    return [*names, *_values(expression, references or frozenset(), published, devices)]


def _names(
    expression: str, references: Sequence[DeviceReference], published: Sequence[ClassProperty]
) -> Iterator[Misspelling]:
    """Domains and identifiers."""
    for one in references:
        if one.field not in ("attributes", "capacity") or not one.domain:
            continue
        inside = {each.name: each.devices for each in published if (each.field, each.domain) == (one.field, one.domain)}
        if not inside:
            sizes = {each.domain: each.devices for each in published if each.field == one.field}
            yield from _offer(one.domain, sizes, partial(_with_domain, expression, one.domain))
        elif one.identifier and one.identifier not in inside:
            yield from _offer(one.identifier, inside, partial(_with_name, expression, one))


def _offer(written: str, sizes: Mapping[str, int], fix: Callable[[str], str]) -> Iterator[Misspelling]:
    if meant := nearest(written, sizes):
        yield Misspelling(written=written, meant=meant, devices=sizes[meant], fixed=fix(meant))


def _with_domain(expression: str, domain: str, meant: str) -> str:
    return expression.replace(f'"{domain}"', f'"{meant}"').replace(f"'{domain}'", f"'{meant}'")


def _with_name(expression: str, reference: DeviceReference, meant: str) -> str:
    """Behind its domain, and where it is asked whether it is there."""
    domain, name = re.escape(reference.domain), re.escape(reference.identifier)
    behind = re.sub(rf"""(\[\s*["']{domain}["']\s*\]\s*\.\s*){name}\b""", rf"\g<1>{meant}", expression)
    return re.sub(rf"""(["']){name}(["'])(\s+in\b)""", rf"\g<1>{meant}\g<2>\g<3>", behind)


def _values(
    expression: str, references: Collection[DeviceReference], published: Sequence[ClassProperty], devices: JudgedDevices
) -> Iterator[Misspelling]:
    """Texts in quotes that no device has as a value of what the selector looks at."""
    looked_at = {(one.field, one.domain, one.identifier) for one in references}
    known: dict[str, int] = {}
    for one in published:
        if one.type == "string" and not one.more and (one.field, one.domain, one.name) in looked_at:
            known |= dict.fromkeys(map(str, one.values), 0)
    if any(one.field == "driver" for one in references):
        known |= dict.fromkeys(drivers(devices), 0)
    if not known:
        return
    domain_names = {one.domain for one in published} | {one.domain for one in references}
    names = {one.identifier for one in references} | {one.name for one in published}
    for found in _LITERAL.finditer(expression):
        text = found["text"]
        is_name = found["before"] == "[" and text in domain_names
        if is_name or text in names or any(text in value for value in known):
            continue
        if text not in known and (meant := nearest(text, known)):
            quoted, wanted = f"{found['quote']}{text}{found['quote']}", f"{found['quote']}{meant}{found['quote']}"
            fixed = expression.replace(quoted, wanted)
            yield Misspelling(written=text, meant=meant, devices=known[meant], fixed=fixed)


def nearest(written: str, known: Collection[str]) -> str:
    """The one that is most alike; "" where none is near enough."""
    wanted = written.casefold()
    alike = ((SequenceMatcher(None, wanted, one.casefold()).ratio(), one) for one in known if one != written)
    ratio, found = max(alike, default=(0.0, ""))
    return found if ratio >= NEAR else ""
