"""A report as a page draws it: the rows of each funnel, the nodes that come closest, the devices that others hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from claims.causes.causes import NodeRefusal
from claims.causes.messages import clause, message, sentence
from scheduling.allocator import Allocated, Unallocatable, stages
from scheduling.allocator.allocation import Examined
from scheduling.allocator.stages import DeviceSet, Drop, Funnel, PoolTrouble, Stage, drops
from scheduling.cel.clauses import clause_of, operands
from scheduling.rehearsal.explanations.report import NodeReport, Report, RequestReport
from scheduling.rehearsal.rehearsal import is_imagined, spoken

#: Nodes that are shown one by one.
CLOSEST = 6
#: Pools that a step of the funnel names; of more, the others are counted.
NAMED_POOLS = 3
#: Operands of a selector of which it is told whom they refuse.
NAMED_DROPS = 2
#: Columns of the table of nodes, at most.
COLUMNS = 6

LABELS = {
    stages.PUBLISHED: "Published by nodes",
    stages.COMPLETE: "In complete pools",
    stages.VISIBLE: "Visible from an eligible node",
    stages.UNTAINTED: "Not tainted",
    stages.LARGE: "Large enough",
    stages.FREE: "Free",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunnelRow:
    """One step: the share of the bar that is left and that was lost, in percent of what is published."""

    number: str  # of the request's selectors, counted from 1
    label: str
    code: str  # of selectors, shortened
    left: int
    percent: float
    lost_percent: float
    lost: str
    decisive: bool
    empty: bool
    #: left out of a rehearsal: it is drawn struck out
    skipped: bool = False
    #: what is left at the end is enough
    good: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FunnelSection:
    """One request with its funnel."""

    request: RequestReport
    rows: tuple[FunnelRow, ...]
    wants: str
    short: str
    way: str  # the funnel as one line of text, for requests that can be met
    #: index of a selector -> what it says, of those that a rehearsal leaves out
    left_out: Mapping[int, str] = field(default_factory=dict)

    @property
    def selectors(self) -> list[tuple[int, str, int, int]]:
        """(number, expression, devices kept, devices before) of the request's own."""
        found, before = [], self.request.funnel[0]
        for stage in self.request.funnel:
            if stage.selector and stage.name.startswith(stages.REQUEST_SELECTOR):
                expression = self.left_out.get(stage.selector.index, stage.selector.expression)
                found.append((stage.selector.index + 1, expression, stage.left, before.left))
            before = stage
        return found


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
    """columns: (word, what it means); the lines that come closest stand first."""

    columns: tuple[tuple[str, str], ...]
    lines: tuple[FunnelNode, ...]
    total: int


#: request, as it is named in the claim `namespace/name` -> index of a selector -> what it says
LeftOut = Mapping[tuple[str, str], Mapping[int, str]]


def sections(report: Report, left_out: LeftOut | None = None) -> tuple[FunnelSection, ...]:
    """The decisive request first; those that can be met last. left_out: selectors that a rehearsal leaves out."""
    suggested = {(one.claim, one.request): one.index for one in reversed(report.loosenings)}
    ordered = sorted(report.requests, key=lambda one: (not one.decisive, one.met))
    return tuple(_section(one, (left_out or {}).get(_key(one), {}), suggested.get(_key(one))) for one in ordered)


def _key(request: RequestReport) -> tuple[str, str]:
    return request.plan.claim, request.plan.full_name


def _section(request: RequestReport, left_out: Mapping[int, str], suggested: int | None) -> FunnelSection:
    plan = request.plan
    wants = "all devices" if plan.everything else f"{request.wanted} device{'' if request.wanted == 1 else 's'}"
    return FunnelSection(
        request=request,
        rows=tuple(_rows(request, left_out, suggested)),
        wants=wants,
        short="" if request.met else f"short by {request.short_by}",
        way=" → ".join(f"{stage.left} {_way(stage, plan.class_name)}" for stage in request.funnel),
        left_out=left_out,
    )


def _way(stage: Stage, class_name: str) -> str:
    if stage.name.startswith(stages.CLASS_SELECTOR):
        return f"of class {class_name}"
    if stage.selector is not None:
        return f"pass selector {stage.selector.index + 1}"
    return {stages.COMPLETE: "in complete pools", stages.VISIBLE: "visible"}.get(stage.name, stage.name)


