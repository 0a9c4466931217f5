"""The allocator's answers: a value for every case, an exception for none; and the funnels that explain them.

`Allocated` is a plan to commit. `Unallocatable` is "no", with the most helpful reason first; the pod waits for an event
that could change one of the reasons. `AllocationFailed` means that a claim, a class or a selector is wrong: no other
node is tried. `Undecided` means that the search was stopped: retry, and never cache it. `overall` is the cause that a
person should read first, out of the reasons that several nodes give.

A funnel has the devices that are left for a request after each question, on one node or over several: published, in a
complete pool, visible from the node, each selector of the class, each of the request, not tainted, large enough (if
capacity is requested), free. A `Shortage` is a request whose funnel leaves too few devices on every examined node;
`cause_of_shortage` has the numbers of all those nodes, where a device that several of them see counts once. A `Drop` is
an operand of a selector, with the devices that it refused and the values that they have there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from msgspec import structs

from claims.causes import causes
from claims.causes.causes import (
    CannotAllocate,
    Misconfigured,
    NotTogether,
    OfDevices,
    OfNode,
    RefusingOperand,
    SearchStopped,
    TooFew,
    TroubledPool,
)
from claims.kinds.resource_claims import AllocationResult
from inventory.kinds.devices import HARD_EFFECTS
from inventory.kinds.pools import PoolKey
from manciple.wire.limits import TimeLimitExceeded
from scheduling.allocator.published import PublishedDevice
from scheduling.allocator.requests import Projection, RequestPlan, SelectorRef, projection_of
from scheduling.allocator.snapshot import Generation, bits
from scheduling.cel import CompileError, DeviceView, Selector, compile_selector
from scheduling.cel.clauses import Clause, extremes, first_false, shown
from scheduling.cel.spelling import nearest_qualified


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSet:
    """An immutable set of devices. Several nodes may see the same devices: a union counts each once."""

    masks: Mapping[Generation, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(mask.bit_count() for mask in self.masks.values())

    def __iter__(self) -> Iterator[PublishedDevice]:
        for generation, mask in self.masks.items():
            for position in bits(mask):
                yield generation.devices[position]

    def __sub__(self, other: DeviceSet) -> DeviceSet:
        return DeviceSet({key: mask & ~other.masks.get(key, 0) for key, mask in self.masks.items()})

    @classmethod
    def union(cls, sets: Iterable[DeviceSet]) -> DeviceSet:
        masks: dict[Generation, int] = {}
        for one in sets:
            for key, mask in one.masks.items():
                masks[key] = masks.get(key, 0) | mask
        return cls(masks)


#: How many of the devices that a selector refused are examined for a short message; they speak for all.
ASKED = 512
#: The same for an explanation that a user requests.
ASKED_THOROUGHLY = 100_000
#: Different values that are named.
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """One operand with the devices that it refused."""

    clause: Clause
    count: int
    #: how many devices were examined, including those that other operands refused
    asked: int = 0
    #: value -> devices that have it, most first, at most NAMED; only if the operand is a simple comparison
    values: tuple[tuple[str, int], ...] = ()
    more_values: bool = False
    least: str = ""
    greatest: str = ""
    one_device: str = ""  # driver/pool/device, for example


def drops(selector: SelectorRef, refused: DeviceSet, *, most: int = ASKED_THOROUGHLY) -> tuple[Drop, ...]:
    """The operands that refused the devices, the one that refused most first. most: how many devices are examined;
    fewer if a deadline passes.
    """
    try:
        compiled = compile_selector(selector.expression)
    except (CompileError, TimeLimitExceeded):
        return ()
    views = _Views(compiled)
    asked, refused_by = 0, dict[str, tuple[Clause, list[DeviceView], PublishedDevice]]()
    for device in islice(refused, most):
        try:
            view, clause = views.of(device)
        except TimeLimitExceeded:
            break
        asked += 1
        if clause is not None:
            refused_by.setdefault(clause.text, (clause, [], device))[1].append(view)
    summed = (
        replace(_summed(clause, alike, str(example)), asked=asked) for clause, alike, example in refused_by.values()
    )
    return tuple(sorted(summed, key=lambda drop: (-drop.count, drop.clause.text)))


class _Views:
    """Devices as the expression sees them: one view for all with the same values of what it looks at."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._projections: dict[str, Projection | None] = {}
        self._cache: dict[Hashable, tuple[DeviceView, Clause | None]] = {}

    def of(self, device: PublishedDevice) -> tuple[DeviceView, Clause | None]:
        """The view, and the operand that is false on it."""
        driver = device.key.driver
        if driver not in self._projections:
            self._projections[driver] = projection_of(self._selector.references, driver)
        project = self._projections[driver]
        seen = project(device.published) if project is not None and device.condition.readable else None
        cached = self._cache.get(seen) if seen is not None else None
        if cached is None:
            view = device.view
            cached = view, first_false(self._selector, view)
            if seen is not None:
                self._cache[seen] = cached
        return cached


