"""What blocks the deletion of a namespace, as its status says it.

Source: pkg/controller/namespace/deletion/status_condition_utils.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from manciple.wire.machinery import NamespaceCondition
from manciple.wire.registry import Kind

CONTENT_FAILURE = "NamespaceDeletionContentFailure"
CONTENT_REMAINING = "NamespaceContentRemaining"
FINALIZERS_REMAINING = "NamespaceFinalizersRemaining"

#: type -> (reason, message) where nothing is wrong, in the order in which they are reported.
_FINE = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    CONTENT_FAILURE: ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    CONTENT_REMAINING: ("ContentRemoved", "All content successfully removed"),
    FINALIZERS_REMAINING: ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
#: Resources, finalizers or failures that a message names. Upstream names all: with tens of thousands of finalizers the
#: status is too large to be written.
MOST_NAMED = 50


@dataclass(slots=True)
class Remaining:
    """What is left in a namespace. failures: why objects could not be deleted."""

    by_resource: Counter[str] = field(default_factory=Counter)
    by_finalizer: Counter[str] = field(default_factory=Counter)
    failures: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.by_resource or self.failures)

    def add(self, kind: Kind, number: int, finalizers: Iterable[Sequence[str]]) -> None:
        """The objects of one kind. finalizers: of each of those that were read."""
        if number:
            self.by_resource[f"{kind.plural}.{kind.group}"] += number  # the dot stays without a group, as upstream
        for names in finalizers:
            self.by_finalizer.update(set(names))


def conditions(
    known: tuple[NamespaceCondition, ...], remaining: Remaining, *, deleting: bool, now: str
) -> tuple[NamespaceCondition, ...]:
    """The conditions of a terminating namespace; those that stay the same keep their time.

    known: those it has now. deleting: whether its content is being deleted already; until then only what remains is
    reported, because nothing has failed or succeeded yet.
    """
    blocking = _blocking(remaining)
    before = {one.type: one for one in known}
    reported = dict(before)
    for name, fine in _FINE.items():
        if not (deleting or name in blocking or name in before):
            continue
        status, (reason, message) = ("True", blocking[name]) if name in blocking else ("False", fine)
        old = before.get(name)
        since = old.last_transition_time if old is not None and old.status == status else now
        reported[name] = structs.replace(
            old or NamespaceCondition(type=name),
            status=status,
            reason=reason,
            message=message,
            last_transition_time=since,
        )
    return tuple(reported.values())


def _blocking(remaining: Remaining) -> dict[str, tuple[str, str]]:
    """type -> (reason, message) of what holds the namespace."""
    found = {}
    if remaining.failures:
        message = f"Failed to delete all resource types, {len(remaining.failures)} remaining: "
        found[CONTENT_FAILURE] = ("ContentDeletionFailed", message + _listed(remaining.failures))
    if remaining.by_resource:
        counted = (f"{name} has {count} resource instances" for name, count in remaining.by_resource.items())
        found[CONTENT_REMAINING] = ("SomeResourcesRemain", f"Some resources are remaining: {_listed(counted)}")
    if remaining.by_finalizer:
        counted = (f"{name} in {count} resource instances" for name, count in remaining.by_finalizer.items())
        message = f"Some content in the namespace has finalizers remaining: {_listed(counted)}"
        found[FINALIZERS_REMAINING] = ("SomeFinalizersRemain", message)
    return found


def _listed(parts: Iterable[str]) -> str:
    every = sorted(parts)
    rest = len(every) - MOST_NAMED
    return ", ".join((*every[:MOST_NAMED], *([f"and {rest} more"] if rest > 0 else [])))
