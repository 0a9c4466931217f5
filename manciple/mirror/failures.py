"""What keeps a command from answering, in words for whoever typed it. Standard library only."""

from __future__ import annotations


class RemoteFailure(Exception):
    """code: of the server's answer; 0 where there was none."""

    def __init__(self, message: str, *, code: int = 0) -> None:
        super().__init__(message)
        self.code = code
