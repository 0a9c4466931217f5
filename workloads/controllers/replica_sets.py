"""Keeps as many pods of a ReplicaSet as it wants, and says in its status how many there are.

At most `BURST` of a ReplicaSet are made or deleted at a time (`workloads.pod_control`). Where one is refused the others
are not tried: the status says why (ReplicaFailure), and they are tried again after a while, or when something changes.

Source: pkg/controller/replicaset/{replica_set,replica_set_utils}.go and pkg/controller/controller_utils.go
(ActivePodsWithRanks) of Kubernetes 1.36.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from manciple.controllers.declaration import BOUND, DELETING, FINISHED, Controller
from manciple.store.objects import Writer
from manciple.wire.base import condition_of, timestamp
from manciple.wire.errors import ApiError
from manciple.wire.identity import controller
from manciple.wire.resources import ADDED, DELETED, MODIFIED, PODS, Key
from workloads import pod_control
from workloads import view as following
from workloads.kinds.pod_facts import PodFacts
from workloads.kinds.replica_sets import REPLICA_SET, ReplicaSet, ReplicaSetCondition, ReplicaSetStatus
from workloads.kinds.templates import pod_of
from workloads.pod_control import FAILED_CREATE, RETRY, Done, PodControl, Work, take_turns
from workloads.view import REPLICA_SETS, WorkloadView, controller_of

IDENTITY = controller("replicaset-controller")
COMPONENT = "replicaset-controller"
REPLICA_FAILURE = "ReplicaFailure"


@dataclass(frozen=True, slots=True)
class Turn:
    """A ReplicaSet and its pods. offered: see `WorkloadView.turn_of_pods`. siblings: active pods of all ReplicaSets
    with the same controller, by node.
    """

    replica_set: ReplicaSet
    pods: Sequence[PodFacts]
    offered: Collection[Key] | None
    siblings: Mapping[str, int]


def reconcile(now: datetime) -> int:
    return take_turns(REPLICA_SETS, now, _look, _sync)


def _look(view: WorkloadView, replica_set: ReplicaSet) -> Turn:
    owner = controller_of(replica_set.metadata)
    family = view.children.get(owner.uid, {}).values() if owner else (replica_set,)
    siblings = Counter(pod.node for one in family for pod in view.owned_pods(one) if pod.is_active)
    pods, offered = view.turn_of_pods(replica_set)
    return Turn(replica_set, pods, offered, siblings)


def _sync(turn: Turn, now: datetime) -> Done | Work:
    replica_set, most = turn.replica_set, pod_control.BURST
    control = PodControl(REPLICA_SET, replica_set, IDENTITY, COMPONENT)
    released, adopted = control.unselected(turn.pods), control.adoptable(turn.offered)
    leaving = {pod.uid for pod in released}
    pods = [pod for pod in turn.pods if pod.uid not in leaving] + [PodFacts.of(pod) for pod in adopted]
    active = [pod for pod in pods if pod.is_active]
    is_deleting = replica_set.metadata.deletion_timestamp is not None
    missing = 0 if is_deleting else (replica_set.spec.replicas or 0) - len(active)
    surplus = victims(active, turn.siblings, -missing)[:most]
    wanted = pod_of(replica_set.spec.template, replica_set)
    admitted, refusal = control.admitted([wanted] * min(missing, most))
    status = _with_failure(counted(replica_set, pods, now), refusal, now)
    if status == replica_set.status and not (released or adopted or surplus or admitted or refusal):
        return 0, _next_look(replica_set, pods, now)

    def write(writer: Writer) -> Done:
        before = writer.revision
        control.check_unchanged(writer, len(turn.pods))
        control.adopt(writer, adopted)
        control.release(writer, released)
        made, refused = control.make(writer, admitted, refusal, now)
        control.delete(writer, surplus, now)
        gone = {facts.uid for facts in surplus}
        known = [dataclasses.replace(pod, is_deleting=True) if pod.uid in gone else pod for pod in pods]
        known += map(PodFacts.of, made)
        ended = _with_failure(counted(replica_set, known, now), refused, now)
        writer.update(REPLICA_SET, replace(replica_set, status=ended), subresource="status")
        later = now.timestamp() if abs(missing) > most else _next_look(replica_set, known, now)
        return writer.revision - before, later if refused is None else RETRY

    return Work(write, IDENTITY, pods=len(admitted) + len(surplus))


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
    available, moment = [pod.available_at(spec.min_ready_seconds) for pod in active], now.timestamp()
    return replace(
        replica_set.status,
        replicas=len(active),
        fully_labeled_replicas=sum(wanted <= pod.labels.items() for pod in active),
        ready_replicas=sum(pod.is_ready for pod in active),
        available_replicas=sum(at is not None and at <= moment for at in available),
        terminating_replicas=sum(pod.is_deleting and not pod.has_ended for pod in pods),
        observed_generation=replica_set.metadata.generation,
    )


def _with_failure(status: ReplicaSetStatus, refusal: ApiError | None, now: datetime) -> ReplicaSetStatus:
    others = tuple(one for one in status.conditions if one.type != REPLICA_FAILURE)
    if refusal is None:
        return replace(status, conditions=others)
    known = condition_of(status.conditions, REPLICA_FAILURE)
    if known is None or (known.status, known.reason) != ("True", FAILED_CREATE):
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
    least, moment = replica_set.spec.min_ready_seconds, now.timestamp()
    if not least:
        return None
    due = [at for pod in pods if pod.is_active and (at := pod.available_at(least)) is not None]
    return min((at for at in due if at > moment), default=None)


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
    has_work=following.any_of(REPLICA_SETS),
    is_work=frozenset({(REPLICA_SETS, ADDED), (REPLICA_SETS, MODIFIED)}),
    rests_without_work=True,
    rests_until=partial(pod_control.rests_until, REPLICA_SETS),
    has_more=partial(pod_control.is_cut_short, REPLICA_SETS),
    most_per_turn=pod_control.BURST,
    queue_name="replicaset",
)
