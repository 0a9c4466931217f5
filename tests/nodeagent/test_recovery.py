"""What a node does after its memory was damaged: CDI files and checkpoint emptied, cut off or lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.drivers.simulated import SimulatedDriver
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


LOSSES: dict[str, Callable[[Path], object]] = {
    "the directory is gone": shutil.rmtree,
    "all files are gone": lambda folder: [path.unlink() for path in folder.iterdir()],
    "one of two files is gone": lambda folder: min(folder.iterdir()).unlink(),
    "the other of two files is gone": lambda folder: max(folder.iterdir()).unlink(),
    "both files are empty": lambda folder: [path.write_bytes(b"") for path in folder.iterdir()],
    "one file is full of zeros": lambda folder: min(folder.iterdir()).write_bytes(b"\0" * 300),
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
