"""A waiting pod is offered what would start it, sees the difference, and is made anew with one button."""

from __future__ import annotations

import pytest
from django.test import Client
from msgspec import structs

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from manciple.store.event_log import latest_revision
from manciple.wire.base import OwnerReference
from tests.builders import make_claim, make_pod, make_request, make_template
from tests.dashboard import texts
from tests.dashboard.browsing import admin, said, signed_in, words
from tests.scheduling.cluster import Cluster

__all__ = ["admin"]

PATH = "/pods/default/web"
FEWER = f"{PATH}/replace?count.gpu/gpu=2"


@pytest.fixture
def waiting(cluster: Cluster) -> Cluster:
    """A pod that wants four devices where no node has more than two."""
    cluster.with_gpus("node-1", "node-2", each=2)
    cluster.create(make_template("four", requests=[make_request(count=4)]))
    cluster.create(make_pod("web", templates={"gpu": "four"}))
    cluster.settle()
    return cluster


def _sent(client: Client, cluster: Cluster, path: str = FEWER) -> object:
    return client.post(path, {"uid": cluster.pod("web").metadata.uid})


def test_the_page_offers_what_starts_it_and_shows_the_difference_first(waiting: Cluster, admin: Client) -> None:
    revision = latest_revision()
    assert texts.OFFER_FEWER_DEVICES("2 devices", "node-1", 2) in words(admin, PATH)
    assert f'href="{FEWER}"' in admin.get(PATH).content.decode()
    shown = words(admin, FEWER)
    assert "count: 4" in shown
    assert "count: 2" in shown
    assert texts.CLAIM_REPLACED("four") in shown
    assert "It starts on node-" in shown
    assert latest_revision() == revision


def test_who_may_not_change_it_is_offered_the_rehearsal_alone(waiting: Cluster) -> None:
    looker = signed_in("looker")
    shown = looker.get(PATH).content.decode()
    assert texts.REHEARSE_FEWER_DEVICES("2 devices") in shown
    assert "/replace?" not in shown
    assert looker.get(FEWER).status_code == 403


def test_one_button_replaces_pod_and_template(waiting: Cluster, admin: Client) -> None:
    old = waiting.pod("web")
    answer = _sent(admin, waiting)
    assert getattr(answer, "status_code", 0) == 302
    new, template = waiting.pod("web"), waiting.get(ResourceClaimTemplate, "four")
    assert new.metadata.uid != old.metadata.uid
    assert template.spec.spec.devices.requests[0].exactly.count == 2  # type: ignore[union-attr]
    waiting.settle()
    assert waiting.pod("web").spec.node_name
    assert [len(waiting.devices(one)) for one in waiting.all(ResourceClaim)] == [2]
    assert waiting.violations() == {}


def test_a_template_that_others_name_stays_and_the_next_pod_uses_what_was_made(waiting: Cluster, admin: Client) -> None:
    waiting.create(make_pod("other", templates={"gpu": "four"}))
    waiting.settle()
    assert texts.CLAIM_MADE_BESIDE("four-2", "four", "other") in words(admin, FEWER)
    _sent(admin, waiting)
    assert waiting.pod("web").spec.resource_claims[0].resource_claim_template_name == "four-2"
    assert waiting.get(ResourceClaimTemplate, "four").spec.spec.devices.requests[0].exactly.count == 4  # type: ignore[union-attr]
    other = FEWER.replace("web", "other")
    assert texts.CLAIM_EXISTS_ALREADY("four-2") in words(admin, other)


def test_a_claim_that_the_pod_names_is_made_under_another_name(cluster: Cluster, admin: Client) -> None:
    cluster.with_gpus("node-1", each=2)
    cluster.create(make_claim("ours", requests=[make_request(count=3, expressions=["true", "false"])]))
    cluster.create(make_pod("web", claims={"gpu": "ours"}))
    cluster.settle()
    _sent(admin, cluster, f"{PATH}/replace?count.gpu/gpu=2&without=gpu/gpu:2")
    assert cluster.pod("web").spec.resource_claims[0].resource_claim_name == "ours-2"
    exactly = cluster.claim("ours-2").spec.devices.requests[0].exactly
    assert exactly is not None
    assert (exactly.count, [one.cel.expression for one in exactly.selectors if one.cel]) == (2, ["true"])
    assert cluster.claim("ours").spec.devices.requests[0].exactly.count == 3  # type: ignore[union-attr]


def test_what_is_refused_or_another_pod_by_then_loses_nothing(waiting: Cluster, admin: Client) -> None:
    refused = f"{PATH}/replace?class.gpu/gpu=Not_a_name"
    assert admin.get(refused).context["preview"].effect.refused
    before = waiting.pod("web")
    assert getattr(_sent(admin, waiting, refused), "status_code", 0) == 409
    answer = admin.post(FEWER, {"uid": "another"})
    assert answer.status_code == 409
    assert texts.POD_NAME_TAKEN_MEANWHILE("web") in said(answer.content.decode())
    assert waiting.all(Pod) == [before]
    assert waiting.find(ResourceClaimTemplate, "four") is not None


def test_what_runs_or_belongs_to_somebody_is_not_replaced(waiting: Cluster, admin: Client) -> None:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="1", controller=True)
    pod = waiting.pod("web")
    waiting.update(structs.replace(pod, metadata=structs.replace(pod.metadata, owner_references=(owner,))))
    assert texts.POD_OF_A_CONTROLLER("Job train") in words(admin, FEWER)
    answer = _sent(admin, waiting)
    assert "Job train" in said(getattr(answer, "content", b"").decode())
