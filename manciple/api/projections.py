"""Subresources that are documents of another kind, made of parts of an object and written back into them: its scale.

Server-side apply of such a document is one of the parts of the object that it stands for (`patches.apply`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.request import Request

from manciple.api import verbs
from manciple.api.patches import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, unknown_format
from manciple.api.requests import ResourcePath
from manciple.wire import codec
from manciple.wire import patch as patching
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import BadRequest
from manciple.wire.identity import Identity
from manciple.wire.registry import Projection, Served

#: the document as it is -> as it shall be
Change = Callable[[dict[str, Any]], dict[str, Any]]


def read(served: Served, where: ResourcePath, projection: Projection) -> dict[str, Any]:
    """Raises: NotFound."""
    return projection.read(verbs.current(served.kind, where.namespace, where.name))


def body(served: Served, where: ResourcePath, content: bytes, request: Request) -> Change:
    """The change to the document in the body of a PUT. Raises: BadRequest, UnsupportedMediaType."""
    document = codec.read_document(content, content_type=request.content_type or "")
    if not isinstance(document, dict):
        raise BadRequest("the body of the request is not an object")
    metadata = codec.decode_value(ObjectMeta, document.get("metadata") or {})
    verbs.check_place(served.kind, metadata, namespace=where.namespace, name=where.name)
    return lambda _document: document


def patch(served: Served, content: bytes, *, media: str) -> Change:
    """A strategic merge patch, of a kind that a type declares, is a merge patch here: there are no lists.

    Raises: BadRequest; UnsupportedMediaType for any other format.
    """
    formats = {JSON_PATCH: patching.json_patch, MERGE_PATCH: patching.merge_patch}
    if not served.kind.is_open:
        formats[STRATEGIC_MERGE_PATCH] = patching.merge_patch
    if media not in formats:
        raise unknown_format(tuple(formats))
    wanted = codec.read_document(content, content_type="application/json")
    return lambda document: formats[media](document, wanted)


def write(
    served: Served, where: ResourcePath, change: Change, *, identity: Identity, manager: str, dry_run: bool, verb: str
) -> dict[str, Any]:
    """The document as it is then. Raises: NotFound, Conflict, Invalid, BadRequest."""
    projection = served.kind.projections[where.subresource]
    written = verbs.modify(
        served.kind,
        lambda old: projection.write(old, change),
        namespace=where.namespace,
        name=where.name,
        identity=identity,
        subresource=where.subresource,
        manager=manager,
        dry_run=dry_run,
        verb=verb,
    )
    return projection.read(written.object)
