"""The node's half of the driver of docs/examples/structured-parameters-draft.yaml, to run in an agent."""

from __future__ import annotations

from inventory.kinds.named_resources import ResourceHandle
from nodeagent import cdi
from nodeagent.drivers.authoring import HandleDriver
from nodeagent.drivers.protocol import ClaimIdentity


class Cards(HandleDriver):
    """A container finds its cards in CARDS."""

    name = "cards.dra.example.com"
    wants_handles = True

    def edits(self, _claim: ClaimIdentity, handle: ResourceHandle) -> cdi.ContainerEdits:
        data = handle.structured_data
        if data is None or data.named_resources_with_attributes is None:
            raise ValueError("the claim's handle names no cards")
        given = ",".join(one.id for one in data.named_resources_with_attributes.resources)
        return cdi.ContainerEdits(env=(f"CARDS={given}",))
