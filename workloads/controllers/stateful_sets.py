"""Keeps the pods of a StatefulSet, each with its name and its claims, and takes them from one template to the next.

OrderedReady: one pod at a time, and only while all before it are available; the last goes first. Parallel: all at once.
A turn first sees to the pods that it wants, then deletes those that are too many, then those of a former template
(`planned`). A pod that is deleted for a new template comes back in a later turn, when it is gone: names are taken once.

Source: pkg/controller/statefulset/{stateful_set_control,stateful_pod_control,stateful_set_utils}.go of Kubernetes 1.36.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from claims.kinds.volume_claims import VOLUME_CLAIM, PersistentVolumeClaim
from manciple.api import verbs
from manciple.controllers.declaration import BOUND, DELETING, FINISHED, Controller
from manciple.store import objects
from manciple.store.objects import Writer, decoded
from manciple.wire.base import ObjectMeta, OwnerReference
from manciple.wire.errors import AlreadyExists, ApiError, BadRequest
from manciple.wire.identity import controller
from manciple.wire.resources import ADDED, DELETED, MODIFIED, PODS, Key
from workloads import pod_control, revisions
from workloads import view as following
from workloads.kinds.controller_revisions import ControllerRevision
from workloads.kinds.pod_facts import PodFacts
from workloads.kinds.stateful_sets import (
    DELETE,
    ON_DELETE,
    PARALLEL,
    ROLLING_UPDATE,
    STATEFUL_SET,
    StatefulSet,
    StatefulSetStatus,
    claim_name,
    with_claim_volumes,
)
from workloads.kinds.templates import PodTemplateSpec, owner_reference, pod_of
from workloads.pod_control import FAILED_CREATE, RETRY, Admitted, Done, PodControl, Work, take_turns
from workloads.revisions import History, history_of, template_of
from workloads.view import STATEFUL_SETS, WorkloadView

IDENTITY = controller("statefulset-controller")
COMPONENT = "statefulset-controller"
#: Of its pods: their name and their ordinal.
POD_NAME, POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
#: Of its revisions: their hash.
REVISION_HASH = "controller.kubernetes.io/hash"

_ORDINAL = re.compile(r"(?s)(.*)-([0-9]+)")


@dataclass(frozen=True, slots=True)
class Turn:
    """A StatefulSet, its pods (offered: see `WorkloadView.turn_of_pods`) and its revisions."""

    stateful_set: StatefulSet
    pods: Sequence[PodFacts]
    offered: Collection[Key] | None
    revisions: Sequence[ControllerRevision]


@dataclass(slots=True)
class Plan:
    """What a turn does. making: ordinals. claiming: pods whose claims may be missing. naming: pods without the label of
    their name.
    """

    making: list[int] = field(default_factory=list)
    deleting: list[PodFacts] = field(default_factory=list)
    claiming: list[PodFacts] = field(default_factory=list)
    naming: list[PodFacts] = field(default_factory=list)

    @property
    def is_work(self) -> bool:
        """Whether it says more than what is missing."""
        return bool(self.deleting or self.naming)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the pod with that name could not be made."""

    pod: str
    error: ApiError


def reconcile(now: datetime) -> int:
    return take_turns(STATEFUL_SETS, now, _look, _sync)


def _look(view: WorkloadView, stateful_set: StatefulSet) -> Turn:
    pods, offered = view.turn_of_pods(stateful_set)
    return Turn(stateful_set, pods, offered, view.revisions(stateful_set))


