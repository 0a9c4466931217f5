"""An event is the same one in v1 and in events.k8s.io/v1, whoever wrote it and whoever reads it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from claims import event_recorder
from claims.event_recorder import EventNote
from manciple.store import objects
from manciple.wire import codec, event_forms, protobuf
from manciple.wire.base import ObjectMeta
from manciple.wire.machinery import Namespace
from tests.manciple.api.requests import TABLE, Api, namespace
from tests.plugin_driver.bodies import PROTOBUF
from tests.workloads.cluster import START

OLD, NEW = "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events"


def make_event(name: str = "e", **fields: Any) -> dict[str, Any]:
    """As a controller's recorder writes it to events.k8s.io/v1."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000001Z",
        "reportingController": "example.com/driver",
        "reportingInstance": "driver-1",
        "action": "Prepare",
        "reason": "Prepared",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u-1", "apiVersion": "v1"},
        "note": "the device is ready",
        "type": "Normal",
        **fields,
    }


def test_what_a_driver_tells_is_read_by_kubectl(api: Api) -> None:
    api.made(NEW, make_event())
    read = api.get(f"{OLD}/e").json
    assert (read["apiVersion"], read["message"], read["reportingComponent"]) == (
        "v1",
        "the device is ready",
        "example.com/driver",
    )
    assert read["involvedObject"]["name"] == "p"
    about = "involvedObject.name=p,involvedObject.uid=u-1"
    assert [one["metadata"]["name"] for one in api.get(f"{OLD}?fieldSelector={about}").json["items"]] == ["e"]
    (row,) = api.get(OLD, accept=TABLE).json["rows"]
    assert {"Normal", "Prepared", "pod/p", "the device is ready"} <= set(map(str, row["cells"]))


def test_what_is_told_here_is_read_in_the_newer_form(api: Api) -> None:
    about = Namespace(api_version="v1", kind="Namespace", metadata=ObjectMeta(name="default", uid="u-2"))
    note = EventNote(regarding=about, reason="Made", message="it is there", component="tester")
    for _ in range(2):
        with objects.writing() as writer:
            event_recorder.record(writer, note, now=START)
    (read,) = api.get(f"{NEW}?fieldSelector=regarding.kind=Namespace,reportingController=tester").json["items"]
    assert (read["note"], read["regarding"]["uid"], read["deprecatedCount"]) == ("it is there", "u-2", 2)
    assert read["deprecatedSource"] == {"component": "tester"}
    assert read["deprecatedLastTimestamp"] == "2026-11-27T12:00:00Z"
    assert "message" not in read


@pytest.mark.parametrize("media", ["application/merge-patch+json", "application/strategic-merge-patch+json"])
def test_a_series_is_counted_up(api: Api, media: str) -> None:
    api.made(NEW, make_event())
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:05:00.000000Z"}
    assert api.patch(f"{NEW}/e", {"series": series}, content_type=media).json["series"] == series
    assert api.get(f"{OLD}/e").json["series"] == series
    again = api.patch(f"{NEW}/e", {"note": "something else"}, content_type=media)
    assert (again.code, again.causes) == (422, {("FieldValueInvalid", "message")})


def test_a_deleted_one_is_gone_in_both_forms(api: Api) -> None:
    api.made(NEW, make_event())
    assert api.delete(f"{OLD}/e").code == 200
    assert api.get(f"{NEW}/e").code == 404


def test_each_form_has_its_own_rules(api: Api) -> None:
    """Of one that lacks a time and a type: v1 takes it, the newer form does not."""
    bare: dict[str, Any] = {"regarding": {}, "eventTime": None, "type": ""}
    refused = api.post(NEW, make_event(**bare))
    assert {field for _, field in refused.causes} == {"eventTime", "type"}
    old = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "o"}, "involvedObject": {}, "message": "m"}
    assert api.post(OLD, old).code == 201


def test_the_newer_form_is_described_and_found(api: Api) -> None:
    (found,) = api.get("/apis/events.k8s.io/v1").json["resources"]
    assert (found["name"], found["kind"], found["shortNames"]) == ("events", "Event", ["ev"])
    described = api.get("/openapi/v3/apis/events.k8s.io/v1").json["components"]["schemas"]["io.k8s.api.events.v1.Event"]
    assert {"regarding", "note", "reportingController", "deprecatedCount"} <= described["properties"].keys()
    assert "message" not in described["properties"]


def test_a_driver_writes_protobuf_and_a_watch_tells_of_it_in_its_own_form(http: httpx.Client) -> None:
    assert http.post("/api/v1/namespaces", json=namespace("demo")).status_code == 201
    path = "/apis/events.k8s.io/v1/namespaces/demo/events"
    revision = http.get(path).json()["metadata"]["resourceVersion"]
    document = make_event(regarding={"kind": "Pod", "namespace": "demo", "name": "p"})
    event = codec.decode_value(event_forms.Event, document)
    headers = {"Content-Type": PROTOBUF, "Accept": PROTOBUF}
    answer = http.post(path, content=protobuf.encode_object(event), headers=headers)
    assert answer.status_code == 201, answer.text
    with http.stream("GET", path, params={"watch": "true", "resourceVersion": revision, "timeoutSeconds": "5"}) as told:
        first = json.loads(next(told.iter_lines()))
    assert (first["type"], first["object"]["apiVersion"]) == ("ADDED", "events.k8s.io/v1")
    assert (first["object"]["note"], first["object"]["regarding"]["name"]) == ("the device is ready", "p")
