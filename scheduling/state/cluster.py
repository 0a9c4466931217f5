"""The cluster as a scheduling worker knows it: a view that is followed (`manciple.store.event_log`).

What the worker itself decides is laid over it (`scheduling.state.assumptions`). Inside the transaction of a commit it
is brought to the last revision (`advance`), and what is committed it takes over at once (`absorb`), so that the worker
never reads its own writes back from the log. The last events are kept as the queue's news. One thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, ClassVar

from msgspec import structs

from claims.drafts.structured.translation import EVERY_DEVICE
from claims.kinds.pod_groups import CLAIMS_GATE, PodGroup, is_group
from claims.kinds.pods import Pod, outline
from claims.kinds.quotas import ResourceQuota
from claims.kinds.resource_claims import (
    EXTENDED_CLAIM_ANNOTATION,
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from claims.pod_claims import has_group, is_done, stays_allocated
from inventory.kinds import gates
from inventory.kinds.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from inventory.kinds.nodes import Node, has_reported
from inventory.kinds.pools import PoolKey
from inventory.kinds.taint_rules import TaintedPools
from manciple.store import event_log
from manciple.store.event_log import View
from manciple.store.records import Written
from manciple.wire.base import ApiObject
from manciple.wire.machinery import Namespace
from manciple.wire.resources import CLAIMS, CLASSES, NAMESPACES, NODES, POD_GROUPS, PODS, QUOTAS, SLICES, TAINT_RULES
from scheduling.allocator import Features, Inventory, Snapshot, UsualDemands
from scheduling.claims import readiness
from scheduling.claims.extended_resources import Extended, KnownClaims
from scheduling.claims.negotiation import Hearing
from scheduling.claims.readiness import ServingClasses, wants_a_node
from scheduling.cycle.decisions import Drift, Placement, stale
from scheduling.earlier import structured_claims
from scheduling.earlier.classic_negotiation import ContextNegotiator
from scheduling.earlier.draft_claims import DraftNegotiator
from scheduling.earlier.structured_claims import StructuredClaims
from scheduling.queue import hints
from scheduling.queue.hints import FREED, About, News, Wake
from scheduling.queue.queue import Candidate
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.assumptions import AssumedState
from scheduling.state.budgets import Guard, KnownBudgets
from scheduling.state.fair_share import FairShare
from scheduling.state.groups import WaitingGroups
from scheduling.state.node_charges import NodeCharges
from scheduling.state.node_fit import UNHEARD_TAINT
from scheduling.state.nodes import NodeTable
from scheduling.state.quota_room import QuotaRoom
from scheduling.state.residents import PlacedPod, PlacedPods, Rooms

#: Events kept for the queue; who asks for older ones reads the log.
REMEMBERED = 4000


class ClusterState(AssumedState, View):
    """See the module's docstring."""

    forms = (ContextNegotiator, DraftNegotiator)
    #: what is published before what is asked for
    resources: ClassVar[Sequence[str]] = (
        *(NAMESPACES, QUOTAS, NODES, CLASSES, TAINT_RULES, SLICES, CLAIMS, POD_GROUPS, PODS),
    )

    def __init__(
        self,
        features: Features | None = None,
        shares: FairShare | None = None,
        *,
        like: ClusterState | None = None,
    ) -> None:
        """like: the state of which this one becomes a copy."""
        super().__init__()
        features = features or Features()
        #: which class serves which extended resource
        self.serving = ServingClasses(enabled=features.extended_resources)
        self.nodes = NodeTable(self.serving.by_resource)
        self.pending = {}
        self._inventory = Inventory(features)
        self._claims = {}
        self._special = KnownClaims()
        #: slice name -> (driver, pool), of the slices with shared counters or devices that consume some
        self._counting: dict[str, PoolKey] = {}
        #: what devices take of their nodes' own; None while that is no feature
        self.charges = NodeCharges() if gates.enabled("DRANodeAllocatableResources") else None
        #: who has a place
        self.placed = PlacedPods()
        #: what is usually asked for: `placement_policies` reads it
        self.usual = UsualDemands()
        self.rooms = Rooms(self.nodes, self._inventory)
        self.unsettled = set()
        #: what quotas leave of what may be held; None as long as none limits that
        self._quotas: QuotaRoom | None = None
        self.shares = shares
        if shares is not None:
            self._overlays.append(shares)
        self.groups, self.budgets = WaitingGroups(), KnownBudgets()
        #: what was written since `begin`, as far as a decision can lean on it
        self.drift = Drift()
        #: every event of `resources` above `_news_floor`, up to `revision`, oldest first
        self._news: deque[News] = deque()
        self._news_floor = 0
        #: reasons that what is being applied lifts, as only who knows what was before can tell
        self._lifted = Reason(0)
        self._applying: dict[str, Callable[[Any], None]] = {
            NAMESPACES: self._apply_namespace, NODES: self._apply_node, PODS: self._apply_pod,
            CLASSES: self._apply_class, TAINT_RULES: self._apply_taint_rule, SLICES: self._apply_slice,
            CLAIMS: self._apply_claim, QUOTAS: self._apply_quota, POD_GROUPS: self.groups.put,
        }  # fmt: skip
        self._forgetting: dict[str, Callable[[Any], None]] = {
            NAMESPACES: self._forget_namespace, NODES: self._forget_node, PODS: self._forget_pod,
            CLASSES: self._forget_class, TAINT_RULES: self._forget_taint_rule, SLICES: self._forget_slice,
            CLAIMS: self._forget_claim, QUOTAS: self._forget_quota, POD_GROUPS: self.groups.remove,
        }  # fmt: skip
        #: None while the gate is off
        self.structured: StructuredClaims | None = StructuredClaims.if_on(like.structured if like is not None else None)
        self.negotiators = self.forms_on(like.negotiators if like is not None else ())
        if self.structured is not None:
            self._follow(self.structured.heard(self._put_pool, self._note_rules))
            if like is None:
                self._apply_class(EVERY_DEVICE)
        for heard in (self.budgets.heard(), *(one.heard() for one in self.negotiators)):
            self._follow(heard)

    def _follow(self, heard: Hearing) -> None:
        """Follow these resources too, ahead of the others; what is done with an object comes after what is anyway."""
        self.resources = tuple(dict.fromkeys((*heard, *self.resources)))  # type: ignore[misc]
        for resource, (written, gone) in heard.items():
            self._applying[resource] = _both(self._applying.get(resource), written)
            self._forgetting[resource] = _both(self._forgetting.get(resource), gone)

    # Keeping up ------------------------------------------------------------------------------------------------------

    @classmethod
    def captured(cls, features: Features | None = None) -> ClusterState:
        """The cluster as it is now, from its documents."""
        return event_log.listed(lambda: cls(features))

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        if (apply := self._applying.get(resource)) is not None:
            for obj in objects:
                apply(obj)
                if self.shares is not None:
                    self.shares.put(obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            self._apply(change)

    def ready(self) -> None:
        self._news.clear()
        self._news_floor = self.revision
        self.begin()
        self.tell_of_kept(self._claims.values())
        if self.structured is None:
            structured_claims.tell_of_kept(self._claims.values())

    def copied(self) -> ClusterState:
        """The same state, to imagine things in: neither shows what changes in the other.

        What is published is shared with all that was derived from it: one thread at a time may look at either. What
        happened before is not copied.
        """
        made = ClusterState(like=self)
        made.revision = made._news_floor = self.revision
        made.serving = self.serving.copied()
        made.nodes = self.nodes.copied(made.serving.by_resource)
        made.pending = dict(self.pending)
        made._inventory = self._inventory.copied()
        made._claims = dict(self._claims)
        made._special = self._special.copied()
        made._counting = dict(self._counting)
        made.charges = self.charges and self.charges.copied()
        made._assumed_claims = dict(self._assumed_claims)
        made._assumed_pods = dict(self._assumed_pods)
        made.placed = self.placed.copied()
        made.usual = self.usual.copied()
        made.rooms = self.rooms.copied(made.nodes, made._inventory)
        made.unsettled = set(self.unsettled)
        if self._quotas is not None:
            made._quotas = self._quotas.copied()
            made._overlays.append(made._quotas)
        made.groups = self.groups.copied()
        made._applying[POD_GROUPS], made._forgetting[POD_GROUPS] = made.groups.put, made.groups.remove
        made.budgets.take_over(self.budgets)
        return made

    def begin(self) -> None:
        """Count the drift from here on."""
        self.drift = Drift()

    def advance(self) -> None:
        """Apply what the log has beyond `revision`. Raises: Expired when the log does not lead there."""
        event_log.advance(self)

    def absorb(self, written: Sequence[Written]) -> None:
        """Apply what this worker has committed itself, in the transaction in which it advanced last."""
        for write in written:
            if write.resource in self.resources:
                self._apply(write)
            self.revision = max(write.revision, self.revision)

    def _apply(self, write: Written) -> None:
        self._lifted = Reason(0)
        apply = (self._forgetting if write.type == "DELETED" else self._applying).get(write.resource)
        if apply is not None:
            apply(write.object)
        if self.shares is not None:
            self.shares.put(write.object, gone=write.type == "DELETED")
        meta = write.object.metadata
        about = About(meta.namespace, meta.name, meta.uid)
        news = hints.news_about(write.object, about, revision=write.revision, resource=write.resource, type_=write.type)
        if self._lifted:
            news = replace(news, wakes=(*news.wakes, Wake(reasons=self._lifted)))
        self._news.append(news)
        if len(self._news) > REMEMBERED:
            self._news_floor = self._news.popleft().revision

    # Nodes and pods --------------------------------------------------------------------------------------------------

    def _apply_namespace(self, namespace: Namespace) -> None:
        self.nodes.neighbours.put_namespace(namespace.metadata.name, namespace.metadata.labels)

    def _forget_namespace(self, namespace: Namespace) -> None:
        self.nodes.neighbours.remove_namespace(namespace.metadata.name)

    def _apply_node(self, node: Node) -> None:
        if not has_reported(node):
            node = structs.replace(node, spec=structs.replace(node.spec, taints=(*node.spec.taints, UNHEARD_TAINT)))
        self.nodes.put(node)
        self.drift.nodes.add(node.metadata.name)

    def _forget_node(self, node: Node) -> None:
        self.nodes.remove(node.metadata.name)
        self.drift.nodes.add(node.metadata.name)

    def _apply_pod(self, pod: Pod) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name or pod.status.nominated_node_name
        if (kept := self._kept_for(uid)) and (kept != node or is_done(pod)):
            self._lifted |= FREED
        if uid not in self.pending and self.placed.get(uid) is None:
            self.usual.note()
        self._forget_assumed_pod(uid)
        self._forget_place(uid)
        if has_group(pod):
            self.groups.put_pod(pod)
        if is_done(pod):
            self.nodes.remove_pod(uid)
        elif node:
            if self.nodes.place(pod, node):
                self.drift.nodes.add(node)
                if pod.spec.node_name:
                    self._lifted |= Reason.NEIGHBOURS  # its labels count, too
            if pod.spec.node_name:
                self.placed.put(PlacedPod.of(pod, node))
        else:
            self.nodes.remove_pod(uid)
        if wants_a_node(pod):
            self.pending[uid] = outline(pod)
            if pod.status.nominated_node_name:
                self.unsettled.add(uid)
        else:
            self._avoided.pop(uid, None)

    def _forget_pod(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._forget_assumed_pod(uid)
        self._forget_place(uid)
        self._avoided.pop(uid, None)
        self.nodes.remove_pod(uid)
        if has_group(pod):
            self.groups.remove_pod(pod)

    def _kept_for(self, uid: str) -> str:
        """The node on which room is taken for a pod that has none yet; "" for none."""
        pod = self.pending.get(uid) or self._assumed_pods.get(uid)
        return "" if pod is None else pod.status.nominated_node_name

    def _forget_place(self, uid: str) -> None:
        """What the pod waited for, kept or had: what it has now comes after this."""
        self.pending.pop(uid, None)
        self.rooms.drop(uid)
        self.placed.remove(uid)
        for marked in (self.unsettled, self._assumed_rooms, self._assumed_leaving):
            marked.discard(uid)

    def _apply_class(self, device_class: DeviceClass) -> None:
        self._inventory.apply_class(device_class)
        self.serving.put(device_class)
        self.drift.rules = True

    def _forget_class(self, device_class: DeviceClass) -> None:
        self._inventory.remove_class(device_class.metadata.name)
        self.serving.remove(device_class.metadata.name)
        self.drift.rules = True

    def _apply_taint_rule(self, rule: DeviceTaintRule) -> None:
        self._note_tainted(self._inventory.apply_taint_rule(rule))

    def _forget_taint_rule(self, rule: DeviceTaintRule) -> None:
        self._note_tainted(self._inventory.remove_taint_rule(rule.metadata.name))

    def _note_tainted(self, touched: Iterable[TaintedPools]) -> None:
        for driver, pool in touched:
            if driver is not None and pool is not None:
                self.drift.published_pools.update(self._inventory.pools_named(driver, pool))
            else:
                self.drift.rules = True

    def _apply_slice(self, published: ResourceSlice) -> None:
        name = published.metadata.name
        self._inventory.apply_slice(published)
        self.drift.slice_changed(published)
        self._counting.pop(name, None)
        if published.spec.shared_counters or any(device.consumes_counters for device in published.spec.devices):
            spec = published.spec
            self._counting[name] = PoolKey(spec.driver, spec.pool.name, spec.node_name or "")
        if self.charges is not None:
            self.charges.put(published)

    def _forget_slice(self, published: ResourceSlice) -> None:
        self._inventory.remove_slice(published.metadata.name)
        self._counting.pop(published.metadata.name, None)
        if self.charges is not None:
            self.charges.remove(published.metadata.name)
        self.drift.slice_changed(published)

    def _put_pool(self, pool: ResourceSlice) -> None:
        """One that is published in the form of a draft; without devices it is no more."""
        self._apply_slice(pool) if pool.spec.devices else self._forget_slice(pool)

    def _note_rules(self) -> None:
        self.drift.rules = True

    def _apply_quota(self, quota: ResourceQuota) -> None:
        if self._quotas is None:
            self._quotas = QuotaRoom()
            self._overlays.append(self._quotas)
        self._quotas.put(quota)

    def _forget_quota(self, quota: ResourceQuota) -> None:
        if self._quotas is not None:
            self._quotas.remove(quota)

    @property
    def counting_pools(self) -> frozenset[PoolKey]:
        """The pools whose devices draw on shared counters."""
        return frozenset(self._counting.values())

    def staleness(self, placement: Placement) -> str:
        """See `plans.stale`."""
        return stale(placement, self.drift, self._inventory, self.counting_pools)

    def _apply_claim(self, claim: ResourceClaim) -> None:
        known = self._claims.get(claim.key)
        assumed = self._assumed_claims.pop(claim.key, None)
        changed = known is None or known.status.allocation != claim.status.allocation
        if changed:
            self.drift.claim_changed(claim, self._inventory)
        if changed or assumed is not None:
            self._inventory.apply_claim(claim)
        self._claims[claim.key] = claim
        if EXTENDED_CLAIM_ANNOTATION in claim.metadata.annotations:
            self.drift.special.add(self._special.put(claim))

    def _forget_claim(self, claim: ResourceClaim) -> None:
        self._claims.pop(claim.key, None)
        self._assumed_claims.pop(claim.key, None)
        if EXTENDED_CLAIM_ANNOTATION in claim.metadata.annotations:
            self.drift.special.add(self._special.remove(claim))
        self._inventory.remove_claim(claim.metadata.uid)

    # What the queue asks (queue.View) --------------------------------------------------------------------------------

    def news_after(self, revision: int) -> Sequence[News] | None:
        """What happened after `revision`, as far as this state has come; None when that is no longer remembered."""
        if revision < self._news_floor:
            return None
        news = list(takewhile(lambda one: one.revision > revision, reversed(self._news)))
        return news[::-1]

    def candidates(self) -> Iterable[Candidate]:
        return (Candidate.of(pod) for pod in self.pending.values())

    def candidate(self, uid: str) -> Candidate | None:
        pod = self.pending.get(uid)
        return None if pod is None else Candidate.of(pod)

    def pre_enqueue(self, uid: str) -> Hold | None:
        pod = self.pending.get(uid)
        hold = None if pod is None else readiness.pre_enqueue(pod, self._finder(pod))
        return self.groups.hold(pod) if pod is not None and hold is None and has_group(pod) else hold

    @property
    def sizes(self) -> Mapping[str, int]:
        """What is remembered, as kube-scheduler's metrics call it."""
        return {"nodes": len(self.nodes), "pods": self.nodes.pods, "assumed_pods": len(self._assumed_pods)}

    def pre_filter(self, pod: Pod) -> tuple[ResourceClaim, ...] | Hold:
        """The pod's claims, without the alternatives that its namespace's quotas leave no room for."""
        claims = readiness.pre_filter(pod, self._finder(pod), self.serving.own.__contains__)
        if self.structured is not None and not isinstance(claims, Hold):
            claims = self.structured.hold(claims) or claims
        if isinstance(claims, Hold) or self._quotas is None or not self._quotas.limits(pod.metadata.namespace):
            return claims
        return self._quotas.hold_before(pod, claims) or self._quotas.within(pod, claims)

    def held_by_quota(
        self, pod: Pod, claims: Sequence[ResourceClaim], given: Mapping[str, AllocationResult]
    ) -> Hold | None:
        """What keeps the pod's claims from what was found for them (claim uid -> its allocation)."""
        return None if self._quotas is None else self._quotas.hold_after(pod, claims, given)

    def extended(self, pod: Pod) -> Extended | None:
        """What `pod` asks for by the names of extended resources that devices serve; None where it does not."""
        known = self._special.of(pod, self.claim) if pod.metadata.uid in self._special.by_pod else None
        return Extended.of(pod, self.serving, known) if known is not None or self.serving.serve(pod) else None

    def waiting_for_nobody(self) -> list[ResourceClaim]:
        """Claims that are to be allocated without a pod, as the allocator reads them; the oldest first."""
        return [] if self.structured is None else self.structured.waiting_for_nobody(self._claims.values())

    @property
    def guard(self) -> Guard:
        """What budgets say of the pods with a place."""
        return Guard(self.budgets, self.nodes.neighbours.group_of)

    def snapshot(self) -> Snapshot:
        return self._inventory.snapshot()

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """With what is assumed of it."""
        found = self._assumed_claims.get((namespace, name)) or self._claims.get((namespace, name))
        return found if self.structured is None or found is None else self.structured.seen(found)

    def _finder(self, pod: Pod) -> Callable[[str], ResourceClaim | None]:
        return partial(self.claim, pod.metadata.namespace)

    def imagine(self, resource: str, obj: Any, *, gone: bool = False) -> None:
        """Count an object that is not there, or leave out one that is; nothing is written.

        Whoever imagines takes it back, the last first: by imagining what is really there, or that it is gone.
        """
        (self._forgetting if gone else self._applying)[resource](obj)

    # Groups ----------------------------------------------------------------------------------------------------------

    def placed_of(self, group: PodGroup) -> set[str]:
        """The uids of the pods of a group that have a place: on their nodes, or waiting there for their devices.

        Those of a Job that have succeeded are among them.
        """
        return {uid for uid in self.groups.members(group) if self.placed.get(uid) is not None} | self.groups.done(group)

    def is_in_use(self, claim: ResourceClaim) -> bool:
        """Whether a pod on its node could be using the claim; those that wait for a node use nothing."""
        return any(map(self._may_use, claim.status.reserved_for))

    def _may_use(self, user: ResourceClaimConsumerReference) -> bool:
        if not is_group(user):
            return user.uid not in self.pending
        return any(uid not in self.pending for uid in self.groups.members_of(user.uid))

    def is_idle_but_for(self, pod: Pod, claim: ResourceClaim) -> bool:
        """Whether nobody but the pod could be using the claim, or its group, none of whose pods has a place."""
        if stays_allocated(claim):
            return False
        others = [one.uid for one in claim.status.reserved_for if one.uid != pod.metadata.uid]
        if not others or pod.spec.scheduling_group is None:
            return not others
        group = self.groups.of(pod)
        if group is None or others != [group.metadata.uid] or not gates.enabled(CLAIMS_GATE):
            return False
        return not self.placed_of(group) and self._assumed_pods.keys().isdisjoint(self.groups.members(group))


def _both(first: Callable[[Any], None] | None, then: Callable[[Any], None]) -> Callable[[Any], None]:
    if first is None:
        return then

    def done(obj: Any) -> None:
        first(obj)
        then(obj)

    return done
