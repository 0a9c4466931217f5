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

from collections.abc import Container, Sequence
from functools import cache, reduce
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
    ObjectMeta,
    Value,
    declarations,
)
from manciple.wire.caching import short_text_cache
from manciple.wire.field_sets import FieldSet, Path, Splitting, Tree
from manciple.wire.registry import Kind, asides
from manciple.wire.time_limit import check_time

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
    entries = _readable(kind, new.metadata.managed_fields)
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
    lost = dict(changed)
    for name, tree in (*removed.items(), *of_status.items()):
        lost[name] = field_sets.united(lost[name], tree) if name in lost else tree
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

    Other members stay text: they can be large, and this is done inside of transactions.
    """
    named = gained.keys() | lost.keys()
    if not gained:
        written = bytes(text)
        if not any(_encode(name) in written for name in named):
            return text
    parts = _text_by_member(text)
    changed: dict[str, FieldsV1] = {}
    for name in named:
        before = after = _parsed(bytes(parts[name])) if name in parts else None
        if after is not None and name in lost:
            after = field_sets.difference(after, lost[name])
        if name in gained:
            after = gained[name] if after is None else field_sets.united(after, gained[name])
        if after != before:
            changed[name] = NO_FIELDS if after is None else FieldsV1(_encode(after))
    if not changed:
        return text
    kept = {name: part for name, part in (parts | changed).items() if part}
    return FieldsV1(_encode(kept)) if kept else NO_FIELDS


def _text_by_member(text: FieldsV1) -> dict[str, FieldsV1]:
    """Empty also where it is no object: earlier versions stored what clients sent."""
    try:
        return _members_decoder.decode(text) if text else {}
    except msgspec.ValidationError:
        return {}


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


_HEAD = ("api_version", "kind")
#: Elements from which a value is worth a look at the time.
_MANY = 64
#: Without what nobody owns, the metadata of all pods from one template are equal.
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


@cache
def _blank(type_: type[Value]) -> Any:
    return type_()


def _owned_metadata(meta: ObjectMeta) -> ObjectMeta:
    return structs.replace(meta, **_NAMELESS)


_WHOLE = FieldsV1(b"{}")


def _fields_of_new(kind: Kind, new: Any) -> FieldsV1:
    """Every field of a new object but its status, where that is written apart."""
    unowned, blank = unowned_of(kind, ""), _blank(kind.type)
    if kind.is_open:
        changed, _ = _differences(kind, new, blank, unowned)
        return FieldsV1(_encode(changed)) if changed else NO_FIELDS
    parts: dict[str, FieldsV1] = {}
    for member in _members(kind.type):
        value = getattr(new, member.attribute)
        if value == member.default or member.attribute in _NAMES_OF_UNOWNED[unowned]:
            continue
        if member.shape.kind == "atomic":
            part = _WHOLE
        elif member.attribute == "spec":  # which those of one template have in common
            part = _part(codec.encode(structs.replace(blank, spec=value)), kind.type)
        else:
            changed, _ = _differences_of_member(member, member.default, value)
            part = FieldsV1(_encode(changed[member.element])) if changed else NO_FIELDS
        if part:
            parts[member.element] = part
    return FieldsV1(_encode(parts)) if parts else NO_FIELDS


@short_text_cache(512, longest=_LONGEST)
def _part(text: bytes, type_: type[Value]) -> FieldsV1:
    """What a document with a spec alone sets in it."""
    spec = cast("Any", codec.decode_text(type_, text)).spec
    (member,) = (one for one in _members(type_) if one.attribute == "spec")
    changed, _ = _differences_of_member(member, member.default, spec)
    return FieldsV1(_encode(changed[member.element])) if changed else NO_FIELDS


def _differences(kind: Kind, new: Any, old: Any, unowned: FieldSet) -> tuple[Members, Members]:
    """(fields that the write sets to something else, fields that it removes), but those `unowned` and below."""
    names = _NAMES_OF_UNOWNED[unowned]
    if kind.is_open:
        before, after = _open_document(old, names), _open_document(new, names)
        found = field_sets.compare(before, after, splitting_of(kind))
        return field_sets.to_fields_v1(found[0] - UNOWNED), field_sets.to_fields_v1(found[1] - UNOWNED)
    changed: Members = {}
    removed: Members = {}
    for member in _members(kind.type):
        left, right = getattr(old, member.attribute), getattr(new, member.attribute)
        if left is not right and left != right and member.attribute not in names:
            more, gone = _differences_of_member(member, left, right)
            changed |= more
            removed |= gone
    return changed, removed


_NAMES_OF_UNOWNED = {
    fields: frozenset(path[0].removeprefix("f:") for path in fields) for fields in (_NONE, _STATUS, _ALL_BUT_STATUS)
}


def _open_document(obj: Any, unowned: frozenset[str]) -> dict[str, Any]:
    document = {name: value for name, value in obj.content.items() if name not in unowned}
    if "metadata" not in unowned:
        document["metadata"] = codec.to_builtins(_owned_metadata(obj.metadata))
    return document


# The same as `field_sets.compare` finds in documents, found in values: nothing is encoded and decoded for it. --------


class _Member(NamedTuple):
    """A field of a type. element: of a path to it. parts: the type of it, or of its elements, if they have fields of
    their own. is_there: whether documents have it even if it is `default`. as_document: compare its documents, because
    it may be a list or an object.
    """

    attribute: str
    element: str
    shape: Splitting
    parts: type[Value] | None
    default: Any
    is_there: bool
    as_document: bool

    def is_written(self, value: Any) -> bool:
        """Whether documents have it; msgspec leaves out the very default, and empty maps."""
        return self.is_there or not (value is self.default or (type(value) is dict and value == self.default))


@cache
def _members(type_: type[Value]) -> tuple[_Member, ...]:
    found = []
    factories = {one.name: one.default_factory for one in structs.fields(type_)}
    for declared in declarations(type_):
        name = declared.attribute
        if issubclass(type_, ApiObject) and name in _HEAD:
            continue
        shape = field_sets.member(field_sets.struct(type_), declared.name)
        of_parts = shape if shape.kind == "struct" else shape.element or field_sets.ATOMIC
        found.append(
            _Member(
                name,
                field_sets.field_element(declared.name),
                shape,
                of_parts.type,
                getattr(_blank(type_), name),
                is_there=factories[name] not in (msgspec.NODEFAULT, dict, list),
                as_document=declared.as_list is not None or declared.shape.or_object,
            )
        )
    return tuple(found)


def _differences_of_member(member: _Member, left: Any, right: Any) -> tuple[Members, Members]:
    """Of a member of the object itself."""
    changed: Members = {}
    removed: Members = {}
    unowned = _NAMELESS if member.attribute == "metadata" else ()
    _compare_member(member, left, right, changed, removed, unowned=unowned)
    return changed, removed


def _compare(old: Any, new: Any, changed: Tree, removed: Tree, unowned: Container[str] = ()) -> None:
    """Compare two values of a type; what is found goes into `changed` and `removed`."""
    type_: type[Value] = type(new)
    for member in _members(type_):
        left, right = getattr(old, member.attribute), getattr(new, member.attribute)
        if left is not right and left != right and member.attribute not in unowned:
            _compare_member(member, left, right, changed, removed)


def _compare_member(
    member: _Member, left: Any, right: Any, changed: Tree, removed: Tree, *, unowned: Container[str] = ()
) -> None:
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
            more = _parts_of_permanent(right, unowned)
        elif not member.is_written(right):
            gone = _parts_of_permanent(left, unowned)
        else:
            _compare(left, right, more, gone, unowned)
        _put(member.element, more, changed)
        _put(member.element, gone, removed)
    elif not permanent and not member.is_written(left):
        changed[member.element] = _collected(member, right)
    elif not permanent and not member.is_written(right):
        removed[member.element] = _collected(member, left)
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
    before, after = dict(reversed(_elements(member, left))), dict(reversed(_elements(member, right)))
    changed: Tree = {}
    removed: Tree = {name: _collected_element(member, before[name]) for name in before.keys() - after.keys()}
    for name, value in after.items():
        if name not in before:
            changed[name] = _collected_element(member, value)
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


def _elements(member: _Member, value: Any) -> list[tuple[str, Any]]:
    """(path element, value) of each element of a map, of a list with keys, or of a set."""
    if member.shape.kind == "map":
        return [(f"f:{name}", item) for name, item in value.items()]
    if member.shape.kind == "set":
        return [(field_sets.value_element(item), item) for item in value]
    return [(_key_element(member, item), item) for item in value]


def _key_element(member: _Member, item: Any) -> str:
    type_: type[Value] = type(item)
    keys = {}
    for one in _keys(type_, member.shape.keys):
        value = getattr(item, one.attribute)
        if one.is_written(value):
            keys[one.element[2:]] = value
    return field_sets.key_element(keys, member.shape.keys)


@cache
def _keys(type_: type[Value], names: tuple[str, ...]) -> tuple[_Member, ...]:
    return tuple(one for one in _members(type_) if one.element[2:] in names)


def _collected(member: _Member, value: Any) -> Tree:
    """The field and all below it."""
    if member.as_document:
        fields: set[Path] = set()
        field_sets.collect_all(_document(member, value)[member.element[2:]], member.shape, (), fields)
        return field_sets.to_fields_v1(frozenset(fields))
    if member.shape.kind == "atomic":
        return {}
    if member.shape.kind == "struct":
        return _collected_parts(value)
    if len(value) >= _MANY:
        check_time()
    return _with_itself({name: _collected_element(member, item) for name, item in reversed(_elements(member, value))})


def _collected_element(member: _Member, value: Any) -> Tree:
    return {} if member.parts is None else _collected_parts(value)


def _collected_parts(value: Any) -> Tree:
    type_: type[Value] = type(value)
    found = {}
    for member in _members(type_):
        part = getattr(value, member.attribute)
        if member.is_written(part):
            found[member.element] = _collected(member, part)
    return _with_itself(found)


def _parts_of_permanent(value: Any, unowned: Container[str] = ()) -> Tree:
    """What comes or goes with a struct that is always there, or was left out because nothing was in it."""
    type_: type[Value] = type(value)
    found: Tree = {}
    for member in _members(type_):
        part = getattr(value, member.attribute)
        if not member.is_written(part) or member.attribute in unowned:
            continue
        if not member.shape.permanent:
            found[member.element] = _collected(member, part)
        elif member.shape.kind == "atomic":
            if part != member.default:
                found[member.element] = {}
        elif member.shape.kind == "struct":
            _put(member.element, _parts_of_permanent(part), found)
        elif part:
            found[member.element] = {name: _collected_element(member, one) for name, one in _elements(member, part)}
    return found


def _with_itself(below: Tree) -> Tree:
    return {field_sets.ITSELF: {}, **below} if below else {}


def _document(member: _Member, value: Any) -> dict[str, Any]:
    """With this member alone, if it is written."""
    return {member.element[2:]: codec.to_builtins(value)} if member.is_written(value) else {}
