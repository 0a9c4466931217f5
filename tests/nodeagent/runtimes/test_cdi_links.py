"""podman finds the CDI files of an agent's own directory, whoever wrote them and in whichever of the two forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.runtimes.podman.starting import CdiLinks


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
