"""metadata.managedFields: who owns which field, from the first write on.

A create owns every field that it sets; an update or patch takes the fields that it changes from their owners. Server-
side apply has rules of its own (`manciple.wire.apply`). Objects that have no entries, because they are older than this
record or a client has reset it, get none until somebody applies to them, as upstream.
Source: apimachinery/pkg/util/managedfields/internal (fieldmanager.go, managedfieldsupdater.go, capmanagers.go,
skipnonapplied.go), structured-merge-diff/merge/update.go.

Entries are stored in the document, as clients see them. They are part of every write, so they have to be cheap: sets of
fields stay JSON text until a write can touch them, only members of the object that differ are compared, and what equal
parts of documents (the spec of pods from one template) own is worked out once.

Fields are named as the stored version has them, whatever the version of the request. So entries of clients that write
in different versions can be compared, and kubectl can merge them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, reduce
from itertools import compress, count
from operator import is_not, ne
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import structs

from manciple.wire import codec, field_sets
from manciple.wire.base import (
    ASIDE,
    NO_FIELDS,
    ApiObject,
    FieldsV1,
    ManagedFieldsEntry,
    Value,
    declarations,
)
from manciple.wire.field_sets import ITSELF, FieldSet, Path, Splitting, Tree
from manciple.wire.limits import check_time, short_text_cache
from manciple.wire.registry import Kind, asides

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
    return kind.splitting or field_sets.struct(kind.type)


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
        lost = {**lost, name: field_sets.united(lost[name], tree) if name in lost else tree}
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
        if not known or not field_sets.is_fields_v1(tree):
            return ()
        if fields := _as_stored(kind, field_sets.from_fields_v1(tree)):
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
            after = field_sets.difference(after, lost[name])
        if name in gained:
            after = gained[name] if after is None else field_sets.united(after, gained[name])
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
    return tree if field_sets.is_fields_v1(tree) else field_sets.to_fields_v1(field_sets.from_fields_v1(tree))


def _united(one: FieldsV1, other: FieldsV1) -> FieldsV1:
    return _edited(one, {name: _parsed(bytes(text)) for name, text in _text_by_member(other).items()}, NOTHING)


def _text_of(fields: FieldSet) -> FieldsV1:
    return FieldsV1(_encode(field_sets.to_fields_v1(fields))) if fields else NO_FIELDS


# What a write sets ---------------------------------------------------------------------------------------------------


#: Elements from which a value is worth a look at the time.
_MANY = 64
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
            if part := _part(codec.encode(value), kind.type):
                parts[member.element] = part
        else:
            _compare_member(member, member.default, value, parts, {})
    return FieldsV1(_encode(parts)) if parts else NO_FIELDS


@short_text_cache(512, longest=_LONGEST)
def _part(text: bytes, type_: type[Value]) -> FieldsV1:
    """What a new object sets in its spec, of which this is the document."""
    (member,) = (one for one in _members(type_) if one.attribute == "spec")
    found: Members = {}
    _compare_member(member, member.default, codec.decode_text(cast("type[Value]", member.parts), text), found, {})
    return FieldsV1(_encode(found[member.element])) if found else NO_FIELDS


def _differences(kind: Kind, new: Any, old: Any, unowned: FieldSet) -> tuple[Members, Members]:
    """(fields that the write sets to something else, fields that it removes), but those `unowned` and below."""
    names = _NAMES_OF_UNOWNED[unowned]
    if kind.is_open:
        before, after = _open_document(old, names), _open_document(new, names)
        found = field_sets.compare(before, after, splitting_of(kind))
        return field_sets.to_fields_v1(found[0] - UNOWNED), field_sets.to_fields_v1(found[1] - UNOWNED)
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


# The same as `field_sets.compare` finds in documents, found in values: nothing is encoded and decoded for it. --------


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
        shape = field_sets.member(field_sets.struct(type_), declared.name)
        parts = (shape if shape.kind == "struct" else shape.element or field_sets.ATOMIC).type
        default = getattr(_blank(type_), name)
        as_document = declared.as_list is not None or declared.shape.or_object
        found.append(
            _Member(
                name,
                field_sets.field_element(declared.name),
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
        found = field_sets.compare(before, after, Splitting("struct", members={member.element[2:]: member.shape}))
        changed |= field_sets.to_fields_v1(found[0])
        removed |= field_sets.to_fields_v1(found[1])
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
        left, right = (field_sets.others(items, same) for items in (left, right))
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
        return [(field_sets.value_element(item), item) for item in value]
    return [(_key_element(item, shape.keys), item) for item in value]


def _key_element(item: Any, names: tuple[str, ...]) -> str:
    type_: type[Value] = type(item)
    keys = {}
    for one in _keys(type_, names):
        value = getattr(item, one.attribute)
        if value is not one.left_out:
            keys[one.element[2:]] = value
    return field_sets.key_element(keys, names)


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
    field_sets.collect_all(codec.to_builtins(value), shape, (), found)
    return field_sets.to_fields_v1(frozenset(found))


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
