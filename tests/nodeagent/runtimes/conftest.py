"""A node with real containers, of which nothing is left after the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodeagent.runtimes.containers import Node, needs_podman


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    needs_podman()
    node = Node(tmp_path)
    yield node
    node.clean()
