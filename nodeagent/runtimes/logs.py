"""The log of a container: lines with time and stream in, the bytes of `pods/log` out. Pure.

Source: core/v1 PodLogOptions; kubernetes staging/src/k8s.io/cri-client/pkg/logs for what is counted in which order:
`tail_lines` first, then `since`, and the byte limit on what is sent, times included.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

Stream = Literal["stdout", "stderr"]


class LogLine(NamedTuple):
    """One line, or a part of one that the container has not ended yet (`whole` is false: no newline follows).

    nanoseconds: POSIX time. text: without the newline.
    """

    nanoseconds: int
    stream: Stream
    whole: bool
    text: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """What is wanted of a log.

    previous: of the attempt before the latest. since: POSIX seconds; nothing older. tail_lines: of these many last
    lines. limit_bytes: then it ends. follow: go on until the container has ended. stream: None for both.
    """

    previous: bool = False
    tail_lines: int | None = None
    since: float | None = None
    timestamps: bool = False
    limit_bytes: int | None = None
    follow: bool = False
    stream: Stream | None = None


class LogPrinter:
    """Lines to bytes, over the life of one answer. `done`: the byte limit is reached."""

    def __init__(self, query: LogQuery) -> None:
        self._query = query
        self._since = int(query.since * 1e9) if query.since is not None else 0
        self._left = query.limit_bytes
        self._at_line_start = True

    @property
    def done(self) -> bool:
        return self._left == 0

    def bytes_of(self, lines: Iterable[LogLine]) -> Iterator[bytes]:
        for line in lines:
            if self.done:
                return
            if line.nanoseconds >= self._since:
                yield self._limited(self._printed(line))

    def _printed(self, line: LogLine) -> bytes:
        stamp = nanoseconds_text(line.nanoseconds).encode() + b" " if self._at_line_start else b""
        self._at_line_start = line.whole
        return (stamp if self._query.timestamps else b"") + line.text + (b"\n" if line.whole else b"")

    def _limited(self, content: bytes) -> bytes:
        if self._left is None:
            return content
        content = content[: self._left]
        self._left -= len(content)
        return content


def wanted(lines: Iterable[LogLine], query: LogQuery) -> Iterable[LogLine]:
    """Those of the right stream; of what is there already, the last `tail_lines`."""
    lines = (line for line in lines if query.stream in {None, line.stream})
    return lines if query.tail_lines is None else _tail(lines, query.tail_lines)


def _tail(lines: Iterable[LogLine], count: int) -> Iterable[LogLine]:
    """The last `count` lines; the parts of one line are one line."""
    kept: deque[list[LogLine]] = deque(maxlen=count)
    ended = True
    for line in lines:
        if ended:
            kept.append([])
        if kept:
            kept[-1].append(line)
        ended = line.whole
    return (part for parts in kept for part in parts)


def nanoseconds_text(nanoseconds: int) -> str:
    """RFC 3339 in UTC with nine digits."""
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


_CRI_LINE = re.compile(
    rb"(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d+))?(?P<zone>Z|[+-]\d\d:\d\d)"
    rb" (?P<stream>stdout|stderr) (?P<tag>[PF])[^ ]* ?(?P<text>.*)",
    re.DOTALL,
)


def parsed(line: bytes) -> LogLine | None:
    """A line of a log file in the format of the Container Runtime Interface; None for anything else."""
    match = _CRI_LINE.fullmatch(line)
    if match is None:
        return None
    second = datetime.fromisoformat((match["second"] + match["zone"]).decode())
    fraction = int((match["fraction"] or b"").ljust(9, b"0")[:9])
    stream: Stream = "stdout" if match["stream"] == b"stdout" else "stderr"
    return LogLine(int(second.timestamp()) * 10**9 + fraction, stream, match["tag"] == b"F", match["text"])


# Reads the log file of a container while it grows. conmon writes it in the format of the Container Runtime Interface;
# when it has reached its limit, conmon puts an empty one in its place. Who follows reads the old one to its end first.

#: How often one who follows looks for more.
FOLLOW_SECONDS = 0.2
#: Bytes of a log that are read at once.
PORTION = 256 * 1024


def read_log(path: Path, query: LogQuery, *, running: Callable[[], bool], stop: threading.Event) -> Iterator[bytes]:
    """The pieces of `query`. running: whether more may come. A file that is not there is an empty one."""
    with _Reader(path) as reader:
        printer = LogPrinter(query)
        last_look = not (query.follow and running())
        yield from printer.bytes_of(wanted(reader.lines(), query))
        while not (last_look or printer.done or stop.wait(FOLLOW_SECONDS)):
            last_look = not running()  # asked first: what was written before the end is read below
            yield from printer.bytes_of(line for line in reader.lines() if query.stream in {None, line.stream})


class _Reader(ExitStack):
    """Reads on where it stopped; a line that is not finished yet is left for the next time."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""

    def lines(self) -> Iterator[LogLine]:
        while True:
            yield from self._lines_of_file()
            if not self._open_successor():
                return

    def _lines_of_file(self) -> Iterator[LogLine]:
        if self._file is None:
            return
        if os.fstat(self._file.fileno()).st_size < self._file.tell():  # emptied in place
            self._file.seek(0)
            self._rest = b""
        while portion := self._file.read(PORTION):
            *whole, self._rest = (self._rest + portion).split(b"\n")
            for line in whole:
                if (found := parsed(line)) is not None:
                    yield found

    def _open_successor(self) -> bool:
        """Whether there is a file at the path that was not read yet."""
        try:
            there = self._path.stat()
            if self._file is not None and os.path.samestat(there, os.fstat(self._file.fileno())):
                return False
            self.close()
            self._file, self._rest = self.enter_context(self._path.open("rb")), b""
        except FileNotFoundError:
            return False
        return True
