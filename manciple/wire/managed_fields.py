"""metadata.managedFields: sets of fields, and who owns which field, from the first write on.

A field is a path of elements: `f:name` for a member, `k:{"name":"x"}` for the element of a list with that key, `v:"x"`
for a value of a set. A `FieldSet` is a frozenset of paths; `to_fields_v1` and `from_fields_v1` turn it into the nested
JSON form and back, `of_document` returns the fields that a document sets. What is one field and what is many is read
from the type's declaration: structs, maps, lists with keys and sets are split, everything else is one field. Source:
sigs.k8s.io/structured-merge-diff (fieldpath, typed/tofieldset.go).

A create owns every field that it sets; an update or patch takes the fields that it changes from their owners. Server-
side apply has rules of its own (`manciple.wire.apply`). Objects without entries, because they are older than this
record or a client has reset it, get none until somebody applies to them, as upstream. Source:
apimachinery/pkg/util/managedfields/internal (fieldmanager.go, managedfieldsupdater.go, capmanagers.go,
skipnonapplied.go), structured-merge-diff/merge/update.go.

Entries are stored in the document, as clients see them. They are part of every write, so they have to be cheap: sets of
fields stay JSON text until a write can touch them, only members of the object that differ are compared, and what equal
parts of documents (the spec of pods from one template) own is computed once.

Fields are named as the stored version has them, whatever the version of the request. So entries of clients that write
in different versions can be compared, and kubectl can merge them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, reduce
from itertools import compress, count, zip_longest
from operator import is_not, ne
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import structs

from manciple.wire import codec
from manciple.wire.base import (
    ASIDE,
    EMPTY,
    MERGE_SCALARS,
    NO_FIELDS,
    REPLACED,
    ApiObject,
    Declaration,
    FieldsV1,
    ManagedFieldsEntry,
    Value,
    declarations,
    is_atomic,
)
from manciple.wire.limits import check_time, short_text_cache
from manciple.wire.registry import Kind, Splitting, asides

# Sets of fields -------------------------------------------------------------------------------------------------------


Path = tuple[str, ...]
FieldSet = frozenset[Path]
#: Fields as FieldsV1 nests them: see `to_fields_v1`.
Tree = dict[str, Any]
Document = dict[str, Any]

#: Members from which a value is worth a look at the time.
_MANY = 64
#: In a tree: the field itself, besides those below it.
ITSELF = "."
_ELEMENTS = ("f:", "k:", "v:", "i:")
#: Keys of list elements that may be left out, with what they then are.
_KEY_DEFAULTS = {"protocol": "TCP"}
#: Lists with keys that Go writes even when they are empty.
_WRITTEN_EMPTY = frozenset({"containers"})


ATOMIC = Splitting("atomic")
DEDUCED = Splitting("deduced")
_OBJECTS = ("struct", "map", "deduced")


def struct(type_: type[Value]) -> Splitting:
    return Splitting("struct", type_)


def member_shape(shape: Splitting, name: str) -> Splitting:
    """The shape of a member of a struct or map; unknown ones are atomic."""
    if shape.type is not None:
        return _declared_members(shape.type).get(name) or ATOMIC
    if shape.kind == "deduced":
        return shape
    if shape.kind == "map" and shape.element is not None:
        return shape.element
    return shape.members.get(name) or shape.element or ATOMIC


@cache
def _declared_members(type_: type[Value]) -> Mapping[str, Splitting]:
    return {declared.name: _declared_shape(declared) for declared in declarations(type_)}


def _declared_shape(declared: Declaration) -> Splitting:
    type_ = declared.shape.element
    element = struct(type_) if issubclass(type_, Value) and not is_atomic(type_) else ATOMIC
    if declared.shape.container == "map":
        return Splitting("map", element=element)
    if declared.shape.container == "":
        shape = ATOMIC if declared.merge_key == REPLACED else element
        return replace(shape, permanent=issubclass(type_, Value) and not declared.shape.optional)
    if declared.merge_key == MERGE_SCALARS:
        return Splitting("set")
    permanent = declared.name in _WRITTEN_EMPTY
    return (
        Splitting("keyed", element=element, keys=declared.list_keys, permanent=permanent)
        if declared.list_keys
        else ATOMIC
    )


# Path elements -------------------------------------------------------------------------------------------------------


def field_element(name: str) -> str:
    return f"f:{name}"


def key_element(item: Mapping[str, Any], keys: Iterable[str], defaults: Mapping[str, Any] = EMPTY) -> str:
    """The path element of a keyed list's item: its key members, sorted, as compact JSON."""
    values = {}
    for key in sorted(keys):
        value = item[key] if key in item else defaults.get(key, _KEY_DEFAULTS.get(key))
        if value is not None:
            values[key] = value
    return f"k:{_compact(values)}"


