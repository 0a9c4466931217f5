"""What server-side apply takes for one field of a custom resource, from its schema. PURE.

Source: apiserver/pkg/util/openapi and structured-merge-diff's schema of what kube-openapi publishes.
"""

from __future__ import annotations

from manciple.extensions.structure import SchemaNode
from manciple.wire.base import ObjectMeta
from manciple.wire.managed_fields import ATOMIC, DEDUCED, struct
from manciple.wire.registry import Splitting


def splitting_of(node: SchemaNode) -> Splitting:
    """Of a whole object."""
    return _object(node, {"metadata": struct(ObjectMeta)})


def _shape(node: SchemaNode) -> Splitting:
    if node.type == "array":
        return _list(node)
    if node.embedded:
        return _object(node, {"metadata": struct(ObjectMeta)})
    if node.type == "object" or node.properties or node.values:
        return _object(node, {})
    return DEDUCED if node.keeps_unknown else ATOMIC


def _object(node: SchemaNode, head: dict[str, Splitting]) -> Splitting:
    if node.map_type == "atomic":
        return ATOMIC
    if node.values is not None:
        return Splitting("map", element=_shape(node.values))
    others = DEDUCED if node.keeps_unknown or node.any_keys else ATOMIC
    if not node.properties and not head:
        return DEDUCED
    return Splitting(
        "struct", members={name: _shape(one) for name, one in node.properties.items()} | head, element=others
    )


def _list(node: SchemaNode) -> Splitting:
    if node.list_type == "set":
        return Splitting("set")
    if node.list_type != "map" or node.items is None:
        return ATOMIC
    parts = node.items.properties
    defaults = {key: parts[key].default for key in node.map_keys if key in parts and parts[key].has_default}
    return Splitting("keyed", element=_shape(node.items), keys=node.map_keys, key_defaults=defaults)
