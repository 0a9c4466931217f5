"""What the controllers of workloads know: the workloads, and of each pod that one controls, what they go by.

One view of a process follows the log, for all of these controllers. It notes whose turn it is: a workload that changed,
one whose pods or revisions changed, one that could adopt what nobody controls. A controller takes those of its resource
(`take`) and looks at each; it comes back to one by itself with `again`. As long as there are no workloads there is no
view, and nobody follows anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from claims.kinds.pods import Pod
from inventory.kinds.nodes import Node, Taint
from manciple.store import sql
from manciple.store.event_log import Follower, View
from manciple.store.records import Written
from manciple.wire.base import ApiObject, ObjectMeta, OwnerReference
from manciple.wire.resources import DELETED, NODES, PODS, Key
from manciple.wire.selectors import as_label_selector
from workloads.kinds.controller_revisions import ControllerRevision
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
#: resource -> the resources of what its objects may be controlled by
_ADOPTERS = {
    REPLICA_SETS: (DEPLOYMENTS,),
    REVISIONS: (DAEMON_SETS, STATEFUL_SETS),
    PODS: (DAEMON_SETS, JOBS, REPLICA_SETS, STATEFUL_SETS),
}

#: Whether there is any workload, or a pod that has outlived its own: it may still have a Job's finalizer.
ANY: sql.Query = (
    f"SELECT EXISTS (SELECT 1 FROM store_storedobject WHERE resource IN ({', '.join(['%s'] * len(WORKLOADS))})) "  # noqa: S608 - of places for values
    # Few are gone: each is looked up by itself, whatever PostgreSQL, which has no statistics yet, would join.
    "OR EXISTS (SELECT 1 FROM store_ownerlink WHERE gone AND controller AND "
    "(SELECT resource FROM store_storedobject WHERE uid = object_id) = %s)",
    (*WORKLOADS, PODS),
)


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

    resources: ClassVar[Sequence[str]] = (NODES, *WORKLOADS, REVISIONS, PODS)

    def __init__(self) -> None:
        self.workloads: dict[str, dict[Key, ApiObject]] = {resource: {} for resource in WORKLOADS}
        #: uid of a workload -> the pods that it controls, by name
        self.pods: dict[str, dict[str, PodFacts]] = {}
        #: uid of a workload -> what it controls besides pods: ReplicaSets, revisions
        self.children: dict[str, dict[tuple[str, Key], ApiObject]] = {}
        #: the revisions that nobody controls
        self._orphans: dict[Key, ControllerRevision] = {}
        self.nodes: dict[str, NodeFacts] = {}
        #: pods with the finalizer of a Job that is gone
        self.stray: set[Key] = set()
        #: resource -> the workloads that take in what they select
        self._adopting: dict[str, dict[Key, ApiObject]] = {resource: {} for resource in WORKLOADS}
        #: uid -> which workload has it
        self._places: dict[str, tuple[str, Key]] = {}
        #: (resource, key) of what is controlled -> the uid of its controller
        self._controllers: dict[tuple[str, Key], str] = {}
        #: resource -> the workloads whose turn it is
        self._changed: dict[str, set[Key]] = {resource: set() for resource in WORKLOADS}
        #: the uids of workloads that came while the view was there: pods that nobody controls may be older than they
        self.fresh: set[str] = set()
        #: uid of a workload that adopts pods -> the keys of pods that nobody controls and that it selects
        self.offered: dict[str, set[Key]] = {}
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
            self._adopting[resource].pop(obj.key, None)
            if _may_adopt(obj):
                self._adopting[resource][obj.key] = obj
                if self._is_ready and obj.metadata.uid not in self._places:
                    self.fresh.add(obj.metadata.uid)
            self.workloads[resource][obj.key] = obj
            self._places[obj.metadata.uid] = (resource, obj.key)
            self._changed[resource].add(obj.key)
        controller = controller_of(obj.metadata)
        if controller is None:
            if isinstance(obj, ControllerRevision):
                self._orphans[obj.key] = obj
            self._offer(resource, obj)
        elif resource != PODS:
            self._controllers[resource, obj.key] = controller.uid
            self.children.setdefault(controller.uid, {})[resource, obj.key] = obj
            self._touch(controller.uid)
        elif isinstance(obj, Pod) and controller.kind in _KINDS:
            self._controllers[resource, obj.key] = controller.uid
            facts = PodFacts.of(obj, of_job=controller.kind == "Job")
            self.pods.setdefault(controller.uid, {})[obj.metadata.name] = facts
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
        self._changed[DAEMON_SETS].update(self.workloads[DAEMON_SETS])

    def _remove(self, resource: str, obj: ApiObject) -> None:
        if resource == NODES:
            self._put_node(obj.metadata.name, None)
            return
        self._leave(resource, obj.key)
        if resource in self.workloads:
            for name, facts in self.pods.get(obj.metadata.uid, {}).items():
                self._note_stray((obj.metadata.namespace, name), facts)
            self._adopting[resource].pop(obj.key, None)
            self.workloads[resource].pop(obj.key, None)
            self._places.pop(obj.metadata.uid, None)
            self.fresh.discard(obj.metadata.uid)
            self.offered.pop(obj.metadata.uid, None)
            self._later[resource].pop(obj.key, None)

    def _note_stray(self, key: Key, facts: PodFacts) -> None:
        if facts.job is not None and facts.job.is_tracked:
            self.stray.add(key)

    def _leave(self, resource: str, key: Key) -> None:
        """It is no longer where it was known to be; whoever controlled it has news."""
        if resource == REVISIONS:
            self._orphans.pop(key, None)
        uid = self._controllers.pop((resource, key), None)
        if uid is None:
            return
        if resource == PODS:
            self.stray.discard(key)
            known = self.pods.get(uid, {})
            known.pop(key[1], None)
            if not known:
                self.pods.pop(uid, None)
        else:
            children = self.children.get(uid, {})
            children.pop((resource, key), None)
            if not children:
                self.children.pop(uid, None)
        self._touch(uid)

    def _touch(self, uid: str) -> None:
        if place := self._places.get(uid):
            self._changed[place[0]].add(place[1])

    def _offer(self, resource: str, obj: ApiObject) -> None:
        """Nobody controls it: workloads that select it adopt it."""
        if obj.metadata.deletion_timestamp is not None:
            return
        for adopter in _ADOPTERS.get(resource, ()):
            for key, workload in self._adopting[adopter].items():
                if key[0] == obj.metadata.namespace and selects(workload, obj.metadata.labels):
                    self._changed[adopter].add(key)
                    if resource == PODS:
                        self.offered.setdefault(workload.metadata.uid, set()).add(obj.key)

    # Whose turn it is -------------------------------------------------------------------------------------------------

    def take(self, resource: str, now: datetime) -> list[ApiObject]:
        """Those whose turn it is, which begins anew."""
        later, changed = self._later[resource], self._changed[resource]
        changed.update(key for key, at in later.items() if at <= now.timestamp())
        for key in changed:
            later.pop(key, None)
        self._changed[resource] = set()
        return [obj for key in sorted(changed) if (obj := self.workloads[resource].get(key)) is not None]

    def has_turns(self, resource: str, now: datetime) -> bool:
        return bool(self._changed[resource]) or any(at <= now.timestamp() for at in self._later[resource].values())

    def again(self, resource: str, key: Key, at: float) -> None:
        """Its turn comes at that time, in POSIX seconds, if not before."""
        if key in self.workloads[resource]:
            self._later[resource][key] = min(at, self._later[resource].get(key, at))

    def turn_of_pods(self, workload: ApiObject) -> tuple[Sequence[PodFacts], Collection[Key] | None]:
        """(the pods that it controls, the pods that it may adopt: None where they have to be searched); once a turn."""
        uid = workload.metadata.uid
        offered = self.offered.pop(uid, set())
        is_fresh = uid in self.fresh
        self.fresh.discard(uid)
        if not _may_adopt(workload):
            return self.owned_pods(workload), ()
        return self.owned_pods(workload), None if is_fresh else offered

    def revisions(self, workload: ApiObject) -> list[ControllerRevision]:
        """Those that it controls, and those that nobody controls and it selects."""
        owned = self.children.get(workload.metadata.uid, {}).values()
        orphans = (
            one
            for key, one in self._orphans.items()
            if key[0] == workload.metadata.namespace and selects(workload, one.metadata.labels)
        )
        return [*(one for one in owned if isinstance(one, ControllerRevision)), *orphans]

    def owned_pods(self, workload: ApiObject) -> list[PodFacts]:
        return list(self.pods.get(workload.metadata.uid, {}).values())


def _may_adopt(workload: ApiObject) -> bool:
    """Nothing but its own pods has the label that a Job selects, unless its selector is somebody's own."""
    return not isinstance(workload, Job) or bool(workload.spec.manual_selector)


_KINDS: Collection[str] = frozenset(kind.kind for kind in KINDS)


def selects(workload: ApiObject, labels: dict[str, str]) -> bool:
    """Whether the workload's selector takes in something with these labels; an empty one selects nothing."""
    try:
        parsed = as_label_selector(workload.spec.selector)  # type: ignore[attr-defined]  # of every workload
    except ValueError:
        return False
    return not parsed.empty and parsed.matches(labels)


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


def come_back(resource: str, later: Mapping[Key, float]) -> None:
    """Let the turn of these workloads come at those times, in POSIX seconds, if not before."""
    if not later:
        return
    with current() as view:
        if view is not None:
            for key, at in later.items():
                view.again(resource, key, at)
