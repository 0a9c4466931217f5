"""admission.k8s.io/v1 AdmissionReview, from the side of a webhook: the question read, the answer written.

Only what the guard judges is decoded: of a write that leaves the allocation as it was, no more than that it does.
Source: k8s.io/api/admission/v1/types.go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from claims.kinds.resource_claims import AllocationResult, ResourceClaim, node_of
from manciple.mirror import received
from manciple.mirror.received import Unreadable
from manciple.mirror.sources import CLAIM
from manciple.wire.resources import CLAIMS
from manciple.wire.resources import kind as kind_of

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
#: Code and reason of a refusal. Not 409: kube-scheduler would send the same allocation five times more.
CODE, REASON = 403, "Forbidden"


class NoReview(ValueError):
    """The body is no AdmissionReview of this version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimWrite:
    """A write that gives a claim devices. before: the version that it replaces; author: who writes.

    supersedes: what was to be written over earlier versions of the claim can no longer arrive.
    """

    uid: str
    namespace: str
    name: str
    before: str
    supersedes: bool
    allocation: AllocationResult
    digest: str
    author: str
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Question:
    """uid: of the review. write: None where it gives nothing; trouble: why that cannot be told, "" where it can."""

    uid: str
    write: ClaimWrite | None
    trouble: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Status(msgspec.Struct):
    allocation: msgspec.Raw = msgspec.Raw()


class _Claim(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    status: _Status | None = None

    @property
    def allocation(self) -> bytes:
        """The text; empty where there is none."""
        found = b"" if self.status is None else bytes(self.status.allocation)
        return b"" if found == b"null" else found


class _Resource(msgspec.Struct):
    group: str = ""
    version: str = ""
    resource: str = ""


class _User(msgspec.Struct):
    username: str = ""


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    resource: _Resource
    operation: str
    sub_resource: str = ""
    user_info: _User = msgspec.field(default_factory=_User)
    object: _Claim | None = None
    old_object: _Claim | None = None
    dry_run: bool | None = None


class _Head(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    request: msgspec.Raw = msgspec.Raw()


class _Texts(msgspec.Struct):
    object: msgspec.Raw


_heads, _requests = msgspec.json.Decoder(_Head), msgspec.json.Decoder(_Request)
_claims, _texts = msgspec.json.Decoder(_Claim), msgspec.json.Decoder(_Texts)


def read(body: bytes) -> Question:
    """Raises: NoReview."""
    try:
        head = _heads.decode(body)
        if (head.api_version, head.kind) != (API_VERSION, KIND):
            raise NoReview(f"expected {API_VERSION} {KIND}, got {head.api_version[:100]} {head.kind[:100]}")
        request = _requests.decode(head.request)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise NoReview(f"no {KIND} of {API_VERSION}: {error}") from error
    if not request.uid:
        raise NoReview(f"the request of the {KIND} has no uid")
    resource, new, old = request.resource, request.object, request.old_object or _Claim()
    is_of_claims = (resource.group, resource.resource) == (
        CLAIM.group,
        CLAIM.plural,
    ) and request.sub_resource == "status"
    if not is_of_claims or new is None or not new.allocation or new.allocation == old.allocation:
        return Question(request.uid, None)
    try:
        claim = received.read(kind_of(CLAIMS), resource.version, bytes(_texts.decode(head.request).object)).object
    except (Unreadable, KeyError) as error:
        return Question(request.uid, None, f"the claim cannot be read: {error}")
    except RecursionError:
        return Question(request.uid, None, "the claim cannot be read")
    allocation = claim.status.allocation if isinstance(claim, ResourceClaim) else None
    if allocation is None:
        return Question(request.uid, None)
    write = ClaimWrite(
        uid=claim.metadata.uid,
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        before=old.metadata.resource_version,
        supersedes=not old.allocation,
        allocation=allocation,
        digest=digest_of(allocation),
        author=request.user_info.username,
        dry_run=bool(request.dry_run),
    )
    return Question(request.uid, write if write.digest else None)


def read_claim(version: str, text: bytes) -> tuple[str, str, AllocationResult | None]:
    """(uid, version, allocation) of a claim that the cluster has answered. Raises: Unreadable."""
    try:
        meta = _claims.decode(text).metadata
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Unreadable(str(error)) from error
    claim = received.read(kind_of(CLAIMS), version, text).object
    return meta.uid, meta.resource_version, claim.status.allocation if isinstance(claim, ResourceClaim) else None


def digest_of(allocation: AllocationResult | None) -> str:
    """Of what it holds; "" where that is nothing."""
    if allocation is None:
        return ""
    node = node_of(allocation)
    held = sorted(
        (one.driver, one.pool, one.device, node, one.share_id or "", sorted(one.consumed_capacity.items()))
        for one in allocation.devices.results
        if not one.admin_access
    )
    return hashlib.blake2b(msgspec.json.encode(held), digest_size=16).hexdigest() if held else ""


def answer(
    uid: str, *, refusal: str = "", warnings: Sequence[str] = (), notes: Mapping[str, str] | None = None
) -> bytes:
    """refusal: why it is not allowed. notes: for the audit log of the API server."""
    response: dict[str, Any] = {"uid": uid, "allowed": not refusal}
    if refusal:
        response["status"] = {"status": "Failure", "message": refusal, "reason": REASON, "code": CODE}
    if warnings:
        response["warnings"] = list(warnings)
    if notes:
        response["auditAnnotations"] = dict(notes)
    return msgspec.json.encode({"kind": KIND, "apiVersion": API_VERSION, "response": response})
