"""When the parts of a mirror begin: what follows the copy would take each object of a first copy for news."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from manciple import memory
from manciple.mirror import standing
from manciple.mirror.client import Remote
from manciple.mirror.folders import Folder, Mark
from manciple.mirror.kubeconfig import Access, Cluster, User
from manciple.processes import embedded_worker, mirror_system
from manciple.processes.mirror_entrances import Entrance
from manciple.processes.mirror_system import MirrorSystem
from tests.e2e.processes import wait_for

LINK = "http://127.0.0.1:1/enter?key=k"


class Started:
    """A mirror whose parts only say that they began. looks: how often it was looked whether the cluster is listed."""

    def __init__(self, folder: Path, patched: pytest.MonkeyPatch, *, copied: bool, listed: bool = False) -> None:
        self.log = list[str]()
        self.looks = 0
        mark = Mark(context="lab", server="http://127.0.0.1:1", copied=copied)
        remote = Remote(Access(cluster=Cluster(server=mark.server), user=User()))
        self.system = MirrorSystem(remote, Folder(folder), mark, namespace="", entrance=cast("Entrance", None))
        self.listed = threading.Event()
        if listed:
            self.listed.set()

        @contextmanager
        def worker() -> Iterator[None]:
            self.log.append("worker")
            yield
            self.log.append("worker ends")

        def looked() -> None:
            self.looks += 1

        def warm() -> threading.Thread:
            thread = threading.Thread(target=self.log.append, args=("caches",))
            thread.start()
            return thread

        patched.setattr(embedded_worker, "running", worker)
        patched.setattr(memory, "settle", lambda: None)
        patched.setattr(mirror_system, "warm", warm)
        patched.setattr(standing, "remote", looked)
        patched.setattr(standing, "was_listed", self.listed.is_set)
        patched.setattr(self.system, "_listeners", SimpleNamespace(started=lambda: True))
        patched.setattr(self.system, "_tell", self.log.append)
        patched.setattr(self.system, "_tell_pages", lambda: None)
        patched.setattr(self.system, "_folder", SimpleNamespace(remember=lambda _mark: None))
        self.following = ExitStack()
        self.thread = threading.Thread(target=self.system._bring_up, args=(LINK, self.following), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.system._stopping.set()
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.following.close()


def test_a_first_copy_is_complete_before_anything_follows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(tmp_path, monkeypatch, copied=False)
    wait_for("it looks whether the cluster is listed", lambda: started.looks > 1)
    assert started.log == []
    started.listed.set()
    wait_for("the link is told", lambda: LINK in started.log)
    assert started.log == ["caches", "worker", LINK]  # whoever follows the link finds the caches full
    started.stop()
    assert started.log[-1] == "worker ends"


def test_an_earlier_copy_is_followed_and_shown_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(tmp_path, monkeypatch, copied=True)
    wait_for("the link is told", lambda: LINK in started.log)
    assert not started.listed.is_set()
    started.stop()
    assert set(started.log) == {"worker", "caches", LINK, "worker ends"}


def test_what_another_process_has_copied_is_followed_and_shown_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Started(tmp_path, monkeypatch, copied=False, listed=True)
    wait_for("the link is told", lambda: LINK in started.log)
    assert started.looks == 0
    started.stop()
    assert set(started.log) == {"worker", "caches", LINK, "worker ends"}


def test_a_mirror_that_is_stopped_before_it_was_listed_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Started(tmp_path, monkeypatch, copied=False)
    started.stop()
    assert started.log == []
