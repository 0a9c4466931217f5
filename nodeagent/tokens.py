"""Bearer tokens. One in a file may be renewed: in a pod of Kubernetes kubelet does so before the token's hour is over.

Source: client-go transport/token_source.go.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

#: A token, or what gives it anew for each request.
Token = str | Callable[[], str]


class TokenFile:
    """Called, it is the token as the file has it now. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Raises: OSError; ValueError for a file without a token."""
        self._path = path
        self._last = path.read_text().strip()
        if not self._last:
            raise ValueError(f"{path} holds no token")

    def __call__(self) -> str:
        """A file that is away, or empty, leaves what it said last: it may be written just now."""
        with suppress(OSError, UnicodeDecodeError):
            self._last = self._path.read_text().strip() or self._last
        return self._last
