"""The API's door: who makes a request, in whose name, and whether they may. Decided by its head alone, before its body.

    admit(shown, attributes_of("GET", "/api/v1/pods", query))     # -> Identity; raises Unauthorized, Forbidden

Every request comes through here: the REST views by their permission class, streams before they begin, and a request
with a long body before the body is read. A request without a credential is `system:anonymous`. The paths of health
checks are open to everybody, because probes must not depend on roles in a database.

Impersonation (`kubectl --as`): the headers name somebody else, and everything after authentication takes place in that
identity's name. It takes the right to `impersonate` each part: the user or the service account, each group, the uid,
and each extra value. A service account for which no groups are named belongs to those of its kind and namespace, and
everybody but anonymous to `system:authenticated`.

A stream stays open for as long as its client may have it: `Admission.refused` is asked when a role or binding changes,
and now and then (`manciple.api.streams`).
Sources: apiserver/pkg/endpoints/request/requestinfo.go, apiserver/pkg/endpoints/filters/authorization.go and
.../impersonation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from manciple.access import authorization
from manciple.access.authentication import chain
from manciple.access.authentication.chain import Credentials
from manciple.access.authorization import ANY_FIELDS, ANY_LABELS, Attributes
from manciple.access.page_sessions import signed_in
from manciple.api.answers import CHALLENGE, status_of
from manciple.api.requests import ResourcePath, parse_path, truth
from manciple.wire.errors import ApiError, BadRequest, Unauthorized
from manciple.wire.identity import (
    ANONYMOUS,
    ANONYMOUS_USER,
    AUTHENTICATED,
    UNAUTHENTICATED,
    Identity,
    account_groups,
    account_of,
)
from manciple.wire.selectors import FieldSelector, ParsedLabelSelector, parse_field_selector, parse_label_selector

if TYPE_CHECKING:  # DRF's views load the permission classes of the settings: this module
    from rest_framework.views import APIView

#: Where scope and environ carry the identity of a request whose credential was recognised before its body was read.
IDENTITY = "manciple.identity"
CERTIFICATE, PEER = chain.CERTIFICATE, chain.PEER
#: Where they carry what the request shows of its sender (Credentials), read when it came.
SHOWN = "manciple.shown"
#: Where they carry its origin (manciple.store.records), for the audit trail.
ORIGIN = "manciple.origin"

# What a request wants -------------------------------------------------------------------------------------------------


_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
#: Verbs on what selectors select.
_SELECTING = ("list", "watch", "deletecollection")
NAMESPACES = "namespaces"


def attributes_of(method: str, path: str, query: Mapping[str, str]) -> Attributes:
    """What such a request wants to do."""
    where = parse_path(path)
    if where is None:
        return Attributes(verb=method.lower(), path=path)
    verb = _verb(method, where, query)
    fields, labels = _selectors(query) if verb in _SELECTING else (ANY_FIELDS, ANY_LABELS)
    return Attributes(
        verb=verb,
        group=where.group,
        version=where.version,
        resource=where.plural,
        subresource=where.subresource,
        # A namespace is in itself, so that who has rights in it can be let see it.
        namespace=where.name if (where.group, where.plural) == ("", NAMESPACES) else where.namespace,
        name=where.name or (_name_in(fields) if verb in ("list", "watch") else ""),
        fields=fields,
        labels=labels,
    )


def _verb(method: str, where: ResourcePath, query: Mapping[str, str]) -> str:
    """The verb of a request for objects: a GET with ?watch is answered as a watch, whatever its path names."""
    verb = _VERBS.get(method, "")
    if verb == "get" and (where.watch or ("watch" in query and truth(query, "watch"))) and not where.subresource:
        return "watch"
    if where.name:
        return verb
    return {"get": "list", "delete": "deletecollection"}.get(verb, verb)


def _selectors(query: Mapping[str, str]) -> tuple[FieldSelector, ParsedLabelSelector]:
    """Selectors that cannot be read restrict nothing: the request fails by them later, and is judged as if without."""
    try:
        fields = parse_field_selector(query.get("fieldSelector", ""))
        labels = parse_label_selector(query.get("labelSelector", ""))
    except ValueError:
        return ANY_FIELDS, ANY_LABELS
    return fields, labels


def _name_in(fields: FieldSelector) -> str:
    """The one name that a list is restricted to; "" for none. Roles that name objects allow such lists."""
    names = {one.value for one in fields.requirements if one.field == "metadata.name" and one.equal}
    return names.pop() if len(names) == 1 else ""


# Authentication -------------------------------------------------------------------------------------------------------

# Sessions are for the pages and mean nothing to the API, so no request to it needs CSRF protection. WebSockets that a
# page opens (`PageAdmission`) are of the same origin.


def identify(shown: Credentials, *, known: Identity | None = None) -> Identity:
    """In whose name this request is made.

    known: whose request it is, where that was asked before it got here.
    Raises: Unauthorized for a credential that nobody recognises; Forbidden, BadRequest (see `acting`).
    """
    identity = known or chain.identify(shown) or ANONYMOUS
    if shown.origin is None:
        return acting(identity, shown.headers)
    shown.origin.asked_by(identity)  # a refusal to act as another is recorded under the sender's own name
    acted = acting(identity, shown.headers)
    if acted is not identity:
        shown.origin.asked_by(identity, acting_as=acted)
    return acted


def identify_sender(http: HttpRequest) -> Identity:
    """By what the request shows. Raises: as `identify`."""
    return identify(http.META.get(SHOWN) or _shown_in(http), known=http.META.get(IDENTITY))


class ShownCredentials(BaseAuthentication):
    """Whatever the chain recognises -> `request.user` is an Identity."""

    def authenticate(self, request: Request) -> tuple[Identity, None]:
        return identify_sender(request._request), None  # DRF's own passes each look at it through __getattr__

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002 - DRF's signature
        return CHALLENGE


def _shown_in(http: HttpRequest) -> Credentials:
    """Of a request that came past `lanes.Intake`: Django's own server, and tests."""
    return Credentials(
        headers=http.headers,
        certificate=http.META.get(CERTIFICATE),
        address=http.META.get("REMOTE_ADDR", ""),
        peer=http.META.get(PEER, ""),
        origin=http.META.get(ORIGIN),
    )


