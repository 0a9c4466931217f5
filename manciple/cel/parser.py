"""From text to syntax tree.

One LALR parser is built when it is first needed and shared. Its callbacks (`Builder`: one method per alternative of
`cel.lark`) make the tree while parsing, bottom-up, without recursion; macros are expanded as soon as their call is
complete.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

from manciple.cel.errors import CompileError, CompileFinding, compile_error
from manciple.cel.macros import MacroError, expand
from manciple.cel.tree import (
    MAX_DEPTH,
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
    TooDeep,
    qualified_name,
    walk,
)
from manciple.cel.types import BOOL, BYTES, DOUBLE, INT, NULL, STRING, UINT, CelType
from manciple.cel.values import Uint

MAX_INT = 2**63 - 1
MAX_UINT = 2**64 - 1

_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "?": "?",
}
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"`?])|([0-3][0-7]{2})|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\s\S]?))"
)
MAX_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def string_value(text: str) -> str:
    """The string that a literal with its quotes and prefix stands for. Raises: ValueError for a bad escape."""
    raw = text[0] in "rR"
    body = _unquoted(text[1:] if raw else text)
    return body if raw else _ESCAPE.sub(_escaped_text, body)


def bytes_value(text: str) -> bytes:
    """As string_value; \\x and octal escapes are bytes, all else is UTF-8. Raises: ValueError for a bad escape."""
    quoted = text.lstrip("bBrR")
    body = _unquoted(quoted)
    if "r" in text[: len(text) - len(quoted)].lower():
        return body.encode()
    return b"".join(_byte_pieces(body))


def int_value(text: str) -> int:
    """Raises: ValueError beyond 2**63, which only a minus sign makes valid."""
    value = int(text, 16) if text.startswith("0x") else int(text)
    if value > MAX_INT + 1:
        raise ValueError("invalid int literal")
    return value


def uint_value(text: str) -> int:
    """Raises: ValueError beyond 64 bits."""
    digits = text[:-1]
    value = int(digits, 16) if digits.startswith("0x") else int(digits)
    if value > MAX_UINT:
        raise ValueError("invalid uint literal")
    return value


def _unquoted(text: str) -> str:
    # Two quotes alone are the empty text; the grammar lets no third one follow unless three more end it.
    width = 3 if text.startswith(('"""', "'''")) else 1
    return text[width:-width].replace("\r\n", "\n").replace("\r", "\n")


def _escaped_text(match: re.Match[str]) -> str:
    simple, octal, hexadecimal, short, long, unknown = match.groups()
    if simple:
        return _SIMPLE[simple]
    if octal:
        return chr(int(octal, 8))
    if unknown is not None:
        raise ValueError("unable to unescape string")
    code = int(hexadecimal or short or long, 16)
    if code > MAX_CODE_POINT or code in _SURROGATES:
        raise ValueError("invalid unicode code point")
    return chr(code)


def _byte_pieces(body: str) -> list[bytes]:
    pieces: list[bytes] = []
    end = 0
    for match in _ESCAPE.finditer(body):
        pieces.append(body[end : match.start()].encode())
        octal, hexadecimal, short, long = match.group(2, 3, 4, 5)
        if short or long:
            raise ValueError("unable to unescape string")
        pieces.append(
            bytes([int(octal, 8) if octal else int(hexadecimal, 16)])
            if octal or hexadecimal
            else _escaped_text(match).encode()
        )
        end = match.end()
    pieces.append(body[end:].encode())
    return pieces


_RESERVED = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"}
    | {"namespace", "return", "var", "void", "while"}
)
#: Words that the lexer of cel-go never takes for a name, not even behind a dot.
_KEYWORDS = frozenset(("in", "true", "false", "null"))
_V = TypeVar("_V")


