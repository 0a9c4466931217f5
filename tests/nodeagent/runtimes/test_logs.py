"""What of a log is shown, and how; and the log of a simulated container."""

from __future__ import annotations

import threading

import pytest

from nodeagent.failures import LogsUnavailable
from nodeagent.runtimes.logs import LogLine, LogPrinter, LogQuery, parsed, wanted
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
