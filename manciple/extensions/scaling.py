"""The scale of a custom resource: an autoscaling/v1 Scale made of the object, and written back into it. PURE.

Source: apiextensions-apiserver/pkg/registry/customresource/{etcd,validator}.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from manciple.extensions.definitions import CustomResourceSubresourceScale
from manciple.wire.base import ObjectMeta, OpenObject
from manciple.wire.codec import decode_value, to_builtins
from manciple.wire.errors import ApiError, BadRequest, FieldError, invalid
from manciple.wire.registry import Projection

_GREATEST = 2**31 - 1
#: What a patch finds where the object has no replicas: it may replace the number, but not leave it.
_UNSET = -(2**31)
_METADATA = ("name", "namespace", "uid", "resource_version", "creation_timestamp")


def scale_projection(scale: CustomResourceSubresourceScale) -> Projection:
    replicas_path = scale.spec_replicas_path

    def read(obj: OpenObject) -> dict[str, Any]:
        if _at(obj.content, replicas_path) is None:
            why = f'the spec replicas field "{replicas_path}" does not exist'
            raise ApiError(f"Internal error occurred: {why}", details={"causes": [{"message": why}]})
        return to_builtins(show(obj))

    def show(obj: OpenObject) -> OpenObject:
        metadata = {name: getattr(obj.metadata, name) for name in _METADATA}
        wanted = _number(obj.content, replicas_path)
        status: dict[str, Any] = {"replicas": _number(obj.content, scale.status_replicas_path) or 0}
        selector = _at(obj.content, scale.label_selector_path) if scale.label_selector_path else None
        if isinstance(selector, str) and selector:
            status["selector"] = selector
        content = {"spec": {"replicas": wanted} if wanted else {}, "status": status}
        return OpenObject(api_version="autoscaling/v1", kind="Scale", metadata=ObjectMeta(**metadata), content=content)

    def write(obj: OpenObject, change: Callable[[dict[str, Any]], dict[str, Any]]) -> OpenObject:
        shown = to_builtins(show(obj))
        if _at(obj.content, replicas_path) is None:
            shown["spec"]["replicas"] = _UNSET
        document = change(shown)
        replicas = _wanted(document)
        if replicas == _UNSET:
            raise BadRequest(f'the spec replicas field "{replicas_path}" cannot be empty')
        content = _with(obj.content, _steps(replicas_path), replicas)
        asked = decode_value(ObjectMeta, document.get("metadata") or {})
        metadata = structs.replace(
            obj.metadata,
            resource_version=asked.resource_version or obj.metadata.resource_version,
            uid=asked.uid or obj.metadata.uid,
        )
        return structs.replace(obj, metadata=metadata, content=content)

    def sparse(document: Mapping[str, Any]) -> dict[str, Any]:
        if document.get("apiVersion") != "autoscaling/v1" or document.get("kind") != "Scale":
            raise BadRequest("error decoding patch: it applies no Scale of autoscaling/v1")
        spec = document.get("spec")
        if not isinstance(spec, Mapping) or spec.get("replicas") is None:
            raise BadRequest("error decoding patch: spec.replicas of the Scale is not set")
        return _with({}, _steps(replicas_path), _wanted(document))

    return Projection(group="autoscaling", version="v1", kind="Scale", read=read, show=show, write=write, sparse=sparse)


def _wanted(document: Mapping[str, Any]) -> int:
    """Raises: BadRequest."""
    kind, version = document.get("kind", ""), document.get("apiVersion", "")
    if (kind and kind != "Scale") or (version and version != "autoscaling/v1"):
        raise BadRequest(f'{kind} in version "{version}" cannot be handled as a Scale of autoscaling/v1')
    spec = document.get("spec") or {}
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not -(2**31) <= replicas <= _GREATEST:
        raise BadRequest("json: cannot unmarshal into field spec.replicas of type int32")
    return replicas


def validate_scale(scale: CustomResourceSubresourceScale | None, document: Mapping[str, Any]) -> list[FieldError]:
    """The numbers that the scale shows are such."""
    if scale is None:
        return []
    found: list[FieldError] = []
    for path in (scale.spec_replicas_path, scale.status_replicas_path):
        value = _at(document, path)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            shown = f"{path} accessor error: {value} is of the type {type(value).__name__}, expected int64"
            found.append(invalid(path, 0, shown))
        elif value < 0:
            found.append(invalid(path, value, "should be a non-negative integer"))
        elif value > _GREATEST:
            found.append(invalid(path, value, f"should be less than or equal to {_GREATEST}"))
    selector = _at(document, scale.label_selector_path) if scale.label_selector_path else None
    if selector is not None and not isinstance(selector, str):
        found.append(invalid(scale.label_selector_path or "", "", "accessor error: expected string"))
    return found


def _steps(path: str) -> list[str]:
    return path.removeprefix(".").split(".")


def _at(document: Any, path: str) -> Any:
    for step in _steps(path):
        if not isinstance(document, Mapping) or step not in document:
            return None
        document = document[step]
    return document


def _number(document: Mapping[str, Any], path: str) -> int | None:
    value = _at(document, path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _with(content: Mapping[str, Any], steps: list[str], value: Any) -> dict[str, Any]:
    first, *rest = steps
    below = content.get(first)
    return {**content, first: _with(below if isinstance(below, dict) else {}, rest, value) if rest else value}
