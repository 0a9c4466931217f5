"""Questions about who somebody is and what they may do. Answered, never stored.

Sources: k8s.io/api/authentication/v1, k8s.io/api/authorization/v1.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from manciple.wire.base import ApiObject, Value, always, pb
from manciple.wire.identity import Identity

#: Of the second half; the kinds of authentication.k8s.io stand in no OpenAPI document.
PACKAGE = "io.k8s.api.authorization.v1"

# authentication.k8s.io/v1 --------------------------------------------------------------------------------------------


class UserInfo(Value):
    """An identity: its name, the groups it belongs to, and what else its credential says.

    username: the name. uid: what tells it from others of that name. groups: the groups that it belongs to. extra: what
    else its credential says.
    """

    username: Annotated[str, pb(1)] = ""
    uid: Annotated[str, pb(2)] = ""
    groups: Annotated[tuple[str, ...], pb(3)] = ()
    extra: Annotated[dict[str, tuple[str, ...]], pb(4, encoding="strings")] = {}

    @classmethod
    def of(cls, identity: Identity) -> UserInfo:
        return cls(username=identity.name, uid=identity.uid, groups=identity.groups, extra=dict(identity.extra))


class TokenReviewSpec(Value):
    """Whose bearer token is this? `audiences`: the names under which the one who was shown it goes; none, the API's.

    token: the bearer token.
    """

    token: Annotated[str, pb(1)] = ""
    audiences: Annotated[tuple[str, ...], pb(2)] = ()


class TokenReviewStatus(Value):
    """The answer. `audiences`: those of the question for which the token is good.

    authenticated: whether the token is good. error: why it could not be checked.
    """

    authenticated: Annotated[bool, pb(1)] = False
    user: Annotated[UserInfo, pb(2)] = always(UserInfo())
    audiences: Annotated[tuple[str, ...], pb(4)] = ()
    error: Annotated[str, pb(3)] = ""


class TokenReview(ApiObject):
    """Asked by a server that was shown a token, such as a node's agent."""

    spec: Annotated[TokenReviewSpec, pb(2)] = TokenReviewSpec()
    status: Annotated[TokenReviewStatus, pb(3)] = TokenReviewStatus()


class SelfSubjectReviewStatus(Value):
    user_info: Annotated[UserInfo, pb(1)] = UserInfo()


class SelfSubjectReview(ApiObject):
    """authentication.k8s.io/v1 SelfSubjectReview."""

    status: Annotated[SelfSubjectReviewStatus, pb(2)] = SelfSubjectReviewStatus()


# authorization.k8s.io/v1 ---------------------------------------------------------------------------------------------


class FieldSelectorRequirement(Value):
    """One term of a field selector, as an access review carries it.

    key: the field's path, or the label. operator: In, NotIn, Exists or DoesNotExist. values: for In and NotIn.
    """

    SCHEMA: ClassVar = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldSelectorRequirement"

    key: Annotated[str, pb(1)] = ""
    operator: Annotated[str, pb(2)] = ""
    values: Annotated[tuple[str, ...], pb(3)] = ()


class FieldSelectorAttributes(Value):
    """The field or label selector of the request in question.

    raw_selector: as it is in the request.
    """

    raw_selector: Annotated[str, pb(1)] = ""
    requirements: Annotated[tuple[FieldSelectorRequirement, ...], pb(2)] = ()


class ResourceAttributes(Value):
    """A request for objects: "*" means all.

    namespace: the namespace of the objects; empty for all, and for kinds without one. verb: such as get, list or
    create. group: the group of the API. version: the version of the API. resource: such as pods. subresource: such as
    log. name: the name of one object.
    """

    namespace: Annotated[str, pb(1)] = ""
    verb: Annotated[str, pb(2)] = ""
    group: Annotated[str, pb(3)] = ""
    version: Annotated[str, pb(4)] = ""
    resource: Annotated[str, pb(5)] = ""
    subresource: Annotated[str, pb(6)] = ""
    name: Annotated[str, pb(7)] = ""
    field_selector: Annotated[FieldSelectorAttributes | None, pb(8)] = None
    label_selector: Annotated[FieldSelectorAttributes | None, pb(9)] = None


class NonResourceAttributes(Value):
    """A request for a path that is no object.

    path: the path of the URL. verb: the verb of HTTP, in lower case.
    """

    path: Annotated[str, pb(1)] = ""
    verb: Annotated[str, pb(2)] = ""


