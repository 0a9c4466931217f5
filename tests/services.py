"""Servers that a test run starts for itself and stops again: PostgreSQL and Redis, on free ports, in own folders.

PostgreSQL refuses to run as root, so as root it is run as the user `postgres` (or `nobody`). What is not installed is
an error and never a skip: the tests that need these servers are part of what the project promises.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import redis

from tests.examples import MIGRATED

ROOT = Path(__file__).parents[1]
#: Seconds within which a server must answer.
START_TIMEOUT = 60.0
#: Seconds that the tests which run on PostgreSQL once more may take; each of them has a limit of its own.
RERUN_TIMEOUT = 1200


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def find_binary(name: str) -> str:
    """On PATH or where Debian keeps PostgreSQL's. Raises: FileNotFoundError with what to install."""
    places = [os.environ.get("PATH", ""), *(str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin")))]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: these tests need postgresql, redis-server and prometheus")
    return found


class Server:
    """A server process that a test may stop and start again; `url` stays the same."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        url: str,
        folder: Path,
        answers: Callable[[str], bool],
        stop_signal: signal.Signals = signal.SIGTERM,
        user: str | None = None,
    ) -> None:
        self.url = url
        self._command = command
        self._log = folder / "log"
        self._answers = answers
        self._stop_signal = stop_signal
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers. Raises: RuntimeError with its log if it ends, or takes START_TIMEOUT."""
        with self._log.open("ab") as output:
            process = subprocess.Popen(
                self._command, stdout=output, stderr=output, user=self._user, cwd=self._log.parent
            )
        self._process = process
        deadline = time.monotonic() + START_TIMEOUT
        while not self._answers(self.url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self._command[0]} did not start:\n{self._log.read_text()}")
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """Of the server itself."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9, to it and its children (PostgreSQL's are in sessions of their own). Nothing when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGSTOP)  # so that it starts no more of them
        children = _children(process.pid)
        process.kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        process.wait()
        deadline = time.monotonic() + START_TIMEOUT
        while any(_is_running(child) for child in children):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._command[0]} was killed, and some of its processes {children} still run")
            time.sleep(0.01)

    def pause(self) -> None:
        """SIGSTOP, to it and its children: it is there, and does nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            for child in _children(self._process.pid):
                with suppress(ProcessLookupError):
                    os.kill(int(child), number)

    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace")

    def stop(self, how: signal.Signals | None = None) -> None:
        """Ask it to end, and kill it if that does not help. Nothing when it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how or self._stop_signal)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:  # it ended meanwhile
        return []


def _is_running(pid: str) -> bool:
    """Not: dead, and nobody has asked for its exit status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def unprivileged_user() -> str | None:
    """Whom to run PostgreSQL as; None where we are not root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


@contextmanager
def _folder(user: str | None) -> Iterator[Path]:
    """Directly under the system's temporary folder: others cannot enter pytest's, and a socket's path must be short."""
    path = Path(tempfile.mkdtemp(prefix="manciple-"))
    if user is not None:
        shutil.chown(path, user)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _initialize(data: Path, user: str | None) -> None:
    """The parts of a test run (tests/parts.py) copy what the first of them has made: initdb takes a second."""
    made = Path(os.environ[MIGRATED]).with_name("postgresql") if MIGRATED in os.environ else None
    copy = ["cp", "--archive", "--reflink=auto"]
    if made is not None and made.exists():
        subprocess.run([*copy, made, data], check=True)
        return
    initdb = [find_binary("initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run(initdb, check=True, capture_output=True, user=user, cwd=data.parent)
    if made is not None:
        draft = made.with_name(f"{made.name}-{os.getpid()}")
        subprocess.run([*copy, data, draft], check=True)
        with suppress(OSError):  # another part was quicker
            draft.rename(made)


@contextmanager
def postgresql(**more: str) -> Iterator[Server]:
    """A fresh PostgreSQL. Without fsync: it need not last. more: further settings of the server."""
    user = unprivileged_user()
    with _folder(user) as folder:
        data, port = folder / "data", free_port()
        _initialize(data, user)
        options = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": folder,
            "fsync": "off",
            "max_connections": 200,
            **more,
        }
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        server = Server(
            [find_binary("postgres"), "-D", str(data), *settings],
            url=f"postgresql://postgres@127.0.0.1:{port}/postgres",
            folder=folder,
            answers=postgresql_answers,
            stop_signal=signal.SIGINT,  # a fast shutdown: it does not wait for clients
            user=user,
        )
        try:
            server.start()
            yield server
        finally:
            server.stop(signal.SIGQUIT)  # at once: what it has not written goes with its files


#: For tests, which have little data for a short time: nothing is swept up behind them or compiled for them.
FOR_TESTS = {
    "autovacuum": "off",
    "jit": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "checkpoint_timeout": "1h",
    "max_wal_size": "4GB",
}


@contextmanager
def redis_server() -> Iterator[Server]:
    """A fresh Redis that keeps nothing on disk."""
    with _folder(None) as folder:
        port = free_port()
        command = [find_binary("redis-server"), "--port", str(port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(folder)]
        server = Server(command, url=f"redis://127.0.0.1:{port}/0", folder=folder, answers=_redis_answers)
        with _started(server):
            yield server


@contextmanager
def _started(server: Server) -> Iterator[None]:
    try:
        server.start()
        yield
    finally:
        server.stop()


def postgresql_answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _redis_answers(url: str) -> bool:
    client = redis.Redis.from_url(url, socket_timeout=2)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


def assert_pass_on_postgresql(server: Server, tests: Sequence[str]) -> None:
    """Run `tests` (paths below the project) once more, on PostgreSQL: same tests, other engine, none skipped."""
    options = ["-q", "-m", "not postgres", "-p", "no:cacheprovider", "--reuse-db"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    # --reuse-db: the database, made anew, goes with its server and is not dropped, which takes seconds.
    # This is a test run of its own: what pytest told this process does not concern it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["MANCIPLE_DATABASE_URL"] = server.url
    environment["MANCIPLE_LOCAL_CONNECTIONS"] = "1"  # the tests' agents run on this machine
    environment["MANCIPLE_SECRET_KEY"] = "for the test run only, forty characters long"
    environment["MANCIPLE_ENCRYPTION_KEYS"] = "for the test run only"
    answer = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=RERUN_TIMEOUT, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "skipped" not in answer.stdout
