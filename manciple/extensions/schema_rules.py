"""What a schema in a definition may say: it is structural, its defaults fit, its lists and rules make sense. PURE.

Three walks over the same document: what no schema may have (`_plain_errors`), what makes a schema structural
(`_structural_errors`), and the rules in CEL with what they cost (`RuleCosts`), where the first two found nothing.
Sources: apiextensions-apiserver/pkg/apis/apiextensions/validation/{validation,cel_validation}.go,
pkg/apiserver/schema/{validation,complete}.go and pkg/apiserver/schema/defaulting/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from manciple.cel.errors import EvaluationError
from manciple.cel.text import compiled
from manciple.extensions.checking import Checker, check_embedded
from manciple.extensions.expressions import NEW, Before, Rules, path_in
from manciple.extensions.rule_costs import RULES, RuleCosts
from manciple.extensions.structure import HEAD, Schema, SchemaNode, node_of, prune
from manciple.wire.errors import FieldError, forbidden, invalid, not_supported, required
from manciple.wire.validation import Path

TYPES = ("array", "boolean", "integer", "number", "object", "string")
REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_AT_ROOT = frozenset(
    {
        "description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
        "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required", "items",
        "properties", "externalDocs", "example", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations",
    }
)  # fmt: skip
_ROOT_WORDS = (
    "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations]"
)
_JUNCTORS = ("allOf", "anyOf", "oneOf")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
Errors = Iterator[FieldError]


def validate_schema(schema: Schema, path: Path, *, has_status: bool) -> list[FieldError]:
    """Every fault of a version's schema."""
    found = list(_root_errors(schema, path, has_status=has_status))
    structural = [] if _is_unsupported(schema) else _structure(schema, path)
    found += structural
    # A list of items where one schema belongs, or a reference, cannot be made a node of.
    plain = list(_plain_errors(schema, path, _Where(root=True)))
    if not structural and not plain:
        found += _default_errors(node_of(schema), path)
    found += plain
    if not found:
        found += RuleCosts(path).of(schema)
    return found


def _structure(schema: Schema, path: Path) -> list[FieldError]:
    return sorted(_structural_errors(schema, "root", path), key=str) + list(_incomplete(schema, schema, path, path))


def _is_unsupported(schema: Schema) -> bool:
    """Whether it has anything that no structural schema can be made of, at any depth; that alone is told then."""
    if isinstance(schema.get("items"), list) or any(name in schema for name, _ in _FORBIDDEN):
        return True
    return any(_is_unsupported(one) for _, one, _ in _parts(schema))


def _root_errors(schema: Schema, path: Path, *, has_status: bool) -> Errors:
    if has_status:
        if schema.get("type") and schema["type"] != "object":
            why = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            yield invalid(path.child("type"), schema["type"], why)
        elif schema.keys() - _AT_ROOT:
            why = (
                f"only {_ROOT_WORDS} fields are allowed at the root of the schema if the status subresource is enabled"
            )
            yield invalid(path, dict(schema), why)
    if schema.get("nullable"):
        yield forbidden(path.child("nullable"), "nullable cannot be true at the root")


def _parts(schema: Schema) -> Iterator[tuple[str, Schema, bool]]:
    """(path behind the schema's own, a schema within, whether it is of a part and no junctor)."""
    for name, one in schema.get("properties", {}).items():
        yield f"properties[{name}]", one, True
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield "additionalProperties", schema["additionalProperties"], True
    if isinstance(schema.get("items"), Mapping):
        yield "items", schema["items"], True
    for name in _JUNCTORS:
        for at, one in enumerate(schema.get(name, ())):
            yield f"{name}[{at}]", one, False
    if "not" in schema:
        yield "not", schema["not"], False


# What no schema may have ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Where:
    """Where a schema stands. no_defaults: why it may have none; in_head: within an object's head."""

    root: bool = False
    no_defaults: str | None = None
    in_head: bool = False


_FORBIDDEN = (
    ("id", "id is not supported"),
    ("additionalItems", "additionalItems is not supported"),
    ("patternProperties", "patternProperties is not supported"),
    ("definitions", "definitions is not supported"),
    ("dependencies", "dependencies is not supported"),
    ("$ref", "$ref is not supported"),
)


def _plain_errors(schema: Schema, path: Path, where: _Where) -> Errors:
    yield from _own_errors(schema, path, where)
    yield from _list_errors(schema, path)
    yield from _map_list_errors(schema, path)
    for at, rule in enumerate(schema.get(RULES, ())):
        yield from _rule_errors(rule, schema, path.child(RULES).at(at))
    for name, part, is_part in _parts(schema):
        yield from _plain_errors(part, path.child(name), _where(schema, name, where, is_part=is_part))


