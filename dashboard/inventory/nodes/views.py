"""Nodes: the list, one node, and changing one.

- `/nodes`: all of them, with tabs for those that need attention. `?q=`, `?state=`, `?l=` (a label selector) and
  `?page=` say which are shown. A renewed lease changes nothing on the page: only becoming unreachable and coming
  back do, and these change the Node.
- `/nodes/NAME`: one. `?change=cordon`, or `?change=taint&key=…&value=…&effect=…`, previews a change; the button under
  the preview makes it (`/nodes/NAME/change`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import yaml
from django.conf import settings
from django.contrib import messages
from django.db.models import Count, F, IntegerField, OrderBy, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from claims.access.event_authors import cluster_kinds
from claims.devices.cache import Part, Unit, read_devices
from claims.devices.holdings import Holder
from claims.devices.published import DeviceKey, DevicePool
from claims.devices.states import DeviceState
from claims.event_recorder import DEFAULT_NAMESPACE
from claims.kinds.pods import Pod
from claims.models import Pod as PodRow
from claims.pod_claims import is_done
from dashboard.inventory.devices.grid import STATES, DeviceTotals, draw_row, line_for, line_named
from dashboard.inventory.nodes.changes import (
    EFFECT_MEANINGS,
    Effects,
    NodeChange,
    NodeChangeForm,
    aftermath,
    evict,
    is_drained,
    read_change,
    rehearse,
)
from dashboard.inventory.nodes.queries import (
    TABS,
    AskedAmount,
    Known,
    NodeRow,
    PodsThere,
    PoolLine,
    allocated,
    labelled,
    nodes_by_state,
    pods_on,
    pool_lines,
    pools_on,
    read_rows,
    tab_filters,
    with_lease,
)
from dashboard.kit import undo
from dashboard.kit.evictions import kept_back, told_of
from dashboard.kit.forms import posted_from
from dashboard.kit.guards import listing
from dashboard.kit.lists import (
    Filter,
    ListColumn,
    ListQuery,
    PageOfRows,
    Tab,
    Table,
    bulk_acts,
    is_file,
    parameter,
    sorted_by,
)
from dashboard.kit.mirrored import agent
from dashboard.kit.preferences import opens_as_usual
from dashboard.kit.previews import Consequence
from dashboard.kit.rendering import ListContext, PageContext, render_page, show_list
from dashboard.templatetags.kit import counted, device_url, node_url, pod_url, yaml_url
from dashboard.tools.events import ShownEvent, shown_event
from dashboard.tools.objects import HistoryPage, asked, show_history
from inventory.kinds.nodes import LIFECYCLE_TAINTS, PRESSURES, Node, Taint
from inventory.models import Pool
from manciple.people import Person, demand, person_of
from manciple.store import history, objects
from manciple.store.event_log import latest_revision
from manciple.store.history import Recent
from manciple.store.objects import decoded
from manciple.store.records import Stored
from manciple.wire.resources import EVENTS, FINISHED_PHASES, NODES, SLICES, kind
from manciple.wire.selectors import ParsedLabelSelector, parse_field_selector, parse_label_selector
from manciple.wire.validation import natural

#: Nodes on a page.
SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuery(ListQuery):
    state: str = parameter("state", known=TABS)
    text: str = parameter("q")
    labels: str = parameter("l")

    @property
    def selector(self) -> tuple[ParsedLabelSelector, str]:
        """The selector, or one that selects all and what is wrong with the text."""
        try:
            return parse_label_selector(self.labels), ""
        except ValueError as error:
            return ParsedLabelSelector(), str(error)


def _count(rows: Any, column: str) -> Coalesce:
    """How many of the rows name the node."""
    counted = rows.filter(**{column: OuterRef("name")}).order_by().values(column).annotate(count=Count("pk"))
    return Coalesce(Subquery(counted.values("count"), output_field=IntegerField()), 0)


def _column(title: str, sort: str = "", **options: Any) -> ListColumn[NodeRow]:
    return ListColumn[NodeRow](title=title, sort=sort, **options)


COLUMNS = (
    _column("Node", "name", text=lambda row: row.known.name),
    _column("State", "state", text=lambda row: row.known.state),
    _column("Labels", extra=True, text=lambda row: " ".join(row.known.labelled)),
    _column("Addresses", extra=True, text=lambda row: " ".join(row.known.addresses)),
    _column(
        "Lease", "lease", text=lambda row: at.isoformat(timespec="seconds") if (at := row.known.renewed_at) else ""
    ),
    _column("Pools", "pools", text=lambda row: f"{len(row.pools) - len(row.incomplete)} of {len(row.pools)} complete"),
    _column(
        "Devices", "free", key=lambda row: (-row.devices.free, -row.devices.total), text=lambda row: row.devices.said
    ),
    _column("Pods", "pods", css="num", text=lambda row: row.pods),
    _column("CPU", "cpu", css="num", key=lambda row: row.percent("cpu"), text=lambda row: row.amount("cpu")),
    _column(
        "Memory", "memory", css="num", key=lambda row: row.percent("memory"), text=lambda row: row.amount("memory")
    ),
)
#: `sort` in the address -> the same in the database. The columns with a `key` are sorted in memory: no table has the
#: states of devices, or what pods request.
ORDERS: Mapping[str, tuple[Any, ...]] = {
    "name": (F("position"),),
    "state": (F("rank"),),
    "lease": (F("renewed_at"),),
    "pools": (-_count(Pool.objects.filter(complete=False), "node_name"), -_count(Pool.objects, "node_name")),
    "pods": (_count(PodRow.objects.exclude(phase__in=FINISHED_PHASES), "node_name"),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesContext(ListContext):
    """complaint: what is wrong with the label selector."""

    query: NodeQuery
    complaint: str
    total: int
    unreachable: int


@listing(NODES, SLICES)
@require_safe
@opens_as_usual
def list_nodes(request: HttpRequest) -> HttpResponse:
    revision, now, query, snapshot = latest_revision(), datetime.now(UTC), NodeQuery.read(request), read_devices()
    selector, complaint = query.selector
    nodes, tabs = nodes_by_state(now), tab_filters(snapshot)
    meant = labelled(nodes.filter(searched__contains=query.text.lower()) if query.text else nodes, selector)
    chosen = _ordered(meant.filter(tabs[query.state]), query.sort)
    in_memory = any(column.key and column.sort == query.sort.removeprefix("-") for column in COLUMNS)

    def read(part: slice) -> list[NodeRow]:
        if in_memory:
            return sorted_by(COLUMNS, query.sort, read_rows(chosen, snapshot, now))[part]
        return read_rows(chosen[part], snapshot, now)

    table = Table(
        id="nodes",
        topics="nodes slices pool: pods:",
        title="Nodes",
        css="stack nodes-tbl",
        query=query,
        columns=COLUMNS,
        read=read,
    )
    if is_file(request):
        return table.as_file(request)
    counts = meant.aggregate(**{word or "all": Count("pk", filter=found or None) for word, found in tabs.items()})
    total, unreachable = counts["all"], counts["unreachable"]
    if query.text or query.labels:
        everywhere = nodes.aggregate(total=Count("pk"), unreachable=Count("pk", filter=tabs["unreachable"]))
        total, unreachable = everywhere["total"], everywhere["unreachable"]
    table = replace(
        table,
        acts=bulk_acts(NODES, "cordon", "uncordon", "drain") if person_of(request).may("update", NODES) else (),
        page=PageOfRows(counts[query.state or "all"], SHOWN, query.page),
        filters=(
            Filter("q", "Name, address, version or label", query.text, hint="Name, address, label"),
            Filter("l", "Label selector", query.labels, hint="rack in (r1, r2), !gpu", complaint=complaint),
        ),
        tabs=[
            Tab(title, counts[word or "all"], query.url(state=word), current=word == query.state)
            for word, title in TABS.items()
        ],
    )
    context = NodesContext(
        place="nodes",
        revision=revision,
        query=query,
        table=table,
        complaint=complaint,
        total=total,
        unreachable=unreachable,
    )
    return show_list(request, "inventory/nodes/list.html", context)


def _ordered(nodes: QuerySet[Any], sort: str) -> QuerySet[Any]:
    """Equal ones by name."""
    keys = ORDERS.get(sort.removeprefix("-"), ())
    if sort.startswith("-"):
        return nodes.order_by(*(OrderBy(key, descending=True, nulls_last=True) for key in keys), "position")
    return nodes.order_by(*(OrderBy(key, nulls_first=True) for key in keys), "position")


#: Of the agent: the SHA-256 of the certificate that it serves logs with.
CERTIFICATE_ANNOTATION = "manciple.dev/agent-certificate-sha256"
#: Events on the page, the newest.
SHOWN_EVENTS = 20
#: Pods that are named in a rehearsal, of each sort.
NAMED = 10


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim that holds devices here. use: what its pods do with it, as far as the API knows."""

    holder: Holder
    devices: tuple[tuple[str, str], ...]  # (address of its page, name)
    pods: tuple[tuple[str, str], ...]  # (name, phase, or "not here")
    use: str


