"""What a write needs beyond the right to the request: rights of writers in this process, of new owners, of granted
roles.

**Writers in this process.** The scheduler, the controllers and the pages write past the API's door. Each has an
identity with roles like any other, and a rule of the writer authorizes what it writes: a controller without the right
gets the same 403 as a client. Writes that came through the door are authorized already; the installation itself and
members of `system:masters` may do everything.

**Owners.** Only whoever may delete an object may change its owners, because the garbage collector deletes what has lost
them. A new object may name any owner: it could have been left uncreated. An owner in another namespace, or under
another name or kind than it has, has no effect (`manciple.store.sql`). Upstream: plugin/pkg/admission/gc
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
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from manciple.access import authorization, rbac
from manciple.access.authorization import Attributes, HeldRules, on_object
from manciple.access.kinds import roles
from manciple.access.kinds.policy_rules import described, quoted, uncovered
from manciple.access.kinds.roles import AnyBinding, ClusterRole, PolicyRule, RoleRef
from manciple.store import hooks
from manciple.store.hooks import Write
from manciple.store.writer import Writer
from manciple.wire.errors import Forbidden, NotFound
from manciple.wire.identity import MASTERS, Identity

# Rights of writers in this process ------------------------------------------------------------------------------------


#: The verbs of requests that would do the same; any of them suffices.
_VERBS = {"CREATE": ("create",), "UPDATE": ("update", "patch"), "DELETE": ("delete",)}
#: Of the API's pods/NAME/binding, which creates a Binding.
_BINDING = "binding"


def register() -> None:
    hooks.register_rule(check_writer, operations={"CREATE", "UPDATE", "DELETE"})
    written: set[hooks.Operation] = {"CREATE", "UPDATE"}
    hooks.register_rule(check_role, operations=written, resources={rbac.ROLES, rbac.CLUSTER_ROLES})
    hooks.register_rule(check_binding, operations=written, resources={rbac.ROLE_BINDINGS, rbac.CLUSTER_ROLE_BINDINGS})


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
    return rbac.known_rules(write.identity, write.new.metadata.namespace, newest=True)


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
