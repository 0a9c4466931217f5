"""Server-side apply: what one manager wants of an object, merged into what is there.

`apply_patch` merges what one manager wants into the live document: fields it names are set, fields it named before and
no longer names are removed unless somebody else owns them, and fields that another manager set to something else are
conflicts, unless `force` takes them over. Who owns what after all other writes is `manciple.wire.managed_fields`'
business. Documents are builtins and are not changed. Source: sigs.k8s.io/structured-merge-diff/merge/update.go,
apimachinery/pkg/util/managedfields.

kubectl applied on its side before it did so on the server, and what it applied then stands in an annotation. Where its
fields are in dispute with others, it may change what it has set itself (lastappliedmanager.go), and the annotation
follows what it applies now (lastappliedupdater.go), so that users can go back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from manciple.wire import managed_fields
from manciple.wire.errors import BadRequest, Conflict
from manciple.wire.managed_fields import UNOWNED, FieldSet, Path
from manciple.wire.registry import Splitting

Document = dict[str, Any]

#: Who owns what was there before anybody applied, where nothing says so.
BEFORE_FIRST_APPLY = "before-first-apply"
#: kubectl's name where it applies, and where it keeps what it applied itself.
KUBECTL = "kubectl"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


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
            "fieldsV1": managed_fields.to_fields_v1(self.fields),
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
    last_applied: Document | None = None,
    completed: Callable[[Document], Document] = lambda merged: merged,
) -> Document:
    """`live` as `manager` wants it, with its managedFields. live: None when the object does not exist yet.

    now: RFC 3339 text. unowned: fields that this endpoint does not write (the status, through the main resource).
    last_applied: what this manager applied on the client's side before; its fields are no conflicts where they have not
    changed since. completed: fills in the defaults with which documents are stored.
    Raises: BadRequest when `applied` carries managedFields; Conflict with a cause for every field in dispute.
    """
    if applied.get("metadata", {}).get("managedFields"):
        raise BadRequest("metadata.managedFields must be nil")
    before = _with_first_owner(live, manager, shape, unowned) if live else {}
    wanted = _owned(managed_fields.of_document(applied, shape), unowned)
    ownerships = ownerships_of(before)
    mine = _of_manager(ownerships, manager)
    others = [one for one in ownerships if one is not mine]
    merged = merge(before, _restricted(applied, unowned, shape), shape)
    found = list(_conflicts(before, merged, wanted, others, shape))
    if found and not force:
        own = _unchanged_since(last_applied, before, completed, shape) if last_applied else frozenset()
        if disputed := [conflict for conflict in found if conflict.path not in own]:
            raise _refusal(disputed)
    others = _yielded(others, {conflict.path for conflict in found})
    if mine is not None:
        merged = _pruned(merged, mine.fields - wanted, wanted, others, shape)
    kept = mine is not None and mine.fields == wanted and _same_content(merged, before)
    entry = mine if kept and mine is not None else Ownership(manager=manager, fields=wanted, time=now)
    return with_ownerships(merged, [*others, entry])


def _with_first_owner(live: Document, manager: Manager, shape: Splitting, unowned: FieldSet) -> Document:
    """A live document; where nobody owns anything of it, all that is there belongs to BEFORE_FIRST_APPLY."""
    if live.get("metadata", {}).get("managedFields"):
        return live
    changed, _ = managed_fields.compare({}, live, shape)
    owner = Manager(name=BEFORE_FIRST_APPLY, operation="Update", api_version=manager.api_version)
    created = live.get("metadata", {}).get("creationTimestamp")
    return with_ownerships(live, [Ownership(manager=owner, fields=_owned(changed, unowned), time=created)])


def _unchanged_since(
    last_applied: Document, live: Document, completed: Callable[[Document], Document], shape: Splitting
) -> FieldSet:
    """The fields of what was applied that still have the same values."""
    again = completed(merge(live, last_applied, shape))
    return managed_fields.of_document(last_applied, shape).difference(*managed_fields.compare(live, again, shape))


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
            fields=managed_fields.from_fields_v1(entry.get("fieldsV1")),
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
        applied = managed_fields.without(applied, shape, path)
    return applied


def merge(live: Any, applied: Any, shape: Splitting) -> Any:
    """Structs and maps are merged, keyed lists by key and sets by value, in the live order; the rest is replaced."""
    if shape.kind in ("struct", "map", "deduced") and isinstance(live, dict) and isinstance(applied, dict):
        return {
            **live,
            **{
                name: merge(live.get(name), value, managed_fields.member_shape(shape, name))
                for name, value in applied.items()
                if value is not None
            },
        }
    if shape.kind not in ("keyed", "set") or not isinstance(live, list) or not isinstance(applied, list):
        return applied
    wanted = {element: (item, inner) for element, item, inner in managed_fields.children(applied, shape)}
    present = {element: item for element, item, _inner in managed_fields.children(live, shape)}
    merged = [merge(item, *wanted[element]) if element in wanted else item for element, item in present.items()]
    return merged + [item for element, (item, _inner) in wanted.items() if element not in present]


def _differs(old: Mapping[Path, Any], new: Mapping[Path, Any], path: Path) -> bool:
    was_there, is_there = path in old, path in new
    if not path[-1:] or not path[-1].startswith("k:"):
        return was_there != is_there or old.get(path) != new.get(path)
    return was_there != is_there  # an item of a keyed list as such: its members are fields of their own


def _conflicts(
    before: Document, merged: Document, wanted: FieldSet, others: Iterable[Ownership], shape: Splitting
) -> Iterable[FieldConflict]:
    """Fields that would change although somebody else owns them."""
    old, new = managed_fields.values(before, shape), managed_fields.values(merged, shape)
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
    pruned: Document = managed_fields.without_all(merged, shape, dropped - with_parts)
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
            "field": managed_fields.shown(one.path),
        }
        for one in conflicts[:MOST_CONFLICTS]
    ]
    return Conflict(_message(conflicts), details={"causes": causes})


def _message(conflicts: Sequence[FieldConflict]) -> str:
    if len(conflicts) == 1:
        only = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {_shown(only.owner)}: {managed_fields.shown(only.path)}"
    by_owner: dict[str, list[str]] = {}
    for one in conflicts[:MOST_CONFLICTS]:
        by_owner.setdefault(_shown(one.owner), []).append(f"- {managed_fields.shown(one.path)}")
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
