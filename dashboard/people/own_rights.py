"""`/access` in a mirror: what the cluster lets whoever is signed in do there, as it answers now. `?ns=` in a namespace.

Of others nobody knows here: roles and people are not copied. `dashboard.people.access` has the page of an installation
of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from dashboard.kit.forms import PageForm, code_input
from dashboard.kit.rendering import PageContext, render_page
from manciple.access import cluster_users, mirrored
from manciple.access.authorization import Attributes
from manciple.people import Person, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.resources import (
    CLAIMS,
    CLASSES,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    kind,
)
from manciple.wire.validation import check_dns_label

#: What pages show and do, of the cluster and in namespaces.
OF_CLUSTER: Final = (NODES, SLICES, CLASSES, TAINT_RULES)
OF_NAMESPACES: Final = (PODS, CLAIMS, TEMPLATES, EVENTS)
#: The verbs of a right, and their words.
VERBS: Final[Mapping[str, str]] = {"list": "list", "create": "create", "patch": "change", "delete": "delete"}
#: Seconds after which no further question is asked; namespaces to choose from.
PATIENCE, OFFERED = 3.0, 500


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRight:
    """verbs: in words, that are allowed on a resource; None where the cluster did not say in time."""

    resource: str
    verbs: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsScope:
    title: str
    rights: Sequence[OwnRight]


def _check_name(text: str) -> None:
    if wrong := check_dns_label(text):
        raise forms.ValidationError([*wrong], code="invalid")


class NamespaceForm(PageForm):
    ids = "rights-%s"

    ns = forms.CharField(
        max_length=63,
        required=False,
        widget=code_input("all namespaces", list="rights-namespaces"),
        validators=[_check_name],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRightsContext(PageContext):
    """acts: pages change the cluster. silent: why it cannot be asked now. namespaces: to choose from."""

    cluster: str
    acts: bool
    silent: str
    scopes: Sequence[RightsScope]
    form: NamespaceForm
    namespaces: Sequence[str]


def show_own_rights(request: HttpRequest) -> HttpResponse:
    revision, person = latest_revision(), person_of(request)
    namespaces = [one.name for one in objects.list(kind(NAMESPACES)).items if person.sees(one.name)][:OFFERED]
    usual = "" if person.namespaces is None else min(person.namespaces, default="")
    form = NamespaceForm({"ns": request.GET.get("ns", usual).strip()})
    scopes = _read(person, form.cleaned_data["ns"]) if form.is_valid() else []
    context = OwnRightsContext(
        place="access",
        revision=revision,
        cluster=settings.MIRROR_OF,
        acts=mirrored.acts(),
        silent=cluster_users.silence(),
        scopes=scopes,
        form=form,
        namespaces=namespaces,
    )
    return render_page(request, "people/access/own.html", context, status=422 if form.errors else 200)


def _read(person: Person, namespace: str) -> list[RightsScope]:
    deadline = time.monotonic() + PATIENCE
    places = ((f"In {namespace}" if namespace else "In all namespaces", namespace, OF_NAMESPACES),)
    return [
        RightsScope(title=title, rights=[_asked(person, one, scope, deadline) for one in resources])
        for title, scope, resources in (*places, ("Of the cluster", "", OF_CLUSTER))
    ]


def _asked(person: Person, resource: str, namespace: str, deadline: float) -> OwnRight:
    plural, _, group = resource.partition(".")
    found = []
    for verb, word in VERBS.items():
        if time.monotonic() > deadline:
            return OwnRight(resource=resource, verbs=None)
        wanted = Attributes(verb=verb, group=group, resource=plural, namespace=namespace)
        if mirrored.answered(person.identity, wanted).allowed:
            found.append(word)
    return OwnRight(resource=resource, verbs=found)
