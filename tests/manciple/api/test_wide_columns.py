"""Tables of the kinds of devices and claims: the reference's columns by default, more with `-o wide`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inventory.kinds import gates
from manciple.wire.registry import registry
from tests import conformance
from tests.manciple.api.requests import CLAIMS, CLASSES, TABLE, Api, claim

RECORDED: dict[str, list[list[Any]]] = json.loads(conformance.read("table_columns.json"))
RESOURCE = "/apis/resource.k8s.io"
TEMPLATES = CLAIMS.replace("resourceclaims", "resourceclaimtemplates")


@pytest.mark.parametrize("plural", RECORDED)
def test_default_columns_are_the_references(plural: str) -> None:
    kinds = [kind for kind in registry if kind.plural == plural and kind.group != "cdi.k8s.io"]
    assert kinds
    for kind in kinds:
        ours = [[one.name, one.type, one.priority] for one in kind.columns]
        recorded = RECORDED[plural]
        assert [one for one in ours if not one[2]] == [one for one in recorded if not one[2]]
        assert [one for one in recorded if one[2]] == [one for one in ours if one[2]][
            : len([1 for one in recorded if one[2]])
        ]


def test_every_kind_of_the_group_has_something_to_add() -> None:
    ours = [kind for kind in registry if kind.group in ("resource.k8s.io", "cdi.k8s.io")]
    wide = {f"{kind.plural}.{kind.group}" for kind in ours if any(one.priority for one in kind.columns)}
    assert wide == {f"{kind.plural}.{kind.group}" for kind in ours}


def cells(api: Api, path: str) -> dict[str, Any]:
    table = api.get(path, accept=TABLE).json
    (row,) = table["rows"]
    return {column["name"]: cell for column, cell in zip(table["columnDefinitions"], row["cells"], strict=True)}


def test_a_class_shows_what_it_selects(api: Api) -> None:
    selectors = [{"cel": {"expression": f'device.driver ==\n "{name}.example.com"'}} for name in ("gpu", "nic")]
    config = [{"opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}]
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}}
    api.made(CLASSES, {**body, "spec": {"selectors": selectors, "config": config, "extendedResourceName": "a.com/gpu"}})
    found = cells(api, f"{CLASSES}/gpu")
    assert (found["Extended-Resource"], found["Config"]) == ("a.com/gpu", "gpu.example.com")
    assert found["Selectors"] == 'device.driver == "gpu.example.com" && device.driver == "nic.example.com"'
    api.made(CLASSES, {**body, "metadata": {"name": "all"}, "spec": {}})
    found = cells(api, f"{CLASSES}/all")
    assert (found["Extended-Resource"], found["Config"], found["Selectors"]) == ("<none>",) * 3


def test_a_claim_shows_what_it_asks_for_and_what_it_has(api: Api) -> None:
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "gpu", "count": 2}},
        {"name": "b", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
        {
            "name": "c",
            "firstAvailable": [
                {"name": "big", "deviceClassName": "big"},
                {"name": "small", "deviceClassName": "small", "count": 2},
            ],
        },
        {"name": "d", "exactly": {"deviceClassName": "fpga"}},
    ]
    made = api.made(CLAIMS, {**claim(), "spec": {"devices": {"requests": requests}}})
    found = cells(api, f"{CLAIMS}/c")
    assert found["Requests"] == "2 gpu, all nic, 1 big or 2 small, +1 more"
    assert (found["State"], found["Devices"], found["Reserved-For"]) == ("pending", "<none>", "<none>")
    results = [{"request": "a", "driver": "gpu.example.com", "pool": "n1", "device": f"gpu-{at}"} for at in range(2)]
    made["status"] = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "train", "uid": "1"}],
    }
    assert api.put(f"{CLAIMS}/c/status", made).code == 200
    found = cells(api, f"{CLAIMS}/c")
    assert found["Devices"] == "gpu.example.com/n1/gpu-0, gpu.example.com/n1/gpu-1"
    assert (found["State"], found["Reserved-For"]) == ("allocated,reserved", "train")


def test_a_template_shows_what_its_claims_ask_for(api: Api) -> None:
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t"}}
    api.made(TEMPLATES, {**body, "spec": {"spec": claim()["spec"]}})
    assert cells(api, f"{TEMPLATES}/t")["Requests"] == "1 gpu.example.com"


def test_a_slice_shows_its_devices_and_its_pool(api: Api) -> None:
    taint = {"key": "a.com/t", "effect": "NoSchedule"}
    spec = {
        "driver": "gpu.example.com",
        "allNodes": True,
        "pool": {"name": "p", "generation": 3, "resourceSliceCount": 2},
        "devices": [{"name": "gpu-0", "taints": [taint]}, {"name": "gpu-1"}],
    }
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}
    api.made(f"{RESOURCE}/v1/resourceslices", body)
    found = cells(api, f"{RESOURCE}/v1/resourceslices/s")
    assert (found["Node"], found["Devices"], found["Tainted"], found["Generation"], found["Slices"]) == (
        "<unset>",
        2,
        1,
        3,
        2,
    )


@pytest.mark.parametrize(
    ("selector", "shown"),
    [
        ({"driver": "gpu.example.com", "device": "gpu-0"}, ("gpu.example.com", "<any>", "gpu-0")),
        (None, ("<none>", "<none>", "<none>")),
    ],
)
def test_a_taint_rule_shows_what_it_selects(
    api: Api, selector: dict[str, str] | None, shown: tuple[str, str, str]
) -> None:
    spec = {"taint": {"key": "a.com/t", "effect": "NoSchedule"}} | ({"deviceSelector": selector} if selector else {})
    body = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": spec}
    api.made(f"{RESOURCE}/v1beta2/devicetaintrules", body)
    found = cells(api, f"{RESOURCE}/v1beta2/devicetaintrules/r")
    assert (found["Driver"], found["Pool"], found["Device"]) == shown


def test_kinds_of_older_versions_show_theirs(api: Api) -> None:
    old = f"{RESOURCE}/v1alpha2"
    with gates.using(DRAControlPlaneController=True):
        reference = {"apiGroup": "a.com", "kind": "Params", "name": "p", "namespace": "ns"}
        head = {"apiVersion": "resource.k8s.io/v1alpha2"}
        body = {**head, "kind": "ResourceClass", "metadata": {"name": "gpu"}, "driverName": "gpu.example.com"}
        api.made(f"{old}/resourceclasses", {**body, "parametersRef": reference})
        assert cells(api, f"{old}/resourceclasses/gpu")["Parameters"] == "Params ns/p"
        body = {**head, "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"resourceClassName": "gpu"}}
        api.made(f"{old}/namespaces/default/resourceclaims", body)
        found = cells(api, f"{old}/namespaces/default/resourceclaims/c")
        assert (found["Driver"], found["Reserved-For"]) == ("<none>", "<none>")
        assert cells(api, f"{CLAIMS}/c")["Requests"] == "gpu"
        spec = {"potentialNodes": ["a", "b", "c", "d"], "selectedNode": "a"}
        body = {**head, "kind": "PodSchedulingContext", "metadata": {"name": "p"}, "spec": spec}
        contexts = f"{old}/namespaces/default/podschedulingcontexts"
        api.made(contexts, body)
        assert cells(api, f"{contexts}/p")["Potential-Nodes"] == "a, b, c, +1 more"
