"""Errors as Kubernetes speaks them: one family, mapped once to HTTP.

`FieldError` is one wrong field (upstream: apimachinery/pkg/util/validation/field/errors.go); the functions `required`,
`invalid`, ... make one in upstream's wording. `ApiError` is an answer that is not the one hoped for; `status()` is its
`Status` document. Validation collects every `FieldError`; `Invalid` carries them as causes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from manciple.wire.base import ASIDE, Value

#: metav1.CauseType -> how the cause's message begins.
CAUSE_TITLES: Mapping[str, str] = {
    "FieldValueNotFound": "Not found",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueTypeInvalid": "Invalid value",
    "InternalError": "Internal error",
}

#: Causes whose message leaves the wrong value out.
_VALUELESS = frozenset({"FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong", "InternalError"})

#: The `bad_value` of a cause that has none to show, where its type would.
OMITTED: Any = msgspec.UNSET


class FieldError(Value, frozen=True):
    """One wrong field. `type` is a CauseType, a key of CAUSE_TITLES."""

    type: str
    field: str  # "spec.devices.requests[0].name"
    detail: str  # what is wrong, without the field and the value; may be empty
    bad_value: Any = None

    @property
    def body(self) -> str:
        """The cause's message: `Invalid value: "A": a lowercase RFC 1123 label must ...`."""
        title = CAUSE_TITLES[self.type]
        if self.type not in _VALUELESS and self.bad_value is not OMITTED:
            title = f"{title}: {shown(self.bad_value)}"
        return f"{title}: {self.detail}" if self.detail else title

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


def shown(value: Any) -> str:
    """A wrong value as messages show it: scalars and null bare, text quoted, anything else as compact JSON."""
    return json.dumps(_served(msgspec.to_builtins(value)), ensure_ascii=False, separators=(",", ":"))


def _served(value: Any) -> Any:
    """Without the fields that are stored for some versions only."""
    if isinstance(value, dict):
        return {name: _served(member) for name, member in value.items() if not str(name).startswith(ASIDE)}
    return [_served(one) for one in value] if isinstance(value, list | tuple) else value


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(type="FieldValueRequired", field=field, detail=detail, bad_value="")


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(type="FieldValueInvalid", field=field, detail=detail, bad_value=value)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(type="FieldValueDuplicate", field=field, detail="", bad_value=value)


def not_found(field: str, value: Any) -> FieldError:
    return FieldError(type="FieldValueNotFound", field=field, detail="", bad_value=value)


def not_supported(field: str, value: Any, supported: Collection[str]) -> FieldError:
    """`Unsupported value: "x": supported values: "A", "B"`, in the order given."""
    quoted = ", ".join(f'"{one}"' for one in supported)
    detail = f"supported values: {quoted}" if supported else ""
    return FieldError(type="FieldValueNotSupported", field=field, detail=detail, bad_value=value)


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(type="FieldValueForbidden", field=field, detail=detail, bad_value="")


def too_long(field: str, maximum: int) -> FieldError:
    """`maximum` in bytes of UTF-8."""
    unit = "byte" if maximum == 1 else "bytes"
    return FieldError(
        type="FieldValueTooLong", field=field, detail=f"may not be more than {maximum} {unit}", bad_value=""
    )


def too_many(field: str, actual: int, maximum: int) -> FieldError:
    unit = "item" if maximum == 1 else "items"
    detail = f"must have at most {maximum} {unit}"
    return FieldError(type="FieldValueTooMany", field=field, detail=detail, bad_value=actual)


def immutable(field: str, new_value: Any) -> FieldError:
    return invalid(field, new_value, "field is immutable")


class ApiError(Exception):
    """An error with its place in Kubernetes' table of reasons.

    code: the HTTP status; reason: metav1.StatusReason; message: a whole sentence naming the object;
    details: StatusDetails as JSON. An empty one is told as well: client-go reads it without asking whether it is there.
    has_effect: something was changed, or may have been; the message says what.
    """

    code = 500
    reason = "InternalError"
    has_effect = False

    def __init__(self, message: str, *, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def status(self) -> dict[str, Any]:
        """The metav1.Status document of this error."""
        document: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            "code": self.code,
        }
        if self.details is not None:
            document["details"] = self.details
        return document


def _details(resource: str, name: str) -> dict[str, Any]:
    plural, _, group = resource.partition(".")
    return {key: value for key, value in (("name", name), ("group", group), ("kind", plural)) if value}