def identity_of(request: Request) -> Identity:
    """In whose name the request is made; that they may make it was asked at the door."""
    user: object = request.user
    if not isinstance(user, Identity):
        raise Unauthorized("Unauthorized")
    return user.let_in()


# Impersonation --------------------------------------------------------------------------------------------------------


USER, GROUP, UID, EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"


def acting(identity: Identity, headers: Mapping[str, str]) -> Identity:
    """In whose name `identity` makes a request. headers: names in lower case or in any; repeated ones joined by
    line ends.

    Raises: Forbidden for whoever may not act as them; BadRequest for groups or a uid without a user.
    """
    user = headers.get(USER, "")
    if not user:
        for name in (GROUP, UID):
            if given := headers.get(name, ""):
                raise BadRequest(f"requested {name.removeprefix('impersonate-')} {given} without impersonating a user")
        return identity
    named = _named(user, headers)
    for wanted in _parts(named):
        authorization.demand(identity, wanted)
    return replace(_completed(named), remote=identity.remote)


def _named(user: str, headers: Mapping[str, str]) -> Identity:
    """The identity to impersonate, exactly as the headers name it."""
    extra = {
        unquote(name[len(EXTRA) :].lower()): _listed(text)
        for name, text in headers.items()
        if name.lower().startswith(EXTRA)
    }
    return Identity(_text(user), _listed(headers.get(GROUP, "")), headers.get(UID, ""), tuple(extra.items()))


def _listed(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for one in _text(text).split("\n") if (part := one.strip())))


def _text(header: str) -> str:
    """Names are sent in UTF-8, and headers are read as Latin-1."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def _parts(named: Identity) -> Iterator[Attributes]:
    """Each right that it takes to act as `named`."""
    account = account_of(named.name)
    if account:
        namespace, name = account
        yield Attributes(verb="impersonate", version="v1", resource="serviceaccounts", namespace=namespace, name=name)
    else:
        yield Attributes(verb="impersonate", version="v1", resource="users", name=named.name)
    for group in named.groups:
        yield Attributes(verb="impersonate", version="v1", resource="groups", name=group)
    if named.uid:
        yield Attributes(verb="impersonate", group=_AUTHENTICATION, version="v1", resource="uids", name=named.uid)
    for key, values in named.extra:
        for value in values:
            yield Attributes(
                verb="impersonate",
                group=_AUTHENTICATION,
                version="v1",
                resource="userextras",
                subresource=key,
                name=value,
            )


def _completed(named: Identity) -> Identity:
    """With the groups that the identity has without anybody naming them."""
    account = account_of(named.name)
    groups = named.groups or (account_groups(account[0]) if account else ())
    common = UNAUTHENTICATED if named.name == ANONYMOUS_USER else AUTHENTICATED
    if common not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, common)
    return Identity(named.name, groups, named.uid, named.extra)


# Authorization --------------------------------------------------------------------------------------------------------


def admit(shown: Credentials, wanted: Attributes, *, known: Identity | None = None) -> Identity:
    """In whose name the request is made. known: whose it is, where that was asked before.

    Raises: Unauthorized for a credential that nobody recognises; BadRequest; Forbidden.
    """
    identity = identify(shown, known=known)
    authorization.demand(identity, wanted)
    return identity


class Allowed(BasePermission):
    """Lets in whoever may do what the request wants."""

    def has_permission(self, request: Request, view: APIView) -> bool:  # noqa: ARG002 - DRF's signature
        """Raises: Forbidden."""
        wanted = attributes_of(request.method or "", request.path, request.GET)
        authorization.demand(identity_of(request), wanted)
        return True


@dataclass(frozen=True, slots=True)
class Admission:
    """Somebody who was let in and stays: what they showed, and what they may do."""

    shown: Credentials
    wanted: Attributes
    identity: Identity

    @classmethod
    def of(cls, shown: Credentials, wanted: Attributes) -> Admission:
        """Raises: as `admit`."""
        return cls(shown, wanted, cls.let_in(shown, wanted))

    @classmethod
    def let_in(cls, shown: Credentials, wanted: Attributes) -> Identity:
        """Raises: as `admit`."""
        return admit(shown, wanted)

    def refused(self, *, identified: bool) -> ApiError | None:
        """Why they may not stay; None where they may. identified: what they showed need not be looked at again."""
        try:
            if identified:
                authorization.demand(self.identity, self.wanted)
            else:
                self.let_in(self.shown, self.wanted)
        except Exception as error:  # the database may be away
            return status_of(error)
        return None


@dataclass(frozen=True, slots=True)
class PageAdmission(Admission):
    """Of somebody whom the session of their browser signs in: what a page opens. Whom it names may do the same there
    as by the API.
    """

    @classmethod
    def let_in(cls, shown: Credentials, wanted: Attributes) -> Identity:
        identity = signed_in(shown)
        authorization.demand(identity, wanted)
        return identity
