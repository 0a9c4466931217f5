"""Whether the present encryption keys open what the database holds: checked before a process serves or works."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from manciple.access.models import SigningKey
from manciple.processes.home import RESTORE
from manciple.refusals import StartRefused
from manciple.store import sealing, sql

_SECRETS = (
    "SELECT o.namespace, o.name, e.revision, e.document FROM store_storedobject o "
    "JOIN store_event e ON e.revision = o.event_id WHERE o.resource = 'secrets' AND e.document LIKE %s "
    "ORDER BY o.event_id DESC LIMIT %s"
)
#: Of Secrets, the newest; enough to notice that a key is gone.
LOOKED_AT = 200
#: That are named; the others are counted.
NAMED = 3


class KeysRefused(StartRefused):
    """No present key opens what was encrypted."""


def unopened() -> Iterator[str]:
    """What no present key opens. Raises: DatabaseError, InterfaceError."""
    for name, text in SigningKey.objects.values_list("name", "sealed"):
        if not _opens(text, f"signing key {name}"):
            yield f"signing key {name}"
    for namespace, name, revision, document in sql.fetch(_SECRETS, [f"{sealing.MARK}%", LOOKED_AT]):
        if not _opens(document, revision):
            yield f"Secret {namespace}/{name}"


def check_sealed() -> None:
    """Raises: KeysRefused. A database that is away or has no tables yet is somebody else's to tell of."""
    try:
        found = list(unopened())
    except (DatabaseError, InterfaceError):
        return
    if found:
        raise KeysRefused(f"{where()}: {lacking(found)}\n{RESTORE}")


def where() -> str:
    """Where the encryption keys are kept."""
    return "MANCIPLE_ENCRYPTION_KEYS" if settings.PRODUCTION else f"{settings.HOME}/encryption-keys"


def lacking(found: list[str]) -> str:
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"none of the keys opens what the database holds of {', '.join(found[:NAMED])}{more}"


def _opens(text: str, place: int | str) -> bool:
    try:
        sealing.opened(text, place)
    except sealing.Undecipherable:
        return False
    return True
