"""A small cluster in the store, written the way claims and agents would, for the tests of the device pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, cast

from django.contrib.auth.models import Group, User
from django.test import Client
from msgspec import structs

from claims.kinds.pods import Pod, PodStatus
from claims.kinds.resource_claims import ResourceClaim
from manciple.store import objects
from manciple.wire.base import ApiObject
from manciple.wire.identity import VIEWERS
from manciple.wire.registry import registry
from tests.builders import make_allocation, make_claim, make_consumer, make_device, make_pod, make_result, make_slice

#: When the claims of this scene got their devices.
SINCE = "2026-11-20T12:00:00Z"
DRIVER = "gpu.example.com"

ObjectT = TypeVar("ObjectT", bound=ApiObject)


def publish(node: str = "node-1", *, model: str = "A100", count: int = 2, **fields: Any) -> None:
    """`count` GPUs of a node."""
    devices = fields.pop("devices", None) or [
        make_device(
            f"gpu-{index}",
            attributes={"index": index, "model": model, "uuid": f"GPU-{node}-{index}"},
            capacity={"memory": "80Gi"},
        )
        for index in range(count)
    ]
    put(make_slice(node=node, devices=devices, **fields))


def hold(
    claim: str = "training", *devices: str, namespace: str = "lab", node: str = "node-1", pods: Iterable[Pod | str] = ()
) -> ResourceClaim:
    """Give devices (gpu-0 where none is named) to a claim that `pods` use."""
    results = [make_result(device, pool=node) for device in devices or ("gpu-0",)]
    allocation = structs.replace(make_allocation(*results), allocation_timestamp=SINCE)
    return put(
        make_claim(claim, namespace=namespace, allocation=allocation, reserved_for=[make_consumer(pod) for pod in pods])
    )


def run(name: str = "web", *, namespace: str = "lab", phase: str = "Running", **spec: Any) -> Pod:
    """A pod on node-1."""
    return put(
        structs.replace(make_pod(name, namespace=namespace, node="node-1", **spec), status=PodStatus(phase=phase))
    )


def put(obj: ObjectT) -> ObjectT:
    """Create an object, or replace it whatever happened to it since."""
    obj = structs.replace(obj, metadata=structs.replace(obj.metadata, resource_version=""))
    kind = registry.find_kind(obj.api_version, obj.kind)
    assert kind is not None
    with objects.writing() as writer:
        known = writer.get(kind, obj.metadata.namespace, obj.metadata.name)
        return cast("ObjectT", (writer.create if known is None else writer.update)(kind, obj))


def remove(obj: ApiObject, *, grace_seconds: int = 0) -> None:
    kind = registry.find_kind(obj.api_version, obj.kind)
    assert kind is not None
    with objects.writing() as writer:
        writer.delete(kind, obj.metadata.namespace, obj.metadata.name, grace_seconds=grace_seconds)


def signed_in(name: str, *namespaces: str, staff: bool = False) -> Client:
    """A browser. namespaces: those that the person sees, all where none is given."""
    user = User.objects.create_user(name, is_staff=staff)
    names = [f"namespace:{one}" for one in namespaces] or [VIEWERS]
    user.groups.set([Group.objects.get_or_create(name=name)[0] for name in names])
    client = Client()
    client.force_login(user)
    return client
