"""Makes a checked tree into one Python function over plain values: the fast evaluator, which counts nothing.

It serves expressions whose greatest cost is far below the limit. Errors are Python exceptions here; where operands of
&& and || may absorb them, the generated code catches them operand by operand. What is known from types is used: two
texts are compared by `==`, an attribute is two subscripts of the device's maps, and only where the checker leaves a
type open does the code ask for it.

    device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].memory >= 16

becomes, with k1 to k4 for the constants,

    while True:
        if not (device.driver == k1): t1 = False; break
        try:
            if not ((v := device.attributes[k2][k3]) >= k4 if v.__class__ is int else greater_equal(v, k4)): ...

An expression is "inline" when it can be written as a Python expression; what needs statements (&&, ||, ?:, folds,
bindings) leaves its value in a fresh variable. Operands stay in order: before statements are written, inline operands
to their left are put into variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from manciple.cel import codegen, functions
from manciple.cel.checker import CheckedTree
from manciple.cel.codegen import COMPARISONS, FunctionWriter, TooLong, comparison, is_comparable
from manciple.cel.costs import AMPLIFYING
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
    extends_accumulator,
    narrowed,
    walk,
)
from manciple.cel.types import STRING, CelType, TypeKind
from manciple.cel.values import TypeValue
from scheduling.cel.device import FIELDS, DeviceView

#: Longer inline expressions are cut by variables; Python's parser limits how deep parentheses nest.
INLINE_DEPTH = 12
_STATEMENTS = frozenset(("_&&_", "_||_", "_?_:_", "or", "orValue"))
_BOOL_CALLS = frozenset(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "!_", "@in", "_&&_", "_||_"))
_BOOL_MACROS = frozenset(("all", "exists", "exists_one", "existsOne"))


class TreeFacts:
    """Facts of one tree, worked out when they are asked for."""

    def __init__(self, tree: CheckedTree) -> None:
        self._tree = tree
        self._inline: dict[Node, bool] = {}
        folds = [node for node in walk(tree.root) if isinstance(node, Comprehension)]
        self._device_is_hidden = any("device" in (fold.iter_var, fold.iter_var2, fold.accu_var) for fold in folds)

    def is_inline(self, node: Node) -> bool:
        """True when the node can be written as a Python expression."""
        if node not in self._inline:
            self._inline[node] = self._decide_inline(node)
        return self._inline[node]

    def _decide_inline(self, node: Node) -> bool:
        if isinstance(node, Comprehension) or node.depth % INLINE_DEPTH == 0:
            return False
        if isinstance(node, Call) and node.function in _STATEMENTS:
            return False
        parts = self._tree.operands(node) if isinstance(node, Call) else children(node)
        return all(map(self.is_inline, parts))

    def is_device(self, node: Node) -> bool:
        return isinstance(node, Ident) and node.name == "device" and not self._device_is_hidden

    def map_level(self, node: Node) -> int | None:
        """0 for device.attributes and device.capacity, 1 for a map of one domain, None for all else."""
        if isinstance(node, Select) and not node.test_only:
            if self.is_device(node.operand) and node.field_name in ("attributes", "capacity"):
                return 0
            return 1 if self.map_level(node.operand) == 0 else None
        if isinstance(node, Call) and node.function == "_[_]" and self.map_level(node.args[0]) == 0:
            return 1 if self._tree.types[node.args[1]] == STRING else None
        return None

    def may_amplify(self) -> bool:
        """True when a call may build far more than it costs."""
        return any(isinstance(node, Call) and self._amplifies(node) for node in walk(self._tree.root))

    def _amplifies(self, node: Call) -> bool:
        reference = self._tree.references[node]
        if node.function == "_+_":
            return "add_list" in reference.overloads and not extends_accumulator(node)
        return reference.function in AMPLIFYING


def is_exact(type_: CelType) -> bool:
    """True when a value of this static type has it at run time too, in full."""
    if type_.kind in (TypeKind.DYN, TypeKind.ANY, TypeKind.PARAM):
        return False
    return all(map(is_exact, type_.params))


def gives_bool(node: Node) -> bool:
    """True when the value is a Python bool for sure."""
    if isinstance(node, Call):
        return node.function in _BOOL_CALLS and node.target is None
    if isinstance(node, Comprehension):
        return node.macro in _BOOL_MACROS
    return isinstance(node, Select) and node.test_only


_DEVICE = "device"


def compile_tree(tree: CheckedTree) -> Callable[[DeviceView], Any] | None:
    """The function of the expression, which raises EvaluationError.

    None where its code would be too long, or where a call may build far more than it costs, which only the counting
    evaluator watches.
    """
    facts = TreeFacts(tree)
    if facts.may_amplify():
        return None
    compiler = _Compiler(tree, facts)
    try:
        name = compiler.writer.function([_DEVICE], lambda: compiler.emit(tree.root))
    except TooLong:
        return None
    return compiler.writer.build(name)


class _Compiler:
    def __init__(self, tree: CheckedTree, facts: TreeFacts) -> None:
        self._tree = tree
        self._facts = facts
        self.writer = FunctionWriter(dict(codegen.NAMES))
        #: a variable of the expression -> its Python name and whether it may hold an error
        self._variables: dict[str, tuple[str, bool]] = {}
        self._rules: dict[type, Callable[..., str]] = {
            Literal: lambda node: self.writer.constant(node.value),
            Ident: lambda node: self._name(node, node.name),
            Select: self._select,
            Call: self._call,
            ListLiteral: self._list,
            MapLiteral: self._map,
            StructLiteral: self._struct,
            Comprehension: self._comprehension,
        }

    def emit(self, node: Node) -> str:
        """Writes the statements that `node` needs and gives a Python expression for its value, to be used once."""
        if self.writer.is_deep and not self._facts.is_inline(node):
            return self._outlined(node)
        text = self._rules[type(node)](node)
        if node.depth % INLINE_DEPTH == 0 and not text.isidentifier():
            return self._kept(text)
        return text

    def _kept(self, text: str) -> str:
        """A variable that holds the value."""
        name = self.writer.fresh()
        self.writer.line(f"{name} = {text}")
        return name

    def _outlined(self, node: Node) -> str:
        parameters = [_DEVICE, *dict.fromkeys(name for name, _ in self._variables.values())]
        rule = self._rules[type(node)]
        function = self.writer.function(parameters, lambda: rule(node))
        return f"{function}({', '.join(parameters)})"

    def _operands(self, node: Call) -> tuple[Node, ...]:
        return self._tree.operands(node)

    def _all(self, nodes: Sequence[Node]) -> list[str]:
        """The operands in order: those before one that needs statements are kept in variables."""
        texts: list[str] = []
        for node in nodes:
            if not self._facts.is_inline(node):
                texts = [text if text.isidentifier() else self._kept(text) for text in texts]
            texts.append(self.emit(node))
        return texts

    # names and paths

    def _name(self, node: Node, name: str) -> str:
        if name in self._variables:
            variable, may_fail = self._variables[name]
            return f"forced({variable})" if may_fail else variable
        type_ = self._tree.types[node]
        if type_.kind is TypeKind.TYPE:
            return self.writer.constant(TypeValue(type_.params[0]))
        return _DEVICE

    def _select(self, node: Select) -> str:
        reference = self._tree.references.get(node)
        if reference is not None:
            return self._name(node, reference.name)
        level = self._facts.map_level(node.operand)
        operand = self.emit(node.operand)
        key = self.writer.constant(node.field_name)
        if node.test_only:
            return f"({key} in {operand})" if level == 1 else f"is_present({operand}, {key})"
        if self._facts.is_device(node.operand):
            return f"{_DEVICE}.{FIELDS[node.field_name]}"
        return f"{operand}[{key}]" if level is not None else f"lookup({operand}, {key})"

    # calls

    def _call(self, node: Call) -> str:
        special = _SPECIAL.get(node.function)
        if special is not None:
            return special(self, node)
        reference = self._tree.references[node]
        function = reference.function
        operands = self._operands(node)
        if self._is_in_nothing(node, operands):
            return "False"
        shortcut = self._shortcut(function, operands)
        if shortcut is not None:
            return shortcut
        exact = all(is_exact(self._tree.types[operand]) for operand in operands)
        bound = functions.bind(self._tree.environment, function, reference.overloads, exact=exact)
        return f"{self.writer.constant(bound)}({', '.join(self._all(operands))})"

    def _is_in_nothing(self, node: Call, operands: tuple[Node, ...]) -> bool:
        """`x in []`, which is false before x is looked at, as in cel-go (interpreter/decorators.go)."""
        if self._tree.references[node].overloads != ("in_list",):
            return False
        return isinstance(operands[1], ListLiteral) and not operands[1].elements

    def _shortcut(self, function: str, operands: tuple[Node, ...]) -> str | None:
        """Python's own operator, where types allow it."""
        if function == "!_" and gives_bool(operands[0]):
            return f"(not {self.emit(operands[0])})"
        if function not in COMPARISONS:
            return None
        left, right = (self._tree.types[operand] for operand in operands)
        literal = isinstance(operands[1], Literal)
        if not is_comparable(function, left, right, literal=literal):
            return None
        texts = self._all(operands)
        return comparison(function, left, right, texts, literal=literal, name=self.writer.fresh("v"))

    def index(self, node: Call) -> str:
        level = self._facts.map_level(node.args[0])
        container, key = self._all(node.args)
        if level is not None and self._tree.types[node.args[1]] == STRING:
            return f"{container}[{key}]"
        return f"lookup({container}, {key})"

    def optional_index(self, node: Call) -> str:
        container, key = self._all(node.args)
        return f"lookup_optional({container}, {key})"

    def not_strictly_false(self, node: Call) -> str:
        return f"({self.emit(node.args[0])} is not False)"

    # what needs statements

    def logical(self, node: Call, *, decisive: bool) -> str:
        """Operand by operand; one that fails is remembered in case a later one decides."""
        writer = self.writer
        result, failure = writer.fresh(), writer.fresh("e")
        writer.line(f"{failure} = None")
        with writer.block("while True"):
            for operand in node.args:
                self._logical_operand(operand, result, failure, decisive=decisive)
            with writer.block(f"if {failure} is not None"):
                writer.line(f"raise {failure}")
            writer.line(f"{result} = {not decisive}")
            writer.line("break")
        return result

    def _logical_operand(self, operand: Node, result: str, failure: str, *, decisive: bool) -> None:
        writer = self.writer
        caught = writer.fresh("x")
        with writer.block("try"):
            value = self._finish(operand) if not gives_bool(operand) else self.emit(operand)
            test = value if decisive else f"not {value}"
            with writer.block(f"if {test}" if gives_bool(operand) else f"if {value} is {decisive}"):
                writer.line(f"{result} = {decisive}")
                writer.line("break")
            if not gives_bool(operand):
                with writer.block(f"if {value} is not {not decisive}"):
                    writer.line("raise no_such_overload()")
        with writer.block(f"except EvaluationError as {caught}"):
            writer.line(f"{failure} = first_failure({failure}, {caught})")

    def conditional(self, node: Call) -> str:
        writer = self.writer
        condition = self.emit(node.args[0])
        kept = condition if condition.isidentifier() else self._kept(condition)
        result = writer.fresh()
        for branch, head in zip(node.args[1:], (f"if {kept} is True", f"elif {kept} is False"), strict=True):
            with writer.block(head):
                writer.line(f"{result} = {self.emit(branch)}")
        with writer.block("else"):
            writer.line("raise no_such_overload()")
        return result

    def alternative(self, node: Call, *, unwrap: bool) -> str:
        """or() and orValue(): the other one is evaluated only when it is needed."""
        writer = self.writer
        target = self.emit(node.operands[0])
        maybe, result = self._kept(f"demand_optional({target})"), writer.fresh()
        with writer.block(f"if {maybe}.present"):
            writer.line(f"{result} = {maybe}{'.value' if unwrap else ''}")
        with writer.block("else"):
            writer.line(f"{result} = {self.emit(node.args[0])}")
        return result

    # aggregates

    def _list(self, node: ListLiteral) -> str:
        texts = self._all(node.elements)
        if not node.optional:
            return f"[{', '.join(texts)}]"
        marked = [f"({text}, {position in node.optional})" for position, text in enumerate(texts)]
        return f"build_list(({', '.join(marked)},))"

    def _map(self, node: MapLiteral) -> str:
        texts = self._all([part for entry in node.entries for part in (entry.key, entry.value)])
        marked = [
            f"({key}, {value}, {entry.optional})"
            for key, value, entry in zip(texts[::2], texts[1::2], node.entries, strict=True)
        ]
        return f"build_map([{', '.join(marked)}])"

    def _struct(self, node: StructLiteral) -> str:
        texts = self._all([init.value for init in node.fields])
        zero = self.writer.constant(codegen.zero_of(node.name))
        marked = [f"({text}, {init.optional})" for text, init in zip(texts, node.fields, strict=True)]
        return f"build_wrapper({zero}, [{', '.join(marked)}])"

    # folds

    def _comprehension(self, node: Comprehension) -> str:
        if node.is_bind:
            return self._bind(node)
        return _FOLDS[node.macro](self, node)

    def _bind(self, node: Comprehension) -> str:
        """The value is worked out at once; if it fails, whoever uses it fails."""
        writer = self.writer
        variable, caught = writer.fresh("b"), writer.fresh("x")
        with writer.block("try"):
            writer.line(f"{variable} = {self.emit(node.accu_init)}")
        with writer.block(f"except EvaluationError as {caught}"):
            writer.line(f"{variable} = {caught}")
        return self._scoped({node.accu_var: (variable, True)}, lambda: self._finish(node.result))

    def _finish(self, node: Node) -> str:
        """As emit(), into a variable, because the scope of the value ends here."""
        text = self.emit(node)
        return text if text.isidentifier() else self._kept(text)

    def _scoped(self, variables: dict[str, tuple[str, bool]], body: Callable[[], str]) -> str:
        outer = self._variables
        self._variables = {**outer, **variables}
        try:
            return body()
        finally:
            self._variables = outer

    def fold(self, node: Comprehension, init: str, body: Callable[[str], None]) -> str:
        """`result = init`, then `body(result)` for every element."""
        writer = self.writer
        names = {name: (writer.fresh("v"), False) for name in (node.iter_var, node.iter_var2) if name}
        variables = [variable for variable, _ in names.values()]
        source = self._kept(f"rounds({self.emit(node.iter_range)}, {len(variables)})")
        result = writer.fresh()
        writer.line(f"{result} = {init}")

        def loop() -> str:
            with writer.block(f"for {', '.join(variables)}{',' if len(variables) == 1 else ''} in {source}"):
                body(result)
            return result

        return self._scoped(names, loop)

    def quantified(self, node: Comprehension, *, decisive: bool) -> str:
        """all() and exists(): stops where an element decides; a failure counts only when none does."""
        writer = self.writer
        predicate = narrowed(node.loop_step, Call).args[-1]
        failure = writer.fresh("e")
        writer.line(f"{failure} = None")

        def body(result: str) -> None:
            self._logical_operand(predicate, result, failure, decisive=decisive)

        result = self.fold(node, str(not decisive), body)
        with writer.block(f"if {failure} is not None and {result} is {not decisive}"):
            writer.line(f"raise {failure}")
        return result

    def _step(self, node: Comprehension) -> tuple[Node | None, Call]:
        """(the predicate where there is one, the call that extends the accumulator)."""
        step = narrowed(node.loop_step, Call)
        if step.function != "_?_:_":
            return None, step
        return step.args[0], narrowed(step.args[1], Call)

    def collected(self, node: Comprehension, init: str, extend: Callable[[str, Call], None]) -> str:
        """Folds that extend an accumulator, in rounds where a predicate holds."""
        predicate, extension = self._step(node)
        writer = self.writer

        def body(result: str) -> None:
            if predicate is not None:
                condition = self._finish(predicate)
                with writer.block(f"if {condition} is False"):
                    writer.line("continue")
                with writer.block(f"if {condition} is not True"):
                    writer.line("raise no_such_overload()")
            extend(result, extension)

        return self.fold(node, init, body)

    def append(self, result: str, extension: Call) -> None:
        appended = narrowed(extension.args[1], ListLiteral)
        self.writer.line(f"{result}.append({self.emit(appended.elements[0])})")

    def insert(self, result: str, extension: Call) -> None:
        texts = self._all(extension.args[1:])
        self.writer.line(f"insert({result}, {', '.join(texts)})")

    def count(self, result: str, _extension: Call) -> None:
        self.writer.line(f"{result} += 1")

    def counted_one(self, node: Comprehension) -> str:
        return f"({self.collected(node, '0', self.count)} == 1)"


