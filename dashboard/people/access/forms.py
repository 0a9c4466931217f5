"""What is asked about somebody's access."""

from __future__ import annotations

from typing import Any

from django import forms

from dashboard.kit.forms import PageForm, code_input
from manciple.access.authorization import Attributes
from manciple.wire.registry import Kind, registry

#: Verbs to choose from; any other may be typed.
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


class AccessForm(PageForm):
    """Who it is about, and "may they VERB RESOURCE in NAMESPACE?"."""

    ids = "access-%s"

    user = forms.CharField(max_length=253, widget=code_input("alice"), error_messages={"required": "Whose access?"})
    groups = forms.CharField(max_length=2000, required=False, widget=code_input("team-a, team-b"))
    verb = forms.CharField(max_length=63, required=False, widget=code_input("create", list="access-verbs"))
    resource = forms.CharField(max_length=253, required=False, widget=code_input("pods", list="access-resources"))
    ns = forms.CharField(max_length=63, required=False, widget=code_input("all namespaces"))
    name = forms.CharField(max_length=253, required=False, widget=code_input("any"))

    def clean(self) -> dict[str, Any]:
        found = self.cleaned_data
        if bool(found.get("verb")) != bool(found.get("resource")):
            missing = "resource" if found.get("verb") else "verb"
            self.add_error(missing, "Enter both a verb and a resource.")
        return found

    @property
    def groups_given(self) -> list[str]:
        return [one for one in self.cleaned_data["groups"].replace(",", " ").split() if one]

    @property
    def asks(self) -> bool:
        return bool(self.cleaned_data["verb"])

    def wanted(self) -> Attributes:
        """What the question is about, as a request for it would ask the authorizers."""
        asked = self.cleaned_data
        verb, resource = asked["verb"].lower(), asked["resource"]
        if resource.startswith("/"):
            return Attributes(verb=verb, path=resource)
        named, _, subresource = resource.partition("/")
        kind = find_kind(named)
        plural, _, group = named.partition(".")
        namespaced = kind is None or kind.namespaced
        return Attributes(
            verb=verb,
            group=kind.group if kind else group,
            version=kind.version if kind else "*",
            resource=kind.plural if kind else plural,
            subresource=subresource,
            namespace=asked["ns"] if namespaced else _namespace_itself(kind, asked["name"]),
            name=asked["name"],
        )


def _namespace_itself(kind: Kind | None, name: str) -> str:
    """A request for a namespace is one in it, as with kube-apiserver (RequestInfo)."""
    return name if kind is not None and kind.resource == "namespaces" else ""


def find_kind(named: str) -> Kind | None:
    """The kind that is served under a plural, a singular or a short name, with or without its group."""
    plural, _, group = named.lower().partition(".")
    for one in registry:
        if plural in (one.plural, one.singular, *one.short_names) and group in ("", one.group):
            return one
    return None
