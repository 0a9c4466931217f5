"""Queueing hints: which event can make which waiting pod schedulable.

In: one record of the event log, decoded only as far as the rules need (`Glance`; the typed objects that a worker has
decoded anyway serve as well). Out: `Wake`s, each with the reasons that the event may lift and, where it concerns one
object or one pod, which. `Wakes` matches those of many events against a waiting pod. A hint errs on the side of waking,
which costs one attempt.

The table `RULES` is the whole policy, with what extensions register (KEP-4381 "EventsToRegister"; upstream:
pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go, noderesources/fit.go). PURE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from claims.causes.causes import QuotaUsedUp
from claims.kinds.persistent_volumes import NODE_LABEL
from claims.kinds.pod_groups import GANG_SIZE, annotated_name
from manciple.wire.quantity import Quantity
from manciple.wire.resources import ADDED, DELETED, FINISHED_PHASES, MODIFIED, NEW_PHASES
from manciple.wire.validation import DEVICE_CLASS_RESOURCE_PREFIX
from scheduling.queue.reasons import Hold, Reason

#: Written by the API server or the scheduler for the pod itself; anything else needs a change of its spec.
OWN_STATUS = Reason.GATED | Reason.CLAIM_MISSING
#: What is there for others when room that was kept for a pod is not any more.
FREED = Reason.RESOURCES | Reason.NEIGHBOURS | Reason.DEVICES


# What pods await by name ----------------------------------------------------------------------------------------------


def claim_key(namespace: str, name: str) -> str:
    """What a pod awaits when it waits for one claim."""
    return f"claim:{namespace}/{name}"


#: Before the name of an extended resource: what a pod awaits when it waits for a DeviceClass that serves it.
RESOURCE_KEY = "resource:"


def class_key(name: str) -> str:
    """What a pod awaits when it waits for one DeviceClass."""
    return f"class:{name}"


def resource_class_key(name: str) -> str:
    """What a pod awaits when it waits for one ResourceClass, which two extensions know."""
    return f"resource-class:{name}"


def group_key(namespace: str, name: str) -> str:
    """What a pod awaits when it waits for its PodGroup, or for more pods of it."""
    return f"group:{namespace}/{name}"


def volume_claim_key(namespace: str, name: str) -> str:
    """What a pod awaits when it waits for one PersistentVolumeClaim."""
    return f"volume:{namespace}/{name}"


#: What pods await whose PersistentVolumeClaim another pod uses alone.
SOLE_USE = "volume:"


def quota_key(namespace: str, name: str, key: str = "") -> str:
    """What a pod awaits when it waits for room in one quota: for some of `key`, or for none of it being used up."""
    return f"quota:{namespace}/{name}:{key}"


def held_by_quota(namespace: str, cause: QuotaUsedUp) -> Hold:
    awaited = frozenset({quota_key(namespace, cause.quota), quota_key(namespace, cause.quota, cause.key)})
    return Hold(reasons=Reason.QUOTA, awaited=awaited, cause=cause)


# Events ---------------------------------------------------------------------------------------------------------------


class LogRecord(Protocol):
    """What a hint reads of `manciple.store.records.EventRecord`."""

    @property
    def revision(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def resource(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def text(self) -> str: ...


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    generation: int = 0
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class _SchedulingGroup(msgspec.Struct, frozen=True, rename="camel"):
    pod_group_name: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    scheduling_group: _SchedulingGroup | None = None
    hard: dict[str, str] = {}  # of a quota
    extended_resource_name: str | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    nominated_node_name: str = ""
    allocation: Any = None
    resource_claims: Any = ()  # of a PodSchedulingContext (`scheduling.earlier.classic`)
    used: dict[str, str] = {}  # of a quota


class Glance(msgspec.Struct, frozen=True):
    """The few fields of any kind's document that a hint depends on."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decoder = msgspec.json.Decoder(Glance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """`reasons` that may be lifted; if set, only for pods that await `key`, or for the pod `uid`."""

    reasons: Reason
    key: str = ""
    uid: str = ""
    #: metadata.generation of the pod `uid`: a spec that changed may lift any reason
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A pod outside the active queue, as the hints see it."""

    uid: str
    generation: int
    hold: Hold


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """One event of the log, as the queue reads it; workers remember the latest ones."""

    revision: int
    resource: str
    uid: str
    wakes: tuple[Wake, ...]


class About(NamedTuple):
    """Which object an event is about."""

    namespace: str
    name: str
    uid: str


#: (resource, ADDED, MODIFIED or DELETED)
Event = tuple[str, str]
#: `seen`: the object, or a `Glance` of it
Rule = Callable[[About, Any], Iterable[Wake]]


def _claim_added(about: About, _seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.CLAIM_MISSING, key=claim_key(about.namespace, about.name))


def _claim_modified(about: About, seen: Any) -> Iterable[Wake]:
    key = claim_key(about.namespace, about.name)
    yield Wake(reasons=Reason.CLAIM_BUSY | Reason.CLAIM_ELSEWHERE | Reason.ERROR | Reason.BINDING, key=key)
    if seen.status.allocation is None:
        yield Wake(reasons=Reason.DEVICES)
    else:
        yield Wake(reasons=Reason.NEGOTIATION, key=key)


def _claim_deleted(about: About, _seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.CLAIM_BUSY | Reason.BINDING, key=claim_key(about.namespace, about.name))
    yield Wake(reasons=Reason.DEVICES)


def _class_added(about: About, seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.CLASS_MISSING, key=class_key(about.name))
    yield from _extended(Reason.RESOURCES | Reason.DEVICES | Reason.ERROR, about, seen)


def _class_modified(about: About, seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.DEVICES | Reason.ERROR)
    yield Wake(reasons=Reason.NEGOTIATION, key=class_key(about.name))
    yield from _extended(Reason.RESOURCES, about, seen)


def _class_deleted(about: About, seen: Any) -> Iterable[Wake]:
    """Another class may serve its resource, or none."""
    yield from _extended(Reason.DEVICES | Reason.ERROR, about, seen)


def _extended(reasons: Reason, about: About, seen: Any) -> Iterable[Wake]:
    """For pods that request the class by the name of an extended resource."""
    for name in (f"{DEVICE_CLASS_RESOURCE_PREFIX}{about.name}", seen.spec.extended_resource_name):
        if name:
            yield Wake(reasons=reasons, key=f"{RESOURCE_KEY}{name}")


def _quota_modified(about: About, seen: Any) -> Iterable[Wake]:
    """Every write that is charged modifies it: pods that wait for a key are woken only while that has room."""
    used, hard = seen.status.used, seen.spec.hard
    full = {key for key in hard if key in used and Quantity.parse(used[key]) >= Quantity.parse(hard[key])}
    for key in hard.keys() - full:
        yield Wake(reasons=Reason.QUOTA, key=quota_key(about.namespace, about.name, key))
    if not full:
        yield from _quota_deleted(about, seen)  # a limit may be gone


def _quota_deleted(about: About, _seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.QUOTA, key=quota_key(about.namespace, about.name))


def _group_added(about: About, _seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.GROUP | Reason.GANG, key=group_key(about.namespace, about.name))


def _pod_added(about: About, seen: Any) -> Iterable[Wake]:
    if seen.spec.node_name:
        yield Wake(reasons=Reason.NEIGHBOURS)
    group, meta = seen.spec.scheduling_group, seen.metadata
    if group is not None:
        key = group_key(about.namespace, group.pod_group_name or "")
        yield Wake(reasons=Reason.GROUP | Reason.GANG, key=key)
    elif GANG_SIZE in meta.annotations:
        key = group_key(about.namespace, annotated_name(meta.annotations, meta.labels))
        yield Wake(reasons=Reason.GROUP | Reason.GANG, key=key)


def _pod_freed(_about: About, seen: Any) -> Iterable[Wake]:
    if seen.spec.node_name:
        yield Wake(reasons=Reason.RESOURCES | Reason.NEIGHBOURS)
        yield Wake(reasons=Reason.VOLUME, key=SOLE_USE)
    elif seen.status.nominated_node_name:
        yield Wake(reasons=FREED)


def _pod_modified(about: About, seen: Any) -> Iterable[Wake]:
    if not seen.spec.node_name:
        yield Wake(reasons=OWN_STATUS, uid=about.uid, generation=seen.metadata.generation)
    elif seen.status.phase in FINISHED_PHASES:
        yield Wake(reasons=Reason.RESOURCES | Reason.NEIGHBOURS)
        yield Wake(reasons=Reason.VOLUME, key=SOLE_USE)
    elif seen.status.phase in NEW_PHASES:
        yield Wake(reasons=Reason.NEIGHBOURS)  # it has its node now; others may want to be near it


def _volume_claim_changed(about: About, _seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.VOLUME, key=volume_claim_key(about.namespace, about.name))


def _volume_changed(_about: About, seen: Any) -> Iterable[Wake]:
    """The folders of claims come and go with these, which wake their pods."""
    if NODE_LABEL not in seen.metadata.labels:
        yield Wake(reasons=Reason.VOLUME)


def always(reasons: Reason) -> Rule:
    """The rule of an event that may lift these reasons for any pod."""

    def rule(_about: About, _seen: Any) -> Iterable[Wake]:
        yield Wake(reasons=reasons)

    return rule


_DEVICES_CHANGED = always(Reason.DEVICES | Reason.ERROR)
_NODE_CHANGED = always(Reason.NODE | Reason.RESOURCES | Reason.DEVICES | Reason.CLAIM_ELSEWHERE | Reason.NEIGHBOURS)

#: (resource, event type) -> what it wakes. Other events wake no pod.
RULES: dict[Event, Rule] = {
    ("resourceclaims.resource.k8s.io", ADDED): _claim_added,
    ("resourceclaims.resource.k8s.io", MODIFIED): _claim_modified,
    ("resourceclaims.resource.k8s.io", DELETED): _claim_deleted,
    ("resourceslices.resource.k8s.io", ADDED): _DEVICES_CHANGED,
    ("resourceslices.resource.k8s.io", MODIFIED): _DEVICES_CHANGED,
    ("resourceslices.resource.k8s.io", DELETED): _DEVICES_CHANGED,
    ("deviceclasses.resource.k8s.io", ADDED): _class_added,
    ("deviceclasses.resource.k8s.io", MODIFIED): _class_modified,
    ("deviceclasses.resource.k8s.io", DELETED): _class_deleted,
    ("devicetaintrules.resource.k8s.io", MODIFIED): _DEVICES_CHANGED,
    ("devicetaintrules.resource.k8s.io", DELETED): _DEVICES_CHANGED,
    ("resourcequotas", MODIFIED): _quota_modified,
    ("resourcequotas", DELETED): _quota_deleted,
    ("podgroups.scheduling.k8s.io", ADDED): _group_added,
    ("nodes", ADDED): _NODE_CHANGED,
    ("nodes", MODIFIED): _NODE_CHANGED,
    ("nodes", DELETED): always(Reason.NEIGHBOURS),  # one place less to spread over
    ("persistentvolumeclaims", ADDED): _volume_claim_changed,
    ("persistentvolumeclaims", MODIFIED): _volume_claim_changed,
    ("persistentvolumes", ADDED): _volume_changed,
    ("persistentvolumes", MODIFIED): _volume_changed,
    ("storageclasses.storage.k8s.io", ADDED): always(Reason.VOLUME),
    ("pods", ADDED): _pod_added,
    ("pods", MODIFIED): _pod_modified,
    ("pods", DELETED): _pod_freed,
}

#: The rules of extensions, which add to the table.
FURTHER_RULES: dict[Event, tuple[Rule, ...]] = {}
#: The resources whose events the queue reads: those of the rules, and the pods that it queues.
RESOURCES = {resource for resource, _ in RULES}


def register(rules: Mapping[Event, Rule]) -> None:
    """Add the rules of an extension. May be called again with the same rules."""
    for event, rule in rules.items():
        registered = FURTHER_RULES.get(event, ())
        if rule not in registered:
            FURTHER_RULES[event] = (*registered, rule)
            RESOURCES.add(event[0])


def news_of(record: LogRecord) -> News:
    """`record` as the queue reads it; without wakes for events that help no pod."""
    event = record.resource, record.type
    seen = _decoder.decode(record.text) if event in RULES or event in FURTHER_RULES else None
    about = About(record.namespace, record.name, record.uid)
    return news_about(seen, about, revision=record.revision, resource=record.resource, type_=record.type)


def news_about(seen: Any, about: About, *, revision: int, resource: str, type_: str) -> News:
    """The same where the object itself is at hand."""
    event = resource, type_
    rule = RULES.get(event)
    wakes = () if rule is None else tuple(rule(about, seen))
    for further in FURTHER_RULES.get(event, ()):
        wakes += tuple(further(about, seen))
    return News(revision=revision, resource=resource, uid=about.uid, wakes=wakes)


class Wakes:
    """What a stretch of the log may wake, indexed so that a waiting pod is judged without walking the events."""

    def __init__(self, news: Iterable[News]) -> None:
        #: reasons lifted for every pod held by them
        self.anywhere = Reason(0)
        #: key -> reasons lifted for pods that await it
        self.by_key: dict[str, Reason] = {}
        #: pod uid -> (reasons lifted, newest generation)
        self.by_uid: dict[str, tuple[Reason, int]] = {}
        for one in news:
            for wake in one.wakes:
                self._add(wake)

    def _add(self, wake: Wake) -> None:
        if wake.uid:
            reasons, generation = self.by_uid.get(wake.uid, (Reason(0), 0))
            self.by_uid[wake.uid] = (reasons | wake.reasons, max(generation, wake.generation))
        elif wake.key:
            self.by_key[wake.key] = self.by_key.get(wake.key, Reason(0)) | wake.reasons
        else:
            self.anywhere |= wake.reasons

    @property
    def reasons(self) -> Reason:
        """The reasons that could be lifted for some pod other than those in `by_uid`."""
        lifted = self.anywhere
        for reasons in self.by_key.values():
            lifted |= reasons
        return lifted

    def helps(self, pod: WaitingPod) -> bool:
        """Whether any of the events may make `pod` schedulable."""
        held = pod.hold.reasons
        if held & self.anywhere:
            return True
        if any(held & self.by_key.get(key, Reason(0)) for key in pod.hold.awaited):
            return True
        lifted, generation = self.by_uid.get(pod.uid, (Reason(0), 0))
        return bool(held & lifted) or generation > pod.generation
