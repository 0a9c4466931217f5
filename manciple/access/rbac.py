"""RBAC: the authorizer that allows what roles say and bindings give, and the rights that a write needs beyond its
request.

A `View` of the log keeps the roles and bindings compiled: (namespace, subject) -> what is granted there, and each
role's rules as a table. A role that is bound in several places is compiled once. A question looks at what is granted to
the asker and to each of their groups, everywhere and then in the namespace; the answer is remembered until any role or
binding changes. So a decision costs a few microseconds, and reads nothing but memory (`bench/access.py`).

How fresh that is: what this process writes counts from its commit on, what others write as soon as they are heard to
announce it, and `TRUSTED` seconds later at the latest. Readers take no lock: they see the policy as it was before a
change or after it, and what they worked out meanwhile is remembered nowhere that outlives the change.

Where no default role is stored, the installation has not been started yet: then the default roles and bindings hold as
its first start would make them (`manciple.access.bootstrap`).
Sources: plugin/pkg/auth/authorizer/rbac/rbac.go, pkg/registry/rbac/validation/rule.go of Kubernetes 1.36.

**Writers in this process.** The scheduler, the controllers and the pages write past the API's door. Each has an
identity with roles like any other, and a rule of the writer authorizes its writes: a controller without the right gets
the same 403 as a client. Writes that came through the door are authorized already; the installation itself and members
of `system:masters` may do everything.

**Owners.** Only identities that may delete an object may change its owners, because the garbage collector deletes
objects without them. A new object may name any owner: it could have been left uncreated. An owner in another namespace,
or under another name or kind than it has, has no effect (`manciple.store.writer`). Upstream: plugin/pkg/admission/gc
(OwnerReferencesPermissionEnforcement), which is not on by default. Its other half, the right to update the finalizers
of an owner that `blockOwnerDeletion` names, is not checked here either: an owner that is deleted in the foreground
waits for dependents in its own namespace, whose users work together, and a cluster-wide one can be deleted in the
background.

**Escalation.** Nobody grants rights that they lack. A role may hold what its author may do in the same namespace, or
anything if the author may `escalate` it. A binding may grant a role whose rules its author holds, or any role that the
author may `bind`. Aggregating other roles takes every right. These rules see what is current until the commit.
Source: pkg/registry/rbac/{role,clusterrole,rolebinding,clusterrolebinding}/policybased/storage.go,
pkg/registry/rbac/escalation_check.go and pkg/registry/rbac/validation/rule.go of Kubernetes 1.36.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from threading import Lock, local
from typing import Any
from weakref import ReferenceType, ref

from msgspec.structs import replace

from manciple.access import authorization
from manciple.access.authorization import Attributes, Decision, HeldRules, on_object, register_authorizer
from manciple.access.kinds import default_roles, roles
from manciple.access.kinds.policy_rules import (
    ALL,
    CompiledRules,
    Place,
    compiled,
    described,
    names_matter,
    places_of,
    quoted,
    uncovered,
)
from manciple.access.kinds.roles import AnyBinding, ClusterRole, PolicyRule, RoleBinding, RoleRef, Subject
from manciple.per_process import PerProcess
from manciple.store import event_log, hooks, objects
from manciple.store.event_log import Follower, View
from manciple.store.hooks import Write
from manciple.store.records import Change, Written
from manciple.store.writer import Writer
from manciple.wire.base import ApiObject
from manciple.wire.errors import Forbidden, NotFound
from manciple.wire.identity import MASTERS, NAMESPACE_GROUP, Identity, service_account_name
from manciple.wire.limits import LONGEST

ROLES = roles.ROLE.resource
CLUSTER_ROLES = roles.CLUSTER_ROLE.resource
ROLE_BINDINGS = roles.ROLE_BINDING.resource
CLUSTER_ROLE_BINDINGS = roles.CLUSTER_ROLE_BINDING.resource
#: What a decision is made of.
RESOURCES = (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS)

#: What the members of a group `namespace:NAME` may do there.
MEMBERS_ROLE = "edit"

# The policy, compiled -------------------------------------------------------------------------------------------------


#: ("", name) of a ClusterRole, (namespace, name) of a Role
RoleKey = tuple[str, str]
#: ("" or a namespace, "User" or "Group", name): to whom where; a service account is the user that it is to the API
Scope = tuple[str, str, str]

#: Roles of one subject in one scope beyond which they are merged, so that each question is a few look-ups again.
MANY = 16


@dataclass(frozen=True, slots=True)
class Grant:
    """A role, as a binding gives it to somebody. source: the binding, as reasons name it."""

    role: RoleKey
    source: str


class Merged:
    """What many grants allow together, and which of them each is due to."""

    __slots__ = ("_paths", "_resources", "missing", "named")

    def __init__(self, grants: Iterable[Grant], known: Mapping[RoleKey, CompiledRules]) -> None:
        self.missing: list[str] = []
        #: see CompiledRules
        self.named: frozenset[tuple[Place, str]] = frozenset()
        #: place -> (verb, name or None) -> the first grant of it
        self._resources: dict[Place, dict[tuple[str, str | None], Grant]] = {}
        self._paths: list[tuple[CompiledRules, Grant]] = []
        by_role: dict[RoleKey, Grant] = {}
        for grant in grants:
            by_role.setdefault(grant.role, grant)
        for grant in by_role.values():
            rules = known.get(grant.role)
            if rules is None:
                self.missing.append(_missing(grant.role))
            else:
                self._take(rules, grant)

    def _take(self, rules: CompiledRules, grant: Grant) -> None:
        self.named |= rules.named
        if rules.paths:
            self._paths.append((rules, grant))
        for place, verbs in rules.resources.items():
            table = self._resources.setdefault(place, {})
            for verb, names in verbs.items():
                for name in (None,) if names is None else names:
                    table.setdefault((verb, name), grant)

    def find(self, wanted: Attributes, places: Sequence[Place]) -> Grant | None:
        """The grant that allows it."""
        if wanted.path:
            return next((grant for rules, grant in self._paths if rules.allow(wanted, places)), None)
        for place in places:
            table = self._resources.get(place)
            if table is not None:
                for verb in (wanted.verb, ALL):
                    found = table.get((verb, None)) or table.get((verb, wanted.name))
                    if found is not None:
                        return found
        return None


@dataclass(slots=True)
class Policy:
    """All roles and bindings. What readers look up is replaced as a whole, never changed in place."""

    roles: dict[RoleKey, CompiledRules] = field(default_factory=dict)
    #: by the binding's name, in its order
    grants: dict[Scope, tuple[tuple[str, Grant], ...]] = field(default_factory=dict)
    #: (kind, name) of a subject -> where it is granted anything, "" for everywhere
    places: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    #: of those that have many; made when they are first asked for
    merged: dict[Scope, Merged] = field(default_factory=dict)
    #: what was decided since the last change; see `decide`
    decided: dict[tuple[object, ...], Decision | None] = field(default_factory=dict)

    def add(self, binding: AnyBinding) -> None:
        """A subject that a binding names twice is granted it once.

        Whoever administers a namespace may name thousands of subjects in a binding, and the same ones in many bindings.
        """
        name = binding.metadata.name
        for scope, grant in _grants_of(binding).items():
            before, after = self._around(scope, name)
            self.grants[scope] = (*before, (name, grant), *after)
            where, kind, subject = scope
            self.places[kind, subject] = self.places.get((kind, subject), frozenset()) | {where}

    def remove(self, binding: AnyBinding) -> None:
        name = binding.metadata.name
        for scope in _grants_of(binding):
            before, after = self._around(scope, name)
            if before or after:
                self.grants[scope] = (*before, *after)
                continue
            self.grants.pop(scope, None)
            where, kind, subject = scope
            if left := self.places.get((kind, subject), frozenset()) - {where}:
                self.places[kind, subject] = left
            else:
                self.places.pop((kind, subject), None)

    def _around(self, scope: Scope, name: str) -> tuple[tuple[tuple[str, Grant], ...], tuple[tuple[str, Grant], ...]]:
        """What bindings of smaller names grant there, and those of greater ones."""
        bound = self.grants.get(scope, ())
        place = bisect_left(bound, name, key=itemgetter(0))
        return bound[:place], bound[place + (place < len(bound) and bound[place][0] == name) :]

    def scopes_of(self, identity: Identity, namespace: str) -> Iterator[Scope]:
        """Where something is granted to `identity`: everywhere and, where a namespace is given, in it."""
        grants = self.grants
        for where in ("", namespace) if namespace else ("",):
            if (scope := (where, roles.USER, identity.name)) in grants:
                yield scope
            for group in identity.groups:
                if (scope := (where, roles.GROUP_KIND, group)) in grants or _opens(group, where):
                    yield scope

    def granted(self, scope: Scope) -> tuple[tuple[str, Grant], ...]:
        """What is granted there, by the name of the binding; a group `namespace:NAME` needs none."""
        namespace, kind, name = scope
        bound = self.grants.get(scope, ())
        if kind != roles.GROUP_KIND or not _opens(name, namespace):
            return bound
        return (*bound, ("", Grant(("", MEMBERS_ROLE), f'membership of Group "{name}"')))

    def namespaces_of(self, identity: Identity) -> frozenset[str]:
        """Those in which `identity` is granted anything by itself."""
        subjects = ((roles.USER, identity.name), *((roles.GROUP_KIND, group) for group in identity.groups))
        opened = (group.removeprefix(NAMESPACE_GROUP) for group in identity.groups if group.startswith(NAMESPACE_GROUP))
        return frozenset(opened).union(*(self.places.get(subject, ()) for subject in subjects)) - {""}

    def names(self, user: str) -> bool:
        """Whether any binding names this user."""
        return (roles.USER, user) in self.places

    def merge(self, scope: Scope) -> Merged:
        merged = self.merged  # before what is read: a change replaces it after what it changes
        found = merged.get(scope)
        if found is None:
            found = merged[scope] = Merged((grant for _, grant in self.granted(scope)), self.roles)
        return found


def _opens(group: str, namespace: str) -> bool:
    """Whether the members of `group` work in `namespace`, without any binding."""
    return bool(namespace) and group.startswith(NAMESPACE_GROUP) and group.removeprefix(NAMESPACE_GROUP) == namespace


def _grants_of(binding: AnyBinding) -> dict[Scope, Grant]:
    namespace = binding.metadata.namespace
    role = _role_key(binding.role_ref, namespace)
    return {
        (namespace, *subject): Grant(role, _source(binding, named))
        for named in reversed(binding.subjects)
        if (subject := _subject_key(named, namespace)) is not None
    }


def _role_key(reference: RoleRef, namespace: str) -> RoleKey:
    return (namespace if reference.kind == roles.ROLE_KIND else "", reference.name)


def _subject_key(subject: Subject, namespace: str) -> tuple[str, str] | None:
    """A service account without a namespace is one of the binding's."""
    if subject.kind != roles.SERVICE_ACCOUNT:
        return (subject.kind, subject.name)
    where = subject.namespace or namespace
    return (roles.USER, service_account_name(where, subject.name)) if where else None


