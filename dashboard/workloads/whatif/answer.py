"""A rehearsal's answer as the page draws it: the sentence, the nodes with their devices, what would help."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from claims.causes.messages import clause, preemption_clause, sentence
from claims.causes.next_steps import next_step
from claims.devices.cache import read_devices
from claims.devices.published import CandidateDevice
from claims.devices.states import DeviceState
from dashboard.workloads.funnels import FunnelNodes, FunnelSection, LeftOut, node_table, sections
from dashboard.workloads.moves.told import ShownPlan, moves_url, told
from dashboard.workloads.pods.holders import DeviceMark
from dashboard.workloads.pods.why import left_out_of
from dashboard.workloads.whatif.query import Asked
from manciple.people import Person
from manciple.wire.validation import natural
from scheduling.cycle.post_filter import eviction_cause
from scheduling.rehearsal.departures import Departure
from scheduling.rehearsal.rehearsal import is_imagined, spoken
from scheduling.rehearsal.simulation import GangPreview, Missing, Placed, SimulationAnswer
from scheduling.rehearsal.workload import IMAGINED
from scheduling.state.nodes import PlannedEviction

#: Nodes and replicas that are listed; devices of a node that are drawn.
NODES, REPLICAS, DRAWN = 60, 200, 16
#: Topology domains that are listed.
DOMAINS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingNode:
    """One node with the replicas that land there. marks: its devices, those that they get are `wanted`."""

    name: str
    model: str  # the node that a new one is like; "" for one that exists
    number: int  # of the new node
    replicas: int
    devices: int
    marks: tuple[DeviceMark, ...]
    first: tuple[tuple[int, str], ...]  # (number of the replica, its devices in words)
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MustLeave:
    """Who would have to leave, as far as the person may know: (namespace, claim, pods); hidden: how many others."""

    node: str
    holders: tuple[tuple[str, str, tuple[str, ...]], ...]
    hidden: int
    devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All of it."""

    good: bool
    title: str
    text: str
    next_step: str
    asked: int  # replicas, or pods that the gang lacks
    fits: str
    left: int
    domains: tuple[tuple[str, int], ...]  # that were tried for a gang, and how many of its pods fit there
    wanted: int  # of a gang
    nodes: tuple[LandingNode, ...]
    more_nodes: int
    sections: tuple[FunnelSection, ...]
    table: FunnelNodes | None
    leaving: MustLeave | None
    moves: ShownPlan | None
    missing: Missing | None
    missing_url: str


def read_answer(answer: SimulationAnswer, asked: Asked, person: Person) -> Result:
    """One query, where nothing changed."""
    lines = _node_lines(answer.placed)
    report = answer.report
    left_out: LeftOut = left_out_of(asked.workload, asked.changes, report) if asked.workload else {}
    return Result(
        good=not answer.left and bool(answer.placed),
        title=_title(answer) if answer.gang is None else _gang_title(answer, answer.gang),
        text=f"{_text(answer)} {_evictions(answer, asked, person)}".strip(),
        next_step=spoken(next_step(answer.cause)) if answer.cause and answer.left else "",
        asked=answer.replicas,
        fits=f"{answer.fits}" if answer.counted_all else f"at least {answer.fits}",
        left=answer.left,
        domains=answer.gang.tried[:DOMAINS] if answer.gang and len(answer.gang.tried) > 1 else (),
        wanted=answer.gang.wanted if answer.gang else 0,
        nodes=lines[:NODES],
        more_nodes=max(len(lines) - NODES, 0),
        sections=sections(report, left_out) if report else (),
        table=node_table(report) if report and report.nodes else None,
        leaving=_leaving(answer.departure, person) if answer.departure else None,
        moves=_moves(answer, asked, person),
        missing=answer.missing,
        missing_url=_missing_url(answer.missing, asked),
    )


def _evictions(answer: SimulationAnswer, asked: Asked, person: Person) -> str:
    """Whom the next one would evict; why nobody, where it has a priority."""
    found = answer.preemption
    if isinstance(found, PlannedEviction):
        return f"{sentence(preemption_clause(eviction_cause(found, sees=person.sees)))}."
    if found is None or asked.workload is None or (asked.workload.pod.spec.priority or 0) <= 0:
        return ""
    return f"{sentence(preemption_clause(found))}."


def _title(answer: SimulationAnswer) -> str:
    wanted, fits = answer.replicas, answer.fits
    if not answer.counted_all and fits < wanted:
        return f"{fits} of {wanted} were placed before the time for a rehearsal was over."
    if wanted == 1:
        if not answer.placed:
            return f"It would wait{_because(answer)}."
        where = answer.placed[0].node
        return f"It would start now on {spoken(where) if is_imagined(where) else f'`{where}`'}."
    if not answer.left:
        return f"All {wanted} would start now, on {_nodes(answer.placed)}."
    if not fits:
        return f"None of the {wanted} would start{_because(answer)}."
    return (
        f"{fits} of {wanted} would start now, on {_nodes(answer.placed)}; {answer.left} would wait{_because(answer)}."
    )


def _gang_title(answer: SimulationAnswer, gang: GangPreview) -> str:
    best = f" (the best of {gang.domains})" if gang.domains > 1 and not gang.whole else ""
    where = f" on `{gang.where}`{best}" if gang.where else ""
    running = f" ({gang.placed} of them have a place already)" if gang.placed else ""
    if gang.whole:
        where = f"{where}, {_nodes(answer.placed)}" if where else f" on {_nodes(answer.placed)}"
        return f"Gang `{gang.name}` fits whole{where}: its {gang.wanted} pods would start now{running}."
    return (
        f"Gang `{gang.name}` would not start: {gang.fits} of its {gang.wanted} pods fit at once{where}{running}, "
        f"{gang.lacks} do{'es' if gang.lacks == 1 else ''} not."
    )


