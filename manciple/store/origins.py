"""Who stands behind an entry of the log: the identity that wrote it and, where there was one, its request.

    {"user": {"username": "alice", "groups": [...]}, "verb": "patch", "auditID": "...", "sourceIPs": ["10.0.0.7"], ...}

The note is written with the entry, in its transaction, so no write is without one; a controller's has the name alone.
Its fields are those of `audit.k8s.io/v1 Event`, of which it holds what the entry itself does not tell. Whoever answers
a request makes its `Origin` and hands it to `hooks.collecting`, by which it reaches the writer, in whatever thread that
works.

Nothing of a request's body is ever in a note, and what is in it has a bounded length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice

import msgspec
from django.db import connection
from msgspec import structs

from manciple.wire.base import Value
from manciple.wire.identity import Identity

#: What is kept of a text that a client chose, in characters, of a list of such texts, and of an identity's groups and
#: extra together: a note is kept for months.
LONGEST_TEXT, LONGEST_LIST, LONGEST_ACTOR = 512, 64, 4096

_encoder = msgspec.json.Encoder()
_encode = _encoder.encode


class Actor(Value):
    """An identity as the trail keeps it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class Note(Value):
    """What is known of a request beside what it did. `user`: who showed the credential."""

    user: Actor = Actor()
    impersonated_user: Actor | None = None
    verb: str = ""
    subresource: str = ""
    audit_id: str = msgspec.field(default="", name="auditID")
    source_ips: tuple[str, ...] = msgspec.field(default=(), name="sourceIPs")
    user_agent: str = ""
    request_uri: str = msgspec.field(default="", name="requestURI")
    request_received_timestamp: str = ""
    annotations: dict[str, str] = {}


@dataclass(slots=True, kw_only=True)
class Origin:
    """One request, filled in as more of it is known.

    resource: the kind of object that the request is about; "" for a page, which may write any. verb, subresource: what
    it does to such objects. impersonator: who made it in the name of `identity`; None where that is the same. wrote: an
    entry of the log has its note. closed: its outcome is in the trail. traceparent: of the client's own trace
    (W3C Trace Context), if it has one.
    """

    audit_id: str
    received: datetime
    method: str = ""
    uri: str = ""
    addresses: tuple[str, ...] = ()
    agent: str = ""
    traceparent: str = ""
    verb: str = ""
    resource: str = ""
    subresource: str = ""
    identity: Identity | None = None
    impersonator: Identity | None = None
    dry_run: bool = False
    wrote: bool = False
    closed: bool = False
    annotations: dict[str, str] = field(default_factory=dict)

    def asked_by(self, identity: Identity, *, acting_as: Identity | None = None) -> None:
        """Note whose request it is, and in whose name it is made."""
        if acting_as is None or acting_as is identity:
            self.identity, self.impersonator = identity, None
        else:
            self.identity, self.impersonator = acting_as, identity

    @property
    def chosen_bytes(self) -> int:
        """How many bytes of the note the client chose."""
        return min(len(self.agent), LONGEST_TEXT) + min(len(self.uri), LONGEST_TEXT)

    def note(self) -> Note:
        acting, asking = self.identity or Identity(""), self.impersonator
        return Note(
            user=_actor(asking or acting),
            impersonated_user=_actor(acting) if asking else None,
            verb=self.verb,
            subresource=self.subresource,
            audit_id=self.audit_id,
            source_ips=tuple(clean(one) for one in self.addresses[:LONGEST_LIST]),
            user_agent=clean(self.agent),
            request_uri=clean(self.uri),
            request_received_timestamp=moment(self.received),
            annotations={clean(key): clean(text) for key, text in islice(self.annotations.items(), LONGEST_LIST)},
        )