def _source(binding: AnyBinding, subject: Subject) -> str:
    """A binding, as the reason of a decision names it."""
    meta, reference = binding.metadata, binding.role_ref
    bound, name = roles.CLUSTER_ROLE_BINDING.kind, meta.name
    if isinstance(binding, RoleBinding):
        bound, name = roles.ROLE_BINDING.kind, f"{meta.name}/{meta.namespace}"
    who = subject.name
    if subject.kind == roles.SERVICE_ACCOUNT:
        who = f"{subject.name}/{subject.namespace or meta.namespace}"
    return f'{bound} "{name}" of {reference.kind} "{reference.name}" to {subject.kind} "{who}"'


# Followed -------------------------------------------------------------------------------------------------------------


class PolicyView(View):
    """The stored roles and bindings, or the default ones where those are not stored."""

    resources = RESOURCES

    def __init__(self) -> None:
        self.policy = Policy()
        self._stored: dict[str, dict[tuple[str, str], Any]] = {resource: {} for resource in RESOURCES}
        self._started = False

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        self._stored[resource] = {_key(obj): obj for obj in objects}

    def ready(self) -> None:
        self._started = self._is_started()
        self.policy = self._compiled()

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            known = self._stored[change.resource]
            key, old = _key(change.object), known.get(_key(change.object))
            new = None if change.type == "DELETED" else change.object
            known.pop(key, None) if new is None else known.update({key: new})
            self._replace(change.resource, key, old, new)
        if not self._started or not self._is_started():
            self.ready()
        self.policy.merged = {}
        self.policy.decided = {}  # the last thing: what was worked out meanwhile goes with it

    def cluster_roles(self) -> Sequence[ClusterRole]:
        """All that are stored."""
        return tuple(self._stored[CLUSTER_ROLES].values())

    def _replace(self, resource: str, key: tuple[str, str], old: Any, new: Any) -> None:
        if resource in (ROLES, CLUSTER_ROLES):
            if new is None:
                self.policy.roles.pop(key, None)
            else:
                self.policy.roles[key] = compiled(new.rules)
            return
        if old is not None:
            self.policy.remove(old)
        if new is not None:
            self.policy.add(new)

    def _is_started(self) -> bool:
        return any(default_roles.is_default(role) for role in self._stored[CLUSTER_ROLES].values())

    def _compiled(self) -> Policy:
        policy = Policy()
        if not self._started:
            policy.roles.update({_key(role): compiled(role.rules) for role in default_roles.gathered()})
            for binding in default_roles.BINDINGS:
                policy.add(binding)
        for resource in (CLUSTER_ROLES, ROLES):
            policy.roles.update({key: compiled(role.rules) for key, role in self._stored[resource].items()})
        for resource in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
            for binding in self._stored[resource].values():
                policy.add(binding)
        return policy


