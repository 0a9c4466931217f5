"""Sets of fields of a document, as metadata.managedFields stores them (FieldsV1).

A field is a path of elements: `f:name` for a member, `k:{"name":"x"}` for the element of a list with that key, `v:"x"`
for a value of a set. A `FieldSet` is a frozenset of paths; `to_fields_v1` and `from_fields_v1` turn it into the nested
JSON form and back, `of_document` tells which fields a document sets. What is one field and what is many is read from
the type's declaration: structs, maps, lists with keys and sets are split, everything else is one field. Source:
sigs.k8s.io/structured-merge-diff (fieldpath, typed/tofieldset.go).
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import zip_longest
from typing import Any, Literal

import msgspec

from manciple.wire.base import ASIDE, EMPTY, MERGE_SCALARS, REPLACED, Declaration, Value, declarations, is_atomic
from manciple.wire.limits import check_time

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


@dataclass(frozen=True, slots=True)
class Splitting:
    """How a value is split into fields.

    kind: "struct" of a type's fields, "map" of elements, "keyed" list, "set" of scalars, "atomic": one field, or
    "deduced" from the value: objects are split, all else is one field.
    """

    kind: Literal["struct", "map", "keyed", "set", "atomic", "deduced"]
    type: type[Value] | None = None
    #: of maps and keyed lists: the shape of their elements
    element: Splitting | None = None
    keys: tuple[str, ...] = ()
    #: of a struct whose fields no type declares: the shape of each, and in `element` that of all others
    members: Mapping[str, Splitting] = field(default_factory=dict)
    #: of keyed lists: what keys are that an element leaves out
    key_defaults: Mapping[str, Any] = field(default_factory=dict)
    #: Go writes such a struct or list even when it is empty, so it never comes or goes
    permanent: bool = False


ATOMIC = Splitting("atomic")
DEDUCED = Splitting("deduced")
_OBJECTS = ("struct", "map", "deduced")


def struct(type_: type[Value]) -> Splitting:
    return Splitting("struct", type_)


def member(shape: Splitting, name: str) -> Splitting:
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
            yield field_element(name), item, member(shape, name)
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
                inner, below = member(shape, name), (*path, f"f:{name}")
                if name in before or inner.permanent:
                    self.look(before.get(name, _nothing(inner)), value, inner, below)
                else:
                    collect_all(value, inner, below, self.changed)
        for name in before.keys() - after.keys():
            inner, below = member(shape, name), (*path, f"f:{name}")
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
            for items in (others(before, same), others(after, same))
        )
        for element, (item, inner) in new.items():
            if element not in old:
                collect_all(item, inner, (*path, element), self.changed)
            elif old[element][0] != item:
                self.look(old[element][0], item, inner, (*path, element))
        for element in old.keys() - new.keys():
            collect_all(*old[element], (*path, element), self.removed)


def others(items: Sequence[Any], same: list[bool]) -> list[Any]:
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
        inner = member(shape, name)
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
