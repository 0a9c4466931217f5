"""Which names a definition gets: those that nobody in its group has. What becomes of it stands in its status. PURE.

Source: apiextensions-apiserver/pkg/controller/status/naming_controller.go, pkg/controller/apiapproval.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from manciple.extensions.definition_rules import approval_fault, is_protected
from manciple.extensions.definitions import (
    APPROVAL,
    APPROVED,
    ESTABLISHED,
    NAMES_ACCEPTED,
    TERMINATING,
    CustomResourceDefinition,
    CustomResourceDefinitionCondition,
    CustomResourceDefinitionNames,
)


@dataclass(frozen=True, slots=True)
class NamesTaken:
    """Names that others have. resources: in addresses and for kubectl; kinds: of objects and lists."""

    resources: frozenset[str]
    kinds: frozenset[str]

    @classmethod
    def by(cls, others: Iterable[CustomResourceDefinitionNames]) -> NamesTaken:
        resources, kinds = set[str](), set[str]()
        for names in others:
            resources |= {names.plural, names.singular, *names.short_names}
            kinds |= {names.kind, names.list_kind}
        return cls(frozenset(resources - {""}), frozenset(kinds - {""}))


def settled(definition: CustomResourceDefinition, taken: NamesTaken, *, now: str) -> CustomResourceDefinition:
    """The definition with the names that it gets, and what that means. now: RFC 3339 text."""
    accepted, conflict = _accepted(definition, taken)
    names_condition = (
        _condition(NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found")
        if conflict is None
        else _condition(NAMES_ACCEPTED, "False", *conflict)
    )
    found = [names_condition]
    if conflict is None and not definition.holds(ESTABLISHED):
        found.append(_condition(ESTABLISHED, "True", "InitialNamesAccepted", "the initial names have been accepted"))
    elif not definition.holds(ESTABLISHED):
        found.append(_condition(ESTABLISHED, "False", "NotAccepted", "not all names are accepted"))
    if definition.metadata.deletion_timestamp:
        why = "CustomResource deletion is in progress"
        found.append(_condition(TERMINATING, "True", "InstanceDeletionInProgress", why))
    if is_protected(definition.spec.group):
        found.append(_approval(definition))
    conditions = _merged(definition.status.conditions, found, now)
    return replace(definition, status=replace(definition.status, accepted_names=accepted, conditions=conditions))


def _accepted(
    definition: CustomResourceDefinition, taken: NamesTaken
) -> tuple[CustomResourceDefinitionNames, tuple[str, str] | None]:
    """(the names that it has from now on, the last conflict as reason and message)."""
    wanted, own = definition.spec.names, definition.status.accepted_names
    conflict: tuple[str, str] | None = None
    fields: dict[str, object] = {"categories": wanted.categories}
    for attribute, reason, others in (
        ("plural", "PluralConflict", taken.resources),
        ("singular", "SingularConflict", taken.resources),
        ("short_names", "ShortNamesConflict", taken.resources),
        ("kind", "KindConflict", taken.kinds),
        ("list_kind", "ListKindConflict", taken.kinds),
    ):
        wish, has = getattr(wanted, attribute), getattr(own, attribute)
        used = _used(wish, has, others)
        if used:
            shown = [f'"{name}" is already in use' for name in used]
            conflict = (reason, shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]")
        else:
            fields[attribute] = wish
    return replace(own, **fields), conflict


def _used(wish: str | tuple[str, ...], has: str | tuple[str, ...], others: Collection[str]) -> list[str]:
    wanted = (wish,) if isinstance(wish, str) else wish
    own = (has,) if isinstance(has, str) else has
    return [name for name in wanted if name not in own and name in others]


def _approval(definition: CustomResourceDefinition) -> CustomResourceDefinitionCondition:
    given = definition.metadata.annotations.get(APPROVAL)
    if why := approval_fault(given):
        return _condition(APPROVED, "False", "InvalidAnnotation" if given else "MissingAnnotation", why)
    if given and given.startswith("unapproved"):
        return _condition(APPROVED, "False", "UnapprovedAnnotation", f'not approved: "{given}"')
    return _condition(APPROVED, "True", "ApprovedAnnotation", f"approved in {given}")


def _condition(type_: str, status: str, reason: str, message: str) -> CustomResourceDefinitionCondition:
    return CustomResourceDefinitionCondition(type=type_, status=status, reason=reason, message=message)


def _merged(
    old: Iterable[CustomResourceDefinitionCondition], new: Iterable[CustomResourceDefinitionCondition], now: str
) -> tuple[CustomResourceDefinitionCondition, ...]:
    found = {one.type: one for one in old}
    for one in new:
        before = found.get(one.type)
        same = before is not None and before.status == one.status
        since = before.last_transition_time if before is not None and same else now
        found[one.type] = replace(one, last_transition_time=since)
    return tuple(found.values())
