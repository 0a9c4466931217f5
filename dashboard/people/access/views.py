"""`/access?user=bob`: what bob may do and why, for whoever may ask the API so (by creating SubjectAccessReviews).

With `&verb=create&resource=pods&ns=team-a` also whether bob may do that, and which rule of which role allows it, or who
could. `&groups=` are groups that he is in besides those that are known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.rights import authorizes
from dashboard.people.access.forms import VERBS, AccessForm, find_kind
from dashboard.people.access.reading import AccessAnswer, AccessScope, answer, identity_of, read_scopes
from manciple.access import authorization
from manciple.access.authorization import Attributes
from manciple.people import Person, person_of
from manciple.store.event_log import latest_revision
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.registry import registry

REVIEWS = "subjectaccessreviews.authorization.k8s.io"


def may_ask(person: Person) -> bool:
    return person.may("create", REVIEWS)


@authorizes
@require_safe
def show_access(request: HttpRequest) -> HttpResponse:
    revision = latest_revision()
    if not may_ask(person_of(request)):
        raise PermissionDenied("You may not ask what others may do. Ask an administrator for a role that allows it.")
    form = AccessForm(request.GET if "user" in request.GET else None)
    context = AccessContext(
        place="access", revision=revision, form=form, resources=sorted({kind.resource for kind in registry})
    )
    shown = _found(context, form) if form.is_valid() else context
    return render_page(request, "people/access/page.html", shown, status=422 if form.errors else 200)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessContext(PageContext):
    """The form, and what is known of `who`, once somebody is named.

    everything: a member of system:masters; incomplete: why there may be more roles. wanted, what, answer: what the form
    asks whether they may; unknown: no resource of that name is served.
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
    unknown: bool = False


def _found(context: AccessContext, form: AccessForm) -> AccessContext:
    who = identity_of(form.cleaned_data["user"], form.groups_given)
    found = replace(
        context,
        who=who,
        everything=MASTERS in who.groups,
        scopes=read_scopes(who),
        incomplete=authorization.rules_of(who, "").error,
    )
    if not form.asks:
        return found
    wanted = form.wanted()
    unknown = not wanted.path and find_kind(form.cleaned_data["resource"].partition("/")[0]) is None
    return replace(found, wanted=wanted, what=_what(wanted), answer=answer(who, wanted), unknown=unknown)


def _what(wanted: Attributes) -> str:
    """`pods/log web in team-a`, `nodes`, `/healthz`."""
    if wanted.path:
        return wanted.path
    below = f"/{wanted.subresource}" if wanted.subresource else ""
    named = f" {wanted.name}" if wanted.name else ""
    where = f" in {wanted.namespace}" if wanted.namespace else ""
    return f"{wanted.resource}{below}{named}{where}"
