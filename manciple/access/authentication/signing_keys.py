"""The keys that sign tokens of service accounts, one set for all processes of an installation.

They are in the database, encrypted (`manciple.store.sealing`). The newest signs, all verify. The first is made when
somebody needs it; `manage.py signing_keys` shows, adds and removes. A process knows what it has read for `KNOWN`
seconds and reads again when it meets a key that it does not know: a new one is good at once, and what a removed one has
signed ends everywhere within that time.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone
from joserfc.jwk import ECKey

from manciple.access.models import SigningKey
from manciple.per_process import PerProcess
from manciple.store import resealing, sealing

ALGORITHM, CURVE = "ES256", "P-256"
#: Seconds for which a process relies on what it read.
KNOWN = 10.0


@dataclass(slots=True)
class _Ring:
    """The keys as they were read, the newest last. read: when, by the monotonic clock."""

    keys: dict[str, ECKey] = field(default_factory=dict)
    read: float = float("-inf")


_ring = PerProcess(_Ring)
_guard = threading.Lock()


def register() -> None:
    resealing.also("signing keys", reseal)


def signing() -> tuple[str, ECKey]:
    """The name of the newest key and the key itself; made where there is none."""
    keys = _keys()
    if not keys:
        add()
        keys = _keys()
    return next(reversed(keys.items()))


def verifying(name: str) -> ECKey | None:
    """The key of that name; None for one that is unknown or was removed."""
    return _keys().get(name) or _keys(fresh=True).get(name)


def public() -> list[dict[str, Any]]:
    """All of them as JSON Web Keys, without what is private; the newest first."""
    return [
        {**key.as_dict(private=False), "use": "sig", "alg": ALGORITHM, "kid": name}
        for name, key in reversed(_keys().items())
    ]


def add() -> str:
    """Make a key that signs from now on; returns its name."""
    key = ECKey.generate_key(CURVE)
    while not (name := key.thumbprint())[0].isalnum():  # a name that begins with a hyphen is an option to commands
        key = ECKey.generate_key(CURVE)
    sealed = sealing.sealed(key.as_pem(private=True).decode(), _place(name))
    SigningKey.objects.create(name=name, created=timezone.now(), sealed=sealed)
    _ring.reset()
    return name


def remove(name: str) -> bool:
    """End a key and all tokens that it has signed; False where there is none of that name."""
    removed, _ = SigningKey.objects.filter(name=name).delete()
    _ring.reset()
    return bool(removed)


def listed() -> list[tuple[str, datetime]]:
    """(name, when it was made) of each key, the newest last."""
    return list(SigningKey.objects.order_by("created", "name").values_list("name", "created"))


def reseal() -> int:
    """Encrypt them with the newest key of the installation; returns how many were not."""
    outdated = [row for row in SigningKey.objects.all() if not sealing.is_current(row.sealed)]
    for row in outdated:
        row.sealed = sealing.sealed(sealing.opened(row.sealed, _place(row.name)), _place(row.name))
        row.save(update_fields=["sealed"])
    return len(outdated)


def _keys(*, fresh: bool = False) -> dict[str, ECKey]:
    with _guard:
        asked, ring = time.monotonic(), _ring.value
        if fresh or asked - ring.read >= KNOWN:
            rows = SigningKey.objects.order_by("created", "name").values_list("name", "sealed")
            ring.keys = {name: ring.keys.get(name) or _opened(name, sealed) for name, sealed in rows}
            ring.read = asked
        return ring.keys


def _opened(name: str, sealed: str) -> ECKey:
    return ECKey.import_key(sealing.opened(sealed, _place(name)))


def _place(name: str) -> str:
    return f"signing key {name}"
