"""Between bytes and typed values: what clients send, what the store keeps, what is served.

    decode(kind, body)      a request's body (JSON, YAML or Kubernetes protobuf), checked as `fieldValidation` asks
    decode_document(...)    the same for a document that is builtins already: a patched one, a converted one
    decode_body(type_, ...) a body that is no object of a kind: DeleteOptions, Binding, an access review
    decode_text(type_, ...) a document that we wrote ourselves: no checks, at the speed of msgspec
    encode(obj)             compact JSON, apiVersion and kind first

Everything that can be wrong with a body is a BadRequest in Kubernetes' words, with the path of the field. A document
of builtins is first made fit for its type (`normalize`), by a function that each type is compiled to once: what Go's
decoder forgives is forgiven (null stands for absent; amounts may be JSON numbers), the rest is collected with its path:
unknown and repeated fields, which are dropped, and values of the wrong type.
Source: apiserver/pkg/endpoints/handlers/create.go and rest.go (transformDecodeError).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, Literal, TypeVar, cast

import msgspec
from msgspec import structs
from msgspec.structs import force_setattr

from manciple.wire import documents, json_schema, protobuf
from manciple.wire.base import (
    RFC3339,
    Alike,
    ApiObject,
    Declaration,
    FieldsV1,
    ManagedFieldsEntry,
    ObjectMeta,
    OpenObject,
    Shape,
    Value,
    declarations,
    json_decoder,
    shape_of,
    time_text,
    type_info,
)
from manciple.wire.documents import RepeatedKeys
from manciple.wire.errors import BadRequest, Invalid, UnsupportedMediaType, invalid
from manciple.wire.limits import check_time
from manciple.wire.quantity import Quantity
from manciple.wire.registry import Kind

Strictness = Literal["Strict", "Warn", "Ignore"]
PROTOBUF_MEDIA = "application/vnd.kubernetes.protobuf"

V = TypeVar("V")

#: what is left for msgspec to find wrong: integers out of range
_OUT_OF_RANGE = re.compile(r"Expected (?P<what>`int`.*) - at `\$\.(?P<path>.*)`")

_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_BASE64_BEGINNING = re.compile(r"[A-Za-z0-9+/]*")


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
            if kind.is_open or kind.without_protobuf:
                raise UnsupportedMediaType(f"{kind.kind} objects are read as JSON or YAML, not as protobuf")
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


def decode_document(kind: Kind, document: Any, *, strictness: Strictness, asides: bool = False) -> Decoded:
    """The object in a document of builtins. asides: as for `normalize`. Raises: BadRequest."""
    head = document if isinstance(document, dict) else {}
    if kind.is_open and head.get("kind", kind.kind) != kind.kind:
        wrong = invalid("kind", head["kind"], f"must be {kind.kind}")
        named = head["metadata"].get("name", "") if isinstance(head.get("metadata"), dict) else ""
        raise Invalid.of(kind=str(head["kind"]), group=kind.group, name=str(named), errors=[wrong])
    _check_identity(kind, head.get("apiVersion"), head.get("kind"))
    prefix = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
    if kind.is_open:
        return _decode_open(kind, document, strictness=strictness, prefix=prefix)
    value, warnings = _decode_checked(kind.type, document, strictness=strictness, prefix=prefix, asides=asides)
    return Decoded(_identified(kind, value), warnings)


def checked_document(
    type_: type[ApiObject], document: Any, *, api_version: str, strictness: Strictness
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A document of a version that has a type of its own, fit for it; what to warn of. Raises: BadRequest."""
    name, version = type_.__name__, api_version.rpartition("/")[2]
    prefix = f'{name} in version "{version}" cannot be handled as a {name}'
    value, warnings = _decode_checked(type_, document, strictness=strictness, prefix=prefix)
    return to_builtins(value), warnings


