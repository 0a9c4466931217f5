"""What pages of classes read: which claims, templates and pods use a class, and what its selectors say of the devices.

Claims that wait and templates name their classes only in their documents, and the workbench asks at each keystroke, so
this process follows them (`Askers`). Selectors are judged as the allocator does it: all must hold, in their order; each
is evaluated on what the ones before it kept, and so raises errors only there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar

from django.db.models import Count

from claims.devices.published import CandidateDevice
from claims.kinds.resource_claims import (
    DeviceClaim,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from claims.models import AllocatedDevice, Pod
from dashboard.templatetags.kit import device_url, known_figure
from insight.selector_matches import JudgedDevices, complaint, places
from manciple.cel.kubernetes import Amount, Semver
from manciple.people import Person
from manciple.store.event_log import Follower, View
from manciple.store.records import Written
from manciple.wire.base import ApiObject
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.resources import CLAIMS, TEMPLATES, Key
from manciple.wire.validation import DEVICE_CLASS_RESOURCE_PREFIX, natural
from scheduling.cel import CompileError, Selector, compile_selector, projection
from scheduling.cel.clauses import extremes, first_false, shown
from scheduling.models import QueuedPod
from scheduling.queue.hints import RESOURCE_KEY

#: Different values of one operand that get a group each.
VALUES_APART = 4
#: Devices of a group that are named.
DEVICES_NAMED = 24
#: Different values of one attribute that are kept.
VALUES_KEPT = 200
#: Numbers that are listed; more are summed up by their range.
NUMBERS_LISTED = 3
#: Runs of nodes that are named; of more, only how many nodes.
RUNS_NAMED = 2


# What uses a class ---------------------------------------------------------------------------------------------------

#: The selectors that a request adds to its class's.
Selectors = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClassRequest:
    """A claim without devices, or a template. requests: class -> the selectors of each request for it."""

    namespace: str
    name: str
    requests: Mapping[str, tuple[Selectors, ...]]


@dataclass(frozen=True, slots=True)
class Users:
    """What uses a class, as far as a person sees it. holding: (namespace, name) of claims that hold devices by it;
    by_namespace: how many waiting and holding claims, templates and pods each namespace has; served, unserved: pods
    that ask for its extended resources, with devices and without.
    """

    waiting: tuple[ClassRequest, ...]
    templates: tuple[ClassRequest, ...]
    holding: frozenset[Key]
    by_namespace: tuple[tuple[str, Mapping[str, int]], ...]
    served: tuple[Key, ...] = ()
    unserved: tuple[Key, ...] = ()


class Askers(View):
    """The claims that wait for devices, the templates, and how many of them name each class.

    Counted as they change: adding them up for a page would take time with every claim and request of any namespace.
    """

    resources: ClassVar[Sequence[str]] = (CLAIMS, TEMPLATES)

    def __init__(self) -> None:
        self._requests: dict[str, dict[Key, ClassRequest]] = {CLAIMS: {}, TEMPLATES: {}}
        #: resource -> class -> namespace -> how many of its objects name the class
        self._counts: dict[str, dict[str, Counter[str]]] = {CLAIMS: {}, TEMPLATES: {}}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        for obj in objects:
            self._put(resource, obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            self._remove(change.resource, change.object.key)
            if change.type != "DELETED":
                self._put(change.resource, change.object)

    def of(self, resource: str, class_name: str) -> tuple[ClassRequest, ...]:
        """Those that name the class, by namespace and name."""
        if class_name not in self._counts[resource]:
            return ()
        naming = (request for request in self._requests[resource].values() if class_name in request.requests)
        return tuple(sorted(naming, key=lambda request: (request.namespace, request.name)))

    def count(self, resource: str, class_name: str, person: Person) -> int:
        """How many of those that the person sees name the class."""
        counts = self._counts[resource].get(class_name, Counter())
        return sum(number for namespace, number in counts.items() if person.sees(namespace))

    def _put(self, resource: str, obj: ApiObject) -> None:
        if isinstance(obj, ResourceClaimTemplate):
            request = ClassRequest(*obj.key, _requests_of(obj.spec.spec.devices))
        elif isinstance(obj, ResourceClaim) and not obj.status.allocation and not obj.metadata.deletion_timestamp:
            request = ClassRequest(*obj.key, _requests_of(obj.spec.devices))
        else:
            return
        self._requests[resource][obj.key] = request
        for name in request.requests:
            self._counts[resource].setdefault(name, Counter())[request.namespace] += 1

    def _remove(self, resource: str, key: Key) -> None:
        request = self._requests[resource].pop(key, None)
        counts = self._counts[resource]
        for name in request.requests if request else ():
            counts[name][key[0]] -= 1
            counts[name] += Counter()  # drops zeros
            if not counts[name]:
                del counts[name]


def _requests_of(devices: DeviceClaim) -> dict[str, tuple[Selectors, ...]]:
    """class -> the selectors of each request or alternative that names it."""
    requests: dict[str, tuple[Selectors, ...]] = {}
    for request in devices.requests:
        alternatives: tuple[ExactDeviceRequest | DeviceSubRequest, ...] = request.first_available
        for wanted in (request.exactly,) if request.exactly else alternatives:
            texts = tuple(selector.cel.expression for selector in wanted.selectors if selector.cel)
            requests[wanted.device_class_name] = (*requests.get(wanted.device_class_name, ()), texts)
    return requests


_askers = Follower(Askers)


def users_of(class_name: str, person: Person, *, extended: str | None = None) -> Users:
    """A handful of queries, whatever the size of the cluster. extended: the extended resource that the class names."""
    with _askers.view() as view:
        waiting, templates = (
            tuple(request for request in view.of(resource, class_name) if person.sees(request.namespace))
            for resource in (CLAIMS, TEMPLATES)
        )
    rows = AllocatedDevice.objects.restrict(person).filter(device_class=class_name, admin_access=False)
    holding = frozenset(rows.values_list("claim__namespace", "claim__name"))
    counts = {
        "waiting": Counter(request.namespace for request in waiting),
        "holding": Counter(namespace for namespace, _ in holding),
        "templates": Counter(request.namespace for request in templates),
        "pods": Counter[str](),
    }
    served, unserved = _with_extended_resources(class_name, extended, person)
    concerned = {name for numbers in counts.values() for name in numbers}
    claims = holding | {(request.namespace, request.name) for request in waiting}
    pods = {*served, *unserved}
    for namespace, pod, names in Pod.objects.filter(namespace__in=concerned).values_list(
        "namespace", "name", "claim_names"
    ):
        if any((namespace, name) in claims for name in names):
            pods.add((namespace, pod))
    counts["pods"] = Counter(namespace for namespace, _ in pods)
    namespaces = sorted(concerned | counts["pods"].keys())
    by_namespace = ((name, {use: numbers[name] for use, numbers in counts.items()}) for name in namespaces)
    return Users(waiting, templates, holding, tuple(by_namespace), served, unserved)


def _with_extended_resources(
    class_name: str, extended: str | None, person: Person
) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
    """The pods that ask for the class's extended resources: those with devices, and those that wait."""
    names = (f"{DEVICE_CLASS_RESOURCE_PREFIX}{class_name}", extended)
    keys = {f"{RESOURCE_KEY}{name}" for name in names if name}
    queue = QueuedPod.objects.waiting().restrict(person).values_list("namespace", "name", "awaited")
    unserved = sorted((namespace, name) for namespace, name, awaited in queue if not keys.isdisjoint(awaited))
    rows = AllocatedDevice.objects.restrict(person).filter(
        device_class=class_name, claim__source="extended_resource", claim__reservations__resource="pods"
    )
    served = sorted(set(rows.values_list("claim__namespace", "claim__reservations__name")))
    return tuple(served), tuple(unserved)


