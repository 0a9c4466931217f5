"""The code of docs/how-to/python.md runs as it stands, against `manage.py up`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.e2e.processes import ROOT, Up

pytestmark = pytest.mark.e2e

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "how-to" / "python.md").read_text(), re.DOTALL)


def test_the_code_of_the_page_runs_in_its_order_and_finds_its_pod_again(up: Up) -> None:
    assert len(BLOCKS) >= 5
    environment = {**os.environ, "KUBECONFIG": str(up.kubeconfig)}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(BLOCKS)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *watched, held, explained, simulated = done.stdout.splitlines()
    assert any(line.startswith("Running node-") for line in watched), done.stdout
    assert "train-" in held, done.stdout
    assert "Bound" in explained, done.stdout
    assert "next~" in simulated, done.stdout
