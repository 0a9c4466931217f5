"""Reads what somebody may do, by namespace, and why; and who could allow what they may not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.contrib.auth import get_user_model

from dashboard.kit import links
from dashboard.people.roles.words import RuleLine, in_short
from manciple.access import authorization, rbac
from manciple.access.authorization import Attributes
from manciple.access.kinds.policy_rules import CompiledRules, places_of
from manciple.access.membership import administrators
from manciple.access.people import identity_of_user
from manciple.access.rbac import Grant, Policy
from manciple.wire.identity import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    NODES,
    UNAUTHENTICATED,
    Identity,
    account_of,
    service_account,
)

_NODE_PREFIX = "system:node:"
#: How the sources of grants end that are given to everybody.
_EVERYBODY = tuple(f'to Group "{group}"' for group in (AUTHENTICATED, UNAUTHENTICATED))


def identity_of(name: str, groups: Sequence[str]) -> Identity:
    """Who comes in under `name`, as far as that is known here, with `groups` besides."""
    known = _known(name)
    return Identity(name, tuple(dict.fromkeys((*groups, *known.groups))), extra=known.extra)


def _known(name: str) -> Identity:
    account = account_of(name)
    if account:
        return service_account(*account)
    if name == ANONYMOUS.name:
        return ANONYMOUS
    person = get_user_model()._default_manager.filter(username=name).first()
    if person is not None:
        return identity_of_user(person)
    return Identity(name, (NODES, AUTHENTICATED) if name.startswith(_NODE_PREFIX) else (AUTHENTICATED,))


# What they may do -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGrant:
    """A role that somebody has. source: by which binding. missing: the role does not exist, so it gives nothing."""

    name: str
    namespace: str
    source: str
    short: str
    lines: Sequence[RuleLine]
    missing: bool

    @property
    def is_everybodys(self) -> bool:
        """Whether everybody who signs in has it: it says nothing of this one."""
        return self.source.endswith(_EVERYBODY)

    @property
    def url(self) -> str:
        return links.role_url(self.name, self.namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessScope:
    """What somebody is granted in one namespace, "" for everywhere, beyond what they are granted everywhere."""

    namespace: str
    grants: Sequence[ShownGrant]

    @property
    def own(self) -> list[ShownGrant]:
        return [one for one in self.grants if not one.is_everybodys]

    @property
    def everybodys(self) -> list[ShownGrant]:
        return [one for one in self.grants if one.is_everybodys]


def read_scopes(identity: Identity) -> list[AccessScope]:
    """The namespaces first: what is granted everywhere, to everybody too, says less of this one."""
    held = rbac.policy()
    namespaces = (*sorted(held.namespaces_of(identity)), "")
    found = [_scope(held, namespace, _granted(held, identity, namespace)) for namespace in namespaces]
    return [one for one in found if one.grants]


def _granted(held: Policy, identity: Identity, namespace: str) -> Iterator[Grant]:
    """There, leaving out what is granted everywhere."""
    scopes = (scope for scope in held.scopes_of(identity, namespace) if scope[0] == namespace)
    return (grant for scope in scopes for _, grant in held.granted(scope))


def _scope(held: Policy, namespace: str, grants: Iterable[Grant]) -> AccessScope:
    return AccessScope(namespace=namespace, grants=tuple(_shown(held, one) for one in dict.fromkeys(grants)))


def _shown(held: Policy, grant: Grant) -> ShownGrant:
    namespace, name = grant.role
    rules = held.roles.get(grant.role)
    return ShownGrant(
        name=name,
        namespace=namespace,
        source=grant.source,
        short=in_short(rules.rules) if rules else "",
        lines=tuple(map(RuleLine.of, rules.rules)) if rules else (),
        missing=rules is None,
    )


# Whether they may do one thing ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessAnswer:
    """grant, line: what allows it, where a role does. enough: roles that would allow it; administrators: to ask."""

    allowed: bool
    reason: str
    grant: ShownGrant | None = None
    line: RuleLine | None = None
    enough: Sequence[tuple[str, str]] = ()  # (name, address) of ClusterRoles and of Roles in the namespace
    administrators: Sequence[str] = ()


def answer(identity: Identity, wanted: Attributes) -> AccessAnswer:
    """As the API would be answered by the same authorizers."""
    decision, held = authorization.decide(identity, wanted), rbac.policy()
    if not decision.allowed:
        return AccessAnswer(
            allowed=False, reason=decision.reason, enough=_enough(held, wanted), administrators=administrators()
        )
    grant = None if MASTERS in identity.groups else _allowing(held, identity, wanted)
    if grant is None:
        return AccessAnswer(allowed=True, reason=decision.reason)
    rules = held.roles[grant.role].rules
    line = next(RuleLine.of(rule) for rule in rules if CompiledRules((rule,)).allow(wanted, places_of(wanted)))
    return AccessAnswer(allowed=True, reason=decision.reason, grant=_shown(held, grant), line=line)


def _allowing(held: Policy, identity: Identity, wanted: Attributes) -> Grant | None:
    places = places_of(wanted)
    for namespace in ("",) if wanted.path or not wanted.namespace else ("", wanted.namespace):
        for grant in _granted(held, identity, namespace):
            if grant.role in held.roles and held.roles[grant.role].allow(wanted, places):
                return grant
    return None


def _enough(held: Policy, wanted: Attributes) -> list[tuple[str, str]]:
    """Roles that a binding could give them; those of the system's own parts are meant for nobody else."""
    return [
        (name, links.role_url(name, namespace))
        for (namespace, name), rules in sorted(held.roles.items())
        if namespace in ("", wanted.namespace)
        and not name.startswith("system:")
        and rules.allow(wanted, places_of(wanted))
    ]
