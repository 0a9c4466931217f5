"""The sub path of a volume stays in the volume, whatever links a container put there, and whenever it did."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman.folder import PodFolder, open_below, volume_options
from nodeagent.runtimes.podman.kernel import unmount
from nodeagent.runtimes.protocol import ContainerRequest, MountRequest
from nodeagent.storage import Disk
from tests.nodeagent.runtimes.containers import Node, bare_request, needs_podman


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What belongs to the node and no pod may touch."""
    folder = tmp_path / "outside"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[PodFolder]:
    pod = PodFolder(tmp_path / "pod", Disk())
    pod.volume("scratch").mkdir(parents=True)
    pod.volume("scratch").chmod(0o777)
    yield pod
    pod.remove()


def options(folder: PodFolder, sub_path: str) -> list[str]:
    mount = MountRequest(volume="scratch", kind="emptyDir", target="/data", sub_path=sub_path)
    return list(volume_options(folder, request(mount)))


def request(*mounts: MountRequest) -> ContainerRequest:
    return bare_request(mounts=mounts)


LINKS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "a link to the outside": (lambda volume, outside: (volume / "link").symlink_to(outside), "link"),
    "a directory to be made behind a link": (lambda volume, outside: (volume / "link").symlink_to(outside), "link/a/b"),
    "a link to what does not exist yet": (lambda volume, outside: (volume / "link").symlink_to(outside / "a"), "link"),
    "a relative link": (lambda volume, outside: (volume / "link").symlink_to("../../../outside"), "link/a"),
    "links that lead back to each other": (lambda volume, _: (volume / "link").symlink_to("link"), "link/a"),
    "an upward part": (lambda _volume, _outside: None, "../../../outside/a"),
    "an absolute path": (lambda _volume, _outside: None, "/etc"),
}


@pytest.mark.parametrize(("prepare", "sub_path"), LINKS.values(), ids=LINKS.keys())
def test_nothing_is_made_or_mounted_outside_the_volume(
    folder: PodFolder, outside: Path, prepare: Callable[[Path, Path], None], sub_path: str
) -> None:
    prepare(folder.volume("scratch"), outside)

    with pytest.raises(ContainerFailed, match="volume scratch: subPath"):
        options(folder, sub_path)

    assert list(outside.iterdir()) == []
    assert not list(folder.path.glob("subpaths/*/*/*"))


def test_a_link_inside_the_volume_may_be_followed(folder: PodFolder) -> None:
    volume = folder.volume("scratch")
    (volume / "real").mkdir()
    (volume / "link").symlink_to("real")

    os.close(open_below(volume, "link/made"))

    assert (volume / "real" / "made").is_dir()


def test_what_is_made_has_the_permissions_of_the_volume(folder: PodFolder) -> None:
    os.close(open_below(folder.volume("scratch"), "deep/er"))

    for made in ("deep", "deep/er"):
        assert stat.S_IMODE((folder.volume("scratch") / made).stat().st_mode) == 0o777


@pytest.mark.parametrize("sub_path", ["there/made", "there"])
def test_a_directory_that_becomes_a_link_while_it_is_opened_is_refused(
    folder: PodFolder, outside: Path, monkeypatch: pytest.MonkeyPatch, sub_path: str
) -> None:
    """A container that shares the volume swaps the directory between the look at the path and its use."""
    there = folder.volume("scratch") / "there"
    there.mkdir()
    resolve = Path.resolve

    def resolve_and_lose_the_race(path: Path, *, strict: bool = False) -> Path:
        found = resolve(path, strict=strict)
        if there.is_dir() and not there.is_symlink() and path != folder.volume("scratch"):
            there.rmdir()
            there.symlink_to(outside)
        return found

    monkeypatch.setattr(Path, "resolve", resolve_and_lose_the_race)
    with pytest.raises(ContainerFailed, match="volume scratch: subPath"):
        options(folder, sub_path)

    assert there.is_symlink(), "the race took place"
    assert list(outside.iterdir()) == []


def test_a_directory_that_becomes_a_link_while_it_is_made_is_refused(
    folder: PodFolder, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, mkdir = folder.volume("scratch"), os.mkdir

    def mkdir_and_lose_the_race(name: str, *arguments: Any, **named: Any) -> None:
        mkdir(name, *arguments, **named)
        (volume / "new").rmdir()
        (volume / "new").symlink_to(outside)

    monkeypatch.setattr(os, "mkdir", mkdir_and_lose_the_race)
    with pytest.raises(OSError, match="subPath"):
        open_below(volume, "new/made")

    assert list(outside.iterdir()) == []


def test_podman_is_given_what_was_opened_and_not_what_is_at_the_path_later(folder: PodFolder, outside: Path) -> None:
    needs_podman()
    volume = folder.volume("scratch")
    _, source = options(folder, "there")
    (volume / "there").rename(volume / "elsewhere")
    (volume / "there").symlink_to(outside)

    (Path(source.partition(":")[0]) / "file").write_text("x")

    assert (volume / "elsewhere" / "file").exists()
    assert list(outside.iterdir()) == []


def test_a_file_can_be_a_sub_path(folder: PodFolder) -> None:
    needs_podman()
    (folder.volume("scratch") / "settings").write_text("a = 1")

    _, source = options(folder, "settings")

    assert Path(source.partition(":")[0]).read_text() == "a = 1"


def test_another_attempt_at_the_container_finds_what_is_there_now(folder: PodFolder) -> None:
    needs_podman()
    volume = folder.volume("scratch")
    options(folder, "there")
    (volume / "there").rename(volume / "elsewhere")

    _, source = options(folder, "there")

    assert Path(source.partition(":")[0]).stat().st_ino == (volume / "there").stat().st_ino


def test_the_nodes_files_outlive_the_pod_that_mounted_them(folder: PodFolder, outside: Path) -> None:
    needs_podman()
    (outside / "data").mkdir()
    (outside / "data" / "file").write_text("x")
    mount = MountRequest(volume="host", kind="hostPath", target="/d", path=str(outside), sub_path="data")
    list(volume_options(folder, request(mount)))

    folder.remove()

    assert not folder.path.exists()
    assert (outside / "data" / "file").read_text() == "x"


def test_a_sub_path_that_cannot_be_unmounted_keeps_the_pods_folder(
    folder: PodFolder, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing the folder through a mount would remove the node's files."""
    needs_podman()
    (outside / "data").mkdir()
    (outside / "data" / "file").write_text("x")
    mount = MountRequest(volume="host", kind="hostPath", target="/d", path=str(outside), sub_path="data")
    list(volume_options(folder, request(mount)))

    def refuse(_target: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("nodeagent.runtimes.podman.folder.unmount", refuse)
        with pytest.raises(ContainerFailed, match="cannot be removed"):
            folder.remove()

    assert (outside / "data" / "file").read_text() == "x"


def test_a_container_finds_its_sub_path_again_after_a_restart_of_the_agent(node: Node) -> None:
    mounts: dict[str, Any] = {"volumeMounts": [{"name": "scratch", "mountPath": "/data", "subPath": "a/b"}]}
    spec = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
    node.start(node.container("echo first > /data/f", **mounts), spec=spec)
    node.ended()
    node.restart()

    node.start(node.container("cat /data/f", **mounts), spec=spec, attempt=1)
    node.ended()

    assert node.log() == "first\n"


def test_unmounting_what_is_not_mounted_is_an_error(tmp_path: Path) -> None:
    needs_podman()
    with pytest.raises(OSError, match="Invalid argument"):
        unmount(tmp_path)
