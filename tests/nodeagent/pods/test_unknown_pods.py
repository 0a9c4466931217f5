"""A pod that runs on a node and that the API does not know any more, as after a restored backup."""

from __future__ import annotations

import logging
from pathlib import Path

import httpx
import pytest

from tests.nodeagent.fake_api import Refused
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import claim, pod


def test_a_pod_of_the_lost_minutes_is_stopped_its_devices_are_given_back_and_its_node_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.start()
    machine.api.put("resourceclaims", claim("of-p", "gpu-0", pods=("uid-p",)))
    machine.api.put("pods", pod("p", claims={"gpus": "of-p"}))
    machine.settle()
    assert machine.driver.held == {"claim-of-p"}

    machine.api.delete("pods", "p", grace=0)
    machine.api.delete("resourceclaims", "of-p")
    machine.settle()

    assert machine.driver.held == set()
    (killing,) = [one for one in machine.api.all("events") if one["reason"] == "Killing"]
    about = killing["involvedObject"]
    assert (about["kind"], about["name"], about["uid"]) == ("Pod", "p", "uid-p")
    (event,) = [one for one in machine.api.all("events") if one["reason"] == "PodUnknown"]
    assert event["involvedObject"]["kind"] == "Node"
    assert "The API does not know the pod with uid uid-p" in event["message"]
    assert (
        "stopped 1 container, and unprepared ResourceClaim default/of-p: gpu.example.com/alpha/gpu-0. "
        in event["message"]
    )


def ending(cause: bool) -> Refused:
    """What the API says to a new object in a namespace that is being deleted, or gone."""
    if not cause:
        return Refused(404, "NotFound", 'namespaces "default" not found', details={"kind": "namespaces"})
    causes = [{"reason": "NamespaceTerminating", "message": "it ends", "field": "metadata.namespace"}]
    return Refused(403, "Forbidden", "because it is being terminated", details={"kind": "events", "causes": causes})


REFUSALS = {
    "the namespace is being deleted": (ending(True), False),
    "the namespace is gone": (ending(False), False),
    "the agent may not": (Refused(403, "Forbidden", "node may not"), True),
    "something else is gone": (Refused(404, "NotFound", "what", details={"kind": "pods"}), True),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_events_of_a_namespace_that_ends_are_dropped_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    refusal, is_told = REFUSALS[case]
    machine = Machine(tmp_path)
    machine.start()
    machine.api.put("pods", pod("p"))
    machine.settle()

    def refuse(request: httpx.Request) -> None:
        if request.method == "POST" and request.url.path.endswith("/events"):
            raise refusal

    machine.api.before = refuse
    with caplog.at_level(logging.INFO, "nodeagent.api.events"):
        machine.api.delete("pods", "p")
        machine.settle()
    assert any("Killing" in line.getMessage() for line in caplog.records) == is_told
