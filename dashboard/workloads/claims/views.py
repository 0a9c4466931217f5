"""The claim pages: the list with one claim's sheet beside it, and each claim's own page.

- `/claims`: every claim, what is stuck first, then what waits longest. `?state=`, `?ns=`, `?class=`, `?q=` narrow it,
  `?at=NAMESPACE/NAME` opens a claim's sheet, `?page=` turns the page: what a person sees is in the address.
- `/claims/NAMESPACE/NAME`: the sheet alone; `?tab=yaml` shows the object.
- `/claims/NAMESPACE/NAME/delete` and `/release`: what that would do (GET), and doing it (POST) as the person.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from django.contrib import messages
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe
from msgspec import structs

from claims.controllers.reservations import FINALIZER
from claims.devices.cache import read_devices
from claims.devices.published import DeviceKey
from claims.devices.states import OUT_OF_USE, DeviceState
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimStatus, node_of
from claims.models import AllocatedDevice, Claim
from dashboard.kit.guards import namespaced
from dashboard.kit.lists import (
    Filter,
    ListColumn,
    ListQuery,
    PageOfRows,
    Table,
    bulk_acts,
    is_file,
    parameter,
    state_tabs,
)
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.previews import ActionEffect, ActionPreview, consequences, not_changed, only_with, show_preview
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.templatetags.kit import claim_url, listed, page_url
from dashboard.tools.objects import TAB, ShownHistory, history_of
from dashboard.workloads.claims.queries import (
    STATES,
    ClaimRow,
    claim_rows,
    count_states,
    find_claims,
    with_class,
    with_text,
)
from dashboard.workloads.claims.sheet import ClaimSheet, read_sheet
from inventory.models import DeviceClass
from manciple.api import verbs
from manciple.people import Person, demand, demand_edit, demand_sight, person_of
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.errors import ApiError, Conflict, NotFound
from manciple.wire.identity import Identity
from manciple.wire.resources import CLAIMS, kind

#: States whose tabs are there even where nothing is in them.
_USUAL = ("stuck", "pending", "preparing", "allocated")
#: Claims on one page.
PAGE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimQuery(ListQuery):
    state: str = parameter("state", known=STATES)
    namespace: str = parameter("ns")
    device_class: str = parameter("class")
    text: str = parameter("q")
    at: str = parameter("at", selects=True)  # namespace/name of the claim whose sheet is open

    def chosen(self, claims: QuerySet[Claim]) -> QuerySet[Claim]:
        """Those asked for, in whatever state."""
        if self.namespace:
            claims = claims.filter(namespace=self.namespace)
        if self.device_class:
            claims = with_class(claims, self.device_class)
        return with_text(claims, self.text) if self.text else claims


#: What the list tells of a claim; `find_claims` sorts by it.
COLUMNS = (
    ListColumn[ClaimRow](title="Claim", sort="name", text=lambda row: row.name),
    ListColumn[ClaimRow](title="Namespace", css="not-phone", sort="ns", extra=True, text=lambda row: row.namespace),
    ListColumn[ClaimRow](title="State", sort="state", text=lambda row: row.label),
    ListColumn[ClaimRow](title="Details", css="wide", text=lambda row: row.note.replace("`", "") or " ".join(row.pods)),
    ListColumn[ClaimRow](title="Pods", css="not-phone", extra=True, sort="pods", text=lambda row: " ".join(row.pods)),
    ListColumn[ClaimRow](title="Devices", css="num not-phone", sort="devices", text=lambda row: row.devices),
    ListColumn[ClaimRow](title="Node", css="not-phone", sort="node", text=lambda row: " ".join(row.nodes)),
    ListColumn[ClaimRow](title="UID", css="not-phone", extra=True, text=lambda row: row.uid),
    ListColumn[ClaimRow](
        title="Age", css="num", sort="age", text=lambda row: row.created_at.isoformat(timespec="seconds")
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
    revision, person, query = latest_revision(), person_of(request), ClaimQuery.read(request)
    claims, now = Claim.objects.restrict(person), datetime.now(UTC)
    chosen = query.chosen(claims)
    find = partial(find_claims, chosen, state=query.state, sort=query.sort, now=now)
    table = Table(
        id="claims-list",
        topics="claims: pods: nodes",
        title="Claims",
        css="rows",
        query=query,
        columns=COLUMNS,
        read=lambda part: claim_rows(find(rows=part), now=now),
        note="" if query.sort else ", stuck first, then waiting longest",
    )
    if is_file(request):
        return table.as_file(request)
    states = count_states(claims, now=now)
    matching = count_states(chosen, now=now) if query.namespace or query.device_class or query.text else states
    held = AllocatedDevice.objects.filter(admin_access=False, claim__in=claims.values("uid"))
    holding = held.aggregate(devices=Count("pk"), claims=Count("claim", distinct=True))
    classes = list(DeviceClass.objects.order_by("name").values_list("name", flat=True))
    shown = [state for state in STATES if matching[state] or state in _USUAL or state == query.state]
    table = replace(
        table,
        acts=bulk_acts(CLAIMS, "delete") if person.may_somewhere("delete", CLAIMS) else (),
        page=PageOfRows(matching[query.state] if query.state else matching.total(), PAGE, query.page),
        filters=(
            Filter.of_namespaces(query.namespace, claims.order_by().values_list("namespace", flat=True).distinct()),
            Filter("class", "Class", query.device_class, every="All classes", options=classes),
            Filter("q", "Name, namespace, pod or node", query.text),
        ),
        tabs=state_tabs(query, STATES, shown, matching, alarming="stuck"),
    )
    context = ClaimsContext(
        place="claims",
        revision=revision,
        query=query,
        table=table,
        matching=matching.total(),
        any=bool(states),
        devices=holding["devices"],
        holding=holding["claims"],
        waiting=states["pending"],
        stuck=states["stuck"],
        close_url=query.url(at=""),
        sheet=_sheet_at(person, query.at),
    )
    return show_list(request, "workloads/claims/list.html", context)


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
    revision, tab = latest_revision(), request.GET.get("tab", "")
    sheet = _demand_sheet(demand_sight(request, namespace, f"ResourceClaim {name}"), namespace, name)
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
    person = demand_sight(request, namespace, f"ResourceClaim {name}")
    demand_edit(request, f"delete claims in {namespace}", namespace, resource=CLAIMS)
    sheet = _demand_sheet(person, namespace, name)
    if request.method != "POST":
        return _preview(request, sheet, effect_of_deletion(sheet.claim, sheet.line), "Delete")
    options = only_with(request.POST.get("uid", ""))
    try:
        gone = verbs.delete(
            kind(CLAIMS), namespace=namespace, name=name, identity=person.identity, options=options
        ).gone
    except ApiError as refusal:
        return _refused(request, sheet, refusal)
    goes = f"Claim {name} is being deleted; it is removed when nobody uses it."
    messages.success(request, f"Deleted claim {name}." if gone else goes)
    return redirect("claims") if gone else redirect(claim_url(namespace, name))


@namespaced()
@require_http_methods(["GET", "HEAD", "POST"])
def release_claim(request: HttpRequest, namespace: str, name: str) -> HttpResponse:
    """What a forced release would do; a POST does it. Administrators alone may."""
    person = demand_sight(request, namespace, f"ResourceClaim {name}")
    demand(request, "force a claim's release", "*", "*.*")
    sheet = _demand_sheet(person, namespace, name)
    if request.method != "POST":
        return _preview(request, sheet, effect_of_release(sheet.claim, sheet.line), "Release")
    if not sheet.may_force:
        return _refused(request, sheet, Conflict.of(CLAIMS, name, IN_USE))
    try:
        gone = force_release(person.identity, namespace, name, uid=request.POST.get("uid", ""))
    except ApiError as refusal:
        return _refused(request, sheet, refusal)
    messages.success(request, f"Released claim {name} by force; {'it is gone' if gone else 'it holds nothing now'}.")
    return redirect("claims") if gone else redirect(claim_url(namespace, name))


def _sheet_at(person: Person, at: str) -> ClaimSheet | None:
    """The sheet of the claim at `namespace/name`, where there is one that `person` sees."""
    namespace, _, name = at.partition("/")
    stored = objects.get(kind(CLAIMS), namespace, name) if name and person.sees(namespace) else None
    try:
        return read_sheet(person, stored) if stored else None
    except NotFound:  # it went while it was read
        return None


def _demand_sheet(person: Person, namespace: str, name: str) -> ClaimSheet:
    """Raises: Http404."""
    sheet = _sheet_at(person, f"{namespace}/{name}")
    if sheet is None:
        raise Http404(f"ResourceClaim {namespace}/{name} does not exist.")
    return sheet


def _preview(request: HttpRequest, sheet: ClaimSheet, effect: ActionEffect, action: str) -> HttpResponse:
    namespace, name, claims = sheet.meta.namespace, sheet.meta.name, page_url("claims")
    above = (("Claims", claims), (namespace, f"{claims}?ns={namespace}"), (name, claim_url(namespace, name)))
    by_force = action == "Release"
    preview = ActionPreview(
        action=action, noun="claim", uid=sheet.meta.uid, above=above, effect=effect, by_force=by_force
    )
    return show_preview(request, preview, place="claims", revision=latest_revision())


def _refused(request: HttpRequest, sheet: ClaimSheet, refusal: ApiError) -> HttpResponse:
    """The claim's page, with what the API says against it."""
    messages.error(request, not_changed(refusal, noun="claim"))
    context = ClaimContext(place="claims", revision=latest_revision(), sheet=sheet)
    return render_page(request, "workloads/claims/page.html", context, status=refusal.code)


