"""Where the conformance data lies: MANCIPLE_CONFORMANCE, else beside the repository."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(os.environ.get("MANCIPLE_CONFORMANCE", Path(__file__).resolve().parents[2] / "shared" / "conformance"))

#: Marks tests that read the data; they are skipped only where the whole folder does not exist.
needs_conformance = pytest.mark.skipif(not ROOT.is_dir(), reason=f"no conformance data at {ROOT}")


@cache
def objects() -> dict[str, Any]:
    """One object of every kind and version with every field set: {file name without .json: document}."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "objects").glob("*.json"))}
