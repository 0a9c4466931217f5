"""The rules of writing: the second stage of admission, inside the writer's transaction.

A rule is asked for every creation, update and deletion, whoever writes and by whatever path (REST, pages, controllers,
scheduler), just before the write is taken up. It is told who writes. The transaction holds the store's lock, so what a
rule reads through the writer is current and stays so until the commit: it can count and charge without a race. It may
itself write; when the write that it was asked for is undone, so is that. It refuses by raising an ApiError.

Checks that are slow, or that need nothing but the object, belong before the transaction
(`manciple.api.verbs.register_check`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from manciple.wire.identity import Identity
from manciple.wire.registry import Kind

if TYPE_CHECKING:  # the writer asks the rules
    from manciple.store.writer import Writer

Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write, about to be done. `new` is None on DELETE, `old` on CREATE; `subresource` is "" for the object."""

    operation: Operation
    kind: Kind
    new: Any = None
    old: Any = None
    subresource: str = ""
    identity: Identity
    dry_run: bool = False


Rule = Callable[["Writer", Write], None]


@dataclass(frozen=True, slots=True)
class _Registered:
    rule: Rule
    operations: frozenset[Operation]
    resources: frozenset[str] | None  # None: of every kind


_registered: list[_Registered] = []
#: (operation, resource) -> the rules that are asked; filled as it is needed
_concerned: dict[tuple[Operation, str], tuple[Rule, ...]] = {}


def register(rule: Rule, *, operations: Collection[Operation], resources: Collection[str] | None = None) -> None:
    """Ask `rule` before these writes from now on, after those registered before it; again replaces what was said."""
    unregister(rule)
    _registered.append(_Registered(rule, frozenset(operations), None if resources is None else frozenset(resources)))


def unregister(rule: Rule) -> None:
    _registered[:] = [known for known in _registered if known.rule is not rule]
    _concerned.clear()


def check(writer: Writer, write: Write) -> None:
    """Raises: ApiError, from the first rule that refuses."""
    for rule in concerned(write.operation, write.kind.resource):
        rule(writer, write)


def concerned(operation: Operation, resource: str) -> tuple[Rule, ...]:
    """The rules that are asked before such a write."""
    key = (operation, resource)
    found = _concerned.get(key)
    if found is None:
        found = _concerned[key] = tuple(
            known.rule
            for known in _registered
            if operation in known.operations and (known.resources is None or resource in known.resources)
        )
    return found
