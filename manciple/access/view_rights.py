"""The rights that each view demands, declared on the view. A view that declares none is not served, and ends the start.

Views of pages declare them with the decorators of `dashboard.kit.rights`, which also enforce them; views of the API
by an attribute of their class (`manciple.api.views.ApiView`), whose permission class asks the authorizer. Nothing here
depends on where a view is defined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern, URLResolver


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRights:
    """public: anybody. Everything else needs somebody who is signed in.

    lists: resources that they may list in the whole cluster. namespaced: they see at least one namespace, and the view
    leaves out the others. administers: they may do everything. authorizes: the right depends on the request, and the
    view asks the authorizer for it.
    """

    public: bool = False
    lists: tuple[str, ...] = ()
    namespaced: bool = False
    administers: bool = False
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
            f"These views declare no rights: {', '.join(missing)}. Decorate each with one of dashboard.kit.rights."
        )
