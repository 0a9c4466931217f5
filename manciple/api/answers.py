"""How the API answers: JSON documents, and one Status for everything that goes wrong.

Every error ends in `handle_exception` (DRF's hook, named in the settings) or, outside DRF, in `status_of`: each kind of
exception is mapped to its Status in one table.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson
from django.core.exceptions import BadRequest as DjangoBadRequest
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpResponse
from rest_framework import exceptions as drf

from manciple.api import faults
from manciple.api.tokens import CHALLENGE
from manciple.wire.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    TooLarge,
    Unauthorized,
)

logger = logging.getLogger(__name__)

JSON = "application/json"
#: Largest request body, in bytes (upstream: MaxRequestBodyBytes of the generic API server).
BODY_LIMIT = 3 * 1024 * 1024
#: Characters of warnings that one answer may carry (upstream: the recorder of apiserver's filters/warning.go).
WARNINGS_LIMIT = 4096

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def success(*, code: int = 200, details: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The metav1.Status that says that all went well."""
    document: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        return document | {"details": dict(details)}
    return document | {"code": code}


def unknown_path(subresource: str = "") -> NotFound:
    """What the API says of a path that no kind is served at. subresource: "pods/log", where it is that which lacks."""
    message = "the server could not find the requested resource"
    return NotFound(f"{message}: it does not serve {subresource}" if subresource else message, details={})


def unsupported_method() -> MethodNotAllowed:
    return MethodNotAllowed("the server does not allow this method on the requested resource")


def body_too_large() -> TooLarge:
    return TooLarge(f"Request entity too large: limit is {BODY_LIMIT}")


def json_answer(
    content: str | bytes, *, code: int = 200, pretty: bool = False, warnings: Iterable[str] = ()
) -> HttpResponse:
    """An answer whose body is `content`, a JSON text. `warnings` become `Warning: 299` headers."""
    if pretty:
        content = json.dumps(json.loads(content), indent=2) + "\n"
    answer = HttpResponse(content, status=code, content_type=JSON)
    if told := warning_header(warnings):
        answer.headers["Warning"] = told
    return answer


def document_answer(document: Mapping[str, Any], *, code: int = 200, pretty: bool = False) -> HttpResponse:
    """An answer whose body is `document` as JSON."""
    return json_answer(orjson.dumps(document), code=code, pretty=pretty)


def warning_header(warnings: Iterable[str]) -> str:
    """The value of the Warning header (RFC 7234, code 299), each text quoted."""
    told: list[str] = []
    for text in warnings:
        quoted = _CONTROL.sub(" ", text).replace("\\", "\\\\").replace('"', '\\"')
        told.append(f'299 - "{quoted}"')
        if sum(map(len, told)) > WARNINGS_LIMIT:
            return ", ".join(told[:-1])
    return ", ".join(told)


def error_answer(error: ApiError) -> HttpResponse:
    """The Status of `error`, with the headers that go with its code."""
    answer = document_answer(error.status(), code=error.code)
    if error.code == Unauthorized.code:
        answer.headers["WWW-Authenticate"] = CHALLENGE
    if seconds := (error.details or {}).get("retryAfterSeconds"):
        answer.headers["Retry-After"] = str(seconds)
    return answer


def handle_exception(error: Exception, _context: dict[str, Any] | None = None) -> HttpResponse:
    """DRF's exception hook."""
    return error_answer(status_of(error))


def status_of(error: Exception) -> ApiError:
    """The ApiError that tells `error`. What nobody foresaw is logged with its trace and told as InternalError."""
    if isinstance(error, ApiError):
        return error
    for known, translate in _TRANSLATIONS:
        if isinstance(error, known):
            return translate(error)
    if outage := faults.unavailable(error):
        faults.note(error)
        return outage
    logger.exception("request failed", exc_info=error)
    return ApiError(f"Internal error occurred: {error}", details={"causes": [{"message": str(error)}]})


_TRANSLATIONS: tuple[tuple[tuple[type[Exception], ...], Callable[[Any], ApiError]], ...] = (
    ((drf.NotAuthenticated, drf.AuthenticationFailed), lambda _: Unauthorized("Unauthorized")),
    ((drf.PermissionDenied,), lambda error: Forbidden(str(error.detail))),
    ((drf.MethodNotAllowed,), lambda _: unsupported_method()),
    ((drf.NotFound, Http404), lambda _: unknown_path()),
    ((RequestDataTooBig,), lambda _: body_too_large()),
    ((DjangoBadRequest, SuspiciousOperation, drf.ParseError), lambda error: BadRequest(str(error))),
)
