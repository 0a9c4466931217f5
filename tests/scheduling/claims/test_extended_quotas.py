"""Devices by the name of an extended resource, by the name of their class, and by claims: quotas count them alike.

The figures are those of a control plane of 1.36, and of the example of KEP-5004.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from claims import quotas
from claims.kinds.pods import Pod, PodExtendedResourceClaimStatus
from claims.kinds.quotas import ResourceQuota
from claims.kinds.resource_claims import EXTENDED_CLAIM_ANNOTATION
from manciple.wire.base import ApiObject, OwnerReference
from manciple.wire.errors import Forbidden
from tests.builders import (
    CLASS,
    NAMESPACE,
    make_alternative,
    make_alternatives,
    make_claim,
    make_class,
    make_container,
    make_pod,
    make_quota,
    make_request,
)
from tests.scheduling.cluster import Cluster

CLAIMS = "count/resourceclaims.resource.k8s.io"
DEVICES = f"{CLASS}.deviceclass.resource.k8s.io/devices"
EXPLICIT, IMPLICIT = "requests.example.com/q", f"requests.deviceclass.resource.kubernetes.io/{CLASS}"


def refusal(cluster: Cluster, obj: ApiObject) -> str:
    with pytest.raises(Forbidden) as caught:
        cluster.create(obj)
    return caught.value.message


def ask_for(cluster: Cluster, name: str, resource: str, count: int) -> Pod:
    """A pod that names `resource` in its limits, and the claim that the scheduler makes for that."""
    limits = {resource: str(count)}
    pod = cluster.create(make_pod(name, containers=[make_container(limits=limits, requests=limits)]))
    owner = OwnerReference(api_version="v1", kind="Pod", name=name, uid=pod.metadata.uid, controller=True)
    meta: dict[str, Any] = {"annotations": {EXTENDED_CLAIM_ANNOTATION: "true"}, "owner_references": (owner,)}
    cluster.create(make_claim(f"{name}-extended", requests=[make_request(count=count)], **meta))
    told = PodExtendedResourceClaimStatus(resource_claim_name=f"{name}-extended")
    return cluster.update(structs.replace(pod, status=structs.replace(pod.status, extended_resource_claim_status=told)))


def three_counts(cluster: Cluster) -> tuple[str, str, str]:
    """Explicit, implicit, class."""
    told = cluster.get(ResourceQuota, "most").status.used
    assert quotas.recount(NAMESPACE) == 0
    return told[EXPLICIT], told[IMPLICIT], told[DEVICES]


def test_pods_and_claims_count_the_same_devices_under_three_names(cluster: Cluster) -> None:
    cluster.create(make_class(extended_resource_name="example.com/q"))
    cluster.create(make_quota({EXPLICIT: "5", IMPLICIT: "4", DEVICES: "6", CLAIMS: "10", "pods": "9"}))
    p1 = ask_for(cluster, "p1", "example.com/q", 2)
    assert three_counts(cluster) == ("2", "2", "2")
    ask_for(cluster, "p2", IMPLICIT.removeprefix("requests."), 1)
    assert three_counts(cluster) == ("3", "3", "3")
    claim = cluster.create(make_claim("cl"))
    assert three_counts(cluster) == ("4", "4", "4")
    four = {"example.com/q": "4"}
    assert refusal(cluster, make_pod("p3", containers=[make_container(limits=four, requests=four)])) == (
        f'pods "p3" is forbidden: exceeded quota: most, requested: {EXPLICIT}=4, used: {EXPLICIT}=4, '
        f"limited: {EXPLICIT}=5"
    )
    assert refusal(cluster, make_claim("cl2", requests=[make_request(all_devices=True)])) == (
        f'resourceclaims.resource.k8s.io "cl2" is forbidden: exceeded quota: most, '
        f"requested: {DEVICES}=32,{IMPLICIT}=32,{EXPLICIT}=32, used: {DEVICES}=4,{IMPLICIT}=4,{EXPLICIT}=4, "
        f"limited: {DEVICES}=6,{IMPLICIT}=4,{EXPLICIT}=5"
    )
    either = make_alternatives("r", make_alternative("a"), make_alternative("b", count=2))
    assert refusal(cluster, make_claim("cl3", requests=[either])) == (
        f'resourceclaims.resource.k8s.io "cl3" is forbidden: exceeded quota: most, '
        f"requested: {IMPLICIT}=2,{EXPLICIT}=2, used: {IMPLICIT}=4,{EXPLICIT}=4, limited: {IMPLICIT}=4,{EXPLICIT}=5"
    )
    # What the pod has counted for its claim, the claim counts for itself once the pod is gone.
    cluster.delete(p1)
    assert three_counts(cluster) == ("4", "4", "4")
    for gone in (cluster.claim("p1-extended"), claim):
        cluster.delete(gone)
    assert three_counts(cluster) == ("1", "1", "1")


def test_the_claim_of_a_pod_that_has_ended_counts_for_itself(cluster: Cluster) -> None:
    cluster.create(make_class(extended_resource_name="example.com/q"))
    cluster.create(make_quota({EXPLICIT: "9", IMPLICIT: "9", DEVICES: "9"}))
    ask_for(cluster, "p1", "example.com/q", 2)
    cluster.finish("p1")
    assert three_counts(cluster) == ("2", "2", "2")
    cluster.delete(cluster.claim("p1-extended"))
    assert three_counts(cluster) == ("0", "0", "0")


def test_the_example_of_kep_5004_comes_to_its_figures(cluster: Cluster) -> None:
    """With one name for its class, which the example's class and the keys of its quota spell in four ways."""
    cluster.create(make_class(extended_resource_name="example.com/q"))
    cluster.create(make_quota({EXPLICIT: "10", IMPLICIT: "10", DEVICES: "10"}))
    one = {"example.com/q": "1"}
    cluster.create(make_pod("gpu-0", containers=[make_container(limits=one, requests=one)]))  # of a device plugin
    ask_for(cluster, "gpu-1", "example.com/q", 1)
    ask_for(cluster, "gpu-2", IMPLICIT.removeprefix("requests."), 1)
    for name in ("gpu-3", "gpu-4"):
        cluster.create(make_claim(name))
    assert three_counts(cluster) == ("5", "4", "4")
