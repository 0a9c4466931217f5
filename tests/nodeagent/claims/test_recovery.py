"""What a node does after its memory was damaged: CDI files and checkpoint emptied, cut off or lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from claims.kinds.pods import Pod
from manciple.wire import codec
from nodeagent.drivers.simulated import SimulatedDriver
from nodeagent.runtimes.protocol import ContainerRequest
from nodeagent.work import PodCache
from tests.nodeagent.cdi.checks import problems_of
from tests.nodeagent.machine import Machine, release, run_pod
from tests.nodeagent.objects import NODE, claim, pod


def test_a_cdi_directory_emptied_by_a_reboot_is_rebuilt(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()
    before = machine.cdi_files()
    for path in machine.cdi_dir.iterdir():
        path.unlink()

    machine.restart()
    machine.settle()

    assert machine.cdi_files() == before
    machine.check_invariants()


def test_a_pod_that_was_not_listed_yet_is_not_taken_for_gone(machine: Machine) -> None:
    """A driver behind a socket may come before the first list of pods; everything is looked at then."""
    run_pod(machine)
    machine.settle()
    before, files = machine.agent.runtime.runs(machine.pod("p")["metadata"]["uid"]), machine.cdi_files()

    machine.restart()
    for key in machine.agent.everything():
        machine.agent.work(key)

    assert machine.agent.runtime.runs(machine.pod("p")["metadata"]["uid"]) == before
    assert machine.cdi_files() == files
    machine.settle()
    machine.check_invariants()


def test_a_cdi_file_that_was_cut_off_is_written_again(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()
    (path,) = machine.cdi_dir.iterdir()
    before = path.read_text()
    path.write_text(before[:20])

    machine.settle()

    assert path.read_text() == before


@pytest.mark.parametrize("what", ["damaged", "lost"])
def test_a_claim_whose_record_is_gone_is_taken_up_again(machine: Machine, what: str) -> None:
    run_pod(machine)
    machine.settle()
    record = machine.folder / "state" / "claims" / "claim-of-p.json"
    if what == "lost":
        record.unlink()
    else:
        record.write_text("{")

    machine.restart()
    machine.settle()

    assert machine.condition("p", "Ready") == "True"
    assert machine.driver.count("unprepare") == 0, "its container runs with the device"
    machine.check_invariants()


@pytest.mark.parametrize("what", ["damaged", "lost"])
def test_a_claim_whose_record_and_pod_are_gone_is_given_back(machine: Machine, what: str) -> None:
    run_pod(machine)
    machine.settle()
    record = machine.folder / "state" / "claims" / "claim-of-p.json"
    if what == "lost":
        record.unlink()
    else:
        record.write_text("{")
    machine.api.delete("pods", "p", grace=0)
    release(machine)

    machine.restart()
    machine.settle()

    assert machine.driver.held == set()
    machine.check_invariants()


def test_files_of_others_in_the_cdi_directory_are_left_alone(machine: Machine) -> None:
    machine.cdi_dir.mkdir(parents=True, exist_ok=True)
    theirs = machine.cdi_dir / "nvidia.json"
    theirs.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": []}))

    machine.restart()
    machine.settle()

    assert theirs.exists()
    assert machine.agent.preparer.records() == ()


def test_the_cdi_document_is_what_a_runtime_expects(machine: Machine) -> None:
    machine.api.put("resourceclaims", claim("c", "gpu-0", pods=("uid-p",), uid="0b1c"))
    machine.api.put("pods", pod("p", claims={"g": "c"}))

    machine.settle()

    (name, document), *_ = machine.cdi_files().items()
    assert name == "k8s.gpu.example.com-claim_0b1c.json"
    assert document["cdiVersion"] == "0.5.0", "the name starts with a digit"
    assert document["kind"] == "k8s.gpu.example.com/claim"
    assert [d["name"] for d in document["devices"]] == ["0b1c-gpu-0"]
    assert set(document) == {"cdiVersion", "kind", "devices"}


def _remove_all(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def _rename_device(path: Path) -> None:
    path.write_text(path.read_text().replace("claim-c-gpu-1", "claim-c-gpu-7"))


LOSSES: dict[str, Callable[[Path], object]] = {
    "the directory is gone": shutil.rmtree,
    "all files are gone": _remove_all,
    "one of two files is gone": lambda folder: min(folder.iterdir()).unlink(),
    "the other of two files is gone": lambda folder: max(folder.iterdir()).unlink(),
    "both files are empty": lambda folder: [path.write_bytes(b"") for path in folder.iterdir()],
    "one file is full of zeros": lambda folder: min(folder.iterdir()).write_bytes(b"\0" * 300),
    "one file is an older one of the claim": lambda folder: _rename_device(min(folder.iterdir())),
    "one file is the other": lambda folder: shutil.copy(min(folder.iterdir()), max(folder.iterdir())),
}


@pytest.mark.parametrize("running", [False, True], ids=["after a reboot", "while the agent runs"])
@pytest.mark.parametrize("loss", LOSSES)
def test_whatever_was_lost_of_the_cdi_directory_is_rebuilt(tmp_path: Path, loss: str, running: bool) -> None:
    """One claim with devices of two drivers, used by two pods."""
    machine = Machine(tmp_path, drivers=[SimulatedDriver(NODE), SimulatedDriver(NODE, name="fpga.example.com")])
    machine.start()
    document = claim("c", "gpu-0", "gpu-1", pods=("uid-p", "uid-q"))
    document["status"]["allocation"]["devices"]["results"][1]["driver"] = "fpga.example.com"
    machine.api.put("resourceclaims", document)
    for name in ("p", "q"):
        machine.api.put("pods", pod(name, claims={"g": "c"}))
    machine.settle()
    before = machine.cdi_files()
    assert len(before) == 2

    LOSSES[loss](machine.cdi_dir)
    if not running:
        machine.restart()
    machine.settle()

    assert machine.cdi_files() == before
    assert [problem for path in machine.cdi_dir.iterdir() for problem in problems_of(path)] == []


@pytest.mark.parametrize("place", ["damaged", "a directory"])
def test_a_damaged_record_is_told_by_an_event_and_the_others_go_on(machine: Machine, place: str) -> None:
    run_pod(machine)
    run_pod(machine, "other", "gpu-1")
    machine.settle()
    record = machine.folder / "state" / "claims" / "claim-of-p.json"
    record.unlink()
    if place == "damaged":
        record.write_bytes(b"\x00\xff{")
    else:
        record.mkdir()

    machine.restart()
    machine.settle()

    (told,) = machine.events("CheckpointQuarantined")
    assert "quarantine/claim-of-p.json.0" in told
    assert len(machine.agent.preparer.quarantined) == 1
    assert machine.condition("other", "Ready") == "True"
    machine.check_invariants()


def test_after_a_reboot_claims_are_prepared_again_before_their_containers_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no CDI file is missing: what a driver did to a device is gone."""
    run_pod(machine)
    machine.settle()
    shutil.rmtree(machine.folder / "state" / "containers")
    held_at_start: list[bool] = []
    machine.driver.held.clear()
    machine.boot = "boot-2"

    machine.restart()
    runtime = machine.agent.runtime
    start = runtime.start

    def watched(request: ContainerRequest, *keys: Any) -> None:
        held_at_start.append(bool(machine.driver.held))
        start(request, *keys)

    monkeypatch.setattr(runtime, "start", watched)
    machine.settle()

    assert held_at_start == [True]
    assert machine.driver.count("prepare") == 2
    machine.check_invariants()