def _summed(clause: Clause, views: Sequence[DeviceView], example: str) -> Drop:
    if clause.comparison is None:
        return Drop(clause=clause, count=len(views), one_device=example)
    has = {id(view): clause.comparison.value(view) for view in {id(view): view for view in views}.values()}
    values: list[Any] = [value for view in views if (value := has[id(view)]) is not None]
    counted = Counter(map(shown, values)).most_common()
    ends = extremes(values)
    return Drop(
        clause=clause,
        count=len(views),
        values=tuple(counted[:NAMED]),
        more_values=len(counted) > NAMED,
        least=shown(ends[0]) if ends else "",
        greatest=shown(ends[1]) if ends else "",
        one_device=example,
    )


PUBLISHED = "published"
COMPLETE = "in a complete pool"
VISIBLE = "visible from the node"
CLASS_SELECTOR = "class selector"
REQUEST_SELECTOR = "request selector"
UNTAINTED = "not tainted"
LARGE = "large enough"
FREE = "free"


@dataclass(frozen=True, slots=True)
class PoolTrouble:
    """A pool that cannot give devices in its present state."""

    key: PoolKey
    trouble: str  # "incomplete" or "invalid"
    detail: str  # "1 of 2 slices of generation 1"
    devices: int  # how many it publishes
    matching: int  # how many of them, on this node, the request's selectors choose
    may_serve: bool  # whether the request could have devices of it

    def __str__(self) -> str:
        return f"pool {self.key.driver}/{self.key.name} is {self.trouble}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the funnel: its question, and how many devices were left after it."""

    name: str  # "published", ..., "class selector #0", "request selector #1", ...
    left: int
    clause: str = ""  # the selector's expression, the node, what is wrong with pools, the capacity asked for
    #: the devices that are left; empty for the first two stages, which only count
    devices: DeviceSet = field(default_factory=DeviceSet, compare=False, repr=False)
    selector: SelectorRef | None = field(default=None, compare=False, repr=False)
    troubles: tuple[PoolTrouble, ...] = field(default=(), compare=False, repr=False)


