"""Why a pod waits, as its page shows it: the reason, the funnel of each request, the nodes, the holders of its devices.

With changes in the address (`changes_of`) the page rehearses the pod with them and shows what the scheduler would find
then; nothing is written. What would start it was rehearsed as well (`insight.advice`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

from claims.causes.causes import NotJudged, NotTogether, OfPreemption
from claims.causes.messages import clause, message, preemption_clause, sentence
from claims.controllers.node_lifecycle import eviction_time
from claims.devices.cache import read_devices
from claims.devices.holdings import Holder
from claims.devices.published import DeviceKey, pool_of
from claims.devices.states import DeviceState
from claims.kinds.pods import Pod
from claims.pod_claims import is_done
from dashboard.kit.mirrored import agent
from dashboard.templatetags.kit import clock, counted, joined, page_url
from dashboard.workloads.changes import meant, replace_url
from dashboard.workloads.claims.queries import PATIENCE
from dashboard.workloads.next_steps import StepLine, step_lines
from dashboard.workloads.pods.queries import ClaimLine, Moment
from dashboard.workloads.waiting import begun
from insight.advice import Repair, advice_of, in_words, words_of
from insight.start_estimates import latest_ends
from inventory.kinds.nodes import Node
from inventory.kinds.pools import PoolKey
from manciple.durations import duration, moment
from manciple.gaps import NotEnoughKnown
from manciple.people import Person
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.errors import NotFound
from manciple.wire.resources import NODES, SLICES, Key, kind
from manciple.wire.validation import natural
from scheduling.allocator import Allocated, Unallocatable
from scheduling.allocator.allocation import Examined
from scheduling.allocator.outcome import (
    CLASS_SELECTOR,
    COMPLETE,
    FREE,
    LARGE,
    PUBLISHED,
    REQUEST_SELECTOR,
    UNTAINTED,
    VISIBLE,
    ConstraintStep,
    DeviceSet,
    Drop,
    Funnel,
    PoolTrouble,
    Stage,
    drops,
)
from scheduling.cel.clauses import clause_of, operands
from scheduling.cycle.post_filter import eviction_cause
from scheduling.rehearsal.explanations import Explanation, NodeReport, Report, RequestReport
from scheduling.rehearsal.simulation import Question, SimulationAnswer, simulate
from scheduling.rehearsal.workload import Changes, Workload, entry_of, is_imagined, of_pod, spoken
from scheduling.state.nodes import PlannedEviction

#: Nodes that are shown one by one; columns of the table of nodes.
CLOSEST, COLUMNS = 6, 6
#: Pools that a step of a funnel names before it counts them; operands of a selector with the values they refuse.
NAMED_POOLS, NAMED_DROPS = 3, 2
#: Lines of holders that are shown; devices of a pool that are drawn: of a larger pool only the requested ones.
NAMED_HELD, DRAWN = 20, 16

LABELS = {
    PUBLISHED: "Published by nodes",
    COMPLETE: "In complete pools",
    VISIBLE: "Visible from an eligible node",
    UNTAINTED: "Not tainted",
    LARGE: "Large enough",
    FREE: "Not held",  # others may hold the hardware of a partition: then it is not free
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunnelRow:
    """One step. percent: the share of the published devices that is left; lost_percent: that this step excluded."""

    number: str  # of the request's selectors, counted from 1
    label: str
    code: str  # of selectors, shortened
    left: int
    percent: float
    lost_percent: float
    lost: str
    decisive: bool
    skipped: bool = False  # left out of a rehearsal: it is drawn struck out
    good: bool = False  # enough devices are left at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class FunnelSection:
    """One request with its funnel. left_out: index -> expression of the selectors that a rehearsal leaves out."""

    id: str  # of its part of the page
    request: RequestReport
    rows: tuple[FunnelRow, ...]
    wants: str
    way: str  # the funnel as a line of text, for requests that can be met
    conflict: str = ""  # why it cannot be met together with others, for the request that the reason names
    left_out: Mapping[int, str] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Also together with the other requests, on a node that takes the pod."""
        return self.request.fits

    @property
    def short(self) -> str:
        """What it lacks, in two or three words; "" if it can be met."""
        if self.met:
            return ""
        if self.request.is_cut:
            return "the rest cannot be judged"
        if self.request.by_itself:
            return "enough by itself, but not together with the others"
        if self.request.met:
            return "no node with enough takes the pod"
        return f"short by {self.request.short_by}" if self.request.short_by else "constraint not met"

    @property
    def selectors(self) -> list[tuple[int, str, int, int]]:
        """(number, expression, devices kept, devices before) of the request's own."""
        return [
            (one.index + 1, self.left_out.get(one.index, one.expression), stage.left, before.left)
            for before, stage in pairwise(self.request.funnel)
            if (one := stage.selector) and stage.name.startswith(REQUEST_SELECTOR)
        ]


