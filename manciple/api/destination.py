"""Where the writes of pages go: into the store here, or, from a mirror that acts, to the cluster that it copies.

`manciple.api.verbs` and `claims.evictions` ask `verbs.destination` before they write, so no page knows which of the two
it talks to. Requests to the API, and controllers, always write here; in a mirror they are refused
(`manciple.access.mirrored`).

A destination answers as the verbs do, and raises what the cluster says as an `ApiError`. Objects that it returns have
the resourceVersion that they have here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from manciple.store.records import DeletionAnswer
from manciple.wire.base import ApiObject
from manciple.wire.identity import Identity
from manciple.wire.machinery import DeleteOptions
from manciple.wire.registry import Kind

Document = dict[str, Any]


class Successor(NamedTuple):
    """An object that is created in the place of others. of: the stored one of which it is a changed copy, if any."""

    kind: Kind
    object: ApiObject
    of: ApiObject | None = None


class Destination(Protocol):
    """document, documents: the texts of objects (of an edit: before and after it), which may have fields that our types
    do not know.
    """

    def create(
        self, kind: Kind, obj: Any, *, identity: Identity, dry_run: bool = False, document: Document | None = None
    ) -> Any: ...

    def modify(
        self,
        kind: Kind,
        change: Callable[[Any], Any],
        *,
        namespace: str,
        name: str,
        identity: Identity,
        dry_run: bool = False,
        subresource: str = "",
        revision: str = "",
        documents: tuple[Document, Document] | None = None,
    ) -> Any:
        """revision: of the object here that is replaced; "" for whichever it is."""

    def delete(
        self, kind: Kind, *, namespace: str, name: str, identity: Identity, options: DeleteOptions
    ) -> DeletionAnswer: ...

    def replace_all(
        self,
        old: Sequence[tuple[Kind, ApiObject]],
        new: Sequence[Successor],
        *,
        identity: Identity,
        dry_run: bool = False,
    ) -> list[Any]: ...

    def evict(self, pod: ApiObject, eviction: Document, *, identity: Identity) -> None: ...