def _rows(request: RequestReport, left_out: Mapping[int, str], suggested: int | None) -> Iterator[FunnelRow]:
    """suggested: the selector without which some node would do; it is what a person should look at."""
    before, published = request.funnel[0], max(request.funnel[0].left, 1)
    marked = request.decisive and suggested is not None
    alike = sum(stage.name.startswith(stages.CLASS_SELECTOR) for stage in request.funnel) > 1
    for index, stage in enumerate(request.funnel):
        lost = before.left - stage.left
        selector = stage.selector
        own = selector is not None and stage.name.startswith(stages.REQUEST_SELECTOR)
        skipped = left_out.get(selector.index) if selector and own else None
        key = selector is not None and own and selector.index == suggested if marked else index == request.stops
        yield FunnelRow(
            number=str(selector.index + 1) if selector and own else "",
            label=LABELS.get(stage.name, "" if own else f"Class {request.plan.class_name}"),
            code=short_form(skipped or selector.expression) if selector and (own or lost or alike) else "",
            left=stage.left,
            percent=round(100 * stage.left / published, 2),
            lost_percent=round(100 * lost / published, 2),
            lost="left out of this rehearsal" if skipped else spoken(_lost(before, stage, request) if index else ""),
            decisive=skipped is not None or (request.decisive and key),
            empty=stage.left == 0,
            skipped=skipped is not None,
            good=request.met and index == len(request.funnel) - 1,
        )
        before = stage


def short_form(expression: str) -> str:
    """A selector as one reads it: comparisons without the paths to their values."""
    return " && ".join(str(clause_of(text)) for text in operands(expression))


def _lost(before: Stage, stage: Stage, request: RequestReport) -> str:
    count = before.left - stage.left
    if not count:
        return "none lost" if stage.left else ""
    if stage.troubles:
        return f"{count} lost: {troubled_pools(stage.troubles)}"
    if stage.selector is not None:
        return _refused(drops(stage.selector, before.devices - stage.devices), count)
    held = f"{'it is' if count == 1 else f'all {count}'} held" if not stage.left else f"{count} held"
    if stage.left < request.wanted and not request.plan.everything:
        held = f"{held}, {request.wanted} wanted"
    return {
        stages.VISIBLE: f"{count} on other nodes",
        stages.UNTAINTED: f"{count} tainted",
        stages.LARGE: f"{count} too small",
        stages.FREE: held,
    }.get(stage.name, f"{count} lost")


def troubled_pools(troubles: Sequence[PoolTrouble]) -> str:
    """`pools gpu-b04, gpu-b05 and 3 more are incomplete`; those that keep most of the wanted devices back first."""
    found: dict[str, list[PoolTrouble]] = {}
    for one in sorted(troubles, key=lambda one: -one.matching):
        found.setdefault(one.trouble, []).append(one)
    names = Counter(one.key.name for one in troubles)
    return "; ".join(
        _listed([one.key.name if names[one.key.name] == 1 else str(one.key) for one in some], trouble)
        for trouble, some in found.items()
    )


def _listed(pools: Sequence[str], trouble: str) -> str:
    if len(pools) == 1:
        return f"pool {pools[0]} is {trouble}"
    named = pools[:NAMED_POOLS] if len(pools) <= NAMED_POOLS else pools[: NAMED_POOLS - 1]
    rest = len(pools) - len(named)
    words = [*named, f"{rest} more"] if rest else named
    return f"pools {', '.join(words[:-1])} and {words[-1]} are {trouble}"


def _refused(found: Sequence[Drop], count: int) -> str:
    """What the devices that a selector refused have: `112 have 80Gi`; the others are counted beside it."""
    if not found:
        return f"{count} refused"
    told = found[:NAMED_DROPS]
    rest = count - sum(one.count for one in told)
    return "; ".join([*map(_of_drop, told), *([f"{rest} more refused"] if rest > 0 else [])])


def _of_drop(first: Drop) -> str:
    have = "has" if first.count == 1 else "have"
    if len(first.values) == 1 and not first.more_values:
        return f"{first.count} {have} {first.values[0][0]}"
    if first.values and first.clause.comparison and first.clause.comparison.operator in (">", ">=") and first.greatest:
        return f"{first.count} have {first.greatest} or less"
    if first.values:
        return f"{first.count} have {', '.join(value for value, _ in first.values)}{' …' if first.more_values else ''}"
    return f"{first.count} refused by {first.clause}"


# Nodes --------------------------------------------------------------------------------------------------------------


