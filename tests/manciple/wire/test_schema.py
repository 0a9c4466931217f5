"""OpenAPI schemas and merge rules as kubectl needs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from claims.kinds.containers import Container
from claims.kinds.pods import Pod, PodSpec
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimStatus
from claims.kinds.volumes import Volume
from inventory.kinds.devices import Device, DeviceAttribute, ResourceSlice
from inventory.kinds.nodes import Node, NodeSpec, NodeStatus
from manciple.api import openapi
from manciple.wire import patch, schema
from manciple.wire.base import MERGE_SCALARS, ObjectMeta
from manciple.wire.schema import ServedKind
from tests.manciple.wire.kinds import TYPES

SERVED = [
    ServedKind(api_version.rpartition("/")[0], api_version.rpartition("/")[2], kind, type_)
    for (api_version, kind), type_ in TYPES.items()
]
V3, V2 = schema.components(SERVED), schema.definitions(SERVED)
CLAIM = "io.k8s.api.resource.v1.ResourceClaim"


def references(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(document, list):
        for item in document:
            yield from references(item)


@pytest.mark.parametrize(
    ("schemas", "prefix"), [(V3, "#/components/schemas/"), (V2, "#/definitions/")], ids=["v3", "v2"]
)
def test_every_reference_leads_somewhere(schemas: dict[str, Any], prefix: str) -> None:
    named = set(references(schemas))
    assert named
    assert {reference.removeprefix(prefix) for reference in named} <= set(schemas)


def test_every_kind_and_its_list_say_which_they_are() -> None:
    for served in SERVED:
        identity = {"group": served.group, "version": served.version}
        assert V3[served.name]["x-kubernetes-group-version-kind"] == [{**identity, "kind": served.kind}]
        assert V3[f"{served.name}List"]["x-kubernetes-group-version-kind"] == [
            {**identity, "kind": f"{served.kind}List"}
        ]


def test_every_kind_and_list_has_a_description() -> None:
    kinds = [one for one in V3.values() if "x-kubernetes-group-version-kind" in one]
    assert [one for one in kinds if not one["description"]] == []


NAMES = {
    ObjectMeta: "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    Pod: "io.k8s.api.core.v1.Pod",
    ResourceClaim: CLAIM,
    TYPES["resource.k8s.io/v1beta1", "ResourceClaim"]: "io.k8s.api.resource.v1beta1.ResourceClaim",
    TYPES["coordination.k8s.io/v1", "Lease"]: "io.k8s.api.coordination.v1.Lease",
    TYPES["v1", "Namespace"]: "io.k8s.api.core.v1.Namespace",
}


@pytest.mark.parametrize("type_", NAMES, ids=lambda type_: type_.__name__)
def test_types_are_named_as_kubernetes_names_them(type_: Any) -> None:
    assert schema.schema_name(type_) == NAMES[type_]
    assert NAMES[type_] in V3


def test_a_version_with_the_shape_of_another_has_schemas_of_its_own_for_its_kinds() -> None:
    assert V3["io.k8s.api.resource.v1beta2.ResourceClaim"]["properties"] == V3[CLAIM]["properties"]


def test_scalars_have_their_formats() -> None:
    properties = V3["io.k8s.api.resource.v1.DeviceAttribute"]["properties"]
    attribute = {name: {k: v for k, v in one.items() if k != "description"} for name, one in properties.items()}
    assert attribute["int"] == {"type": "integer", "format": "int64"}
    assert attribute["bool"] == {"type": "boolean"}
    assert attribute["strings"] == {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}
    pod = V3["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert pod["priority"]["format"] == "int32"
    assert pod["nodeSelector"]["additionalProperties"] == {"type": "string"}


def test_amounts_and_ports_take_numbers_and_texts() -> None:
    quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"
    port = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
    assert V3[quantity]["oneOf"] == [{"type": "string"}, {"type": "number"}]
    assert V3[port]["format"] == "int-or-string"
    assert (V2[quantity]["type"], V2[port]["format"]) == ("string", "int-or-string")
    value = V3["io.k8s.api.resource.v1.Counter"]["properties"]["value"]
    assert value["allOf"] == [{"$ref": f"#/components/schemas/{quantity}"}]


def test_a_description_of_a_field_comes_from_the_docstring_of_its_type() -> None:
    request = V3["io.k8s.api.resource.v1.ExactDeviceRequest"]["properties"]
    assert request["count"]["description"] == "Devices wanted with ExactCount; 1 by default."
    assert request["tolerations"]["description"] == "What lets a request use a tainted device."
    device = V3["io.k8s.api.resource.v1.Device"]["properties"]
    both = "By qualified name; a name without a domain has the driver's; at most 32 together. "
    assert device["attributes"]["description"] == f"{both}A property of a device. Exactly one field is set."
    assert device["capacity"]["description"].startswith(both)


@pytest.mark.django_db
def test_kubectl_explains_every_field() -> None:
    served = orjson.loads(openapi.version_2_json())["definitions"]
    assert len(served) > 400
    silent = [
        f"{name}.{field}"
        for name, one in {**V2, **served}.items()
        for field, described in one.get("properties", {}).items()
        if not described.get("description", "").endswith((".", "?", "!"))
    ]
    assert silent == []


CONDITION = {"status": "True, False or Unknown.", "reason": "Why, as one word in CamelCase."}


def test_fields_that_every_type_has_are_described_once() -> None:
    condition = V2["io.k8s.api.core.v1.NodeCondition"]["properties"]
    assert {name: condition[name]["description"] for name in CONDITION} == CONDITION
    assert condition["type"]["description"].startswith("Ready, MemoryPressure")
    older = V2["io.k8s.api.resource.v1beta1.BasicDevice"]["properties"]["bindsToNode"]
    assert older == V2["io.k8s.api.resource.v1.Device"]["properties"]["bindsToNode"]


def test_v3_puts_a_described_reference_into_all_of_and_v2_beside() -> None:
    v3, v2 = V3[CLAIM]["properties"]["metadata"], V2[CLAIM]["properties"]["metadata"]
    assert set(v3) == {"description", "allOf"}
    assert set(v2) == {"description", "$ref"}


LISTS = {
    "merged by a key": (Pod, "containers", {"type": "map", "keys": ["name"], "merge": "name", "strategy": "merge"}),
    "merged by a key, keeping what is listed": (
        Pod,
        "resourceClaims",
        {"type": "map", "keys": ["name"], "merge": "name", "strategy": "merge,retainKeys"},
    ),
    "with two map keys and one merge key": (
        Container,
        "ports",
        {"type": "map", "keys": ["containerPort", "protocol"], "merge": "containerPort", "strategy": "merge"},
    ),
    "a map that is no merge list": (
        ResourceClaimStatus,
        "devices",
        {"type": "map", "keys": ["driver", "device", "pool", "shareID"], "merge": None, "strategy": None},
    ),
    "a set": (ObjectMeta, "finalizers", {"type": "set", "keys": None, "merge": None, "strategy": "merge"}),
    "replaced whole": (Pod, "tolerations", {"type": "atomic", "keys": None, "merge": None, "strategy": None}),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_say_how_they_are_merged(name: str) -> None:
    type_, field, expected = LISTS[name]
    owner: Any = PodSpec if type_ is Pod else type_
    declared = V3[schema.schema_name(owner)]["properties"][field]
    assert {
        "type": declared["x-kubernetes-list-type"],
        "keys": declared.get("x-kubernetes-list-map-keys"),
        "merge": declared.get("x-kubernetes-patch-merge-key"),
        "strategy": declared.get("x-kubernetes-patch-strategy"),
    } == expected


MERGE_KEYS: dict[str, tuple[Any, str, str | None]] = {
    "containers": (PodSpec, "containers", "name"),
    "environment": (Container, "env", "name"),
    "mounts": (Container, "volumeMounts", "mountPath"),
    "ports": (Container, "ports", "containerPort"),
    "volumes": (PodSpec, "volumes", "name"),
    "pod tolerations": (PodSpec, "tolerations", None),
    "node taints": (NodeSpec, "taints", None),
    "node conditions": (NodeStatus, "conditions", "type"),
    "node addresses": (NodeStatus, "addresses", "type"),
    "owners": (ObjectMeta, "ownerReferences", "uid"),
    "finalizers": (ObjectMeta, "finalizers", MERGE_SCALARS),
    "reservations": (ResourceClaimStatus, "reservedFor", "uid"),
    "a field of an embedded struct": (Volume, "configMap", None),
    "no such field": (PodSpec, "nonsense", None),
    "no type": (None, "anything", None),
    "a map": (dict[str, DeviceAttribute], "anything", None),
}


@pytest.mark.parametrize("name", MERGE_KEYS)
def test_merge_keys_are_those_of_kubernetes(name: str) -> None:
    type_, field, expected = MERGE_KEYS[name]
    assert schema.list_merge_key(type_, field) == expected


FIELD_TYPES: dict[str, tuple[Any, str, Any]] = {
    "a struct": (Pod, "spec", PodSpec),
    "elements of a list": (PodSpec, "containers", Container),
    "a map of structs": (Device, "attributes", dict[str, DeviceAttribute]),
    "inside a map": (dict[str, DeviceAttribute], "model", DeviceAttribute),
    "a map of texts": (ObjectMeta, "labels", dict[str, str]),
    "raw JSON": (TYPES["resource.k8s.io/v1", "DeviceClass"], "nonsense", None),
    "a text": (PodSpec, "nodeName", str),
    "nothing known": (None, "x", None),
}


@pytest.mark.parametrize("name", FIELD_TYPES)
def test_field_types_lead_through_a_document(name: str) -> None:
    type_, field, expected = FIELD_TYPES[name]
    assert schema.field_type(type_, field) == expected


def test_a_strategic_merge_patch_follows_the_declarations() -> None:
    document = {
        "metadata": {"labels": {"a": "1"}, "finalizers": ["x"]},
        "spec": {
            "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}, {"name": "d"}],
            "tolerations": [{"key": "old"}],
        },
    }
    change = {
        "metadata": {"labels": {"b": "2"}, "finalizers": ["y"]},
        "spec": {
            "containers": [{"name": "c", "env": [{"name": "B", "value": "2"}]}],
            "tolerations": [{"key": "new"}],
        },
    }
    patched = patch.strategic_merge_patch(document, change, Pod)
    assert patched["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert sorted(patched["metadata"]["finalizers"]) == ["x", "y"]
    assert [one["name"] for one in patched["spec"]["containers"]] == ["c", "d"]
    assert sorted(one["name"] for one in patched["spec"]["containers"][0]["env"]) == ["A", "B"]
    assert patched["spec"]["tolerations"] == [{"key": "new"}]


def test_schemas_know_every_json_name_that_a_kind_has() -> None:
    assert set(V3[schema.schema_name(Node)]["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}
    assert "podCIDRs" in V3["io.k8s.api.core.v1.NodeSpec"]["properties"]
    assert "skipNodeOperations" in V3["io.k8s.api.resource.v1.ResourceSliceSpec"]["properties"]
    assert schema.schema_name(ResourceSlice) in V3
