"""Asking for a token of a service account (`serviceaccounts/NAME/token`), and what verifies such tokens elsewhere.

`kubectl create token`, and the agents of nodes for the pods that they run. Whoever gets a token that is bound to a pod
must name a pod of that account; a node, a pod of its own (`claims.access.node_rights`).
/.well-known/openid-configuration and /openid/v1/jwks tell other systems how to verify what is signed here.
Source: pkg/registry/core/serviceaccount/storage/token.go, pkg/serviceaccount/openidmetadata.go of Kubernetes 1.36.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from msgspec import structs
from rest_framework.request import Request

from manciple.access.authentication import service_account_tokens, signing_keys
from manciple.access.authentication.chain import API_AUDIENCES
from manciple.access.authentication.service_account_tokens import Bound, NamedObject
from manciple.access.kinds.secrets import SERVICE_ACCOUNT_NAME, SERVICE_ACCOUNT_TOKEN
from manciple.access.kinds.service_accounts import (
    DEFAULT_LIFETIME,
    BoundObjectReference,
    ServiceAccount,
    TokenRequest,
    TokenRequestStatus,
    validate_token_request,
)
from manciple.api import requests, subresources, verbs
from manciple.api.answers import document_answer
from manciple.api.requests import ResourcePath, WriteOptions
from manciple.api.subresources import Connected
from manciple.api.views import ApiView
from manciple.store import hooks, objects, records
from manciple.store.hooks import Write
from manciple.wire import codec
from manciple.wire.base import ObjectMeta, timestamp
from manciple.wire.errors import BadRequest, Conflict, Forbidden, Invalid, invalid
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind, Served, registry

KIND = requests.virtual_kind(TokenRequest, group="authentication.k8s.io")
#: Seconds of the tokens that pods are given, where these are extended (`settings.EXTEND_POD_TOKENS`), and to how many.
POD_LIFETIME, EXTENDED_LIFETIME = 3607, 365 * 24 * 3600


def register() -> None:
    hooks.register_check(refuse_endless, resources={"secrets"})
    subresources.register(
        "serviceaccounts",
        Connected(
            name="token",
            kind=KIND.kind,
            type=TokenRequest,
            group=KIND.group,
            version=KIND.version,
            post=request_token,
        ),
    )


def refuse_endless(write: Write) -> None:
    """Raises: Forbidden for a Secret that is to be filled with a token that never ends: nobody here fills any."""
    if write.operation == "CREATE" and write.new.type == SERVICE_ACCOUNT_TOKEN:
        meta = write.new.metadata
        account = meta.annotations.get(SERVICE_ACCOUNT_NAME, "NAME")
        raise Forbidden.of(
            "secrets",
            meta.name or meta.generate_name,
            "tokens without an expiry are not issued: request one with "
            f"`kubectl create token {account} -n {meta.namespace}`, or mount one (a serviceAccountToken in a projected "
            "volume)",
        )


def request_token(
    kind: Kind,
    where: ResourcePath,
    body: bytes,
    *,
    content_type: str,
    identity: Identity,
    options: WriteOptions,
    clock: Callable[[], float] = time.time,
) -> dict[str, Any]:
    """The request with its token. Raises: NotFound, BadRequest, Invalid, Conflict, Forbidden."""
    decoded = requests.decode_object(
        Served(KIND, KIND.version), body, content_type=content_type, strictness=options.strictness
    )
    for warning in decoded.warnings:
        records.warn(warning)
    request = _placed(decoded.object, where)
    request = hooks.ask_all(
        Write(
            operation="CREATE",
            kind=kind,
            new=request,
            subresource="token",
            identity=identity,
            dry_run=options.dry_run,
            verb="create",
        )
    )
    account: ServiceAccount = verbs.current(kind, where.namespace, where.name)
    request = _completed(request, account)
    if errors := validate_token_request(request):
        raise Invalid.of(kind=KIND.kind, group=KIND.group, name="", errors=errors)
    return codec.to_builtins(_answered(request, account, now=int(clock())))


def _placed(request: TokenRequest, where: ResourcePath) -> TokenRequest:
    """The request, named after its account. Raises: BadRequest, Invalid where it names another."""
    meta = request.metadata
    if meta.namespace not in ("", where.namespace):
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if meta.name not in ("", where.name):
        wrong = invalid("metadata.name", meta.name, "must match the service account name if specified")
        raise Invalid.of(kind=KIND.kind, group=KIND.group, name=where.name, errors=[wrong])
    return structs.replace(request, metadata=structs.replace(meta, name=where.name, namespace=where.namespace))


def _completed(request: TokenRequest, account: ServiceAccount) -> TokenRequest:
    spec, meta = request.spec, account.metadata
    return structs.replace(
        request,
        metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid),
        spec=structs.replace(
            spec,
            audiences=spec.audiences or API_AUDIENCES,
            expiration_seconds=DEFAULT_LIFETIME if spec.expiration_seconds is None else spec.expiration_seconds,
        ),
    )


def _answered(request: TokenRequest, account: ServiceAccount, *, now: int) -> TokenRequest:
    spec, reference = request.spec, request.spec.bound_object_ref
    bound = _bound(account, reference) if reference is not None else Bound()
    seconds = spec.expiration_seconds or DEFAULT_LIFETIME
    extended = (
        settings.EXTEND_POD_TOKENS
        and bound.pod is not None
        and seconds == POD_LIFETIME
        and set(spec.audiences) <= set(API_AUDIENCES)
    )
    issued = service_account_tokens.issue(
        account,
        audiences=spec.audiences,
        seconds=EXTENDED_LIFETIME if extended else seconds,
        bound=bound,
        now=now,
        warn_after=seconds if extended else None,
    )
    records.annotate("authentication.kubernetes.io/issued-credential-id", f"JTI={issued.id}")
    created, ends = (timestamp(datetime.fromtimestamp(at, UTC)) for at in (now, now + seconds))
    return structs.replace(
        request,
        api_version=KIND.api_version,
        kind=KIND.kind,
        metadata=structs.replace(request.metadata, creation_timestamp=created),
        status=TokenRequestStatus(token=issued.text, expiration_timestamp=ends),
    )


# What a token is bound to ---------------------------------------------------------------------------------------------


def _bound(account: ServiceAccount, reference: BoundObjectReference) -> Bound:
    """Raises: NotFound; BadRequest for what no token can be bound to; Conflict where another has taken the name."""
    namespace, uid = account.metadata.namespace, reference.uid
    match (reference.api_version.rpartition("/")[0], reference.kind):
        case ("", "Pod"):
            pod = _found("pods", namespace, reference)
            if pod.spec.service_account_name != account.metadata.name:
                raise BadRequest(
                    f'cannot bind token for serviceaccount "{account.metadata.name}" to pod running with different '
                    "serviceaccount name."
                )
            bound = Bound(pod=_named(pod), node=_node_of(pod))
            found = pod
        case ("", "Node"):
            found = _found("nodes", "", reference)
            bound = Bound(node=_named(found))
        case ("", "Secret"):
            found = _found("secrets", namespace, reference)
            bound = Bound(secret=_named(found))
        case (_, kind):
            version = f"{reference.api_version}" if "/" in reference.api_version else f"/{reference.api_version}"
            raise BadRequest(f"cannot bind token to object of type {version}, Kind={kind}")
    if uid not in ("", found.metadata.uid):
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. The object might have "
            "been deleted and then recreated"
        )
        raise Conflict.of(reference.kind, reference.name, why)
    return bound


def _found(resource: str, namespace: str, reference: BoundObjectReference) -> Any:
    """Raises: NotFound."""
    return verbs.current(registry.by_resource(resource), namespace, reference.name)


def _named(obj: Any) -> NamedObject:
    return NamedObject(obj.metadata.name, obj.metadata.uid)


def _node_of(pod: Any) -> NamedObject | None:
    """The node that a pod is on, by name alone where it is not there."""
    name = pod.spec.node_name
    if not name:
        return None
    node = objects.get(registry.by_resource("nodes"), "", name)
    return NamedObject(name, node.uid if node else "")


# For other systems ----------------------------------------------------------------------------------------------------


CONFIGURATION_PATH, KEYS_PATH = ".well-known/openid-configuration", "openid/v1/jwks"
#: Seconds for which either may be kept.
KEPT = 3600


class IssuerView(ApiView):
    """/.well-known/openid-configuration"""

    def get(self, request: Request) -> HttpResponse:
        issuer = settings.SERVICE_ACCOUNT_ISSUER
        # An issuer of somebody's own is an address that others reach; the usual one is a name and no address.
        place = f"https://{request.get_host()}" if issuer in API_AUDIENCES else issuer
        return _public(
            {
                "issuer": issuer,
                "jwks_uri": f"{place}/{KEYS_PATH}",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": [signing_keys.ALGORITHM],
            },
            "application/json",
        )


class KeysView(ApiView):
    """/openid/v1/jwks"""

    def get(self, _request: Request) -> HttpResponse:
        return _public({"keys": signing_keys.public()}, "application/jwk-set+json")


def _public(document: dict[str, Any], content_type: str) -> HttpResponse:
    answer = document_answer(document)
    answer.headers["Content-Type"] = content_type
    answer.headers["Cache-Control"] = f"public, max-age={KEPT}"
    return answer
