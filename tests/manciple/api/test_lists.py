"""Lists: selection, pages, revisions, shapes."""

from __future__ import annotations

from typing import Any

import pytest

from manciple.store import sql
from tests.manciple.api.requests import CLAIMS, METADATA_LIST, NAMESPACES, PODS, TABLE, Api, claim, namespace, pod


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer.json["items"]]


@pytest.fixture
def claims(api: Api) -> Api:
    for name, team in (("a", "red"), ("b", "blue"), ("c", "red")):
        api.made(CLAIMS, claim(name=name, labels={"team": team}))
    return api


def test_a_list_names_its_kind_and_revision(claims: Api) -> None:
    document = claims.get(CLAIMS).json
    assert (document["kind"], document["apiVersion"]) == ("ResourceClaimList", "resource.k8s.io/v1")
    assert document["metadata"]["resourceVersion"] == document["items"][-1]["metadata"]["resourceVersion"]


def test_an_empty_list_has_items(api: Api) -> None:
    assert api.get(CLAIMS).json["items"] == []


SELECTIONS = {
    "by label": ("labelSelector=team=red", ["a", "c"]),
    "by label sets": ("labelSelector=team+notin+(red)", ["b"]),
    "by name": ("fieldSelector=metadata.name=b", ["b"]),
    "by both": ("labelSelector=team=red&fieldSelector=metadata.name!=a", ["c"]),
}


@pytest.mark.parametrize(("query", "found"), SELECTIONS.values(), ids=SELECTIONS.keys())
def test_selectors_pick_objects(claims: Api, query: str, found: list[str]) -> None:
    assert names(claims.get(f"{CLAIMS}?{query}")) == found


def test_pods_are_selected_by_node(api: Api) -> None:
    api.made(PODS, pod("p"))
    api.made(PODS, pod("q"))
    api.post(f"{PODS}/q/binding", {"metadata": {"name": "q"}, "target": {"kind": "Node", "name": "n1"}})
    assert names(api.get("/api/v1/pods?fieldSelector=spec.nodeName=n1")) == ["q"]
    assert names(api.get("/api/v1/pods?fieldSelector=spec.nodeName=")) == ["p"]


def test_a_field_that_cannot_be_selected_is_named_once(api: Api) -> None:
    # kubectl puts the selectors in front of whatever the server says.
    answer = api.get(f"{PODS}?fieldSelector=spec.color=red")
    assert answer.message == "field label not supported: spec.color"


WRONG_QUERIES = {
    "a label selector that cannot be read": ("labelSelector=a+in", 400),
    "a field that the kind does not have": ("fieldSelector=spec.color=red", 400),
    "a limit that is no number": ("limit=many", 400),
    "a strange continue token": ("continue=xyz", 400),
    "a revision that is no number": ("resourceVersion=new", 400),
    "a match without a revision": ("resourceVersionMatch=Exact", 422),
    "a match that does not exist": ("resourceVersion=1&resourceVersionMatch=Roughly", 422),
    "initial events of a list": ("sendInitialEvents=true", 422),
    "a revision that nobody reached": ("resourceVersion=999999", 504),
}


@pytest.mark.parametrize(("query", "code"), WRONG_QUERIES.values(), ids=WRONG_QUERIES.keys())
def test_a_wrong_query_is_refused(claims: Api, query: str, code: int) -> None:
    answer = claims.get(f"{CLAIMS}?{query}")
    assert answer.code == code, answer.text
    assert answer.json["kind"] == "Status"