def counts(person: Person, class_names: Iterable[str]) -> Mapping[str, tuple[int, int, int]]:
    """class -> how many claims that hold devices, claims that wait, and templates the person sees."""
    rows = AllocatedDevice.objects.restrict(person).filter(admin_access=False).exclude(device_class="")
    holding = dict(rows.values_list("device_class").annotate(Count("claim", distinct=True)))
    with _askers.view() as view:
        return {
            name: (holding.get(name, 0), view.count(CLAIMS, name, person), view.count(TEMPLATES, name, person))
            for name in class_names
        }


# What devices have ---------------------------------------------------------------------------------------------------

_TYPES: dict[type, str] = {bool: "bool", int: "int", str: "string", Semver: "semver", Amount: "quantity", list: "list"}
#: Attributes that people most often select by, as drivers name them.
_TELLING = frozenset(("productName", "model", "memory", "driverVersion", "numaNode", "interface", "bandwidth"))


@dataclass(slots=True, kw_only=True)
class ClassProperty:
    """An attribute or capacity that devices have."""

    field: str  # attributes or capacity
    domain: str
    name: str
    type: str  # bool, int, string, semver, quantity or list
    text: str  # the expression for it
    values: tuple[Any, ...] = ()  # distinct, at most VALUES_KEPT
    more: bool = False
    devices: int = 0  # that have it
    summary: str = ""  # `3 values`, `0, 1`, `48Gi-141Gi`, `semver`