def value_element(value: Any) -> str:
    return f"v:{_compact(value)}"


def _compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def shown(path: Path) -> str:
    """A path as messages show it: `.spec.containers[name="x"].image`."""
    return "".join(map(_shown_element, path))


def _shown_element(element: str) -> str:
    kind, _, text = element.partition(":")
    if kind == "k":
        pairs = ",".join(f"{key}={_compact(value)}" for key, value in json.loads(text).items())
        return f"[{pairs}]"
    return f".{text.removeprefix(ASIDE)}" if kind == "f" else f"[={text}]"


# Reading and changing documents by path ------------------------------------------------------------------------------


def children(value: Any, shape: Splitting) -> Iterator[tuple[str, Any, Splitting]]:
    """(path element, value, shape) of each part of a value that is split; nothing for one that is a field itself."""
    if shape.kind in _OBJECTS and isinstance(value, dict):
        for name, item in value.items():
            yield field_element(name), item, member_shape(shape, name)
    elif shape.kind == "keyed" and isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield key_element(item, shape.keys, shape.key_defaults), item, shape.element or ATOMIC
    elif shape.kind == "set" and isinstance(value, list):
        for item in value:
            yield value_element(item), item, ATOMIC


def is_split(value: Any, shape: Splitting) -> bool:
    """Whether a value consists of fields of its own; an empty one is a field itself."""
    if shape.kind in _OBJECTS:
        return isinstance(value, dict) and bool(value)
    return shape.kind in ("keyed", "set") and isinstance(value, list) and bool(value)


def of_document(value: Any, shape: Splitting, path: Path = ()) -> FieldSet:
    """Every field that a document sets; items of keyed lists are fields besides their members."""
    if not is_split(value, shape):
        return frozenset({path})
    found: set[Path] = set()
    for element, item, item_shape in children(value, shape):
        found |= of_document(item, item_shape, (*path, element))
        if not element.startswith("f:"):
            found.add((*path, element))
    return frozenset(found)


def values(value: Any, shape: Splitting) -> dict[Path, Any]:
    """Every part of a document by its path, those that consist of others too. Of items with one key the first."""
    found: dict[Path, Any] = {}
    _collect(found, value, shape, ())
    return found


def _collect(found: dict[Path, Any], value: Any, shape: Splitting, path: Path) -> None:
    if path in found:
        return
    found[path] = value
    for element, item, item_shape in children(value, shape):
        _collect(found, item, item_shape, (*path, element))


def without_all(value: Any, shape: Splitting, paths: Container[Path], path: Path = ()) -> Any:
    """A copy of `value` without the fields at `paths`, and without members of which nothing is left then."""
    if not is_split(value, shape):
        return value
    kept = [
        (element, without_all(item, item_shape, paths, (*path, element)))
        for element, item, item_shape in children(value, shape)
        if (*path, element) not in paths
    ]
    if isinstance(value, list):
        return [item for _, item in kept]
    named = ((element[2:], item) for element, item in kept)
    return {name: item for name, item in named if item or item == value[name]}


def without(value: Any, shape: Splitting, path: Path) -> Any:
    """A copy of `value` without the field at `path`; the same where there is none."""
    if not path or not is_split(value, shape):
        return value
    wanted, rest = path[0], path[1:]
    kept = [
        (element, without(item, item_shape, rest) if element == wanted else item)
        for element, item, item_shape in children(value, shape)
        if element != wanted or rest
    ]
    if isinstance(value, dict):
        return {element[2:]: item for element, item in kept}
    return [item for _element, item in kept]


# What changed between two documents ----------------------------------------------------------------------------------


def compare(before: Any, after: Any, shape: Splitting) -> tuple[FieldSet, FieldSet]:
    """(fields of `after` that are new or have another value, fields of `before` that are gone).

    What comes or goes is there with everything in it: a map besides its members. Equal parts are not looked into.
    Source: structured-merge-diff, typed/compare.go.
    """
    differences = FieldDifferences()
    differences.look(before, after, shape, ())
    return frozenset(differences.changed), frozenset(differences.removed)


