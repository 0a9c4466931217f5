"""A structural schema as OpenAPI shows it, for kubectl and for generators of clients. PURE.

Source: apiextensions-apiserver/pkg/controller/openapi/builder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manciple.extensions.structure import HEAD, Schema

#: What OpenAPI v2 does not know, as upstream leaves it out there.
_NOT_IN_V2 = frozenset({"nullable", "anyOf", "oneOf", "allOf", "not", "default"})


def published(schema: Schema) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of a kind in OpenAPI v3 and v2. Its head is described by whoever publishes it."""
    properties = {name: one for name, one in schema.get("properties", {}).items() if name not in HEAD}
    shown = {**schema, "properties": properties}
    return shown, in_version_2(shown)


def in_version_2(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same for OpenAPI v2, which cannot say as much: what it cannot say, it leaves open."""
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string"):
        kept = ("description", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string")
        return {name: schema[name] for name in kept if name in schema}
    made = {name: value for name, value in schema.items() if name not in _NOT_IN_V2}
    if schema.get("nullable"):
        made.pop("type", None)
    if "properties" in made:
        made["properties"] = {name: in_version_2(one) for name, one in made["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), Mapping):
            made[name] = in_version_2(made[name])
    return made
