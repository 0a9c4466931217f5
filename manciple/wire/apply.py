"""Server-side apply, and who owns which field.

`apply_patch` merges what one manager wants into the live document: fields it names are set, fields it named before and
no longer names are removed unless somebody else owns them, and fields that another manager set to something else are
conflicts, unless `force` takes them over. `track_update` records all other writes in metadata.managedFields: who
changes a field owns it. Documents are builtins and are not changed. Source:
sigs.k8s.io/structured-merge-diff/merge/update.go, apimachinery/pkg/util/managedfields.

managedFields are recorded only where server-side apply needs them. An object gets its own with the first apply;
whatever was there before belongs to one owner then, as upstream does for objects without them. From that moment every
other write keeps them up to date too. Objects that nobody applies to carry none: they would double most documents.
Source: apimachinery/pkg/util/managedfields/internal/skipnonapplied.go, lastappliedmanager.go.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from manciple.wire import codec, field_sets
from manciple.wire.errors import BadRequest, Conflict
from manciple.wire.field_sets import FieldSet, Path, Splitting
from manciple.wire.registry import Kind

Document = dict[str, Any]

#: Fields that nobody owns: they name the object, or only the server sets them.
UNOWNED: FieldSet = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name",
                "namespace",
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "selfLink",
                "generation",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "managedFields",
            )
        ),
        ("f:metadata",),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """Who writes, and how. operation: "Apply" or "Update"; subresource: "" or "status"."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """One entry of managedFields. time: RFC 3339 text of its last change."""

    manager: Manager
    fields: FieldSet
    time: str | None = None

    def document(self) -> Document:
        entry: Document = {
            "manager": self.manager.name,
            "operation": self.manager.operation,
            "apiVersion": self.manager.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": field_sets.to_fields_v1(self.fields),
            "subresource": self.manager.subresource,
        }
        return {key: value for key, value in entry.items() if value}


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """A field that another manager set to something else."""

    path: Path
    owner: Ownership


def apply_patch(
    live: Document | None,
    applied: Document,
    *,
    manager: Manager,
    force: bool,
    shape: Splitting,
    now: str,
    unowned: FieldSet = frozenset(),
) -> Document:
    """`live` as `manager` wants it, with its managedFields. live: None when the object does not exist yet.

    now: RFC 3339 text. unowned: fields that this endpoint does not write (the status, through the main resource).
    Raises: BadRequest when `applied` carries managedFields; Conflict with a cause for every field in dispute.
    """
    if applied.get("metadata", {}).get("managedFields"):
        raise BadRequest("metadata.managedFields must be nil")
    before = live or {}
    wanted = _owned(field_sets.of_document(applied, shape), unowned)
    ownerships = ownerships_of(before)
    mine = _of_manager(ownerships, manager)
    others = [one for one in ownerships if one is not mine]
    merged = _merged(before, _restricted(applied, unowned, shape), shape)
    found = list(_conflicts(before, merged, wanted, others, shape))
    if found and not force:
        raise _refusal(found)
    others = _yielded(others, {conflict.path for conflict in found})
    if mine is not None:
        merged = _pruned(merged, mine.fields - wanted, wanted, others, shape)
    kept = mine is not None and mine.fields == wanted and _same_content(merged, before)
    entry = mine if kept and mine is not None else Ownership(manager=manager, fields=wanted, time=now)
    return with_ownerships(merged, [*others, entry])


def track_update(
    before: Document | None,
    after: Document,
    *,
    manager: Manager,
    shape: Splitting,
    now: str,
    unowned: FieldSet = frozenset(),
) -> Document:
    """`after` with the managedFields of a create, update or patch: `manager` owns what it changed, nobody else does."""
    old = before or {}
    changed = _owned(_changed(old, after, shape), unowned)
    present = _owned(field_sets.of_document(after, shape), unowned)
    removed = _owned(field_sets.of_document(old, shape), unowned) - present
    ownerships = ownerships_of(old)
    mine = _of_manager(ownerships, manager)
    others = _yielded([one for one in ownerships if one is not mine], changed | removed)
    fields = ((mine.fields if mine is not None else frozenset()) | changed) - removed
    if mine is not None and fields == mine.fields and not changed:
        return with_ownerships(after, [*others, mine])
    return with_ownerships(after, [*others, Ownership(manager=manager, fields=fields, time=now)])


# managedFields -------------------------------------------------------------------------------------------------------


def ownerships_of(document: Mapping[str, Any]) -> list[Ownership]:
    entries = document.get("metadata", {}).get("managedFields") or []
    return [
        Ownership(
            manager=Manager(
                name=entry.get("manager", ""),
                operation=entry.get("operation", ""),
                api_version=entry.get("apiVersion", ""),
                subresource=entry.get("subresource", ""),
            ),
            fields=field_sets.from_fields_v1(entry.get("fieldsV1")),
            time=entry.get("time"),
        )
        for entry in entries
    ]


def with_ownerships(document: Document, ownerships: Iterable[Ownership]) -> Document:
    """Entries without fields go; appliers stand before updaters, the oldest first."""
    kept = [one for one in ownerships if one.fields]
    kept.sort(key=lambda one: (one.manager.operation != "Apply", one.time or "", one.manager.name))
    metadata = {key: value for key, value in document.get("metadata", {}).items() if key != "managedFields"}
    if kept:
        metadata["managedFields"] = [one.document() for one in kept]
    return {**document, "metadata": metadata}


def _of_manager(ownerships: Sequence[Ownership], manager: Manager) -> Ownership | None:
    """The entry of this manager; one that applies is the same whatever the version it applies in."""

    def identity(one: Manager) -> tuple[str, ...]:
        version = one.api_version if one.operation == "Update" else ""
        return one.name, one.operation, one.subresource, version

    return next((one for one in ownerships if identity(one.manager) == identity(manager)), None)


def _owned(fields: FieldSet, unowned: FieldSet) -> FieldSet:
    """The fields that may have an owner."""
    return frozenset(path for path in fields if path not in UNOWNED and not _below_any(path, unowned))


def _below_any(path: Path, prefixes: Iterable[Path]) -> bool:
    return any(path[: len(prefix)] == prefix for prefix in prefixes)


def _yielded(ownerships: Iterable[Ownership], taken: Collection[Path]) -> list[Ownership]:
    return [replace(one, fields=one.fields - frozenset(taken)) for one in ownerships]


# Documents -----------------------------------------------------------------------------------------------------------


def _restricted(applied: Document, unowned: FieldSet, shape: Splitting) -> Document:
    """`applied` without what this endpoint does not write."""
    for path in unowned:
        applied = field_sets.without(applied, shape, path)
    return applied


def _merged(live: Any, applied: Any, shape: Splitting) -> Any:
    """Structs and maps are merged, keyed lists by key and sets by value, in the live order; the rest is replaced."""
    if shape.kind in ("struct", "map", "deduced") and isinstance(live, dict) and isinstance(applied, dict):
        return {
            **live,
            **{
                name: _merged(live.get(name), value, field_sets.member(shape, name))
                for name, value in applied.items()
                if value is not None
            },
        }
    if shape.kind not in ("keyed", "set") or not isinstance(live, list) or not isinstance(applied, list):
        return applied
    wanted = {element: (item, inner) for element, item, inner in field_sets.children(applied, shape)}
    present = {element: item for element, item, _inner in field_sets.children(live, shape)}
    merged = [_merged(item, *wanted[element]) if element in wanted else item for element, item in present.items()]
    return merged + [item for element, (item, _inner) in wanted.items() if element not in present]


def _changed(before: Document, after: Document, shape: Splitting) -> FieldSet:
    """The fields of `after` that are new or have another value."""
    old, new = field_sets.values(before, shape), field_sets.values(after, shape)
    return frozenset(path for path in field_sets.of_document(after, shape) if _differs(old, new, path))


def _differs(old: Mapping[Path, Any], new: Mapping[Path, Any], path: Path) -> bool:
    was_there, is_there = path in old, path in new
    if not path[-1:] or not path[-1].startswith("k:"):
        return was_there != is_there or old.get(path) != new.get(path)
    return was_there != is_there  # an item of a keyed list as such: its members are fields of their own


def _conflicts(
    before: Document, merged: Document, wanted: FieldSet, others: Iterable[Ownership], shape: Splitting
) -> Iterable[FieldConflict]:
    """Fields that would change although somebody else owns them."""
    old, new = field_sets.values(before, shape), field_sets.values(merged, shape)
    changing = {path for path in wanted if _differs(old, new, path)}
    for owner in others:
        for path in sorted(changing & owner.fields):
            yield FieldConflict(path, owner)


def _pruned(
    merged: Document, dropped: FieldSet, wanted: FieldSet, others: Sequence[Ownership], shape: Splitting
) -> Document:
    """Without the fields that the manager gave up and nobody else, nor what it still wants, has a part in."""
    held = wanted.union(*(one.fields for one in others))
    with_parts = {one[:length] for one in held for length in range(len(one) + 1)}
    pruned: Document = field_sets.without_all(merged, shape, dropped - with_parts)
    return pruned


def _same_content(left: Document, right: Document) -> bool:
    """Equality but for managedFields."""
    return with_ownerships(left, ()) == with_ownerships(right, ())


# Refusals ------------------------------------------------------------------------------------------------------------


#: Conflicts that one answer names.
MOST_CONFLICTS = 500


def _refusal(conflicts: Sequence[FieldConflict]) -> Conflict:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {_shown(one.owner)}",
            "field": field_sets.shown(one.path),
        }
        for one in conflicts[:MOST_CONFLICTS]
    ]
    return Conflict(_message(conflicts), details={"causes": causes})


def _message(conflicts: Sequence[FieldConflict]) -> str:
    if len(conflicts) == 1:
        only = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {_shown(only.owner)}: {field_sets.shown(only.path)}"
    by_owner: dict[str, list[str]] = {}
    for one in conflicts[:MOST_CONFLICTS]:
        by_owner.setdefault(_shown(one.owner), []).append(f"- {field_sets.shown(one.path)}")
    lines = [line for owner, fields in by_owner.items() for line in (f"conflicts with {owner}:", *fields)]
    if len(conflicts) > MOST_CONFLICTS:
        lines.append(f"and {len(conflicts) - MOST_CONFLICTS} more")
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def _shown(owner: Ownership) -> str:
    manager = owner.manager
    subresource = f' with subresource "{manager.subresource}"' if manager.subresource else ""
    if manager.operation != "Update":
        return f'"{manager.name}"{subresource}'
    when = f" at {owner.time}" if owner.time else ""
    return f'"{manager.name}"{subresource} using {manager.api_version}{when}'


# Recorded where it is needed ------------------------------------------------------------------------------------------


#: Who owns what was there before anybody applied.
BEFORE_FIRST_APPLY = "before-first-apply"
#: kubectl's name where it applies, and where it keeps what it applied before it did so on the server.
KUBECTL = "kubectl"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_STATUS: FieldSet = frozenset({("f:status",)})
_ALL_BUT_STATUS: FieldSet = frozenset({("f:metadata",), ("f:spec",)})


def splitting_of(kind: Kind) -> Splitting:
    """What is one field of the kind's documents."""
    return kind.splitting or field_sets.struct(kind.type)


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
        shape=splitting_of(kind),
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
        shape=splitting_of(kind),
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
