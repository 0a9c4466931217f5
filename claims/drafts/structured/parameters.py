"""Classes and parameters of structured claims, and what a claim asks for by them: references followed. PURE.

A claim names a ResourceClass, and perhaps an object with its parameters: ResourceClaimParameters themselves, or an
object of the vendor's. Of the latter the vendor's controller makes ResourceClaimParameters, which say what they are
`generatedFrom`; so they are found, and until they are there the claim waits. Parameters of classes likewise.
Source: KEP-4381, first draft; lookupParameters of plugins/dynamicresources of Kubernetes 1.30, with its messages.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from claims.kinds.resource_claims import ResourceClaim
from inventory.classic.values import (
    DriverRequests,
    NamedResourcesRequest,
    ResourceClaimParameters,
    ResourceClass,
    ResourceClassParameters,
    ResourceClassParametersReference,
    ResourceRequest,
)
from inventory.drafts.structured.values import DraftResourceRequest, NamedResourcesWithAttributesRequest
from inventory.kinds.devices import ResourceSlice

GROUP = "resource.k8s.io"
ParametersT = TypeVar("ParametersT", ResourceClaimParameters, ResourceClassParameters)
#: (namespace, name)
Key = tuple[str, str]
#: (namespace, apiGroup, kind, name) of a vendor's object
Origin = tuple[str, str, str, str]
#: Where parameters of a class are looked for whose reference names no namespace.
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Everything that a claim leans on. An empty object stands for parameters that nobody names."""

    claim_class: ResourceClass
    of_class: ResourceClassParameters
    of_claim: ResourceClaimParameters


@dataclass(frozen=True, slots=True)
class Unresolved:
    """What is missing, in words."""

    message: str


def default_parameters(driver: str, *, in_1_30: bool) -> ResourceClaimParameters:
    """What a claim without parameters requests: any resource of its class's driver, shareable (as in 1.30).

    in_1_30: in the form of Kubernetes 1.30, for a driver that publishes its resources in that form.
    """
    if in_1_30:
        request = ResourceRequest(named_resources=NamedResourcesRequest(selector="true"))
        of_driver = DriverRequests(driver_name=driver, requests=(request,))
        return ResourceClaimParameters(shareable=True, driver_requests=(of_driver,))
    model = NamedResourcesWithAttributesRequest(selector="true")
    draft = DraftResourceRequest(driver_name=driver, named_resources_with_attributes=model)
    return ResourceClaimParameters(shareable=True, requests=(draft,))


@dataclass(slots=True, eq=False, repr=False)
class _Known(Generic[ParametersT]):
    """Parameters by their names, and by what they were made of."""

    by_key: dict[Key, ParametersT] = field(default_factory=dict)
    made_of: dict[Origin, dict[Key, None]] = field(default_factory=dict)

    def put(self, parameters: ParametersT) -> None:
        self.remove(parameters)
        self.by_key[parameters.key] = parameters
        if (origin := _origin(parameters)) is not None:
            self.made_of.setdefault(origin, {})[parameters.key] = None

    def remove(self, parameters: ResourceClaimParameters | ResourceClassParameters) -> None:
        known = self.by_key.pop(parameters.key, None)
        origin = None if known is None else _origin(known)
        if origin is not None:
            self.made_of[origin].pop(parameters.key)

    def of(self, origin: Origin) -> list[Key]:
        """The names of those that were made of it."""
        return sorted(self.made_of.get(origin, ()))


def _origin(parameters: ResourceClaimParameters | ResourceClassParameters) -> Origin | None:
    made_of = parameters.generated_from
    if made_of is None:
        return None
    if isinstance(made_of, ResourceClassParametersReference):
        return made_of.namespace, made_of.api_group, made_of.kind, made_of.name
    return parameters.metadata.namespace, made_of.api_group, made_of.kind, made_of.name