Funnel = tuple[Stage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintStep:
    """The step after the funnel: a constraint that covers the request, on the node that comes closest to meeting it.

    left: the most free devices with the same value; where the values must differ, how many there are.
    """

    attribute: str
    distinct: bool
    wanted: int  # devices, of all requests that it covers
    left: int
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """A request that has too few devices, on one node or on each of several."""

    plan: RequestPlan
    wanted: int  # on one node; for allocationMode All, as many as there are, at least 1
    funnel: Funnel  # over all of the nodes: what several of them see counts once
    most: tuple[int, ...]  # per stage, the most devices that are left on one node
    nodes: tuple[str, ...]
    #: how many of the devices that a selector refused are examined for the values that they have
    asked: int = ASKED

    @property
    def failing(self) -> int:
        """The index of the stage at which even the best node has too few devices."""
        return next((index for index, most in enumerate(self.most) if most < self.wanted), len(self.funnel) - 1)

    @property
    def stage(self) -> Stage:
        return self.funnel[self.failing]

    @property
    def before(self) -> Stage:
        return self.funnel[max(self.failing - 1, 0)]

    @property
    def lost(self) -> DeviceSet:
        """The devices that the failing stage refused."""
        return self.before.devices - self.stage.devices


def merged(funnels: Sequence[Funnel]) -> Funnel:
    """The funnels of one request on several nodes as one."""
    if len(funnels) == 1:
        return funnels[0]
    published = funnels[0][0]
    troubles = {trouble.key: trouble for funnel in funnels for trouble in funnel[1].troubles}
    complete = published.left - sum(trouble.devices for trouble in troubles.values())
    in_order = tuple(troubles[key] for key in sorted(troubles))
    whole = [published, Stage(COMPLETE, complete, "; ".join(map(str, in_order)), troubles=in_order)]
    for same in zip(*(funnel[2:] for funnel in funnels), strict=True):
        left = DeviceSet.union(stage.devices for stage in same)
        clause = "" if same[0].name == VISIBLE else same[0].clause
        whole.append(Stage(same[0].name, len(left), clause, devices=left, selector=same[0].selector))
    return tuple(whole)


def most_left(funnels: Sequence[Funnel]) -> tuple[int, ...]:
    """Per stage, the most devices that are left on one node."""
    return tuple(max(stage.left for stage in same) for same in zip(*funnels, strict=True))


#: Characters of an expression that are quoted; the rest can be read in the claim.
QUOTED = 120
#: Taints that are named.
NAMED_TAINTS = 3
#: Pools that are named.
NAMED_POOLS = 2

_Fields = dict[str, Any]


def cause_of_shortage(short: Shortage) -> OfDevices:
    """The cause, by the stage at which even the best node has too few devices."""
    name = short.stage.name
    fields = _common(short) | _pools(short)
    accepted = sum(one.matching for one in short.funnel[1].troubles) if short.failing else 0
    if accepted and not short.stage.left and (short.stage.selector or name in (COMPLETE, VISIBLE)):
        return causes.PoolsUnusable(**fields, accepted=accepted)
    if short.stage.selector is not None:
        return causes.NotSelected(**fields, **_selector(short))
    if name == UNTAINTED:
        return causes.Tainted(**fields, **_taints(short))
    if name == LARGE:
        asked = short.plan.capacity if not short.stage.left else ()
        have = [device.published.capacity for device in short.lost] if asked else []
        unpublished = tuple(wanted for wanted, _ in asked if not any(wanted in one for one in have))
        return causes.TooSmall(**fields, capacity=short.plan.capacity, unpublished=unpublished)
    if name == FREE:
        return causes.DevicesInUse(**fields, **_in_use(short))
    plain: dict[str, type[causes.TooFewPublished | causes.PoolsUnusable | causes.NotVisible]] = {
        PUBLISHED: causes.TooFewPublished,
        COMPLETE: causes.PoolsUnusable,
        VISIBLE: causes.NotVisible,
    }
    return plain[name](**fields)


def _common(short: Shortage) -> _Fields:
    return {
        "claim": short.plan.claim,
        "request": short.plan.full_name,
        "wanted": short.wanted,
        "everything": short.plan.everything,
        "before": short.before.left,
        "left": short.stage.left,
        "most": short.most[short.failing],
        "node": short.nodes[0] if len(short.nodes) == 1 else "",
    }


def _pools(short: Shortage) -> _Fields:
    """Incomplete and invalid pools that may have devices for the request; at the stage for complete pools all such
    pools, if none of them may.
    """
    if short.failing < 1:
        return {}
    troubles = short.funnel[1].troubles
    if short.failing == 1:
        named = [one for one in troubles if one.may_serve] or list(troubles)
    else:
        named = [one for one in troubles if one.matching]
    if not named:
        return {}
    return {
        "pools": tuple(map(_pool, named[:NAMED_POOLS])),
        "more_pools": max(len(named) - NAMED_POOLS, 0),
        "worst_pool": _pool(max(troubles, key=lambda one: one.matching)),
    }


def _pool(trouble: PoolTrouble) -> TroubledPool:
    return TroubledPool(trouble.key.driver, trouble.key.name, trouble.trouble, trouble.detail)


def _in_use(short: Shortage) -> _Fields:
    """Whether devices are shared, and what the request would take of one, which none of them has left."""
    lost = list(short.lost)
    shared = [one for one in lost if one.published.allow_multiple_allocations]
    amounts: defaultdict[str, list[str]] = defaultdict(list)
    for device in shared:
        for name, amount in (device.capacities.consumption(short.plan.capacity) or {}).items():
            amounts[name].append(amount.canonical())
    alike = {name for name, texts in amounts.items() if len(texts) == len(shared) and len(set(texts)) == 1}
    return {
        "shared": bool(shared),
        "held": len(lost) - len(shared) if shared else 0,
        "takes": tuple((name, texts[0] if name in alike else "") for name, texts in sorted(amounts.items())),
        "by_default": tuple(sorted(set(amounts) - {name for name, _ in short.plan.capacity})),
    }


def _taints(short: Shortage) -> _Fields:
    """The taints that the request does not tolerate, and the rules that put them there."""
    counted: Counter[tuple[str, str, str]] = Counter()
    rules: defaultdict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for device in short.lost:
        authors = (*("" for _ in device.published.taints), *device.condition.tainted_by)
        for taint, author in zip(device.condition.taints, authors, strict=True):
            if taint.effect in HARD_EFFECTS and not short.plan.tolerates(taint):
                said = (taint.key, taint.value, taint.effect)
                counted[said] += 1
                rules[said].update((author,) if author else ())
    named = sorted(counted, key=lambda taint: (-counted[taint], taint))[:NAMED_TAINTS]
    # Of each taint, the rule of most devices and the number of other rules.
    authors_of = (rules[taint] for taint in named)
    first = ((min(one, key=lambda name: (-one[name], name)), len(one) - 1) if one else ("", 0) for one in authors_of)
    return {"taints": tuple(named), "rules": tuple(first)}


def _selector(short: Shortage) -> _Fields:
    chosen, lost = short.stage.selector, short.lost
    alike = [stage for stage in short.funnel if stage.selector and chosen and stage.selector.owner == chosen.owner]
    operands = drops(chosen, lost, most=short.asked) if chosen else ()
    return {
        "class_name": short.plan.class_name,
        "by_class": short.stage.name.startswith(CLASS_SELECTOR),
        "of_class": any(stage.name.startswith(CLASS_SELECTOR) for stage in short.funnel),
        "selector": chosen.index + 1 if chosen and len(alike) > 1 else 0,
        "expression": _one_line(short.stage.clause),
        "operand": _operand(operands[0], len(lost), short.asked) if operands else None,
    }


def _operand(drop: Drop, refused: int, asked: int) -> RefusingOperand:
    """refused: how many devices the selector refused. `asked` of them speak for all, but not the fewer that were
    examined before a deadline passed.
    """
    comparison = drop.clause.comparison
    compared: _Fields = {} if comparison is None else {
        "subject": comparison.subject,
        "operator": comparison.operator,
        "limit": comparison.limit,
        "values": drop.values,
        "more_values": drop.more_values,
        "least": drop.least,
        "greatest": drop.greatest,
    }  # fmt: skip
    return RefusingOperand(
        text=_one_line(str(drop.clause)),
        refuses=drop.count,
        refuses_all=drop.count == min(refused, asked) == drop.asked,
        all_asked=refused <= drop.asked,
        **compared,
    )


def _one_line(text: str) -> str:
    """Shortened to QUOTED."""
    line = " ".join(text.split())
    return line if len(line) <= QUOTED else f"{line[: QUOTED - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReason:
    """Why one request of one claim gets no device on one node."""

    plan: RequestPlan = field(repr=False)
    node: str
    wanted: int  # devices; for allocationMode All, as many as there are, at least 1
    funnel: Funnel
    #: why requests that could be met one by one cannot be met together; None if this one is short by itself
    conflict: NotTogether | None = None
    #: how many stages still had devices: the fewer, the further the request is from being met
    progress: float = 0.0

    @property
    def claim(self) -> str:
        """`namespace/name`"""
        return self.plan.claim

    @property
    def request(self) -> str:
        """`request` or `request/subrequest`"""
        return self.plan.full_name

    @property
    def device_class(self) -> str:
        return self.plan.class_name

    @property
    def cause(self) -> OfDevices:
        """Computed at each access."""
        return cause_of((self,))


def cause_of(reasons: Sequence[RequestReason], *, asked: int = ASKED) -> OfDevices:
    """The cause of one request's reasons on one or several nodes.

    asked: how many of the devices that a selector refused are examined for the values that they have.
    """
    conflicts = [one.conflict for one in reasons if one.conflict]
    if not conflicts:
        return cause_of_shortage(shortage(reasons, asked=asked))
    closest = min(conflicts, key=_lacks)  # the first of several
    if isinstance(closest, causes.NoCommonValue | causes.TooFewValues) and not _has(closest):
        return structs.replace(closest, meant=nearest_qualified(closest.attribute, _attributes(reasons)))
    return closest


def _has(conflict: NotTogether) -> int:
    match conflict:
        case causes.NoCommonValue(most=has) | causes.TooFewValues(values=has) | causes.RequestsCompete(serving=has):
            return has
        case causes.CountersExhausted(served=served):
            return served or 0
    return 0


def _lacks(conflict: NotTogether) -> int:
    return getattr(conflict, "wanted", 0) - _has(conflict)


#: Nodes and devices of each that are asked for names of attributes.
_ASKED_FOR_NAMES = 16


def _attributes(reasons: Sequence[RequestReason]) -> set[str]:
    """The qualified names that the free devices have."""
    return {
        name if "/" in name else f"{device.key.driver}/{name}"
        for one in reasons[:_ASKED_FOR_NAMES]
        for device in islice(one.funnel[-1].devices, _ASKED_FOR_NAMES)
        for name in device.published.attributes
    }


def shortage(reasons: Sequence[RequestReason], *, asked: int = ASKED) -> Shortage:
    """One request's reasons on one or several nodes, combined."""
    funnels = [reason.funnel for reason in reasons]
    return Shortage(
        plan=reasons[0].plan,
        wanted=max(reason.wanted for reason in reasons),
        funnel=merged(funnels),
        most=most_left(funnels),
        nodes=tuple(reason.node for reason in reasons),
        asked=asked,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """One result per claim, in the order of the claims. `trials` counts the devices that the search took in hand."""

    results: tuple[AllocationResult, ...]
    trials: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unallocatable:
    """No solution exists on this node. The dominant reason comes first.

    pool_fault: a pool that could have devices for the claims is incomplete or invalid, in upstream's words; None if no
    such pool is.
    """

    reasons: tuple[RequestReason, ...] = ()
    trials: int = 0
    pool_fault: Misconfigured | None = None

    @property
    def cause(self) -> OfNode:
        """What counts against the node."""
        return self.pool_fault or CannotAllocate()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationFailed:
    """Something is wrong with a claim, a class or a selector: the pod waits, whatever other nodes have."""

    cause: Misconfigured
    trials: int = 0

    @property
    def error(self) -> str:
        return self.cause.error


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """The search stopped after `trials` devices without an answer: at its limit, or at its deadline.

    claims: those whose selectors it was evaluating when it was stopped after `seconds`.
    """

    trials: int
    timed_out: bool = False
    claims: str = ""
    seconds: float = 0.0

    @property
    def cause(self) -> SearchStopped:
        return SearchStopped(self.trials, self.timed_out, claims=self.claims, seconds=self.seconds)


Outcome = Allocated | Unallocatable | AllocationFailed | Undecided


def dominant(refusals: Iterable[Unallocatable]) -> tuple[RequestReason, ...]:
    """The reasons of one request, on all nodes where it is short: the request is the one that fails on the nodes that
    came closest.

    Most nodes have no such devices at all, which is not worth reporting. Of requests that came equally close, the one
    that fails on most nodes is chosen, then the first by name.
    """
    leading = [one.reasons[0] for one in refusals if one.reasons]
    closest = max((reason.progress for reason in leading), default=0)
    by_request: dict[tuple[str, str], list[RequestReason]] = defaultdict(list)
    for reason in leading:
        if reason.progress == closest:
            by_request[reason.claim, reason.request].append(reason)
    if not by_request:
        return ()
    key = min(by_request, key=lambda one: (-len(by_request[one]), one))
    if by_request[key][0].conflict:
        return tuple(by_request[key])
    return tuple(reason for reason in leading if (reason.claim, reason.request) == key and not reason.conflict)


def overall(refusals: Sequence[Unallocatable], *, asked: int = ASKED) -> OfDevices | None:
    """The cause of the dominant reason; None if there are no reasons. asked: as for `cause_of`."""
    reasons = dominant(refusals)
    if not reasons:
        return None
    cause = cause_of(reasons, asked=asked)
    if len(reasons) == len(refusals) or not isinstance(cause, TooFew):
        return cause
    return structs.replace(cause, nodes=(len(reasons), len(refusals)))
