"""Whether an object fits its schema, in the words of the reference. PURE.

The JSON Schema of a definition is judged by jsonschema-rs: patterns run in linear time, and an object without fault
costs microseconds. Patterns are RE2's, as in Go: those that jsonschema-rs reads otherwise are run by RE2. What it finds
is told as kube-openapi tells it: one function for each keyword (`_TOLD`). On an update nothing is said of what did not
change. What JSON Schema does not know stands here as well: lists that are sets or maps, and the heads of embedded
objects.
Sources: kube-openapi/pkg/validation/{validate,errors}, apiextensions-apiserver/pkg/apiserver/{validation,schema}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from manciple.cel.text import matches
from manciple.extensions.expressions import Before
from manciple.extensions.formats import FORMATS, INTEGERS, is_known
from manciple.extensions.structure import NOWHERE, ROOT, Schema, SchemaNode
from manciple.wire.base import ObjectMeta
from manciple.wire.codec import Findings, decode_value, normalize
from manciple.wire.errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from manciple.wire.validation import Path, check_dns_1035_label, check_path_segment, validate_object_meta

if TYPE_CHECKING:
    import jsonschema_rs

#: Faults of one object that are told.
MOST = 200

# The schema -----------------------------------------------------------------------------------------------------------


#: Keywords that both know alike.
_SAME = (
    "enum", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength", "pattern",
    "maxItems", "minItems", "multipleOf", "maxProperties", "minProperties", "required",
)  # fmt: skip
_SEVERAL = ("allOf", "anyOf", "oneOf")


def json_schema(schema: Schema) -> dict[str, Any]:
    """A structural schema as JSON Schema (draft 4)."""
    made = {name: schema[name] for name in _SAME if name in schema}
    for flag, limit in (("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")):
        if limit not in made:
            made.pop(flag, None)  # says nothing by itself
    if "pattern" in made and not _reads_alike(made["pattern"]):
        made[_RE2] = made.pop("pattern")
    types = ["integer", "string"] if schema.get("x-kubernetes-int-or-string") else schema.get("type")
    if types:
        made["type"] = _with_null(types) if schema.get("nullable") else types
    if (format_ := schema.get("format")) and is_known(format_, schema.get("type", "")):
        _put_format(made, format_)
    for name in _SEVERAL:
        if schema.get(name):
            made[name] = [json_schema(one) for one in schema[name]]
    if "not" in schema:
        made["not"] = json_schema(schema["not"])
    if schema.get("properties"):
        made["properties"] = {name: json_schema(one) for name, one in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            made[name] = json_schema(schema[name])
    return made


#: The keyword under which a pattern stands that is RE2's alone.
_RE2 = "x-re2"


@lru_cache(maxsize=1024)
def _reads_alike(pattern: str) -> bool:
    """Whether a pattern means in jsonschema-rs what it means in RE2: JavaScript's have no flags, and other spaces."""
    if re.search(r"\\[sSC]", pattern):
        return False
    import jsonschema_rs  # noqa: PLC0415 - 4 MiB where no kinds are added

    try:
        jsonschema_rs.Draft4Validator({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    except ValueError:
        return False
    return True


class _Re2Pattern:
    """The keyword, as jsonschema-rs calls it."""

    def __init__(self, _schema: Any, pattern: str, _path: Any) -> None:
        self._pattern = pattern

    def validate(self, value: Any) -> None:
        """Raises: ValueError where the value does not match."""
        if isinstance(value, str) and not matches(value, self._pattern):
            raise ValueError(self._pattern)

    def is_valid(self, value: Any) -> bool:
        return not isinstance(value, str) or matches(value, self._pattern)


def _with_null(types: str | list[str]) -> list[str]:
    return [*([types] if isinstance(types, str) else types), "null"]


def _put_format(made: dict[str, Any], format_: str) -> None:
    if format_ in INTEGERS:
        least, greatest = INTEGERS[format_]
        made["allOf"] = [*made.get("allOf", ()), {"minimum": least, "maximum": greatest}] if format_ == "int32" else []
        if not made["allOf"]:
            del made["allOf"]
    else:
        made["format"] = format_


def validator_of(schema: Schema) -> jsonschema_rs.Draft4Validator:
    """Raises: ValueError for a schema that cannot be used, such as one with a pattern that is none."""
    import jsonschema_rs  # noqa: PLC0415 - 4 MiB where no kinds are added

    names = {name: check for known, check in FORMATS.items() for name in _spellings(known)}
    return jsonschema_rs.Draft4Validator(
        json_schema(schema),
        formats=names,
        validate_formats=True,
        ignore_unknown_formats=True,
        pattern_options=jsonschema_rs.RegexOptions(),
        keywords={_RE2: _Re2Pattern},
    )


def _spellings(name: str) -> Sequence[str]:
    others = {"datetime": ("date-time",), "k8sshortname": ("k8s-short-name",), "k8slongname": ("k8s-long-name",)}
    return (name, *others.get(name, ()))


class Checker:
    """Objects against one schema."""

    def __init__(self, node: SchemaNode) -> None:
        self._node = node
        self._validator = validator_of(node.raw)

    def check(self, value: Any, before: Before, path: Path = ROOT) -> list[FieldError]:
        """What is wrong with a value; of what is unchanged nothing is said. path: of the value in the object."""
        if self._validator.is_valid(value):
            return []
        found = islice(self._validator.iter_errors(value), MOST)
        changed = [error for error in found if not _unchanged(error.instance_path, value, before, self._node)]
        told = [told for error in changed for told in _told(error, path)]
        return told + list(_all_told(changed, self._node.raw, path))


def _unchanged(where: Sequence[str | int], value: Any, before: Before, node: SchemaNode | None) -> bool:
    """Whether what lies there is what it was."""
    for step in where:
        if before.unchanged or node is None:
            break
        if isinstance(step, int):
            value = value[step]
            before, node = before.element(node, value), node.items
        else:
            value = value[step]
            before, node = before.member(step, value), node.part(step)
    return before.unchanged


# What is told ---------------------------------------------------------------------------------------------------------


_TYPES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "boolean"),
    (str, "string"),
    (int, "integer"),
    (float, "number"),
    (list, "array"),
    (dict, "object"),
)


