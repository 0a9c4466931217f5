"""The consequences for pods if objects change and some pods are evicted (`what_if_changed`). Nothing is written.

    aftermath = what_if_changed([Imagined(TAINT_RULES, after=rule)], evicted=pods)
    aftermath.started   # waiting pods that would be placed then
    aftermath.again     # the replacements of the evicted pods: where they would land
    aftermath.stranded  # those of them that would wait

Waiting pods are tried in the order of the queue by the code that schedules; the replacements come behind the waiting
pods of their priority.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import structs

from claims.kinds.pods import Pod, PodStatus
from claims.kinds.resource_claims import EXTENDED_CLAIM_ANNOTATION, ResourceClaim, ResourceClaimStatus
from claims.pod_claims import claim_names
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.base import ApiObject
from manciple.wire.resources import CLAIMS, PODS, kind
from scheduling.allocator import Deadline
from scheduling.metrics import imagined
from scheduling.queue.verdicts import Placement
from scheduling.rehearsal.decisions import WaitingPods
from scheduling.rehearsal.departures import TIMEOUT, TRIED, StartedPod, queue_order
from scheduling.rehearsal.explanations import Apart, apart
from scheduling.state.cluster import Overlay


@dataclass(frozen=True, slots=True, kw_only=True)
class Imagined:
    """One object as it would be. before: as it is, None where it does not exist; after: None where it would be gone."""

    resource: str
    before: ApiObject | None = None
    after: ApiObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """See the module's docstring. tried_all: whether there was time for every pod."""

    started: tuple[StartedPod, ...] = ()
    again: tuple[StartedPod, ...] = ()
    stranded: tuple[tuple[str, str], ...] = ()  # (namespace, name)
    tried_all: bool = True


def what_if_changed(changes: Iterable[Imagined], evicted: Sequence[Pod] = ()) -> Aftermath:
    """evicted: pods on nodes that would have to leave. Takes at most a few seconds (`tried_all`)."""
    keys = {(pod.metadata.namespace, name) for pod in evicted for name in claim_names(pod)}
    stored = (decoded(one, ResourceClaim) for one in objects.get_many(kind(CLAIMS), keys))
    claims = {claim.key: claim for claim in stored}
    with apart() as copy, imagined():
        overlay = copy.state.overlay
        waiting = [pod for pod in copy.state.pending.values() if pod.metadata.deletion_timestamp is None]
        for change in changes:
            if change.after is not None:
                overlay.imagine(change.resource, change.after, instead_of=change.before)
            elif change.before is not None:
                overlay.leave_out(change.resource, change.before)
        created_again = list(_empty(overlay, evicted, claims))
        return _try(copy, sorted(waiting, key=queue_order), created_again)


def _empty(overlay: Overlay, pods: Sequence[Pod], claims: dict[tuple[str, str], ResourceClaim]) -> Iterator[Pod]:
    """Take the pods off their nodes, and from their claims what nobody else uses; yields them as they would come back.

    What comes back is told apart from what goes by nothing but its place: a claim that was made for the pod is taken
    for the one that would be made again.
    """
    leaving = {pod.metadata.uid for pod in pods}
    for pod in pods:
        overlay.leave_out(PODS, pod)
    for claim in claims.values():
        if EXTENDED_CLAIM_ANNOTATION in claim.metadata.annotations:
            overlay.leave_out(CLAIMS, claim)
        elif all(user.uid in leaving for user in claim.status.reserved_for):
            overlay.imagine(CLAIMS, structs.replace(claim, status=ResourceClaimStatus()), instead_of=claim)
    for pod in pods:
        status = PodStatus(resource_claim_statuses=pod.status.resource_claim_statuses)
        yield structs.replace(pod, spec=structs.replace(pod.spec, node_name=""), status=status)


def _try(copy: Apart, waiting: Sequence[Pod], created_again: Sequence[Pod]) -> Aftermath:
    tries, deadline = WaitingPods(state=copy.state, give_way=copy.give_way), Deadline.after(TIMEOUT)
    started, again, stranded = list[StartedPod](), list[StartedPod](), list[tuple[str, str]]()
    new = {pod.metadata.uid for pod in created_again}
    for tried, pod in enumerate(sorted((*waiting, *created_again), key=lambda one: -(one.spec.priority or 0))):
        if tried >= TRIED or deadline.has_passed:
            return Aftermath(started=tuple(started), again=tuple(again), stranded=tuple(stranded), tried_all=False)
        node = _placed(tries, pod, is_new=pod.metadata.uid in new)
        found = StartedPod(namespace=pod.metadata.namespace, name=pod.metadata.name, node=node)
        if pod.metadata.uid in new:
            (again.append(found) if node else stranded.append(pod.key))
        elif node:
            started.append(found)
    return Aftermath(started=tuple(started), again=tuple(again), stranded=tuple(stranded))


def _placed(tries: WaitingPods, pod: Pod, *, is_new: bool) -> str:
    """The node that the pod would get, which then counts as its; "" for none."""
    if is_new:
        tries.state.overlay.imagine(PODS, pod)
    verdict = tries.decide(pod)
    return verdict.node if isinstance(verdict, Placement) else ""
