"""An agent while DynamicResourceAllocation is off, and when it is on again."""

from __future__ import annotations

import httpx
import pytest

from inventory.kinds import gates
from nodeagent.options import parser
from tests.nodeagent.fake_api import Refused
from tests.nodeagent.machine import Machine, release, run_pod
from tests.nodeagent.objects import pod

OFF = gates.parse("DynamicResourceAllocation=false")
GROUP = "/apis/resource.k8s.io/"


def unserved(request: httpx.Request) -> None:
    """An API server that does not serve resource.k8s.io."""
    if request.url.path.startswith(GROUP):
        raise Refused(404, "NotFound", "the server could not find the requested resource")


def test_pods_run_on_without_it_and_new_containers_get_no_devices(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()
    before = machine.agent.runtime.runs("uid-p")["main"]
    assert before.cdi_devices
    slices = machine.api.all("resourceslices")

    with gates.using(**OFF):
        machine.restart()
        machine.api.put("pods", pod("new", claims={"gpus": "of-nobody"}))
        machine.settle()
        assert machine.agent.runtime.runs("uid-p")["main"] == before
        assert machine.condition("new", "Ready") == "True"
        assert machine.devices("new") == ()
        assert machine.api.all("resourceslices") == slices
        assert machine.driver.count("unprepare") == 0
        machine.api.delete("pods", "new")
        machine.settle()

    machine.restart()
    machine.settle()
    assert machine.agent.runtime.runs("uid-p")["main"] == before
    machine.check_invariants()


def test_what_was_prepared_is_given_back_when_its_pod_ends_meanwhile(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()
    with gates.using(**OFF):
        machine.restart()
        machine.api.delete("pods", "p")
        machine.settle()
        assert machine.driver.count("unprepare") == 1
    release(machine)
    machine.restart()
    machine.settle()
    machine.check_invariants()


def test_an_agent_with_the_gate_off_does_not_ask_for_the_group(machine: Machine) -> None:
    machine.api.before = unserved
    machine.api.requests.clear()
    with gates.using(**OFF):
        machine.restart()
        machine.api.put("pods", pod("plain"))
        machine.settle()
        assert machine.condition("plain", "Ready") == "True"
        assert not [one for one in machine.api.requests if GROUP in one]


def test_an_agent_that_was_not_told_runs_the_other_pods_and_says_what_to_do(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.api.before = unserved
    machine.restart()
    assert "--feature-gates=DynamicResourceAllocation=false" in caplog.text
    machine.api.put("pods", pod("plain"))
    machine.look()
    assert machine.condition("plain", "Ready") == "True"


@pytest.mark.parametrize("text", ["Nonsense=true", "DynamicResourceAllocation=maybe", "DRAAdminAccess=false"])
def test_wrong_gates_are_refused_by_the_command_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--node-name", "n", "--feature-gates", text])
    assert "argument --feature-gates: " in capsys.readouterr().err.splitlines()[-1]
