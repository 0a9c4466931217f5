"""node.k8s.io/v1 RuntimeClass: a name for a way to run containers. PURE.

They are kept for whoever reads them. Each node has one runtime, so pods that name a class are refused
(`claims.admission`).

Sources: k8s.io/api/node/v1, pkg/apis/node/validation/validation.go and pkg/printers/internalversion/printers.go of
Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Annotated

from claims.kinds.containers import ResourceRequirements
from claims.kinds.pod_rules import validate_tolerations
from claims.kinds.pods import Toleration
from claims.kinds.resource_usage import validate_resources
from manciple.wire.base import ApiObject, QuantityText, Value, always, pb
from manciple.wire.errors import FieldError
from manciple.wire.registry import Column, Kind
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    Path,
    check_dns_label,
    each,
    validate_immutable,
    validate_labels,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.api.node.v1"

Errors = list[FieldError]


class Overhead(Value):
    """pod_fixed: what each pod needs besides its containers."""

    pod_fixed: Annotated[dict[str, QuantityText], pb(1, encoding="quantity")] = {}


class Scheduling(Value):
    """Where its pods can run. node_selector: labels of these nodes. tolerations: that its pods get."""

    node_selector: Annotated[dict[str, str], pb(1)] = {}
    tolerations: Annotated[tuple[Toleration, ...], pb(2)] = ()


class RuntimeClass(ApiObject):
    """A name for a way to run containers. Cluster scoped. Pods that name one are refused here.

    handler: what nodes call it. overhead: what each pod needs besides its containers. scheduling: where its pods can
    run.
    """

    handler: Annotated[str, pb(2)] = always("")
    overhead: Annotated[Overhead | None, pb(3)] = None
    scheduling: Annotated[Scheduling | None, pb(4)] = None


def validate_class(new: RuntimeClass) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=False)
    found += each(check_dns_label(new.handler), Path("handler"), new.handler)
    if new.overhead is not None:
        found += validate_resources(ResourceRequirements(limits=new.overhead.pod_fixed), Path("overhead"), frozenset())
    if new.scheduling is not None:
        path = Path("scheduling")
        found += validate_labels(new.scheduling.node_selector, path.child("nodeSelector"))
        found += validate_tolerations(new.scheduling.tolerations, path.child("tolerations"))
    return found


def validate_class_update(new: RuntimeClass, old: RuntimeClass) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    return found + validate_immutable(new.handler, old.handler, Path("handler"))


RUNTIME_CLASS = Kind(
    group="node.k8s.io",
    version="v1",
    plural="runtimeclasses",
    namespaced=False,
    type=RuntimeClass,
    validate_create=validate_class,
    validate_update=validate_class_update,
    columns=(
        NAME_COLUMN,
        Column(name="Handler", description="What nodes call it", cell=lambda one, _now: one.handler),
        AGE_COLUMN,
    ),
    description="A name for a way to run containers.",
)
