"""A production installation on this machine: API process and workers, on the PostgreSQL and Redis given."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from django.conf import settings
from django.core.management import call_command

from cases.checkout import PATIENCE, WORKER
from cases.connection import Connection
from manciple.api import kubeconfig
from tests.e2e.processes import Process, answers, wait_for
from tests.services import free_port

CELERY = (str(Path(sys.executable).parent / "celery"), "-A", "manciple")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Where the processes are reached. `processes` by name: api, worker-1, ..."""

    api: str  # URL, with TLS
    web: str  # URL
    token: str
    authority: Path
    processes: dict[str, Process]

    def connect(self) -> Connection:
        return Connection(self.api, token=self.token, authority=self.authority)


@contextmanager
def installed(*, workers: int) -> Iterator[Installation]:
    """Started when entered: the API is ready and every worker consumes. workers: with 0 the API process works, too."""
    home = Path(settings.HOME)
    api, web = (f"127.0.0.1:{free_port()}" for _ in range(2))
    call_command("bootstrap", "--server", f"https://{api}", verbosity=0, stdout=StringIO())
    commands = {"api": [sys.executable, "manage.py", "serve", "--api", api, "--web", web]}
    if not workers:
        commands["api"].append("--with-worker")
    for number in range(1, workers + 1):
        commands[f"worker-{number}"] = [*CELERY, "worker", *WORKER, "--hostname", f"worker-{number}"]
    processes: dict[str, Process] = {}
    try:
        for name, command in commands.items():
            processes[name] = Process(command, forked=False).start()
        wait_for("the API to be ready", lambda: answers(f"http://{web}/readyz"), timeout=PATIENCE)
        for number in range(1, workers + 1):
            processes[f"worker-{number}"].line(r"ready\.")
        yield Installation(
            api=f"https://{api}",
            web=f"http://{web}",
            token=kubeconfig.read_token((home / "kubeconfig").read_text()) or "",
            authority=home / "ca.crt",
            processes=processes,
        )
    finally:
        for process in processes.values():
            if process.running:
                process.kill()
