"""A claim that a controller allocates, in the two forms in which there are such, as one to the rest of the kit.

v1alpha2 (Kubernetes 1.26 to 1.30): a claim names a ResourceClass, which names the driver and where to find parameters;
an allocation has handles. v1alpha3 (1.31, and KEP-3063 as it was left): a claim names the driver itself and asks for
devices of classes; an allocation has devices. An object that was made in one form shows nothing of it in the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from claims.classic import kinds as v1alpha2
from claims.classic import later as v1alpha3
from claims.kinds.resource_claims import IMMEDIATE, ResourceClaimConsumerReference
from inventory.classic.later import DeviceClass
from inventory.classic.values import ResourceClass, ResourceClassParametersReference
from inventory.kinds.named_resources import ResourceClaimParametersReference
from manciple.controller_kit.driver import (
    Allocation,
    ControlledClaim,
    ControllerDriver,
    PendingClaim,
)
from nodeagent.api.client import ApiResource
from nodeagent.claims.handles import CLASSIC_CLAIMS

Reference = ResourceClaimParametersReference | ResourceClassParametersReference
Users = tuple[ResourceClaimConsumerReference, ...]
_V1ALPHA2, _V1ALPHA3 = "resource.k8s.io/v1alpha2", "resource.k8s.io/v1alpha3"


class ClassNotFound(Exception):
    """A claim names a class that does not exist (yet)."""


class ParametersWrong(Exception):
    """The driver cannot read the parameters of a claim, or of its class (then `of_class`)."""

    def __init__(self, message: str, *, of_class: ResourceClass | None = None) -> None:
        super().__init__(message)
        self.of_class = of_class


class ClaimForm(ABC):
    """One of them. claims, classes: the resources; contexts: as that version serves them."""

    version: ClassVar[str]
    claims: ClassVar[ApiResource[Any]]
    classes: ClassVar[ApiResource[Any]]
    contexts: ClassVar[ApiResource[v1alpha2.PodSchedulingContext]]

    @abstractmethod
    def is_made_in(self, claim: Any) -> bool:
        """Whether the claim was made in this form, for a controller."""

    @abstractmethod
    def is_delayed(self, claim: Any) -> bool:
        """Whether it is allocated for a pod; at once where not."""

    @abstractmethod
    def is_for(self, claim: Any, driver: str, classes: Mapping[str, Any]) -> bool:
        """Whether it is the driver's to allocate. classes: all, by name. Raises: ClassNotFound."""

    @abstractmethod
    def pending(self, claim: Any, entry: str, driver: ControllerDriver, classes: Mapping[str, Any]) -> PendingClaim:
        """With its parameters. Raises: ClassNotFound, ParametersWrong."""

    @abstractmethod
    def allocated(self, claim: Any, driver: str, given: Allocation, users: Users) -> ControlledClaim:
        """The claim with what it was given, reserved for `users` as well."""

    @abstractmethod
    def deallocated(self, claim: Any) -> ControlledClaim:
        """The claim without, and no longer asked to be."""


class ClassicForm(ClaimForm):
    """v1alpha2."""

    version = "v1alpha2"
    claims = CLASSIC_CLAIMS
    classes = ApiResource(ResourceClass, _V1ALPHA2, "resourceclasses", namespaced=False)
    contexts = ApiResource(v1alpha2.PodSchedulingContext, _V1ALPHA2, "podschedulingcontexts")

    def is_made_in(self, claim: v1alpha2.ResourceClaim) -> bool:
        return bool(claim.spec.resource_class_name)

    def is_delayed(self, claim: v1alpha2.ResourceClaim) -> bool:
        return claim.spec.allocation_mode != IMMEDIATE

    def is_for(self, claim: v1alpha2.ResourceClaim, driver: str, classes: Mapping[str, ResourceClass]) -> bool:
        class_ = _found(classes, claim.spec.resource_class_name)
        return class_.driver_name == driver and not class_.structured_parameters

    def pending(
        self,
        claim: v1alpha2.ResourceClaim,
        entry: str,
        driver: ControllerDriver,
        classes: Mapping[str, ResourceClass],
    ) -> PendingClaim:
        class_ = _found(classes, claim.spec.resource_class_name)
        with _reading("class", class_.parameters_ref, of_class=class_):
            of_class = driver.get_class_parameters(class_)
        with _reading("claim", claim.spec.parameters_ref):
            of_claim = driver.get_claim_parameters(claim, class_, of_class)
        return PendingClaim(
            claim=claim,
            entry=entry,
            classes={class_.metadata.name: class_},
            class_parameters=of_class,
            claim_parameters=of_claim,
        )

    def allocated(
        self, claim: v1alpha2.ResourceClaim, driver: str, given: Allocation, users: Users
    ) -> v1alpha2.ResourceClaim:
        allocation = v1alpha2.AllocationResult(
            resource_handles=given.handles, available_on_nodes=given.nodes, shareable=given.shareable
        )
        reserved = (*claim.status.reserved_for, *users)
        return replace(
            claim, status=replace(claim.status, driver_name=driver, allocation=allocation, reserved_for=reserved)
        )

    def deallocated(self, claim: v1alpha2.ResourceClaim) -> v1alpha2.ResourceClaim:
        status = replace(claim.status, driver_name="", allocation=None, deallocation_requested=False)
        return replace(claim, status=status)


