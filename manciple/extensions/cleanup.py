"""Deletes the objects of a deleted definition, then the definition, and gives out names that came free.

A turn reads the definitions that are being deleted or lack their names, whatever others there are, and deletes a
bounded number of objects, in small transactions. Objects that finalizers hold keep their definition until these are
taken off. Sources: apiextensions-apiserver/pkg/controller/{finalizer,status}.
"""

from __future__ import annotations

import logging

from manciple.extensions.catalogue import FOLLOWER, name_given
from manciple.extensions.conversion_webhooks import convert
from manciple.extensions.definitions import (
    ESTABLISHED,
    NAMES_ACCEPTED,
    CustomResourceDefinition,
)
from manciple.extensions.registration import DEFINITION
from manciple.extensions.serving import serve
from manciple.store import objects, sql
from manciple.store.writer import with_meta
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.registry import Kind
from manciple.wire.validation import CLEANUP_FINALIZER

log = logging.getLogger(__name__)

#: Who writes (upstream: the API server itself, by this name).
IDENTITY = Identity("system:apiserver", (MASTERS,))
#: Objects in one turn.
MOST = 1000


def sweep(most: int = MOST) -> int:
    """Returns how many objects were changed or deleted."""
    with FOLLOWER.view() as definitions:
        unsettled = sorted(definitions.unsettled.items())
    done = 0
    for _, definition in unsettled:
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
    if (kind := _served(definition)) is not None:
        done += _delete(kind, most - done)
    return done if sql.exists(definition.metadata.name) else done + _release(definition)


def _served(definition: CustomResourceDefinition) -> Kind | None:
    """None for one that is not served: its objects, if it has any, stay and keep it."""
    if not definition.holds(ESTABLISHED):
        return None
    try:
        return serve(definition, convert).kind
    except Exception:  # the others are cleaned up nevertheless
        log.exception("the objects of CustomResourceDefinition %s cannot be deleted", definition.metadata.name)
        return None


def _delete(kind: Kind, most: int) -> int:
    """How many objects were asked to go."""
    deleted = 0
    for batch in objects.undeleted(kind, most=most):
        with objects.writing(identity=IDENTITY) as writer:
            writer.load(kind, batch)
            living = [key for key in batch if writer.get(kind, *key) is not None]
            for key in living:
                writer.delete(kind, *key)
        deleted += len(living)
    return deleted


def _release(definition: CustomResourceDefinition) -> int:
    """Let the definition go, once the transaction finds that nothing is left."""
    with objects.writing(identity=IDENTITY) as writer:
        current = writer.get(DEFINITION, "", definition.metadata.name)
        if current is None or current.metadata.uid != definition.metadata.uid:
            return 0
        if sql.exists(definition.metadata.name):
            return 0
        kept = tuple(one for one in current.metadata.finalizers if one != CLEANUP_FINALIZER)
        writer.update(DEFINITION, with_meta(current, finalizers=kept), subresource="finalize")
    return 1