#: (claim as `namespace/name`, request) -> index of a selector -> its expression
LeftOut = Mapping[tuple[str, str], Mapping[int, str]]


def left_out_of(workload: Workload, changes: Changes, report: Report | None) -> LeftOut:
    """The selectors that a rehearsal leaves out, under the names of the replica's claims."""
    left_out: dict[tuple[str, str], Mapping[int, str]] = {}
    for plan in [request.plan for request in report.requests] if report else ():
        entry = entry_of(plan.claim, workload)
        claim = workload.claims.get(entry)
        expressions = {
            index: selector.cel.expression
            for request in (claim.spec.devices.requests if claim else ())
            if request.name == plan.name and request.exactly is not None
            for index, selector in enumerate(request.exactly.selectors)
            if selector.cel and (f"{entry}/{plan.full_name}", index) in changes.without
        }
        if expressions:
            left_out[plan.claim, plan.full_name] = expressions
    return left_out


def sections(report: Report, left_out: LeftOut | None = None) -> tuple[FunnelSection, ...]:
    """The decisive request comes first, those that can be met last."""
    suggested = {(one.claim, one.request): one.index for one in reversed(report.loosenings)}
    conflict = clause(report.cause) if isinstance(report.cause, NotTogether) else ""
    drawn = list[FunnelSection]()
    known = [one for one in report.requests if one.funnel]
    for request in sorted(known, key=lambda one: (not one.decisive, one.met)):
        plan, skipped = request.plan, (left_out or {}).get(_key(request), {})
        ways = []
        for stage in request.funnel:
            if stage.name.startswith(CLASS_SELECTOR):
                ways.append(f"{stage.left} of them of class {plan.class_name}")
            elif stage.selector is not None:
                ways.append(f"{stage.left} pass selector {stage.selector.index + 1}")
            else:
                words = {COMPLETE: "in complete pools", VISIBLE: "visible"}
                ways.append(f"{stage.left} {words.get(stage.name, stage.name)}")
        drawn.append(
            FunnelSection(
                id=f"f{len(drawn) + 1}",
                request=request,
                rows=tuple(_rows(request, skipped, suggested.get(_key(request)))),
                wants="all devices" if plan.everything else counted(request.wanted, "device"),
                way=" → ".join(ways),
                left_out=skipped,
                conflict=f"{sentence(conflict)}." if request.decisive and request.met else "",
            )
        )
    return tuple(drawn)


def _key(request: RequestReport | Examined) -> tuple[str, str]:
    return request.plan.claim, request.plan.full_name


def _rows(request: RequestReport, left_out: Mapping[int, str], suggested: int | None) -> Iterator[FunnelRow]:
    """suggested: the selector without which some node has enough devices; it is marked as the one to look at."""
    before, published = request.funnel[0], max(request.funnel[0].left, 1)
    marked = request.decisive and suggested is not None
    of_class = sum(stage.name.startswith(CLASS_SELECTOR) for stage in request.funnel)
    labels = {**LABELS, VISIBLE: "Visible from a node"} if request.refused else LABELS
    for index, stage in enumerate(request.funnel):
        lost, selector = before.left - stage.left, stage.selector
        own = selector is not None and stage.name.startswith(REQUEST_SELECTOR)
        skipped = left_out.get(selector.index) if selector and own else None
        key = selector is not None and own and selector.index == suggested if marked else index == request.stops
        yield FunnelRow(
            number=str(selector.index + 1) if selector and own else "",
            label=labels.get(stage.name, "" if own else f"Class {request.plan.class_name}"),
            code=short_form(skipped or selector.expression) if selector and (own or lost or of_class > 1) else "",
            left=stage.left,
            percent=round(100 * stage.left / published, 2),
            lost_percent=round(100 * lost / published, 2),
            lost="left out of this rehearsal" if skipped else spoken(_lost(before, stage, request) if index else ""),
            decisive=skipped is not None or (request.decisive and key),
            skipped=skipped is not None,
            good=request.fits and not request.constraints and index == len(request.funnel) - 1,
        )
        before = stage
    for step in request.constraints:
        last = step is request.constraints[-1]
        yield FunnelRow(
            number="",
            label="Different" if step.distinct else "Same",
            code=step.attribute.rpartition("/")[2],
            left=step.left,
            percent=round(100 * step.left / published, 2),
            lost_percent=round(100 * max(before.left - step.left, 0) / published, 2),
            lost=_of_constraint(step),
            decisive=request.decisive and not step.met,
            good=request.fits and last,
        )


