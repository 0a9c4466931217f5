"""Keeps a pod of each DaemonSet on every node that it fits, and replaces those of former templates.

A pod is for one node (a required affinity to its name); the scheduler binds it, so its devices are allocated as those
of any pod. One that has ended, or is one too many on its node, is deleted. In a rolling update either old pods go, as
long as no more nodes than allowed lack one that is available, or new ones come beside them (a surge), and the old ones
go when these are available.

Source: pkg/controller/daemon/{daemon_controller,update}.go and util/daemonset_util.go of Kubernetes 1.36.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from claims.kinds.pods import Affinity, NodeAffinity, Pod, PodSpec, Toleration, tolerates
from inventory.kinds.nodes import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from manciple.controllers.declaration import BOUND, DELETING, FINISHED, Controller
from manciple.store.objects import Writer
from manciple.wire.identity import controller
from manciple.wire.resources import ADDED, DELETED, MODIFIED, NODES, PODS, Key
from manciple.wire.selectors import node_selector_matches
from workloads import pod_control, revisions
from workloads import view as following
from workloads.kinds.controller_revisions import ControllerRevision
from workloads.kinds.daemon_sets import (
    DAEMON_SET,
    GENERATION,
    ROLLING_UPDATE,
    DaemonSet,
    DaemonSetStatus,
    surge_and_unavailable,
)
from workloads.kinds.pod_facts import PodFacts
from workloads.kinds.templates import pod_of
from workloads.pod_control import RETRY, Done, PodControl, Work, take_turns
from workloads.revisions import History, history_of
from workloads.view import DAEMON_SETS, NodeFacts, WorkloadView

IDENTITY = controller("daemon-set-controller")
COMPONENT = "daemonset-controller"
#: The label with the number of the template, beside the hash.
TEMPLATE_GENERATION = "pod-template-generation"

_NODE = "node.kubernetes.io/"
#: What every such pod tolerates: it belongs to its node, whatever state that is in.
_TOLERATED = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)


@dataclass(frozen=True, slots=True)
class Turn:
    """A DaemonSet, its pods (offered: see `WorkloadView.turn_of_pods`) and its revisions, and all nodes."""

    daemon_set: DaemonSet
    pods: Sequence[PodFacts]
    offered: Collection[Key] | None
    revisions: Sequence[ControllerRevision]
    nodes: Sequence[NodeFacts]


@dataclass(slots=True)
class Plan:
    """Which nodes get a pod, and which pods go. ended: why a pod is deleted that nobody would miss, by its uid."""

    needing: list[str] = dataclasses.field(default_factory=list)
    going: list[PodFacts] = dataclasses.field(default_factory=list)
    ended: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)


def reconcile(now: datetime) -> int:
    return take_turns(DAEMON_SETS, now, _look, _sync)


def _look(view: WorkloadView, daemon_set: DaemonSet) -> Turn:
    pods, offered = view.turn_of_pods(daemon_set)
    return Turn(daemon_set, pods, offered, view.revisions(daemon_set), list(view.nodes.values()))


def _sync(turn: Turn, now: datetime) -> Done | Work:
    daemon_set, most = turn.daemon_set, pod_control.BURST
    if daemon_set.metadata.deletion_timestamp is not None:
        return 0, None
    control = PodControl(DAEMON_SET, daemon_set, IDENTITY, COMPONENT)
    released, adopted = control.unselected(turn.pods), control.adoptable(turn.offered)
    leaving = {pod.uid for pod in released}
    pods = [pod for pod in turn.pods if pod.uid not in leaving] + [PodFacts.of(pod) for pod in adopted]
    collisions = daemon_set.status.collision_count or 0
    history = history_of(daemon_set, daemon_set.spec.template, turn.revisions, collisions=collisions)
    surplus, hashed = _surplus(daemon_set, history, pods), history.current.metadata.labels.get(revisions.HASH, "")
    view = Daemons(daemon_set, turn.nodes, pods, hashed, now)
    plan = view.planned()
    needing, going = plan.needing[:most], plan.going[:most]
    admitted, refusal = control.admitted(daemon_pod(daemon_set, name, hashed) for name in needing)
    status = view.counted()
    is_still = history.is_written and not (released or adopted or going or admitted or refusal or surplus)
    if is_still and status == daemon_set.status:
        return 0, view.next_look()

    def write(writer: Writer) -> Done:
        before = writer.revision
        control.check_unchanged(writer, len(turn.pods))
        if not revisions.record(writer, daemon_set, history, surplus):
            collided = replace(daemon_set.status, collision_count=collisions + 1)
            writer.update(DAEMON_SET, replace(daemon_set, status=collided), subresource="status")
            return writer.revision - before, now.timestamp()
        control.adopt(writer, adopted)
        control.release(writer, released)
        for facts in going:
            if facts.uid in plan.ended:
                reason, message = plan.ended[facts.uid]
                control.tell(writer, reason, message, now, warning=reason == "FailedDaemonPod")
        made, refused = control.make(writer, admitted, refusal, now)
        control.delete(writer, going, now)
        gone = {facts.uid for facts in going}
        known = [dataclasses.replace(pod, is_deleting=True) if pod.uid in gone else pod for pod in pods]
        after = Daemons(daemon_set, turn.nodes, [*known, *map(PodFacts.of, made)], hashed, now)
        writer.update(DAEMON_SET, replace(daemon_set, status=after.counted()), subresource="status")
        is_more = len(plan.needing) > most or len(plan.going) > most
        later = now.timestamp() if is_more else after.next_look()
        return writer.revision - before, later if refused is None else RETRY

    return Work(write, IDENTITY, pods=len(admitted) + len(going))


# Revisions ------------------------------------------------------------------------------------------------------------


def _surplus(daemon_set: DaemonSet, history: History, pods: Iterable[PodFacts]) -> list[ControllerRevision]:
    limit, used = daemon_set.spec.revision_history_limit, {pod.labels.get(revisions.HASH) for pod in pods}
    number = 0 if limit is None else len(history.old) - limit
    return revisions.surplus(history.old, number, lambda one: one.metadata.labels.get(revisions.HASH) in used)


# Pods -----------------------------------------------------------------------------------------------------------------


def tolerations_of(spec: PodSpec) -> tuple[Toleration, ...]:
    added = [
        Toleration(key=f"{_NODE}{name}", operator="Exists", effect=effect)
        for name, effect in (*_TOLERATED, *((("network-unavailable", "NoSchedule"),) if spec.host_network else ()))
    ]
    return (*spec.tolerations, *(one for one in added if one not in spec.tolerations))


def daemon_pod(daemon_set: DaemonSet, node: str, hashed: str) -> Pod:
    """The pod for one node."""
    pod = pod_of(daemon_set.spec.template, daemon_set)
    generation = daemon_set.metadata.annotations.get(GENERATION, "1")
    labels = {**pod.metadata.labels, revisions.HASH: hashed, TEMPLATE_GENERATION: generation}
    spec = replace(pod.spec, tolerations=tolerations_of(pod.spec), affinity=_only_on(node, pod.spec.affinity))
    return replace(pod, metadata=replace(pod.metadata, labels=labels), spec=spec)


def _only_on(node: str, affinity: Affinity | None) -> Affinity:
    """The affinity with its required terms about nodes replaced: whether they hold is known already."""
    term = NodeSelectorTerm(match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,)),))
    affinity = affinity or Affinity()
    of_nodes = replace(
        affinity.node_affinity or NodeAffinity(),
        required_during_scheduling_ignored_during_execution=NodeSelector(node_selector_terms=(term,)),
    )
    return replace(affinity, node_affinity=of_nodes)


class Daemons:
    """The pods of one DaemonSet by node, and what is to become of them."""

    def __init__(
        self,
        daemon_set: DaemonSet,
        nodes: Iterable[NodeFacts],
        pods: Iterable[PodFacts],
        hashed: str,
        now: datetime,
    ) -> None:
        self._daemon_set, self._hash, self._now = daemon_set, hashed, now.timestamp()
        self._least = daemon_set.spec.min_ready_seconds
        self._pods: dict[str, list[PodFacts]] = {}
        for pod in sorted(pods, key=lambda pod: (not pod.node, pod.created, pod.name)):
            self._pods.setdefault(pod.target, []).append(pod)
        tolerations = tolerations_of(daemon_set.spec.template.spec)
        #: node -> (whether it should run the pod, whether a pod may stay there)
        self._nodes = {node.name: self._fits(node, tolerations) for node in nodes}

    def _fits(self, node: NodeFacts, tolerations: Sequence[Toleration]) -> tuple[bool, bool]:
        spec = self._daemon_set.spec.template.spec
        if spec.node_name and spec.node_name != node.name:
            return False, False
        if not spec.node_selector.items() <= node.labels.items():
            return False, False
        affinity = spec.affinity and spec.affinity.node_affinity
        required = affinity and affinity.required_during_scheduling_ignored_during_execution
        if required and not node_selector_matches(required, node.name, node.labels):
            return False, False
        refusing = [
            taint.effect
            for taint in node.taints
            if taint.effect != "PreferNoSchedule" and not any(tolerates(one, taint) for one in tolerations)
        ]
        return not refusing, "NoExecute" not in refusing

    # What is to be done -----------------------------------------------------------------------------------------------

    def planned(self) -> Plan:
        plan = Plan()
        for node, (should_run, may_stay) in self._nodes.items():
            self._plan_node(plan, node, should_run=should_run, may_stay=may_stay)
        for node, pods in self._pods.items():
            if node not in self._nodes:  # it is gone, or was never there
                plan.going += [pod for pod in pods if not pod.is_deleting and not pod.node]
        if self._daemon_set.spec.update_strategy.type == ROLLING_UPDATE:
            self._plan_update(plan)
        return plan

    def _plan_node(self, plan: Plan, node: str, *, should_run: bool, may_stay: bool) -> None:
        pods = self._pods.get(node, [])
        if not pods:
            plan.needing += [node] if should_run else []
            return
        present = [pod for pod in pods if not pod.is_deleting]
        if not may_stay:
            plan.going += present
            return
        for pod in present:
            if pod.has_ended:
                plan.going.append(pod)
                plan.ended[pod.uid] = self._end_of(pod, node)
        running = [pod for pod in present if not pod.has_ended]
        if not self._surge():
            plan.going += running[1:]
            return
        newest = [pod for pod in running if self._is_new(pod)]
        old = [pod for pod in running if not self._is_new(pod)]
        plan.going += newest[1:] + old[1:]

    def _end_of(self, pod: PodFacts, node: str) -> tuple[str, str]:
        """(reason, message) of the event."""
        name = f"{self._daemon_set.metadata.namespace}/{pod.name}"
        if pod.phase == "Failed":
            return "FailedDaemonPod", f"Found failed daemon pod {name} on node {node}, will try to kill it"
        return "SucceededDaemonPod", f"Found succeeded daemon pod {name} on node {node}, will try to delete it"

    def _plan_update(self, plan: Plan) -> None:
        going = {pod.uid for pod in plan.going}
        surge, unavailable = surge_and_unavailable(self._daemon_set, self._desired())
        missing, free, waiting, surging = 0, list[PodFacts](), list[PodFacts](), 0
        additional: list[str] = []
        for node, (should_run, _) in self._nodes.items():
            if not should_run:
                continue
            pods = [pod for pod in self._pods.get(node, []) if not pod.is_deleting and pod.uid not in going]
            new = next((pod for pod in pods if self._is_new(pod)), None)
            old = next((pod for pod in pods if not self._is_new(pod)), None)
            if old is None:
                missing += new is None or not self._is_available(new)
            elif not surge:
                missing, free, waiting = self._weigh(old, missing, free, waiting)
            elif new is not None:
                surging += not self._is_available(new)
                free += [old] if self._is_available(new) else []
            elif self._is_available(old):
                additional.append(node)
            else:  # nothing is lost with it
                free.append(old)
        if surge:
            plan.going += free
            plan.needing += additional[: max(0, surge - surging)]
        else:
            plan.going += free + waiting[: max(0, unavailable - missing)]

    def _weigh(
        self, old: PodFacts, missing: int, free: list[PodFacts], waiting: list[PodFacts]
    ) -> tuple[int, list[PodFacts], list[PodFacts]]:
        """An old pod without a new one beside it: one that is not available may go at once."""
        if self._is_available(old):
            return missing, free, [*waiting, old]
        return missing + 1, [*free, old], waiting

    def _surge(self) -> int:
        strategy = self._daemon_set.spec.update_strategy
        return surge_and_unavailable(self._daemon_set, self._desired())[0] if strategy.type == ROLLING_UPDATE else 0

    def _desired(self) -> int:
        return sum(should_run for should_run, _ in self._nodes.values())

    def _is_new(self, pod: PodFacts) -> bool:
        return pod.labels.get(revisions.HASH) == self._hash

    def _is_available(self, pod: PodFacts) -> bool:
        at = pod.available_at(self._least)
        return at is not None and at <= self._now

    def next_look(self) -> float | None:
        """When the next pod has been ready for long enough."""
        times = (pod.available_at(self._least) for pods in self._pods.values() for pod in pods if pod.is_active)
        return min((at for at in times if at is not None and at > self._now), default=None)

    # The status -------------------------------------------------------------------------------------------------------

    def counted(self) -> DaemonSetStatus:
        desired = current = astray = ready = available = updated = 0
        for node, (should_run, _) in self._nodes.items():
            pods = self._pods.get(node, [])
            if not should_run:
                astray += bool(pods)
                continue
            desired += 1
            if not pods:
                continue
            current += 1
            first = min(pods, key=lambda pod: (pod.created, pod.name))
            ready += first.is_ready
            available += self._is_available(first)
            updated += self._is_new(first)
        return replace(
            self._daemon_set.status,
            current_number_scheduled=current,
            number_misscheduled=astray,
            desired_number_scheduled=desired,
            number_ready=ready,
            observed_generation=self._daemon_set.metadata.generation,
            updated_number_scheduled=updated,
            number_available=available,
            number_unavailable=desired - available,
        )


CONTROLLER = Controller(
    name="keep_daemon_sets",
    does="keeps a pod of each DaemonSet on the nodes that it fits",
    reconcile=reconcile,
    every=2,
    wakes_on=frozenset(
        {
            (DAEMON_SETS, ADDED),
            (DAEMON_SETS, MODIFIED),
            (NODES, ADDED),
            (NODES, MODIFIED),
            (NODES, DELETED),
            (PODS, BOUND),
            (PODS, MODIFIED),
            (PODS, FINISHED),
            (PODS, DELETING),
            (PODS, DELETED),
        }
    ),
    has_work=following.any_of(DAEMON_SETS),
    is_work=frozenset({(DAEMON_SETS, ADDED), (DAEMON_SETS, MODIFIED)}),
    rests_without_work=True,
    rests_until=partial(pod_control.rests_until, DAEMON_SETS),
    has_more=partial(pod_control.is_cut_short, DAEMON_SETS),
    most_per_turn=pod_control.BURST,
    queue_name="daemonset",
)
