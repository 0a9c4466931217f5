"""Patches of documents: JSON patch (RFC 6902), merge patch (RFC 7386) and strategic merge patch.

A document and a patch come in as builtins, the patched document goes out; neither argument is changed. A patch that
cannot be read is a BadRequest, one that does not fit the document is Invalid (upstream: 422). Server-side apply is in
`manciple.wire.apply`. Source of the strategic rules: apimachinery/pkg/util/strategicpatch/patch.go.
"""

from __future__ import annotations

import copy
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from manciple.wire import documents, schema
from manciple.wire.base import MERGE_SCALARS, REPLACED
from manciple.wire.errors import BadRequest, Invalid
from manciple.wire.limits import check_time

Document = dict[str, Any]

#: How many operations one JSON patch may have, as upstream.
MAX_OPERATIONS = 10_000
#: How many bytes its copies may add: each can double the document (upstream: JSONPatchMaxCopyBytes).
MAX_COPIED = 3 * 1024 * 1024

_INDEX = re.compile(r"0|[1-9][0-9]*")
#: Digits of an index; Python refuses to read numbers of several thousand.
_LONGEST_INDEX = 18


def _wrong_type(patch: Any, wanted: str) -> str:
    """As Go's encoding/json says it of a patch of another format. wanted: the Go type."""
    types = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
    return f"json: cannot unmarshal {types.get(type(patch), 'null')} into Go value of type {wanted}"


class TestFailed(Invalid):
    """A JSON patch asks for something that is otherwise."""

    __test__ = False  # for pytest


# JSON patch ----------------------------------------------------------------------------------------------------------


def json_patch(document: Document, operations: Any) -> Document:
    """Raises: BadRequest for a malformed patch; Invalid when a path does not exist or a test fails."""
    if not isinstance(operations, list):
        raise BadRequest(f"error decoding patch: {_wrong_type(operations, '[]interface {}')}")
    if not all(isinstance(one, dict) for one in operations):
        raise BadRequest("error decoding patch: a JSON patch is a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise BadRequest(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}")
    patched: Any = copy.deepcopy(document)
    copied = 0
    for operation in operations:
        check_time()
        if operation.get("op") == "copy":
            copied += _size_of_copy(patched, operation)
            if copied > MAX_COPIED:
                raise Invalid(
                    f"Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the "
                    f"limit {MAX_COPIED}"
                )
        patched = _apply_operation(patched, operation)
    if not isinstance(patched, dict):
        raise Invalid("the patched document is not an object")
    documents.check_size(patched)
    return patched


def _apply_operation(document: Any, operation: Mapping[str, Any]) -> Any:
    name = operation.get("op")
    handler = _OPERATIONS.get(name) if isinstance(name, str) else None
    if handler is None:
        raise Invalid(f"error decoding patch: unexpected kind: {name}")
    return handler(document, operation)


def _size_of_copy(document: Any, operation: Mapping[str, Any]) -> int:
    """Bytes, as JSON, that a copy adds. Raises: BadRequest; Invalid where there is nothing there, or it is too deep."""
    member = _resolve(document, _pointer(operation, "from"), "copy")
    try:
        return len(msgspec.json.encode(member))
    except RecursionError:
        raise Invalid("copy operation does not apply: the document nests too deep") from None


