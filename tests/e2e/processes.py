"""Starts and stops real processes for the end-to-end tests, and waits on conditions."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import httpx

from tests.e2e.checker import Checker
from tests.e2e.nursery import NURSERY, Child
from tests.examples import MIGRATED

ROOT = Path(__file__).resolve().parents[2]
#: Generous: the machine that runs the tests may be busy with other tests.
PATIENCE = 90.0
#: What a process has in its environment so that a failure can tell what it did last, and where it stood.
TALKATIVE = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}

T = TypeVar("T")
CHECKER = Checker()


def wait_for(what: str, condition: Callable[[], T | None], *, timeout: float = PATIENCE) -> T:
    """The first truthy answer of `condition`; a failure says `what` was waited for and the last answer."""
    began = time.monotonic()
    while True:
        answer = condition()
        if answer:
            return answer
        waited = time.monotonic() - began
        if waited > timeout:
            raise AssertionError(f"waited {timeout:.0f} s for {what}; last answer: {answer!r}")
        time.sleep(min(0.1 + waited / 10, 0.5))  # asking costs more than half of what some of these tests do


def answers(url: str) -> bool:
    """Whether it is answered 200 now, whoever signed the server's certificate."""
    try:
        return httpx.get(url, verify=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


#: What was started. Whatever still runs stays in it: the thread that reads its output holds it.
_STARTED: weakref.WeakSet[Process] = weakref.WeakSet()


def kill_all() -> None:
    """Whatever still runs: a test that fails may not come to end what it has started."""
    for process in list(_STARTED):
        if process.running:
            process.kill()


@dataclass(eq=False)
class Process:
    """A child process whose output is kept, for a failure to show."""

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    output: list[str] = field(default_factory=list)
    #: off a process that has imported what it needs already; else as an operator starts it
    forked: bool = True
    folder: Path = ROOT

    def start(self) -> Process:
        env = {**os.environ, **self.env, **TALKATIVE}
        if self.forked and NURSERY.takes(self.command) and "PYTHONPATH" not in self.env:
            self._child: Child | subprocess.Popen[str] = NURSERY.start(self.command, env)
        else:
            self._child = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        _STARTED.add(self)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.output.append(line.rstrip("\n"))

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def worked(self) -> float:
        """Seconds of CPU that it has used so far."""
        user, system = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def line(self, pattern: str) -> re.Match[str]:
        """Wait for an output line that `pattern` matches."""

        def find() -> re.Match[str] | None:
            for line in list(self.output):
                if match := re.search(pattern, line):
                    return match
            if not self.running:
                raise AssertionError(f"{self.command} ended with {self._child.returncode}:\n" + "\n".join(self.output))
            return None

        try:
            return wait_for(f"the line /{pattern}/ of {' '.join(map(str, self.command[-4:]))}", find)
        except AssertionError as failure:
            if not self.running:
                raise
            self._where_it_stands()
            raise AssertionError(f"{failure}\n" + "\n".join(self.output[-600:])) from None

    def kill(self) -> None:
        """kill -9, to the whole group; one that has ended by itself meanwhile is fine."""
        self.signal(signal.SIGKILL)
        self._child.wait()

    def pause(self) -> None:
        """It is there, and does nothing."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """To the whole group. One that was started a moment ago has none yet."""
        for send in (os.killpg, os.kill):
            try:
                send(self._child.pid, number)
            except ProcessLookupError:
                continue
            return

    @property
    def pid(self) -> int:
        return self._child.pid

    def _where_it_stands(self) -> None:
        """End it, with the stacks of its threads as its last words."""
        self._child.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(10)
            self._reader.join(1.0)
        self.kill()

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit status, once it has ended by itself."""
        try:
            status = self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self._where_it_stands()
            raise AssertionError(f"did not end within {timeout:.0f} s:\n" + "\n".join(self.output[-600:])) from None
        self._reader.join(1.0)  # its last words; children that it left behind may keep them open
        return status

    def stop(self) -> int:
        """Ctrl-C; returns the exit status."""
        if self.running:
            self._child.send_signal(signal.SIGINT)
        return self.wait()


def place_migrated(home: Path) -> None:
    """Give a home without a database one that is migrated already, where the test run has one."""
    database = home / "manciple.sqlite3"
    if MIGRATED in os.environ and not database.exists():
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy(os.environ[MIGRATED], database)
        database.chmod(0o600)


@dataclass
class Up:
    """A running `manage.py up`."""

    home: Path
    nodes: int = 3
    mixed_nodes: int = 0
    extra: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    #: the checkout that is run
    folder: Path = ROOT
    #: it finds a database that is migrated already, where the test run has one
    migrated: bool = True

    def start(self) -> Up:
        """Returns once it says that it is ready."""
        if self.migrated:
            place_migrated(self.home)
        self.process = Process(
            [
                sys.executable,
                "manage.py",
                "up",
                *("--home", str(self.home)),
                *("--api", "127.0.0.1:0"),
                *("--web", "127.0.0.1:0"),
                *("--nodes", str(self.nodes)),
                *("--mixed-nodes", str(self.mixed_nodes)),
                *self.extra,
            ],
            env=self.env,
            folder=self.folder,
            forked=self.folder == ROOT,
        ).start()
        self.web = self.process.line(r"Dashboard +(http\S+)").group(1)
        self.first_link = self.process.line(r"Sign in +(\S+)").group(1)
        self.process.line(r"Stop with Ctrl-C")
        return self

    def bootstrap(self, node: str, server: str) -> Path:
        """A kubeconfig file for a node that this system does not run itself."""
        command = ["manage.py", "bootstrap", "--home", str(self.home), "--server", server, "--node", node]
        done = Process([sys.executable, *command]).start()
        assert done.wait() == 0, "\n".join(done.output)
        return self.home / "nodes" / node / "kubeconfig"

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kubeconfig"

    def ready(self) -> bool:
        return answers(f"{self.web}/readyz")

    def check_invariants(self) -> str:
        """The output of `manage.py check_invariants`; fails the test where it tells a violation."""
        return CHECKER.check(self.home)
