"""Entries as `audit.k8s.io/v1 Event`s, at the level Metadata: what programs that read audit logs of Kubernetes expect.

What a request wrote is told object by object: a request that deleted many has an event for each, under one auditID.
Source: apiserver/pkg/apis/audit/v1/types.go.
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from manciple.audit.happenings import REFUSED
from manciple.audit.models import Entry
from manciple.store.records import Actor, Note, moment
from manciple.wire.base import Value, always
from manciple.wire.registry import registry

#: Annotations of ours: requests that an event stands for, where it is several; that a request was to change nothing.
COUNT, DRY_RUN = "audit.manciple.dev/count", "audit.manciple.dev/dry-run"
#: Of a copy from another cluster: the last field manager, since who wrote it is not known.
FIELD_MANAGER = "audit.manciple.dev/field-manager"

_read_note = msgspec.json.Decoder(Note).decode
_encode = msgspec.json.Encoder().encode


class AuditedObject(Value):
    """audit.k8s.io/v1 ObjectReference. resource_version: that the request wrote."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""
    api_version: str = ""
    resource_version: str = ""
    subresource: str = ""


class AuditedStatus(Value):
    """metav1.Status, as far as an audit event has it."""

    metadata: dict[str, str] = always({})
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


class AuditEvent(Value, kw_only=True):
    """audit.k8s.io/v1 Event."""

    kind: str = always("Event")
    api_version: str = always("audit.k8s.io/v1")
    level: str = always("Metadata")
    audit_id: str = msgspec.field(name="auditID")
    stage: str = always("ResponseComplete")
    request_uri: str = msgspec.field(name="requestURI")
    verb: str
    user: Actor
    impersonated_user: Actor | None = None
    source_ips: tuple[str, ...] = msgspec.field(default=(), name="sourceIPs")
    user_agent: str = ""
    object_ref: AuditedObject | None = None
    response_status: AuditedStatus
    request_received_timestamp: str
    stage_timestamp: str
    annotations: dict[str, str] = {}


def note_of(entry: Entry) -> Note:
    """What is known of the request behind an entry."""
    return _read_note(entry.note)


def event_of(entry: Entry) -> AuditEvent:
    note, at = note_of(entry), moment(entry.at)
    return AuditEvent(
        audit_id=entry.audit_id or f"revision-{entry.revision}",
        request_uri=note.request_uri or _path(entry),
        verb=entry.verb,
        user=note.user,
        impersonated_user=note.impersonated_user,
        source_ips=note.source_ips,
        user_agent=note.user_agent,
        object_ref=_object(entry) if entry.resource else None,
        response_status=_status(entry),
        request_received_timestamp=note.request_received_timestamp or at,
        stage_timestamp=at,
        annotations=note.annotations | _annotations(entry) | ({FIELD_MANAGER: note.manager} if note.manager else {}),
    )


def line(entry: Entry) -> bytes:
    """One line of JSON, with its end."""
    return _encode(event_of(entry)) + b"\n"


def _object(entry: Entry) -> AuditedObject:
    plural, _, group = entry.resource.partition(".")
    return AuditedObject(
        resource=plural,
        namespace=entry.namespace,
        name=entry.name,
        uid=entry.uid,
        api_group=group,
        api_version=_version(entry.resource),
        resource_version=str(entry.revision or ""),
        subresource=entry.subresource,
    )


def _version(resource: str) -> str:
    known = {kind.resource: kind.version for kind in registry}
    return known.get(resource, "v1")


def _path(entry: Entry) -> str:
    """Where the API has the object: what a part of the system would have asked for."""
    plural, _, group = entry.resource.partition(".")
    version = _version(entry.resource)
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    inside = f"/namespaces/{entry.namespace}" if entry.namespace else ""
    return f"{root}{inside}/{plural}/{entry.name}"


def _status(entry: Entry) -> AuditedStatus:
    if entry.code < REFUSED:
        return AuditedStatus(code=entry.code)
    reason = entry.reason or HTTPStatus(entry.code).phrase.replace(" ", "")
    return AuditedStatus(status="Failure", message=entry.message, reason=reason, code=entry.code)


def _annotations(entry: Entry) -> dict[str, str]:
    count = {COUNT: str(entry.count)} if entry.count > 1 else {}
    return count | ({DRY_RUN: "true"} if entry.dry_run else {})
