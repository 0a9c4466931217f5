"""Resources and columns of tables are those of a Kubernetes 1.36 API server, but for what is not served here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import conformance
from tests.manciple.api.requests import TABLE, Api

RECORDED = json.loads(conformance.read("kubectl_discovery.json"))
TABLES: dict[str, list[list[Any]]] = RECORDED["tables"]
RESOURCES: dict[str, list[dict[str, Any]]] = RECORDED["resources"]
#: Resources of the reference that are not served here, as docs/evidence/conformance.md says.
UNSERVED = {
    "componentstatuses",
    "csistoragecapacities",
    "nodes/proxy",
    "pods/proxy",
    "replicationcontrollers",
    "services/proxy",
    "volumeattachments",
    "volumeattributesclasses",
}
#: What is served here alone.
OURS = {"nodes/devicereadings", "pods/explain", "pods/simulate"}


def is_served(resource: str) -> bool:
    return resource not in UNSERVED and resource.partition("/")[0] not in UNSERVED


@pytest.mark.parametrize("version", RESOURCES)
def test_resources_are_those_of_the_reference(api: Api, version: str) -> None:
    expected = {one["name"]: one for one in RESOURCES[version] if is_served(one["name"])}
    answer = api.get(version)
    assert answer.code == (200 if expected else 404)
    found = {one["name"]: one for one in answer.json.get("resources", ()) if one["name"] not in OURS}
    assert found.keys() == expected.keys()
    for name, one in found.items():
        one.pop("storageVersionHash", None)
        assert {**one, "verbs": sorted(one["verbs"])} == expected[name]


#: An API version -> schemas of documents that are never stored, which its paths take and answer.
UNSTORED = {
    "api/v1": {
        "io.k8s.api.authentication.v1.TokenRequest",
        "io.k8s.api.authentication.v1.TokenRequestSpec",
        "io.k8s.api.core.v1.Binding",
        "io.k8s.api.policy.v1.Eviction",
    },
    "apis/apps/v1": {"io.k8s.api.autoscaling.v1.Scale", "io.k8s.api.autoscaling.v1.ScaleStatus"},
    "apis/authorization.k8s.io/v1": {"io.k8s.api.authorization.v1.SelfSubjectAccessReview"},
}


@pytest.mark.parametrize("version", UNSTORED)
def test_documents_that_are_never_stored_are_described(api: Api, version: str) -> None:
    document = api.get(f"/openapi/v3/{version}").json
    schemas = document["components"]["schemas"]
    assert UNSTORED[version] <= schemas.keys()
    assert not {f"{name}List" for name in UNSTORED[version]} & schemas.keys()
    if version == "api/v1":
        eviction = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/eviction"]["post"]
        content = eviction["requestBody"]["content"]["*/*"]["schema"]
        assert content["$ref"].endswith("io.k8s.api.policy.v1.Eviction")


@pytest.mark.parametrize("version", RESOURCES)
def test_the_path_of_a_version_is_described(api: Api, version: str) -> None:
    described = api.get(f"/openapi/v3{version}").json["paths"][f"{version}/"]["get"]
    assert described["operationId"].endswith("APIResources")
    assert "x-kubernetes-group-version-kind" not in described


@pytest.mark.parametrize("path", TABLES)
def test_columns_are_those_of_the_reference(api: Api, path: str) -> None:
    answer = api.get(path.replace("/NS/", "/default/"), accept=TABLE)
    assert answer.code == (200 if is_served(path.rpartition("/")[2]) else 404)
    if answer.code == 200:
        columns = answer.json["columnDefinitions"]
        assert [[one["name"], one["type"], one["format"], one["priority"]] for one in columns] == TABLES[path]
