"""The kinds of Kubernetes 1.30 that classes and their parameters are described by, as the API server serves them. PURE.

Served while gate DRAControlPlaneController is on; what is stored stays when it is off. Columns are those of
`kubectl get` with Kubernetes 1.30 (pkg/printers/internalversion/printers.go).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TypeVar

from inventory.classic import later, rules, slices
from inventory.classic.values import ResourceClaimParameters, ResourceClass, ResourceClassParameters, ResourceFilter
from inventory.kinds import gates
from inventory.kinds.conversion import reshaped
from inventory.kinds.early import classes_are_served, controllers_allocate
from inventory.kinds.gates import GatedFields, without_disabled
from manciple.wire.base import ApiObject
from manciple.wire.registry import Column, Kind, ValidateCreate
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN, NONE, listed
from manciple.wire.validation import judged_as_new

GROUP, VERSION = "resource.k8s.io", "v1alpha2"
ParametersT = TypeVar("ParametersT", ResourceClaimParameters, ResourceClassParameters)


#: What the draft adds to parameters.
OF_PARAMETERS: GatedFields = {
    gates.STRUCTURED_PARAMETERS_DRAFT: {
        ResourceClaimParameters: ("vendor_parameters", "requests"),
        ResourceFilter: ("named_resources_with_attributes",),
    }
}


def _create(new: ParametersT) -> ParametersT:
    return without_disabled(new, None, OF_PARAMETERS)


def _update(new: ParametersT, old: ParametersT) -> ParametersT:
    return without_disabled(new, old, OF_PARAMETERS)


_kind = partial(Kind, group=GROUP, version=VERSION, is_served=classes_are_served)


def _parameters_of(one: ResourceClass, _now: float) -> str:
    reference = one.parameters_ref
    if reference is None:
        return NONE
    name = f"{reference.namespace}/{reference.name}" if reference.namespace else reference.name
    return f"{reference.kind} {name}"


RESOURCE_CLASS = _kind(
    plural="resourceclasses",
    namespaced=False,
    type=ResourceClass,
    validate_create=rules.validate_class,
    validate_update=judged_as_new(rules.validate_class),
    columns=(
        NAME_COLUMN,
        Column(name="DriverName", description="The driver that allocates", cell=lambda one, _now: one.driver_name),
        AGE_COLUMN,
        Column(name="Parameters", description="The object with its parameters", priority=1, cell=_parameters_of),
        Column(
            name="Structured",
            description="Whether the scheduler allocates, by structured parameters",
            priority=1,
            cell=lambda one, _now: str(bool(one.structured_parameters)).lower(),
        ),
    ),
    description="The driver that allocates the claims of this class, and its parameters.",
)


def _generated_from(one: ResourceClaimParameters | ResourceClassParameters, _now: float) -> str:
    origin = one.generated_from
    return f"{origin.kind}.{origin.api_group} {origin.name}" if origin else ""


def _drivers(one: ResourceClaimParameters | ResourceClassParameters, _now: float) -> str:
    if isinstance(one, ResourceClaimParameters):
        names = [*(part.driver_name for part in one.driver_requests), *(part.driver_name for part in one.requests)]
    else:
        given = one.vendor_parameters if isinstance(one.vendor_parameters, tuple) else ()
        names = [*(part.driver_name for part in given), *(part.driver_name for part in one.filters)]
    return listed(dict.fromkeys(names))


_PARAMETERS_COLUMNS = (
    NAME_COLUMN,
    Column(name="GeneratedFrom", description="The vendor's object that it was generated from", cell=_generated_from),
    AGE_COLUMN,
    Column(name="Drivers", description="For which it has parameters, requests or filters", priority=1, cell=_drivers),
)


def _parameters(type_: type[ApiObject], rule: ValidateCreate, description: str) -> Kind:
    return _kind(
        plural=type_.__name__.lower(),
        type=type_,
        prepare_create=_create,
        prepare_update=_update,
        validate_create=rule,
        validate_update=judged_as_new(rule),
        columns=_PARAMETERS_COLUMNS,
        description=description,
    )


RESOURCE_CLAIM_PARAMETERS = _parameters(
    ResourceClaimParameters, rules.validate_claim_parameters, "What a claim with structured parameters asks for."
)
RESOURCE_CLASS_PARAMETERS = _parameters(
    ResourceClassParameters,
    rules.validate_class_parameters,
    "What a class with structured parameters adds to each of its claims.",
)

DEVICE_CLASS_V1ALPHA3 = replace(
    reshaped(
        "v1alpha3", to_storage=later.class_to_storage, from_storage=later.class_from_storage, message=later.DeviceClass
    ),
    is_served=controllers_allocate,
    keeps=(),
)
SLICE_V1ALPHA2 = replace(slices.CONVERSION, is_served=controllers_allocate)
