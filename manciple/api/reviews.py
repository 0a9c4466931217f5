"""Questions about oneself: who am I (`kubectl auth whoami`), may I (`kubectl auth can-i`); and about a token.

The questions are kinds that are answered and never stored. Whoever is known may do everything for now, and the answers
say so; they ask `allowed`, the one place where that is decided.

A TokenReview is for servers that were shown a bearer token and ask whose it is. The agents of nodes ask so, and nobody
but nodes and administrators may: whoever may ask can try tokens.
Source: kubernetes pkg/registry/authentication/tokenreview/storage.go.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from manciple.access.authentication import chain
from manciple.access.authentication.chain import API_AUDIENCES
from manciple.api.requests import virtual_kind
from manciple.wire.base import Value
from manciple.wire.errors import BadRequest, Forbidden, Unauthorized
from manciple.wire.identity import MASTERS, NODES, Identity
from manciple.wire.registry import Kind
from manciple.wire.reviews import (
    NonResourceAttributes,
    NonResourceRule,
    ResourceAttributes,
    ResourceRule,
    SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec,
    SelfSubjectReview,
    SelfSubjectReviewStatus,
    SelfSubjectRulesReview,
    SubjectAccessReviewStatus,
    SubjectRulesReviewStatus,
    TokenReview,
    TokenReviewSpec,
    TokenReviewStatus,
    UserInfo,
)

#: (group, version, plural) -> the kind asked with
REVIEWS: dict[tuple[str, str, str], Kind] = {
    (kind.group, kind.version, kind.plural): kind
    for kind in (
        virtual_kind(SelfSubjectReview, group="authentication.k8s.io"),
        virtual_kind(TokenReview, group="authentication.k8s.io"),
        virtual_kind(SelfSubjectAccessReview, group="authorization.k8s.io"),
        virtual_kind(SelfSubjectRulesReview, group="authorization.k8s.io"),
    )
}


def allowed(identity: Identity, wanted: ResourceAttributes | NonResourceAttributes) -> bool:  # noqa: ARG001
    """Whether `identity` may do that: whoever showed a token may."""
    return bool(identity.name)


def answer(review: Any, identity: Identity) -> Any:
    """The review with its status filled in. Raises: Forbidden, BadRequest."""
    match review:
        case TokenReview(spec=spec):
            status: Value = review_token(spec, identity)
        case SelfSubjectReview():
            status = SelfSubjectReviewStatus(user_info=UserInfo.of(identity))
        case SelfSubjectAccessReview(spec=spec):
            status = _access(spec, identity)
        case _:
            status = _rules(identity)
    return structs.replace(review, status=status)


def _access(spec: SelfSubjectAccessReviewSpec, identity: Identity) -> SubjectAccessReviewStatus:
    wanted = spec.resource_attributes or spec.non_resource_attributes or ResourceAttributes()
    return SubjectAccessReviewStatus(allowed=allowed(identity, wanted))


def _rules(identity: Identity) -> SubjectRulesReviewStatus:
    if not allowed(identity, ResourceAttributes(verb="*", group="*", resource="*")):
        return SubjectRulesReviewStatus()
    return SubjectRulesReviewStatus(
        resource_rules=(ResourceRule(verbs=("*",), api_groups=("*",), resources=("*",)),),
        non_resource_rules=(NonResourceRule(verbs=("*",), non_resource_urls=("*",)),),
    )


# Tokens ---------------------------------------------------------------------------------------------------------------


def review_token(spec: TokenReviewSpec, asker: Identity) -> TokenReviewStatus:
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
    try:
        found = chain.identify_token(spec.token, audiences=spec.audiences or API_AUDIENCES)
    except Unauthorized as error:
        return TokenReviewStatus(error=error.message)
    if found is None:
        return TokenReviewStatus(error="invalid bearer token")
    user = UserInfo.of(found.identity)
    return TokenReviewStatus(authenticated=True, user=user, audiences=found.audiences)
