"""A bearer token in a file that somebody renews: in a pod of Kubernetes kubelet does, before the token's hour is over.

Source: client-go transport/token_source.go.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def bearer(token: str, file: Path | None) -> str | Callable[[], str]:
    """What a client sends: the token, or what the file that it came from has by then. Raises: as TokenFile."""
    return TokenFile(file) if file is not None else token


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
        try:
            self._last = self._path.read_text().strip() or self._last
        except (OSError, UnicodeDecodeError):
            return self._last
        return self._last
