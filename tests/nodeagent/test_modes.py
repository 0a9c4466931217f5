"""Containers, runtimes and drivers can read what is theirs, whatever the umask of the agent."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.runtimes.podman.folder import PodFolder, _host_path
from nodeagent.runtimes.podman.program import run_bounded
from nodeagent.runtimes.protocol import MountRequest
from nodeagent.storage import Disk, make_public
from tests.nodeagent.runtimes.containers import bare_request


@pytest.fixture(autouse=True)
def _our_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_container_reads_its_hosts_file_as_any_user(tmp_path: Path) -> None:
    folder = PodFolder(tmp_path / "pod", Disk())
    folder.make(bare_request())
    assert mode(folder.hosts_file) == 0o644


PATHS = {"DirectoryOrCreate": 0o755, "": 0o755, "FileOrCreate": 0o644}


@pytest.mark.parametrize("host_type", PATHS)
def test_a_path_of_the_node_has_the_modes_that_kubernetes_gives(tmp_path: Path, host_type: str) -> None:
    above = tmp_path if host_type == "FileOrCreate" else tmp_path / "above"
    path = above / "made"
    _host_path(MountRequest(volume="v", kind="hostPath", target="/t", path=str(path), host_type=host_type))
    assert mode(path) == PATHS[host_type]
    if above != tmp_path:
        assert mode(above) == 0o755


def test_folders_that_were_there_keep_their_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    make_public(tmp_path / "a" / "b")
    assert (mode(tmp_path), mode(tmp_path / "a" / "b")) == (0o700, 0o755)


def test_podman_makes_files_as_if_it_were_started_by_a_person(tmp_path: Path) -> None:
    run_bounded([sys.executable, "-c", f"open({str(tmp_path / 'f')!r}, 'w')"], timeout=10, keep=100)
    assert mode(tmp_path / "f") == 0o644
