"""A signal stops the process wherever it is at."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

#: The main thread holds the event's own lock when the signal comes, as it does for a moment in each wait.
PROGRAM = """
import signal
from nodeagent.options import stop_on_signals
stop = stop_on_signals()
signal.signal(signal.SIGUSR1, lambda *_: None)
with stop._cond:
    signal.raise_signal(signal.SIGUSR1)  # of no meaning here
    signal.raise_signal(signal.{name})
    held = stop._flag
assert not held
assert stop.wait(20)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_the_event_is_locked_is_not_the_end_of_all_stopping(number: signal.Signals) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(name=number.name)], timeout=60, check=False)

    assert done.returncode == 0
