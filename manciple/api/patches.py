"""PATCH bodies as changes: what each patch format makes of the stored object.

JSON patch, merge patch and strategic merge patch are worked out on the document as the client sees it (in the version
it addresses); the result is decoded like any body, so unknown fields are found in patches as well. Server-side apply is
in `manciple.api.applies`. Source: apiserver/pkg/endpoints/handlers/patch.go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from manciple.api import bodies
from manciple.api.options import Strictness
from manciple.api.served import Served
from manciple.wire import codec, patch
from manciple.wire.errors import UnsupportedMediaType

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
FORMATS = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH, STRATEGIC_MERGE_PATCH)


@dataclass(slots=True)
class Patch:
    """A patch that was read and can be applied, more than once if others write in between."""

    served: Served
    apply: Callable[[dict[str, Any]], dict[str, Any]]
    strictness: Strictness
    #: what the last application had to say about unknown fields
    warnings: tuple[str, ...] = field(default=(), init=False)

    def change(self, old: Any) -> Any:
        """The successor of a stored object. Raises: BadRequest, Invalid."""
        patched = self.apply(self.served.document(codec.to_builtins(old)))
        decoded = bodies.decode_document(self.served, patched, strictness=self.strictness)
        self.warnings = tuple(decoded.warnings)
        return decoded.object


def media_type(content_type: str) -> str:
    """Raises: UnsupportedMediaType for a patch format that nobody knows."""
    media = content_type.partition(";")[0].strip().lower()
    if media not in FORMATS:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: " + ", ".join(FORMATS)
        )
    return media


def read(served: Served, body: bytes, *, media: str, strictness: Strictness) -> Patch:
    """Raises: BadRequest for a body that is no JSON."""
    content = codec.read_document(body, content_type="application/json")
    formats: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        JSON_PATCH: lambda document: patch.json_patch(document, content),
        MERGE_PATCH: lambda document: patch.merge_patch(document, content),
        STRATEGIC_MERGE_PATCH: lambda document: patch.strategic_merge_patch(document, content, served.kind.type),
    }
    return Patch(served, formats[media], strictness)
