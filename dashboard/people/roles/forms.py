"""A new role, and whom a role is given to, as they are typed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError

from dashboard.kit.forms import PageForm, code_input
from dashboard.people.access.forms import find_kind
from dashboard.people.roles.words import READING, WRITING
from manciple.access.kinds import roles
from manciple.access.kinds.roles import (
    AnyBinding,
    AnyRole,
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    Role,
    RoleBinding,
    RoleRef,
    Subject,
)
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import ApiError

#: what a rule allows -> its verbs
VERBS = {"read": READING, "write": (*READING, *WRITING, "deletecollection")}
EVERYWHERE = ""


class _RolesForm(PageForm):
    """A form that says what the API has against it."""

    namespace = forms.CharField(required=False, widget=forms.Select({"class": "input"}))

    def __init__(self, data: Mapping[str, Any] | None = None, *, namespaces: Iterable[str] = ()) -> None:
        super().__init__(data)
        choices = [(one, f"in {one}" if one else "everywhere") for one in namespaces]
        cast("forms.Select", self.fields["namespace"].widget).choices = choices

    def complain(self, refusal: ApiError) -> None:
        """At the name, which what the API refuses is mostly about."""
        causes = (refusal.details or {}).get("causes") or [{"message": refusal.message}]
        for cause in causes:
            self.add_error("name", str(cause.get("message", "")))


class NewRoleForm(_RolesForm):
    """A role with one rule for each API group; more is written as YAML."""

    ids = "new-role-%s"
    name = forms.CharField(max_length=253, widget=code_input("gpu-operators", required=True))
    verbs = forms.ChoiceField(
        choices=(("read", "read"), ("write", "read and write")), widget=forms.Select({"class": "input"})
    )
    resources = forms.CharField(
        max_length=2000, widget=code_input("pods, pods/log, resourceclaims", list="role-resources", required=True)
    )

    def clean_resources(self) -> Sequence[tuple[str, str]]:
        """(API group, resource) of each."""
        found, unknown = list[tuple[str, str]](), list[str]()
        for one in self.cleaned_data["resources"].replace(",", " ").split():
            named, slash, below = one.partition("/")
            kind = find_kind(named)
            if kind is None:
                unknown.append(named)
            else:
                found.append((kind.group, f"{kind.plural}{slash}{below}"))
        if unknown:
            raise ValidationError(f"There is no resource {', '.join(unknown)}. Write plurals, such as pods.")
        return found

    def role(self) -> AnyRole:
        """What a form without errors asks for."""
        asked, groups = self.cleaned_data, dict[str, list[str]]()
        for group, resource in asked["resources"]:
            groups.setdefault(group, []).append(resource)
        rules = tuple(
            PolicyRule(verbs=VERBS[asked["verbs"]], api_groups=(group,), resources=tuple(named))
            for group, named in groups.items()
        )
        kind, type_ = (roles.ROLE, Role) if asked["namespace"] else (roles.CLUSTER_ROLE, ClusterRole)
        meta = ObjectMeta(name=asked["name"], namespace=asked["namespace"])
        return type_(api_version=kind.api_version, kind=kind.kind, metadata=meta, rules=rules)


class GiveForm(_RolesForm):
    """Who is to have a role, and where."""

    ids = "give-%s"
    to = forms.ChoiceField(
        choices=(
            (roles.USER, "a person"),
            (roles.GROUP_KIND, "a group"),
            (roles.SERVICE_ACCOUNT, "a service account"),
        ),
        widget=forms.Select({"class": "input"}),
    )
    name = forms.CharField(max_length=253, widget=code_input("ada", required=True))

    def clean(self) -> dict[str, Any]:
        found = self.cleaned_data
        namespace, colon, account = str(found.get("name", "")).partition(":")
        if found.get("to") == roles.SERVICE_ACCOUNT and not (namespace and colon and account):
            self.add_error("name", "Write a service account as NAMESPACE:NAME.")
        return found

    def subject(self) -> Subject:
        """Of a valid form."""
        asked = self.cleaned_data
        if asked["to"] != roles.SERVICE_ACCOUNT:
            return Subject(kind=asked["to"], api_group=roles.GROUP, name=asked["name"])
        namespace, _, name = asked["name"].partition(":")
        return Subject(kind=asked["to"], name=name, namespace=namespace)

    def binding(self, role: AnyRole) -> AnyBinding:
        """Of a valid form."""
        namespace = self.cleaned_data["namespace"]
        of_cluster = isinstance(role, ClusterRole)
        kind, type_ = (
            (roles.ROLE_BINDING, RoleBinding) if namespace else (roles.CLUSTER_ROLE_BINDING, ClusterRoleBinding)
        )
        reference = roles.CLUSTER_ROLE_KIND if of_cluster else roles.ROLE_KIND
        return type_(
            api_version=kind.api_version,
            kind=kind.kind,
            metadata=ObjectMeta(generate_name=f"{role.metadata.name}-", namespace=namespace),
            subjects=(self.subject(),),
            role_ref=RoleRef(api_group=roles.GROUP, kind=reference, name=role.metadata.name),
        )
