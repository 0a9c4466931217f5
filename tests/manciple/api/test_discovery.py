"""What clients ask first: groups, versions, resources, schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from inventory.kinds import gates
from manciple.api import openapi
from manciple.wire import wireformat
from tests.manciple.api.requests import Api

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
AGGREGATED_BETA = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"


def test_the_version_names_kubernetes_and_us(api: Api) -> None:
    version = api.get("/version").json
    assert (version["major"], version["minor"]) == ("1", "36")
    assert version["gitVersion"].startswith("v1.36.0+manciple.")


def test_the_groups_are_listed_with_the_preferred_version_first(api: Api) -> None:
    groups = {group["name"]: group for group in api.get("/apis").json["groups"]}
    assert groups["resource.k8s.io"]["preferredVersion"]["version"] == "v1"
    assert "" not in groups
    assert {"authentication.k8s.io", "authorization.k8s.io", "coordination.k8s.io"} <= set(groups)
    assert api.get("/api").json["versions"] == ["v1"]
    assert api.get("/apis/resource.k8s.io").json["kind"] == "APIGroup"


def resources(api: Api, path: str) -> dict[str, Any]:
    document = api.get(path).json
    assert document["kind"] == "APIResourceList"
    return {line["name"]: line for line in document["resources"]}


def test_resources_say_what_can_be_done_with_them(api: Api) -> None:
    lines = resources(api, "/api/v1")
    assert lines["pods"]["verbs"] == [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ]
    assert lines["pods"]["shortNames"] == ["po"]
    assert lines["pods/status"]["verbs"] == ["get", "patch", "update"]
    assert (lines["pods/binding"]["kind"], lines["pods/binding"]["verbs"]) == ("Binding", ["create"])
    assert (lines["pods/eviction"]["group"], lines["pods/eviction"]["kind"]) == ("policy", "Eviction")
    assert lines["namespaces"]["namespaced"] is False
    assert "deletecollection" not in lines["namespaces"]["verbs"]
    assert "namespaces/finalize" in lines


def test_every_served_version_lists_its_resources(api: Api) -> None:
    for version in ("v1", "v1beta1", "v1beta2"):
        lines = resources(api, f"/apis/resource.k8s.io/{version}")
        assert {"deviceclasses", "resourceclaims", "resourceclaims/status", "resourceslices"} <= set(lines)


def test_aggregated_discovery_is_answered_to_those_who_ask_for_its_v2(api: Api) -> None:
    answer = api.get("/apis", accept=AGGREGATED)
    assert answer.header("Content-Type") == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    groups = {item["metadata"]["name"]: item for item in answer.json["items"]}
    claims = next(
        line for line in groups["resource.k8s.io"]["versions"][0]["resources"] if line["resource"] == "resourceclaims"
    )
    assert (claims["scope"], claims["responseKind"]["kind"]) == ("Namespaced", "ResourceClaim")
    assert [below["subresource"] for below in claims["subresources"]] == ["status", "explain", "simulate"]
    core = api.get("/api", accept=AGGREGATED).json["items"]
    assert [item["metadata"]["name"] for item in core] == [""]


def test_the_older_aggregated_form_is_not_offered(api: Api) -> None:
    assert api.get("/apis", accept=AGGREGATED_BETA).json["kind"] == "APIGroupList"


def test_the_openapi_index_leads_to_every_document(api: Api) -> None:
    paths = api.get("/openapi/v3").json["paths"]
    assert {"api/v1", "apis/resource.k8s.io/v1", "apis/resource.k8s.io/v1beta1"} <= set(paths)
    for entry in paths.values():
        answer = api.get(entry["serverRelativeURL"])
        assert (answer.code, answer.json["openapi"]) == (200, "3.0.0")
        assert answer.header("Cache-Control") == "public, immutable"
        assert answer.header("ETag").strip('"') in entry["serverRelativeURL"]


def references(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        if isinstance(document.get("$ref"), str):
            yield document["$ref"]
        for value in document.values():
            yield from references(value)
    elif isinstance(document, list):
        for value in document:
            yield from references(value)


def test_openapi_documents_refer_to_nothing_that_is_missing(api: Api) -> None:
    for path in ("/openapi/v3/api/v1", "/openapi/v3/apis/resource.k8s.io/v1"):
        document = api.get(path).json
        known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert set(references(document)) <= known
    document = api.get("/openapi/v2").json
    assert set(references(document)) <= {f"#/definitions/{name}" for name in document["definitions"]}


def test_kubectl_finds_the_kind_and_the_parameters_of_a_patch(api: Api) -> None:
    document = api.get("/openapi/v3/apis/resource.k8s.io/v1").json
    item = document["paths"]["/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"]
    assert item["patch"]["x-kubernetes-action"] == "patch"
    assert item["patch"]["x-kubernetes-group-version-kind"] == {
        "group": "resource.k8s.io",
        "kind": "ResourceClaim",
        "version": "v1",
    }
    assert {"fieldValidation", "dryRun", "fieldManager"} <= {one["name"] for one in item["patch"]["parameters"]}


def test_operation_ids_are_unique(api: Api) -> None:
    paths = api.get("/openapi/v2").json["paths"]
    ids = [item[method]["operationId"] for item in paths.values() for method in item if method != "parameters"]
    assert len(ids) == len(set(ids))


def message(data: memoryview, number: int) -> list[memoryview]:
    """The payloads of one field of a protobuf message."""
    return [
        payload for found, _, payload in wireformat.fields(data) if found == number and not isinstance(payload, int)
    ]


def test_openapi_v2_as_gnostic_protobuf_tells_the_same(api: Api) -> None:
    accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    answer = api.get("/openapi/v2", accept=accept)
    assert "protobuf" in answer.header("Content-Type")
    document = memoryview(answer.response.content)
    (definitions,) = message(document, 9)
    names = {bytes(message(named, 1)[0]).decode() for named in message(definitions, 1)}
    expected = api.get("/openapi/v2").json
    assert names == set(expected["definitions"])
    (paths,) = message(document, 8)
    assert {bytes(message(named, 1)[0]).decode() for named in message(paths, 2)} == set(expected["paths"])
    item = next(
        message(named, 2)[0]
        for named in message(paths, 2)
        if bytes(message(named, 1)[0]) == b"/api/v1/namespaces/{namespace}/pods/{name}"
    )
    (patch,) = message(item, 8)
    extensions = {
        bytes(message(named, 1)[0]): bytes(message(message(named, 2)[0], 2)[0]) for named in message(patch, 13)
    }
    assert extensions[b"x-kubernetes-group-version-kind"].strip() == b'{"group":"","version":"v1","kind":"Pod"}'


def test_openapi_v2_is_refused_in_other_forms(api: Api) -> None:
    assert api.get("/openapi/v2", accept="text/html").code == 406


@pytest.mark.parametrize("path", ["/openapi/v3/apis/nonsense/v1", "/openapi/v4", "/apis/nonsense"])
def test_what_is_not_served_has_no_document(api: Api, path: str) -> None:
    assert api.get(path).code == 404


def test_groups_of_pods_are_there_while_their_gate_is_on(api: Api) -> None:
    at = "/apis/scheduling.k8s.io/v1alpha2"
    pods = f"{at}/namespaces/default/podgroups"
    assert [api.get(path).code for path in (at, pods, f"/openapi/v3{at}")] == [404, 404, 404]
    openapi.renew()
    try:
        with gates.using(GenericWorkload=True):
            assert list(resources(api, at)) == ["workloads", "podgroups", "podgroups/status"]
            assert api.get(pods).json["items"] == []
            schemas = api.get(f"/openapi/v3{at}").json["components"]["schemas"]
            assert {"io.k8s.api.scheduling.v1alpha2.PodGroup", "io.k8s.api.scheduling.v1alpha2.Workload"} <= set(
                schemas
            )
    finally:
        openapi.renew()
    assert api.get(pods).code == 404
