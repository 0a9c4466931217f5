"""Which form of answer a client wants, and objects and lists in that form: verbatim, as a Table, as metadata only; as
JSON or YAML.

The form follows from the Accept header and a few query parameters. A client that asks for Kubernetes protobuf gets
JSON, which client-go reads by the answer's Content-Type. Documents are stored as text, exactly as they are served. A
plain list is therefore the stored texts between two brackets, never decoded; only Tables and other served versions look
inside. Source: apiserver/pkg/endpoints/handlers/negotiation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

import msgspec
import orjson
import yaml

from manciple.store.records import Page
from manciple.wire import codec, tables
from manciple.wire.errors import Invalid, NotAcceptable, not_supported
from manciple.wire.registry import Served

# What is wanted -------------------------------------------------------------------------------------------------------


Shape = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]
Media = Literal["json", "yaml"]

_MEDIA: dict[str, Media] = {
    "application/json": "json",
    "application/vnd.kubernetes.protobuf": "json",
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
    """`include_object`: what a Table row carries beside its cells: "None", "Metadata" or "Object"."""

    shape: Shape = ""
    shape_version: str = "v1"
    media: Media = "json"
    pretty: bool = False
    include_object: str = "Metadata"


@dataclass(frozen=True, slots=True)
class _Clause:
    """One clause of an Accept header."""

    media: str
    parameters: Mapping[str, str]
    quality: float


def wanted_form(accept: str, query: Mapping[str, str]) -> Form:
    """The form to answer in. Raises: NotAcceptable when none of the accepted ones is offered."""
    media, shape, shape_version = _negotiate(accept)
    return Form(
        shape=shape,
        shape_version=shape_version,
        media=media,
        pretty=query.get("pretty", "") in ("true", "1"),
        include_object=_include_object(query.get("includeObject", "")),
    )


def _include_object(value: str) -> str:
    if value not in ("", *_INCLUDES):
        wrong = not_supported("includeObject", value, _INCLUDES)
        raise Invalid.of(kind="TableOptions", group="meta.k8s.io", name="", errors=[wrong])
    return value or "Metadata"


@lru_cache(maxsize=256)
def _negotiate(accept: str) -> tuple[Media, Shape, str]:
    if not accept.strip():
        return "json", "", "v1"
    for clause in sorted(_clauses(accept), key=lambda clause: -clause.quality):
        shape = _SHAPES.get(clause.parameters.get("as", ""))
        version = clause.parameters.get("v", "v1")
        group = clause.parameters.get("g", "meta.k8s.io")
        offered = _MEDIA.get(clause.media)
        if offered is None or shape is None:
            continue
        if shape and (group != "meta.k8s.io" or version not in _SHAPE_VERSIONS):
            continue
        return offered, shape, version if shape else "v1"
    raise NotAcceptable(
        "only the following media types are accepted: application/json, application/yaml, "
        "application/vnd.kubernetes.protobuf"
    )


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


def object_text(served: Served, text: str, form: Form, *, now: float, headed: bool = True) -> str:
    """One stored document as JSON text in the shape of `form`. `headed`: whether a Table names its columns."""
    if form.shape == "Table":
        metadata = {"resourceVersion": codec.decode_text(served.kind.type, text).metadata.resource_version}
        return _table(served, [text], form, now=now, metadata=metadata, headed=headed)
    if form.shape == "PartialObjectMetadata":
        return _partial(text, form.shape_version)
    return served.text(text)


def list_text(served: Served, page: Page, form: Form, *, now: float) -> str:
    """One page of a list as JSON text in the shape of `form`."""
    texts = [item.text for item in page.items]
    metadata = _list_metadata(page)
    if form.shape == "Table":
        return _table(served, texts, form, now=now, metadata=metadata, headed=True)
    if form.shape in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        items = [_partial(text, form.shape_version) for text in texts]
        return _list("PartialObjectMetadataList", f"meta.k8s.io/{form.shape_version}", metadata, items)
    return _list(f"{served.kind.kind}List", served.api_version, metadata, [served.text(text) for text in texts])


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
    if form.media == "yaml":
        return yaml.safe_dump(orjson.loads(text), sort_keys=False, allow_unicode=True).encode(), "application/yaml"
    if form.pretty:
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE), _JSON
    return text.encode(), _JSON


_JSON = "application/json"


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
    """The columns read stored objects, so the cells come from these; the rows' objects are of the served version."""
    table = tables.table(
        served.kind,
        [codec.decode_text(served.kind.type, text) for text in texts],
        now=now,
        include=cast("tables.IncludeObject", form.include_object),
        document=lambda obj: served.document(codec.to_builtins(obj)),
        metadata=metadata,
        headed=headed,
    )
    if form.shape_version != "v1":
        table["apiVersion"] = f"meta.k8s.io/{form.shape_version}"
    return orjson.dumps(table).decode()
