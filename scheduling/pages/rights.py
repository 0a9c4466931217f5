"""Which of the cluster's resources each page shows, and so who may open it: asked before any view of ours is called.

What is in a namespace is left out by the views themselves, for whoever does not see that namespace. What belongs to no
namespace fills whole pages: who may not list it is told so, and whom to ask, and keeps the navigation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from manciple.pages.people import Person, person_of
from scheduling.resources import CLASSES, NODES, SLICES

#: the folder of a subject -> what its pages are made of
SHOWN: Mapping[str, tuple[str, ...]] = {
    "classes": (CLASSES, SLICES),
    "devices": (NODES, SLICES),
    "drivers": (SLICES,),
    "incidents": (SLICES,),
    "moves": (NODES, SLICES),
    "nodes": (NODES, SLICES),
    "overview": (NODES, SLICES, CLASSES),
    "timeline": (SLICES,),
    "usage": (SLICES,),
    "wallboard": (NODES, SLICES, CLASSES),
    "whatif": (NODES, SLICES, CLASSES),
}
_PAGES = "scheduling.pages."


def may_somewhere(person: Person, verb: str, resource: str) -> bool:
    """Whether they may do that everywhere, or in a namespace that they see."""
    return person.may(verb, resource) or any(person.may(verb, resource, one) for one in person.namespaces or ())


class PageRights:
    """A middleware (see Django's "middleware as a class")."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(self, request: HttpRequest, view: Any, _arguments: Any, _parameters: Any) -> None:
        """Raises: PermissionDenied. Who is not signed in is sent to do so by the view."""
        module = getattr(view, "__module__", "")
        if not request.user.is_authenticated or not module.startswith(_PAGES):
            return
        subject = module.removeprefix(_PAGES).partition(".")[0]
        person = person_of(request)
        hidden = [resource for resource in SHOWN.get(subject, ()) if not person.may("list", resource)]
        if hidden:
            names = " and ".join(resource.partition(".")[0] for resource in hidden)
            raise PermissionDenied(f"You may not list {names}. Ask an administrator for a role that allows it.")