def _sync(turn: Turn, now: datetime) -> Done | Work:
    stateful_set, is_deleting = turn.stateful_set, turn.stateful_set.metadata.deletion_timestamp is not None
    control = PodControl(
        STATEFUL_SET, stateful_set, IDENTITY, COMPONENT, lambda pod: ordinal_of(stateful_set, pod) is not None
    )
    released, adopted = control.unselected(turn.pods), control.adoptable(turn.offered)
    leaving = {pod.uid for pod in released}
    pods = [pod for pod in turn.pods if pod.uid not in leaving] + [PodFacts.of(pod) for pod in adopted]
    collisions = stateful_set.status.collision_count or 0
    history = history_of(
        stateful_set, stateful_set.spec.template, turn.revisions, collisions=collisions, label=REVISION_HASH
    )
    members = Members(stateful_set, history, now)
    plan, surplus = members.planned(pods), [] if is_deleting else members.surplus_revisions(pods)
    claims = Claims(stateful_set, [members.name(at) for at in plan.making], pods, plan.claiming)
    wanted = [members.pod(at) for at in plan.making if not claims.is_stale(members.name(at))]
    admitted, error = control.admitted(wanted)
    refusal = None if error is None else Refusal(wanted[len(admitted)].metadata.name, error)
    is_still = not (released or adopted or surplus or claims.is_work or admitted or refusal or plan.is_work)
    if is_still and (is_deleting or history.is_written) and members.counted(pods) == stateful_set.status:
        return 0, RETRY if plan.making else members.next_look(pods)

    def write(writer: Writer) -> Done:
        before = writer.revision
        control.check_unchanged(writer, len(turn.pods))
        if not is_deleting and not revisions.record(writer, stateful_set, history, surplus):
            status = replace(stateful_set.status, collision_count=collisions + 1)
            writer.update(STATEFUL_SET, replace(stateful_set, status=status), subresource="status")
            return writer.revision - before, now.timestamp()
        control.adopt(writer, adopted)
        control.release(writer, released)
        claims.keep(writer, control, now)
        for facts in plan.naming:
            _name(writer, stateful_set, facts)
        made, refused = _make(writer, control, claims, admitted, now)
        if (told := refused or refusal) is not None:
            message = f"Create Pod {told.pod} in StatefulSet {stateful_set.metadata.name} failed error: {told.error}"
            control.tell(writer, FAILED_CREATE, message, now, warning=True)
        known = [*_without(writer, control, pods, plan.deleting, now), *map(PodFacts.of, made)]
        writer.update(STATEFUL_SET, replace(stateful_set, status=members.counted(known)), subresource="status")
        is_short = len(made) < len(plan.making)  # a name is taken, a former pod's claim still goes, or it was refused
        return writer.revision - before, RETRY if is_short else members.next_look(known)

    return Work(write, IDENTITY, pods=len(admitted) + len(plan.deleting))


def _name(writer: Writer, stateful_set: StatefulSet, facts: PodFacts) -> None:
    pod = writer.get(POD, stateful_set.metadata.namespace, facts.name)
    if pod is not None and pod.metadata.uid == facts.uid:
        labels = {**pod.metadata.labels, **_labels(stateful_set, facts.name)}
        writer.update(POD, replace(pod, metadata=replace(pod.metadata, labels=labels)))


def _make(
    writer: Writer, control: PodControl, claims: Claims, admitted: Iterable[Admitted], now: datetime
) -> tuple[list[Pod], Refusal | None]:
    """Create the pods, each with its claims, up to the first that a rule refuses."""
    made, owner = list[Pod](), control.workload.metadata.name
    for pod, uid in admitted:
        try:
            with writer.savepoint():
                claims.make(writer, control, pod.metadata.name, now)
                created = writer.create(POD, pod, uid=uid)
        except AlreadyExists:  # somebody else's pod has the name
            continue
        except ApiError as error:
            return made, Refusal(pod.metadata.name, error)
        message = f"Create Pod {created.metadata.name} in StatefulSet {owner} successful"
        control.tell(writer, "SuccessfulCreate", message, now)
        made += [created] if isinstance(created, Pod) else []
    return made, None


def _without(
    writer: Writer, control: PodControl, pods: Iterable[PodFacts], going: Iterable[PodFacts], now: datetime
) -> list[PodFacts]:
    """The pods as they are once some are deleted."""
    namespace, owner = control.workload.key
    gone: set[str] = set()
    for facts in going:
        writer.delete(POD, namespace, facts.name, uid=facts.uid)
        message = f"Delete Pod {facts.name} in StatefulSet {owner} successful"
        control.tell(writer, "SuccessfulDelete", message, now)
        gone.add(facts.uid)
    return [dataclasses.replace(pod, is_deleting=True) if pod.uid in gone else pod for pod in pods]


# Which pods come and go -----------------------------------------------------------------------------------------------


def ordinal_of(stateful_set: StatefulSet, pod: str) -> int | None:
    """Of the pod with that name; None where it cannot be one of its pods."""
    found = _ORDINAL.fullmatch(pod)
    if found is None or found[1] != stateful_set.metadata.name or len(found[2]) > len(str(2**31)):
        return None
    ordinal = int(found[2])
    return ordinal if ordinal < 2**31 and str(ordinal) == found[2] else None


def _labels(stateful_set: StatefulSet, pod: str) -> dict[str, str]:
    return {POD_NAME: pod, POD_INDEX: str(ordinal_of(stateful_set, pod))}


