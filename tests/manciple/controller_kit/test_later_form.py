"""Claims of the later form of KEP-3063: they name their controller, ask for devices, and are given devices."""

from __future__ import annotations

from typing import Any

import pytest

from tests.manciple.controller_kit.conftest import NAME, V1ALPHA3, Scene


@pytest.mark.parametrize(
    "spelled",
    [("controllerName",), ("controller",), ("controllerName", "controller")],
    ids=["as KEP-3063", "as Kubernetes 1.31", "as this API server: both"],
)
def test_claim_of_the_later_form_names_its_controller_and_gets_devices(scene: Scene, spelled: tuple[str, ...]) -> None:
    scene.api.put(
        "deviceclasses", {"apiVersion": V1ALPHA3, "kind": "DeviceClass", "metadata": {"name": "lamp"}, "spec": {}}
    )
    devices = {"requests": [{"name": "r", "deviceClassName": "lamp"}]}
    named = dict.fromkeys(spelled, NAME)
    scene.claim("c", apiVersion=V1ALPHA3, spec={"devices": devices, **named})
    others = dict.fromkeys(spelled, "other.example.com")
    scene.claim("other", apiVersion=V1ALPHA3, spec={"devices": devices, **others})
    scene.pod("p", "c", "other")
    scene.start()
    scene.context("p", "n1", selected="n1")
    scene.allocates("c")
    scene.tells("p", {"c": []})
    allocation = scene.found("c")["status"]["allocation"]
    assert {name: text for name, text in allocation.items() if name.startswith("controller")} == named
    assert "nodeSelector" in allocation
    assert not scene.is_allocated("other")

    scene.write_status("c", reservedFor=[], deallocationRequested=True)
    scene.eventually(lambda: not scene.found("c")["metadata"].get("finalizers"))
    assert scene.driver.held == set()


def test_class_that_a_claim_of_the_later_form_names_must_exist(scene: Scene) -> None:
    spec: dict[str, Any] = {"controllerName": NAME, "devices": {"requests": [{"name": "r", "deviceClassName": "lamp"}]}}
    scene.claim("c", apiVersion=V1ALPHA3, spec=spec)
    scene.pod("p", "c")
    scene.start()
    scene.context("p", "n1", selected="n1")
    scene.complains("ResourceClaim", "c", "class lamp does not exist")
    scene.api.put(
        "deviceclasses", {"apiVersion": V1ALPHA3, "kind": "DeviceClass", "metadata": {"name": "lamp"}, "spec": {}}
    )
    scene.allocates("c")
