"""Who owns the fields that the control plane writes in-process: metadata.managedFields, kept by the writer."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from claims.kinds.pods import Pod
from manciple.api.namespaces import ensure_namespaces
from manciple.store import objects
from manciple.store.writer import Writer
from manciple.wire import codec
from manciple.wire.base import NO_FIELDS, FieldsV1, ManagedFieldsEntry
from manciple.wire.identity import MASTERS, SCHEDULER, SYSTEM, Identity, controller
from manciple.wire.managed_fields import with_entries
from manciple.wire.registry import registry

pytestmark = pytest.mark.django_db

PODS = registry.by_resource("pods")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "labels": {"a": "1"}},
    "spec": {"containers": [{"name": "c", "image": "c"}]},
}


def create(identity: Identity = SYSTEM) -> Pod:
    new = PODS.prepare_create(codec.decode_value(Pod, POD))
    made = objects.write(lambda writer: writer.create(PODS, new), identity=identity)
    assert isinstance(made, Pod)
    return made


def update(pod: Pod, identity: Identity, *, subresource: str = "") -> Pod:
    def work(writer: Writer) -> Any:
        return writer.update(PODS, pod, subresource=subresource)

    written: Pod = objects.write(work, identity=identity)
    return written


def owners(pod: Pod) -> dict[tuple[str, str], Any]:
    """(manager, subresource) -> what it owns."""
    entries = codec.to_builtins(pod)["metadata"].get("managedFields", [])
    return {(one["manager"], one.get("subresource", "")): one["fieldsV1"] for one in entries}


def labelled(pod: Pod, **labels: str) -> Pod:
    return structs.replace(pod, metadata=structs.replace(pod.metadata, labels=labels))


def told(pod: Pod, message: str) -> Pod:
    return structs.replace(pod, status=structs.replace(pod.status, message=message))


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    ensure_namespaces()


WRITERS = {
    "the scheduler": (Identity(SCHEDULER.name, (MASTERS,)), "kube-scheduler"),
    "a controller": (Identity(controller("resourceclaim-controller").name, (MASTERS,)), "kube-controller-manager"),
    "the installation": (SYSTEM, "manciple"),
    "a person": (Identity("alice", (MASTERS,)), "alice"),
    "a long name": (Identity("x" * 1000, (MASTERS,)), "x" * 128),
}


@pytest.mark.parametrize(("identity", "manager"), WRITERS.values(), ids=WRITERS.keys())
def test_whoever_writes_owns_what_it_changes(identity: Identity, manager: str) -> None:
    made = create(Identity("bob", (MASTERS,)))
    after = owners(update(labelled(made, a="2"), identity))
    assert after[manager, ""] == {"f:metadata": {"f:labels": {"f:a": {}}}}
    assert after["bob", ""]["f:metadata"] == {"f:labels": {}}


def test_an_object_and_its_status_in_one_go_are_two_entries() -> None:
    scheduler = Identity(SCHEDULER.name, (MASTERS,))
    after = owners(update(told(labelled(create(), a="1", b="1"), "x"), scheduler))
    assert after["kube-scheduler", ""] == {"f:metadata": {"f:labels": {"f:b": {}}}}
    assert after["kube-scheduler", "status"] == {"f:status": {"f:message": {}}}


def test_a_binding_owns_nothing() -> None:
    made = create()
    bound = structs.replace(made, spec=structs.replace(made.spec, node_name="n"))
    assert owners(update(bound, SCHEDULER, subresource="binding")) == owners(made)


def test_what_was_read_without_its_entries_loses_none() -> None:
    made = create()
    stripped = structs.replace(made, metadata=structs.replace(made.metadata, managed_fields=()))
    assert owners(update(stripped, SCHEDULER)) == owners(made)
    assert set(owners(update(told(stripped, "x"), SCHEDULER, subresource="status"))) == {
        ("manciple", ""),
        ("kube-scheduler", "status"),
    }


def test_an_older_object_without_entries_gets_none() -> None:
    made = create()
    bare = structs.replace(made, metadata=structs.replace(made.metadata, managed_fields=()))
    older = objects.write(lambda writer: writer.update(PODS, bare, owned=True))
    assert isinstance(older, Pod)
    assert owners(update(told(older, "x"), SCHEDULER, subresource="status")) == {}


@pytest.mark.parametrize("fields", [NO_FIELDS, FieldsV1(b"{}"), FieldsV1(b'"x"'), FieldsV1(b'{"f:metadata":5}')])
def test_entries_of_earlier_versions_that_make_no_sense_keep_nobody_from_writing(fields: FieldsV1) -> None:
    strange = ManagedFieldsEntry(manager="m", operation="Update", api_version="v1", fields_v1=fields)
    new = with_entries(PODS.prepare_create(codec.decode_value(Pod, POD)), (strange,))
    objects.write(lambda writer: writer.create(PODS, new, owned=True), identity=SYSTEM)
    (stored,) = objects.list(PODS).items
    written = update(labelled(objects.decoded(stored, Pod), a="2"), SYSTEM)
    assert "manciple" in {one.manager for one in written.metadata.managed_fields}


def test_a_deletion_changes_no_owners() -> None:
    made = create()
    gone = objects.write(lambda writer: writer.delete(PODS, "default", "p"), identity=SCHEDULER)
    assert isinstance(gone.object, Pod)
    assert owners(gone.object) == owners(made)
