"""`/access?user=bob`: what bob may do and why, for whoever may ask the API so (by creating SubjectAccessReviews).

With `&verb=create&resource=pods&ns=team-a` also whether bob may do that, and which rule of which role allows it, or who
could. `&groups=` are groups that he is in besides those that are known here.
"""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from manciple.access import authorization
from manciple.access.attributes import Attributes
from manciple.pages.people import Person, person_of
from manciple.store.tail import latest_revision
from manciple.wire.identity import MASTERS
from manciple.wire.registry import registry
from scheduling.pages.access.forms import VERBS, AccessForm, find_kind
from scheduling.pages.access.reading import answer, identity_of, read_scopes

REVIEWS = "subjectaccessreviews.authorization.k8s.io"


def may_ask(person: Person) -> bool:
    return person.may("create", REVIEWS)


@login_required
@require_safe
def show_access(request: HttpRequest) -> HttpResponse:
    revision = latest_revision()
    if not may_ask(person_of(request)):
        raise PermissionDenied("You may not ask what others may do. Ask an administrator for a role that allows it.")
    form = AccessForm(request.GET if "user" in request.GET else None)
    context = {
        "place": "access",
        "revision": revision,
        "form": form,
        "verbs": VERBS,
        "resources": sorted({kind.resource for kind in registry}),
    }
    if form.is_valid():
        context |= _found(form)
    return render(request, "access/page.html", context, status=422 if form.errors else 200)


def _found(form: AccessForm) -> dict[str, object]:
    who = identity_of(form.cleaned_data["user"], form.groups_given)
    found: dict[str, object] = {
        "who": who,
        "everything": MASTERS in who.groups,
        "scopes": read_scopes(who),
        "incomplete": authorization.rules_of(who, "").error,
    }
    if form.asks:
        wanted = form.wanted()
        found |= {"wanted": wanted, "what": _what(wanted), "answer": answer(who, wanted)}
        found["unknown"] = not wanted.path and find_kind(form.cleaned_data["resource"].partition("/")[0]) is None
    return found


def _what(wanted: Attributes) -> str:
    """`pods/log web in team-a`, `nodes`, `/healthz`."""
    if wanted.path:
        return wanted.path
    below = f"/{wanted.subresource}" if wanted.subresource else ""
    named = f" {wanted.name}" if wanted.name else ""
    where = f" in {wanted.namespace}" if wanted.namespace else ""
    return f"{wanted.resource}{below}{named}{where}"
