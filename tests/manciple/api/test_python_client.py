"""The official Python client against the API."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.manciple.api.server import ApiServer

#: Half typed: some of it says Optional where its own answers never are, the rest says nothing.
kubernetes: Any = importlib.import_module("kubernetes")
ApiException: Any = kubernetes.client.rest.ApiException


@pytest.fixture
def client(api_server: ApiServer) -> Iterator[Any]:
    with kubernetes.config.new_client_from_config(str(api_server.kubeconfig)) as made:
        yield made


def claim_of(name: str) -> Any:
    v1 = kubernetes.client
    exactly = v1.V1ExactDeviceRequest(device_class_name="gpu.example.com")
    request = v1.V1DeviceRequest(name="one", exactly=exactly)
    return v1.ResourceV1ResourceClaim(
        metadata=v1.V1ObjectMeta(name=name),
        spec=v1.V1ResourceClaimSpec(devices=v1.V1DeviceClaim(requests=[request])),
    )


def class_of(name: str) -> Any:
    v1 = kubernetes.client
    return v1.V1DeviceClass(metadata=v1.V1ObjectMeta(name=name), spec=v1.V1DeviceClassSpec())


def test_claims_are_created_read_changed_and_deleted(client: Any) -> None:
    api = kubernetes.client.ResourceV1Api(client)
    made = api.create_namespaced_resource_claim("default", claim_of("c"))
    made.metadata.labels = {"team": "red"}
    api.replace_namespaced_resource_claim("c", "default", made)
    api.patch_namespaced_resource_claim("c", "default", {"metadata": {"annotations": {"a": "b"}}})
    read = api.read_namespaced_resource_claim("c", "default")
    assert (read.metadata.labels, read.metadata.annotations) == ({"team": "red"}, {"a": "b"})
    assert [item.metadata.name for item in api.list_resource_claim_for_all_namespaces().items] == ["c"]
    deleted = api.delete_namespaced_resource_claim("c", "default")
    assert deleted.metadata.uid == read.metadata.uid
    with pytest.raises(ApiException, match="404"):
        api.read_namespaced_resource_claim("c", "default")


def test_a_conflict_is_told(client: Any) -> None:
    api = kubernetes.client.ResourceV1Api(client)
    made = api.create_namespaced_resource_claim("default", claim_of("c"))
    api.patch_namespaced_resource_claim("c", "default", {"metadata": {"labels": {"a": "b"}}})
    made.metadata.labels = {"a": "c"}
    with pytest.raises(ApiException, match="409"):
        api.replace_namespaced_resource_claim("c", "default", made)


def test_leases_are_renewed(client: Any) -> None:
    api = kubernetes.client.CoordinationV1Api(client)
    made = api.create_namespaced_lease(
        "kube-node-lease",
        kubernetes.client.V1Lease(
            metadata=kubernetes.client.V1ObjectMeta(name="n1"),
            spec=kubernetes.client.V1LeaseSpec(holder_identity="n1", lease_duration_seconds=40),
        ),
    )
    made.spec.lease_transitions = 1
    assert api.replace_namespaced_lease("n1", "kube-node-lease", made).spec.lease_transitions == 1
    deleted = api.delete_namespaced_lease("n1", "kube-node-lease")
    assert client.sanitize_for_serialization(deleted)["status"] == "Success"
    assert not api.list_namespaced_lease("kube-node-lease").items


def test_a_watch_follows_a_list_like_an_informer(client: Any) -> None:
    """List, then watch from the list's revision: what happens in between is seen."""
    api = kubernetes.client.ResourceV1Api(client)
    revision = api.list_device_class().metadata.resource_version
    api.create_device_class(class_of("early"))
    later = threading.Thread(target=api.create_device_class, args=(class_of("late"),))
    watch = kubernetes.watch.Watch()
    seen = []
    for event in watch.stream(api.list_device_class, resource_version=revision):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 1:
            later.start()
        if len(seen) == 2:
            watch.stop()
    later.join()
    assert seen == [("ADDED", "early"), ("ADDED", "late")]


def test_the_dynamic_client_finds_resources_by_discovery(client: Any) -> None:
    dynamic = kubernetes.dynamic.DynamicClient(client)
    classes = dynamic.resources.get(api_version="resource.k8s.io/v1", kind="DeviceClass")
    classes.create(body={"metadata": {"name": "gpu.example.com"}, "spec": {}})
    assert [item.metadata.name for item in classes.get().items] == ["gpu.example.com"]
