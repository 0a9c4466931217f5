"""Why a selector does not choose a device: the first operand of its `&&` that is false, and what the device has there.

Asked only when somebody wants to know, never while devices are searched: operands are compiled as expressions of their
own, by the same compiler, and kept by their text as all are. A comparison with a literal (`memory >= 200Gi`, in any of
its spellings: operators, compareTo, isGreaterThan) is taken apart, so that many devices can be summed up: "the most any
of them has is 192Gi".

`operands` cuts an expression at its outermost `&&` by its text: strings, comments and brackets are skipped. Where the
outermost operator is anything else (`||`, a conditional, a macro such as cel.bind) the expression is one operand. Each
operand of an `&&` chain is an expression of its own, because nothing outside of it can bind its names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cmp_to_key, lru_cache
from operator import attrgetter
from typing import Any

from manciple.cel.checker import CheckedTree, check
from manciple.cel.errors import CompileError, CostLimitExceeded, EvaluationError
from manciple.cel.interpreter import Frame, Step, plan
from manciple.cel.kubernetes import Amount, Semver
from manciple.cel.parser import parse
from manciple.cel.tree import Call, Ident, Literal, Node, walk
from manciple.cel.values import Uint
from manciple.wire.quantity import NANO, Format, Quantity
from scheduling.cel.device import DeviceView
from scheduling.cel.environment import stored_environment
from scheduling.cel.selector import COST_LIMIT, Selector, compile_selector, device_references

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*)
    |(?P<raw>[bB]?[rR][bB]?(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*'))
    |(?P<text>\"{3}(?:\\.|.)*?\"{3}|'{3}(?:\\.|.)*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>[A-Za-z_0-9]+)
    |(?P<open>[(\[{])|(?P<close>[)\]}])
    |(?P<and>&&)|(?P<looser>\|\||(?<!\.)\?)""",
    re.VERBOSE | re.DOTALL,
)


#: How many expressions are kept cut.
KEPT = 1024


@lru_cache(maxsize=KEPT)
def operands(expression: str) -> tuple[str, ...]:
    """What must all be true, in order, each as it is written, without the blanks and parentheses around it.

    `a && (b && c)` -> ("a", "b", "c"); `a || b` -> ("a || b",). The expression must be one that compiles.
    """
    text = _bare(expression)
    cuts = list(_cuts(text))
    if not cuts:
        return (text,)
    starts, ends = [0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(text)]
    parts = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    return tuple(one for part in parts for one in operands(part))


def _cuts(text: str) -> Iterator[tuple[int, int]]:
    """Where the outermost `&&` stand; nowhere if an operator that binds less tightly stands beside them."""
    tokens = [(match, depth) for match, depth in _tokens(text) if depth == 0]
    if not any(match.lastgroup == "looser" for match, _ in tokens):
        yield from (match.span() for match, _ in tokens if match.lastgroup == "and")


