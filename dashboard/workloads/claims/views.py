"""The claim pages: the list with one claim's sheet beside it, and each claim's own page.

- `/claims`: every claim, what is stuck first, then what waits longest. `?state=`, `?ns=`, `?class=`, `?q=` narrow it,
  `?at=NAMESPACE/NAME` opens a claim's sheet, `?page=` turns the page: what a person sees is in the address.
- `/claims/NAMESPACE/NAME`: the sheet alone; `?tab=yaml` shows the object.
- `/claims/NAMESPACE/NAME/delete` and `/release`: what that would do (GET), and doing it (POST).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from dashboard.kit import links
from dashboard.kit.lists import (
    BulkAct,
    Filter,
    ListColumn,
    ListQuery,
    PageOfRows,
    Table,
    bulk_acts,
    parameter,
    sorted_by,
    state_tabs,
)
from dashboard.kit.previews import ActionEffect, ActionPreview, not_changed, show_preview
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.kit.rights import namespaced
from dashboard.kit.saved_views import opens_as_usual
from dashboard.tools.objects import TAB, ShownHistory, history_of
from dashboard.workloads.claims import actions as claim_actions
from dashboard.workloads.claims.reading import ClaimRow, read_claims
from dashboard.workloads.claims.sheet import ClaimSheet, find_claim, read_sheet
from dashboard.workloads.claims.states import STATES, URGENCY
from manciple.people import Person, demand, demand_edit, demand_sight, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.errors import ApiError, NotFound
from manciple.wire.resources import CLAIMS, CLASSES, kind
from manciple.wire.validation import natural

#: States whose tabs are there even where nothing is in them.
_USUAL = ("stuck", "pending", "preparing", "allocated")
#: Claims on one page.
PAGE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimQuery(ListQuery):
    """What the list's address asks for."""

    state: str = parameter("state", known=STATES)
    namespace: str = parameter("ns")
    device_class: str = parameter("class")
    text: str = parameter("q")
    at: str = parameter("at", selects=True)  # namespace/name of the claim whose sheet is open

    def matches(self, line: ClaimRow) -> bool:
        """Whether the claim is one of those asked for, whatever its state."""
        if self.namespace not in ("", line.namespace) or (self.device_class and self.device_class not in line.classes):
            return False
        wanted = self.text.casefold()
        return not wanted or any(wanted in name.casefold() for name in (line.key, *line.pods, *line.nodes))


def _urgency(line: ClaimRow) -> tuple[int, float, str]:
    """Stuck first, then what waits longest; what is in use, the newest first."""
    seconds = line.created_at.timestamp()
    return URGENCY[line.state], -seconds if line.state == "allocated" else seconds, line.key


def _by_namespace(line: ClaimRow) -> tuple[str, object]:
    return line.namespace, natural(line.name)


def _details(line: ClaimRow) -> str:
    return line.note.replace("`", "") or _pods_of(line)


def _pods_of(line: ClaimRow) -> str:
    return " ".join(line.pods)


