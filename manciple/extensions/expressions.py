"""Rules in CEL that definitions put on their objects (x-kubernetes-validations), and what they say. PURE.

Rules are compiled against the type of their schema (`manciple.extensions.schema_types`). `Rules` evaluates those of a
whole schema on an object, and on what it was before where a rule asks for `oldSelf`.
Sources: apiextensions-apiserver/pkg/apiserver/schema/cel, apiserver/pkg/apis/cel/config.go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from manciple.cel.checker import check, validate
from manciple.cel.errors import CompileError, CostLimitExceeded, EvaluationError, compile_error
from manciple.cel.estimate import estimate_cost
from manciple.cel.functions import Environment, base_functions, type_names
from manciple.cel.interpreter import Frame, Step, plan
from manciple.cel.parser import parse
from manciple.cel.types import BOOL, STRING, CelType, optional_of
from manciple.cel.values import KEY_ADVICE, NONE, optional
from manciple.extensions.schema_types import Declared, declare, value_of
from manciple.extensions.structure import NOWHERE, ROOT, Schema, SchemaNode
from manciple.wire.errors import OMITTED, FieldError, duplicate, forbidden, invalid, required
from manciple.wire.limits import check_time
from manciple.wire.validation import Path

#: What one evaluation may cost, and all of one object.
CALL_LIMIT, OBJECT_BUDGET = 1_000_000, 10_000_000
_LONGEST_MESSAGE = 5 * 1024
SELF, OLD_SELF = "self", "oldSelf"

# Compiling ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule, compiled. message: the step that makes its message. costs: estimated, of one evaluation of each."""

    schema: Schema
    step: Step
    uses_old: bool
    cost: int
    message: Step | None = None
    message_cost: int = 0
    field_path: str = ""

    @property
    def optional_old(self) -> bool:
        return bool(self.schema.get("optionalOldSelf"))

    @property
    def text(self) -> str:
        return str(self.schema.get("message") or self.schema["rule"]).strip()


class BadRule(Exception):
    """A rule that cannot be used. member: which part of it is at fault."""

    def __init__(self, member: str, detail: str) -> None:
        super().__init__(detail)
        self.member, self.detail = member, detail


def environment_of(declared: Declared, *, optional_old: bool) -> Environment:
    """What rules on this schema may name."""

    def greatest(path: tuple[str, ...]) -> int | None:
        found = (
            declared.at(path[1:]) if path else None
        )  # upstream: what is no field of it, such as a type's name, counts as the whole
        return None if found is None else found.most

    old = optional_of(declared.type) if optional_old else declared.type
    return Environment(
        functions=base_functions(),
        idents={**type_names(), SELF: declared.type, OLD_SELF: old},
        structs=dict(declared.structs()),
        greatest_size=greatest,
    )


def compile_rule(declared: Declared, schema: Schema) -> CompiledRule:
    """Raises: BadRule."""
    environment = environment_of(declared, optional_old=bool(schema.get("optionalOldSelf")))
    step, output, names, cost = _compiled(schema["rule"], environment, "rule", "compilation failed: ")
    if output != BOOL:
        raise BadRule("rule", "cel expression must evaluate to a bool")
    rule = CompiledRule(schema, step, OLD_SELF in names, cost, field_path=field_path_of(schema, declared.node))
    text = schema.get("messageExpression", "")
    if not text.strip():
        return rule
    told, output, _names, message_cost = _compiled(
        text, environment, "messageExpression", "messageExpression compilation failed: "
    )
    if output != STRING:
        raise BadRule("messageExpression", "messageExpression must evaluate to a string")
    return CompiledRule(schema, step, rule.uses_old, cost, told, message_cost, rule.field_path)


def _compiled(text: str, environment: Environment, member: str, prefix: str) -> tuple[Step, CelType, set[str], int]:
    try:
        tree, problems = check(parse(text, without="bind"), environment)
        problems = problems or validate(tree)
        if problems:
            raise compile_error(text, problems)
        step = plan(tree)
        cost = estimate_cost(tree).max
    except CompileError as error:
        raise BadRule(member, prefix + error.message.removeprefix("compilation failed: ")) from error
    except RecursionError:
        raise BadRule(member, f"{prefix}ERROR: <input>:1:1: expression recursion limit exceeded") from None
    return step, tree.output_type, {reference.name for reference in tree.references.values()}, cost


_PART = re.compile(r"\.([^.\[\]']+)|\['((?:\\.|[^'\\])*)'\]")


def field_path_of(schema: Schema, node: SchemaNode) -> str:
    """A rule's field path in the form of errors; "" where it names none, or no field."""
    found = path_in(schema.get("fieldPath", "").strip(), node)
    return found[0] if found else ""


