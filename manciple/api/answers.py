"""How the API answers: objects and lists in the form that a client wants, and one Status for all that goes wrong.

The form (verbatim, as a Table, as metadata only; as JSON or YAML) follows from the Accept header and a few query
parameters. A client that takes Kubernetes protobuf as well as JSON gets JSON, which needs no conversion; objects and
lists are sent as protobuf to one that takes nothing else. Watches and errors are always JSON, which client-go reads by
the answer's Content-Type.
Documents are stored as text, exactly as they are served. A plain list is therefore the stored texts between two
brackets, never decoded; only Tables and other served versions look inside. Source:
apiserver/pkg/endpoints/handlers/negotiation.

Every error ends in `handle_exception` (DRF's hook, named in the settings) or, outside DRF, in `status_of`: each kind of
exception is mapped to its Status in one table.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import msgspec
import orjson
import yaml
from django.core.exceptions import BadRequest as DjangoBadRequest
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpResponse
from rest_framework import exceptions as drf

from manciple.api import faults
from manciple.store.records import Page
from manciple.store.sealing import Undecipherable
from manciple.wire import codec, protobuf, tables
from manciple.wire.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    GatewayTimeout,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    TooLarge,
    Unauthorized,
    not_supported,
)
from manciple.wire.limits import TimeLimitExceeded, short_text_cache
from manciple.wire.machinery import ListMeta, Status
from manciple.wire.registry import Served, registry
from manciple.wire.wireformat import Envelope, delimited_field, write_envelope

logger = logging.getLogger(__name__)

JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
CHALLENGE = 'Bearer realm="manciple"'

# What is wanted -------------------------------------------------------------------------------------------------------


Shape = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]
Media = Literal["json", "yaml", "protobuf"]

_MEDIA: dict[str, Media] = {
    "application/json": "json",
    PROTOBUF: "protobuf",
    "application/*": "json",
    "*/*": "json",
    "application/yaml": "yaml",
}
_SHAPES: dict[str, Shape] = {
    "": "",
    "Table": "Table",
    "PartialObjectMetadata": "PartialObjectMetadata",
    "PartialObjectMetadataList": "PartialObjectMetadataList",
}
_SHAPE_VERSIONS = ("v1", "v1beta1")
_INCLUDES = ("None", "Metadata", "Object")


@dataclass(frozen=True, slots=True)
class Form:
    """`include_object`: what a Table row carries beside its cells: "None", "Metadata" or "Object".

    typed: the client decodes into Kubernetes' Go types, and fails at what they do not allow.
    """

    shape: Shape = ""
    shape_version: str = "v1"
    media: Media = "json"
    pretty: bool = False
    include_object: str = "Metadata"
    typed: bool = False


@dataclass(frozen=True, slots=True)
class _Clause:
    """One clause of an Accept header."""

    media: str
    parameters: Mapping[str, str]
    quality: float


def wanted_form(accept: str, query: Mapping[str, str], *, custom: bool = False) -> Form:
    """The form to answer in. custom: of objects of a custom resource, which have no protobuf form.

    Raises: NotAcceptable when none of the accepted ones is served.
    """
    media, shape, shape_version = _negotiated[custom](accept)
    return Form(
        shape=shape,
        shape_version=shape_version,
        media=media,
        pretty=query.get("pretty", "") in ("true", "1"),
        include_object=_include_object(query.get("includeObject", "")),
        typed=_is_typed(accept),
    )


def _include_object(value: str) -> str:
    if value not in ("", *_INCLUDES):
        wrong = not_supported("includeObject", value, _INCLUDES)
        raise Invalid.of(kind="TableOptions", group="meta.k8s.io", name="", errors=[wrong])
    return value or "Metadata"


def _negotiate(accept: str, *, custom: bool) -> tuple[Media, Shape, str]:
    if not accept.strip():
        return "json", "", "v1"
    found: list[tuple[Media, Shape, str]] = []
    for clause in sorted(_clauses(accept), key=lambda clause: -clause.quality):
        shape = _SHAPES.get(clause.parameters.get("as", ""))
        version = clause.parameters.get("v", "v1")
        group = clause.parameters.get("g", "meta.k8s.io")
        media = _MEDIA.get(clause.media)
        if media is None or shape is None or (custom and not shape and clause.media == PROTOBUF):
            continue
        if shape and (group != "meta.k8s.io" or version not in _SHAPE_VERSIONS):
            continue
        found.append((media, shape, version if shape else "v1"))
    if found:
        # JSON, where that will do as well as protobuf; there are no Tables in protobuf.
        media, shape, version = found[0]
        if media == "protobuf" and (shape or any(other == ("json", shape, version) for other in found)):
            media = "json"
        return media, shape, version
    served = ("application/json", "application/yaml", *(() if custom else (PROTOBUF,)))
    raise NotAcceptable(f"only the following media types are accepted: {', '.join(served)}")


#: By whether the objects are of a custom resource.
_negotiated = tuple(short_text_cache(256)(partial(_negotiate, custom=custom)) for custom in (False, True))


@short_text_cache(256)
def _is_typed(accept: str) -> bool:
    """client-go's typed clients accept protobuf, or JSON and then anything. Its dynamic client accepts JSON alone:
    with that, kubectl gets, edits and applies.
    """
    media = [clause.media for clause in _clauses(accept)]
    return PROTOBUF in media or media == ["application/json", "*/*"]


def _clauses(accept: str) -> Iterator[_Clause]:
    for text in accept.split(","):
        media, *parameters = (part.strip() for part in text.split(";"))
        pairs = dict(part.partition("=")[::2] for part in parameters)
        yield _Clause(media.lower(), pairs, _quality(pairs.get("q", "1")))


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


# What is answered -----------------------------------------------------------------------------------------------------


class _Head(msgspec.Struct):
    """The part of a document that metadata-only answers need, kept as text."""

    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_head = msgspec.json.Decoder(_Head)


def object_text(served: Served, text: str, form: Form, *, now: float, revision: int = 0, headed: bool = True) -> str:
    """One stored document as JSON text in the shape of `form`.

    revision: of the document, where it is known. headed: whether a Table names its columns.
    """
    if form.shape == "Table":
        metadata = {"resourceVersion": codec.decode_text(served.kind.type, text).metadata.resource_version}
        seen = served.text(text, revision) if served.kind.is_open else text
        return _table(served, [seen], form, now=now, metadata=metadata, headed=headed)
    if form.shape == "PartialObjectMetadata":
        return _partial(text, form.shape_version)
    return _document(served, text, revision, form)


def list_text(served: Served, page: Page, form: Form, *, now: float) -> str:
    """One page of a list as JSON text in the shape of `form`."""
    texts = [item.text for item in page.items]
    metadata = _list_metadata(page)
    if form.shape == "Table":
        seen = _shown(served, page) if served.kind.is_open else texts
        return _table(served, seen, form, now=now, metadata=metadata, headed=True)
    if form.shape in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        items = [_partial(text, form.shape_version) for text in texts]
        return _list("PartialObjectMetadataList", f"meta.k8s.io/{form.shape_version}", metadata, items)
    shown, reduce = _shown(served, page), served.kind.text_for_typed_clients
    if form.typed and reduce is not None:
        shown = [reduce(text) for text in shown]
    if not served.kind.is_open:  # the list's kind tells theirs; only custom resources repeat it
        typed = f'{{"apiVersion":"{served.api_version}","kind":"{served.kind.kind}",'
        shown = [f"{{{text.removeprefix(typed)}" if text.startswith(typed) else text for text in shown]
    return _list(served.kind.listed_as, served.api_version, metadata, shown)


def _shown(served: Served, page: Page) -> list[str]:
    return served.texts([(item.text, item.revision) for item in page.items])


def _document(served: Served, text: str, revision: int, form: Form) -> str:
    shown, reduce = served.text(text, revision), served.kind.text_for_typed_clients
    return reduce(shown) if form.typed and reduce is not None else shown


def bookmark_text(served: Served, form: Form, *, revision: int, annotations: dict[str, str]) -> str:
    """The object of a BOOKMARK event: nothing but its kind, a revision and annotations."""
    metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = annotations
    partial = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{form.shape_version}"}
    document: dict[str, Any] = {"kind": served.kind.kind, "apiVersion": served.api_version, "metadata": metadata}
    if form.shape == "PartialObjectMetadata":
        document |= partial
    if form.shape == "Table":
        document = {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{form.shape_version}",
            "metadata": {"resourceVersion": str(revision)},
            "columnDefinitions": [],
            "rows": [{"cells": [], "object": partial | {"metadata": metadata}}],
        }
    return orjson.dumps(document).decode()


def in_media(text: str, form: Form) -> tuple[bytes, str]:
    """JSON text as the body and Content-Type of an answer."""
    if form.media == "protobuf" and (message := _message(text)) is not None:
        return message, PROTOBUF
    if form.media == "yaml":
        return yaml.safe_dump(orjson.loads(text), sort_keys=False, allow_unicode=True).encode(), "application/yaml"
    if form.pretty:
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE), JSON
    return text.encode(), JSON


def _message(text: str) -> bytes | None:
    """An object, a list or a Status as protobuf; None of what has no such form."""
    document = orjson.loads(text)
    api_version, kind = document["apiVersion"], document["kind"]
    if (api_version, kind) == ("v1", "Status"):
        return protobuf.encode_object(codec.decode_value(Status, document))
    group, _, version = api_version.rpartition("/")
    for served in registry.in_version(group, version):
        if served.kind.is_open or kind not in (served.kind.kind, served.kind.listed_as):
            continue
        if "items" not in document:
            raw = protobuf.encode(codec.decode_value(served.shape, document))
        else:
            items = (protobuf.encode(codec.decode_value(served.shape, item)) for item in document["items"])
            metadata = protobuf.encode(codec.decode_value(ListMeta, document["metadata"]))
            raw = delimited_field(1, metadata) + b"".join(delimited_field(2, item) for item in items)
        return write_envelope(Envelope(api_version=api_version, kind=kind, raw=raw))
    return None


def _list(kind: str, api_version: str, metadata: dict[str, Any], items: Sequence[str]) -> str:
    head = orjson.dumps({"kind": kind, "apiVersion": api_version, "metadata": metadata}).decode()
    return f'{head[:-1]},"items":[{",".join(items)}]}}'


def _list_metadata(page: Page) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    return metadata


def _partial(text: str, version: str) -> str:
    metadata = bytes(_head.decode(text).metadata).decode()
    return f'{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/{version}","metadata":{metadata}}}'


def _table(
    served: Served, texts: Sequence[str], form: Form, *, now: float, metadata: dict[str, Any], headed: bool
) -> str:
    """The columns read stored objects, so the cells come from these; the rows' objects are of the served version.

    Of kinds that no type declares, `texts` are of that version already, and so are what their columns read.
    """
    to_builtins, kind = codec.to_builtins, served.kind
    table = tables.table(
        served.columns,
        [codec.decode_text(kind.type, text) for text in texts],
        now=now,
        include=cast("tables.IncludeObject", form.include_object),
        document=to_builtins if kind.is_open else lambda obj: served.document(to_builtins(obj)),
        metadata=metadata,
        headed=headed,
    )
    if form.shape_version != "v1":
        table["apiVersion"] = f"meta.k8s.io/{form.shape_version}"
    return orjson.dumps(table).decode()


# Statuses, and what else is told --------------------------------------------------------------------------------------


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


def unknown_path(why: str = "") -> NotFound:
    """What the API says of a path that no kind is served at."""
    message = "the server could not find the requested resource"
    return NotFound(f"{message}: {why}" if why else message, details={})


def unsupported_method(why: str = "") -> MethodNotAllowed:
    message = "the server does not allow this method on the requested resource"
    return MethodNotAllowed(f"{message}: {why}" if why else message)


def body_too_large() -> TooLarge:
    return TooLarge(f"Request entity too large: limit is {BODY_LIMIT}")


def took_too_long() -> GatewayTimeout:
    """What the API says where a request's expressions or ranges took all the processor time that it may have."""
    return GatewayTimeout(
        "Timeout: request did not complete within the allotted timeout: what it asks for takes too much processor "
        "time; nothing was changed",
        details={},
    )


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
    if isinstance(error, Undecipherable):
        told = faults.undecipherable(error)
        faults.note(told)
        return told
    logger.exception("request failed", exc_info=error)
    return ApiError(f"Internal error occurred: {error}", details={"causes": [{"message": str(error)}]})


_TRANSLATIONS: tuple[tuple[tuple[type[Exception], ...], Callable[[Any], ApiError]], ...] = (
    ((drf.NotAuthenticated, drf.AuthenticationFailed), lambda _: Unauthorized("Unauthorized")),
    ((drf.PermissionDenied,), lambda error: Forbidden(str(error.detail))),
    ((drf.MethodNotAllowed,), lambda _: unsupported_method()),
    ((drf.NotFound, Http404), lambda _: unknown_path()),
    ((RequestDataTooBig,), lambda _: body_too_large()),
    ((TimeLimitExceeded,), lambda _: took_too_long()),
    ((DjangoBadRequest, SuspiciousOperation, drf.ParseError), lambda error: BadRequest(str(error))),
)
