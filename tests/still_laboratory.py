"""Serves the pages of the demo's laboratory by a stopped clock, so that each request of a page gets the same answer.

    python tests/still_laboratory.py --home FOLDER [--tree CHECKOUT]

Comparisons of two versions of the pages start one for each version: `--tree` names the checkout whose code runs (this
one by default; it need not have this file), and both serve copies of one home, with the same objects and passwords. A
home that does not exist yet is filled first.

Only pages are served: there is no API server, scheduler, controller or live line, so nothing changes the database. One
thread answers all requests, one after another; the header CPU_HEADER of an answer says how long it computed.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

ROOT = Path(__file__).resolve().parents[1]
#: When it is in the laboratory.
MOMENT = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
#: Milliseconds of CPU that the answer took.
CPU_HEADER = "X-CPU-Milliseconds"
#: The user of the pages.
USER = "admin"
_PASSWORDS = "demo-people"


# For those who start one ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StillLaboratory:
    """One that is served. password: of USER."""

    web: str
    password: str


@contextmanager
def served(home: Path, tree: Path = ROOT) -> Iterator[StillLaboratory]:
    """In a process of its own, with the code of `tree`, while the context lasts."""
    if not home.exists():
        _run(tree, "--home", str(home), "--fill").wait_for_end()
    child = _run(tree, "--home", str(home))
    try:
        yield StillLaboratory(child.line(r"http://\S+"), _password(home))
    finally:
        child.process.terminate()
        child.process.wait()


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[str]

    def line(self, pattern: str) -> str:
        """The match of the first line that has one."""
        for line in self.process.stdout or ():
            if match := re.search(pattern, line):
                return match.group()
        raise RuntimeError(f"{self.process.args!r} ended with {self.process.wait()}")

    def wait_for_end(self) -> None:
        output, _ = self.process.communicate()
        if self.process.returncode:
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.returncode}: {output}")


def _run(tree: Path, *arguments: str) -> _Child:
    command = [sys.executable, __file__, "--tree", str(tree), *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}
    return _Child(subprocess.Popen(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True))


def _password(home: Path) -> str:
    people = dict(line.split() for line in (home / _PASSWORDS).read_text().splitlines())
    return people[USER]


# The process itself --------------------------------------------------------------------------------------------------


#: Measures the CPU of answers.
_cpu_time = time.thread_time
#: What limits of time, and pages that say how long something took, go by.
_STOPWATCHES = ("monotonic", "perf_counter", "thread_time", "process_time")


def stop_clock(moment: datetime, *, with_stopwatches: bool) -> None:
    """From now on it is `moment` for this process.

    Modules import the class `datetime` itself, and libraries in C make instances of it, so its methods are replaced
    instead of the class. with_stopwatches: nothing takes any time either, so no limit of time ends a rehearsal early on
    a busy machine. Threads and sockets have imported the real clock by now, and still time out.
    """
    seconds = moment.timestamp()

    def now(cls: type[datetime], tz: tzinfo | None = None) -> datetime:
        return cls.fromtimestamp(seconds, tz)

    def today(cls: type[date]) -> date:
        return cls.fromtimestamp(seconds)

    for kind, methods in ((datetime, {"now": now}), (date, {"today": today})):
        (attributes,) = gc.get_referents(kind.__dict__)
        attributes.update({name: classmethod(method) for name, method in methods.items()})
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
    time.time = lambda: seconds
    time.time_ns = lambda: round(seconds * 1e9)
    if with_stopwatches:
        for name in _STOPWATCHES:
            setattr(time, name, lambda: 1000.0)


def _fill(home: Path) -> None:
    from django.core.management import call_command

    call_command("demo", verbosity=0)
    assert (home / _PASSWORDS).exists()


class _Server(ThreadingMixIn, WSGIServer):
    """A browser's idle connections hold a thread each, not the server."""

    daemon_threads = True
    request_queue_size = 100


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


Respond = Callable[..., Any]
Application = Callable[[dict[str, Any], Respond], Iterable[bytes]]


def _one_at_a_time(application: Application) -> Application:
    """Answers in one thread, whose connection and caches stay, and says how long it computed."""
    worker = ThreadPoolExecutor(1)

    def answer(environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        started: list[Any] = []

        def start_response(*given: Any) -> Callable[[bytes], object]:
            started[:] = given
            return io.BytesIO().write

        began = _cpu_time()
        parts = application(environ, start_response)
        body = b"".join(parts)
        if hasattr(parts, "close"):
            parts.close()
        spent = (_cpu_time() - began) * 1000
        return started[0], [*started[1], (CPU_HEADER, f"{spent:.3f}")], body

    def respond(environ: dict[str, Any], start_response: Respond) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        status, headers, body = worker.submit(answer, environ).result()
        start_response(status, headers)
        return [body]

    return respond


def _serve() -> None:
    from django.core.wsgi import get_wsgi_application

    _renew_leases()
    server = make_server("127.0.0.1", 0, _one_at_a_time(get_wsgi_application()), _Server, _Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


def _renew_leases() -> None:
    """They were written when the week of the laboratory began, and no agent renews them: no node would be heard of."""
    from manciple.store.models import Event, StoredObject

    leases = StoredObject.objects.filter(resource="leases.coordination.k8s.io")
    Event.objects.filter(pk__in=leases.values("event_id")).update(created_at=MOMENT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True, help="the filled laboratory; it is left as it is")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout whose code runs")
    parser.add_argument("--fill", action="store_true", help="only fill the home")
    options = parser.parse_args()
    os.umask(0o077)
    given = options.home.resolve()
    sys.path[0] = str(options.tree.resolve())
    os.chdir(sys.path[0])
    stop_clock(MOMENT, with_stopwatches=not options.fill)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that the copy of the home is removed
    with tempfile.TemporaryDirectory(prefix="manciple-still-") as copy:
        home = given if options.fill else Path(copy) / "home"
        if not options.fill:
            shutil.copytree(given, home)
        os.environ["DJANGO_SETTINGS_MODULE"] = "manciple.settings"
        os.environ["MANCIPLE_HOME"] = str(home)
        os.environ.setdefault("MANCIPLE_LOG_LEVEL", "ERROR")
        from manciple import frames
        from manciple.processes.home import prepare

        frames.make_room_in_threads()
        prepare(home)

        import django

        django.setup()
        if options.fill:
            _fill(home)
        else:
            _serve()


if __name__ == "__main__":
    main()
