"""Questions about identities and rights: who am I (`kubectl auth whoami`), may I (`kubectl auth can-i`), may they; and
whose a token is. The questions are kinds that are answered and never stored.

Who may ask about others is for the roles to say, as with everything: the servers of others, that were shown a token or
have to decide on a request, ask with TokenReview and SubjectAccessReview.
Sources: pkg/registry/authorization, pkg/registry/authentication/tokenreview and pkg/apis/authorization/validation of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from manciple.access import authorization
from manciple.access.authentication import chain
from manciple.access.authentication.chain import API_AUDIENCES
from manciple.access.authorization import ANY_FIELDS, ANY_LABELS, Attributes
from manciple.api.requests import virtual_kind
from manciple.wire.base import ApiObject, ObjectMeta, Value
from manciple.wire.errors import BadRequest, FieldError, Invalid, Unauthorized, forbidden, invalid, required
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind
from manciple.wire.reviews import (
    FieldSelectorAttributes,
    FieldSelectorRequirement,
    LocalSubjectAccessReview,
    NonResourceRule,
    ResourceAttributes,
    ResourceRule,
    SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec,
    SelfSubjectReview,
    SelfSubjectReviewStatus,
    SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
    SubjectRulesReviewStatus,
    TokenReview,
    TokenReviewSpec,
    TokenReviewStatus,
    UserInfo,
)
from manciple.wire.selectors import (
    FieldRequirement,
    FieldSelector,
    ParsedLabelSelector,
    Requirement,
    parse_field_selector,
    parse_label_selector,
)
from manciple.wire.validation import SPEC, Path

AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"

#: (group, version, plural) -> the kind asked with
REVIEWS: dict[tuple[str, str, str], Kind] = {
    (kind.group, kind.version, kind.plural): kind
    for kind in (
        virtual_kind(SelfSubjectReview, group=AUTHENTICATION),
        virtual_kind(TokenReview, group=AUTHENTICATION),
        virtual_kind(LocalSubjectAccessReview, group=AUTHORIZATION, namespaced=True),
        virtual_kind(SelfSubjectAccessReview, group=AUTHORIZATION),
        virtual_kind(SelfSubjectRulesReview, group=AUTHORIZATION),
        virtual_kind(SubjectAccessReview, group=AUTHORIZATION),
    )
}


#: Those of the floors above: the type -> what fills in the status. Whoever may create one may have the answer.
_registered: dict[type[ApiObject], Callable[[Any], ApiObject]] = {}


def register(kind: Kind, answer: Callable[[Any], ApiObject]) -> None:
    """Serve a kind that is answered and never stored. `answer` raises ApiErrors. For `AppConfig.ready()`."""
    REVIEWS[kind.group, kind.version, kind.plural] = kind
    _registered[kind.type] = answer


def answer(review: Any, identity: Identity) -> Any:
    """The review with its status filled in. Raises: BadRequest, Invalid, and what a registered one raises."""
    if other := _registered.get(type(review)):
        return other(review)
    match review:
        case TokenReview(spec=spec):
            status: Value = review_token(spec)
        case SelfSubjectReview():
            status = SelfSubjectReviewStatus(user_info=UserInfo.of(identity))
        case SelfSubjectAccessReview():
            _check(review, _spec_errors(review.spec))
            status = _access(identity, review.spec)
        case SubjectAccessReview() | LocalSubjectAccessReview():
            _check(review, [*_spec_errors(review.spec), *_subject_errors(review)])
            status = _access(_subject(review.spec), review.spec)
        case _:
            status = _rules(review.spec, identity)
            return structs.replace(review, spec=SelfSubjectRulesReviewSpec(), status=status)
    return structs.replace(review, status=status)


# May they? ------------------------------------------------------------------------------------------------------------


def _subject(spec: SubjectAccessReviewSpec) -> Identity:
    return Identity(spec.user, spec.groups, spec.uid, tuple(spec.extra.items()))


def _access(identity: Identity, spec: SelfSubjectAccessReviewSpec) -> SubjectAccessReviewStatus:
    wanted, ignored = _wanted(spec)
    decision = authorization.decide(identity, wanted)
    return SubjectAccessReviewStatus(
        allowed=decision.allowed, denied=decision.denied, reason=decision.reason, evaluation_error=", ".join(ignored)
    )


def _wanted(spec: SelfSubjectAccessReviewSpec) -> tuple[Attributes, list[str]]:
    """What is asked about, and what of the question is left out because it cannot be read."""
    other = spec.non_resource_attributes
    if other is not None:
        return Attributes(verb=other.verb, path=other.path), []
    asked = spec.resource_attributes or ResourceAttributes()
    ignored: list[str] = []
    return Attributes(
        verb=asked.verb,
        group=asked.group,
        version=asked.version,
        resource=asked.resource,
        subresource=asked.subresource,
        namespace=asked.namespace,
        name=asked.name,
        fields=_read(asked.field_selector, _fields, ANY_FIELDS, "fieldSelector", ignored),
        labels=_read(asked.label_selector, _labels, ANY_LABELS, "labelSelector", ignored),
    ), ignored


def _read(
    given: FieldSelectorAttributes | None,
    read: Callable[[FieldSelectorAttributes], Any],
    default: Any,
    name: str,
    ignored: list[str],
) -> Any:
    if given is None:
        return default
    try:
        return read(given)
    except ValueError:
        ignored.append(f"spec.resourceAttributes.{name} ignored due to parse error")
        return default


def _fields(given: FieldSelectorAttributes) -> FieldSelector:
    """What a field selector cannot say restricts nothing. Raises: ValueError."""
    if given.raw_selector:
        return parse_field_selector(given.raw_selector)
    said = (one for one in given.requirements if one.operator in ("In", "NotIn") and len(one.values) == 1)
    return FieldSelector(tuple(FieldRequirement(one.key, one.values[0], one.operator == "In") for one in said))


def _labels(given: FieldSelectorAttributes) -> ParsedLabelSelector:
    """Raises: ValueError."""
    if given.raw_selector:
        return parse_label_selector(given.raw_selector)
    known = ("In", "NotIn", "Exists", "DoesNotExist")
    said = (one for one in given.requirements if one.operator in known)
    return ParsedLabelSelector(tuple(Requirement(one.key, one.operator, one.values) for one in said))


# What is wrong with a question ----------------------------------------------------------------------------------------


_RESOURCE, _NON_RESOURCE = SPEC.child("resourceAttributes"), SPEC.child("nonResourceAttributes")


def _check(review: Any, errors: Sequence[FieldError]) -> None:
    """Raises: Invalid."""
    found = list(errors)
    meta = structs.replace(review.metadata, managed_fields=())
    if meta != ObjectMeta(namespace=meta.namespace):
        found.append(invalid("metadata", meta, "must be empty"))
    if found:
        raise Invalid.of(kind=review.kind, group=AUTHORIZATION, name="", errors=found)


def _spec_errors(spec: SelfSubjectAccessReviewSpec) -> list[FieldError]:
    resource, other = spec.resource_attributes, spec.non_resource_attributes
    if resource is not None and other is not None:
        return [invalid(_NON_RESOURCE, other, "cannot be specified in combination with resourceAttributes")]
    if resource is not None:
        return [
            *_selector_errors(resource.field_selector, _RESOURCE.child("fieldSelector")),
            *_selector_errors(resource.label_selector, _RESOURCE.child("labelSelector")),
        ]
    if other is None:
        message = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [invalid(_RESOURCE, None, message)]
    return []


def _selector_errors(given: FieldSelectorAttributes | None, path: Path) -> list[FieldError]:
    if given is None:
        return []
    found = []
    if given.raw_selector and given.requirements:
        message = "may not specified at the same time as requirements"  # upstream's words
        found.append(invalid(path.child("rawSelector"), given.raw_selector, message))
    if not given.raw_selector and not given.requirements:
        message = f"when {path} is specified, requirements or rawSelector is required"
        found.append(required(path.child("requirements"), message))
    for position, one in enumerate(given.requirements):
        found += _requirement_errors(one, path.child("requirements").at(position))
    return found


def _requirement_errors(one: FieldSelectorRequirement, path: Path) -> list[FieldError]:
    found = [] if one.key else [required(path.child("key"), "must be specified")]
    if one.operator in ("In", "NotIn") and not one.values:
        found.append(required(path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'"))
    if one.operator in ("Exists", "DoesNotExist") and one.values:
        message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        found.append(forbidden(path.child("values"), message))
    return found


def _subject_errors(review: SubjectAccessReview | LocalSubjectAccessReview) -> list[FieldError]:
    spec, found = review.spec, []
    if not spec.user and not spec.groups:
        found.append(invalid(SPEC.child("user"), spec.user, "at least one of user or group must be specified"))
    if not isinstance(review, LocalSubjectAccessReview):
        return found
    asked, other = spec.resource_attributes, spec.non_resource_attributes
    if asked is not None and asked.namespace != review.metadata.namespace:
        found.append(invalid(_RESOURCE.child("namespace"), asked.namespace, "must match metadata.namespace"))
    if other is not None:
        found.append(invalid(_NON_RESOURCE, other, "disallowed on this kind of request"))
    return found


# What may I? ----------------------------------------------------------------------------------------------------------


def _rules(spec: SelfSubjectRulesReviewSpec, identity: Identity) -> SubjectRulesReviewStatus:
    """Raises: BadRequest without a namespace."""
    if not spec.namespace:
        raise BadRequest("no namespace on request")
    held = authorization.rules_of(identity, spec.namespace)
    rules = tuple(dict.fromkeys(held.rules))
    return SubjectRulesReviewStatus(
        resource_rules=tuple(
            ResourceRule(
                verbs=rule.verbs,
                api_groups=rule.api_groups,
                resources=rule.resources,
                resource_names=rule.resource_names,
            )
            for rule in rules
            if rule.resources
        ),
        non_resource_rules=tuple(
            NonResourceRule(verbs=rule.verbs, non_resource_urls=rule.non_resource_urls)
            for rule in rules
            if rule.non_resource_urls
        ),
        incomplete=held.incomplete,
        evaluation_error=held.error,
    )


# Tokens ---------------------------------------------------------------------------------------------------------------


def review_token(spec: TokenReviewSpec) -> TokenReviewStatus:
    """Raises: BadRequest without a token."""
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
