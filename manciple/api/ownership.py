"""Who owns which field (metadata.managedFields): recorded only where server-side apply needs it.

An object gets managedFields with its first apply; whatever was there before belongs to one owner then, as upstream does
for objects without them. From that moment every other write keeps them up to date too. Objects that nobody applies to
carry none: they would double most documents. Source: apimachinery/pkg/util/managedfields/internal/skipnonapplied.go,
lastappliedmanager.go.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import structs

from manciple.wire import codec
from manciple.wire.apply import Manager, track_update
from manciple.wire.field_sets import FieldSet
from manciple.wire.registry import Kind

#: Who owns what was there before anybody applied.
BEFORE_FIRST_APPLY = "before-first-apply"
#: kubectl's name where it applies, and where it keeps what it applied before it did so on the server.
KUBECTL = "kubectl"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_STATUS: FieldSet = frozenset({("f:status",)})
_ALL_BUT_STATUS: FieldSet = frozenset({("f:metadata",), ("f:spec",)})


def unowned_of(kind: Kind, subresource: str) -> FieldSet:
    """The fields that a write through this path leaves alone."""
    if subresource == "status":
        return _ALL_BUT_STATUS
    return _STATUS if "status" in kind.subresources else frozenset()


def tracked(kind: Kind, new: Any, old: Any, *, manager: str, subresource: str, now: str) -> Any:
    """`new` with the managedFields of `old` brought up to date.

    Without any where `old` has none, or the client resets them.
    """
    if not old.metadata.managed_fields or _wiped(new):
        return structs.replace(new, metadata=structs.replace(new.metadata, managed_fields=()))
    document = track_update(
        codec.to_builtins(old),
        codec.to_builtins(new),
        manager=Manager(name=manager, operation="Update", api_version=kind.api_version, subresource=subresource),
        type_=kind.type,
        now=now,
        unowned=unowned_of(kind, subresource),
    )
    return codec.decode_value(kind.type, document)


def _wiped(new: Any) -> bool:
    """A single empty entry is how a client resets managedFields."""
    entries = new.metadata.managed_fields
    return len(entries) == 1 and not entries[0].manager and not entries[0].operation


def with_managed_fields(kind: Kind, live: dict[str, Any], *, manager: str) -> dict[str, Any]:
    """A live document on which somebody applies for the first time: what is there belongs to BEFORE_FIRST_APPLY.

    What kubectl recorded as applied by itself belongs to nobody when kubectl now applies on the server: it moves over.
    """
    if live["metadata"].get("managedFields"):
        return live
    own = _last_applied(live) if manager == KUBECTL else {}
    return track_update(
        own,
        live,
        manager=Manager(name=BEFORE_FIRST_APPLY, operation="Update", api_version=kind.api_version),
        type_=kind.type,
        now=live["metadata"].get("creationTimestamp", ""),
        unowned=frozenset({("f:status",), ("f:metadata", "f:annotations", f"f:{LAST_APPLIED}")}),
    )


def _last_applied(live: dict[str, Any]) -> dict[str, Any]:
    text = live["metadata"].get("annotations", {}).get(LAST_APPLIED, "")
    try:
        document = json.loads(text) if text else {}
    except json.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}
