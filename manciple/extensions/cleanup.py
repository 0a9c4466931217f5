"""What becomes of a deleted definition: its objects go first, then it does; and names that came free are given out.

Each turn deletes a bounded number of objects, in small transactions. Objects that finalizers hold keep their definition
until these are taken off. Sources: apiextensions-apiserver/pkg/controller/{finalizer,status}.
"""

from __future__ import annotations

from itertools import islice

from manciple.extensions.catalogue import name_given
from manciple.extensions.definitions import (
    CLEANUP_FINALIZER,
    ESTABLISHED,
    NAMES_ACCEPTED,
    CustomResourceDefinition,
)
from manciple.extensions.registration import DEFINITION
from manciple.extensions.serving import serve
from manciple.store import objects
from manciple.store.metadata import with_meta
from manciple.wire import codec
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.registry import Kind

#: Who writes (upstream: the API server itself, by this name).
IDENTITY = Identity("system:apiserver", (MASTERS,))
#: Objects in one transaction, and in one turn.
BATCH, MOST = 100, 1000


def sweep(most: int = MOST) -> int:
    """Returns how many objects were changed or deleted."""
    found = [codec.decode_text(CustomResourceDefinition, item.text) for item in objects.list(DEFINITION).items]
    done = 0
    for definition in found:
        if definition.metadata.deletion_timestamp:
            done += _clean(definition, most - done)
        elif not definition.holds(NAMES_ACCEPTED):
            done += _name(definition)
        if done >= most:
            break
    return done


def _name(definition: CustomResourceDefinition) -> int:
    """Names that its rivals have given up."""
    with objects.writing(identity=IDENTITY) as writer:
        current = writer.get(DEFINITION, "", definition.metadata.name)
        if not isinstance(current, CustomResourceDefinition):
            return 0
        named = name_given(writer, current)
        return int(writer.update(DEFINITION, named, subresource="status") is not current)


def _clean(definition: CustomResourceDefinition, most: int) -> int:
    done = _name(definition)  # says that it is going
    if CLEANUP_FINALIZER not in definition.metadata.finalizers:
        return done
    kind = serve(definition).kind if definition.holds(ESTABLISHED) else None
    if kind is not None:
        done += _delete(kind, most - done)
    if kind is not None and objects.list(kind, limit=1).items:
        return done
    return done + _release(definition)


def _delete(kind: Kind, most: int) -> int:
    """How many objects were asked to go."""
    waiting = iter([item for item in objects.list(kind).items if not item.deleting][: max(most, 0)])
    deleted = 0
    while batch := tuple(islice(waiting, BATCH)):
        with objects.writing(identity=IDENTITY) as writer:
            writer.load(kind, [(item.namespace, item.name) for item in batch])
            living = [item for item in batch if writer.get(kind, item.namespace, item.name) is not None]
            for item in living:
                writer.delete(kind, item.namespace, item.name)
        deleted += len(living)
    return deleted


def _release(definition: CustomResourceDefinition) -> int:
    """Let the definition go, once the transaction finds that nothing is left."""
    with objects.writing(identity=IDENTITY) as writer:
        current = writer.get(DEFINITION, "", definition.metadata.name)
        if current is None or current.metadata.uid != definition.metadata.uid:
            return 0
        kind = serve(definition).kind if definition.holds(ESTABLISHED) else None
        if kind is not None and objects.list(kind, limit=1).items:
            return 0
        kept = tuple(one for one in current.metadata.finalizers if one != CLEANUP_FINALIZER)
        writer.update(DEFINITION, with_meta(current, finalizers=kept), subresource="finalize")
    return 1
