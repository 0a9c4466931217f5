"""A plan of moves as a value, and which pods are never moved (`scheduling.rehearsal.moves` looks for plans)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from claims.pod_claims import has_group, is_done, references
from scheduling.claims.readiness import may_be_negotiated
from scheduling.rehearsal.departures import StartedPod
from scheduling.state.residents import Resident, cost_of

#: The annotation by which a pod keeps its node, or does not. Source: cluster-autoscaler, simulator/drainability.
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One pod that is evicted; the one that is created in its place would be on `target`, with `devices`.

    budget: the disruption budget that counts it, and how many that lets go now; None where none does.
    """

    pod: Pod
    target: str
    devices: tuple[str, ...] = ()
    budget: tuple[str, int] | None = None

    @property
    def source(self) -> str:
        return self.pod.spec.node_name

    @property
    def owner(self) -> str:
        """`ReplicaSet web`: who creates it again."""
        return next((f"{one.kind} {one.name}" for one in self.pod.metadata.owner_references if one.controller), "")


#: (moves, highest priority, sum of the priorities, devices, when the earliest of the most important started, negated)
MoveCost = tuple[int, int, int, int, float]


def cost_of_moves(pods: Sequence[Resident], devices: int) -> MoveCost:
    highest, total, number, started = cost_of(pods)
    return number, highest, total, devices, started


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """What moves, and what starts then: `subject` (of a gang, all of it), for which it is made, and `others`."""

    subject: tuple[StartedPod, ...]
    moves: tuple[Move, ...]
    others: tuple[StartedPod, ...] = ()
    gang: str = ""

    @property
    def cost(self) -> MoveCost:
        """Less is better."""
        devices = sum(len(one.devices) for one in self.moves)
        return cost_of_moves([Resident.of(one.pod, one.source) for one in self.moves], devices)

    @property
    def victims(self) -> frozenset[str]:
        """The uids of the pods that move."""
        return frozenset(one.pod.metadata.uid for one in self.moves)


def why_it_stays(pod: Pod, claims: Iterable[ResourceClaim | None]) -> str:
    """Why a pod with a place is never moved; "" for one that may be. claims: those that it uses, None for unknown."""
    meta, known = pod.metadata, list(claims)
    owner = next((one.kind for one in meta.owner_references if one.controller), "")
    running = bool(pod.spec.node_name) and not is_done(pod) and meta.deletion_timestamp is None
    shared = any(one is None or any(user.uid != meta.uid for user in one.status.reserved_for) for one in known)
    reasons = (
        (not running, "it is not running"),
        (not owner, "nothing would create it again: no controller owns it"),
        (owner in ("DaemonSet", "Node"), f"a {owner} keeps it on its node"),
        (meta.annotations.get(SAFE_TO_EVICT) == "false", f"its annotation {SAFE_TO_EVICT} says so"),
        (has_group(pod), "its gang would lose it"),
        # Whoever comes in its place may share the claim before it is released, and be kept where it is.
        (any(one.claim and not one.generated for one in references(pod)), "it names a claim that keeps its devices"),
        (shared, "others use its claims"),
        (may_be_negotiated(pod, [one for one in known if one]), "a driver decides where its claims may be"),
    )
    return next((why for holds, why in reasons if holds), "")
