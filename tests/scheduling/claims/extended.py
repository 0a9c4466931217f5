"""What tests of extended resources have in common: pods that ask for some, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from claims.kinds.containers import Container
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.devices import DeviceClass
from tests.builders import (
    CLASS,
    make_class,
    make_container,
    make_devices,
    make_node,
    make_pod,
    make_slice,
)
from tests.scheduling.cluster import Cluster

GPU = "example.com/gpu"
IMPLICIT = f"deviceclass.resource.kubernetes.io/{CLASS}"
NODE = {"cpu": "8", "memory": "32Gi", "pods": "110"}


def class_for(gpu: str, **fields: str) -> DeviceClass:
    return make_class(extended_resource_name=GPU if gpu == GPU else None, **fields)


def asking(amounts: Mapping[str, int], name: str = "main", **fields: Any) -> Container:
    return make_container(name, limits={resource: str(amount) for resource, amount in amounts.items()}, **fields)


def pod_asking(name: str, *amounts: Mapping[str, int], init: Sequence[Container] = (), **spec: Any) -> Pod:
    """One container for each of `amounts`."""
    containers = [asking(one, f"c{at}") for at, one in enumerate(amounts)]
    return make_pod(name, containers=containers, init_containers=tuple(init), **spec)


def with_nodes(cluster: Cluster, *nodes: str, each: int = 4) -> None:
    for node in nodes or ("node-1",):
        cluster.create(make_node(node))
        cluster.create(make_slice(node=node, devices=make_devices(each)))


def special_claim(cluster: Cluster, pod: str) -> ResourceClaim:
    status = cluster.pod(pod).status.extended_resource_claim_status
    assert status is not None
    return cluster.claim(status.resource_claim_name)


def mappings(cluster: Cluster, pod: str) -> list[tuple[str, str, str]]:
    status = cluster.pod(pod).status.extended_resource_claim_status
    assert status is not None
    return [(one.container_name, one.resource_name, one.request_name) for one in status.request_mappings]


def requests(claim: ResourceClaim) -> list[tuple[str, str, int]]:
    found = [(one.name, one.exactly) for one in claim.spec.devices.requests]
    return [(name, exactly.device_class_name, exactly.count) for name, exactly in found if exactly is not None]
