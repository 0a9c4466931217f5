"""Which placement policy a pod gets, and what a placement policy is.

A `PlacementPolicy` orders the nodes that have the devices for a pod (as a `Score`, which the allocator asks for) and
says why it chose one. Its declaration is all that it needs: one file, which nothing imports.

    # cheapest.py; MANCIPLE_PLACEMENT=cheapest.POLICY
    POLICY = ScoredPolicy(NodeScore(lambda fit: -float(fit.node.labels.get("price", 0))), "the cheapest")

The policies that Manciple brings have short names, which only `manciple.declared_settings.PLACEMENT_POLICIES` lists;
any other policy is named by its dotted path. A policy is imported when it is first used.

`MANCIPLE_PLACEMENT` names the cluster's policy. A claim or class chooses another one with the annotation
`manciple.dev/placement-policy`. The pod's own preferences (preferred affinity, soft taints) come first under every
policy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from claims.pod_claims import requested_classes
from manciple.declared_settings import PLACEMENT_POLICIES
from manciple.store import hooks, records
from manciple.store.hooks import Write
from manciple.wire.resources import CLAIMS, CLASSES, TEMPLATES
from scheduling.allocator import (
    NodeChoice,
    NodeScore,
    NodeView,
    Score,
    best_fitting,
    first_named,
    most_packed,
    most_spread,
)
from scheduling.placement.demands import FreeCapacity
from scheduling.state.cluster import ClusterState

#: On a ResourceClaim (by its template, too) or a DeviceClass.
POLICY_ANNOTATION = "manciple.dev/placement-policy"


class PlacementPolicy(ABC):
    """Which of the nodes that could take a pod gets it."""

    @abstractmethod
    def score(self, state: ClusterState, pod: Pod) -> Score:
        """How the allocator orders the nodes for the pod. The pod's own preferences come first."""

    @abstractmethod
    def reason(self, choice: NodeChoice, results: Sequence[AllocationResult]) -> str:
        """Why the node was chosen among several, for the Scheduled event. results: of each claim, what it gives."""

    def narrowed(self, state: ClusterState, pod: Pod, nodes: Sequence[NodeView]) -> Sequence[NodeView]:  # noqa: ARG002
        """Of the nodes that fit a pod without new devices, those that are best for it; by default they are equal."""
        return nodes

    def learn(self, state: ClusterState) -> None:  # noqa: B027 - most have nothing to learn
        """Find out what every copy of the state would have to find out again; called before one is made."""

    def free_by_class(self, state: ClusterState) -> Mapping[str, FreeCapacity]:  # noqa: ARG002
        """What is free of each class; empty if the policy does not measure how much of that will be stranded."""
        return {}


@dataclass(frozen=True, slots=True)
class ScoredPolicy(PlacementPolicy):
    """A policy that is a score, the same for every pod."""

    by: Score
    #: the node that it chooses: "the most packed"
    description: str

    def score(self, state: ClusterState, pod: Pod) -> Score:
        preference = state.nodes.preference(pod)
        if preference is None:
            return self.by
        return NodeScore(
            lambda fit: preference(fit.node.name) * 10**12 - fit.level * 10**8 + self.by(fit), prefers=True
        )

    def reason(self, choice: NodeChoice, results: Sequence[AllocationResult]) -> str:  # noqa: ARG002
        return f"{self.description} {among(choice).removesuffix(',')}, {free_devices(choice)}"


FIRST_FIT = ScoredPolicy(first_named, "the first by name")
PACK = ScoredPolicy(most_packed, "the most packed")
SPREAD = ScoredPolicy(most_spread, "the emptiest")
BEST_FIT = ScoredPolicy(best_fitting, "the most packed among those with the smallest sufficient devices")


@cache
def named(name: str) -> PlacementPolicy:
    """The policy of that name. Raises: ImproperlyConfigured if there is none."""
    path = PLACEMENT_POLICIES.get(name, name)
    try:
        policy = import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(f"placement policy {name}: {error}") from error
    if not isinstance(policy, PlacementPolicy):
        raise ImproperlyConfigured(f"placement policy {name}: {path} is not a PlacementPolicy")
    return policy