#: Why a claim is not released by force.
IN_USE = "it is in use, and not stuck; delete its pods instead"


def effect_of_deletion(claim: ResourceClaim, line: ClaimRow) -> ActionEffect:
    """What `kubectl delete` would do to it now."""
    living = [user.name for user in line.users if not user.is_over]
    goes_on = "goes on using it until it has ended."
    others = line.foreign_finalizers or tuple(name for name in claim.metadata.finalizers if name != FINALIZER)
    found = [
        ("Devices", _devices(claim, line, freed="are free for other claims" if not living else "stay held until then")),
        *(("Pods", f"Pod {name} {goes_on}") for name in living),
        *(("Pods", f"Pod {name} would wait for it forever.") for name in line.wanted_by),
        *(("Finalizers", f"Finalizer {name} blocks it until removed.") for name in others),
    ]
    waits = bool(living or others)
    summary = "It is removed later." if waits else ""
    return ActionEffect(summary=summary, consequences=consequences(found))


def effect_of_release(claim: ResourceClaim, line: ClaimRow) -> ActionEffect:
    """What a forced release would do to it now."""
    users = [f"pod {user.name}" if user.is_pod else user.title for user in line.users]
    deleted = claim.metadata.deletion_timestamp is not None
    found = [
        ("Devices", _devices(claim, line, freed="are free at once")),
        *(("Reserved for", f"The reservation for {user} is removed.") for user in users),
        *(("Finalizers", f"Finalizer {name} is removed.") for name in removed_finalizers(claim)),
        ("Claim", "It is removed." if deleted else ""),
    ]
    refused = "" if line.state in ("stuck", "unused", "deleting") else IN_USE
    if claim.status.allocation is None:
        owners = [name for name in removed_finalizers(claim) if name != FINALIZER]
        who = f"whoever set finalizer {owners[0]}" if owners else "its controllers"
        summary = f"{line.name} is removed without waiting for {who}."
        warning = f"Skips the cleanup by {who}: do this only if that controller is gone."
    else:
        node = line.nodes[0] if line.nodes else "its node"
        summary = f"{line.name} releases what it holds without asking {node}."
        warning = (
            f"{node if line.nodes else 'Its node'} may still use what another pod then gets. "
            "Do this only if the machine is off or runs nothing of the claim."
        )
    return ActionEffect(summary=summary, consequences=consequences(found), warning=warning, refused=refused)