def _tokens(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Every token with the number of brackets around it; brackets stand outside of themselves."""
    depth = 0
    for match in _TOKEN.finditer(text):
        depth -= match.lastgroup == "close"
        yield match, depth
        depth += match.lastgroup == "open"


def _bare(text: str) -> str:
    """Without the blanks, the comments before and behind, and the parentheses around all of it."""
    text = _without_outer_comments(text.strip())
    while text.startswith("("):
        closing = next((match for match, depth in _tokens(text) if match.lastgroup == "close" and depth == 0), None)
        if closing is None or closing.end() != len(text):
            break
        text = _without_outer_comments(text[1:-1].strip())
    return text


def _without_outer_comments(text: str) -> str:
    while text.startswith("//"):
        text = text.partition("\n")[2].strip()
    comments = [match for match, _ in _tokens(text) if match.lastgroup == "comment"]
    if comments and comments[-1].end() == len(text):
        return _without_outer_comments(text[: comments[-1].start()].strip())
    return text


_OPERATORS = {"_==_": "==", "_!=_": "!=", "_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_METHODS = {"isGreaterThan": ">", "isLessThan": "<"}
_LITERAL_CALLS = frozenset(("quantity", "semver", "int", "double", "string", "uint"))
_READING = frozenset(("_[_]", "_[?_]", "_?._"))
_PASSING = _LITERAL_CALLS | {"orValue", "value", "optional.of"}
#: How many taken-apart comparisons are kept.
KEPT = 1024


@dataclass(frozen=True, slots=True)
class Comparison:
    """`subject operator limit` as a person would write it: `memory >= 200Gi`."""

    subject: str  # the attribute's or capacity's name without its domain, or "driver"
    operator: str  # ==, !=, <, <=, > or >=
    limit: str  # strings in quotes, quantities and versions as written
    _value: Step = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.subject} {self.operator} {self.limit}"

    def value(self, device: DeviceView) -> Any:
        """What the device has, as a run-time value; None where it has nothing there."""
        try:
            value = self._value(Frame({"device": device}, COST_LIMIT))
        except CostLimitExceeded:
            return None
        return None if isinstance(value, EvaluationError) else value


@dataclass(frozen=True, slots=True)
class Clause:
    """One operand of a selector that was false."""

    text: str  # as the user wrote it
    comparison: Comparison | None = None  # where it is a comparison of something of the device with a literal

    def __str__(self) -> str:
        return str(self.comparison) if self.comparison else self.text


def first_false(selector: Selector, device: DeviceView) -> Clause | None:
    """The first operand that is false on the device; None where the selector chooses it or fails on it."""
    try:
        if selector.matches(device):
            return None
    except EvaluationError:
        return None
    texts = operands(selector.expression)
    return clause_of(next((text for text in texts if _is_false(text, device)), selector.expression.strip()))


def _is_false(text: str, device: DeviceView) -> bool:
    """An operand that fails does not decide: another one was false."""
    try:
        return not compile_selector(text).matches(device)
    except (CompileError, EvaluationError):
        return False


@lru_cache(maxsize=KEPT)
def clause_of(text: str) -> Clause:
    """The clause with this text, taken apart where it is a simple comparison."""
    try:
        tree, problems = check(parse(text), stored_environment())
    except CompileError:
        return Clause(text)
    return Clause(text) if problems else Clause(text, _comparison(tree))


def _comparison(tree: CheckedTree) -> Comparison | None:
    root = tree.root
    if not isinstance(root, Call):
        return None
    found = _operator(root)
    if found is None:
        return None
    operator, left, right = found
    if _literal(left) and not _literal(right):
        operator, left, right = _MIRRORED[operator], right, left
    name = _subject(replace(tree, root=left))
    limit = _literal(right)
    if not name or not limit:
        return None
    try:
        return Comparison(name, operator, limit, plan(replace(tree, root=left)))
    except CompileError:
        return None


def _operator(root: Call) -> tuple[str, Node, Node] | None:
    """(operator, left, right) of `a >= b`, `a.compareTo(b) >= 0` or `a.isGreaterThan(b)`."""
    if root.function in _METHODS and root.target is not None and len(root.args) == 1:
        return _METHODS[root.function], root.target, root.args[0]
    operator = _OPERATORS.get(root.function)
    if operator is None:
        return None
    left, right = root.args
    ordered = isinstance(left, Call) and left.function == "compareTo" and left.target is not None
    if ordered and isinstance(right, Literal) and right.value == 0 and isinstance(left, Call) and left.target:
        return operator, left.target, left.args[0]
    return operator, left, right


def _subject(tree: CheckedTree) -> str:
    """The one thing of the device that a tree looks at; "" where that is not one, or variables play a part."""
    if any(isinstance(node, Ident) and node.name != "device" for node in walk(tree.root)):
        return ""
    references = device_references(tree) or ()
    names = {reference.identifier or ("" if reference.domain else reference.field) for reference in references}
    name = names.pop() if len(names) == 1 else ""
    return "" if name in ("", "attributes", "capacity") else _asked_of(tree.root, name)


def _asked_of(node: Node, name: str) -> str:
    """`size(name)`, `name.major()`, or `name` alone where a tree only reads and converts; "" for anything else."""
    if not isinstance(node, Call) or node.function in _READING:
        return name
    inner = node.target or (node.args[0] if len(node.args) == 1 else None)
    asked = _asked_of(inner, name) if inner is not None else ""
    if node.function in _PASSING or not asked:
        return asked
    if node.target is None:
        return f"{node.function}({asked})" if node.function.isidentifier() else ""
    return "" if node.args else f"{asked}.{node.function}()"


def _literal(node: Node) -> str:
    """A literal, or `quantity("200Gi")` and its kin, as a person writes the value; "" for anything else."""
    if isinstance(node, Call) and node.function in _LITERAL_CALLS and node.target is None and len(node.args) == 1:
        inner = node.args[0]
        if not isinstance(inner, Literal):
            return ""
        return str(inner.value) if node.function != "string" else _literal(inner)
    return shown(node.value) if isinstance(node, Literal) else ""


def shown(value: Any) -> str:
    """A run-time value as a person writes it: strings in quotes, quantities with a fitting unit."""
    write = _WRITTEN.get(type(value), str)
    return write(value)


#: 1 Ki in nanos
_KI = 1024 * NANO


def _version(value: Semver) -> str:
    text = f"{value.major}.{value.minor}.{value.patch}"
    if value.prerelease:
        text += "-" + ".".join(word or str(number) for _, number, word in value.prerelease)
    return text + (f"+{'.'.join(value.build)}" if value.build else "")


def _amount(value: Amount) -> str:
    families = (Format.BINARY_SI, Format.DECIMAL_SI) if value.nanos % _KI == 0 else (Format.DECIMAL_SI,)
    return min((Quantity(value.nanos, family).canonical() for family in families), key=len)


_WRITTEN: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "true" if value else "false",
    Uint: lambda value: str(int(value)),
    str: lambda value: f'"{value}"',
    list: lambda value: f"[{', '.join(map(shown, value))}]",
    Amount: _amount,
    Semver: _version,
}


def extremes(values: Sequence[Any]) -> tuple[Any, Any] | None:
    """The least and the greatest of run-time values; None where they have no common order."""
    types = {type(value) for value in values}
    order: Callable[[Any], Any] | None = None
    if types == {Amount}:
        order = attrgetter("nanos")
    elif types == {Semver}:
        order = cmp_to_key(Semver.compare)
    elif types and types <= {int, float, Uint}:
        order = float
    return (min(values, key=order), max(values, key=order)) if order else None
