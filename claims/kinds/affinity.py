"""Where a pod wants to run: affinities, tolerations, spreading. Source: k8s.io/api/core/v1."""

from __future__ import annotations

from typing import Annotated

from inventory.kinds.node_selectors import NodeSelector, NodeSelectorTerm
from manciple.wire.base import Int32, Int64, Value, always, pb
from manciple.wire.conditions import LabelSelector

PACKAGE = "io.k8s.api.core.v1"


class PreferredSchedulingTerm(Value):
    """A wish with its weight, 1 to 100."""

    weight: Annotated[Int32, pb(1)] = always(0)
    preference: Annotated[NodeSelectorTerm, pb(2)] = NodeSelectorTerm()


class NodeAffinity(Value):
    """Nodes that a pod must, and would rather, run on."""

    required_during_scheduling_ignored_during_execution: Annotated[NodeSelector | None, pb(1)] = None
    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[PreferredSchedulingTerm, ...], pb(2)] = ()


class PodAffinityTerm(Value):
    """Other pods, and the node label by which "together" is meant."""

    label_selector: Annotated[LabelSelector | None, pb(1)] = None
    namespaces: Annotated[tuple[str, ...], pb(2)] = ()
    topology_key: Annotated[str, pb(3)] = ""
    namespace_selector: Annotated[LabelSelector | None, pb(4)] = None
    match_label_keys: Annotated[tuple[str, ...], pb(5)] = ()
    mismatch_label_keys: Annotated[tuple[str, ...], pb(6)] = ()


class WeightedPodAffinityTerm(Value):
    """A wish with its weight, 1 to 100."""

    weight: Annotated[Int32, pb(1)] = always(0)
    pod_affinity_term: Annotated[PodAffinityTerm, pb(2)] = PodAffinityTerm()


class PodAffinity(Value):
    """Pods that this one must, and would rather, run near."""

    required_during_scheduling_ignored_during_execution: Annotated[tuple[PodAffinityTerm, ...], pb(1)] = ()
    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[WeightedPodAffinityTerm, ...], pb(2)] = ()


class PodAntiAffinity(Value):
    """Pods that this one must, and would rather, stay away from."""

    required_during_scheduling_ignored_during_execution: Annotated[tuple[PodAffinityTerm, ...], pb(1)] = ()
    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[WeightedPodAffinityTerm, ...], pb(2)] = ()


class Affinity(Value):
    """All affinities of a pod."""

    node_affinity: Annotated[NodeAffinity | None, pb(1)] = None
    pod_affinity: Annotated[PodAffinity | None, pb(2)] = None
    pod_anti_affinity: Annotated[PodAntiAffinity | None, pb(3)] = None


class Toleration(Value):
    """What lets a pod run on a tainted node. `operator`: Equal (the default), Exists, Lt or Gt."""

    key: Annotated[str, pb(1)] = ""
    operator: Annotated[str, pb(2)] = ""
    value: Annotated[str, pb(3)] = ""
    effect: Annotated[str, pb(4)] = ""
    toleration_seconds: Annotated[Int64 | None, pb(5)] = None


class TopologySpreadConstraint(Value):
    """How evenly pods are spread over the values of a node label."""

    max_skew: Annotated[Int32, pb(1)] = always(0)
    topology_key: Annotated[str, pb(2)] = ""
    when_unsatisfiable: Annotated[str, pb(3)] = ""
    label_selector: Annotated[LabelSelector | None, pb(4)] = None
    min_domains: Annotated[Int32 | None, pb(5)] = None
    node_affinity_policy: Annotated[str | None, pb(6)] = None
    node_taints_policy: Annotated[str | None, pb(7)] = None
    match_label_keys: Annotated[tuple[str, ...], pb(8)] = ()
