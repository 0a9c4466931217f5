"""Finding by what things have: attributes of devices (UUIDs, serial numbers, PCI addresses), taints, labels, uids.

A value that one device has leads to that device, one that many have to the grid with those that have it. What is
searched of a ResourceSlice is one text, kept with it for as long as it is published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlencode

from claims.devices.cache import read_devices
from claims.devices.published import CandidateDevice, DeviceSlice
from dashboard.kit import links
from dashboard.tools.find.sought import PART, SHOWN, Hit, Sought, best, hit, rank_of
from inventory.kinds.devices import DeviceTaint, DeviceTaintRule
from inventory.kinds.nodes import Node, Taint
from manciple.people import Person
from manciple.store import finding
from manciple.store.objects import listed
from manciple.wire.resources import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, QUOTAS, SLICES, TAINT_RULES, TEMPLATES

#: Shorter texts are parts of too much to be worth looking for.
SHORTEST = 2
#: Resources whose objects have pages, and what one is called.
WORDS = {
    PODS: "Pod",
    CLAIMS: "Claim",
    TEMPLATES: "Template",
    NODES: "Node",
    CLASSES: "Class",
    NAMESPACES: "Namespace",
    QUOTAS: "Quota",
    TAINT_RULES: "Taint rule",
}
#: What the beginning of a uid looks like.
_UID = re.compile(r"^[0-9a-f]{6,8}(-[0-9a-f-]*)?$")

# Devices -------------------------------------------------------------------------------------------------------------


def search_attributes(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    """Values of attributes and capacities."""
    text = sought.text.lower()
    if len(text) < SHORTEST or not person.may("list", SLICES):
        return [], False
    holders: dict[tuple[str, str], list[CandidateDevice]] = {}
    for one, (name, value) in _facts_with(text):
        holders.setdefault((name, value), []).append(one)
    return best(_attribute(sought.text, name, value, those) for (name, value), those in holders.items())


def _facts_with(text: str) -> Iterator[tuple[CandidateDevice, tuple[str, str]]]:
    for published in read_devices().published.slices:
        if text not in _text_of(published):
            continue
        for one in published.candidates:
            for name, value in one.facts:
                if text in value.lower():
                    yield one, (name, value)


def _text_of(published: DeviceSlice) -> str:
    """Every value that its devices have, a line each, in small letters."""
    known: str | None = published.memo.get(_text_of)
    if known is None:
        values = dict.fromkeys(value.lower() for one in published.candidates for _, value in one.facts)
        known = published.memo[_text_of] = "\n".join(values)
    return known


def _attribute(text: str, name: str, value: str, those: list[CandidateDevice]) -> Hit:
    rank = rank_of(text, value)
    if len(those) == 1:
        one = those[0]
        aside, url = f"{name} of {one.title}", links.device_url(*one.key)
        return hit(text, rank, value, url=url, aside=aside, thing=("device", *one.key))
    url = f"/devices?{urlencode({'attr': f'{name}:{value}'})}"
    return hit(text, rank, value, url=url, aside=f"{name} of {len(those):,} devices")


# Taints --------------------------------------------------------------------------------------------------------------


def search_taints(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    """Taints of devices, of nodes, and the rules that make them, by key, value or effect."""
    text = sought.text.lower()
    if len(text) < SHORTEST:
        return [], False
    hits = list[Hit]()
    if person.may("list", SLICES):
        hits += _device_taints(sought.text)
    if person.may("list", TAINT_RULES):
        hits += _rules(sought.text)
    if person.may("list", NODES):
        hits += _node_taints(sought.text)
    return best(hits)


def _said(taint: DeviceTaint | Taint) -> str:
    """As `kubectl taint` writes it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _device_taints(text: str) -> Iterator[Hit]:
    devices: dict[str, list[CandidateDevice]] = {}
    for one in read_devices().candidates:
        for taint in one.device.taints:
            if text.lower() in (said := _said(taint)).lower():
                devices.setdefault(said, []).append(one)
    for said, those in devices.items():
        yield _device_taint(text, said, those)


def _device_taint(text: str, said: str, those: list[CandidateDevice]) -> Hit:
    if len(those) == 1:
        one = those[0]
        url = links.device_url(*one.key)
        return hit(text, PART, said, url=url, aside=f"on {one.title}", thing=("device", *one.key))
    cause = said.rpartition(":")[0]
    url = f"/incidents?{urlencode({'cause': cause})}"
    return hit(text, PART, said, url=url, aside=f"on {len(those):,} devices")


def _rules(text: str) -> Iterator[Hit]:
    _, rules = listed(TAINT_RULES, DeviceTaintRule)
    for rule in rules:
        if text.lower() in (said := _said(rule.spec.taint)).lower():
            name = rule.metadata.name
            url = links.taint_rule_url(name)
            yield hit(text, PART, said, url=url, aside=f"by rule {name}", thing=(TAINT_RULES, "", name))


def _node_taints(text: str) -> Iterator[Hit]:
    _, nodes = listed(NODES, Node)
    for node in nodes:
        for taint in node.spec.taints:
            if text.lower() in (said := _said(taint)).lower():
                name = node.metadata.name
                url = links.node_url(name)
                yield hit(text, PART, said, url=url, aside=f"on node {name}", thing=(NODES, "", name))


# Objects -------------------------------------------------------------------------------------------------------------


def search_labels(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    """Objects by a part of one of their labels."""
    text = sought.text
    if len(text) < SHORTEST:
        return [], False
    found = finding.labelled(text, _open_to(person), namespaces=person.namespaces, limit=SHOWN + 1)
    hits = [_labelled(text, one) for one in found if _is_seen(one, person)]
    return hits[:SHOWN], len(hits) > SHOWN


def _labelled(text: str, one: finding.FoundObject) -> Hit:
    label = next(f"{key}={value}" for key, value in one.labels.items() if text.lower() in f"{key}={value}".lower())
    return hit(text, PART, label, url=_url(one), aside=_aside(one), thing=(one.resource, one.namespace, one.name))


def search_uids(sought: Sought, person: Person) -> tuple[list[Hit], bool]:
    """Objects by the beginning of their uid."""
    text = sought.text.lower()
    if not _UID.match(text):
        return [], False
    found = finding.with_uid(text, _open_to(person), namespaces=person.namespaces, limit=SHOWN + 1)
    hits = [_with_uid(text, one) for one in found if _is_seen(one, person)]
    return hits[:SHOWN], len(hits) > SHOWN


def _with_uid(text: str, one: finding.FoundObject) -> Hit:
    thing = (one.resource, one.namespace, one.name)
    return hit(text, rank_of(text, one.uid), one.uid, url=_url(one), aside=_aside(one), thing=thing)


def _open_to(person: Person) -> list[str]:
    """Resources of which the person sees objects; those in namespaces are chosen by these."""
    open_ones = {PODS, CLAIMS, TEMPLATES}
    return [one for one in WORDS if one in open_ones or person.may("list", one)]


def _is_seen(one: finding.FoundObject, person: Person) -> bool:
    """The name of a namespace is told to whoever sees what is in it."""
    return person.sees(one.name if one.resource == NAMESPACES else one.namespace)


def _url(one: finding.FoundObject) -> str:
    return links.object_url(one.resource, one.namespace, one.name)


def _aside(one: finding.FoundObject) -> str:
    place = f"{one.namespace}/" if one.namespace else ""
    return f"{WORDS[one.resource]} {place}{one.name}"