def test_pages_together_are_the_list_at_one_revision(claims: Api) -> None:
    first = claims.get(f"{CLAIMS}?limit=2").json
    assert (len(first["items"]), first["metadata"]["remainingItemCount"]) == (2, 1)
    claims.made(CLAIMS, claim(name="d"))
    second = claims.get(f"{CLAIMS}?limit=2&continue={first['metadata']['continue']}").json
    assert [item["metadata"]["name"] for item in second["items"]] == ["c"]
    assert second["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}


def test_an_exact_revision_is_answered_as_it_was(claims: Api) -> None:
    before = claims.get(CLAIMS).json
    revision = before["metadata"]["resourceVersion"]
    exact = f"{CLAIMS}?resourceVersion={revision}&resourceVersionMatch=Exact"
    claims.made(NAMESPACES, namespace("unrelated"))
    assert claims.get(exact).json == before
    claims.made(CLAIMS, claim(name="d"))
    claims.patch(f"{CLAIMS}/b", {"metadata": {"labels": {"late": "yes"}}})
    claims.delete(f"{CLAIMS}/a")
    assert claims.get(exact).json == before
    names = [item["metadata"]["name"] for item in claims.get(f"{exact}&labelSelector=!late").json["items"]]
    assert names == ["a", "b", "c"]
    page = claims.get(f"{exact}&limit=2").json
    rest = claims.get(f"{CLAIMS}?limit=2&continue={page['metadata']['continue']}").json
    assert page["items"] + rest["items"] == before["items"]
    assert page["metadata"]["resourceVersion"] == rest["metadata"]["resourceVersion"] == revision


def test_an_exact_revision_that_the_log_has_forgotten_is_expired(claims: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = claims.get(CLAIMS).json["metadata"]["resourceVersion"]
    claims.made(CLAIMS, claim(name="d"))
    counter = sql.counter()
    monkeypatch.setattr(sql, "counter", lambda: counter._replace(floor=counter.current))
    answer = claims.get(f"{CLAIMS}?resourceVersion={revision}&resourceVersionMatch=Exact")
    assert (answer.code, answer.reason) == (410, "Expired")
    assert answer.message == f"The resourceVersion for the provided list is too old: {revision}."


def test_a_list_as_a_table(claims: Api) -> None:
    table = claims.get(CLAIMS, accept=TABLE).json
    assert table["kind"] == "Table"
    shown = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    assert shown == ["Name", "State", "Age"]
    assert [row["cells"][0] for row in table["rows"]] == ["a", "b", "c"]
    assert int(table["metadata"]["resourceVersion"]) > 0


INCLUDES = {"None": None, "Metadata": "PartialObjectMetadata", "Object": "ResourceClaim"}


@pytest.mark.parametrize(("include", "kind"), INCLUDES.items())
def test_table_rows_carry_what_was_asked_for(claims: Api, include: str, kind: str | None) -> None:
    row = claims.get(f"{CLAIMS}?includeObject={include}", accept=TABLE).json["rows"][0]
    assert (row["object"] and row["object"]["kind"]) == kind


def test_an_unknown_inclusion_is_invalid(claims: Api) -> None:
    assert claims.get(f"{CLAIMS}?includeObject=All", accept=TABLE).code == 422


def test_a_list_of_metadata(claims: Api) -> None:
    document = claims.get(CLAIMS, accept=METADATA_LIST).json
    assert document["kind"] == "PartialObjectMetadataList"
    assert {item["kind"] for item in document["items"]} == {"PartialObjectMetadata"}
    assert all("spec" not in item for item in document["items"])


def test_an_older_version_is_served_by_conversion(claims: Api) -> None:
    path = CLAIMS.replace("/v1/", "/v1beta1/")
    document = claims.get(path).json
    assert (document["kind"], document["apiVersion"]) == ("ResourceClaimList", "resource.k8s.io/v1beta1")
    assert not {"apiVersion", "kind"} & document["items"][0].keys()
    assert document["items"][0]["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu.example.com"


def test_an_older_version_is_written_by_conversion(api: Api) -> None:
    body = claim() | {
        "apiVersion": "resource.k8s.io/v1beta1",
        "spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu.example.com"}]}},
    }
    made = api.made(CLAIMS.replace("/v1/", "/v1beta1/"), body)
    assert made["apiVersion"] == "resource.k8s.io/v1beta1"
    stored = api.get(f"{CLAIMS}/c").json
    assert stored["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.example.com"


def test_an_older_version_knows_its_own_fields_alone(api: Api) -> None:
    body = claim() | {"apiVersion": "resource.k8s.io/v1beta1"}  # whose requests have what v1 has in `exactly`
    answer = api.post(f"{CLAIMS.replace('/v1/', '/v1beta1/')}?fieldValidation=Strict", body)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.devices.requests[0].exactly"' in answer.json["message"]
    schemas = api.get("/openapi/v3/apis/resource.k8s.io/v1beta1").json["components"]["schemas"]
    fields = schemas["io.k8s.api.resource.v1beta1.DeviceRequest"]["properties"]
    assert "deviceClassName" in fields
    assert "exactly" not in fields


def test_a_body_of_another_version_than_the_path_is_refused(api: Api) -> None:
    answer = api.post(CLAIMS.replace("/v1/", "/v1beta1/"), claim())
    assert (answer.code, answer.reason) == (400, "BadRequest")


def test_an_older_version_is_patched_in_its_own_fields(api: Api) -> None:
    api.made(CLAIMS, claim())
    path = f"{CLAIMS.replace('/v1/', '/v1beta1/')}/c"
    answer = api.patch(path, {"metadata": {"labels": {"a": "b"}}})
    assert (answer.code, answer.json["apiVersion"]) == (200, "resource.k8s.io/v1beta1")
    assert api.get(f"{CLAIMS}/c").json["metadata"]["labels"] == {"a": "b"}