@listing(NODES, SLICES)
@require_safe
def show_node(request: HttpRequest, name: str) -> HttpResponse:
    """The page; with `?change=` what that would do, with `?tab=history` its history."""
    if asked(request):
        page = HistoryPage(
            place="nodes",
            crumbs=((reverse("nodes"), "Nodes"),),
            word="Node",
            name=name,
            url=node_url(name),
            topics=f"node:{name}",
            yaml=yaml_url(NODES, "", name),
        )
        return show_history(request, page, [_read(name).uid])
    change = read_change(request.GET)
    if change is None:
        return _draw(request, name)
    asks = change.what == "taint" and not (change.key or change.value or change.effect)
    person = demand(request, "change nodes", "update", NODES)
    return _draw(request, name, NodeChangeForm(name, change, identity=person.identity, asks=asks))


def _read(name: str) -> Stored:
    stored = objects.get(kind(NODES), "", name)
    if stored is None:
        raise Http404(f"Node {name} does not exist.")
    return stored


@listing(NODES, SLICES)
@posted_from("node")
def change_node(request: HttpRequest, name: str) -> HttpResponse:
    """Do what was rehearsed."""
    person = demand(request, "change nodes", "update", NODES)
    change, stored = read_change(request.POST), _read(name)
    if change is None:
        raise Http404(f"Node {name} does not exist.")
    form = NodeChangeForm(name, change, identity=person.identity)
    after = form.write() if form.is_valid() else None
    if after is None:
        return _draw(request, name, form)
    before, said = decoded(stored, Node), change.done(name)
    if change.what == "drain":
        said = _evict(request, name, person)
    if before.spec == after.spec:
        messages.success(request, said)
    else:
        undo.offer(request, said, [undo.UndoStep.of(kind(NODES), before, after)])
    return redirect(node_url(name))


