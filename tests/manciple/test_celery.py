"""What units of earlier versions start still starts: beat, and workers `--with-beat`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from celery.bin.celery import celery

from manciple.celery import app
from manciple.processes.management.commands.serve import Command
from tests.e2e.processes import ROOT


@pytest.mark.sample(1)
@pytest.mark.parametrize("command", [["-m", "manciple", "beat"], ["-m", "celery", "-A", "manciple", "beat"]])
def test_beat_says_that_it_has_nothing_to_do_and_waits_for_its_end(tmp_path: Path, command: list[str]) -> None:
    """Units run it where it may not write."""
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o500)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MANCIPLE_HOME": str(tmp_path / "home")}
    with subprocess.Popen([sys.executable, *command], cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as beat:
        assert beat.stderr is not None
        assert any("beat has nothing to do" in line for line in beat.stderr)
        assert beat.poll() is None
        beat.send_signal(signal.SIGTERM)
        assert "has nothing to do" not in beat.stderr.read()
    assert beat.returncode == 0
    assert list(folder.iterdir()) == []
    assert dict(app.conf.beat_schedule) == {}


def test_a_worker_takes_the_option_with_beat() -> None:
    worker = celery.commands["worker"]
    options = [*worker.params, *app.user_options["worker"]]
    (option,) = (one for one in options if "--with-beat" in one.opts)
    assert not option.expose_value


def test_serve_takes_the_option_with_beat() -> None:
    options = Command().create_parser("manage.py", "serve").parse_args(["--with-worker", "--with-beat"])
    assert options.with_worker
