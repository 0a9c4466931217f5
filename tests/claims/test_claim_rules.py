"""ResourceClaim and ResourceClaimTemplate: defaults, rules, immutability, status."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.registration import RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from claims.kinds.resource_claims import (
    CapacityRequirements,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimStatus,
)
from inventory.kinds.devices import DeviceToleration
from manciple.wire.errors import FieldError
from tests.builders import (
    make_allocation,
    make_alternative,
    make_alternatives,
    make_claim,
    make_claim_config,
    make_constraint,
    make_request,
    make_template,
    stored,
)

STATUS = RESOURCE_CLAIM.subresources["status"]
REFERENCE_RULE = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"


def texts(errors: Iterable[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def wrong(claim: ResourceClaim) -> list[str]:
    return [text.removeprefix("spec.devices.") for text in texts(RESOURCE_CLAIM.validate_create(claim))]


def assert_begins(found: list[str], expected: list[str]) -> None:
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected


# Defaults ------------------------------------------------------------------------------------------------------------


def test_a_request_is_for_one_device_unless_it_says_otherwise() -> None:
    bare = DeviceRequest(name="a", exactly=ExactDeviceRequest(device_class_name="gpu"))
    alternatives = DeviceRequest(name="b", first_available=(DeviceSubRequest(name="c", device_class_name="gpu"),))
    made = RESOURCE_CLAIM.prepare_create(make_claim(requests=[bare, alternatives]))
    exactly, (alternative,) = made.spec.devices.requests[0].exactly, made.spec.devices.requests[1].first_available
    assert (exactly.allocation_mode, exactly.count) == ("ExactCount", 1)
    assert (alternative.allocation_mode, alternative.count) == ("ExactCount", 1)


def test_a_request_for_all_devices_has_no_count() -> None:
    bare = DeviceRequest(name="a", exactly=ExactDeviceRequest(device_class_name="gpu", allocation_mode="All"))
    made = RESOURCE_CLAIM.prepare_create(make_claim(requests=[bare]))
    assert made.spec.devices.requests[0].exactly.count == 0


def test_tolerations_compare_by_equality() -> None:
    request = make_request(tolerations=[DeviceToleration(key="a", value="b")])
    made = RESOURCE_CLAIM_TEMPLATE.prepare_create(make_template(requests=[request]))
    assert made.spec.spec.devices.requests[0].exactly.tolerations[0].operator == "Equal"


def test_a_new_claim_has_no_status() -> None:
    assert RESOURCE_CLAIM.prepare_create(make_claim(allocation=make_allocation())).status == ResourceClaimStatus()


# Rules of the specification ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "expected"),
    {
        "plain": (make_request(), []),
        "all": (make_request(all_devices=True), []),
        "alternatives": (make_alternatives("gpu", make_alternative("big"), make_alternative("small", count=2)), []),
        "upper case name": (
            make_request("A"),
            ['name: Invalid value: "A": a lowercase RFC 1123 label must consist of'],
        ),
        "neither": (
            DeviceRequest(name="a"),
            [": Required value: exactly one of `exactly` or `firstAvailable` is required"],
        ),
        "both": (
            replace(make_request(), first_available=(make_alternative("b"),)),
            [": Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple"],
        ),
        "no class": (make_request(device_class=""), ["exactly.deviceClassName: Required value"]),
        "bad class": (make_request(device_class="A"), ['exactly.deviceClassName: Invalid value: "A": a lowercase']),
        "none": (make_request(count=0), ["exactly.count: Invalid value: 0: must be greater than zero"]),
        "all and two": (
            DeviceRequest(
                name="a", exactly=ExactDeviceRequest(device_class_name="gpu", allocation_mode="All", count=2)
            ),
            ["exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"],
        ),
        "unknown mode": (
            DeviceRequest(name="a", exactly=ExactDeviceRequest(device_class_name="gpu", allocation_mode="Some")),
            ['exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"'],
        ),
        "33 selectors": (
            make_request(expressions=["true"] * 33),
            ["exactly.selectors: Too many: 33: must have at most 32 items"],
        ),
        "nine alternatives": (
            make_alternatives("a", *(make_alternative(f"n{i}") for i in range(9))),
            ["firstAvailable: Too many: 9: must have at most 8 items"],
        ),
        "alternatives of one name": (
            make_alternatives("a", make_alternative("b"), make_alternative("b")),
            ['firstAvailable[1]: Duplicate value: "b"'],
        ),
        "wrong alternative": (
            make_alternatives("a", make_alternative("b", device_class="", count=-1)),
            [
                "firstAvailable[0].deviceClassName: Required value",
                "firstAvailable[0].count: Invalid value: -1: must be greater than zero",
            ],
        ),
        "wrong tolerations": (
            make_request(
                tolerations=[
                    DeviceToleration(key="-", operator="Equal"),
                    DeviceToleration(operator="Exists", value="x"),
                    DeviceToleration(operator="Like", effect="Maybe"),
                    DeviceToleration(),
                ]
            ),
            [
                'exactly.tolerations[0].key: Invalid value: "-": name part must',
                'exactly.tolerations[1].value: Invalid value: "x": must be empty for operator `Exists`',
                'exactly.tolerations[2].operator: Unsupported value: "Like": supported values: "Equal", "Exists"',
                'exactly.tolerations[2].effect: Unsupported value: "Maybe": supported values: "NoExecute", "NoSch',
                "exactly.tolerations[3].operator: Required value",
            ],
        ),
        "17 tolerations": (
            make_request(tolerations=[DeviceToleration(operator="Exists")] * 17),
            ["exactly.tolerations: Too many: 17: must have at most 16 items"],
        ),
        "wrong capacity": (
            make_request(capacity=CapacityRequirements(requests={"m": "x", "a-b": "-1"})),
            [
                'exactly.capacity.requests[m]: Invalid value: "x": quantities must match',
                'exactly.capacity.requests: Invalid value: "a-b": a valid C identifier',
                'exactly.capacity.requests[a-b]: Invalid value: "-1": must be greater than or equal to 0',
            ],
        ),
    }.values(),
)
def test_wrong_fields_of_a_request(request_: DeviceRequest, expected: list[str]) -> None:
    found = [text.removeprefix("requests[0]").removeprefix(".") for text in wrong(make_claim(requests=[request_]))]
    assert_begins(found, expected)


@pytest.mark.usefixtures("picky")
def test_an_expression_that_does_not_compile_is_told_under_its_field() -> None:
    request = make_request(expressions=["true", "broken"])
    assert wrong(make_claim(requests=[request])) == [
        'requests[0].exactly.selectors[1].cel.expression: Invalid value: "broken": compilation failed: broken'
    ]
    (found,) = texts(RESOURCE_CLAIM_TEMPLATE.validate_create(make_template(requests=[request])))
    assert found.startswith("spec.spec.devices.requests[0].exactly.selectors[1].cel.expression: ")


MIXED = (make_request("a"), make_alternatives("b", make_alternative("x"), make_alternative("y")))


@pytest.mark.parametrize(
    ("fields", "expected"),
    {
        "matching": ({"constraints": [make_constraint("example.com/numa", requests=["a", "b/x"])]}, []),
        "distinct": ({"constraints": [make_constraint(distinct="example.com/numa")]}, []),
        "33 requests": (
            {"requests": [make_request(f"r{i}") for i in range(33)]},
            ["requests: Too many: 33: must have at most 32 items"],
        ),
        "requests of one name": (
            {"requests": [make_request("a"), make_request("a")]},
            ['requests[1]: Duplicate value: "a"'],
        ),
        "33 constraints": (
            {"constraints": [make_constraint("example.com/numa")] * 33},
            ["constraints: Too many: 33: must have at most 32 items"],
        ),
        "constraint on nothing": (
            {"constraints": [make_constraint()]},
            ['constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required'],
        ),
        "constraint on both": (
            {"constraints": [make_constraint("example.com/a", distinct="example.com/b")]},
            ["constraints[0]: Invalid value: null: exactly one of"],
        ),
        "attribute without domain": (
            {"constraints": [make_constraint("numa")]},
            ['constraints[0].matchAttribute: Invalid value: "numa": a fully qualified name must be a domain'],
        ),
        "unknown request": (
            {"constraints": [make_constraint("example.com/numa", requests=["z"])]},
            [f'constraints[0].requests[0]: Invalid value: "z": {REFERENCE_RULE}'],
        ),
        "unknown alternative": (
            {"constraints": [make_constraint("example.com/numa", requests=["b/z", "a/x", "b/x/y"])]},
            [
                f'constraints[0].requests[0]: Invalid value: "b/z": {REFERENCE_RULE}',
                f'constraints[0].requests[1]: Invalid value: "a/x": {REFERENCE_RULE}',
                f'constraints[0].requests[2]: Invalid value: "b/x/y": {REFERENCE_RULE}',
            ],
        ),
        "request named twice": (
            {"config": [make_claim_config({}, requests=["a", "a"])]},
            ['config[0].requests[1]: Duplicate value: "a"'],
        ),
        "33 configurations": (
            {"config": [make_claim_config({})] * 33},
            ["config: Too many: 33: must have at most 32 items"],
        ),
        "configuration for no driver": (
            {"config": [make_claim_config({}, driver="")]},
            ["config[0].opaque.driver: Required value"],
        ),
        "configuration without parameters": (
            {"config": [make_claim_config(None)]},
            ["config[0].opaque.parameters: Required value"],
        ),
    }.values(),
)
def test_wrong_fields_of_a_claim(fields: dict[str, Any], expected: list[str]) -> None:
    assert_begins(wrong(make_claim(**{"requests": MIXED, **fields})), expected)


def test_a_template_gives_its_claims_labels_and_annotations_and_nothing_else() -> None:
    meta = {"name": "mine", "namespace": "theirs", "uid": "x", "finalizers": ("a/b",), "annotations": {"a": "b"}}
    template = make_template(claim_meta=meta)
    assert texts(RESOURCE_CLAIM_TEMPLATE.validate_create(template)) == [
        f"spec.metadata.{field}: Forbidden: cannot be set" for field in ("name", "namespace", "uID", "finalizers")
    ]


def test_the_claim_of_a_template_is_checked_with_its_metadata() -> None:
    template = make_template(requests=[make_request("A")], claim_meta={"labels": {"-": ""}})
    found = texts(RESOURCE_CLAIM_TEMPLATE.validate_create(template))
    assert [text.partition(": ")[0] for text in found] == [
        "spec.metadata.labels",
        "spec.spec.devices.requests[0].name",
    ]


# Updates -------------------------------------------------------------------------------------------------------------


def test_the_specification_never_changes() -> None:
    old = stored(make_claim())
    new = replace(old, spec=make_claim(requests=[make_request(count=2)]).spec)
    (found,) = texts(RESOURCE_CLAIM.validate_update(new, old))
    assert found.startswith('spec: Invalid value: {"devices":')
    assert found.endswith(": field is immutable")
    template = stored(make_template())
    changed = replace(template, spec=make_template(requests=[make_request("b")]).spec)
    assert [error.field for error in RESOURCE_CLAIM_TEMPLATE.validate_update(changed, template)] == ["spec"]


def test_leaving_the_defaults_out_is_no_change() -> None:
    old = stored(RESOURCE_CLAIM.prepare_create(make_claim()))
    bare = DeviceRequest(name="gpu", exactly=ExactDeviceRequest(device_class_name="gpu.example.com"))
    new = RESOURCE_CLAIM.prepare_update(replace(make_claim(requests=[bare]), metadata=old.metadata), old)
    assert RESOURCE_CLAIM.validate_update(new, old) == []


def test_an_update_keeps_the_status_and_a_status_update_all_else() -> None:
    old = stored(make_claim(allocation=make_allocation()))
    new = replace(make_claim(labels={"a": "b"}), metadata=replace(old.metadata, labels={"a": "b"}))
    assert RESOURCE_CLAIM.prepare_update(new, old).status == old.status
    written = STATUS.prepare_update(replace(new, status=ResourceClaimStatus()), old)
    assert (written.spec, written.metadata.labels, written.status) == (old.spec, {}, ResourceClaimStatus())


def test_a_status_update_carries_the_revision_that_its_writer_saw() -> None:
    old = stored(make_claim(), revision=7)
    new = replace(old, metadata=replace(old.metadata, resource_version="5"))
    assert STATUS.prepare_update(new, old).metadata.resource_version == "5"