class FieldDifferences:
    """What was found to differ so far: see `compare`."""

    def __init__(self) -> None:
        self.changed: set[Path] = set()
        self.removed: set[Path] = set()

    def look(self, before: Any, after: Any, shape: Splitting, path: Path) -> None:
        if shape.kind in _OBJECTS and isinstance(before, dict) and isinstance(after, dict):
            self._members(before, after, shape, path)
        elif shape.kind in ("keyed", "set") and isinstance(before, list) and isinstance(after, list):
            self._items(before, after, shape, path)
        elif before != after:
            self.changed.add(path)

    def _members(self, before: Document, after: Document, shape: Splitting, path: Path) -> None:
        if len(before) + len(after) >= _MANY:
            check_time()
        for name, value in after.items():
            if name not in before or before[name] != value:
                inner, below = member_shape(shape, name), (*path, f"f:{name}")
                if name in before or inner.permanent:
                    self.look(before.get(name, _nothing(inner)), value, inner, below)
                else:
                    collect_all(value, inner, below, self.changed)
        for name in before.keys() - after.keys():
            inner, below = member_shape(shape, name), (*path, f"f:{name}")
            if inner.permanent:
                self.look(before[name], _nothing(inner), inner, below)
            else:
                collect_all(before[name], inner, below, self.removed)

    def _items(self, before: list[Any], after: list[Any], shape: Splitting, path: Path) -> None:
        """Of items with one key the first."""
        # Most items have not changed, and stand where they stood.
        same = [left == right for left, right in zip(before, after, strict=False)]
        old, new = (
            {element: (item, inner) for element, item, inner in reversed([*children(items, shape)])}
            for items in (unpaired(before, same), unpaired(after, same))
        )
        for element, (item, inner) in new.items():
            if element not in old:
                collect_all(item, inner, (*path, element), self.changed)
            elif old[element][0] != item:
                self.look(old[element][0], item, inner, (*path, element))
        for element in old.keys() - new.keys():
            collect_all(*old[element], (*path, element), self.removed)


def unpaired(items: Sequence[Any], same: list[bool]) -> list[Any]:
    """The items but those that are the same."""
    return [item for item, equal in zip_longest(items, same) if not equal]


def _nothing(shape: Splitting) -> Any:
    return [] if shape.kind == "keyed" else EMPTY


def collect_all(value: Any, shape: Splitting, path: Path, found: set[Path]) -> None:
    """Add the field at `path` and all below it."""
    found.add(path)
    if shape.kind not in _OBJECTS or not isinstance(value, dict):
        for element, item, inner in children(value, shape):
            collect_all(item, inner, (*path, element), found)
        return
    if len(value) >= _MANY:
        check_time()
    for name, item in value.items():
        inner = member_shape(shape, name)
        if inner.kind == "atomic" or not isinstance(item, dict | list):
            found.add((*path, f"f:{name}"))
        else:
            collect_all(item, inner, (*path, f"f:{name}"), found)


# FieldsV1 ------------------------------------------------------------------------------------------------------------


def to_fields_v1(fields: FieldSet) -> dict[str, Any]:
    """Nested JSON: a field is `{}`, one that is set besides its parts has a "." among them."""
    tree: dict[str, Any] = {}
    for path in sorted(fields):
        node = tree
        for depth, element in enumerate(path):
            if element not in node:
                if not node and path[:depth] in fields:
                    node[ITSELF] = {}
                node[element] = {}
            node = node[element]
    return tree


def from_fields_v1(tree: Any, path: Path = ()) -> FieldSet:
    """The inverse of `to_fields_v1`; what cannot be read counts as empty."""
    if not isinstance(tree, dict):
        return frozenset()
    found: set[Path] = set()
    for element, inner in tree.items():
        if element == ITSELF:
            found.add(path)
        elif inner:
            found |= from_fields_v1(inner, (*path, element))
        else:
            found.add((*path, element))
    return frozenset(found)


def united(one: Tree, other: Tree) -> Tree:
    """The fields of either."""
    found = one | other
    for element in one.keys() & other.keys():
        found[element] = united(one[element], other[element])
    if found and ITSELF not in found and not (one and other):
        found[ITSELF] = {}
    return found


def difference(tree: Tree, less: Tree) -> Tree | None:
    """The fields of a tree that are not in `less`; None where none is left."""
    found: Tree = {}
    for element, inner in tree.items():
        if element == ITSELF:
            continue
        left = difference(inner, less[element]) if element in less else inner
        if left is not None:
            found[element] = left
    has_itself = (not tree or ITSELF in tree) and not (not less or ITSELF in less)
    if not found:
        return {} if has_itself else None
    return {ITSELF: {}, **found} if has_itself else found


def is_fields_v1(tree: Any) -> bool:
    """Whether `from_fields_v1` understands all of it."""
    return isinstance(tree, dict) and all(
        element == ITSELF or (element[:2] in _ELEMENTS and is_fields_v1(inner)) for element, inner in tree.items()
    )


# Owners of fields -----------------------------------------------------------------------------------------------------


