"""The claim pages: the list with one claim's sheet beside it, and each claim's own page.

- `/claims`: every claim, what is stuck first, then what waits longest. `?state=`, `?ns=`, `?class=`, `?q=` narrow it,
  `?at=NAMESPACE/NAME` opens a claim's sheet, `?page=` turns the page: what a person sees is in the address.
- `/claims/NAMESPACE/NAME`: the sheet alone; `?tab=yaml` shows the object.
- `/claims/NAMESPACE/NAME/delete` and `/release`: what that would do (GET), and doing it (POST).
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from manciple.pages import links
from manciple.pages.people import Person, demand_edit, demand_sight, person_of
from manciple.store import objects
from manciple.store.tail import latest_revision
from manciple.wire.errors import ApiError, NotFound
from scheduling.pages.claims import actions as claim_actions
from scheduling.pages.claims.filters import ClaimFilter, listed
from scheduling.pages.claims.reading import read_claims
from scheduling.pages.claims.sheet import find_claim, read_sheet
from scheduling.pages.claims.states import STATES
from scheduling.resources import CLASSES, kind

#: States whose tabs are there even where nothing is in them.
_USUAL = ("stuck", "pending", "preparing", "allocated")


@login_required
@require_safe
def list_claims(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision = latest_revision()
    person = person_of(request)
    wanted = ClaimFilter.from_query(request.GET)
    claims = read_claims(person, with_classes=bool(wanted.device_class))
    page = listed(claims, wanted)
    context = {
        "place": "claims",
        "revision": revision,
        "wanted": wanted,
        "page": page,
        "tabs": _tabs(wanted, page.counts),
        "rows": [(line, wanted.url(at=line.key)) for line in page.lines],
        "any": bool(claims),
        "devices": sum(line.devices for line in claims),
        "holding": sum(bool(line.devices) for line in claims),
        "waiting": sum(line.state == "pending" for line in claims),
        "stuck": sum(line.state == "stuck" for line in claims),
        "namespaces": sorted({line.namespace for line in claims}),
        "classes": [stored.name for stored in objects.list(kind(CLASSES)).items],
        "previous_url": wanted.url(page=page.page - 1) if page.page > 1 else "",
        "next_url": wanted.url(page=page.page + 1) if page.page < page.pages else "",
        "close_url": wanted.url(at=""),
        "all_url": wanted.url(ns="", q="", state="", **{"class": ""}),
        "at": wanted.at,
        "sheet": _sheet_at(person, wanted.at),
    }
    return render(request, "claims/list.html", context)


@login_required
@require_safe
def show_claim(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """One claim."""
    revision = latest_revision()
    person = demand_sight(request, namespace, f"ResourceClaim {name}")
    sheet = _sheet_at(person, f"{namespace}/{name}")
    if sheet is None:
        raise Http404(f"ResourceClaim {namespace}/{name} does not exist.")
    tab = "yaml" if request.GET.get("tab") == "yaml" else ""
    context = {"place": "claims", "revision": revision, "sheet": sheet, "tab": tab, "alone": True}
    return render(request, "claims/page.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def delete_claim(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """What deleting it would do; a POST does it."""
    person = demand_sight(request, namespace, f"ResourceClaim {name}")
    demand_edit(request, f"delete claims in {namespace}", namespace)
    sheet = _demand_sheet(person, namespace, name)
    if request.method != "POST":
        effect = claim_actions.effect_of_deletion(sheet["claim"], sheet["line"])
        return _preview(request, sheet, effect, action="delete")
    try:
        gone = claim_actions.delete(person.identity, namespace, name, uid=request.POST.get("uid", ""))
    except ApiError as refusal:
        return _refused(request, sheet, refusal)
    said = f"Deleted claim {name}." if gone else f"Claim {name} is being deleted; it goes when nobody uses it any more."
    messages.success(request, said)
    return redirect("claims") if gone else redirect(links.claim_url(namespace, name))


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def release_claim(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """What a forced release would do; a POST does it. Administrators alone may."""
    person = demand_sight(request, namespace, f"ResourceClaim {name}")
    demand_edit(request, "force a claim's release")
    sheet = _demand_sheet(person, namespace, name)
    if request.method != "POST":
        effect = claim_actions.effect_of_release(sheet["claim"], sheet["line"])
        return _preview(request, sheet, effect, action="release")
    if not sheet["may_force"]:
        return _refused(request, sheet, claim_actions.in_use(name))
    try:
        gone = claim_actions.force_release(person.identity, namespace, name, uid=request.POST.get("uid", ""))
    except ApiError as refusal:
        return _refused(request, sheet, refusal)
    messages.success(request, f"Released claim {name} by force; {'it is gone' if gone else 'its devices are free'}.")
    return redirect("claims") if gone else redirect(links.claim_url(namespace, name))


def _tabs(wanted: ClaimFilter, counts: Any) -> list[dict[str, Any]]:
    shown = [state for state in STATES if counts[state] or state in _USUAL or state == wanted.state]
    return [
        {"label": STATES.get(state, "All"), "state": state, "count": counts[state], "url": wanted.url(state=state),
         "current": state == wanted.state}
        for state in ("", *shown)
    ]  # fmt: skip


def _sheet_at(person: Person, at: str) -> dict[str, Any] | None:
    """The sheet of the claim at `namespace/name`, where there is one that `person` sees."""
    namespace, _, name = at.partition("/")
    stored = find_claim(person, namespace, name) if name else None
    try:
        return read_sheet(person, stored) if stored else None
    except NotFound:  # it went while it was read
        return None


def _demand_sheet(person: Person, namespace: str, name: str) -> dict[str, Any]:
    sheet = _sheet_at(person, f"{namespace}/{name}")
    if sheet is None:
        raise Http404(f"ResourceClaim {namespace}/{name} does not exist.")
    return sheet


def _preview(request: HttpRequest, sheet: dict[str, Any], effect: claim_actions.Effect, *, action: str) -> HttpResponse:
    context = {"place": "claims", "revision": latest_revision(), "sheet": sheet, "effect": effect, "action": action}
    return render(request, "claims/effect.html", context)


def _refused(request: HttpRequest, sheet: dict[str, Any], refusal: ApiError) -> HttpResponse:
    """The claim's page, with what the API says against it."""
    messages.error(request, claim_actions.in_words(refusal))
    context = {"place": "claims", "revision": latest_revision(), "sheet": sheet, "tab": "", "alone": True}
    return render(request, "claims/page.html", context, status=refusal.code)