def node_table(report: Report) -> FunnelNodes:
    """The nodes that come closest one by one; the others together where they stop for the same reason."""
    decisive = next((one for one in report.requests if one.decisive), report.requests[0] if report.requests else None)
    columns = _columns(decisive) if decisive else []
    key = _key(decisive) if decisive else None
    lines = sorted((_line(node, key, columns) for node in report.nodes), key=lambda line: line[0])
    rest = [line for _, line in lines[CLOSEST:]]
    counted = Counter(line.stops for line in rest)
    first = {line.stops: line.name for line in reversed(rest)}
    grouped = [
        FunnelNode(
            name=spoken(first[stops] if count == 1 else f"{count} more, such as {first[stops]}"),
            count=count,
            exists=count == 1 and next(line.exists for line in rest if line.name == first[stops]),
            counts=(None,) * len(columns),
            stops=stops,
        )
        for stops, count in counted.most_common()
    ]
    closest = [line for _, line in lines[:CLOSEST]]
    words = tuple((word, meaning) for word, meaning, _ in columns)
    return FunnelNodes(columns=words, lines=(*closest, *grouped), total=len(report.nodes))


def _columns(request: RequestReport) -> list[tuple[str, str, str]]:
    """(word, what it means, name of the stage): what the node sees, the class, each selector, what is free."""
    found = [("Sees", "devices that the node sees", stages.VISIBLE)]
    of_class = [stage.name for stage in request.funnel if stage.name.startswith(stages.CLASS_SELECTOR)]
    if of_class:
        found.append(("Class", f"of class {request.plan.class_name}", of_class[-1]))
    own = [stage for stage in request.funnel if stage.name.startswith(stages.REQUEST_SELECTOR)]
    for stage in own[: COLUMNS - 1 - len(found)]:
        number = stage.selector.index + 1 if stage.selector else 1
        found.append((f"Sel. {number}", f"that pass selector {number}", stage.name))
    return [*found, ("Free", "that nobody holds", stages.FREE)]


def _line(
    node: NodeReport, key: tuple[str, str] | None, columns: Sequence[tuple[str, str, str]]
) -> tuple[tuple[object, ...], FunnelNode]:
    """(how to sort it, the line)."""
    request = next((one for one in node.examination.requests if (one.plan.claim, one.plan.full_name) == key), None)
    stops, progress = _stops(node, request)
    left = {stage.name: stage.left for stage in request.funnel} if request else {}
    counts = tuple(left.get(name) for _, _, name in columns)
    line = FunnelNode(
        name=spoken(node.name), count=1, exists=not is_imagined(node.name), counts=counts, stops=spoken(stops)
    )
    return (bool(node.refusals), -progress, -(left.get(stages.FREE) or 0), node.name), line


def _stops(node: NodeReport, request: Examined | None) -> tuple[str, int]:
    """(why the node is out, how far it came)."""
    if node.refusals:
        return "; ".join(map(_against, node.refusals)), 0
    outcome = node.examination.outcome
    if isinstance(outcome, Allocated):
        return "Could take everything now", 1000
    if not isinstance(outcome, Unallocatable):
        return message(outcome.cause), 0
    if request is not None and request.short:
        index = next(number for number, stage in enumerate(request.funnel) if stage.left < request.wanted)
        return _stage_text(request, request.funnel, index), index
    if outcome.reasons:
        leading = outcome.reasons[0]
        return (clause(leading.conflict) if leading.conflict else f"Request {leading.request} is short"), 500
    return "Too few devices", 0


def _against(refusal: NodeRefusal) -> str:
    """What the node of a line has against the pod, of this one node: without Kubernetes' "node(s)"."""
    if refusal.plugin == "NodeUnschedulable":
        return "Cordoned"
    return sentence(message(refusal).removeprefix("node(s) "))


def _stage_text(request: Examined, funnel: Funnel, index: int) -> str:
    stage = funnel[index]
    some = f"{stage.left} of the {request.wanted} wanted" if stage.left else ""
    if stage.selector is not None:
        whose = f"Class {request.plan.class_name}" if stage.name.startswith(stages.CLASS_SELECTOR) else "Selector"
        number = f" {stage.selector.index + 1}" if whose == "Selector" else ""
        lost = drops(stage.selector, funnel[index - 1].devices - stage.devices)
        why = str(lost[0].clause) if lost else short_form(stage.selector.expression)
        return f"{whose}{number}: {why}" + (f"; {some} left" if some else "")
    none = {
        stages.VISIBLE: "Sees no device",
        stages.UNTAINTED: "All tainted",
        stages.LARGE: "All too small",
        stages.FREE: "All held",
        stages.COMPLETE: sentence(troubled_pools(stage.troubles)),
    }.get(stage.name, "No device")
    return f"{LABELS[stage.name]}: {some}" if some else none


# Devices in use -----------------------------------------------------------------------------------------------------


def held_devices(report: Report) -> DeviceSet:
    """The devices that the decisive request accepts and that others hold."""
    decisive = next((one for one in report.requests if one.decisive), None)
    if decisive is None or decisive.stops is None or decisive.funnel[decisive.stops].name != stages.FREE:
        return DeviceSet()
    return decisive.funnel[-2].devices - decisive.funnel[-1].devices
