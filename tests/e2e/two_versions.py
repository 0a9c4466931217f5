"""An installation whose parts are of two versions, each replaced by that of the other as an operator does it."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg

from tests.chaos.field import furnish
from tests.chaos.links import Link
from tests.e2e.api_client import Hands
from tests.e2e.processes import Process, wait_for
from tests.e2e.production.installation import Installation, environment, exec_start, new_database
from tests.services import Server, free_port

NODE, TEMPLATE = "node-1", "gpu"
APIS = ("api-1", "api-2")
WORKER, BEAT = "worker", "beat"


@dataclass
class Door:
    """A way to the API. web: HOST:PORT of the pages of a process. changing: the process behind it is being replaced, so
    connections may break."""

    address: str
    web: str = ""
    changing: bool = False

    @property
    def server(self) -> str:
        return f"https://{self.address}"


@dataclass
class Mixed:
    """An API behind a balancer (two processes), a worker and the agent of a node, each of some version; and beat, which
    only the earlier version has.
    """

    installation: Installation
    doors: dict[str, Door]
    balancer: Door
    #: by which the administrator sets a password
    first_link: str = ""
    _workers: Iterator[int] = field(default_factory=partial(itertools.count, 1))

    @property
    def kubeconfig(self) -> Path:
        return self.installation.home / "kubeconfig"

    def begin(self, name: str, version: Path) -> None:
        """version: its tree. An API process answers when this returns."""
        made = self.installation
        if name in self.doors:
            door = self.doors[name]
            made.serve(name, int(door.address.rpartition(":")[2]), web=door.web, version=version)
            return
        commands: dict[str, Callable[[], list[str]]] = {
            WORKER: lambda: made.worker(next(self._workers), version=version),
            BEAT: lambda: exec_start("manciple-beat.service", version=version),
            NODE: lambda: made.agent(NODE, version=version),
        }
        made.start(name, commands[name](), version=version)

    def replace(self, name: str, version: Path, *, side_by_side: Callable[[], None]) -> None:
        """As an operator does: told to end, and started from the other tree.

        The next worker begins before the last one ends; side_by_side: called when both are at work.
        """
        if name == WORKER:
            last = self.installation.processes[WORKER]
            self.begin(WORKER, version)
            wait_for("the next worker to work", self._worker_works)
            side_by_side()
            _end(last)
            return
        doors = [self.doors[name], self.balancer] if name in self.doors else []
        for door in doors:
            door.changing = True
        _end(self.installation.processes[name])
        self.begin(name, version)
        for door in doors:
            door.changing = False

    def end_beat(self) -> None:
        """Workers of this version keep the intervals themselves."""
        self.installation.processes.pop(BEAT).kill()  # that of v0.2.0-rc.1 may not end otherwise

    def _worker_works(self) -> bool:
        """It has done a task."""
        heart = f"{os.uname().nodename}-{self.installation.processes[WORKER].pid}"
        with psycopg.connect(self.installation.env["MANCIPLE_DATABASE_URL"]) as connection:
            return bool(connection.execute("SELECT 1 FROM scheduling_heartbeat WHERE name = %s", [heart]).fetchone())


def _end(process: Process) -> None:
    """As systemd does."""
    process.signal(signal.SIGTERM)
    process.wait()


@contextmanager
def mixed(home: Path, postgresql: Server, redis: Server, version: Path) -> Iterator[Mixed]:
    """Everything is of this version at first, and the node is ready."""
    doors = {name: Door(f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}") for name in APIS}
    link = Link(*(("127.0.0.1", int(door.address.rpartition(":")[2])) for door in doors.values()))
    env = environment(home, new_database(postgresql, "mixed"), redis.url) | {"MANCIPLE_SECURE_COOKIES": "0"}
    installation = Installation(home, env, web="")
    made = Mixed(installation, doors, Door(link.address))
    try:
        installation.manage("migrate", "-v", "0", version=version)
        told = installation.manage("bootstrap", "--server", made.balancer.server, "--node", NODE, version=version)
        made.first_link = next(word for word in told.split() if "/welcome/" in word)
        for name in (*APIS, WORKER, BEAT, NODE):
            made.begin(name, version)
        api = Hands(made.kubeconfig)
        furnish(api, [TEMPLATE])
        api.wait_ready("Node", NODE)
        yield made
    finally:
        installation.end()
        link.close()