def short_form(expression: str) -> str:
    """A selector as a reader sees it: comparisons without the paths to their values."""
    return " && ".join(str(clause_of(text)) for text in operands(expression))


def _of_constraint(step: ConstraintStep) -> str:
    values = counted(step.left, "value") if step.distinct else f"{step.left} on one node have the same value"
    if not step.left:
        values = "no free device has it"
    return f"{values}, {step.wanted} wanted" if not step.met else values


def _lost(before: Stage, stage: Stage, request: RequestReport) -> str:
    count = before.left - stage.left
    if not count:
        return "none lost" if stage.left else ""
    if stage.troubles:
        return f"{count} lost: {troubled_pools(stage.troubles)}"
    if stage.selector is not None:
        found = drops(stage.selector, before.devices - stage.devices)
        rest = count - sum(drop.count for drop in found[:NAMED_DROPS])
        words = [*map(_of_drop, found[:NAMED_DROPS]), *([f"{rest} more refused"] if rest > 0 else [])]
        return "; ".join(words) if found else f"{count} refused"
    held = f"{'it is' if count == 1 else f'all {count}'} held" if not stage.left else f"{count} held"
    if stage.left < request.wanted and not request.plan.everything:
        held = f"{held}, {request.wanted} wanted"
    return {
        VISIBLE: f"{count} on other nodes",
        UNTAINTED: f"{count} tainted",
        LARGE: f"{count} too small",
        FREE: held,
    }.get(stage.name, f"{count} lost")


def troubled_pools(troubles: Sequence[PoolTrouble]) -> str:
    """`pools gpu-b04, gpu-b05 and 3 more are incomplete`; pools with most of the requested devices come first."""
    names = Counter(one.key.name for one in troubles)
    pools: dict[str, list[str]] = {}
    for one in sorted(troubles, key=lambda one: -one.matching):
        pools.setdefault(one.trouble, []).append(one.key.name if names[one.key.name] == 1 else str(one.key))
    return "; ".join(
        f"pool {some[0]} is {trouble}"
        if len(some) == 1
        else f"pools {joined(some, NAMED_POOLS if len(some) <= NAMED_POOLS else NAMED_POOLS - 1)} are {trouble}"
        for trouble, some in pools.items()
    )


def _of_drop(drop: Drop) -> str:
    """`112 have 80Gi`: the values of the devices that a part of a selector refuses."""
    if len(drop.values) == 1 and not drop.more_values:
        return f"{drop.count:,} {'has' if drop.count == 1 else 'have'} {drop.values[0][0]}"
    if drop.values and drop.clause.comparison and drop.clause.comparison.operator in (">", ">=") and drop.greatest:
        return f"{drop.count:,} have {drop.greatest} or less"
    if drop.values:
        return f"{drop.count:,} have {', '.join(value for value, _ in drop.values)}{' …' if drop.more_values else ''}"
    return f"{drop.count:,} refused by {drop.clause}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunnelNode:
    """One node, or several that stop for the same reason. counts: under each column of the table.

    exists: it is one node that has a page.
    """

    name: str
    count: int
    exists: bool
    counts: tuple[int | None, ...]
    stops: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FunnelNodes:
    """columns: (word, meaning); the lines that come closest stand first."""

    columns: tuple[tuple[str, str], ...]
    lines: tuple[FunnelNode, ...]
    total: int


