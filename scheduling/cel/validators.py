"""What is refused although it type-checks: literals that can never work.

Literal durations, timestamps and regular expressions are tried, lists and maps must hold one type, and literal
templates of format() must fit their arguments. Source: cel-go cel/validator.go and ext/formatting.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from scheduling.cel.checker import CheckedTree
from scheduling.cel.errors import EvaluationError, Problem
from scheduling.cel.functions.conversions import string_to_duration, string_to_timestamp
from scheduling.cel.functions.kubernetes import compiled
from scheduling.cel.functions.printf import REFUSALS, Clause, TemplateError, parts
from scheduling.cel.tree import Call, ListLiteral, Literal, MapLiteral, Node, children, walk
from scheduling.cel.types import CelType, Kind, describe

_TRIED: dict[str, Callable[[str], object]] = {
    "duration": string_to_duration,
    "timestamp": string_to_timestamp,
    "matches": compiled,
}
_NUMBERS = frozenset(("int", "uint"))
#: which types an argument of each clause may have
_ACCEPTED = {
    "s": _NUMBERS
    | {
        "bool", "bytes", "double", "string", "list", "map", "null_type", "type",
        "google.protobuf.Timestamp", "google.protobuf.Duration",
    },
    "d": _NUMBERS,
    "f": frozenset(("double", "string")),
    "e": frozenset(("double", "string")),
    "b": _NUMBERS | {"bool"},
    "x": _NUMBERS | {"string", "bytes"},
    "X": _NUMBERS | {"string", "bytes"},
    "o": _NUMBERS,
}  # fmt: skip


def validate(tree: CheckedTree) -> list[Problem]:
    """The problems of a tree that type-checks."""
    problems: list[Problem] = []
    exempt = _inside_format(tree)
    for node in walk(tree.root):
        if isinstance(node, Call):
            problems += _tried_literal(node)
            problems += _template(tree, node)
        elif isinstance(node, ListLiteral) and node not in exempt:
            problems += _mixed_list(tree, node)
        elif isinstance(node, MapLiteral) and node not in exempt:
            problems += _mixed_map(tree, node)
    return problems


def _tried_literal(call: Call) -> Iterator[Problem]:
    trial = _TRIED.get(call.function)
    literal = call.args[0] if call.args else None
    if trial is None or not isinstance(literal, Literal) or not isinstance(literal.value, str):
        return
    try:
        trial(literal.value)
    except EvaluationError:
        yield Problem(literal.offset, f"invalid {call.function} argument")


def _inside_format(tree: CheckedTree) -> set[Node]:
    """Aggregates below a format() call may mix types."""
    inside: set[Node] = set()
    pending = [
        child
        for node in walk(tree.root)
        if isinstance(node, Call) and node.function == "format"
        for child in children(node)
    ]
    while pending:
        node = pending.pop()
        if node not in inside:
            inside.add(node)
            pending.extend(children(node))
    return inside


def _unwrapped(type_: CelType, *, optional: bool) -> CelType:
    return type_.params[0] if optional and type_.params else type_


def _mismatch(node: Node, expected: CelType, found: CelType) -> Problem:
    return Problem(node.offset, f"expected type '{describe(expected)}' but found '{describe(found)}'")


def _mixed_list(tree: CheckedTree, node: ListLiteral) -> Iterator[Problem]:
    expected: CelType | None = None
    for index, element in enumerate(node.elements):
        found = _unwrapped(tree.types[element], optional=index in node.optional)
        if expected is None:
            expected = found
        elif expected != found:
            yield _mismatch(element, expected, found)
            return


def _mixed_map(tree: CheckedTree, node: MapLiteral) -> Iterator[Problem]:
    if not node.entries:
        return
    first = node.entries[0]
    key_type = tree.types[first.key]
    value_type = _unwrapped(tree.types[first.value], optional=first.optional)
    for entry in node.entries[1:]:
        key, value = tree.types[entry.key], _unwrapped(tree.types[entry.value], optional=entry.optional)
        if key_type != key:
            yield _mismatch(entry.key, key_type, key)
        if value_type != value:
            yield _mismatch(entry.value, value_type, value)


def _template(tree: CheckedTree, call: Call) -> Iterator[Problem]:
    if call.function != "format" or not isinstance(call.target, Literal) or len(call.args) != 1:
        return
    arguments = call.args[0]
    if not isinstance(arguments, ListLiteral):
        return
    try:
        clauses = [part for part in parts(str(call.target.value)) if isinstance(part, Clause)]
    except TemplateError as error:
        yield Problem(call.offset, str(error))
        return
    yield from _arguments(tree, call, clauses, arguments.elements)


def _arguments(tree: CheckedTree, call: Call, clauses: list[Clause], elements: tuple[Node, ...]) -> Iterator[Problem]:
    for index, clause in enumerate(clauses):
        if index >= len(elements):
            yield Problem(call.offset, f"index {index} out of range")
            return
        type_ = tree.types[elements[index]]
        if not _shows(clause, type_):
            refusal = f"error during formatting: {REFUSALS[clause.verb]}{type_.name}"
            yield Problem(elements[index].offset, refusal)
            return
    if len(elements) > len(clauses):
        message = f"too many arguments supplied to string.format (expected {len(clauses)}, got {len(elements)})"
        yield Problem(call.offset, message)


def _shows(clause: Clause, type_: CelType) -> bool:
    if type_.kind is Kind.DYN:
        return True
    return type_.name in _ACCEPTED[clause.verb]
