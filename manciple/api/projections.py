"""Subresources that are documents of another kind, made of parts of an object and written back into them: its scale."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from rest_framework.request import Request

from manciple.api import edits, verbs
from manciple.api.patches import JSON_PATCH, MERGE_PATCH, unknown_format
from manciple.api.requests import ResourcePath
from manciple.wire import codec
from manciple.wire import patch as patching
from manciple.wire.base import timestamp
from manciple.wire.errors import BadRequest
from manciple.wire.identity import Identity
from manciple.wire.managed_fields import track_update
from manciple.wire.registry import Projection, Served

#: the document as it is -> as it shall be
Change = Callable[[dict[str, Any]], dict[str, Any]]


def read(served: Served, where: ResourcePath, projection: Projection) -> dict[str, Any]:
    """Raises: NotFound."""
    return projection.read(edits.current(served.kind, where.namespace, where.name))


def body(content: bytes, request: Request) -> dict[str, Any]:
    """The document in the body of a PUT. Raises: BadRequest, UnsupportedMediaType."""
    document = codec.read_document(content, content_type=request.content_type or "")
    if not isinstance(document, dict):
        raise BadRequest("the body of the request is not an object")
    return document


def patch(content: bytes, *, media: str) -> Change:
    """Raises: BadRequest; UnsupportedMediaType for what is neither a JSON patch nor a merge patch."""
    formats = {JSON_PATCH: patching.json_patch, MERGE_PATCH: patching.merge_patch}
    if media not in formats:
        raise unknown_format(tuple(formats))
    wanted = codec.read_document(content, content_type="application/json")
    return lambda document: formats[media](document, wanted)


def write(
    served: Served, where: ResourcePath, change: Change, *, identity: Identity, manager: str, dry_run: bool
) -> dict[str, Any]:
    """The document as it is then. Raises: NotFound, Conflict, Invalid, BadRequest."""
    kind, subresource = served.kind, where.subresource
    projection = kind.projections[subresource]

    def changed(old: Any) -> Any:
        new = projection.write(old, change(projection.read(old)))
        now = timestamp(datetime.now(UTC))
        return track_update(kind, new, old, manager=manager, subresource=subresource, now=now)

    written = verbs.modify(
        kind,
        changed,
        namespace=where.namespace,
        name=where.name,
        identity=identity,
        dry_run=dry_run,
        sets_managed_fields=True,
    )
    return projection.read(written.object)
