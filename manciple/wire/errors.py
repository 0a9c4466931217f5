"""Errors as Kubernetes speaks them: one family, mapped once to HTTP.

`FieldError` is one wrong field (upstream: apimachinery/pkg/util/validation/field). `ApiError` is an answer that is not
the one hoped for; `status()` is its `Status` document. Validation collects every `FieldError`; `Invalid` carries them
as causes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from manciple.wire.base import Value


class FieldError(Value):
    """One wrong field. `type` is a CauseType: FieldValueInvalid, FieldValueRequired, FieldValueForbidden, ..."""

    type: str
    field: str  # "spec.devices.requests[0].name"
    detail: str
    bad_value: Any = None


class ApiError(Exception):
    """An error with its place in Kubernetes' table of reasons.

    code: the HTTP status; reason: metav1.StatusReason; message: a whole sentence naming the object;
    details: StatusDetails as JSON.
    """

    code = 500
    reason = "InternalError"

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
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
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


class Invalid(ApiError):
    """422: the object breaks a rule of its kind; every broken rule is a cause."""

    code, reason = 422, "Invalid"

    @classmethod
    def of(cls, *, kind: str, group: str, name: str, errors: Sequence[FieldError]) -> Invalid:
        """`ResourceClaim.resource.k8s.io "x" is invalid: spec...: Invalid value: ...` (or a bracketed list of several)."""
        texts = [f"{e.field}: {e.detail}" for e in errors]
        joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        qualified = f"{kind}.{group}" if group else kind
        causes = [{"reason": e.type, "message": e.detail, "field": e.field} for e in errors]
        details = {"name": name, "group": group, "kind": kind, "causes": causes}
        return cls(
            f'{qualified} "{name}" is invalid: {joined}', details={k: v for k, v in details.items() if v}
        )


class BadRequest(ApiError):
    """400: the request cannot be read."""

    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """401: nobody we know."""

    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    """403: known, and not allowed."""

    code, reason = 403, "Forbidden"


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
