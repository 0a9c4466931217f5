"""One node: `/nodes/NAME`, and `/nodes/NAME/change` where an administrator changes it.

What a person would do next is rehearsed in the URL: `?change=cordon`, or `?change=taint&key=…&value=…&effect=…`, shows
exactly what it would do; only the button under it does it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import yaml
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from claims.access.event_authors import cluster_kinds
from claims.controllers.node_lifecycle import OURS, PRESSURES
from claims.devices.cache import read_devices
from claims.devices.cards import WHOLE, Part, Unit
from claims.devices.holdings import Holder
from claims.devices.published import DeviceKey, DevicePool
from claims.devices.states import DeviceState
from claims.event_recorder import DEFAULT_NAMESPACE
from claims.kinds.pods import Pod
from dashboard.inventory.devices.lines import GridLine, line_named
from dashboard.inventory.devices.sight import line_for
from dashboard.inventory.devices.tiles import TilePlace, label, places
from dashboard.inventory.devices.words import STATES as DEVICE_STATES
from dashboard.inventory.devices.words import in_words
from dashboard.inventory.nodes.changes import (
    DONE,
    EFFECT_MEANINGS,
    Effects,
    NodeChangeForm,
    aftermath,
    evict,
    is_drained,
    read_change,
    rehearse,
)
from dashboard.inventory.nodes.reading import AskedAmount, Known, PodsThere, allocated, pods_on, pools_on, read_node
from dashboard.kit import links, undo
from dashboard.kit.evictions import kept_back, told_of
from dashboard.kit.forms import posted_from
from dashboard.kit.previews import Consequence
from dashboard.kit.rendering import PageContext, render_page
from dashboard.kit.rights import listing
from dashboard.tools.events import ShownEvent, shown_event
from dashboard.tools.objects import HistoryPage, asked, show_history
from inventory.kinds.nodes import Node, Taint
from manciple.people import Person, demand, person_of
from manciple.store import history, objects
from manciple.store.event_log import latest_revision
from manciple.store.history import Recent
from manciple.store.objects import decoded
from manciple.wire.resources import EVENTS, NODES, SLICES, kind
from manciple.wire.selectors import parse_field_selector
from manciple.wire.validation import natural

#: Of the agent: the SHA-256 of the certificate that it serves logs with.
CERTIFICATE_ANNOTATION = "manciple.dev/agent-certificate-sha256"
#: Events on the page, the newest.
SHOWN_EVENTS = 20
#: Pods that are named in a rehearsal, of each sort.
NAMED = 10


@dataclass(frozen=True, slots=True)
class DeviceTile:
    """A tile of the node's line. namespace: of the holder, where it is written on the tile."""

    tile: Unit
    at: TilePlace
    url: str
    label: str
    namespace: str

    @property
    def parts(self) -> tuple[Part, ...]:
        """What a card is cut into; one that is not cut now fills its frame."""
        if not self.tile.cut:
            return ()
        return self.tile.parts or (Part(candidate=self.tile.candidates[0], state=self.tile.state, weight=WHOLE),)


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim that holds devices here. use: what its pods do with it, as far as the API knows."""

    namespace: str
    name: str
    devices: tuple[tuple[str, str], ...]  # (address of its page, name)
    pods: tuple[tuple[str, str], ...]  # (name, phase, or "not here")
    others: tuple[str, ...]  # who else it is reserved for: "jobs.batch train"
    use: str


@dataclass(frozen=True, slots=True)
class NodePool:
    """A pool of this node. published_at: when the newest of its slices was written."""

    pool: DevicePool
    published_at: datetime | None

    @property
    def devices(self) -> int:
        return sum(1 for _ in self.pool.candidates)


@listing(NODES, SLICES)
@require_safe
def show_node(request: HttpRequest, name: str) -> HttpResponse:
    """The page; with `?change=` what that would do, with `?tab=history` its history."""
    if asked(request):
        return _show_history(request, name)
    change = read_change(request.GET)
    if change is None:
        return _draw(request, name)
    asks = change.what == "taint" and not (change.key or change.value or change.effect)
    person = demand(request, "change nodes", "update", NODES)
    return _draw(request, name, NodeChangeForm(name, change, identity=person.identity, asks=asks))


def _show_history(request: HttpRequest, name: str) -> HttpResponse:
    stored = objects.get(kind(NODES), "", name)
    if stored is None:
        raise Http404(f"Node {name} does not exist.")
    page = HistoryPage(
        place="nodes",
        crumbs=(("/nodes", "Nodes"),),
        word="Node",
        name=name,
        url=links.node_url(name),
        topics=f"node:{name}",
        yaml=links.yaml_url(NODES, "", name),
    )
    return show_history(request, page, [stored.uid])


@listing(NODES, SLICES)
@posted_from("node")
def change_node(request: HttpRequest, name: str) -> HttpResponse:
    """Do what was rehearsed."""
    person = demand(request, "change nodes", "update", NODES)
    change, stored = read_change(request.POST), objects.get(kind(NODES), "", name)
    if change is None or stored is None:
        raise Http404(f"Node {name} does not exist.")
    form = NodeChangeForm(name, change, identity=person.identity)
    after = form.write() if form.is_valid() else None
    if after is None:
        return _draw(request, name, form)
    before, said = decoded(stored, Node), DONE[change.what](name, change)
    if change.what == "drain":
        said = _evict(request, name, person)
    if before.spec == after.spec:
        messages.success(request, said)
    else:
        undo.offer(request, said, [undo.UndoStep.of(kind(NODES), before, after)])
    return redirect(links.node_url(name))


def _evict(request: HttpRequest, name: str, person: Person) -> str:
    """Evict whom a drain evicts; says what was done. Who could not be evicted is told on its own."""
    pods = [pod for pod in pods_on([name])[name].pods if is_drained(pod)]
    refused = [(pod, why) for pod in pods if (why := evict(pod, person.identity))]
    for pod, why in refused[:NAMED]:
        messages.error(request, f"Pod {pod.metadata.namespace}/{pod.metadata.name} was not evicted: {why}")
    if not pods:
        return f"{name} is cordoned; no pod had to leave."
    count = len(pods) - len(refused)
    evicted = f"{count} pod{'' if count == 1 else 's'} {'is' if count == 1 else 'are'} evicted"
    return f"{name} is cordoned and {evicted}; undoing takes back the cordon alone."


def _draw(request: HttpRequest, name: str, form: NodeChangeForm | None = None) -> HttpResponse:
    revision, now, person = latest_revision(), datetime.now(UTC), person_of(request)
    known = read_node(name, now)
    if known is None:
        raise Http404(f"Node {name} does not exist.")
    there = pods_on([name])[name]
    sheet = _sheet(known, there, person)
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
    """A change that is asked about. effects: None as long as it is not said whole; frees: devices of the node."""

    form: NodeChangeForm
    effects: Effects | None
    frees: int
    told: list[Consequence]

    @property
    def named(self) -> int:
        return NAMED

    @property
    def effect_meanings(self) -> dict[str, str]:
        return EFFECT_MEANINGS


def _shown(
    form: NodeChangeForm, node: Node, there: PodsThere, *, sheet: NodeSheet, person: Person, now: datetime
) -> ShownChange:
    effects = rehearse(node, form.change, there, now=now) if form.ready else None
    told: list[Consequence] = []
    if effects is not None and effects.leaving:
        found = told_of(effects.leaving, aftermath(node, form.change, effects, now=now), person)
        told = [one for one in found if one.term != "Evicted"]
    if effects is not None:
        told = [*kept_back(effects.kept, person), *told]
    return ShownChange(form=form, effects=effects, frees=_frees(effects, sheet.claims), told=told)


def _frees(effects: Effects | None, claims: Iterable[HeldClaim]) -> int:
    """The devices of claims that nobody uses once the leaving pods are gone."""
    gone = {(one.pod.metadata.namespace, one.pod.metadata.name) for one in (effects.leaving if effects else ())}
    return sum(
        len(claim.devices)
        for claim in claims
        if claim.pods and not claim.others and all((claim.namespace, pod) in gone for pod, _ in claim.pods)
    )


# What the page tells -------------------------------------------------------------------------------------------------


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
    line: GridLine | None
    tiles: list[DeviceTile]
    pools: list[NodePool]
    claims: list[HeldClaim]
    other_claims: int
    pods: list[Pod]
    other_pods: int
    amounts: tuple[AskedAmount, ...]
    events: list[ShownEvent]
    yaml: str

    @property
    def counts(self) -> str:
        """Its devices by state, in words."""
        return in_words(self.line.counts) if self.line else ""

    @property
    def free(self) -> int:
        return self.line.counts.get(DeviceState.FREE, 0) if self.line else 0

    @property
    def topics(self) -> str:
        return " ".join(sorted(self.line.topics)) if self.line else ""

    @property
    def room(self) -> str:
        """How many pods it takes; "" where it does not say."""
        return self.known.node.status.allocatable.get("pods", "")

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

    @property
    def labels(self) -> list[tuple[str, str]]:
        return sorted(self.known.labels.items())

    @property
    def taints(self) -> list[tuple[Taint, bool]]:
        """(taint, whether it follows what the node reports)"""
        return [(taint, taint.key in OURS) for taint in self.known.node.spec.taints]


def _sheet(known: Known, there: PodsThere, person: Person) -> NodeSheet:
    snapshot = read_devices()
    line = line_named(snapshot, known.name)
    pools = _pools(pools_on(snapshot).get(known.name, []))
    claims = _claims(line.tiles if line else (), there)
    seen_pods = [pod for pod in there.pods if person.sees(pod.metadata.namespace)]
    seen_claims = [claim for claim in claims if person.sees(claim.namespace)]
    stored = objects.get(kind(NODES), "", known.name)
    return NodeSheet(
        known=known,
        troubles=_troubles(known, [one.pool for one in pools]),
        line=line,
        tiles=_tiles(line_for(person, line)) if line else [],
        pools=pools,
        claims=seen_claims,
        other_claims=len(claims) - len(seen_claims),
        pods=seen_pods,
        other_pods=len(there.pods) - len(seen_pods),
        amounts=allocated(known.node.status.allocatable, there.used),
        events=_events(known.name, person),
        yaml=yaml.safe_dump(json.loads(stored.text), sort_keys=False, allow_unicode=True) if stored else "",
    )


def _troubles(known: Known, pools: Iterable[DevicePool]) -> list[tuple[str, str]]:
    """(what is wrong, what to do)."""
    found = []
    check = f"Check the agent on the machine: `systemctl status manciple-agent@{known.name}`."
    if known.state == "Silent":
        found.append(
            (
                f"{known.name} has stopped reporting.",
                f"Its pods are evicted when their tolerations end, after 5 min unless they say otherwise. {check}",
            )
        )
    conditions = {one.type: one for one in known.node.status.conditions}
    if known.state == "Not ready":
        said = conditions["Ready"].message or conditions["Ready"].reason
        found.append((f"{known.name} reports that it is not ready{f': {said}' if said else ''}.", check))
    for type_ in PRESSURES:
        one = conditions.get(type_)
        if one is not None and one.status == "True":
            found.append(
                (
                    f"{type_}: {one.message or one.reason}",
                    "No new pods are placed here until it is resolved; running pods continue.",
                )
            )
    for pool in pools:
        if not pool.complete:
            found.append((_short(pool), f"Restart the driver {pool.key[0]} on {known.name}; it publishes all of them."))
    return found


def _short(pool: DevicePool) -> str:
    count = sum(1 for _ in pool.candidates)
    devices = "its device is" if count == 1 else f"its {count} devices are"
    return f"{len(pool.slices)} of {pool.expected} slices of {pool.key[0]} are published; {devices} not allocatable."


def _pools(pools: Iterable[DevicePool]) -> list[NodePool]:
    """The incomplete ones first."""
    ordered = sorted(pools, key=lambda pool: (pool.complete, pool.key))
    names = frozenset(one.name for pool in ordered for one in pool.slices)
    written = history.last_written(kind(SLICES), names=names) if names else {}
    return [
        NodePool(pool, max((written[one.name] for one in pool.slices if one.name in written), default=None))
        for pool in ordered
    ]


def _tiles(line: GridLine) -> list[DeviceTile]:
    return [_tile(tile, at) for tile, at in places(line)]


def _tile(tile: Unit, at: TilePlace) -> DeviceTile:
    namespace = tile.namespace if at.run and tile.claim_uid and tile.state == DeviceState.RESERVED else ""
    return DeviceTile(tile, at, links.device_url(*tile.key), label(tile), namespace)


def _claims(tiles: Iterable[Unit], there: PodsThere) -> list[HeldClaim]:
    """The claims that hold the node's devices, and what their pods do."""
    phases = {pod.key: _phase(pod) for pod in there.pods}
    held: dict[str, tuple[Holder, list[DeviceKey]]] = {}
    for tile in tiles:
        for part in tile.parts or (tile,):
            key = part.candidate.key if isinstance(part, Part) and part.candidate else tile.key
            for holder in part.holders:
                held.setdefault(holder.claim_uid, (holder, []))[1].append(key)
    found = [_claim(holder, devices, phases) for holder, devices in held.values()]
    return sorted(found, key=lambda claim: (claim.namespace, natural(claim.name)))


def _claim(holder: Holder, keys: Iterable[DeviceKey], phases: dict[tuple[str, str], str]) -> HeldClaim:
    pods = tuple((pod, phases.get((holder.namespace, pod), "not here")) for pod in holder.pods)
    devices = {links.device_url(*key): key[2] for key in keys}
    use = DEVICE_STATES[DeviceState.PREPARING if holder.preparing else DeviceState.RESERVED]
    if not holder.users:
        use = f"{DEVICE_STATES[DeviceState.ALLOCATED]}, no pod uses it"
    if holder.others:
        use = f"Reserved for {holder.others[0]}" + (f" and {more} more" if (more := len(holder.users) - 1) else "")
    elif pods and all(phase == "not here" for _, phase in pods):
        use = "Its pod is not here"
    elif pods and all(phase in ("Deleting", "not here") for _, phase in pods):
        use = "Its pod is being deleted"
    return HeldClaim(holder.namespace, holder.claim, tuple(devices.items()), pods, tuple(map(str, holder.others)), use)


def _phase(pod: Pod) -> str:
    return "Deleting" if pod.metadata.deletion_timestamp else pod.status.phase or "Pending"


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
