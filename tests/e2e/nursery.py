"""Python processes for tests, forked from one that has imported what they need: importing is most of a start's work.

What runs is the same program on the same command line, as `__main__`, in a session, a working directory and an
environment of its own; it is killed and stopped like any other. Only the start of the interpreter is shared. Programs
whose very command line is under test (those of deploy/systemd) are executed instead.

Run as a program, it is the nursery: for each request that comes over its socket it forks a child, tells its process id,
and later its exit status, over the socket that came with the request. It ends when nobody can ask any more.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that one has to end in, on a busy machine.
PATIENCE = 60
#: Bytes of a request: a command line and an environment.
LARGEST = 1 << 20

_NODE_AGENT = (
    "nodeagent.agent", "nodeagent.catalog", "nodeagent.options", "nodeagent.catalog",
    "nodeagent.options",
)  # fmt: skip
#: What is imported before the fork, by program: nothing that reads Django's settings, which depend on the environment.
IMPORTS: Mapping[str, Sequence[str]] = {
    "nodeagent": _NODE_AGENT,
    "tests.plugin_driver": (
        "argparse", "grpc", "httpx", "yaml", "tests.plugin_driver.devices", "tests.plugin_driver.kube",
        "tests.plugin_driver.messages", "tests.plugin_driver.orders", "tests.plugin_driver.services",
        "tests.plugin_driver.slices",
    ),
    "manage.py": (
        *_NODE_AGENT, "a2wsgi", "asyncio", "celery.beat", "celery.worker", "claims.kinds", "cryptography.x509",
        "django.core.asgi", "django.core.management", "django.db.migrations.executor", "django.db.models",
        "django.forms", "httpx", "inventory.kinds", "kombu.transport.memory", "manciple.wire.codec", "psycopg",
        "redis.asyncio", "scheduling.allocator", "scheduling.cel", "uvicorn", "yaml",
    ),
}  # fmt: skip


class Child:
    """A forked program; as much of `subprocess.Popen` as tests need."""

    def __init__(self, pid: int, life: socket.socket, stdout: IO[str]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._life = life

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, -N where signal N ended it. Raises: subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._life], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            said = self._life.recv(64)
            assert said, "the nursery has ended"
            self.returncode = int(said)
            self._life.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class Nursery:
    """A process for each program, so that a small one does not carry what a large one imports; begun when needed."""

    def __init__(self) -> None:
        self._asking: dict[str, socket.socket] = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    def takes(self, command: Sequence[str]) -> bool:
        return command[0] == sys.executable and _program(command) in IMPORTS

    def start(self, command: Sequence[str], env: Mapping[str, str]) -> Child:
        """command: [python, "manage.py", …] or [python, "-m", module, …]."""
        program = _program(command)
        if program not in self._asking:
            self._asking[program] = self._begin(program)
        reading, writing = os.pipe()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps({"command": list(command), "env": dict(env)}).encode()
        socket.send_fds(self._asking[program], [request], [theirs.fileno(), writing])
        theirs.close()
        os.close(writing)
        pid = ours.recv(64)
        assert pid, "the nursery has ended"
        return Child(int(pid), ours, os.fdopen(reading, "r", encoding="utf-8", errors="replace"))

    def _begin(self, program: str) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            begun = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.nursery", program, str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._processes.append(begun)
        return ours

    def end(self) -> None:
        """And wait for it: what its children have used counts as this process's."""
        for asking in self._asking.values():
            asking.close()
        for process in self._processes:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
        self._asking, self._processes = {}, []


def _program(command: Sequence[str]) -> str:
    return command[2] if command[1] == "-m" else command[1]


# The nursery itself --------------------------------------------------------------------------------------------------


def serve(asked: socket.socket) -> None:
    """Until nobody can ask any more."""
    lives: dict[int, socket.socket] = {}
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([asked.fileno(), waking], [], [])
        if waking in ready:
            os.read(waking, 4096)
            _tell_ends(lives)
        if asked.fileno() in ready:
            request, descriptors, _, _ = socket.recv_fds(asked, LARGEST, 2)
            if not request:
                return
            wanted, (life, output) = json.loads(request), descriptors
            pid = os.fork()
            if pid == 0:
                _end(_become(wanted["command"], wanted["env"], output))
            os.close(output)
            lives[pid] = socket.socket(fileno=life)
            lives[pid].send(str(pid).encode())


def _tell_ends(lives: dict[int, socket.socket]) -> None:
    while lives:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with lives.pop(pid) as life, contextlib.suppress(OSError):  # nobody asks any more
            life.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(command: Sequence[str], env: Mapping[str, str], output: int) -> int:
    """Run the program as `python` would. Returns its exit status."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, place)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(env)
    module = command[1] == "-m"
    sys.argv[:] = command[2:] if module else command[1:]
    try:
        if module:
            runpy.run_module(command[2], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(command[1], run_name="__main__")
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """As the interpreter ends, but for the taking apart of every module, which costs more than the start saved."""
    getattr(threading, "_shutdown")()  # noqa: B009 - waits for threads, as at every end; it has no public name
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main(program: str, asked: int) -> None:
    for module in IMPORTS[program]:
        importlib.import_module(module)
    gc.freeze()  # a collection in a child would copy every page that the children share
    serve(socket.socket(fileno=asked))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
