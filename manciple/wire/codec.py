"""Between bytes and typed values: what clients send, what the store keeps, what is served.

    decode(kind, body)      a request's body (JSON, YAML or Kubernetes protobuf), checked as `fieldValidation` asks
    decode_document(...)    the same for a document that is builtins already: a patched one, a converted one
    decode_body(type_, ...) a body that is no object of a kind: DeleteOptions, Binding, an access review
    decode_text(type_, ...) a document that we wrote ourselves: no checks, at the speed of msgspec
    encode(obj)             compact JSON, apiVersion and kind first

Everything that can be wrong with a body is a BadRequest in Kubernetes' words, with the path of the field.
Source: apiserver/pkg/endpoints/handlers/create.go and rest.go (transformDecodeError).
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, cast

import msgspec
from msgspec import structs

from manciple.wire import documents, protobuf
from manciple.wire.base import ApiObject, Value
from manciple.wire.errors import BadRequest
from manciple.wire.normalization import Findings, normalize
from manciple.wire.registry import Kind

Strictness = Literal["Strict", "Warn", "Ignore"]
PROTOBUF_MEDIA = "application/vnd.kubernetes.protobuf"

V = TypeVar("V")

#: what is left for msgspec to find wrong: integers out of range
_OUT_OF_RANGE = re.compile(r"Expected (?P<what>`int`.*) - at `\$\.(?P<path>.*)`")


@dataclass(frozen=True, slots=True)
class Decoded:
    """A value and what a client should be warned of: unknown and duplicate fields, as "Warn" asks."""

    object: Any
    warnings: tuple[str, ...] = ()


def decode(kind: Kind, body: bytes, *, content_type: str, strictness: Strictness) -> Decoded:
    """The object in the body of a create or update of `kind`; apiVersion and kind are filled in where absent.

    Raises: BadRequest; UnsupportedMediaType for a content type that we do not read.
    """
    if documents.media_type(content_type) == PROTOBUF_MEDIA:
        envelope = protobuf.read_envelope(body)
        if envelope.content_type not in documents.JSON_MEDIA:
            _check_identity(kind, envelope.api_version, envelope.kind)
            return Decoded(_identified(kind, protobuf.decode(kind.type, envelope.raw)))
        body, content_type = envelope.raw, envelope.content_type
    document = read_document(body, content_type=content_type)
    return decode_document(kind, document, strictness=strictness)


def read_document(body: bytes, *, content_type: str) -> Any:
    """The builtins in a JSON or YAML body. Raises: BadRequest, UnsupportedMediaType."""
    return documents.parse(body, media=documents.media_type(content_type))


def read_protobuf(type_: type[ApiObject], body: bytes) -> Any:
    """The builtins in a protobuf body whose message is of `type_`, as JSON would have them. Raises: BadRequest."""
    envelope = protobuf.read_envelope(body)
    if envelope.content_type in documents.JSON_MEDIA:
        return read_document(envelope.raw, content_type=envelope.content_type)
    document = to_builtins(protobuf.decode(type_, envelope.raw))
    return {**document, "apiVersion": envelope.api_version, "kind": envelope.kind}


def decode_document(kind: Kind, document: Any, *, strictness: Strictness) -> Decoded:
    """The object in a document of builtins. Raises: BadRequest."""
    head = document if isinstance(document, dict) else {}
    _check_identity(kind, head.get("apiVersion"), head.get("kind"))
    prefix = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
    value, warnings = _decode_checked(kind.type, document, strictness=strictness, prefix=prefix)
    return Decoded(_identified(kind, value), warnings)


def decode_body(type_: type[V], body: bytes, *, content_type: str, strictness: Strictness = "Ignore") -> V:
    """The value in a body whose kind is not one of ours, such as DeleteOptions; an empty body is an empty value.

    Raises: BadRequest, UnsupportedMediaType.
    """
    if not body:
        return type_()
    if documents.media_type(content_type) == PROTOBUF_MEDIA:
        envelope = protobuf.read_envelope(body)
        head = {"api_version": envelope.api_version, "kind": envelope.kind}
        value = protobuf.decode(cast("type[Value]", type_), envelope.raw)
        known = {name: text for name, text in head.items() if hasattr(value, name)}
        return cast("V", structs.replace(value, **known))
    document = read_document(body, content_type=content_type)
    prefix = f"the body cannot be handled as a {type_.__name__}"
    return _decode_checked(type_, document, strictness=strictness, prefix=prefix)[0]


def decode_value(type_: type[V], raw: Any) -> V:
    """Builtins as a value of `type_`; unknown fields are dropped.

    Raises: BadRequest that names the path and what was expected there.
    """
    name = getattr(type_, "__name__", str(type_))
    return _decode_checked(type_, raw, strictness="Ignore", prefix=f"the document cannot be handled as a {name}")[0]


def decode_text(type_: type[V], text: str | bytes) -> V:
    """A document that we encoded ourselves. Raises: msgspec.ValidationError for one that we cannot have written."""
    return cast("V", _decoder(cast("Any", type_)).decode(text))


def encode(obj: Any) -> bytes:
    """Compact JSON of a value."""
    return _encoder.encode(obj)


def to_builtins(obj: Any) -> dict[str, Any]:
    """A value as the dicts and lists that its JSON stands for."""
    return cast("dict[str, Any]", msgspec.json.decode(_encoder.encode(obj)))


_encoder = msgspec.json.Encoder()


#: msgspec describes a struct to itself when it is first decoded; two threads that do so at once crash the interpreter.
_describing = threading.Lock()


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    with _describing:
        return msgspec.json.Decoder(type_)


def _check_identity(kind: Kind, api_version: Any, kind_name: Any) -> None:
    """Raises: BadRequest when a body says that it is something else than what is served here."""
    if api_version and api_version != kind.api_version:
        raise BadRequest(
            f"the API version in the data ({api_version}) does not match the expected API version ({kind.api_version})"
        )
    if kind_name and kind_name != kind.kind:
        raise BadRequest(
            f'{kind_name} in version "{kind.version}" cannot be handled as a {kind.kind}: '
            f"the kind in the data ({kind_name}) does not match the expected kind ({kind.kind})"
        )


def _identified(kind: Kind, value: ApiObject) -> ApiObject:
    if value.api_version == kind.api_version and value.kind == kind.kind:
        return value
    return structs.replace(value, api_version=kind.api_version, kind=kind.kind)


def _decode_checked(type_: type[V], document: Any, *, strictness: Strictness, prefix: str) -> tuple[V, tuple[str, ...]]:
    findings = Findings()
    _decoder(cast("Any", type_))
    fitted = normalize(type_, document, findings)
    unknown = findings.strict if strictness == "Strict" else []
    strictly = [f"strict decoding error: {', '.join(unknown)}"] if unknown else []
    if findings.wrong or strictly:
        raise BadRequest(f"{prefix}: {', '.join([*findings.wrong, *strictly])}")
    try:
        value = msgspec.convert(fitted, type_)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{prefix}: {_in_words(str(error))}") from error
    return value, tuple(findings.strict) if strictness == "Warn" else ()


def _in_words(message: str) -> str:
    """msgspec's complaint as Go's JSON decoder puts it; our own is worded already."""
    if found := _OUT_OF_RANGE.fullmatch(message):
        return f"json: cannot unmarshal number into field {found['path']}: expected {found['what']}"
    return message