def noted(origin: Origin | None, identity: Identity, resource: str) -> str:
    """The note of an entry of this resource that `identity` writes, as JSON.

    What a request sets off in another's name (a controller's work that is done at once) is that other's doing. The verb
    of a request says nothing about objects of another kind: their note has none, and the log's entry says what was done
    to them.
    """
    if origin is None:
        return _of_identity(identity.name)
    if origin.identity is None:
        origin.identity = identity
    if origin.identity.name != identity.name:
        return dumped(Note(user=Actor(username=clean(identity.name)), audit_id=origin.audit_id))
    origin.wrote = True
    note = origin.note()
    return dumped(note if origin.resource == resource else structs.replace(note, verb="", subresource=""))


def dumped(note: Note) -> str:
    return _encode(note).decode()


def moment(at: datetime) -> str:
    """As metav1.MicroTime."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


@lru_cache(maxsize=1024)
def _of_identity(name: str) -> str:
    return dumped(Note(user=Actor(username=clean(name))))


@lru_cache(maxsize=1024)
def _actor(identity: Identity) -> Actor:
    groups, left = _fitting(identity.groups, LONGEST_ACTOR)
    extra: dict[str, tuple[str, ...]] = {}
    for key, values in identity.extra[:LONGEST_LIST]:
        if left > len(key):
            extra[clean(key)], left = _fitting(values, left - len(key))
    return Actor(username=clean(identity.name), uid=clean(identity.uid), groups=groups, extra=extra)


def _fitting(texts: Sequence[str], left: int) -> tuple[tuple[str, ...], int]:
    """The first of `texts` that fit into `left` characters, and what is left then."""
    kept = []
    for text in map(clean, texts[:LONGEST_LIST]):
        if len(text) > left:
            break
        kept.append(text)
        left -= len(text)
    return tuple(kept), left


def clean(text: str, length: int = LONGEST_TEXT) -> str:
    """`text` as every database takes it (no NUL, no half of a surrogate pair), cut to `length` characters."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if not text.isascii():
        text = text.encode(errors="replace").decode()
    return text if len(text) <= length else text[: length - 1] + "…"


_decoder = msgspec.json.Decoder(Note)


def author_of(note: str) -> Actor:
    """In whose name an entry with this note was written; nobody for "" (entries from before there were notes)."""
    if not note:
        return Actor()
    found = _decoder.decode(note)
    return found.impersonated_user or found.user


# Reading --------------------------------------------------------------------------------------------------------------


def written_between(columns: str, *, after: int, upto: int, unless: str) -> tuple[str, list[object]]:
    """A SELECT of `columns` of the log's entries that have a note, oldest first, and its parameters.

    The entry is `e`; what its note says is read with `said`. unless: SQL, of entries that are left out.
    """
    note = (
        " CROSS JOIN LATERAL (SELECT NULLIF(e.actor, '')::jsonb AS said) n" if connection.vendor == "postgresql" else ""
    )
    statement = (
        f"SELECT {columns} FROM store_event e{note} "  # noqa: S608 - constants only
        f"WHERE e.revision > %s AND e.revision <= %s AND e.actor <> '' AND NOT ({unless}) "
        "ORDER BY e.revision"
    )
    return statement, [after, upto]


#: SQL: whether the entry began a deletion that finalizers or grace hold up.
BEGINS_DELETION = (
    "e.deleting AND EXISTS (SELECT 1 FROM store_event p WHERE p.revision = e.previous_revision AND NOT p.deleting)"
)


def said(*path: str) -> str:
    """SQL: the text at this path of an entry's note; NULL where it says nothing of it."""
    if connection.vendor == "postgresql":
        return f"n.said #>> '{{{','.join(path)}}}'"
    return f"json_extract(NULLIF(e.actor, ''), '$.{'.'.join(path)}')"


def goes_on() -> str:
    """SQL: whether the entry changes what the same user wrote before, as far as the log still has that."""
    if connection.vendor == "postgresql":
        before = "NULLIF(p.actor, '')::jsonb #>> '{user,username}'"
    else:
        before = "json_extract(NULLIF(p.actor, ''), '$.user.username')"
    return (
        "EXISTS (SELECT 1 FROM store_event p WHERE p.revision = e.previous_revision "  # noqa: S608 - constants only
        f"AND {before} = {said('user', 'username')})"
    )
