"""One device: its panel beside the grid, and its page `/devices/d/DRIVER/POOL/DEVICE`.

Both say the same: what it is, who holds it since when, what it is fenced off for, who held it before. Of holders in
namespaces that a person does not see, they say that there are some.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from claims.device_taints import following
from claims.devices.cache import read_devices
from claims.devices.cards import Unit
from claims.devices.holdings import Holder, Other, level_of
from claims.devices.pools import DeviceSnapshot
from claims.devices.published import CandidateDevice, DeviceKey, DevicePool, Keyed, attribute_text, nanos, pool_of
from claims.devices.states import DeviceState
from claims.kinds.pods import Pod
from dashboard.inventory.devices.filters import fact_counts
from dashboard.inventory.devices.history import History, read_history
from dashboard.inventory.devices.lines import GridLine, lines_of
from dashboard.inventory.devices.selector_text import selector_of
from dashboard.inventory.devices.sight import DeviceRights, holders_for, line_for
from dashboard.inventory.devices.tiles import label
from dashboard.inventory.devices.words import MEANINGS, STATES
from dashboard.kit.links import device_url
from dashboard.kit.rendering import PageContext, TemplateContext, render_page
from dashboard.kit.rights import listing
from inventory.kinds.devices import DeviceTaint, is_unhealthy
from inventory.kinds.taint_rules import TaintRules
from inventory.live import pool_topic
from manciple.durations import clock
from manciple.people import Person, person_of
from manciple.store import objects
from manciple.wire.quantity import Format, Quantity
from manciple.wire.registry import registry
from manciple.wire.resources import NODES, SLICES

PODS = "pods"
#: Holders that are described; the rest of a widely shared device is counted.
DESCRIBED = 8
#: NeighbourStrip that fit into the strip of a panel.
NEIGHBOURS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelContext(TemplateContext):
    panel: DevicePanel | None


@listing(NODES, SLICES)
@require_safe
def show_panel(request: HttpRequest) -> HttpResponse:
    """The panel of `?at=`; empty when no such device is known."""
    panel = read_panel(person_of(request), read_devices(), request.GET.get("at", ""))
    return render_page(request, "inventory/devices/panel.html", PanelContext(panel=panel))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceContext(PageContext):
    panel: DevicePanel
    may: DeviceRights


@listing(NODES, SLICES)
@require_safe
def show_device(request: HttpRequest, driver: str, pool: str, device: str) -> HttpResponse:
    """The page. Raises: Http404."""
    snapshot, person = read_devices(), person_of(request)
    panel = read_device(person, snapshot, snapshot.find(driver, pool, device, request.GET.get("node", "")))
    if panel is None:
        raise Http404(f"Device {driver}/{pool}/{device} does not exist.")
    context = DeviceContext(place="devices", revision=snapshot.revision, panel=panel, may=DeviceRights.of(person))
    return render_page(request, "inventory/devices/device.html", context)


def key_of(address: str, snapshot: DeviceSnapshot) -> DeviceKey | None:
    """The device of an address (`Keyed.address`); a pool's name may itself contain slashes."""
    driver, _, rest = address.partition("/")
    place, _, node = rest.partition("?node=")
    pool, _, device = place.rpartition("/")
    return snapshot.find(driver, pool, device, node) if driver and pool and device else None


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a device's health, and from whom."""

    state: str = ""
    message: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sibling:
    """Another device of the same card. by: who holds it."""

    at: str
    name: str
    state: DeviceState
    by: str

    @property
    def state_name(self) -> str:
        return STATES[self.state]


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A tile of the same line, as the strip draws it."""

    at: str
    state: DeviceState
    level: int
    label: str
    here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourStrip:
    """The tiles of its line that are alike, and which of them it is: `position` 3 `of` 8. before, after: addresses."""

    mini: tuple[Neighbour, ...] = ()
    position: int = 0
    of: int = 0
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePanel(Keyed):
    """One device, as far as one person may know of it. candidate: None where nobody publishes it."""

    key: DeviceKey = field()  # without it, the property that it stands for would count as its default
    node: str
    candidate: CandidateDevice | None
    state: DeviceState
    level: int
    holders: tuple[HeldBy, ...]
    more_holders: int
    history: History
    health: Health
    pool_row: DevicePool | None
    siblings: tuple[Sibling, ...]
    neighbours: NeighbourStrip
    #: (name, amount, how much of it is in use where the device is shared)
    capacity: tuple[tuple[str, str, str], ...] = ()
    #: (counter set, counter, what the device draws, what is left, whether that is too little)
    counters: tuple[tuple[str, str, str, str, bool], ...] = ()
    #: (domain, [(name, value as text)])
    attributes: Sequence[tuple[str, list[tuple[str, str]]]] = ()
    #: an expression that chooses such devices
    selector: str = ""
    #: names of the rules that taint it
    rules: tuple[str, ...] = ()

    @property
    def topic(self) -> str:
        return pool_topic(self.driver, self.pool)

    @property
    def model(self) -> str:
        return self.candidate.model if self.candidate else ""

    @property
    def state_name(self) -> str:
        return STATES[self.state]

    @property
    def meaning(self) -> str:
        return MEANINGS[self.state]

    @property
    def taints(self) -> list[tuple[DeviceTaint, str]]:
        """(taint, the DeviceTaintRule that it is of); "" for those that the driver publishes, which stand first."""
        taints = self.candidate.device.taints if self.candidate else ()
        own = len(taints) - len(self.rules)
        return [*((taint, "") for taint in taints[:own]), *zip(taints[own:], self.rules, strict=True)]


def read_panel(person: Person, snapshot: DeviceSnapshot, address: str) -> DevicePanel | None:
    """What the panel says of the device at this address; None where the address names none."""
    key = key_of(address, snapshot)
    return None if key is None else read_device(person, snapshot, key)


def read_device(person: Person, snapshot: DeviceSnapshot, key: DeviceKey) -> DevicePanel | None:
    """None where nobody publishes it, and nobody holds it."""
    candidate, holders = snapshot.candidate(key), snapshot.held_by(key)
    if candidate is None and not holders:
        return None
    seen = holders_for(person, holders)
    pool = snapshot.pools[pool_of(key)]
    line = _line_of(snapshot, key)
    pods = _pods(seen[:DESCRIBED])
    panel = DevicePanel(
        key=key,
        node=line.node if line else "",
        candidate=candidate,
        state=pool.state(key),
        level=level_of(candidate, holders) if candidate else 0,
        holders=tuple(_held_by(holder, key, pods) for holder in seen[:DESCRIBED]),
        more_holders=max(0, len(seen) - DESCRIBED),
        history=read_history(person, key, seen, now=datetime.now(UTC)),
        health=_health(key, candidate, seen, pods),
        pool_row=pool.pool if pool.pool.slices else None,
        siblings=_siblings(person, snapshot, key, line),
        neighbours=_neighbours(person, key, line),
    )
    if candidate is None:
        return panel
    return replace(
        panel,
        capacity=tuple(_capacity(candidate, holders)),
        counters=tuple(_counters(snapshot, candidate)),
        attributes=_attributes(candidate),
        selector=selector_of(candidate, fact_counts(snapshot.candidates)),
        rules=_rules(key, candidate),
    )


def _rules(key: DeviceKey, candidate: CandidateDevice) -> tuple[str, ...]:
    """The rules whose taints the snapshot has of it; none where they have changed since it was taken."""
    if not candidate.device.taints:
        return ()
    with following.view() as view:
        known = TaintRules(view.now().all).of(*key[:3])
    behind = candidate.device.taints[-len(known) :] if known else ()
    return tuple(rule.metadata.name for rule in known) if behind == tuple(rule.spec.taint for rule in known) else ()


def _line_of(snapshot: DeviceSnapshot, key: DeviceKey) -> GridLine | None:
    topic = pool_topic(key[0], key[1])
    lines = [line for line in lines_of(snapshot) if topic in line.topics]
    return next((line for line in lines if any(_stands_for(tile, key) for tile in line.tiles)), None)


def _stands_for(tile: Unit, key: DeviceKey) -> bool:
    return tile.key == key or any(candidate.key == key for candidate in tile.candidates)


# Who holds it --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBy:
    """A holder as the page tells it. cdi_file: the agent's name for the claim's file. cdi_ids: for the runtime."""

    holder: Holder
    share: str
    ends: str
    cdi_file: str
    cdi_ids: tuple[str, ...]

    @property
    def named(self) -> bool:
        return bool(self.holder.claim)


def _pods(holders: Iterable[Holder]) -> dict[tuple[str, str], Pod]:
    """Those that the holders are reserved for, in one query; who may not be named has none."""
    names = {(holder.namespace, pod) for holder in holders for pod in holder.pods}
    if not names:
        return {}
    kind = registry.by_resource(PODS)
    found = (objects.decode(kind, stored.text) for stored in objects.get_many(kind, names))
    return {pod.key: pod for pod in found if isinstance(pod, Pod)}


def _held_by(holder: Holder, key: DeviceKey, pods: dict[tuple[str, str], Pod]) -> HeldBy:
    using = [pods[holder.namespace, name] for name in holder.pods if (holder.namespace, name) in pods]
    ids = dict.fromkeys(one for pod in using for one, _, _ in _reports(pod, key, holder) if "=" in one)
    return HeldBy(
        holder=holder,
        share=", ".join(f"{Quantity(amount).canonical()} of {name}" for name, amount in holder.consumed.items()),
        ends=_ends(using, holder.others),
        cdi_file=f"k8s.{key[0]}-claim_{holder.claim_uid}.json" if holder.claim_uid else "",
        cdi_ids=tuple(ids),
    )


def _ends(pods: Sequence[Pod], others: Sequence[Other]) -> str:
    """When the device is free again, as far as it is known."""
    if others:
        rest = f" and {len(others) - 1} more" if len(others) > 1 else ""
        return (
            f"Free again: unknown. It stays held until the controller of {others[0]}{rest} removes it from the claim's "
            "status.reservedFor."
        )
    deadlines = [_deadline(pod) for pod in pods]
    if not pods:
        return ""
    if len(pods) > 1 or deadlines[0] is None:
        who = "The pod sets" if len(pods) == 1 else "The pods set"
        return f"Free again: unknown. {who} no deadline." if None in deadlines else "Free again: unknown."
    return f"Free again: by {clock(deadlines[0])}, the pod's deadline."


def _deadline(pod: Pod) -> datetime | None:
    seconds, started = pod.spec.active_deadline_seconds, pod.status.start_time
    return datetime.fromisoformat(started) + timedelta(seconds=seconds) if seconds and started else None


def _reports(pod: Pod, key: DeviceKey, holder: Holder) -> Iterator[tuple[str, str, str]]:
    """(resource id, health, message) of what the node's agent reports of this device."""
    plain, cdi = "/".join(key[:3]), f"={holder.claim_uid}-{key[2]}"
    status = pod.status
    for container in (*status.init_container_statuses, *status.container_statuses):
        for resource in container.allocated_resources_status:
            for one in resource.resources:
                if one.resource_id == plain or (holder.claim_uid and cdi in one.resource_id):
                    yield one.resource_id, one.health, one.message or ""