def _key(obj: ApiObject) -> tuple[str, str]:
    return (obj.metadata.namespace, obj.metadata.name)


FOLLOWER = Follower(PolicyView)

#: Seconds for which the announcements are trusted to tell that nothing has changed.
TRUSTED = 1.0


@dataclass(slots=True)
class _Known:
    """What this process knows. needed: the newest revision at which it wrote a role or binding itself."""

    policy: Policy | None = None
    revision: int = 0
    looked: float = 0.0
    needed: int = 0

    def is_fresh(self) -> bool:
        return (
            self.revision >= self.needed
            and time.monotonic() - self.looked < TRUSTED
            and self.revision >= event_log.newest(RESOURCES)
        )


_known = PerProcess(_Known)
_guard = Lock()


class _Asked(local):
    """writer: of the transaction in which this thread has found the policy fresh last."""

    writer: ReferenceType[Writer] | None = None


_asked = _Asked()


def _is_fresh(known: _Known) -> bool:
    """Once in a transaction that suffices: while it has the lock, nobody else writes a role."""
    writer = objects.current()
    if writer is None:
        return known.is_fresh()
    if _asked.writer is not None and _asked.writer() is writer:
        return known.revision >= known.needed
    if fresh := known.is_fresh():
        _asked.writer = ref(writer)
    return fresh


