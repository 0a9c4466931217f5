"""rbac.authorization.k8s.io/v1: Role, ClusterRole, RoleBinding and ClusterRoleBinding, as the API server serves them.

Sources: k8s.io/api/rbac/v1; pkg/apis/rbac/v1/defaults.go, pkg/apis/rbac/validation/validation.go and
pkg/printers/internalversion/printers.go (printRole, printRoleBinding) of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec.structs import replace

from manciple.wire.base import ApiObject, LabelSelector, Value, always, pb
from manciple.wire.errors import OMITTED, invalid, not_supported, required
from manciple.wire.registry import Column, Kind
from manciple.wire.selectors import validate_label_selector
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    Errors,
    Path,
    check_object_name,
    check_path_segment,
    each,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
)

GROUP, VERSION = "rbac.authorization.k8s.io", "v1"
PACKAGE = "io.k8s.api.rbac.v1"

#: Whom a binding may name.
USER, GROUP_KIND, SERVICE_ACCOUNT = "User", "Group", "ServiceAccount"
ROLE_KIND, CLUSTER_ROLE_KIND = "Role", "ClusterRole"

#: Combinations of verb, API group, resource and resource name, or of verb and path, that one role may list. Each is
#: compared with what the role's author holds, while no other write is made, and each process keeps a table of them.
#: Upstream has no limit; the largest default role lists 229.
MOST_PARTS = 10_000

# Types ----------------------------------------------------------------------------------------------------------------


class PolicyRule(Value):
    """Verbs that are allowed: on resources of API groups, or on paths that are no resource. "*" stands for all.

    api_groups: "" is the core group. resources: "pods", or "pods/status" for what is below an object; "*/status" for
    that of all. resource_names: of single objects; none means all. non_resource_urls: paths, which may end in "*".

    verbs: such as get, list or *.
    """

    verbs: Annotated[tuple[str, ...], pb(1)] = always(())
    api_groups: Annotated[tuple[str, ...], pb(2)] = ()
    resources: Annotated[tuple[str, ...], pb(3)] = ()
    resource_names: Annotated[tuple[str, ...], pb(4)] = ()
    non_resource_urls: Annotated[tuple[str, ...], pb(5)] = msgspec.field(default=(), name="nonResourceURLs")


class Role(ApiObject):
    """What may be done in one namespace. Namespaced."""

    rules: Annotated[tuple[PolicyRule, ...], pb(2)] = always(())


class AggregationRule(Value):
    """Which ClusterRoles give their rules. cluster_role_selectors: one of them must select the ClusterRole."""

    cluster_role_selectors: Annotated[tuple[LabelSelector, ...], pb(1)] = ()


class ClusterRole(ApiObject):
    """Permissions in the whole cluster, or in namespaces where a RoleBinding grants them. Cluster scoped.

    aggregation_rule: the rules are gathered from other ClusterRoles, and written by a controller.
    """

    rules: Annotated[tuple[PolicyRule, ...], pb(2)] = always(())
    aggregation_rule: Annotated[AggregationRule | None, pb(3)] = None


class Subject(Value):
    """Somebody that a binding names. kind: User, Group or ServiceAccount. namespace: of a ServiceAccount.

    api_group: empty for a ServiceAccount, rbac.authorization.k8s.io for users and groups. name: the name of the user,
    group or account.
    """

    ATOMIC: ClassVar = True

    kind: Annotated[str, pb(1)] = always("")
    api_group: Annotated[str, pb(2)] = ""
    name: Annotated[str, pb(3)] = always("")
    namespace: Annotated[str, pb(4)] = ""


class RoleRef(Value):
    """The role that a binding gives; it cannot be changed. kind: Role (of the same namespace) or ClusterRole.

    api_group: rbac.authorization.k8s.io. name: the name of the role.
    """

    ATOMIC: ClassVar = True

    api_group: Annotated[str, pb(1)] = always("")
    kind: Annotated[str, pb(2)] = always("")
    name: Annotated[str, pb(3)] = always("")


class RoleBinding(ApiObject):
    """Grants the permissions of a role, in one namespace. Namespaced."""

    subjects: Annotated[tuple[Subject, ...], pb(2)] = ()
    role_ref: Annotated[RoleRef, pb(3)] = always(RoleRef())


class ClusterRoleBinding(ApiObject):
    """Grants the permissions of a ClusterRole, in the whole cluster. Cluster scoped."""

    subjects: Annotated[tuple[Subject, ...], pb(2)] = ()
    role_ref: Annotated[RoleRef, pb(3)] = always(RoleRef())


AnyRole = Role | ClusterRole
AnyBinding = RoleBinding | ClusterRoleBinding
BindingT = TypeVar("BindingT", RoleBinding, ClusterRoleBinding)

# Defaults -------------------------------------------------------------------------------------------------------------


def prepare_binding(new: BindingT) -> BindingT:
    """The API group of the role, and that of users and groups, where the client left them out."""
    role_ref = replace(new.role_ref, api_group=new.role_ref.api_group or GROUP)
    return replace(new, role_ref=role_ref, subjects=tuple(map(_defaulted, new.subjects)))


def _defaulted(subject: Subject) -> Subject:
    if subject.api_group or subject.kind not in (USER, GROUP_KIND):
        return subject
    return replace(subject, api_group=GROUP)


# Rules ----------------------------------------------------------------------------------------------------------------


def validate_role(role: AnyRole) -> Errors:
    namespaced = isinstance(role, Role)
    return validate_object_meta(role.metadata, namespaced=namespaced, name_rule=check_path_segment) + _validate_rules(
        role
    )


def validate_role_update(new: AnyRole, old: AnyRole) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata) + _validate_rules(new)


def _validate_rules(role: AnyRole) -> Errors:
    namespaced = isinstance(role, Role)
    gathers = isinstance(role, ClusterRole) and role.aggregation_rule is not None
    if not gathers and (parts := parts_of(role.rules)) > MOST_PARTS:
        message = f"must list at most {MOST_PARTS} combinations of verb, group, resource and name, not {parts}"
        return [invalid("rules", OMITTED, message)]
    found = validate_list(role.rules, Path("rules"), lambda rule, at: _validate_rule(rule, at, namespaced=namespaced))
    return found if isinstance(role, Role) else found + _validate_aggregation(role.aggregation_rule)


def parts_of(rules: Sequence[PolicyRule]) -> int:
    """How many combinations the rules list."""
    return sum(
        len(rule.verbs)
        * (len(rule.api_groups) * len(rule.resources) * max(1, len(rule.resource_names)) + len(rule.non_resource_urls))
        for rule in rules
    )


def _validate_rule(rule: PolicyRule, path: Path, *, namespaced: bool) -> Errors:
    found: Errors = []
    if not rule.verbs:
        found.append(required(path.child("verbs"), "verbs must contain at least one value"))
    if rule.non_resource_urls:
        return found + _validate_urls(rule, path.child("nonResourceURLs"), namespaced=namespaced)
    if not rule.api_groups:
        found.append(required(path.child("apiGroups"), "resource rules must supply at least one api group"))
    if not rule.resources:
        found.append(required(path.child("resources"), "resource rules must supply at least one resource"))
    return found


def _validate_urls(rule: PolicyRule, path: Path, *, namespaced: bool) -> Errors:
    found: Errors = []
    if namespaced:
        found.append(invalid(path, rule.non_resource_urls, "namespaced rules cannot apply to non-resource URLs"))
    if rule.api_groups or rule.resources or rule.resource_names:
        message = "rules cannot apply to both regular resources and non-resource URLs"
        found.append(invalid(path, rule.non_resource_urls, message))
    return found


def _validate_aggregation(rule: AggregationRule | None) -> Errors:
    if rule is None:
        return []
    path = Path("aggregationRule").child("clusterRoleSelectors")
    if not rule.cluster_role_selectors:
        return [required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")]
    return validate_list(rule.cluster_role_selectors, path, validate_label_selector)


def validate_binding(binding: AnyBinding) -> Errors:
    namespaced = isinstance(binding, RoleBinding)
    found = validate_object_meta(binding.metadata, namespaced=namespaced, name_rule=check_path_segment)
    return found + _validate_bound(binding)


def validate_binding_update(new: AnyBinding, old: AnyBinding) -> Errors:
    found = _validate_bound(new) + validate_object_meta_update(new.metadata, old.metadata)
    if new.role_ref != old.role_ref:
        found.append(invalid("roleRef", new.role_ref, "cannot change roleRef"))
    return found


def _validate_bound(binding: AnyBinding) -> Errors:
    namespaced = isinstance(binding, RoleBinding)
    return _validate_role_ref(binding.role_ref, namespaced=namespaced) + validate_list(
        binding.subjects, Path("subjects"), lambda subject, at: _validate_subject(subject, at, namespaced=namespaced)
    )


def _validate_role_ref(reference: RoleRef, *, namespaced: bool) -> Errors:
    path = Path("roleRef")
    kinds = (ROLE_KIND, CLUSTER_ROLE_KIND) if namespaced else (CLUSTER_ROLE_KIND,)
    found: Errors = []
    if reference.api_group != GROUP:
        found.append(not_supported(path.child("apiGroup"), reference.api_group, (GROUP,)))
    if reference.kind not in kinds:
        found.append(not_supported(path.child("kind"), reference.kind, kinds))
    if not reference.name:
        found.append(required(path.child("name")))
    return found + each(check_path_segment(reference.name), path.child("name"), reference.name)


def _validate_subject(subject: Subject, path: Path, *, namespaced: bool) -> Errors:
    found = [] if subject.name else [required(path.child("name"))]
    if subject.kind == SERVICE_ACCOUNT:
        return found + _validate_account(subject, path, namespaced=namespaced)
    if subject.kind not in (USER, GROUP_KIND):
        found.append(not_supported(path.child("kind"), subject.kind, (SERVICE_ACCOUNT, USER, GROUP_KIND)))
    elif subject.api_group != GROUP:
        found.append(not_supported(path.child("apiGroup"), subject.api_group, (GROUP,)))
    return found


def _validate_account(subject: Subject, path: Path, *, namespaced: bool) -> Errors:
    found = each(check_object_name(subject.name), path.child("name"), subject.name) if subject.name else []
    if subject.api_group:
        found.append(not_supported(path.child("apiGroup"), subject.api_group, ("",)))
    if not namespaced and not subject.namespace:
        found.append(required(path.child("namespace")))
    return found


# Columns --------------------------------------------------------------------------------------------------------------


_CREATED_COLUMN = Column(
    name="Created At",
    type="date",
    description="When it was created",
    cell=lambda role, _now: role.metadata.creation_timestamp or "",
)


def _subjects(kind: str, binding: AnyBinding) -> str:
    return ", ".join(
        f"{subject.namespace}/{subject.name}" if kind == SERVICE_ACCOUNT else subject.name
        for subject in binding.subjects
        if subject.kind == kind
    )


_BINDING_COLUMNS = (
    NAME_COLUMN,
    Column(
        name="Role",
        description="The role that is granted",
        cell=lambda binding, _now: f"{binding.role_ref.kind}/{binding.role_ref.name}",
    ),
    AGE_COLUMN,
    Column(name="Users", priority=1, cell=lambda binding, _now: _subjects(USER, binding)),
    Column(name="Groups", priority=1, cell=lambda binding, _now: _subjects(GROUP_KIND, binding)),
    Column(name="ServiceAccounts", priority=1, cell=lambda binding, _now: _subjects(SERVICE_ACCOUNT, binding)),
)

# Kinds ----------------------------------------------------------------------------------------------------------------


def _role_kind(type_: type[AnyRole], *, namespaced: bool, description: str) -> Kind:
    name = type_.__name__
    return Kind(
        group=GROUP,
        version=VERSION,
        kind=name,
        plural=f"{name.lower()}s",
        namespaced=namespaced,
        type=type_,
        validate_create=validate_role,
        validate_update=validate_role_update,
        columns=(NAME_COLUMN, _CREATED_COLUMN),
        description=description,
    )


def _binding_kind(type_: type[AnyBinding], *, namespaced: bool, description: str) -> Kind:
    def prepare_update(new: Any, _old: Any) -> Any:
        return prepare_binding(new)

    name = type_.__name__
    return Kind(
        group=GROUP,
        version=VERSION,
        kind=name,
        plural=f"{name.lower()}s",
        namespaced=namespaced,
        type=type_,
        prepare_create=prepare_binding,
        prepare_update=prepare_update,
        validate_create=validate_binding,
        validate_update=validate_binding_update,
        columns=_BINDING_COLUMNS,
        description=description,
    )


ROLE = _role_kind(Role, namespaced=True, description="Permissions in one namespace.")
CLUSTER_ROLE = _role_kind(
    ClusterRole,
    namespaced=False,
    description="Permissions in the whole cluster, or in namespaces where a RoleBinding grants them.",
)
ROLE_BINDING = _binding_kind(
    RoleBinding, namespaced=True, description="Grants the permissions of a role, in one namespace."
)
CLUSTER_ROLE_BINDING = _binding_kind(
    ClusterRoleBinding, namespaced=False, description="Grants the permissions of a ClusterRole, in the whole cluster."
)

KINDS: tuple[Kind, ...] = (CLUSTER_ROLE_BINDING, CLUSTER_ROLE, ROLE_BINDING, ROLE)
