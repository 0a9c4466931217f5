"""The cluster as a scheduling worker sees it: a view of the log (`manciple.store.event_log`), with an overlay.

    state.put(resource, obj); state.remove(resource, obj)    an event of the log
    copy_of(state)                                           to imagine things in (`ClusterState.copy`)
    state.overlay                                            what this worker has decided and not written yet; on a
                                                             copy, what a rehearsal imagines

`ClusterState` is made of parts (`scheduling.state.part`). Inside the transaction of a commit it is brought to the last
revision (`advance`), and takes over the writes of the commit at once (`absorb`), so that the worker never reads its own
writes back from the log. The last events are kept for the queue. One thread at a time.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import Any, ClassVar

from claims.kinds.pod_groups import CLAIMS_GATE, PodGroup, is_group
from claims.kinds.pods import Pod, outline, uses_volume_claims
from claims.kinds.resource_claims import (
    EXTENDED_CLAIM_ANNOTATION,
    AllocationResult,
    ResourceClaim,
)
from claims.pod_claims import has_group, is_done, may_be_negotiated, stays_allocated
from inventory.kinds import gates
from inventory.kinds.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from inventory.kinds.pools import PoolKey
from inventory.kinds.taint_rules import TaintedPools
from manciple.copying import RESET, copy_of
from manciple.store import event_log
from manciple.store.event_log import View
from manciple.store.records import Written
from manciple.wire.base import ApiObject
from manciple.wire.quantity import Quantity
from manciple.wire.resources import (
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    QUOTAS,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    Key,
)
from scheduling.allocator import Features, Inventory, Snapshot
from scheduling.claims import kept, readiness
from scheduling.claims.extended_resources import Extended, KnownClaims
from scheduling.claims.negotiation import Negotiation, NegotiationWrites, StillNegotiating, restricted
from scheduling.claims.readiness import PlannedClaims, wants_a_node
from scheduling.placement.demands import UsualDemands
from scheduling.queue import hints
from scheduling.queue.hints import FREED, About, News, Wake
from scheduling.queue.queue import Candidate
from scheduling.queue.reasons import Hold, Reason
from scheduling.queue.verdicts import IN_MEMORY, Drift, Placement, nominated, stale
from scheduling.state import extensions
from scheduling.state.budgets import Guard, KnownBudgets
from scheduling.state.extensions import Extension
from scheduling.state.fair_share import FairShare
from scheduling.state.groups import WaitingGroups
from scheduling.state.node_charges import NodeCharges
from scheduling.state.node_fit import ServingClasses
from scheduling.state.nodes import FilterResult, NodeTable, Resident, Residents, Rooms
from scheduling.state.part import Part
from scheduling.state.quota_room import QuotaRoom

#: Events kept for the queue; readers that are further behind read the log.
REMEMBERED = 4000
#: Followed by every state: what is published before the claims and pods that ask for it.
RESOURCES = (NAMESPACES, QUOTAS, NODES, CLASSES, TAINT_RULES, SLICES, CLAIMS, POD_GROUPS, PODS)


NO_REASON = Reason(0)


@dataclass(eq=False, repr=False)
class ClusterState(View):
    """See the module's docstring. shares: None unless namespaces take turns.

    makes_claims: whoever decides on it also makes the claims that waiting pods request by template.
    """

    features: Features = field(default_factory=Features)
    shares: FairShare | None = None
    revision: int = 0
    makes_claims: bool = False
    resources: tuple[str, ...] = field(init=False)  # type: ignore[misc]  # the gates decide, not the class
    #: which class serves which extended resource
    serving: ServingClasses = field(init=False)
    nodes: NodeTable = field(init=False)
    devices: Devices = field(init=False)
    rooms: Rooms = field(init=False)
    residents: Residents = field(default_factory=Residents)
    #: uid -> pod that waits for a node from this scheduler
    pending: dict[str, Pod] = field(default_factory=dict)
    #: uids of nominated pods whose room isn't worked out yet (`scheduling.cycle.post_filter.settle`)
    unsettled: set[str] = field(default_factory=set)
    #: pod uid -> the node that was promised to it (`scheduling.steering`), whatever its status says; "" for none
    promises: dict[str, str] = field(default_factory=dict)
    #: of these, what the status says
    _nominations: dict[str, str] = field(default_factory=dict)
    #: pod uid -> devices that couldn't be attached to its node: they are its last choice
    avoided: dict[str, tuple[AllocationResult, ...]] = field(default_factory=dict)
    #: what pods usually ask for, for `scheduling.placement.policies`
    usual: UsualDemands = field(default_factory=UsualDemands)
    quotas: QuotaRoom = field(default_factory=QuotaRoom)
    groups: WaitingGroups = field(default_factory=WaitingGroups)
    budgets: KnownBudgets = field(default_factory=KnownBudgets)
    #: of the gates that are on
    extensions: tuple[Extension, ...] = field(init=False)
    overlay: Overlay = field(init=False)
    #: claims as they are stored
    claims: dict[Key, ResourceClaim] = field(default_factory=dict)
    #: those that waiting pods lack; None where somebody else makes them
    planned: PlannedClaims | None = field(init=False)
    #: those that were made for extended resources
    special: KnownClaims = field(default_factory=KnownClaims)
    #: resource -> the parts that follow it by themselves
    _followers: dict[str, tuple[Part, ...]] = field(init=False)
    #: every event of `resources` above `_news_floor`, up to `revision`, oldest first
    _news: deque[News] = field(default_factory=deque)
    _news_floor: int = 0
    #: see `scheduling.queue.queue.ClusterView`
    fed: int = 0
    #: reasons that the event being applied lifts, in addition to those that the event itself tells (`hints`)
    _lifted: Reason = NO_REASON

    def __post_init__(self) -> None:
        self.serving = ServingClasses(enabled=self.features.extended_resources)
        self.nodes = NodeTable(self.serving)
        charges = NodeCharges() if gates.enabled("DRANodeAllocatableResources") else None
        self.devices = Devices(inventory=Inventory(self.features), charges=charges)
        self.rooms = Rooms(self.nodes, self.devices.inventory)
        self.extensions = tuple(extension(self.devices) for extension in extensions.enabled())
        self.overlay = Overlay(self)
        # Drivers negotiate about claims that exist.
        plans = self.makes_claims and gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION) and not self.extensions
        self.planned = PlannedClaims() if plans else None
        own = (
            self.nodes,
            self.nodes.neighbours,
            self.nodes.volumes,
            self.devices,
            self.serving,
            self.quotas,
            self.groups,
            self.budgets,
        )
        followers = defaultdict[str, list[Part]](list)
        more = [part for part in (self.shares, self.planned) if part is not None]
        for part in (*own, *more, *self.extensions):
            for resource in part.follows:
                followers[resource].append(part)
        self._followers = {resource: tuple(following) for resource, following in followers.items()}
        self.resources = (*(resource for resource in self._followers if resource not in RESOURCES), *RESOURCES)
        for extension in self.extensions:
            for resource, obj in extension.provides:
                self.put(resource, obj)

    # Following the log -----------------------------------------------------------------------------------------------

    @classmethod
    def captured(cls, features: Features | None = None) -> ClusterState:
        """The cluster as it is now, from its documents."""
        return event_log.listed(lambda: cls(features or Features()))

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        for obj in objects:
            self.put(resource, obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            self._apply(change)

    def ready(self) -> None:
        self._news.clear()
        self._news_floor = self.revision
        self.begin()
        if self.planned is not None:
            self.planned.left.clear()  # all pods, not a few: left to the sweep for missing claims
        kept.warn(self.claims.values())

    def copy(self) -> ClusterState:
        """The same state, to imagine things in: neither shows what changes in the other.

        Published content is shared, with everything derived from it: one thread at a time may look at either.
        """
        self.snapshot()  # what is derived from published content is derived once for both
        return copy_of(self)

    def begin(self) -> None:
        """A cycle begins: the drift is counted from here."""
        self.devices.drift = Drift()

    def advance(self) -> None:
        """Apply what the log has beyond `revision`. Raises: Expired if the log doesn't go back that far."""
        event_log.advance(self)

    def absorb(self, written: Sequence[Written]) -> None:
        """Apply what this worker has committed itself, in the transaction in which it advanced last."""
        for write in written:
            if write.resource in self.resources:
                self._apply(write)
            self.revision = max(write.revision, self.revision)

    def _apply(self, write: Written) -> None:
        self._lifted = NO_REASON
        if write.type == "DELETED":
            self.remove(write.resource, write.object)
        else:
            self.put(write.resource, write.object)
        meta = write.object.metadata
        about = About(meta.namespace, meta.name, meta.uid)
        news = hints.news_about(write.object, about, revision=write.revision, resource=write.resource, type_=write.type)
        if self._lifted:
            news = replace(news, wakes=(*news.wakes, Wake(reasons=self._lifted)))
        self._news.append(news)
        if len(self._news) > REMEMBERED:
            self._news_floor = self._news.popleft().revision

    def put(self, resource: str, obj: Any) -> None:
        """Add an object, or replace the one of its name, in every part that follows the resource."""
        if resource == PODS:
            self._put_pod(obj)
        elif resource == CLAIMS:
            self._put_claim(obj)
        elif resource == NODES:
            self.devices.drift.nodes.add(obj.metadata.name)
        for part in self._followers.get(resource, ()):
            part.put(obj)
        if resource == TEMPLATES and self.planned is not None:
            self._plan_again(self.planned.users(obj.key))

    def remove(self, resource: str, obj: Any) -> None:
        if resource == PODS:
            self._remove_pod(obj)
        elif resource == CLAIMS:
            self._remove_claim(obj)
        elif resource == NODES:
            self.devices.drift.nodes.add(obj.metadata.name)
        for part in self._followers.get(resource, ()):
            part.remove(obj)
        if resource == TEMPLATES and self.planned is not None:
            self._plan_again(self.planned.users(obj.key))

    # Objects that several parts know ---------------------------------------------------------------------------------

    def _put_claim(self, claim: ResourceClaim) -> None:
        known = self.claims.get(claim.key)
        assumed = self.overlay.claims.pop(claim.key, None)
        if known is None or known.status.allocation != claim.status.allocation:
            self.devices.put(claim)
        elif assumed is not None:
            self.devices.inventory.apply_claim(claim)
        self.claims[claim.key] = claim
        if self.planned is not None and (uid := self.planned.put_claim(claim)):
            self._plan_again([uid])
        if EXTENDED_CLAIM_ANNOTATION in claim.metadata.annotations:
            self.devices.drift.special.add(self.special.put(claim))

    def _remove_claim(self, claim: ResourceClaim) -> None:
        self.claims.pop(claim.key, None)
        self.overlay.claims.pop(claim.key, None)
        if self.planned is not None:
            self.planned.remove_claim(claim)
        if EXTENDED_CLAIM_ANNOTATION in claim.metadata.annotations:
            self.devices.drift.special.add(self.special.remove(claim))
        self.devices.remove(claim)

    def _plan_again(self, uids: Iterable[str]) -> None:
        """What decides about the claims that these pods lack has changed."""
        for uid in uids:
            shown = None if self.planned is None else self.planned.again(uid)
            if shown is not None and uid in self.pending:
                self.pending[uid] = shown

    def plan_claims(self, *, enabled: bool) -> None:
        """Whether the claims that waiting pods lack are made with the verdicts on these pods, or by the controller."""
        if self.planned is not None and self.planned.enabled != enabled:
            self.planned.enabled = enabled
            self._plan_again(self.planned.pods)

    def leave_claims(self, uid: str) -> None:
        """The claims of the pod could not be made: it is left to the controller."""
        if self.planned is not None:
            self.planned.refuse(uid)
            self._plan_again([uid])

    def avoid(self, pod: Pod, claims: Iterable[ResourceClaim]) -> None:
        """`pod` gets the devices of these claims only if there are no others: they couldn't be attached."""
        given = tuple(claim.status.allocation for claim in claims if claim.status.allocation is not None)
        self.avoided[pod.metadata.uid] = (*self.avoided.get(pod.metadata.uid, ()), *given)

    def promise(self, promises: Mapping[str, str]) -> None:
        """Count these pods as nominated for these nodes, and no others by an earlier promise."""
        changed = {uid for uid, _ in self.promises.items() ^ promises.items()}
        self.promises = dict(promises)
        for uid in changed:
            said = self._nominations.pop(uid, None)
            if (pod := self.pending.get(uid)) is not None:
                self._put_pod(pod if said is None else nominated(pod, said))
        # A claim that is allocated by now holds its devices itself.
        self.unsettled.update(uid for uid in promises if uid in self.rooms)

    def _as_promised(self, pod: Pod) -> Pod:
        uid, said = pod.metadata.uid, pod.status.nominated_node_name
        self._nominations.pop(uid, None)
        if pod.spec.node_name or self.promises.get(uid, said) == said:
            return pod
        self._nominations[uid] = said
        return nominated(pod, self.promises[uid])

    def _put_pod(self, pod: Pod) -> None:
        pod = self._as_promised(pod) if self.promises else pod
        uid, node = pod.metadata.uid, pod.spec.node_name or pod.status.nominated_node_name
        waiting = self.pending.get(uid) or self.overlay.pods.get(uid)
        room = "" if waiting is None else waiting.status.nominated_node_name
        if room and (room != node or is_done(pod)):
            self._lifted |= FREED
        if uid not in self.pending and self.residents.get(uid) is None:
            self.usual.note()
        self._remove_from_places(uid)
        if has_group(pod):
            self.groups.put_pod(pod)
        if is_done(pod):
            self.nodes.remove_pod(uid)
        elif node:
            if self.nodes.place(pod, node):
                self.devices.drift.nodes.add(node)
                if pod.spec.node_name:
                    self._lifted |= Reason.NEIGHBOURS  # its labels count, too
            if pod.spec.node_name:
                self.residents.put(Resident.of(pod, node))
        else:
            self.nodes.remove_pod(uid)
        if wants_a_node(pod):
            self._put_waiting(outline(pod))
        else:
            self.avoided.pop(uid, None)
            if self.planned is not None:
                self.planned.waits_no_more(pod)

    def _put_waiting(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self.pending[uid] = pod if self.planned is None else self.planned.waiting(pod)
        if pod.status.nominated_node_name:
            self.unsettled.add(uid)

    def _remove_pod(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._remove_from_places(uid)
        self._nominations.pop(uid, None)
        if self.planned is not None:
            self.planned.forget(uid)
        self.avoided.pop(uid, None)
        self.nodes.remove_pod(uid)
        if has_group(pod):
            self.groups.remove_pod(pod)

    def _remove_from_places(self, uid: str) -> None:
        """The pod's place, its room and its wait: the event says what follows."""
        self.overlay.forget_pod(uid)
        self.pending.pop(uid, None)
        self.unsettled.discard(uid)
        self.rooms.drop(uid)
        self.residents.remove(uid)

    # For the queue (queue.View) --------------------------------------------------------------------------------------

    def news_after(self, revision: int) -> Sequence[News] | None:
        """The events after `revision`, up to the state's own; None if some of them are no longer kept."""
        if revision < self._news_floor:
            return None
        news = list(takewhile(lambda one: one.revision > revision, reversed(self._news)))
        return news[::-1]

    def waiting(self) -> Set[str]:
        return self.pending.keys()

    def candidate(self, uid: str) -> Candidate | None:
        pod = self.pending.get(uid)
        return None if pod is None else Candidate.of(pod)

    def pre_enqueue(self, uid: str) -> Hold | None:
        pod = self.pending.get(uid)
        hold = None if pod is None else readiness.pre_enqueue(pod, self._finder(pod))
        return self.groups.hold(pod) if pod is not None and hold is None and has_group(pod) else hold

    @property
    def sizes(self) -> Mapping[str, int]:
        """The size of the cache, by the labels of kube-scheduler's metric."""
        return {"nodes": len(self.nodes), "pods": self.nodes.pods, "assumed_pods": len(self.overlay.pods)}

    def pre_filter(self, pod: Pod) -> tuple[ResourceClaim, ...] | Hold:
        """The pod's claims, without the alternatives for which its namespace's quotas have no room."""
        claims = readiness.pre_filter(pod, self._finder(pod), self.serving.own.__contains__)
        if not isinstance(claims, Hold) and uses_volume_claims(pod):
            claims = self.nodes.volumes.hold(pod) or claims
        if not isinstance(claims, Hold):
            claims = self.extension_hold(claims) or claims
        if isinstance(claims, Hold) or pod.metadata.namespace not in self.quotas.by_namespace:
            return claims
        return self.quotas.hold_before(pod, claims) or self.quotas.within(pod, claims)

    def extended(self, pod: Pod) -> Extended | None:
        """The pod's requests for extended resources that devices serve; None if it has none."""
        known = self.special.of(pod, self.claim) if pod.metadata.uid in self.special.by_pod else None
        return Extended.of(pod, self.serving, known) if known is not None or self.serving.serve(pod) else None

    @property
    def guard(self) -> Guard:
        """The disruption budgets of the residents."""
        return Guard(self.budgets, self.nodes.neighbours.group_of)

    def snapshot(self) -> Snapshot:
        return self.devices.inventory.snapshot()

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim as it will be once the overlay is committed, planned ones included."""
        key = (namespace, name)
        claim = self.overlay.claims.get(key) or self.claims.get(key)
        if claim is None and self.planned is not None:
            claim = self.planned.by_key.get(key)
        # A search for victims asks for every claim of every node.
        return claim if claim is None or not self.extensions else self.seen(claim)

    def _finder(self, pod: Pod) -> Callable[[str], ResourceClaim | None]:
        return partial(self.claim, pod.metadata.namespace)

    # Extensions ------------------------------------------------------------------------------------------------------

    def seen(self, claim: ResourceClaim) -> ResourceClaim:
        """The claim as the allocator reads it."""
        for extension in self.extensions:
            claim = extension.seen(claim)
        return claim

    def extension_hold(self, claims: Sequence[ResourceClaim]) -> Hold | None:
        """Why an extension lets no pod with these claims be placed; None where none objects."""
        for extension in self.extensions:
            if (hold := extension.hold(claims)) is not None:
                return hold
        return None

    def negotiations(self, pod: Pod, claims: Sequence[ResourceClaim]) -> tuple[Negotiation, ...] | Hold:
        """Each extension's part in placing the pod, or why the pod cannot be placed anywhere yet."""
        if not self.extensions and not may_be_negotiated(pod, claims):
            return ()  # nearly every pod
        answers = [extension.negotiation(pod, claims) for extension in self.extensions]
        answers += [kept.hold(pod, claims)] if may_be_negotiated(pod, claims) else []
        hold = next((answer for answer in answers if isinstance(answer, Hold)), None)
        return hold or tuple(answer for answer in answers if isinstance(answer, Negotiation))

    def undecided(self, pod: Pod, claims: Sequence[ResourceClaim]) -> Hold | None:
        """Why it is not known yet where the pod fits: a driver has to decide. None where it is known."""
        holds = [extension.undecided(pod, claims) for extension in self.extensions]
        holds += [kept.hold(pod, claims)] if may_be_negotiated(pod, claims) else []
        return next((hold for hold in holds if hold is not None), None)

    def restricted(self, pod: Pod, claims: Sequence[ResourceClaim], filtered: FilterResult) -> FilterResult | Hold:
        """`filtered` without the nodes that extensions refuse, or why that is not known yet."""
        negotiations = self.negotiations(pod, claims)
        if isinstance(negotiations, Hold):
            return negotiations
        left = restricted(negotiations, filtered, self.nodes) if negotiations else filtered
        return left.hold if isinstance(left, StillNegotiating) else left

    # Groups ----------------------------------------------------------------------------------------------------------

    def placed_of(self, group: PodGroup) -> set[str]:
        """The uids of the pods of a group that have a place: those on their nodes, those that wait there for their
        devices, and those of a Job that have succeeded.
        """
        placed = {uid for uid in self.groups.members(group) if self.residents.get(uid) is not None}
        return placed | self.groups.done(group)

    def is_in_use(self, claim: ResourceClaim) -> bool:
        """Whether a pod on its node could be using the claim. Pods that wait for a node use nothing."""
        for user in claim.status.reserved_for:
            users = self.groups.members_of(user.uid) if is_group(user) else (user.uid,)
            if any(uid not in self.pending for uid in users):
                return True
        return False

    def is_idle_but_for(self, pod: Pod, claim: ResourceClaim) -> bool:
        """Whether only the pod could be using the claim, or only its group, as long as no pod of that has a place."""
        if stays_allocated(claim):
            return False
        others = [one.uid for one in claim.status.reserved_for if one.uid != pod.metadata.uid]
        if not others or pod.spec.scheduling_group is None:
            return not others
        group = self.groups.of(pod)
        if group is None or others != [group.metadata.uid] or not gates.enabled(CLAIMS_GATE):
            return False
        return not self.placed_of(group) and self.overlay.pods.keys().isdisjoint(self.groups.members(group))


# The devices ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class Devices(Part):
    """What is published, what of it is allocated, and what has changed since the cycle began.

    charges: None while DRANodeAllocatableResources is off.
    """

    follows: ClassVar[tuple[str, ...]] = (CLASSES, TAINT_RULES, SLICES)

    inventory: Inventory
    charges: NodeCharges | None = None
    #: changes since the cycle began that a placement can depend on; a copy begins a cycle of its own
    drift: Drift = field(default_factory=Drift, metadata=RESET)
    #: slice name -> pool, of the slices with shared counters or devices that consume some
    _counting: dict[str, PoolKey] = field(default_factory=dict)

    def put(self, obj: ApiObject) -> None:
        """Add an object, or replace the one of its name.

        A claim holds the devices that it is allocated. Objects of other kinds, which extensions put here, change what
        claims request: every new allocation is checked again.
        """
        if isinstance(obj, ResourceSlice):
            name, spec = obj.metadata.name, obj.spec
            self.inventory.apply_slice(obj)
            self.drift.slice_changed(obj)
            self._counting.pop(name, None)
            if spec.shared_counters or any(device.consumes_counters for device in spec.devices):
                self._counting[name] = PoolKey(spec.driver, spec.pool.name, spec.node_name or "")
            if self.charges is not None:
                self.charges.put(obj)
        elif isinstance(obj, ResourceClaim):
            self.drift.claim_changed(obj, self.inventory)
            self.inventory.apply_claim(obj)
        elif isinstance(obj, DeviceTaintRule):
            self._note_tainted(self.inventory.apply_taint_rule(obj))
        else:
            self.drift.rules = True
            if isinstance(obj, DeviceClass):
                self.inventory.apply_class(obj)

    def remove(self, obj: ApiObject) -> None:
        name = obj.metadata.name
        if isinstance(obj, ResourceSlice):
            self.inventory.remove_slice(name)
            self._counting.pop(name, None)
            if self.charges is not None:
                self.charges.remove(obj)
            self.drift.slice_changed(obj)
        elif isinstance(obj, ResourceClaim):
            self.inventory.remove_claim(obj.metadata.uid)
        elif isinstance(obj, DeviceTaintRule):
            self._note_tainted(self.inventory.remove_taint_rule(name))
        else:
            self.drift.rules = True
            if isinstance(obj, DeviceClass):
                self.inventory.remove_class(name)

    def staleness(self, placement: Placement) -> str:
        """See `scheduling.queue.verdicts.stale`."""
        return stale(placement, self.drift, self.inventory, frozenset(self._counting.values()))

    def _note_tainted(self, touched: Iterable[TaintedPools]) -> None:
        for driver, pool in touched:
            if driver is not None and pool is not None:
                self.drift.published_pools.update(self.inventory.pools_named(driver, pool))
            else:
                self.drift.rules = True


# The overlay ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlacedStep:
    """A placement was assumed. waited: whether the pod was pending. claims, quotas, shares: the values before."""

    placement: Placement
    waited: bool
    claims: Mapping[Key, ResourceClaim | None]
    quotas: Mapping[Key, Mapping[str, Quantity]]
    shares: tuple[str, Counter[str] | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _RoomStep:
    """Room was kept for a pod, or is not kept any more. leaving: the pods that are evicted for it."""

    uid: str
    leaving: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ObjectStep:
    """An object was imagined, or left out. before: the object until then; None: there was none."""

    resource: str
    obj: ApiObject
    before: ApiObject | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _SaidStep:
    """Objects of extensions are to be written. before: what each `Extension.reserve` returned."""

    before: tuple[Any, ...]


_Step = _PlacedStep | _RoomStep | _ObjectStep | _SaidStep


@dataclass(slots=True, eq=False, repr=False)
class Overlay:
    """What is laid over the cluster as the log tells it, each step with the way back.

    A worker lays its decisions over its state: the pods that it places count on their nodes, their devices are taken,
    their claims look allocated and reserved; room is kept for pods that it nominates, and the pods that it evicts are
    leaving. After the commit `undo` takes everything back: what was written comes back with the log. An event about a
    pod or a claim ends what was assumed of it (`forget_pod`).

    A rehearsal lays over a copy of the state the objects that it imagines, and the same decisions about them.

        with overlay.undone():                 # what is laid inside is taken back at the end
            overlay.imagine(NODES, node)
            decide(state, pod)
    """

    _state: ClusterState
    #: claims as they will be
    claims: dict[Key, ResourceClaim] = field(default_factory=dict)
    #: uid -> pod that was placed
    pods: dict[str, Pod] = field(default_factory=dict)
    #: uids of the pods whose room was kept or withdrawn, and of those that are evicted for it
    _rooms: set[str] = field(default_factory=set)
    _leaving: set[str] = field(default_factory=set)
    _steps: list[_Step] = field(default_factory=list)

    # Decisions -------------------------------------------------------------------------------------------------------

    def assume(self, placement: Placement) -> None:
        """Reserve: count `placement` as if it were committed."""
        state, pod, uid = self._state, placement.pod, placement.pod.metadata.uid
        self.pods[uid] = pod
        waited = state.pending.pop(uid, None) is not None
        state.rooms.drop(uid)
        state.nodes.place(pod, placement.node)
        state.devices.inventory.assume(placement.allocations.items())
        quotas: Mapping[Key, Mapping[str, Quantity]] = {}
        if pod.metadata.namespace in state.quotas.by_namespace:
            quotas = state.quotas.reserve(pod, placement.claims, placement.allocations)
        shares = None
        if state.shares is not None:
            shares = state.shares.reserve(pod, placement.claims, placement.allocations)
        before = dict[Key, ResourceClaim | None]()
        for claim in placement.claims:
            key = _key_of(claim)
            before[key] = self.claims.get(key)
            self.claims[key] = placement.applied_to(claim)
        self._steps.append(_PlacedStep(placement=placement, waited=waited, claims=before, quotas=quotas, shares=shares))
        self.say(placement.writes)

    def say(self, writes: NegotiationWrites) -> None:
        """The next pod of the batch finds these objects as they will be."""
        if writes:
            before = tuple(extension.reserve(writes) for extension in self._state.extensions)
            self._steps.append(_SaidStep(before=before))

    def nominate(
        self, pod: Pod, node: str, allocations: Mapping[str, AllocationResult], leaving: Iterable[str]
    ) -> None:
        """Count `pod` as nominated for `node`, and the pods `leaving` as evicted, as if that were committed."""
        self._state.rooms.keep(pod, node, allocations)
        self._rooms.add(pod.metadata.uid)
        leaving = frozenset(leaving) - self._leaving
        self._leaving |= leaving
        self._steps.append(_RoomStep(uid=pod.metadata.uid, leaving=leaving))

    def withdraw(self, pods: Iterable[Pod]) -> None:
        """Keep no room for these pods any more, as if that were committed."""
        for pod in pods:
            self._state.rooms.drop(pod.metadata.uid)
            self._rooms.add(pod.metadata.uid)
            self._steps.append(_RoomStep(uid=pod.metadata.uid))

    def is_leaving(self, resident: Resident, now: datetime) -> bool:
        """Whether a pod will be gone soon, or is about to be evicted."""
        return resident.uid in self._leaving or resident.is_leaving(now)

    @contextmanager
    def trying(self, pod: Pod) -> Iterator[None]:
        """A nominated pod counts on its node. While it is tried it isn't in its own way, and neither are those that are
        nominated and less important.
        """
        state, uid = self._state, pod.metadata.uid
        state.rooms.yield_to(pod.spec.priority or 0)
        roomed = state.rooms.set_aside(uid)
        node = "" if roomed else pod.status.nominated_node_name
        if node:
            state.nodes.remove_pod(uid)
        try:
            yield
        finally:
            if uid not in self.pods:
                state.rooms.restore(uid)
                if node and uid not in state.rooms:
                    state.nodes.place(pod, node)

    @contextmanager
    def avoiding(self, pod: Pod) -> Iterator[bool]:
        """Within it, the devices that `pod` avoids are taken. Returns whether there are any."""
        inventory = self._state.devices.inventory
        avoided = {f"avoided/{at}": one for at, one in enumerate(self._state.avoided.get(pod.metadata.uid, ()))}
        inventory.assume(avoided.items())
        try:
            yield bool(avoided)
        finally:
            for uid in avoided:
                inventory.remove_claim(uid)

    # Objects ---------------------------------------------------------------------------------------------------------

    def imagine(self, resource: str, obj: ApiObject, *, instead_of: ApiObject | None = None) -> None:
        """`obj` is there. Taken back, `instead_of` is there again, or nothing."""
        self._state.put(resource, obj)
        self._steps.append(_ObjectStep(resource=resource, obj=obj, before=instead_of))

    def leave_out(self, resource: str, obj: ApiObject) -> None:
        """`obj` is gone. Taken back, it is there again."""
        self._state.remove(resource, obj)
        self._steps.append(_ObjectStep(resource=resource, obj=obj, before=obj))

    # The way back ----------------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """What is laid now, for `undo`."""
        return len(self._steps)

    def undo(self, mark: int = 0) -> None:
        """Unreserve: take back the steps since `mark`, the last first. `preemption.settle` then works out the rooms."""
        while len(self._steps) > mark:
            match self._steps.pop():
                case _PlacedStep() as step:
                    self._undo_placement(step)
                case _SaidStep(before=before):
                    for extension, reserved in zip(self._state.extensions, before, strict=True):
                        extension.unreserve(reserved)
                case _RoomStep(uid=uid, leaving=leaving):
                    self._leaving -= leaving
                    if uid in self._rooms:
                        self._rooms.discard(uid)
                        self._state.rooms.drop(uid)
                        if (pod := self._state.pending.get(uid)) is not None:
                            self._nominate_again(pod)
                case _ObjectStep(resource=resource, obj=obj, before=None):
                    self._state.remove(resource, obj)
                case _ObjectStep(resource=resource, before=before):
                    self._state.put(resource, before)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """What is laid inside is taken back at the end."""
        mark = self.mark()
        try:
            yield
        finally:
            self.undo(mark)

    def forget_pod(self, uid: str) -> None:
        """An event tells what became of the pod: nothing is assumed of it any more."""
        if self.pods.pop(uid, None) is not None:
            self._state.nodes.remove_pod(uid)
        self._rooms.discard(uid)
        self._leaving.discard(uid)

    def _undo_placement(self, step: _PlacedStep) -> None:
        state, placement = self._state, step.placement
        pod, uid = placement.pod, placement.pod.metadata.uid
        if self.pods.pop(uid, None) is not None:
            state.nodes.remove_pod(uid)
            if step.waited:
                # What was planned for it may have changed meanwhile.
                state.pending[uid] = pod if state.planned is None else state.planned.shown(pod)
            self._nominate_again(pod)
        for claim in placement.claims:
            key = _key_of(claim)
            self.claims.pop(key, None)
            if (before := step.claims[key]) is not None:
                self.claims[key] = before
            stored = state.claims.get(key)
            if claim.metadata.uid in placement.allocations or before is None:
                if stored is not None and stored.metadata.uid == claim.metadata.uid:
                    state.devices.inventory.apply_claim(stored)
                else:
                    state.devices.inventory.remove_claim(claim.metadata.uid)
        if step.quotas:
            state.quotas.unreserve(step.quotas)
        if state.shares is not None and step.shares is not None:
            state.shares.unreserve(step.shares)

    def _nominate_again(self, pod: Pod) -> None:
        if pod.status.nominated_node_name:
            self._state.nodes.place(pod, pod.status.nominated_node_name)
            self._state.unsettled.add(pod.metadata.uid)


def _key_of(claim: ResourceClaim) -> Key:
    """Claims that exist in memory alone have one name, but uids of their own."""
    return (claim.metadata.namespace, claim.metadata.uid) if claim.metadata.name == IN_MEMORY else claim.key
