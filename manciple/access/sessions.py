"""The session engine of the pages: Django's sessions in the database, each stored under a digest of its key.

The cookie holds the key, the table only its digest. A copy of the database (a backup, a replica, a readable file) does
not sign anybody in.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.contrib.sessions.backends import db
from django.contrib.sessions.models import Session
from django.utils import timezone

#: Characters of Django's column. 160 bits of SHA-256: a session key has as many.
_LENGTH = 40


def stored_key(key: str) -> str:
    """What the database holds in place of a session's key."""
    return hashlib.sha256(key.encode()).hexdigest()[:_LENGTH]


class SessionStore(db.SessionStore):
    """See the module's docstring. `session_key` is the cookie's, as everywhere in Django."""

    def _get_session_from_db(self) -> Session | None:
        found = Session.objects.filter(session_key=stored_key(self.session_key or ""), expire_date__gt=timezone.now())
        row = found.first()
        if row is None:
            self._session_key = None
        return row

    async def _aget_session_from_db(self) -> Session | None:
        found = Session.objects.filter(session_key=stored_key(self.session_key or ""), expire_date__gt=timezone.now())
        row = await found.afirst()
        if row is None:
            self._session_key = None
        return row

    def exists(self, session_key: str) -> bool:
        return super().exists(stored_key(session_key))

    async def aexists(self, session_key: str) -> bool:
        return await super().aexists(stored_key(session_key))

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        row = super().create_model_instance(data)
        row.session_key = stored_key(row.session_key)
        return row

    async def acreate_model_instance(self, data: dict[str, Any]) -> Any:
        row = await super().acreate_model_instance(data)
        row.session_key = stored_key(row.session_key)
        return row

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            super().delete(stored_key(key))

    async def adelete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            await super().adelete(stored_key(key))
