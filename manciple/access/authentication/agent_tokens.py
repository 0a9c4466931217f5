"""The tokens with which this API server calls the agents of nodes.

They are signed for one node and good for a minute. Every process of an installation has the same signing key, so any of
them can tell the agent (by TokenReview) that another one's token is good. Nothing is stored, and a token opens nothing
but the agent of the node that it names, with the certificate that it was shown behind: whoever got it in the agent's
place cannot use it.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.core import signing

from manciple.access.authentication.chain import Authenticated
from manciple.wire.errors import Unauthorized
from manciple.wire.identity import AUTHENTICATED, Identity

#: Seconds for which a token is good, and may be remembered as good.
NODE_LIFETIME = 60
#: In whose name the API server comes.
API_SERVER = Identity("system:kube-apiserver", (AUTHENTICATED,))

_SALT = "manciple.api.tokens"
#: What signed values have between their parts.
_SEPARATOR = ":"


class AgentTokens:
    """The authenticator of these tokens: good for the audience that an agent asks under, and never for the API."""

    def authenticate(self, token: str, audiences: Sequence[str], address: str) -> Authenticated | None:  # noqa: ARG002
        good_for = audience(token)
        if good_for is None:
            return None
        if good_for not in audiences:
            wanted = " ".join(audiences)
            raise Unauthorized(f"token audiences [{good_for}] is invalid for the target audiences [{wanted}]")
        return Authenticated(API_SERVER, (good_for,))

    def remembered(self, token: str) -> Identity | None:  # noqa: ARG002 - of no use at the API
        return None


def audience_of(node: str, *, certificate: str) -> str:
    """The name under which the agent of `node` asks about tokens. certificate: the SHA-256 of its own."""
    return f"system:node:{node}:{certificate}"


def issue_for_node(node: str, *, certificate: str) -> str:
    """A token to show to the agent of `node` after it has shown `certificate` (its SHA-256)."""
    return signing.dumps(audience_of(node, certificate=certificate), salt=_SALT)


def audience(token: str) -> str | None:
    """For whom a token of ours is good; None for a token that is none, was changed, or is too old."""
    if _SEPARATOR not in token:
        return None  # of another kind; asking the signature costs more than all else that a request pays for its token
    try:
        found: object = signing.loads(token, salt=_SALT, max_age=NODE_LIFETIME)
    except signing.BadSignature:
        return None
    return found if isinstance(found, str) else None
