"""Accelerators in an enclosure of their own, attached over the network to whatever node needs them (KEP-3063, "Network-
attached accelerator"): both halves of a driver.

The controller gives a claim one accelerator or more, so many as a ConfigMap that the claim names in its parameters says
(`count`; one without), and attaches them to the node of the claim's pod. The class names a ConfigMap that says how many
there are (`accelerators`; 8 without). It remembers nothing but its claims. On the node, a container finds which it has.

    python -m manciple.controller_kit manciple.controller_kit.examples.network_accelerators:Enclosure --kubeconfig K
    python -m nodeagent --driver manciple.controller_kit.examples.network_accelerators:Fabric --node-name N ...
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from claims.classic import kinds as v1alpha2
from claims.kinds.pods import Pod
from inventory.classic.values import ResourceClass
from inventory.kinds.named_resources import ResourceHandle
from manciple.controller_kit.driver import (
    Allocation,
    ControlledClaim,
    ControllerDriver,
    NotAllocated,
    PendingClaim,
    only_on,
)
from nodeagent import cdi
from nodeagent.api.client import CONFIG_MAPS, Client
from nodeagent.drivers.authoring import HandleDriver
from nodeagent.drivers.protocol import ClaimIdentity

NAME = "accelerators.example.com"


class Enclosure(ControllerDriver):
    name = NAME

    def __init__(self, client: Client) -> None:
        self._client = client
        self._given: dict[str, list[int]] = {}  # by the claim's uid

    def restore(self, claims: Sequence[ControlledClaim]) -> None:
        self._given = {claim.metadata.uid: _slots(claim) for claim in claims}

    def get_class_parameters(self, class_: ResourceClass) -> int:
        ref = class_.parameters_ref
        return self._number(ref.name, ref.namespace, "accelerators") if ref else 8

    def get_claim_parameters(self, claim: v1alpha2.ResourceClaim, _class: ResourceClass, _parameters: int) -> int:
        ref = claim.spec.parameters_ref
        return self._number(ref.name, claim.metadata.namespace, "count") if ref else 1

    def allocate(self, claims: Sequence[PendingClaim], selected_node: str) -> Mapping[str, Allocation | NotAllocated]:
        return {pending.uid: self._allocate(pending, selected_node) for pending in claims}

    def deallocate(self, claim: ControlledClaim) -> None:
        self._given.pop(claim.metadata.uid, None)

    def unsuitable_nodes(
        self, _pod: Pod, claims: Sequence[PendingClaim], potential_nodes: Sequence[str]
    ) -> Mapping[str, Collection[str]]:
        """The fabric reaches every node alike: there are enough for all claims of the pod, or no node will do."""
        wanted = sum(pending.claim_parameters for pending in claims)
        enough = wanted <= min(len(self._free(pending)) for pending in claims)
        return {} if enough else {pending.uid: potential_nodes for pending in claims}

    def _allocate(self, pending: PendingClaim, node: str) -> Allocation | NotAllocated:
        slots = self._given.get(pending.uid) or self._free(pending)[: pending.claim_parameters]
        if len(slots) < pending.claim_parameters:
            return NotAllocated(f"{pending.claim_parameters} accelerators are wanted, {len(slots)} are free")
        self._given[pending.uid] = slots
        handle = ResourceHandle(driver_name=NAME, data=json.dumps({"slots": slots, "attachedTo": node}))
        return Allocation(handles=(handle,), nodes=only_on(node) if node else None, shareable=True)

    def _free(self, pending: PendingClaim) -> list[int]:
        taken = {slot for slots in self._given.values() for slot in slots}
        return [slot for slot in range(pending.class_parameters) if slot not in taken]

    def _number(self, name: str, namespace: str, key: str) -> int:
        return int(self._client.get(CONFIG_MAPS, name, namespace=namespace).data[key])


class Fabric(HandleDriver):
    name = NAME

    def edits(self, _claim: ClaimIdentity, handle: ResourceHandle) -> cdi.ContainerEdits:
        slots = json.loads(handle.data)["slots"]
        return cdi.ContainerEdits(env=(f"ACCELERATORS={','.join(map(str, slots))}",))


def _slots(claim: ControlledClaim) -> list[int]:
    allocation = claim.status.allocation
    handles = allocation.resource_handles if isinstance(allocation, v1alpha2.AllocationResult) else ()
    return [slot for handle in handles for slot in json.loads(handle.data)["slots"]]
