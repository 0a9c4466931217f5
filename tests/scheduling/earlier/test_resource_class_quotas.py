"""Quotas for the claims of a ResourceClass: in KEP-3063, which names the keys, and for the drafts of both KEPs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from claims.quotas import recount
from inventory.kinds import gates
from tests.builders import NAMESPACE
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api
from tests.scheduling.cluster import Cluster
from tests.scheduling.earlier.structured_draft import (
    CLASS,
    DraftCluster,
    card,
    claim,
    example,
    named,
    node,
    node_slice,
    parameters,
    pod,
)
from tests.scheduling.test_feature_gates import restarted_with

__all__ = ["api"]

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
CLAIMS = "/apis/resource.k8s.io/v1alpha2/namespaces/default/resourceclaims"
DRAFT_CLAIMS = "/apis/cdi.k8s.io/v1alpha1/namespaces/default/resourceclaims"
OF_CLASS = f"{CLASS}.resourceclass.resource.k8s.io/resourceclaims"
IN_KEP_3063 = f"{CLASS}.resourceclass.node.k8s.io/resourceclaims"
OF_DRAFT = f"{CLASS}.resourceclass.cdi.k8s.io/resourceclaims"
HELD = f"manciple.dev/allocated.{CLASS}"


@pytest.fixture(params=["DRAControlPlaneController", "DRAStructuredParametersDraft"])
def classic(request: pytest.FixtureRequest, api: Api) -> Iterator[Api]:
    with gates.using(**{request.param: True}):
        yield api


@pytest.fixture
def draft(api: Api, cluster: Cluster) -> Iterator[DraftCluster]:
    with restarted_with(cluster, DRAStructuredParametersDraft=True):
        yield DraftCluster(cluster, api)


def limit(api: Api, hard: Mapping[str, str], name: str = "most") -> None:
    api.made(QUOTAS, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard}})


def used(api: Api, name: str = "most") -> dict[str, str]:
    assert recount(NAMESPACE) == 0, "the status and a recount agree"
    found: dict[str, str] = api.get(f"{QUOTAS}/{name}").json["status"]["used"]
    return found


@pytest.mark.parametrize("key", [OF_CLASS, IN_KEP_3063, "resourceclaims"])
def test_claims_of_a_class_count_and_are_refused_beyond_the_quota(classic: Api, key: str) -> None:
    limit(classic, {key: "2"})
    first = claim("first", params="")
    classic.made(CLAIMS, first)
    classic.made(CLAIMS, claim("other", params="", of_class="other"))
    counted = "2" if key == "resourceclaims" else "1"
    assert used(classic) == {key: counted}
    if counted == "1":
        classic.made(CLAIMS, claim("second", params=""))
    for path in (CLAIMS, f"{CLAIMS}?dryRun=All"):
        answer = classic.post(path, claim("third", params=""))
        assert (answer.code, answer.reason) == (403, "Forbidden")
        assert f"exceeded quota: most, requested: {key}=1, used: {key}=2, limited: {key}=2" in answer.message
    assert classic.post(f"{CLAIMS}?dryRun=All", claim("x", params="", of_class="o")).code == (
        403 if key == "resourceclaims" else 201
    )
    assert used(classic) == {key: "2"}
    assert classic.delete(f"{CLAIMS}/first").code == 200
    assert used(classic) == {key: "1"}
    assert classic.patch(f"{CLAIMS}/other", {"metadata": {"labels": {"a": "b"}}}).code == 200
    assert used(classic) == {key: "1"}


def test_a_quota_counts_the_claims_that_were_there_before_it(classic: Api) -> None:
    for name in ("first", "second"):
        classic.made(CLAIMS, claim(name, params=""))
    limit(classic, {OF_CLASS: "1", "resourceclaims": "5", HELD: "1"})
    assert used(classic) == {OF_CLASS: "2", "resourceclaims": "2", HELD: "0"}
    change = {"spec": {"hard": {IN_KEP_3063: "9"}}}
    assert classic.patch(f"{QUOTAS}/most", change).code == 200
    assert used(classic) == {OF_CLASS: "2", IN_KEP_3063: "2", "resourceclaims": "2", HELD: "0"}


def test_claims_of_the_current_form_count_as_claims_and_for_no_resource_class(classic: Api) -> None:
    limit(classic, {OF_CLASS: "1", "resourceclaims": "5"})
    request = {"name": "r", "exactly": {"deviceClassName": CLASS}}
    document = {"metadata": {"name": "now"}, "spec": {"devices": {"requests": [request]}}}
    classic.made(CLAIMS.replace("v1alpha2", "v1"), document)
    assert used(classic) == {OF_CLASS: "0", "resourceclaims": "1"}


def test_the_number_of_claims_has_no_second_name_while_there_are_no_resource_classes(api: Api) -> None:
    hard = {"resourceclaims": "1"}
    document = {"metadata": {"name": "most"}, "spec": {"hard": hard}}
    assert api.post(QUOTAS, document).code == 422
    with gates.using(DRAControlPlaneController=True):
        limit(api, hard)
    assert api.patch(f"{QUOTAS}/most", {"metadata": {"labels": {"a": "b"}}}).code == 200
    assert api.patch(f"{QUOTAS}/most", {"spec": {"hard": {"resourceclaims": "2"}}}).code == 422


def test_a_claim_of_a_template_is_made_when_the_quota_has_room(draft: DraftCluster) -> None:
    limit(draft.api, {OF_CLASS: "1"})
    template = named("ResourceClaimTemplate", "card", spec={"spec": {"resourceClassName": CLASS}})
    draft.apply(node(), node_slice(card("gpu-0"), card("gpu-1")), example()["ResourceClass"], template)
    for name in ("p", "q"):
        document = pod(name)
        document["spec"]["resourceClaims"] = [{"name": "c0", "resourceClaimTemplateName": "card"}]
        draft.apply(document)
    assert [bool(draft.node_of(name)) for name in ("p", "q")] == [True, False]
    (event,) = draft.cluster.events("FailedResourceClaimCreation")
    assert f"exceeded quota: most, requested: {OF_CLASS}=1" in event.message
    draft.delete("Pod", "p")
    draft.cluster.retry()
    assert draft.node_of("q")


def test_devices_that_structured_claims_hold_count_for_their_class(draft: DraftCluster) -> None:
    limit(draft.api, {HELD: "3"})
    cards = [card(f"gpu-{number}") for number in range(5)]
    draft.apply(node(), node_slice(*cards), example()["ResourceClass"], parameters("true", "true"))
    draft.apply(claim("first"), pod("p", "first"), claim("second"), pod("q", "second"))
    assert (draft.node_of("p"), draft.node_of("q")) == ("worker-1", "")
    assert used(draft.api) == {HELD: "2"}
    assert f"exceeded quota: most, requested: {HELD}=2, used: {HELD}=2, limited: {HELD}=3" in draft.why_pending("q")
    draft.delete("Pod", "p")
    draft.cluster.retry()
    assert draft.node_of("q") == "worker-1"
    assert used(draft.api) == {HELD: "2"}


def test_claims_of_cdi_k8s_io_count_for_their_class(api: Api) -> None:
    with gates.using(DRAControlPlaneController=True, DRAClaimsDraft=True):
        limit(api, {OF_DRAFT: "1", "count/resourceclaims.cdi.k8s.io": "9"})
        documents: list[dict[str, Any]] = [
            {"metadata": {"name": name}, "spec": {"resourceClassName": of_class}}
            for name, of_class in (("first", CLASS), ("other", "other"), ("second", CLASS))
        ]
        assert [api.post(DRAFT_CLAIMS, one).code for one in documents] == [201, 201, 403]
        assert used(api) == {OF_DRAFT: "1", "count/resourceclaims.cdi.k8s.io": "2"}
        assert api.delete(f"{DRAFT_CLAIMS}/first").code == 200
        assert api.post(DRAFT_CLAIMS, documents[2]).code == 201
