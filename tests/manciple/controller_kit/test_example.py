"""The example: network-attached accelerators (KEP-3063, user story), its controller and its node plugin."""

from __future__ import annotations

import inspect
import json
import threading
from typing import Any

import pytest

from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.named_resources import ResourceHandle
from manciple.controller_kit import command
from manciple.controller_kit.controller import DriverController
from manciple.controller_kit.examples import network_accelerators as example
from manciple.wire import codec
from nodeagent.api.client import Client
from nodeagent.claims.handles import with_handles
from nodeagent.drivers.protocol import ClaimIdentity, Failed, Prepared
from tests.manciple.controller_kit.conftest import SECONDS, Scene
from tests.nodeagent.objects import claim as allocated_claim


@pytest.fixture
def scene(scene: Scene) -> Scene:
    """With a class of three accelerators."""
    reference = {"kind": "ConfigMap", "name": "enclosure", "namespace": "default"}
    scene.class_("accelerator", example.NAME, parametersRef=reference)
    scene.api.put(
        "configmaps", {"metadata": {"name": "enclosure", "namespace": "default"}, "data": {"accelerators": "3"}}
    )
    return scene


def start(scene: Scene) -> None:
    client = Client("http://api", token="t", transport=scene.api)
    controller = DriverController(example.Enclosure(client), client, recheck_seconds=0.2)
    stop = threading.Event()
    thread = threading.Thread(target=controller.run, args=(stop,))
    thread.start()
    scene.controllers.append((controller, stop, thread))
    assert controller.working.wait(SECONDS)


def come(scene: Scene, name: str, *claims: str, node: str = "n1", count: int = 1) -> None:
    """A pod with claims for `count` accelerators each."""
    for one in claims:
        spec: dict[str, Any] = {"resourceClassName": "accelerator", "allocationMode": "WaitForFirstConsumer"}
        if count != 1:
            spec["parametersRef"] = {"kind": "ConfigMap", "name": f"{count}"}
            meta = {"name": f"{count}", "namespace": "default"}
            scene.api.put("configmaps", {"metadata": meta, "data": {"count": str(count)}})
        scene.claim(one, spec=spec)
    scene.pod(name, *claims)
    scene.context(name, "n1", "n2", selected=node)


def slots(scene: Scene, name: str) -> list[int]:
    (handle,) = scene.found(name)["status"]["allocation"]["resourceHandles"]
    given = json.loads(handle["data"])["slots"]
    assert isinstance(given, list)
    return given


def test_is_a_whole_driver_in_less_than_a_hundred_lines() -> None:
    assert len(inspect.getsource(example).splitlines()) < 100


def test_jobs_compete_for_accelerators_and_each_is_attached_to_the_node_of_its_pod(scene: Scene) -> None:
    start(scene)
    come(scene, "p", "a", count=2)
    come(scene, "q", "b", node="n2")
    scene.allocates("a", "b")
    assert sorted([*slots(scene, "a"), *slots(scene, "b")]) == [0, 1, 2]
    (handle,) = scene.found("b")["status"]["allocation"]["resourceHandles"]
    assert json.loads(handle["data"])["attachedTo"] == "n2"

    come(scene, "r", "c")
    scene.tells("r", {"c": ["n1", "n2"]})
    free = slots(scene, "b")
    scene.api.put("resourceclaims", {**(b := scene.found("b")), "status": {**b["status"], "reservedFor": []}})
    scene.api.delete("resourceclaims", "b")
    scene.allocates("c")
    assert slots(scene, "c") == free


def test_all_claims_of_a_pod_are_met_or_none(scene: Scene) -> None:
    start(scene)
    come(scene, "p", "a", "b", count=2)
    scene.tells("p", {"a": ["n1", "n2"], "b": ["n1", "n2"]})
    assert not scene.found("a")["metadata"].get("finalizers")


def test_what_was_given_is_known_after_a_restart(scene: Scene) -> None:
    start(scene)
    come(scene, "p", "a", count=2)
    scene.allocates("a")
    scene.stop()
    start(scene)
    come(scene, "q", "b")
    scene.allocates("b")
    assert not set(slots(scene, "a")) & set(slots(scene, "b"))


def test_the_plugin_tells_a_container_which_it_has() -> None:
    given = codec.decode_value(ResourceClaim, allocated_claim("c"))
    handle = ResourceHandle(driver_name=example.NAME, data='{"slots": [1, 2], "attachedTo": "alpha"}')
    strange = ResourceHandle(driver_name="other.example.com", data="?")
    plugin = example.Fabric("alpha")
    answer = plugin.prepare([with_handles(given, (strange, handle))])["claim-c"]
    assert isinstance(answer, Prepared)
    assert answer.spec is not None
    (device,) = answer.spec.devices
    assert device.container_edits.env == ("ACCELERATORS=1,2",)
    assert answer.devices[0].cdi_device_ids == (f"{answer.spec.kind}={device.name}",)

    broken = plugin.prepare([with_handles(given, (ResourceHandle(driver_name=example.NAME, data="{}"),))])["claim-c"]
    assert isinstance(broken, Failed)
    assert plugin.unprepare([ClaimIdentity("claim-c", "default", "c")]) == {"claim-c": None}


def test_the_command_line_says_what_to_correct(capsys: pytest.CaptureFixture[str]) -> None:
    client = Client("http://api", token="t")
    module = "manciple.controller_kit.examples.network_accelerators"
    assert command.create_driver(f"{module}:Enclosure", client).name == example.NAME
    for wrong in (f"{module}:Fabric", f"{module}:Missing", "missing:Driver", "Enclosure"):
        with pytest.raises(ValueError, match=wrong.split(":")[0]):
            command.create_driver(wrong, client)
    assert command.main([f"{module}:Enclosure"]) == 2
    assert "give --kubeconfig" in capsys.readouterr().err
