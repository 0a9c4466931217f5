"""The published devices, decoded once for the process and followed in the log, and what expressions say of them.

A page asks `shelf()` at each keystroke; reading and decoding thousands of rows each time would be too slow. Only the
pools whose slices changed since are read again. A `Shelf` never changes but for its caches: verdicts live as long as
the devices that they were reached on.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import Q, TextField
from django.db.models.functions import Cast

from claims.models import AllocatedDevice
from inventory.kinds.devices import Device as PublishedDevice
from inventory.kinds.devices import DeviceAttribute, DeviceCapacity
from inventory.models import Device, Pool
from manciple.store import tail
from manciple.wire import codec
from manciple.wire.errors import Expired
from scheduling.cel import DeviceView, EvaluationError, Selector
from scheduling.resources import SLICES

#: Events about slices that are followed one by one; after more, everything is read anew.
FOLLOWED = 200
#: Expressions whose verdicts a shelf keeps; past that many it starts anew.
KEPT = 256
#: Effects that keep claims without a toleration away.
FENCING = frozenset({"NoSchedule", "NoExecute"})
#: Attributes that drivers use for the model, best first.
MODEL_ATTRIBUTES = ("productName", "model")

PoolKey = tuple[str, str]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A published device, ready to be judged."""

    driver: str
    pool: str
    name: str
    view: DeviceView
    node: str = ""
    tainted: bool = False
    complete: bool = True  # its pool is; devices of other pools are not given to anybody

    @property
    def key(self) -> tuple[str, str, str]:
        return self.driver, self.pool, self.name

    @property
    def place(self) -> str:
        """Its node, or its pool where that belongs to no single node."""
        return self.node or self.pool

    @property
    def model(self) -> str:
        """What to call this kind of device: its model attribute, else its driver's name."""
        own = self.view.attributes.get(self.driver, {})
        return next((str(own[name]) for name in MODEL_ATTRIBUTES if own.get(name)), self.driver)

    @property
    def title(self) -> str:
        return f"{self.place} / {self.name}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one expression says of every device of a shelf: a bit per device."""

    match: int
    errors: Mapping[int, str]  # the device's place on the shelf -> why there is no verdict
    error: int


class Shelf:
    """The devices in published order."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = tuple(candidates)
        self.everything = (1 << len(self.candidates)) - 1
        self._judgements: dict[str, Judgement] = {}
        self._derived: dict[Hashable, Any] = {}

    def judge(self, selector: Selector) -> Judgement:
        """Of every device; from the cache where the expression was asked before."""
        known = self._judgements.get(selector.expression)
        if known is None:
            if len(self._judgements) >= KEPT:
                self._judgements.clear()
            known = self._judgements[selector.expression] = judgement(selector, self.candidates)
        return known

    def derived(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """What `make` makes of this shelf, made once."""
        if key not in self._derived:
            if len(self._derived) >= KEPT:
                self._derived.clear()
            self._derived[key] = make()
        found: Value = self._derived[key]
        return found

    def chosen(self, mask: int) -> Iterator[tuple[int, Candidate]]:
        """(place, device) of the bits that are set."""
        return ((place, self.candidates[place]) for place in places(mask))


def places(mask: int) -> Iterator[int]:
    """The numbers of the bits that are set, ascending."""
    text = bin(mask)[:1:-1]
    place = text.find("1")
    while place >= 0:
        yield place
        place = text.find("1", place + 1)


def judgement(selector: Selector, candidates: Sequence[Candidate]) -> Judgement:
    """Ask the selector about each device."""
    matches = selector.matches
    errors: dict[int, str] = {}
    answers = bytearray(b"0" * len(candidates))
    for place, candidate in enumerate(candidates):
        try:
            if matches(candidate.view):
                answers[-1 - place] = ord("1")
        except EvaluationError as error:
            errors[place] = str(error)
    return Judgement(int(answers or b"0", 2), errors, sum(1 << place for place in errors))


# Reading -------------------------------------------------------------------------------------------------------------


class ShelfCache:
    """One shelf for all requests of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[PoolKey, tuple[Candidate, ...]] = {}
        self._shelf: Shelf | None = None
        self._revision = 0

    def now(self) -> Shelf:
        """The shelf as it is now: one query where no slice changed."""
        with self._lock:
            caught_up = self._shelf is not None and self._catch_up()
            if not caught_up or self._shelf is None:
                return self._read_all()
            return self._shelf

    def forget(self) -> None:
        """The next question reads everything."""
        with self._lock:
            self._shelf = None

    def _catch_up(self) -> bool:
        """False where the log does not lead from there to now, or the way is long."""
        try:
            stretch = tail.stretch_after(self._revision, resources=(SLICES,), limit=FOLLOWED)
        except Expired:
            return False
        if stretch.more:
            return False
        self._revision = stretch.revision
        changed = {_pool_of(record.text) for record in stretch.changes}
        if changed:
            self._put(changed, read_candidates(changed))
        return True

    def _read_all(self) -> Shelf:
        self._revision = tail.latest_revision()
        self._pools = {}
        return self._put((), read_candidates())

    def _put(self, gone: Collection[PoolKey], found: Sequence[Candidate]) -> Shelf:
        pools: dict[PoolKey, list[Candidate]] = {}
        for candidate in found:
            pools.setdefault((candidate.driver, candidate.pool), []).append(candidate)
        kept = {key: devices for key, devices in self._pools.items() if key not in gone}
        self._pools = dict(sorted((kept | {key: tuple(devices) for key, devices in pools.items()}).items()))
        self._shelf = Shelf([candidate for devices in self._pools.values() for candidate in devices])
        return self._shelf