def removed_finalizers(claim: ResourceClaim) -> tuple[str, ...]:
    """Delete protection; on a claim that is deleted, everything that holds it."""
    deleting = claim.metadata.deletion_timestamp is not None
    return tuple(name for name in claim.metadata.finalizers if deleting or name == FINALIZER)


def force_release(identity: Identity, namespace: str, name: str, *, uid: str) -> bool:
    """Whether it is gone. The status goes first: should the second write fail, the claim controller ends what is left.

    Raises: ApiError.
    """

    def without_status(claim: ResourceClaim) -> ResourceClaim:
        _expect(claim, uid)
        return structs.replace(claim, status=ResourceClaimStatus())

    def without_finalizers(claim: ResourceClaim) -> ResourceClaim:
        _expect(claim, uid)
        dropped = removed_finalizers(claim)
        kept = tuple(one for one in claim.metadata.finalizers if one not in dropped)
        return structs.replace(claim, metadata=structs.replace(claim.metadata, finalizers=kept))

    claims = kind(CLAIMS)
    verbs.modify(claims, without_status, namespace=namespace, name=name, identity=identity, subresource="status")
    try:
        verbs.modify(claims, without_finalizers, namespace=namespace, name=name, identity=identity)
        verbs.current(claims, namespace, name)
    except NotFound:  # the claim controller was quicker
        return True
    return False


