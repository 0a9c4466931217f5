"""Who may open a page: decorators that declare the rights of a view (`manciple.access.authorization`) and enforce them.

    @listing(NODES, SLICES)      they may list both in the whole cluster
    @namespaced(NODES)           they see at least one namespace, and may list nodes; the view leaves out the others
    @authorizes                  the right depends on the request: the view asks for it
    @administrators_only
    @signed_in                   their own account, or what is for everybody here
    @public                      signed in or not

Somebody who is not signed in is sent to do so. A refused page says what is missing and whom to ask, and keeps the
navigation. `DeclaredRightsOnly` answers 403 for a view without any of these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from manciple.access.authorization import AUTHORIZES, PUBLIC, SIGNED_IN, ViewRights, rights_of
from manciple.people import Person, person_of

View = Callable[..., HttpResponseBase]


def listing(*resources: str) -> Callable[[View], View]:
    """resources: `nodes`, `deviceclasses.resource.k8s.io`."""
    return _declared(ViewRights(lists=resources))


def namespaced(*resources: str) -> Callable[[View], View]:
    return _declared(ViewRights(lists=resources, namespaced=True))


def _declared(rights: ViewRights) -> Callable[[View], View]:
    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *arguments: Any, **parameters: Any) -> HttpResponseBase:
            if not rights.public:
                _check(rights, person_of(request))
            return view(request, *arguments, **parameters)

        served: Any = guarded if rights.public else login_required(guarded)
        served.rights = rights
        return served  # type: ignore[no-any-return]

    return decorate


authorizes = _declared(AUTHORIZES)
administrators_only = _declared(ViewRights(administers=True))
signed_in = _declared(SIGNED_IN)
public = _declared(PUBLIC)


def _check(rights: ViewRights, person: Person) -> None:
    """Raises: PermissionDenied."""
    if rights.administers and not person.administers:
        raise PermissionDenied("Only administrators may open this page. Ask an administrator.")
    hidden = [resource for resource in rights.lists if not person.may("list", resource)]
    if hidden:
        names = " and ".join(resource.partition(".")[0] for resource in hidden)
        raise PermissionDenied(f"You may not list {names}. Ask an administrator for a role that allows it.")
    if rights.namespaced and person.namespaces is not None and not person.namespaces:
        raise PermissionDenied(
            "You see no namespace yet. Ask an administrator to add you to a group, or for a role in a namespace."
        )


class DeclaredRightsOnly:
    """A middleware: views without declared rights are refused, wherever their URLs come from."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(self, _request: HttpRequest, view: View, _arguments: Any, _parameters: Any) -> None:
        """Raises: PermissionDenied."""
        if rights_of(view) is None:
            raise PermissionDenied("This page declares no rights, so nobody may open it.")
