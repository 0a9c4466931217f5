"""A pod that runs on a node and that the API does not know any more, as after a restored backup."""

from __future__ import annotations

from pathlib import Path

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
    (event,) = [one for one in machine.api.all("events") if one["reason"] == "PodUnknown"]
    assert event["involvedObject"]["kind"] == "Node"
    assert "The API does not know the pod with uid uid-p" in event["message"]
    assert (
        "stopped 1 container, and unprepared ResourceClaim default/of-p: gpu.example.com/alpha/gpu-0. "
        in event["message"]
    )
