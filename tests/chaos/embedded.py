"""The other way to run: everything in one process, on SQLite; the process is killed, frozen and asked to end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos import faults
from tests.chaos.field import Field, furnish
from tests.e2e.api_client import Hands
from tests.e2e.processes import Up
from tests.e2e.production.installation import Installation
from tests.services import free_port

#: What one of the nodes that `manage.py up` simulates has.
TEMPLATES = ("gpu",)
NODES = ("node-1", "node-2")
EVERYTHING = "everything"


@contextmanager
def prepared(home: Path) -> Iterator[Field]:
    """Started, ready and furnished."""
    # The ports stay the same when it is started again.
    ports = ("--api", f"127.0.0.1:{free_port()}", "--web", f"127.0.0.1:{free_port()}", "--no-demo")
    up = Up(home, nodes=len(NODES), extra=ports).start()
    installation = Installation(home, {}, web=up.web, processes={EVERYTHING: up.process})
    try:
        api = Hands(home / "kubeconfig")
        furnish(api, TEMPLATES)
        for node in NODES:
            api.wait_ready("Node", node)
        yield Field(
            installation,
            home,
            victims={EVERYTHING: up.process},
            faults=faults.of_part(EVERYTHING, up.process),
            server=api.server,
            nodes=NODES,
            templates=TEMPLATES,
            files=("cdi/*/*",),
        )
    finally:
        installation.end()
