"""Which holders would have to leave one node so that one more replica fits: the cheapest set.

Holders are allocated claims with the pods that they are reserved for. On every node that could take the replica if it
were empty, all holders are removed first, and put back one after the other as long as the replica still fits, the
highest priority first; also each holder is tried alone. This is how kube-scheduler looks for victims
(preemption.SelectVictimsOnNode), but here none is evicted.

`could_run_on` asks which pods a node could take if nobody held its devices.

`what_if_gone` is the reverse: which devices come free if pods are deleted, and which waiting pods would start then.
They are tried by the code that schedules, in the order of the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from claims.models import AllocatedDevice
from claims.pod_claims import claim_names, is_done, is_for_pod
from inventory.kinds.nodes import Node
from inventory.models import Pool
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.limits import TimeLimitExceeded, time_limit
from manciple.wire.resources import CLAIMS, NODES, PODS, kind
from scheduling.allocator import Deadline, NodeView, place
from scheduling.claims.readiness import request_of
from scheduling.metrics import imagined
from scheduling.queue.reasons import Hold
from scheduling.queue.verdicts import Placement
from scheduling.rehearsal.decisions import WaitingPods
from scheduling.rehearsal.explanations import Apart, NodeReport, Report, apart
from scheduling.rehearsal.rehearsal import NextReplica, Rehearsal

#: Nodes that are looked at, those that lack least first.
NODES_TRIED = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingClaim:
    """One allocated claim, the pods that use it, and how many devices it holds."""

    claim: ResourceClaim
    pods: tuple[Pod, ...]

    @property
    def devices(self) -> int:
        return len(self.claim.status.allocation.devices.results) if self.claim.status.allocation else 0

    @property
    def priority(self) -> int:
        return max((pod.spec.priority or 0 for pod in self.pods), default=0)

    @property
    def key(self) -> tuple[str, str]:
        return self.claim.metadata.namespace, self.claim.metadata.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """If these holders left `node`, one more replica would fit there."""

    node: str
    holders: tuple[HoldingClaim, ...]

    @property
    def pods(self) -> tuple[Pod, ...]:
        """Each once: a pod may use several of the claims."""
        return tuple({pod.metadata.uid: pod for holder in self.holders for pod in holder.pods}.values())

    @property
    def devices(self) -> int:
        return sum(holder.devices for holder in self.holders)

    @property
    def cost(self) -> tuple[int, int, int, str]:
        """Cheaper is less: nobody important, few pods, few devices; then the first node by name."""
        return max(one.priority for one in self.holders), len(self.pods), self.devices, self.node


def cheapest_departure(rehearsal: Rehearsal, report: Report, *, deadline: Deadline) -> Departure | None:
    """None where no node could take the replica by devices that others hold, or none was found in time."""
    wanted = _candidates(report)
    by_node = _holders(wanted)
    found: list[Departure] = []
    for node in wanted:
        if deadline.has_passed:
            break
        if holders := by_node.get(node.name, ()):
            try:
                with time_limit(deadline):
                    found.extend(_on_node(rehearsal, node, holders))
            except TimeLimitExceeded as error:
                if error.deadline is not deadline:
                    raise
    return min(found, key=lambda one: one.cost, default=None)


def _candidates(report: Report) -> list[NodeView]:
    """The nodes that have the devices, taken or not: those that lack the fewest first."""
    lacking = sorted((lack, node.name, node) for node in report.nodes if (lack := _lacks(node)) is not None)
    return [node.examination.node for _, _, node in lacking[:NODES_TRIED]]


def _lacks(node: NodeReport) -> int | None:
    """How many devices are taken that the replica wants; None where it could not go there even if nobody was."""
    if any(not refusal.resolvable for refusal in node.refusals) or not node.examination.requests:
        return None
    lack = 0
    for request in node.examination.requests:
        if request.plan.parent:  # an alternative: another one may do
            continue
        if request.funnel[-2].left < request.wanted:
            return None
        lack += max(request.wanted - request.funnel[-1].left, 0)
    return lack


# Who holds what ------------------------------------------------------------------------------------------------------


def _holders(nodes: Sequence[NodeView]) -> dict[str, tuple[HoldingClaim, ...]]:
    """Who holds devices of pools that belong to one of these nodes. Four queries."""
    pools: dict[tuple[str, str], list[str]] = {}
    known_pools = Pool.objects.filter(node_name__in=[node.name for node in nodes])
    for driver, name, node in known_pools.values_list("driver", "name", "node_name"):
        pools.setdefault((driver, name), []).append(node)
    rows = AllocatedDevice.objects.filter(pool__in={name for _, name in pools}, admin_access=False)
    keys: dict[str, dict[tuple[str, str], None]] = {}
    columns = ("driver", "pool", "node", "claim__namespace", "claim__name")
    for driver, pool, on, namespace, name in rows.values_list(*columns):
        for node in pools.get((driver, pool), ()):
            if on in ("", node):
                keys.setdefault(node, {})[namespace, name] = None
    known = _claims({key for found in keys.values() for key in found})
    return {node: tuple(known[key] for key in sorted(found) if key in known) for node, found in keys.items()}


def _claims(keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], HoldingClaim]:
    claims = [decoded(stored, ResourceClaim) for stored in objects.get_many(kind(CLAIMS), keys)]
    users = {(claim.metadata.namespace, one.name) for claim in claims for one in claim.status.reserved_for}
    pods = {
        pod.metadata.uid: pod
        for pod in (decoded(stored, Pod) for stored in objects.get_many(kind(PODS), users))
        if not is_done(pod)
    }
    holders = (
        HoldingClaim(claim=claim, pods=tuple(pods[one.uid] for one in claim.status.reserved_for if one.uid in pods))
        for claim in claims
    )
    return {holder.key: holder for holder in holders}


# Who would have to leave ---------------------------------------------------------------------------------------------


def _on_node(rehearsal: Rehearsal, node: NodeView, holders: Sequence[HoldingClaim]) -> Iterable[Departure]:
    """The sets that were found on one node: single holders, and what is left when the others came back."""
    with rehearsal.next_replica() as replica:
        if not _fits_without(rehearsal, replica, node, holders):
            return
        for holder in holders:
            if _fits_without(rehearsal, replica, node, [holder]):
                yield Departure(node=node.name, holders=(holder,))
        for ordered in (_by_priority_and_size(holders), _by_priority_and_size(holders, small_first=True)):
            leaving = list(holders)
            for holder in ordered:
                others = [one for one in leaving if one is not holder]
                if others and _fits_without(rehearsal, replica, node, others):
                    leaving = others
            yield Departure(node=node.name, holders=tuple(leaving))


def _by_priority_and_size(holders: Sequence[HoldingClaim], *, small_first: bool = False) -> list[HoldingClaim]:
    sign = 1 if small_first else -1
    return sorted(holders, key=lambda one: (-one.priority, sign * one.devices, one.key))


def _fits_without(rehearsal: Rehearsal, replica: NextReplica, node: NodeView, leaving: Sequence[HoldingClaim]) -> bool:
    state = rehearsal.state
    rehearsal.give_way()
    with rehearsal.overlay.undone():
        for pod in {pod.metadata.uid: pod for holder in leaving for pod in holder.pods}.values():
            rehearsal.overlay.leave_out(PODS, pod)
        for holder in leaving:
            rehearsal.overlay.leave_out(CLAIMS, holder.claim)
        if not state.nodes.fits(replica.request.pod, node.name):
            return False
        return place(state.snapshot(), replica.wanting, (node,)).node is not None


# What a node could take ----------------------------------------------------------------------------------------------


def could_run_on(node: Node, before: Node, pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """The pods that `node` would take if nobody held its devices. before: the node as it is stored.

    A pod whose claims or classes are not there yet is not among them; nor is one for which there was no time.
    """
    asked, name = list(pods), node.metadata.name
    if not asked:
        return ()
    view = NodeView(name, node.metadata.labels)
    holders, deadline = _holders([view]).get(name, ()), Deadline.after(TIMEOUT)
    with apart() as copy, imagined(), copy.state.overlay.undone(), suppress(TimeLimitExceeded), time_limit(deadline):
        copy.state.overlay.imagine(NODES, node, instead_of=before)
        return tuple(pod for pod in asked if _could_run(copy, pod, view, holders))
    return ()


def _could_run(copy: Apart, pod: Pod, node: NodeView, holders: Iterable[HoldingClaim]) -> bool:
    state, own = copy.state, {(pod.metadata.namespace, name) for name in claim_names(pod)}
    copy.give_way()
    with state.overlay.undone():
        for holder in holders:
            if holder.key not in own:
                state.overlay.leave_out(CLAIMS, holder.claim)
        request = request_of(state, pod)
        if isinstance(request, Hold) or state.nodes.refusals_without(pod, node.name, (), claims=request.held):
            return False
        wanting = request.wanting_on(state.nodes.allocatable(node.name))
        return not wanting or place(state.snapshot(), wanting, (node,)).node is not None


# Deleting one pod ----------------------------------------------------------------------------------------------------


#: Waiting pods that are tried.
TRIED = 200
#: Seconds for all of them.
TIMEOUT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFate:
    """What becomes of one claim of the pod: `goes` with it; `frees` its devices; `others` still use it."""

    claim: ResourceClaim
    goes: bool
    others: tuple[str, ...]

    @property
    def frees(self) -> int:
        """How many devices come free."""
        allocation = self.claim.status.allocation
        return len(allocation.devices.results) if allocation and not self.others else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedPod:
    """A pod that waits now and would be placed on `node`."""

    namespace: str
    name: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDeletion:
    """claims: of the pod, in its order. started: who would start then; `tried_all` unless there were too many."""

    claims: tuple[ClaimFate, ...]
    started: tuple[StartedPod, ...]
    tried_all: bool

    @property
    def frees(self) -> int:
        return sum(claim.frees for claim in self.claims)


def what_if_gone(*pods: Pod) -> PodDeletion:
    """What follows from deleting `pods` together, as they are now."""
    keys = {(pod.metadata.namespace, name): pod for pod in pods for name in claim_names(pod)}
    claims = {
        claim.key: claim for claim in (decoded(one, ResourceClaim) for one in objects.get_many(kind(CLAIMS), keys))
    }
    leaving = {pod.metadata.uid for pod in pods}
    fates = tuple(
        ClaimFate(
            claim=claim,
            goes=any(is_for_pod(claim, pod) for pod in pods),
            others=tuple(user.title for user in claim.status.reserved_for if user.uid not in leaving),
        )
        for claim in (claims[key] for key in keys if key in claims)
    )
    started, tried_all = _started(pods, [fate for fate in fates if not fate.others])
    return PodDeletion(claims=fates, started=tuple(started), tried_all=tried_all)


def _started(pods: Sequence[Pod], fates: Sequence[ClaimFate]) -> tuple[list[StartedPod], bool]:
    if not any(pod.spec.node_name for pod in pods) and not any(fate.frees for fate in fates):
        return [], True  # they take nothing from anybody
    leaving = {pod.metadata.uid for pod in pods}
    started: list[StartedPod] = []
    with apart() as copy, imagined():
        state, overlay = copy.state, copy.state.overlay
        deadline = Deadline.after(TIMEOUT)
        waiting = sorted(state.pending.values(), key=queue_order)
        for pod in pods:
            overlay.leave_out(PODS, pod)
        for fate in fates:
            if fate.claim.status.allocation is not None:
                overlay.leave_out(CLAIMS, fate.claim)
        tries = WaitingPods(state=state, give_way=copy.give_way)
        for tried, one in enumerate(waiting):
            if tried >= TRIED or deadline.has_passed:
                return started, False
            if one.metadata.uid in leaving:
                continue
            verdict = tries.decide(one)
            if isinstance(verdict, Placement):
                meta = one.metadata
                started.append(StartedPod(namespace=meta.namespace, name=meta.name, node=verdict.node))
    return started, True


def queue_order(pod: Pod) -> tuple[int, str, int]:
    """In which order pods are tried."""
    return -(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", int(pod.metadata.resource_version or 0)