def node_table(report: Report) -> FunnelNodes:
    """The nodes that come closest one by one; the others are grouped by the reason why they stop."""
    decisive = _decisive(report) or next(iter(report.requests), None)
    columns = list[tuple[str, str, str]]()  # word, meaning, name of the stage
    if decisive:
        columns.append(("Sees", "devices that the node sees", VISIBLE))
        of_class = [stage.name for stage in decisive.funnel if stage.name.startswith(CLASS_SELECTOR)]
        if of_class:
            columns.append(("Class", f"of class {decisive.plan.class_name}", of_class[-1]))
        own = [stage for stage in decisive.funnel if stage.name.startswith(REQUEST_SELECTOR)]
        for stage in own[: COLUMNS - 1 - len(columns)]:
            number = stage.selector.index + 1 if stage.selector else 1
            columns.append((f"Sel. {number}", f"that pass selector {number}", stage.name))
        columns.append(("Not held", "not held, or with room left", FREE))
    ranked = []
    for node in report.nodes:
        request = next((one for one in node.examination.requests if decisive and _key(one) == _key(decisive)), None)
        stops, progress = _stops(node, request)
        left = {stage.name: stage.left for stage in request.funnel} if request else {}
        line = FunnelNode(
            name=spoken(node.name),
            count=1,
            exists=not is_imagined(node.name),
            counts=tuple(left.get(name) for _, _, name in columns),
            stops=spoken(stops),
        )
        ranked.append(((bool(node.refusals), -progress, -(left.get(FREE) or 0), node.name), line))
    lines = [line for _, line in sorted(ranked, key=lambda item: item[0])]
    rest: dict[str, list[FunnelNode]] = {}
    for line in lines[CLOSEST:]:
        rest.setdefault(line.stops, []).append(line)
    grouped = [
        FunnelNode(
            name=some[0].name if len(some) == 1 else f"{len(some):,} more, such as {some[0].name}",
            count=len(some),
            exists=len(some) == 1 and some[0].exists,
            counts=(None,) * len(columns),
            stops=stops,
        )
        for stops, some in sorted(rest.items(), key=lambda item: -len(item[1]))
    ]
    return FunnelNodes(
        columns=tuple((word, meaning) for word, meaning, _ in columns),
        lines=(*lines[:CLOSEST], *grouped),
        total=len(report.nodes),
    )


def _decisive(report: Report) -> RequestReport | None:
    return next((one for one in report.requests if one.decisive), None)


def _stops(node: NodeReport, request: Examined | None) -> tuple[str, int]:
    """(why the node is out, how far it came)."""
    if node.refusals:  # of one node: without Kubernetes' "node(s)"
        return "; ".join(
            "Cordoned" if one.plugin == "NodeUnschedulable" else sentence(message(one).removeprefix("node(s) "))
            for one in node.refusals
        ), 0
    outcome = node.examination.outcome
    if isinstance(outcome, Allocated):
        return "Could take everything now", 1000
    if not isinstance(outcome, Unallocatable):
        return sentence(message(outcome.cause)), 0
    if request is not None and request.short:
        index = next(number for number, stage in enumerate(request.funnel) if stage.left < request.wanted)
        return _stage_text(request, request.funnel, index), index
    if outcome.reasons:
        leading = outcome.reasons[0]
        return (sentence(clause(leading.conflict)) if leading.conflict else f"Request {leading.request} is short"), 500
    return "Too few devices", 0


def _stage_text(request: Examined, funnel: Funnel, index: int) -> str:
    stage = funnel[index]
    some = f"{stage.left} of the {request.wanted} wanted" if stage.left else ""
    if stage.selector is not None:
        of_class = stage.name.startswith(CLASS_SELECTOR)
        whose = f"Class {request.plan.class_name}" if of_class else f"Selector {stage.selector.index + 1}"
        lost = drops(stage.selector, funnel[index - 1].devices - stage.devices)
        why = str(lost[0].clause) if lost else short_form(stage.selector.expression)
        return f"{whose}: {why}" + (f"; {some} left" if some else "")
    none = {
        VISIBLE: "Sees no device",
        UNTAINTED: "All tainted",
        LARGE: "All too small",
        FREE: "All held",
        COMPLETE: sentence(troubled_pools(stage.troubles)),
    }.get(stage.name, "No device")
    return f"{LABELS[stage.name]}: {some}" if some else none