def decode_body(type_: type[V], body: bytes, *, content_type: str, strictness: Strictness = "Ignore") -> V:
    """The value in a body whose kind is not one of ours, such as DeleteOptions; an empty body is an empty value.

    Raises: BadRequest, also for a body that calls itself something else; UnsupportedMediaType.
    """
    if not body:
        return type_()
    if documents.media_type(content_type) == PROTOBUF_MEDIA:
        envelope = protobuf.read_envelope(body)
        head = {"api_version": envelope.api_version, "kind": envelope.kind}
        value = protobuf.decode(cast("type[Value]", type_), envelope.raw)
        known = {name: text for name, text in head.items() if hasattr(value, name)}
        return _of_its_kind(type_, cast("V", structs.replace(value, **known)))
    document = read_document(body, content_type=content_type)
    prefix = f"the body cannot be handled as a {type_.__name__}"
    return _of_its_kind(type_, _decode_checked(type_, document, strictness=strictness, prefix=prefix)[0])


def _of_its_kind(type_: type[V], value: V) -> V:
    """What a client sends by mistake, such as the object that it wants deleted, is not taken for options."""
    kind, version = getattr(value, "kind", ""), getattr(value, "api_version", "")
    if kind not in ("", type_.__name__):
        raise BadRequest(f'no kind "{kind}" is registered for version "{version}": {type_.__name__} is expected here')
    return value


def decode_value(type_: type[V], raw: Any) -> V:
    """Builtins as a value of `type_`; unknown fields are dropped.

    Raises: BadRequest that names the path and what was expected there.
    """
    if type_ is OpenObject:
        return cast("V", _open_object(dict(raw)))
    prefix = f"the document cannot be handled as a {getattr(type_, '__name__', str(type_))}"
    return _decode_checked(type_, raw, strictness="Ignore", prefix=prefix, asides=True)[0]


def decode_fitted(kind: Kind, raw: dict[str, Any]) -> Any:
    """Builtins that were put together from several documents as an object of `kind`. Raises: BadRequest."""
    obj = decode_value(kind.type, raw)
    if kind.fit is None:
        return obj
    return structs.replace(obj, content=kind.fit(cast("OpenObject", obj).content, Findings()))


def decode_text(type_: type[V], text: str | bytes) -> V:
    """A document that we encoded ourselves. Raises: msgspec.ValidationError for one that we cannot have written."""
    if type_ is OpenObject:
        return cast("V", _open_object(json_decoder(dict).decode(text)))
    decoded = json_decoder(cast("Any", type_)).decode(text)
    if isinstance(decoded, ApiObject) and decoded.metadata.managed_fields:
        _share_entries(decoded.metadata)
    return cast("V", decoded)


_known_entries: Alike[ManagedFieldsEntry] = Alike(2048)
#: Longest set of fields whose entry is kept for others, in bytes.
_LONGEST_KNOWN = 4096


def _share_entries(meta: ObjectMeta) -> None:
    """Let equal entries of documents, which were decoded just now, be one, and their sets not hold the whole text."""
    shared = []
    for entry in meta.managed_fields:
        text = bytes(entry.fields_v1)
        key = (text, entry.time, entry.manager, entry.operation, entry.api_version, entry.subresource)
        known = _known_entries.get(key)
        if known is None or known.fields_type != entry.fields_type:
            known = entry
            if text:  # the default is left out of documents because it is that very object
                force_setattr(entry, "fields_v1", FieldsV1(text))
            if len(text) <= _LONGEST_KNOWN:
                _known_entries.first(key, known)
        shared.append(known)
    force_setattr(meta, "managed_fields", tuple(shared))


def encode(obj: Any) -> bytes:
    """Compact JSON of a value."""
    if type(obj) is OpenObject:
        head = {"apiVersion": obj.api_version, "kind": obj.kind, "metadata": obj.metadata}
        return _encoder.encode(head | obj.content)
    return _encoder.encode(obj)


def to_builtins(obj: Any) -> dict[str, Any]:
    """A value as the dicts and lists that its JSON stands for."""
    return cast("dict[str, Any]", msgspec.json.decode(encode(obj)))


_encoder = msgspec.json.Encoder()


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


