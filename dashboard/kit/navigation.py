"""Where the navigation leads: to the pages that somebody may open, and to no others.

    places_of(PLACES, person)        # of those, the ones whose declared rights they have

Whoever sees one namespace may be allowed to list no node, and then has neither the overview nor the devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import cast

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import resolve, reverse
from django.views.decorators.http import require_safe

from dashboard.kit.guards import check, public
from manciple.access.authorization import ViewRights, rights_of
from manciple.people import Person, person_of

#: (URL name, word, icon)
Place = tuple[str, str, str]
#: The main navigation. On a phone the first five, and the rest under "More".
PLACES: Sequence[Place] = (
    ("overview", "Overview", "i-over"),
    ("devices", "Devices", "i-dev"),
    ("claims", "Claims", "i-claim"),
    ("pods", "Pods", "i-pod"),
    ("workloads", "Workloads", "i-work"),
    ("classes", "Classes", "i-class"),
    ("nodes", "Nodes", "i-node"),
    ("quotas", "Quotas", "i-quota"),
    ("what-if", "What if", "i-whatif"),
    ("timeline", "Timeline", "i-time"),
)
#: Places that the navigation has under "More".
MORE: Sequence[Place] = (
    ("usage", "Usage", "i-over"),
    ("incidents", "Incidents", "i-alert"),
    ("events", "Events", "i-time"),
    ("ended", "What ended", "i-time"),
    ("namespaces", "Namespaces", "i-over"),
    ("drivers", "Drivers", "i-dev"),
    ("templates", "Templates", "i-claim"),
    ("autoscalers", "Autoscalers", "i-work"),
    ("taint-rules", "Taint rules", "i-alert"),
    ("views", "Saved views", "i-view"),
)
#: Places of the account's menu.
OWN: Sequence[Place] = (
    ("notifications", "Notifications", "i-alert"),
    ("account", "Your account", "i-person"),
    ("access", "Your rights", "i-person"),
    ("manual", "Manual", "i-view"),
    ("keys", "Keys", "i-key"),
    ("audit", "Audit", "i-time"),
    ("people", "People and groups", "i-person"),
    ("roles", "Roles", "i-person"),
)
#: What a mirror has not: kinds that it does not copy, and accounts of its own; and what it alone has.
_UNMIRRORED = frozenset({"autoscalers", "people", "roles"})
_MIRRORED = frozenset({"access"})


def places_of(places: Sequence[Place], person: Person) -> list[Place]:
    return [one for one in places if opens(one[0], person)]


def opens(name: str, person: Person) -> bool:
    """Whether the page of this URL's name is there, and they may open it."""
    if name in (_UNMIRRORED if settings.MIRROR else _MIRRORED):
        return False
    if name == "overview" and person.has_no_role:  # it is shown when they sign in, and says whom to ask
        return False
    if name == "audit":
        return person.may_audit()
    if name == "roles" and not person.administers:  # others may open the page, but it shows them little
        return False
    try:
        check(_rights(name), person)
    except PermissionDenied:
        return False
    return True


@cache
def _rights(name: str) -> ViewRights:
    return cast("ViewRights", rights_of(resolve(reverse(name)).func))  # every view declares some


@public
@require_safe
def go_home(request: HttpRequest) -> HttpResponse:
    """Leads to the first page that the person may open, or else to their account. Somebody without a role is sent to
    the overview, which says whom to ask.
    """
    if not request.user.is_authenticated or person_of(request).has_no_role:
        return redirect("overview")
    found = places_of(PLACES, person_of(request))
    return redirect(found[0][0] if found else "account")