def compact(value: Any) -> str:
    """As messages and cells show what is no scalar."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _type_name(value: Any) -> str:
    return next((name for types, name in _TYPES if isinstance(value, types)), "null")


def _place(where: Iterable[str | int], path: Path) -> Path:
    for step in where:
        path = path.at(step) if isinstance(step, int) else path.child(step)
    return path


Told = Iterator[FieldError]


def _told(error: Any, root: Path) -> Told:
    path, kind = _place(error.instance_path, root), error.kind
    if _is_of_int32(error):
        yield invalid(NOWHERE, "", f"Checked value must be of type integer with format int32 in {path}")
        return
    tell = _TOLD.get(kind.name)
    if tell is None:
        yield invalid(path or NOWHERE, "", error.message)
    else:
        yield from tell(kind, error, path)


def _is_of_int32(error: Any) -> bool:
    """Whether it is the range of the format that the value is out of: `_put_format` puts it behind the schema's own."""
    return "allOf" in error.schema_path and getattr(error.kind, "limit", None) in INTEGERS["int32"]


def _tell_type(kind: Any, error: Any, path: Path) -> Told:
    wanted = ",".join(one for one in kind.types if one != "null") if len(kind.types) > 1 else kind.types[0]
    got = _type_name(error.instance)
    detail = f'{path} in body must be of type {wanted}: "{got}"'
    yield FieldError(type="FieldValueTypeInvalid", field=path or NOWHERE, detail=detail, bad_value=got)
    if (wanted, got) == ("integer", "number"):
        yield invalid(NOWHERE, "", f"Checked value must be of type integer (default format) in {path}")


def _tell_required(kind: Any, _error: Any, path: Path) -> Told:
    yield required(path.child(kind.property))


def _tell_enum(kind: Any, error: Any, path: Path) -> Told:
    options = kind.options if isinstance(kind.options, list) else [kind.options]
    shown = [one if isinstance(one, str) else json.dumps(one, separators=(",", ":")) for one in options]
    yield not_supported(path, error.instance, shown)


def _tell_longest(kind: Any, _error: Any, path: Path) -> Told:
    yield too_long(path, kind.limit)


def _tell_most(kind: Any, error: Any, path: Path) -> Told:
    yield too_many(path, len(error.instance), kind.limit)