def path_in(text: str, node: SchemaNode, *, arrays: bool = True) -> tuple[str, SchemaNode | None] | None:
    """(a path of member names as errors write it, the schema there); None where it leads nowhere."""
    shown, at, here = Path(""), 0, node
    while at < len(text):
        match = _PART.match(text, at)
        if match is None or (match[2] is not None and not arrays):
            return None
        name = match[1] if match[1] is not None else re.sub(r"\\(.)", r"\1", match[2])
        part = here.properties.get(name)
        if part is None and (here.values is None or match[2] is None):
            return None
        shown = shown.child(name) if part is not None else shown.key(name)
        here = part or here.values or here
        at = match.end()
    return (str(shown), here) if text else None


# Evaluating -----------------------------------------------------------------------------------------------------------


class _Spent(Exception):
    """The budget is used up: no more rules are asked."""


@dataclass(slots=True)
class _Budget:
    left: int
    errors: list[FieldError] = field(default_factory=list)

    def spend(self, cost: int, path: Path, type_: str) -> None:
        if cost > self.left:
            self.errors.append(
                invalid(
                    path or NOWHERE,
                    type_,
                    "validation failed due to running out of cost budget, no further validation rules will be run",
                )
            )
            raise _Spent
        self.left -= cost


class _Memory:
    """What was found of the parts of one object and of the one before it, so that many questions cost no more than one:
    a list that is a map has as many elements as fit into a request.
    """

    __slots__ = ("_lists", "_same")

    def __init__(self) -> None:
        self._same: dict[tuple[int, int], bool] = {}
        self._lists: dict[int, dict[str, Any]] = {}

    def same(self, new: Any, old: Any) -> bool:
        if not isinstance(new, dict | list):
            return bool(new == old)
        pair = (id(new), id(old))
        if pair not in self._same:
            self._same[pair] = new == old
        return self._same[pair]

    def by_key(self, items: list[Any], node: SchemaNode) -> Mapping[str, Any]:
        found = self._lists.get(id(items))
        if found is None:
            found = {_key_of(item, node): item for item in reversed(items) if isinstance(item, dict)}
            self._lists[id(items)] = found
        return found


def _key_of(item: Mapping[str, Any], node: SchemaNode) -> str:
    return json.dumps([item.get(name) for name in node.map_keys], sort_keys=True)


@dataclass(frozen=True, slots=True)
class Before:
    """What stood in a value's place before: `there` unless there was nothing, or it cannot be told what it was.

    unchanged: the value is what it was, or stands in something that is.
    """

    value: Any = None
    there: bool = False
    unchanged: bool = False
    memory: _Memory = field(default_factory=_Memory, compare=False)

    @classmethod
    def of(cls, new: Any, old: Any) -> Before:
        """Of a whole object; both live as long as this and what follows from it."""
        memory = _Memory()
        return cls(old, there=True, unchanged=memory.same(new, old), memory=memory)

    def member(self, name: str, new: Any) -> Before:
        if self.there and isinstance(self.value, dict) and name in self.value:
            return self._within(new, self.value[name])
        return Before(unchanged=self.unchanged, memory=self.memory)

    def element(self, node: SchemaNode, new: Any) -> Before:
        if self.there and node.list_type == "map" and isinstance(self.value, list) and isinstance(new, dict):
            old = self.memory.by_key(self.value, node).get(_key_of(new, node))
            if old is not None:
                return self._within(new, old)
        return Before(unchanged=self.unchanged, memory=self.memory)

    def _within(self, new: Any, old: Any) -> Before:
        return Before(old, there=True, unchanged=self.memory.same(new, old), memory=self.memory)


NEW = Before()


