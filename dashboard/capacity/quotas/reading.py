"""Reads quotas and what is used of them, as far as the person may list them, and the pods that one keeps waiting."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import cast

from django.conf import settings
from django.db.models import Count, F, QuerySet

from claims import models
from claims.causes import causes
from claims.causes.causes import NoNodeFits, QuotaUsedUp
from claims.controllers.generated_claims import wants_attention
from claims.kinds.allocated_usage import CAPACITY, AllocatedKey, is_allocated_key, read_key
from claims.kinds.pods import Pod
from claims.kinds.quotas import RESOURCE_CLAIMS, ResourceQuota
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from claims.kinds.resource_usage import CLAIMS_OF_CLASS, COUNT, DEVICES, NONE, parsed
from claims.pod_claims import claim_for, references, requested_classes
from dashboard.kit import links
from dashboard.tools.events import WARNING, EventQuery, ShownEvent, find
from manciple.controllers.coordination import utc_now
from manciple.people import Person
from manciple.store import objects, sql
from manciple.store.objects import decoded, listed
from manciple.wire.machinery import Namespace
from manciple.wire.quantity import Quantity
from manciple.wire.registry import registry
from manciple.wire.resources import CLAIMS, NAMESPACES, NEW_PHASES, PODS, QUOTAS, TEMPLATES, Key, kind
from scheduling.models import QueuedPod
from scheduling.queue.reasons import Reason
from scheduling.state.fair_share import sampled_sizes, weight_of

#: What a refusal says, with the quota's name (`claims.quotas`).
_EXCEEDED = re.compile(r"exceeded quota: (?P<name>[^,]+),")
#: Events that are looked for; waiting pods that are read, the first by name.
EVENTS_READ, PODS_READ = 200, 1000
#: Documents read in one query.
READ_AT_ONCE = 500
_WORDS = {
    "pods": "Pods that have not ended",
    RESOURCE_CLAIMS: "ResourceClaims",
    "cpu": "CPU requested",
    "requests.cpu": "CPU requested",
    "limits.cpu": "CPU limits",
    "memory": "Memory requested",
    "requests.memory": "Memory requested",
    "limits.memory": "Memory limits",
}
WHOLE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimit:
    """One key of a quota. used: None where it is not counted yet."""

    key: str
    hard: Quantity
    used: Quantity | None

    @property
    def allocated(self) -> AllocatedKey | None:
        """The key taken apart, where it is one of ours; None for one that says nothing, of an older version's quota."""
        with suppress(ValueError):
            return read_key(self.key) if is_allocated_key(self.key) else None
        return None

    @property
    def device_class(self) -> str:
        """Of which class it counts devices, or something of devices; "" for what is no class's."""
        if self.allocated is not None:
            return self.allocated.device_class
        return self.key.removesuffix(DEVICES) if self.key.endswith(DEVICES) else ""

    @property
    def around_class(self) -> tuple[str, str]:
        """The words before and after the name of the class."""
        allocated = self.allocated
        if allocated is None:
            return "Devices of", ""
        if not allocated.measure:
            return "Devices of", "held"
        name = f"{allocated.domain}/{allocated.name}" if allocated.domain else allocated.name
        return f"{name} of", "held in shares" if allocated.measure == CAPACITY else "drawn from counters"

    @property
    def words(self) -> str:
        if self.device_class:
            before, after = self.around_class
            return f"{before} {self.device_class} {after}".rstrip()
        if self.key.startswith(COUNT):
            resource = self.key.removeprefix(COUNT)
            found = next((one.kind for one in registry if one.resource == resource), "")
            return f"{found}s" if found else self.key
        for suffix in chain.from_iterable(CLAIMS_OF_CLASS.values()):
            if self.key.endswith(suffix):
                return f"Claims of {self.key.removesuffix(suffix)}"
        return _WORDS.get(self.key, self.key)

    @property
    def percent(self) -> int:
        used = self.used or NONE
        return WHOLE * used.nanos // self.hard.nanos if self.hard.nanos else WHOLE

    @property
    def drawn(self) -> int:
        """The bar's length, in hundredths."""
        return min(self.percent, WHOLE)

    @property
    def is_over(self) -> bool:
        return self.used is not None and self.used > self.hard

    @property
    def is_full(self) -> bool:
        return self.used is not None and self.used == self.hard


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPod:
    """A pod that the quota keeps without devices, and why."""

    name: str
    url: str
    cause: QuotaUsedUp


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedShare:
    """What of the devices of `device_class` a namespace holds, in hundredths: the class of which it holds most."""

    weight: int
    percent: int
    device_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLine:
    """One quota, with what its namespace holds and waits for.

    refused: pods that it keeps without a claim. held_back: those that it keeps without devices. share: None where
    namespaces do not take turns.
    """

    quota: ResourceQuota
    held: Mapping[str, int]
    waiting: int
    refused: Sequence[ShownEvent]
    held_back: Sequence[HeldPod] = ()
    share: WeighedShare | None = None

    @property
    def kept_waiting(self) -> int:
        return len(self.refused) + len(self.held_back)

    @property
    def namespace(self) -> str:
        return self.quota.metadata.namespace

    @property
    def name(self) -> str:
        return self.quota.metadata.name

    @property
    def url(self) -> str:
        return links.quota_url(self.namespace, self.name)

    @property
    def limits(self) -> list[QuotaLimit]:
        """Of devices first."""
        return limits_of(self.quota)

    @property
    def scopes(self) -> list[str]:
        selector = self.quota.spec.scope_selector
        wanted = selector.match_expressions if selector else ()
        told = (f"{one.scope_name} {one.operator} {' '.join(one.values)}".strip() for one in wanted)
        return [*self.quota.spec.scopes, *told]

    @property
    def fullest(self) -> int:
        return max((one.percent for one in self.limits), default=0)


