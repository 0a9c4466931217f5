"""Reads the log file of a container while it grows.

conmon writes it in the format of the Container Runtime Interface, and empties it when it has reached its limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from nodeagent.runtimes.logs import LogLine, LogPrinter, LogQuery, parsed, wanted

#: How often one who follows looks for more.
FOLLOW_SECONDS = 0.2


def read_log(path: Path, query: LogQuery, *, running: Callable[[], bool], stop: threading.Event) -> Iterator[bytes]:
    """The pieces of `query`. running: whether more may come. A file that is not there is an empty one."""
    reader, printer = _Reader(path), LogPrinter(query)
    last_look = not (query.follow and running())
    yield from printer.bytes_of(wanted(reader.lines(), query))
    while not (last_look or printer.done or stop.wait(FOLLOW_SECONDS)):
        last_look = not running()  # asked first: what was written before the end is read below
        yield from printer.bytes_of(line for line in reader.lines() if query.stream in {None, line.stream})


class _Reader:
    """Reads on where it stopped; a line that is not finished yet is left for the next time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def lines(self) -> Iterator[LogLine]:
        try:
            if self._path.stat().st_size < self._position:
                self._position = 0
            with self._path.open("rb") as stream:
                stream.seek(self._position)
                content = stream.read()
        except FileNotFoundError:
            return
        whole = content.rpartition(b"\n")[0]
        self._position += len(whole) + 1 if whole or content.startswith(b"\n") else 0
        for line in whole.split(b"\n"):
            if (found := parsed(line)) is not None:
                yield found
