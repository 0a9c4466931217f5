"""What keeps a command from answering, in words for whoever typed it. Standard library only."""

from __future__ import annotations


class RemoteFailure(Exception):
    """code: of the server's answer; 0 where there was none. retry_after: seconds, where the server says it is busy.
    unknown: what was asked for may have been done.
    """

    def __init__(self, message: str, *, code: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.code, self.retry_after, self.unknown = code, retry_after, False
