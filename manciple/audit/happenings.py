"""What the audit trail records about one request."""

from __future__ import annotations

from dataclasses import dataclass

from manciple.store.records import Origin
from manciple.wire.identity import Identity

#: Answers from here on say no.
REFUSED = 400
_READING = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One request, and how it ended. Of what it was about as much as is known."""

    origin: Origin
    code: int
    reason: str = ""
    message: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def likeness(self) -> tuple[object, ...]:
        """Those of one sender of which this is the same are one entry."""
        origin = self.origin
        what = (origin.verb, self.resource, origin.subresource, self.namespace, self.name, origin.dry_run)
        return (name_of(origin.identity), name_of(origin.impersonator), what, self.code, self.reason)

    @property
    def wrote(self) -> bool:
        """Whether it changed something that no log of ours has: signed in, issued a token, closed an account."""
        return self.code < REFUSED and not self.origin.dry_run and self.origin.verb not in _READING

    @property
    def read(self) -> bool:
        """Whether it was given something confidential."""
        return self.code < REFUSED and self.origin.verb in _READING


def name_of(identity: Identity | None) -> str:
    return identity.name if identity else ""