class Rules:
    """The rules of one schema, on its own values and on what these consist of."""

    def __init__(self, node: SchemaNode, *, root: bool = False) -> None:
        self.node, self._root = node, root
        parts = {name: Rules(one, root=one.embedded) for name, one in node.properties.items() if one is not None}
        self._members = {name: rules for name, rules in parts.items() if rules.any}
        of_items = Rules(node.items, root=node.items.embedded) if node.items else None
        of_values = Rules(node.values, root=node.values.embedded) if node.values else None
        self._items = of_items if of_items and of_items.any else None
        self._values = of_values if of_values and of_values.any else None

    @property
    def any(self) -> bool:
        return bool(self.node.rules or self._members or self._items or self._values)

    @cached_property
    def _declared(self) -> Declared | None:
        return declare(self.node, root=self._root)

    @cached_property
    def _compiled(self) -> list[CompiledRule | BadRule]:
        found: list[CompiledRule | BadRule] = []
        if self._declared is None:
            return found  # fields of unknown types have no rules
        for schema in self.node.rules:
            try:
                found.append(compile_rule(self._declared, schema))
            except BadRule as error:
                found.append(error)
        return found

    def check(self, value: Any, before: Before = NEW, path: Path = ROOT) -> list[FieldError]:
        """What the rules find wrong. Raises: TimeLimitExceeded."""
        budget = _Budget(OBJECT_BUDGET)
        with suppress(_Spent):
            self._check(value, before, path, budget)
        return budget.errors

    def _check(self, value: Any, before: Before, path: Path, budget: _Budget) -> None:
        if value is None:
            return
        if self.node.rules:
            self._ask(value, before, path, budget)
        if isinstance(value, list) and self._items is not None:
            for at, item in enumerate(value):
                self._items._check(item, before.element(self.node, item), path.at(at), budget)
        elif isinstance(value, dict):
            for name, item in value.items():
                if (rules := self._members.get(name)) is not None:
                    rules._check(item, before.member(name, item), path.child(name), budget)
                elif self._values is not None:
                    self._values._check(item, before.member(name, item), path.key(name), budget)

    def _ask(self, value: Any, before: Before, path: Path, budget: _Budget) -> None:
        there = before.there and before.value is not None
        of_self, of_old = value_of(value, self._declared), value_of(before.value, self._declared) if there else None
        for rule in self._compiled:
            if isinstance(rule, BadRule):
                budget.errors.append(invalid(path or NOWHERE, self.node.type, f"rule compile error: {rule.detail}"))
                continue
            if rule.uses_old and not there and not rule.optional_old:
                continue
            old = (optional(of_old) if there else NONE) if rule.optional_old else of_old
            error = self._asked(rule, {SELF: of_self, OLD_SELF: old}, value, path, budget)
            if error is not None and (rule.uses_old or not before.unchanged):
                budget.errors.append(error)

    def _asked(
        self, rule: CompiledRule, names: dict[str, Any], value: Any, path: Path, budget: _Budget
    ) -> FieldError | None:
        check_time()  # a rule that costs nothing takes time on a hundred thousand items
        type_ = self.node.type
        outcome, cost = _run(rule.step, names)
        budget.spend(cost, path, type_)
        if isinstance(outcome, CostLimitExceeded):
            detail = f"'{outcome.message}': no further validation rules will be run due to call cost exceeds limit"
            budget.errors.append(invalid(path or NOWHERE, type_, f"{detail} for rule: {rule.text}"))
            raise _Spent
        if isinstance(outcome, EvaluationError):
            return invalid(path or NOWHERE, type_, _failed(outcome, rule))
        if outcome is True:
            return None
        detail = self._detail(rule, names, path, budget)
        where = Path(f"{path}.{rule.field_path}" if path else rule.field_path) if rule.field_path else path
        shown = OMITTED if type_ in ("object", "array") else value
        return _refusal(rule.schema.get("reason", ""), where or NOWHERE, shown, detail)

    def _detail(self, rule: CompiledRule, names: dict[str, Any], path: Path, budget: _Budget) -> str:
        if rule.message is not None:
            text, cost = _run(rule.message, names)
            budget.spend(cost, path, self.node.type)
            if isinstance(text, str) and (line := text.strip()) and "\n" not in line and len(line) <= _LONGEST_MESSAGE:
                return line
        fixed = rule.schema.get("message", "").strip()
        return fixed or f"failed rule: {rule.text}"


def _run(step: Step, names: dict[str, Any]) -> tuple[Any, int]:
    """(the value, or an EvaluationError as one; the cost)."""
    frame = Frame(dict(names), CALL_LIMIT)
    try:
        value = step(frame)
    except CostLimitExceeded as error:
        value = error
    return value, min(frame.cost, CALL_LIMIT)


def _failed(error: EvaluationError, rule: CompiledRule) -> str:
    message = error.message.removesuffix(KEY_ADVICE)
    if message.startswith("no such overload"):
        why = "call arguments did not match a supported operator, function or macro signature"
        return f"'{message}': {why} for rule: {rule.text}"
    return f"{message} evaluating rule: {rule.text}"


def _refusal(reason: str, path: str, value: Any, detail: str) -> FieldError:
    if reason == "FieldValueForbidden":
        return forbidden(path, detail)
    if reason == "FieldValueRequired":
        return required(path, detail)
    if reason == "FieldValueDuplicate":
        found = duplicate(path, value)
        return FieldError(type=found.type, field=path, detail=detail, bad_value=value)
    return invalid(path, value, detail)
