"""Reads roles and bindings, as far as the person may list them: five queries for any number of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dashboard.kit import links
from dashboard.people.roles.words import RuleLine, in_short
from manciple.access.kinds import default_roles, roles
from manciple.access.kinds.roles import AnyBinding, AnyRole, ClusterRole, ClusterRoleBinding, Role, RoleBinding, Subject
from manciple.access.rbac import MEMBERS_ROLE
from manciple.people import Person
from manciple.store.objects import listed
from manciple.wire.base import ApiObject, LabelSelector
from manciple.wire.identity import service_account_name
from manciple.wire.registry import Kind
from manciple.wire.selectors import as_label_selector

T = TypeVar("T", bound=ApiObject)
#: ("", name) of a ClusterRole, (namespace, name) of a Role
RoleKey = tuple[str, str]
#: How names begin that belong to the system.
SYSTEM_PREFIX = "system:"
_WORDS = {roles.USER: "user", roles.GROUP_KIND: "group", roles.SERVICE_ACCOUNT: "service account"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleHolder:
    """Somebody to whom a binding gives a role. where: the namespace, "" for everywhere."""

    subject: Subject
    binding: str
    where: str

    @property
    def word(self) -> str:
        return _WORDS.get(self.subject.kind, self.subject.kind)

    @property
    def account_namespace(self) -> str:
        """Of a service account; "" for others."""
        return (self.subject.namespace or self.where) if self.subject.kind == roles.SERVICE_ACCOUNT else ""

    @property
    def binding_url(self) -> str:
        """The binding, as YAML."""
        kind = roles.ROLE_BINDING if self.where else roles.CLUSTER_ROLE_BINDING
        return links.yaml_url(kind.resource, self.where, self.binding)

    @property
    def url(self) -> str:
        """What they may do; "" for groups, which nobody signs in as."""
        if self.subject.kind == roles.USER:
            return links.access_url(self.subject.name)
        if self.account_namespace:
            return links.access_url(service_account_name(self.account_namespace, self.subject.name))
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRole:
    """A role and who has it."""

    role: AnyRole
    holders: Sequence[RoleHolder] = ()

    @property
    def name(self) -> str:
        return self.role.metadata.name

    @property
    def namespace(self) -> str:
        return self.role.metadata.namespace

    @property
    def url(self) -> str:
        return links.role_url(self.name, self.namespace)

    @property
    def is_system(self) -> bool:
        return self.name.startswith(SYSTEM_PREFIX)

    @property
    def is_default(self) -> bool:
        return isinstance(self.role, ClusterRole) and default_roles.is_default(self.role)

    @property
    def is_for_members(self) -> bool:
        """Whether members of a group `namespace:NAME` have it there, without any binding."""
        return not self.namespace and self.name == MEMBERS_ROLE

    @property
    def short(self) -> str:
        return in_short(self.role.rules)

    @property
    def lines(self) -> list[RuleLine]:
        return [RuleLine.of(rule) for rule in self.role.rules]

    @property
    def subjects(self) -> int:
        """How many have it, each counted once wherever they have it."""
        return len({(one.subject.kind, one.account_namespace, one.subject.name) for one in self.holders})

    @property
    def selectors(self) -> list[str]:
        """The labels of the roles whose rules it gathers; empty where it has its own."""
        rule = self.role.aggregation_rule if isinstance(self.role, ClusterRole) else None
        return [_told(one) for one in rule.cluster_role_selectors] if rule else []


def _told(selector: LabelSelector) -> str:
    expressions = (f"{one.key} {one.operator} {' '.join(one.values)}".strip() for one in selector.match_expressions)
    return ", ".join((*(f"{key}={value}" for key, value in selector.match_labels.items()), *expressions))


def read_roles(person: Person) -> list[HeldRole]:
    """Those that `person` may list, ClusterRoles first; of their holders, those that bindings they may list name."""
    holders = _holders(person)
    found: list[AnyRole] = [*_seen(person, roles.CLUSTER_ROLE, _cluster_roles()), *_listed(person, roles.ROLE, Role)]
    return [HeldRole(role=role, holders=holders.get(_key(role), ())) for role in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRole:
    """A role that somebody has by a binding. everywhere: in all namespaces."""

    name: str
    url: str
    everywhere: bool


def roles_of_accounts(person: Person, namespace: str) -> dict[str, list[GivenRole]]:
    """By the name of a service account there: what bindings that `person` may list give to it itself."""
    found: dict[str, list[GivenRole]] = defaultdict(list)
    for (where, name), holders in sorted(_holders(person).items()):
        for one in holders:
            if one.account_namespace == namespace:
                role = GivenRole(name=name, url=links.role_url(name, where), everywhere=not one.where)
                found[one.subject.name].append(role)
    return found


def gathered_from(role: AnyRole, others: Iterable[HeldRole]) -> list[HeldRole]:
    """The ClusterRoles whose rules `role` gathers."""
    rule = role.aggregation_rule if isinstance(role, ClusterRole) else None
    selectors = [as_label_selector(one) for one in rule.cluster_role_selectors] if rule else []
    return [
        other
        for other in others
        if isinstance(other.role, ClusterRole)
        and other.name != role.metadata.name
        and any(one.matches(other.role.metadata.labels) for one in selectors)
    ]


def _key(role: AnyRole) -> RoleKey:
    return role.metadata.namespace, role.metadata.name


def _cluster_roles() -> list[ClusterRole]:
    """With the default roles where the installation has not been started: they hold (`manciple.access.rbac`)."""
    _, stored = listed(roles.CLUSTER_ROLE.resource, ClusterRole)
    return list(stored) if _is_started(stored) else _with(stored, default_roles.gathered())


def _cluster_bindings() -> list[ClusterRoleBinding]:
    """Likewise."""
    _, stored = listed(roles.CLUSTER_ROLE_BINDING.resource, ClusterRoleBinding)
    _, started = listed(roles.CLUSTER_ROLE.resource, ClusterRole)
    return list(stored) if _is_started(started) else _with(stored, default_roles.BINDINGS)


def _is_started(stored: Iterable[ClusterRole]) -> bool:
    return any(map(default_roles.is_default, stored))


def _with(stored: Iterable[T], defaults: Iterable[T]) -> list[T]:
    """By name; what is stored goes before a default of the same name."""
    found = {one.metadata.name: one for one in (*defaults, *stored)}
    return [found[name] for name in sorted(found)]


def _holders(person: Person) -> dict[RoleKey, list[RoleHolder]]:
    bindings: list[AnyBinding] = [
        *_seen(person, roles.CLUSTER_ROLE_BINDING, _cluster_bindings()),
        *_listed(person, roles.ROLE_BINDING, RoleBinding),
    ]
    found: dict[RoleKey, list[RoleHolder]] = defaultdict(list)
    for binding in bindings:
        meta, reference = binding.metadata, binding.role_ref
        key = (meta.namespace if reference.kind == roles.ROLE_KIND else "", reference.name)
        for subject in binding.subjects:
            found[key].append(RoleHolder(subject=subject, binding=meta.name, where=meta.namespace))
    return found


def _listed(person: Person, kind: Kind, type_: type[T]) -> list[T]:
    _, found = listed(kind.resource, type_)
    return _seen(person, kind, found)


def _seen(person: Person, kind: Kind, found: Iterable[T]) -> list[T]:
    """Those in the namespaces where `person` may list them."""
    found = list(found)
    namespaces = {one.metadata.namespace for one in found}
    open_ = {one for one in namespaces if person.may("list", kind.resource, one)}
    return [one for one in found if one.metadata.namespace in open_]