def policy(*, newest: bool = False) -> Policy:
    """The policy that holds. newest: as of this moment, whoever wrote last (one query)."""
    known = _known.value
    found = known.policy
    if found is not None and not newest and _is_fresh(known):
        return found
    looked = time.monotonic()
    with FOLLOWER.view() as view:
        known.policy, known.revision, known.looked = view.policy, view.revision, looked
        return view.policy


def expect(revision: int) -> None:
    """A role or binding was written at `revision`: what is decided from now on heeds it."""
    with _guard:
        known = _known.value
        known.needed = max(known.needed, revision)


def _note(changes: Sequence[Change]) -> None:
    """A projector: told in the transaction, before anybody else can see what it wrote."""
    expect(max(int(change.object.metadata.resource_version) for change in changes))


def register() -> None:
    register_authorizer("rbac", authorize, resolve=known_rules)
    for resource in RESOURCES:
        hooks.register_projector(resource, _note, clear=lambda: None)
    hooks.register_rule(check_writer, operations={"CREATE", "UPDATE", "DELETE"})
    written: set[hooks.Operation] = {"CREATE", "UPDATE"}
    hooks.register_rule(check_role, operations=written, resources={ROLES, CLUSTER_ROLES})
    hooks.register_rule(check_binding, operations=written, resources={ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS})


# Questions ------------------------------------------------------------------------------------------------------------


#: Decisions that are remembered; beyond it, memory starts afresh.
REMEMBERED = 20_000


def authorize(identity: Identity, wanted: Attributes) -> Decision:
    """The authorizer."""
    return decide(policy(), identity, wanted)