def _of_gang(gang: GangPreview) -> str:
    """What a gang's rehearsal is made with, and what it would rather."""
    stand_ins = gang.wanted - gang.placed - gang.waiting
    parts = ["All of its pods are placed together, or none is."]
    if stand_ins > 0:
        parts.append(f"For {stand_ins} of its pods, which do not wait yet, replicas of this one are tried.")
    if gang.preferred and gang.whole and not gang.where.startswith(f"{gang.preferred}="):
        parts.append(f"No single value of `{gang.preferred}`, which it prefers, holds all of it.")
    return " ".join(parts)


def _because(answer: SimulationAnswer) -> str:
    return f" because {spoken(clause(answer.cause))}" if answer.cause else ""


def _nodes(placed: Sequence[Placed]) -> str:
    count = len({one.node for one in placed})
    return f"{count} node{'' if count == 1 else 's'}"


def _text(answer: SimulationAnswer) -> str:
    if answer.gang is not None:
        return f"{_of_gang(answer.gang)} A rehearsal: nothing has changed in the cluster."
    if answer.left or not answer.counted_all:
        return "A rehearsal: nothing has changed in the cluster."
    more = answer.fits - answer.replicas
    room = f"{more} more would fit" if more else "no other like it would fit"
    return f"A rehearsal: nothing has changed in the cluster. After that, {room}{_because(answer) if not more else ''}."


# Where they land -----------------------------------------------------------------------------------------------------


def _node_lines(placed: Sequence[Placed]) -> tuple[LandingNode, ...]:
    """The nodes in the order in which they are used."""
    by_node: dict[str, list[Placed]] = {}
    for one in placed:
        by_node.setdefault(one.node, []).append(one)
    shown = list(by_node)[:NODES]
    drawing = _drawn(shown, placed)
    return tuple(_node_line(name, found, drawing.get(name, ())) for name, found in by_node.items())


def _node_line(name: str, found: Sequence[Placed], marks: tuple[DeviceMark, ...]) -> LandingNode:
    model, imagined, number = name.partition(IMAGINED)
    shown = found[: max(REPLICAS // NODES, 3)]
    return LandingNode(
        name=name if not imagined else f"new node {number}",
        model=model if imagined else "",
        number=int(number) if imagined else 0,
        replicas=len(found),
        devices=sum(len(one.devices) for one in found),
        marks=marks,
        first=tuple((one.number, ", ".join(device.device for device in one.devices)) for one in shown),
        more=len(found) - len(shown),
    )


def _drawn(names: Sequence[str], placed: Sequence[Placed]) -> Mapping[str, tuple[DeviceMark, ...]]:
    """node -> its devices as marks. A new node has those of its model, all of them free."""
    snapshot = read_devices()
    wanted_drivers = {device.driver for one in placed for device in one.devices}
    known: dict[str, list[CandidateDevice]] = defaultdict(list)
    for pool in snapshot.pools.values() if names else ():
        if pool.pool.key[0] in wanted_drivers:
            for candidate in pool.candidates:
                known[candidate.node].append(candidate)
    given = {(one.node, d.driver, d.pool.partition(IMAGINED)[0], d.device) for one in placed for d in one.devices}
    found = {}
    for name in names:
        model, imagined, _ = name.partition(IMAGINED)
        devices = sorted(known.get(model, ()), key=lambda one: natural(one.address))
        states = {one: DeviceState.FREE if imagined else snapshot.state_of(one) for one in devices}
        found[name] = _marks(
            DeviceMark(one.name, state, (name, *one.key[:3]) in given) for one, state in states.items()
        )
    return found


def _marks(marks: Iterable[DeviceMark]) -> tuple[DeviceMark, ...]:
    """Those that are given stand first where there are more than can be drawn."""
    found = tuple(marks)
    return found if len(found) <= DRAWN else tuple(mark for mark in found if mark.wanted)[:DRAWN]


# What would help -----------------------------------------------------------------------------------------------------


def _leaving(departure: Departure, person: Person) -> MustLeave:
    seen = [holder for holder in departure.holders if person.sees(holder.key[0])]
    return MustLeave(
        node=departure.node,
        holders=tuple((*holder.key, tuple(pod.metadata.name for pod in holder.pods)) for holder in seen),
        hidden=len(departure.holders) - len(seen),
        devices=departure.devices,
    )


def _moves(answer: SimulationAnswer, asked: Asked, person: Person) -> ShownPlan | None:
    """They may be carried out for a pod that waits, as it is."""
    if answer.moves is None:
        return None
    real = asked.about == "pod" and not asked.changes.any and asked.replicas == 1 and not asked.nodes
    namespace, _, name = asked.name.partition("/")
    found = told(answer.moves, person, url=moves_url(namespace, name) if real else "")
    if found is None:
        return None
    starts = tuple((title, url, node) for title, url, node in found.starts if IMAGINED not in title)
    return replace(found, starts=starts, others=(), others_hidden=0)


def _missing_url(missing: Missing | None, asked: Asked) -> str:
    """The rehearsal with as many nodes more; "" where it cannot be named by an address."""
    if missing is None or not missing.nodes or asked.is_too_long:
        return ""
    return asked.url(shape=missing.shape, nodes=str(asked.nodes + missing.nodes))