def _pool_of(text: str) -> PoolKey:
    spec = json.loads(text)["spec"]
    return spec["driver"], spec["pool"]["name"]


def read_candidates(pools: Collection[PoolKey] | None = None) -> list[Candidate]:
    """Every published device (of `pools` alone, where given), in published order. Two queries."""
    complete = set(Pool.objects.filter(complete=True).values_list("driver", "name"))
    rows = Device.objects.in_pool_order()
    if pools is not None:
        wanted = Q()
        for driver, pool in pools:
            wanted |= Q(driver=driver, pool=pool)
        rows = rows.filter(wanted)
    # As text: msgspec decodes it several times faster than a column of JSON is.
    documents = (Cast(name, TextField()) for name in ("attributes", "capacity", "taints"))
    columns = rows.values_list("driver", "pool", "name", "node_name", "shared", *documents)
    return [
        Candidate(
            driver=driver,
            pool=pool,
            name=name,
            node=node,
            tainted=taints != "[]" and any(taint.get("effect") in FENCING for taint in json.loads(taints)),
            complete=(driver, pool) in complete,
            view=DeviceView.of(
                driver,
                PublishedDevice(
                    name=name,
                    attributes=codec.decode_text(dict[str, DeviceAttribute], attributes),
                    capacity=codec.decode_text(dict[str, DeviceCapacity], capacity),
                    allow_multiple_allocations=shared,
                ),
            ),
        )
        for driver, pool, name, node, shared, attributes, capacity, taints in columns
    ]


def read_states(shelf: Shelf) -> tuple[str, ...]:
    """The state of each device, as every mark shows it: free, reserved, part, taint, gone. One query."""
    rows = AllocatedDevice.objects.filter(admin_access=False).values_list("driver", "pool", "device", "share_id")
    held = {(driver, pool, device): bool(share) for driver, pool, device, share in rows}
    return tuple(_state(candidate, held.get(candidate.key)) for candidate in shelf.candidates)


def _state(candidate: Candidate, share: bool | None) -> str:
    """share: it is held, by shares; None where it is not held."""
    if candidate.tainted:
        return "taint"
    if share is not None:
        return "part" if share else "reserved"
    return "free" if candidate.complete else "gone"


_CACHE = ShelfCache()
#: The shelf as it is now; and: forget it.
shelf, forget = _CACHE.now, _CACHE.forget
