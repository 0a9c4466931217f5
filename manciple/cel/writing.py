"""From syntax tree to text: an expression written anew, with parts of it put in other words.

The tree is one whose macros were not expanded (`parser.EVERY_MACRO`). What is written parses to the same tree again,
but for the parts that `rewrite` puts in other words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from manciple.cel.text import quote
from manciple.cel.tree import (
    Call,
    Entry,
    FieldInit,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
)
from manciple.cel.values import Uint

#: The words for a node, or None where it is written as it is.
Rewrite = Callable[[Node], str | None]


def written(node: Node, rewrite: Rewrite = lambda _node: None) -> str:
    """The text of an expression. Raises: TypeError for what only an expanded macro makes."""
    given = rewrite(node)
    if given is not None:
        return given
    write = _WRITERS.get(type(node))
    if write is None:
        raise TypeError(f"{type(node).__name__} has no text of its own")
    return write(node, lambda part: written(part, rewrite))


Part = Callable[[Node], str]


def _literal(node: Literal, _part: Part) -> str:
    value = node.value
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bytes):
        return 'b"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, Uint):
        return f"{int(value)}u"
    return f"({value!r})" if isinstance(value, int | float) and value < 0 else repr(value)


def _select(node: Select, part: Part) -> str:
    return f"{part(node.operand)}.{node.field_name}"


def _call(node: Call, part: Part) -> str:
    if (operator := _operator(node, part)) is not None:
        return operator
    arguments = ", ".join(map(part, node.args))
    return (
        f"{node.function}({arguments})" if node.target is None else f"{part(node.target)}.{node.function}({arguments})"
    )


def _operator(node: Call, part: Part) -> str | None:
    name, texts = node.function, node.args
    if name in _SIGNS:
        return f"{_SIGNS[name]}({part(texts[0])})"
    if name in _INFIX:
        return "(" + f" {_INFIX[name]} ".join(map(part, texts)) + ")"
    if name == "_?_:_":
        condition, chosen, other = map(part, texts)
        return f"({condition} ? {chosen} : {other})"
    if name in ("_[_]", "_[?_]"):
        return f"{part(texts[0])}[{name[2:-2]}{part(texts[1])}]"
    if name == "_?._" and isinstance(texts[1], Literal):
        return f"{part(texts[0])}.?{texts[1].value}"
    return None


_SIGNS: Mapping[str, str] = {"!_": "!", "-_": "-"}
_INFIX: Mapping[str, str] = {
    "@in": "in",
    **{f"_{sign}_": sign for sign in ("||", "&&", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%")},
}


def _list(node: ListLiteral, part: Part) -> str:
    texts = (("?" if at in node.optional else "") + part(element) for at, element in enumerate(node.elements))
    return f"[{', '.join(texts)}]"


def _map(node: MapLiteral, part: Part) -> str:
    def entry(one: Entry) -> str:
        return f"{'?' if one.optional else ''}{part(one.key)}: {part(one.value)}"

    return f"{{{', '.join(map(entry, node.entries))}}}"


def _struct(node: StructLiteral, part: Part) -> str:
    def given(one: FieldInit) -> str:
        return f"{'?' if one.optional else ''}{one.name}: {part(one.value)}"

    return f"{node.name}{{{', '.join(map(given, node.fields))}}}"


_WRITERS: Mapping[type, Callable[[Any, Part], str]] = {
    Literal: _literal,
    Ident: lambda node, _part: node.name,
    Select: _select,
    Call: _call,
    ListLiteral: _list,
    MapLiteral: _map,
    StructLiteral: _struct,
}
