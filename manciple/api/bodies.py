"""Request bodies as stored objects: decoding in the version a client addresses, conversion to the stored one.

Also DeleteOptions, and the kinds that are decoded and never stored (reviews, bindings).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from manciple.api.served import Served
from manciple.wire import codec, documents
from manciple.wire.base import ApiObject
from manciple.wire.codec import Decoded, Strictness
from manciple.wire.errors import BadRequest
from manciple.wire.machinery import DeleteOptions
from manciple.wire.registry import Kind

__all__ = [
    "Decoded",
    "decode_delete_options",
    "decode_document",
    "decode_object",
    "virtual_kind",
]

_JSON = "application/json"


def decode_object(served: Served, body: bytes, *, content_type: str, strictness: Strictness) -> Decoded:
    """The object in the body of a create or update, as the store knows it. Raises: BadRequest, UnsupportedMediaType."""
    content_type = content_type or _JSON
    if served.conversion is None:
        return codec.decode(served.kind, body, content_type=content_type, strictness=strictness)
    if documents.media_type(content_type) == codec.PROTOBUF_MEDIA:
        document = codec.read_protobuf(served.message_type, body)
    else:
        document = codec.read_document(body, content_type=content_type)
    return decode_document(served, document, strictness=strictness)


def decode_document(served: Served, document: Any, *, strictness: Strictness) -> Decoded:
    """The same for a document of builtins. Raises: BadRequest."""
    if served.conversion is not None and isinstance(document, dict):
        given = document.get("apiVersion") or served.api_version
        if given != served.api_version:
            raise BadRequest(
                f"the API version in the data ({given}) does not match the expected API version ({served.api_version})"
            )
        document = served.to_storage({**document, "apiVersion": given})
    return codec.decode_document(served.kind, document, strictness=strictness)


def decode_delete_options(body: bytes, content_type: str) -> DeleteOptions | None:
    """The body of a DELETE; None where it has none. Raises: BadRequest."""
    if not body:
        return None
    return codec.decode_body(DeleteOptions, body, content_type=content_type or _JSON)


@cache
def virtual_kind(type_: type[ApiObject], *, group: str, version: str = "v1") -> Kind:
    """A kind that is decoded and answered, and never reaches the store."""
    name = type_.__name__
    return Kind(
        group=group,
        version=version,
        kind=name,
        plural=f"{name.lower()}s",
        namespaced=False,
        type=type_,
        validate_create=lambda _obj: (),
        validate_update=lambda _new, _old: (),
    )
