"""Pods and their claims, from creation to release. Tests that carry a name of Kubernetes' e2e suite say so by it."""

from __future__ import annotations

from claims.kinds.resource_claims import ResourceClaim
from tests.builders import make_claim, make_class, make_node, make_pod, make_request, make_slice, make_template
from tests.scheduling.cluster import Cluster


def test_simple_pod_referencing_inline_claim(cluster: Cluster) -> None:
    cluster.with_gpus()
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.settle()

    claim = cluster.generated_claim("web")
    assert cluster.pod("web").spec.node_name == "node-1"
    assert cluster.devices(claim) == ["node-1/gpu-0"]
    assert [consumer.uid for consumer in claim.status.reserved_for] == [cluster.pod("web").metadata.uid]
    assert claim.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)
    assert [event.message for event in cluster.events("Scheduled")] == [
        "Successfully assigned default/web to node-1"
    ]
