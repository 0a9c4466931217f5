"""What of a log is shown, and how; and the log of a simulated container."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.failures import LogsUnavailable
from nodeagent.runtimes.logs import LogLine, LogPrinter, LogQuery, parsed, read_log, wanted
from tests.nodeagent.machine import Machine, run_pod
from tests.nodeagent.objects import pod

SECOND = 10**9


def line(at: float, text: str, *, stream: str = "stdout", whole: bool = True) -> LogLine:
    assert stream in ("stdout", "stderr")
    return LogLine(int(at * SECOND), "stderr" if stream == "stderr" else "stdout", whole, text.encode())


LINES = [line(1, "one"), line(2, "two", stream="stderr"), line(3, "thr", whole=False), line(3.5, "ee"), line(4, "four")]

QUERIES: dict[str, tuple[LogQuery, bytes]] = {
    "all": (LogQuery(), b"one\ntwo\nthree\nfour\n"),
    "the last lines": (LogQuery(tail_lines=2), b"three\nfour\n"),
    "no lines": (LogQuery(tail_lines=0), b""),
    "more lines than there are": (LogQuery(tail_lines=99), b"one\ntwo\nthree\nfour\n"),
    "since a moment": (LogQuery(since=2.5), b"three\nfour\n"),
    "the last lines, then since": (LogQuery(tail_lines=3, since=3.9), b"four\n"),
    "a number of bytes": (LogQuery(limit_bytes=6), b"one\ntw"),
    "one stream": (LogQuery(stream="stderr"), b"two\n"),
    "with times, once a line": (
        LogQuery(timestamps=True, tail_lines=2),
        b"1970-01-01T00:00:03.000000000Z three\n1970-01-01T00:00:04.000000000Z four\n",
    ),
    "times count as bytes": (LogQuery(timestamps=True, limit_bytes=10), b"1970-01-01"),
}


@pytest.mark.parametrize("case", QUERIES)
def test_of_a_log_is_shown_what_was_asked_for(case: str) -> None:
    query, expected = QUERIES[case]

    assert b"".join(LogPrinter(query).bytes_of(wanted(LINES, query))) == expected


def test_a_line_of_a_log_file_has_time_stream_and_text() -> None:
    assert parsed(b"2026-11-21T22:28:31.000000005+01:00 stderr F a b ") == LogLine(
        1795296511 * SECOND + 5, "stderr", whole=True, text=b"a b "
    )
    assert parsed(b"2026-11-21T21:28:31Z stdout P ") == LogLine(1795296511 * SECOND, "stdout", whole=False, text=b"")


@pytest.mark.parametrize("text", [b"", b"hello", b"2026-11-21T21:28:31Z stdin F x"])
def test_what_is_not_a_line_of_a_log_file_is_none(text: bytes) -> None:
    assert parsed(text) is None


def read(machine: Machine, query: LogQuery | None = None, container: str = "main") -> str:
    pieces = machine.agent.runtime.logs("uid-p", container, query or LogQuery(), stop=threading.Event())
    return b"".join(pieces).decode()


def test_a_simulated_container_says_so_and_shows_its_environment(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()

    first, *rest = read(machine).splitlines()

    assert "simulated" in first
    assert 'declare -x GPU_DEVICE_0="gpu-0"' in rest
    assert rest == sorted(rest)


def test_the_lines_of_a_simulated_container_have_the_time_of_its_start(machine: Machine) -> None:
    run_pod(machine)
    machine.settle()

    assert read(machine, LogQuery(timestamps=True, tail_lines=1)).startswith(
        "2027-01-15T08:00:00.000000000Z declare -x "
    )


def test_what_a_shell_would_expand_is_quoted_in_a_simulated_log(machine: Machine) -> None:
    variable = {"name": "A", "value": 'a "b" $c `d` \\'}
    machine.api.put("pods", pod("p", {"name": "main", "image": "busybox", "env": [variable]}))
    machine.settle()

    assert r'declare -x A="a \"b\" \$c \`d\` \\"' in read(machine).splitlines()


def test_following_a_simulated_log_ends_with_the_container(machine: Machine) -> None:
    machine.api.put("pods", pod("p", metadata={"annotations": {"manciple.dev/run-seconds": "5"}}))
    machine.settle()
    pieces = machine.agent.runtime.logs("uid-p", "main", LogQuery(follow=True), stop=threading.Event())
    assert b"simulated" in next(pieces)

    machine.clock.now += 5

    assert list(pieces) == []


def test_following_a_simulated_log_ends_when_told_to(machine: Machine) -> None:
    machine.api.put("pods", pod("p"))
    machine.settle()
    stop = threading.Event()
    pieces = machine.agent.runtime.logs("uid-p", "main", LogQuery(follow=True), stop=stop)
    next(pieces)

    stop.set()

    assert list(pieces) == []


def test_a_container_that_has_not_run_has_no_log(machine: Machine) -> None:
    machine.api.put("pods", pod("p"))
    machine.settle()

    with pytest.raises(LogsUnavailable, match="container other of pod uid-p has not been started"):
        read(machine, container="other")
    with pytest.raises(LogsUnavailable, match="previous terminated container main of pod uid-p not found"):
        read(machine, LogQuery(previous=True))


# Files that grow, and that conmon replaces ----------------------------------------------------------------------------


def printed(*texts: str) -> str:
    return "".join(f"2026-11-21T21:28:31.000000001Z stdout F {text}\n" for text in texts)


class Followed:
    """A log that is followed: what happens to its file between two looks, and what came of it in the end."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.steps: list[Callable[[], object]] = []
        monkeypatch.setattr("nodeagent.runtimes.logs.FOLLOW_SECONDS", 0)

    def read(self, **query: Any) -> list[str]:
        """The lines until the container has ended, which is after the last step."""
        pieces = read_log(self.path, LogQuery(follow=True, **query), running=self._running, stop=threading.Event())
        return b"".join(pieces).decode().splitlines()

    def _running(self) -> bool:
        """Asked before each look."""
        if not self.steps:
            return False
        self.steps.pop(0)()
        return True

    def append(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def replace(self, text: str) -> None:
        """As conmon does when a file has reached its limit."""
        fresh = self.path.with_suffix(".tmp")
        fresh.write_text(text)
        fresh.rename(self.path)


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Followed:
    return Followed(tmp_path / "main.log", monkeypatch)


def test_a_file_that_grows_is_followed_line_by_line(followed: Followed) -> None:
    half, rest = printed("b")[:40], printed("b")[40:]
    followed.steps = [lambda: followed.append(printed("a") + half), lambda: followed.append(rest + printed("c"))]
    assert followed.read() == ["a", "b", "c"]


def test_a_file_that_comes_later_is_found(followed: Followed) -> None:
    followed.steps = [lambda: None, lambda: followed.append(printed("a"))]
    assert followed.read() == ["a"]


@pytest.mark.parametrize("longer", [True, False])
def test_nothing_is_lost_when_the_file_is_replaced(followed: Followed, longer: bool) -> None:
    """Also where the new file is longer than the old one, and where both have grown since the last look."""
    fresh = [f"new {number}" for number in range(9 if longer else 1)]

    def rotate() -> None:
        followed.append(printed("the last"))
        followed.replace(printed(*fresh))

    followed.steps = [lambda: followed.append(printed("a", "b")), rotate, lambda: followed.append(printed("more"))]
    assert followed.read() == ["a", "b", "the last", *fresh, "more"]


def test_a_file_that_is_emptied_is_read_from_its_start(followed: Followed) -> None:
    followed.steps = [lambda: followed.append(printed("a", "b")), lambda: followed.path.write_text(printed("c"))]
    assert followed.read() == ["a", "b", "c"]


def test_of_a_large_file_the_last_lines_are_followed(followed: Followed) -> None:
    followed.append(printed(*("x" * 999 for _ in range(1000)), "last"))
    followed.steps = [lambda: None, lambda: followed.append(printed("new"))]
    assert followed.read(tail_lines=1) == ["last", "new"]
    assert followed.read(tail_lines=0) == []


def test_following_ends_at_the_limit_of_bytes(followed: Followed) -> None:
    followed.steps = [lambda: followed.append(printed("abc")), lambda: followed.append(printed("def"))] * 9
    assert followed.read(limit_bytes=6) == ["abc", "de"]