@dataclass(slots=True, eq=False, repr=False)
class KnownParameters:
    """Classes and parameters as they come and go. Its values are never changed, only replaced."""

    classes: dict[str, ResourceClass] = field(default_factory=dict)
    _of_claims: _Known[ResourceClaimParameters] = field(default_factory=_Known)
    _of_classes: _Known[ResourceClassParameters] = field(default_factory=_Known)
    #: name of a ResourceSlice in the form of Kubernetes 1.30 -> its driver
    _slices_of_1_30: dict[str, str] = field(default_factory=dict)
    #: and how many of these each driver has
    _drivers_of_1_30: Counter[str] = field(default_factory=Counter)

    def put(self, obj: ResourceClass | ResourceClaimParameters | ResourceClassParameters) -> None:
        if isinstance(obj, ResourceClass):
            self.classes[obj.metadata.name] = obj
        elif isinstance(obj, ResourceClaimParameters):
            self._of_claims.put(obj)
        else:
            self._of_classes.put(obj)

    def remove(self, obj: ResourceClass | ResourceClaimParameters | ResourceClassParameters) -> None:
        if isinstance(obj, ResourceClass):
            self.classes.pop(obj.metadata.name, None)
        elif isinstance(obj, ResourceClaimParameters):
            self._of_claims.remove(obj)
        else:
            self._of_classes.remove(obj)

    def put_slice(self, published: ResourceSlice) -> None:
        self.remove_slice(published)
        if published.spec.named_resources is not None:
            self._slices_of_1_30[published.metadata.name] = published.spec.driver
            self._drivers_of_1_30[published.spec.driver] += 1

    def remove_slice(self, published: ResourceSlice) -> None:
        driver = self._slices_of_1_30.pop(published.metadata.name, None)
        if driver is not None:
            self._drivers_of_1_30[driver] -= 1

    def is_structured(self, claim: ResourceClaim) -> bool:
        """Whether the scheduler allocates it by its class, as far as that is known."""
        known = self.classes.get(claim.spec.resource_class_name)
        return known is not None and bool(known.structured_parameters)

    def resolve(self, claim: ResourceClaim) -> Resolved | Unresolved:
        """What the claim, one of a class, leans on."""
        name = claim.spec.resource_class_name
        claim_class = self.classes.get(name)
        if claim_class is None:
            return Unresolved(f"resource class {name} not found")
        of_class = self._of_class(claim_class)
        of_claim = of_class if isinstance(of_class, Unresolved) else self._of_claim(claim, claim_class)
        if isinstance(of_class, Unresolved) or isinstance(of_claim, Unresolved):
            return of_claim if isinstance(of_claim, Unresolved) else Unresolved("")
        return Resolved(claim_class, of_class, of_claim)

    def _of_class(self, claim_class: ResourceClass) -> ResourceClassParameters | Unresolved:
        ref = claim_class.parameters_ref
        if ref is None:
            return ResourceClassParameters()
        if (ref.api_group, ref.kind) == (GROUP, "ResourceClassParameters"):
            key = (ref.namespace or DEFAULT_NAMESPACE, ref.name)
            found = self._of_classes.by_key.get(key)
            return found or Unresolved(f"class parameters {'/'.join(key)} not found")
        made = self._of_classes.of((ref.namespace, ref.api_group, ref.kind, ref.name))
        what = f"class parameters for {ref.kind}.{ref.api_group} {_label(ref.namespace, ref.name)}"
        return self._of_classes.by_key[made[0]] if len(made) == 1 else _not_one(what, "ResourceClassParameters", made)

    def _of_claim(self, claim: ResourceClaim, claim_class: ResourceClass) -> ResourceClaimParameters | Unresolved:
        ref, namespace = claim.spec.parameters_ref, claim.metadata.namespace
        if ref is None:
            driver = claim_class.driver_name
            return default_parameters(driver, in_1_30=self._drivers_of_1_30[driver] > 0)
        if (ref.api_group, ref.kind) == (GROUP, "ResourceClaimParameters"):
            found = self._of_claims.by_key.get((namespace, ref.name))
            return found or Unresolved(f"claim parameters {namespace}/{ref.name} not found")
        made = self._of_claims.of((namespace, ref.api_group, ref.kind, ref.name))
        what = f"claim parameters for {ref.kind}.{ref.api_group} {_label(namespace, ref.name)}"
        return self._of_claims.by_key[made[0]] if len(made) == 1 else _not_one(what, "ResourceClaimParameters", made)


def _label(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _not_one(what: str, kind: str, made: list[Key]) -> Unresolved:
    if not made:
        return Unresolved(f"generated {what} not found: its driver has made no {kind} of it yet")
    names = ", ".join(_label(*key) for key in made)
    return Unresolved(f"generated {what} are there {len(made)} times: {names}; delete all but one of these {kind}")
