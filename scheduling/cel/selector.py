"""Selectors: expressions that are compiled once, cached by their text, and asked about many devices.

`Selector.references` says what of a device the expression looks at, so that a verdict can be kept for all devices that
are alike in it. It is known when every use of `device` is a field, or `device.attributes` or `device.capacity` with a
literal domain. Then devices with equal `projection`s get equal verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from manciple.cel.checker import CheckedTree, check, validate
from manciple.cel.errors import CompileError, CostLimitExceeded, EvaluationError, compile_error
from manciple.cel.estimate import estimate_cost
from manciple.cel.interpreter import Frame, Step, plan
from manciple.cel.operators import type_name
from manciple.cel.parser import parse
from manciple.cel.tree import Call, Comprehension, Ident, Literal, Node, Select, children, walk
from manciple.cel.types import BOOL
from manciple.cel.values import CelMap
from manciple.wire.limits import check_time
from scheduling.cel.compiler import compile_tree
from scheduling.cel.device import DeviceView
from scheduling.cel.environment import ALL_FEATURES, CelFeatures, attribute_type, environment_of


@dataclass(frozen=True, slots=True, order=True)
class DeviceReference:
    """One thing that is looked at. domain and identifier are empty where the whole map is."""

    #: driver, allowMultipleAllocations, attributes or capacity
    field: str
    domain: str = ""
    identifier: str = ""


def device_references(tree: CheckedTree) -> frozenset[DeviceReference] | None:
    """Everything the expression can look at, or None where `device` is used otherwise."""
    nodes = walk(tree.root)
    if any(isinstance(node, Comprehension) and "device" in _bound(node) for node in nodes):
        return None
    parents: dict[Node, list[Node]] = {}
    for node in nodes:
        for child in children(node):
            parents.setdefault(child, []).append(node)
    found: set[DeviceReference] = set()
    for node in nodes:
        if isinstance(node, Ident) and node.name == "device":
            uses = parents.get(node, [])
            fields = [use for use in uses if isinstance(use, Select)]
            if not uses or len(fields) < len(uses):
                return None
            found = found.union(*(_of_field(use, parents) for use in fields))
    return frozenset(found)


def _bound(node: Comprehension) -> tuple[str, ...]:
    return (node.iter_var, node.iter_var2, node.accu_var)


def _of_field(node: Select, parents: dict[Node, list[Node]]) -> set[DeviceReference]:
    if node.field_name not in ("attributes", "capacity") or node.test_only:
        return {DeviceReference(node.field_name)}
    found: set[DeviceReference] = set()
    for parent in parents.get(node, []):
        domain = _literal_key(parent, node)
        if domain is None:
            return {DeviceReference(node.field_name)}
        found |= _of_domain(parent, DeviceReference(node.field_name, domain), parents)
    return found or {DeviceReference(node.field_name)}


def _of_domain(node: Node, whole: DeviceReference, parents: dict[Node, list[Node]]) -> set[DeviceReference]:
    found: set[DeviceReference] = set()
    for parent in parents.get(node, []):
        identifier = _literal_key(parent, node)
        if not identifier:
            return {whole}
        found.add(DeviceReference(whole.field, whole.domain, identifier))
    return found or {whole}


def _literal_key(parent: Node, operand: Node) -> str | None:
    """The key by which `parent` looks something up in `operand`, where it is written out."""
    if isinstance(parent, Select):
        return parent.field_name
    if isinstance(parent, Call) and parent.function in ("_[_]", "_[?_]", "_?._") and parent.args[0] is operand:
        key = parent.args[1]
        return key.value if isinstance(key, Literal) and isinstance(key.value, str) else None
    return None


def projection(device: DeviceView, references: Iterable[DeviceReference]) -> Hashable:
    """What the device has at these places. Devices that are equal in it get equal verdicts."""
    return (device.fault, *(_value_at(device, reference) for reference in sorted(references)))


def _value_at(device: DeviceView, reference: DeviceReference) -> Hashable:
    if reference.field == "driver":
        return device.driver
    if reference.field == "allowMultipleAllocations":
        return device.allow_multiple_allocations
    domains = device.attributes if reference.field == "attributes" else device.capacity
    if not reference.domain:
        return _frozen(domains)
    entries = domains[reference.domain]
    if not reference.identifier:
        return (reference.domain in domains, _frozen(entries))
    return _frozen(entries[reference.identifier]) if reference.identifier in entries else None


def _frozen(value: Any) -> Hashable:
    """A hashable stand-in that tells True from 1."""
    if isinstance(value, CelMap):
        # The order counts: folds go through maps in it.
        return tuple((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return (type(value).__name__, str(value) if isinstance(value, bool) else value)


#: What one evaluation may cost (resource.k8s.io: CELSelectorExpressionMaxCost).
COST_LIMIT = 1_000_000
#: Expressions that may cost more than this are always counted. Well below the limit, because estimates may be too low.
FAST_LIMIT = COST_LIMIT // 10
#: How many compiled expressions are kept.
CACHE_SIZE = 4096


@dataclass(frozen=True)
class Outcome:
    """One counted evaluation: the verdict or why there is none, and what it cost."""

    matches: bool
    error: EvaluationError | None
    cost: int


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled expression. Threads may share it."""

    expression: str
    #: "bool", or the type of an attribute's value, which is looked at only when it is there
    output_type: str
    #: the most that an evaluation can cost
    estimated_max_cost: int
    #: what of a device the verdict depends on; None where that cannot be told from the expression
    references: frozenset[DeviceReference] | None
    _step: Step = field(repr=False, compare=False)
    #: the evaluator that counts nothing, for expressions that cannot become dear
    _fast: Callable[[DeviceView], Any] | None = field(repr=False, compare=False)

    @property
    def exceeds_cost_limit(self) -> bool:
        """True when no new object may contain the expression."""
        return self.estimated_max_cost > COST_LIMIT

    def matches(self, device: DeviceView) -> bool:
        """Whether the device is selected. Raises: EvaluationError with cel-go's message; TimeLimitExceeded."""
        check_time()
        if self._fast is not None and not device.fault:
            value = self._fast(device)
            if value is True or value is False:
                return value
            raise not_bool(value)
        outcome = self.evaluate(device)
        if outcome.error is not None:
            raise outcome.error
        return outcome.matches

    def evaluate(self, device: DeviceView) -> Outcome:
        """As matches(), counting the cost, with the error as a value. Raises: TimeLimitExceeded."""
        check_time()
        if device.fault:
            return Outcome(matches=False, error=EvaluationError(device.fault), cost=0)
        frame = Frame({"device": device}, COST_LIMIT)
        try:
            value = self._step(frame)
        except CostLimitExceeded as error:
            value = error
        if isinstance(value, EvaluationError):
            return Outcome(matches=False, error=value, cost=frame.cost)
        if type(value) is not bool:
            return Outcome(matches=False, error=not_bool(value), cost=frame.cost)
        return Outcome(matches=value, error=None, cost=frame.cost)


