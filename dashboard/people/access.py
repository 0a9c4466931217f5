"""`/access?user=bob`: what bob may do and why, for whoever may create SubjectAccessReviews.

With `&verb=create&resource=pods&ns=team-a` also whether bob may do that, and which rule of which role allows it, or who
could. `&groups=` are groups of his besides those that are known here. In a mirror: `dashboard.people.own_rights`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from dashboard.kit.forms import PageForm, code_input
from dashboard.kit.guards import authorizes
from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.suggestions import did_you_mean
from dashboard.people import known_names
from dashboard.people.own_rights import show_own_rights
from dashboard.people.roles import OFFERED, RuleLine, find_kind, in_short, may_ask
from dashboard.templatetags.kit import role_url
from manciple.access import authorization, rbac
from manciple.access.authorization import Attributes
from manciple.access.kinds.policy_rules import CompiledRules, places_of
from manciple.access.membership import administrators
from manciple.access.people import identity_of_user
from manciple.access.rbac import Grant, Policy
from manciple.people import person_of
from manciple.store.event_log import latest_revision
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
from manciple.wire.registry import registry

_NODE_PREFIX = "system:node:"
#: How the sources of grants end that are given to everybody.
_EVERYBODY = tuple(f'to Group "{group}"' for group in (AUTHENTICATED, UNAUTHENTICATED))


def identity_of(name: str, groups: Sequence[str]) -> Identity:
    """Who comes in under `name`, as far as that is known here, with `groups` besides."""
    if account := account_of(name):
        known = service_account(*account)
    elif name == ANONYMOUS.name:
        known = ANONYMOUS
    elif person := get_user_model()._default_manager.filter(username=name).first():
        known = identity_of_user(person)
    else:
        known = Identity(name, (NODES, AUTHENTICATED) if name.startswith(_NODE_PREFIX) else (AUTHENTICATED,))
    return Identity(name, tuple(dict.fromkeys((*groups, *known.groups))), extra=known.extra)


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
        return role_url(self.name, self.namespace)


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
    granted = {namespace: dict.fromkeys(_granted(held, identity, namespace)) for namespace in namespaces}
    return [
        AccessScope(namespace=namespace, grants=[_shown(held, one) for one in grants])
        for namespace, grants in granted.items()
        if grants
    ]


def _granted(held: Policy, identity: Identity, namespace: str) -> Iterator[Grant]:
    """There, leaving out what is granted everywhere."""
    scopes = (scope for scope in held.scopes_of(identity, namespace) if scope[0] == namespace)
    return (grant for scope in scopes for _, grant in held.granted(scope))


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
        (name, role_url(name, namespace))
        for (namespace, name), rules in sorted(held.roles.items())
        if namespace in ("", wanted.namespace)
        and not name.startswith("system:")
        and rules.allow(wanted, places_of(wanted))
    ]


#: Verbs to choose from; any other may be typed.
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


class AccessForm(PageForm):
    """Who it is about, and "may they VERB RESOURCE in NAMESPACE?"."""

    ids = "access-%s"

    user = forms.CharField(
        max_length=253, widget=code_input("alice", list="access-people"), error_messages={"required": "Whose access?"}
    )
    groups = forms.CharField(max_length=2000, required=False, widget=code_input("team-a, team-b"))
    verb = forms.CharField(max_length=63, required=False, widget=code_input("create", list="access-verbs"))
    resource = forms.CharField(max_length=253, required=False, widget=code_input("pods", list="access-resources"))
    ns = forms.CharField(max_length=63, required=False, widget=code_input("all namespaces", list="access-namespaces"))
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
        # A request for a namespace is one in it, as with kube-apiserver (RequestInfo).
        itself = asked["name"] if kind is not None and kind.resource == "namespaces" else ""
        return Attributes(
            verb=verb,
            group=kind.group if kind else group,
            version=kind.version if kind else "*",
            resource=kind.plural if kind else plural,
            subresource=subresource,
            namespace=asked["ns"] if kind is None or kind.namespaced else itself,
            name=asked["name"],
        )


@authorizes
@require_safe
def show_access(request: HttpRequest) -> HttpResponse:
    if settings.MIRROR:
        return show_own_rights(request)
    revision = latest_revision()
    if not may_ask(person_of(request)):
        raise PermissionDenied("You may not ask what others may do: ask an administrator for a role.")
    form = AccessForm(request.GET if "user" in request.GET else None)
    context = AccessContext(
        place="access",
        revision=revision,
        form=form,
        resources=sorted({kind.resource for kind in registry}),
        people=[*islice(known_names.people(), OFFERED)],
        namespaces=known_names.namespaces()[:OFFERED],
    )
    if form.is_valid():
        who = identity_of(form.cleaned_data["user"], form.groups_given)
        incomplete = authorization.rules_of(who, "").error
        missing = [
            known_names.unknown_user(who.name),
            known_names.unknown_namespace(form.cleaned_data["ns"]),
            *map(known_names.unknown_group, form.groups_given),
        ]
        context = replace(context, missing=[*filter(None, missing)])
        context = replace(
            context, who=who, everything=MASTERS in who.groups, scopes=read_scopes(who), incomplete=incomplete
        )
        if form.asks:
            wanted = form.wanted()
            doubts = [*_doubts(wanted, form.cleaned_data["resource"].partition("/")[0])]
            context = replace(context, wanted=wanted, what=_what(wanted), answer=answer(who, wanted), doubts=doubts)
    return render_page(request, "people/access/page.html", context, status=422 if form.errors else 200)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessContext(PageContext):
    """The form, and what is known of `who`, once somebody is named.

    everything: a member of system:masters; incomplete: why there may be more roles. wanted, what, answer: what the form
    asks whether they may; doubts: why another question may be meant; missing: what is named and does not exist. people,
    namespaces: to choose from.
    """

    form: AccessForm
    resources: Sequence[str]
    verbs: Sequence[str] = VERBS
    who: Identity | None = None
    everything: bool = False
    scopes: Sequence[AccessScope] = ()
    incomplete: str = ""
    wanted: Attributes | None = None
    what: str = ""
    answer: AccessAnswer | None = None
    doubts: Sequence[str] = ()
    missing: Sequence[str] = ()
    people: Sequence[str] = ()
    namespaces: Sequence[str] = ()


def _doubts(wanted: Attributes, resource: str) -> Iterator[str]:
    if wanted.verb not in VERBS and (meant := did_you_mean(wanted.verb, VERBS)):
        yield f"{wanted.verb} is a verb of no request here.{meant}"
    if not wanted.path and find_kind(resource) is None:
        yield f"no resource {resource} is served here.{did_you_mean(resource, {kind.plural for kind in registry})}"


def _what(wanted: Attributes) -> str:
    """`pods/log web in team-a`, `nodes`, `/healthz`."""
    if wanted.path:
        return wanted.path
    below = f"/{wanted.subresource}" if wanted.subresource else ""
    named = f" {wanted.name}" if wanted.name else ""
    where = f" in {wanted.namespace}" if wanted.namespace else ""
    return f"{wanted.resource}{below}{named}{where}"
