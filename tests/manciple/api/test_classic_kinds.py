"""resource.k8s.io/v1alpha2 and v1alpha3 over HTTP, as Kubernetes 1.30 and KEP-3063 have them, while the gate is on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from inventory.kinds import gates
from manciple.api import openapi
from tests.manciple.api.requests import CLAIMS, CLASSES, TABLE, Api

V1ALPHA2, V1ALPHA3 = "/apis/resource.k8s.io/v1alpha2", "/apis/resource.k8s.io/v1alpha3"
OLD_CLAIMS = f"{V1ALPHA2}/namespaces/default/resourceclaims"
LATER_CLAIMS = f"{V1ALPHA3}/namespaces/default/resourceclaims"
APPLY = "application/apply-patch+yaml"
CONTEXTS = f"{V1ALPHA2}/namespaces/default/podschedulingcontexts"


@pytest.fixture
def classic(api: Api) -> Iterator[Api]:
    """The API with the gate on."""
    openapi.renew()
    with gates.using(DRAControlPlaneController=True):
        yield api
    openapi.renew()


def old(kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1alpha2", "kind": kind, "metadata": {"name": name}, **content}


def claim(name: str = "gpu", **spec: Any) -> dict[str, Any]:
    return old("ResourceClaim", name, spec={"resourceClassName": "gpu.example.com", **spec})


def later(name: str = "net", **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourceClaim", "metadata": {"name": name}}
    return {**head, "spec": spec or {"controllerName": "net.example.com"}}


PARAMETERS = {"apiGroup": "gpu.example.com", "kind": "GpuClaimParameters", "name": "one"}
ALLOCATED: dict[str, Any] = {
    "driverName": "gpu.example.com",
    "allocation": {
        "resourceHandles": [{"driverName": "gpu.example.com", "data": '{"gpu": 0}'}],
        "availableOnNodes": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
        },
        "shareable": True,
    },
}


def allocate(api: Api, name: str = "gpu") -> dict[str, Any]:
    made = api.get(f"{OLD_CLAIMS}/{name}").json
    answer = api.put(f"{OLD_CLAIMS}/{name}/status", made | {"status": ALLOCATED})
    assert answer.code == 200, answer.text
    allocated: dict[str, Any] = answer.json
    return allocated


# Found while the gate is on -------------------------------------------------------------------------------------------


def test_without_the_gate_nobody_finds_them(api: Api) -> None:
    paths = (V1ALPHA2, OLD_CLAIMS, LATER_CLAIMS, CONTEXTS, f"{V1ALPHA2}/resourceclasses", f"/openapi/v3{V1ALPHA2}")
    assert [api.get(path).code for path in paths] == [404] * len(paths)
    group = api.get("/apis/resource.k8s.io").json
    assert "v1alpha2" not in {one["version"] for one in group["versions"]}


def test_discovery_lists_what_kubernetes_1_30_served(classic: Api) -> None:
    listed = classic.get(V1ALPHA2).json["resources"]
    ours = ("resourceclaims/explain", "resourceclaims/simulate")
    assert {one["name"]: one["namespaced"] for one in listed if one["name"] not in ours} == {
        "podschedulingcontexts": True,
        "podschedulingcontexts/status": True,
        "resourceclaimparameters": True,
        "resourceclaims": True,
        "resourceclaims/status": True,
        "resourceclaimtemplates": True,
        "resourceclasses": False,
        "resourceclassparameters": True,
        "resourceslices": False,
    }


def test_clients_prefer_todays_versions(classic: Api) -> None:
    group = classic.get("/apis/resource.k8s.io").json
    assert group["preferredVersion"]["version"] == "v1"
    assert [one["version"] for one in group["versions"]] == ["v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2"]


def test_discovery_lists_the_later_form_of_the_seed(classic: Api) -> None:
    found = {one["name"] for one in classic.get(V1ALPHA3).json["resources"]}
    assert {"deviceclasses", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates"} <= found
    assert {"podschedulingcontexts", "podschedulingcontexts/status"} <= found


def test_openapi_describes_each_version_by_its_own_fields(classic: Api) -> None:
    schemas = {
        version: classic.get(f"/openapi/v3/apis/resource.k8s.io/{version}").json["components"]["schemas"]
        for version in ("v1alpha2", "v1alpha3", "v1")
    }
    fields = {
        version: set(schemas[version][f"io.k8s.api.resource.{version}.ResourceClaimSpec"]["properties"])
        for version in schemas
    }
    assert fields["v1alpha2"] == {"resourceClassName", "parametersRef", "allocationMode"}
    assert {"devices", "controllerName"} <= fields["v1alpha3"]
    assert fields["v1"] == {"devices"}


# One object, several versions -----------------------------------------------------------------------------------------


def test_a_claim_of_1_30_has_the_defaults_of_1_30(classic: Api) -> None:
    made = classic.made(OLD_CLAIMS, claim(parametersRef=PARAMETERS))
    assert made["spec"] == {
        "resourceClassName": "gpu.example.com",
        "parametersRef": PARAMETERS,
        "allocationMode": "WaitForFirstConsumer",
    }
    assert made["apiVersion"] == "resource.k8s.io/v1alpha2"


def test_fields_are_preserved_during_updates_even_when_the_feature_is_disabled(classic: Api) -> None:
    """KEP-3063, "Are there any tests for feature enablement/disablement?"."""
    classic.made(OLD_CLAIMS, claim(parametersRef=PARAMETERS))
    before = allocate(classic)
    with gates.using(DRAControlPlaneController=False):
        seen = classic.get(f"{CLAIMS}/gpu").json
        assert seen["spec"] == {"devices": {}}
        assert seen["status"]["allocation"]["nodeSelector"] == ALLOCATED["allocation"]["availableOnNodes"]
        assert classic.put(f"{CLAIMS}/gpu", seen | {"metadata": seen["metadata"] | {"labels": {"a": "b"}}}).code == 200
        seen = classic.get(f"{CLAIMS}/gpu").json
        users = [{"resource": "pods", "name": "p", "uid": "u"}]
        with_user = seen | {"status": seen["status"] | {"reservedFor": users}}
        assert classic.put(f"{CLAIMS}/gpu/status", with_user).code == 200
        for media in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
            labels = {"metadata": {"labels": {media.partition("-")[0].rpartition("/")[2]: "c"}}}
            assert classic.patch(f"{CLAIMS}/gpu", labels, content_type=media).code == 200
    again = classic.get(f"{OLD_CLAIMS}/gpu").json
    assert again["metadata"]["labels"] == {"a": "b", "merge": "c", "strategic": "c"}
    assert (again["spec"], again["status"]) == (before["spec"], before["status"] | {"reservedFor": users})


def test_who_applied_what_is_told_by_the_names_of_the_version(classic: Api) -> None:
    def applied(manager: str, **spec: str) -> Any:
        body = old("ResourceClaim", "gpu", spec={"resourceClassName": "gpu.example.com", **spec})
        return classic.patch(f"{OLD_CLAIMS}/gpu?fieldManager={manager}", body, content_type=APPLY)

    assert applied("ada", allocationMode="Immediate").code == 201
    for path in (f"{OLD_CLAIMS}/gpu", f"{CLAIMS}/gpu", f"{LATER_CLAIMS}/gpu"):
        (entry,) = classic.get(path).json["metadata"]["managedFields"]
        assert entry["fieldsV1"] == {"f:spec": {"f:allocationMode": {}, "f:resourceClassName": {}}}
    refused = applied("bob", allocationMode="WaitForFirstConsumer")
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert refused.message.endswith('conflict with "ada": .spec.allocationMode')


def test_a_client_cannot_write_what_is_kept_aside_by_its_stored_name(classic: Api) -> None:
    body = later("sly", **{"~controllerName": "evil.example.com", "devices": {"requests": []}})
    classic.post(CLAIMS, body | {"apiVersion": "resource.k8s.io/v1"})
    assert "controllerName" not in classic.get(f"{LATER_CLAIMS}/sly").json["spec"]


def test_the_controller_of_the_later_form_may_be_spelled_as_in_1_31(classic: Api) -> None:
    for name, spelled in (("a", "controllerName"), ("b", "controller")):
        made = classic.made(LATER_CLAIMS, later(name, **{spelled: "gpu.example.com", "devices": {}}))
        assert [made["spec"][one] for one in ("controllerName", "controller")] == ["gpu.example.com"] * 2
    answer = classic.post(LATER_CLAIMS, later("two", controllerName="a.example.com", controller="b.example.com"))
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert all(one in answer.message for one in ("spec.controllerName", "spec.controller is"))


def test_a_class_of_the_later_form_names_its_nodes_and_v1_keeps_them(classic: Api) -> None:
    nodes = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}
    body = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceClass", "metadata": {"name": "gpu"}}
    classic.made(f"{V1ALPHA3}/deviceclasses", body | {"spec": {"suitableNodes": nodes}})
    seen = classic.get(f"{CLASSES}/gpu").json
    assert "suitableNodes" not in seen["spec"]
    assert classic.put(f"{CLASSES}/gpu", seen | {"spec": {}}).code == 200
    assert classic.get(f"{V1ALPHA3}/deviceclasses/gpu").json["spec"]["suitableNodes"] == nodes


def test_a_slice_of_1_30_lists_its_instances_and_is_a_pool_without_devices_to_v1(classic: Api) -> None:
    instances = [
        {"name": "gpu-0", "attributes": [{"name": "memory", "quantity": "8Gi"}, {"name": "ecc", "bool": True}]}
    ]
    body = old("ResourceSlice", "n1-gpu", nodeName="n1", driverName="gpu.example.com")
    made = classic.made(f"{V1ALPHA2}/resourceslices", body | {"namedResources": {"instances": instances}})
    assert made["namedResources"] == {"instances": instances}
    seen = classic.get("/apis/resource.k8s.io/v1/resourceslices/n1-gpu").json["spec"]
    assert (seen["driver"], seen["nodeName"], seen["pool"]["name"]) == ("gpu.example.com", "n1", "n1-gpu")
    found = classic.get(f"{V1ALPHA2}/resourceslices?fieldSelector=driverName=gpu.example.com,nodeName=n1").json["items"]
    assert [one["metadata"]["name"] for one in found] == ["n1-gpu"]


# Rules of 1.30 --------------------------------------------------------------------------------------------------------


def _consumer(name: str) -> dict[str, str]:
    return {"resource": "pods", "name": name, "uid": name}


STATUS_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "deallocation of what is not allocated": ({"deallocationRequested": True}, "status"),
    "two pods on what is not shareable": (
        {"driverName": "a.com", "allocation": {}, "reservedFor": [_consumer("a"), _consumer("b")]},
        "status.reservedFor",
    ),
    "deallocation of what is reserved": (
        {"driverName": "a.com", "allocation": {}, "reservedFor": [_consumer("a")], "deallocationRequested": True},
        "status.deallocationRequested",
    ),
}


@pytest.mark.parametrize(("status", "field"), STATUS_FAULTS.values(), ids=STATUS_FAULTS.keys())
def test_a_status_with_a_fault_is_refused(classic: Api, status: dict[str, Any], field: str) -> None:
    made = classic.made(OLD_CLAIMS, claim())
    assert field in fields(classic.put(f"{OLD_CLAIMS}/gpu/status", made | {"status": status}))


def test_who_asked_for_deallocation_cannot_take_it_back_and_nobody_new_may_use_the_claim(classic: Api) -> None:
    classic.made(OLD_CLAIMS, claim())
    asked = allocate(classic)
    asked["status"]["deallocationRequested"] = True
    asked = classic.put(f"{OLD_CLAIMS}/gpu/status", asked).json
    back = asked | {
        "status": {name: value for name, value in asked["status"].items() if name != "deallocationRequested"}
    }
    assert classic.put(f"{OLD_CLAIMS}/gpu/status", back).code == 422
    new = asked | {"status": asked["status"] | {"reservedFor": [_consumer("late")]}}
    assert classic.put(f"{OLD_CLAIMS}/gpu/status", new).code == 422
    free = asked | {"status": {"driverName": "gpu.example.com"}}
    assert classic.put(f"{OLD_CLAIMS}/gpu/status", free).code == 200


def fields(answer: Any) -> list[str]:
    assert (answer.code, answer.reason) == (422, "Invalid"), answer.text
    return [one["field"] for one in answer.json["details"]["causes"]]


@pytest.mark.parametrize("path", [LATER_CLAIMS, CLAIMS])
def test_while_deallocation_is_requested_no_version_lets_anybody_new_use_the_claim(classic: Api, path: str) -> None:
    made = classic.made(LATER_CLAIMS, later())
    status = {"allocation": {"controllerName": "net.example.com"}}
    asked = classic.put(f"{LATER_CLAIMS}/net/status", made | {"status": status | {"deallocationRequested": True}})
    assert asked.json["status"]["allocation"]["controller"] == "net.example.com"
    current = classic.get(f"{path}/net").json
    late = current | {"status": current["status"] | {"reservedFor": [_consumer("late")]}}
    assert fields(classic.put(f"{path}/net/status", late)) == ["status.reservedFor"]
    back = asked.json | {"status": status}
    assert fields(classic.put(f"{LATER_CLAIMS}/net/status", back)) == ["status.deallocationRequested"]
    assert classic.put(f"{LATER_CLAIMS}/net/status", asked.json | {"status": {}}).code == 200


def test_whether_claims_of_one_controller_share_a_device_is_up_to_its_driver(classic: Api) -> None:
    def allocate_for(name: str, controller: str) -> int:
        made = classic.made(LATER_CLAIMS, later(name, controllerName=controller, devices={"requests": [request]}))
        result = {"request": "net", "driver": "net.example.com", "pool": "rack", "device": "port-0"}
        allocation = {"devices": {"results": [result]}, "controllerName": controller}
        return classic.put(f"{LATER_CLAIMS}/{name}/status", made | {"status": {"allocation": allocation}}).code

    request = {"name": "net", "deviceClassName": "net"}
    assert [allocate_for(name, "net.example.com") for name in ("first", "second")] == [200, 200]
    assert allocate_for("third", "other.example.com") == 409


def test_a_controller_and_the_nodes_of_a_class_must_be_possible_ones(classic: Api) -> None:
    assert fields(classic.post(LATER_CLAIMS, later(controllerName="no driver"))) == ["spec.controllerName"]
    body = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceClass", "metadata": {"name": "gpu"}}
    answer = classic.post(f"{V1ALPHA3}/deviceclasses", body | {"spec": {"suitableNodes": {"nodeSelectorTerms": []}}})
    assert fields(answer) == ["spec.suitableNodes.nodeSelectorTerms"]


# As kubectl shows them ------------------------------------------------------------------------------------------------


def test_kubectl_get_shows_the_columns_of_1_30(classic: Api) -> None:
    classic.made(OLD_CLAIMS, claim())
    allocate(classic)
    table = classic.get(OLD_CLAIMS, accept=TABLE).json
    assert [one["name"] for one in table["columnDefinitions"] if not one["priority"]] == [
        "Name",
        "ResourceClassName",
        "AllocationMode",
        "State",
        "Age",
    ]
    assert table["rows"][0]["cells"][:4] == ["gpu", "gpu.example.com", "WaitForFirstConsumer", "allocated"]