class Members:
    """The pods of one StatefulSet by ordinal, and what is to become of them."""

    def __init__(self, stateful_set: StatefulSet, history: History, now: datetime) -> None:
        self._set, self._history, self._now = stateful_set, history, now.timestamp()
        self._least = stateful_set.spec.min_ready_seconds
        self._update = history.current.metadata.name
        known = {one.metadata.name: one for one in history.old}
        current = known.get(stateful_set.status.current_revision)
        template = None if current is None else template_of(current)
        #: The revision of pods that the update has not reached, and its template.
        self._current = self._update if current is None or template is None else current.metadata.name
        self._former = stateful_set.spec.template if template is None else template

    def name(self, ordinal: int) -> str:
        return f"{self._set.metadata.name}-{ordinal}"

    def pod(self, ordinal: int) -> Pod:
        """The one to make."""
        spec, name = self._set.spec, self.name(ordinal)
        strategy, former = spec.update_strategy, self._set.partition
        if strategy.rolling_update is None:
            former = self._set.status.current_replicas  # the update has not reached it
        is_former = strategy.type == ROLLING_UPDATE and ordinal < self._set.ordinals.start + former
        template: PodTemplateSpec = self._former if is_former else spec.template
        pod = pod_of(with_claim_volumes(replace(spec, template=template), name), self._set)
        revision = self._current if is_former else self._update
        labels = {**pod.metadata.labels, revisions.HASH: revision, **_labels(self._set, name)}
        return replace(
            pod,
            metadata=replace(pod.metadata, name=name, labels=labels),
            spec=replace(pod.spec, hostname=name, subdomain=spec.service_name),
        )

    def _split(self, pods: Iterable[PodFacts]) -> tuple[dict[int, PodFacts], list[PodFacts]]:
        """(those that it wants, by ordinal; those that are too many, the highest first)"""
        by_ordinal = {at: pod for pod in pods if (at := ordinal_of(self._set, pod.name)) is not None}
        wanted = self._set.ordinals
        beyond = [by_ordinal[at] for at in sorted(by_ordinal, reverse=True) if at not in wanted]
        return {at: pod for at, pod in by_ordinal.items() if at in wanted}, beyond

    def planned(self, pods: Iterable[PodFacts]) -> Plan:
        plan, (members, beyond) = Plan(), self._split(pods)
        if self._set.metadata.deletion_timestamp is not None:
            return plan
        if self._set.spec.pod_management_policy == PARALLEL:
            self._plan_all(plan, members, beyond)
            may_update = len(plan.making) < pod_control.BURST
        else:
            may_update = self._plan_next(plan, members, beyond)
        if may_update and self._set.spec.update_strategy.type != ON_DELETE:
            self._plan_update(plan, members)
        plan.deleting = plan.deleting[: pod_control.BURST]
        return plan

    def _plan_all(self, plan: Plan, members: Mapping[int, PodFacts], beyond: Sequence[PodFacts]) -> None:
        missing = (at for at in self._set.ordinals if at not in members)
        plan.making = [at for at, _ in zip(missing, range(pod_control.BURST), strict=False)]
        for at in sorted(members):
            self._plan_member(plan, members[at])
        plan.deleting += [pod for pod in beyond if not pod.is_deleting]

    def _plan_next(self, plan: Plan, members: Mapping[int, PodFacts], beyond: Sequence[PodFacts]) -> bool:
        """One step, if all before it are available. Whether there is none to take."""
        for at in self._set.ordinals:
            if at not in members:
                plan.making.append(at)
                return False
            self._plan_member(plan, members[at])
            if not self._is_available(members[at]):
                return False
        if not beyond:
            return True
        last, unavailable = beyond[0], [pod for pod in beyond if not self._is_available(pod)]
        if not last.is_deleting and (self._is_available(last) or last is unavailable[-1]):
            plan.deleting.append(last)
        return False

    def _plan_member(self, plan: Plan, pod: PodFacts) -> None:
        if pod.has_ended:  # it comes back once it is gone
            plan.deleting += [] if pod.is_deleting else [pod]
        elif pod.phase == "Pending":
            plan.claiming.append(pod)
        elif self._is_available(pod) and pod.labels.get(POD_NAME) != pod.name:
            plan.naming.append(pod)

    def _plan_update(self, plan: Plan, members: Mapping[int, PodFacts]) -> None:
        """Pods of a former template go, the highest first: those that are not available anyway, then others, as long as
        no more are unavailable than may be.
        """
        going = {pod.uid for pod in plan.deleting}
        first = self._set.ordinals.start + self._set.partition
        reached = (members[at] for at in sorted(members, reverse=True) if at >= first)
        old = [pod for pod in reached if not (self._is_new(pod) or pod.is_deleting or pod.uid in going)]
        plan.deleting += [pod for pod in old if not self._is_available(pod)]
        available = [pod for pod in members.values() if self._is_available(pod)]
        missing = len(self._set.ordinals) - len(available)
        whole = [pod for pod in old if self._is_available(pod)]
        plan.deleting += whole[: max(0, self._set.max_unavailable - missing)]

    def _is_new(self, pod: PodFacts) -> bool:
        return pod.labels.get(revisions.HASH) == self._update

    def _is_available(self, pod: PodFacts) -> bool:
        """Whether it is running, has been ready for long enough, and stays."""
        return not pod.is_deleting and self._counts_as_available(pod)

    def _counts_as_available(self, pod: PodFacts) -> bool:
        at = pod.available_at(self._least)
        return pod.phase == "Running" and at is not None and at <= self._now

    def next_look(self, pods: Iterable[PodFacts]) -> float | None:
        """When the next pod has been ready for long enough."""
        times = (pod.available_at(self._least) for pod in pods if pod.is_active)
        return min((at for at in times if at is not None and at > self._now), default=None)

    def surplus_revisions(self, pods: Iterable[PodFacts]) -> list[ControllerRevision]:
        live = {self._current, self._update, *(pod.labels.get(revisions.HASH) for pod in pods)}
        unused = [one for one in self._history.old if one.metadata.name not in live]
        limit = self._set.spec.revision_history_limit
        number = 0 if limit is None or limit < 0 else len(unused) - limit
        return revisions.surplus(unused, number, lambda _one: False)

    # The status -------------------------------------------------------------------------------------------------------

    def counted(self, pods: Iterable[PodFacts]) -> StatefulSetStatus:
        members, beyond = self._split(pods)
        known = [pod for pod in (*members.values(), *beyond) if pod.phase]
        hashes = [pod.labels.get(revisions.HASH) for pod in known if not pod.is_deleting]
        status = replace(
            self._set.status,
            observed_generation=self._set.metadata.generation,
            replicas=len(known),
            ready_replicas=sum(pod.phase == "Running" and pod.is_ready for pod in known),
            available_replicas=sum(map(self._counts_as_available, known)),
            current_replicas=hashes.count(self._current),
            updated_replicas=hashes.count(self._update),
            current_revision=self._current,
            update_revision=self._update,
            collision_count=self._set.status.collision_count or 0,
        )
        numbers = {status.replicas, status.ready_replicas, status.updated_replicas}
        is_complete = self._set.spec.update_strategy.type == ROLLING_UPDATE and numbers == {len(self._set.ordinals)}
        if not is_complete:
            return status
        return replace(status, current_revision=self._update, current_replicas=status.updated_replicas)