def _evict(request: HttpRequest, name: str, person: Person) -> str:
    """Evict whom a drain evicts; says what was done. Who could not be evicted is told on its own."""
    pods = [pod for pod in pods_on([name])[name].pods if is_drained(pod)]
    refused = [(pod, why) for pod in pods if (why := evict(pod, person.identity))]
    for pod, why in refused[:NAMED]:
        messages.error(request, f"Pod {pod.metadata.namespace}/{pod.metadata.name} was not evicted: {why}")
    if not pods:
        return f"{name} is cordoned; no pod was evicted."
    evicted = counted(len(pods) - len(refused), "pod is evicted", "pods are evicted")
    return f"{name} is cordoned and {evicted}; Undo removes only the cordon."


def _draw(request: HttpRequest, name: str, form: NodeChangeForm | None = None) -> HttpResponse:
    revision, now, person = latest_revision(), datetime.now(UTC), person_of(request)
    stored, there = _read(name), pods_on([name])[name]
    known = with_lease(decoded(stored, Node), now)
    sheet = _sheet(known, stored.text, there, person)
    context = NodeContext(
        place="nodes",
        revision=revision,
        name=name,
        known=known,
        sheet=sheet,
        may_edit=person.may("update", NODES),
        asked=None if form is None else _shown(form, known.node, there, sheet=sheet, person=person, now=now),
    )
    return render_page(request, "inventory/nodes/page.html", context, status=422 if request.method == "POST" else 200)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChange:
    """A change with what it would do. effects: None until it is typed; frees: devices that are released; told: what
    becomes of pods that are evicted, or kept by disruption budgets."""

    name: str
    form: NodeChangeForm
    effects: Effects | None
    frees: int
    told: Sequence[Consequence]

    @property
    def change(self) -> NodeChange:
        return self.form.change

    @property
    def named(self) -> int:
        return NAMED

    @property
    def effect_meanings(self) -> dict[str, str]:
        return EFFECT_MEANINGS

    @property
    def title(self) -> str:
        if self.change.what == "untaint":
            return f"Remove the taint `{self.change.taint}`?"
        if self.change.what == "taint":
            taint = f"Taint {self.name} with `{self.change.taint}`?"
            return taint if self.effects else f"Add a taint to {self.name}"
        return f"{self.change.what.capitalize()} {self.name}?"

    @property
    def leaving(self) -> int:
        return len(self.effects.leaving) if self.effects else 0

    @property
    def button(self) -> str:
        evicts = f" and evict {self.leaving}" if self.leaving else ""
        taint = f"Taint{evicts}" if evicts else "Add taint"
        own = {"untaint": "Remove taint", "taint": taint, "drain": f"Drain{evicts}"}
        return own.get(self.change.what) or f"{self.change.what.capitalize()}"

    @property
    def staying(self) -> str:
        """A sentence about the other pods here."""
        if self.effects is None:
            return ""
        said = [f"{counted(self.effects.staying, 'stays', 'stay')}."] if self.effects.staying else []
        if self.effects.ending:
            said.append(f"{counted(self.effects.ending, 'is', 'are')} being deleted already.")
        return " ".join(said) or ("" if self.leaving else "None.")

    @property
    def waiting(self) -> tuple[str, list[tuple[str, str]]]:
        """(what it means for pods that wait, links to them)"""
        if self.effects is None or not self.effects.asked:
            return "None waits.", []
        asked, pods = self.effects.asked, self.effects.kept_off or self.effects.let_in
        if self.effects.kept_off:
            said = f"{len(pods)} of {asked} could no longer start here:"
        elif self.effects.let_in:
            said = f"{len(pods)} of {asked} could then start here if devices are free:"
        else:
            said = "Nothing changes for them."
        return said, [("/".join(pod.key), pod_url(*pod.key)) for pod in pods]