def _health(
    key: DeviceKey, candidate: CandidateDevice | None, holders: Iterable[Holder], pods: dict[tuple[str, str], Pod]
) -> Health:
    """An unknown health of which nothing is said gives way to a taint."""
    reported = _reported(key, holders, pods)
    if reported.message or reported.state not in {"", "Unknown"}:
        return reported
    broken = next((taint for taint in candidate.device.taints if is_unhealthy(taint.key)), None) if candidate else None
    return reported if broken is None else Health("Unhealthy", broken.value, f"by taint {broken.key}")


def _reported(key: DeviceKey, holders: Iterable[Holder], pods: dict[tuple[str, str], Pod]) -> Health:
    for holder in holders:
        for name in holder.pods:
            if (pod := pods.get((holder.namespace, name))) is not None:
                for _, health, message in _reports(pod, key, holder):
                    return Health(health, message, "as the agent reports it with the pod")
    return Health()


# What it is ----------------------------------------------------------------------------------------------------------


def _capacity(candidate: CandidateDevice, holders: Iterable[Holder]) -> Iterator[tuple[str, str, str]]:
    """(name, amount, how much of it is in use where the device is shared)."""
    used: dict[str, int] = {}
    for holder in holders:
        for name, amount in holder.consumed.items():
            used[name] = used.get(name, 0) + amount
    for name, capacity in sorted(candidate.device.capacity.items()):
        shown = ""
        if candidate.device.allow_multiple_allocations:
            shown = f"{_amount(used.get(name, 0), capacity.value)} in use"
        yield name, str(capacity.value), shown


