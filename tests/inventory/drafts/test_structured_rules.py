"""What the KEP-4381 draft lets into its objects, and what becomes of what drivers publish."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from inventory.classic.registration import RESOURCE_CLAIM_PARAMETERS, RESOURCE_CLASS_PARAMETERS
from inventory.drafts.structured.publishing import NodeResources, as_device
from inventory.drafts.structured.registration import NODE_RESOURCE_SLICE
from inventory.drafts.structured.values import NodeResourceSlice
from inventory.kinds import gates
from manciple.wire import codec
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import BadRequest
from manciple.wire.registry import Kind

DRIVER = "cards.dra.example.com"


def published(*attributes: dict[str, Any], name: str = "gpu-0", **spec: Any) -> NodeResourceSlice:
    resource = {"name": name, "attributes": list(attributes)}
    given = {"nodeName": "worker-1", "driverName": DRIVER, "namedResourcesWithAttributes": [resource], **spec}
    made: NodeResourceSlice = read(NODE_RESOURCE_SLICE, spec=given)
    return made


def read(kind: Kind, **fields: Any) -> Any:
    document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x"}, **fields}
    if kind.namespaced:
        document["metadata"]["namespace"] = "default"
    return kind.prepare_create(codec.decode_document(kind, document, strictness="Strict").object)


def problems(kind: Kind, obj: Any) -> list[str]:
    return [one.field for one in kind.validate_create(obj)]


EVERY_TYPE = (
    {"name": "memory", "quantity": "16Gi"},
    {"name": "ready", "bool": False},
    {"name": "cores", "int": 0},
    {"name": "links", "intSlice": [1, 2]},
    {"name": "productName", "string": ""},
    {"name": "modes", "stringSlice": ["a"]},
    {"name": "runtimeVersion", "version": "v12.0.0"},
)


def test_an_attribute_has_a_value_of_one_of_seven_types() -> None:
    one = published(*EVERY_TYPE)
    assert problems(NODE_RESOURCE_SLICE, one) == []
    (resource,) = one.spec.named_resources_with_attributes or ()
    device = as_device(resource)
    assert {name: amount.value for name, amount in device.capacity.items()} == {"memory": "16Gi"}
    assert {name: next(iter(codec.to_builtins(value).items())) for name, value in device.attributes.items()} == {
        "ready": ("bool", False),
        "cores": ("int", 0),
        "links": ("ints", [1, 2]),
        "productName": ("string", ""),
        "modes": ("strings", ["a"]),
        "runtimeVersion": ("version", "12.0.0"),
    }


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("1.2.3", "1.2.3"),
        ("v12.0.0", "12.0.0"),
        (" 1.2.3 ", "1.2.3"),
        ("11.1", "11.1.0"),
        ("01.02.03", "1.2.3"),
        ("1.2.3-rc.1+build", "1.2.3-rc.1+build"),
    ],
)
def test_a_version_is_parsed_tolerantly(given: str, kept: str) -> None:
    one = published({"name": "driverVersion", "version": given})
    assert problems(NODE_RESOURCE_SLICE, one) == []
    (resource,) = one.spec.named_resources_with_attributes or ()
    assert resource.attributes[0].version_value == kept


RESOURCES = "spec.namedResourcesWithAttributes"


@pytest.mark.parametrize(
    ("attribute", "field"),
    [
        ({"name": "a"}, ""),
        ({"name": "a", "int": 1, "bool": True}, ""),
        ({"name": "a", "version": "newest"}, ".version"),
        ({"name": "a/b", "int": 1}, ".name"),
        ({"name": "", "int": 1}, ".name"),
        ({"name": "pcie.k8s.io", "string": "0"}, ".name"),
    ],
)
def test_an_attribute_value_must_have_one_and_only_one_field_set(attribute: dict[str, Any], field: str) -> None:
    assert problems(NODE_RESOURCE_SLICE, published(attribute)) == [f"{RESOURCES}[0].attributes[0]{field}"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"nodeName": ""}, "spec.nodeName"),
        ({"driverName": "a/b"}, "spec.driverName"),
        ({"namedResourcesWithAttributes": None}, RESOURCES),
        ({"namedResourcesWithAttributes": [{"name": "a"}, {"name": "a"}]}, f"{RESOURCES}[1]"),
        ({"namedResourcesWithAttributes": [{"name": "GPU"}]}, f"{RESOURCES}[0].name"),
    ],
)
def test_a_node_resource_model_must_have_one_and_only_one_field_set_and_all_names_must_be_dns_subdomains(
    spec: dict[str, Any], field: str
) -> None:
    assert problems(NODE_RESOURCE_SLICE, published(**spec)) == [field]


def test_a_quantity_that_is_none_is_refused_at_the_door() -> None:
    with pytest.raises(BadRequest, match="quantities must match"):
        published({"name": "memory", "quantity": "much"})


def test_node_and_driver_of_a_slice_do_not_change() -> None:
    one, other = published(), published(nodeName="worker-2")
    found = NODE_RESOURCE_SLICE.validate_update(other, one)
    assert [error.field for error in found if error.field.startswith("spec")] == ["spec.nodeName"]


def test_slices_are_found_by_node_and_by_driver() -> None:
    assert NODE_RESOURCE_SLICE.selectable(published()) == {"spec.nodeName": "worker-1", "spec.driverName": DRIVER}


def test_of_two_resources_with_one_name_the_first_slice_counts_and_the_other_follows_it() -> None:
    first, second = (
        replace(published({"name": "cores", "int": cores}), metadata=ObjectMeta(name=name))
        for name, cores in (("a", 1), ("b", 2))
    )
    resources = NodeResources()
    (pool,) = (*resources.put(second), *resources.put(first))[-1:]
    assert [device.attributes["cores"].int_value for device in pool.spec.devices] == [1]
    (left,) = resources.remove(first)
    assert [device.attributes["cores"].int_value for device in left.spec.devices] == [2]
    (gone,) = resources.remove(second)
    assert gone.spec.devices == ()


# Parameters -----------------------------------------------------------------------------------------------------------


def requests(model: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"driverName": DRIVER, "namedResourcesWithAttributes": model, **more}]


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (None, ""),
        ({}, ".required"),
        ({"required": [{"selector": ""}]}, ".required[0].selector"),
        ({"required": [{"selector": "attributes.memory >="}]}, ".required[0].selector"),
        ({"selector": "device.driver == 'x'"}, ".selector"),
        ({"selector": "true || " * 1300 + "true"}, ".selector"),
        ({"selector": "true", "required": [{"selector": "true"}]}, ".selector"),
    ],
)
def test_a_request_model_must_have_one_and_only_one_field_set(model: Any, field: str) -> None:
    with gates.using(DRAStructuredParametersDraft=True):
        made = read(RESOURCE_CLAIM_PARAMETERS, requests=requests(model))
    assert problems(RESOURCE_CLAIM_PARAMETERS, made) == [f"requests[0].namedResourcesWithAttributes{field}"]


def test_one_object_has_the_requests_of_the_draft_or_those_of_kubernetes_1_30() -> None:
    of_1_30 = [{"driverName": DRIVER, "requests": [{"namedResources": {"selector": "true"}}]}]
    with gates.using(DRAStructuredParametersDraft=True):
        made = read(RESOURCE_CLAIM_PARAMETERS, requests=requests({"selector": "true"}), driverRequests=of_1_30)
    assert problems(RESOURCE_CLAIM_PARAMETERS, made) == ["requests"]


def test_vendor_parameters_can_be_any_kind_of_object_in_both_forms() -> None:
    anything = {"kind": "CardParameters", "spec": {"sharing": {"strategy": "TimeSliced"}}}
    with gates.using(DRAStructuredParametersDraft=True):
        of_claim = read(RESOURCE_CLAIM_PARAMETERS, vendorParameters=anything, requests=requests({"selector": "true"}))
        of_class = read(RESOURCE_CLASS_PARAMETERS, vendorParameters=anything)
        of_1_30 = read(RESOURCE_CLASS_PARAMETERS, vendorParameters=[{"driverName": DRIVER, "parameters": anything}])
    assert of_claim.vendor_parameters == of_class.vendor_parameters == anything
    assert of_1_30.vendor_parameters[0].parameters == anything
    assert codec.decode_text(RESOURCE_CLASS_PARAMETERS.type, codec.encode(of_class).decode()) == of_class
    for kind, made in ((RESOURCE_CLAIM_PARAMETERS, of_claim), (RESOURCE_CLASS_PARAMETERS, of_class)):
        assert problems(kind, made) == []


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"driverName": DRIVER}, "filters[0]"),
        (
            {"driverName": DRIVER, "namedResourcesWithAttributes": {"selector": "attributes"}},
            "filters[0].namedResourcesWithAttributes.selector",
        ),
    ],
)
def test_a_filter_model_must_have_one_and_only_one_field_set(entry: dict[str, Any], field: str) -> None:
    with gates.using(DRAStructuredParametersDraft=True):
        made = read(RESOURCE_CLASS_PARAMETERS, filters=[entry])
    assert problems(RESOURCE_CLASS_PARAMETERS, made) == [field]


def test_with_the_gate_off_the_drafts_fields_are_dropped_from_what_is_new_and_kept_where_they_are() -> None:
    with gates.using(DRAStructuredParametersDraft=True):
        known = read(RESOURCE_CLAIM_PARAMETERS, requests=requests({"selector": "true"}))
    assert read(RESOURCE_CLAIM_PARAMETERS, requests=requests({"selector": "true"})).requests == ()
    assert RESOURCE_CLAIM_PARAMETERS.prepare_update(known, known).requests == known.requests