def decide(held: Policy, identity: Identity, wanted: Attributes) -> Decision:
    """Names are left out of what is remembered where no role of the asker speaks of any for such a request.

    Where one does, None stands there, and the decisions stand beside it, each with its name.
    """
    decided = held.decided
    key = (
        identity.name,
        identity.groups,
        wanted.verb,
        wanted.group,
        wanted.resource,
        wanted.subresource,
        wanted.namespace,
        wanted.path,
    )
    found = decided.get(key)
    if found is not None:
        return found
    named = (*key, wanted.name)
    if key in decided and (found := decided.get(named)) is not None:
        return found
    decision, by_name = _decide(held, identity, wanted)
    if sum(map(len, key[2:])) + len(wanted.name) > LONGEST:  # access reviews may ask for any text
        return decision
    if len(decided) >= REMEMBERED:
        decided.clear()
    decided[key] = None if by_name else decision
    if by_name:
        decided[named] = decision
    return decision


def _decide(held: Policy, identity: Identity, wanted: Attributes) -> tuple[Decision, bool]:
    """The decision, and whether another name might have changed it."""
    missing: list[str] = []
    by_name = False
    places = places_of(wanted)
    for scope in held.scopes_of(identity, "" if wanted.path else wanted.namespace):
        found, named = _find(held, scope, wanted, places, missing)
        by_name = by_name or named
        if found is not None:
            return Decision(True, f"RBAC: allowed by {found.source}"), by_name
    return Decision(False, f"RBAC: {_together(missing)}" if missing else ""), by_name


def _find(
    held: Policy, scope: Scope, wanted: Attributes, places: Sequence[Place], missing: list[str]
) -> tuple[Grant | None, bool]:
    """The grant that allows it, and whether names matter. Roles that do not exist are added to `missing`."""
    grants = held.granted(scope)
    if len(grants) > MANY:
        merged = held.merge(scope)
        missing.extend(merged.missing)
        return merged.find(wanted, places), names_matter(merged.named, wanted, places)
    by_name = False
    for _, grant in grants:
        rules = held.roles.get(grant.role)
        if rules is None:
            missing.append(_missing(grant.role))
            continue
        by_name = by_name or names_matter(rules.named, wanted, places)
        if rules.allow(wanted, places):
            return grant, by_name
    return None, by_name


def known_rules(identity: Identity, namespace: str, *, newest: bool = False) -> HeldRules:
    """All that `identity` is allowed in `namespace` ("": at the cluster's scope). newest: see `policy`."""
    held = policy(newest=newest)
    found: list[PolicyRule] = []
    missing: list[str] = []
    granted = (grant.role for scope in held.scopes_of(identity, namespace) for _, grant in held.granted(scope))
    for role in dict.fromkeys(granted):  # a thousand bindings may give the same one
        compiled = held.roles.get(role)
        if compiled is None:
            missing.append(_missing(role))
        else:
            found.extend(compiled.rules)
    return HeldRules(tuple(found), incomplete=bool(missing), error=_together(missing) if missing else "")


def _missing(role: RoleKey) -> str:
    """As upstream's listers say it: in the singular."""
    namespace, name = role
    return f'{"role" if namespace else "clusterrole"}.{roles.GROUP} "{name}" not found'


