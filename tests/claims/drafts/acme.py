"""A resource plugin that speaks the protocol of KEP-3063's first draft: the controller of the draft's ACME GPUs.

It keeps nothing but its configuration: what is allocated stands in the claims. So a plugin that was killed between any
two steps is one that was made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from claims.drafts.cdi.values import ALLOCATED, IMMEDIATE, PENDING, REALLOCATE, ResourceClaim, with_status
from inventory.kinds.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from manciple.wire.quantity import Quantity

PLUGIN = "gpu.acme.com"
FINALIZER = f"{PLUGIN}/allocated"
#: Of the draft's stories, as they stand there: a container names its resources by objects, where the draft's types have
#: strings.
CLASS_OF_THE_STORY = """
metadata:
  name: acme-gpu
pluginName: gpu.acme.com
parameters:
  initCommand:
  - /usr/local/bin/acme-gpu-init
  - --cluster
  - my-cluster
"""
POD_OF_THE_STORY = """
metadata:
  name: device-consumer
spec:
  containers:
  - name: workload
    image: my-app
    command: ["/bin/program"]
    podResources:
    - name: gpu
    resources:
      requests: {memory: "64Mi", cpu: "250m"}
      limits: {memory: "128Mi", cpu: "500m"}
  - name: monitor
    image: my-app
    command: ["/bin/other-program"]
    podResources:
    - name: gpu
    resources:
      requests: {memory: "32Mi", cpu: "25m"}
      limits: {memory: "64Mi", cpu: "50m"}
  resources:
  - name: gpu
    template:
      resourceClassName: "acme-gpu"
      parameters:
        memory: "2Gi"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcmePlugin:
    """memory: what the GPU of each node has, in Gi. breaks: nodes on which allocations fail."""

    memory: Mapping[str, int]
    name: str = PLUGIN
    user_limit: int = 1
    breaks: frozenset[str] = field(default_factory=frozenset)

    def answer(self, claim: ResourceClaim, claims: Iterable[ResourceClaim]) -> ResourceClaim | None:
        """`claim` after the plugin's next step, one write; None where it has nothing to do."""
        status = claim.status
        if status.plugin_name != self.name:
            return None
        if claim.metadata.deletion_timestamp is not None:
            return self._let_go(claim)
        if status.phase == REALLOCATE:
            return with_status(claim, phase=PENDING)
        return None if status.phase == ALLOCATED else self._place(claim, claims)

    def _place(self, claim: ResourceClaim, claims: Iterable[ResourceClaim]) -> ResourceClaim | None:
        status = claim.status
        room = {node for node in self.memory if self._free(node, claims) >= wanted(claim)}
        if claim.spec.allocation_mode == IMMEDIATE and not status.selected_node:
            return with_status(claim, selected_node=min(room)) if room else None
        if status.selected_node:
            return self._allocate(claim, room)
        suitable = tuple(node for node in status.potential_nodes if node in room)
        return None if suitable == status.suitable_nodes else with_status(claim, suitable_nodes=suitable)

    def _allocate(self, claim: ResourceClaim, room: set[str]) -> ResourceClaim:
        node = claim.status.selected_node
        if node in self.breaks or node not in room:
            return with_status(claim, selected_node="")
        if FINALIZER not in claim.metadata.finalizers:
            return replace(claim, metadata=replace(claim.metadata, finalizers=(*claim.metadata.finalizers, FINALIZER)))
        return with_status(
            claim,
            phase=ALLOCATED,
            available_on_nodes=only(node),
            attributes={"node": node, "memory": str(wanted(claim))},
            user_limit=self.user_limit,
        )

    def _let_go(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Frees the resource of a deleted claim once nobody uses it."""
        if claim.status.used_by or FINALIZER not in claim.metadata.finalizers:
            return None
        kept = tuple(name for name in claim.metadata.finalizers if name != FINALIZER)
        return replace(claim, metadata=replace(claim.metadata, finalizers=kept))

    def _free(self, node: str, claims: Iterable[ResourceClaim]) -> int:
        return self.memory[node] - sum(
            wanted(claim)
            for claim in claims
            if claim.status.plugin_name == self.name
            and claim.status.attributes.get("node") == node
            and FINALIZER in claim.metadata.finalizers
        )


def wanted(claim: ResourceClaim) -> int:
    """Gi of memory; 1 where the claim does not say."""
    parameters = claim.spec.parameters or {}
    return int(Quantity.parse(parameters.get("memory", "1Gi")).nanos // 10**9 // 2**30)


def only(node: str) -> NodeSelector:
    requirement = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(requirement,)),))