def not_bool(value: object) -> EvaluationError:
    name = type_name(value)
    reason = _CONVERSION_ERRORS.get(name, f"type conversion error from '{name.rpartition('.')[2]}' to 'bool'")
    return EvaluationError(f"CEL result of type {name} could not be converted to bool: {reason}")


#: Each of cel-go's types has its own words for it.
_CONVERSION_ERRORS = {
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "double": "type conversion error from Double to 'bool'",
    "string": "unsupported native conversion from string to 'bool'",
    "bytes": "type conversion error from Bytes to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "map": "type conversion error from map to 'bool'",
}


def compile_selector(expression: str) -> Selector:
    """The selector of an expression that is part of an object. Raises: CompileError, TimeLimitExceeded."""
    return compile_new_selector(expression, ALL_FEATURES)


def compile_new_selector(expression: str, features: CelFeatures) -> Selector:
    """The same for an expression on its way into an object: only what the features allow. Raises: CompileError."""
    compiled = _compiled(expression, features)
    if isinstance(compiled, CompileError):
        # The kept error is not raised itself: each raise would add to its traceback.
        raise CompileError(compiled.message, line=compiled.line, column=compiled.column, snippet=compiled.snippet)
    return compiled


@lru_cache(maxsize=CACHE_SIZE)
def _compiled(expression: str, features: CelFeatures) -> Selector | CompileError:
    try:
        return _compile(expression, features)
    except CompileError as error:
        return error
    except RecursionError:
        return CompileError(
            "compilation failed: ERROR: <input>:1:1: expression recursion limit exceeded", line=1, column=1
        )


def _compile(expression: str, features: CelFeatures) -> Selector:
    check_time()
    tree, problems = check(parse(expression), environment_of(features))
    problems = problems or validate(tree)
    if problems:
        raise compile_error(expression, problems)
    if tree.output_type not in (BOOL, attribute_type(features)):
        raise CompileError(f"must evaluate to {BOOL} or the unknown type, not {tree.output_type}")
    step = plan(tree)
    cost = estimate_cost(tree).max
    return Selector(
        expression=expression,
        output_type=str(tree.output_type),
        estimated_max_cost=cost,
        references=device_references(tree),
        _step=step,
        _fast=compile_tree(tree) if cost <= FAST_LIMIT else None,
    )
