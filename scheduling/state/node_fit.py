"""Node fit: which nodes a pod may run on as far as everything but new devices goes, and which it would rather. PURE.

`needs_of` reads a pod once; `check` asks one node the questions of kube-scheduler's Filter plugins, in their order, and
stops at the first plugin that refuses, as it does. What depends on the pods of other nodes, too, is asked by
`scheduling.state.neighbours`. Amounts are nanos of a unit (`Quantity.nanos`).
Sources: pkg/scheduler/framework/plugins/{nodename,nodeunschedulable,tainttoleration,nodeaffinity,noderesources},
component-helpers/resource/helpers.go (v1.36).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from claims.causes.causes import NodeRefusal
from claims.kinds.pods import NodeAffinity, Pod, Toleration, tolerates
from claims.kinds.resource_claims import ResourceClaim
from claims.kinds.resource_usage import Amounts, node_requests_of, requests_of
from inventory.kinds.devices import HARD_EFFECTS
from inventory.kinds.nodes import Node, Taint
from manciple.wire.quantity import Quantity
from manciple.wire.selectors import ParsedNodeTerm, node_selector_matches, parsed_node_terms
from scheduling.queue.reasons import Reason

#: What a cordoned node is tainted with; a pod that tolerates it may be placed there.
UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
#: What a node counts as tainted with until it has reported for the first time. (Upstream's admission taints every new
#: node so.)
UNHEARD_TAINT = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
#: The effects that only make a node less welcome.
SOFT_EFFECTS = ("PreferNoSchedule",)


#: Which of the queue's reasons a filter's refusal is.
REASON_OF_PLUGIN = {
    "NodeResourcesFit": Reason.RESOURCES,
    "DynamicResources": Reason.CLAIM_ELSEWHERE,
    "NodePorts": Reason.NEIGHBOURS,
    "PodTopologySpread": Reason.NEIGHBOURS,
    "InterPodAffinity": Reason.NEIGHBOURS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNeeds:
    """What a pod asks of a node."""

    node_name: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    #: required node affinity; None where there is none
    affinity: tuple[ParsedNodeTerm, ...] | None = None
    #: (term, weight) of preferred node affinity
    preferences: tuple[tuple[ParsedNodeTerm, int], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    requests: Amounts = field(default_factory=dict)
    #: of the requests, those that devices serve on nodes that advertise nothing of the resource (KEP-5004)
    by_devices: frozenset[str] = frozenset()


#: The resource of a node that each pod takes one of.
PODS = "pods"


def needs_of(pod: Pod, classes: Container[str] = (), requests: Amounts | None = None) -> PodNeeds:
    """Read a pod once, for all nodes. classes: the extended resources that DeviceClasses serve.

    requests: of the pod, where they are known.
    """
    spec = pod.spec
    affinity = (spec.affinity.node_affinity if spec.affinity else None) or NodeAffinity()
    required = affinity.required_during_scheduling_ignored_during_execution
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    requests = node_requests_of(pod) if requests is None else requests
    return PodNeeds(
        node_name=spec.node_name,
        node_selector=spec.node_selector,
        affinity=None if required is None else parsed_node_terms(required),
        preferences=tuple((ParsedNodeTerm.of(one.preference), one.weight) for one in preferred),
        tolerations=spec.tolerations,
        requests=requests,
        by_devices=frozenset(name for name in requests if name in classes),
    )


def extended_names(pod: Pod) -> Iterator[str]:
    """The extended resources that the pod asks for: a DeviceClass may serve them, or come to serve them."""
    return (name for name in requests_of(pod) if "/" in name)


def check(
    needs: PodNeeds, node: Node, *, used: Amounts, pods: int, claims: Sequence[ResourceClaim] = ()
) -> tuple[NodeRefusal, ...]:
    """Why the pod may not run on `node`; empty when it may.

    used: the requests of the pods on the node, `pods` their number. claims: those of the pod's claims that are
    allocated already.
    """
    for refusals in (
        _unschedulable(needs, node),
        _node_name(needs, node),
        _taints(needs, node),
        _affinity(needs, node),
        _resources(needs, node, used=used, pods=pods),
        _allocated_claims(node, claims),
    ):
        found = tuple(refusals)
        if found:
            return found
    return ()


def preference(needs: PodNeeds, node: Node) -> tuple[int, int]:
    """Higher is better: (untolerated soft taints, negated; weights of the preferred affinity terms that match)."""
    labels = node.metadata.labels
    weight = sum(weight for term, weight in needs.preferences if term.matches(node.metadata.name, labels))
    return -len(_untolerated(node.spec.taints, needs.tolerations, SOFT_EFFECTS)), weight


# The plugins ---------------------------------------------------------------------------------------------------------


def _unschedulable(needs: PodNeeds, node: Node) -> Iterator[NodeRefusal]:
    if node.spec.unschedulable and not _tolerated(UNSCHEDULABLE_TAINT, needs.tolerations):
        yield NodeRefusal("NodeUnschedulable")


def _node_name(needs: PodNeeds, node: Node) -> Iterator[NodeRefusal]:
    if needs.node_name and needs.node_name != node.metadata.name:
        yield NodeRefusal("NodeName")


def _taints(needs: PodNeeds, node: Node) -> Iterator[NodeRefusal]:
    """Names the first taint, as upstream does. A node that is not ready carries one."""
    for taint in _untolerated(node.spec.taints, needs.tolerations, HARD_EFFECTS)[:1]:
        yield NodeRefusal("TaintToleration", taint.key, taint.value)


def _affinity(needs: PodNeeds, node: Node) -> Iterator[NodeRefusal]:
    if not is_selected(needs, node):
        yield NodeRefusal("NodeAffinity")


def is_selected(needs: PodNeeds, node: Node) -> bool:
    """Whether the pod's node selector and required node affinity choose `node`."""
    labels = node.metadata.labels
    if not all(labels.get(key) == value for key, value in needs.node_selector.items()):
        return False
    return needs.affinity is None or any(term.matches(node.metadata.name, labels) for term in needs.affinity)


