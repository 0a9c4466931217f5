"""Server-side apply: what is merged, what is removed, who owns what, and who may not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.kinds.pods import Pod
from manciple.wire import codec, managed_fields
from manciple.wire.apply import Manager, apply_patch, ownerships_of
from manciple.wire.errors import BadRequest, Conflict
from manciple.wire.managed_fields import track_create, track_update
from manciple.wire.registry import registry

Document = dict[str, Any]
ALICE = Manager(name="alice", operation="Apply", api_version="v1")
BOB = Manager(name="bob", operation="Apply", api_version="v1")
CHARLIE = Manager(name="charlie", operation="Update", api_version="v1")
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def apply(
    live: Document | None, wanted: Document, manager: Manager = ALICE, *, force: bool = False, **options: Any
) -> Document:
    now = options.pop("now", NOW)
    return apply_patch(live, wanted, manager=manager, force=force, shape=managed_fields.struct(Pod), now=now, **options)


def update(before: Document | None, after: Document, manager: Manager = CHARLIE, now: str = NOW) -> Document:
    kind, new = registry.by_resource("pods"), codec.decode_value(Pod, after)
    if before is None:
        return codec.to_builtins(track_create(kind, new, manager=manager.name, now=now))
    old = codec.decode_value(Pod, before)
    return codec.to_builtins(track_update(kind, new, old, manager=manager.name, now=now))


def labels(**values: str) -> Document:
    return {"metadata": {"name": "p", "labels": values}}


def containers(*items: Document) -> Document:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(items)}}


def owned(document: Document, manager: Manager) -> set[str]:
    found = next((one for one in ownerships_of(document) if one.manager.name == manager.name), None)
    return {managed_fields.shown(path) for path in found.fields} if found else set()


def content(document: Document) -> Document:
    return {**document, "metadata": {k: v for k, v in document["metadata"].items() if k != "managedFields"}}


def test_the_first_apply_creates_the_object_and_owns_what_it_says() -> None:
    made = apply(None, {"apiVersion": "v1", "kind": "Pod", **labels(a="1"), "spec": {"nodeName": "n"}})
    assert owned(made, ALICE) == {".metadata.labels.a", ".spec.nodeName"}
    assert made["metadata"]["managedFields"] == [
        {
            "manager": "alice",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:nodeName": {}}},
        }
    ]


def test_items_of_keyed_lists_are_named_by_their_keys() -> None:
    made = apply(None, containers({"name": "x", "image": "1", "ports": [{"containerPort": 80}]}))
    assert made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:containers"] == {
        'k:{"name":"x"}': {
            ".": {},
            "f:name": {},
            "f:image": {},
            "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
        }
    }


def test_what_is_no_longer_applied_goes() -> None:
    made = apply(None, labels(a="1", b="2"))
    assert content(apply(made, labels(a="1")))["metadata"]["labels"] == {"a": "1"}


def test_what_somebody_else_owns_as_well_stays() -> None:
    shared = apply(apply(None, labels(a="1", b="2")), labels(b="2"), BOB)
    left = apply(shared, labels(a="1"))
    assert left["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert owned(left, BOB) == {".metadata.labels.b"}


def test_an_item_goes_with_its_only_owner_and_stays_with_another_owner_of_a_part() -> None:
    x, y = {"name": "x", "image": "1"}, {"name": "y", "image": "1"}
    made = apply(None, containers(x, y))
    assert apply(made, containers(x))["spec"]["containers"] == [x]
    shared = apply(made, containers({"name": "y", "workingDir": "/"}), BOB)
    left = apply(shared, containers(x))
    assert left["spec"]["containers"] == [x, {"name": "y", "workingDir": "/"}]


def test_another_value_for_a_field_of_somebody_else_is_a_conflict() -> None:
    made = apply(None, labels(a="1"))
    with pytest.raises(Conflict) as refused:
        apply(made, labels(a="2"), BOB)
    status = refused.value.status()
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "alice": .metadata.labels.a'
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "alice"', "field": ".metadata.labels.a"}
    ]


def test_several_conflicts_are_told_by_owner() -> None:
    made = update(None, {**containers({"name": "x", "image": "1"}), **labels(a="1", b="1")})
    made = update(None, {**labels(a="1", b="1"), "spec": {"containers": [{"name": "x", "image": "1"}]}})
    wanted = {**labels(a="2"), "spec": {"containers": [{"name": "x", "image": "2"}]}}
    with pytest.raises(Conflict) as refused:
        apply(made, wanted)
    assert refused.value.message == (
        'Apply failed with 2 conflicts: conflicts with "charlie" using v1 at 2026-01-01T00:00:00Z:\n'
        '- .metadata.labels.a\n- .spec.containers[name="x"].image'
    )


def test_the_same_value_is_shared_ownership() -> None:
    made = apply(apply(None, labels(a="1")), labels(a="1"), BOB)
    assert owned(made, ALICE) == owned(made, BOB) == {".metadata.labels.a"}


def test_force_takes_the_field_over() -> None:
    made = apply(apply(None, labels(a="1", b="1")), labels(a="2"), BOB, force=True)
    assert made["metadata"]["labels"] == {"a": "2", "b": "1"}
    assert (owned(made, ALICE), owned(made, BOB)) == ({".metadata.labels.b"}, {".metadata.labels.a"})


def test_applying_the_same_again_changes_nothing_not_even_the_time() -> None:
    made = apply(None, labels(a="1"))
    assert apply(made, labels(a="1"), now=LATER) == made


def test_an_update_takes_ownership_of_what_it_changes_and_only_that() -> None:
    made = apply(None, labels(a="1", b="1"))
    changed = {**made, "metadata": {**made["metadata"], "labels": {"a": "2", "b": "1"}}}
    after = update(made, changed, now=LATER)
    assert (owned(after, ALICE), owned(after, CHARLIE)) == ({".metadata.labels.b"}, {".metadata.labels.a"})


def test_an_update_that_removes_a_field_leaves_it_to_nobody() -> None:
    made = apply(None, labels(a="1", b="1"))
    changed = {**made, "metadata": {**made["metadata"], "labels": {"b": "1"}}}
    after = update(made, changed)
    assert (owned(after, ALICE), owned(after, CHARLIE)) == ({".metadata.labels.b"}, set())


def test_fields_that_the_endpoint_does_not_write_are_neither_set_nor_owned() -> None:
    made = apply(None, {**labels(a="1"), "status": {"phase": "Running"}}, unowned=frozenset({("f:status",)}))
    assert "status" not in made
    assert owned(made, ALICE) == {".metadata.labels.a"}


def test_applied_managed_fields_are_refused() -> None:
    with pytest.raises(BadRequest, match=r"metadata.managedFields must be nil"):
        apply(None, {"metadata": {"managedFields": [{"manager": "x"}]}})


def test_sets_of_scalars_are_owned_by_value() -> None:
    made = apply(None, {"metadata": {"name": "p", "finalizers": ["x/a"]}})
    both = apply(made, {"metadata": {"name": "p", "finalizers": ["x/b"]}}, BOB)
    assert both["metadata"]["finalizers"] == ["x/a", "x/b"]
    left = apply(both, {"metadata": {"name": "p"}})
    assert left["metadata"]["finalizers"] == ["x/b"]


names = st.sampled_from("abc")
label_sets = st.dictionaries(names, st.sampled_from("12"), max_size=3)


@given(label_sets, label_sets)
def test_the_last_apply_of_a_sole_manager_is_all_that_remains(first: dict[str, str], second: dict[str, str]) -> None:
    made = apply(apply(None, labels(**first)), labels(**second))
    assert made["metadata"].get("labels", {}) == second


@given(label_sets, label_sets, label_sets)
def test_with_force_everybody_sees_what_he_applied_last(
    alices: dict[str, str], bobs: dict[str, str], again: dict[str, str]
) -> None:
    made = apply(apply(None, labels(**alices)), labels(**bobs), BOB, force=True)
    made = apply(made, labels(**again), force=True)
    assert again.items() <= made["metadata"].get("labels", {}).items()
    assert {**bobs, **again} == made["metadata"].get("labels", {})


@given(label_sets)
def test_fields_v1_round_trips(values: dict[str, str]) -> None:
    fields = managed_fields.of_document(
        {**labels(**values), "spec": {"containers": [{"name": name, "image": "1"} for name in values]}},
        managed_fields.struct(Pod),
    )
    assert managed_fields.from_fields_v1(managed_fields.to_fields_v1(fields)) == fields