@dataclass(frozen=True, slots=True)
class Domain:
    """open: its list is shown open at first."""

    name: str
    properties: tuple[ClassProperty, ...]
    open: bool = False


def domains(devices: JudgedDevices) -> tuple[Domain, ...]:
    """The domains with their attributes and capacities: those of drivers first, then by how many devices have them."""
    return devices.derived("domains", lambda: _domains(devices))


def _domains(devices: JudgedDevices) -> tuple[Domain, ...]:
    properties: dict[tuple[str, str, str], ClassProperty] = {}
    values: dict[tuple[str, str, str], dict[str, Any]] = {}
    for view in devices.views:
        for kind, maps in (("attributes", view.attributes), ("capacity", view.capacity)):
            for domain, named in maps.items():
                for name, value in named.items():
                    key = (domain, kind, name)
                    if key not in properties:
                        text = f'device.{kind}["{domain}"].{name}'
                        type_ = _TYPES.get(type(value), "string")
                        properties[key] = ClassProperty(field=kind, domain=domain, name=name, type=type_, text=text)
                        values[key] = {}
                    properties[key].devices += 1
                    if len(values[key]) < VALUES_KEPT:
                        values[key].setdefault(shown(value), value)
                    elif shown(value) not in values[key]:
                        properties[key].more = True
    for key, prop in properties.items():
        prop.values = tuple(values[key].values())
        prop.summary = _summary(prop)
    grouped = groupby(sorted(properties), key=lambda key: key[0])
    by_domain = {domain: tuple(properties[key] for key in keys) for domain, keys in grouped}
    size = {domain: max(prop.devices for prop in those) for domain, those in by_domain.items()}
    own = drivers(devices)
    ordered = sorted(by_domain, key=lambda domain: (domain not in own, -size[domain], domain))
    return tuple(Domain(name, by_domain[name], open=index < 2) for index, name in enumerate(ordered))  # noqa: PLR2004 - what fits beside the editor


def _summary(prop: ClassProperty) -> str:
    if prop.type in ("bool", "semver", "list"):
        return prop.type
    if prop.type == "string":
        count = len(prop.values)
        many = "+" if prop.more else ""
        return shown(prop.values[0]).strip('"') if count == 1 else f"{known_figure(count, 'devices')}{many} values"
    ends = extremes(prop.values)
    if ends is None or len(prop.values) <= NUMBERS_LISTED:
        order = attrgetter("nanos") if prop.type == "quantity" else None
        return ", ".join(map(shown, sorted(prop.values, key=order)))
    return f"{shown(ends[0])}\N{EN DASH}{shown(ends[1])}"


def drivers(devices: JudgedDevices) -> tuple[str, ...]:
    """The drivers of the devices, the one with most devices first."""
    counts = devices.derived("drivers", lambda: Counter(candidate.driver for candidate in devices.candidates))
    return tuple(sorted(counts, key=lambda name: (-counts[name], name)))


def examples(devices: JudgedDevices) -> tuple[tuple[str, str], ...]:
    """(what it selects, expression), made from what is published."""
    return devices.derived("examples", lambda: tuple(_examples(devices)))


def _examples(devices: JudgedDevices) -> Iterator[tuple[str, str]]:
    for driver in drivers(devices)[:1]:
        yield f"Every device of {driver}", f'device.driver == "{driver}"'
    missing = {"string", "quantity", "semver", "int", "bool"}
    for domain in domains(devices):
        for prop in sorted(domain.properties, key=lambda prop: (prop.name not in _TELLING, len(prop.values))):
            if prop.type in missing and prop.values and not prop.more:
                missing.remove(prop.type)
                yield _example(prop)


