"""What the controllers of workloads know: the workloads, and of each pod that one controls, what they go by.

One view of a process follows the log, for all of these controllers. It notes whose turn it is: a workload that changed,
one whose pods or revisions changed, one that could adopt what nobody controls. A controller takes some of its resource
(`take`), of each namespace in turn, so that no tenant's workloads wait for all of another's; it comes back to one by
itself with `again`. What changes is compared with the workloads of its own namespace alone. As long as there are no
workloads there is no view, and nobody follows anything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from claims.kinds.pods import Pod
from inventory.kinds.nodes import Node, Taint
from manciple.controllers.turns import RETRY_AFTER
from manciple.store import sql
from manciple.store.event_log import Follower, View
from manciple.store.records import Written
from manciple.wire.base import ApiObject, ObjectMeta, OwnerReference
from manciple.wire.resources import DELETED, NODES, PODS, Key
from manciple.wire.selectors import ParsedLabelSelector, as_label_selector
from workloads.kinds.controller_revisions import ControllerRevision
from workloads.kinds.cron_jobs import CronJob
from workloads.kinds.jobs import Job
from workloads.kinds.pod_facts import PodFacts
from workloads.kinds.registration import KINDS

CRON_JOBS = "cronjobs.batch"
DAEMON_SETS = "daemonsets.apps"
DEPLOYMENTS = "deployments.apps"
JOBS = "jobs.batch"
REPLICA_SETS = "replicasets.apps"
STATEFUL_SETS = "statefulsets.apps"
REVISIONS = "controllerrevisions.apps"
#: What makes pods, or makes what makes pods.
WORKLOADS = (CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, JOBS, REPLICA_SETS, STATEFUL_SETS)
#: What gives turns. Of nodes only news does, for which DaemonSets are woken: their agents write them all the time.
TOLD = (*WORKLOADS, REVISIONS, PODS)
#: resource -> the resources of what its objects may be controlled by
_ADOPTERS = {
    REPLICA_SETS: (DEPLOYMENTS,),
    REVISIONS: (DAEMON_SETS, STATEFUL_SETS),
    PODS: (DAEMON_SETS, JOBS, REPLICA_SETS, STATEFUL_SETS),
}
#: Those of them that are no pods.
_CHILDREN = (REPLICA_SETS, REVISIONS)

#: Workloads of a namespace that may try again within one rest what was refused.
TOGETHER = 10


def any_of(*resources: str) -> sql.Query:
    """Whether there is any of these workloads."""
    condition, parameters = sql.any_of(resources)
    return f"SELECT {condition}", parameters


def any_or_outlived(*resources: str) -> sql.Query:
    """The same, or a pod that has outlived its own: it may still have a Job's finalizer."""
    found, parameters = any_of(*resources)
    # Few are gone: each is looked up by itself, whatever PostgreSQL, which has no statistics yet, would join.
    outlived = "SELECT 1 FROM store_ownerlink WHERE gone AND controller AND "
    of_pod = "(SELECT resource FROM store_storedobject WHERE uid = object_id) = %s"
    return f"{found} OR EXISTS ({outlived}{of_pod})", (*parameters, PODS)


ANY = any_or_outlived(*WORKLOADS)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What of a node says whether it runs a DaemonSet's pod."""

    name: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]

    @classmethod
    def of(cls, node: Node) -> NodeFacts:
        return cls(node.metadata.name, node.metadata.labels, node.spec.taints)


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    return next((one for one in meta.owner_references if one.controller), None)


