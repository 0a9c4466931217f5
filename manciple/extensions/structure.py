"""Structural schemas: what a custom resource may hold, and what is made of it before anything looks at it. PURE.

A `SchemaNode` is one schema of the spine, which says of which type a value is and what it consists of. `fit` makes an
object fit for it: unknown fields are dropped, nulls that may not be go, defaults are filled in. All work on builtins,
and on these in place. Sources: apiextensions-apiserver/pkg/apiserver/schema/{pruning,defaulting}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from manciple.wire.validation import Path

#: What objects and embedded objects have beside their content.
HEAD = ("apiVersion", "kind", "metadata")

#: The path of an object as a whole, as errors name it (Go prints a nil path so).
NOWHERE = "<nil>"
ROOT = Path("")

Schema = Mapping[str, Any]
#: told of the path of every field that is dropped
Dropped = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class SchemaNode:
    """A schema, with those of its parts. raw: as the definition has it."""

    raw: Schema
    type: str = ""
    properties: Mapping[str, SchemaNode] = field(default_factory=dict)
    items: SchemaNode | None = None
    #: of a map: the schema of its values; `any_keys` alone where there are values of which nothing is said
    values: SchemaNode | None = None
    any_keys: bool = False
    nullable: bool = False
    keeps_unknown: bool = False
    embedded: bool = False
    int_or_string: bool = False
    list_type: str = "atomic"
    map_keys: tuple[str, ...] = ()
    map_type: str = "granular"
    has_default: bool = False
    #: itself or anything below has a default
    fills: bool = False

    @property
    def default(self) -> Any:
        return deepcopy(self.raw["default"])

    @property
    def rules(self) -> tuple[Schema, ...]:
        return tuple(self.raw.get("x-kubernetes-validations", ()))

    def part(self, name: str) -> SchemaNode | None:
        """The schema of a member of an object."""
        return self.properties.get(name) or self.values

    def walk(self) -> Iterator[SchemaNode]:
        yield self
        for one in (*self.properties.values(), self.items, self.values):
            if one is not None:
                yield from one.walk()


def node_of(schema: Schema) -> SchemaNode:
    properties = {name: node_of(one) for name, one in schema.get("properties", {}).items()}
    items, additional = schema.get("items"), schema.get("additionalProperties")
    of_items = node_of(items) if isinstance(items, Mapping) else None
    of_values = node_of(additional) if isinstance(additional, Mapping) else None
    has_default = schema.get("default") is not None
    parts = (*properties.values(), of_items, of_values)
    return SchemaNode(
        raw=schema,
        type=schema.get("type", ""),
        properties=properties,
        items=of_items,
        values=of_values,
        any_keys=additional is not None and additional is not False,
        nullable=schema.get("nullable", False),
        keeps_unknown=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
        embedded=schema.get("x-kubernetes-embedded-resource", False),
        int_or_string=schema.get("x-kubernetes-int-or-string", False),
        list_type=schema.get("x-kubernetes-list-type", "atomic"),
        map_keys=tuple(schema.get("x-kubernetes-list-map-keys", ())),
        map_type=schema.get("x-kubernetes-map-type", "granular"),
        has_default=has_default,
        fills=has_default or any(one is not None and one.fills for one in parts),
    )


# Pruning --------------------------------------------------------------------------------------------------------------


def _unheard(_path: str) -> None:
    pass


def prune(
    value: Any, node: SchemaNode | None, *, root: bool = False, path: str = "", dropped: Dropped = _unheard
) -> None:
    """Drop the fields that the schema does not know. root: `value` is an object, whose head stays.

    node: None where nothing is said of the value, and then nothing in it stays.
    """
    if isinstance(value, dict):
        _prune_object(value, node, root=root or (node is not None and node.embedded), path=path, dropped=dropped)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            if isinstance(item, dict | list) and not (node is not None and node.items is None and node.keeps_unknown):
                prune(item, node.items if node else None, path=f"{path}[{at}]", dropped=dropped)


def _prune_object(value: dict[str, Any], node: SchemaNode | None, *, root: bool, path: str, dropped: Dropped) -> None:
    for name in list(value):
        if root and name in HEAD:
            continue
        below = f"{path}.{name}" if path else name
        part = node.properties.get(name) if node else None
        if part is None and node is not None and node.any_keys:
            prune(value[name], node.values, path=below, dropped=dropped)
        elif part is not None:
            prune(value[name], part, path=below, dropped=dropped)
        elif node is None or not node.keeps_unknown:
            del value[name]
            dropped(below)


# Nulls and defaults ---------------------------------------------------------------------------------------------------


def fill(value: Any, node: SchemaNode | None) -> None:
    """Put defaults where nothing stands, or a null that may not be; drop such nulls that have none."""
    if node is None:
        return
    if isinstance(value, dict):
        _fill_object(value, node)
    elif isinstance(value, list) and node.items is not None:
        for at, item in enumerate(value):
            if item is None and not node.items.nullable and node.items.has_default:
                value[at] = node.items.default
            fill(value[at], node.items)


def _fill_object(value: dict[str, Any], node: SchemaNode) -> None:
    for name, part in node.properties.items():
        if part.has_default and (name not in value or (value[name] is None and not part.nullable)):
            value[name] = part.default
    for name in list(value):
        one = node.part(name)
        if one is None:
            continue
        if value[name] is None and not one.nullable and not one.keeps_unknown:
            if one.has_default:
                value[name] = one.default
            else:
                del value[name]
                continue
        fill(value[name], one)


def fit(content: dict[str, Any], node: SchemaNode, *, dropped: Dropped = _unheard) -> dict[str, Any]:
    """An object's content, pruned and filled; in place."""
    prune(content, node, root=True, dropped=dropped)
    fill(content, node)
    return content