def limits_of(quota: ResourceQuota) -> list[QuotaLimit]:
    """Every limit, those of devices first."""
    hard, used = parsed(quota.spec.hard), parsed(quota.status.used)
    found = [QuotaLimit(key=key, hard=amount, used=used.get(key)) for key, amount in hard.items()]
    return sorted(found, key=lambda limit: (not limit.device_class, limit.key))


def may_read(person: Person, namespace: str) -> bool:
    return person.sees(namespace) and person.may("list", QUOTAS, namespace)


def read_quotas(person: Person, *, namespace: str = "") -> list[QuotaLine]:
    """Those that `person` may list, by namespace and name; as many queries for a thousand as for one."""
    found = list(listed(QUOTAS, ResourceQuota, namespace=namespace)[1])
    readable = {space: may_read(person, space) for space in {one.metadata.namespace for one in found}}
    found = [one for one in found if readable[one.metadata.namespace]]
    spaces = {one.metadata.namespace for one in found}
    held, waiting = held_by_class(spaces), _waiting(spaces)
    refused = _refusals(person, namespace) if found else {}
    held_back, shares = _held_back(spaces), _shares(spaces)
    return [
        QuotaLine(
            quota=one,
            held=dict(held[one.metadata.namespace].most_common()),
            waiting=waiting[one.metadata.namespace],
            refused=refused.get(one.key, ()),
            held_back=held_back.get(one.key, ()),
            share=shares.get(one.metadata.namespace),
        )
        for one in sorted(found, key=lambda one: one.key)
    ]


def held_by_class(namespaces: Iterable[str]) -> dict[str, Counter[str]]:
    """namespace -> class -> devices held; a look with admin access holds nothing."""
    held: dict[str, Counter[str]] = defaultdict(Counter)
    rows = models.AllocatedDevice.objects.filter(admin_access=False, claim__namespace__in=list(namespaces))
    counted = rows.order_by().values_list("claim__namespace", "device_class").annotate(count=Count("pk"))
    for namespace, device_class, count in counted:
        held[namespace][device_class or "no class"] += count
    return held


def _waiting(namespaces: Iterable[str]) -> Counter[str]:
    """namespace -> pods without a node."""
    rows = _unbound().filter(namespace__in=list(namespaces)).order_by()
    return Counter(dict(rows.values_list("namespace").annotate(count=Count("pk"))))


def _unbound() -> QuerySet[models.Pod]:
    return models.Pod.objects.filter(node_name="", deleting=False, phase__in=NEW_PHASES)


def _refusals(person: Person, namespace: str) -> dict[Key, list[ShownEvent]]:
    """(namespace, quota) -> what was last said of each pod that still lacks the claim that was refused."""
    query = EventQuery(namespace=namespace, type=WARNING, kind="Pod", text="exceeded quota: ")
    said: dict[Key, ShownEvent] = {}
    for event in find(query, person, shown=EVENTS_READ).events:
        said.setdefault((event.namespace, event.name), event)
    refused: dict[Key, list[ShownEvent]] = defaultdict(list)
    for stored in objects.get_many(kind(PODS), list(said)):
        event = said[stored.namespace, stored.name]
        exceeded = _EXCEEDED.search(event.message)
        if exceeded and wants_attention(decoded(stored, Pod)):
            refused[event.namespace, exceeded["name"]].append(event)
    return refused


def _held_back(namespaces: Iterable[str]) -> dict[Key, list[HeldPod]]:
    """(namespace, quota) -> the pods that wait for room in it, the oldest first."""
    found: dict[Key, list[HeldPod]] = defaultdict(list)
    rows = QueuedPod.objects.alias(quota=F("held_by").bitand(int(Reason.QUOTA))).filter(quota__gt=0)
    for row in rows.filter(namespace__in=list(namespaces)).order_by("created_at", "revision")[:PODS_READ]:
        cause = causes.decode(row.cause)
        because = cause.because if isinstance(cause, NoNodeFits) else cause
        if isinstance(because, QuotaUsedUp):
            pod = HeldPod(name=row.name, url=links.pod_url(row.namespace, row.name), cause=because)
            found[row.namespace, because.quota].append(pod)
    return found


