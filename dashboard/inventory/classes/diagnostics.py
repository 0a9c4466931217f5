"""What is wrong with an expression or a piece of YAML, and where: for the place under the caret. Pure.

A finding is as static/manciple/kit/editor.js reads it: line and column from 1 in code points, a message in plain words,
and a hint or a fix where one is known. What is said of CEL rests on the compiler's own words and places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NotRequired, TypedDict

import yaml

from inventory.kinds.device_rules import PARAMETERS_MAX
from manciple.wire import codec
from manciple.wire.errors import ApiError
from scheduling.cel import COST_LIMIT, CelFeatures, CompileError, compile_new_selector


class Fix(TypedDict):
    """What a click puts in the place of part of the text."""

    line: int
    column: int
    end_line: int
    end_column: int
    label: str
    insert: str


class Finding(TypedDict):
    """As JSON. line, column: 0 where it has no place; severity: "error"."""

    line: int
    column: int
    severity: str
    message: str
    hint: NotRequired[str]
    end_line: NotRequired[int]
    end_column: NotRequired[int]
    fix: NotRequired[Fix]


_PROBLEM = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
_OVERLOAD = re.compile(r"found no matching overload for '([^']+)' applied to '(.*)'$")
_UNDECLARED = re.compile(r"undeclared reference to '([^']+)'")
_FIELD = re.compile(r"undefined field '([^']+)'")
_OPERATORS = re.compile(r"_(==|!=|<=|>=|<|>|\+|-|\*|/|%)_")
_SYNTAX = "Syntax error: "
#: Methods that compare with a value of the same type: name -> what their argument is made with.
_COMPARING = {"isGreaterThan": ("semver", "quantity"), "isLessThan": ("semver", "quantity"), "compareTo": ("quantity",)}


def of_expression(expression: str, features: CelFeatures) -> list[Finding]:
    """Everything that keeps the expression out of a class."""
    if not expression.strip():
        return []
    try:
        selector = compile_new_selector(expression, features)
    except CompileError as error:
        return [*_problems(expression, error)]
    if selector.exceeds_cost_limit:
        cost = f"{selector.estimated_max_cost:,} of {COST_LIMIT:,}"
        message = f"It may cost too much on the worst device: {cost}."
        return [_at(1, 1, message, hint="Use fewer attributes or shorter lists.")]
    return []


def _problems(expression: str, error: CompileError) -> Iterator[Finding]:
    places = [(int(line), int(column), text) for line, column, text in _PROBLEM.findall(error.message)]
    if not places:
        yield _at(1, 1, _capital(error.message.removeprefix("compilation failed: ")))
    for line, column, text in places:
        yield _in_words(expression, line, column, text)


def _in_words(expression: str, line: int, column: int, text: str) -> Finding:
    """The compiler's finding as a sentence; its own text where there is nothing plainer to say."""
    if found := _OVERLOAD.search(text):
        return _overload(expression, line, column, found[1], found[2])
    if found := _UNDECLARED.search(text):
        return _at(line, column, f"{found[1]} is not known here.", hint="The only variable here is device.")
    if found := _FIELD.search(text):
        hint = "It has driver, attributes, capacity and allowMultipleAllocations."
        return _at(line, column, f"device has no field {found[1]}.", hint=hint)
    if text.startswith(_SYNTAX):
        return _syntax(line, column, text.removeprefix(_SYNTAX))
    return _at(line, column, _capital(text))


def _syntax(line: int, column: int, text: str) -> Finding:
    if "<EOF>" in text:
        return _at(line, column, "The expression ends before it is complete.")
    if text.startswith("token recognition error at: '\"") or text.startswith("token recognition error at: ''"):
        return _at(line, column, "A string is not closed.", hint="Close it with the quote that opens it.")
    return _at(line, column, f"Unexpected: {text}.")


def _overload(expression: str, line: int, column: int, function: str, applied: str) -> Finding:
    if function in _COMPARING and applied.endswith("(string)"):
        return _unwrapped(expression, line, column, function, applied)
    operator = _OPERATORS.fullmatch(function)
    types = [_type(part) for part in applied.strip("()").split(", ")]
    if operator and types[0] == "quantity":
        hint = f'Write .compareTo(quantity("…")) {operator[1]} 0.' if operator[1] != "+" else "Write .add(quantity(…))."
        return _at(line, column, f"Quantities are not compared with {operator[1]}.", hint=hint)
    if operator:
        return _at(line, column, f"{operator[1]} does not go with {' and '.join(types)}.")
    target, dot, given = applied.partition(".")
    said = f"{function} is not known for {_type(target)}" if dot else f"{function} does not take"
    return _at(
        line, column, f"{said}{' with' if dot else ''} ({', '.join(map(_type, given.strip('()').split(', ')))})."
    )


