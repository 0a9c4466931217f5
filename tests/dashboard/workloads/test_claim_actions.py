"""What changes claims and templates from their pages: deletion and forced release, each after a preview."""

from __future__ import annotations

import pytest
from django.test import Client

from claims.kinds.resource_claims import ResourceClaim
from tests.builders import make_claim, make_namespace, make_pod, make_taint_rule, make_template
from tests.dashboard import texts
from tests.dashboard.browsing import plain, signed_in, words
from tests.dashboard.claim_scene import is_held_by_a_finalizer, later, pages, runs, starts
from tests.scheduling.cluster import Cluster, with_spec

__all__ = ["later", "pages"]


# Deleting ------------------------------------------------------------------------------------------------------------


def test_deleting_says_first_what_it_would_do(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    uid = runs(cluster, "web", count=2).metadata.uid
    text = words(pages, "/claims/default/web/delete")
    assert texts.DELETED_LATER in text
    assert texts.HELD_UNTIL_DELETED("2 devices node-1/gpu-0, node-1/gpu-1") in text
    assert texts.CLAIM_IN_USE("web") in text
    assert cluster.claim("web").metadata.deletion_timestamp is None
    answer = pages.post("/claims/default/web/delete", {"uid": uid}, follow=True)
    assert texts.CLAIM_BEING_DELETED("web") in answer.content.decode()
    assert cluster.claim("web").metadata.deletion_timestamp is not None


def test_a_claim_that_nobody_uses_goes_at_once_unless_it_is_another_by_then(pages: Client, cluster: Cluster) -> None:
    uid = cluster.create(make_claim("spare")).metadata.uid
    assert texts.HOLDS_NO_DEVICE in words(pages, "/claims/default/spare/delete")
    answer = pages.post("/claims/default/spare/delete", {"uid": "0000-other"})
    assert answer.status_code == 409
    assert 'class="says error"' in answer.content.decode()
    assert cluster.find(ResourceClaim, "spare") is not None
    assert pages.post("/claims/default/spare/delete", {"uid": uid}).headers["Location"] == "/claims"
    assert cluster.find(ResourceClaim, "spare") is None


# Forced release ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("later")
def test_a_stuck_claim_can_be_released_by_force(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    uid = runs(cluster, "web", count=2).metadata.uid
    cluster.delete(cluster.pod("web"))
    claim = cluster.claim("web")
    assert claim.status.reserved_for, "nobody ran the claim controller yet"
    text = words(pages, "/claims/default/web/release")
    assert texts.RELEASES_WITHOUT_NODE("web", "node-1") in text
    assert texts.ALL_FREE_AT_ONCE("2 devices node-1/gpu-0, node-1/gpu-1") in text
    assert texts.RESERVATION_REMOVED("web") in text
    assert "resource.kubernetes.io/delete-protection" in text
    assert texts.NODE_MAY_STILL_USE_IT("node-1") in text
    assert cluster.claim("web").status.allocation is not None
    answer = pages.post("/claims/default/web/release", {"uid": uid}, follow=True)
    assert texts.RELEASED_BY_FORCE("web") in answer.content.decode()
    claim = cluster.claim("web")
    assert (claim.status.allocation, claim.status.reserved_for, claim.metadata.finalizers) == (None, (), ())
    runs(cluster, "next", count=2)
    assert cluster.devices(cluster.claim("next")) == ["node-1/gpu-0", "node-1/gpu-1"]


def test_a_deleted_claim_that_is_released_by_force_goes(pages: Client, cluster: Cluster) -> None:
    made = is_held_by_a_finalizer(cluster, "web")
    assert texts.FINALIZER_REMOVED_AND_CLAIM_GONE("example.org/report") in words(pages, "/claims/default/web/release")
    assert texts.WITHOUT_FINALIZERS_OWNER("example.org/report") in words(pages, "/claims/default/web/release")
    answer = pages.post("/claims/default/web/release", {"uid": made.metadata.uid}, follow=True)
    assert texts.REMOVED_BY_FORCE in answer.content.decode()
    assert cluster.find(ResourceClaim, "web") is None


def test_a_claim_in_use_is_not_released_by_force(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    runs(cluster, "web")
    starts(cluster, "web")
    refused = pages.get("/claims/default/web/release").context["preview"].effect.refused
    assert refused
    assert plain(refused) in words(pages, "/claims/default/web/release")
    assert pages.post("/claims/default/web/release").status_code == 409
    assert cluster.claim("web").status.allocation is not None


# Templates -----------------------------------------------------------------------------------------------------------


def test_a_template_shows_who_uses_it_and_what_was_made(pages: Client, cluster: Cluster) -> None:
    cluster.create(make_namespace())
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_template("one-gpu"))
    for name in ("first", "second"):
        cluster.create(make_pod(name, templates={"gpu": "one-gpu"}))
        cluster.settle()
    assert "gpu.example.com 2 2 1 1" in words(pages, "/templates")
    text = words(pages, "/templates/default/one-gpu")
    assert "2 pods use it" in text
    assert "1 claim waits" in text
    assert cluster.generated_claim("second").metadata.name in text
    claim = cluster.generated_claim("first").metadata.name
    assert "template one-gpu" in words(pages, f"/claims/default/{claim}")
    assert texts.CREATED_FOR_POD("first") in words(pages, f"/claims/default/{claim}")


def test_a_template_is_deleted_after_a_preview(pages: Client, cluster: Cluster) -> None:
    cluster.create(make_namespace())
    uid = cluster.create(make_template("one-gpu")).metadata.uid
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    cluster.settle()
    cluster.create(make_pod("late", templates={"gpu": "one-gpu"}))
    text = words(pages, "/templates/default/one-gpu/delete")
    assert texts.TEMPLATES_CLAIMS_STAY("1 claim") in text
    assert texts.WAITS_FOR_TEMPLATE("late") in text
    assert signed_in("vera").post("/templates/default/one-gpu/delete").status_code == 403
    assert pages.post("/templates/default/one-gpu/delete", {"uid": uid}).headers["Location"] == "/templates"
    assert pages.get("/templates/default/one-gpu").status_code == 404


@pytest.mark.usefixtures("later")
def test_what_is_tainted_or_unpublished_is_not_called_free(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=3)
    runs(cluster, "web", count=3)
    cluster.delete(cluster.pod("web"))
    cluster.create(make_taint_rule("repair", device="gpu-1"))
    known = cluster.slice()
    cluster.update(with_spec(known, devices=known.spec.devices[:2]))
    text = words(pages, "/claims/default/web/release")
    assert " 3 devices node-1/gpu-0 " in text
    assert texts.NOT_FREE_AS_TAINTED("node-1/gpu-1") in text
    assert texts.NOT_FREE_AS_UNPUBLISHED("node-1/gpu-2") in text
    cordoned = cluster.update(with_spec(cluster.node(), unschedulable=True))
    assert texts.NOT_FREE_AS_CLOSED("node-1/gpu-0") in words(pages, "/claims/default/web/release")
    cluster.update(with_spec(cordoned, unschedulable=False))
    cluster.create(make_taint_rule("more", device="gpu-0"))
    assert texts.NOT_FREE_AS_ALL_TAINTED("node-1/gpu-0, node-1/gpu-1") in words(pages, "/claims/default/web/release")
    cluster.settle()
