"""Reads the recorded answers of Kubernetes: tests/conformance_data, or the folder that MANCIPLE_CONFORMANCE names."""

from __future__ import annotations

import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(os.environ.get("MANCIPLE_CONFORMANCE", Path(__file__).parent / "conformance_data"))


def read(name: str) -> str:
    """A file's text, gzipped (`name`.gz) or not. Raises: FileNotFoundError."""
    packed = ROOT / f"{name}.gz"
    return gzip.decompress(packed.read_bytes()).decode() if packed.exists() else (ROOT / name).read_text()


@cache
def objects() -> dict[str, Any]:
    """One object of every kind and version with every field set: {file name without .json: document}."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "objects").glob("*.json"))}
