"""Images are pulled with the pod's own secrets, which no process, log or file shows; failures outlive the agent."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.image_keys import PullKey
from nodeagent.runtimes.podman import program
from nodeagent.runtimes.podman.runtime import VARIABLES
from tests.nodeagent.runtimes.containers import Node
from tests.nodeagent.runtimes.registry import Registry

PASSWORD = "geheim-7261"


@pytest.fixture
def registry(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """podman speaks to it without TLS."""
    registry = Registry(node.rootfs, user="team", password=PASSWORD)
    settings = tmp_path / "registries.conf"
    settings.write_text(f'[[registry]]\nlocation = "{registry.host}"\ninsecure = true\n')
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(settings))
    yield registry
    registry.close()
    node.clean()
    subprocess.run(["podman", "rmi", "--force", "--ignore", registry.image], capture_output=True, check=True)


def keys(registry: Registry, *passwords: str) -> list[PullKey]:
    return [PullKey(registry.host, "team", password) for password in passwords]


def container(registry: Registry, policy: str = "IfNotPresent") -> dict[str, Any]:
    return {"name": "main", "image": registry.image, "imagePullPolicy": policy}


def test_an_image_is_pulled_with_the_key_that_opens_its_registry(
    node: Node, registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commands: list[Any] = []
    run = program.run_bounded

    def recorded(command: Any, **options: Any) -> Any:
        commands.append(command)
        return run(command, **options)

    monkeypatch.setattr(program, "run_bounded", recorded)
    with caplog.at_level(logging.DEBUG):
        node.start(container(registry), keys=lambda: keys(registry, "wrong", PASSWORD))
        node.ended()

    assert node.log() == "from the registry\n"
    assert [one.reason for one in node.happenings] == ["Pulling", "Pulled", "Created", "Started"]
    assert node.told("Pulling") == [f'Pulling image "{registry.image}"']
    assert node.told("Pulled")[0].startswith(f'Successfully pulled image "{registry.image}" in ')
    assert "Image size: " in node.told("Pulled")[0]
    shown = f"{commands} {caplog.text} {node.happenings}"
    assert PASSWORD not in shown
    assert not [file for file in node.config.state_dir.rglob("*") if file.is_file() and PASSWORD in file.read_text()]
    assert not list(VARIABLES.glob(f"*{node.mark}*"))


@pytest.mark.long
def test_an_image_that_is_here_is_pulled_only_where_the_policy_says_so(node: Node, registry: Registry) -> None:
    def key() -> list[PullKey]:
        return keys(registry, PASSWORD)

    node.start(container(registry), keys=key)
    node.ended()
    asked = len(registry.asked)

    node.happenings.clear()
    node.start(container(registry), attempt=1, keys=key)
    assert len(registry.asked) == asked
    assert node.told("Pulled") == [
        f'Container image "{registry.image}" already present on machine and can be accessed by the pod'
    ]
    node.ended()

    node.start(container(registry, "Always"), attempt=2, keys=key)
    assert len(registry.asked) > asked


def test_without_the_right_key_the_pull_fails_and_waits_also_over_a_killed_agent(
    node: Node, registry: Registry
) -> None:
    with pytest.raises(ContainerFailed) as failed:
        node.start(container(registry), keys=lambda: keys(registry, "wrong"))
    assert failed.value.reason == "ErrImagePull"
    assert str(failed.value).startswith(f'Failed to pull image "{registry.image}": ')
    asked = len(registry.asked)

    node.restart()
    with pytest.raises(ContainerFailed) as waiting:
        node.start(container(registry), keys=lambda: keys(registry, PASSWORD))

    assert waiting.value.reason == "ImagePullBackOff"
    assert len(registry.asked) == asked
    until = node.runtime.next_change("uid-p")
    assert until is not None
    note = json.loads((node.config.state_dir / "podman" / "uid-p" / "notes" / "main.json").read_text())
    assert note["backoff"]["wait"] == 10

    # Another image is another matter.
    with pytest.raises(ContainerFailed) as other:
        node.start(container(registry) | {"image": f"{registry.host}/team/app:1@sha256:no"})
    assert other.value.reason == "InvalidImageName"