class SyntaxRefused(Exception):  # named after the event
    """The text parses, but stands for nothing."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.problem = CompileFinding(offset, message)


class TooLargeInt(Literal):
    """9223372036854775808, which is valid only behind a minus sign."""

    __slots__ = ()


def _at(token: Token) -> int:
    return token.start_pos or 0


def _refuse(token: Token, message: str) -> NoReturn:
    raise SyntaxRefused(_at(token), message)


def _value(token: Token, read: Callable[[str], _V]) -> _V:
    try:
        return read(str(token))
    except ValueError as error:
        _refuse(token, f"Syntax error: {error}")


def _nodes(children: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(child for child in children if not isinstance(child, Token))


def _literal(read: Callable[[str], object], type_: CelType) -> Callable[[Builder, Token], Literal]:
    return lambda _builder, token: Literal(_at(token), _value(token, read), type_)


@v_args(inline=True)
class Builder(Transformer[Token, Any]):
    def __init__(self, *, without: str = "") -> None:
        """without: a macro that is an ordinary call; `EVERY_MACRO` for all of them."""
        super().__init__()
        self._without = without

    def _expanded(self, call: Call) -> Node:
        return call if self._without in (call.function, EVERY_MACRO) else expand(call)

    def start(self, root: Node) -> Node:
        return root

    # literals

    def int_literal(self, token: Token) -> Literal:
        value = _value(token, int_value)
        make = TooLargeInt if value > MAX_INT else Literal
        return make(_at(token), value, INT)

    uint_literal = _literal(lambda text: Uint(uint_value(text)), UINT)
    float_literal = _literal(float, DOUBLE)
    string_literal = _literal(string_value, STRING)
    bytes_literal = _literal(bytes_value, BYTES)
    true = _literal(lambda _text: True, BOOL)
    false = _literal(lambda _text: False, BOOL)
    null = _literal(lambda _text: None, NULL)

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
        return self._expanded(Call(_at(paren), str(name), None, arguments or ()))

    def rooted_function(
        self, _dot: Token, name: Token, paren: Token, arguments: tuple[Node, ...] | None, close: Token
    ) -> Node:
        return self.function(name, paren, arguments, close)

    def method(
        self, target: Node, _dot: Token, name: Token, paren: Token, arguments: tuple[Node, ...] | None, _close: Token
    ) -> Node:
        return self._expanded(Call(_at(paren), str(name), target, arguments or ()))

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
            raise SyntaxRefused(_at(brace), "Syntax error: a message is named by identifiers")
        fields = next((child for child in children if isinstance(child, tuple)), ())
        return StructLiteral(_at(brace), name, fields)

    def fields(self, *children: Any) -> tuple[FieldInit, ...]:
        return _nodes(children)

    def field(self, *children: Any) -> FieldInit:
        *optional, name, colon, value = children
        return FieldInit(str(name), value, _at(colon), optional=bool(optional))


#: No macro is expanded: the tree is what was written, and can be written again (`manciple.cel.writing`).
EVERY_MACRO = "*"
#: Bytes; longer expressions are refused before they are parsed (resource.k8s.io: CELSelectorExpressionMaxLength).
MAX_LENGTH = 10 * 1024


def parse(source: str, *, without: str = "") -> Node:
    """The syntax tree, macros expanded but for the one that the environment is `without`. Raises: CompileError."""
    if len(source.encode(errors="surrogatepass")) > MAX_LENGTH:
        raise CompileError(f"must not be longer than {MAX_LENGTH} bytes")
    try:
        tree: Node = _parser(without).parse(source)  # type: ignore[assignment]  # the callbacks make nodes, not lark's trees
    except VisitError as error:
        raise compile_error(source, [_problem(source, error.orig_exc)]) from None
    except (UnexpectedInput, SyntaxRefused, MacroError, TooDeep) as error:
        raise compile_error(source, [_problem(source, error)]) from None
    too_large = [node for node in walk(tree) if isinstance(node, TooLargeInt)]
    if too_large:
        raise compile_error(
            source, [CompileFinding(node.offset, "Syntax error: invalid int literal") for node in too_large]
        )
    return tree


def prepare() -> None:
    """Build the parser, for which the first expression would wait."""
    _parser("")


_building = threading.Lock()


def _parser(without: str) -> Lark:
    with _building:  # building it takes tenths of seconds: once is enough
        return _built_parser(without)


@cache
def _built_parser(without: str) -> Lark:
    grammar = Path(__file__).with_name("cel.lark").read_text(encoding="utf-8")
    return Lark(
        grammar, parser="lalr", lexer="contextual", maybe_placeholders=True, transformer=Builder(without=without)
    )


def _problem(source: str, error: BaseException) -> CompileFinding:
    if isinstance(error, SyntaxRefused | MacroError):
        return error.problem
    if isinstance(error, TooDeep):
        return CompileFinding(0, f"expression recursion limit exceeded: {MAX_DEPTH}")
    if isinstance(error, UnexpectedInput):
        return _syntax_problem(source, error)
    raise error


def _syntax_problem(source: str, error: UnexpectedInput) -> CompileFinding:
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return CompileFinding(len(source), "Syntax error: mismatched input '<EOF>'")
    offset = error.pos_in_stream or 0
    if isinstance(error, UnexpectedCharacters):
        return CompileFinding(offset, f"Syntax error: token recognition error at: '{source[offset]}'")
    token = str(error.token) if isinstance(error, UnexpectedToken) else source[offset : offset + 1]
    return CompileFinding(offset, f"Syntax error: extraneous input '{token}'")