def _together(errors: Sequence[str]) -> str:
    """As upstream tells of several errors at once."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


# Rights of writers in this process ------------------------------------------------------------------------------------


#: The verbs of requests that would do the same; any of them suffices.
_VERBS = {"CREATE": ("create",), "UPDATE": ("update", "patch"), "DELETE": ("delete",)}
#: Of the API's pods/NAME/binding, which creates a Binding.
_BINDING = "binding"


def check_writer(_writer: Writer, write: Write) -> None:
    """Raises: Forbidden."""
    identity = write.identity
    if identity.admitted or MASTERS in identity.groups:
        return
    verbs = ("create",) if write.subresource == _BINDING else _VERBS[write.operation]
    if not any(authorization.decide(identity, _wanted_by(verb, write)).allowed for verb in verbs):
        authorization.demand(identity, _wanted_by(verbs[0], write))


def _wanted_by(verb: str, write: Write) -> Attributes:
    """What the write wants, in the words of a request that would do the same."""
    meta = (write.new or write.old).metadata
    return on_object(verb, write.kind, namespace=meta.namespace, name=meta.name, subresource=write.subresource)


# Owners ---------------------------------------------------------------------------------------------------------------


def check_owners(write: Write) -> None:
    """Refuse a change of owners by a client that may not delete the object. Raises: Forbidden."""
    if write.operation != "UPDATE" or write.new.metadata.owner_references == write.old.metadata.owner_references:
        return
    kind, meta = write.kind, write.old.metadata
    wanted = on_object("delete", kind, namespace=meta.namespace, name=meta.name, subresource=write.subresource)
    decision = authorization.decide(write.identity, wanted)
    if not decision.allowed:
        because = f": {decision.reason}" if decision.reason else ""
        why = f"cannot set an ownerRef on a resource you can't delete{because}"
        raise Forbidden.of(kind.resource, meta.name, why)


# Escalation -----------------------------------------------------------------------------------------------------------


_EVERYTHING = (
    PolicyRule(verbs=("*",), api_groups=("*",), resources=("*",)),
    PolicyRule(verbs=("*",), non_resource_urls=("*",)),
)


def check_role(_writer: Writer, write: Write) -> None:
    """Raises: Forbidden."""
    role = write.new
    if _is_exempt(write) or _may_escalate(write):
        return
    _check_held(write, role.rules)
    gathering = any(isinstance(one, ClusterRole) and one.aggregation_rule for one in (role, write.old))
    if gathering and uncovered(_held(write).rules, _EVERYTHING):
        raise _refused(write, "must have cluster-admin privileges to use the aggregationRule")


def check_binding(writer: Writer, write: Write) -> None:
    """Raises: Forbidden; NotFound for a role that does not exist, whose rules nobody can hold."""
    binding: AnyBinding = write.new
    if _is_exempt(write) or _may_bind(write.identity, binding.role_ref, binding.metadata.namespace):
        return
    _check_held(write, _rules_of(writer, write, binding.role_ref))


def _is_exempt(write: Write) -> bool:
    """Whether the author has every right, or changes nothing but what the garbage collector does."""
    if MASTERS in write.identity.groups:
        return True
    return write.old is not None and _without_links(write.new) == _without_links(write.old)


def _without_links(obj: Any) -> Any:
    meta = replace(obj.metadata, owner_references=(), finalizers=(), managed_fields=(), resource_version="")
    return replace(obj, metadata=meta)


def _may_escalate(write: Write) -> bool:
    meta = write.new.metadata
    wanted = Attributes(
        verb="escalate",
        group=roles.GROUP,
        version="*",
        resource=write.kind.plural,
        namespace=meta.namespace,
        name="" if write.operation == "CREATE" else meta.name,  # upstream: as the request's path names it
    )
    return authorization.decide(write.identity, wanted).allowed


def _may_bind(identity: Identity, role: RoleRef, namespace: str) -> bool:
    kind = roles.ROLE if role.kind == roles.ROLE_KIND else roles.CLUSTER_ROLE
    wanted = Attributes(
        verb="bind", group=roles.GROUP, version="*", resource=kind.plural, namespace=namespace, name=role.name
    )
    return authorization.decide(identity, wanted).allowed


def _rules_of(writer: Writer, write: Write, role: RoleRef) -> Sequence[PolicyRule]:
    kind, namespace = roles.CLUSTER_ROLE, ""
    if role.kind == roles.ROLE_KIND:
        kind, namespace = roles.ROLE, write.new.metadata.namespace
    found: Any = writer.get(kind, namespace, role.name)
    if found is None:
        raise NotFound.of(write.kind.resource, role.name)
    rules: Sequence[PolicyRule] = found.rules
    return rules


def _held(write: Write) -> HeldRules:
    return known_rules(write.identity, write.new.metadata.namespace, newest=True)


def _check_held(write: Write, wanted: Sequence[PolicyRule]) -> None:
    held = _held(write)
    missing = uncovered(held.rules, wanted)
    if not missing:
        return
    who = f"user {json.dumps(write.identity.name)} (groups={quoted(write.identity.groups)})"
    told = "\n".join(described(missing))
    unresolved = f"; resolution errors: [{held.error}]" if held.error else ""
    raise _refused(write, f"{who} is attempting to grant RBAC permissions not currently held:\n{told}{unresolved}")


def _refused(write: Write, why: str) -> Forbidden:
    kind, name = write.kind, write.new.metadata.name
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return Forbidden(f'{kind.resource} "{name}" is forbidden: {why}', details=details)