def _tell_format(kind: Any, error: Any, path: Path) -> Told:
    detail = f"{path} in body must be of type {kind.format}: {json.dumps(error.instance, ensure_ascii=False)}"
    yield FieldError(type="FieldValueTypeInvalid", field=path, detail=detail, bad_value=error.instance)


def _telling(words: str) -> Callable[[Any, Any, Path], Told]:
    """words: with {} where the limit stands."""

    def tell(kind: Any, error: Any, path: Path) -> Told:
        limit = next(
            (getattr(kind, name) for name in ("limit", "multiple_of", "pattern", "value") if hasattr(kind, name)), ""
        )
        shown = int(limit) if isinstance(limit, float) and limit.is_integer() else limit
        yield invalid(path or NOWHERE, error.instance, f"{path} in body {words.format(shown)}")

    return tell


def _tell_any(kind: Any, error: Any, path: Path) -> Told:
    yield invalid(NOWHERE, "", f'"{path}" must validate at least one schema (anyOf)')
    yield from _nearest(kind.context, error, path)


def _tell_one_of(kind: Any, error: Any, path: Path) -> Told:
    valid = sum(not one for one in kind.context)
    why = f"Found {valid} valid alternatives" if valid else "Found none valid"
    yield invalid(NOWHERE, "", f'"{path}" must validate one and only one schema (oneOf). {why}')
    if not valid:
        yield from _nearest(kind.context, error, path)


def _tell_not(_kind: Any, _error: Any, path: Path) -> Told:
    yield invalid(NOWHERE, "", f'"{path}" must not validate the schema (not)')


def _all_told(errors: Sequence[Any], schema: Schema, root: Path) -> Told:
    """What is told once of values of which not all schemas hold, besides what is wrong with them."""
    failed: dict[Path, tuple[int, set[int]]] = {}
    for error in errors:
        found = _failed_all_of(error, schema, root)
        if found is not None:
            place, number, which = found
            failed.setdefault(place, (number, set()))[1].add(which)
    for place, (number, those) in failed.items():
        none = ". None validated" if len(those) == number else ""
        yield invalid(NOWHERE, "", f'"{place}" must validate all the schemas (allOf){none}')


def _failed_all_of(error: Any, schema: Schema, root: Path) -> tuple[Path, int, int] | None:
    """(the value, how many schemas it is to fit, which it does not) where a fault is one of an allOf."""
    depth, steps = 0, list(error.schema_path)
    while len(steps) > 1:
        name, step = steps[0], steps[1]
        if name == "allOf":
            number = len(schema.get("allOf", ()))
            # What stands behind them is ours: the range of a format.
            return (_place(error.instance_path[:depth], root), number, step) if step < number else None
        if name not in ("properties", "items", "additionalProperties"):
            return None
        schema = schema["properties"][step] if name == "properties" else schema[name]
        depth, steps = depth + 1, steps[2 if name == "properties" else 1 :]
    return None


def _nearest(alternatives: Sequence[Sequence[Any]], error: Any, path: Path) -> Told:
    """The faults of the alternative that has the fewest: how the paths within an alternative begin is the error's."""
    fewest = min(alternatives, key=len, default=())
    depth = len(error.instance_path)
    for one in fewest:
        inner = _place(one.instance_path[depth:], path)
        tell = _TOLD.get(one.kind.name)
        if tell is not None:
            yield from tell(one.kind, one, inner)


_TOLD: Mapping[str, Callable[[Any, Any, Path], Told]] = {
    "type": _tell_type,
    "required": _tell_required,
    "enum": _tell_enum,
    "maxLength": _tell_longest,
    "maxItems": _tell_most,
    "maxProperties": _tell_most,
    "format": _tell_format,
    "minimum": _telling("should be greater than or equal to {}"),
    "exclusiveMinimum": _telling("should be greater than {}"),
    "maximum": _telling("should be less than or equal to {}"),
    "exclusiveMaximum": _telling("should be less than {}"),
    "multipleOf": _telling("should be a multiple of {}"),
    "minLength": _telling("should be at least {} chars long"),
    "minItems": _telling("should have at least {} items"),
    "minProperties": _telling("should have at least {} properties"),
    "pattern": _telling("should match '{}'"),
    _RE2: _telling("should match '{}'"),
    "anyOf": _tell_any,
    "oneOf": _tell_one_of,
    "oneOfNotValid": _tell_one_of,
    "oneOfMultipleValid": _tell_one_of,
    "not": _tell_not,
}


