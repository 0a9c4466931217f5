"""The guard's process beside a mirror: started again when it ends, heard, and ended with the mirror."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from manciple.processes import mirror_guard
from manciple.processes.listeners import Address, bind
from manciple.processes.mirror_guard import GuardProcess
from manciple.telemetry import metrics
from tests.e2e.processes import wait_for

#: Answers one connection after the other with its pid, and reports how many it has answered.
PROGRAM = """
import os, socket, sys, threading

listener, reports = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])

def serve():
    count = 0
    while True:
        connection, _ = listener.accept()
        count += 1
        line = '[["manciple_guard_x","Some.","gauge",[["manciple_guard_x",{"a":"%s"},%d]]]]' % (sys.argv[3], count)
        os.write(reports, line.encode() + b"\\n")
        connection.sendall(str(os.getpid()).encode())
        connection.close()

threading.Thread(target=serve, daemon=True).start()
while os.read(0, 1) or sys.argv[3] == "stuck":
    pass
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with bind(Address("127.0.0.1", 0)) as made:
        yield made


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_guard, "AGAIN", 0.01)


def guard_process(listener: socket.socket, word: str = "word") -> GuardProcess:
    return GuardProcess(listener, (word,), program=(sys.executable, "-c", PROGRAM))


def answer(listener: socket.socket) -> int:
    """The pid of the process that answers, however long that takes to start."""
    with socket.create_connection(listener.getsockname(), timeout=60) as connection:
        return int(connection.recv(100))


def reported() -> Sequence[tuple[dict[str, str], float]]:
    return [
        (sample.labels, sample.value)
        for metric in metrics.REGISTRY.collect()
        if metric.name == "manciple_guard_x"
        for sample in metric.samples
    ]


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_what_it_reports_is_among_the_metrics_of_the_mirror_while_it_runs(listener: socket.socket) -> None:
    with guard_process(listener).kept():
        answer(listener)
        wait_for("its metrics", lambda: reported() == [({"a": "word"}, 1.0)])
    assert reported() == []


def test_one_that_dies_is_started_again_and_who_asks_meanwhile_waits(listener: socket.socket) -> None:
    process = guard_process(listener)
    with process.kept():
        pid = answer(listener)
        wait_for("it to be known", lambda: process.pid == pid)
        os.kill(pid, signal.SIGKILL)
        wait_for("its end", lambda: process.pid != pid)
        assert answer(listener) not in (pid, os.getpid())
        last = process.pid
    assert last is not None
    assert not is_there(last)
    assert process.pid is None


def test_one_that_does_not_end_is_killed(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_guard, "STOPPED_WITHIN", 0.1)
    with guard_process(listener, "stuck").kept():
        pid = answer(listener)
    assert not is_there(pid)