def _example(prop: ClassProperty) -> tuple[str, str]:
    ends = extremes(prop.values)
    guard = f'"{prop.name}" in device.{prop.field}["{prop.domain}"] && '
    if prop.type == "quantity" and ends:
        most = shown(ends[1])
        return f"At least {most} of {prop.name}", f'{guard}{prop.text}.compareTo(quantity("{most}")) >= 0'
    if prop.type == "semver" and ends:
        least = shown(ends[0])
        return f"{prop.name} {least} or later", f'{guard}!{prop.text}.isLessThan(semver("{least}"))'
    value = shown(prop.values[0])
    return f"{prop.name} is {value}", f"{guard}{prop.text} == {value}"


# What selectors say of devices ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one selector did: how many devices reached it and how many it kept, or why it does not compile."""

    reached: int = 0
    kept: int = 0
    cost: int = 0  # of the worst device that could be published
    error: CompileError | None = None

    @property
    def complaint(self) -> str:
        """What is wrong, without the place and the snippet, which `error` has apart."""
        return complaint(self.error) if self.error else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictGroup:
    """Devices with the same verdict for the same reason."""

    selector: int  # its index in the list
    text: str  # the operand that refused them, or the error
    value: str = ""  # what they have there
    devices: tuple[CandidateDevice, ...]

    @property
    def where(self) -> str:
        """The one device with its node, or the nodes of several."""
        several = len(self.devices) > 1
        return folded(device.place for device in self.devices) if several else self.devices[0].title

    @property
    def count(self) -> int:
        return len(self.devices)

    @property
    def links(self) -> list[tuple[str, str]]:
        """(device, address) of the first few."""
        return [(one.title, device_url(*one.key)) for one in self.devices[:DEVICES_NAMED]]

    @property
    def more(self) -> int:
        return max(0, len(self.devices) - DEVICES_NAMED)


@dataclass(frozen=True, slots=True)
class ClassVerdicts:
    """What all selectors together say. A selector that does not compile is left out."""

    devices: JudgedDevices = field(repr=False)
    selectors: tuple[Judged, ...]
    match: int  # a bit per device
    error: int
    unjudged: int  # devices for which there was no time
    refusals: tuple[VerdictGroup, ...]  # most devices first
    failures: tuple[VerdictGroup, ...]

    @property
    def total(self) -> int:
        return len(self.devices.candidates)

    @property
    def matched(self) -> int:
        return self.match.bit_count()

    @property
    def matching(self) -> tuple[CandidateDevice, ...]:
        return tuple(device for _, device in self.devices.chosen(self.match))

    @property
    def failed(self) -> int:
        return self.error.bit_count()

    @property
    def judged(self) -> int:
        return self.total - self.unjudged.bit_count()

    @property
    def missed(self) -> int:
        return self.judged - self.matched - self.failed

    @property
    def compiles(self) -> bool:
        return all(judged.error is None for judged in self.selectors)

    @property
    def cost(self) -> int:
        """Of the most expensive selector: the limit is one selector's."""
        return max((judged.cost for judged in self.selectors), default=0)


def judge(expressions: Sequence[str], devices: JudgedDevices, *, reasons: bool = True) -> ClassVerdicts:
    """reasons: also why devices were refused."""
    left, error, unjudged = devices.everything, 0, 0
    judged: list[Judged] = []
    refusals: list[VerdictGroup] = []
    failures: list[VerdictGroup] = []
    for index, expression in enumerate(expressions):
        try:
            selector = compile_selector(expression)
        except CompileError as problem:
            judged.append(Judged(error=problem))
            continue
        except TimeLimitExceeded:
            judged.append(Judged())
            left, unjudged = 0, unjudged | left
            continue
        said = devices.judge(selector)
        unjudged |= left & said.unjudged
        reached, erring, left = left & ~said.unjudged, left & said.error, left & said.match
        error |= erring
        judged.append(Judged(reached=reached.bit_count(), kept=left.bit_count(), cost=selector.estimated_max_cost))
        if reasons:
            with suppress(TimeLimitExceeded):  # then there are counts without reasons
                refusals += _refusals(index, selector, devices, reached & ~left & ~erring)
            by_error: dict[str, list[CandidateDevice]] = {}
            for place in places(erring):
                by_error.setdefault(said.errors[place], []).append(devices.candidates[place])
            failures += [VerdictGroup(selector=index, text=text, devices=(*those,)) for text, those in by_error.items()]
    for groups in (refusals, failures):
        groups.sort(key=lambda group: -group.count)
    return ClassVerdicts(devices, tuple(judged), left, error, unjudged, tuple(refusals), tuple(failures))


