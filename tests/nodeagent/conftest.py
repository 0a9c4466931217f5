"""A node for each test, with one agent started on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nodeagent.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    node = Machine(tmp_path)
    node.start()
    return node