Entries = tuple[ManagedFieldsEntry, ...]

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
#: Subresources that change an object without owning what they change.
UNTRACKED = frozenset({"binding", "eviction"})
#: Entries of updates that an object keeps. Of more, the oldest become one.
MOST_UPDATERS = 10
ANCIENT = "ancient-changes"

#: Fields by the member of the object to which they belong.
Members = dict[str, Tree]
NOTHING: Members = {}

_STATUS_MEMBER = "f:status"
_NONE: FieldSet = frozenset()
_STATUS: FieldSet = frozenset({(_STATUS_MEMBER,)})
_ALL_BUT_STATUS: FieldSet = frozenset({("f:metadata",), ("f:spec",)})


def splitting_of(kind: Kind) -> Splitting:
    """What is one field of the kind's documents."""
    return kind.splitting or struct(kind.type)


def unowned_of(kind: Kind, subresource: str) -> FieldSet:
    """The fields that a write through this path leaves alone."""
    if subresource == "status":
        return _ALL_BUT_STATUS
    return _STATUS if not subresource and "status" in kind.subresources else _NONE


# Creates, updates and patches ----------------------------------------------------------------------------------------


def track_create(kind: Kind, new: Any, *, manager: str, now: str, owned: Any = None) -> Any:
    """`new`, whose fields `manager` owns, whatever entries it brings. now: RFC 3339 text. owned: the object without
    what nobody owns of it."""
    entries = new.metadata.managed_fields and _readable(kind, new.metadata.managed_fields)
    text = _fields_of_new(kind, new if owned is None else owned)
    if entries:
        own = {name: _parsed(bytes(part)) for name, part in _text_by_member(text).items()}
        entries = _following(entries, _entry(kind, manager, "", now, NO_FIELDS), own, NOTHING)
    elif text:
        entries = (_entry(kind, manager, "", now, text),)
    return with_entries(new, entries)


def track_update(kind: Kind, new: Any, old: Any, *, manager: str, subresource: str = "", now: str) -> Any:
    """`new`, the successor of `old`, with the owners of its fields.

    A client may set the entries of the object itself; none mean that those of `old` stay, and a single empty one
    removes them all.
    """
    given, kept = new.metadata.managed_fields, old.metadata.managed_fields
    entries = kept
    if not subresource and given and given is not kept and given != kept:
        entries = () if given == _RESET else _readable(kind, given) or kept
    return with_entries(new, _after_write(kind, entries, new, old, manager=manager, subresource=subresource, now=now))


def track_in_process(kind: Kind, new: Any, old: Any, *, manager: str, subresource: str, now: str) -> Any:
    """The same of a write that no client asked for: it may change an object and its status in one go."""
    entries = old.metadata.managed_fields
    if subresource or "status" not in kind.subresources:
        entries = _after_write(kind, entries, new, old, manager=manager, subresource=subresource, now=now)
    elif entries:
        changed, removed = _differences(kind, new, old, _NONE)
        of_status = {_STATUS_MEMBER: changed.pop(_STATUS_MEMBER)} if _STATUS_MEMBER in changed else NOTHING
        mine = _entry(kind, manager, "", now, NO_FIELDS)
        entries = _following(entries, mine, changed, removed, of_status=of_status)
    return with_entries(new, entries)


def _after_write(
    kind: Kind, entries: Entries, new: Any, old: Any, *, manager: str, subresource: str, now: str
) -> Entries:
    if not entries or subresource in UNTRACKED:
        return entries
    changed, removed = _differences(kind, new, old, unowned_of(kind, subresource))
    return _following(entries, _entry(kind, manager, subresource, now, NO_FIELDS), changed, removed)


def with_owners_of(old: Any, new: Any) -> Any:
    """`new` with the entries of `old`, whatever it says itself."""
    return with_entries(new, old.metadata.managed_fields)


def with_entries(obj: Any, entries: Entries) -> Any:
    if obj.metadata.managed_fields is entries:
        return obj
    return structs.replace(obj, metadata=structs.replace(obj.metadata, managed_fields=entries))


def _entry(kind: Kind, manager: str, subresource: str, now: str, fields: FieldsV1) -> ManagedFieldsEntry:
    return ManagedFieldsEntry(
        manager=manager or "unknown",
        operation="Update",
        api_version=kind.api_version,
        time=now,
        fields_type="FieldsV1",
        fields_v1=fields,
        subresource=subresource,
    )


