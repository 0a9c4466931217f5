"""Probes, restarts and their back-off as a simulated node plays them; a killed agent forgets nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import container, pod
from tests.nodeagent.pods.test_pod_lifecycle import short, statuses, wait

GET: dict[str, Any] = {"httpGet": {"port": 80}}


def failing(*probes: str) -> dict[str, Any]:
    return {"annotations": {"manciple.dev/failing-probes": ",".join(probes)}}


def main(machine: Machine) -> dict[str, Any]:
    found: dict[str, Any] = statuses(machine)["main"]
    return found


def run(machine: Machine, *containers: dict[str, Any], **fields: Any) -> None:
    machine.api.put("pods", pod("p", *containers, **fields))
    machine.settle()


def reasons(machine: Machine) -> list[tuple[str, str, str]]:
    """(type, reason, message) of all events."""
    return [(event["type"], event["reason"], event["message"]) for event in machine.api.all("events")]


# Probes ---------------------------------------------------------------------------------------------------------------


def test_a_container_is_ready_when_its_probes_have_succeeded_often_enough(machine: Machine) -> None:
    startup = GET | {"initialDelaySeconds": 5}
    readiness = GET | {"initialDelaySeconds": 8, "periodSeconds": 3, "successThreshold": 2}
    run(machine, container(startupProbe=startup, readinessProbe=readiness))
    seen = []
    for _ in range(12):
        seen.append((main(machine)["started"], main(machine)["ready"], machine.condition("p", "Ready")))
        wait(machine, 1)

    assert seen == [(False, False, "False")] * 5 + [(True, False, "False")] * 6 + [(True, True, "True")]


def test_a_failing_readiness_probe_keeps_the_pod_out_and_running(machine: Machine) -> None:
    run(machine, container(readinessProbe=GET), metadata=failing("readiness"))
    wait(machine, 3600)

    assert (main(machine)["ready"], main(machine)["started"], main(machine)["restartCount"]) == (False, True, 0)
    (unhealthy,) = [event for event in machine.api.all("events") if event["reason"] == "Unhealthy"]
    assert unhealthy["message"].startswith("Readiness probe failed: ")
    assert unhealthy["type"] == "Warning"
    assert unhealthy["involvedObject"]["fieldPath"] == "spec.containers{main}"


@pytest.mark.parametrize("probe", ["liveness", "startup"])
def test_a_container_whose_probe_fails_too_often_is_restarted(machine: Machine, probe: str) -> None:
    given = GET | {"initialDelaySeconds": 4, "periodSeconds": 3, "failureThreshold": 3}
    run(machine, container() | {f"{probe}Probe": given}, metadata=failing(probe))
    wait(machine, 9)
    assert main(machine)["restartCount"] == 0
    assert main(machine)["started"] == (probe == "liveness")

    wait(machine, 1)

    assert main(machine)["restartCount"] == 1
    assert main(machine)["lastState"]["terminated"]["exitCode"] == 137
    assert machine.events("Killing") == [f"Container main failed {probe} probe, will be restarted"]
    assert machine.events("Unhealthy")[0].startswith(f"{probe.capitalize()} probe failed: ")


def test_a_startup_probe_holds_back_the_liveness_probe(machine: Machine) -> None:
    liveness = GET | {"periodSeconds": 1, "failureThreshold": 1}
    run(
        machine,
        container(startupProbe=GET | {"initialDelaySeconds": 60}, livenessProbe=liveness),
        metadata=failing("liveness"),
    )
    wait(machine, 59)
    assert main(machine)["restartCount"] == 0
    wait(machine, 1)
    assert main(machine)["restartCount"] == 1


def test_a_probe_that_does_not_exist_cannot_fail(machine: Machine) -> None:
    machine.api.put("pods", pod("p", container(livenessProbe=GET), metadata=failing("livelyness")))
    machine.look()
    assert "livelyness" in main(machine)["state"]["waiting"]["message"]


def test_readiness_gates_wait_for_conditions_that_others_write(machine: Machine) -> None:
    run(machine, spec={"readinessGates": [{"conditionType": "example.com/registered"}]})
    assert (machine.condition("p", "ContainersReady"), machine.condition("p", "Ready")) == ("True", "False")

    document = machine.pod("p")
    document["status"]["conditions"].append({"type": "example.com/registered", "status": "True"})
    machine.api.put("pods", document)
    machine.settle()

    assert machine.condition("p", "Ready") == "True"


# Restarts -------------------------------------------------------------------------------------------------------------

#: The delay before each restart of a container that fails at once, in seconds.
DELAYS = (0, 10, 20, 40, 80, 160, 300, 300)


def restarts_after(machine: Machine) -> int:
    """Seconds until the container, which has just started and ends after a second, runs again."""
    count = main(machine)["restartCount"]
    wait(machine, 1)
    for second in range(400):
        if main(machine)["restartCount"] > count:
            return second
        wait(machine, 1)
    raise AssertionError("it does not run again")


def test_the_delay_doubles_up_to_five_minutes(machine: Machine) -> None:
    run(machine, metadata=short(1, 1))
    assert tuple(restarts_after(machine) for _ in DELAYS) == DELAYS


def test_a_killed_agent_forgets_neither_restarts_nor_delays(machine: Machine) -> None:
    run(machine, metadata=short(1, 1))
    for delay in DELAYS[:4]:
        assert restarts_after(machine) == delay
    wait(machine, 1 + 30)

    machine.restart()
    machine.settle()

    assert main(machine)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert main(machine)["restartCount"] == 4
    wait(machine, 49)
    assert main(machine)["restartCount"] == 4
    wait(machine, 1)
    assert main(machine)["restartCount"] == 5


def test_ten_minutes_without_a_failure_make_the_delays_short_again(machine: Machine) -> None:
    run(machine, metadata=short(1, 1))
    for delay in DELAYS[:5]:
        assert restarts_after(machine) == delay
    # The next attempt runs for long: its annotation is read when it starts.
    document = machine.pod("p")
    document["metadata"]["annotations"]["manciple.dev/run-seconds"] = "600"
    machine.api.put("pods", document)
    wait(machine, 1 + 160)
    document = machine.pod("p")
    document["metadata"]["annotations"]["manciple.dev/run-seconds"] = "1"
    machine.api.put("pods", document)
    count = main(machine)["restartCount"]

    wait(machine, 600)

    assert main(machine)["restartCount"] == count + 1
    assert [restarts_after(machine) for _ in range(3)] == [10, 20, 40]


def test_a_container_may_fail_for_years(machine: Machine) -> None:
    """The delay's power of two must not overflow."""
    run(machine, metadata=short(0, 1))
    notes = machine.folder / "state" / "containers" / "uid-p.json"
    notes.write_text(notes.read_text().replace('"attempt": ', '"attempt": 9').replace('"streak": ', '"streak": 9999'))
    machine.restart()
    machine.settle()
    wait(machine, 300)
    assert main(machine)["restartCount"] > 90


