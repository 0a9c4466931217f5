"""Every call that a driver built on Kubernetes' Go library makes to the API server, in the library's own encodings.

The calls and where they come from are listed in docs/reference/plugin-protocol.md.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from manciple.wire import codec, protobuf
from manciple.wire.machinery import Event, ListMeta
from manciple.wire.wireformat import fields, read_envelope
from tests.manciple.api.driver_calls import BETAS, DRIVER, NODE, Document
from tests.manciple.api.requests import namespace, pod
from tests.plugin_driver.bodies import PROTOBUF, read, write_protobuf
from tests.plugin_driver.kube import Kube, Refused
from tests.plugin_driver.messages import Messages

SELECTOR = f"spec.driver={DRIVER},spec.nodeName={NODE}"


def properties() -> Document:
    """A device with something of everything that a driver publishes."""
    return {
        "attributes": {
            "model": {"string": "A100"},
            "index": {"int": 0},
            "ecc": {"bool": True},
            "v": {"version": "1.2.3"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
        "taints": [{"key": "example.com/sick", "value": "hot", "effect": "NoSchedule"}],
    }


def make_slice(version: str = "v1", *, devices: int = 1, **spec: Any) -> Document:
    """A slice in the shape of `version`."""
    of_device = {"basic": properties()} if version == "v1beta1" else properties()
    return {
        "kind": "ResourceSlice",
        "metadata": {"generateName": f"00000-{DRIVER}-{NODE}-"},
        "spec": {
            "driver": DRIVER,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}", **of_device} for number in range(devices)],
            **spec,
        },
    }


def without_times(one: Document) -> Document:
    """The slice's spec without the times that the server gave the taints."""
    text = json.loads(json.dumps(one["spec"]))
    for device in text["devices"]:
        for taint in device.get("basic", device)["taints"]:
            taint.pop("timeAdded")
    return dict(text)


@pytest.mark.parametrize("version", BETAS)
def test_a_slice_is_created_in_protobuf_and_answered_as_it_was_sent(kube: Kube, version: str) -> None:
    kube.version = version
    made = kube.create_slice(make_slice(version))

    assert made["apiVersion"] == f"resource.k8s.io/{version}"
    assert without_times(made) == make_slice(version)["spec"]
    assert made["metadata"]["name"].startswith(f"00000-{DRIVER}-{NODE}-")
    assert made["metadata"]["creationTimestamp"] > "2020"


def test_a_slice_is_created_in_json_as_go_writes_it(http: httpx.Client) -> None:
    """A client that was not told to use protobuf: what is no pointer is there, as null or empty."""
    sent = make_slice()
    sent["metadata"] = {**sent["metadata"], "creationTimestamp": None}
    answer = http.post("/apis/resource.k8s.io/v1/resourceslices", json={**sent, "apiVersion": "resource.k8s.io/v1"})
    assert answer.status_code == 201, answer.text
    assert without_times(answer.json()) == sent["spec"]


@pytest.mark.parametrize("version", BETAS[1:])
def test_what_an_older_library_published_is_the_same_slice_in_every_version(kube: Kube, version: str) -> None:
    kube.version = version
    name = kube.create_slice(make_slice(version))["metadata"]["name"]
    for asked in BETAS:
        kube.version = asked
        [found] = kube.list_slices(fieldSelector=f"metadata.name={name}")["items"]
        assert without_times(found) == make_slice(asked)["spec"]


@pytest.mark.parametrize("version", BETAS)
def test_an_update_counts_from_the_answer_before_and_a_stale_one_is_a_conflict(kube: Kube, version: str) -> None:
    kube.version = version
    first = kube.create_slice(make_slice(version))
    pool = {**first["spec"]["pool"], "generation": 2}
    second = kube.update_slice({**first, "spec": {**first["spec"], "pool": pool}})

    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    assert second["spec"]["pool"]["generation"] == 2
    # The library keeps the time of a taint that it published before; the server must as well.
    assert second["spec"]["devices"] == first["spec"]["devices"]
    with pytest.raises(Refused) as refused:
        kube.update_slice({**first, "spec": {**first["spec"], "pool": {**pool, "generation": 3}}})
    assert refused.value.code == 409


