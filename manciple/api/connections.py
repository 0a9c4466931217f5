"""Subresources that are posted to and do something else than replace a part of the object: binding and eviction.

Each is a function from the request to the Status that answers it. Pods are handled as documents here: their types
belong to a floor above.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Protocol

from manciple.api import requests, writes
from manciple.api.answers import success
from manciple.api.discovery import CONNECTIONS
from manciple.api.requests import ResourcePath, WriteOptions
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.base import ApiObject, timestamp
from manciple.wire.errors import Conflict, Invalid, NotFound, not_supported, required
from manciple.wire.identity import Identity
from manciple.wire.machinery import Binding, Eviction
from manciple.wire.registry import Kind, Served


class Connection(Protocol):
    """What POST on such a subresource does."""

    def __call__(
        self,
        kind: Kind,
        where: ResourcePath,
        body: bytes,
        /,
        *,
        content_type: str,
        identity: Identity,
        options: WriteOptions,
    ) -> dict[str, Any]: ...


def find(kind: Kind, subresource: str) -> Connection | None:
    """What is connected to at `subresource` of `kind`; None where it is an ordinary one, or none."""
    lines = CONNECTIONS.get((kind.group, kind.version, kind.plural), ())
    known = any(line.name == f"{kind.plural}/{subresource}" for line in lines)
    return _CONNECTIONS[subresource] if known else None


def bind(
    kind: Kind,
    where: ResourcePath,
    body: bytes,
    *,
    content_type: str,
    identity: Identity,
    options: WriteOptions,
) -> dict[str, Any]:
    """Give a waiting pod its node, and say so in its PodScheduled condition (upstream: pod/storage BindingREST).

    Raises: NotFound; Conflict for a pod that has a node, is being deleted or is held by scheduling gates; Invalid.
    """
    binding = _decoded(Binding, "", body, content_type=content_type, options=options)
    _check_target(binding)

    def work(writer: objects.Writer) -> None:
        pod = writer.get(kind, where.namespace, where.name)
        if pod is None:
            raise NotFound.of(kind.resource, where.name)
        document = codec.to_builtins(pod)
        _check_bindable(kind, where.name, document, binding)
        now = timestamp(datetime.now(UTC))
        bound = _bound(document, binding, now=now)
        writer.update(kind, codec.decode_value(kind.type, bound), subresource="binding")

    reads = [objects.Read(kind, where.namespace, where.name)]
    objects.write(work, identity=identity, reads=reads, dry_run=options.dry_run)
    return success(code=201)


def evict(
    kind: Kind, where: ResourcePath, body: bytes, *, content_type: str, identity: Identity, options: WriteOptions
) -> dict[str, Any]:
    """Delete a pod on behalf of `kubectl drain`; there are no disruption budgets to ask."""
    eviction = _decoded(Eviction, "policy", body, content_type=content_type, options=options)
    writes.delete(kind, namespace=where.namespace, name=where.name, identity=identity, options=eviction.delete_options)
    return success(code=201)


_CONNECTIONS: dict[str, Connection] = {"binding": bind, "eviction": evict}


def _decoded(type_: type[ApiObject], group: str, body: bytes, *, content_type: str, options: WriteOptions) -> Any:
    kind = requests.virtual_kind(type_, group=group)
    served = Served(kind, kind.version)
    return requests.decode_object(served, body, content_type=content_type, strictness=options.strictness).object


def _check_target(binding: Binding) -> None:
    target = binding.target
    wrong = []
    if target.kind not in ("", "Node"):
        wrong.append(not_supported("target.kind", target.kind, ("Node", "<empty>")))
    if not target.name:
        wrong.append(required("target.name"))
    if wrong:
        raise Invalid.of(kind="Binding", group="", name=binding.metadata.name, errors=wrong)


def _check_bindable(kind: Kind, name: str, pod: dict[str, Any], binding: Binding) -> None:
    metadata, spec = pod["metadata"], pod.get("spec", {})
    wanted = binding.metadata
    if wanted.uid and wanted.uid != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {wanted.uid}, UID in object meta: {metadata['uid']}"
        raise Conflict.of(kind.resource, name, why)
    if wanted.resource_version and wanted.resource_version != metadata["resourceVersion"]:
        raise Conflict.of(kind.resource, name)
    if metadata.get("deletionTimestamp"):
        raise Conflict.of("pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise Conflict.of("pods/binding", name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise Conflict.of("pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")


def _bound(pod: dict[str, Any], binding: Binding, *, now: str) -> dict[str, Any]:
    """The pod's document on its node."""
    metadata, status = dict(pod["metadata"]), dict(pod.get("status", {}))
    if binding.metadata.annotations:
        metadata["annotations"] = {**metadata.get("annotations", {}), **binding.metadata.annotations}
    others = [condition for condition in status.get("conditions", ()) if condition["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    status["conditions"] = [*others, scheduled]
    spec = {**pod.get("spec", {}), "nodeName": binding.target.name}
    return {**pod, "metadata": metadata, "spec": spec, "status": status}
