"""Server-side apply: owners of fields, and what happens when two want the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.manciple.api.requests import LEASES, Answer, Api, lease

APPLY = "application/apply-patch+yaml"


def wanted(holder: str | None = None, *, seconds: int | None = None, **metadata: Any) -> bytes:
    """An apply configuration of the lease `l`, as YAML (which JSON is)."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
    document = lease() | {"spec": {key: value for key, value in spec.items() if value is not None}}
    document["metadata"] = {"name": "l", **metadata}
    return json.dumps(document).encode()


def apply(api: Api, body: bytes, *, manager: str = "alice", query: str = "") -> Answer:
    return api.patch(f"{LEASES}/l?fieldManager={manager}{query}", body, content_type=APPLY)


def test_applying_creates_what_is_missing(api: Api) -> None:
    answer = apply(api, wanted("alice"))
    assert (answer.code, answer.json["spec"]) == (201, {"holderIdentity": "alice"})
    (entry,) = answer.json["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("alice", "Apply")
    assert entry["fieldsV1"] == {"f:spec": {"f:holderIdentity": {}}}


def test_applying_the_same_again_changes_nothing(api: Api) -> None:
    first = apply(api, wanted("alice")).json
    again = apply(api, wanted("alice"))
    assert (again.code, again.json["metadata"]["resourceVersion"]) == (200, first["metadata"]["resourceVersion"])


def test_two_managers_share_an_object(api: Api) -> None:
    apply(api, wanted("alice"))
    answer = apply(api, wanted(seconds=30), manager="bob")
    assert answer.json["spec"] == {"holderIdentity": "alice", "leaseDurationSeconds": 30}


def test_a_field_that_is_given_up_goes(api: Api) -> None:
    apply(api, wanted("alice", seconds=30))
    assert apply(api, wanted("alice")).json["spec"] == {"holderIdentity": "alice"}


def test_another_managers_field_is_a_conflict(api: Api) -> None:
    apply(api, wanted("alice"))
    answer = apply(api, wanted("bob"), manager="bob")
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "alice": .spec.holderIdentity'


def test_force_takes_fields_over(api: Api) -> None:
    apply(api, wanted("alice"))
    answer = apply(api, wanted("bob"), manager="bob", query="&force=true")
    assert (answer.code, answer.json["spec"]["holderIdentity"]) == (200, "bob")
    assert [entry["manager"] for entry in answer.json["metadata"]["managedFields"]] == ["bob"]


def test_what_was_there_before_the_first_apply_is_owned(api: Api) -> None:
    api.made(LEASES, lease())
    api.patch(f"{LEASES}/l", {"metadata": {"managedFields": []}})
    answer = apply(api, wanted("bob"), manager="bob")
    assert answer.code == 409
    assert 'conflict with "before-first-apply"' in answer.message


def test_kubectl_takes_over_what_it_applied_itself(api: Api) -> None:
    applied = lease()
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(applied)}
    api.made(LEASES, lease(annotations=annotation))
    answer = apply(api, wanted("bob"), manager="kubectl")
    assert (answer.code, answer.json["spec"]["holderIdentity"]) == (200, "bob")


def test_other_writes_take_fields_over(api: Api) -> None:
    apply(api, wanted("alice"))
    api.patch(f"{LEASES}/l?fieldManager=carol", {"spec": {"holderIdentity": "carol"}})
    answer = apply(api, wanted("alice"))
    assert answer.code == 409
    assert 'conflict with "carol" using coordination.k8s.io/v1' in answer.message


REFUSED = {
    "without a manager": ("", wanted("alice"), 422),
    "of another name": ("fieldManager=a", wanted("alice", name="m"), 400),
    "of another namespace": ("fieldManager=a", wanted("alice", namespace="other"), 400),
    "with managedFields of its own": ("fieldManager=a", wanted("alice", managedFields=[{"manager": "x"}]), 400),
    "of no object": ("fieldManager=a", b"[]", 400),
    "of an object that is gone": ("fieldManager=a", wanted("alice", uid="gone"), 409),
    "with unknown fields, strictly": (
        "fieldManager=a&fieldValidation=Strict",
        wanted("alice", nonsense="x"),
        400,
    ),
}


@pytest.mark.parametrize(("query", "body", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_an_apply_that_cannot_be_done_is_refused(api: Api, query: str, body: bytes, code: int) -> None:
    answer = api.patch(f"{LEASES}/l?{query}", body, content_type=APPLY)
    assert answer.code == code, answer.text
    assert api.get(f"{LEASES}/l").code == 404


def test_force_is_for_applying_only(api: Api) -> None:
    api.made(LEASES, lease())
    assert api.patch(f"{LEASES}/l?force=true", {"metadata": {"labels": {"a": "b"}}}).code == 422


def test_a_dry_run_of_an_apply_stores_nothing(api: Api) -> None:
    assert apply(api, wanted("alice"), query="&dryRun=All").code == 201
    assert api.get(f"{LEASES}/l").code == 404