#: Why a selector refuses devices: (operand, value there, the value in words); an empty operand where that is unknown.
_Reason = tuple[str, Any, str]


def _refusals(index: int, selector: Selector, judged: JudgedDevices, refused: int) -> list[VerdictGroup]:
    """Devices that are alike in what the selector looks at are refused for the same reason."""
    refs = selector.references
    reasons: dict[int, _Reason] = judged.derived(("reasons", selector.expression), dict)
    #: what the selector looks at -> a place that has it; place -> that one
    first_with: dict[Any, int] = judged.derived(("first with", refs), dict)
    sight: dict[int, int] = judged.derived(("sight", refs), dict)
    alike: dict[int, list[int]] = {}
    for place in places(refused):
        if place not in sight:
            sight[place] = (
                place if refs is None else first_with.setdefault(projection(judged.views[place], refs), place)
            )
        alike.setdefault(sight[place], []).append(place)
    by_operand: dict[str, list[tuple[_Reason, list[CandidateDevice]]]] = {}
    for seen, those in alike.items():
        if seen not in reasons:
            view = judged.views[those[0]]
            clause = first_false(selector, view)
            value = clause.comparison.value(view) if clause and clause.comparison else None
            reasons[seen] = (str(clause) if clause else "", value, _unquoted(value))
        if operand := reasons[seen][0]:
            devices = [judged.candidates[place] for place in those]
            by_operand.setdefault(operand, []).append((reasons[seen], devices))
    return [group for operand, found in by_operand.items() for group in _by_value(index, operand, found)]


def _by_value(index: int, text: str, refusals: Sequence[tuple[_Reason, list[CandidateDevice]]]) -> list[VerdictGroup]:
    """A group for each value; one group with their range where there are many."""
    groups: dict[str, list[CandidateDevice]] = {}
    for (_, _, said), devices in refusals:
        groups.setdefault(said, []).extend(devices)
    if len(groups) > VALUES_APART:
        ends = extremes([value for (_, value, _), _ in refusals if value is not None])
        said = f"{_unquoted(ends[0])}\N{EN DASH}{_unquoted(ends[1])}" if ends else f"{len(groups)} values"
        groups = {said: [device for devices in groups.values() for device in devices]}
    return [VerdictGroup(selector=index, text=text, value=said, devices=tuple(group)) for said, group in groups.items()]


def _unquoted(value: Any) -> str:
    return "" if value is None else shown(value).strip('"')


# Names of nodes, in few words ----------------------------------------------------------------------------------------

_NUMBERED = re.compile(r"^(.*?)(\d+)$")


def folded(names: Iterable[str]) -> str:
    """`gpu-a01…14`, `gpu-a01…14, gpu-b02`, `4 nodes, gpu-c…`."""
    ordered = sorted(set(names), key=natural)
    runs = list(_runs(ordered))
    if len(runs) <= RUNS_NAMED:
        return ", ".join(runs)
    least, greatest = min(ordered), max(ordered)
    length = next((at for at, letter in enumerate(least) if letter != greatest[at : at + 1]), len(least))
    common = least[:length].rstrip("-.0123456789")
    return f"{len(ordered)} nodes, {common}…" if common else f"{len(ordered)} nodes"


def spelled(names: Iterable[str]) -> str:
    """The same for the middle of a sentence: `gpu-a15 to gpu-a20`, `4 nodes`."""
    text = folded(names)
    if text.endswith("…"):
        return text.partition(",")[0]
    first, dots, last = text.partition("…")
    numbered = _NUMBERED.match(first)
    return f"{first} to {numbered[1]}{last}" if dots and numbered and "," not in text else text


def _runs(ordered: list[str]) -> Iterator[str]:
    def run(item: tuple[int, str]) -> tuple[str, int]:
        index, name = item
        match = _NUMBERED.match(name)
        return (match[1], int(match[2]) - index) if match else (name, 0)

    for _, group in groupby(enumerate(ordered), run):
        (_, first), *rest = group
        match = _NUMBERED.match(rest[-1][1]) if rest else None
        yield f"{first}…{match[2]}" if match else first
