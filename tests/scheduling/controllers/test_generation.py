"""The claim that a pod gets from a template."""

from __future__ import annotations

import pytest
from msgspec import structs

from claims.kinds.resource_claims import ResourceClaim
from claims.pod_claims import claim_for
from manciple.wire.base import OwnerReference
from manciple.wire.validation import claim_generate_name
from tests.builders import make_claim_spec, make_pod, make_template, stored
from tests.scheduling.cluster import Cluster

NAMES = {
    "short names stand whole": ("web", "gpu", "web-gpu-"),
    "57 characters are not too long": ("p" * 30, "c" * 25, f"{'p' * 30}-{'c' * 25}-"),
    "58 are: both lose their ends in proportion": ("p" * 30, "c" * 26, f"{'p' * 29}-{'c' * 25}"),
    "a long pod name leaves the entry readable": ("p" * 200, "gpu", f"{'p' * 55}-"),
}


@pytest.mark.parametrize("phrase", NAMES)
def test_name(phrase: str) -> None:
    pod, entry, expected = NAMES[phrase]
    assert claim_generate_name(pod, entry) == expected


def test_the_claim_takes_the_templates_spec_labels_and_annotations_and_belongs_to_the_pod() -> None:
    template = make_template(claim_meta={"labels": {"team": "a"}, "annotations": {"note": "x"}})
    pod = stored(make_pod("web", templates={"gpu": "template"}))
    claim = claim_for(pod, pod.spec.resource_claims[0], template)
    assert claim.spec == make_claim_spec()
    assert claim.metadata.labels == {"team": "a"}
    assert claim.metadata.annotations == {"note": "x", "resource.kubernetes.io/pod-claim-name": "gpu"}
    assert claim.metadata.owner_references == (
        OwnerReference(
            api_version="v1",
            kind="Pod",
            name="web",
            uid=pod.metadata.uid,
            controller=True,
        ),
    )


def test_a_deleted_claim_is_made_again_for_a_pod_that_still_waits(cluster: Cluster) -> None:
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.settle()
    first = cluster.generated_claim("web")
    cluster.delete(first)
    cluster.settle()
    assert cluster.generated_claim("web").metadata.uid != first.metadata.uid


def test_a_pod_with_several_entries_gets_a_claim_for_each(cluster: Cluster) -> None:
    cluster.with_gpus(each=4)
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"left": "one-gpu", "right": "one-gpu"}))
    cluster.settle()
    assert cluster.devices(cluster.generated_claim("web", "left")) == ["node-1/gpu-0"]
    assert cluster.devices(cluster.generated_claim("web", "right")) == ["node-1/gpu-1"]
    assert len(cluster.all(ResourceClaim)) == 2


def test_a_pod_deleted_before_its_claims_were_made_gets_none(cluster: Cluster) -> None:
    cluster.create(make_template("one-gpu"))
    cluster.delete(cluster.create(make_pod("web", templates={"gpu": "one-gpu"})))
    cluster.settle()
    assert cluster.all(ResourceClaim) == []


#: (namespace, whether it names the pod as its controller)
BAIT: dict[str, tuple[str, bool | None]] = {
    "in another namespace": ("mallory", True),
    "of a pod that is not its controller": ("default", None),
}


@pytest.mark.parametrize("phrase", BAIT)
def test_a_claim_that_only_says_it_was_made_for_a_pod_is_not_taken(cluster: Cluster, phrase: str) -> None:
    """Else a stranger who knows the pod's uid could choose the pod's claim."""
    namespace, controls = BAIT[phrase]
    pod = cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    made = claim_for(pod, pod.spec.resource_claims[0], make_template("one-gpu"))
    owner = structs.replace(made.metadata.owner_references[0], controller=controls)
    metadata = structs.replace(made.metadata, name="bait", namespace=namespace, owner_references=(owner,))
    cluster.create(structs.replace(made, metadata=metadata))
    cluster.create(make_template("one-gpu"))
    cluster.settle()
    assert cluster.generated_claim("web").metadata.name != "bait"