def _amount(amount: int, like: str) -> str:
    """A quantity in the family (binary, decimal) of another."""
    try:
        return Quantity(amount, Quantity.parse(like).format).canonical()
    except ValueError:
        return Quantity(amount, Format.DECIMAL_SI).canonical()


def _counters(snapshot: DeviceSnapshot, candidate: CandidateDevice) -> Iterator[tuple[str, str, str, str, bool]]:
    """(counter set, counter, what the device draws, what is left, whether that is too little)."""
    left = snapshot.pools[candidate.home].left
    for one in candidate.device.consumes_counters:
        for name, counter in sorted(one.counters.items()):
            rest = left.get(one.counter_set, {}).get(name, 0)
            short = rest < nanos(counter.value)
            yield one.counter_set, name, str(counter.value), _amount(rest, counter.value), short


def _attributes(candidate: CandidateDevice) -> list[tuple[str, list[tuple[str, str]]]]:
    """(domain, [(name, value as text)]), the driver's own domain first."""
    driver = candidate.key[0]
    domains: dict[str, list[tuple[str, str]]] = {}
    for full_name, value in sorted(candidate.device.attributes.items()):
        domain, slash, name = full_name.rpartition("/")
        domains.setdefault(domain if slash else driver, []).append((name, attribute_text(value)))
    return sorted(domains.items(), key=lambda item: (item[0] != driver, item[0]))