def _is_known(name: str) -> bool:
    """Whether an annotation may name it: anything else must not be imported on a user's word."""
    return name in PLACEMENT_POLICIES or name == settings.SCHEDULER_PLACEMENT


def policy_of(state: ClusterState, claims: Sequence[ResourceClaim]) -> str:
    """The name of the policy for these claims: of the first claim that names one, of the first class, the cluster's."""

    def annotations() -> Iterator[Mapping[str, str]]:
        yield from (claim.metadata.annotations for claim in claims)
        classes = state.snapshot().classes
        for claim in claims:
            for _, name in requested_classes(claim):
                if name in classes:
                    yield classes[name].metadata.annotations

    names = (one.get(POLICY_ANNOTATION, "") for one in annotations())
    return next(filter(_is_known, names), settings.SCHEDULER_PLACEMENT)


def score_of(state: ClusterState, pod: Pod, claims: Sequence[ResourceClaim]) -> Score:
    return named(policy_of(state, claims)).score(state, pod)


def quietest(state: ClusterState, pod: Pod, fitting: Sequence[NodeView]) -> str:
    """The node for a pod without new devices: the one that it is nominated for; otherwise, of those that the pod
    prefers, of those that the cluster's policy prefers, the one with the fewest pods, the first by name.
    """
    nominated = pod.status.nominated_node_name
    if nominated and any(node.name == nominated for node in fitting):
        return nominated
    nodes, preference = state.nodes, state.nodes.preference(pod)
    if preference is not None:
        best = max(preference(node.name) for node in fitting)
        fitting = [node for node in fitting if preference(node.name) == best]
    fitting = named(settings.SCHEDULER_PLACEMENT).narrowed(state, pod, fitting)
    return min(fitting, key=lambda node: (nodes.pods_on(node.name), node.name)).name


def learn(state: ClusterState) -> None:
    """For the cluster's policy."""
    named(settings.SCHEDULER_PLACEMENT).learn(state)


def free_by_class(state: ClusterState) -> Mapping[str, FreeCapacity]:
    """What is free of each class, and how much of that is expected to be stranded. `fragmentation` measures it (and is
    imported for that), whatever policy places the pods.
    """
    return named("fragmentation").free_by_class(state)


def why(name: str, choice: NodeChoice | None, results: Sequence[AllocationResult]) -> str:
    """Why the policy chose a node, in one line; "" where there was no choice. results: what each claim gets."""
    if choice is None:
        return ""
    if choice.nodes == 1:
        return f"{name}: the only node with enough free devices, {free_devices(choice)}"
    return f"{name}: {named(name).reason(choice, results)}"


def free_devices(choice: NodeChoice) -> str:
    """`3 free devices`"""
    return f"{choice.free} free device{'' if choice.free == 1 else 's'}"


def among(choice: NodeChoice) -> str:
    """`of 7 nodes with enough free devices`; what follows a comma at its end is about the node that was chosen."""
    nodes = f"of {choice.nodes} nodes with enough free devices"
    return f"{nodes}, among those that the pod prefers," if choice.prefers else nodes


def register() -> None:
    """Refuse to start with a policy that cannot be used; warn users of annotations that name none."""
    named(settings.SCHEDULER_PLACEMENT)
    hooks.register_check(warn_of_unknown, resources={CLAIMS, TEMPLATES, CLASSES})


def warn_of_unknown(write: Write) -> None:
    """Warn of an annotation that has no effect: it names no policy, or stands on a template and not on its claims."""
    if write.operation == "DELETE" or write.subresource:
        return
    annotated: dict[str, Any] = {"metadata": write.new.metadata}
    if write.kind.resource == TEMPLATES:
        annotated["spec.metadata"] = write.new.spec.metadata
    for where, metadata in annotated.items():
        name, field = metadata.annotations.get(POLICY_ANNOTATION), f"{where}.annotations[{POLICY_ANNOTATION}]"
        if name is None:
            continue
        if write.kind.resource == TEMPLATES and where == "metadata":
            records.warn(f"{field}: ignored; what is for the claims belongs in spec.metadata.annotations")
        elif not _is_known(name):
            policies = ", ".join(PLACEMENT_POLICIES)
            records.warn(f'{field}: "{name}" is not a placement policy and is ignored; there are {policies}')