def _expect(claim: ResourceClaim, uid: str) -> None:
    """Raises: Conflict where another claim has the name now."""
    if uid and claim.metadata.uid != uid:
        raise Conflict.of(CLAIMS, claim.metadata.name, "another claim has this name now")


#: Devices that are named in one sentence.
NAMED = 8
#: Why a device cannot be allocated although nobody holds it: what follows "is", where that is not the state's name.
_OUT_OF_USE = {
    DeviceState.CLOSED: "on a node that accepts no pods",
    DeviceState.UNPUBLISHED: "not published",
}


def _devices(claim: ResourceClaim, line: ClaimRow, *, freed: str) -> str:
    """freed: what becomes of its devices. Those that nobody would be given all the same are told besides."""
    allocation = claim.status.allocation
    if allocation is None:
        return "It holds no device."
    snapshot, node = read_devices(), node_of(allocation)
    names = {
        snapshot.find(one.driver, one.pool, one.device, node): f"{one.pool}/{one.device}"
        for one in allocation.devices.results
    }
    kept = dict[DeviceKey, str]()  # devices that cannot be allocated though nobody holds them -> why
    for key in names if freed.startswith("are free") else ():
        candidate, state = snapshot.candidate(key), DeviceState.UNPUBLISHED
        if candidate is not None:
            state = snapshot.pools[candidate.home].state_without(claim.metadata.uid, candidate)
        if state in OUT_OF_USE:
            published = candidate is not None and state == DeviceState.UNPUBLISHED
            kept[key] = "in an incomplete pool" if published else _OUT_OF_USE.get(state, state.name.lower())
    given = [name for key, name in names.items() if key not in kept]
    whose = "Its device" if len(given) == 1 else f"Its {len(given)} devices"
    if kept:
        whose = f"Of its {line.devices} devices"
    if len(given) == 1:
        freed = freed.replace("are ", "is ", 1).replace("stay ", "stays ", 1)
    sentences = [f"{whose} {listed(given, NAMED)} {freed}."] if given else []
    for why in dict.fromkeys(kept.values()):
        alike = [names[key] for key in kept if kept[key] == why]
        are = "is" if len(alike) == 1 else "are"
        sentences.append(f"{listed(alike, NAMED)} {are} not allocatable yet: {why}.")
    return " ".join(sentences)
