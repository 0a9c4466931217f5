"""Errors: each wrong field in upstream's words, and the Status that carries them."""

import pytest

from claims.kinds.resource_claims import AllocationResult
from manciple.wire import errors
from manciple.wire.errors import FieldError, Invalid, NotFound

FIELD = "spec.name"


@pytest.mark.parametrize(
    ("error", "reason", "body"),
    {
        "required": (errors.required(FIELD), "FieldValueRequired", "Required value"),
        "required, told why": (errors.required(FIELD, "say it"), "FieldValueRequired", "Required value: say it"),
        "invalid text": (errors.invalid(FIELD, "A", "no"), "FieldValueInvalid", 'Invalid value: "A": no'),
        "invalid number": (errors.invalid(FIELD, -1, "no"), "FieldValueInvalid", "Invalid value: -1: no"),
        "invalid flag": (errors.invalid(FIELD, False, "no"), "FieldValueInvalid", "Invalid value: false: no"),
        "invalid nothing": (errors.invalid(FIELD, None, "no"), "FieldValueInvalid", "Invalid value: null: no"),
        "invalid list": (errors.invalid(FIELD, ("a",), "no"), "FieldValueInvalid", 'Invalid value: ["a"]: no'),
        "invalid allocation, of which a version sees a part": (
            errors.immutable(FIELD, {"claims": [AllocationResult(controller_name="gpu.example.com")]}),
            "FieldValueInvalid",
            'Invalid value: {"claims":[{}]}: field is immutable',
        ),
        "duplicate": (errors.duplicate(FIELD, "a"), "FieldValueDuplicate", 'Duplicate value: "a"'),
        "not found": (errors.not_found(FIELD, "a"), "FieldValueNotFound", 'Not found: "a"'),
        "unsupported": (
            errors.not_supported(FIELD, "x", ("A", "B")),
            "FieldValueNotSupported",
            'Unsupported value: "x": supported values: "A", "B"',
        ),
        "forbidden": (errors.forbidden(FIELD, "not now"), "FieldValueForbidden", "Forbidden: not now"),
        "too long": (errors.too_long(FIELD, 63), "FieldValueTooLong", "Too long: may not be more than 63 bytes"),
        "too many": (errors.too_many(FIELD, 33, 32), "FieldValueTooMany", "Too many: 33: must have at most 32 items"),
        "immutable": (errors.immutable(FIELD, "b"), "FieldValueInvalid", 'Invalid value: "b": field is immutable'),
    }.values(),
)
def test_a_wrong_field_reads_as_upstream_writes_it(error: FieldError, reason: str, body: str) -> None:
    assert (error.type, error.body, str(error)) == (reason, body, f"{FIELD}: {body}")


def test_an_invalid_object_lists_every_wrong_field_as_a_cause() -> None:
    found = [errors.required("spec.a"), errors.invalid("spec.b", "x", "no")]
    status = Invalid.of(kind="ResourceClaim", group="resource.k8s.io", name="c", errors=found).status()
    assert status["message"] == (
        'ResourceClaim.resource.k8s.io "c" is invalid: [spec.a: Required value, spec.b: Invalid value: "x": no]'
    )
    assert status["details"] == {
        "name": "c",
        "group": "resource.k8s.io",
        "kind": "ResourceClaim",
        "causes": [
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.a"},
            {"reason": "FieldValueInvalid", "message": 'Invalid value: "x": no', "field": "spec.b"},
        ],
    }
    assert (status["code"], status["reason"], status["status"]) == (422, "Invalid", "Failure")


def test_one_wrong_field_needs_no_brackets_and_core_kinds_no_group() -> None:
    refused = Invalid.of(kind="Pod", group="", name="p", errors=[errors.required("spec.a")])
    assert refused.message == 'Pod "p" is invalid: spec.a: Required value'


def test_not_found_names_the_resource_and_its_group() -> None:
    status = NotFound.of("resourceclaims.resource.k8s.io", "c").status()
    assert status["message"] == 'resourceclaims.resource.k8s.io "c" not found'
    assert status["details"] == {"name": "c", "group": "resource.k8s.io", "kind": "resourceclaims"}
