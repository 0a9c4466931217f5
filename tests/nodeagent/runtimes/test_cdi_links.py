"""podman finds the CDI files of an agent's own directory, whoever wrote them and in whichever of the two forms."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cdi import validate_spec
from nodeagent.runtimes.podman.program import PodmanFailed
from nodeagent.runtimes.podman.starting import CdiLinks, lacks_device


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (folder := tmp_path / "agent").mkdir()
    return folder


@pytest.fixture
def searched(tmp_path: Path) -> Path:
    return tmp_path / "searched"


def links(folder: Path, searched: Path) -> CdiLinks:
    return CdiLinks(folder, mark="m", searched=(searched,))


@pytest.mark.parametrize("name", ["k8s.a-claim_1.json", "k8s.gpu.example.com-gpu_1.yaml"])
def test_a_file_is_linked_while_it_is_there(folder: Path, searched: Path, name: str) -> None:
    """Drivers on the CDI library in Go write YAML unless told otherwise."""
    (folder / name).write_text("cdiVersion: 0.3.0")
    links(folder, searched).update()
    assert (searched / f"manciple-m-{name}").resolve() == folder / name

    (folder / name).unlink()
    links(folder, searched).update()
    assert list(searched.iterdir()) == []


@pytest.mark.parametrize("name", [".k8s.a-claim_1.json.tmp", ".hidden.yaml", "spec.1.tmp", "notes.txt"])
def test_what_is_no_cdi_file_is_not_linked(folder: Path, searched: Path, name: str) -> None:
    (folder / name).write_text("")
    links(folder, searched).update()
    assert list(searched.iterdir()) == []


def test_links_of_others_are_left_alone(folder: Path, searched: Path) -> None:
    searched.mkdir()
    (searched / "nvidia.yaml").write_text("")
    links(folder, searched).update()
    assert [path.name for path in searched.iterdir()] == ["nvidia.yaml"]


def test_where_podman_looks_anyway_nothing_is_linked(searched: Path) -> None:
    searched.mkdir()
    (searched / "k8s.a-claim_1.json").write_text("")
    links(searched, searched).update()
    assert [path.name for path in searched.iterdir()] == ["k8s.a-claim_1.json"]


# Files of a newer version than podman knows ---------------------------------------------------------------------------


def spec(version: str, /, **edits: Any) -> str:
    device = {"name": "gpu-0", "containerEdits": {"env": ["GPU=0"], **edits}}
    return json.dumps({"cdiVersion": version, "kind": "example.com/gpu", "devices": [device]})


DEVICE = "example.com/gpu=gpu-0"


@pytest.mark.parametrize("place", ["own", "searched"])
def test_a_file_is_copied_with_the_version_that_it_needs(folder: Path, searched: Path, place: str) -> None:
    searched.mkdir()
    original = {"own": folder, "searched": searched}[place] / "vendor.json"
    original.write_text(spec("1.0.0"))
    assert links(folder, searched).lower(["other.com/x=y", DEVICE])
    copy = json.loads((searched / "manciple-lowered-vendor.json").read_text())
    assert copy == json.loads(spec("0.3.0"))
    assert validate_spec(copy) == []
    links(folder, searched).update()
    assert (searched / "manciple-lowered-vendor.json").exists()
    original.unlink()
    links(folder, searched).update()
    assert list(searched.iterdir()) == []


def test_a_copy_of_what_was_written_since_goes(folder: Path, searched: Path) -> None:
    searched.mkdir()
    original, copy = searched / "vendor.json", searched / "manciple-lowered-vendor.json"
    original.write_text(spec("1.0.0"))
    assert links(folder, searched).lower([DEVICE])
    original.write_text(spec("1.0.0", env=["GPU=1"]))
    later = copy.stat().st_mtime_ns + 1
    os.utime(original, ns=(later, later))
    links(folder, searched).update()
    assert not copy.exists()
    assert links(folder, searched).lower([DEVICE])
    assert "GPU=1" in copy.read_text()
    links(folder, searched).update()
    assert "GPU=1" in copy.read_text()


def test_a_file_that_needs_its_version_is_left_alone_and_named(folder: Path, searched: Path) -> None:
    searched.mkdir()
    needs = {"netDevices": [{"hostInterfaceName": "eth1", "name": "net1"}]}
    (searched / "vendor.json").write_text(spec("1.1.0", **needs))
    assert not links(folder, searched).lower([DEVICE])
    why = links(folder, searched).explanation([DEVICE])
    assert "vendor.json needs CDI 1.1.0, which this podman does not know" in why
    assert links(folder, searched).explanation(["other.com/x=y"]) == ""


def test_a_file_that_is_newer_than_the_agent_is_copied_where_nothing_else_of_it_is(
    folder: Path, searched: Path
) -> None:
    searched.mkdir()
    (searched / "future.json").write_text(spec("9.9.9"))
    (searched / "unknown.json").write_text(spec("9.9.9", teleports=[]).replace("gpu-0", "gpu-1"))
    (searched / "list.json").write_text("[]")
    (searched / "odd.json").write_text('{"cdiVersion": ["1"], "devices": {"name": "gpu-0"}}')
    assert links(folder, searched).lower([DEVICE])
    copy = json.loads((searched / "manciple-lowered-future.json").read_text())
    assert copy == json.loads(spec("0.3.0"))
    other = DEVICE.replace("gpu-0", "gpu-1")
    assert not links(folder, searched).lower([other])
    why = links(folder, searched).explanation([other])
    assert "unknown.json cannot be read: cdiVersion" in why


def test_a_copy_that_did_not_help_goes(folder: Path, searched: Path) -> None:
    """podman may have become newer, and know the device twice."""
    searched.mkdir()
    (searched / "vendor.json").write_text(spec("0.6.0"))
    assert links(folder, searched).lower([DEVICE])
    assert links(folder, searched).lower([DEVICE])
    assert [path.name for path in searched.iterdir()] == ["vendor.json"]


def test_files_of_other_devices_are_not_copied(folder: Path, searched: Path) -> None:
    searched.mkdir()
    (searched / "vendor.json").write_text(spec("1.0.0"))
    (searched / "broken.json").write_text("{")
    assert not links(folder, searched).lower(["example.com/gpu=gpu-1"])


def test_podman_says_when_it_lacks_a_device() -> None:
    output = "Error: setting up CDI devices: unresolvable CDI devices example.com/gpu=gpu-0"
    assert lacks_device(PodmanFailed(output, status=125, output=output))
    assert not lacks_device(PodmanFailed("no such image", status=125, output="no such image"))
