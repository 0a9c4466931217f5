"""Checks the invariants of a home at the end of every test, without starting Django anew for each.

Run as a program with a home's path, it runs `manage.py check_invariants` for every line that comes in, and answers with
a line of JSON: (whether all hold, what was printed). It ends with its input.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tests.e2e.nursery import NURSERY, Child

#: Seconds that the program has to end in, on a busy machine.
PATIENCE = 60


class Checker:
    """The program, for one home at a time: tests of one home follow each other."""

    def __init__(self) -> None:
        self._home: Path | None = None
        self._program: Child | None = None
        self._asking: IO[str] | None = None

    def check(self, home: Path, env: Mapping[str, str] | None = None) -> str:
        """What was printed. env: of the processes of this home, where it is not that of the tests.

        Raises: AssertionError where an invariant is violated, or cannot be checked.
        """
        if self._program is None or self._home != home or self._program.poll() is not None:
            self._start(home, env)
        assert self._program is not None
        assert self._asking is not None
        self._asking.write("\n")
        self._asking.flush()
        said = []
        for line in self._program.stdout:
            if line.startswith(("[true, ", "[false, ")):
                holds, printed = json.loads(line)
                assert holds, printed
                return str(printed)
            said.append(line)
        raise AssertionError(f"the checker of {home} ended with {self._program.wait()}:\n{''.join(said)}")

    def end(self) -> None:
        if self._program is not None and self._asking is not None:
            self._asking.close()
            try:
                self._program.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._program.send_signal(signal.SIGKILL)
        self._program = self._asking = None

    def _start(self, home: Path, env: Mapping[str, str] | None) -> None:
        self.end()
        command = [sys.executable, "-m", "tests.e2e.checker", str(home)]
        reading, writing = os.pipe()
        self._home = home
        self._program = NURSERY.start(command, {**os.environ, **(env or {}), "MANCIPLE_HOME": str(home)}, stdin=reading)
        os.close(reading)
        self._asking = os.fdopen(writing, "w")


def main(home: str) -> None:
    """Django is loaded here only: the test process has its own settings and its own database."""
    import io

    import django
    from django.core.management import CommandError, call_command
    from django.db import connections

    os.environ["MANCIPLE_HOME"] = home
    os.environ["DJANGO_SETTINGS_MODULE"] = "manciple.settings"
    django.setup()
    for _ in sys.stdin:
        printed, holds = io.StringIO(), True
        try:
            call_command("check_invariants", stdout=printed, stderr=printed)
        except CommandError as error:
            holds = False
            printed.write(str(error))
        finally:
            connections.close_all()
        print(json.dumps((holds, printed.getvalue())), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
