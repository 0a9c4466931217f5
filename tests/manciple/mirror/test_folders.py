"""Each way into a cluster has a folder of its own, for its owner alone, used by one process at a time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from manciple.mirror import folders
from manciple.mirror.folders import Folder, Running
from manciple.mirror.kubeconfig import Access, Choice, Cluster, User
from manciple.processes import command_line
from manciple.refusals import StartRefused

SERVER = "https://10.0.0.1:6443"


def access(context: str) -> Access:
    return Access(cluster=Cluster(server=SERVER), user=User(), context=context)


def running(context: str) -> Running:
    return Running(context=context, url=f"http://{context}", link=f"http://{context}/enter?key=secret")


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_a_user_without_a_home_as_in_a_container_has_one_at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    assert folders.root() == Path("/.local/share/manciple/mirror")
    assert command_line.help_text()


@pytest.mark.parametrize(
    "context", ["prod", "arn:aws:eks:eu-west-1:123:cluster/prod", "..", ".", "a/../../b", "ünï", "-", "x" * 300]
)
def test_a_context_of_any_name_has_a_folder_of_its_own_below_the_others(context: str) -> None:
    place = folders.default(access(context), Choice())
    assert place.parent == folders.root()
    assert place.name not in ("", ".", "..")
    place.mkdir(parents=True)  # file systems take it


def test_who_comes_by_another_way_has_another_folder() -> None:
    choices = [Choice(), Choice(user="bob"), Choice(acting_as="bob"), Choice(cluster="bob"), Choice(acting_as="eve")]
    places = [folders.default(access("prod"), choice) for choice in choices]
    places += [folders.default(access(name), Choice()) for name in ("test", "x" * 300, "x" * 301)]
    assert len(set(places)) == len(places)


def test_without_a_context_the_server_names_it() -> None:
    assert folders.default(access(""), Choice()).name == "10.0.0.1:6443"


def test_nobody_else_may_look_into_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "m")
    folder.path.mkdir(mode=0o755)
    with folder.taken("prod", SERVER):
        folder.announce(running("prod"))
        assert folder.path.stat().st_mode & 0o777 == 0o700
        assert all(path.stat().st_mode & 0o077 == 0 for path in folder.path.iterdir())


def test_a_second_process_is_told_where_the_first_one_is_served(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "m")
    with folder.taken("prod", SERVER):
        folder.announce(running("prod"))
        with pytest.raises(StartRefused, match=r"runs already at http://prod"), folder.taken("prod", SERVER):
            pass
        assert folder.is_taken(), "the one that was refused let go of nothing"
    with folder.taken("prod", SERVER):
        pass


def test_the_folder_of_an_installation_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "manciple.sqlite3").touch()
    with pytest.raises(StartRefused, match="holds an installation"), Folder(tmp_path).taken("prod", SERVER):
        pass


def test_the_mirror_of_another_cluster_is_left_alone(tmp_path: Path) -> None:
    with Folder(tmp_path).taken("prod", SERVER):
        pass
    with pytest.raises(StartRefused, match="the mirror of prod"), Folder(tmp_path).taken("test", SERVER):
        pass
    assert folders.context_of(tmp_path) == "prod"


@pytest.mark.parametrize("command", ["up", "serve", "demo"])
def test_no_other_system_runs_on_the_folder_of_a_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("MANCIPLE_HOME", str(tmp_path))
    with Folder(tmp_path).taken("prod", SERVER):
        pass
    with pytest.raises(StartRefused, match="the mirror of prod"):
        command_line._prepare_for(command)


def test_that_the_cluster_was_read_the_next_start_knows(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with folder.taken("prod", SERVER) as mark:
        assert not mark.copied
        folder.remember(replace(mark, copied=True))
    with folder.taken("prod", "https://10.0.0.2:6443") as mark:
        assert mark.copied
        assert mark.server == "https://10.0.0.2:6443"


def test_mirrors_see_each_other_while_they_run() -> None:
    prod, test = Folder(folders.root() / "prod"), Folder(folders.root() / "test")
    with prod.taken("prod", SERVER):
        prod.announce(running("prod"))
        assert folders.running_beside(prod.path) == {}
        with test.taken("test", SERVER):
            test.announce(running("test"))
            assert folders.running_beside(prod.path) == {"test": running("test")}
            assert folders.running_beside(test.path) == {"prod": running("prod")}
        assert folders.running_beside(prod.path) == {}


def test_one_that_was_killed_is_seen_by_nobody() -> None:
    prod, test = Folder(folders.root() / "prod"), Folder(folders.root() / "test")
    test.path.mkdir(parents=True)
    (test.path / "lock").touch()
    test.announce(running("test"))
    with prod.taken("prod", SERVER):
        assert folders.running_beside(prod.path) == {}


@pytest.mark.parametrize("content", ["", "[]", "{}", "no JSON", json.dumps({"context": "x"})])
def test_a_file_that_says_nothing_is_passed_over(content: str) -> None:
    prod, test = Folder(folders.root() / "prod"), Folder(folders.root() / "test")
    with prod.taken("prod", SERVER), test.taken("test", SERVER):
        (test.path / "running.json").write_text(content)
        assert folders.running_beside(prod.path) == {}
