"""What classic DRA (KEP-3063) and the draft of KEP-4381 add to the inventory: the table of their kinds, versions and
forms of slices, each with its gate. PURE.

Their modules, `inventory.classic` and `inventory.drafts`, are imported through this table alone (`wire.deferred`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from inventory.kinds import gates
from inventory.kinds.devices import ResourceSlice
from manciple.wire.deferred import deferred, deferred_kind, imported
from manciple.wire.registry import Conversion, Kind

REGISTRATION = "inventory.classic.registration"


def controllers_allocate() -> bool:
    """Whether drivers' controllers may allocate claims."""
    return gates.enabled(gates.CONTROL_PLANE_CONTROLLER)


def classes_are_served() -> bool:
    """Whether claims may name a ResourceClass: classic DRA and the draft of KEP-4381 are both served in v1alpha2."""
    return controllers_allocate() or gates.enabled(gates.STRUCTURED_PARAMETERS_DRAFT)


_of_v1alpha2 = partial(deferred_kind, api_version="resource.k8s.io/v1alpha2")

KINDS: tuple[Kind, ...] = (
    _of_v1alpha2(
        f"{REGISTRATION}:RESOURCE_CLASS",
        "ResourceClass",
        "resourceclasses",
        namespaced=False,
        is_served=classes_are_served,
    ),
    _of_v1alpha2(
        f"{REGISTRATION}:RESOURCE_CLAIM_PARAMETERS",
        "ResourceClaimParameters",
        "resourceclaimparameters",
        is_served=classes_are_served,
    ),
    _of_v1alpha2(
        f"{REGISTRATION}:RESOURCE_CLASS_PARAMETERS",
        "ResourceClassParameters",
        "resourceclassparameters",
        is_served=classes_are_served,
    ),
    _of_v1alpha2(
        "inventory.drafts.structured.registration:NODE_RESOURCE_SLICE",
        "NodeResourceSlice",
        "noderesourceslices",
        namespaced=False,
        is_served=partial(gates.enabled, gates.STRUCTURED_PARAMETERS_DRAFT),
    ),
)
CLASS_VERSIONS: Mapping[str, Conversion] = {
    "v1alpha3": deferred(Conversion, f"{REGISTRATION}:DEVICE_CLASS_V1ALPHA3", is_served=controllers_allocate)
}
SLICE_VERSIONS: Mapping[str, Conversion] = {
    "v1alpha2": deferred(Conversion, f"{REGISTRATION}:SLICE_V1ALPHA2", is_served=controllers_allocate)
}

#: (object, whether it is deleted) -> for each pool that changes: (its ResourceSlice of today, whether that is deleted)
Translate = Callable[[Any, bool], Iterable[tuple[ResourceSlice, bool]]]


def slice_translations() -> Mapping[str, Translate]:
    """By resource, for one reader: how it reads what drivers publish in the forms of the draft and of Kubernetes 1.30.

    Empty while the draft is off.
    """
    if not gates.enabled(gates.STRUCTURED_PARAMETERS_DRAFT):
        return {}
    translations: Mapping[str, Translate] = imported("inventory.drafts.structured.publishing:translations")()
    return translations
