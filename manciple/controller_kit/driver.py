"""What the author of a controller writes: a `ControllerDriver`, over the values below.

    class Lights(ControllerDriver):
        name = "lights.example.com"

        def allocate(self, claims, selected_node):
            return {pending.uid: Allocation(handles=...) for pending in claims}

        def deallocate(self, claim): ...

Everything is asked again: after a crash, after a write that somebody else's came before, after a restart of the API
server. So `allocate` for what is allocated already gives the same, and `deallocate` for what is not is fine.
Source: k8s.io/dynamic-resource-allocation/controller of Kubernetes 1.30.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from claims.classic import kinds as v1alpha2
from claims.classic import later as v1alpha3
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import DeviceAllocationResult
from inventory.classic.later import DeviceClass
from inventory.classic.values import ResourceClass
from inventory.kinds.named_resources import ResourceHandle
from inventory.kinds.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

#: A claim in the form in which it was made.
ControlledClaim = v1alpha2.ResourceClaim | v1alpha3.ResourceClaim
#: What it names: a ResourceClass in v1alpha2, DeviceClasses in v1alpha3.
ControlledClass = ResourceClass | DeviceClass


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingClaim:
    """A claim of the driver that is not allocated.

    entry: its name in the pod's spec.resourceClaims; "" for one that is allocated without a pod (Immediate). classes:
    by name. class_parameters, claim_parameters: what the driver made of them; None in v1alpha3, which has none.
    """

    claim: ControlledClaim
    entry: str = ""
    classes: Mapping[str, ControlledClass] = field(default_factory=dict)
    class_parameters: Any = None
    claim_parameters: Any = None

    @property
    def uid(self) -> str:
        return self.claim.metadata.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a claim was given.

    nodes: where it is available; everywhere where None. handles: for node plugins, of a claim of v1alpha2; shareable:
    whether several pods may use that claim at once. devices: of a claim of v1alpha3.
    """

    nodes: NodeSelector | None = None
    handles: tuple[ResourceHandle, ...] = ()
    shareable: bool = False
    devices: DeviceAllocationResult = field(default_factory=DeviceAllocationResult)


@dataclass(frozen=True, slots=True)
class NotAllocated:
    """The driver could not do it now; it is asked again. reason: a sentence for the claim's owner."""

    reason: str


def only_on(node: str) -> NodeSelector:
    """Available on that node alone."""
    field_ = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field_,)),))


class ControllerDriver(ABC):
    """May be called by as many threads at once as the controller has workers: one, unless its maker says more.

    Whatever a method raises fails that attempt: it is told in an Event, and tried again, each time after a longer wait.
    """

    #: The DNS name by which classes and claims name the driver.
    name: str

    def restore(self, claims: Sequence[ControlledClaim]) -> None:  # noqa: B027 - many drivers keep books of their own
        """Before anything else, whenever the controller begins to work: all claims that the driver has allocated.

        A driver that remembers nothing else finds there what it has given.
        """

    def get_class_parameters(self, class_: ResourceClass) -> Any:  # noqa: B027 - not all have parameters
        """The object to which `class_.parameters_ref`, if any, refers, checked as far as possible."""

    def get_claim_parameters(  # noqa: B027 - not all have parameters
        self, claim: v1alpha2.ResourceClaim, class_: ResourceClass, class_parameters: Any
    ) -> Any:
        """The object to which `claim.spec.parameters_ref`, if any, refers, checked as far as possible."""

    @abstractmethod
    def allocate(self, claims: Sequence[PendingClaim], selected_node: str) -> Mapping[str, Allocation | NotAllocated]:
        """Give what `claims` ask for; by uid, a claim left out counts as not allocated.

        They are all that a pod needs of the driver, to be available on `selected_node`; or one claim and "", and the
        driver decides itself where (Immediate).
        """

    @abstractmethod
    def deallocate(self, claim: ControlledClaim) -> None:
        """Take back what `claim` was given, or stop giving it."""

    @abstractmethod
    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[PendingClaim], potential_nodes: Sequence[str]
    ) -> Mapping[str, Collection[str]]:
        """For which of `potential_nodes` each claim cannot be allocated now; by uid, all suit a claim that is left out.

        A node that does not suit one of them is better named for all: they are to be allocated together.
        """
