"""PostgreSQL, Redis, an API process, two workers and three agents: the command lines of deploy/systemd."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg

from tests.e2e.checker import Checker
from tests.e2e.processes import ROOT, Process, answers, wait_for
from tests.services import Server, free_port

NODES = ("node-1", "node-2", "node-3")
#: What the last of them has; the others have the first of these.
DRIVERS = ("sim", "sim-partitionable", "sim-nic")
UNITS = Path("deploy", "systemd")
#: What units start -> what of this environment is the same. The last two are those of v0.2.0-rc.1.
PROGRAMS = {
    "/opt/manciple-agent/bin/manciple-agent": f"{sys.executable} -m nodeagent",
    "/opt/manciple/bin/manciple": f"{sys.executable} -m manciple",
    "/opt/manciple/.venv/bin/python": sys.executable,
    "/opt/manciple/.venv/bin/celery": f"{sys.executable} -m celery",
}


def new_database(server: Server, name: str) -> str:
    """The URL of an empty database of this name."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return server.url.rpartition("/")[0] + f"/{name}"


def exec_start(unit: str, *, version: Path = ROOT, **replace: str) -> list[str]:
    """The ExecStart line of a unit, with this machine's interpreter, ports and folders. version: its tree."""
    line = next(
        text.removeprefix("ExecStart=")
        for text in (version / UNITS / unit).read_text().splitlines()
        if text.startswith("ExecStart=")
    )
    for old, new in (*PROGRAMS.items(), *((PLACES[name], new) for name, new in replace.items())):
        line = line.replace(old, new)
    words = shlex.split(line)
    assert not any(word.startswith("/opt/") for word in words), words
    return words


#: What of a unit belongs to the machine it is installed on.
PLACES = {
    "api": "0.0.0.0:6443",
    "web": "127.0.0.1:8000",
    "instance": "%i",
    "kubeconfig": "/etc/manciple/nodes/%i/kubeconfig",
    "state": "/var/lib/manciple-agent/%i",
    "cdi": "/var/run/cdi",
}


@dataclass
class Installation:
    """A production installation on this machine's loopback."""

    home: Path
    env: dict[str, str]
    web: str
    processes: dict[str, Process] = field(default_factory=dict)
    _checker: Checker = field(default_factory=Checker)

    def manage(self, *arguments: str, version: Path = ROOT) -> str:
        """What it printed. version: its tree."""
        command = [sys.executable, "manage.py", *arguments]
        done = Process(command, env=self.env, forked=version == ROOT, folder=version).start()
        assert done.wait() == 0, "\n".join(done.output)
        return "\n".join(done.output)

    def check_invariants(self) -> str:
        """What `manage.py check_invariants` prints; fails the test where it tells a violation."""
        return self._checker.check(self.home, self.env)

    def end(self) -> None:
        self._checker.end()
        for process in self.processes.values():
            process.kill()

    def start(self, name: str, command: list[str], *, forked: bool = True, version: Path = ROOT) -> None:
        """forked: off a process that has imported what it needs already; else as systemd starts it. version: its tree;
        of another one than this nothing is imported."""
        forked = forked and version == ROOT
        self.processes[name] = Process(command, env=self.env, forked=forked, folder=version).start()

    def serve(self, name: str, port: int, *, web: str = "127.0.0.1:0", version: Path = ROOT) -> None:
        """One of several API processes. web: where its dashboard is, if anybody looks. Returns once it is ready."""
        command = exec_start("manciple-api.service", version=version, api=f"127.0.0.1:{port}", web=web)
        self.start(name, command, version=version)
        wait_for(f"{name} to be ready", partial(answers, f"https://127.0.0.1:{port}/readyz"))

    def restart(self, **settings: str) -> None:
        """Kill every part and start it anew, with these settings beside its own. Returns once the API answers.

        As systemd starts them they were started the first time. Some time after their start agents clear away what
        drivers that they do not know have published for their nodes.
        """
        self._restart(self.processes, settings)

    def restart_control_plane(self, **settings: str) -> None:
        """The same, but for the agents."""
        self._restart([name for name in self.processes if name not in NODES], settings)

    def _restart(self, names: Iterable[str], settings: Mapping[str, str]) -> None:
        parts = {name: self.processes[name] for name in names}
        for process in parts.values():
            process.kill()
        own, self.env = self.env, {**self.env, **settings}
        for name, process in parts.items():
            self.start(name, list(process.command))
        self.env = own
        self.wait_for_the_api()

    def wait_for_the_api(self) -> None:
        wait_for("the API", lambda: answers(f"http://{self.web}/readyz"))

    def worker(self, number: int, *, version: Path = ROOT) -> list[str]:
        return exec_start("manciple-worker@.service", version=version, instance=str(number))

    def agent(self, node: str, *options: str, version: Path = ROOT) -> list[str]:
        """options: which drivers it has, where not those that tests find there."""
        tested = [word for name in DRIVERS for word in ("--driver", name)] if node == NODES[-1] else []
        command = exec_start(
            "manciple-agent@.service",
            version=version,
            kubeconfig=str(self.home / "nodes" / node / "kubeconfig"),
            state=str(self.home / "nodes" / node),
            cdi=str(self.home / "cdi" / node),
            instance=node,
        )
        return command + (list(options) or tested)


def environment(home: Path, database: str, redis: str) -> dict[str, str]:
    """What every part has in common. database, redis: URLs."""
    return {
        "MANCIPLE_HOME": str(home),
        "MANCIPLE_DATABASE_URL": database,
        "MANCIPLE_REDIS_URL": redis,
        "MANCIPLE_SECRET_KEY": "for the test run only, forty characters long",
        "MANCIPLE_ENCRYPTION_KEYS": "for the test run only",
        "MANCIPLE_LOCAL_CONNECTIONS": "1",  # the agents run beside the API server
    }


#: Seconds that are short here, because tests wait for their end.
SHORT = {"MANCIPLE_BINDING_TIMEOUT": "4", "MANCIPLE_FILTER_TIMEOUT": "1"}


@contextmanager
def installed(home: Path, postgresql: Server, redis_server: Server) -> Iterator[Installation]:
    """A running one. Returns once the API answers; the agents come in their own time."""
    api, web = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    env = {
        "PATH": str(Path(sys.executable).parent) + ":/usr/local/bin:/usr/bin:/bin",
        **environment(home, new_database(postgresql, "production"), redis_server.url),
        **SHORT,
    }
    made = Installation(home, env, web)
    try:
        made.manage("migrate", "-v", "0")
        nodes = [word for node in NODES for word in ("--node", node)]
        made.manage("bootstrap", "--server", f"https://{api}", *nodes)
        made.start("api", exec_start("manciple-api.service", api=api, web=web))
        for number in (1, 2):
            made.start(f"worker-{number}", made.worker(number), forked=number > 1)
        made.wait_for_the_api()
        for node in NODES:
            made.start(node, made.agent(node))
        yield made
    finally:
        made.end()