def _decode_checked(
    type_: type[V], document: Any, *, strictness: Strictness, prefix: str, asides: bool = False
) -> tuple[V, tuple[str, ...]]:
    findings = Findings()
    json_decoder(cast("Any", type_))  # describes it
    fitted = normalize(type_, document, findings, asides=asides)
    unknown = findings.strict if strictness == "Strict" else []
    strictly = [f"strict decoding error: {', '.join(unknown)}"] if unknown else []
    if findings.wrong or strictly:
        raise BadRequest(f"{prefix}: {', '.join([*findings.wrong, *strictly])}")
    try:
        value = msgspec.convert(fitted, type_)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{prefix}: {_in_words(str(error))}") from error
    return value, tuple(findings.strict) if strictness == "Warn" else ()


def _open_object(document: dict[str, Any]) -> OpenObject:
    """Takes the members of the head out of `document`, which is the content then. Raises: BadRequest."""
    head = {"api_version": document.pop("apiVersion", ""), "kind": document.pop("kind", "")}
    metadata = decode_value(ObjectMeta, document.pop("metadata", None) or {})
    return OpenObject(**head, metadata=metadata, content=document)


def _decode_open(kind: Kind, document: Any, *, strictness: Strictness, prefix: str) -> Decoded:
    """A document whose content no type declares: `kind.fit` says what may stand in it. Raises: BadRequest."""
    findings = Findings()
    if not isinstance(document, dict):
        findings.mismatch(document, "", kind.kind)
    elif not document.get("kind"):
        raise BadRequest(f"the object provided is unrecognized (must be of type {kind.kind}): Object 'Kind' is missing")
    else:
        rest = {key: item for key, item in document.items() if key not in ("apiVersion", "kind", "metadata")}
        _report_repeated(document, "", findings)
        metadata = normalize(ObjectMeta, document.get("metadata") or {}, nested := Findings())
        findings.wrong += nested.wrong
        findings.strict += [one.replace('field "', 'field "metadata.', 1) for one in nested.strict]
        content = {key: as_go_reads(item, key, findings) for key, item in rest.items()}
        content = kind.fit(content, findings) if kind.fit else content
    strictly = findings.strict if strictness == "Strict" else []
    told = [f"strict decoding error: {', '.join(strictly)}"] if strictly else []
    if findings.wrong or told:
        raise BadRequest(f"{prefix}: {', '.join([*findings.wrong, *told])}")
    json_decoder(ObjectMeta)
    try:
        value = OpenObject(metadata=msgspec.convert(metadata, ObjectMeta), content=content)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{prefix}: {_in_words(str(error))}") from error
    return Decoded(_identified(kind, value), tuple(findings.strict) if strictness == "Warn" else ())


def as_go_reads(raw: Any, path: str, findings: Findings) -> Any:
    """Builtins without what only JSON's text tells apart: 1.0 is 1; keys that stand twice are reported, and numbers
    that are too large.
    """
    if isinstance(raw, dict):
        check_time()
        _report_repeated(raw, path, findings)
        return {key: as_go_reads(item, _join(path, key), findings) for key, item in raw.items()}
    if isinstance(raw, list):
        return [as_go_reads(item, f"{path}[{at}]", findings) for at, item in enumerate(raw)]
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        number = documents.as_go_number(raw)
        return findings.mismatch(raw, path, "float64") if number is None else number
    return raw


def _in_words(message: str) -> str:
    """msgspec's complaint as Go's JSON decoder puts it; our own is worded already."""
    if found := _OUT_OF_RANGE.fullmatch(message):
        return f"json: cannot unmarshal number into field {found['path']}: expected {found['what']}"
    return message


# Normalization --------------------------------------------------------------------------------------------------------

#: Items from which a list or map is worth a look at the time.
_MANY = 64
#: Wrong values that one answer tells of.
MOST_WRONG = 20
#: Unknown and repeated fields that one answer tells of.
MOST_STRICT = 500


