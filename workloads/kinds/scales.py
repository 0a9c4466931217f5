"""autoscaling/v1 Scale of a workload: how many pods it shall have, apart from all else that it is. PURE.

Sources: k8s.io/api/autoscaling/v1, pkg/apis/autoscaling/validation and pkg/registry/apps/*/storage (ScaleREST) of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from msgspec.structs import replace

from manciple.wire import codec
from manciple.wire.base import ApiObject, Int32, LabelSelector, ObjectMeta, Value, always, pb
from manciple.wire.errors import BadRequest, Invalid, invalid
from manciple.wire.registry import Projection
from manciple.wire.selectors import label_selector_text
from manciple.wire.validation import SPEC

PACKAGE = "io.k8s.api.autoscaling.v1"
API_VERSION, KIND = "autoscaling/v1", "Scale"


class ScaleSpec(Value):
    """replicas: how many there shall be."""

    replicas: Annotated[Int32, pb(1)] = 0


class ScaleStatus(Value):
    """replicas: how many there are. selector: which pods these are, as text."""

    replicas: Annotated[Int32, pb(1)] = always(0)
    selector: Annotated[str, pb(2)] = ""


class Scale(ApiObject):
    """How many pods a workload shall have."""

    spec: Annotated[ScaleSpec, pb(2)] = always(ScaleSpec())
    status: Annotated[ScaleStatus, pb(3)] = always(ScaleStatus())


def shown(workload: Any) -> Scale:
    """The scale of a workload with `spec.replicas`, `spec.selector` and `status.replicas`."""
    meta, selector = workload.metadata, workload.spec.selector
    return Scale(
        api_version=API_VERSION,
        kind=KIND,
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
        ),
        spec=ScaleSpec(replicas=workload.spec.replicas or 0),
        status=ScaleStatus(
            replicas=workload.status.replicas,
            selector=label_selector_text(selector if isinstance(selector, LabelSelector) else None),
        ),
    )


def _read(workload: Any) -> dict[str, Any]:
    return codec.to_builtins(shown(workload))


def _write(workload: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Raises: BadRequest, Invalid."""
    asked = _decoded(change(_read(workload)))
    meta, replicas = asked.metadata, asked.spec.replicas
    if replicas < 0:
        wrong = invalid(SPEC.child("replicas"), replicas, "must be greater than or equal to 0")
        raise Invalid.of(kind=KIND, group="autoscaling", name=workload.metadata.name, errors=[wrong])
    metadata = replace(
        workload.metadata,
        resource_version=meta.resource_version or workload.metadata.resource_version,
        uid=meta.uid or workload.metadata.uid,
    )
    return replace(workload, metadata=metadata, spec=replace(workload.spec, replicas=replicas))


def _sparse(document: Mapping[str, Any]) -> dict[str, Any]:
    spec = document.get("spec")
    said = isinstance(spec, Mapping) and spec.get("replicas") is not None
    return {"spec": {"replicas": _decoded(document).spec.replicas}} if said else {}


def _decoded(document: Mapping[str, Any]) -> Scale:
    """Raises: BadRequest."""
    version, kind = document.get("apiVersion") or API_VERSION, document.get("kind") or KIND
    if version != API_VERSION:
        expected = f"does not match the expected API version ({API_VERSION})"
        raise BadRequest(f"the API version in the data ({version}) {expected}")
    if kind != KIND:
        raise BadRequest(
            f'{kind} in version "v1" cannot be handled as a {KIND}: '
            f"the kind in the data ({kind}) does not match the expected kind ({KIND})"
        )
    checked, _warnings = codec.checked_document(Scale, dict(document), api_version=API_VERSION, strictness="Ignore")
    return codec.decode_value(Scale, checked)


SCALE = Projection(
    group="autoscaling", version="v1", kind=KIND, type=Scale, read=_read, show=shown, write=_write, sparse=_sparse
)
