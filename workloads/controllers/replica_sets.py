"""Keeps as many pods of a ReplicaSet as it wants, and says in its status how many there are.

What it decides by is the view (`workloads.view`), brought up to date before; what it writes for one ReplicaSet is one
transaction, which begins by making sure that the ReplicaSet is as it was, and controls as many pods as it did. So a
crash leaves all or nothing, whoever comes next reads in the log what was done, and no pod is made twice.

Pods are admitted as those of any client, in the name of this controller, before the transaction. At most `BURST` of a
ReplicaSet are made or deleted at a time. Where one is refused the others are not tried: the status says why
(ReplicaFailure), and they are tried again after a while, or when something changes.

Source: pkg/controller/replicaset/{replica_set,replica_set_utils}.go and pkg/controller/controller_utils.go
(ActivePodsWithRanks) of Kubernetes 1.36.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from claims import event_recorder
from claims.event_recorder import EventNote
from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from manciple.api import verbs
from manciple.controllers.declaration import BOUND, DELETING, FINISHED, Controller
from manciple.store import garbage, objects
from manciple.store.objects import Writer, decoded
from manciple.wire.base import timestamp
from manciple.wire.errors import AlreadyExists, ApiError, Conflict, NotFound
from manciple.wire.identity import controller
from manciple.wire.resources import ADDED, DELETED, MODIFIED, PODS, Key
from manciple.wire.selectors import as_label_selector
from workloads import view as following
from workloads.kinds.pod_facts import PodFacts
from workloads.kinds.replica_sets import REPLICA_SET, ReplicaSet, ReplicaSetCondition, ReplicaSetStatus
from workloads.kinds.templates import owner_reference, pod_of
from workloads.view import REPLICA_SETS, WorkloadView, controller_of, selects

log = logging.getLogger(__name__)

IDENTITY = controller("replicaset-controller")
COMPONENT = "replicaset-controller"
#: Pods of a ReplicaSet that are made or deleted in one transaction (upstream: BurstReplicas, in one sync).
BURST = 100
#: Seconds after which refused pods are tried again.
RETRY_AFTER = 5.0

REPLICA_FAILURE, FAILED_CREATE = "ReplicaFailure", "FailedCreate"

#: A pod that is admitted, and its uid.
Admitted = tuple[Any, str]


@dataclass(frozen=True, slots=True)
class Turn:
    """A ReplicaSet and its pods. offered: pods that it may adopt; None where they have to be searched. siblings: active
    pods of all ReplicaSets with the same controller, by node.
    """

    replica_set: ReplicaSet
    pods: Sequence[PodFacts]
    offered: Collection[Key] | None
    siblings: Mapping[str, int]


def reconcile(now: datetime) -> int:
    with following.current() as view:
        if view is None:
            return 0
        turns = [_turn(view, one) for one in view.take(REPLICA_SETS, now) if isinstance(one, ReplicaSet)]
    changed, later = 0, dict[Key, float]()
    for turn in turns:
        key = turn.replica_set.key
        try:
            written, due = _sync(turn, now)
            changed += written
            if due is not None:
                later[key] = due
        except (Conflict, NotFound):  # somebody else has written: the log says so, too
            later[key] = now.timestamp()
        except ApiError:
            log.warning("ReplicaSet %s/%s could not be looked after", *key, exc_info=True)
            later[key] = now.timestamp() + RETRY_AFTER
    following.come_back(REPLICA_SETS, later)
    return changed


def _turn(view: WorkloadView, replica_set: ReplicaSet) -> Turn:
    uid = replica_set.metadata.uid
    owner = controller_of(replica_set.metadata)
    family = view.children.get(owner.uid, {}).values() if owner else (replica_set,)
    siblings = Counter(pod.node for one in family for pod in view.owned_pods(one) if pod.is_active)
    offered = view.offered.pop(replica_set.key, set())
    is_fresh = uid in view.fresh
    view.fresh.discard(uid)
    return Turn(replica_set, view.owned_pods(replica_set), None if is_fresh else offered, siblings)


# One ReplicaSet -------------------------------------------------------------------------------------------------------


def _sync(turn: Turn, now: datetime) -> tuple[int, float | None]:
    """(how many objects were written, when to look again without a reason, as POSIX seconds)."""
    replica_set = turn.replica_set
    is_deleting = replica_set.metadata.deletion_timestamp is not None
    released = [] if is_deleting else [pod for pod in turn.pods if not selects(replica_set, pod.labels)]
    adopted = [] if is_deleting else _adoptable(replica_set, turn.offered)
    leaving = {pod.uid for pod in released}
    pods = [pod for pod in turn.pods if pod.uid not in leaving] + [PodFacts.of(pod) for pod in adopted]
    active = [pod for pod in pods if pod.is_active]
    missing = 0 if is_deleting else (replica_set.spec.replicas or 0) - len(active)
    surplus = [] if is_deleting else victims(active, turn.siblings, -missing)[:BURST]
    admitted, refusal = _admitted(replica_set, min(missing, BURST))
    following_status = _with_failure(counted(replica_set, pods, now), replica_set.status, refusal, now)
    is_still = following_status == replica_set.status and not (released or adopted or surplus or admitted or refusal)
    if is_still:
        return 0, _next_look(replica_set, pods, now)
    with objects.writing(identity=IDENTITY) as writer:
        _check_unchanged(writer, turn)
        before = writer.revision
        for pod in adopted:
            references = (*pod.metadata.owner_references, owner_reference(replica_set))
            writer.update(POD, replace(pod, metadata=replace(pod.metadata, owner_references=references)))
        for facts in released:
            _release(writer, replica_set, facts)
        made, refusal = _make(writer, replica_set, admitted, refusal, now)
        for facts in surplus:
            writer.delete(POD, replica_set.metadata.namespace, facts.name, uid=facts.uid)
            _tell(writer, replica_set, "SuccessfulDelete", f"Deleted pod: {facts.name}", now)
        if refusal is not None:
            _tell(writer, replica_set, FAILED_CREATE, f"Error creating: {refusal}", now)
        gone = {facts.uid for facts in surplus}
        known = [dataclasses.replace(pod, is_deleting=True) if pod.uid in gone else pod for pod in pods] + [
            PodFacts.of(pod) for pod in made
        ]
        status = _with_failure(counted(replica_set, known, now), replica_set.status, refusal, now)
        writer.update(REPLICA_SET, replace(replica_set, status=status), subresource="status")
        written = writer.revision - before
    if refusal is not None:
        return written, now.timestamp() + RETRY_AFTER
    return written, now.timestamp() if abs(missing) > BURST else _next_look(replica_set, known, now)


def _check_unchanged(writer: Writer, turn: Turn) -> None:
    """Raises: Conflict where the ReplicaSet, or which pods it controls, is not what was looked at."""
    replica_set = turn.replica_set
    stored = writer.get(REPLICA_SET, *replica_set.key)
    is_same = stored is not None and stored.metadata.resource_version == replica_set.metadata.resource_version
    if not is_same or garbage.controlled(replica_set.metadata.uid, PODS) != len(turn.pods):
        raise Conflict.of(REPLICA_SET.resource, replica_set.metadata.name)


def _adoptable(replica_set: ReplicaSet, offered: Collection[Key] | None) -> list[Pod]:
    """The pods that it selects and nobody controls."""
    namespace, selector = replica_set.metadata.namespace, as_label_selector(replica_set.spec.selector)
    if offered is None:
        stored: Iterable[Any] = objects.list(POD, namespace=namespace, labels=selector).items
    else:
        stored = objects.get_many(POD, sorted(offered)) if offered else ()
    return [
        pod
        for pod in (decoded(one, Pod) for one in stored)
        if controller_of(pod.metadata) is None and PodFacts.of(pod).is_active and selector.matches(pod.metadata.labels)
    ]


def _release(writer: Writer, replica_set: ReplicaSet, facts: PodFacts) -> None:
    pod = writer.get(POD, replica_set.metadata.namespace, facts.name)
    if pod is not None and pod.metadata.uid == facts.uid:
        others = tuple(one for one in pod.metadata.owner_references if one.uid != replica_set.metadata.uid)
        writer.update(POD, replace(pod, metadata=replace(pod.metadata, owner_references=others)))


def _admitted(replica_set: ReplicaSet, number: int) -> tuple[list[Admitted], ApiError | None]:
    """So many new pods, up to the first that admission refuses, and its refusal."""
    pod, found = pod_of(replica_set.spec.template, replica_set), list[Admitted]()
    for _ in range(number):
        try:
            _, made, uid = verbs.admitted_creation(POD, pod, identity=IDENTITY, dry_run=False)
        except ApiError as error:
            return found, error
        found.append((made, uid))
    return found, None


def _make(
    writer: Writer, replica_set: ReplicaSet, admitted: Iterable[Admitted], refusal: ApiError | None, now: datetime
) -> tuple[list[Pod], ApiError | None]:
    """The pods that could be created, up to the first that a rule refuses, and the refusal."""
    made: list[Pod] = []
    for pod, uid in admitted:
        try:
            with writer.savepoint():
                created = writer.create(POD, pod, uid=uid)
        except AlreadyExists:  # its random name is taken: the next turn makes another
            continue
        except ApiError as error:
            return made, error
        _tell(writer, replica_set, "SuccessfulCreate", f"Created pod: {created.metadata.name}", now)
        if isinstance(created, Pod):
            made.append(created)
    return made, refusal


def _tell(writer: Writer, replica_set: ReplicaSet, reason: str, message: str, now: datetime) -> None:
    note = EventNote(
        regarding=replica_set,
        type="Warning" if reason == FAILED_CREATE else "Normal",
        reason=reason,
        message=message,
        component=COMPONENT,
    )
    event_recorder.record(writer, note, now=now)


# Which pods go first --------------------------------------------------------------------------------------------------

_PHASES = {"Pending": 0, "": 0, "Unknown": 1, "Running": 2}


def victims(active: Sequence[PodFacts], siblings: Mapping[str, int], number: int) -> list[PodFacts]:
    """So many of the active pods, in the order in which they go (upstream: ActivePodsWithRanks): without a node before
    those with one, pending ones first, then those that are not ready, the cheaper to delete, those with more siblings
    on their node, those that are ready or exist for a shorter time, those that have restarted more often.
    """
    if number <= 0:
        return []
    ranked = sorted(active, key=lambda pod: pod.created, reverse=True)
    ranked.sort(key=lambda pod: pod.restarts, reverse=True)
    ranked.sort(key=lambda pod: pod.ready_since or "", reverse=True)
    ranked.sort(
        key=lambda pod: (
            bool(pod.node),
            _PHASES.get(pod.phase, 2),
            pod.is_ready,
            pod.deletion_cost,
            -siblings.get(pod.node, 0),
        )
    )
    return ranked[:number]


# The status -----------------------------------------------------------------------------------------------------------


def counted(replica_set: ReplicaSet, pods: Iterable[PodFacts], now: datetime) -> ReplicaSetStatus:
    """What the status says of these pods; its conditions as they are."""
    spec, pods = replica_set.spec, list(pods)
    active = [pod for pod in pods if pod.is_active]
    wanted = spec.template.metadata.labels.items()
    available = [at for pod in active if (at := pod.available_at(spec.min_ready_seconds)) is not None]
    return replace(
        replica_set.status,
        replicas=len(active),
        fully_labeled_replicas=sum(wanted <= pod.labels.items() for pod in active),
        ready_replicas=sum(pod.is_ready for pod in active),
        available_replicas=sum(at <= now.timestamp() for at in available),
        terminating_replicas=sum(pod.is_deleting and not pod.has_ended for pod in pods),
        observed_generation=replica_set.metadata.generation,
    )


def _with_failure(
    status: ReplicaSetStatus, old: ReplicaSetStatus, refusal: ApiError | None, now: datetime
) -> ReplicaSetStatus:
    others = tuple(one for one in old.conditions if one.type != REPLICA_FAILURE)
    if refusal is None:
        return replace(status, conditions=others)
    known = next((one for one in old.conditions if one.type == REPLICA_FAILURE), None)
    if known is None or known.status != "True" or known.reason != FAILED_CREATE:
        known = ReplicaSetCondition(
            type=REPLICA_FAILURE,
            status="True",
            last_transition_time=timestamp(now),
            reason=FAILED_CREATE,
            message=refusal.message,
        )
    return replace(status, conditions=(*others, known))


def _next_look(replica_set: ReplicaSet, pods: Iterable[PodFacts], now: datetime) -> float | None:
    """When the next pod has been ready for long enough."""
    least = replica_set.spec.min_ready_seconds
    due = [at for pod in pods if pod.is_active and (at := pod.available_at(least)) is not None]
    return min((at for at in due if at > now.timestamp()), default=None)


CONTROLLER = Controller(
    name="keep_replica_sets",
    does="makes and deletes the pods of ReplicaSets",
    reconcile=reconcile,
    every=2,
    wakes_on=frozenset(
        {
            (REPLICA_SETS, ADDED),
            (REPLICA_SETS, MODIFIED),
            (PODS, BOUND),
            (PODS, MODIFIED),
            (PODS, FINISHED),
            (PODS, DELETING),
            (PODS, DELETED),
        }
    ),
    has_work=following.ANY,
    most_per_turn=BURST,
    queue_name="replicaset",
)
