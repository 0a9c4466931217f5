"""Turns SIGINT and SIGTERM into an event, from wherever the process is at.

A Python signal handler runs in the main thread between two of its steps, and that thread may just then hold the lock
inside the very event that it waits for: a handler that sets the event would wait for itself for ever. So the handler
does nothing; the signal's number goes down a pipe (written by the interpreter's own C handler), and a thread that reads
the pipe sets the event.
"""

from __future__ import annotations

import os
import signal
import threading

NUMBERS = (signal.SIGINT, signal.SIGTERM)


def stop_on_signals() -> threading.Event:
    """An event that is set when the process is told to stop. Call once, in the main thread."""
    stop = threading.Event()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in NUMBERS:
        signal.signal(number, lambda *_: None)
    threading.Thread(target=_wait, args=(reading, stop), name="signals", daemon=True).start()
    return stop


def _wait(reading: int, stop: threading.Event) -> None:
    """Other signals that Python handles come down the pipe, too."""
    while not set(NUMBERS) & set(os.read(reading, 64)):
        pass
    stop.set()
