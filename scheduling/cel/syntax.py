"""From text to syntax tree.

One LALR parser is built when it is first needed and shared. The tree is made while parsing, bottom-up, without
recursion; macros are expanded as soon as their call is complete.
"""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

from scheduling.cel.builder import Builder, Refused, TooLargeInt
from scheduling.cel.errors import CompileError, Problem, compile_error
from scheduling.cel.macros import MacroError
from scheduling.cel.tree import MAX_DEPTH, Node, TooDeep, walk

#: Bytes; longer expressions are refused before they are parsed (resource.k8s.io: CELSelectorExpressionMaxLength).
MAX_LENGTH = 10 * 1024


def parse(source: str) -> Node:
    """The syntax tree, macros expanded. Raises: CompileError."""
    if len(source.encode(errors="surrogatepass")) > MAX_LENGTH:
        raise CompileError(f"must not be longer than {MAX_LENGTH} bytes")
    try:
        tree: Node = _parser().parse(source)  # type: ignore[assignment]  # the callbacks make nodes, not lark's trees
    except VisitError as error:
        raise compile_error(source, [_problem(source, error.orig_exc)]) from None
    except (UnexpectedInput, Refused, MacroError, TooDeep) as error:
        raise compile_error(source, [_problem(source, error)]) from None
    too_large = [node for node in walk(tree) if isinstance(node, TooLargeInt)]
    if too_large:
        raise compile_error(source, [Problem(node.offset, "Syntax error: invalid int literal") for node in too_large])
    return tree


_building = threading.Lock()


def _parser() -> Lark:
    with _building:  # building it takes tenths of seconds: once is enough
        return _built_parser()


@cache
def _built_parser() -> Lark:
    grammar = Path(__file__).with_name("cel.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", maybe_placeholders=True, transformer=Builder())


def _problem(source: str, error: BaseException) -> Problem:
    if isinstance(error, Refused | MacroError):
        return error.problem
    if isinstance(error, TooDeep):
        return Problem(0, f"expression recursion limit exceeded: {MAX_DEPTH}")
    if isinstance(error, UnexpectedInput):
        return _syntax_problem(source, error)
    raise error


def _syntax_problem(source: str, error: UnexpectedInput) -> Problem:
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return Problem(len(source), "Syntax error: mismatched input '<EOF>'")
    offset = error.pos_in_stream or 0
    if isinstance(error, UnexpectedCharacters):
        return Problem(offset, f"Syntax error: token recognition error at: '{source[offset]}'")
    token = str(error.token) if isinstance(error, UnexpectedToken) else source[offset : offset + 1]
    return Problem(offset, f"Syntax error: extraneous input '{token}'")
