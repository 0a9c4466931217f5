"""Types every node, resolves every name and function, and says in cel-go's words what does not fit.

The result lies beside the tree: the type of each node, and for each call the overloads that its argument types leave
open. One overload left means the call is resolved now; more mean that run-time types decide. `validate` refuses what
type-checks but can never work: literal durations, timestamps and regular expressions are tried, lists and maps must
hold one type, and literal templates of format() must fit their arguments.
Source: cel-go checker/checker.go, cel/validator.go and ext/formatting.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from manciple.cel.conversions import (
    REFUSALS,
    FormatClause,
    TemplateError,
    parts,
    string_to_duration,
    string_to_timestamp,
)
from manciple.cel.errors import CompileFinding, EvaluationError
from manciple.cel.functions import WRAPPERS, Environment, Overload
from manciple.cel.text import compiled
from manciple.cel.tree import (
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
    children,
    narrowed,
    qualified_name,
    walk,
)
from manciple.cel.types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    Bindings,
    CelType,
    TypeKind,
    describe,
    is_dynamic,
    is_optional,
    list_of,
    map_of,
    more_general,
    optional_of,
    type_of_type,
)


@dataclass(frozen=True)
class NameReference:
    """What a call or a qualified name stands for."""

    #: a variable or type name; empty for a call
    name: str = ""
    #: the function's full name (`ip.isCanonical`); empty for a name
    function: str = ""
    #: True when the target of the call is part of the function's name, not a value
    is_namespaced: bool = False
    overloads: tuple[str, ...] = ()


@dataclass
class CheckedTree:
    root: Node
    environment: Environment
    types: dict[Node, CelType] = field(default_factory=dict)
    references: dict[Node, NameReference] = field(default_factory=dict)

    @property
    def output_type(self) -> CelType:
        return self.types[self.root]

    def operands(self, call: Call) -> tuple[Node, ...]:
        """The call's operands that are values: not the target that is part of a function's name."""
        return call.args if self.references[call].is_namespaced else call.operands


def check(root: Node, environment: Environment) -> tuple[CheckedTree, list[CompileFinding]]:
    """Types the tree. Where there are problems the tree is not fit for use."""
    checker = _Checker(environment, CheckedTree(root, environment))
    checker.check(root)
    tree, bindings = checker.tree, checker.bindings
    for node, type_ in tree.types.items():
        tree.types[node] = bindings.resolve(type_, unbound_to_dyn=True)
    return tree, checker.problems


class _Checker:
    def __init__(self, environment: Environment, tree: CheckedTree) -> None:
        self.environment = environment
        self.tree = tree
        self.bindings = Bindings()
        self.problems: list[CompileFinding] = []
        self._scopes: list[dict[str, CelType]] = []
        self._rules: dict[type, Callable[..., CelType]] = {
            Literal: lambda node: node.type,
            Ident: self._ident,
            Select: self._select,
            Call: self._call,
            ListLiteral: self._list,
            MapLiteral: self._map,
            StructLiteral: self._struct,
            Comprehension: self._comprehension,
        }

    def check(self, node: Node) -> CelType:
        if node not in self.tree.types:
            self.tree.types[node] = ERROR
            self.tree.types[node] = self._rules[type(node)](node)
        return self.tree.types[node]

    def _problem(self, node: Node, message: str) -> CelType:
        self.problems.append(CompileFinding(node.offset, message))
        return ERROR

    def _undeclared(self, node: Node, name: str) -> CelType:
        return self._problem(node, f"undeclared reference to '{name}' (in container '')")

    def _mismatch(self, node: Node, expected: CelType, found: CelType) -> None:
        shown = (
            self.bindings.resolve(expected, unbound_to_dyn=False),
            self.bindings.resolve(found, unbound_to_dyn=False),
        )
        self._problem(node, f"expected type '{describe(shown[0])}' but found '{describe(shown[1])}'")

    def _lookup(self, name: str) -> CelType | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        known = self.environment.idents.get(name)
        if known is None and self.environment.is_open(name):
            return type_of_type(CelType(TypeKind.STRUCT, name))
        return known

    def _ident(self, node: Ident) -> CelType:
        type_ = self._lookup(node.name)
        if type_ is None:
            return self._undeclared(node, node.name)
        self.tree.references[node] = NameReference(name=node.name)
        return type_

    # selection

    def _select(self, node: Select) -> CelType:
        name = None if node.test_only else qualified_name(node)
        named = self._lookup(name) if name is not None else None
        if name is not None and named is not None:
            self.tree.references[node] = NameReference(name=name)
            return named
        type_ = self._field(node, node.operand, node.field_name, optional=False)
        return BOOL if node.test_only else self.bindings.resolve(type_, unbound_to_dyn=False)

    def _field(self, node: Node, operand: Node, name: str, *, optional: bool) -> CelType:
        operand_type = self.bindings.resolve(self.check(operand), unbound_to_dyn=False)
        unwrapped = operand_type.params[0] if is_optional(operand_type) else operand_type
        type_ = self._field_of(node, unwrapped, name)
        return optional_of(type_) if optional or is_optional(operand_type) else type_

    def _field_of(self, node: Node, owner: CelType, name: str) -> CelType:
        if owner.kind is TypeKind.MAP:
            return owner.params[1]
        if owner.kind is TypeKind.STRUCT and self.environment.is_open(owner.name):
            return DYN
        if owner.kind is TypeKind.STRUCT:
            fields = self.environment.structs.get(owner.name)
            if fields is None:
                return self._problem(node, f"unexpected failed resolution of '{owner.name}'")
            return fields.get(name) or self._problem(node, f"undefined field '{name}'")
        if owner.kind is TypeKind.PARAM:
            self.bindings.assignable(DYN, owner)
        elif not is_dynamic(owner) and owner.kind is not TypeKind.ERROR:
            self._problem(node, f"type '{describe(owner)}' does not support field selection")
        return DYN

    # calls

    def _call(self, node: Call) -> CelType:
        if node.function == "_?._":
            return self._optional_select(node)
        for arg in node.args:
            self.check(arg)
        if node.target is None:
            overloads = self.environment.functions.get(node.function)
            return self._undeclared(node, node.function) if overloads is None else self._resolve(node, overloads)
        prefix = qualified_name(node.target)
        namespaced = self.environment.functions.get(f"{prefix}.{node.function}") if prefix else None
        if namespaced is not None:
            return self._resolve(node, namespaced, is_namespaced=True)
        self.check(node.target)
        overloads = self.environment.functions.get(node.function)
        return self._undeclared(node, node.function) if overloads is None else self._resolve(node, overloads)

    def _optional_select(self, node: Call) -> CelType:
        operand, name = node.args[0], narrowed(node.args[1], Literal)
        self.check(name)
        type_ = self._field(node, operand, str(name.value), optional=True)
        self.tree.references[node] = NameReference(function=node.function, overloads=("select_optional_field",))
        return self.bindings.resolve(type_, unbound_to_dyn=False)

    def _resolve(self, node: Call, overloads: Sequence[Overload], *, is_namespaced: bool = False) -> CelType:
        is_member = node.target is not None and not is_namespaced
        operands = node.operands if is_member else node.args
        given = [self.tree.types[operand] for operand in operands]
        function = overloads[0].function
        if function in ("_&&_", "_||_"):
            return self._logical(node, operands, given, overloads[0])
        result: CelType | None = None
        fitting: list[str] = []
        for overload in overloads:
            if overload.is_member == is_member:
                type_ = self._fit(overload, given)
                if type_ is not None:
                    fitting.append(overload.id)
                    result = type_ if result is None else _joined_result(result, type_)
        if result is None:
            return self._problem(node, _no_match(function, self._shown(given), is_member=is_member))
        self.tree.references[node] = NameReference(
            function=function, is_namespaced=is_namespaced, overloads=tuple(fitting)
        )
        return result

    def _logical(self, node: Call, operands: Sequence[Node], given: Sequence[CelType], overload: Overload) -> CelType:
        wrong = [
            (operand, type_)
            for operand, type_ in zip(operands, given, strict=True)
            if not self.bindings.assignable(type_, BOOL)
        ]
        for operand, type_ in wrong:
            self._mismatch(operand, BOOL, type_)
        self.tree.references[node] = NameReference(function=node.function, overloads=(overload.id,))
        return ERROR if wrong else BOOL

    def _fit(self, overload: Overload, given: Sequence[CelType]) -> CelType | None:
        """The result type where the overload takes these arguments."""
        renamed = Bindings()
        for parameter in overload.type_params:
            renamed.assignable(self.bindings.fresh(), parameter)
        wanted = [renamed.resolve(type_, unbound_to_dyn=False) for type_ in overload.args]
        result = renamed.resolve(overload.result, unbound_to_dyn=False)
        if not self.bindings.all_assignable(given, wanted):
            return None
        return self.bindings.resolve(result, unbound_to_dyn=False)

    def _shown(self, types: Sequence[CelType]) -> list[str]:
        return [describe(self.bindings.resolve(type_, unbound_to_dyn=True)) for type_ in types]

    # aggregates

    def _join(self, joined: CelType | None, found: CelType) -> CelType:
        """The element type of an aggregate after one more element."""
        if joined is None:
            return found
        if self.bindings.assignable(joined, found):
            return more_general(joined, found)
        return DYN

    def _element(self, node: Node, *, optional: bool) -> CelType:
        type_ = self.check(node)
        if not optional:
            return type_
        resolved = self.bindings.resolve(type_, unbound_to_dyn=False)
        if is_optional(resolved):
            return resolved.params[0]
        if not is_dynamic(resolved):
            self._mismatch(node, optional_of(resolved), resolved)
        return resolved

    def _list(self, node: ListLiteral) -> CelType:
        joined: CelType | None = None
        for index, element in enumerate(node.elements):
            joined = self._join(joined, self._element(element, optional=index in node.optional))
        return list_of(joined or self.bindings.fresh())

    def _map(self, node: MapLiteral) -> CelType:
        key: CelType | None = None
        value: CelType | None = None
        for entry in node.entries:
            key = self._join(key, self.check(entry.key))
            value = self._join(value, self._element(entry.value, optional=entry.optional))
        return map_of(key or self.bindings.fresh(), value or self.bindings.fresh())

    def _struct(self, node: StructLiteral) -> CelType:
        type_ = self._lookup(node.name)
        if type_ is None:
            return self._undeclared(node, node.name)
        if type_.kind is not TypeKind.TYPE:
            return self._problem(node, f"'{node.name}' is not a type")
        made = type_.params[0]
        if made.kind not in (TypeKind.WRAPPER, TypeKind.STRUCT):
            return self._problem(node, f"'{node.name}' is not a message type")
        for init in node.fields:
            self._init(node, init.name, self._element(init.value, optional=init.optional), init.offset)
        self.tree.references[node] = NameReference(name=node.name)
        return made

    def _init(self, node: StructLiteral, name: str, found: CelType, offset: int) -> None:
        wanted = WRAPPERS.get(node.name) if name == "value" else None
        wanted = wanted or self.environment.structs.get(node.name, {}).get(name)
        wanted = wanted or (DYN if self.environment.is_open(node.name) else None)
        if wanted is None:
            self.problems.append(CompileFinding(offset, f"undefined field '{name}'"))
        elif not self.bindings.assignable(wanted, found):
            message = (
                f"expected type of field '{name}' is '{describe(wanted)}' but provided type is '{describe(found)}'"
            )
            self.problems.append(CompileFinding(offset, message))

    # folds

    def _comprehension(self, node: Comprehension) -> CelType:
        self.check(node.iter_range)
        self.check(node.accu_init)
        range_type = self.bindings.resolve(self.tree.types[node.iter_range], unbound_to_dyn=False)
        variables = self._iteration(node, range_type)
        self._scopes.append({node.accu_var: self.tree.types[node.accu_init]})
        self._scopes.append(variables)
        self._expect(node.loop_condition, BOOL)
        self._expect(node.loop_step, self.tree.types[node.accu_init])
        self._scopes.pop()
        result = self.check(node.result)
        self._scopes.pop()
        return self.bindings.resolve(result, unbound_to_dyn=False)

    def _iteration(self, node: Comprehension, range_type: CelType) -> dict[str, CelType]:
        """The types of the iteration variables."""
        names = [node.iter_var, *([node.iter_var2] if node.iter_var2 else [])]
        if range_type.kind is TypeKind.LIST:
            types = [INT, range_type.params[0]] if node.iter_var2 else [range_type.params[0]]
        elif range_type.kind is TypeKind.MAP:
            types = list(range_type.params)
        elif range_type.kind in (TypeKind.DYN, TypeKind.ERROR, TypeKind.PARAM):
            self.bindings.assignable(DYN, range_type)
            self.bindings.assignable(self.tree.types[node.iter_range], DYN)
            types = [DYN, DYN]
        else:
            message = (
                f"expression of type '{describe(range_type)}' cannot be range of a comprehension "
                "(must be list, map, or dynamic)"
            )
            types = [self._problem(node.iter_range, message)] * 2
        return dict(zip(names, types, strict=False))

    def _expect(self, node: Node, wanted: CelType) -> None:
        found = self.check(node)
        if not self.bindings.assignable(found, wanted):
            self._mismatch(node, wanted, found)


def _joined_result(result: CelType, other: CelType) -> CelType:
    return result if is_dynamic(result) or result == other else DYN


def _no_match(function: str, types: Sequence[str], *, is_member: bool) -> str:
    applied = f"{types[0]}.({', '.join(types[1:])})" if is_member else f"({', '.join(types)})"
    return f"found no matching overload for '{function}' applied to '{applied}'"


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


def validate(tree: CheckedTree) -> list[CompileFinding]:
    """The problems of a tree that type-checks."""
    problems: list[CompileFinding] = []
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


def _tried_literal(call: Call) -> Iterator[CompileFinding]:
    trial = _TRIED.get(call.function)
    literal = call.args[0] if call.args else None
    if trial is None or not isinstance(literal, Literal) or not isinstance(literal.value, str):
        return
    try:
        trial(literal.value)
    except EvaluationError:
        yield CompileFinding(literal.offset, f"invalid {call.function} argument")


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


def _mismatch(node: Node, expected: CelType, found: CelType) -> CompileFinding:
    return CompileFinding(node.offset, f"expected type '{describe(expected)}' but found '{describe(found)}'")


def _mixed_list(tree: CheckedTree, node: ListLiteral) -> Iterator[CompileFinding]:
    expected: CelType | None = None
    for index, element in enumerate(node.elements):
        found = _unwrapped(tree.types[element], optional=index in node.optional)
        if expected is None:
            expected = found
        elif expected != found:
            yield _mismatch(element, expected, found)
            return


def _mixed_map(tree: CheckedTree, node: MapLiteral) -> Iterator[CompileFinding]:
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


def _template(tree: CheckedTree, call: Call) -> Iterator[CompileFinding]:
    if call.function != "format" or not isinstance(call.target, Literal) or len(call.args) != 1:
        return
    arguments = call.args[0]
    if not isinstance(arguments, ListLiteral):
        return
    try:
        clauses = [part for part in parts(str(call.target.value)) if isinstance(part, FormatClause)]
    except TemplateError as error:
        yield CompileFinding(call.offset, str(error))
        return
    yield from _arguments(tree, call, clauses, arguments.elements)


def _arguments(
    tree: CheckedTree, call: Call, clauses: list[FormatClause], elements: tuple[Node, ...]
) -> Iterator[CompileFinding]:
    for index, clause in enumerate(clauses):
        if index >= len(elements):
            yield CompileFinding(call.offset, f"index {index} out of range")
            return
        type_ = tree.types[elements[index]]
        if not _shows(clause, type_):
            refusal = f"error during formatting: {REFUSALS[clause.verb]}{type_.name}"
            yield CompileFinding(elements[index].offset, refusal)
            return
    if len(elements) > len(clauses):
        message = f"too many arguments supplied to string.format (expected {len(clauses)}, got {len(elements)})"
        yield CompileFinding(call.offset, message)


def _shows(clause: FormatClause, type_: CelType) -> bool:
    if type_.kind is TypeKind.DYN:
        return True
    return type_.name in _ACCEPTED[clause.verb]
