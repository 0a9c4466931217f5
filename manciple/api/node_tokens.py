"""The tokens with which this API server calls the agents of nodes: signed, for one node, good for a minute.

Every process of an installation has the same signing key, so any of them can tell the agent (by TokenReview) that
another one's token is good. Nothing is stored, and a token opens nothing but the agent of the node that it names.
"""

from __future__ import annotations

from django.core import signing

from manciple.wire.identity import AUTHENTICATED, Identity

#: Seconds for which a token is good, and may be remembered as good.
LIFETIME = 60
#: In whose name the API server comes.
API_SERVER = Identity("system:kube-apiserver", (AUTHENTICATED,))

_SALT = "manciple.api.node_tokens"


def audience_of(node: str) -> str:
    """The name under which the agent of `node` asks about tokens."""
    return f"system:node:{node}"


def issue(node: str) -> str:
    """A token to show to the agent of `node`."""
    return signing.dumps(audience_of(node), salt=_SALT)


def audience(token: str) -> str | None:
    """For whom a token of ours is good; None for a token that is none, was changed, or is too old."""
    try:
        found: object = signing.loads(token, salt=_SALT, max_age=LIFETIME)
    except signing.BadSignature:
        return None
    return found if isinstance(found, str) else None
