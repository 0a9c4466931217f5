"""The callbacks of the parser: one method per alternative of `cel.lark`, from tokens and nodes to a node.

They keep no state, so that one parser serves all threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from lark import Token, Transformer, v_args

from scheduling.cel import literals
from scheduling.cel.errors import Problem
from scheduling.cel.macros import expand
from scheduling.cel.tree import (
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
    qualified_name,
)
from scheduling.cel.types import BOOL, BYTES, DOUBLE, INT, NULL, STRING, UINT
from scheduling.cel.values import Uint

_RESERVED = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"}
    | {"namespace", "return", "var", "void", "while"}
)
#: Words that the lexer of cel-go never takes for a name, not even behind a dot.
_KEYWORDS = frozenset(("in", "true", "false", "null"))
_V = TypeVar("_V")


class Refused(Exception):  # named after the event
    """The text parses, but stands for nothing."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(offset, message)


class TooLargeInt(Literal):
    """9223372036854775808, which is valid only behind a minus sign."""

    __slots__ = ()


def _at(token: Token) -> int:
    return token.start_pos or 0


def _refuse(token: Token, message: str) -> NoReturn:
    raise Refused(_at(token), message)


def _value(token: Token, read: Callable[[str], _V]) -> _V:
    try:
        return read(str(token))
    except ValueError as error:
        _refuse(token, f"Syntax error: {error}")


def _nodes(children: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(child for child in children if not isinstance(child, Token))


@v_args(inline=True)
class Builder(Transformer[Token, Any]):
    def start(self, root: Node) -> Node:
        return root

    # literals

    def int_literal(self, token: Token) -> Literal:
        value = _value(token, literals.int_value)
        make = TooLargeInt if value > literals.MAX_INT else Literal
        return make(_at(token), value, INT)

    def uint_literal(self, token: Token) -> Literal:
        return Literal(_at(token), Uint(_value(token, literals.uint_value)), UINT)

    def float_literal(self, token: Token) -> Literal:
        return Literal(_at(token), float(token), DOUBLE)

    def string_literal(self, token: Token) -> Literal:
        return Literal(_at(token), _value(token, literals.string_value), STRING)

    def bytes_literal(self, token: Token) -> Literal:
        return Literal(_at(token), _value(token, literals.bytes_value), BYTES)

    def true(self, token: Token) -> Literal:
        return Literal(_at(token), True, BOOL)

    def false(self, token: Token) -> Literal:
        return Literal(_at(token), False, BOOL)

    def null(self, token: Token) -> Literal:
        return Literal(_at(token), None, NULL)

    # names and calls

    def ident(self, name: Token) -> Ident:
        if name in _RESERVED:
            _refuse(name, f"reserved identifier: {name}")
        return Ident(_at(name), str(name))

    def rooted_ident(self, dot: Token, name: Token) -> Ident:
        return Ident(_at(dot), self.ident(name).name)

    def function(self, name: Token, paren: Token, arguments: tuple[Node, ...] | None, _close: Token) -> Node:
        if name in _RESERVED:
            _refuse(name, f"reserved identifier: {name}")
        return expand(Call(_at(paren), str(name), None, arguments or ()))

    def rooted_function(
        self, _dot: Token, name: Token, paren: Token, arguments: tuple[Node, ...] | None, close: Token
    ) -> Node:
        return self.function(name, paren, arguments, close)

    def method(
        self, target: Node, _dot: Token, name: Token, paren: Token, arguments: tuple[Node, ...] | None, _close: Token
    ) -> Node:
        return expand(Call(_at(paren), str(name), target, arguments or ()))

    def arguments(self, *children: Any) -> tuple[Node, ...]:
        return _nodes(children)

    def parenthesized(self, _open: Token, inner: Node, _close: Token) -> Node:
        return inner

    # members

    def select(self, operand: Node, dot: Token, name: Token) -> Select:
        if name in _KEYWORDS:
            _refuse(name, f"Syntax error: extraneous input '{name}'")
        return Select(_at(dot), operand, str(name))

    def optional_select(self, operand: Node, dot: Token, _question: Token, name: Token) -> Call:
        field = Literal(_at(name), str(name), STRING)
        return Call(_at(dot), "_?._", None, (operand, field))

    def index(self, operand: Node, bracket: Token, key: Node, _close: Token) -> Call:
        return Call(_at(bracket), "_[_]", None, (operand, key))

    def optional_index(self, operand: Node, bracket: Token, _question: Token, key: Node, _close: Token) -> Call:
        return Call(_at(bracket), "_[?_]", None, (operand, key))

    # operators

    def conditional(self, condition: Node, question: Token, chosen: Node, _colon: Token, other: Node) -> Call:
        return Call(_at(question), "_?_:_", None, (condition, chosen, other))

    def logical(self, left: Node, operator: Token, right: Node) -> Call:
        """Chains are flattened, so that a long one is not deep."""
        function = "_||_" if operator.type == "OR" else "_&&_"
        chained = isinstance(left, Call) and left.function == function
        return Call(_at(operator), function, None, (*(left.operands if chained else (left,)), right))  # type: ignore[union-attr]

    def binary(self, left: Node, operator: Token, right: Node) -> Call:
        function = "@in" if operator.type == "IN" else f"_{operator}_"
        return Call(_at(operator), function, None, (left, right))

    def not_(self, *children: Any) -> Node:
        *signs, operand = children
        return operand if len(signs) % 2 == 0 else Call(_at(signs[0]), "!_", None, (operand,))

    def negate(self, *children: Any) -> Node:
        *signs, operand = children
        if len(signs) % 2 == 0:
            return operand  # type: ignore[no-any-return]
        if isinstance(operand, Literal) and operand.type in (INT, DOUBLE):
            return Literal(_at(signs[0]), -operand.value, operand.type)  # type: ignore[operator]
        return Call(_at(signs[0]), "-_", None, (operand,))

    # aggregates

    def list(self, bracket: Token, *children: Any) -> ListLiteral:
        elements = next((child for child in children if isinstance(child, tuple)), ())
        optional = frozenset(index for index, (_, is_optional) in enumerate(elements) if is_optional)
        return ListLiteral(_at(bracket), tuple(node for node, _ in elements), optional)

    def elements(self, *children: Any) -> tuple[Any, ...]:
        return _nodes(children)

    def element(self, *children: Any) -> tuple[Node, bool]:
        return children[-1], len(children) > 1

    def map(self, brace: Token, *children: Any) -> MapLiteral:
        entries = next((child for child in children if isinstance(child, tuple)), ())
        return MapLiteral(_at(brace), entries)

    def entries(self, *children: Any) -> tuple[Entry, ...]:
        return _nodes(children)

    def entry(self, *children: Any) -> Entry:
        key, value = _nodes(children)
        return Entry(key, value, optional=isinstance(children[0], Token))

    def struct(self, type_name: Node, brace: Token, *children: Any) -> StructLiteral:
        name = qualified_name(type_name)
        if name is None:
            raise Refused(_at(brace), "Syntax error: a message is named by identifiers")
        fields = next((child for child in children if isinstance(child, tuple)), ())
        return StructLiteral(_at(brace), name, fields)

    def fields(self, *children: Any) -> tuple[FieldInit, ...]:
        return _nodes(children)

    def field(self, *children: Any) -> FieldInit:
        *optional, name, colon, value = children
        return FieldInit(str(name), value, _at(colon), optional=bool(optional))
