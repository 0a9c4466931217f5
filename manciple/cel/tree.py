"""The syntax tree of an expression, after macros are expanded.

Nodes compare and hash by identity, so that the checker and the cost estimator keep what they know beside the tree in
plain dicts. A macro may use one operand in two places: the tree is then a directed graph without cycles, and whoever
walks it remembers where it has been. `depth` is kept at construction, so that no later walk can exhaust the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from manciple.cel.types import CelType

#: Deeper nesting is refused; cel-go's parser has the same limit.
MAX_DEPTH = 250


class TooDeep(Exception):  # named after the event
    """An expression nests deeper than MAX_DEPTH."""


@dataclass(eq=False, slots=True)
class _Node:
    offset: int
    depth: int = field(init=False, default=1)

    def __post_init__(self) -> None:
        self.depth = 1 + max((child.depth for child in children(self)), default=0)
        if self.depth > MAX_DEPTH:
            raise TooDeep


@dataclass(eq=False, slots=True)
class Literal(_Node):
    """A constant: a native value and its type."""

    value: object
    type: CelType


@dataclass(eq=False, slots=True)
class Ident(_Node):
    name: str


@dataclass(eq=False, slots=True)
class Select(_Node):
    """`operand.field`, or has(operand.field) when `test_only`."""

    operand: Node
    field_name: str
    test_only: bool = False


@dataclass(eq=False, slots=True)
class Call(_Node):
    """A function, operator or method call. Chains of && and || are one call with many arguments."""

    function: str
    target: Node | None
    args: tuple[Node, ...]

    @property
    def operands(self) -> tuple[Node, ...]:
        """Target and arguments, in the order in which they are evaluated."""
        return self.args if self.target is None else (self.target, *self.args)


@dataclass(eq=False, slots=True)
class ListLiteral(_Node):
    """`[a, ?b]`: the positions in `optional` leave the element out when it has no value."""

    elements: tuple[Node, ...]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Entry:
    key: Node
    value: Node
    optional: bool = False


@dataclass(eq=False, slots=True)
class MapLiteral(_Node):
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class FieldInit:
    name: str
    value: Node
    offset: int
    optional: bool = False


@dataclass(eq=False, slots=True)
class StructLiteral(_Node):
    """`google.protobuf.Int32Value{value: 1}`."""

    name: str
    fields: tuple[FieldInit, ...]


@dataclass(eq=False, slots=True)
class Comprehension(_Node):
    """A fold: what all(), map(), cel.bind() and their kin expand to. `macro` is the one it came from."""

    macro: str
    iter_range: Node
    iter_var: str
    iter_var2: str
    accu_var: str
    accu_init: Node
    loop_condition: Node
    loop_step: Node
    result: Node

    @property
    def is_bind(self) -> bool:
        """A fold over nothing, used to name a value."""
        return (
            isinstance(self.iter_range, ListLiteral) and not self.iter_range.elements and self.accu_var != ACCUMULATOR
        )


Node: TypeAlias = Literal | Ident | Select | Call | ListLiteral | MapLiteral | StructLiteral | Comprehension

#: The accumulator of macros. No user can write this name.
ACCUMULATOR = "@result"


_N = TypeVar("_N")


def narrowed(node: object, kind: type[_N]) -> _N:
    """The node as what the grammar or a macro has made it. Raises: TypeError where it is not, which is our fault."""
    if not isinstance(node, kind):
        raise TypeError(f"expected {kind.__name__}, found {type(node).__name__}")
    return node


def extends_accumulator(node: Call) -> bool:
    """True for the call by which a macro appends to its accumulator, or counts."""
    return (
        bool(node.args)
        and isinstance(node.args[0], Ident)
        and node.args[0].name == ACCUMULATOR
        and (node.function in ("_+_", "cel.@mapInsert"))
    )


def children(node: _Node) -> tuple[Node, ...]:
    """The operands of a node, in the order of their text."""
    read = _CHILDREN.get(type(node))
    return read(node) if read is not None else ()


_CHILDREN: Mapping[type, Callable[..., tuple[Node, ...]]] = {
    Select: lambda node: (node.operand,),
    Call: lambda node: node.operands,
    ListLiteral: lambda node: node.elements,
    MapLiteral: lambda node: tuple(part for entry in node.entries for part in (entry.key, entry.value)),
    StructLiteral: lambda node: tuple(init.value for init in node.fields),
    Comprehension: lambda node: (node.iter_range, node.accu_init, node.loop_condition, node.loop_step, node.result),
}


def walk(root: Node) -> list[Node]:
    """Every node once, parents before their children."""
    seen: dict[Node, None] = {}
    pending = [root]
    while pending:
        node = pending.pop()
        if node not in seen:
            seen[node] = None
            pending.extend(reversed(children(node)))
    return list(seen)


def qualified_name(node: Node) -> str | None:
    """`a.b.c` when the node is nothing but a chain of names."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test_only:
        parts.append(node.field_name)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(parts)])