def _following(
    entries: Entries, mine: ManagedFieldsEntry, changed: Members, removed: Members, *, of_status: Members = NOTHING
) -> Entries:
    """`entries` after a write of `mine`, which owns `changed` from now on. Nobody owns `removed` any more.

    of_status: what the same write changes of the status, which is owned through the status's own path.
    """
    if not (changed or removed or of_status):
        return entries
    lost = changed
    for name, tree in (*removed.items(), *of_status.items()):
        lost = {**lost, name: united(lost[name], tree) if name in lost else tree}
    gaining = {_writer(mine): (mine, changed)} if changed else {}
    if of_status:
        mine = structs.replace(mine, subresource="status")
        gaining[_writer(mine)] = mine, of_status
    following = []
    for entry in entries:
        own, gained = gaining.pop(_writer(entry), (entry, NOTHING))
        if left := _edited(entry.fields_v1, gained, lost):
            kept = left is entry.fields_v1 and own is entry
            following.append(entry if kept else structs.replace(own, fields_v1=left))
    for own, gained in gaining.values():
        following.append(structs.replace(own, fields_v1=FieldsV1(_encode(gained))))
    return tuple(sorted(_capped(following), key=_order))


def _writer(entry: ManagedFieldsEntry) -> tuple[str, ...]:
    """Entries with the same are one. Who applies is the same in every version."""
    version = entry.api_version if entry.operation == "Update" else ""
    return entry.manager, entry.operation, entry.subresource, version


def _order(entry: ManagedFieldsEntry) -> tuple[str, ...]:
    return entry.operation, entry.time or "", entry.manager, entry.api_version, entry.subresource


def _capped(entries: Sequence[ManagedFieldsEntry]) -> Sequence[ManagedFieldsEntry]:
    """With the oldest updates merged where there are too many; those of each version by themselves."""
    if len(entries) <= MOST_UPDATERS:
        return entries
    updates = [one for one in entries if one.operation == "Update"]
    if len(updates) <= MOST_UPDATERS:
        return entries
    others = [one for one in entries if one.operation != "Update"]
    oldest: dict[str, ManagedFieldsEntry] = {}
    kept: list[ManagedFieldsEntry] = []
    surplus = len(updates) - MOST_UPDATERS
    for entry in sorted(updates, key=_order):
        first = oldest.get(entry.api_version)
        if surplus <= 0 or first is None:
            oldest.setdefault(entry.api_version, entry)
            kept.append(entry)
            continue
        merged = structs.replace(
            entry,
            manager=ANCIENT,
            subresource="",
            fields_v1=_united(first.fields_v1, entry.fields_v1),
        )
        kept[next(place for place, one in enumerate(kept) if one is first)] = oldest[entry.api_version] = merged
        surplus -= 1
    return [*others, *kept]


def _readable(kind: Kind, entries: Entries) -> Entries:
    """Entries that a client has sent, in our own writing; none where one of them makes no sense."""
    kept = []
    for entry in entries:
        known = entry.operation in ("Apply", "Update") and entry.api_version and entry.fields_type == "FieldsV1"
        tree = msgspec.json.decode(entry.fields_v1) if bytes(entry.fields_v1) else {}
        if not known or not is_fields_v1(tree):
            return ()
        if fields := _as_stored(kind, from_fields_v1(tree)):
            kept.append(structs.replace(entry, fields_v1=_text_of(fields)))
    return tuple(sorted(kept, key=_order))


def _as_stored(kind: Kind, fields: FieldSet) -> FieldSet:
    """With the stored names of fields that are kept aside."""
    places = [tuple(f"f:{name}" for name in place.names) for place in asides(kind.type)]
    return frozenset(reduce(_put_aside, places, path) for path in fields) if places else fields


def _put_aside(path: Path, stored: Path) -> Path:
    shown = (*stored[:-1], stored[-1].replace(ASIDE, "", 1))
    return stored + path[len(shown) :] if path[: len(shown)] == shown else path


# Sets of fields as text ----------------------------------------------------------------------------------------------


_RESET: Entries = (ManagedFieldsEntry(),)
#: Longest text of which the fields are remembered.
_LONGEST = 4096


def _edited(text: FieldsV1, gained: Members, lost: Members) -> FieldsV1:
    """The set without `lost` and with `gained`; the same text where that changes nothing, NO_FIELDS where none is left.

    Objects of one kind are edited alike: most edits are known.
    """
    if not gained and not _may_own(bytes(text), lost):
        return text
    edited = _edited_text(_encode((text or _WHOLE, gained, lost)))
    return text if edited is None else edited


def _may_own(text: bytes, fields: Tree) -> bool:
    """False where the set can have none of `fields`: it does not even name them."""
    for element, below in fields.items():
        if _encode(element) in text and (not below or ITSELF in below or _may_own(text, below)):
            return True
    return False


