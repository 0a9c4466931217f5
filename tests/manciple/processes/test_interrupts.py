"""Ctrl-C ends a process that is still importing, too."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.e2e.processes import ROOT

#: Ctrl-C while an import drops a module's lock: Python calls back there, and swallows what the callback raises.
PROGRAM = """
import runpy, signal, sys, weakref

class Lock: pass

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "{imported}":
            lock = Lock()
            reference = weakref.ref(lock, lambda _: signal.raise_signal(signal.SIGINT))
            del lock

sys.meta_path.insert(0, Interrupted())
sys.argv = {arguments!r}
runpy.{run}
"""

STARTS = {
    "the agent": ("nodeagent.agent", ["nodeagent"], 'run_module("nodeagent", run_name="__main__")'),
    "a served driver": ("nodeagent.serving.plugin", ["serve"], 'run_module("nodeagent.serve", run_name="__main__")'),
    "the system": ("django.core.management", ["manage.py", "up", "--help"], 'run_path("manage.py", {}, "__main__")'),
}


@pytest.mark.parametrize("start", STARTS)
def test_ctrl_c_while_modules_are_imported_is_not_swallowed(start: str) -> None:
    imported, arguments, run = STARTS[start]
    program = PROGRAM.format(imported=imported, arguments=arguments, run=run)

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=False, timeout=60)

    assert done.returncode == -signal.SIGINT, done.stderr.decode()
