"""Which of the nodes that have the devices gets a pod: the policy, as a score for the allocator, and why in a sentence.

The cluster's setting (`MANCIPLE_PLACEMENT`) says which policy it is, unless the claim says so itself, or the class that
it asks for: by the annotation `manciple.dev/placement-policy`. What the pod would rather (preferred affinity, soft
taints) comes before that, whichever it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nlargest

from django.conf import settings

from claims.kinds.pod_resources import node_requests_of
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from claims.pod_claims import claim_names, requested_classes
from manciple.api import first_stage
from manciple.store import hooks
from manciple.store.hooks import Write
from manciple.wire.resources import CLAIMS, CLASSES, TEMPLATES, Key
from scheduling.allocator import (
    Demand,
    DemandMix,
    Fragmentation,
    FreeCapacity,
    NodeChoice,
    NodeView,
    Score,
    best_fitting,
    capacity_by_class,
    first_named,
    least_stranding,
    most_packed,
    most_spread,
)
from scheduling.placement.demands import declared_demands
from scheduling.state.cluster import ClusterState
from scheduling.state.nodes import needs_of

#: On a ResourceClaim (by its template, too) or a DeviceClass.
POLICY_ANNOTATION = "manciple.dev/placement-policy"
FRAGMENTATION = "fragmentation"
#: Of the pods with a place and of those that wait, so many tell what is usually asked for; of those that wait in one
#: namespace, so many: nothing but a quota keeps a tenant from creating pods that never get a place.
ASKED, ASKED_OF_NAMESPACE = 2000, 500

#: policy -> (the score among nodes, what is said of the node that is chosen)
SCORES: Mapping[str, tuple[Score, str]] = {
    "first-fit": (first_named, "the first by name"),
    "pack": (most_packed, "the most packed"),
    "spread": (most_spread, "the emptiest"),
    "best-fit": (best_fitting, "the most packed among those with the smallest sufficient devices"),
}
POLICIES = (*SCORES, FRAGMENTATION)


def policy_of(state: ClusterState, wanting: Sequence[ResourceClaim]) -> str:
    """The first claim that says so decides, then the first class. What names no policy says nothing."""
    return next((name for name in _annotated(state, wanting) if name in POLICIES), settings.SCHEDULER_PLACEMENT)


def _annotated(state: ClusterState, wanting: Sequence[ResourceClaim]) -> Iterator[str]:
    for claim in wanting:
        yield claim.metadata.annotations.get(POLICY_ANNOTATION, "")
    classes = state.snapshot().classes
    for claim in wanting:
        for _, name in requested_classes(claim):
            if (known := classes.get(name)) is not None:
                yield known.metadata.annotations.get(POLICY_ANNOTATION, "")


def register() -> None:
    first_stage.register_check(warn_of_unknown, resources={CLAIMS, TEMPLATES, CLASSES})


def warn_of_unknown(write: Write) -> None:
    """A check: warns of an annotation that names no policy, and of one of a template that is not for its claims."""
    if write.operation == "DELETE" or write.subresource:
        return
    annotated = {"metadata": write.new.metadata}
    if write.kind.resource == TEMPLATES:
        annotated["spec.metadata"] = write.new.spec.metadata
    for where, metadata in annotated.items():
        name, field = metadata.annotations.get(POLICY_ANNOTATION), f"{where}.annotations[{POLICY_ANNOTATION}]"
        if name is None:
            continue
        if write.kind.resource == TEMPLATES and where == "metadata":
            hooks.warn(f"{field}: ignored; what is for the claims belongs in spec.metadata.annotations")
        elif name not in POLICIES:
            hooks.warn(f'{field}: "{name}" is not a placement policy and is ignored; there are {", ".join(POLICIES)}')


def score_of(state: ClusterState, pod: Pod, wanting: Sequence[ResourceClaim]) -> Score:
    """By the policy; what the pod would rather comes before that."""
    name, preference = policy_of(state, wanting), state.nodes.preference(pod)
    if name == FRAGMENTATION:
        return _fragmentation(state, pod)
    strategy, _ = SCORES[name]
    if preference is None:
        return strategy
    return lambda fit: preference(fit.node.name) * 10**12 - fit.level * 10**8 + strategy(fit)


def _fragmentation(state: ClusterState, pod: Pod) -> Fragmentation:
    nodes = state.nodes
    needs = needs_of(nodes.requests_of(pod))
    return Fragmentation(mix=_mix(state), room=nodes, needs=needs, preference=nodes.preference(pod))


def _mix(state: ClusterState) -> DemandMix:
    declared = settings.SCHEDULER_DEMANDS
    return declared_demands(declared) if declared else state.usual.mix(partial(_demands, state))


def free_by_class(state: ClusterState) -> Mapping[str, FreeCapacity]:
    """What is free of each class, and how much of that can serve none of the usual requests, as far as is expected."""
    return capacity_by_class(state.snapshot(), state.nodes.views, Fragmentation(mix=_mix(state), room=state.nodes))


def _demands(state: ClusterState) -> Iterator[Demand]:
    """Of the latest pods with a place, and of the latest that wait, as far as they are moderate."""
    for one in state.residents.latest(ASKED):
        demand = Demand(claims=_known(state, one.claims), needs=state.nodes.taken_by(one.uid))
        if demand.is_moderate:
            yield demand
    waiting: Counter[str] = Counter()
    for pod in nlargest(ASKED, state.pending.values(), key=_arrival):
        namespace = pod.metadata.namespace
        waiting[namespace] += 1
        names = [(namespace, name) for name in claim_names(pod)]
        demand = Demand(claims=_known(state, names), needs=needs_of(node_requests_of(pod)))
        if waiting[namespace] <= ASKED_OF_NAMESPACE and demand.is_moderate:
            yield demand


def _arrival(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.uid


def _known(state: ClusterState, keys: Iterable[Key]) -> tuple[ResourceClaim, ...]:
    return tuple(claim for key in keys if (claim := state.claim(*key)) is not None)


def quietest(state: ClusterState, pod: Pod, fitting: Sequence[NodeView]) -> str:
    """Without new devices to place: the node it is nominated for; else what it would rather; then, where the policy is
    `fragmentation`, where it strands the least; then the node with the fewest pods, first by name.
    """
    if any(node.name == pod.status.nominated_node_name for node in fitting):
        return pod.status.nominated_node_name
    nodes, preference = state.nodes, state.nodes.preference(pod)
    if preference is not None:
        best = max(preference(node.name) for node in fitting)
        fitting = [node for node in fitting if preference(node.name) == best]
    if settings.SCHEDULER_PLACEMENT == FRAGMENTATION and any(needs_of(nodes.requests_of(pod))):
        fitting = least_stranding(state.snapshot(), fitting, _fragmentation(state, pod))
    return min(fitting, key=lambda node: (nodes.pods_on(node.name), node.name)).name


def why(policy: str, choice: NodeChoice | None, results: Sequence[AllocationResult]) -> str:
    """Why a node was chosen, and what it gives, in one line; "" where there was no choice. results: of the claims."""
    if choice is None:
        return ""
    free = f"{choice.free} free device{'' if choice.free == 1 else 's'}"
    if choice.nodes == 1:
        return f"{policy}: the only node with enough free devices, {free}"
    nodes = f"of {choice.nodes} nodes with enough free devices"
    if choice.prefers:
        nodes += ", among those that the pod prefers,"
    if choice.stranded is None:
        said = SCORES[policy][1] if policy in SCORES else SCORES["pack"][1]
        return f"{policy}: {said} {nodes.removesuffix(',')}, {free}"
    given = [one.device for result in results for one in result.devices.results]
    device = f", by {given[0]}" if len(given) == 1 and choice.free > 1 else ""
    return (
        f"{policy}: {nodes} the pod strands the least here{device}: "
        f"{_devices(choice.stranded)}{_next_best(choice)}; {free}"
    )


def _next_best(choice: NodeChoice) -> str:
    if choice.next_best is None or choice.stranded is None:
        return ""
    name, stranded = choice.next_best
    if abs(stranded - choice.stranded) < ALIKE:
        return f" (as on {name}, which is less packed)"
    return f" (on {name}, the next best, {_devices(stranded)})"


#: Parts of a device that are told apart.
ALIKE = 0.005


def _devices(amount: float) -> str:
    """`0.31 devices more than before`."""
    if abs(amount) < ALIKE:
        return "no more than before"
    return f"{abs(amount):.2f} devices {'more' if amount > 0 else 'less'} than before"
