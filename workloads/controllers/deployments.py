"""Takes Deployments from one template to the next, a step at a time (`workloads.rollouts`).

A step is one transaction. Each object in it is written on condition that it is as it was looked at, so of two that
take the same step one finds a conflict and looks again.

Source: pkg/controller/deployment/deployment_controller.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, cast

from msgspec.structs import replace

from claims import event_recorder
from claims.event_recorder import EventNote
from manciple.api import verbs
from manciple.controllers.declaration import Controller
from manciple.store.objects import Writer
from manciple.wire.errors import AlreadyExists, ApiError, Conflict
from manciple.wire.identity import controller
from manciple.wire.resources import ADDED, DELETED, MODIFIED
from workloads import pod_control
from workloads import view as following
from workloads.kinds.deployments import DEPLOYMENT, PROGRESSING, Deployment
from workloads.kinds.pod_facts import PodFacts
from workloads.kinds.replica_sets import REPLICA_SET, ReplicaSet
from workloads.kinds.templates import owner_reference
from workloads.pod_control import RETRY, Done, Work, take_turns
from workloads.rollouts import Rollout, is_same_template, with_condition
from workloads.view import DEPLOYMENTS, REPLICA_SETS, WorkloadView, controller_of, selects

IDENTITY = controller("deployment-controller")
COMPONENT = "deployment-controller"
#: What a Deployment says whose ReplicaSet cannot be created.
NOT_CREATED = "ReplicaSetCreateError"


@dataclass(frozen=True, slots=True)
class Turn:
    """A Deployment, the ReplicaSets that it controls, those that it may adopt, and the pods of them all, by uid."""

    deployment: Deployment
    replica_sets: Sequence[ReplicaSet]
    adoptable: Sequence[ReplicaSet]
    pods: Mapping[str, Sequence[PodFacts]]


def reconcile(now: datetime) -> int:
    return take_turns(DEPLOYMENTS, now, _look, _sync)


def _look(view: WorkloadView, deployment: Deployment) -> Turn:
    owned = [one for one in view.children.get(deployment.metadata.uid, {}).values() if isinstance(one, ReplicaSet)]
    adoptable = [one for one in view.orphans(REPLICA_SETS, deployment) if isinstance(one, ReplicaSet)]
    return Turn(deployment, owned, adoptable, {one.metadata.uid: view.owned_pods(one) for one in owned})


def _sync(turn: Turn, now: datetime) -> Done | Work:
    deployment = turn.deployment
    is_deleting = deployment.metadata.deletion_timestamp is not None
    released = [] if is_deleting else [one for one in turn.replica_sets if not selects(deployment, one.metadata.labels)]
    if not is_deleting and (turn.adoptable or released):
        return Work(lambda writer: (_change_hands(writer, turn, released), now.timestamp()), IDENTITY)
    rollout = Rollout(deployment, turn.replica_sets, turn.pods)
    rollout.step(now)
    created, refusal = None, None
    if rollout.created is not None:
        try:
            created = verbs.admitted_creation(REPLICA_SET, rollout.created, identity=IDENTITY, dry_run=False)
        except ApiError as error:
            refusal = error
    is_still = created is None and refusal is None and not rollout.updated and not rollout.deleted
    if is_still and rollout.deployment == deployment:
        return 0, rollout.due_at()
    return Work(partial(_write, turn=turn, rollout=rollout, created=created, refusal=refusal, now=now), IDENTITY)


def _write(
    writer: Writer,
    *,
    turn: Turn,
    rollout: Rollout,
    created: tuple[Any, Any, str] | None,
    refusal: ApiError | None,
    now: datetime,
) -> Done:
    before, deployment = writer.revision, turn.deployment
    if created is not None:
        try:
            with writer.savepoint():
                writer.create(REPLICA_SET, created[1], uid=created[2])
        except AlreadyExists:
            return _note_collision(writer, turn, created[1]), now.timestamp()
        except ApiError as error:
            refusal = error
    if refusal is not None:
        return _note_refusal(writer, deployment, refusal, now), RETRY
    for one in rollout.updated:
        writer.update(REPLICA_SET, one)
    for name in rollout.deleted:
        known = next(one for one in turn.replica_sets if one.metadata.name == name)
        writer.delete(REPLICA_SET, deployment.metadata.namespace, name, uid=known.metadata.uid)
    for message in rollout.told:
        _tell(writer, deployment, message, now)
    writer.update(DEPLOYMENT, rollout.deployment)
    return writer.revision - before, rollout.due_at()


def _change_hands(writer: Writer, turn: Turn, released: Sequence[ReplicaSet]) -> int:
    """Adopt the ReplicaSets that the Deployment selects, and let go of those that it no longer does."""
    deployment = turn.deployment
    before, stored = writer.revision, writer.get(DEPLOYMENT, *deployment.key)
    if stored is None or stored.metadata.uid != deployment.metadata.uid or stored.metadata.deletion_timestamp:
        raise Conflict.of(DEPLOYMENT.resource, deployment.metadata.name)
    for one in turn.adoptable:
        references = (*one.metadata.owner_references, owner_reference(deployment))
        writer.update(REPLICA_SET, replace(one, metadata=replace(one.metadata, owner_references=references)))
    for one in released:
        others = tuple(owner for owner in one.metadata.owner_references if owner.uid != deployment.metadata.uid)
        writer.update(REPLICA_SET, replace(one, metadata=replace(one.metadata, owner_references=others)))
    return writer.revision - before


def _note_collision(writer: Writer, turn: Turn, wanted: ReplicaSet) -> int:
    """The name of the new ReplicaSet is taken: unless it is the Deployment's own, the next one gets another name.

    Raises: Conflict where it is its own, which the view does not show yet.
    """
    deployment = turn.deployment
    found = cast("ReplicaSet | None", writer.get(REPLICA_SET, *wanted.key))
    owner = None if found is None else controller_of(found.metadata)
    is_own = owner is not None and owner.uid == deployment.metadata.uid
    if found is not None and is_own and is_same_template(found.spec.template, wanted.spec.template):
        raise Conflict.of(REPLICA_SET.resource, wanted.metadata.name)
    status = replace(deployment.status, collision_count=(deployment.status.collision_count or 0) + 1)
    writer.update(DEPLOYMENT, replace(deployment, status=status), subresource="status")
    return 1


def _note_refusal(writer: Writer, deployment: Deployment, refusal: ApiError, now: datetime) -> int:
    message = f"Failed to create new replica set: {refusal.message}"
    status = with_condition(deployment.status, PROGRESSING, ("False", NOT_CREATED, message), now)
    writer.update(DEPLOYMENT, replace(deployment, status=status), subresource="status")
    note = EventNote(regarding=deployment, type="Warning", reason=NOT_CREATED, message=message, component=COMPONENT)
    event_recorder.record(writer, note, now=now)
    return 1


def _tell(writer: Writer, deployment: Deployment, message: str, now: datetime) -> None:
    note = EventNote(regarding=deployment, reason="ScalingReplicaSet", message=message, component=COMPONENT)
    event_recorder.record(writer, note, now=now)


CONTROLLER = Controller(
    name="roll_out_deployments",
    does="takes Deployments from one template to the next",
    reconcile=reconcile,
    every=2,
    wakes_on=frozenset(
        {(DEPLOYMENTS, ADDED), (DEPLOYMENTS, MODIFIED), (REPLICA_SETS, MODIFIED), (REPLICA_SETS, DELETED)}
    ),
    has_work=following.any_of(DEPLOYMENTS),
    is_work=frozenset({(DEPLOYMENTS, ADDED), (DEPLOYMENTS, MODIFIED)}),
    rests_without_work=True,
    rests_until=partial(pod_control.rests_until, DEPLOYMENTS),
    has_more=partial(pod_control.is_cut_short, DEPLOYMENTS),
    queue_name="deployment",
)
