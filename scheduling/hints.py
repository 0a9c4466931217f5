"""Queueing hints: which event can make which waiting pod schedulable.

In: one record of the event log, looked at just far enough to judge it (`Glance`). Out: `Wake`s, each naming the
reasons that the event may lift and, where it concerns one object or one pod, which. `Wakes` matches those of many
events against a waiting pod. A hint errs on the side of waking: the cycle looks at the pod again, nothing more.

The table `RULES` is the whole policy (KEP-4381 "EventsToRegister"; upstream:
pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go, noderesources/fit.go). PURE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from scheduling.reasons import Hold, Reason, claim_key, class_key

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
FINISHED_PHASES = frozenset({"Succeeded", "Failed"})
#: Written by the API server or the scheduler for the pod itself; anything else needs a change of its spec.
OWN_STATUS = Reason.GATED | Reason.CLAIM_MISSING
EVERYTHING = Reason(sum(Reason))


class LogRecord(Protocol):
    """What a hint reads of `manciple.store.tail.EventRecord`."""

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


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    allocation: Any = None


class Glance(msgspec.Struct, frozen=True):
    """The few fields of any kind's document that a hint depends on."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decoder = msgspec.json.Decoder(Glance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """`reasons` that may be lifted; narrowed to who awaits `key`, or to the pod `uid`, where those are set."""

    reasons: Reason
    key: str = ""
    uid: str = ""
    #: metadata.generation of the pod `uid`: a spec that changed may lift any reason
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A pod outside the active queue, as the hints see it."""

    uid: str
    generation: int
    hold: Hold


Rule = Callable[[LogRecord, Glance], Iterable[Wake]]


def _claim_added(record: LogRecord, _seen: Glance) -> Iterable[Wake]:
    yield Wake(reasons=Reason.CLAIM_MISSING, key=claim_key(record.namespace, record.name))


def _claim_modified(record: LogRecord, seen: Glance) -> Iterable[Wake]:
    key = claim_key(record.namespace, record.name)
    yield Wake(reasons=Reason.CLAIM_BUSY | Reason.CLAIM_ELSEWHERE | Reason.ERROR, key=key)
    if seen.status.allocation is None:
        yield Wake(reasons=Reason.DEVICES)


def _claim_deleted(record: LogRecord, _seen: Glance) -> Iterable[Wake]:
    yield Wake(reasons=Reason.CLAIM_BUSY, key=claim_key(record.namespace, record.name))
    yield Wake(reasons=Reason.DEVICES)


def _class_added(record: LogRecord, _seen: Glance) -> Iterable[Wake]:
    yield Wake(reasons=Reason.CLASS_MISSING, key=class_key(record.name))


def _pod_freed(_record: LogRecord, seen: Glance) -> Iterable[Wake]:
    if seen.spec.node_name:
        yield Wake(reasons=Reason.RESOURCES)


def _pod_modified(record: LogRecord, seen: Glance) -> Iterable[Wake]:
    if not seen.spec.node_name:
        yield Wake(reasons=OWN_STATUS, uid=record.uid, generation=seen.metadata.generation)
    elif seen.status.phase in FINISHED_PHASES:
        yield Wake(reasons=Reason.RESOURCES)


def _always(reasons: Reason) -> Rule:
    def rule(_record: LogRecord, _seen: Glance) -> Iterable[Wake]:
        yield Wake(reasons=reasons)

    return rule


_DEVICES_CHANGED = _always(Reason.DEVICES | Reason.ERROR)
_NODE_CHANGED = _always(Reason.NODE | Reason.RESOURCES | Reason.DEVICES | Reason.CLAIM_ELSEWHERE)

#: (resource, event type) -> what it wakes. What is not in the table wakes nobody.
RULES: dict[tuple[str, str], Rule] = {
    ("resourceclaims.resource.k8s.io", ADDED): _claim_added,
    ("resourceclaims.resource.k8s.io", MODIFIED): _claim_modified,
    ("resourceclaims.resource.k8s.io", DELETED): _claim_deleted,
    ("resourceslices.resource.k8s.io", ADDED): _DEVICES_CHANGED,
    ("resourceslices.resource.k8s.io", MODIFIED): _DEVICES_CHANGED,
    ("resourceslices.resource.k8s.io", DELETED): _DEVICES_CHANGED,
    ("deviceclasses.resource.k8s.io", ADDED): _class_added,
    ("deviceclasses.resource.k8s.io", MODIFIED): _DEVICES_CHANGED,
    ("devicetaintrules.resource.k8s.io", ADDED): _DEVICES_CHANGED,
    ("devicetaintrules.resource.k8s.io", MODIFIED): _DEVICES_CHANGED,
    ("devicetaintrules.resource.k8s.io", DELETED): _DEVICES_CHANGED,
    ("nodes", ADDED): _NODE_CHANGED,
    ("nodes", MODIFIED): _NODE_CHANGED,
    ("pods", MODIFIED): _pod_modified,
    ("pods", DELETED): _pod_freed,
}

#: The resources whose events the queue reads: those of the table, and the pods that it queues.
RESOURCES = frozenset(resource for resource, _ in RULES)


def wakes_of(record: LogRecord) -> tuple[Wake, ...]:
    """What `record` may wake; empty for events that help nobody."""
    rule = RULES.get((record.resource, record.type))
    if rule is None:
        return ()
    return tuple(rule(record, _decoder.decode(record.text)))


class Wakes:
    """What a stretch of the log may wake, indexed so that a waiting pod is judged without walking the events."""

    def __init__(self, records: Iterable[LogRecord]) -> None:
        #: reasons lifted for whoever is held by them
        self.anywhere = Reason(0)
        #: key -> reasons lifted for those who await it
        self.by_key: dict[str, Reason] = {}
        #: pod uid -> (reasons lifted, newest generation)
        self.by_uid: dict[str, tuple[Reason, int]] = {}
        for record in records:
            for wake in wakes_of(record):
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

    def helps(self, pod: Waiting) -> bool:
        """Whether any of the events may make `pod` schedulable."""
        held = pod.hold.reasons
        if held & self.anywhere:
            return True
        if any(held & self.by_key.get(key, Reason(0)) for key in pod.hold.awaited):
            return True
        lifted, generation = self.by_uid.get(pod.uid, (Reason(0), 0))
        return bool(held & lifted) or generation > pod.generation