@short_text_cache(512, longest=_LONGEST)
def _edited_text(edit: bytes) -> FieldsV1 | None:
    """None where it changes nothing. edit: JSON of (the set, `gained`, `lost`).

    Other members stay text: they can be large, and this is done inside of transactions.
    """
    text, gained, lost = _edit_decoder.decode(edit)
    parts = _text_by_member(text)
    changed: dict[str, FieldsV1] = {}
    for name in gained.keys() | lost.keys():
        before = after = _parsed(bytes(parts[name])) if name in parts else None
        if after is not None and name in lost:
            after = difference(after, lost[name])
        if name in gained:
            after = gained[name] if after is None else united(after, gained[name])
        if after != before:
            changed[name] = NO_FIELDS if after is None else FieldsV1(_encode(after))
    if not changed:
        return None
    kept = {name: part for name, part in (parts | changed).items() if part}
    return FieldsV1(_encode(kept)) if kept else NO_FIELDS


def _text_by_member(text: FieldsV1) -> dict[str, FieldsV1]:
    """Empty also where it is no object: earlier versions stored what clients sent."""
    try:
        return _members_decoder.decode(text) if text else {}
    except msgspec.ValidationError:
        return {}


_edit_decoder = msgspec.json.Decoder(tuple[FieldsV1, Members, Members])
_members_decoder = msgspec.json.Decoder(dict[str, FieldsV1])
_encode = msgspec.json.Encoder(order="sorted").encode


@short_text_cache(512, longest=_LONGEST)
def _parsed(text: bytes) -> Tree:
    """The fields of a member. Nobody changes it."""
    tree = msgspec.json.decode(text)
    return tree if is_fields_v1(tree) else to_fields_v1(from_fields_v1(tree))


def _united(one: FieldsV1, other: FieldsV1) -> FieldsV1:
    return _edited(one, {name: _parsed(bytes(text)) for name, text in _text_by_member(other).items()}, NOTHING)


def _text_of(fields: FieldSet) -> FieldsV1:
    return FieldsV1(_encode(to_fields_v1(fields))) if fields else NO_FIELDS


# What a write sets ---------------------------------------------------------------------------------------------------


#: Elements from which a value is worth a look at the time.
#: What nobody owns, in names of attributes: the metadata of all pods from one template are equal without it.
_NAMELESS = {
    "name": "",
    "namespace": "",
    "self_link": "",
    "uid": "",
    "resource_version": "",
    "generation": 0,
    "creation_timestamp": None,
    "deletion_timestamp": None,
    "deletion_grace_period_seconds": None,
    "managed_fields": (),
}
_UNOWNED_METADATA = frozenset(_NAMELESS)
_OWNED: frozenset[str] = frozenset()


@cache
def _blank(type_: type[Value]) -> Any:
    return type_()


_WHOLE = FieldsV1(b"{}")


def _fields_of_new(kind: Kind, new: Any) -> FieldsV1:
    """Every field of a new object but its status, where that is written apart."""
    unowned, blank = unowned_of(kind, ""), _blank(kind.type)
    if kind.is_open:
        changed, _ = _differences(kind, new, blank, unowned)
        return FieldsV1(_encode(changed)) if changed else NO_FIELDS
    members, values = _members(kind.type), structs.astuple(new)
    parts: dict[str, Tree | FieldsV1] = {}
    for at in compress(count(), map(ne, values, structs.astuple(blank))):
        member, value = members[at], values[at]
        if member.attribute in _NAMES_OF_UNOWNED[unowned]:
            continue
        if member.collect is None:
            parts[member.element] = _LEAF
        elif member.attribute == "spec" and member.shape.kind == "struct":  # which those of one template have in common
            if part := _parts_of(kind.type)(codec.encode(value)):
                parts[member.element] = part
        else:
            _compare_member(member, member.default, value, parts, {})
    return FieldsV1(_encode(parts)) if parts else NO_FIELDS


@cache
def _parts_of(type_: type[Value]) -> Callable[[bytes], FieldsV1]:
    """The fields that a new object sets in its spec, as a function of the spec's document."""
    (member,) = (one for one in _members(type_) if one.attribute == "spec")

    @short_text_cache(128, longest=_LONGEST)
    def part(text: bytes) -> FieldsV1:
        fields: Members = {}
        _compare_member(member, member.default, codec.decode_text(cast("type[Value]", member.parts), text), fields, {})
        return FieldsV1(_encode(fields[member.element])) if fields else NO_FIELDS

    return part


def _differences(kind: Kind, new: Any, old: Any, unowned: FieldSet) -> tuple[Members, Members]:
    """(fields that the write sets to something else, fields that it removes), but those `unowned` and below."""
    names = _NAMES_OF_UNOWNED[unowned]
    if kind.is_open:
        before, after = _open_document(old, names), _open_document(new, names)
        found = compare(before, after, splitting_of(kind))
        return to_fields_v1(found[0] - UNOWNED), to_fields_v1(found[1] - UNOWNED)
    changed: Members = {}
    removed: Members = {}
    _compare(old, new, changed, removed, names)
    return changed, removed


