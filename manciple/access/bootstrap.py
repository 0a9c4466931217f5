"""The default roles and bindings: made at the first start, and brought up to date at every later one.

What a later version of ours adds to a default role, or a subject to a default binding, is added at its start; what an
administrator added stays, and what they took away comes back, as upstream. Where the object's annotation
`rbac.authorization.kubernetes.io/autoupdate` says "false" it is left alone. A binding whose role an administrator
changed (by making it anew) is left alone as well.
Source: component-helpers/auth/rbac/reconciliation and pkg/registry/rbac/rest/storage_rbac.go of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from manciple.access import aggregation
from manciple.access.kinds import default_roles, roles
from manciple.access.kinds.policy_rules import uncovered
from manciple.access.kinds.role_parts import AUTO_UPDATE
from manciple.access.kinds.roles import AnyBinding, ClusterRole, ClusterRoleBinding, RoleBinding, RoleRef, Subject
from manciple.store import objects
from manciple.wire.base import ApiObject, ObjectMeta
from manciple.wire.identity import SYSTEM
from manciple.wire.registry import Kind


def ensure_roles() -> None:
    """Make the default roles and bindings that are missing, and complete the others."""
    wanted = ((roles.CLUSTER_ROLE, default_roles.gathered()), (roles.CLUSTER_ROLE_BINDING, default_roles.BINDINGS))
    reads = objects.to_read(*((kind, [("", one.metadata.name) for one in defaults]) for kind, defaults in wanted))
    with objects.writing(identity=SYSTEM, reads=reads) as writer:
        for kind, defaults in wanted:
            for default in defaults:
                _ensure(writer, kind, default)
        aggregation.gather(writer)


def _ensure(writer: objects.Writer, kind: Kind, default: ApiObject) -> None:
    current: Any = writer.get(kind, "", default.metadata.name)
    if current is None:
        writer.create(kind, default)
    elif current.metadata.annotations.get(AUTO_UPDATE) != "false":
        writer.update(kind, _labelled(_completed(current, default), default))


def _completed(current: Any, default: Any) -> Any:
    return (
        _completed_role(current, default) if isinstance(current, ClusterRole) else _completed_binding(current, default)
    )


def _completed_role(current: ClusterRole, default: ClusterRole) -> ClusterRole:
    if default.aggregation_rule is not None:  # what it gathers is the controller's business
        return replace(current, aggregation_rule=current.aggregation_rule or default.aggregation_rule)
    missing = uncovered(current.rules, default.rules)
    return replace(current, rules=(*current.rules, *missing)) if missing else current


def _completed_binding(current: AnyBinding, default: AnyBinding) -> AnyBinding:
    if current.role_ref != default.role_ref:
        return current
    missing = tuple(subject for subject in default.subjects if subject not in current.subjects)
    return replace(current, subjects=(*current.subjects, *missing))


def _labelled(current: Any, default: Any) -> Any:
    """With the default's labels and annotations, where it has none of its own under these keys."""
    meta, wanted = current.metadata, default.metadata
    labels, annotations = {**wanted.labels, **meta.labels}, {**wanted.annotations, **meta.annotations}
    return replace(current, metadata=replace(meta, labels=labels, annotations=annotations))


# For one user ---------------------------------------------------------------------------------------------------------


def let_edit(user: str, namespace: str) -> None:
    """Bind `user` to what an ordinary user may do: edit in a namespace, and look at the inventory."""
    subject = Subject(kind=roles.USER, api_group=roles.GROUP, name=user)
    in_namespace, everywhere = roles.ROLE_BINDING, roles.CLUSTER_ROLE_BINDING
    edits = RoleBinding(
        api_version=in_namespace.api_version,
        kind=in_namespace.kind,
        metadata=ObjectMeta(name=f"{user}-edits", namespace=namespace),
        subjects=(subject,),
        role_ref=_cluster_role("edit"),
    )
    views = ClusterRoleBinding(
        api_version=everywhere.api_version,
        kind=everywhere.kind,
        metadata=ObjectMeta(name=f"{user}-views-inventory"),
        subjects=(subject,),
        role_ref=_cluster_role(default_roles.INVENTORY_VIEWER),
    )
    with objects.writing(identity=SYSTEM) as writer:
        for kind, binding in ((in_namespace, edits), (everywhere, views)):
            if writer.get(kind, binding.metadata.namespace, binding.metadata.name) is None:
                writer.create(kind, binding)


def _cluster_role(name: str) -> RoleRef:
    return RoleRef(api_group=roles.GROUP, kind=roles.CLUSTER_ROLE_KIND, name=name)
