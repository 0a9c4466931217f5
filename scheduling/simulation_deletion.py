"""What would follow if a pod were gone: which devices come free, and which waiting pods would start then.

The pods that wait are tried by the code that schedules, in the order of the queue, with the pod and what only it holds
left out. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from manciple.store import objects
from scheduling.allocator import Deadline
from scheduling.cycle import decide
from scheduling.explanations.current import apart
from scheduling.plans import Placement
from scheduling.pod_claims import claim_names, is_for_pod
from scheduling.resources import CLAIMS, PODS, decoded, kind
from scheduling.simulation_rehearsal import Overlay

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
class Started:
    """A pod that waits now and would be placed on `node`."""

    namespace: str
    name: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """claims: of the pod, in its order. started: who would start then; `tried_all` unless there were too many."""

    claims: tuple[ClaimFate, ...]
    started: tuple[Started, ...]
    tried_all: bool

    @property
    def frees(self) -> int:
        return sum(claim.frees for claim in self.claims)


def what_if_gone(pod: Pod) -> Deletion:
    """What follows from deleting `pod`, as it is now."""
    namespace = pod.metadata.namespace
    found = objects.get_many(kind(CLAIMS), [(namespace, name) for name in claim_names(pod)])
    claims = {one.metadata.name: one for one in (decoded(stored, ResourceClaim) for stored in found)}
    fates = tuple(_fate(claims[name], pod) for name in claim_names(pod) if name in claims)
    started, tried_all = _started(pod, [fate for fate in fates if not fate.others])
    return Deletion(claims=fates, started=tuple(started), tried_all=tried_all)


def _fate(claim: ResourceClaim, pod: Pod) -> ClaimFate:
    users = claim.status.reserved_for
    others = tuple(one.title for one in users if one.uid != pod.metadata.uid)
    return ClaimFate(claim=claim, goes=is_for_pod(claim, pod), others=others)


def _started(pod: Pod, fates: Sequence[ClaimFate]) -> tuple[list[Started], bool]:
    if not pod.spec.node_name and not any(fate.frees for fate in fates):
        return [], True  # it takes nothing from anybody
    started: list[Started] = []
    with apart() as copy:
        state, overlay = copy.state, Overlay(copy)
        deadline = Deadline.after(TIMEOUT)
        waiting = sorted(state.pending.values(), key=_queue_order)
        overlay.leave_out(PODS, pod)
        for fate in fates:
            if fate.claim.status.allocation is not None:
                overlay.leave_out(CLAIMS, fate.claim)
        for tried, one in enumerate(waiting):
            copy.give_way()
            if tried >= TRIED or deadline.has_passed:
                return started, False
            if one.metadata.uid == pod.metadata.uid:
                continue
            decision = decide(state, one)
            if isinstance(decision, Placement):
                meta = one.metadata
                started.append(Started(namespace=meta.namespace, name=meta.name, node=decision.node))
    return started, True


def _queue_order(pod: Pod) -> tuple[int, str, int]:
    return -(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", int(pod.metadata.resource_version or 0)
