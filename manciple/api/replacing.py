"""Some objects in the place of others, in one transaction: whoever looks sees those or these, never neither.

What a claim asks for cannot be changed, nor which claims a pod uses, nor a template: to have it otherwise they are made
anew. Each creation and deletion is checked, admitted and written down as if it had come by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from manciple.api import edits, first_stage, verbs
from manciple.api.auditing import page_write
from manciple.store import objects
from manciple.store.hooks import Write
from manciple.store.metadata import initialise
from manciple.wire.base import ApiObject
from manciple.wire.errors import Conflict
from manciple.wire.identifiers import new_uid
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind


def replace_all(
    old: Sequence[tuple[Kind, ApiObject]],
    new: Sequence[tuple[Kind, ApiObject]],
    *,
    identity: Identity,
    dry_run: bool = False,
) -> list[Any]:
    """Delete `old`, by uid, and create `new`; returns what was made. All of it, or nothing.

    Raises: NotFound, Conflict for an old one that is another by now or does not go at once; what `verbs.create` raises.
    """

    def work(writer: objects.Writer) -> list[Any]:
        for kind, known in old:
            meta = known.metadata
            if not writer.delete(kind, meta.namespace, meta.name, uid=meta.uid, grace_seconds=0).gone:
                raise Conflict.of(kind.resource, meta.name, "something holds it: it does not go at once")
        return [writer.create(kind, obj, uid=uid) for kind, obj, uid in made]

    reads = [objects.Read(kind, one.metadata.namespace, one.metadata.name) for kind, one in (*old, *new)]
    first_kind, first = new[0]
    written = page_write(
        "create",
        first_kind,
        identity=identity,
        namespace=first.metadata.namespace,
        name=first.metadata.name,
        dry_run=dry_run,
        of_several=True,
    )
    with written:
        for kind, known in old:
            _admit_deletion(kind, known, identity=identity, dry_run=dry_run)
        made = [_admitted(kind, wanted, identity=identity, dry_run=dry_run) for kind, wanted in new]
        return objects.write(work, identity=identity, reads=reads, dry_run=dry_run)


def _admit_deletion(kind: Kind, known: ApiObject, *, identity: Identity, dry_run: bool) -> None:
    write = Write(
        operation="DELETE",
        kind=kind,
        old=edits.current(kind, known.metadata.namespace, known.metadata.name),
        identity=identity,
        dry_run=dry_run,
        verb="delete",
        version=first_stage.version(),
        options=first_stage.options("DeleteOptions", dry_run=dry_run),
    )
    first_stage.admit(write)


def _admitted(kind: Kind, wanted: ApiObject, *, identity: Identity, dry_run: bool) -> tuple[Kind, Any, str]:
    """(kind, the object as it is to be stored, its uid). Raises: Invalid, and what checks raise."""
    write = Write(
        operation="CREATE",
        kind=kind,
        new=verbs.placed(kind, wanted, namespace=wanted.metadata.namespace),
        identity=identity,
        dry_run=dry_run,
        verb="create",
        version=first_stage.version(),
        options=first_stage.options("CreateOptions", dry_run=dry_run),
    )
    first_stage.ask_gates(write)
    obj: Any = kind.prepare_create(first_stage.completed(write))
    edits.refuse_wrong(kind, obj, kind.create_rule(first_stage.version())(obj))
    uid = new_uid()
    seen = initialise(kind, obj, name=obj.metadata.name, uid=uid, now=datetime.now(UTC))
    first_stage.ask_checks(structs.replace(write, new=seen))
    return kind, obj, uid