def _resources(needs: PodNeeds, node: Node, *, used: Amounts, pods: int) -> Iterator[NodeRefusal]:
    """A resource that the node does not name counts as none of it; the number of pods only where it is named."""
    for resource, _ in shortages(needs, node, used=used, pods=pods):
        hopeless = resource != PODS and needs.requests[resource] > _nanos(node.status.allocatable, resource)
        yield NodeRefusal("NodeResourcesFit", resource, resolvable=not hopeless)


def shortages(needs: PodNeeds, node: Node, *, used: Amounts, pods: int) -> Iterator[tuple[str, int]]:
    """(resource, nanos of it that are too little on the node)."""
    allocatable = node.status.allocatable
    if PODS in allocatable and (short := (pods + 1) * 10**9 - _nanos(allocatable, PODS)) > 0:
        yield PODS, short
    for resource, wanted in needs.requests.items():
        if resource in needs.by_devices and not _nanos(allocatable, resource):
            continue
        if (short := wanted - _nanos(allocatable, resource) + used.get(resource, 0)) > 0:
            yield resource, short


def _allocated_claims(node: Node, claims: Sequence[ResourceClaim]) -> Iterator[NodeRefusal]:
    for claim in claims:
        allocation = claim.status.allocation
        selector = allocation.node_selector if allocation else None
        if selector is not None and not node_selector_matches(selector, node.metadata.name, node.metadata.labels):
            yield NodeRefusal("DynamicResources")
            return


# Taints --------------------------------------------------------------------------------------------------------------


def is_tolerated(needs: PodNeeds, node: Node) -> bool:
    """Whether no taint of `node` keeps the pod off; a cordon counts as one."""
    taints = (*node.spec.taints, UNSCHEDULABLE_TAINT) if node.spec.unschedulable else node.spec.taints
    return not _untolerated(taints, needs.tolerations, HARD_EFFECTS)


def _untolerated(
    taints: Iterable[Taint], tolerations: Sequence[Toleration], effects: Collection[str]
) -> tuple[Taint, ...]:
    return tuple(taint for taint in taints if taint.effect in effects and not _tolerated(taint, tolerations))


def _tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def _nanos(amounts: Mapping[str, str], resource: str) -> int:
    text = amounts.get(resource)
    return Quantity.parse(text).nanos if text is not None else 0
