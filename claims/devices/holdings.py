"""Which claim holds which device, for which pods: kept by claim, asked by pool.

Pure: told of claims and pods one after the other, in any order; what it answers for a pool changes as a whole, never in
place, so that whoever got it may keep reading.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from claims.devices.published import CandidateDevice, DeviceKey, nanos, pool_of
from claims.devices.states import DeviceState
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import DrawnCounters, ResourceClaim, node_of, pools_in_use
from inventory.kinds.pools import PoolKey
from manciple.wire.resources import NEW_PHASES

#: What a shared device shows as full; above it nothing can be left but rounding.
FULL = 100
#: How full a shared device looks whose claims do not say how much they take.
_UNKNOWN_SHARE = 50
#: The resource of reservedFor that the dashboard knows; of others only their own controllers know.
PODS = "pods"


class Other(NamedTuple):
    """Who a claim is reserved for besides pods. resource: as kubectl names it, such as "jobs.batch"."""

    resource: str
    name: str

    def __str__(self) -> str:
        return f"{self.resource} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a device: one claim, and the pods and others that the claim is reserved for."""

    claim_uid: str
    namespace: str
    claim: str
    pods: tuple[str, ...]
    shared: bool  # holds a share of the device, not all of it
    preparing: bool = False  # for a pod that is bound and does not run yet
    since: datetime | None = None
    #: capacity -> how much of it, in nanos
    consumed: Mapping[str, int] = field(default_factory=dict, compare=False)
    drawn: DrawnCounters | None = field(default=None, compare=False)  # from counters, when it was allocated
    others: tuple[Other, ...] = ()

    @property
    def users(self) -> tuple[str, ...]:
        """The pods by name, the others with what they are; empty where nobody uses the claim."""
        return (*self.pods, *map(str, self.others))

    @property
    def label(self) -> str:
        """`namespace/pod`, or the claim where nobody uses it, as tiles are named on hover."""
        return f"{self.namespace}/{', '.join(self.users) or self.claim}"


#: Of the devices that somebody holds.
Holders = Mapping[DeviceKey, tuple[Holder, ...]]
_NOBODY: Holders = {}


def state_of(
    candidate: CandidateDevice | None,
    holders: Sequence[Holder],
    *,
    complete: bool = True,
    closed: bool = False,
    blocked: bool = False,
    unreachable: bool = False,
    sure: bool = True,
    listed: bool = True,
) -> DeviceState:
    """What a person must know first wins. candidate: None where nobody publishes it; complete: its pool is.

    closed: no node that sees it accepts pods. blocked: others hold hardware that it needs. unreachable: its node is, so
    nothing else is certain. sure: whether everything is known that could keep it from being free. listed: whether all
    slices are known.
    """
    if unreachable or candidate is None or not complete:
        unpublished = DeviceState.UNPUBLISHED if listed else DeviceState.UNKNOWN
        return DeviceState.UNREACHABLE if unreachable else unpublished
    if candidate.fence:
        return candidate.fence
    if not holders:
        unheld = DeviceState.CLOSED if closed else DeviceState.BLOCKED if blocked else DeviceState.FREE
        return unheld if sure else DeviceState.UNKNOWN
    if all(holder.shared for holder in holders) and level_of(candidate, holders) < FULL:
        return DeviceState.PARTLY_SHARED
    if any(holder.preparing for holder in holders):
        return DeviceState.PREPARING
    return DeviceState.RESERVED if any(holder.users for holder in holders) else DeviceState.ALLOCATED


def level_of(candidate: CandidateDevice, holders: Iterable[Holder]) -> int:
    """How much of a shared device is in use, in percent: of the capacity that is nearest its end."""
    shares = [holder for holder in holders if holder.shared]
    if not shares:
        return 0
    consumed: Counter[str] = Counter()
    for holder in shares:
        consumed.update(holder.consumed)
    capacity = candidate.device.capacity
    levels = [
        100 * used // whole
        for name, used in consumed.items()
        if name in capacity and (whole := nanos(capacity[name].value))
    ]
    return min(FULL, max(levels)) if levels else _UNKNOWN_SHARE


