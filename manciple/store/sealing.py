"""Documents of confidential kinds (`Kind.confidential`) are encrypted in the database, and nowhere else.

The log holds them sealed, the newest states and the past ones alike; `sql`, `event_log` and `history` open them as they
read rows. Everything above reads and writes plain documents, and a document that is not confidential costs one look at
its first character. Labels and selectable fields stand beside the document, unencrypted, as in its key.

A sealed document reads `sealed:KEY:DATA`: KEY tells which of the installation's keys it needs, DATA is base64 of a salt
and what AES-256-GCM made of the text under a key derived from that salt, so that no key is ever used twice. Its
place (the revision) is authenticated with it: a document cannot be moved to another row.

The first of `ENCRYPTION_KEYS` seals, all of them open. Rotation: put a new key in front, restart every process, run
`manage.py reseal`, take the old one away.
"""

from __future__ import annotations

import base64
import hashlib
import os
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

#: How a sealed document begins; a plain one begins with a brace.
MARK = "sealed:"
_SALT_BYTES, _NONCE = 32, bytes(12)
#: Of what a derived key is for.
_PURPOSE = b"manciple document "


class Undecipherable(Exception):
    """A sealed text that none of the keys opens, or that is not what was sealed.

    place: which text it is; of a document the revision.
    """

    def __init__(self, message: str, place: int | str) -> None:
        super().__init__(message)
        self.place = place


def sealed(text: str, place: int | str) -> str:
    """What the database holds of a confidential text. place: which text it is; a document is that of its revision.

    Raises: ImproperlyConfigured without a key.
    """
    keys = _keys(tuple(settings.ENCRYPTION_KEYS))
    if not keys:
        raise ImproperlyConfigured(
            "there is no key to encrypt with: set MANCIPLE_ENCRYPTION_KEYS (openssl rand -base64 48), the same for all "
            "processes; `manage.py up` makes one in its home"
        )
    name, key = next(iter(keys.items()))
    salt = os.urandom(_SALT_BYTES)
    data = salt + AESGCM(_derived(key, salt)).encrypt(_NONCE, text.encode(), str(place).encode())
    return f"{MARK}{name}:{base64.b64encode(data).decode()}"


def opened(text: str, place: int | str) -> str:
    """What was sealed for that place. Raises: Undecipherable."""
    damaged = f"what the database holds at {place} is not what was encrypted for it"
    try:
        _, name, encoded = text.split(":")
        data = base64.b64decode(encoded)
    except ValueError:
        raise Undecipherable(damaged, place) from None
    key = _keys(tuple(settings.ENCRYPTION_KEYS)).get(name)
    if key is None:
        raise Undecipherable(
            f"what the database holds at {place} is encrypted with key {name}, which MANCIPLE_ENCRYPTION_KEYS lacks",
            place,
        )
    salt = data[:_SALT_BYTES]
    try:
        return AESGCM(_derived(key, salt)).decrypt(_NONCE, data[_SALT_BYTES:], str(place).encode()).decode()
    except InvalidTag:
        raise Undecipherable(damaged, place) from None


def is_current(text: str) -> bool:
    """Whether a confidential text is sealed, and with the newest key."""
    newest = next(iter(_keys(tuple(settings.ENCRYPTION_KEYS))), "")
    return text.startswith(f"{MARK}{newest}:")


@lru_cache(maxsize=4)
def _keys(given: tuple[str, ...]) -> dict[str, bytes]:
    """By their names, the newest first."""
    keys = [hashlib.sha256(text.encode()).digest() for text in given]
    return {hashlib.sha256(b"name " + key).hexdigest()[:8]: key for key in keys}


def _derived(key: bytes, salt: bytes) -> bytes:
    return HKDFExpand(algorithm=SHA256(), length=32, info=_PURPOSE + salt).derive(key)
