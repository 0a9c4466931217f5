"""Where a pod goes that asks for extended resources: to a node that advertises them, or to one that has the devices.

Nodes that serve the pod by the same claim are one group, nearly always the only one. Each group is searched by the
allocator; the best of what was found wins by the cluster's score, in which the free devices of a node count, or what is
free of what it advertises. (kube-scheduler scores the two alike: noderesources/resource_allocation.go of 1.36.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from claims.causes.causes import NodeRefusal
from claims.causes.shortage_clauses import EXTENDED_RESOURCES
from claims.kinds.resource_claims import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from manciple.wire.base import ObjectMeta
from scheduling import allocator
from scheduling.allocator import Allocated, AllocationFailed, Deadline, Fit, NodeChoice, NodePlacement, NodeView, Score
from scheduling.claims.extended_resources import Extended
from scheduling.cycle.requests import PodRequest
from scheduling.state.cluster import ClusterState
from scheduling.state.nodes import NOT_HERE, FilterResult


def filtered(state: ClusterState, extended: Extended, found: FilterResult) -> FilterResult:
    """`found` without the nodes where the claim that the pod has for its extended resources does not serve it."""
    if not extended.held:
        return found
    fitting = [view for view in found.fitting if extended.is_usable_on(state.nodes.allocatable(view.name))]
    if len(fitting) == len(found.fitting):
        return found
    staying = {view.name for view in fitting}
    away: dict[str, tuple[NodeRefusal, ...]] = {
        view.name: (NOT_HERE,) for view in found.fitting if view.name not in staying
    }
    elsewhere = {claim.metadata.uid: claim for claim in (*found.elsewhere, *extended.held)}
    return replace(
        found, fitting=tuple(fitting), refused={**found.refused, **away}, elsewhere=tuple(elsewhere.values())
    )


def place(
    state: ClusterState, request: PodRequest, nodes: Sequence[NodeView], *, score: Score, deadline: Deadline
) -> NodePlacement:
    """As `allocator.place`, with the claim of each node. Where one group of nodes errs, another may serve the pod."""
    found = [
        _on_group(state, request, group, score=score, deadline=deadline) for group in _groups(state, request, nodes)
    ]
    if len(found) == 1:
        return found[0]
    placed = [one for one in found if isinstance(one.outcome, Allocated) and one.node is not None]
    if placed:
        return max(placed, key=lambda one: _worth(one, score))
    failed = [one for one in found if isinstance(one.outcome, AllocationFailed)]
    if failed:
        return failed[0]
    refusals = {name: refusal for one in found for name, refusal in one.refusals.items()}
    largest = max(found, key=lambda one: len(one.refusals))
    return NodePlacement(node=None, outcome=largest.outcome, refusals=refusals)


def _groups(state: ClusterState, request: PodRequest, nodes: Sequence[NodeView]) -> Iterable[Sequence[NodeView]]:
    """The nodes, by what devices have to serve there."""
    extended = request.extended
    if extended is None or not state.nodes.advertise(extended.classes):
        return (nodes,)
    groups: dict[frozenset[str], list[NodeView]] = {}
    for node in nodes:
        groups.setdefault(extended.from_devices(state.nodes.allocatable(node.name)), []).append(node)
    return [tuple(group) for group in groups.values()]


def _on_group(
    state: ClusterState, request: PodRequest, group: Sequence[NodeView], *, score: Score, deadline: Deadline
) -> NodePlacement:
    wanting = request.wanting_on(state.nodes.allocatable(group[0].name))
    if wanting:
        return allocator.place(state.snapshot(), wanting, group, score=score, deadline=deadline)
    fits = [Fit(node=node, free=_left(state, request, node)) for node in group]
    best = min(fits, key=lambda fit: (-score(fit), fit.node.name))
    choice = NodeChoice(best.free, len(fits))
    return NodePlacement(node=best.node, outcome=Allocated(results=(), trials=0), choice=choice)


def _left(state: ClusterState, request: PodRequest, node: NodeView) -> int:
    """How many devices of its plugins the node has left for what the pod asks for."""
    names = request.extended.classes if request.extended is not None else ()
    return sum(state.nodes.left_of(node.name, name) for name in names) // 10**9


#: Nodes that serve a resource twice of which one sweep tells.
MOST_TOLD = 16
#: (node, resource, class)
ServedTwice = tuple[str, str, str]


def served_twice(state: ClusterState, known: Collection[ServedTwice]) -> Iterator[ServedTwice]:
    """The nodes that advertise a resource themselves and have devices of the class that serves it too, without `known`.

    KEP-5004 has it that a node does one or the other. Here as in Kubernetes the node's own amount is used then, so the
    devices lie idle, and somebody has to be told.
    """
    resources = sorted(state.serving.by_resource.items()) if state.nodes.advertise(state.serving.by_resource) else ()
    for resource, device_class in resources:
        told = {node for node, name, _ in known if name == resource}
        names = sorted(state.nodes.advertising(resource) - told)
        views = {name: view for name in names if (view := state.nodes.view(name)) is not None}
        while views and (node := _with_devices(state, device_class, tuple(views.values()))):
            del views[node]
            yield node, resource, device_class


def still_served_twice(state: ClusterState, known: ServedTwice) -> bool:
    """Whether what was found may still be so: the node advertises the resource, the class serves it."""
    node, resource, device_class = known
    return state.serving.by_resource.get(resource) == device_class and node in state.nodes.advertising(resource)


def _with_devices(state: ClusterState, device_class: str, views: Sequence[NodeView]) -> str:
    """One of the nodes that has a device of the class, whoever holds it; "" where none has."""
    exactly = ExactDeviceRequest(
        device_class_name=device_class, allocation_mode="ExactCount", count=1, admin_access=True
    )
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=(DeviceRequest(name="any", exactly=exactly),)))
    claim = ResourceClaim(metadata=ObjectMeta(name=EXTENDED_RESOURCES, uid=EXTENDED_RESOURCES), spec=spec)
    found = allocator.place(state.snapshot(), [claim], views)
    return found.node.name if found.node is not None and isinstance(found.outcome, Allocated) else ""


def _worth(placed: NodePlacement, score: Score) -> float:
    if placed.node is None:
        return float("-inf")
    return score(Fit(node=placed.node, free=placed.choice.free if placed.choice is not None else 0))
