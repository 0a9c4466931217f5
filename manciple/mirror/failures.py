"""What keeps a command from answering, in words for whoever typed it. Standard library only."""

from __future__ import annotations


class RemoteFailure(Exception):
    """code: of the server's answer; 0 where there was none. retry_after: seconds, where the server says it is busy.
    unreachable: it could not be asked. unknown: it was asked, and may have done it.
    """

    def __init__(self, message: str, *, code: int = 0, retry_after: float = 0.0, unreachable: bool = False) -> None:
        super().__init__(message)
        self.code, self.retry_after, self.unreachable = code, retry_after, unreachable
        self.unknown = False
