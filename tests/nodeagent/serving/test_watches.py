"""What a served driver does by itself: its slices in the API, its health to the kubelet."""

from __future__ import annotations

import httpx
import pytest

from inventory.kinds.devices import Device
from tests.nodeagent.machine import RecordingDriver
from tests.nodeagent.objects import DRIVER, NODE
from tests.nodeagent.serving.conftest import Node
from tests.nodeagent.serving.kubelet import reports


def published(node: Node) -> list[str]:
    return [device["name"] for s in node.api.all("resourceslices") for device in s["spec"].get("devices", [])]


def names(count: int) -> list[str]:
    return [f"gpu-{index}" for index in range(count)]


def test_its_devices_are_published_for_its_node(node: Node) -> None:
    node.serve()

    node.eventually(lambda: published(node) == names(8))
    (slice_,) = node.api.all("resourceslices")
    assert slice_["spec"]["driver"] == DRIVER
    assert slice_["spec"]["nodeName"] == NODE
    assert slice_["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-node", "controller": True}
    ]


def test_slices_that_somebody_deletes_or_changes_are_published_again(node: Node) -> None:
    node.serve()
    node.eventually(lambda: published(node) == names(8))
    (slice_,) = node.api.all("resourceslices")

    node.api.put("resourceslices", {**slice_, "spec": {**slice_["spec"], "devices": [{"name": "stolen"}]}})
    node.eventually(lambda: published(node) == names(8))
    node.api.delete("resourceslices", slice_["metadata"]["name"], "")
    node.eventually(lambda: published(node) == names(8))


def test_other_devices_are_published_at_once(node: Node) -> None:
    node.serve()
    node.eventually(lambda: published(node) == names(8))

    node.driver.set_devices([Device(name="new")])

    node.eventually(lambda: published(node) == ["new"])


def test_an_api_that_is_away_at_the_start_is_asked_until_it_answers(node: Node) -> None:
    failures = iter(range(3))

    def fail_thrice(request: httpx.Request) -> None:
        if next(failures, None) is not None:
            raise httpx.ConnectError("refused", request=request)

    node.api.before = fail_thrice
    node.serve()

    node.eventually(lambda: published(node) == names(8))


def test_a_node_that_is_not_there_yet_is_waited_for(node: Node) -> None:
    node.api.delete("nodes", NODE, "")
    node.serve()
    node.api.put("nodes", {"metadata": {"name": NODE, "uid": "uid-later"}})

    node.eventually(lambda: published(node) == names(8))
    (slice_,) = node.api.all("resourceslices")
    assert slice_["metadata"]["ownerReferences"][0]["uid"] == "uid-later"


def test_when_the_old_instance_has_gone_the_devices_are_those_of_the_new_one(node: Node) -> None:
    old, new = RecordingDriver(gpus=2), RecordingDriver(gpus=3)
    node.serve(old, rolling_update="old")
    node.eventually(lambda: published(node) == names(2))
    node.serve(new, rolling_update="new")
    node.eventually(lambda: published(node) == names(3))

    node.plugins[0].stop()

    node.eventually(lambda: published(node) == names(3))
    assert len({s["spec"]["pool"]["generation"] for s in node.api.all("resourceslices")}) == 1


def test_stopping_leaves_the_slices(node: Node) -> None:
    """A new one may be on its way; the kubelet removes them when it does not come."""
    node.serve()
    node.eventually(lambda: published(node) == names(8))

    node.stop()

    assert published(node) == names(8)


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_health_is_told_at_once_and_whenever_it_changes(node: Node, version: str) -> None:
    driver = RecordingDriver(gpus=2)
    watch = node.serve(driver).watch(version)
    told = reports(watch)
    assert next(told) == {"gpu-0": (1, ""), "gpu-1": (1, "")}

    driver.report_health("gpu-1", "Unhealthy", "ECC error")

    assert next(told) == {"gpu-0": (1, ""), "gpu-1": (2, "ECC error")}
    watch.cancel()


def test_health_is_repeated_so_that_the_kubelet_believes_it(node: Node) -> None:
    watch = node.serve(RecordingDriver(gpus=1), health_seconds=0.05).watch()
    told = reports(watch)

    assert [next(told) for _ in range(3)] == [{"gpu-0": (1, "")}] * 3
    watch.cancel()


def test_stopping_ends_the_watch(node: Node) -> None:
    told = reports(node.serve().watch())
    next(told)

    node.plugins[0].stop()

    assert list(told) == []
