"""A node for each test, with one agent started on it; every CDI file that a test makes an agent write is checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.cdi import SpecFiles, definitions
from tests.nodeagent.cdi.checks import watch_files
from tests.nodeagent.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    node = Machine(tmp_path)
    node.start()
    return node


@pytest.fixture(autouse=True)
def cdi_files_are_valid(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The strict validator looks at each CDI file when it is written, and no device is defined twice at the end."""
    folders = watch_files(monkeypatch)
    yield
    for folder in folders:
        _, conflicts = definitions([(0, file) for file in SpecFiles(folder).read()])
        assert conflicts == {}