def _where(schema: Schema, name: str, where: _Where, *, is_part: bool) -> _Where:
    below = replace(where, root=False)
    if not is_part:
        return below
    member = name.removeprefix("properties[").removesuffix("]")
    if name == "additionalProperties" and where.in_head:
        return replace(below, no_defaults="inside additionalProperties applying to object metadata")
    if name.startswith("properties[") and member in HEAD:
        if where.root:
            return replace(below, in_head=True, no_defaults=f"in top-level {member}")
        if schema.get("x-kubernetes-embedded-resource"):
            return replace(below, in_head=True)
    return below


def _own_errors(schema: Schema, path: Path, where: _Where) -> Errors:
    type_ = schema.get("type", "")
    yield from _limit_errors(schema, path)
    if type_ and type_ not in TYPES:
        yield not_supported(path.child("type"), type_, TYPES)
    if schema.get("default") is not None and where.no_defaults is not None:
        yield forbidden(path.child("default"), f"must not be set {where.no_defaults}")
    for name, why in _FORBIDDEN:
        if name in schema:
            yield forbidden(path.child(name), why)
    if type_ == "null":
        yield forbidden(path.child("type"), "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list):
        yield forbidden(path.child("items"), "items must be a schema object and not an array")
    if where.in_head and schema.get("x-kubernetes-embedded-resource"):
        yield forbidden(path.child("x-kubernetes-embedded-resource"), "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(path.child("uniqueItems"), why)
    if schema.get("properties") and schema.get("additionalProperties", True) is not True:
        why = "additionalProperties and properties are mutual exclusive"
        yield forbidden(path.child("additionalProperties"), why)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid(path.child("x-kubernetes-preserve-unknown-fields"), False, "must be true or undefined")


def _limit_errors(schema: Schema, path: Path) -> Errors:
    """Limits that no value can keep, or every value does: mistakes, though upstream takes them."""
    for name in ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"):
        if schema.get(name, 0) < 0:
            yield invalid(path.child(name), schema[name], "must be greater than or equal to 0")
    if schema.get("multipleOf", 1) <= 0:
        yield invalid(path.child("multipleOf"), schema["multipleOf"], "must be greater than 0")


def _extension_type(schema: Schema, path: Path, name: str, wanted: str) -> Errors:
    why = f"must be {wanted} if {name} is specified"
    if not schema.get("type"):
        yield required(path.child("type"), why)
    elif schema["type"] != wanted:
        yield invalid(path.child("type"), schema["type"], why)


def _list_errors(schema: Schema, path: Path) -> Errors:
    map_type, list_type = schema.get("x-kubernetes-map-type"), schema.get("x-kubernetes-list-type")
    if map_type is not None:
        yield from _extension_type(schema, path, "x-kubernetes-map-type", "object")
        if map_type not in ("atomic", "granular"):
            yield not_supported(path.child("x-kubernetes-map-type"), map_type, ("atomic", "granular"))
    items = schema.get("items")
    if list_type is not None:
        wrong = list(_extension_type(schema, path, "x-kubernetes-list-type", "array"))
        yield from wrong
        if not wrong and list_type == "set" and isinstance(items, Mapping):
            yield from _set_errors(items, path.child("items"))
        if list_type not in ("atomic", "set", "map"):
            yield not_supported(path.child("x-kubernetes-list-type"), list_type, ("atomic", "set", "map"))
    if schema.get("x-kubernetes-list-map-keys") and list_type != "map":
        where, why = path.child("x-kubernetes-list-type"), "must be map if x-kubernetes-list-map-keys is non-empty"
        yield required(where, why) if list_type is None else invalid(where, list_type, why)


def _set_errors(items: Schema, path: Path) -> Errors:
    why = "must be atomic as item of a list with x-kubernetes-list-type=set"
    if items.get("type") == "array" and items.get("x-kubernetes-list-type", "atomic") != "atomic":
        yield invalid(path.child("x-kubernetes-list-type"), items["x-kubernetes-list-type"], why)
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        yield invalid(path.child("x-kubernetes-map-type"), items.get("x-kubernetes-list-type"), why)


def _map_list_errors(schema: Schema, path: Path) -> Errors:
    items, list_type = schema.get("items"), schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys", [])
    if list_type == "map":
        yield from _keys_errors(schema, items, keys, path)
    if list_type not in ("set", "map") or not isinstance(items, Mapping):
        return
    if items.get("nullable"):
        yield forbidden(
            path.child("items", "nullable"), f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        )
    for key in keys if list_type == "map" else ():
        property_ = items.get("properties", {}).get(key)
        where, of_keys = (
            path.child("items", f"properties[{key}]"),
            "this property is in x-kubernetes-list-map-keys, so it",
        )
        if property_ is None:
            continue
        if key not in items.get("required", ()) and property_.get("default") is None:
            yield required(where.child("default"), f"{of_keys} must have a default or be a required property")
        if property_.get("nullable"):
            yield forbidden(where.child("nullable"), f"{of_keys} cannot be nullable")


def _keys_errors(schema: Schema, items: Any, keys: list[str], path: Path) -> Errors:
    if not keys:
        yield required(path.child("x-kubernetes-list-map-keys"), "must not be empty if x-kubernetes-list-type is map")
    if "items" not in schema:
        yield required(path.child("items"), "must have a schema if x-kubernetes-list-type is map")
        return
    if not isinstance(items, Mapping):
        yield invalid(path.child("items"), items, "must only have a single schema if x-kubernetes-list-type is map")
        return
    if items.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(path.child("items", "type"), items.get("type", ""), why)
        return
    where = path.child("x-kubernetes-list-map-keys")
    for at, key in enumerate(keys):
        property_ = items.get("properties", {}).get(key)
        if property_ is None:
            yield invalid(where, keys, "entries must all be names of item properties")
        elif property_.get("type") in ("array", "object"):
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(path.child("items", f"properties[{key}]", "type"), items["type"], why)
        if key in keys[:at]:
            yield invalid(where, keys, "must not contain duplicate entries")


def _rule_errors(rule: Schema, schema: Schema, path: Path) -> Errors:
    text, message = rule.get("rule", ""), rule.get("message", "")
    if not text.strip():
        yield required(path.child("rule"), "rule is not specified")
    elif message and not message.strip():
        yield invalid(path.child("message"), message, "must be non-empty if specified")
    elif _breaks(message.strip()):
        yield invalid(path.child("message"), message, "must not contain line breaks")
    elif _breaks(text.strip()) and not message.strip():
        yield required(path.child("message"), "message must be specified if rule contains line breaks")
    expression, where = rule.get("messageExpression", ""), rule.get("fieldPath", "")
    if expression and not expression.strip():
        yield required(path.child("messageExpression"), "messageExpression must be non-empty if specified")
    if "reason" in rule and rule["reason"] not in REASONS:
        yield not_supported(path.child("reason"), rule["reason"], REASONS)
    if where and not where.strip():
        yield invalid(path.child("fieldPath"), where, "must be non-empty if specified")
    if _breaks(where):
        yield invalid(path.child("fieldPath"), where, "must not contain line breaks")
    if where and path_in(where, node_of(schema)) is None:
        yield invalid(path.child("fieldPath"), where, "must be a valid path")


def _breaks(text: str) -> bool:
    return re.search(r"[\n\r]", text) is not None


# What is structural ---------------------------------------------------------------------------------------------------


_LEVELS = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}


def _structural_errors(schema: Schema, level: str, path: Path) -> Errors:
    type_, items, additional = schema.get("type", ""), schema.get("items"), schema.get("additionalProperties")
    if type_ == "array" and not isinstance(items, Mapping):
        yield required(path.child("items"), "must be specified")
    if isinstance(items, Mapping):
        yield from _structural_errors(items, "item", path.child("items"))
    for name, one in schema.get("properties", {}).items():
        yield from _structural_errors(one, "field", path.child(f"properties[{name}]"))
    if additional is not None and level == "root":
        yield forbidden(path.child("additionalProperties"), "must not be used at the root")
    if isinstance(additional, Mapping):
        yield from _structural_errors(additional, "field", path.child("additionalProperties"))
    yield from _extension_errors(schema, path)
    yield from _nested_values(schema, path, of_both=True)
    yield from _type_errors(schema, level, path)
    yield from _head_errors(schema, level, path)


def _extension_errors(schema: Schema, path: Path) -> Errors:
    if schema.get("x-kubernetes-int-or-string"):
        for name in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if schema.get(name):
                yield invalid(path.child(name), True, "must be false if x-kubernetes-int-or-string is true")


def _type_errors(schema: Schema, level: str, path: Path) -> Errors:
    type_, embedded = schema.get("type", ""), schema.get("x-kubernetes-embedded-resource", False)
    keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if embedded and type_ != "object":
        why, where = "must be object if x-kubernetes-embedded-resource is true", path.child("type")
        yield invalid(where, type_, why) if type_ else required(where, why)
    elif not type_ and not keeps and not schema.get("x-kubernetes-int-or-string"):
        yield required(path.child("type"), _LEVELS[level])
    if embedded and "additionalProperties" in schema:
        yield forbidden(path.child("additionalProperties"), "must not be used if x-kubernetes-embedded-resource is set")
    if level == "root" and type_ and type_ != "object":
        yield invalid(path.child("type"), type_, "must be object at the root")
    if embedded and not keeps and not schema.get("properties"):
        why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        yield required(path.child("properties"), why)


def _head_errors(schema: Schema, level: str, path: Path) -> Errors:
    properties = schema.get("properties", {})
    checked = level == "root" or schema.get("x-kubernetes-embedded-resource", False)
    for name in ("kind", "apiVersion"):
        if checked and name in properties and properties[name].get("type", "") != "string":
            where = path.child(f"properties[{name}]", "type")
            yield invalid(where, properties[name].get("type", ""), "must be string")
    metadata = properties.get("metadata")
    if metadata is None:
        return
    where = path.child("properties[metadata]")
    if checked and metadata.get("type", "") != "object":
        yield invalid(where.child("type"), metadata.get("type", ""), "must be object")
    rest = metadata.keys() - {"type", "default"}
    if level == "root" and (rest - {"properties"} or metadata.get("properties", {}).keys() - {"name", "generateName"}):
        why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden(where, why)


def _nested_values(schema: Schema, path: Path, *, of_both: bool = False) -> Errors:
    """What stands in junctors says what values may be, and nothing of the structure."""
    is_first = of_both and (schema.get("allOf") or [{}])[0].get("anyOf") == _INT_OR_STRING
    if not (of_both and schema.get("anyOf") == _INT_OR_STRING):
        for at, one in enumerate(schema.get("anyOf", ())):
            yield from _nested_errors(one, path.child("anyOf").at(at))
    for at, one in enumerate(schema.get("allOf", ())):
        yield from _nested_errors(one, path.child("allOf").at(at), of_int_or_string=is_first and at == 0)
    for at, one in enumerate(schema.get("oneOf", ())):
        yield from _nested_errors(one, path.child("oneOf").at(at))
    if "not" in schema:
        yield from _nested_errors(schema["not"], path.child("not"))
    if pattern := schema.get("pattern"):
        try:
            compiled(pattern)
        except EvaluationError as error:
            yield invalid(path.child("pattern"), pattern, f"must be a valid regular expression, but isn't: {error}")


_NOT_NESTED = (
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    (RULES, "must be empty to be structural"),
)


def _nested_errors(schema: Schema, path: Path, *, of_int_or_string: bool = False) -> Errors:
    values = {name: one for name, one in schema.items() if not (of_int_or_string and name == "anyOf")}
    yield from _nested_values(values, path)
    if isinstance(schema.get("items"), Mapping):
        yield from _nested_errors(schema["items"], path.child("items"))
    for name, one in schema.get("properties", {}).items():
        yield from _nested_errors(one, path.child(f"properties[{name}]"))
    for name, why in _NOT_NESTED:
        if schema.get(name) not in (None, "", False, [], {}):
            yield forbidden(path.child(name), why)
    if "metadata" in schema.get("properties", {}):
        yield forbidden(path.child("properties[metadata]"), "must not be specified in a nested context")


def _incomplete(values: Schema, spine: Schema | None, spine_path: Path, path: Path) -> Errors:
    """What junctors speak of is declared outside of them."""
    for name, one, is_part in _parts(values):
        if not is_part:
            yield from _incomplete_nested(one, spine, spine_path, path.child(name))


def _incomplete_nested(values: Schema, spine: Schema | None, spine_path: Path, path: Path) -> Errors:
    if spine is None:
        yield required(spine_path, f"because it is defined in {path}")
        return
    yield from _incomplete(values, spine, spine_path, path)
    if isinstance(values.get("items"), Mapping):
        items = spine.get("items")
        below = items if isinstance(items, Mapping) else None
        yield from _incomplete_nested(values["items"], below, spine_path.child("items"), path.child("items"))
    for name, one in values.get("properties", {}).items():
        part = f"properties[{name}]"
        below = spine.get("properties", {}).get(name)
        yield from _incomplete_nested(one, below, spine_path.child(part), path.child(part))


# Defaults -------------------------------------------------------------------------------------------------------------


def _default_errors(node: SchemaNode, path: Path, *, in_head: bool = False) -> Errors:
    """Every default is valid, and nothing of it would be pruned."""
    if node.has_default:
        yield from _default_fault(node, path.child("default"), in_head=in_head)
    if node.items is not None:
        yield from _default_errors(node.items, path.child("items"), in_head=in_head)
    for name, part in node.properties.items():
        below = in_head or (node.embedded and name in HEAD)
        yield from _default_errors(part, path.child(f"properties[{name}]"), in_head=below)


def _default_fault(node: SchemaNode, path: Path, *, in_head: bool) -> Errors:
    value, pruned = node.default, deepcopy(node.default)
    prune(pruned, node, root=node.embedded)
    if pruned != value and not in_head:
        yield invalid(path, value, "must not have unknown fields")
    wrong = check_embedded(value, node, path) or Checker(node).check(value, NEW, path)
    if not wrong and (rules := Rules(node, root=node.embedded)).any:
        wrong = rules.check(value, Before(value, there=True), path) or rules.check(value, NEW, path)
    yield from wrong