def _shown(
    form: NodeChangeForm, node: Node, there: PodsThere, *, sheet: NodeSheet, person: Person, now: datetime
) -> ShownChange:
    effects = rehearse(node, form.change, there, now=now) if form.ready else None
    told: list[Consequence] = []
    frees = 0
    if effects is not None:
        told = [*kept_back(effects.kept, person)]
        if effects.leaving:
            found = told_of(effects.leaving, aftermath(node, form.change, effects, now=now), person)
            told += [one for one in found if one.term != "Evicted"]
        gone = {one.pod.key for one in effects.leaving}
        frees = sum(
            len(one.devices)
            for one in sheet.claims
            if (held := one.holder).pods and not held.others and all((held.namespace, pod) in gone for pod in held.pods)
        )
    return ShownChange(name=form.name, form=form, effects=effects, frees=frees, told=told)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext(PageContext):
    """asked: the change whose effects are shown, if any."""

    name: str
    known: Known
    sheet: NodeSheet
    may_edit: bool
    asked: ShownChange | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSheet:
    """One node, for one person. other_claims, other_pods: how many there are that they do not see."""

    known: Known
    #: (what is wrong, what to do)
    troubles: list[tuple[str, str]]
    devices: DeviceTotals
    tiles: SafeString
    pools: Sequence[PoolLine]
    claims: list[HeldClaim]
    other_claims: int
    pods: list[Pod]
    other_pods: int
    amounts: tuple[AskedAmount, ...]
    events: list[ShownEvent]
    yaml: str
    #: card -> what touches it
    topics: Mapping[str, str]

    @property
    def elsewhere(self) -> dict[str, str]:
        """card -> a sentence about what is in namespaces that the person does not see."""
        claims = counted(self.other_claims, "claim of other namespaces holds", "claims of other namespaces hold")
        pods = counted(self.other_pods, "pod of other namespaces runs", "pods of other namespaces run")
        return {
            "claims": f"{claims} devices here too." if self.other_claims else "",
            "pods": f"{pods} here{' too' if self.pods else ''}." if self.other_pods else "",
        }

    @property
    def logs(self) -> str:
        """Where the agent serves the logs of its pods; "" where it does not."""
        status = self.known.node.status
        port = status.daemon_endpoints.kubelet_endpoint.port
        addresses = {one.type: one.address for one in status.addresses}
        host = addresses.get("InternalIP") or addresses.get("Hostname") or self.known.name
        return f"https://{host}:{port}" if port else ""

    @property
    def certificate(self) -> str:
        return self.known.node.metadata.annotations.get(CERTIFICATE_ANNOTATION, "")

    #: (taint, whether it follows what the node reports)
    @property
    def taints(self) -> list[tuple[Taint, bool]]:
        return [(one, one.key in LIFECYCLE_TAINTS) for one in self.known.node.spec.taints]


