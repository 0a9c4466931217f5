"""Containers really get what is made of Secrets and ConfigMaps, and nobody else sees what is confidential."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodeagent.failures import ContainerFailed
from nodeagent.pods.volumes import FileContent, publish_files
from nodeagent.runtimes.podman.runtime import VARIABLES
from nodeagent.runtimes.podman.starting import ConfidentialVariables
from tests.e2e.processes import wait_for
from tests.nodeagent.pods.given_sources import GivenSources
from tests.nodeagent.runtimes.containers import Node

PEM = '-----BEGIN KEY-----\n  it\'s "quoted" $HOME \\n\n-----END KEY-----\n'
SOURCES = GivenSources(
    secrets={"login": {"user": "ada", "password": "hunter2 # no comment", "key": PEM, "empty": ""}},
    config_maps={"colours": {"sky": "blue\ngrey"}},
)
ENV: list[dict[str, Any]] = [
    {"name": "SKY", "valueFrom": {"configMapKeyRef": {"name": "colours", "key": "sky"}}},
    {"name": "URL", "value": "db://$(user):$(password)@host"},
]
FROM: list[dict[str, Any]] = [{"secretRef": {"name": "login"}}]


def stored_secrets(mark: str) -> list[str]:
    """What podman's store holds of the agent's."""
    listed = subprocess.run(["podman", "secret", "ls", "--format", "{{.Name}}"], capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split() if mark in name]


def variable_files(mark: str) -> list[Path]:
    return list(VARIABLES.glob(f"*{mark}*"))


@pytest.mark.long
def test_a_container_gets_every_variable_as_it_stands_in_its_source(node: Node) -> None:
    names = ("user", "password", "key", "empty", "SKY", "URL")
    script = "; ".join(f'printf %s "${name}" | wc -c' for name in names) + '; printf %s "$key"'
    node.start(node.container(script, env=ENV, envFrom=FROM), source=SOURCES)
    node.ended()
    lengths, printed = node.log().split("\n", 6)[:6], node.log().split("\n", 6)[6]
    url = "db://ada:hunter2 # no comment@host"
    expected = ["ada", "hunter2 # no comment", PEM, "", "blue\ngrey", url]
    assert [int(one) for one in lengths] == [len(one) for one in expected]
    assert printed == PEM.rstrip("\n") + "\n"


def test_what_is_confidential_stands_in_no_argument_note_or_file(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    run = subprocess.Popen

    class Watched(run):  # type: ignore[valid-type,misc]
        def __init__(self, command: Any, *args: Any, **options: Any) -> None:
            seen.append(json.dumps([str(word) for word in command]))
            super().__init__(command, *args, **options)

    monkeypatch.setattr(subprocess, "Popen", Watched)
    node.start(node.container("sleep 1000", env=ENV, envFrom=FROM), source=SOURCES)
    assert any('"run"' in one for one in seen)
    written = [
        path.read_bytes().decode(errors="replace") for path in node.config.state_dir.rglob("*") if path.is_file()
    ]
    for text in (*seen, *written):
        assert "hunter2" not in text
        assert "BEGIN KEY" not in text
    assert (stored_secrets(node.mark), variable_files(node.mark)) == ([], [])


@pytest.mark.long
def test_a_start_that_fails_leaves_nothing_confidential_behind(node: Node) -> None:
    with pytest.raises(ContainerFailed):
        node.start(
            {"name": "main", "image": "localhost/no:1", "imagePullPolicy": "Never", "envFrom": FROM}, source=SOURCES
        )
    assert (stored_secrets(node.mark), variable_files(node.mark)) == ([], [])


@pytest.mark.long
def test_what_a_killed_agent_left_is_removed_by_the_next(node: Node) -> None:
    """It was killed while a container was being started."""
    monitor = ConfidentialVariables(node.runtime._podman, VARIABLES, mark=node.mark)
    request = node.request(node.container(envFrom=FROM), source=SOURCES)
    given = monitor.given(request)
    given.__enter__()
    assert (len(stored_secrets(node.mark)), len(variable_files(node.mark))) == (2, 3)
    node.restart()
    assert (stored_secrets(node.mark), variable_files(node.mark)) == ([], [])


VOLUMES = [{"name": "v", "projected": {"sources": []}}]


def mounting(path: str = "/v", **more: Any) -> list[dict[str, Any]]:
    return [{"name": "v", "mountPath": path, **more}]


def test_files_are_in_memory_read_only_and_change_all_at_once_under_a_running_container(node: Node) -> None:
    folder = node.runtime.files_folder("uid-p", "v")
    assert folder is not None
    assert os.path.ismount(folder)
    assert node.runtime.files_folder("uid-p", "v") == folder
    publish_files(folder, {"token": FileContent(b"one", 0o400, 1000), "in/ns": FileContent(b"default", 0o644)})
    script = """
        exec 2>&1
        cat /v/token /v/in/ns; echo
        touch /v/x; stat -L -c '%a %u %n' /v/token
        while test "$(cat /v/token)" = one; do sleep 0.05; done
        cat /v/token; echo; ls /v; exit 3
    """
    made = node.container(script, volumeMounts=mounting(), securityContext={"runAsUser": 1000})
    node.start(made, spec={"volumes": VOLUMES})
    node.prints("400 1000 /v/token")
    publish_files(folder, {"token": FileContent(b"two", 0o400, 1000)})
    assert node.ended().exit_code == 3
    assert node.log().splitlines() == [
        "onedefault",
        "touch: /v/x: Read-only file system",
        "400 1000 /v/token",
        "two",
        "token",
    ]


@pytest.mark.long
def test_a_part_of_a_volume_stays_as_it_was_when_the_container_started(node: Node) -> None:
    folder = node.runtime.files_folder("uid-p", "v")
    assert folder is not None
    publish_files(folder, {"in/ns": FileContent(b"default", 0o644)})
    made = node.container("cat /ns; echo; sleep 1000", volumeMounts=mounting("/ns", subPath="in/ns"))
    node.start(made, spec={"volumes": VOLUMES})
    node.prints("default")


@pytest.mark.long
def test_files_survive_the_agent_and_go_with_the_pod(node: Node) -> None:
    folder = node.runtime.files_folder("uid-p", "v")
    assert folder is not None
    publish_files(folder, {"token": FileContent(b"one", 0o444)})
    assert oct(folder.parent.parent.stat().st_mode & 0o777) == "0o700"
    node.restart()
    assert node.runtime.pod_uids() == {"uid-p"}
    assert (folder / "token").read_text() == "one"
    node.runtime.remove("uid-p")
    wait_for("the pod's folder to go", lambda: not folder.parent.parent.exists())
    assert str(folder) not in Path("/proc/mounts").read_text()
