"""What is kept of an object as it was received, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manciple.mirror import received
from manciple.mirror.received import Received, Unreadable
from manciple.wire.resources import NODES, PODS, kind
from tests.manciple.mirror.clusters import NAMESPACE, meta, node, pod
from tests.manciple.mirror.replay import Document

APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def read(document: Document, resource: str = PODS) -> Received:
    return received.read(kind(resource), "v1", json.dumps(document, ensure_ascii=False).encode())


def kept(document: Document, resource: str = PODS) -> Document:
    return received.plain(read(document, resource).document)


def with_container(where: str, **fields: Any) -> Document:
    made = pod("train")
    made["spec"][where] = [{"name": "c", "image": "i", **fields}]
    return made


@pytest.mark.parametrize("where", ["containers", "initContainers", "ephemeralContainers"])
def test_values_of_environment_variables_are_left_out_and_nothing_else(where: str) -> None:
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    env = [{"name": "A", "value": "1", "xUnknown": [None]}, {"name": "B", "valueFrom": secret}]
    document = with_container(where, env=env, xOther={"value": "stays"})
    expected = json.loads(json.dumps(document))
    del expected["spec"][where][0]["env"][0]["value"]
    if where != "containers":
        del expected["spec"]["containers"][0]["env"][0]["value"]
    assert kept(document)["spec"] == expected["spec"]


@pytest.mark.parametrize("env", [None, [], "absent"])
def test_containers_without_an_environment_stay(env: Any) -> None:
    document = with_container("containers", **({} if env == "absent" else {"env": env}))
    assert kept(document)["spec"]["containers"][0]["image"] == "i"


def test_what_was_applied_is_left_out_of_the_object_and_of_its_template() -> None:
    annotations = {APPLIED: '{"spec": {}}', "other": "stays"}
    template = {"metadata": {"annotations": dict(annotations)}, "spec": pod("train")["spec"]}
    job = {
        "metadata": meta("train", NAMESPACE, annotations=annotations),
        "spec": {"template": template},
    }
    document = kept(job, "jobs.batch")
    assert document["metadata"]["annotations"] == {"other": "stays"}
    assert document["spec"]["template"]["metadata"]["annotations"] == {"other": "stays"}


def test_images_of_nodes_are_left_out() -> None:
    document = node("n1")
    document["status"]["images"] = [{"names": ["a"]}]
    assert "images" not in kept(document, NODES)["status"]
    assert kept(document, NODES)["status"]["capacity"] == document["status"]["capacity"]


@pytest.mark.parametrize(
    "value",
    [None, True, 10**30, -0.5, "", 'é\u2028"\\', "\u0000", [], {}, [[None, {"a": [1.5]}]], {"spec": {"env": [{}]}}],
    ids=repr,
)
def test_fields_that_nobody_knows_stay_as_they_are(value: Any) -> None:
    document = with_container("containers", xUnknown=value)
    document["metadata"]["xUnknown"] = document["spec"]["xUnknown"] = document["xUnknown"] = value
    found = kept(document)
    places = (found, found["metadata"], found["spec"], found["spec"]["containers"][0])
    assert [one["xUnknown"] for one in places] == [value] * len(places)


MANAGERS = {
    "none": (None, ""),
    "an empty list": ([], ""),
    "the last one": (
        [{"manager": "b", "time": "2026-11-02T00:00:00Z"}, {"manager": "a", "time": "2026-11-01T00:00:00Z"}],
        "b",
    ),
    "one without a time": ([{"manager": "a"}], "a"),
    "one without a name": ([{"time": "2026-11-02T00:00:00Z", "manager": None}], ""),
    "not a list": ("x", ""),
    "of strange entries": ([1, None], ""),
}


@pytest.mark.parametrize("phrase", MANAGERS)
def test_the_last_field_manager_is_the_author_and_what_they_manage_is_left_out(phrase: str) -> None:
    entries, author = MANAGERS[phrase]
    found = read({**pod("train"), "metadata": meta("train", NAMESPACE, managedFields=entries)})
    assert found.author == author
    assert "managedFields" not in received.plain(found.document)["metadata"]
    assert not found.object.metadata.managed_fields


@pytest.mark.parametrize("absent", [None, ""])
def test_an_object_without_uid_or_time_gets_some(absent: str | None) -> None:
    found = read({**pod("train"), "metadata": {"name": "train", "namespace": NAMESPACE, "uid": absent}})
    assert found.object.metadata.uid == f"pods/{NAMESPACE}/train"
    assert found.object.metadata.creation_timestamp == "1970-01-01T00:00:00Z"
    assert received.plain(found.document)["metadata"]["uid"] == found.object.metadata.uid


STRANGE = {
    "no text": b"\xff",
    "no text in a field that nobody knows": b'{"metadata":{"name":"a","namespace":"b"},"x":"\xff"}',
    "no JSON": b'{"metadata":{"name":"a","namespace":"b"},"x":{"y":}}',
    "no object": b"[]",
    "no metadata": b"{}",
    "metadata that is no object": b'{"metadata":[]}',
    "no name": b'{"metadata":{"namespace":"b"}}',
    "no namespace": b'{"metadata":{"name":"a"}}',
    "containers that are none": b'{"metadata":{"name":"a","namespace":"b"},"spec":{"containers":[1]}}',
}


@pytest.mark.parametrize("phrase", STRANGE)
def test_what_is_no_pod_is_not_read(phrase: str) -> None:
    with pytest.raises(Unreadable):
        received.read(kind(PODS), "v1", STRANGE[phrase])
