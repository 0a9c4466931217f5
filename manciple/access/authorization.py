"""Who may do what: the one place that is asked before every read, write, watch, stream, page and computed answer.

The authorizers are asked in their order (`ORDER`). The first that allows or denies ends it; one that has no opinion
passes the question on; what each has to say against it becomes the reason of the refusal, as with kube-apiserver's
union of Node and RBAC. For members of `system:masters` none is asked. What a mirror refuses, it refuses everybody
(`manciple.access.mirrored`). Rights of users of the mirrored cluster are that cluster's alone to decide
(`manciple.access.cluster_users`), even where one is called like somebody here.

    demand(identity, Attributes(verb="create", resource="pods", namespace="team-a"))   # raises Forbidden
    decide(identity, attributes).allowed                                               # where only the answer matters

Authorizers read the database (through followers, warm): call from a thread that may.
Sources: apiserver/pkg/authorization/authorizer/interfaces.go, .../union/union.go,
.../endpoints/handlers/responsewriters/errors.go.

**Views** declare the rights that they demand (`ViewRights`); one without a declaration is not served, and ends the
start. Views of pages declare them with the decorators of `dashboard.kit.guards`, which also enforce them; views of the
API by an attribute of their class (`manciple.api.views.ApiView`), whose permission class asks the authorizers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern, URLResolver

from manciple.access.kinds.roles import PolicyRule
from manciple.per_process import PerProcess
from manciple.wire.errors import Forbidden
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.registry import Kind
from manciple.wire.selectors import FieldSelector, ParsedLabelSelector

# Attributes -----------------------------------------------------------------------------------------------------------


ANY_FIELDS, ANY_LABELS = FieldSelector(), ParsedLabelSelector()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """One thing to be allowed: `verb` on a resource, or on a path that is no resource (then `path` is set).

    verb: get, list, watch, create, update, patch, delete, deletecollection, impersonate, escalate, bind…; for a path
    the HTTP method in lower case. namespace "" means the cluster's scope, or all namespaces; name "" the collection.
    fields, labels: what a list, watch or deletecollection is restricted to.
    """

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    fields: FieldSelector = ANY_FIELDS
    labels: ParsedLabelSelector = ANY_LABELS

    @property
    def combined(self) -> str:
        """`pods` or `pods/status`, as the rules of roles name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def on_object(verb: str, kind: Kind, *, namespace: str, name: str, subresource: str = "") -> Attributes:
    """`verb` on one object of a kind."""
    return Attributes(
        verb=verb,
        group=kind.group,
        version=kind.version,
        resource=kind.plural,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """reason: why it is allowed (which binding of which role), or what an authorizer that refuses has to say of it.

    denied: refused whatever later authorizers say.
    """

    allowed: bool
    reason: str = ""
    denied: bool = False


def refusal(identity: Identity, wanted: Attributes, reason: str = "") -> Forbidden:
    """The 403 that tells `identity` that it may not do `wanted`."""
    because = f": {reason}" if reason else ""
    if wanted.path:
        return Forbidden(f'forbidden: User "{identity.name}" cannot {wanted.verb} path "{wanted.path}"{because}')
    qualified = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    subject = f'{qualified} "{wanted.name}"' if wanted.name else qualified
    scope = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    details = {"name": wanted.name, "group": wanted.group, "kind": wanted.resource}
    return Forbidden(
        f'{subject} is forbidden: User "{identity.name}" cannot {wanted.verb} resource "{wanted.combined}" in API '
        f'group "{wanted.group}" {scope}{because}',
        details={key: text for key, text in details.items() if text},
    )


# Authorizers ----------------------------------------------------------------------------------------------------------


#: (who, what) -> the decision; neither allowed nor denied means "no opinion", with what there is to say against it
Authorizer = Callable[[Identity, Attributes], Decision]


@dataclass(frozen=True, slots=True)
class HeldRules:
    """What somebody may do in a namespace, as far as that can be told beforehand. error: why it may not be all."""

    rules: tuple[PolicyRule, ...] = ()
    incomplete: bool = False
    error: str = ""


#: (who, a namespace) -> what they may do in it
ResolveRules = Callable[[Identity, str], HeldRules]


#: Who is asked first, whenever it was registered; others come after these, in the order of registration.
ORDER = ("node", "driver", "rbac")

_authorizers: dict[str, Authorizer] = {}
_refusals: list[Callable[[Attributes], str]] = []
_resolvers: dict[str, ResolveRules] = {}


def register_authorizer(name: str, authorizer: Authorizer, *, resolve: ResolveRules | None = None) -> None:
    """Ask `authorizer` as well; the same name replaces what was said. resolve: which rules it knows of somebody."""
    known = {**_authorizers, name: authorizer}
    _authorizers.clear()
    _authorizers.update({one: known.pop(one) for one in ORDER if one in known} | known)
    if resolve is not None:
        _resolvers[name] = resolve


def refuse_first(refusal: Callable[[Attributes], str]) -> None:
    """Ask `refusal` why nobody may do something, before anything else; "" where somebody may."""
    if refusal not in _refusals:
        _refusals.append(refusal)


#: Of users of the mirrored cluster: without one nothing is allowed.
_of_cluster: PerProcess[Authorizer] = PerProcess(lambda: lambda _identity, _wanted: Decision(False))


def decide_remote_by(authorizer: Authorizer) -> None:
    """Ask `authorizer`, and nobody else, about users of the mirrored cluster."""
    _of_cluster.value = authorizer


def decided_there(identity: Identity, wanted: Attributes) -> Decision:
    """What the mirrored cluster says of one of its users, also of what nobody may do here."""
    return _of_cluster.value(identity, wanted)


def decide(identity: Identity, wanted: Attributes) -> Decision:
    for refuse in _refusals:
        if reason := refuse(wanted):
            return Decision(False, reason, denied=True)
    if identity.remote:
        return decided_there(identity, wanted)
    if MASTERS in identity.groups:
        return Decision(True, f'member of "{MASTERS}"')
    reasons = []
    for authorizer in _authorizers.values():
        decision = authorizer(identity, wanted)
        if decision.allowed or decision.denied:
            return decision
        if decision.reason:
            reasons.append(decision.reason)
    return Decision(False, "; ".join(reasons))


def demand(identity: Identity, wanted: Attributes) -> None:
    """Raises: Forbidden."""
    decision = decide(identity, wanted)
    if not decision.allowed:
        raise refusal(identity, wanted, decision.reason)


def rules_of(identity: Identity, namespace: str) -> HeldRules:
    """Everything that the authorizers know `identity` may do in `namespace`."""
    if identity.remote:
        return HeldRules(incomplete=True, error="the mirrored cluster knows these rules: ask there")
    found = [resolve(identity, namespace) for resolve in _resolvers.values()]
    return HeldRules(
        rules=tuple(rule for one in found for rule in one.rules),
        incomplete=any(one.incomplete for one in found),
        error="; ".join(one.error for one in found if one.error),
    )


# Rights of views ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRights:
    """public: anybody. Everything else needs somebody who is signed in.

    lists: resources that they may list in the whole cluster. namespaced: they see at least one namespace, and the view
    leaves out the others. administers: they may do everything. accounts: they have an account of this installation, as
    users of a mirrored cluster have not. authorizes: the right depends on the request, and the view asks the authorizer
    for it.
    """

    public: bool = False
    lists: tuple[str, ...] = ()
    namespaced: bool = False
    administers: bool = False
    accounts: bool = False
    authorizes: bool = False


PUBLIC, SIGNED_IN, AUTHORIZES = ViewRights(public=True), ViewRights(), ViewRights(authorizes=True)


def rights_of(view: Callable[..., Any]) -> ViewRights | None:
    """What `view` declares, itself or by its class; None where it declares nothing."""
    owners = (view, getattr(view, "view_class", None), getattr(view, "cls", None))  # cls: of DRF's viewsets
    found = next((rights for owner in owners if (rights := getattr(owner, "rights", None))), None)
    return found if isinstance(found, ViewRights) else None


def routes(patterns: Iterable[URLPattern | URLResolver], prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    """Every (route, pattern) below `patterns`."""
    for one in patterns:
        route = prefix + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from routes(one.url_patterns, route)
        else:
            yield route, one


def demand_declarations(patterns: Iterable[URLPattern | URLResolver]) -> None:
    """Raises: ImproperlyConfigured naming the views without rights."""
    missing = [f"{route} ({one.lookup_str})" for route, one in routes(patterns) if rights_of(one.callback) is None]
    if missing:
        raise ImproperlyConfigured(
            f"These views declare no rights: {', '.join(missing)}. Decorate each with one of dashboard.kit.guards."
        )
