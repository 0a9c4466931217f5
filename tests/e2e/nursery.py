"""Python processes for tests, forked from one that has imported what they need: importing is most of a start's work.

What runs is the same program on the same command line, as `__main__`, in a session, a working directory and an
environment of its own; it is killed and stopped like any other. Only the start of the interpreter is shared. Who wants
the very command line under test (those of deploy/systemd) has it executed instead, once for each.

Run as a program, it is the nursery: for each request that comes over its socket it forks a child, tells its process id,
and later its exit status, over the socket that came with the request. It ends when nobody can ask any more.

What is imported before the first fork reads none of Django's settings. The models read them, and are half of what is
left to import. So for each environment (production, feature gates) there is one nursery more, forked from the first,
that has Django set up in that environment. Its children read the settings anew: homes differ, and so does what stands
in them.
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

_NODE_AGENT = ("nodeagent.node.catalog", "nodeagent.run")
#: Programs that begin by setting up Django: all of them are children of one nursery.
DJANGO = {"manage.py", "manciple", "tests.e2e.checker", "tests.e2e.one_process"}
#: Of this program there may be one nursery for several test processes.
SHARED = "manage.py"
#: What is imported before the first fork, by program: nothing that reads Django's settings.
IMPORTS: Mapping[str, Sequence[str]] = {
    "nodeagent": _NODE_AGENT,
    "tests.plugin_driver": (
        "argparse", "grpc", "httpx", "yaml", "tests.plugin_driver.devices", "tests.plugin_driver.kube",
        "tests.plugin_driver.messages", "tests.plugin_driver.orders", "tests.plugin_driver.services",
        "tests.plugin_driver.slices",
    ),
    "manage.py": (
        *_NODE_AGENT, "a2wsgi", "asyncio", "celery.worker", "claims.kinds", "cryptography.x509",
        "django.core.asgi", "django.core.management", "django.db.migrations.executor", "django.db.models",
        "django.forms", "httpx", "inventory.kinds", "kombu.transport.memory", "manciple.wire.codec", "psycopg",
        "redis.asyncio", "scheduling.allocator", "scheduling.cel", "uvicorn", "yaml",
    ),
}  # fmt: skip
#: What is imported in an environment, once Django is set up: all but what keeps settings when it is imported.
MODELS = (
    "channels.security.websocket", "kombu.transport.redis", "manciple.api.certificates", "manciple.api.health",
    "manciple.audit.searching", "manciple.audit.shipping", "manciple.celery", "manciple.live.consumers",
    "manciple.processes.accounts", "manciple.processes.listeners", "manciple.processes.node_bootstrap",
    "manciple.processes.standing", "manciple.urls", "scheduling.invariants", "manciple.controllers.tasks",
)  # fmt: skip
#: Of the environment, what makes no difference to what is imported.
READ_ANEW = {"MANCIPLE_HOME", "MANCIPLE_LOG_LEVEL"}
#: Settings that stand in a home, besides those that are paths in it.
OF_A_HOME = {"SECRET_KEY", "ENCRYPTION_KEYS"}


class Child:
    """A forked program; as much of `subprocess.Popen` as tests need."""

    def __init__(self, pid: int, life: socket.socket, stdout: IO[str]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._life = life
        self._asking = threading.Lock()

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
            with self._asking:  # it is said once, and several threads may ask
                if self.returncode is None:
                    said = self._life.recv(64)
                    assert said, "the nursery has ended"
                    self.returncode = int(said)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class Nursery:
    """A process for each program, so that a small one does not carry what a large one imports; begun when needed."""

    def __init__(self) -> None:
        self._asking: dict[str, socket.socket] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._one_at_a_time = threading.Lock()

    def takes(self, command: Sequence[str]) -> bool:
        return _program(command) in IMPORTS

    def start(self, command: Sequence[str], env: Mapping[str, str], *, stdin: int | None = None) -> Child:
        """command: [python, "manage.py", …] or [python, "-m", module, …]. stdin: a descriptor."""
        program = _program(command)
        with self._one_at_a_time:
            if program not in self._asking:
                self._asking[program] = self._begin(program)
        reading, writing = os.pipe()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps({"command": list(command), "env": dict(env)}).encode()
        given = [theirs.fileno(), writing, *([] if stdin is None else [stdin])]
        socket.send_fds(self._asking[program], [request], given)
        theirs.close()
        os.close(writing)
        pid = ours.recv(64)
        assert pid, "the nursery has ended"
        return Child(int(pid), ours, os.fdopen(reading, "r", encoding="utf-8", errors="replace"))

    def run(self, command: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
        """As `start`, to its end. Returns its exit status and what it printed."""
        child = self.start(command, env)
        with child.stdout:
            printed = child.stdout.read()
        return child.wait(PATIENCE), printed

    def share(self) -> int:
        """Begin the one of `manage.py` for all processes that are forked from now on; the descriptor that they keep."""
        self._asking[SHARED] = self._begin(SHARED)
        return self._asking[SHARED].fileno()

    def _begin(self, program: str) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            begun = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.nursery", program, str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
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


NURSERY = Nursery()


def _program(command: Sequence[str]) -> str:
    """Whose imports it shares; "" where it is none of these programs."""
    if command[0] != sys.executable:
        return ""
    name = command[2] if command[1] == "-m" else command[1]
    if command[1:4] == ["-m", "manciple", "node"]:
        return "nodeagent"
    return "manage.py" if name in DJANGO else name


# The nursery itself --------------------------------------------------------------------------------------------------


class Serving:
    """A nursery at work."""

    def __init__(self, asked: socket.socket, *, by_environment: bool = False) -> None:
        """by_environment: each has a nursery of its own, which this one asks."""
        self._asked = asked
        self._by_environment = by_environment
        self._lives: dict[int, socket.socket] = {}
        self._environments: dict[str, socket.socket] = {}

    def run(self) -> None:
        """Until nobody can ask any more, and no nursery of an environment is left."""
        waking, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self._asked.fileno(), waking], [], [])
            if waking in ready:
                os.read(waking, 4096)
                self._tell_ends()
            if self._asked.fileno() in ready:
                request, descriptors, _, _ = socket.recv_fds(self._asked, LARGEST, 3)
                if not request:
                    break
                self._answer(request, descriptors)
        for one in self._environments.values():
            one.close()
        if self._environments:
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.wait()

    def _answer(self, request: bytes, descriptors: Sequence[int]) -> None:
        wanted = json.loads(request)
        if self._by_environment:
            socket.send_fds(self._of_environment(wanted["env"]), [request], descriptors)
            for one in descriptors:
                os.close(one)
            return
        life, *given = descriptors
        pid = os.fork()
        if pid == 0:
            _end(_become(wanted["command"], wanted["env"], given))
        for one in given:
            os.close(one)
        self._lives[pid] = socket.socket(fileno=life)
        self._lives[pid].send(str(pid).encode())

    def _of_environment(self, env: Mapping[str, str]) -> socket.socket:
        read = {name: env[name] for name in env if name.startswith("MANCIPLE_") and name not in READ_ANEW}
        key = json.dumps(read, sort_keys=True)
        if key not in self._environments:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if os.fork() == 0:
                # Whoever kept a descriptor of a program's output would keep its reader waiting.
                os.closerange(3, theirs.fileno())
                os.closerange(theirs.fileno() + 1, 1024)
                _set_up_django(env)
                Serving(theirs).run()
                os._exit(0)
            theirs.close()
            self._environments[key] = ours
        return self._environments[key]

    def _tell_ends(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if pid in self._lives:
                    with self._lives.pop(pid) as life, contextlib.suppress(OSError):  # nobody asks any more
                        life.send(str(os.waitstatus_to_exitcode(status)).encode())


def _set_up_django(env: Mapping[str, str]) -> None:
    """Nothing where the settings refuse: each child tells it itself."""
    import django
    from django.core.exceptions import ImproperlyConfigured

    os.environ.clear()
    os.environ.update({**env, "DJANGO_SETTINGS_MODULE": "manciple.settings"})
    with contextlib.suppress(ImproperlyConfigured):
        django.setup()
        for module in MODELS:
            importlib.import_module(module)
    gc.freeze()


def _forget_settings() -> None:
    """They are read anew when somebody first asks for one; what was made of them goes with them."""
    if "django.conf" not in sys.modules:
        return
    from django.conf import settings
    from django.contrib.staticfiles.storage import staticfiles_storage
    from django.core.files.storage import storages
    from django.db import connections
    from django.utils.functional import empty

    if not settings.configured:
        return
    home = str(settings.HOME)
    used = {name for name, value in vars(settings).items() if name in OF_A_HOME or home in repr(value)}
    assert used <= {"HOME", "DATABASES", "STATIC_ROOT"}, f"{used} would stay as they are in another home"
    settings._wrapped = empty
    sys.modules.pop("manciple.settings", None)
    for alias in [one.alias for one in connections.all(initialized_only=True)]:
        del connections[alias]
    vars(connections).pop("settings", None)
    vars(connections)["_settings"] = None  # what `settings` was made of, and keeps
    vars(storages)["_storages"].clear()
    vars(staticfiles_storage)["_wrapped"] = empty


def _become(command: Sequence[str], env: Mapping[str, str], given: Sequence[int]) -> int:
    """Run the program as `python` would. given: output, and input where it has one. Returns its exit status."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    output, *told = given
    for descriptor, place in ((*told, os.open(os.devnull, os.O_RDONLY))[0], 0), (output, 1), (output, 2):
        os.dup2(descriptor, place)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(env)
    _forget_settings()
    words = command if command[0] != sys.executable else command[1:]
    module = words[0] == "-m"
    sys.argv[:] = words[1:] if module else words
    try:
        if module:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
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
    gc.disable()  # what is imported stays: to look for garbage in it would take a tenth of the time
    for module in IMPORTS[program]:
        importlib.import_module(module)
    gc.freeze()  # a collection in a child would copy every page that the children share
    gc.enable()
    Serving(socket.socket(fileno=asked), by_environment=program == "manage.py").run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
