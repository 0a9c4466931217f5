"""Questions about oneself: who am I (`kubectl auth whoami`), may I (`kubectl auth can-i`); and about a token.

The questions are kinds that are answered and never stored. Whoever is known may do everything for now, and the answers
say so; they ask `allowed`, the one place where that is decided.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import structs

from manciple.api import token_reviews
from manciple.api.bodies import virtual_kind
from manciple.wire.authentication import TokenReview, UserInfo
from manciple.wire.base import ApiObject, Value, pb
from manciple.wire.identity import Identity
from manciple.wire.machinery import (
    NonResourceAttributes,
    ResourceAttributes,
    SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
)
from manciple.wire.registry import Kind


class SelfSubjectReviewStatus(Value):
    user_info: Annotated[UserInfo, pb(1)] = UserInfo()


class SelfSubjectReview(ApiObject):
    """authentication.k8s.io/v1 SelfSubjectReview."""

    status: Annotated[SelfSubjectReviewStatus, pb(2)] = SelfSubjectReviewStatus()


class SelfSubjectRulesReviewSpec(Value):
    namespace: Annotated[str, pb(1)] = ""


class ResourceRule(Value):
    verbs: Annotated[tuple[str, ...], pb(1)] = ()
    api_groups: Annotated[tuple[str, ...], pb(2)] = ()
    resources: Annotated[tuple[str, ...], pb(3)] = ()


class NonResourceRule(Value):
    verbs: Annotated[tuple[str, ...], pb(1)] = ()
    non_resource_urls: Annotated[tuple[str, ...], pb(2)] = ()


class SubjectRulesReviewStatus(Value):
    resource_rules: Annotated[tuple[ResourceRule, ...], pb(1)] = ()
    non_resource_rules: Annotated[tuple[NonResourceRule, ...], pb(2)] = ()
    incomplete: Annotated[bool, pb(3)] = False


class SelfSubjectRulesReview(ApiObject):
    """authorization.k8s.io/v1 SelfSubjectRulesReview."""

    spec: Annotated[SelfSubjectRulesReviewSpec, pb(2)] = SelfSubjectRulesReviewSpec()
    status: Annotated[SubjectRulesReviewStatus, pb(3)] = SubjectRulesReviewStatus()


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
            status: Value = token_reviews.review(spec, identity)
        case SelfSubjectReview():
            status = SelfSubjectReviewStatus(user_info=UserInfo(username=identity.name, groups=identity.groups))
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
