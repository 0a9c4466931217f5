"""Rehearses on a copy of the cluster state: replicas are placed by the code that schedules, nodes come, holders leave.

Nothing is written. Imagined objects are laid over a copy of the state, which is dropped when the rehearsal ends
(`explanations.apart`).

A new node is cloned from an existing one (`like`): it has the labels, taints and amounts of its model and the devices
that only the model has. Faults of the model (a cordon, taints of its condition, taints of its devices) are not copied.
Devices that several nodes reach exist already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from msgspec import structs

from claims.causes.causes import NodeRefusal
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.nodes import Node, NodeCondition
from manciple.wire.resources import CLAIMS, NODES, SLICES
from scheduling.claims.readiness import PodRequest, request_of
from scheduling.queue.reasons import Hold
from scheduling.queue.verdicts import Placement, Wait
from scheduling.rehearsal.decisions import rehearse
from scheduling.rehearsal.explanations import Apart
from scheduling.rehearsal.workload import IMAGINED, Workload, replica
from scheduling.state.cluster import Overlay


@dataclass(frozen=True, slots=True, kw_only=True)
class NextReplica:
    """One more replica, as the scheduler would see it. hold: why it cannot be tried. refused: nodes that refuse it."""

    request: PodRequest
    hold: Hold | None = None
    refused: Mapping[str, tuple[NodeRefusal, ...]] = field(default_factory=dict)

    @property
    def wanting(self) -> tuple[ResourceClaim, ...]:
        """The claims that need devices on a node that advertises none of its extended resources itself."""
        return self.request.wanting_on({})


class Rehearsal:
    """Replicas of one workload on a state."""

    def __init__(self, apart: Apart, workload: Workload) -> None:
        self.state, self.overlay = apart.state, apart.state.overlay
        #: called before each step, so that explanations don't wait for the end of the rehearsal
        self.give_way = apart.give_way
        self.workload = workload
        self._tried = 0

    def share(self, stored: Callable[[ResourceClaim], ResourceClaim | None]) -> None:
        """Lay the claims that all replicas share over the state. stored: returns the one that exists."""
        for claim in self.workload.shared.values():
            there = stored(claim)
            if there != claim:
                self.overlay.imagine(CLAIMS, claim, instead_of=there)

    def place_next(self, *, briefly: bool = False) -> Placement | Wait:
        """Try one more replica. A placement is kept; what was refused is not. briefly: as for `decide`."""
        self.give_way()
        mark, (pod, claims) = self.overlay.mark(), self._next()
        for claim in claims:
            self.overlay.imagine(CLAIMS, claim)
        verdict = rehearse(self.state, pod, briefly=briefly)
        if not isinstance(verdict, Placement):
            self.overlay.undo(mark)
            self._tried -= 1
        return verdict

    def bring(self, number: int) -> list[Pod]:
        """Add so many replicas, untried; their claims exist."""
        replicas = []
        for _ in range(number):
            pod, claims = self._next()
            for claim in claims:
                self.overlay.imagine(CLAIMS, claim)
            replicas.append(pod)
        return replicas

    def decide_one(self, pod: Pod) -> Placement | Wait:
        """A placement is assumed on the state; nothing else is done about it here."""
        self.give_way()
        return rehearse(self.state, pod)

    @contextmanager
    def next_replica(self) -> Iterator[NextReplica]:
        """The next replica, untried; its claims exist within the context."""
        pod, claims = self._next()
        self._tried -= 1
        with self.overlay.undone(), self.overlay.trying(pod):
            for claim in claims:
                self.overlay.imagine(CLAIMS, claim)
            yield self._read(pod)

    def _read(self, pod: Pod) -> NextReplica:
        request = request_of(self.state, pod)
        if isinstance(request, Hold):
            return NextReplica(request=PodRequest(pod=pod), hold=request)
        if (hold := self.state.undecided(pod, request.claims)) is not None:
            return NextReplica(request=request, hold=hold)
        filtered = self.state.restricted(pod, request.claims, self.state.nodes.filter(pod, request.held))
        if isinstance(filtered, Hold):
            return NextReplica(request=request, hold=filtered)
        return NextReplica(request=request, refused=filtered.refused)

    def _next(self) -> tuple[Pod, tuple[ResourceClaim, ...]]:
        self._tried += 1
        return replica(self.workload, self._tried)


# Nodes like an existing one ------------------------------------------------------------------------------------------


HOSTNAME_LABEL = "kubernetes.io/hostname"
#: What the node controllers taint a node with for its condition.
CONDITION_TAINTS = "node.kubernetes.io/"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode:
    """A node that is only imagined, and what it publishes."""

    node: Node
    slices: tuple[ResourceSlice, ...]

    @property
    def name(self) -> str:
        return self.node.metadata.name

    def imagine(self, overlay: Overlay) -> None:
        overlay.imagine(NODES, self.node)
        for published in self.slices:
            overlay.imagine(SLICES, published)


def like(model: Node, slices: Sequence[ResourceSlice], number: int, called: str = "") -> NewNode:
    """Number `number` (from 1) of the nodes like `model`. slices: whatever is published for it.

    called: what stands before the number in its name, where that is not the model's.
    """
    name = f"{called or model.metadata.name}{IMAGINED}{number}"
    labels = dict(model.metadata.labels)
    if HOSTNAME_LABEL in labels:
        labels[HOSTNAME_LABEL] = name
    taints = tuple(taint for taint in model.spec.taints if not taint.key.startswith(CONDITION_TAINTS))
    node = structs.replace(
        model,
        metadata=structs.replace(model.metadata, name=name, uid=name, labels=labels),
        spec=structs.replace(model.spec, taints=taints, unschedulable=False),
        status=structs.replace(model.status, conditions=(NodeCondition(type="Ready", status="True"),)),
    )
    return NewNode(node=node, slices=tuple(_copied(own, name) for own in _its_own(model, slices)))


def _its_own(model: Node, slices: Sequence[ResourceSlice]) -> Iterable[ResourceSlice]:
    """The slices of the newest generation of pools that belong to this node alone."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for published in slices:
        if published.spec.node_name == model.metadata.name:
            pools.setdefault((published.spec.driver, published.spec.pool.name), []).append(published)
    for published_slices in pools.values():
        newest = max(one.spec.pool.generation for one in published_slices)
        yield from (one for one in published_slices if one.spec.pool.generation == newest)


def _copied(published: ResourceSlice, name: str) -> ResourceSlice:
    spec = published.spec
    slice_name = f"{published.metadata.name}{IMAGINED}{name}"
    return structs.replace(
        published,
        metadata=structs.replace(published.metadata, name=slice_name, uid=slice_name, owner_references=()),
        spec=structs.replace(
            spec,
            node_name=name,
            pool=structs.replace(spec.pool, name=f"{spec.pool.name}{IMAGINED}{name}"),
            devices=tuple(structs.replace(device, taints=()) for device in spec.devices),
        ),
    )