@dataclass(frozen=True, slots=True)
class DeviceMark:
    """A device as a small mark. wanted: it is one of the requested devices."""

    name: str
    state: DeviceState
    wanted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLine:
    """Devices of one pool that the same claims hold. free_again: in words, "" if unknown.

    holders: None for one in a namespace that the person does not see; since: when the first got them.
    """

    driver: str
    pool: str
    node: str  # "" for a pool of several nodes
    devices: tuple[str, ...]
    holders: tuple[Holder | None, ...]
    since: datetime | None
    marks: tuple[DeviceMark, ...]
    free_again: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDevices:
    """lines: the first; more: lines that are not shown; count: devices in all."""

    lines: tuple[HeldLine, ...] = ()
    more: int = 0
    count: int = 0

    @property
    def title(self) -> str:
        return "Who holds it" if self.count == 1 else f"Who holds the {self.count:,}"

    @property
    def aside(self) -> str:
        ends = any(line.free_again for line in self.lines)
        return "free again where a time limit says so" if ends else "no time limit known"


def read_held(keys: Collection[DeviceKey], person: Person, *, now: datetime | None = None) -> HeldDevices:
    """The holders of these devices, the largest first. Three queries, however many devices."""
    if not keys:
        return HeldDevices()
    snapshot = read_devices()
    grouped: dict[tuple[PoolKey, tuple[Holder, ...]], list[str]] = {}
    of_pools: dict[PoolKey, list[DeviceKey]] = {}
    for key in sorted(keys, key=lambda key: natural("/".join(key))):
        of_pools.setdefault(pool_of(key), []).append(key)
    for pool, those in of_pools.items():
        state = snapshot.pools.get(pool)
        for key in those:
            by = state.holders.get(key, ()) if state is not None else ()
            if len(by) > 1:
                by = tuple(sorted(set(by), key=lambda holder: holder.claim_uid))
            grouped.setdefault((pool, by), []).append(key[2])

    ranks = {
        (pool, by): (-len(devices), natural(pool.name), [holder.claim_uid for holder in by])
        for (pool, by), devices in grouped.items()
    }
    shown = sorted(grouped.items(), key=lambda group: ranks[group[0]])[:NAMED_HELD]
    ends = latest_ends([(holder.namespace, name) for (_, by), _ in shown for holder in by for name in holder.pods])
    lines = []
    for (pool, by), devices in shown:
        state = snapshot.pools.get(pool)
        drawn = sorted((one.name for one in state.candidates), key=natural) if state is not None else []
        marks = tuple(
            DeviceMark(name, snapshot.state((pool.driver, pool.name, name, pool.node)), name in devices)
            for name in (devices[:DRAWN] if len(drawn) > DRAWN else drawn)
        )
        lines.append(
            HeldLine(
                driver=pool.driver,
                pool=pool.name,
                node=pool.node,
                devices=tuple(devices),
                holders=tuple(one if person.sees(one.namespace) else None for one in by),
                since=by[0].since if by else None,
                marks=marks,
                free_again=_free_again(by, ends, now or datetime.now(UTC)),
            )
        )
    return HeldDevices(lines=tuple(lines), more=len(grouped) - len(shown), count=len(keys))


