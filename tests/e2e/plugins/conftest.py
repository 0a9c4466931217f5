"""Fixtures of the plugin scenarios: one system for all of them, a scene for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.plugins.cluster import System, start_system
from tests.e2e.plugins.scene import Scene


@pytest.fixture(scope="package")
def plugin_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """API, scheduler and an agent without drivers of its own."""
    system = start_system(tmp_path_factory.mktemp("s"))
    yield system
    if system.agent.process.running:
        system.agent.stop()
    assert system.up.process.stop() == 0


@pytest.fixture(scope="package")
def drivers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests: the compiled messages are kept in it."""
    return tmp_path_factory.mktemp("d")


@pytest.fixture
def scene(plugin_system: System, drivers_folder: Path) -> Iterator[Scene]:
    """What one test plays with; nothing of it is left afterwards."""
    scene = Scene(plugin_system, drivers_folder)
    yield scene
    scene.end()