_NAMES_OF_UNOWNED = {
    fields: frozenset(("api_version", "kind", *(path[0].removeprefix("f:") for path in fields)))
    for fields in (_NONE, _STATUS, _ALL_BUT_STATUS)
}


def _open_document(obj: Any, unowned: frozenset[str]) -> dict[str, Any]:
    document = {name: value for name, value in obj.content.items() if name not in unowned}
    if "metadata" not in unowned:
        document["metadata"] = codec.to_builtins(structs.replace(obj.metadata, **_NAMELESS))
    return document


# The same as `compare` finds in documents, found in values: nothing is encoded and decoded for it. --------


class _Member(NamedTuple):
    """A field of a type. element: of a path to it. parts: the type of it, or of its elements, if they have fields of
    their own. left_out: the value with which documents do not have it; nothing is, where they always do. as_document:
    compare its documents, because it may be a list or an object. collect: what gives the fields below a value; None
    where there are none. unowned: attributes of a value that nobody owns.
    """

    attribute: str
    element: str
    shape: Splitting
    parts: type[Value] | None
    default: Any
    left_out: Any
    as_document: bool
    collect: Callable[[Any], Tree] | None
    unowned: frozenset[str]

    def is_written(self, value: Any) -> bool:
        """Whether documents have it; msgspec leaves out the very default, and empty maps."""
        return not (value is self.left_out or (type(value) is dict and value == self.left_out))

    def fields(self, value: Any) -> Tree:
        """Those below a value, with the field itself where there are any."""
        return _LEAF if self.collect is None else self.collect(value)


@cache
def _members(type_: type[Value]) -> tuple[_Member, ...]:
    """In the order in which `structs.astuple` has their values."""
    found = []
    factories = {one.name: one.default_factory for one in structs.fields(type_)}
    for declared in declarations(type_):
        name = declared.attribute
        shape = member_shape(struct(type_), declared.name)
        parts = (shape if shape.kind == "struct" else shape.element or ATOMIC).type
        default = getattr(_blank(type_), name)
        as_document = declared.as_list is not None or declared.shape.or_object
        found.append(
            _Member(
                name,
                field_element(declared.name),
                shape,
                parts,
                default,
                left_out=default if factories[name] in (msgspec.NODEFAULT, dict, list) else object(),
                as_document=as_document,
                collect=_collector(shape, parts, as_document=as_document),
                unowned=_UNOWNED_METADATA if name == "metadata" and issubclass(type_, ApiObject) else _OWNED,
            )
        )
    return tuple(found)


@cache
def _left_out(type_: type[Value]) -> tuple[Any, ...]:
    return tuple(one.left_out for one in _members(type_))


def _compare(old: Any, new: Any, changed: Tree, removed: Tree, unowned: frozenset[str] = _OWNED) -> None:
    """Compare two values of a type; what is found goes into `changed` and `removed`. What they share is equal."""
    type_: type[Value] = type(new)
    members, left, right = _members(type_), structs.astuple(old), structs.astuple(new)
    for at in compress(count(), map(is_not, left, right)):
        if left[at] != right[at] and members[at].attribute not in unowned:
            _compare_member(members[at], left[at], right[at], changed, removed)


def _compare_member(member: _Member, left: Any, right: Any, changed: Tree, removed: Tree) -> None:
    """changed, removed: of what the member belongs to."""
    kind, permanent = member.shape.kind, member.shape.permanent
    if member.as_document:
        before, after = (_document(member, value) for value in (left, right))
        found = compare(before, after, Splitting("struct", members={member.element[2:]: member.shape}))
        changed |= to_fields_v1(found[0])
        removed |= to_fields_v1(found[1])
    elif kind == "atomic":
        (changed if permanent or member.is_written(right) else removed)[member.element] = {}
    elif kind == "struct" and left is not None and right is not None:
        more: Tree = {}
        gone: Tree = {}
        if not member.is_written(left):
            more = _parts_of_permanent(right, member.unowned)
        elif not member.is_written(right):
            gone = _parts_of_permanent(left, member.unowned)
        else:
            _compare(left, right, more, gone, member.unowned)
        _put(member.element, more, changed)
        _put(member.element, gone, removed)
    elif not permanent and not member.is_written(left):
        changed[member.element] = member.fields(right)
    elif not permanent and not member.is_written(right):
        removed[member.element] = member.fields(left)
    else:
        more, gone = _compared_elements(member, left, right)
        _put(member.element, more, changed)
        _put(member.element, gone, removed)