class WorkloadView(View):
    """See the module. Everything by uid of who controls it, or by resource and key."""

    resources: ClassVar[Sequence[str]] = (NODES, *TOLD)

    def __init__(self) -> None:
        self.workloads: dict[str, dict[Key, ApiObject]] = {resource: {} for resource in WORKLOADS}
        #: uid of a workload -> the pods that it controls, by name
        self.pods: dict[str, dict[str, PodFacts]] = {}
        #: uid of a workload -> what it controls besides pods: ReplicaSets, revisions
        self.children: dict[str, dict[tuple[str, Key], ApiObject]] = {}
        #: (resource, namespace) -> what nobody controls there, of ReplicaSets and revisions
        self._orphans: dict[tuple[str, str], dict[Key, ApiObject]] = {}
        #: namespace -> how many pods of its workloads wait for a node
        self.waiting: Counter[str] = Counter()
        self.nodes: dict[str, NodeFacts] = {}
        #: pods with the finalizer of a Job that is gone
        self.stray: set[Key] = set()
        #: (resource, namespace) -> the workloads there that take in what they select -> (uid, selector)
        self._adopting: dict[tuple[str, str], dict[Key, tuple[str, ParsedLabelSelector]]] = {}
        #: uid -> which workload has it
        self._places: dict[str, tuple[str, Key]] = {}
        #: (resource, key) of what is controlled -> the uid of its controller
        self._controllers: dict[tuple[str, Key], str] = {}
        #: resource -> namespace -> the workloads whose turn it is; both in the order in which they come
        self._changed: dict[str, dict[str, dict[Key, None]]] = {resource: {} for resource in WORKLOADS}
        #: the uids of workloads that came while the view was there: pods that nobody controls may be older than they
        self.fresh: set[str] = set()
        #: uid of a workload that adopts pods -> the keys of pods that nobody controls and that it selects
        self.offered: dict[str, set[Key]] = {}
        #: namespace -> (resource, key) of workloads that wait to try again what was refused
        self._refused: dict[str, dict[tuple[str, Key], None]] = {}
        self._is_ready = False
        #: resource -> the workloads that somebody comes back to -> when, as POSIX seconds
        self._later: dict[str, dict[Key, float]] = {resource: {} for resource in WORKLOADS}

    # What happens -----------------------------------------------------------------------------------------------------

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:
        for obj in objects:
            self._put(resource, obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            if change.type == DELETED:
                self._remove(change.resource, change.object)
            else:
                self._put(change.resource, change.object)

    def ready(self) -> None:
        self._is_ready = True

    def _put(self, resource: str, obj: ApiObject) -> None:
        if isinstance(obj, Node):
            self._put_node(obj.metadata.name, NodeFacts.of(obj))
            return
        self._leave(resource, obj.key)
        if resource in self.workloads:
            _forget(self._adopting, (resource, obj.key[0]), obj.key)
            if _may_adopt(obj):
                adopter = (obj.metadata.uid, selector_of(obj))
                self._adopting.setdefault((resource, obj.key[0]), {})[obj.key] = adopter
                if self._is_ready and obj.metadata.uid not in self._places:
                    self.fresh.add(obj.metadata.uid)
            self.workloads[resource][obj.key] = obj
            self._places[obj.metadata.uid] = (resource, obj.key)
            self._wake(resource, obj.key)
        controller = controller_of(obj.metadata)
        if controller is None:
            if resource in _CHILDREN:
                self._orphans.setdefault((resource, obj.key[0]), {})[obj.key] = obj
            self._offer(resource, obj)
        elif resource != PODS:
            self._controllers[resource, obj.key] = controller.uid
            self.children.setdefault(controller.uid, {})[resource, obj.key] = obj
            self._touch(controller.uid)
        elif isinstance(obj, Pod) and controller.kind in _KINDS:
            self._controllers[resource, obj.key] = controller.uid
            facts = PodFacts.of(obj, of_job=controller.kind == "Job")
            self.pods.setdefault(controller.uid, {})[obj.metadata.name] = facts
            self.waiting[obj.metadata.namespace] += facts.is_waiting
            self._touch(controller.uid)
            if controller.uid not in self._places:
                self._note_stray(obj.key, facts)

    def _put_node(self, name: str, facts: NodeFacts | None) -> None:
        """None: it is gone. Only what tells whether pods run there is news."""
        if self.nodes.get(name) == facts:
            return
        if facts is None:
            del self.nodes[name]
        else:
            self.nodes[name] = facts
        for key in self.workloads[DAEMON_SETS]:
            self._wake(DAEMON_SETS, key)

    def _remove(self, resource: str, obj: ApiObject) -> None:
        if resource == NODES:
            self._put_node(obj.metadata.name, None)
            return
        self._leave(resource, obj.key)
        if resource in self.workloads:
            for name, facts in self.pods.get(obj.metadata.uid, {}).items():
                self._note_stray((obj.metadata.namespace, name), facts)
            _forget(self._adopting, (resource, obj.key[0]), obj.key)
            self.workloads[resource].pop(obj.key, None)
            self._places.pop(obj.metadata.uid, None)
            self.fresh.discard(obj.metadata.uid)
            self.offered.pop(obj.metadata.uid, None)
            self._later[resource].pop(obj.key, None)
            _forget(self._refused, obj.key[0], (resource, obj.key))

    def _note_stray(self, key: Key, facts: PodFacts) -> None:
        if facts.job is not None and facts.job.is_tracked:
            self.stray.add(key)

    def _leave(self, resource: str, key: Key) -> None:
        """It is no longer where it was known to be; whoever controlled it has news."""
        if resource in _CHILDREN:
            _forget(self._orphans, (resource, key[0]), key)
        uid = self._controllers.pop((resource, key), None)
        if uid is None:
            return
        if resource == PODS:
            self.stray.discard(key)
            known = self.pods.get(uid, {})
            facts = known.pop(key[1], None)
            if facts is not None and facts.is_waiting:
                self.waiting[key[0]] -= 1
                if not self.waiting[key[0]]:
                    del self.waiting[key[0]]
            if not known:
                self.pods.pop(uid, None)
        else:
            _forget(self.children, uid, (resource, key))
        self._touch(uid)

    def _touch(self, uid: str) -> None:
        if place := self._places.get(uid):
            self._wake(*place)

    def _wake(self, resource: str, key: Key) -> None:
        self._changed[resource].setdefault(key[0], {})[key] = None

    def _offer(self, resource: str, obj: ApiObject) -> None:
        """Nobody controls it: workloads that select it adopt it."""
        if obj.metadata.deletion_timestamp is not None:
            return
        for adopter in _ADOPTERS.get(resource, ()):
            for key, (uid, selector) in self._adopting.get((adopter, obj.metadata.namespace), {}).items():
                if selector.matches(obj.metadata.labels):
                    self._wake(adopter, key)
                    if resource == PODS:
                        self.offered.setdefault(uid, set()).add(obj.key)

    # Whose turn it is -------------------------------------------------------------------------------------------------

    def take(self, resource: str, now: datetime, most: int) -> list[ApiObject]:
        """Up to so many of those whose turn it is, one of each namespace after the other; it begins anew for them."""
        later, changed = self._later[resource], self._changed[resource]
        for key in [key for key, at in later.items() if at <= now.timestamp()]:
            self._wake(resource, key)
        found: list[ApiObject] = []
        while changed and len(found) < most:
            namespace = next(iter(changed))
            keys = changed.pop(namespace)
            key = next(iter(keys))
            del keys[key]
            if keys:
                changed[namespace] = keys  # after all others
            later.pop(key, None)
            _forget(self._refused, namespace, (resource, key))
            if (workload := self.workloads[resource].get(key)) is not None:
                found.append(workload)
        return found

    def next_turn(self, resource: str) -> float:
        """When the next turn comes without a change, as POSIX seconds, once all that is known have had theirs."""
        if self._changed[resource] or (resource == JOBS and self.stray):
            return 0.0
        return min(self._later[resource].values(), default=math.inf)

    def again(self, resource: str, key: Key, at: float) -> None:
        """Its turn comes at that time, in POSIX seconds, if not before."""
        if key in self.workloads[resource]:
            self._later[resource][key] = min(at, self._later[resource].get(key, at))

    def retry(self, resource: str, key: Key, now: float, rest: float) -> None:
        """Its turn comes after that rest, in seconds, for each `TOGETHER` of its namespace that wait so."""
        if key in self.workloads[resource]:
            waiting = self._refused.setdefault(key[0], {})
            waiting[resource, key] = None
            self.again(resource, key, now + rest * max(1.0, len(waiting) / TOGETHER))

    def turn_of_pods(self, workload: ApiObject) -> tuple[Sequence[PodFacts], Collection[Key] | None]:
        """(the pods that it controls, the pods that it may adopt: None where they have to be searched); once a turn."""
        uid = workload.metadata.uid
        offered = {key for key in self.offered.pop(uid, ()) if (PODS, key) not in self._controllers}
        is_fresh = uid in self.fresh
        self.fresh.discard(uid)
        if not _may_adopt(workload):
            return self.owned_pods(workload), ()
        return self.owned_pods(workload), None if is_fresh else offered

    def offer_again(self, resource: str, key: Key, offered: Collection[Key] | None) -> None:
        """Take back what `turn_of_pods` gave for a turn in which nothing was done."""
        workload = self.workloads[resource].get(key)
        if workload is None or not _may_adopt(workload):
            return
        if offered is None:
            self.fresh.add(workload.metadata.uid)
        elif offered:
            self.offered.setdefault(workload.metadata.uid, set()).update(offered)

    def revisions(self, workload: ApiObject) -> list[ControllerRevision]:
        """Those that it controls, and those that nobody controls and it selects."""
        owned = self.children.get(workload.metadata.uid, {}).values()
        found = (*owned, *self.orphans(REVISIONS, workload))
        return [one for one in found if isinstance(one, ControllerRevision)]

    def orphans(self, resource: str, workload: ApiObject) -> list[ApiObject]:
        """The ReplicaSets, or revisions, that nobody controls and the workload selects."""
        selector = selector_of(workload)
        there = self._orphans.get((resource, workload.metadata.namespace), {}).values()
        return [
            one for one in there if one.metadata.deletion_timestamp is None and selector.matches(one.metadata.labels)
        ]

    def owned_pods(self, workload: ApiObject) -> list[PodFacts]:
        return list(self.pods.get(workload.metadata.uid, {}).values())


def _may_adopt(workload: ApiObject) -> bool:
    """Nothing but its own pods has the label that a Job selects, unless its selector is somebody's own; CronJobs select
    nothing.
    """
    if isinstance(workload, Job):
        return bool(workload.spec.manual_selector)
    return not isinstance(workload, CronJob)


_KINDS: Collection[str] = frozenset(kind.kind for kind in KINDS)


K = TypeVar("K")
L = TypeVar("L")


def _forget(groups: dict[K, dict[L, Any]], group: K, member: L) -> None:
    """No empty group stays."""
    if members := groups.get(group):
        members.pop(member, None)
        if not members:
            del groups[group]


def selector_of(workload: ApiObject) -> ParsedLabelSelector:
    """What the workload takes in; an empty selector selects nothing."""
    try:
        parsed = as_label_selector(workload.spec.selector)  # type: ignore[attr-defined]  # of every workload
    except ValueError:
        return as_label_selector(None)
    return as_label_selector(None) if parsed.empty else parsed


def selects(workload: ApiObject, labels: dict[str, str]) -> bool:
    return selector_of(workload).matches(labels)


_follower = Follower(WorkloadView)


@contextmanager
def current() -> Iterator[WorkloadView | None]:
    """The view, up to date; None as long as there is no workload."""
    if sql.fetch(*ANY)[0][0]:
        with _follower.view() as view:
            yield view
        return
    if _follower.place != ("", 0):
        _follower.reset()
    yield None


def come_back(
    resource: str,
    later: Mapping[Key, float],
    *,
    refused: Collection[Key] = (),
    offered: Mapping[Key, Collection[Key] | None] = MappingProxyType({}),
    now: float = 0.0,
) -> None:
    """Let the turn of these workloads come at those times, in POSIX seconds, if not before.

    refused: see `WorkloadView.retry`; `now` is for these. offered: what workloads have not adopted of what they were
    offered in their turn.
    """
    if not (later or refused or offered):
        return
    with current() as view:
        if view is None:
            return
        for key, at in later.items():
            view.again(resource, key, at)
        for key in refused:
            view.retry(resource, key, now, RETRY_AFTER)
        for key, pods in offered.items():
            view.offer_again(resource, key, pods)
