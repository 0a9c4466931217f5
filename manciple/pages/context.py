"""What every template may use besides its view's context."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.http import HttpRequest

from manciple.access.membership import administrators
from manciple.pages import undo
from manciple.pages.auditors import may_audit
from manciple.pages.people import person_of
from manciple.pages.preferences import preferences_of
from manciple.pages.saved_views import views_of

#: The main navigation: (URL name, word, icon). On a phone the first five, and the rest under "More".
PLACES = (
    ("overview", "Overview", "i-over"),
    ("devices", "Devices", "i-dev"),
    ("claims", "Claims", "i-claim"),
    ("pods", "Pods", "i-pod"),
    ("classes", "Classes", "i-class"),
    ("nodes", "Nodes", "i-node"),
    ("quotas", "Quotas", "i-quota"),
    ("what-if", "What if", "i-whatif"),
    ("timeline", "Timeline", "i-time"),
)
#: Places that the navigation has under "More".
MORE = (
    ("usage", "Usage", "i-over"),
    ("incidents", "Incidents", "i-alert"),
    ("events", "Events", "i-time"),
    ("namespaces", "Namespaces", "i-over"),
    ("drivers", "Drivers", "i-dev"),
    ("templates", "Templates", "i-claim"),
    ("taint-rules", "Taint rules", "i-alert"),
    ("views", "Saved views", "i-view"),
)


def person(request: HttpRequest) -> dict[str, Any]:
    """`person`: who is signed in; `places`, `more_places`: where they may go; `audits`: whether they read the audit
    trail; `administrators`: whom to ask; `undo`: what they may take back; `views`: those of the page that are saved;
    `tour`: whether the page begins with the tour of a first visit.

    Nothing where nobody is signed in.
    """
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {}
    return {
        "person": person_of(request),
        "places": PLACES,
        "more_places": MORE,
        "audits": partial(may_audit, request),
        "administrators": administrators,
        "undo": partial(undo.offered, request),
        "views": partial(views_of, request),
        "tour": partial(wants_tour, request),
    }


#: Where people come first.
_ENTRANCES = ("/overview", "/devices")


def wants_tour(request: HttpRequest) -> bool:
    return request.path in _ENTRANCES and not preferences_of(request).toured