def _unwrapped(expression: str, line: int, column: int, function: str, applied: str) -> Finding:
    """A text where a version or an amount is due: which one the text itself tells."""
    text = expression.split("\n")[line - 1]
    found = re.compile(r"\(\s*(\"[^\"]*\"|'[^']*')\s*\)").match(text, column - 1)
    known = next((one for one in _COMPARING[function] if one.capitalize() in applied), "")
    if not found:
        return _at(line, column, f"{function} needs a {known or 'semver or a quantity'}, and got a string.")
    literal = found[1]
    kind = known or ("semver" if literal.count(".") > 1 and "semver" in _COMPARING[function] else "quantity")
    start, end = found.start(1) + 1, found.end(1) + 1
    return Finding(
        line=line,
        column=start,
        end_line=line,
        end_column=end,
        severity="error",
        message=f"{function} needs a {kind}, and got a string.",
        hint=f"Write {kind}({literal}).",
        fix=Fix(
            line=line,
            column=start,
            end_line=line,
            end_column=end,
            label="Apply fix",
            insert=f"{kind}({literal})",
        ),
    )


def _type(name: str) -> str:
    plain = {"kubernetes.Quantity": "quantity", "kubernetes.Semver": "semver", "dyn": "an attribute"}
    return plain.get(name, name)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _at(line: int, column: int, message: str, *, hint: str = "") -> Finding:
    found = Finding(line=line, column=column, severity="error", message=message)
    return Finding(**found, hint=hint) if hint else found


# YAML ----------------------------------------------------------------------------------------------------------------


def of_parameters(text: str) -> list[Finding]:
    """What keeps a text from being a driver's parameters."""
    if not text.strip():
        return []
    try:
        value = read_yaml(text)
    except YamlProblem as problem:
        return [problem.finding]
    if not isinstance(value, dict):
        return [_at(1, 1, "Parameters are a mapping.", hint="For example apiVersion: gpu.example.com/v1")]
    size = len(codec.encode(value))
    if size > PARAMETERS_MAX:
        return [_at(1, 1, f"Parameters have {size:,} bytes as JSON; the limit is {PARAMETERS_MAX:,}.")]
    return []


class YamlProblem(ValueError):
    """A text is no YAML."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding["message"])
        self.finding = finding


def read_yaml(text: str) -> Any:
    """Raises: YamlProblem with the place."""
    try:
        yaml.compose(text, Loader=yaml.SafeLoader)  # for the places of its errors
        return codec.read_document(text.encode(), content_type="application/yaml")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "cannot be read"
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise YamlProblem(_at(line, column, _capital(problem))) from None
    except ApiError as error:
        raise YamlProblem(_at(1, 1, _capital(error.message))) from None
    except RecursionError:
        raise YamlProblem(_at(1, 1, "It is nested too deeply.")) from None


_STEP = re.compile(r"[^.\[\]]+|\[\d+\]")


def place_of(text: str, path: str) -> tuple[int, int]:
    """Line and column of the field that an API path such as `spec.selectors[1].cel` names, or of the nearest above."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return 1, 1
    mark = node.start_mark if node else None
    for step in _STEP.findall(path):
        found = _child(node, step)
        if found is None:
            break
        mark, node = found
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _child(node: yaml.Node | None, step: str) -> tuple[Any, yaml.Node] | None:
    """(where it is written, its value)"""
    if isinstance(node, yaml.SequenceNode) and step.startswith("["):
        index = int(step[1:-1])
        return (node.value[index].start_mark, node.value[index]) if index < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next(((key.start_mark, value) for key, value in node.value if key.value == step), None)
    return None


def at_paths(text: str, causes: Sequence[dict[str, str]], say: Callable[[dict[str, str]], str]) -> list[Finding]:
    """The causes of a Status where their fields stand in the text."""
    return [_at(*place_of(text, cause.get("field", "")), say(cause)) for cause in causes]
