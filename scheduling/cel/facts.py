"""What the compiler knows of a checked tree before it writes code for it."""

from __future__ import annotations

from scheduling.cel.checker import CheckedTree
from scheduling.cel.steps import AMPLIFYING
from scheduling.cel.tree import Call, Comprehension, Ident, Node, Select, children, extends_accumulator, walk
from scheduling.cel.types import STRING, CelType, Kind

#: Longer inline expressions are cut by variables; Python's parser limits how deep parentheses nest.
INLINE_DEPTH = 12
_STATEMENTS = frozenset(("_&&_", "_||_", "_?_:_", "or", "orValue"))
_BOOL_CALLS = frozenset(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "!_", "@in", "_&&_", "_||_"))
_BOOL_MACROS = frozenset(("all", "exists", "exists_one", "existsOne"))


class Facts:
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
    if type_.kind in (Kind.DYN, Kind.ANY, Kind.PARAM):
        return False
    return all(map(is_exact, type_.params))


def gives_bool(node: Node) -> bool:
    """True when the value is a Python bool for sure."""
    if isinstance(node, Call):
        return node.function in _BOOL_CALLS and node.target is None
    if isinstance(node, Comprehension):
        return node.macro in _BOOL_MACROS
    return isinstance(node, Select) and node.test_only