class LaterForm(ClaimForm):
    """v1alpha3."""

    version = "v1alpha3"
    claims = ApiResource(v1alpha3.ResourceClaim, _V1ALPHA3, "resourceclaims")
    classes = ApiResource(DeviceClass, _V1ALPHA3, "deviceclasses", namespaced=False)
    contexts = ApiResource(v1alpha2.PodSchedulingContext, _V1ALPHA3, "podschedulingcontexts")

    def is_made_in(self, claim: v1alpha3.ResourceClaim) -> bool:
        return bool(v1alpha3.controller_of(claim.spec))

    def is_delayed(self, _claim: v1alpha3.ResourceClaim) -> bool:
        return True

    def is_for(self, claim: v1alpha3.ResourceClaim, driver: str, _classes: Mapping[str, DeviceClass]) -> bool:
        return v1alpha3.controller_of(claim.spec) == driver

    def pending(
        self,
        claim: v1alpha3.ResourceClaim,
        entry: str,
        _driver: ControllerDriver,
        classes: Mapping[str, DeviceClass],
    ) -> PendingClaim:
        named = {name: _found(classes, name) for name in _class_names(claim)}
        return PendingClaim(claim=claim, entry=entry, classes=named)

    def allocated(
        self, claim: v1alpha3.ResourceClaim, driver: str, given: Allocation, users: Users
    ) -> v1alpha3.ResourceClaim:
        allocation = v1alpha3.AllocationResult(
            devices=given.devices,
            node_selector=given.nodes,
            # as the server spells it: what it does not know it would drop
            controller_name=driver if claim.spec.controller_name else "",
            controller=driver if claim.spec.controller else "",
        )
        reserved = (*claim.status.reserved_for, *users)
        return replace(claim, status=replace(claim.status, allocation=allocation, reserved_for=reserved))

    def deallocated(self, claim: v1alpha3.ResourceClaim) -> v1alpha3.ResourceClaim:
        return replace(claim, status=replace(claim.status, allocation=None, deallocation_requested=False))


#: By version.
FORMS: Final[Mapping[str, ClaimForm]] = {form.version: form for form in (ClassicForm(), LaterForm())}


def form_of(claim: ControlledClaim) -> ClaimForm:
    return FORMS["v1alpha2" if isinstance(claim, v1alpha2.ResourceClaim) else "v1alpha3"]


@contextmanager
def _reading(whose: str, ref: Reference | None, *, of_class: ResourceClass | None = None) -> Iterator[None]:
    """Raises: ParametersWrong for whatever the driver raises."""
    try:
        yield
    except Exception as error:  # whatever it is says what is wrong with them
        named = f"{ref.kind} {ref.name}" if ref else "none"
        raise ParametersWrong(f"{whose} parameters {named}: {error}", of_class=of_class) from error


def _class_names(claim: v1alpha3.ResourceClaim) -> Iterator[str]:
    for request in claim.spec.devices.requests:
        names = (request.device_class_name, *(one.device_class_name for one in request.first_available))
        yield from (name for name in names if name)


def _found(classes: Mapping[str, Any], name: str) -> Any:
    if name not in classes:
        raise ClassNotFound(f"class {name} does not exist")
    return classes[name]