# Lists that are sets or maps ------------------------------------------------------------------------------------------


def check_lists(value: Any, node: SchemaNode | None, path: Path = ROOT) -> list[FieldError]:
    """Elements that stand twice in a set, keys that do in a map."""
    if node is None:
        return []
    found: list[FieldError] = []
    if isinstance(value, list):
        found += _repeated(value, node, path)
        for at, item in enumerate(value):
            found += check_lists(item, node.items, path.at(at))
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in node.properties:
                found += check_lists(item, node.properties[name], path.child(name))
            else:
                found += check_lists(item, node.values, path.key(name))
    return found


def _repeated(items: list[Any], node: SchemaNode, path: Path) -> Iterator[FieldError]:
    if node.list_type == "map":
        strange = next((at for at, one in enumerate(items) if not isinstance(one, dict | None)), None)
        if strange is not None:
            yield invalid(path.at(strange), items[strange], "must be an object for an array of list-type map")
            return
        items = [{name: one[name] for name in node.map_keys if name in one} if one else {} for one in items]
    elif node.list_type != "set":
        return
    seen: dict[str, int] = {}
    for at, item in enumerate(items):
        key = json.dumps(item, sort_keys=True)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:  # noqa: PLR2004 - told once
            yield duplicate(path.at(at), item)


# Embedded objects -----------------------------------------------------------------------------------------------------


def check_embedded(value: Any, node: SchemaNode | None, path: Path = ROOT) -> list[FieldError]:
    """The heads of the objects within."""
    if node is None:
        return []
    found: list[FieldError] = []
    if isinstance(value, dict):
        if node.embedded:
            found += _check_head(value, path)
        for name, item in value.items():
            if name in node.properties:
                found += check_embedded(item, node.properties[name], path.child(name))
            elif node.values is not None:
                found += check_embedded(item, node.values, path.key(name))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            found += check_embedded(item, node.items, path.at(at))
    return found


def embedded_faults(value: Any, node: SchemaNode | None, path: Path = ROOT) -> Iterator[str]:
    """Heads of objects within that are of the wrong type: what cannot be read at all."""
    if node is None:
        return
    if isinstance(value, dict):
        if node.embedded:
            yield from _unreadable(value, path)
        for name, item in value.items():
            yield from embedded_faults(item, node.part(name), path.child(name) if path else Path(name))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from embedded_faults(item, node.items, path.at(at))


def _unreadable(value: dict[str, Any], path: Path) -> Iterator[str]:
    for name in ("apiVersion", "kind"):
        if name in value and not isinstance(value[name], str):
            yield str(invalid(path.child(name), value[name], "must be a string"))
    if "metadata" in value:
        findings = Findings()
        normalize(ObjectMeta, value["metadata"], findings)
        yield from (str(invalid(path.child("metadata"), value["metadata"], one)) for one in findings.wrong)


def _check_head(value: dict[str, Any], path: Path) -> Iterator[FieldError]:
    unread = tuple(_unreadable(value, path))
    for name in ("apiVersion", "kind"):
        if name not in value:
            yield required(path.child(name))
        elif value[name] == "":
            yield invalid(path.child(name), "", "must not be empty")
    if unread:
        yield invalid(path, "", unread[0])
        return
    version, kind = value.get("apiVersion", ""), value.get("kind", "")
    if version.count("/") > 1:
        yield invalid(path.child("apiVersion"), version, f"unexpected GroupVersion string: {version}")
    if kind and (wrong := check_dns_1035_label(kind.lower())):
        why = f"may have mixed case, but should otherwise match: {','.join(wrong)}"
        yield invalid(path.child("kind"), kind, why)
    if "metadata" in value:
        metadata = decode_value(ObjectMeta, {"name": "fakename", **(value["metadata"] or {})})
        is_namespaced = bool(metadata.namespace)
        below = path.child("metadata")
        yield from validate_object_meta(
            metadata, namespaced=is_namespaced, name_rule=check_path_segment, path=below, any_finalizers=True
        )