def test_an_update_that_changes_nothing_keeps_the_resource_version(kube: Kube) -> None:
    first = kube.create_slice(make_slice())
    assert kube.update_slice(first)["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@pytest.mark.parametrize("version", BETAS)
def test_a_slice_is_deleted_only_as_the_driver_knows_it(kube: Kube, version: str) -> None:
    kube.version = version
    first = kube.create_slice(make_slice(version))
    for stale in ({"uid": "another"}, {"resourceVersion": "1"}):
        with pytest.raises(Refused) as refused:
            kube.delete_slice({**first, "metadata": {**first["metadata"], **stale}})
        assert refused.value.code == 409
    kube.delete_slice(first)
    with pytest.raises(Refused) as refused:
        kube.delete_slice(first)
    assert refused.value.code == 404
    assert kube.version == version  # after all versions were asked


def test_a_list_is_of_the_driver_on_its_node_only(kube: Kube) -> None:
    mine = kube.create_slice(make_slice())["metadata"]["name"]
    kube.create_slice(make_slice(driver="other.example.com"))
    kube.create_slice(make_slice(nodeName="worker-2"))
    found = kube.list_slices(fieldSelector=SELECTOR, limit="500", resourceVersion="0")
    assert [one["metadata"]["name"] for one in found["items"]] == [mine]
    assert int(found["metadata"]["resourceVersion"]) > 0


def test_the_slices_of_no_node_are_found_by_an_empty_node_name(kube: Kube) -> None:
    """How the library's controller asks when its owner is no node."""
    kube.create_slice(make_slice())
    spec = make_slice()["spec"]
    network = {key: value for key, value in spec.items() if key != "nodeName"} | {"allNodes": True}
    name = kube.create_slice({**make_slice(), "spec": network})["metadata"]["name"]
    found = kube.list_slices(fieldSelector=f"spec.driver={DRIVER},spec.nodeName=")
    assert [one["metadata"]["name"] for one in found["items"]] == [name]


@pytest.mark.parametrize("version", BETAS)
def test_an_informer_opens_with_the_state_and_a_bookmark_and_goes_on_with_events(kube: Kube, version: str) -> None:
    kube.version = version
    first = kube.create_slice(make_slice(version))
    kube.create_slice(make_slice(version, driver="other.example.com"))
    events = kube.watch_slices(
        allowWatchBookmarks="true",
        fieldSelector=SELECTOR,
        resourceVersionMatch="NotOlderThan",
        sendInitialEvents="true",
        timeoutSeconds="60",
    )
    assert next(events) == ("ADDED", first)
    kind, bookmark = next(events)
    assert kind == "BOOKMARK"
    assert bookmark["kind"] == "ResourceSlice"
    assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(bookmark["metadata"]["resourceVersion"]) >= int(first["metadata"]["resourceVersion"])

    second = kube.create_slice(make_slice(version))
    # The mutation cache compares: the event must have the resourceVersion that the create answered.
    assert next(events) == ("ADDED", second)
    kube.delete_slice(second)
    kind, gone = next(events)
    assert (kind, gone["metadata"]["uid"]) == ("DELETED", second["metadata"]["uid"])
    assert int(gone["metadata"]["resourceVersion"]) > int(second["metadata"]["resourceVersion"])


def test_an_informer_that_was_interrupted_gets_the_whole_state_again(kube: Kube) -> None:
    first = kube.create_slice(make_slice())
    position = kube.list_slices()["metadata"]["resourceVersion"]
    events = kube.watch_slices(
        allowWatchBookmarks="true",
        fieldSelector=SELECTOR,
        resourceVersion=position,
        resourceVersionMatch="NotOlderThan",
        sendInitialEvents="true",
        timeoutSeconds="1",
    )
    assert [(kind, one["metadata"].get("uid")) for kind, one in events] == [
        ("ADDED", first["metadata"]["uid"]),
        ("BOOKMARK", None),
    ]


def test_a_watch_goes_on_after_a_list_as_older_informers_ask(kube: Kube) -> None:
    start = kube.list_slices(fieldSelector=SELECTOR, limit="500", resourceVersion="0")["metadata"]["resourceVersion"]
    made = kube.create_slice(make_slice())
    events = kube.watch_slices(
        allowWatchBookmarks="true", fieldSelector=SELECTOR, resourceVersion=start, timeoutSeconds="1"
    )
    assert list(events) == [("ADDED", made)]  # and ends by itself after its second


def test_a_watch_from_a_revision_that_nobody_knows_tells_the_informer_to_list_again(kube: Kube) -> None:
    with pytest.raises(Refused) as refused:
        list(kube.watch_slices(fieldSelector=SELECTOR, resourceVersion="99999999", timeoutSeconds="5"))
    assert refused.value.code in (410, 504)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_protobuf_is_for_those_who_take_nothing_else(
    kube: Kube, http: httpx.Client, messages: Messages, version: str
) -> None:
    made = kube.create_slice(make_slice())
    path, only = f"/apis/resource.k8s.io/{version}/resourceslices", {"Accept": PROTOBUF}
    one = http.get(f"{path}/{made['metadata']['name']}", headers=only)
    assert (one.status_code, one.headers["Content-Type"]) == (200, PROTOBUF)
    plain = http.get(f"{path}/{made['metadata']['name']}").json()
    assert read(messages, one.content, PROTOBUF) == plain
    listed = http.get(path, headers=only)
    envelope = read_envelope(listed.content)
    assert (envelope.api_version, envelope.kind) == (f"resource.k8s.io/{version}", "ResourceSliceList")
    parts = [(number, bytes(payload)) for number, _, payload in fields(memoryview(envelope.raw))]
    assert [number for number, _ in parts] == [1, 2]
    metadata = protobuf.decode(ListMeta, parts[0][1])
    assert metadata.resource_version == http.get(path).json()["metadata"]["resourceVersion"]
    # JSON costs less, and is what whoever takes it gets; errors and watches are JSON always.
    for accept in (f"{PROTOBUF},application/json", "*/*"):
        assert http.get(path, headers={"Accept": accept}).headers["Content-Type"] == "application/json"
    missing = http.get(f"{path}/missing", headers=only)
    assert (missing.status_code, missing.json()["reason"]) == (404, "NotFound")


# The rest ------------------------------------------------------------------------------------------------------------


def test_the_node_is_read_for_its_uid(kube: Kube, http: httpx.Client) -> None:
    made = http.post("/api/v1/nodes", json={"metadata": {"name": NODE}}).json()
    assert kube.node(NODE)["metadata"]["uid"] == made["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": made["metadata"]["uid"], "controller": True}
    sent = make_slice()
    sent["metadata"]["ownerReferences"] = [owner]
    assert kube.create_slice(sent)["metadata"]["ownerReferences"] == [owner]


def test_an_event_about_a_pod_is_taken_in_protobuf_and_counted_by_a_patch(http: httpx.Client) -> None:
    """client-go's event recorder."""
    assert http.post("/api/v1/namespaces", json=namespace("demo")).status_code == 201
    made = http.post("/api/v1/namespaces/demo/pods", json=pod()).json()
    about = {"kind": "Pod", "namespace": "demo", "name": "p", "uid": made["metadata"]["uid"]}
    document = {
        "metadata": {"name": "p.1", "namespace": "demo"},
        "involvedObject": about,
        "reason": "Prepared",
        "message": "its devices are ready",
        "type": "Normal",
        "count": 1,
    }
    event = codec.decode_value(Event, {"apiVersion": "v1", "kind": "Event", **document})
    answer = http.post(
        "/api/v1/namespaces/demo/events",
        content=protobuf.encode_object(event),
        headers={"Content-Type": PROTOBUF, "Accept": PROTOBUF},
    )
    assert answer.status_code == 201, answer.text
    answer = http.patch(
        "/api/v1/namespaces/demo/events/p.1",
        content=json.dumps({"count": 2}),
        headers={"Content-Type": "application/strategic-merge-patch+json"},
    )
    assert answer.json()["count"] == 2


BROKEN: dict[str, tuple[str, str]] = {
    "another kind": ("ResourceClaim", "does not match the expected kind (ResourceSlice)"),
    "another version": ("ResourceSlice", "does not match the expected API version"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("version", BETAS)
def test_a_protobuf_body_of_something_else_is_refused(
    http: httpx.Client, messages: Messages, case: str, version: str
) -> None:
    kind, told = BROKEN[case]
    at = version if kind == "ResourceClaim" else "v1" if version != "v1" else "v1beta1"
    body = write_protobuf(messages, {"apiVersion": f"resource.k8s.io/{at}", "kind": kind, "metadata": {"name": "x"}})
    answer = http.post(
        f"/apis/resource.k8s.io/{version}/resourceslices", content=body, headers={"Content-Type": PROTOBUF}
    )
    assert answer.status_code == 400
    assert told in answer.json()["message"]


def test_the_driver_program_shares_no_code_with_what_it_tests() -> None:
    ours = ("nodeagent", "manciple", "claims", "inventory", "scheduling", "insight", "dashboard")
    for path in (Path(__file__).parents[2] / "plugin_driver").glob("*.py"):
        lines = [line.split() for line in path.read_text().splitlines()]
        imported = {line[1].split(".")[0] for line in lines if line and line[0] in ("import", "from") and len(line) > 1}
        assert not imported & set(ours), path


def test_every_test_that_the_page_of_the_calls_names_is_there() -> None:
    tests = Path(__file__).parents[2]
    page = (tests.parent / "docs" / "reference" / "plugin-protocol.md").read_text()
    sources = "".join(path.read_text() for path in tests.rglob("test_*.py"))
    assert {name for name in re.findall(r"`(test_\w+)`", page) if f"def {name}(" not in sources} == set()