def _sheet(known: Known, document: str, there: PodsThere, person: Person) -> NodeSheet:
    snapshot = read_devices()
    line = line_named(snapshot, known.name)
    pools = sorted(pools_on(snapshot).get(known.name, ()), key=lambda pool: (pool.complete, pool.key))
    unreachable = known.state == "Unreachable"
    claims = _claims(line.tiles if line else (), there, unreachable=unreachable)
    stay = sum(not is_done(pod) and not pod.metadata.deletion_timestamp for pod in there.pods)
    seen_pods = [pod for pod in there.pods if person.sees(pod.metadata.namespace)]
    seen_claims = [claim for claim in claims if person.sees(claim.holder.namespace)]
    on_line, on_node = " ".join(sorted(line.topics)) if line else "", f"node:{known.name}"
    on_pods = f"node-pods:{known.name}:"
    return NodeSheet(
        known=known,
        troubles=list(_troubles(known, pools, stay)),
        devices=DeviceTotals(line.counts if line else {}),
        tiles=draw_row(line_for(person, line)) if line else SafeString(),
        pools=pool_lines(pools),
        claims=seen_claims,
        other_claims=len(claims) - len(seen_claims),
        pods=seen_pods,
        other_pods=len(there.pods) - len(seen_pods),
        amounts=allocated(known.node.status.allocatable, there.used),
        events=_events(known.name, person),
        yaml=yaml.safe_dump(json.loads(document), sort_keys=False, allow_unicode=True),
        topics={
            "devices": f"{on_line} slices {on_pods}",
            "claims": f"{on_line} {on_pods}",
            "pods": on_pods,
            "amounts": f"{on_pods} {on_node}",
            "node": on_node,
        },
    )


