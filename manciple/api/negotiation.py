"""Which form of answer a client wants, from its Accept header and a few query parameters.

The API answers JSON or YAML; a client that asks for Kubernetes protobuf gets JSON, which client-go reads by the
answer's Content-Type. An object or a list may be wanted as a Table (kubectl get) or as metadata only
(`as=Table;v=v1;g=meta.k8s.io`). Source: apiserver/pkg/endpoints/handlers/negotiation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from manciple.wire.errors import Invalid, NotAcceptable, not_supported

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
