"""TokenReview: a server that was shown a bearer token asks whose it is.

The agents of nodes ask so, and nobody but nodes and administrators may: whoever may ask can try tokens.
Source: kubernetes pkg/registry/authentication/tokenreview/storage.go.
"""

from __future__ import annotations

from manciple.api import node_tokens, tokens
from manciple.wire.errors import BadRequest, Forbidden
from manciple.wire.identity import MASTERS, NODES, Identity
from manciple.wire.reviews import TokenReviewSpec, TokenReviewStatus, UserInfo

#: The audience of ordinary tokens, and of a question that names none (upstream: the issuer of service accounts).
API_AUDIENCE = "https://kubernetes.default.svc"


def review(spec: TokenReviewSpec, asker: Identity) -> TokenReviewStatus:
    """Raises: Forbidden for whoever may not ask; BadRequest without a token."""
    if not {MASTERS, NODES} & set(asker.groups):
        raise Forbidden(
            f'tokenreviews.authentication.k8s.io is forbidden: User "{asker.name}" cannot create resource '
            f'"tokenreviews" in API group "authentication.k8s.io" at the cluster scope',
            details={"group": "authentication.k8s.io", "kind": "tokenreviews"},
        )
    if not spec.token:
        raise BadRequest("token is required for TokenReview in authentication")
    return _status(spec)


def _status(spec: TokenReviewSpec) -> TokenReviewStatus:
    wanted = spec.audiences or (API_AUDIENCE,)
    identity, audience = _identify(spec.token)
    if identity is None:
        return TokenReviewStatus(error="invalid bearer token")
    if audience not in wanted:
        return TokenReviewStatus(
            error=f"token audiences [{audience}] is invalid for the target audiences [{' '.join(wanted)}]"
        )
    user = UserInfo(username=identity.name, groups=identity.groups)
    return TokenReviewStatus(authenticated=True, user=user, audiences=(audience,))


def _identify(token: str) -> tuple[Identity | None, str]:
    """Whose token it is, and for whom it is good."""
    if (audience := node_tokens.audience(token)) is not None:
        return node_tokens.API_SERVER, audience
    return tokens.identify(token), API_AUDIENCE