@dataclass(slots=True)
class Findings:
    """What is wrong with one document. `strict`: unknown and repeated fields; `wrong`: values no type can take."""

    strict: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Note an unknown or repeated field."""
        if len(self.strict) < MOST_STRICT:
            self.strict.append(text)

    def mismatch(self, raw: Any, path: str, expected: str) -> None:
        """Note a value of the wrong type; what is returned in its place is never looked at."""
        got = next((name for types, name in _JSON_NAMES if isinstance(raw, types)), "null")
        into = f"field {path}" if path else "a value"
        self.note(f"json: cannot unmarshal {got} into {into} of type {expected}")

    def note(self, wrong: str) -> None:
        if len(self.wrong) < MOST_WRONG:
            self.wrong.append(wrong)


#: (raw, path, findings) -> the normalised value; worth nothing once something wrong was found
Normalizer = Callable[[Any, str, Findings], Any]


_JSON_NAMES: tuple[tuple[Any, str], ...] = (
    (bool, "bool"),
    (str, "string"),
    (int | float, "number"),
    (list | tuple, "array"),
    (dict, "object"),
)


def normalize(type_: Any, document: Any, findings: Findings, *, asides: bool = False) -> Any:
    """`document` fit for `msgspec.convert(..., type_)`, unless `findings` tells of something wrong afterwards.

    type_: a `Value` subclass, or a dict or tuple of them. Only the range of an integer is left for the conversion to
    check. asides: fields that only some versions show are known, and those that clients may not name for now.
    """
    return _of_type(type_, asides)(document, "", findings)


@cache
def _of_type(type_: Any, asides: bool) -> Normalizer:
    if isinstance(type_, type) and issubclass(type_, Value):
        return _value(type_, asides)
    return _contained(shape_of(type_info(type_)), "", asides)


@cache
def _value(type_: type[Value], asides: bool) -> Normalizer:
    def normalize_value(raw: Any, path: str, findings: Findings) -> Any:
        if not isinstance(raw, dict):
            return findings.mismatch(raw, path, type_.__name__)
        members, conditional = _members(type_, asides)  # looked up here, because types may contain themselves
        fitted = {}
        repeated = _report_repeated(raw, path, findings)
        for key, item in raw.items():
            member = members.get(key)
            if member is None or (key in conditional and not conditional[key]()):
                if key not in repeated:
                    findings.warn(f'unknown field "{_join(path, key)}"')
            elif item is not None:
                fitted[key] = member(item, _join(path, key), findings)
        return fitted

    return normalize_value


@cache
def _members(type_: type[Value], asides: bool) -> tuple[Mapping[str, Normalizer], Mapping[str, Callable[[], bool]]]:
    """The normalizers of the fields that may be named; of those that are known at times only, when.

    Other threads see them all or none: to a thread that saw some, the other fields would be unknown, and dropped.
    """
    known = [declared for declared in declarations(type_) if asides or not declared.aside]
    conditional = {} if asides else {one.name: one.known for one in known if one.known is not None}
    return {declared.name: _member(declared, asides) for declared in known}, conditional


def _report_repeated(raw: dict[str, Any], path: str, findings: Findings) -> Collection[str]:
    if not isinstance(raw, RepeatedKeys):
        return ()
    for key in raw.repeated:
        findings.warn(f'duplicate field "{_join(path, key)}"')
    return frozenset(raw.repeated)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _member(declared: Declaration, asides: bool) -> Normalizer:
    fitting = _contained(declared.shape, declared.encoding, asides)
    if declared.shape.element is ManagedFieldsEntry:
        # An empty list removes the entries, as a single empty one does; in a value it would be as none.
        return lambda raw, path, findings: fitting([{}] if raw == [] else raw, path, findings)
    if declared.as_list is None:
        return fitting
    of_list = _contained(declared.as_list.shape, "", asides)

    return lambda raw, path, findings: (of_list if isinstance(raw, list | tuple) else fitting)(raw, path, findings)


def _contained(shape: Shape, encoding: str, asides: bool) -> Normalizer:
    element = _element(shape, encoding, asides)
    zero = {"quantity": "0", "strings": ()}.get(encoding, _ZEROS.get(shape.element, {}))

    def normalize_list(raw: Any, path: str, findings: Findings) -> Any:
        if not isinstance(raw, list | tuple):
            return raw if shape.or_object and isinstance(raw, dict) else findings.mismatch(raw, path, "array")
        if len(raw) >= _MANY:
            check_time()
        return [zero if item is None else element(item, f"{path}[{at}]", findings) for at, item in enumerate(raw)]

    def normalize_map(raw: Any, path: str, findings: Findings) -> Any:
        if not isinstance(raw, dict):
            return findings.mismatch(raw, path, "map")
        if len(raw) >= _MANY:
            check_time()
        _report_repeated(raw, path, findings)
        return {key: zero if item is None else element(item, _join(path, key), findings) for key, item in raw.items()}

    return {"": element, "list": normalize_list, "map": normalize_map}[shape.container]


_ZEROS: dict[type, Any] = {str: "", int: 0, bool: False, object: None}


def _element(shape: Shape, encoding: str, asides: bool) -> Normalizer:
    if issubclass(shape.element, Value):
        return _value(shape.element, asides)
    return _SCALARS.get(encoding) or _PLAIN[shape.element]


def _plain(type_: type, expected: str) -> Normalizer:
    def normalize_plain(raw: Any, path: str, findings: Findings) -> Any:
        if type(raw) is not type_:  # bool is an int to isinstance()
            return findings.mismatch(raw, path, expected)
        return raw

    return normalize_plain


def _any(raw: Any, path: str, findings: Findings) -> Any:  # noqa: ARG001
    return raw


def _int_or_string(raw: Any, path: str, findings: Findings) -> Any:
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        return findings.mismatch(raw, path, "int or string")
    if isinstance(raw, int) and not -(2**31) <= raw < 2**31:
        return findings.mismatch(raw, path, "int32")
    return raw


def _strings(raw: Any, path: str, findings: Findings) -> Any:
    if not isinstance(raw, list | tuple):
        return findings.mismatch(raw, path, "array")
    return ["" if item is None else _PLAIN[str](item, f"{path}[{at}]", findings) for at, item in enumerate(raw)]


def _quantity(raw: Any, path: str, findings: Findings) -> Any:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        return findings.mismatch(raw, path, "Quantity")
    text = format(Decimal(str(raw)), "f") if isinstance(raw, float) else str(raw)
    try:
        Quantity.parse(text)
    except ValueError as error:
        return findings.note(f"{path}: {error}")
    return text


def _fields_v1(raw: Any, path: str, findings: Findings) -> Any:  # noqa: ARG001
    return FieldsV1(_encoder.encode(raw))


def _base64(raw: Any, path: str, findings: Findings) -> Any:
    """As Go reads it: padded, in lines or not."""
    if not isinstance(raw, str):
        return findings.mismatch(raw, path, "[]uint8")
    text = raw.replace("\r", "").replace("\n", "") if "\n" in raw or "\r" in raw else raw
    if len(text) % 4 or not _BASE64.fullmatch(text):
        ends = _BASE64_BEGINNING.match(text)
        return findings.note(f"illegal base64 data at input byte {ends.end() if ends else 0}")
    return text


def _time(micro: bool) -> Normalizer:
    canonical = len("2006-01-02T15:04:05.000000Z") if micro else len("2006-01-02T15:04:05Z")

    def normalize_time(raw: Any, path: str, findings: Findings) -> Any:
        if not isinstance(raw, str):
            return findings.mismatch(raw, path, "Time")
        try:
            if len(raw) == canonical and raw.endswith("Z") and RFC3339.fullmatch(raw):
                datetime.fromisoformat(raw)
                return raw
            return time_text(raw, micro=micro)
        except (ValueError, OverflowError) as error:
            return findings.note(f"{path}: {error}")

    return normalize_time


def _normalize_name(raw: Any, path: str, findings: Findings) -> Any:
    """The encoding "name": a name, or an object with that name, whose other fields are dropped with a warning."""
    if isinstance(raw, dict):
        for key in raw.keys() - {"name"}:
            findings.warn(f'unknown field "{path}.{key}"')
        raw, path = raw.get("name", ""), f"{path}.name"
    return raw if isinstance(raw, str) else findings.mismatch(raw, path, "string")


_PLAIN: dict[type, Normalizer] = {
    str: _plain(str, "string"),
    bool: _plain(bool, "bool"),
    int: _plain(int, "int"),
    object: _any,
}
_SCALARS: dict[str, Normalizer] = {
    "intOrString": _int_or_string,
    "bytes": _base64,
    "fieldsV1": _fields_v1,
    "strings": _strings,
    "quantity": _quantity,
    "time": _time(micro=False),
    "microTime": _time(micro=True),
    "jsonSchema": json_schema.normalize,
    "name": _normalize_name,
}
