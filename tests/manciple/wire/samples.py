"""Values with every declared field set, made from the declarations alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from manciple.wire.base import Declaration, FieldsV1, Value, declarations

V = TypeVar("V", bound=Value)

_ENCODED: dict[str, Any] = {
    "quantity": "1500Mi",
    "time": "2026-03-01T12:30:45Z",
    "microTime": "2026-03-01T12:30:45.000789Z",
    "raw": {"apiVersion": "example.com/v1", "list": [1, None, {"deep": ["é"]}]},
    "fieldsV1": FieldsV1(b'{"f:metadata":{"f:labels":{}}}'),
    "bytes": "AAEC",
    "strings": ("one ☃", "two"),
    "name": "gpu ☃",
    "jsonSchema": {"type": "object", "description": "☃"},
}


def make_full(type_: type[V]) -> V:
    """A value of `type_` in which nothing has its default."""
    return type_(**{declared.attribute: sample(declared) for declared in declarations(type_)})


def sample(declared: Declaration) -> Any:
    """A value of one field that is not its default; numbers and texts tell which field they were put into."""
    elements = list(_elements(declared))
    if declared.shape.container == "list":
        return tuple(elements)
    if declared.shape.container == "map":
        return {"a.example.com/one": elements[0], "two": elements[-1]}
    return elements[0]


def _elements(declared: Declaration) -> Iterator[Any]:
    element = declared.shape.element
    if issubclass(element, Value):
        yield make_full(element)
    elif declared.encoding == "intOrString":
        yield f"{declared.name}-port"
    elif declared.encoding:
        yield _ENCODED[declared.encoding]
    elif element is bool:
        yield True
    elif element is int:
        yield declared.number + 1000
        yield -declared.number - 1
    else:
        yield f"{declared.name} ☃"
        yield f"another {declared.name}"


def all_types(roots: Iterator[type[Value]] | list[type[Value]]) -> list[type[Value]]:
    """The types and everything that their fields are made of, each once."""
    found: dict[type[Value], None] = {}

    def visit(type_: type[Value]) -> None:
        if type_ in found:
            return
        found[type_] = None
        for declared in declarations(type_):
            if issubclass(declared.shape.element, Value):
                visit(declared.shape.element)

    for root in roots:
        visit(root)
    return list(found)