@dataclass(frozen=True, slots=True)
class Share:
    """A device, or a share of it, that a claim holds.

    device: with the allocation's node. consumed: capacity -> nanos.
    """

    device: DeviceKey
    shared: bool
    consumed: Mapping[str, int]
    drawn: DrawnCounters | None = None  # from counters, when it was allocated


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one claim holds. users: (name, uid) of the pods that it is reserved for; others: who else it is for."""

    uid: str
    namespace: str
    claim: str
    since: datetime | None
    users: tuple[tuple[str, str], ...]
    shares: tuple[Share, ...]
    others: tuple[Other, ...] = ()


def holding_of(claim: ResourceClaim) -> Holding:
    """Admin access looks on and holds nothing."""
    meta, allocation = claim.metadata, claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    node = node_of(allocation) if allocation is not None else ""
    given = allocation.allocation_timestamp if allocation is not None else None
    drawn = {(one.driver, one.pool, one.device): one for one in allocation.drawn_counters} if allocation else {}
    users, others = told_apart((user.full_resource, user.name, user.uid) for user in claim.status.reserved_for)
    return Holding(
        uid=meta.uid,
        namespace=meta.namespace,
        claim=meta.name,
        since=datetime.fromisoformat(given) if given else None,
        users=users,
        others=others,
        shares=tuple(
            Share(
                device=(one.driver, one.pool, one.device, node),
                shared=bool(one.share_id),
                consumed=amounts(one.consumed_capacity),
                drawn=drawn.get((one.driver, one.pool, one.device)),
            )
            for one in results
            if not one.admin_access
        ),
    )


def told_apart(entries: Iterable[tuple[str, str, str]]) -> tuple[tuple[tuple[str, str], ...], tuple[Other, ...]]:
    """Entries of reservedFor, (resource, name, uid): the pods as (name, uid), and the others, each by name."""
    ordered = sorted(entries, key=lambda entry: (entry[1], entry[2]))
    pods = tuple((name, uid) for resource, name, uid in ordered if resource == PODS)
    return pods, tuple(Other(resource, name) for resource, name, _ in ordered if resource != PODS)


def amounts(consumed: Mapping[str, str]) -> dict[str, int]:
    return {name: nanos(amount) for name, amount in consumed.items()}


def is_preparing(pod: Pod) -> bool:
    """Whether it is on its node and does not run yet."""
    return bool(pod.spec.node_name) and pod.status.phase in NEW_PHASES


class Holdings:
    """See the module's docstring. What changes answers with the pools that look different now, by the node of the
    allocation.
    """

    def __init__(self) -> None:
        self._claims: dict[str, Holding] = {}
        #: uids of pods
        self._preparing: set[str] = set()
        self._claims_of_pod: dict[str, set[str]] = defaultdict(set)
        #: device -> uids of claims, in the order in which they came
        self._claims_of: dict[DeviceKey, tuple[str, ...]] = {}
        #: by the node of the allocation
        self._holders: dict[PoolKey, Holders] = {}
        #: (driver, pool name) -> the nodes of allocations
        self._nodes: dict[tuple[str, str], set[str]] = {}

    def of_pool(self, pool: PoolKey, published: Collection[str]) -> Holders:
        """The devices of the pool that somebody holds. published: see `pools_in_use`."""
        held_on = self._nodes.get(pool[:2], set())
        nodes = held_on & {pool.node, ""} if pool.node else held_on
        found = [
            PoolKey(pool.driver, pool.name, node)
            for node in sorted(nodes)
            if pool in pools_in_use(pool.driver, pool.name, node, published)
        ]
        if found == [pool]:
            return self._holders[pool]
        merged: dict[DeviceKey, tuple[Holder, ...]] = {}
        for held in found:
            for (driver, name, device, _), by in self._holders[held].items():
                key = (driver, name, device, pool.node)
                merged[key] = (*merged.get(key, ()), *by)
        return merged or _NOBODY

    def pools(self) -> Iterable[PoolKey]:
        """Those of which something is held, by the node of the allocation."""
        return self._holders.keys()

    def namesakes(self, pool: PoolKey) -> Iterable[PoolKey]:
        """Those with its driver and name, by the node of the allocation."""
        return (PoolKey(pool.driver, pool.name, node) for node in self._nodes.get(pool[:2], ()))

    def put(self, holding: Holding) -> set[PoolKey]:
        """What a claim holds now."""
        changed = self._take_out(holding.uid)
        if holding.shares:
            self._claims[holding.uid] = holding
            for _, pod in holding.users:
                self._claims_of_pod[pod].add(holding.uid)
            for share in holding.shares:
                known = self._claims_of.get(share.device, ())
                if holding.uid not in known:
                    self._claims_of[share.device] = (*known, holding.uid)
                changed.add(share.device)
        return self._renew(changed)

    def remove(self, claim: str) -> set[PoolKey]:
        return self._renew(self._take_out(claim))

    def pod_is(self, uid: str, *, preparing: bool) -> set[PoolKey]:
        """Whether a pod prepares; False of one that is gone."""
        if preparing == (uid in self._preparing):
            return set()
        (self._preparing.add if preparing else self._preparing.discard)(uid)
        held = (self._claims[claim] for claim in self._claims_of_pod.get(uid, ()))
        return self._renew({share.device for holding in held for share in holding.shares})

    def _take_out(self, claim: str) -> set[DeviceKey]:
        holding = self._claims.pop(claim, None)
        if holding is None:
            return set()
        for _, pod in holding.users:
            self._claims_of_pod[pod].discard(claim)
            if not self._claims_of_pod[pod]:
                del self._claims_of_pod[pod]
        for device in {share.device for share in holding.shares}:
            self._claims_of[device] = tuple(one for one in self._claims_of[device] if one != claim)
        return {share.device for share in holding.shares}

    def _renew(self, devices: Iterable[DeviceKey]) -> set[PoolKey]:
        by_pool: dict[PoolKey, list[DeviceKey]] = defaultdict(list)
        for device in devices:
            by_pool[pool_of(device)].append(device)
        for pool, changed in by_pool.items():
            known = dict(self._holders.get(pool, _NOBODY))
            for device in changed:
                known.pop(device, None)
                if found := tuple(self._holders_of(device)):
                    known[device] = found
                else:
                    self._claims_of.pop(device, None)
            nodes = self._nodes.setdefault(pool[:2], set())
            if known:
                self._holders[pool] = known
                nodes.add(pool.node)
            else:
                self._holders.pop(pool, None)
                nodes.discard(pool.node)
            if not nodes:
                del self._nodes[pool[:2]]
        return set(by_pool)

    def _holders_of(self, device: DeviceKey) -> Iterator[Holder]:
        for claim in self._claims_of.get(device, ()):
            holding = self._claims[claim]
            for share in holding.shares:
                if share.device == device:
                    yield Holder(
                        claim_uid=holding.uid,
                        namespace=holding.namespace,
                        claim=holding.claim,
                        pods=tuple(name for name, _ in holding.users),
                        others=holding.others,
                        shared=share.shared,
                        preparing=any(pod in self._preparing for _, pod in holding.users),
                        since=holding.since,
                        consumed=share.consumed,
                        drawn=share.drawn,
                    )
