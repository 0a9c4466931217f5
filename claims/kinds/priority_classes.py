"""scheduling.k8s.io/v1 PriorityClass: names for the priorities of pods; two are there from the start, for the system.

Sources: k8s.io/api/scheduling/v1, pkg/apis/scheduling/{v1/defaults.go,v1/helpers.go,validation/validation.go} and
pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace

from manciple.wire.base import ApiObject, Int32, ObjectMeta, always, pb
from manciple.wire.errors import FieldError, forbidden, not_supported
from manciple.wire.registry import Column, Kind
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    METADATA,
    Path,
    validate_immutable,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.api.scheduling.v1"

Errors = list[FieldError]

#: The greatest value that is not the system's own.
HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PREFIX = "system-"
PREEMPTION_POLICIES = ("Never", "PreemptLowerPriority")
DEFAULT_PREEMPTION_POLICY = "PreemptLowerPriority"


class PriorityClass(ApiObject):
    """A priority that pods can name: higher goes first, and may take the place of lower. Cluster scoped.

    value: the priority; at most 1,000,000,000 for classes that are not the system's. global_default: pods that name no
    class get this one; one class at most. description: when to use it. preemption_policy: PreemptLowerPriority (the
    default) or Never.
    """

    value: Annotated[Int32, pb(2)] = always(0)
    global_default: Annotated[bool, pb(3)] = False
    description: Annotated[str, pb(4)] = ""
    preemption_policy: Annotated[str | None, pb(5)] = None


SYSTEM_CLASSES = (
    PriorityClass(
        metadata=ObjectMeta(name="system-node-critical"),
        value=2_000_001_000,
        description="Used for system critical pods that must not be moved from their current node.",
    ),
    PriorityClass(
        metadata=ObjectMeta(name="system-cluster-critical"),
        value=2_000_000_000,
        description="Used for system critical pods that must run in the cluster, but can be moved to another node if "
        "necessary.",
    ),
)


def create_priority_class(new: PriorityClass) -> PriorityClass:
    return replace(new, preemption_policy=new.preemption_policy or DEFAULT_PREEMPTION_POLICY)


def update_priority_class(new: PriorityClass, _old: PriorityClass) -> PriorityClass:
    return create_priority_class(new)


def validate_priority_class(new: PriorityClass) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=False)
    if new.metadata.name.startswith(SYSTEM_PREFIX):
        if problem := _problem_of_system_class(new):
            reserved = f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only"
            found.append(forbidden(METADATA.child("name"), f"{reserved}. error: {problem}"))
    elif new.value > HIGHEST_USER_PRIORITY:
        message = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        found.append(forbidden("value", message))
    if new.preemption_policy not in PREEMPTION_POLICIES:
        found.append(not_supported("preemptionPolicy", new.preemption_policy, PREEMPTION_POLICIES))
    return found


def validate_priority_class_update(new: PriorityClass, old: PriorityClass) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    if new.value != old.value:
        found.append(forbidden("value", "may not be changed in an update."))
    return found + validate_immutable(new.preemption_policy, old.preemption_policy, Path("preemptionPolicy"))


def _problem_of_system_class(new: PriorityClass) -> str:
    """Why `new` is none of the system's own; "" where it is."""
    name = new.metadata.name
    known = next((one for one in SYSTEM_CLASSES if one.metadata.name == name), None)
    if known is None:
        return f"{name} is not a known system priority class"
    if known.value != new.value:
        return f"value of {name} PriorityClass must be {known.value}"
    return f"globalDefault of {name} PriorityClass must be false" if new.global_default else ""


PRIORITY_CLASS = Kind(
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    short_names=("pc",),
    namespaced=False,
    type=PriorityClass,
    prepare_create=create_priority_class,
    prepare_update=update_priority_class,
    validate_create=validate_priority_class,
    validate_update=validate_priority_class_update,
    columns=(
        NAME_COLUMN,
        Column(
            name="Value",
            type="integer",
            description="The priority of pods that name the class",
            cell=lambda one, _now: one.value,
        ),
        Column(
            name="Global-Default",
            type="boolean",
            description="Whether pods that name no class get this one",
            cell=lambda one, _now: one.global_default,
        ),
        AGE_COLUMN,
        Column(
            name="PreemptionPolicy",
            description="Whether pods of the class take the place of pods of lower priority",
            cell=lambda one, _now: one.preemption_policy or "",
        ),
    ),
    # Every update of one is of its first generation, as upstream.
    generation_of=lambda _one: None,
    policy_of=lambda one: (one.value, one.global_default, one.preemption_policy),
    description="A priority that pods can name.",
)
