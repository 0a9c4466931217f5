"""kubectl as a user types it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import warnings
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api_client import Api
from tests.e2e.processes import PATIENCE

OLDEST = (1, 27)
#: It lives for a blink: its garbage need not be collected.
LEAN = {"GOGC": "off"}


@cache
def find_kubectl() -> str:
    """The kubectl to use. Without one: a failure in CI, elsewhere a loud skip."""
    path = os.environ.get("MANCIPLE_KUBECTL") or shutil.which("kubectl")
    if path:
        told = subprocess.run([path, "version", "--client"], capture_output=True, text=True, check=False).stdout
        version = re.search(r"v(\d+)\.(\d+)", told)
        if version and (int(version[1]), int(version[2])) >= OLDEST:
            return path
    missing = "kubectl 1.27 or newer was not found (PATH, MANCIPLE_KUBECTL): the flow a user sees is NOT tested"
    if os.environ.get("CI"):
        pytest.fail(missing)
    warnings.warn(missing, stacklevel=2)
    pytest.skip(missing)


@dataclass(frozen=True)
class Kubectl:
    """kubectl with one kubeconfig."""

    kubeconfig: Path
    program: str

    def __call__(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        patience = [f"--timeout={PATIENCE:.0f}s"] if arguments[0] in ("wait", "delete") else []
        done = subprocess.run(
            [self.program, *arguments, *patience],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.kubeconfig.parent), **LEAN},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )
        if check and done.returncode:
            what_runs = "" if arguments[0] not in ("wait", "rollout") else self("get", "pods,events", "-A", check=False)
            raise AssertionError(f"kubectl {' '.join(arguments)}\n{done.stdout}{done.stderr}{what_runs}")
        return done.stdout + ("" if check else done.stderr)

    @cached_property
    def api(self) -> Api:
        """For what is looked at again and again: kubectl asks each time what the API has before it asks for it."""
        return Api(self.kubeconfig)

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))