def test_a_container_in_back_off_says_for_how_long(machine: Machine) -> None:
    run(machine, metadata=short(1, 1))
    for delay in DELAYS[:4]:
        assert restarts_after(machine) == delay
    wait(machine, 1)

    waiting = main(machine)["state"]["waiting"]
    assert waiting["reason"] == "CrashLoopBackOff"
    assert waiting["message"] == "back-off 1m20s restarting failed container=main pod=p_default(uid-p)"
    assert main(machine)["lastState"]["terminated"]["exitCode"] == 1
    (told,) = [event for event in machine.api.all("events") if event["reason"] == "BackOff"]
    assert told["message"] == "Back-off restarting failed container main in pod p_default(uid-p)"
    assert told["count"] == 4  # once for each attempt that had to wait


# Events ---------------------------------------------------------------------------------------------------------------


def test_the_end_of_each_running_container_is_an_event_of_it(machine: Machine) -> None:
    proxy = container("proxy", restartPolicy="Always")
    run(machine, container("main"), spec={"initContainers": [container("prepare"), proxy]})
    machine.api.delete("pods", "p")
    machine.settle()

    told = [(e["type"], e["reason"], e["involvedObject"]["fieldPath"]) for e in machine.api.all("events")]
    assert told == [
        ("Normal", "Killing", "spec.initContainers{proxy}"),
        ("Normal", "Killing", "spec.containers{main}"),
    ]
    assert machine.events("Killing") == ["Stopping container proxy", "Stopping container main"]


START_FAILURES = {
    "ErrImagePull": [("Warning", "Failed"), ("Warning", "Failed")],
    "ImagePullBackOff": [("Normal", "BackOff"), ("Warning", "Failed")],
    "InvalidImageName": [("Warning", "InspectFailed"), ("Warning", "Failed")],
    "ErrImageNeverPull": [("Warning", "ErrImageNeverPull"), ("Warning", "Failed")],
    "CreateContainerConfigError": [("Warning", "Failed")],
}


@pytest.mark.parametrize("reason", START_FAILURES)
def test_a_container_that_does_not_start_has_the_events_of_a_kubelet(machine: Machine, reason: str) -> None:
    machine.api.put("pods", pod("p", metadata={"annotations": {"manciple.dev/start-failure": reason}}))
    machine.look()

    assert main(machine)["state"]["waiting"]["reason"] == reason
    assert [(type_, about) for type_, about, _ in reasons(machine)] == START_FAILURES[reason]
    if reason != "CreateContainerConfigError":
        assert reasons(machine)[-1][2] == f"Error: {reason}"


def test_a_pull_that_waits_is_told_once_and_an_error_each_time(machine: Machine) -> None:
    counts = {}
    for name, reason in {"a": "ImagePullBackOff", "b": "CreateContainerConfigError"}.items():
        machine.api.put("pods", pod(name, metadata={"annotations": {"manciple.dev/start-failure": reason}}))
        for _ in range(5):
            machine.look()
        machine.api.delete("pods", name, grace=0)
        machine.settle()
        about = [event for event in machine.api.all("events") if event["involvedObject"]["name"] == name]
        counts[name] = {event["reason"]: event["count"] for event in about}
    assert counts == {"a": {"BackOff": 1, "Failed": 1}, "b": {"Failed": 5}}


def test_a_pod_that_fails_for_ever_writes_only_so_many_events(machine: Machine) -> None:
    run(machine, container(livenessProbe=GET), metadata=failing("liveness"))
    for _ in range(80):
        wait(machine, 50)

    written = sum(event["count"] for event in machine.api.all("events"))
    assert main(machine)["restartCount"] > 10
    assert written <= 25 + 80 * 50 / 300


# How containers end ---------------------------------------------------------------------------------------------------


def test_an_end_by_the_kernel_is_told_with_its_reason(machine: Machine) -> None:
    ends = short(1, 137)
    ends["annotations"]["manciple.dev/exit-reason"] = "OOMKilled"
    run(machine, metadata=ends, spec={"restartPolicy": "Never"})
    wait(machine, 1)

    ended = main(machine)["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
