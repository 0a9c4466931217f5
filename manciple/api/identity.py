"""Who asks: the answer of authentication, and the argument of every rule that depends on the asker."""

from __future__ import annotations

from dataclasses import dataclass

#: Every identity that showed a valid token belongs to this group.
AUTHENTICATED = "system:authenticated"
#: Members may do everything.
MASTERS = "system:masters"
#: The agents of nodes, each under the name "system:node:NAME".
NODES = "system:nodes"


@dataclass(frozen=True, slots=True)
class Identity:
    """A name ("admin", "system:node:n1") and the groups it belongs to ("system:masters", "system:authenticated")."""

    name: str
    groups: tuple[str, ...] = ()

    @property
    def is_authenticated(self) -> bool:
        """What DRF asks of a user; an identity only exists once a token was recognised."""
        return True