# What is beside it ---------------------------------------------------------------------------------------------------


def _siblings(person: Person, snapshot: DeviceSnapshot, key: DeviceKey, line: GridLine | None) -> tuple[Sibling, ...]:
    """The other devices of its card: those that are held or can be had, then those that others block."""
    tile = next((tile for tile in line.tiles if _stands_for(tile, key)), None) if line else None
    if tile is None or not tile.cut:
        return ()
    found = []
    for candidate in tile.candidates:
        holders = holders_for(person, snapshot.held_by(candidate.key))
        named = "; ".join(holder.label if holder.claim else holder.namespace for holder in holders)
        state = snapshot.state_of(candidate)
        found.append(Sibling(at=candidate.address, name=candidate.name, state=state, by=named))
    order, last = list(STATES), {DeviceState.FREE, DeviceState.BLOCKED}
    return tuple(sorted(found, key=lambda one: (one.state in last, order.index(one.state))))


def _neighbours(person: Person, key: DeviceKey, line: GridLine | None) -> NeighbourStrip:
    if line is None:
        return NeighbourStrip()
    tiles = line_for(person, line).tiles
    at = next(index for index, tile in enumerate(tiles) if _stands_for(tile, key))
    alike = [tile for tile in tiles if tile.gauge == tiles[at].gauge]
    place = alike.index(tiles[at])
    first = max(0, min(place - NEIGHBOURS // 2, len(alike) - NEIGHBOURS))
    return NeighbourStrip(
        mini=tuple(
            Neighbour(at=tile.address, state=tile.state, level=tile.level, label=label(tile), here=tile is tiles[at])
            for tile in alike[first : first + NEIGHBOURS]
        ),
        position=place + 1,
        of=len(alike),
        before=device_url(*alike[place - 1].key) if place else "",
        after=device_url(*alike[place + 1].key) if place + 1 < len(alike) else "",
    )
