"""The History part of each object's page: who changed what, when, and how it was before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from msgspec import structs

from claims.kinds.pods import Pod
from dashboard.kit.differences import MINUS, FieldChange, changed_fields
from dashboard.tools import objects as reading
from dashboard.tools.objects import Author, read_changes
from manciple.store import objects, records, space
from manciple.store.records import Origin
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.registry import registry
from tests.builders import make_claim, make_namespace, make_node, make_pod, make_slice
from tests.dashboard.browsing import admin, signed_in, viewer, words
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]

AUTHORS = {
    "alice": ("person", "alice", "AL"),
    "system:kube-scheduler": ("system", "Scheduler", ""),
    "system:serviceaccount:kube-system:namespace-controller": ("system", "Namespace controller", ""),
    "system:serviceaccount:lab:ci": ("account", "lab/ci", ""),
    "system:node:gpu-a01": ("node", "Agent of gpu-a01", ""),
    "system:anonymous": ("nobody", "Nobody signed in", ""),
    "": ("nobody", "Unknown", ""),
}


@pytest.mark.parametrize(("name", "told"), AUTHORS.items(), ids=AUTHORS.keys())
def test_everybody_is_called_by_what_they_are(name: str, told: tuple[str, str, str]) -> None:
    author = Author(name)
    assert (author.kind, author.label, author.initials) == told


CHANGES = {
    "a value": ({"spec": {"n": 1}}, {"spec": {"n": 2}}, [FieldChange("spec.n", 1, 2)]),
    "a value that is new": ({"spec": {}}, {"spec": {"n": 2}}, [FieldChange("spec.n", None, 2)]),
    "a label": (
        {"metadata": {"labels": {"a": "1"}}},
        {"metadata": {"labels": {"a": "1", "b": "2"}}},
        [FieldChange("metadata.labels.b", None, "2")],
    ),
    "what is deep": ({"a": {"b": {"c": {"d": 1}}}}, {"a": {"b": {"c": {}}}}, [FieldChange("a.b.c", {"d": 1}, {})]),
    "what the server keeps": (
        {"metadata": {"resourceVersion": "1", "managedFields": []}},
        {"metadata": {"resourceVersion": "2"}},
        [],
    ),
}


@pytest.mark.parametrize(("before", "after", "expected"), CHANGES.values(), ids=CHANGES.keys())
def test_fields_that_changed_are_told_as_values(
    before: dict[str, object], after: dict[str, object], expected: list[FieldChange]
) -> None:
    assert list(changed_fields(before, after)) == expected


def relabel(pod: Pod, name: str, **labels: str) -> None:
    """`name` puts `labels` on the pod, through a request of kubectl's."""
    identity = Identity(name, (MASTERS,))
    origin = Origin(audit_id=name, received=datetime.now(UTC), verb="patch", agent="kubectl/v1.36", identity=identity)
    kind = registry.by_resource("pods")
    meta = pod.metadata
    stored = objects.get(kind, meta.namespace, meta.name)
    assert stored is not None
    found = objects.decode(kind, stored.text)
    changed = structs.replace(found, metadata=structs.replace(found.metadata, labels=labels))
    with records.collecting(origin), objects.writing(identity=identity) as writer:
        writer.update(kind, changed)


LABEL_CHANGED = f"{MINUS} team: red + team: blue"


@pytest.fixture
def pod(cluster: Cluster) -> Pod:
    cluster.create(make_pod("web"))
    found = cluster.get(Pod, "web")
    relabel(found, "alice", team="red")
    relabel(found, "bob", team="blue")
    return found


def test_the_newest_change_comes_first_and_who_did_it_stays_when_the_log_forgets_what(pod: Pod) -> None:
    changes = read_changes([pod.metadata.uid]).changes
    assert [(one.author.name, one.did, one.named) for one in changes] == [
        ("bob", "changed", ("metadata.labels.team",)),
        ("alice", "changed", ("metadata.labels",)),
        ("system:manciple", "created", ()),
    ]
    assert changes[0].fields == (FieldChange("metadata.labels.team", "red", "blue"),)
    assert [(line.sign, line.text.strip()) for line in changes[0].lines if line.sign in ("+", MINUS)] == [
        (MINUS, "team: red"),
        ("+", "team: blue"),
    ]
    first = read_changes([pod.metadata.uid], shown=2)
    rest = read_changes([pod.metadata.uid], shown=2, before=first.older)
    assert [one.author.name for one in (*first.changes, *rest.changes)] == ["bob", "alice", "system:manciple"]
    assert rest.older == 0
    space.prune(older_than=timedelta(0), now=datetime.now(UTC) + timedelta(hours=1))
    newest, *older = read_changes([pod.metadata.uid]).changes
    assert [one.author.name for one in older] == ["alice", "system:manciple"]
    assert (newest.known, newest.lines) == (False, ())


def test_long_documents_are_compared_when_somebody_asks(
    admin: Client, pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "COMPARED", 0)
    newest = read_changes([pod.metadata.uid]).changes[0]
    assert (newest.named, newest.lines, newest.postponed) == (("metadata.labels.team",), (), True)
    assert "Show the difference" in words(admin, "/pods/default/web?tab=history")
    assert LABEL_CHANGED in words(admin, f"/pods/default/web?tab=history&open={newest.revision}")


def test_the_page_tells_it_in_words_and_the_request_to_those_who_may_audit(
    admin: Client, viewer: Client, pod: Pod
) -> None:
    text = words(admin, "/pods/default/web?tab=history")
    assert text.index("bob changed metadata.labels.team") < text.index("alice changed metadata.labels")
    assert LABEL_CHANGED in text
    assert "with kubectl/v1.36" in text
    assert "The request" in text
    text = words(viewer, "/pods/default/web?tab=history")
    assert "bob changed metadata.labels.team" in text
    assert "The request" not in text
    assert signed_in("nora", "namespace:lab").get("/pods/default/web?tab=history").status_code == 404


def test_every_kind_of_page_has_its_history(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_namespace("lab"))
    cluster.create(make_claim("training", namespace="lab"))
    cluster.create(make_node("node-1"))
    cluster.create(make_slice("gpus", node="node-1"))
    driver = make_slice("gpus", node="node-1").spec.driver
    for path in ("/namespaces/lab", "/claims/lab/training", "/nodes/node-1", f"/drivers/{driver}"):
        assert "tab=history" in admin.get(path).content.decode(), path
        text = words(admin, f"{path}?tab=history")
        assert "created it" in text, path
        assert "Manciple itself" in text, path