class NotFound(ApiError):
    """404: `pods "x" not found`."""

    code, reason = 404, "NotFound"

    @classmethod
    def of(cls, resource: str, name: str) -> NotFound:
        return cls(f'{resource} "{name}" not found', details=_details(resource, name))


class AlreadyExists(ApiError):
    """409: `pods "x" already exists`."""

    code, reason = 409, "AlreadyExists"

    @classmethod
    def of(cls, resource: str, name: str) -> AlreadyExists:
        return cls(f'{resource} "{name}" already exists', details=_details(resource, name))


class Conflict(ApiError):
    """409: somebody else changed the object; read it again and retry."""

    code, reason = 409, "Conflict"

    @classmethod
    def of(cls, resource: str, name: str, why: str = "") -> Conflict:
        why = why or "the object has been modified; please apply your changes to the latest version and try again"
        message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
        return cls(message, details=_details(resource, name))


#: Causes that one answer tells of; a document can break a rule a hundred thousand times.
MOST_CAUSES = 200
#: Characters of causes after which an answer tells of no more: a cause may show a value as large as the document.
MOST_CAUSE_TEXT = 64 * 1024


class Invalid(ApiError):
    """422: the object breaks a rule of its kind; every broken rule is a cause."""

    code, reason = 422, "Invalid"

    @classmethod
    def of(cls, *, kind: str, group: str, name: str, errors: Sequence[FieldError]) -> Invalid:
        """`ResourceClaim.resource.k8s.io "x" is invalid: spec...: Invalid value: ...`; several errors in brackets."""
        causes: list[dict[str, str]] = []
        length = 0
        for error in errors[:MOST_CAUSES]:
            cause = {"reason": error.type, "message": error.body, "field": error.field}
            causes.append(cause)
            length += len(cause["message"]) + len(error.field)
            if length > MOST_CAUSE_TEXT:
                break
        texts = list(dict.fromkeys(f"{cause['field']}: {cause['message']}" for cause in causes))
        if left := len(errors) - len(causes):
            texts.append(f"and {left} more")
        joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        qualified = f"{kind}.{group}" if group else kind
        details = {"name": name, "group": group, "kind": kind, "causes": causes}
        return cls(f'{qualified} "{name}" is invalid: {joined}', details={k: v for k, v in details.items() if v})


class BadRequest(ApiError):
    """400: the request cannot be read."""

    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """401: nobody we know."""

    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    """403: known, and not allowed."""

    code, reason = 403, "Forbidden"

    @classmethod
    def of(cls, resource: str, name: str, why: str) -> Forbidden:
        """`pods "x" is forbidden: ...`, as admission says it; "Unknown" of an object without a name."""
        known_as = name or "Unknown"
        return cls(f'{resource} "{known_as}" is forbidden: {why}', details=_details(resource, known_as))


class MethodNotAllowed(ApiError):
    """405."""

    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    """406."""

    code, reason = 406, "NotAcceptable"


class Expired(ApiError):
    """410: the revision asked for is pruned; list again."""

    code, reason = 410, "Expired"


class TooLarge(ApiError):
    """413."""

    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    """415."""

    code, reason = 415, "UnsupportedMediaType"


class RequestTimeout(ApiError):
    """408: the client took too long to send its request. Nothing was done."""

    code, reason = 408, "Timeout"


class TooManyRequests(ApiError):
    """429: more wait than can be served soon. Nothing was done; try again after `retryAfterSeconds`."""

    code, reason = 429, "TooManyRequests"


class ServiceUnavailable(ApiError):
    """503: something that is needed is away for the moment; try again after `retryAfterSeconds`."""

    code, reason = 503, "ServiceUnavailable"


class InsufficientStorage(ApiError):
    """507: the database has no room for more objects. Nothing was done; deletions are still accepted."""

    code, reason = 507, "InsufficientStorage"

    def __init__(self) -> None:
        super().__init__(
            "database space exceeded: creations and updates are refused until there is room again; delete objects "
            "that are not needed, or ask an administrator to give the database more room",
            details={},
        )


class GatewayTimeout(ApiError):
    """504: no answer in time; what was asked for may have been done."""

    code, reason, has_effect = 504, "Timeout", True


class PartlyDone(ApiError):
    """500: of several writes, not all were made. The message says which were, and what has become of them."""

    has_effect = True
