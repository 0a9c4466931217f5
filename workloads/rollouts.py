"""How a Deployment gets from what its ReplicaSets are to what they shall be: one step, as values.

`Rollout(deployment, replica sets, their pods).step(now)` changes nothing but itself: it leaves the ReplicaSets to
create, update and delete, the Deployment's next annotations and status, and what to tell. The controller
(`workloads.controllers.deployments`) writes that in one transaction, sees what becomes of it, and takes the next step.

The arithmetic, the order and the texts are upstream's: pkg/controller/deployment/{deployment_controller,sync,rolling,
recreate,progress}.go and util/deployment_util.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from manciple.wire.base import ObjectMeta, condition_of, timestamp
from manciple.wire.quantity import whole
from workloads.kinds.deployments import (
    AVAILABLE,
    NO_DEADLINE,
    PROGRESSING,
    RECREATE,
    REPLICA_FAILURE,
    REVISION,
    Deployment,
    DeploymentCondition,
    DeploymentStatus,
    surge_and_unavailable,
)
from workloads.kinds.pod_facts import PodFacts
from workloads.kinds.replica_sets import ReplicaSet, ReplicaSetSpec
from workloads.kinds.templates import PodTemplateSpec, owner_reference, template_hash, without_label

HASH = "pod-template-hash"
DESIRED, MAXIMUM = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"
HISTORY = "deployment.kubernetes.io/revision-history"
#: Annotations of a Deployment that its ReplicaSets do not get.
_OWN = frozenset({"kubectl.kubernetes.io/last-applied-configuration", REVISION, HISTORY, DESIRED, MAXIMUM})
#: The longest list of past revisions, in characters.
LONGEST_HISTORY = 2000

PROGRESSED, UPDATED, EXCEEDED = "NewReplicaSetAvailable", "ReplicaSetUpdated", "ProgressDeadlineExceeded"
PAUSED, RESUMED = "DeploymentPaused", "DeploymentResumed"
CREATED, FOUND = "NewReplicaSetCreated", "FoundNewReplicaSet"


def revision_of(annotations: Mapping[str, str]) -> int:
    text = annotations.get(REVISION, "")
    return whole(text) or 0


def size(replica_set: ReplicaSet) -> int:
    return replica_set.spec.replicas or 0


class Rollout:
    """One step of one Deployment. replica_sets: those that it controls. pods: of each, by uid."""

    def __init__(
        self,
        deployment: Deployment,
        replica_sets: Iterable[ReplicaSet],
        pods: Mapping[str, Sequence[PodFacts]],
    ) -> None:
        self.deployment = deployment
        self._pods = pods
        self._known = {one.metadata.name: one for one in replica_sets}
        self._sets = dict(self._known)
        #: the ReplicaSet to create
        self.created: ReplicaSet | None = None
        #: the names of ReplicaSets to delete
        self.deleted: list[str] = []
        #: messages of the reason ScalingReplicaSet
        self.told: list[str] = []
        self._new = self._find_new()

    @property
    def updated(self) -> list[ReplicaSet]:
        """The ReplicaSets that are another now."""
        return [one for name, one in self._sets.items() if name in self._known and one != self._known[name]]

    # The step ---------------------------------------------------------------------------------------------------------

    def step(self, now: datetime) -> None:
        """Raises: nothing; what there is to do is in the attributes then."""
        deployment = self.deployment
        if deployment.metadata.deletion_timestamp is not None:
            self._sync_revision(create=False, now=now)
            self._set_status(self._counted(now))
            return
        self._note_pause(now)
        if deployment.spec.paused or self._is_scaled():
            self._sync_revision(create=False, now=now)
            self._scale()
            if deployment.spec.paused:
                self._clean_up()
            self._set_status(self._counted(now))
            return
        if deployment.spec.strategy.type == RECREATE:
            self._recreate(now)
        else:
            self._roll(now)
        self._set_status(self._progressed(now))

    def _roll(self, now: datetime) -> None:
        self._sync_revision(create=True, now=now)
        if not self._scale_up_new() and not self._scale_down_old() and self._is_complete(self.deployment.status):
            self._clean_up()

    def _recreate(self, now: datetime) -> None:
        self._sync_revision(create=False, now=now)
        active = [one for one in self._old() if size(one)]
        for one in active:
            self._resize(one, 0)
        if active or self._old_pods_run():
            return
        if self._new is None:
            self._sync_revision(create=True, now=now)
        if self._new is not None:
            self._resize(self._new, self.deployment.spec.replicas or 0)
        if self._is_complete(self.deployment.status):
            self._clean_up()

    # The ReplicaSets --------------------------------------------------------------------------------------------------

    def _find_new(self) -> ReplicaSet | None:
        """The oldest one with the Deployment's template."""
        template = self.deployment.spec.template
        same = [one for one in self._sets.values() if is_same_template(one.spec.template, template)]
        return min(same, key=_age, default=None)

    def _all(self) -> list[ReplicaSet]:
        return list(self._sets.values())

    def _old(self) -> list[ReplicaSet]:
        new = self._new.metadata.name if self._new is not None else ""
        return [one for name, one in self._sets.items() if name != new]

    def _put(self, replica_set: ReplicaSet) -> ReplicaSet:
        self._sets[replica_set.metadata.name] = replica_set
        if self._new is not None and self._new.metadata.name == replica_set.metadata.name:
            self._new = replica_set
        if self.created is not None and self.created.metadata.name == replica_set.metadata.name:
            self.created = replica_set
        return replica_set

    def _sync_revision(self, *, create: bool, now: datetime) -> None:
        """Let the new ReplicaSet be there, with the newest revision."""
        deployment = self.deployment
        revision = max((revision_of(one.metadata.annotations) for one in self._old()), default=0) + 1
        if self._new is None:
            if create:
                self._create(revision, now)
            return
        annotated = _annotated(deployment, self._new, revision, exists=True)
        spec = replace(annotated.spec, min_ready_seconds=deployment.spec.min_ready_seconds)
        self._new = self._put(replace(annotated, spec=spec))
        self._set_revision(self._new.metadata.annotations.get(REVISION, ""))
        if self._has_deadline and condition_of(deployment.status.conditions, PROGRESSING) is None:
            self._set_progress(("True", FOUND, f'Found new replica set "{self._new.metadata.name}"'), now)

    def _create(self, revision: int, now: datetime) -> None:
        deployment = self.deployment
        template = deployment.spec.template
        hashed = template_hash(without_label(template, HASH), deployment.status.collision_count or 0)
        labels = {**template.metadata.labels, HASH: hashed}
        selector = deployment.spec.selector
        new = ReplicaSet(
            api_version="apps/v1",
            kind="ReplicaSet",
            metadata=ObjectMeta(
                name=f"{deployment.metadata.name}-{hashed}",
                namespace=deployment.metadata.namespace,
                labels=labels,
                owner_references=(owner_reference(deployment),),
            ),
            spec=ReplicaSetSpec(
                replicas=0,
                min_ready_seconds=deployment.spec.min_ready_seconds,
                selector=None
                if selector is None
                else replace(selector, match_labels={**selector.match_labels, HASH: hashed}),
                template=replace(template, metadata=replace(template.metadata, labels=labels)),
            ),
        )
        replicas = self._next_size(new)
        new = replace(new, spec=replace(new.spec, replicas=replicas))
        self.created = self._new = _annotated(deployment, new, revision, exists=False)
        self._sets[new.metadata.name] = self.created
        if replicas:
            self.told.append(f"Scaled up replica set {new.metadata.name} from 0 to {replicas}")
        self._set_revision(str(revision))
        if self._has_deadline:
            self._set_progress(("True", CREATED, f'Created new replica set "{new.metadata.name}"'), now)

    def _resize(self, replica_set: ReplicaSet, replicas: int) -> bool:
        """Whether it had another size."""
        before, name = size(replica_set), replica_set.metadata.name
        sized = _with_sizes(self.deployment, replica_set)
        self._put(replace(sized, spec=replace(sized.spec, replicas=replicas)))
        if before != replicas:
            way = "up" if before < replicas else "down"
            self.told.append(f"Scaled {way} replica set {name} from {before} to {replicas}")
        return before != replicas

    def _clean_up(self) -> None:
        """Delete the oldest of the ReplicaSets that nothing is left of, beyond those that are kept."""
        limit = self.deployment.spec.revision_history_limit
        old = [one for one in self._old() if one.metadata.deletion_timestamp is None]
        if limit is None or len(old) <= limit:
            return
        old.sort(key=lambda one: (revision_of(one.metadata.annotations), _age(one)))
        for one in old[: len(old) - limit]:
            is_observed = one.metadata.generation <= one.status.observed_generation
            if not one.status.replicas and not size(one) and is_observed:
                self.deleted.append(one.metadata.name)

    # Sizes ------------------------------------------------------------------------------------------------------------

    def _next_size(self, new: ReplicaSet) -> int:
        """How large the new one may be now (upstream: NewRSNewReplicas)."""
        wanted = self.deployment.spec.replicas or 0
        if self.deployment.spec.strategy.type == RECREATE:
            return wanted
        surge, _ = surge_and_unavailable(self.deployment)
        others = sum(size(one) for one in self._all() if one.metadata.name != new.metadata.name)
        room = wanted + surge - others - size(new)
        return size(new) + max(0, min(room, wanted - size(new)))

    def _scale_up_new(self) -> bool:
        new, wanted = self._new, self.deployment.spec.replicas or 0
        if new is None or size(new) == wanted or new is self.created:
            return new is not None and new is self.created
        return self._resize(new, wanted if size(new) > wanted else self._next_size(new))

    def _scale_down_old(self) -> bool:
        deployment, new = self.deployment, self._new
        old = sorted((one for one in self._old() if size(one)), key=_age)
        if not old or new is None:
            return False
        wanted = deployment.spec.replicas or 0
        _, unavailable = surge_and_unavailable(deployment)
        least = wanted - unavailable
        total = sum(map(size, self._all()))
        missing_in_new = size(new) - new.status.available_replicas
        spare = total - least - missing_in_new
        if spare <= 0:
            return False
        done = False
        # First those that are not available: an update that is stuck must not keep them.
        cleaned = 0
        for one in old:
            unhealthy = size(one) - one.status.available_replicas
            number = min(spare - cleaned, unhealthy)
            if number > 0:
                cleaned += number
                done |= self._resize(one, size(one) - number)
        available = sum(one.status.available_replicas for one in self._all())
        left = available - least
        for name in [one.metadata.name for one in old]:
            one = self._sets[name]
            number = min(size(one), left)
            if number > 0:
                left -= number
                done |= self._resize(one, size(one) - number)
        return done

    def _is_scaled(self) -> bool:
        """Whether the Deployment has another size than when its ReplicaSets got theirs."""
        wanted = str(self.deployment.spec.replicas or 0)
        return any(one.metadata.annotations.get(DESIRED, wanted) != wanted for one in self._all() if size(one))

    def _scale(self) -> None:
        """Give each ReplicaSet its share of the Deployment's size (upstream: scale, in sync.go)."""
        deployment, wanted = self.deployment, self.deployment.spec.replicas or 0
        if (only := self._active_or_latest()) is not None:
            self._resize(only, wanted)
            return
        if self._is_saturated():
            for one in self._old():
                if size(one):
                    self._resize(one, 0)
            return
        if deployment.spec.strategy.type == RECREATE:
            return
        active = [one for one in self._all() if size(one)]
        surge, _ = surge_and_unavailable(deployment)
        allowed = wanted + surge if wanted else 0
        to_add = allowed - sum(map(size, active))
        active.sort(key=_age, reverse=to_add > 0)
        active.sort(key=size, reverse=True)
        added, sizes = 0, dict[str, int]()
        for one in active:
            share = 0 if to_add == added else self._share(one, to_add, added, allowed)
            sizes[one.metadata.name] = size(one) + share
            added += share
        if active and to_add:
            first = active[0].metadata.name
            sizes[first] = max(0, sizes[first] + to_add - added)
        for one in active:
            self._resize(one, sizes[one.metadata.name])

    def _share(self, one: ReplicaSet, to_add: int, added: int, allowed: int) -> int:
        """How many of `to_add` are for this one (upstream: GetReplicaSetProportion)."""
        if not self.deployment.spec.replicas:
            share = -size(one)
        else:
            text = one.metadata.annotations.get(MAXIMUM, "")
            before = whole(text) or self.deployment.status.replicas
            share = int(size(one) * allowed / before + 0.5) - size(one) if before else 0
        left = to_add - added
        return min(share, left) if to_add > 0 else max(share, left)

    def _active_or_latest(self) -> ReplicaSet | None:
        active = [one for one in self._all() if size(one)]
        if active:
            return active[0] if len(active) == 1 else None
        return self._new or max(self._old(), key=_age, default=None)

    def _is_saturated(self) -> bool:
        new, wanted = self._new, self.deployment.spec.replicas or 0
        if new is None or new.metadata.annotations.get(DESIRED) != str(wanted):
            return False
        return size(new) == wanted == new.status.available_replicas

    def _old_pods_run(self) -> bool:
        """Whether pods of other ReplicaSets are left that may still run."""
        return any(not pod.has_ended for one in self._old() for pod in self._pods.get(one.metadata.uid, ()))

    # The status -------------------------------------------------------------------------------------------------------

    @property
    def _has_deadline(self) -> bool:
        deadline = self.deployment.spec.progress_deadline_seconds
        return deadline is not None and deadline != NO_DEADLINE

    def _set_revision(self, revision: str) -> None:
        meta = self.deployment.metadata
        if revision and meta.annotations.get(REVISION) != revision:
            annotations = {**meta.annotations, REVISION: revision}
            self.deployment = replace(self.deployment, metadata=replace(meta, annotations=annotations))

    def _set_status(self, status: DeploymentStatus) -> None:
        self.deployment = replace(self.deployment, status=status)

    def _set_progress(self, said: tuple[str, str, str], now: datetime) -> None:
        self._set_status(with_condition(self.deployment.status, PROGRESSING, said, now))

    def _note_pause(self, now: datetime) -> None:
        """A paused Deployment makes no progress, which is no failure."""
        if not self._has_deadline:
            return
        known = condition_of(self.deployment.status.conditions, PROGRESSING)
        if known is not None and known.reason == EXCEEDED:
            return
        was_paused = known is not None and known.reason == PAUSED
        if self.deployment.spec.paused and not was_paused:
            self._set_progress(("Unknown", PAUSED, "Deployment is paused"), now)
        elif not self.deployment.spec.paused and was_paused:
            self._set_progress(("Unknown", RESUMED, "Deployment is resumed"), now)

    def _counted(self, now: datetime) -> DeploymentStatus:
        sets = [self._known[name] for name in self._sets if name in self._known]
        new = None if self._new is None else self._known.get(self._new.metadata.name)
        wanted = self.deployment.spec.replicas or 0
        total = sum(one.status.replicas for one in sets)
        available = sum(one.status.available_replicas for one in sets)
        status = replace(
            self.deployment.status,
            observed_generation=self.deployment.metadata.generation,
            replicas=total,
            updated_replicas=0 if new is None else new.status.replicas,
            ready_replicas=sum(one.status.ready_replicas for one in sets),
            available_replicas=available,
            unavailable_replicas=max(0, sum(map(size, sets)) - available),
            terminating_replicas=sum(one.status.terminating_replicas or 0 for one in sets),
        )
        _, unavailable = surge_and_unavailable(self.deployment)
        if available >= wanted - unavailable:
            what = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        else:
            what = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        return with_condition(status, AVAILABLE, what, now)

    def _progressed(self, now: datetime) -> DeploymentStatus:
        """The status, with what is to be said of the progress (upstream: syncRolloutStatus)."""
        old, status = self.deployment.status, self._counted(now)
        known = condition_of(old.conditions, PROGRESSING)
        if not self._has_deadline:
            status = without_condition(status, PROGRESSING)
        was_complete = status.replicas == status.updated_replicas and known is not None and known.reason == PROGRESSED
        if self._has_deadline and not was_complete:
            status = self._with_progress(status, known, now)
        if failure := self._failure():
            status = with_condition(status, REPLICA_FAILURE, ("True", *failure), now)
        else:
            status = without_condition(status, REPLICA_FAILURE)
        return status

    def _with_progress(
        self, status: DeploymentStatus, known: DeploymentCondition | None, now: datetime
    ) -> DeploymentStatus:
        old, new = self.deployment.status, self._new
        name = f'Deployment "{self.deployment.metadata.name}"'
        if new is not None:
            name = f'ReplicaSet "{new.metadata.name}"'
        if self._is_complete(status):
            message = f"{name} has successfully progressed."
            return with_condition(status, PROGRESSING, ("True", PROGRESSED, message), now)
        if _is_progress(status, old):
            since = known.last_transition_time if known is not None and known.status == "True" else timestamp(now)
            condition = DeploymentCondition(
                type=PROGRESSING,
                status="True",
                reason=UPDATED,
                message=f"{name} is progressing.",
                last_update_time=timestamp(now),
                last_transition_time=since,
            )
            others = without_condition(status, PROGRESSING).conditions
            return replace(status, conditions=(*others, condition))
        if self._is_late(known, now):
            message = f"{name} has timed out progressing."
            return with_condition(status, PROGRESSING, ("False", EXCEEDED, message), now)
        return status

    def _is_late(self, known: DeploymentCondition | None, now: datetime) -> bool:
        if known is None or known.reason == PROGRESSED:
            return False
        if known.reason == EXCEEDED:
            return True
        due = self.due_at()
        return due is not None and due < now.timestamp()

    def due_at(self) -> float | None:
        """When the update has failed unless it makes progress, as POSIX seconds; None where none is under way."""
        known = condition_of(self.deployment.status.conditions, PROGRESSING)
        deadline = self.deployment.spec.progress_deadline_seconds
        if known is None or known.reason in (PROGRESSED, EXCEEDED, PAUSED) or not self._has_deadline:
            return None
        since = datetime.fromisoformat(known.last_update_time or known.last_transition_time or "1970-01-01T00:00:00Z")
        return since.timestamp() + (deadline or 0)

    def _is_complete(self, status: DeploymentStatus) -> bool:
        wanted = self.deployment.spec.replicas or 0
        is_observed = status.observed_generation >= self.deployment.metadata.generation
        return is_observed and status.updated_replicas == status.replicas == status.available_replicas == wanted

    def _failure(self) -> tuple[str, str] | None:
        """(reason, message) of the first ReplicaSet that cannot make its pods, the new one before others."""
        first = [self._new] if self._new is not None else []
        for one in (*first, *self._all()):
            known = condition_of(one.status.conditions, REPLICA_FAILURE)
            if known is not None:
                return known.reason, known.message
        return None


