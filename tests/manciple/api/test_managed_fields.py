"""metadata.managedFields: who owns which field after each kind of write, and kubectl's move to server-side apply."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.manciple.api.requests import (
    CLASSES,
    JSON_PATCH,
    LEASES,
    MERGE,
    NAMESPACES,
    PODS,
    STRATEGIC,
    Answer,
    Api,
    claim,
    lease,
)

Document = dict[str, Any]
APPLY = "application/apply-patch+yaml"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
CONFIG_MAPS = f"{NAMESPACES}/default/configmaps"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def entries(document: Document) -> list[Document]:
    found: list[Document] = document["metadata"].get("managedFields", [])
    return found


def fields(document: Document, manager: str, *, subresource: str = "") -> Document:
    """What `manager` owns; {} where it has no entry."""
    found = [one for one in entries(document) if (one["manager"], one.get("subresource", "")) == (manager, subresource)]
    assert len(found) <= 1
    return found[0]["fieldsV1"] if found else {}


def config_map(**data: str) -> Document:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}


# Every kind of write -------------------------------------------------------------------------------------------------


def test_a_create_owns_every_field(api: Api) -> None:
    made = api.made(f"{LEASES}?fieldManager=alice", lease(labels={"a": "1"}))
    (entry,) = entries(made)
    assert entry == {
        "manager": "alice",
        "operation": "Update",
        "apiVersion": "coordination.k8s.io/v1",
        "time": made["metadata"]["creationTimestamp"],
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:holderIdentity": {}}},
    }


AGENTS = {
    "kubectl": ("kubectl/v1.32.4 (linux/amd64)", "kubectl"),
    "without a slash": ("curl", "curl"),
    "none": ("", "unknown"),
    "unprintable": ("a\tb/1", "ab"),
    "long": ("x" * 300, "x" * 128),
}


@pytest.mark.parametrize(("agent", "manager"), AGENTS.values(), ids=AGENTS.keys())
def test_the_manager_is_the_first_word_of_the_client_where_none_is_named(api: Api, agent: str, manager: str) -> None:
    made = api.send("post", LEASES, body=lease(), extra={"User-Agent": agent}).json
    assert [one["manager"] for one in entries(made)] == [manager]


CHANGES = {
    "merge patch": (MERGE, {"data": {"a": "2", "b": None, "c": "3"}}),
    "strategic merge patch": (STRATEGIC, {"data": {"a": "2", "b": None, "c": "3"}}),
    "JSON patch": (
        JSON_PATCH,
        [
            {"op": "replace", "path": "/data/a", "value": "2"},
            {"op": "remove", "path": "/data/b"},
            {"op": "add", "path": "/data/c", "value": "3"},
        ],
    ),
}


@pytest.mark.parametrize(("media", "body"), CHANGES.values(), ids=CHANGES.keys())
def test_a_patch_takes_what_it_changes(api: Api, media: str, body: Any) -> None:
    api.made(f"{CONFIG_MAPS}?fieldManager=alice", config_map(a="1", b="1", d="1"))
    changed = api.patch(f"{CONFIG_MAPS}/m?fieldManager=bob", body, content_type=media).json
    assert fields(changed, "alice") == {"f:data": {".": {}, "f:d": {}}}
    assert fields(changed, "bob") == {"f:data": {"f:a": {}, "f:c": {}}}


def test_an_update_takes_what_it_changes(api: Api) -> None:
    made = api.made(f"{CONFIG_MAPS}?fieldManager=alice", config_map(a="1", b="1", d="1"))
    made["data"] = {"a": "2", "c": "3", "d": "1"}
    changed = api.put(f"{CONFIG_MAPS}/m?fieldManager=bob", made).json
    assert fields(changed, "alice") == {"f:data": {".": {}, "f:d": {}}}
    assert fields(changed, "bob") == {"f:data": {"f:a": {}, "f:c": {}}}


def test_a_status_is_owned_through_its_own_path(api: Api) -> None:
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    api.made(f"{path}?fieldManager=alice", claim())
    status = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}
    answer = api.patch(f"{path}/c/status?fieldManager=bob", status)
    assert answer.code in (200, 422), answer.text
    assert set(fields(api.get(f"{path}/c").json, "alice")) == {"f:spec"}


def test_a_write_that_changes_nothing_leaves_the_entries_alone(api: Api) -> None:
    made = api.made(f"{CONFIG_MAPS}?fieldManager=alice", config_map(a="1"))
    for answer in (
        api.patch(f"{CONFIG_MAPS}/m?fieldManager=bob", {"data": {"a": "1"}}),
        api.put(f"{CONFIG_MAPS}/m?fieldManager=bob", made),
        api.put(f"{CONFIG_MAPS}/m?fieldManager=bob", config_map(a="1")),
    ):
        assert answer.json == made


def test_a_manager_that_owns_nothing_any_more_has_no_entry(api: Api) -> None:
    api.made(f"{CONFIG_MAPS}?fieldManager=alice", {**config_map(), "metadata": {"name": "m", "labels": {"a": "1"}}})
    changed = api.patch(f"{CONFIG_MAPS}/m?fieldManager=bob", {"metadata": {"labels": None}}).json
    assert entries(changed) == []


def test_the_oldest_of_many_updates_become_one(api: Api) -> None:
    api.made(f"{CONFIG_MAPS}?fieldManager=m-00", config_map(a00="1"))
    for number in range(1, 15):
        api.patch(f"{CONFIG_MAPS}/m?fieldManager=m-{number:02}", {"data": {f"a{number:02}": "1"}})
    found = entries(api.get(f"{CONFIG_MAPS}/m").json)
    assert len(found) == 10
    (ancient,) = [one for one in found if one["manager"] == "ancient-changes"]
    owned = {name for one in found for name in one["fieldsV1"]["f:data"]} - {"."}
    assert owned == {f"f:a{number:02}" for number in range(15)}
    assert len(ancient["fieldsV1"]["f:data"]) == 7


RESETS = {
    "an empty list, merged": (MERGE, {"metadata": {"managedFields": []}}),
    "an empty entry, merged": (MERGE, {"metadata": {"managedFields": [{}]}}),
    "an empty list, merged strategically": (STRATEGIC, {"metadata": {"managedFields": []}}),
    "an empty entry, merged strategically": (STRATEGIC, {"metadata": {"managedFields": [{}]}}),
    "an empty list, put there": (JSON_PATCH, [{"op": "replace", "path": "/metadata/managedFields", "value": []}]),
    "an empty entry, put there": (JSON_PATCH, [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]),
}


@pytest.mark.parametrize(("media", "body"), RESETS.values(), ids=RESETS.keys())
def test_a_client_removes_the_entries(api: Api, media: str, body: Any) -> None:
    api.made(CONFIG_MAPS, config_map(a="1"))
    answer = api.patch(f"{CONFIG_MAPS}/m", body, content_type=media)
    assert (answer.code, entries(answer.json)) == (200, [])
    assert entries(api.patch(f"{CONFIG_MAPS}/m", {"data": {"a": "2"}}).json) == []


@pytest.mark.parametrize("none", [[], [{}]], ids=["list", "entry"])
def test_a_client_removes_the_entries_with_an_update(api: Api, none: list[Document]) -> None:
    made = api.made(CONFIG_MAPS, config_map(a="1"))
    made["metadata"]["managedFields"] = none
    assert entries(api.put(f"{CONFIG_MAPS}/m", made).json) == []


KEPT = {
    "null": None,
    "of an unknown operation": [{"manager": "x", "operation": "Guess", "apiVersion": "v1", "fieldsType": "FieldsV1"}],
    "without a version": [
        {"manager": "x", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}
    ],
    "of strange fields": [
        {
            "manager": "x",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"data": {}},
        }
    ],
}


@pytest.mark.parametrize("given", KEPT.values(), ids=KEPT.keys())
def test_entries_that_make_no_sense_change_nothing(api: Api, given: Any) -> None:
    made = api.made(CONFIG_MAPS, config_map(a="1"))
    sent = copy.deepcopy(made)
    sent["metadata"]["managedFields"] = given
    assert api.put(f"{CONFIG_MAPS}/m", sent).json == made


@pytest.mark.parametrize("operation", ["Apply", "Update"])
def test_a_create_takes_its_fields_from_the_entries_that_it_brings(api: Api, operation: str) -> None:
    brought = {
        "manager": "other",
        "operation": operation,
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}, "f:gone": {}}},
    }
    body = config_map(a="1", b="2")
    body["metadata"]["managedFields"] = [brought]
    made = api.made(f"{CONFIG_MAPS}?fieldManager=creator", body)
    assert fields(made, "creator") == {"f:data": {".": {}, "f:a": {}, "f:b": {}}}
    assert fields(made, "other") == {"f:data": {"f:gone": {}}}


def test_nobody_sets_entries_through_a_subresource(api: Api) -> None:
    path = "/api/v1/nodes"
    node = api.made(f"{path}?fieldManager=alice", {"metadata": {"name": "n", "labels": {"a": "1"}}})
    answer = api.patch(f"{path}/n/status", {"metadata": {"managedFields": [{}]}, "status": {"capacity": {"cpu": "1"}}})
    assert fields(answer.json, "alice") == fields(node, "alice") != {}


def test_lists_and_metadata_alone_show_the_entries(api: Api) -> None:
    made = api.made(CONFIG_MAPS, config_map(a="1"))
    (found,) = [one for one in api.get(CONFIG_MAPS).json["items"] if one["metadata"]["name"] == "m"]
    assert entries(found) == entries(made) != []
    metadata = api.get(f"{CONFIG_MAPS}/m", accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
    assert entries(metadata.json) == entries(made)


# From kubectl apply to kubectl apply --server-side -------------------------------------------------------------------


def server_side(api: Api, path: str, document: Document, *, manager: str = "kubectl", force: bool = False) -> Answer:
    """What `kubectl apply --server-side` sends (kubectl/pkg/cmd/apply, client-go/util/csaupgrade)."""
    target = f"{path}/{document['metadata']['name']}"

    def apply(wanted: Document, manager: str) -> Answer:
        query = f"fieldManager={manager}&force={'true' if force else 'false'}"
        return api.patch(f"{target}?{query}", json.dumps(wanted).encode(), content_type=APPLY)

    answer = apply(document, manager)
    if answer.code >= 400:
        return answer
    live = answer.json
    annotation = live["metadata"].get("annotations", {}).get(LAST_APPLIED)
    if annotation and manager == "kubectl":
        head = {"apiVersion": live["apiVersion"], "kind": live["kind"]}
        name = {"name": live["metadata"]["name"], "annotations": {LAST_APPLIED: annotation}}
        answer = apply({**head, "metadata": name}, "kubectl-last-applied")
        assert answer.code == 200, answer.text
        live = answer.json
    updaters = {one["manager"] for one in entries(live) if one["operation"] == "Update" and _owns_annotation(one)}
    if not updaters:
        return answer
    moved = _migrated(entries(live), updaters, manager)
    patch = [
        {"op": "replace", "path": "/metadata/managedFields", "value": moved},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
    ]
    migrated = api.patch(target, patch, content_type=JSON_PATCH)
    assert migrated.code == 200, migrated.text
    assert {one["manager"] for one in entries(migrated.json)}.isdisjoint(updaters)
    return apply(document, manager)


def _owns_annotation(entry: Document) -> bool:
    owned = entry["fieldsV1"].get("f:metadata", {}).get("f:annotations", {})
    return f"f:{LAST_APPLIED}" in owned and not entry.get("subresource")


def _migrated(known: list[Document], updaters: set[str], manager: str) -> list[Document]:
    old = [one for one in known if one["manager"] in updaters and one["operation"] == "Update"]
    mine = next((one for one in known if (one["manager"], one["operation"]) == (manager, "Apply")), None)
    if mine is None:  # the newest of the others becomes it
        mine = {**old[-1], "manager": manager, "operation": "Apply"}
        known = [mine, *known]
    joined = copy.deepcopy(mine["fieldsV1"])
    for one in old:
        if one["apiVersion"] == mine["apiVersion"]:
            _unite(joined, one["fieldsV1"])
    return [{**mine, "fieldsV1": joined} if one is mine else one for one in known if one not in old]


def _unite(into: Document, other: Document) -> None:
    for element, inner in other.items():
        if element in into:
            leaf = not into[element] or not inner
            _unite(into[element], inner)
            if leaf and into[element]:
                into[element]["."] = {}
        else:
            into[element] = copy.deepcopy(inner)


def client_side(api: Api, path: str, document: Document) -> Document:
    """What `kubectl apply` creates."""
    recorded = copy.deepcopy(document)
    annotations = recorded["metadata"].setdefault("annotations", {})
    annotations[LAST_APPLIED] = json.dumps({**document, "metadata": {"annotations": {}, **document["metadata"]}}) + "\n"
    made: Document = api.made(f"{path}?fieldManager=kubectl-client-side-apply", recorded)
    return made


def device_class(version: str = "v1", **spec: Any) -> Document:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceClass",
        "metadata": {"name": "c", "labels": {"keep": "1", "drop": "2"}, "annotations": {"note": "x"}},
        "spec": {"selectors": [{"cel": {"expression": "true"}}], **spec},
    }


def pod() -> Document:
    containers = [{"name": "a", "image": "a", "env": [{"name": "A", "value": "1"}]}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"keep": "1", "drop": "2"}},
        "spec": {"containers": containers, "activeDeadlineSeconds": 100},
    }


def template() -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "labels": {"keep": "1", "drop": "2"}},
        "spec": {"spec": claim()["spec"]},
    }


def without(document: Document, *path: str) -> Document:
    changed = copy.deepcopy(document)
    part = changed
    for name in path[:-1]:
        part = part[name]
    del part[path[-1]]
    return changed


MOVES = {
    "a key of a ConfigMap": (CONFIG_MAPS, config_map(keep="1", drop="2"), ("data", "drop")),
    "all keys of a ConfigMap": (CONFIG_MAPS, config_map(drop="2"), ("data",)),
    "a field of a DeviceClass": (
        CLASSES,
        device_class(extendedResourceName="a.test/x"),
        ("spec", "extendedResourceName"),
    ),
    "a list of a DeviceClass": (CLASSES, device_class(), ("spec", "selectors")),
    "a label": (CLASSES, device_class(), ("metadata", "labels", "drop")),
    "all labels": (CLASSES, device_class(), ("metadata", "labels")),
    "an annotation": (CLASSES, device_class(), ("metadata", "annotations", "note")),
    "a label of a Pod": (PODS, pod(), ("metadata", "labels", "drop")),
    "a label beside a list of which the server fills in defaults": (
        TEMPLATES,
        template(),
        ("metadata", "labels", "drop"),
    ),
    "a field of an older version": (
        CLASSES.replace("/v1/", "/v1beta1/"),
        device_class("v1beta1", extendedResourceName="a.test/x"),
        ("spec", "extendedResourceName"),
    ),
}


@pytest.mark.parametrize(("path", "document", "gone"), MOVES.values(), ids=MOVES.keys())
def test_what_kubectl_applied_itself_goes_when_it_is_not_applied_any_more(
    api: Api, path: str, document: Document, gone: tuple[str, ...]
) -> None:
    made = client_side(api, path, document)
    answer = server_side(api, path, without(document, *gone))
    assert answer.code == 200, answer.text
    left = answer.json
    wanted = without(made, *gone)
    for part in ("spec", "data"):
        assert left.get(part) == wanted.get(part, left.get(part) if part == "spec" else None)
    for part in ("labels", "annotations"):
        kept = wanted["metadata"].get(part, {})
        assert set(left["metadata"].get(part, {})) - {LAST_APPLIED} == set(kept) - {LAST_APPLIED}
    assert {one["manager"] for one in entries(left)} <= {"kubectl", "kubectl-last-applied"}


def test_the_move_crosses_versions(api: Api) -> None:
    client_side(api, CLASSES.replace("/v1/", "/v1beta1/"), device_class("v1beta1", extendedResourceName="a.test/x"))
    answer = server_side(api, CLASSES, device_class())
    assert (answer.code, "extendedResourceName" in answer.json["spec"]) == (200, False), answer.text


def test_values_that_kubectl_applied_itself_are_no_conflict(api: Api) -> None:
    client_side(api, CONFIG_MAPS, config_map(a="1"))
    answer = server_side(api, CONFIG_MAPS, config_map(a="2"))
    assert (answer.code, answer.json["data"]) == (200, {"a": "2"})
    applied = json.loads(answer.json["metadata"]["annotations"][LAST_APPLIED])
    assert applied["data"] == {"a": "2"}


def test_values_that_somebody_else_has_changed_since_are_a_conflict(api: Api) -> None:
    client_side(api, CONFIG_MAPS, config_map(a="1", b="1"))
    api.patch(f"{CONFIG_MAPS}/m?fieldManager=bob", {"data": {"b": "2"}})
    answer = server_side(api, CONFIG_MAPS, config_map(a="2", b="3"))
    assert (answer.code, [one["field"] for one in answer.json["details"]["causes"]]) == (409, [".data.b"])
    assert server_side(api, CONFIG_MAPS, config_map(a="2", b="3"), force=True).json["data"] == {"a": "2", "b": "3"}


def test_under_another_name_the_move_is_a_conflict_unless_forced(api: Api) -> None:
    client_side(api, CONFIG_MAPS, config_map(a="1", drop="2"))
    assert server_side(api, CONFIG_MAPS, config_map(a="2"), manager="gitops").code == 409
    answer = server_side(api, CONFIG_MAPS, config_map(a="2"), manager="gitops", force=True)
    assert (answer.code, answer.json["data"]) == (200, {"a": "2"})


UNREADABLE = {
    "no JSON": "{",
    "no object": "[]",
    "of another kind's shape": json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": ["a"]}),
    "of an unknown version": json.dumps({"apiVersion": "v9", "kind": "ConfigMap", "data": {"a": "1"}}),
}


@pytest.mark.parametrize("record", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_unreadable_record_of_kubectl_allows_nothing(api: Api, record: str) -> None:
    document = config_map(a="1")
    document["metadata"]["annotations"] = {LAST_APPLIED: record}
    api.made(f"{CONFIG_MAPS}?fieldManager=bob", document)
    answer = server_side(api, CONFIG_MAPS, config_map(a="2"))
    assert answer.code == 409, answer.text


# As recorded ---------------------------------------------------------------------------------------------------------

RECORDED = Path(__file__).parents[2] / "conformance_data" / "managed_fields.json"


def _recorded() -> list[Document]:
    found: list[Document] = json.loads(RECORDED.read_bytes())
    return found


@pytest.mark.parametrize("case", _recorded(), ids=lambda case: case["name"])
def test_a_create_owns_what_it_owned_when_it_was_recorded(api: Api, case: Document) -> None:
    made = api.made(case["path"], case["document"])
    assert fields(made, "unknown") == case["fields"]
