"""Drivers of Kubernetes 1.30 tell the agent what they have, and the agent publishes it in their name."""

from __future__ import annotations

from typing import Any

import httpx

from tests.nodeagent.fake_api import Refused
from tests.nodeagent.objects import NODE
from tests.nodeagent.plugins.conftest import PluginNode
from tests.nodeagent.plugins.plugin import NAME, Plugin


def stock(node: PluginNode, *instances: str) -> Plugin:
    plugin = node.plugin(versions=("1.0.0",), serves=("v1alpha3",))
    plugin.has(*instances)
    return plugin.start()


def published(node: PluginNode) -> list[Any]:
    """The instances of each slice."""
    slices = [one for one in node.api.all("resourceslices") if one.get("driverName") == NAME]
    return [[one["name"] for one in slice_["namedResources"]["instances"]] for slice_ in slices]


def test_what_a_driver_has_is_published_as_it_says_and_follows_it(node: PluginNode) -> None:
    node.start()
    plugin = stock(node, "gpu-0", "gpu-1")
    node.eventually(lambda: published(node) == [["gpu-0", "gpu-1"]])
    (made,) = node.api.all("resourceslices")
    assert (made["apiVersion"], made["nodeName"]) == ("resource.k8s.io/v1alpha2", NODE)
    assert [owner["kind"] for owner in made["metadata"]["ownerReferences"]] == ["Node"]

    plugin.has("gpu-1")
    node.eventually(lambda: published(node) == [["gpu-1"]])
    assert [one["metadata"]["name"] for one in node.api.all("resourceslices")] == [made["metadata"]["name"]]
    plugin.has()
    node.eventually(lambda: published(node) == [])


def test_slices_are_as_the_driver_says_after_a_restart_of_the_agent(node: PluginNode) -> None:
    node.start()
    stock(node, "gpu-0")
    node.eventually(lambda: published(node) == [["gpu-0"]])
    before = node.api.all("resourceslices")
    node.stop()
    (slice_,) = before
    node.api.put("resourceslices", {**slice_, "namedResources": {"instances": []}})
    node.start()
    node.eventually(lambda: published(node) == [["gpu-0"]])


def test_a_driver_that_does_not_know_the_call_publishes_nothing(node: PluginNode) -> None:
    node.start()
    plugin = node.registered(versions=("1.0.0",), serves=("v1alpha3",))
    node.come()
    node.runs()
    assert plugin.resources is None
    assert not node.api.all("resourceslices")


def test_nothing_is_published_and_pods_run_while_v1alpha2_is_not_served(node: PluginNode) -> None:
    def not_served(request: httpx.Request) -> None:
        if "/v1alpha2/" in request.url.path:
            raise Refused(404, "NotFound", "the server could not find the requested resource")

    node.api.before = not_served
    node.start()
    plugin = stock(node, "gpu-0")
    plugin.wait_for(lambda: plugin.registered)
    node.come()
    node.runs()
    assert not node.api.all("resourceslices")