def is_same_template(one: PodTemplateSpec, other: PodTemplateSpec) -> bool:
    """But for the label with its hash."""
    return without_label(one, HASH) == without_label(other, HASH)


def _age(replica_set: ReplicaSet) -> tuple[str, str]:
    """Greater for younger ones; one that is to be created is the youngest."""
    return replica_set.metadata.creation_timestamp or "9", replica_set.metadata.name


def _is_progress(new: DeploymentStatus, old: DeploymentStatus) -> bool:
    return (
        new.updated_replicas > old.updated_replicas
        or new.replicas - new.updated_replicas < old.replicas - old.updated_replicas
        or new.ready_replicas > old.ready_replicas
        or new.available_replicas > old.available_replicas
    )


def with_condition(status: DeploymentStatus, type_: str, said: tuple[str, str, str], now: datetime) -> DeploymentStatus:
    """said: (status, reason, message). One with the same status and reason stays as it is."""
    is_, reason, message = said
    known = condition_of(status.conditions, type_)
    if known is not None and (known.status, known.reason) == (is_, reason):
        return status
    since = known.last_transition_time if known is not None and known.status == is_ else timestamp(now)
    condition = DeploymentCondition(
        type=type_,
        status=is_,
        reason=reason,
        message=message,
        last_update_time=timestamp(now),
        last_transition_time=since,
    )
    return replace(status, conditions=(*without_condition(status, type_).conditions, condition))


