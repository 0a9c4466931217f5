"""Fields that a kind had in an older version of the API: unknown in the others, whichever way they are written."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from inventory.kinds import gates
from tests.manciple.api.requests import JSON_PATCH, MERGE, PODS, STRATEGIC, Answer, Api

RESOURCE = "/apis/resource.k8s.io"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "old"},
    "spec": {
        "containers": [{"name": "c", "image": "busybox", "resources": {"claims": [{"name": "g"}]}}],
        "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}],
    },
}


def claim(version: str, request: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "old"},
        "spec": {"devices": {"requests": [{"name": "g", **request}]}, **spec},
    }


EXACTLY = {"exactly": {"deviceClassName": "gpu.example.com"}}
CLASS = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "old"}}


def pool_slice(version: str, device: dict[str, Any]) -> dict[str, Any]:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": "n", "pool": pool, "devices": [{"name": "gpu-0", **device}]}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": "old"},
        "spec": spec,
    }


#: (path of the collection, document with the field, the field)
OLD: dict[str, tuple[str, dict[str, Any], str]] = {
    "a claim's source, of 1.30": (
        PODS,
        {
            **POD,
            "spec": {
                **POD["spec"],  # type: ignore[dict-item]
                "resourceClaims": [
                    {"name": "g", "resourceClaimTemplateName": "t", "source": {"resourceClaimTemplateName": "t"}}
                ],
            },
        },
        "spec.resourceClaims[0].source",
    ),
    "podResources, of the first draft": (
        PODS,
        {
            **POD,
            "spec": {"containers": [{"name": "c", "image": "busybox", "podResources": ["g"]}]},
        },
        "spec.containers[0].podResources",
    ),
    "a request of v1beta1 in v1": (
        f"{RESOURCE}/v1/namespaces/default/resourceclaims",
        claim("v1", {**EXACTLY, "deviceClassName": "gpu.example.com"}),
        "spec.devices.requests[0].deviceClassName",
    ),
    "a request of v1 in v1beta1": (
        f"{RESOURCE}/v1beta1/namespaces/default/resourceclaims",
        claim("v1beta1", {"deviceClassName": "gpu.example.com", **EXACTLY}),
        "spec.devices.requests[0].exactly",
    ),
    "a class of v1alpha2 in v1": (
        f"{RESOURCE}/v1/namespaces/default/resourceclaims",
        claim("v1", EXACTLY, resourceClassName="gpu"),
        "spec.resourceClassName",
    ),
    "a mode of v1alpha2 in v1beta2": (
        f"{RESOURCE}/v1beta2/namespaces/default/resourceclaims",
        claim("v1beta2", EXACTLY, allocationMode="Immediate"),
        "spec.allocationMode",
    ),
    "a controller of v1alpha3 in v1beta1": (
        f"{RESOURCE}/v1beta1/namespaces/default/resourceclaims",
        claim("v1beta1", {"deviceClassName": "gpu.example.com"}, controller="gpu.example.com"),
        "spec.controller",
    ),
    "suitable nodes of v1alpha3 in v1": (
        f"{RESOURCE}/v1/deviceclasses",
        {**CLASS, "spec": {"suitableNodes": {"nodeSelectorTerms": []}}},
        "spec.suitableNodes",
    ),
    "a basic device of v1beta1 in v1": (
        f"{RESOURCE}/v1/resourceslices",
        pool_slice("v1", {"basic": {"attributes": {}}}),
        "spec.devices[0].basic",
    ),
    "a device of v1 in v1beta1": (
        f"{RESOURCE}/v1beta1/resourceslices",
        pool_slice("v1beta1", {"basic": {}, "attributes": {"a": {"int": 1}}}),
        "spec.devices[0].attributes",
    ),
}
WAYS = ("create", "update", "apply", MERGE, STRATEGIC, JSON_PATCH)


def write(api: Api, way: str, case: str, validation: str) -> Answer:
    path, document, field = OLD[case]
    query = f"fieldValidation={validation}"
    if way == "create":
        return api.post(f"{path}?{query}", document)
    if way == "apply":
        where = f"{path}/old?fieldManager=m&{query}"
        return api.patch(where, document, content_type="application/apply-patch+yaml")
    made = api.made(f"{path}?fieldValidation=Ignore", without(document, field))
    if way == "update":
        return api.put(f"{path}/old?{query}", {**document, "metadata": made["metadata"]})
    if way == JSON_PATCH:
        at = "/" + field.replace("[0]", "/0").replace(".", "/")
        return api.patch(
            f"{path}/old?{query}", [{"op": "add", "path": at, "value": value(document, field)}], content_type=way
        )
    return api.patch(f"{path}/old?{query}", {"spec": document["spec"]}, content_type=way)


def parts(field: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in field.replace("[0]", ".0").split(".")]


def value(document: Any, field: str) -> Any:
    for part in parts(field):
        document = document[part]
    return document


def without(document: dict[str, Any], field: str) -> dict[str, Any]:
    copied = deepcopy(document)
    *outer, last = parts(field)
    place: Any = copied
    for part in outer:
        place = place[part]
    del place[last]
    return copied


@pytest.mark.sample(12)
@pytest.mark.parametrize("case", OLD)
@pytest.mark.parametrize("way", WAYS)
def test_an_old_field_is_refused_under_strict(api: Api, case: str, way: str) -> None:
    answer = write(api, way, case, "Strict")
    assert answer.code == (422 if way in (MERGE, STRATEGIC, JSON_PATCH) else 400), answer.text
    assert f'strict decoding error: unknown field "{OLD[case][2]}"' in answer.message


@pytest.mark.sample(12)
@pytest.mark.parametrize("case", OLD)
@pytest.mark.parametrize("way", WAYS)
def test_an_old_field_is_warned_of_and_dropped_otherwise(api: Api, case: str, way: str) -> None:
    answer = write(api, way, case, "Warn")
    assert f'unknown field \\"{OLD[case][2]}\\"' in answer.header("Warning")
    if answer.code < 300:
        with pytest.raises(KeyError):
            value(answer.json, OLD[case][2])


@pytest.mark.parametrize("case", OLD)
def test_an_old_field_is_dropped_silently_where_the_client_asks_for_that(api: Api, case: str) -> None:
    assert OLD[case][2] not in write(api, "create", case, "Ignore").header("Warning")


# While the feature is on, and after ----------------------------------------------------------------------------------


@pytest.fixture
def controllers_allocate() -> Iterator[None]:
    with gates.using(DRAControlPlaneController=True):
        yield


OLD_POD: dict[str, Any] = {
    **POD,
    "spec": {
        "containers": [{"name": "c", "image": "busybox"}],
        "resourceClaims": [{"name": "g", "source": {"resourceClaimTemplateName": "t"}}],
    },
}


@pytest.mark.usefixtures("controllers_allocate")
def test_drivers_of_1_30_may_write_the_source_while_their_gate_is_on(api: Api) -> None:
    answer = api.post(f"{PODS}?fieldValidation=Strict", OLD_POD)
    assert (answer.code, answer.header("Warning")) == (201, "")


def test_a_pod_that_has_a_source_can_be_written_while_the_gate_is_off(api: Api) -> None:
    with gates.using(DRAControlPlaneController=True):
        api.made(PODS, OLD_POD)
    for way in (MERGE, STRATEGIC):
        answer = api.patch(
            f"{PODS}/old?fieldValidation=Strict", {"metadata": {"labels": {"by": way[12:17]}}}, content_type=way
        )
        assert (answer.code, answer.header("Warning")) == (200, ""), answer.text
    warned = api.patch(f"{PODS}/old", {"metadata": {"labels": {"a": "b"}}, "strange": 1})
    assert warned.header("Warning") == '299 - "unknown field \\"strange\\""'
    read = api.get(f"{PODS}/old").json
    read["metadata"]["labels"] = {"c": "d"}
    assert api.put(f"{PODS}/old?fieldValidation=Strict", read).code == 200
    refused = api.put(f"{PODS}/old?fieldValidation=Strict", {**read, "strange": 1})
    assert (refused.code, 'unknown field "strange"' in refused.message) == (400, True)
    kept = api.get(f"{PODS}/old").json["spec"]["resourceClaims"][0]
    assert kept["source"] == {"resourceClaimTemplateName": "t"}