def _free_again(holders: Sequence[Holder], ends: Mapping[Key, datetime | None], now: datetime) -> str:
    """When the last holder must have released them: known only if each of its pods has a time limit."""
    found = list[datetime]()
    for holder in holders:
        for name in holder.pods or ("",):
            end = ends.get((holder.namespace, name))
            if holder.others or end is None:
                return ""
            found.append(end)
    if not found:
        return ""
    left = (max(found) - now).total_seconds()
    return f"in {duration(left)} at the latest" if left > 0 else "any moment"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVerdict:
    """What the scheduler says of a pod. good: it starts now; rehearsed: with changes, which `do_url` makes."""

    good: bool
    title: str
    text: str = ""
    next_step: str = ""
    rehearsed: bool = False
    do_url: str = ""
    forced: tuple[tuple[str, str], ...] = ()  # (word, address) of what can be done without the node
    steps: tuple[StepLine, ...] = ()  # what would start it
    problems: tuple[str, ...] = ()  # why it cannot be created

    @property
    def icon(self) -> str:
        return "i-ok" if self.good else "i-alert" if self.problems else "i-wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """held: the devices that the decisive request accepts and others hold."""

    verdict: PodVerdict
    sections: tuple[FunnelSection, ...]
    nodes: FunnelNodes | None
    held: HeldDevices
    judged: bool = True  # not where too little is known


def read_why(explained: Explanation, person: Person, changes: Changes) -> Why:
    """explained: of a pod that waits; changes: to rehearse it with."""
    pod = explained.about
    assert isinstance(pod, Pod)  # noqa: S101 - only pods are explained here
    try:
        workload = of_pod(pod)
    except NotFound:  # a claim that it names: there is nothing to rehearse
        workload = None
    changed = meant(changes, workload.claims) if workload else Changes()
    left_out: LeftOut = {}
    if workload and changed.any:
        try:
            answer = simulate(Question(workload=workload, changes=changed, with_first=True))
        except NotEnoughKnown as unknown:
            report = None
            verdict = PodVerdict(good=False, title=f"{sentence(unknown.message)}.", rehearsed=True)
        else:
            report, left_out = answer.first, left_out_of(workload, changed, answer.first)
            verdict = _rehearsal_verdict(pod, workload, changed, answer, person)
    else:
        report = explained.report
        verdict = _verdict(explained, pod, person)
    parts = _report_parts(report, left_out) if report else _ReportParts()
    return Why(
        verdict=verdict,
        sections=parts.sections,
        # By name for those alone who may see them elsewhere; how many there are is no secret.
        nodes=parts.nodes if person.may("list", NODES) else None,
        held=read_held(parts.contested if person.may("list", SLICES) else (), person),
        judged=not isinstance(explained.cause, NotJudged),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReportParts:
    """What a page shows of a report to everybody. contested: the devices that the decisive request accepts and others
    hold."""

    sections: tuple[FunnelSection, ...] = ()
    nodes: FunnelNodes | None = None
    contested: frozenset[DeviceKey] = frozenset()


def _report_parts(report: Report, left_out: LeftOut) -> _ReportParts:
    """Computed once for a report whose selectors are all in force."""
    parts: _ReportParts | None = None if left_out else report.memo.get(_ReportParts)
    if parts is not None:
        return parts
    contested, decisive = DeviceSet(), _decisive(report)
    if decisive is not None and decisive.stops is not None and decisive.funnel[decisive.stops].name == FREE:
        contested = decisive.funnel[-2].devices - decisive.funnel[-1].devices
    parts = _ReportParts(
        sections=sections(report, left_out),
        nodes=node_table(report) if report.nodes else None,
        contested=frozenset((one.key.driver, one.key.name, one.name, one.key.node) for one in contested),
    )
    if not left_out:
        report.memo[_ReportParts] = parts
    return parts


def _verdict(explained: Explanation, pod: Pod, person: Person) -> PodVerdict:
    if explained.state == "Schedulable" and explained.cause is None:
        return PodVerdict(good=True, title="A node fits; it is being scheduled.")
    advice = advice_of(explained)
    notes = [*(explained.report.notes if explained.report else ()), eviction_words(explained.preemption, pod, person)]
    repairs = [words_of(step.act.trouble, person.sees)[0] for step in advice.steps if isinstance(step.act, Repair)]
    notes += _room_notes(explained, person)
    notes += [f"It would start if this were fixed: {begun(title)}." for title in repairs]
    return PodVerdict(
        good=False,
        title=explained.sentence,
        text=" ".join(filter(None, notes)),
        next_step=advice.sentence(person.sees),
        steps=step_lines(advice, person),
    )


def _room_notes(explained: Explanation, person: Person) -> Iterator[str]:
    """Why devices that nobody holds are not free for it."""
    if explained.report is None:
        return
    contested = {key[:3] for key in _report_parts(explained.report, {}).contested}
    for room in explained.rooms:
        if not contested.isdisjoint(room.devices):
            seen = person.sees(room.namespace)
            whose = f"pod `{room.namespace}/{room.pod}`" if seen else "a pod of another namespace"
            yield f"What comes free on `{room.node}` is kept for {whose}, which is served first."


def eviction_words(found: PlannedEviction | OfPreemption | None, pod: Pod, person: Person) -> str:
    """Which pods it would evict, or, of a pod that has a priority, why none."""
    if isinstance(found, PlannedEviction):
        return f"{sentence(preemption_clause(eviction_cause(found, sees=person.sees)))}."
    if found is None or (pod.spec.priority or 0) <= 0:
        return ""
    return f"{sentence(preemption_clause(found))}."


def _rehearsal_verdict(
    pod: Pod, workload: Workload, changes: Changes, answer: SimulationAnswer, person: Person
) -> PodVerdict:
    words = in_words(changes, workload.claims)
    tried = f"{words[:1].upper()}{words[1:]}"
    if not answer.placed:
        return PodVerdict(
            good=False,
            title=f"{tried} it would still wait{f' because {spoken(clause(answer.cause))}' if answer.cause else ''}.",
            next_step="Try other changes.",
            rehearsed=True,
        )
    placed, do_url = answer.placed[0], replace_url(pod, changes, person)
    devices = joined([f"`{one.device}`" for one in placed.devices])
    keys = [*(key for key, _ in changes.without), *changes.classes, *changes.counts]
    changed = {key.partition("/")[0] for key in keys}
    recreated = [
        f"template `{entry.resource_claim_template_name}`"
        if entry.resource_claim_template_name
        else f"claim `{entry.resource_claim_name}`"
        for entry in pod.spec.resource_claims
        if entry.name in changed
    ]
    step = f"Recreate {joined(recreated)} {words}, then recreate the pod."
    return PodVerdict(
        good=True,
        title=f"{tried} it would start now on `{placed.node}`{f', with {devices}' if devices else ''}.",
        next_step=step if recreated and not do_url else "",
        do_url=do_url,
        rehearsed=True,
    )


#: The event of a node that cannot unprepare the devices of a pod.
UNPREPARE_FAILED = "FailedUnprepareDynamicResources"


def read_stay(
    pod: Pod,
    claims: Sequence[ClaimLine],
    moments: Sequence[Moment],
    now: datetime,
    person: Person,
    *,
    unreachable: bool,
) -> PodVerdict | None:
    """Why a pod that should have ended still exists, or that nobody knows what it does: its node is unreachable. None
    where all is well.
    """
    lost = None
    if unreachable and not is_done(pod):
        stored = objects.get(kind(NODES), "", pod.spec.node_name)
        evicted = eviction_time(pod, decoded(stored, Node)) if stored is not None else None
        lost = PodVerdict(
            good=False,
            title=f"Node `{pod.spec.node_name}` {'is unreachable' if stored else 'was deleted'}.",
            text=f"Its last report is shown.{f' The pod will be evicted at {clock(evicted)}.' if evicted else ''}",
            next_step=f"Start the {agent()} on `{pod.spec.node_name}`."
            if stored
            else "The pod is removed soon, unless the node is registered again.",
        )
    ends = moment(pod.metadata.deletion_timestamp)
    if ends is None:
        return lost
    failure = next((one.text for one in reversed(moments) if one.reason == UNPREPARE_FAILED), "")
    node = f"node `{pod.spec.node_name}`" if pod.spec.node_name else "its node"
    if failure:
        title, text = "Its devices cannot be released.", f"{failure}."
        step = f"Start the driver's plugin on {node}, with its feature gate on."
    elif lost:
        title, text = lost.title, f"The pod keeps its devices until the {agent()} there confirms that it has ended."
        step = f"{lost.next_step} Use force only if nothing of the pod runs there."
    elif now > ends + PATIENCE:
        title = f"It should have ended {duration((now - ends).total_seconds())} ago."
        text = f"The {agent()} on {node} has not unprepared its devices."
        step = f"Check that {agent()}. Use force only if nothing of the pod runs there."
    else:
        return None
    forced = [
        (f"Release {one.name} by force", page_url("claim-release", pod.metadata.namespace, one.name))
        for one in claims
        if person.administers and one.devices and not one.others
    ]
    if person.may_edit(pod.metadata.namespace):
        forced.append(("Delete by force", f"{page_url('pod-delete', *pod.key)}?force=1"))
    return PodVerdict(good=False, title=title, text=text, next_step=step, forced=tuple(forced))
