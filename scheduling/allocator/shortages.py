"""Why a request has too few devices, as a cause: what a person has to know of the `Shortage`, and no more.

The numbers are those of all nodes that were looked at: a device that several of them see counts once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from claims.causes import causes
from claims.causes.causes import OfDevices, RefusingOperand, TroubledPool
from inventory.kinds.devices import HARD_EFFECTS
from scheduling.allocator import stages
from scheduling.allocator.stages import Drop, PoolTrouble, Shortage, drops

#: Characters of an expression that are quoted; the rest can be read in the claim.
QUOTED = 120
#: Taints that are named.
NAMED_TAINTS = 3
#: Pools that are named.
NAMED_POOLS = 2

_Fields = dict[str, Any]


def told(short: Shortage) -> OfDevices:
    """The cause, by the stage at which the node that came furthest falls short."""
    name = short.stage.name
    fields = _common(short) | _pools(short)
    accepted = sum(one.matching for one in short.funnel[1].troubles) if short.failing else 0
    if accepted and not short.stage.left and (short.stage.selector or name in (stages.COMPLETE, stages.VISIBLE)):
        return causes.PoolsUnusable(**fields, accepted=accepted)
    if short.stage.selector is not None:
        return causes.NotSelected(**fields, **_selector(short))
    if name == stages.UNTAINTED:
        return causes.Tainted(**fields, **_taints(short))
    if name == stages.LARGE:
        asked = short.plan.capacity if not short.stage.left else ()
        have = [device.published.capacity for device in short.lost] if asked else []
        unpublished = tuple(wanted for wanted, _ in asked if not any(wanted in one for one in have))
        return causes.TooSmall(**fields, capacity=short.plan.capacity, unpublished=unpublished)
    if name == stages.FREE:
        return causes.DevicesInUse(**fields, **_in_use(short))
    plain: dict[str, type[causes.TooFewPublished | causes.PoolsUnusable | causes.NotVisible]] = {
        stages.PUBLISHED: causes.TooFewPublished,
        stages.COMPLETE: causes.PoolsUnusable,
        stages.VISIBLE: causes.NotVisible,
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
    """Those of which the request could have devices; at the stage that asks for whole pools, else all of them."""
    if short.failing < 1:
        return {}
    troubles = short.funnel[1].troubles
    if short.failing == 1:
        found = [one for one in troubles if one.may_serve] or list(troubles)
    else:
        found = [one for one in troubles if one.matching]
    if not found:
        return {}
    return {
        "pools": tuple(map(_pool, found[:NAMED_POOLS])),
        "more_pools": max(len(found) - NAMED_POOLS, 0),
        "worst_pool": _pool(max(troubles, key=lambda one: one.matching)),
    }


def _pool(trouble: PoolTrouble) -> TroubledPool:
    return TroubledPool(trouble.key.driver, trouble.key.name, trouble.trouble, trouble.detail)


def _in_use(short: Shortage) -> _Fields:
    """Whether devices are shared; and then what the request would take of one, which none of them has left."""
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
    """Those that keep the request away, and the rules that put them there."""
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
    return {"taints": tuple(named), "rules": tuple(_first(rules[taint]) for taint in named)}


def _first(rules: Counter[str]) -> tuple[str, int]:
    """The rule of most devices, and the number of others."""
    if not rules:
        return "", 0
    return min(rules, key=lambda name: (-rules[name], name)), len(rules) - 1


def _selector(short: Shortage) -> _Fields:
    chosen, lost = short.stage.selector, short.lost
    alike = [stage for stage in short.funnel if stage.selector and chosen and stage.selector.owner == chosen.owner]
    found = drops(chosen, lost, most=short.asked) if chosen else ()
    return {
        "class_name": short.plan.class_name,
        "by_class": short.stage.name.startswith(stages.CLASS_SELECTOR),
        "of_class": any(stage.name.startswith(stages.CLASS_SELECTOR) for stage in short.funnel),
        "selector": chosen.index + 1 if chosen and len(alike) > 1 else 0,
        "expression": _one_line(short.stage.clause),
        "operand": _operand(found[0], len(lost), short.asked) if found else None,
    }


def _operand(drop: Drop, refused: int, asked: int) -> RefusingOperand:
    """refused: devices that the selector refused. At most `asked` of them speak for all; fewer, where a deadline passed
    before so many were asked, do not.
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
    """Of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= QUOTED else f"{line[: QUOTED - 1]}…"
