"""What the controllers of workloads do with pods, and how they take their turns.

What a controller writes for one workload is in one transaction, often together with others, and begins by making sure
that the workload is as it was when it was looked at, and controls as many pods as it did (`check_unchanged`). So a
crash leaves all or nothing, whoever comes next reads in the log what was done, and no pod is made twice.

Pods are admitted as those of any client, in the name of the controller, before the transaction (`admitted`).
Source: pkg/controller/controller_utils.go and controller_ref_manager.go of Kubernetes 1.36.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from claims import event_recorder
from claims.event_recorder import EventNote
from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from manciple.api import verbs
from manciple.controllers.turns import Failed, Rest, attempt
from manciple.store import garbage, objects
from manciple.store.objects import PendingWrite, Read, Writer, decoded
from manciple.wire.base import ApiObject
from manciple.wire.errors import AlreadyExists, ApiError, Conflict, TooManyRequests
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind
from manciple.wire.resources import EVENTS, PODS, Key, kind
from manciple.wire.selectors import as_label_selector
from workloads import view as following
from workloads.kinds.pod_facts import PodFacts
from workloads.kinds.templates import owner_reference
from workloads.view import WorkloadView, controller_of, selector_of

log = logging.getLogger(__name__)

#: Pods of a workload that are made or deleted in one transaction (upstream: at most 500 in one sync, each alone).
BURST = 100
#: Of these so many have an event of their own (client-go's EventCorrelator: as many at once, and few later).
MOST_TOLD = 25
#: When the turn of a workload comes again of which something was refused: after `RETRY_AFTER`, or more if many of its
#: namespace wait for that, so that those cost no more than a few tries a second.
RETRY = math.inf
#: Workloads that are looked at together and share a commit, for which all other writes wait; and seconds of a run of
#: theirs, after which other controllers have the thread.
AT_ONCE, SHARE = 10, 1.0
#: Pods of one namespace's workloads that may wait for a node, and what their templates may come to, in bytes: more are
#: made as these are placed. So who asks for two billion pods fills neither the database nor the scheduler's queue.
MOST_WAITING, MOST_WAITING_BYTES = 10_000, 64 << 20
#: Seconds of asking webhooks about the pods of one turn, after which other workloads have theirs.
PATIENCE = 5.0

FAILED_CREATE = "FailedCreate"
CREATED = "Created pod: {}"
DELETED = "Deleted pod: {}"

#: A pod that is admitted, and its uid.
Admitted = tuple[Any, str]


#: What a turn came to: how many objects were written, and when the workload's turn comes again by itself: as POSIX
#: seconds, or `RETRY`.
Done = tuple[int, float | None]


@dataclass(frozen=True, slots=True)
class Work:
    """What a turn is to write. Several share a transaction, in which each ends or fails by itself (`PendingWrite`), and
    may run twice: `write` changes nothing but through the writer. pods: how many it makes or deletes.
    """

    write: Callable[[Writer], Done]
    identity: Identity
    pods: int = 0


#: The resources whose turns were cut short in this process when they were taken last.
_cut_short: set[str] = set()
#: resource -> namespaces of workloads that have their turn in this process -> how many pods of workloads wait there,
#: with those that these turns have admitted
_waiting: dict[str, dict[str, int]] = {}
#: by resource
_rests = {resource: Rest(following.TOLD) for resource in following.WORKLOADS}


def take_turns(
    resource: str,
    now: datetime,
    look: Callable[[WorkloadView, Any], Any],
    sync: Callable[[Any, datetime], Done | Work],
) -> int:
    """Let the workloads of `resource` whose turn it is have it, for `SHARE` seconds. Returns how many objects were
    written.

    look: what is to be known for one turn. sync: takes it, up to what is to be written.
    """
    began, changed, is_over = time.monotonic(), 0, False
    until, revision, next_turn = began + SHARE, 0, 0.0
    later: dict[Key, float | None] = {}
    offered: dict[Key, Collection[Key] | None] = {}
    _cut_short.add(resource)
    try:
        while not is_over:
            with following.current() as view:
                if view is None or not (taken := view.take(resource, now, AT_ONCE)):
                    _cut_short.discard(resource)
                    if view is not None:
                        revision, next_turn = view.revision, view.next_turn(resource)
                    break
                later.update((one.key, now.timestamp()) for one in taken)  # whatever cuts this off, no turn is lost
                _waiting[resource] = {one.key[0]: view.waiting[one.key[0]] for one in taken}
                # What goes wrong here must not cost the view, which all of them share.
                turns = {one.key: attempt(resource, one.key, partial(look, view, one)) for one in taken}
                offered.update((key, getattr(turn, "offered", None)) for key, turn in turns.items())
            works: dict[Key, Work] = {}
            for number, (key, turn) in enumerate(turns.items(), start=1):
                taken_up = turn if isinstance(turn, Failed) else attempt(resource, key, partial(sync, turn, now))
                ended: dict[Key, Done | Failed] = {}
                if isinstance(taken_up, Work):
                    works[key] = taken_up
                else:
                    ended[key] = taken_up
                is_over = time.monotonic() > until
                if is_over or number == len(turns) or sum(one.pods for one in works.values()) >= BURST:
                    ended |= _written(resource, works)
                    works = {}
                for one, done in ended.items():
                    if isinstance(done, Failed):
                        is_refused = isinstance(done.error, ApiError)
                        later[one] = RETRY if is_refused else now.timestamp() + done.seconds
                    else:
                        written, later[one] = done
                        changed += written
                        del offered[one]
                if is_over:
                    break
    finally:
        times = {key: at for key, at in later.items() if at is not None and at != RETRY}
        refused = [key for key, at in later.items() if at == RETRY]
        following.come_back(resource, times, refused=refused, offered=offered, now=now.timestamp())
    _rests[resource].note(began, revision, 0.0 if refused else min([next_turn, *times.values()]))
    return changed


def rests_until(resource: str, since: float) -> float:
    """`Controller.rests_until`."""
    return _rests[resource].until(since)


def _written(resource: str, works: Mapping[Key, Work]) -> dict[Key, Done | Failed]:
    """What these came to, in one transaction."""
    of = kind(resource)
    pending = {key: PendingWrite(one.write, one.identity, (Read(of, *key),)) for key, one in works.items()}
    objects.settle(list(pending.values()), portion=True)
    return {key: attempt(resource, key, one.outcome) for key, one in pending.items()}


def is_cut_short(resource: str) -> bool:
    """Whether there are turns left that the last run had no time for."""
    return resource in _cut_short


@dataclass(frozen=True, slots=True)
class PodControl:
    """Of one workload. component: the source of the controller's events. is_member: whether a pod with that name may
    be one of its pods.
    """

    kind: Kind
    workload: Any
    identity: Identity
    component: str
    is_member: Callable[[str], bool] = bool

    # Before the transaction -------------------------------------------------------------------------------------------

    def adoptable(self, offered: Collection[Key] | None) -> list[Pod]:
        """The pods that it selects and nobody controls, of the offered ones, or of all (None)."""
        if self.workload.metadata.deletion_timestamp is not None:
            return []
        namespace, selector = self.workload.metadata.namespace, as_label_selector(self.workload.spec.selector)
        if offered is None:
            stored: Iterable[Any] = objects.list(POD, namespace=namespace, labels=selector).items
        else:
            stored = objects.get_many(POD, sorted(offered)) if offered else ()
        return [
            pod
            for pod in (decoded(one, Pod) for one in stored)
            if controller_of(pod.metadata) is None
            and PodFacts.of(pod).is_active
            and self.is_member(pod.metadata.name)
            and selector.matches(pod.metadata.labels)
        ]

    def unselected(self, pods: Iterable[PodFacts]) -> list[PodFacts]:
        """Those that it controls and no longer selects."""
        if self.workload.metadata.deletion_timestamp is not None:
            return []
        selector = selector_of(self.workload)
        return [pod for pod in pods if not (selector.matches(pod.labels) and self.is_member(pod.name))]

    def admitted(self, pods: Iterable[Pod]) -> tuple[list[Admitted], ApiError | None]:
        """New pods, up to the first that admission refuses, and its refusal; those that webhooks leave no time for are
        made in the next turn.
        """
        found: list[Admitted] = []
        until, room = time.monotonic() + PATIENCE, 0
        for pod in pods:
            if not found:
                room = self._room(pod)
            elif time.monotonic() > until:
                break
            if len(found) >= room:
                return found, _full(self.workload.metadata.namespace)
            try:
                _, made, uid = verbs.admitted_creation(POD, pod, identity=self.identity, dry_run=False)
            except ApiError as error:
                return found, error
            found.append((made, uid))
            _waiting[self.kind.resource][self.workload.metadata.namespace] += 1
        return found, None

    def _room(self, pod: Pod) -> int:
        """How many such pods may come to those that wait for a node."""
        namespace, size = self.workload.metadata.namespace, len(msgspec.json.encode(pod))
        return min(MOST_WAITING, MOST_WAITING_BYTES // size) - _waiting[self.kind.resource][namespace]

    # In the transaction -----------------------------------------------------------------------------------------------

    def check_unchanged(self, writer: Writer, pods: int) -> None:
        """Raises: Conflict where the workload, or how many pods it controls, is not what was looked at."""
        meta = self.workload.metadata
        stored = writer.get(self.kind, *self.workload.key)
        is_same = stored is not None and stored.metadata.resource_version == meta.resource_version
        if not is_same or garbage.controlled(meta.uid, PODS) != pods:
            raise Conflict.of(self.kind.resource, meta.name)

    def adopt(self, writer: Writer, pods: Iterable[Pod]) -> None:
        for pod in pods:
            references = (*pod.metadata.owner_references, owner_reference(self.workload))
            writer.update(POD, _owned_by(pod, references))

    def release(self, writer: Writer, pods: Iterable[PodFacts]) -> None:
        for facts in pods:
            pod = writer.get(POD, self.workload.metadata.namespace, facts.name)
            if pod is not None and pod.metadata.uid == facts.uid:
                others = (one for one in pod.metadata.owner_references if one.uid != self.workload.metadata.uid)
                writer.update(POD, _owned_by(pod, tuple(others)))

    def make(
        self, writer: Writer, admitted: Iterable[Admitted], refusal: ApiError | None, now: datetime
    ) -> tuple[list[Pod], ApiError | None]:
        """Create the pods, up to the first that a rule refuses; returns them, and the refusal, which it tells."""
        admitted = list(admitted)
        self._load(writer, (pod.key for pod, _ in admitted), "SuccessfulCreate", CREATED)
        made: list[Pod] = []
        for pod, uid in admitted:
            try:
                with writer.savepoint():
                    created = writer.create(POD, pod, uid=uid)
            except AlreadyExists:  # its random name is taken: the next turn makes another
                continue
            except ApiError as error:
                refusal = error
                break
            if len(made) < MOST_TOLD:
                self.tell(writer, "SuccessfulCreate", CREATED.format(created.metadata.name), now)
            if isinstance(created, Pod):
                made.append(created)
        if refusal is not None:
            self.tell(writer, FAILED_CREATE, f"Error creating: {refusal}", now, warning=True)
        return made, refusal

    def delete(self, writer: Writer, pods: Collection[PodFacts], now: datetime) -> None:
        namespace = self.workload.metadata.namespace
        self._load(writer, ((namespace, facts.name) for facts in pods), "SuccessfulDelete", DELETED)
        for number, facts in enumerate(pods):
            writer.delete(POD, namespace, facts.name, uid=facts.uid)
            if number < MOST_TOLD:
                self.tell(writer, "SuccessfulDelete", DELETED.format(facts.name), now)

    def tell(self, writer: Writer, reason: str, message: str, now: datetime, *, warning: bool = False) -> None:
        event_recorder.record(writer, self._note(reason, message, warning=warning), now=now)

    def _note(self, reason: str, message: str, *, warning: bool = False) -> EventNote:
        return EventNote(
            regarding=self.workload,
            type="Warning" if warning else "Normal",
            reason=reason,
            message=message,
            component=self.component,
        )

    def _load(self, writer: Writer, pods: Iterable[Key], reason: str, message: str) -> None:
        """Read these pods, and the events that will tell of them, in one statement."""
        keys = list(pods)
        notes = [self._note(reason, message.format(name)) for _, name in keys[:MOST_TOLD]]
        events = list(map(event_recorder.key_of, notes))
        writer.preload(objects.to_read((POD, keys), (kind(EVENTS), events)))


def _full(namespace: str) -> ApiError:
    message = f"so many pods of namespace {namespace} wait for a node already that more are created once these have one"
    return TooManyRequests(message)


def _owned_by(pod: ApiObject, references: tuple[Any, ...]) -> ApiObject:
    return replace(pod, metadata=replace(pod.metadata, owner_references=references))