def test_without_a_reboot_a_restart_asks_no_driver(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()

    machine.restart()
    machine.settle()

    assert machine.driver.calls == [("prepare", ("of-p",))]


def test_a_checkpoint_of_another_node_is_given_back(machine: Machine) -> None:
    """Its pods are not bound to this one."""
    run_pod(machine)
    machine.settle()
    machine.api.delete("pods", "p", grace=0)
    machine.api.put("pods", pod("p", claims={"gpus": "of-p"}, spec={"nodeName": "beta"}))
    machine.boot = "of another machine"

    machine.restart()
    machine.settle()

    assert machine.driver.held == set()
    assert machine.agent.preparer.records() == ()
    assert machine.cdi_files() == {}


def test_nothing_is_undone_under_a_running_container_though_preparing_again_fails(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()
    (path,) = machine.cdi_dir.iterdir()
    path.unlink()
    machine.driver.fail("prepare", times=1, reason="device busy")

    machine.look()
    assert machine.driver.count("unprepare") == 0
    machine.settle()

    assert machine.driver.violations == []
    machine.check_invariants()


def test_a_claim_allocated_anew_waits_until_its_earlier_pod_has_stopped(machine: Machine) -> None:
    """Its pod was force-deleted, the claim freed and allocated again; the new pod must not get the old device."""
    run_pod(machine)
    machine.settle()
    machine.driver.fail("unprepare", times=1, reason="slow")
    machine.api.delete("pods", "p", grace=0)
    machine.api.put("resourceclaims", claim("of-p", "gpu-5", pods=("uid-q",)))
    machine.api.put("pods", pod("q", claims={"gpus": "of-p"}))

    machine.look()
    (told,) = machine.events("FailedPrepareDynamicResources")
    assert "is still prepared on this node as it was allocated before, for the pods with the uids uid-p" in told
    machine.settle()

    assert machine.environment("q")["GPU_DEVICE_5"] == "gpu-5"
    machine.check_invariants()


def test_two_claims_of_one_pod_on_the_same_device_are_refused(machine: Machine) -> None:
    machine.api.put("resourceclaims", claim("a", "gpu-0", pods=("uid-p",)))
    machine.api.put("resourceclaims", claim("b", "gpu-0", pods=("uid-p",)))
    machine.api.put("pods", pod("p", claims={"a": "a", "b": "b"}))

    machine.look()

    assert machine.driver.held == set()
    assert "device gpu.example.com/alpha/gpu-0 " in machine.events("FailedPrepareDynamicResources")[0]


def test_a_pod_that_is_held_by_a_driver_says_which_and_what_to_do(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()
    machine.driver.fail("unprepare", times=1000, reason="still in use")

    machine.api.delete("pods", "p")
    machine.look()
    machine.look()

    (event,) = [e for e in machine.api.all("events") if e["reason"] == "FailedUnprepareDynamicResources"]
    assert event["involvedObject"]["name"] == "p"
    assert event["count"] == 2, "each time that it is tried"
    assert "ResourceClaim default/of-p: driver gpu.example.com: still in use" in event["message"]
    assert "Fix what is named here" in event["message"]


def test_devices_held_for_a_pod_that_is_gone_are_told_on_the_node(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()
    machine.driver.fail("unprepare", times=1, reason="still in use")

    machine.api.delete("pods", "p", grace=0)
    machine.look()

    (event,) = [e for e in machine.api.all("events") if e["reason"] == "FailedUnprepareDynamicResources"]
    assert event["involvedObject"]["kind"] == "Node"
    assert "the deleted pod with uid uid-p" in event["message"]


def test_our_own_write_does_not_bring_back_a_pod_that_the_watch_saw_go() -> None:
    cache, shown = PodCache(), codec.decode_text(Pod, json.dumps(pod("p")).encode())
    cache.see(shown)
    cache.remove("uid-p")

    cache.put(shown)

    assert cache.uids() == frozenset()