def _pointer(operation: Mapping[str, Any], member: str = "path") -> list[str]:
    text = operation.get(member)
    if not isinstance(text, str):
        raise Invalid(f"error decoding patch: {operation.get('op')} operation is missing '{member}'")
    if text and not text.startswith("/"):
        raise Invalid(f"error decoding patch: '{text}' is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _value(operation: Mapping[str, Any]) -> Any:
    if "value" not in operation:
        raise BadRequest(f"error decoding patch: {operation.get('op')} operation is missing 'value'")
    return copy.deepcopy(operation["value"])


def _missing(operation: str, parts: Sequence[str]) -> Invalid:
    return Invalid(f'{operation} operation does not apply: doc is missing path: "/{"/".join(parts)}"')


def _position(part: str, *, end: int) -> int | None:
    """The index that `part` means in a list, at most `end`; None where it means none."""
    if len(part) > _LONGEST_INDEX or not _INDEX.fullmatch(part) or int(part) > end or end < 0:
        return None
    return int(part)


def _step(container: Any, part: str) -> Any:
    """Raises: LookupError where there is no such member."""
    if isinstance(container, dict):
        return container[part]
    position = _position(part, end=len(container) - 1) if isinstance(container, list) else None
    if position is None:
        raise LookupError(part)
    return container[position]


def _resolve(document: Any, parts: Sequence[str], operation: str) -> Any:
    try:
        for part in parts:
            document = _step(document, part)
    except LookupError:
        raise _missing(operation, parts) from None
    return document


def _insert(document: Any, parts: Sequence[str], value: Any, *, operation: str) -> Any:
    if not parts:
        return value
    container = _resolve(document, parts[:-1], operation)
    if isinstance(container, dict):
        container[parts[-1]] = value
        return document
    if not isinstance(container, list):
        raise _missing(operation, parts)
    last = len(container)
    position = last if parts[-1] == "-" else _position(parts[-1], end=last)
    if position is None:
        raise _missing(operation, parts)
    container.insert(position, value)
    return document


def _take(document: Any, parts: Sequence[str], *, operation: str) -> Any:
    """Removes the member from `document`, in place, and returns it."""
    if not parts:
        raise Invalid(f"{operation} operation does not apply: the whole document cannot be removed")
    member = _resolve(document, parts, operation)
    container = _resolve(document, parts[:-1], operation)
    del container[parts[-1] if isinstance(container, dict) else int(parts[-1])]
    return member


def _add(document: Any, operation: Mapping[str, Any]) -> Any:
    return _insert(document, _pointer(operation), _value(operation), operation="add")


def _remove(document: Any, operation: Mapping[str, Any]) -> Any:
    _take(document, _pointer(operation), operation="remove")
    return document


def _replace(document: Any, operation: Mapping[str, Any]) -> Any:
    parts, value = _pointer(operation), _value(operation)
    if parts:
        _take(document, parts, operation="replace")
    return _insert(document, parts, value, operation="replace")


def _move(document: Any, operation: Mapping[str, Any]) -> Any:
    source, target = _pointer(operation, "from"), _pointer(operation)
    if source == target:
        return document
    if target[: len(source)] == source:
        raise Invalid("move operation does not apply: a member cannot move into itself")
    return _insert(document, target, _take(document, source, operation="move"), operation="move")


def _copy(document: Any, operation: Mapping[str, Any]) -> Any:
    member = copy.deepcopy(_resolve(document, _pointer(operation, "from"), "copy"))
    return _insert(document, _pointer(operation), member, operation="copy")


def _test(document: Any, operation: Mapping[str, Any]) -> Any:
    parts, wanted = _pointer(operation), _value(operation)
    if not _same(_resolve(document, parts, "test"), wanted):
        raise TestFailed(f"testing value /{'/'.join(parts)} failed: test failed")
    return document


def _same(left: Any, right: Any) -> bool:
    """Equality of JSON values: true is not 1, 1 is 1.0."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


_OPERATIONS: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


# Merge patch ---------------------------------------------------------------------------------------------------------


def merge_patch(document: Document, patch: Any) -> Document:
    """RFC 7386: null removes, objects merge, the rest replaces. Raises: BadRequest unless `patch` is an object."""
    if not isinstance(patch, dict):
        raise BadRequest(f"error decoding patch: {_wrong_type(patch, 'map[string]interface {}')}")
    return _merged(document, patch)


def _merged(document: Any, patch: Document) -> Document:
    result = dict(document) if isinstance(document, dict) else {}
    check_time()
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merged(result.get(key), value)
        else:
            result[key] = copy.deepcopy(value)
    return result


# Strategic merge patch -----------------------------------------------------------------------------------------------

_DIRECTIVE, _RETAIN_KEYS = "$patch", "$retainKeys"
_DELETE_PREFIX, _ORDER_PREFIX = "$deleteFromPrimitiveList/", "$setElementOrder/"


def strategic_merge_patch(document: Document, patch: Any, type_: Any) -> Document:
    """`patch` merged into `document` by the merge keys that `type_` declares.

    Raises: BadRequest for a patch that is no object or has an unknown directive.
    """
    if not isinstance(patch, dict):
        raise BadRequest(_wrong_type(patch, "map[string]interface {}"))
    return _merge_map(document, patch, type_)


def _merge_map(original: Document, patch: Document, type_: Any) -> Document:
    directive = patch.get(_DIRECTIVE)
    if directive == "delete":
        return {}
    if directive == "replace":
        return {key: _cleaned(value) for key, value in patch.items() if key != _DIRECTIVE}
    if directive not in (None, "merge"):
        raise BadRequest(f"Unknown patch directive: {directive}")
    result = _retained(original, patch)
    for key in patch:
        field = key.partition("/")[2] if key.startswith((_DELETE_PREFIX, _ORDER_PREFIX)) else key
        if key != field and field in patch:
            continue  # handled with the field itself
        if not field.startswith("$"):
            _merge_field(result, patch, field, type_)
    return result


def _merge_field(result: Document, patch: Document, field: str, type_: Any) -> None:
    """Merges one field of `patch`, with the directives that belong to it, into `result`."""
    removed, order = patch.get(_DELETE_PREFIX + field), patch.get(_ORDER_PREFIX + field)
    if isinstance(removed, list) and isinstance(result.get(field), list):
        gone = set(map(_hashable, removed))
        result[field] = [item for item in result[field] if _hashable(item) not in gone]
    if field not in patch:
        if order is not None and isinstance(result.get(field), list):
            result[field] = _merge_list(result[field], [], field, type_=type_, order=order)
        return
    value, present = patch[field], result.get(field)
    if value is None:
        result.pop(field, None)
    elif isinstance(value, dict) and isinstance(present, dict):
        replaced = schema.list_merge_key(type_, field) == REPLACED
        result[field] = _merge_map({} if replaced else present, value, schema.field_type(type_, field))
    elif isinstance(value, list) and isinstance(present, list):
        result[field] = _merge_list(present, value, field, type_=type_, order=order)
    else:
        result[field] = _cleaned(value)


def _merge_list(original: list[Any], patch: list[Any], field: str, *, type_: Any, order: list[Any] | None) -> list[Any]:
    merge_key = schema.list_merge_key(type_, field)
    if not merge_key:
        return _cleaned(patch) if order is None or patch else original
    if merge_key == MERGE_SCALARS:
        present = set(map(_hashable, original))
        merged = [*original, *({_hashable(item): item for item in patch if _hashable(item) not in present}.values())]
        return _ordered(merged, original, order if order is not None else patch, identity=lambda item: item)
    element_type = schema.field_type(type_, field)
    if any(item.get(_DIRECTIVE) == "replace" for item in _objects(patch, field)):
        return [_cleaned(item) for item in patch if item.get(_DIRECTIVE) != "replace"]
    merged = _merge_elements(original, patch, merge_key, element_type)
    wanted = [item.get(merge_key) for item in (order if order is not None else patch)]
    return _ordered(merged, original, wanted, identity=lambda item: item.get(merge_key))


#: Stands where an element was.
_REMOVED = object()


def _merge_elements(original: list[Any], patch: list[Any], merge_key: str, element_type: Any) -> list[Any]:
    merged: list[Any] = list(original)
    positions: dict[Any, list[int]] = {}  # by key: each element of a long list is found at once
    for position, one in enumerate(original):
        positions.setdefault(_hashable(one.get(merge_key)), []).append(position)
    for item in patch:
        if merge_key not in item:
            raise BadRequest(f"map: {item} does not contain declared merge key: {merge_key}")
        key = _hashable(item[merge_key])
        if item.get(_DIRECTIVE) == "delete":
            for position in positions.pop(key, ()):
                merged[position] = _REMOVED
        elif key in positions:
            first = positions[key][0]
            merged[first] = _merge_map(merged[first], item, element_type)
        else:
            positions[key] = [len(merged)]
            merged.append(_cleaned(item))
    return [one for one in merged if one is not _REMOVED]


def _cleaned(value: Any) -> Any:
    """A patch's value as new content: without nulls, directives and elements that only delete."""
    if isinstance(value, dict):
        return {
            key: _cleaned(item)
            for key, item in value.items()
            if item is not None and not key.startswith((_DIRECTIVE, _RETAIN_KEYS, _DELETE_PREFIX, _ORDER_PREFIX))
        }
    if isinstance(value, list):
        return [
            _cleaned(item)
            for item in value
            if not (isinstance(item, dict) and item.get(_DIRECTIVE) in ("delete", "replace"))
        ]
    return value


def _objects(items: Iterable[Any], field: str) -> list[Document]:
    found = list(items)
    if not all(isinstance(item, dict) for item in found):
        raise BadRequest(f"error decoding patch: the elements of {field} must be objects")
    return found


def _retained(original: Document, patch: Document) -> Document:
    """`original`, with only the fields that $retainKeys names where it is given."""
    retain = patch.get(_RETAIN_KEYS)
    if retain is None:
        return dict(original)
    if not isinstance(retain, list):
        raise BadRequest("error decoding patch: $retainKeys is a list of field names")
    kept = set(map(_hashable, retain))
    stray = [key for key in patch if not key.startswith("$") and key not in kept and patch[key] is not None]
    if stray:
        raise BadRequest(f"patch has fields that are not in its $retainKeys: {', '.join(stray)}")
    return {key: value for key, value in original.items() if key in kept}


def _ordered(
    merged: list[Any], original: list[Any], order: Sequence[Any], *, identity: Callable[[Any], Any]
) -> list[Any]:
    """`merged` with the elements that `order` names in that order, and the others where the server had them.

    An element that is not named comes before a named one only where the server had it so (upstream:
    normalizeElementOrder, mergeSortedSlice): what a patch adds comes first.
    """
    before = {_hashable(identity(item)): position for position, item in enumerate(original)}
    rank = {_hashable(value): position for position, value in enumerate(order)}

    def key(item: Any) -> Any:
        return _hashable(identity(item))

    def precedes(other: Any, named_item: Any) -> bool:
        return key(named_item) in before and key(other) in before and before[key(other)] < before[key(named_item)]

    named = sorted((item for item in merged if key(item) in rank), key=lambda item: rank[key(item)])
    others = deque(item for item in merged if key(item) not in rank)
    result: list[Any] = []
    for item in named:
        while others and precedes(others[0], item):
            result.append(others.popleft())
        result.append(item)
    return [*result, *others]


def _hashable(value: Any) -> Any:
    return (repr(value),) if isinstance(value, dict | list) else value