# Claims of volumes ----------------------------------------------------------------------------------------------------


class Claims:
    """The PersistentVolumeClaims of its pods: those that are missing, and whose they are by the retention policy.

    making: the names of pods to make. claiming: pods that may lack claims.
    """

    def __init__(
        self, stateful_set: StatefulSet, making: Sequence[str], pods: Sequence[PodFacts], claiming: Sequence[PodFacts]
    ) -> None:
        self._set = stateful_set
        self._templates = stateful_set.spec.volume_claim_templates
        self._pods = {pod.name: pod for pod in pods} if self._templates else {}
        names = [*making, *self._pods] if self._templates else []
        keys = [(stateful_set.metadata.namespace, claim_name(one, pod)) for pod in names for one in self._templates]
        stored = (decoded(one, PersistentVolumeClaim) for one in objects.get_many(VOLUME_CLAIM, keys)) if keys else ()
        self._known = {one.metadata.name: one for one in stored}
        self._wrong = [] if stateful_set.metadata.deletion_timestamp is not None else list(self._wrongly_owned())
        waiting = [pod.name for pod in claiming] if self._templates else []
        self._lacking = [pod for pod in waiting if any(self._missing(pod))]

    @property
    def is_work(self) -> bool:
        return bool(self._wrong or self._lacking)

    def is_stale(self, pod: str) -> bool:
        """Whether a claim of the pod, which is not there, belongs to a former one, and goes with it."""
        claims = (self._known.get(claim_name(template, pod)) for template in self._templates)
        references = (one for claim in claims if claim is not None for one in claim.metadata.owner_references)
        return any((one.kind, one.name) == ("Pod", pod) for one in references)

    def keep(self, writer: Writer, control: PodControl, now: datetime) -> None:
        for claim, references in self._wrong:
            stored = writer.get(VOLUME_CLAIM, *claim.key)
            if stored is not None and stored.metadata.uid == claim.metadata.uid:
                metadata = replace(stored.metadata, owner_references=references)
                writer.update(VOLUME_CLAIM, replace(stored, metadata=metadata))
        for pod in self._lacking:
            try:
                with writer.savepoint():
                    self.make(writer, control, pod, now)
            except ApiError as error:
                message = f"Create Claim for Pod {pod} in StatefulSet {self._set.metadata.name} failed error: {error}"
                control.tell(writer, FAILED_CREATE, message, now, warning=True)

    def make(self, writer: Writer, control: PodControl, pod: str, now: datetime) -> None:
        """Those that are missing. Raises: ApiError."""
        for template in self._templates:
            known = self._known.get(claim_name(template, pod))
            if known is not None and known.metadata.deletion_timestamp is not None:
                raise BadRequest(f"pvc {known.metadata.name} is being deleted")
        for wanted in self._missing(pod):
            _, made, uid = verbs.admitted_creation(VOLUME_CLAIM, wanted, identity=IDENTITY, dry_run=False)
            writer.create(VOLUME_CLAIM, made, uid=uid)
            name = self._set.metadata.name
            message = f"Create Claim {wanted.metadata.name} Pod {pod} in StatefulSet {name} success"
            control.tell(writer, "SuccessfulCreate", message, now)

    def _missing(self, pod: str) -> Iterator[PersistentVolumeClaim]:
        labels = self._set.spec.selector.match_labels if self._set.spec.selector is not None else {}
        for template in self._templates:
            name, meta = claim_name(template, pod), template.metadata
            if name not in self._known:
                references = self._owners(True, None)
                yield PersistentVolumeClaim(
                    api_version="v1",
                    kind="PersistentVolumeClaim",
                    metadata=ObjectMeta(
                        name=name,
                        namespace=self._set.metadata.namespace,
                        labels={**meta.labels, **labels},
                        annotations=meta.annotations,
                        finalizers=meta.finalizers,
                        owner_references=references,
                    ),
                    spec=template.spec,
                )

    # Whose they are ---------------------------------------------------------------------------------------------------

    def _wrongly_owned(self) -> Iterator[tuple[PersistentVolumeClaim, tuple[OwnerReference, ...]]]:
        """(a claim, the references that it should have)"""
        for pod in self._pods.values():
            ordinal = ordinal_of(self._set, pod.name)
            for template in self._templates:
                claim = self._known.get(claim_name(template, pod.name))
                if claim is None or ordinal is None:
                    continue
                ours = {self._set.metadata.uid, pod.uid}
                others = tuple(one for one in claim.metadata.owner_references if one.uid not in ours)
                if any(one.controller for one in others):
                    continue
                wanted = (*others, *self._owners(ordinal in self._set.ordinals, pod))
                if set(wanted) != set(claim.metadata.owner_references):
                    yield claim, wanted

    def _owners(self, is_wanted: bool, pod: PodFacts | None) -> tuple[OwnerReference, ...]:
        """By the retention policy (upstream: updateClaimOwnerRefForSetAndPod). pod: that is too many, where it is."""
        policy = self._set.spec.persistent_volume_claim_retention_policy
        if policy is None:
            return ()
        if policy.when_scaled == DELETE and not is_wanted:
            return () if pod is None else (_pod_reference(pod),)
        return (owner_reference(self._set),) if policy.when_deleted == DELETE else ()


def _pod_reference(pod: PodFacts) -> OwnerReference:
    return OwnerReference(
        api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True, block_owner_deletion=True
    )


CONTROLLER = Controller(
    name="keep_stateful_sets",
    does="keeps the pods of StatefulSets, with their names and claims",
    reconcile=reconcile,
    every=2,
    wakes_on=frozenset(
        {
            (STATEFUL_SETS, ADDED),
            (STATEFUL_SETS, MODIFIED),
            (PODS, BOUND),
            (PODS, MODIFIED),
            (PODS, FINISHED),
            (PODS, DELETING),
            (PODS, DELETED),
        }
    ),
    has_work=following.any_of(STATEFUL_SETS),
    is_work=frozenset({(STATEFUL_SETS, ADDED), (STATEFUL_SETS, MODIFIED)}),
    rests_without_work=True,
    rests_until=partial(pod_control.rests_until, STATEFUL_SETS),
    has_more=partial(pod_control.is_cut_short, STATEFUL_SETS),
    most_per_turn=pod_control.BURST,
    queue_name="statefulset",
)
