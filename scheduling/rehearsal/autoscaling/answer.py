"""Answers a Simulation: on a copy of the state, with nothing written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import structs

from claims.causes.messages import message
from claims.kinds.pods import Pod
from manciple.wire.errors import BadRequest
from manciple.wire.resources import Key
from scheduling.allocator import Deadline
from scheduling.queue.reasons import Hold
from scheduling.rehearsal.autoscaling import nodes, subjects
from scheduling.rehearsal.autoscaling.kinds import (
    NewNodes,
    NodeTemplate,
    RemovableNode,
    SimulatedDevice,
    SimulatedPlacement,
    Simulation,
    SimulationStatus,
    UnschedulablePod,
)
from scheduling.rehearsal.autoscaling.nodes import Expansion, Template
from scheduling.rehearsal.autoscaling.placing import SubjectPlacement, SubjectRefusal, gangs_of, place_all, torn_by
from scheduling.rehearsal.autoscaling.subjects import SimulatedSubject
from scheduling.rehearsal.explanations import Apart, apart
from scheduling.rehearsal.rehearsal import like
from scheduling.rehearsal.simulation import shape_of
from scheduling.rehearsal.workload import NotRehearsable, Workload, of_documents
from scheduling.state.cluster import ClusterState

#: Seconds for all of it.
TIMEOUT = 20.0


def answered(asked: Simulation, workload: Workload | None = None) -> Simulation:
    """The Simulation with its status filled in. workload: of what it was posted below. Raises: BadRequest, NotFound."""
    templates = [_template(one) for one in asked.spec.node_templates]
    deadline, torn = Deadline.after(TIMEOUT), dict[Key, Hold | None]()
    while True:
        with apart() as copy:
            revision = str(copy.state.revision)
            wanted = sorted(_subjects(copy.state, asked, workload), key=lambda one: one.turn)
            tried, gangs = [one for one in wanted if one.key not in torn], gangs_of(copy.state, wanted)
            found = _rehearsed(copy, tried, templates, deadline)
            untried = {one.subject.key for one in found.refused if one.hold is None}
            # Without the gangs of which too few fit there is more room for the others: they are asked about anew.
            if more := {key: hold for key, hold in torn_by(found.placed, gangs, untried).items() if key not in torn}:
                torn |= more
                continue
            apart_from = [SubjectRefusal(one, torn[one.key]) for one in wanted if one.key in torn]
            status = _status(copy, asked, found, apart_from, deadline)
        meta = structs.replace(asked.metadata, resource_version=revision)
        return structs.replace(asked, metadata=meta, status=status)


def _subjects(state: ClusterState, asked: Simulation, workload: Workload | None) -> Iterable[SimulatedSubject]:
    spec = asked.spec
    if workload is not None:
        return subjects.replicas(workload, spec.replicas or 1)
    new = [one for made in spec.new_pods for one in subjects.replicas(_imagined(made.pod), made.replicas)]
    if spec.pods:
        return [*subjects.waiting(state, ((one.namespace, one.name) for one in spec.pods)), *new]
    return new or subjects.all_waiting(state)


def _imagined(pod: Pod) -> Workload:
    """With the priority that its class gives it. Raises: BadRequest for a class that there is not; NotFound."""
    try:
        return of_documents([pod])
    except NotRehearsable as refused:
        raise BadRequest(f"spec.newPods: {refused}") from refused


class _Rehearsed(NamedTuple):
    """What came of it, on nodes that there are and on new ones."""

    placed: list[SubjectPlacement]
    refused: list[SubjectRefusal]
    grown: list[Expansion]


def _rehearsed(
    copy: Apart, wanted: Sequence[SimulatedSubject], templates: Sequence[Template], deadline: Deadline
) -> _Rehearsed:
    first = place_all(copy.state, wanted, deadline, copy.give_way)
    grown = list(nodes.expand(copy.state, first.left, templates, deadline, copy.give_way))
    # Those that are left may want to stand beside what has come, on a node that was there before.
    last = place_all(grown[-1].state, grown[-1].attempt.left, deadline, copy.give_way) if grown else first
    attempts = [first, *(step.attempt for step in grown), *([last] if grown else [])]
    placed = [one for attempt in attempts for one in attempt.placed]
    left = {one.pod.metadata.uid for one in last.left}
    return _Rehearsed(placed, [one for one in first.refused if one.subject.pod.metadata.uid in left], grown)


def _status(
    copy: Apart, asked: Simulation, found: _Rehearsed, torn: Sequence[SubjectRefusal], deadline: Deadline
) -> SimulationStatus:
    removable: list[RemovableNode] = []
    if asked.spec.scale_down:
        needed = {one.node for one in found.placed}
        could_go = nodes.removals(copy.state, needed, deadline, copy.give_way)
        removable = [RemovableNode(name=one.node, pods=_placements(one.placed)) for one in could_go]
    return SimulationStatus(
        placements=_placements(found.placed),
        unschedulable=tuple(_unschedulable(one) for one in (*found.refused, *torn)),
        new_nodes=tuple(
            NewNodes(template=one.template.name, nodes=one.nodes, pods=len(one.attempt.placed)) for one in found.grown
        ),
        removable_nodes=tuple(removable),
        complete=not deadline.has_passed,
    )


# Node templates -------------------------------------------------------------------------------------------------------


def _template(asked: NodeTemplate) -> Template:
    """Raises: NotFound for a node that does not exist."""
    if asked.node is None:
        make = shape_of(asked.like, called=asked.name)
    else:
        make = partial(like, asked.node, asked.resource_slices, called=asked.name)
    most = nodes.MOST_OF_A_TEMPLATE if asked.max_nodes is None else asked.max_nodes
    return Template(name=asked.name, make=make, most=most, cost=1 if asked.cost is None else asked.cost)


# What is told ---------------------------------------------------------------------------------------------------------


def _placements(placed: Iterable[SubjectPlacement]) -> tuple[SimulatedPlacement, ...]:
    return tuple(_placement(one) for one in placed)


def _placement(one: SubjectPlacement) -> SimulatedPlacement:
    names = {claim.metadata.uid: claim.metadata.name for claim in one.placement.claims}
    devices = tuple(
        SimulatedDevice(claim=names[uid], request=got.request, driver=got.driver, pool=got.pool, device=got.device)
        for uid, allocation in one.placement.allocations.items()
        for got in allocation.devices.results
    )
    subject = one.subject
    return SimulatedPlacement(namespace=subject.namespace, name=subject.name, node_name=one.node, devices=devices)


def _unschedulable(one: SubjectRefusal) -> UnschedulablePod:
    cause = one.hold.cause if one.hold else None
    return UnschedulablePod(
        namespace=one.subject.namespace,
        name=one.subject.name,
        reason=str(cause.__struct_config__.tag) if cause else "NotTried",
        message=message(cause) if cause else "it was not tried for lack of time",
    )
