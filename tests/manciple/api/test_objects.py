"""get, create, update, patch and delete of single objects."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from manciple.api import namespaces
from tests.manciple.api.requests import (
    CLAIMS,
    CLASSES,
    JSON_PATCH,
    LEASES,
    MERGE,
    METADATA,
    NAMESPACES,
    PODS,
    STRATEGIC,
    TABLE,
    Api,
    claim,
    lease,
    namespace,
    pod,
)
from tests.manciple.store.counting import counted_transactions


def test_a_created_object_is_answered_as_stored(api: Api) -> None:
    answer = api.post(CLAIMS, claim())
    assert answer.code == 201
    made = answer.json
    assert made["metadata"]["namespace"] == "default"
    assert made["metadata"]["uid"]
    assert int(made["metadata"]["resourceVersion"]) > 0
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert api.get(f"{CLAIMS}/c").json == made


def test_yaml_bodies_are_read(api: Api) -> None:
    text = b"apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: l}\nspec: {holderIdentity: bob}\n"
    answer = api.post(LEASES, text, content_type="application/yaml")
    assert answer.json["spec"] == {"holderIdentity": "bob"}


def test_a_name_is_generated_from_its_beginning(api: Api) -> None:
    body = claim()
    body["metadata"] = {"generateName": "job-"}
    name = api.made(CLAIMS, body)["metadata"]["name"]
    assert name.startswith("job-")
    assert len(name) == len("job-") + 5


def test_creating_twice_is_a_conflict_of_names(api: Api) -> None:
    api.made(CLAIMS, claim())
    answer = api.post(CLAIMS, claim())
    assert (answer.code, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'resourceclaims.resource.k8s.io "c" already exists'


def test_every_wrong_field_is_named(api: Api) -> None:
    body = claim(name="Wrong_Name")
    body["spec"]["devices"]["requests"][0]["exactly"]["count"] = -1
    answer = api.post(CLAIMS, body)
    assert (answer.code, answer.reason) == (422, "Invalid")
    fields = {cause["field"] for cause in answer.json["details"]["causes"]}
    assert {"metadata.name", "spec.devices.requests[0].exactly.count"} <= fields


def test_the_path_and_the_body_must_name_the_same_namespace(api: Api) -> None:
    answer = api.post(CLAIMS, claim(namespace="other"))
    assert answer.code == 400
    assert answer.message == "the namespace of the provided object does not match the namespace sent on the request"


def test_the_path_and_the_body_must_name_the_same_object(api: Api) -> None:
    api.made(CLAIMS, claim())
    answer = api.put(f"{CLAIMS}/c", claim(name="d"))
    assert (answer.code, answer.message) == (
        400,
        "the name of the object (d) does not match the name on the URL (c)",
    )


def test_nothing_is_created_in_a_namespace_that_is_missing(api: Api) -> None:
    answer = api.post(CLAIMS.replace("default", "nowhere"), claim())
    assert (answer.code, answer.message) == (404, 'namespaces "nowhere" not found')


def test_nothing_is_created_in_a_namespace_that_is_being_deleted(api: Api) -> None:
    api.made(NAMESPACES, namespace("leaving"))
    leaving = CLAIMS.replace("default", "leaving")
    api.made(leaving, claim(finalizers=["example.com/stay"]))
    assert api.delete(f"{NAMESPACES}/leaving").json["status"]["phase"] == "Terminating"
    answer = api.post(leaving, claim(name="late"))
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert answer.message == (
        'resourceclaims.resource.k8s.io "late" is forbidden: unable to create new content in namespace leaving '
        "because it is being terminated"
    )


def test_a_namespace_ends_when_its_last_object_is_gone(api: Api) -> None:
    api.made(NAMESPACES, namespace("leaving"))
    leaving = CLAIMS.replace("default", "leaving")
    api.made(leaving, claim(finalizers=["example.com/stay"]))
    api.made(leaving, claim(name="quick"))
    api.delete(f"{NAMESPACES}/leaving")
    later = datetime.now(UTC) + namespaces.PATIENCE
    assert namespaces.sweep(later) == 0
    assert api.get(f"{leaving}/quick").code == 404
    api.patch(f"{leaving}/c", {"metadata": {"finalizers": None}})
    assert namespaces.sweep(later) == 1
    assert api.get(f"{NAMESPACES}/leaving").code == 404


def test_a_file_with_a_namespace_and_its_contents_is_deleted_without_a_miss(api: Api) -> None:
    api.made(NAMESPACES, namespace("leaving"))
    leaving = CLAIMS.replace("default", "leaving")
    api.made(leaving, claim())
    api.delete(f"{NAMESPACES}/leaving")
    assert namespaces.sweep(datetime.now(UTC)) == 0
    assert api.delete(f"{leaving}/c").code == 200  # kubectl gets there in its own time, and finds it
    assert namespaces.sweep(datetime.now(UTC)) == 1  # and nobody waits longer than that takes


def test_events_about_what_is_gone_hold_up_no_namespace(api: Api) -> None:
    api.made(NAMESPACES, namespace("leaving"))
    leaving = CLAIMS.replace("default", "leaving")
    api.made(leaving, claim())
    about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "name": "c", "namespace": "leaving"}
    event = {"metadata": {"name": "c.1", "namespace": "leaving"}, "involvedObject": about, "reason": "Seen"}
    api.made("/api/v1/namespaces/leaving/events", {"apiVersion": "v1", "kind": "Event", **event})
    api.delete(f"{NAMESPACES}/leaving")
    assert namespaces.sweep(datetime.now(UTC)) == 0
    api.delete(f"{leaving}/c")
    assert namespaces.sweep(datetime.now(UTC)) == 1


def test_an_empty_namespace_goes_at_once(api: Api) -> None:
    api.made(NAMESPACES, namespace("empty"))
    api.delete(f"{NAMESPACES}/empty")
    assert api.get(f"{NAMESPACES}/empty").code == 404


def test_the_namespaces_of_every_cluster_stay(api: Api) -> None:
    answer = api.delete(f"{NAMESPACES}/default")
    assert (answer.code, answer.message) == (
        403,
        'namespaces "default" is forbidden: this namespace may not be deleted',
    )


def test_unknown_fields_are_warned_of_by_default(api: Api) -> None:
    answer = api.post(LEASES, {**lease(), "spec": {"holder": "alice"}})
    assert answer.code == 201
    assert answer.header("Warning") == '299 - "unknown field \\"spec.holder\\""'


def test_unknown_fields_are_refused_in_strict_requests(api: Api) -> None:
    answer = api.post(f"{LEASES}?fieldValidation=Strict", {**lease(), "spec": {"holder": "alice"}})
    assert answer.code == 400
    assert 'strict decoding error: unknown field "spec.holder"' in answer.message
    assert api.get(f"{LEASES}/l").code == 404


def test_unknown_fields_are_ignored_where_the_client_says_so(api: Api) -> None:
    answer = api.post(f"{LEASES}?fieldValidation=Ignore", {**lease(), "spec": {"holder": "alice"}})
    assert (answer.code, answer.header("Warning")) == (201, "")


def test_a_dry_run_answers_and_stores_nothing(api: Api) -> None:
    answer = api.post(f"{CLAIMS}?dryRun=All", claim())
    assert (answer.code, answer.json["metadata"]["name"]) == (201, "c")
    assert api.get(f"{CLAIMS}/c").code == 404
    api.made(CLAIMS, claim())
    api.patch(f"{CLAIMS}/c?dryRun=All", {"metadata": {"labels": {"a": "b"}}})
    assert api.delete(f"{CLAIMS}/c?dryRun=All").code == 200
    assert "labels" not in api.get(f"{CLAIMS}/c").json["metadata"]


WRONG_OPTIONS = {
    "a dry run of some": "dryRun=Some",
    "a strictness that does not exist": "fieldValidation=Harsh",
}


@pytest.mark.parametrize("query", WRONG_OPTIONS.values(), ids=WRONG_OPTIONS.keys())
def test_a_wrong_option_is_invalid(api: Api, query: str) -> None:
    answer = api.post(f"{CLAIMS}?{query}", claim())
    assert (answer.code, answer.reason) == (422, "Invalid")


def test_an_update_replaces_what_it_names(api: Api) -> None:
    made = api.made(LEASES, lease())
    made["spec"]["holderIdentity"] = "bob"
    answer = api.put(f"{LEASES}/l", made)
    assert (answer.code, answer.json["spec"]["holderIdentity"]) == (200, "bob")
    assert int(answer.json["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


def test_an_update_of_an_old_revision_is_a_conflict(api: Api) -> None:
    made = api.made(LEASES, lease())
    api.patch(f"{LEASES}/l", {"spec": {"holderIdentity": "bob"}})
    answer = api.put(f"{LEASES}/l", made)
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on leases.coordination.k8s.io "l": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


def test_an_update_of_another_object_of_that_name_is_a_conflict(api: Api) -> None:
    made = api.made(CLAIMS, claim())
    made["metadata"]["uid"] = "another"
    answer = api.put(f"{CLAIMS}/c", made)
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert "UID in precondition: another" in answer.message


def test_an_update_without_a_revision_wins(api: Api) -> None:
    api.made(CLAIMS, claim())
    answer = api.put(f"{CLAIMS}/c", claim(labels={"a": "b"}))
    assert (answer.code, answer.json["metadata"]["labels"]) == (200, {"a": "b"})


def test_a_lease_is_not_replaced_without_its_revision(api: Api) -> None:
    api.made(LEASES, lease())
    answer = api.put(f"{LEASES}/l", lease())
    assert answer.code == 422
    assert "metadata.resourceVersion" in answer.message


def test_updating_what_is_missing_is_404_but_for_leases(api: Api) -> None:
    assert api.put(f"{CLAIMS}/c", claim()).code == 404
    made = lease(resourceVersion="1")
    assert api.put(f"{LEASES}/l", made).code == 201


def test_immutable_fields_stay(api: Api) -> None:
    api.made(CLAIMS, claim())
    body = claim()
    body["spec"]["devices"]["requests"][0]["name"] = "other"
    answer = api.put(f"{CLAIMS}/c", body)
    assert (answer.code, answer.json["details"]["causes"][0]["field"]) == (422, "spec")
    assert "field is immutable" in answer.message


def test_an_update_that_changes_nothing_keeps_the_revision(api: Api) -> None:
    made = api.made(CLAIMS, claim())
    assert api.put(f"{CLAIMS}/c", made).json["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_status_is_written_through_its_own_path_only(api: Api) -> None:
    made = api.made(CLAIMS, claim())
    made["status"] = {"devices": [], "reservedFor": []}
    made["metadata"]["labels"] = {"a": "b"}
    assert "labels" not in api.put(f"{CLAIMS}/c/status", made).json["metadata"]
    assert api.get(f"{CLAIMS}/c/status").code == 200


PATCHES = {
    "a merge patch": ("application/merge-patch+json", {"metadata": {"labels": {"b": "2", "a": None}}}),
    "a strategic merge patch": (STRATEGIC, {"metadata": {"labels": {"b": "2", "a": None}}}),
    "a JSON patch": (
        JSON_PATCH,
        [{"op": "add", "path": "/metadata/labels/b", "value": "2"}, {"op": "remove", "path": "/metadata/labels/a"}],
    ),
}


@pytest.mark.parametrize(("media", "body"), PATCHES.values(), ids=PATCHES.keys())
def test_patches_change_what_they_name(api: Api, media: str, body: object) -> None:
    api.made(CLAIMS, claim(labels={"a": "1"}))
    answer = api.patch(f"{CLAIMS}/c", body, content_type=media)
    assert (answer.code, answer.json["metadata"]["labels"]) == (200, {"b": "2"})


def test_a_strategic_merge_patch_merges_lists_by_key(api: Api) -> None:
    api.made(PODS, pod())
    patch = {"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}
    containers = api.patch(f"{PODS}/p", patch, content_type=STRATEGIC).json["spec"]["containers"]
    assert [(one["name"], one["image"], one["terminationMessagePath"]) for one in containers] == [
        ("main", "busybox:2", "/dev/termination-log")
    ]


WRONG_PATCHES = {
    "an unknown format": ("application/xml", {}, 415),
    "no JSON": ("application/merge-patch+json", b"{", 400),
    "a failed test": (JSON_PATCH, [{"op": "test", "path": "/metadata/name", "value": "x"}], 422),
    "a path that is not there": (JSON_PATCH, [{"op": "remove", "path": "/metadata/labels/x"}], 422),
    "another name": ("application/merge-patch+json", {"metadata": {"name": "d"}}, 422),
    "an old revision": ("application/merge-patch+json", {"metadata": {"resourceVersion": "1"}}, 409),
    "an unknown field, strictly": ("application/merge-patch+json", {"nonsense": 1}, 422),
}


@pytest.mark.parametrize(("media", "body", "code"), WRONG_PATCHES.values(), ids=WRONG_PATCHES.keys())
def test_a_patch_that_does_not_fit_is_refused(api: Api, media: str, body: object, code: int) -> None:
    api.made(CLAIMS, claim(labels={"a": "1"}))
    answer = api.patch(f"{CLAIMS}/c?fieldValidation=Strict", body, content_type=media)
    assert answer.code == code, answer.text


@pytest.mark.parametrize("media", [MERGE, STRATEGIC, JSON_PATCH])
@pytest.mark.parametrize(
    ("place", "value", "wrong"),
    {
        "a text for a list": ("/spec/containers", "x", "json: cannot unmarshal string into field spec.containers"),
        "a text for an object": ("/metadata", "x", "json: cannot unmarshal string into field metadata"),
        "a list for an object": ("/metadata/labels", ["a"], "json: cannot unmarshal array into field metadata.labels"),
        "an unknown field": ("/spec/nope", 1, 'strict decoding error: unknown field "spec.nope"'),
    }.values(),
)
def test_a_patch_that_makes_no_pod_is_refused_without_quoting_the_pod(
    api: Api, media: str, place: str, value: object, wrong: str
) -> None:
    api.post(PODS, pod("p", annotations={"notes": "long " * 1000}))
    outer, _, inner = place[1:].partition("/")
    merged = {outer: {inner: value} if inner else value}
    body = [{"op": "add", "path": place, "value": value}] if media == JSON_PATCH else merged
    answer = api.patch(f"{PODS}/p?fieldValidation=Strict", body, content_type=media)
    assert (answer.code, answer.causes) == (422, {("FieldValueInvalid", "patch")})
    assert wrong in answer.message
    assert "long long" not in answer.text


def test_a_patch_warns_of_unknown_fields(api: Api) -> None:
    api.made(CLAIMS, claim())
    assert api.patch(f"{CLAIMS}/c", {"nonsense": 1}).header("Warning") == '299 - "unknown field \\"nonsense\\""'


def test_a_deleted_claim_is_answered_as_it_was(api: Api) -> None:
    made = api.made(CLAIMS, claim())
    answer = api.delete(f"{CLAIMS}/c")
    assert (answer.code, answer.json["kind"], answer.json["metadata"]["uid"]) == (
        200,
        "ResourceClaim",
        made["metadata"]["uid"],
    )
    assert api.get(f"{CLAIMS}/c").code == 404


def test_a_deleted_lease_is_answered_by_a_status(api: Api) -> None:
    made = api.made(LEASES, lease())
    document = api.delete(f"{LEASES}/l").json
    assert (document["kind"], document["status"]) == ("Status", "Success")
    assert document["details"] == {
        "name": "l",
        "group": "coordination.k8s.io",
        "kind": "leases",
        "uid": made["metadata"]["uid"],
    }


def test_finalizers_hold_a_deleted_object_until_they_are_removed(api: Api) -> None:
    api.made(CLAIMS, claim(finalizers=["example.com/hold"]))
    held = api.delete(f"{CLAIMS}/c").json
    assert held["metadata"]["deletionTimestamp"]
    assert api.get(f"{CLAIMS}/c").code == 200
    api.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": []}})
    assert api.get(f"{CLAIMS}/c").code == 404


PRECONDITIONS = {
    "another uid": {"preconditions": {"uid": "another"}},
    "an old revision": {"preconditions": {"resourceVersion": "1"}},
}


@pytest.mark.parametrize("body", PRECONDITIONS.values(), ids=PRECONDITIONS.keys())
def test_a_delete_keeps_to_its_preconditions(api: Api, body: dict[str, object]) -> None:
    api.made(CLAIMS, claim())
    assert api.delete(f"{CLAIMS}/c", {"kind": "DeleteOptions", "apiVersion": "v1", **body}).code == 409
    assert api.get(f"{CLAIMS}/c").code == 200


def test_deleting_what_is_missing_is_404(api: Api) -> None:
    answer = api.delete(f"{CLASSES}/none")
    assert (answer.code, answer.message) == (404, 'deviceclasses.resource.k8s.io "none" not found')


def test_deletecollection_deletes_what_it_selects(api: Api) -> None:
    api.made(CLAIMS, claim(name="a", labels={"pick": "yes"}))
    api.made(CLAIMS, claim(name="b"))
    answer = api.delete(f"{CLAIMS}?labelSelector=pick=yes")
    assert [item["metadata"]["name"] for item in answer.json["items"]] == ["a"]
    assert [item["metadata"]["name"] for item in api.get(CLAIMS).json["items"]] == ["b"]


def test_a_collection_goes_in_one_commit(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        api.made(CLAIMS, claim(name=name))
    with counted_transactions(monkeypatch) as counted:
        assert len(api.delete(CLAIMS).json["items"]) == 3
    assert len(counted) == 1
    assert api.get(CLAIMS).json["items"] == []


def test_what_is_refused_of_a_collection_keeps_none_of_the_others(api: Api) -> None:
    _kept, gone = api.made(CLAIMS, claim(name="a")), api.made(CLAIMS, claim(name="b"))
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": gone["metadata"]["uid"]}}
    answer = api.delete(CLAIMS, body)
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert [item["metadata"]["name"] for item in api.get(CLAIMS).json["items"]] == ["a"]


def test_a_dry_run_of_a_collection_tells_what_would_go(api: Api) -> None:
    api.made(CLAIMS, claim(name="a"))
    assert len(api.delete(f"{CLAIMS}?dryRun=All").json["items"]) == 1
    assert len(api.get(CLAIMS).json["items"]) == 1


def test_a_single_object_as_a_table(api: Api) -> None:
    api.made(CLAIMS, claim())
    table = api.get(f"{CLAIMS}/c", accept=TABLE).json
    assert (table["kind"], table["rows"][0]["cells"][:2]) == ("Table", ["c", "pending"])
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_a_single_object_as_metadata(api: Api) -> None:
    made = api.made(CLAIMS, claim())
    assert api.get(f"{CLAIMS}/c", accept=METADATA).json == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made["metadata"],
    }


def test_get_of_a_revision_that_nobody_reached_is_a_timeout(api: Api) -> None:
    api.made(CLAIMS, claim())
    answer = api.get(f"{CLAIMS}/c?resourceVersion=999999")
    assert (answer.code, answer.reason) == (504, "Timeout")


def test_documents_are_answered_as_they_are_stored(api: Api) -> None:
    text = api.post(CLAIMS, claim()).text
    assert text.partition('"metadata"')[2] in api.get(CLAIMS).text
    assert json.loads(text) == api.get(f"{CLAIMS}/c").json