_SPECIAL: dict[str, Callable[[_Compiler, Call], str]] = {
    "_&&_": lambda compiler, node: compiler.logical(node, decisive=False),
    "_||_": lambda compiler, node: compiler.logical(node, decisive=True),
    "_?_:_": lambda compiler, node: compiler.conditional(node),
    "_[_]": lambda compiler, node: compiler.index(node),
    "_[?_]": lambda compiler, node: compiler.optional_index(node),
    "_?._": lambda compiler, node: compiler.optional_index(node),
    "@not_strictly_false": lambda compiler, node: compiler.not_strictly_false(node),
    "or": lambda compiler, node: compiler.alternative(node, unwrap=False),
    "orValue": lambda compiler, node: compiler.alternative(node, unwrap=True),
}
_FOLDS: dict[str, Callable[[_Compiler, Comprehension], str]] = {
    "all": lambda compiler, node: compiler.quantified(node, decisive=False),
    "exists": lambda compiler, node: compiler.quantified(node, decisive=True),
    **dict.fromkeys(("exists_one", "existsOne"), lambda compiler, node: compiler.counted_one(node)),
    **dict.fromkeys(
        ("map", "filter", "transformList"), lambda compiler, node: compiler.collected(node, "[]", compiler.append)
    ),
    **dict.fromkeys(
        ("transformMap", "transformMapEntry"),
        lambda compiler, node: compiler.collected(node, "CelMap()", compiler.insert),
    ),
}
