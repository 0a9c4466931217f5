"""Whether a person may still be told what a notification says: who knows what people see is asked, just before."""

from __future__ import annotations

from collections.abc import Callable

from manciple.notifications.models import Notification

MayTell = Callable[[Notification], bool]

_asked: list[MayTell] = []


def ask(may_tell: MayTell) -> None:
    """Let `may_tell` answer for all notifications."""
    _asked[:] = [may_tell]


def may_tell(notification: Notification) -> bool:
    """False for everybody until some code has been registered by `ask`: rights are denied by default."""
    return bool(notification.person.is_active and _asked and all(answer(notification) for answer in _asked))
