"""Scales an imagined state up and down.

Up: nodes of each template are added one by one as long as they take pods, each template by itself. The template that
helps most pods at the least cost is kept, and the remaining pods are tried on the others. This is how the cluster
autoscaler of Kubernetes chooses a node group, with a stated cost in place of its expanders.

Down: nodes that hold least are tried first. A node is removed if every pod that would have to move fits on others and
is created again by its controller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from claims import models
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimStatus
from claims.pod_claims import claim_names
from inventory.kinds.nodes import Node
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.base import ObjectMeta
from manciple.wire.resources import CLAIMS, FINISHED_PHASES, NODES, PODS, kind
from scheduling.allocator import Deadline
from scheduling.rehearsal.autoscaling.placing import Attempt, GiveWay, SubjectPlacement, place_all
from scheduling.rehearsal.autoscaling.subjects import SimulatedSubject
from scheduling.rehearsal.moves import SAFE_TO_EVICT
from scheduling.rehearsal.rehearsal import NewNode
from scheduling.state.budgets import ImaginedEvictions
from scheduling.state.cluster import ClusterState

#: Nodes of one template that are added unless it says otherwise.
MOST_OF_A_TEMPLATE = 100
#: The annotation of static pods: they belong to the node.
MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Nodes that could be added. make: the node of a number, from 1."""

    name: str
    make: Callable[[int], NewNode]
    most: int = MOST_OF_A_TEMPLATE
    cost: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """What `nodes` nodes of one template would do, on a state of its own."""

    template: Template
    state: ClusterState
    nodes: int
    attempt: Attempt

    @property
    def worth(self) -> tuple[int, int]:
        """More is better: pods that it helps, and what it does not cost."""
        return len(self.attempt.placed), -self.nodes * self.template.cost


def expand(
    state: ClusterState,
    left: Sequence[SimulatedSubject],
    templates: Sequence[Template],
    deadline: Deadline,
    give_way: GiveWay,
) -> Iterator[Expansion]:
    """The expansions to be made, one after the other; the attempt of the last tells who is left."""
    templates = list(templates)
    while left and templates:
        found = [_expansion(state.copy(), left, template, deadline, give_way) for template in templates]
        best = max(found, key=lambda one: one.worth)
        if not best.attempt.placed:
            break
        yield best
        state, left = best.state, best.attempt.left
        templates.remove(best.template)


def _expansion(
    state: ClusterState, left: Sequence[SimulatedSubject], template: Template, deadline: Deadline, give_way: GiveWay
) -> Expansion:
    every = Attempt()
    nodes = 0
    while left and nodes < template.most and every.complete:
        new, mark = template.make(nodes + 1), state.overlay.mark()
        new.imagine(state.overlay)
        with state.nodes.only(new.name):
            found = place_all(state, left, deadline, give_way)
        every.refused, every.complete = found.refused, found.complete
        if not found.placed:
            state.overlay.undo(mark)
            break
        every.placed += found.placed
        left = found.left
        nodes += 1
    return Expansion(template=template, state=state, nodes=nodes, attempt=every)


# Nodes that go --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A node that could go, and where its pods would be."""

    node: str
    placed: tuple[SubjectPlacement, ...]


@dataclass(slots=True)
class _Tenants:
    """The pods of one node that would have to move, and the claims that they hold alone."""

    pods: list[Pod] = field(default_factory=list)
    gone: list[Pod] = field(default_factory=list)  # with the node
    claims: list[ResourceClaim] = field(default_factory=list)
    stays: bool = False  # one of them keeps its node


def removals(state: ClusterState, needed: Iterable[str], deadline: Deadline, give_way: GiveWay) -> Iterator[Removal]:
    """Nodes that could go together, those with least on them first. Ends early where time runs out.

    needed: nodes that stay, because pods were placed on them; so do those that pods of others would move to, and those
    whose pods a disruption budget keeps, if all pods of removed nodes count on it.
    """
    kept, evictions = set(needed), ImaginedEvictions(state.budgets.of)
    tenants = _tenants()
    by_load = sorted(state.nodes.views, key=lambda view: (len(_of(tenants, view.name).pods), view.name))
    for view in by_load:
        if deadline.has_passed:
            return
        found = _of(tenants, view.name)
        if found.stays or view.name in kept or evictions.kept(found.pods):
            continue
        trial = state.copy()
        moved = _without(trial, view.name, found, deadline, give_way)
        if moved is not None:
            state = trial
            evictions.grant(found.pods)
            kept.update(one.node for one in moved)
            yield Removal(node=view.name, placed=tuple(moved))


def _of(tenants: Mapping[str, _Tenants], node: str) -> _Tenants:
    return tenants.get(node) or _Tenants()


def _without(
    state: ClusterState, node: str, tenants: _Tenants, deadline: Deadline, give_way: GiveWay
) -> list[SubjectPlacement] | None:
    """Where the pods of a node that has gone would be; None where one of them fits nowhere."""
    for pod in (*tenants.pods, *tenants.gone):
        state.remove(PODS, pod)
    for claim in tenants.claims:
        state.put(CLAIMS, structs.replace(claim, status=ResourceClaimStatus()))
    state.remove(NODES, Node(metadata=ObjectMeta(name=node)))
    subjects = [
        SimulatedSubject(name=pod.metadata.name, pod=structs.replace(pod, spec=structs.replace(pod.spec, node_name="")))
        for pod in tenants.pods
    ]
    for subject in subjects:
        state.put(PODS, subject.pod)
    found = place_all(state, subjects, deadline, give_way)
    return None if found.refused else found.placed


def _tenants() -> Mapping[str, _Tenants]:
    """node -> who is on it. Two reads for all."""
    found: dict[str, _Tenants] = defaultdict(_Tenants)
    rows = models.Pod.objects.exclude(node_name="").exclude(phase__in=FINISHED_PHASES).order_by("namespace", "name")
    pods = [decoded(one, Pod) for one in objects.get_many(kind(PODS), rows.values_list("namespace", "name"))]
    for pod in pods:
        on_node = found[pod.spec.node_name]
        if _goes_with_its_node(pod):
            on_node.gone.append(pod)
        else:
            on_node.pods.append(pod)
            on_node.stays |= _keeps_its_node(pod)
    node_of = {pod.metadata.uid: pod.spec.node_name for pod in pods}
    keys = {(pod.metadata.namespace, name) for pod in pods for name in claim_names(pod)}
    for claim in (decoded(stored, ResourceClaim) for stored in objects.get_many(kind(CLAIMS), keys)):
        using = {node_of[one.uid] for one in claim.status.reserved_for if one.uid in node_of}
        if len(using) == 1:  # what pods of several nodes share stays as it is
            found[using.pop()].claims.append(claim)
    return found


def _keeps_its_node(pod: Pod) -> bool:
    """What it says itself decides; otherwise one that nothing would create again does."""
    said = pod.metadata.annotations.get(SAFE_TO_EVICT)
    return said == "false" or (said != "true" and not any(owner.controller for owner in pod.metadata.owner_references))


def _goes_with_its_node(pod: Pod) -> bool:
    of_set = any(owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
    return of_set or MIRROR in pod.metadata.annotations or pod.metadata.deletion_timestamp is not None