#: What the list tells of a claim.
COLUMNS = (
    ListColumn[ClaimRow](title="Claim", sort="name", key=lambda line: natural(line.name), text=lambda line: line.name),
    ListColumn[ClaimRow](
        title="Namespace", css="not-phone", sort="ns", extra=True, key=_by_namespace, text=lambda line: line.namespace
    ),
    ListColumn[ClaimRow](title="State", sort="state", key=_urgency, text=lambda line: line.verdict.label),
    ListColumn[ClaimRow](title="Details", css="wide", text=_details),
    ListColumn[ClaimRow](
        title="Pods", css="not-phone", extra=True, sort="pods", key=lambda line: line.pods, text=_pods_of
    ),
    ListColumn[ClaimRow](
        title="Devices",
        css="num not-phone",
        sort="devices",
        key=lambda line: line.devices,
        text=lambda line: line.devices,
    ),
    ListColumn[ClaimRow](
        title="Node",
        css="not-phone",
        sort="node",
        key=lambda line: [natural(one) for one in line.nodes],
        text=lambda line: " ".join(line.nodes),
    ),
    ListColumn[ClaimRow](title="UID", css="not-phone", extra=True, text=lambda line: line.uid),
    ListColumn[ClaimRow](
        title="Age",
        css="num",
        sort="age",
        key=lambda line: -line.created_at.timestamp(),
        text=lambda line: line.created_at.isoformat(timespec="seconds"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsContext(ListContext):
    """matching: claims in any state; the other numbers are of all claims. sheet: of the claim that is open."""

    query: ClaimQuery
    matching: int
    any: bool
    devices: int
    holding: int
    waiting: int
    stuck: int
    close_url: str
    sheet: ClaimSheet | None


@namespaced()
@require_safe
@opens_as_usual
def list_claims(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision = latest_revision()
    person = person_of(request)
    query = ClaimQuery.read(request)
    claims = read_claims(person, with_classes=bool(query.device_class))
    matching = [line for line in claims if query.matches(line)]
    acts = bulk_acts(CLAIMS, "delete") if person.may_somewhere("delete", CLAIMS) else ()
    context = ClaimsContext(
        place="claims",
        revision=revision,
        query=query,
        table=_table(query, matching, claims, acts=acts),
        matching=len(matching),
        any=bool(claims),
        devices=sum(line.devices for line in claims),
        holding=sum(bool(line.devices) for line in claims),
        waiting=sum(line.state == "pending" for line in claims),
        stuck=sum(line.state == "stuck" for line in claims),
        close_url=query.url(at=""),
        sheet=_sheet_at(person, query.at),
    )
    return show_list(request, "workloads/claims/list.html", context)


def _table(
    query: ClaimQuery, matching: Sequence[ClaimRow], claims: Iterable[ClaimRow], *, acts: Sequence[BulkAct]
) -> Table[ClaimRow]:
    chosen = sorted_by(
        COLUMNS, query.sort, sorted((line for line in matching if query.state in ("", line.state)), key=_urgency)
    )
    page = PageOfRows(len(chosen), PAGE, query.page)
    counts = Counter(line.state for line in matching)
    shown = [state for state in STATES if counts[state] or state in _USUAL or state == query.state]
    return Table(
        id="claims-list",
        topics="claims: pods: nodes",
        title="Claims",
        css="rows",
        query=query,
        columns=COLUMNS,
        rows=chosen[page.rows],
        all_rows=lambda: chosen,
        acts=acts,
        page=page,
        note="" if query.sort else ", stuck first, then waiting longest",
        filters=(
            Filter.of_namespaces(query.namespace, (line.namespace for line in claims)),
            Filter(
                "class",
                "Class",
                query.device_class,
                every="All classes",
                options=[stored.name for stored in objects.list(kind(CLASSES)).items],
            ),
            Filter("q", "Name, namespace, pod or node", query.text),
        ),
        tabs=state_tabs(query, STATES, shown, counts, alarming="stuck"),
    )


#: What `?tab=` may name besides the claim itself.
TABS = ("yaml", TAB)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimContext(PageContext):
    """history: where it is the `tab`."""

    sheet: ClaimSheet
    tab: str = ""
    history: ShownHistory | None = None


@namespaced()
@require_safe
def show_claim(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """One claim."""
    revision = latest_revision()
    person = demand_sight(request, namespace, f"ResourceClaim {name}")
    sheet = _sheet_at(person, f"{namespace}/{name}")
    if sheet is None:
        raise Http404(f"ResourceClaim {namespace}/{name} does not exist.")
    tab = request.GET.get("tab", "")
    context = ClaimContext(
        place="claims",
        revision=revision,
        sheet=sheet,
        tab=tab if tab in TABS else "",
        history=history_of(request, [sheet.meta.uid], namespace=namespace) if tab == TAB else None,
    )
    return render_page(request, "workloads/claims/page.html", context)


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
def delete_claim(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """What deleting it would do; a POST does it."""
    person = demand_sight(request, namespace, f"ResourceClaim {name}")
    demand_edit(request, f"delete claims in {namespace}", namespace, resource=CLAIMS)
    sheet = _demand_sheet(person, namespace, name)
    if request.method != "POST":
        return _preview(request, sheet, claim_actions.effect_of_deletion(sheet.claim, sheet.line), "Delete")
    try:
        gone = claim_actions.delete(person.identity, namespace, name, uid=request.POST.get("uid", ""))
    except ApiError as refusal:
        return _refused(request, sheet, refusal)
    said = (
        f"Deleted claim {name}."
        if gone
        else f"Claim {name} is being deleted; it is removed when nobody uses it any more."
    )
    messages.success(request, said)
    return redirect("claims") if gone else redirect(links.claim_url(namespace, name))


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
def release_claim(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """What a forced release would do; a POST does it. Administrators alone may."""
    person = demand_sight(request, namespace, f"ResourceClaim {name}")
    demand(request, "force a claim's release", "*", "*.*")
    sheet = _demand_sheet(person, namespace, name)
    if request.method != "POST":
        return _preview(request, sheet, claim_actions.effect_of_release(sheet.claim, sheet.line), "Release")
    if not sheet.may_force:
        return _refused(request, sheet, claim_actions.in_use(name))
    try:
        gone = claim_actions.force_release(person.identity, namespace, name, uid=request.POST.get("uid", ""))
    except ApiError as refusal:
        return _refused(request, sheet, refusal)
    messages.success(request, f"Released claim {name} by force; {'it is gone' if gone else 'its devices are free'}.")
    return redirect("claims") if gone else redirect(links.claim_url(namespace, name))


def _sheet_at(person: Person, at: str) -> ClaimSheet | None:
    """The sheet of the claim at `namespace/name`, where there is one that `person` sees."""
    namespace, _, name = at.partition("/")
    stored = find_claim(person, namespace, name) if name else None
    try:
        return read_sheet(person, stored) if stored else None
    except NotFound:  # it went while it was read
        return None


def _demand_sheet(person: Person, namespace: str, name: str) -> ClaimSheet:
    sheet = _sheet_at(person, f"{namespace}/{name}")
    if sheet is None:
        raise Http404(f"ResourceClaim {namespace}/{name} does not exist.")
    return sheet


def _preview(request: HttpRequest, sheet: ClaimSheet, effect: ActionEffect, action: str) -> HttpResponse:
    namespace, name = sheet.meta.namespace, sheet.meta.name
    above = (
        ("Claims", "/claims"), (namespace, f"/claims?ns={namespace}"), (name, links.claim_url(namespace, name))
    )  # fmt: skip
    preview = ActionPreview(
        action=action, noun="claim", uid=sheet.meta.uid, above=above, effect=effect, by_force=action == "Release"
    )
    return show_preview(request, preview, place="claims", revision=latest_revision())


def _refused(request: HttpRequest, sheet: ClaimSheet, refusal: ApiError) -> HttpResponse:
    """The claim's page, with what the API says against it."""
    messages.error(request, not_changed(refusal, noun="claim"))
    context = ClaimContext(place="claims", revision=latest_revision(), sheet=sheet)
    return render_page(request, "workloads/claims/page.html", context, status=refusal.code)