def without_condition(status: DeploymentStatus, type_: str) -> DeploymentStatus:
    return replace(status, conditions=tuple(one for one in status.conditions if one.type != type_))


# Annotations of ReplicaSets -------------------------------------------------------------------------------------------


def _annotated(deployment: Deployment, replica_set: ReplicaSet, revision: int, *, exists: bool) -> ReplicaSet:
    """With the Deployment's annotations, and with its revision if that is newer than what it has (upstream:
    SetNewReplicaSetAnnotations).
    """
    before = replica_set.metadata.annotations
    own = {key: text for key, text in deployment.metadata.annotations.items() if key not in _OWN}
    annotations = {**before, **own}
    had = revision_of(before)
    if had < revision:
        annotations[REVISION] = str(revision)
        if had:
            past = before.get(HISTORY, "")
            annotations[HISTORY] = _shortened([*past.split(","), str(had)] if past else [str(had)])
    annotated = replace(replica_set, metadata=replace(replica_set.metadata, annotations=annotations))
    return annotated if exists else _with_sizes(deployment, annotated)


def _shortened(revisions: list[str]) -> str:
    while len(",".join(revisions)) > LONGEST_HISTORY:
        del revisions[0]
    return ",".join(revisions)


def _with_sizes(deployment: Deployment, replica_set: ReplicaSet) -> ReplicaSet:
    """With the Deployment's size, and how far an update may exceed it, by which later scaling is shared out."""
    wanted = deployment.spec.replicas or 0
    surge, _ = surge_and_unavailable(deployment)
    sizes = {DESIRED: str(wanted), MAXIMUM: str(wanted + surge)}
    annotations = {**replica_set.metadata.annotations, **sizes}
    return replace(replica_set, metadata=replace(replica_set.metadata, annotations=annotations))