def _shares(namespaces: Iterable[str]) -> dict[str, WeighedShare]:
    """By namespace; nothing where they do not take turns (`scheduling.state.fair_share`)."""
    wanted = sorted(namespaces)
    if not settings.SCHEDULER_FAIR_SHARE or not wanted:
        return {}
    everybody = models.AllocatedDevice.objects.filter(admin_access=False).order_by()
    all_held = dict(everybody.values_list("device_class").annotate(count=Count("pk")))
    sizes, held = sampled_sizes(utc_now()), held_by_class(wanted)
    stored = objects.get_many(kind(NAMESPACES), [("", name) for name in wanted])
    weights = {one.name: weight_of(decoded(one, Namespace).metadata.labels) for one in stored}
    shares = {}
    for name in wanted:
        parts = {one: count * WHOLE // (sizes.get(one) or all_held.get(one) or 1) for one, count in held[name].items()}
        most = max(parts, key=lambda one: parts[one], default="")
        shares[name] = WeighedShare(weight=weights.get(name, 1), percent=parts.get(most, 0), device_class=most)
    return shares


def quotas_refusing(person: Person, namespace: str, pod: str) -> list[str]:
    """The names of the quotas that keep a pod without a claim, of those that `person` may read."""
    if not may_read(person, namespace):
        return []
    return [name for (_, name), said in _refusals(person, namespace).items() if any(one.name == pod for one in said)]


# One namespace --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedPod:
    """A pod without a node. lacking: claims that are still to be made for it; made: those that it has."""

    pod: Pod
    lacking: Sequence[ResourceClaim] = ()
    made: Sequence[ResourceClaim] = ()

    @property
    def url(self) -> str:
        return links.pod_url(*self.pod.key)

    @property
    def classes(self) -> set[str]:
        """The classes that its claims without devices ask for."""
        pending = (one for one in (*self.lacking, *self.made) if one.status.allocation is None)
        return {name for claim in pending for _, name in requested_classes(claim)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassUse:
    """What a namespace has of a class: devices that it holds, claims and pods that wait for some."""

    name: str
    held: int
    claims: int
    pods: int


def read_waiting(namespace: str) -> list[UnplacedPod]:
    """The pods without a node, the oldest first: the first thousand of them by name."""
    keys = list(_unbound().filter(namespace=namespace).order_by("name").values_list("namespace", "name")[:PODS_READ])
    stored = (one for chunk in sql.chunks(keys, READ_AT_ONCE) for one in objects.get_many(kind(PODS), chunk))
    pods = [decoded(one, Pod) for one in stored]
    named = {(namespace, one.claim) for pod in pods for one in references(pod) if one.claim}
    claims = _claims(sorted(named))
    templates: dict[str, ResourceClaimTemplate] = {}
    if any(wants_attention(pod) for pod in pods):
        found = listed(TEMPLATES, ResourceClaimTemplate, namespace=namespace)[1]
        templates = {one.metadata.name: one for one in found}
    pods.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
    return [_waiting_pod(pod, claims, templates) for pod in pods]


def _claims(keys: Iterable[Key]) -> dict[str, ResourceClaim]:
    chunks = sql.chunks(list(keys), READ_AT_ONCE)
    found = (decoded(one, ResourceClaim) for chunk in chunks for one in objects.get_many(kind(CLAIMS), chunk))
    return {one.metadata.name: one for one in found}


def _waiting_pod(
    pod: Pod, claims: Mapping[str, ResourceClaim], templates: Mapping[str, ResourceClaimTemplate]
) -> UnplacedPod:
    entries = {entry.name: entry for entry in pod.spec.resource_claims}
    wanted = [one for one in references(pod) if one.needed]
    lacking = [
        claim_for(pod, entry, template)
        for one in wanted
        if one.claim is None
        and (entry := entries[one.entry])
        and (template := templates.get(entry.resource_claim_template_name or ""))
    ]
    made = [claim for one in wanted if (claim := claims.get(one.claim or ""))]
    return UnplacedPod(pod=pod, lacking=tuple(lacking), made=tuple(made))


def read_class_use(namespace: str, quotas: Iterable[ResourceQuota], waiting: Iterable[UnplacedPod]) -> list[ClassUse]:
    """Every class that the namespace holds devices of, waits for, or is limited in."""
    held, pods, claims = held_by_class([namespace])[namespace], Counter[str](), Counter[str]()
    for one in waiting:
        pods.update(one.classes)
        claims.update(name for claim in one.lacking for name in {name for _, name in requested_classes(claim)})
    claims.update(_pending_claims(namespace))
    limited = {limit.device_class for quota in quotas for limit in limits_of(quota)} - {""}
    return [
        ClassUse(name=name, held=held[name], claims=claims[name], pods=pods[name])
        for name in sorted({*held, *pods, *claims, *limited})
    ]


def _pending_claims(namespace: str) -> Iterable[str]:
    """The classes that each claim without devices asks for."""
    rows = models.Claim.objects.filter(namespace=namespace, allocated=False, deleting=False)
    keys = cast("list[Key]", list(rows.order_by("name").values_list("namespace", "name")[:PODS_READ]))
    for claim in _claims(keys).values():
        yield from {name for _, name in requested_classes(claim)}
