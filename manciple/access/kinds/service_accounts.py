"""ServiceAccount: an identity for pods; and TokenRequest, by which a token of one is asked for.

Sources: k8s.io/api/core/v1, k8s.io/api/authentication/v1; pkg/registry/core/serviceaccount and
pkg/apis/authentication/validation of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec.structs import replace

from manciple.wire.base import (
    ApiObject,
    Int64,
    LocalObjectReference,
    ObjectReference,
    TimeText,
    Value,
    always,
    pb,
)
from manciple.wire.errors import FieldError, invalid
from manciple.wire.registry import Kind
from manciple.wire.tables import DEFAULT_COLUMNS
from manciple.wire.validation import SPEC, validate_object_meta, validate_object_meta_update

PACKAGE = "io.k8s.api.authentication.v1"

#: Every namespace has one of this name; pods that name no other use it.
DEFAULT_NAME = "default"

Errors = list[FieldError]


class ServiceAccount(ApiObject):
    """An identity for processes in pods. Namespaced.

    secrets: those that pods of the account may use. image_pull_secrets: for pulling the images of its pods.
    automount_service_account_token: whether its pods get a token; they may say otherwise themselves.
    """

    SCHEMA: ClassVar = "io.k8s.api.core.v1.ServiceAccount"

    secrets: Annotated[tuple[ObjectReference, ...], pb(2, merge_key="name")] = ()
    image_pull_secrets: Annotated[tuple[LocalObjectReference, ...], pb(3)] = ()
    automount_service_account_token: Annotated[bool | None, pb(4)] = None


def prepare_service_account(account: ServiceAccount) -> ServiceAccount:
    """Of a reference to a Secret only the name counts: it is in the account's namespace."""
    return replace(account, secrets=tuple(ObjectReference(name=one.name) for one in account.secrets))


def validate_service_account(account: ServiceAccount) -> Errors:
    return validate_object_meta(account.metadata, namespaced=True)


def validate_service_account_update(new: ServiceAccount, old: ServiceAccount) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata)


SERVICE_ACCOUNT = Kind(
    group="",
    version="v1",
    plural="serviceaccounts",
    short_names=("sa",),
    type=ServiceAccount,
    prepare_create=prepare_service_account,
    prepare_update=lambda new, _old: prepare_service_account(new),
    validate_create=validate_service_account,
    validate_update=validate_service_account_update,
    columns=DEFAULT_COLUMNS,
    description="An identity for processes in pods.",
)


# Tokens ---------------------------------------------------------------------------------------------------------------


#: Seconds for which a token is good where the request does not say, at least, and at most.
DEFAULT_LIFETIME, SHORTEST_LIFETIME, LONGEST_LIFETIME = 3600, 600, 2**32


class BoundObjectReference(Value):
    """The Pod, Secret or Node with which a token ends. uid: of that object, where it has to be exactly this one.

    api_version: the version of its kind. kind: Pod, Secret or Node. name: the name of the object.
    """

    kind: Annotated[str, pb(1)] = ""
    api_version: Annotated[str, pb(2)] = ""
    name: Annotated[str, pb(3)] = ""
    uid: Annotated[str, pb(4)] = ""


class TokenRequestSpec(Value):
    """What a token is to be like.

    audiences: for whom it is good; the API server where there are none. expiration_seconds: for how long; the answer
    may be shorter. bound_object_ref: what it ends with.
    """

    audiences: Annotated[tuple[str, ...], pb(1)] = always(())
    expiration_seconds: Annotated[Int64 | None, pb(4)] = None
    bound_object_ref: Annotated[BoundObjectReference | None, pb(3)] = msgspec.field(
        default_factory=lambda: None, name="boundObjectRef"
    )


class TokenRequestStatus(Value):
    """The token, and when it ends.

    token: the bearer token. expiration_timestamp: until when it is valid.
    """

    token: Annotated[str, pb(1)] = always("")
    expiration_timestamp: Annotated[TimeText | None, pb(2, encoding="time")] = msgspec.field(
        default_factory=lambda: None, name="expirationTimestamp"
    )


class TokenRequest(ApiObject):
    """Asks for a token of a service account: what is posted to `serviceaccounts/NAME/token`. Never stored."""

    spec: Annotated[TokenRequestSpec, pb(2)] = always(TokenRequestSpec())
    status: Annotated[TokenRequestStatus, pb(3)] = always(TokenRequestStatus())


def validate_token_request(request: TokenRequest) -> Errors:
    path = SPEC.child("expirationSeconds")
    seconds = request.spec.expiration_seconds or 0
    if seconds < SHORTEST_LIFETIME:
        return [invalid(path, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > LONGEST_LIFETIME:
        return [invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []
