"""The rights of people on pages: which namespaces and index rows a person sees, and what they may change.

A person sees the namespaces in which they may list what its pages are made of (pods, claims, templates, events): all of
them, or those in which a binding says so.
What belongs to no namespace (nodes, devices, classes) they see where they may list it (`dashboard.kit.guards` asks,
before any view). They change what they may change through the API: pages ask beforehand, so that nobody is offered a
button that would be refused, and the writer asks again (`manciple.access.rbac`).

Index tables declare who may read their rows; `Pod.objects.restrict(person)` are those of a person. Rows of a namespace
are shown to people who see the namespace, rows of the cluster to people who may list the resource that they index:

    readable = OfNamespace()                       # by the column `namespace`
    readable = OfNamespace("claim__namespace")
    readable = OfNamespace(resource="resourcequotas")
    readable = OfCluster("nodes")
    objects = RestrictedManager()
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, TypeVar

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import Http404, HttpRequest

from manciple.access import authorization, cluster_users, mirrored, rbac
from manciple.access.authorization import Attributes
from manciple.access.people import identity_of_user
from manciple.api.auditing import note_denial
from manciple.wire.identity import AUTHENTICATED, MASTERS, PEOPLE, Identity

#: What whoever works in a namespace makes, and what its pages are made of besides: plural.group
WORK = ("pods", "resourceclaims.resource.k8s.io")
AROUND = ("resourceclaimtemplates.resource.k8s.io", "events")

#: Whoever may list these may read the audit trail.
AUDIT_EVENTS = "events.audit.manciple.dev"

#: In place of a verb: all of them.
ANY = "*"
#: In place of the names of namespaces.
ALL_NAMESPACES = None


@dataclass(frozen=True, slots=True)
class Person:
    """Who is signed in. `namespaces`: those whose objects they see; ALL_NAMESPACES for all. lack: which of them may be
    missing, in words.
    """

    identity: Identity
    namespaces: frozenset[str] | None = frozenset()
    lack: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def administers(self) -> bool:
        """Whether they may do everything."""
        return MASTERS in self.identity.groups or self.may("*", "*.*")

    @property
    def has_no_role(self) -> bool:
        """Whether nobody has given them anything yet: no group of their own, and no binding names them."""
        if self.identity.remote:
            return False
        return set(self.identity.groups) <= {PEOPLE, AUTHENTICATED} and not rbac.policy().names(self.name)

    @property
    def initials(self) -> str:
        return self.name.rpartition(":")[2][:2].upper()

    def may(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """resource: `pods`, `pods/log`, `deviceclasses.resource.k8s.io`. Without a namespace: everywhere."""
        return authorization.decide(self.identity, _wanted(verb, resource, namespace, name)).allowed

    def may_somewhere(self, verb: str, resource: str) -> bool:
        """Whether they may do that everywhere, or in a namespace that they see."""
        places = self.namespaces or ([mirrored.likely_namespace()] if settings.MIRROR else [])
        return self.may(verb, resource) or any(self.may(verb, resource, one) for one in places if one)

    def sees(self, namespace: str) -> bool:
        """Whether they may know what is in `namespace` ("" for what belongs to none)."""
        return not namespace or self.namespaces is None or namespace in self.namespaces

    def may_audit(self, namespace: str = "") -> bool:
        """Whether they may read the audit trail, or `namespace`'s part of it. AUDIT_EVENTS is no resource of the API:
        it exists to be allowed, everywhere by a ClusterRoleBinding, in one namespace by a RoleBinding there."""
        return self.may("list", AUDIT_EVENTS, namespace)

    def may_edit(self, namespace: str) -> bool:
        """Whether they may make and delete pods and claims in `namespace`."""
        return all(self.may(verb, resource, namespace) for resource in WORK for verb in ("create", "delete"))


def _wanted(verb: str, resource: str, namespace: str, name: str) -> Attributes:
    whole, _, part = resource.partition("/")
    plural, _, group = whole.partition(".")
    return Attributes(verb=verb, group=group, resource=plural, subresource=part, namespace=namespace, name=name)


def person_of_user(user: Any) -> Person:
    """`user`: a signed-in Django user. Reads its groups."""
    return person_of_identity(identity_of_user(user))


def person_of_identity(identity: Identity) -> Person:
    person = Person(identity)
    if _sees_work(person, ""):
        return Person(identity, ALL_NAMESPACES)
    if identity.remote:
        sight = cluster_users.looks.value.of(identity, partial(_sees_work, person))
        return Person(identity, sight.namespaces, sight.lack)
    some = rbac.policy().namespaces_of(identity)
    return Person(identity, frozenset(namespace for namespace in some if _sees_work(person, namespace)))


def _sees_work(person: Person, namespace: str) -> bool:
    return all(person.may("list", resource, namespace) for resource in (*WORK, *AROUND))


def person_of(request: HttpRequest) -> Person:
    """Who sent the request; it was checked that they are signed in. One query for a request."""
    known: Person | None = getattr(request, "manciple_person", None)
    if known is None:
        # Whom a mirrored cluster vouches for has been asked about (`confirm_with_cluster`); else they had no rights.
        identity: Identity | None = getattr(request, "manciple_identity", None)
        known = person_of_identity(identity or identity_of_user(request.user))
        request.manciple_person = known  # type: ignore[attr-defined]  # kept for the rest of the request
    return known


def demand_sight(request: HttpRequest, namespace: str, what: str) -> Person:
    """Raises: Http404 as for an object that does not exist, so that nothing is told about it."""
    person = person_of(request)
    if not person.sees(namespace) and person.identity.remote and _sees_work(person, namespace):
        cluster_users.looks.value.add(person.identity, namespace)  # no look has found it yet
        person = Person(person.identity, (person.namespaces or frozenset()) | {namespace}, person.lack)
        request.manciple_person = person  # type: ignore[attr-defined]  # kept for the rest of the request
    if not person.sees(namespace):
        raise Http404(f"{what} does not exist.")
    return person


def demand_edit(request: HttpRequest, what: str, namespace: str, *, resource: str) -> Person:
    """Raises: PermissionDenied saying who may. what: "delete pods in team-a"; resource: of what goes."""
    person = person_of(request)
    if not person.may_edit(namespace):
        raise denied(request, what, "delete", resource, namespace)
    return person


def demand(request: HttpRequest, what: str, verb: str, resource: str, namespace: str = "") -> Person:
    """The same for one resource; without a namespace, everywhere. Raises: PermissionDenied. what: "change nodes"."""
    person = person_of(request)
    if not person.may(verb, resource, namespace):
        raise denied(request, what, verb, resource, namespace)
    return person


def denied(request: HttpRequest, what: str, verb: str, resource: str, namespace: str = "") -> PermissionDenied:
    """What to raise where the person may not do this; it is in the audit trail from now on.

    The object is the one that the address names, if it names one.
    """
    where = f' in the namespace "{namespace}"' if namespace else ""
    if mirrored.refusal(_wanted(verb, resource, namespace, "")):
        message = f"This is a mirror of {settings.MIRROR_OF}: {what} there."
    else:
        message = f"You may not {what}. Ask an administrator for a role{where}."
    if verb != ANY:  # a right to everything is demanded in place of one that has no name
        note_denial(
            verb,
            resource,
            identity=person_of(request).identity,
            namespace=namespace,
            name=request.resolver_match.kwargs.get("name", "") if request.resolver_match else "",
            message=message,
        )
    return PermissionDenied(message)


# Rows of index tables -------------------------------------------------------------------------------------------------


Row_co = TypeVar("Row_co", bound=models.Model, covariant=True)


@dataclass(frozen=True)
class OfNamespace:
    """Rows of objects that belong to a namespace.

    field: the column, or the way to it, that names the namespace of a row. resource: what a person has to be allowed to
    list there besides.
    """

    field: str = "namespace"
    resource: str = ""

    def restrict(self, rows: Any, person: Person) -> Any:
        namespaces: Iterable[str] | None = person.namespaces
        if self.resource and not person.may("list", self.resource):
            if namespaces is None:
                namespaces = rows.order_by().values_list(self.field, flat=True).distinct()
            namespaces = [one for one in namespaces if person.may("list", self.resource, one)]
        return rows if namespaces is None else rows.filter(**{f"{self.field}__in": namespaces})


@dataclass(frozen=True)
class OfCluster:
    """Rows of objects that belong to no namespace. resource: as `Person.may` names it."""

    resource: str

    def restrict(self, rows: Any, person: Person) -> Any:
        return rows if person.may("list", self.resource) else rows.none()


class RestrictedQuerySet(models.QuerySet[Row_co]):
    """Rows of a table that declares `readable`."""

    def restrict(self, person: Person) -> Self:
        """Those that `person` may read."""
        return self.model.readable.restrict(self, person)  # type: ignore[attr-defined, no-any-return]


class RestrictedManager(models.Manager[Row_co]):
    """The manager of a table that declares `readable`."""

    def get_queryset(self) -> RestrictedQuerySet[Row_co]:
        return RestrictedQuerySet(self.model, using=self._db)

    def restrict(self, person: Person) -> RestrictedQuerySet[Row_co]:
        """The rows that `person` may read."""
        return self.get_queryset().restrict(person)