def _troubles(known: Known, pools: Iterable[DevicePool], stay: int) -> Iterator[tuple[str, str]]:
    """(what is wrong, what to do). stay: pods there that have not ended, and that nobody deletes."""
    unit = "kubelet" if settings.MIRROR else f"manciple-agent@{known.name}"
    check = f"Check its {agent()}: `systemctl status {unit}`."
    if known.state == "Unreachable":
        then = " Its pods are evicted when their tolerations end, by default after 5 min." if stay else ""
        yield f"{known.name} is unreachable. Its last report is shown.", f"{check}{then}"
    conditions = {one.type: one for one in known.node.status.conditions}
    if known.state == "Not ready":
        said = conditions["Ready"].message or conditions["Ready"].reason
        yield f"{known.name} is not ready{f': {said}' if said else ''}.", check
    for type_ in PRESSURES:
        one = conditions.get(type_)
        if one is not None and one.status == "True":
            then = "No new pods until it ends; running ones continue."
            yield f"{type_}: {one.message or one.reason}", then
    for pool in pools:
        if not pool.complete:
            driver, count = pool.key.driver, sum(1 for _ in pool.candidates)
            devices = "its device is" if count == 1 else f"its {count} devices are"
            published = f"{len(pool.slices)} of {pool.expected} slices of {driver} are published"
            then = f"Restart the driver {driver} on {known.name}."
            yield f"{published}; {devices} not allocatable.", then


def _claims(tiles: Iterable[Unit], there: PodsThere, *, unreachable: bool) -> list[HeldClaim]:
    """The claims that hold the node's devices, and what their pods do."""
    phases = {pod.key: _phase(pod, unreachable=unreachable) for pod in there.pods}
    held: dict[str, tuple[Holder, list[DeviceKey]]] = {}
    for tile in tiles:
        for part in tile.parts or (tile,):
            key = part.candidate.key if isinstance(part, Part) and part.candidate else tile.key
            for holder in part.holders:
                held.setdefault(holder.claim_uid, (holder, []))[1].append(key)
    found = [_claim(holder, devices, phases, unreachable=unreachable) for holder, devices in held.values()]
    return sorted(found, key=lambda claim: (claim.holder.namespace, natural(claim.holder.claim)))


def _claim(
    holder: Holder, keys: Iterable[DeviceKey], phases: dict[tuple[str, str], str], *, unreachable: bool
) -> HeldClaim:
    pods = tuple((pod, phases.get((holder.namespace, pod), "not here")) for pod in holder.pods)
    devices = {device_url(*key): key[2] for key in keys}
    use = STATES[DeviceState.PREPARING if holder.preparing else DeviceState.RESERVED]
    if not holder.users:
        use = f"{STATES[DeviceState.ALLOCATED]}, no pod uses it"
    if holder.others:
        use = f"Reserved for {holder.others[0]}" + (f" and {more} more" if (more := len(holder.users) - 1) else "")
    elif pods and all(phase == "not here" for _, phase in pods):
        use = "Its pod is not here"
    elif pods and all(phase in ("Deleting", "not here") for _, phase in pods):
        use = "Its pod is being deleted"
    elif pods and unreachable:
        use = "Not known: the node is unreachable"
    return HeldClaim(holder, tuple(devices.items()), pods, use)


def _phase(pod: Pod, *, unreachable: bool) -> str:
    if pod.metadata.deletion_timestamp:
        return "Deleting"
    return "Unreachable" if unreachable else pod.status.phase or "Pending"


def _events(name: str, person: Person) -> list[ShownEvent]:
    """What those who may report about the node said of it, the newest first."""
    about = parse_field_selector(f"involvedObject.kind=Node,involvedObject.name={name}")
    page = objects.list(kind(EVENTS), namespace=DEFAULT_NAMESPACE, fields=about)
    notes = history.notes([one.revision for one in page.items])
    kinds = cluster_kinds()
    found = [
        shown_event(Recent(one.revision, one.namespace, one.name, one.text, notes.get(one.revision, "")), person, kinds)
        for one in page.items
    ]
    told = [event for event in found if not event.author]
    return sorted(told, key=lambda event: event.at or "", reverse=True)[:SHOWN_EVENTS]
