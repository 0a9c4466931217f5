"""A served driver of claims that its controller allocated, as kubelets of Kubernetes 1.27 to 1.30 call it."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest

from inventory.kinds.named_resources import ResourceHandle
from nodeagent import cdi
from nodeagent.drivers.authoring import HandleDriver
from nodeagent.drivers.protocol import ClaimIdentity
from tests.nodeagent.fake_api import Document, Refused
from tests.nodeagent.objects import NODE
from tests.nodeagent.serving.conftest import Node

NAME = "lights.example.com"
ASKED = {"namespace": "default", "uid": "claim-c", "name": "c", "resource_handle": "red"}


class Lights(HandleDriver):
    """released: what it was told when claims were given back."""

    name = NAME

    def __init__(self) -> None:
        super().__init__(NODE)
        self.released: list[ClaimIdentity] = []

    def edits(self, claim: ClaimIdentity, handle: ResourceHandle) -> cdi.ContainerEdits:
        assert claim.uid == "claim-c"
        if handle.data == "broken":
            raise ValueError("the bulb is broken")
        return cdi.ContainerEdits(env=(f"LIGHT_{handle.data}=on",))

    def release(self, claim: ClaimIdentity) -> None:
        self.released.append(claim)


def allocated(node: Node, *data: str) -> None:
    def classic(document: Document) -> Document:
        handles = [{"driverName": NAME, "data": one} for one in data] + [{"driverName": "other.example.com"}]
        return {
            **document,
            "spec": {"resourceClassName": "lamps"},
            "status": {"driverName": NAME, "allocation": {"resourceHandles": handles}},
        }

    node.claim("c")
    node.api.views["v1alpha2"] = classic


def environment(node: Node) -> dict[str, list[str]]:
    """CDI device id -> what a container with it gets."""
    spec = json.loads((node.cdi_dir / f"k8s.{NAME}-claim_claim-c.json").read_text())
    return {f"{spec['kind']}={device['name']}": device["containerEdits"]["env"] for device in spec["devices"]}


@pytest.mark.parametrize("version", ["v1alpha3", "v1alpha2"])
def test_a_handle_is_prepared_and_given_back(node: Node, version: str) -> None:
    driver = Lights()
    allocated(node, "red")
    kubelet = node.serve(driver)
    assert "1.0.0" in kubelet.info.supported_versions

    answer = kubelet.node("NodePrepareResource", version, **ASKED)
    assert {one: environment(node)[one] for one in answer.cdi_devices} == {answer.cdi_devices[0]: ["LIGHT_red=on"]}

    kubelet.node("NodeUnprepareResource", version, **ASKED)
    assert node.files() == []
    (released,) = driver.released
    assert [handle.data for handle in released.handles] == ["red"]


def test_all_handles_of_the_driver_are_in_one_file_whichever_is_asked_for_last(node: Node) -> None:
    allocated(node, "red", "green")
    kubelet = node.serve(Lights())
    for handle in ("red", "green", "red"):
        kubelet.node("NodePrepareResource", "v1alpha3", **{**ASKED, "resource_handle": handle})
    assert sorted(environment(node).values()) == [["LIGHT_green=on"], ["LIGHT_red=on"]]


def test_the_handle_of_the_call_will_do_where_the_api_shows_none(node: Node) -> None:
    node.claim("c")

    def not_served(request: Any) -> None:
        if "/v1alpha2/" in request.url.path:
            raise Refused(404, "NotFound", "the server could not find the requested resource")

    node.api.before = not_served
    node.serve(Lights()).node("NodePrepareResource", "v1alpha3", **ASKED)
    assert list(environment(node).values()) == [["LIGHT_red=on"]]


def test_a_driver_that_fails_is_quoted(node: Node) -> None:
    allocated(node, "broken")
    kubelet = node.serve(Lights())
    assert kubelet.node("NodePrepareResource", "v1alpha3", **ASKED).error == "the bulb is broken"
    with pytest.raises(grpc.RpcError, match="the bulb is broken"):
        kubelet.node("NodePrepareResource", "v1alpha2", **ASKED)
    assert node.files() == []