def _compared_elements(member: _Member, left: Any, right: Any) -> tuple[Tree, Tree]:
    """Of elements with the same key, only the first counts."""
    if len(left) + len(right) >= _MANY:
        check_time()
    if member.shape.kind != "map":
        # Most elements have not changed, and stand where they stood.
        same = [one == other for one, other in zip(left, right, strict=False)]
        left, right = (unpaired(items, same) for items in (left, right))
    before, after = (dict(reversed(_elements(member.shape, items))) for items in (left, right))
    changed: Tree = {}
    removed: Tree = {name: _fields_of_element(member, before[name]) for name in before.keys() - after.keys()}
    for name, value in after.items():
        if name not in before:
            changed[name] = _fields_of_element(member, value)
        elif before[name] != value and member.parts is None:
            changed[name] = {}
        elif before[name] != value:
            more: Tree = {}
            gone: Tree = {}
            _compare(before[name], value, more, gone)
            _put(name, more, changed)
            _put(name, gone, removed)
    return changed, removed


def _put(name: str, found: Tree, into: Tree) -> None:
    if found:
        into[name] = found


def _fields_of_element(member: _Member, item: Any) -> Tree:
    return _LEAF if member.parts is None else _fields_of(item)


def _elements(shape: Splitting, value: Any) -> list[tuple[str, Any]]:
    """(path element, value) of each element of a map, of a list with keys, or of a set."""
    if shape.kind == "map":
        return [(f"f:{name}", item) for name, item in value.items()]
    if shape.kind == "set":
        return [(value_element(item), item) for item in value]
    return [(_key_element(item, shape.keys), item) for item in value]


def _key_element(item: Any, names: tuple[str, ...]) -> str:
    type_: type[Value] = type(item)
    keys = {}
    for one in _keys(type_, names):
        value = getattr(item, one.attribute)
        if value is not one.left_out:
            keys[one.element[2:]] = value
    return key_element(keys, names)


@cache
def _keys(type_: type[Value], names: tuple[str, ...]) -> tuple[_Member, ...]:
    return tuple(one for one in _members(type_) if one.element[2:] in names)


_LEAF: Tree = {}


def _collector(shape: Splitting, parts: type[Value] | None, *, as_document: bool) -> Callable[[Any], Tree] | None:
    """What gives the fields below a value of this shape, with the field itself; None where it has no parts.

    parts: the type of its elements, if they have fields of their own.
    """
    if as_document:
        return lambda value: _collected_from_document(value, shape)
    if shape.kind == "atomic":
        return None
    if shape.kind == "struct":
        return _fields_of

    def collect_elements(value: Any) -> Tree:
        if len(value) >= _MANY:
            check_time()
        found = {ITSELF: _LEAF} if value else {}
        for name, item in reversed(_elements(shape, value)):
            found[name] = _LEAF if parts is None else _fields_of(item)
        return found

    return collect_elements


def _collected_from_document(value: Any, shape: Splitting) -> Tree:
    found: set[Path] = set()
    collect_all(codec.to_builtins(value), shape, (), found)
    return to_fields_v1(frozenset(found))


def _fields_of(value: Any) -> Tree:
    """The fields of a value: itself and all below it."""
    type_: type[Value] = type(value)
    found = {ITSELF: _LEAF}
    members, values = _members(type_), structs.astuple(value)
    for at in compress(count(), map(is_not, values, _left_out(type_))):
        member, part = members[at], values[at]
        if member.collect is None and type(part) is not dict:
            found[member.element] = _LEAF
        elif member.is_written(part):
            found[member.element] = member.fields(part)
    return found if len(found) > 1 else {}


def _parts_of_permanent(value: Any, unowned: frozenset[str] = _OWNED) -> Tree:
    """What comes or goes with a struct that is always there, or was left out because nothing was in it."""
    type_: type[Value] = type(value)
    found: Tree = {}
    members, values = _members(type_), structs.astuple(value)
    for at in compress(count(), map(is_not, values, _left_out(type_))):
        member, part = members[at], values[at]
        if member.attribute in unowned or not member.is_written(part):
            continue
        if not member.shape.permanent:
            found[member.element] = member.fields(part)
        elif member.shape.kind == "atomic":
            if part != member.default:
                found[member.element] = _LEAF
        elif member.shape.kind == "struct":
            _put(member.element, _parts_of_permanent(part), found)
        elif part:
            found[member.element] = {name: below for name, below in member.fields(part).items() if name != ITSELF}
    return found


def _document(member: _Member, value: Any) -> dict[str, Any]:
    """With this member alone, if it is written."""
    return {member.element[2:]: codec.to_builtins(value)} if member.is_written(value) else {}