class SelfSubjectAccessReviewSpec(Value):
    """What is asked: may I? Exactly one field is set."""

    resource_attributes: Annotated[ResourceAttributes | None, pb(1)] = None
    non_resource_attributes: Annotated[NonResourceAttributes | None, pb(2)] = None


class SubjectAccessReviewSpec(SelfSubjectAccessReviewSpec):
    """What is asked of somebody: may they? user, groups, uid, extra: who that is; at least one of user and groups."""

    user: Annotated[str, pb(3)] = ""
    groups: Annotated[tuple[str, ...], pb(4)] = ()
    extra: Annotated[dict[str, tuple[str, ...]], pb(5, encoding="strings")] = {}
    uid: Annotated[str, pb(6)] = ""


class SubjectAccessReviewStatus(Value):
    """The answer. reason: what allows it, or what there is to say against it. evaluation_error: what was left out.

    allowed: whether a rule allows it. denied: whether somebody forbids it, whatever others say.
    """

    allowed: Annotated[bool, pb(1)] = always(zero=False)
    denied: Annotated[bool, pb(4)] = False
    reason: Annotated[str, pb(2)] = ""
    evaluation_error: Annotated[str, pb(3)] = ""


class SelfSubjectAccessReview(ApiObject):
    """authorization.k8s.io/v1: whether the asker may do something. Never stored."""

    spec: Annotated[SelfSubjectAccessReviewSpec, pb(2)] = always(SelfSubjectAccessReviewSpec())
    status: Annotated[SubjectAccessReviewStatus, pb(3)] = SubjectAccessReviewStatus()


class SubjectAccessReview(ApiObject):
    """authorization.k8s.io/v1: whether somebody may do something. Never stored."""

    spec: Annotated[SubjectAccessReviewSpec, pb(2)] = always(SubjectAccessReviewSpec())
    status: Annotated[SubjectAccessReviewStatus, pb(3)] = SubjectAccessReviewStatus()


class LocalSubjectAccessReview(ApiObject):
    """authorization.k8s.io/v1: whether somebody may do something in this namespace. Namespaced; never stored."""

    spec: Annotated[SubjectAccessReviewSpec, pb(2)] = always(SubjectAccessReviewSpec())
    status: Annotated[SubjectAccessReviewStatus, pb(3)] = SubjectAccessReviewStatus()


class SelfSubjectRulesReviewSpec(Value):
    """What may I do?

    namespace: the namespace in which that is asked.
    """

    namespace: Annotated[str, pb(1)] = ""


class ResourceRule(Value):
    """What may be done with objects.

    verbs: such as get or list; * for all. api_groups: the groups of the resources; * for all. resources: such as pods;
    * for all. resource_names: the objects that it is about; empty for all.
    """

    verbs: Annotated[tuple[str, ...], pb(1)] = ()
    api_groups: Annotated[tuple[str, ...], pb(2)] = ()
    resources: Annotated[tuple[str, ...], pb(3)] = ()
    resource_names: Annotated[tuple[str, ...], pb(4)] = ()


class NonResourceRule(Value):
    """What may be asked of other paths.

    verbs: the HTTP methods in lower case. non_resource_urls: the paths; * at the end for all below.
    """

    verbs: Annotated[tuple[str, ...], pb(1)] = ()
    non_resource_urls: Annotated[tuple[str, ...], pb(2)] = msgspec.field(default=(), name="nonResourceURLs")


class SubjectRulesReviewStatus(Value):
    """What the asker may do. incomplete: there may be more; evaluation_error: why that is not known.

    resource_rules: what may be done with objects. non_resource_rules: what may be asked of other paths.
    """

    resource_rules: Annotated[tuple[ResourceRule, ...], pb(1)] = always(())
    non_resource_rules: Annotated[tuple[NonResourceRule, ...], pb(2)] = always(())
    incomplete: Annotated[bool, pb(3)] = always(zero=False)
    evaluation_error: Annotated[str, pb(4)] = ""


class SelfSubjectRulesReview(ApiObject):
    """authorization.k8s.io/v1 SelfSubjectRulesReview."""

    spec: Annotated[SelfSubjectRulesReviewSpec, pb(2)] = SelfSubjectRulesReviewSpec()
    status: Annotated[SubjectRulesReviewStatus, pb(3)] = SubjectRulesReviewStatus()
