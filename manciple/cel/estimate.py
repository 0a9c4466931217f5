"""What an expression can cost at most, worked out from the checked tree and the sizes that its environment declares.

A walk over the tree adds up costs and follows sizes: of literals, of what variables hold (by the path from the
variable), of iteration variables and of results of calls. What a call itself costs is in `costs`. Nodes are visited
once, because macros may share them. Source: cel-go checker/cost.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from manciple.cel.checker import CheckedTree
from manciple.cel.costs import (
    LIST_CREATE,
    MAP_CREATE,
    MAX,
    ONE,
    STRUCT_CREATE,
    UNKNOWN,
    ZERO,
    CallEstimate,
    Operand,
    Range,
    fixed,
    rule_of,
)
from manciple.cel.tree import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
)
from manciple.cel.types import DURATION, TIMESTAMP, CelType, TypeKind, is_optional

Path: TypeAlias = tuple[str, ...]


def estimate_cost(tree: CheckedTree) -> Range:
    """The least and the greatest cost of evaluating the expression, whatever its variables are."""
    return _Estimator(tree).cost(tree.root)


@dataclass(frozen=True, slots=True)
class _EntrySizes:
    """The sizes of what an aggregate holds."""

    kind: TypeKind
    key: Range
    value: Range

    def __or__(self, other: _EntrySizes) -> _EntrySizes:
        return _EntrySizes(self.kind, self.key | other.key, self.value | other.value)


@dataclass(frozen=True, slots=True)
class _Variable:
    path: Path
    size: Range | None
    entries: _EntrySizes | None = None


class _Estimator:
    def __init__(self, tree: CheckedTree) -> None:
        self._tree = tree
        self._costs: dict[Node, Range] = {}
        self._paths: dict[Node, Path] = {}
        self._sizes: dict[Node, Range] = {}
        self._entries: dict[Node, _EntrySizes] = {}
        self._variables: dict[str, list[_Variable]] = {}
        self._rules = {
            Literal: lambda _node: ZERO,
            Ident: self._ident,
            Select: self._select,
            Call: self._call,
            ListLiteral: self._list,
            MapLiteral: self._map,
            StructLiteral: self._struct,
            Comprehension: self._comprehension,
        }

    def cost(self, node: Node) -> Range:
        if node not in self._costs:
            self._costs[node] = self._rules[type(node)](node)  # type: ignore[operator]
        return self._costs[node]

    # names and fields

    def _ident(self, node: Ident) -> Range:
        variable = self._variable(node.name)
        self._paths[node] = variable.path if variable else (node.name,)
        return ONE

    def _variable(self, name: str) -> _Variable | None:
        stack = self._variables.get(name)
        return stack[-1] if stack else None

    def _select(self, node: Select) -> Range:
        cost = self.cost(node.operand)
        if node.test_only:
            return cost
        self._paths[node] = (*self._path(node.operand), node.field_name)
        counted = self._tree.types[node.operand].kind in (TypeKind.MAP, TypeKind.STRUCT, TypeKind.PARAM)
        return cost + ONE if counted else cost

    def _path(self, node: Node) -> Path:
        if isinstance(node, Ident):
            variable = self._variable(node.name)
            if variable:
                return variable.path
        return self._paths.get(node, ())

    # calls

    def _call(self, node: Call) -> Range:
        if node.function == "dyn" and node.target is None:
            cost = self.cost(node.args[0]) + ONE
            self._copy_sizes(node, node.args[0])
            return cost
        reference = self._tree.references[node]
        operands = self._tree.operands(node)
        costs = [self.cost(operand) for operand in operands]
        known = [self._operand(operand) for operand in operands]
        best: Range | None = None
        size: Range | None = None
        for overload in reference.overloads:
            estimated = rule_of(reference.function, overload, self._tree.environment.costs).estimate(known)
            cost = _with_operands(overload, estimated, costs)
            best = cost if best is None else best | cost
            size = self._result_size(node, overload, estimated, size)
        if size is not None:
            self._sizes[node] = size
        return best or ZERO

    def _operand(self, node: Node) -> Operand:
        path = self._path(node)
        if path and path[0] == ACCUMULATOR:
            path = ()
        literal = node.value if isinstance(node, Literal) else None
        elements = self._declared((*path, "@items")) if path else None
        return Operand(self._tree.types[node], path, self._size(node), literal, elements)

    def _result_size(self, node: Call, overload: str, estimated: CallEstimate, size: Range | None) -> Range | None:
        if estimated.size is not None:
            size = estimated.size if size is None else size | estimated.size
        if overload in ("index_list", "index_map"):
            entries = self._entry_sizes(node.args[0])
            size = entries.value if entries else None
            self._paths[node] = (*self._path(node.args[0]), "@items" if overload == "index_list" else "@values")
        elif overload == "conditional":
            self._unite_entries(node, node.args[1], node.args[2])
        elif overload in ("add_string", "add_bytes", "add_list"):
            self._unite_entries(node, node.args[0], node.args[1])
        return self._size(node) if size is None else size

    def _unite_entries(self, node: Node, first: Node, second: Node) -> None:
        left, right = self._entry_sizes(first), self._entry_sizes(second)
        if left is not None and right is not None:
            self._entries[node] = left | right

    def _copy_sizes(self, node: Node, source: Node) -> None:
        size, entries = self._size(source), self._entry_sizes(source)
        if size is not None:
            self._sizes[node] = size
        if entries is not None:
            self._entries[node] = entries

    # aggregates

    def _list(self, node: ListLiteral) -> Range:
        cost = ZERO
        size = Range(MAX, 0) if node.elements else ZERO
        for element in node.elements:
            cost += self.cost(element)
            size |= self._size_or_unknown(element)
        self._entries[node] = _EntrySizes(TypeKind.LIST, ONE, size)
        return cost + fixed(LIST_CREATE)

    def _map(self, node: MapLiteral) -> Range:
        cost = ZERO
        key = value = Range(MAX, 0) if node.entries else ZERO
        for entry in node.entries:
            cost += self.cost(entry.key) + self.cost(entry.value)
            key |= self._size_or_unknown(entry.key)
            value |= self._size_or_unknown(entry.value)
        self._entries[node] = _EntrySizes(TypeKind.MAP, key, value)
        return cost + fixed(MAP_CREATE)

    def _struct(self, node: StructLiteral) -> Range:
        return sum((self.cost(init.value) for init in node.fields), fixed(STRUCT_CREATE))

    # folds

    def _comprehension(self, node: Comprehension) -> Range:
        cost = self.cost(node.iter_range) + self.cost(node.accu_init)
        self._push(node.accu_var, self._bound(node.accu_init))
        if node.is_bind:
            cost += self.cost(node.result)
            self._copy_sizes(node, node.result)
            self._variables[node.accu_var].pop()
            return cost
        names = self._push_iteration(node)
        loop = self.cost(node.loop_condition) + self.cost(node.loop_step)
        step_entries = self._entry_sizes(node.loop_step)
        for name in names:
            self._variables[name].pop()
        cost += self.cost(node.result)
        self._variables[node.accu_var].pop()
        rounds = self._size_or_unknown(node.iter_range)
        self._size_of_fold(node, rounds, step_entries)
        return cost + rounds * loop

    def _push(self, name: str, variable: _Variable) -> None:
        self._variables.setdefault(name, []).append(variable)

    def _bound(self, node: Node) -> _Variable:
        return _Variable(self._path(node), self._size(node), self._entry_sizes(node))

    def _push_iteration(self, node: Comprehension) -> list[str]:
        entries = self._entry_sizes(node.iter_range)
        kind = entries.kind if entries else self._tree.types[node.iter_range].kind
        path = self._path(node.iter_range)
        key = _Variable((*path, "@indices" if kind is TypeKind.LIST else "@keys"), entries.key if entries else None)
        value = _Variable((*path, "@items" if kind is TypeKind.LIST else "@values"), entries.value if entries else None)
        if node.iter_var2:
            self._push(node.iter_var, key)
            self._push(node.iter_var2, value)
            return [node.iter_var, node.iter_var2]
        self._push(node.iter_var, value if kind is TypeKind.LIST else key)
        return [node.iter_var]

    def _size_of_fold(self, node: Comprehension, rounds: Range, step_entries: _EntrySizes | None) -> None:
        if isinstance(node.accu_init, Literal):
            self._sizes[node] = ONE
        elif isinstance(node.accu_init, ListLiteral | MapLiteral):
            self._sizes[node] = rounds
            if step_entries is not None:
                self._entries[node] = step_entries

    # sizes

    def _size_or_unknown(self, node: Node) -> Range:
        size = self._size(node)
        return UNKNOWN if size is None else size

    def _size(self, node: Node) -> Range | None:
        known = self._sizes.get(node) or _literal_size(node)
        if known is not None:
            return known
        declared = self._declared(self._path(node))
        if declared is not None:
            self._sizes[node] = declared
            return declared
        if is_scalar(self._tree.types[node]):
            return ONE
        variable = self._variable(node.name) if isinstance(node, Ident) else None
        return variable.size if variable else None

    def _declared(self, path: Path) -> Range | None:
        """The size of what lies at a path from a variable, None where nothing is declared of it."""
        greatest = self._tree.environment.greatest_size(path)
        return None if greatest is None else Range(0, greatest)

    def _entry_sizes(self, node: Node) -> _EntrySizes | None:
        if node in self._entries:
            return self._entries[node]
        variable = self._variable(node.name) if isinstance(node, Ident) else None
        return variable.entries if variable else None


def _literal_size(node: Node) -> Range | None:
    if isinstance(node, Literal):
        return fixed(len(node.value)) if isinstance(node.value, str | bytes) else ONE
    if isinstance(node, ListLiteral):
        return fixed(len(node.elements))
    if isinstance(node, MapLiteral):
        return fixed(len(node.entries))
    return None


def is_scalar(type_: CelType) -> bool:
    """True for types whose values all have one size."""
    if is_optional(type_):
        return is_scalar(type_.params[0])
    if type_.kind is TypeKind.PRIMITIVE:
        return type_.name not in ("string", "bytes")
    return type_ in (DURATION, TIMESTAMP)


def _with_operands(overload: str, estimated: CallEstimate, costs: list[Range]) -> Range:
    """The cost of the call with its operands: those of && and || may be skipped, of ?: one branch always is."""
    if overload in ("logical_and", "logical_or"):
        total = sum(costs, ZERO)
        return Range(costs[0].min, total.max)
    if overload == "conditional":
        return costs[0] + (costs[1] | costs[2])
    return sum(costs, estimated.cost)
