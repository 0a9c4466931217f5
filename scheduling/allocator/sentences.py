"""What a person reads about a request that has too few devices: the cause in one sentence, then the next step.

A sentence is a clause without a capital and a final stop, so that it can follow "It waits because". Names and
expressions stand in backticks. The numbers are those of all nodes that were looked at: a device that several of them
see counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scheduling.allocator import stages
from scheduling.allocator.pools import KEEPING_AWAY
from scheduling.allocator.stages import Drop, PoolTrouble, Shortage, drops

#: Characters of an expression that are quoted; the rest can be read in the claim.
QUOTED = 120
#: Taints that are named.
NAMED_TAINTS = 3
#: Pools that are named.
NAMED_POOLS = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """`cause` follows "because"; `next_step` is a sentence of its own."""

    cause: str
    next_step: str

    def __str__(self) -> str:
        return self.cause


def finding(short: Shortage) -> Finding:
    """Why the request is short, by the stage at which the node that came furthest falls short."""
    stage = short.stage
    found = _selector(short) if stage.selector is not None else _FINDINGS[stage.name](short)
    withheld = _withheld(short)
    return Finding(f"{withheld}, and {found.cause}", _mend(short)) if withheld else found


def quoted(text: str) -> str:
    """An expression in backticks, on one line and of bounded length."""
    line = " ".join(text.split())
    return f"`{line}`" if len(line) <= QUOTED else f"`{line[: QUOTED - 1]}…`"


def devices(count: int) -> str:
    return f"{count} device" if count == 1 else f"{count} devices"


def _all(count: int) -> str:
    """`all 12 are`, `both are`, `it is`: taking up what was just counted."""
    return {1: "it is", 2: "both are"}.get(count, f"all {count} are")


def wants(short: Shortage) -> str:
    if short.plan.everything:
        return "it asks for all of them"
    return f"it wants {short.wanted}" + (" on one node" if short.wanted > 1 and len(short.nodes) > 1 else "")


def _too_few(short: Shortage, *, of: str, none: str) -> str:
    """`only 2 of ...`, or that no node has enough though the nodes together do."""
    left, most = short.stage.left, short.most[short.failing]
    if left == 0:
        return none
    if left < short.wanted:
        return f"{of.format(f'only {left}')}, and {wants(short)}"
    return f"{of.format(left)}, but no node has more than {most} of them, and {wants(short)}"


# By stage ------------------------------------------------------------------------------------------------------------


def _published(short: Shortage) -> Finding:
    left = short.stage.left
    if not left:
        cause = f"no node publishes a device yet, and {short.subject} wants {short.wanted}"
        return Finding(cause, "Start a node agent with a driver for these devices.")
    cause = f"{short.subject} wants {short.wanted}, and only {devices(left)} {'is' if left == 1 else 'are'} published"
    return Finding(cause, "Ask for fewer devices, or add some.")


def _complete(short: Shortage) -> Finding:
    left, total = short.stage.left, short.before.left
    if not left:
        rest = "every published device is in a pool that cannot be used"
    else:
        rest = f"only {left} of the {total} published {'is' if left == 1 else 'are'} in a pool that can be used"
    cause = f"{short.subject} wants {devices(short.wanted)}, and {rest}: {_troubles(short.funnel[1].troubles)}"
    return Finding(cause, _mend(short))


def _troubles(found: Sequence[PoolTrouble]) -> str:
    named = [f"pool `{one.key}` is {one.trouble} ({one.detail})" for one in found[:NAMED_POOLS]]
    if len(found) > len(named):
        named.append(f"so are {len(found) - len(named)} more")
    return "; ".join(named)


def _mend(short: Shortage) -> str:
    first = max(short.funnel[1].troubles, key=lambda trouble: trouble.matching)
    if first.trouble == "incomplete":
        return f"Look at driver `{first.key.driver}`: it has to publish the slices that are missing."
    return f"Look at driver `{first.key.driver}`: it has to publish the pool without the fault."


def _visible(short: Shortage) -> Finding:
    total = short.before.left
    one_node = len(short.nodes) == 1
    where = f"node `{short.nodes[0]}`" if one_node else "the nodes in question"
    see = "sees" if one_node else "see"
    none = f"{where} {see} none of the {total} in the cluster"
    if total == 1:
        none = f"{where} {'does' if one_node else 'do'} not see the only one in the cluster"
    wanting = f"{short.subject} wants {devices(short.wanted)}, and {none}"
    cause = _too_few(short, of=f"{where} {see} {{}} of the {devices(total)} in the cluster", none=wanting)
    return Finding(cause, "Let the pod run on nodes that have such devices, or give its nodes some.")


def _selector(short: Shortage) -> Finding:
    stage, plan = short.stage, short.plan
    of_class = stage.name.startswith(stages.CLASS_SELECTOR)
    who = f"class `{plan.class_name}` of {short.subject}" if of_class else short.subject
    verb = "selects" if of_class else "accepts"
    before = short.before.left
    pool = f"the {f'{before} devices' if before > 1 else 'one device'} {_offered(short, of_class=of_class)}"
    none = f"{who} {verb} none of {pool}" if before > 1 else f"{who} does not {verb[:-1]} {pool}"
    cause = _too_few(short, of=f"{who} {verb} {{}} of {pool}", none=none)
    found = drops(stage.selector, short.lost, most=short.asked) if stage.selector else ()
    name = _selector_name(short)
    if not found:
        return Finding(f"{cause}: {name} is {quoted(stage.clause)}", _loosen(short, name))
    simple = not of_class and not stage.left
    return Finding(f"{cause}: {_clause(short, found[0])}", (simple and _instead(found[0])) or _loosen(short, name))


def _offered(short: Shortage, *, of_class: bool) -> str:
    """Which devices were left before the selector."""
    if not of_class and any(stage.name.startswith(stages.CLASS_SELECTOR) for stage in short.funnel):
        return f"of class `{short.plan.class_name}`"
    return f"that node `{short.nodes[0]}` sees" if len(short.nodes) == 1 else "that these nodes see"


def _selector_name(short: Shortage) -> str:
    """`selector 2 of the class`, counted as a person counts."""
    chosen = short.stage.selector
    alike = [stage for stage in short.funnel if stage.selector and chosen and stage.selector.owner == chosen.owner]
    return f"selector {chosen.index + 1}" if chosen and len(alike) > 1 else "the selector"


def _clause(short: Shortage, drop: Drop) -> str:
    """What the operand asks, whom it refuses, and what the devices have there."""
    refused = len(short.lost)
    who = f"{drop.count} of them"
    if drop.count == min(refused, short.asked):
        who = f"the other {refused}" if short.stage.left else {1: "it", 2: "both"}.get(refused, f"all {refused}")
    has = _has(drop, refused) if refused <= short.asked else ""
    return f"{quoted(str(drop.clause))} refuses {who}" + (f"; {has}" if has else "")


def _has(drop: Drop, refused: int) -> str:
    comparison = drop.clause.comparison
    if comparison is None or not drop.values:
        return ""
    if len(drop.values) == 1 and not drop.more_values:
        return f"{'it has' if refused == 1 else 'they have'} {drop.values[0][0]}"
    if comparison.operator in (">", ">=") and drop.greatest:
        return f"the most any of them has is {drop.greatest}"
    if comparison.operator in ("<", "<=") and drop.least:
        return f"the least any of them has is {drop.least}"
    listed = [f"{value} ({count})" for value, count in drop.values]
    last = "others" if drop.more_values else listed.pop()
    return f"they have {', '.join(listed)} and {last}"


def _instead(drop: Drop) -> str:
    """What could be asked for instead, where the devices say so."""
    comparison = drop.clause.comparison
    if comparison is None:
        return ""
    if comparison.operator in (">", ">=") and drop.greatest:
        return f"Ask for {drop.greatest} or less, or add devices that have more `{comparison.subject}`."
    if comparison.operator in ("<", "<=") and drop.least:
        return f"Allow {drop.least} or more, or add devices that have less `{comparison.subject}`."
    if comparison.operator == "==" and drop.values:
        offered = f"`{comparison.subject} == {drop.values[0][0]}`"
        return f"Ask for what there is, such as {offered}, or add devices with {comparison.limit}."
    return ""


def _loosen(short: Shortage, name: str) -> str:
    if short.stage.name.startswith(stages.CLASS_SELECTOR):
        return (
            f"Change {name} of class `{short.plan.class_name}`, ask for another class, or add devices that it selects."
        )
    fewer = "Ask for fewer devices, loosen" if short.stage.left else "Loosen"
    return f"{fewer} {name} of {short.subject}, or add devices that it accepts."


def _untainted(short: Shortage) -> Finding:
    taints = _taints(short)
    named = ", ".join(f"`{taint}`" for taint in taints[:NAMED_TAINTS])
    before, left = short.before.left, short.stage.left
    if not left:
        cause = f"{short.subject} accepts only {devices(before)} and {_all(before)} tainted ({named})"
    else:
        cause = (
            f"{short.subject} accepts {devices(before)}, of which {left} {'is' if left == 1 else 'are'} not tainted,"
        )
        cause += f" and {wants(short)} (the others: {named})"
    key = taints[0].partition("=")[0].partition(":")[0] if taints else ""
    return Finding(cause, f"Add a toleration for `{key}` to the request, or have the taint taken away.")


def _taints(short: Shortage) -> list[str]:
    """The taints that keep the request away, `key=value:effect`, the most frequent first."""
    counted: dict[str, int] = {}
    for device in short.lost:
        for taint in device.taints:
            if taint.effect in KEEPING_AWAY and not short.plan.tolerates(taint):
                text = f"{taint.key}={taint.value}" if taint.value else taint.key
                counted[f"{text}:{taint.effect}"] = counted.get(f"{text}:{taint.effect}", 0) + 1
    return sorted(counted, key=lambda text: (-counted[text], text))


def _large(short: Shortage) -> Finding:
    before = short.before.left
    asked = ", ".join(f"{amount} of `{name}`" for name, amount in short.plan.capacity) or "its least share"
    none = f"none of the {before} devices" if before > 1 else "not even the one device"
    cause = _too_few(
        short,
        of=f"{{}} of the {devices(before)} that {short.subject} accepts can give {asked}",
        none=f"{short.subject} asks for {asked}, and {none} that it accepts can give that much",
    )
    return Finding(cause, "Ask for less, or add devices that are larger.")


def _free(short: Shortage) -> Finding:
    before, left, most = short.before.left, short.stage.left, short.most[short.failing]
    held = "held" if not any(device.published.allow_multiple_allocations for device in short.lost) else "full"
    accepts = f"{short.subject} accepts only {devices(before)}"
    if left == 0:
        cause = f"{accepts} and {_all(before)} {held}"
    elif left < short.wanted or short.plan.everything:
        cause = f"{accepts}, of which {left} {'is' if left == 1 else 'are'} free, and {wants(short)}"
    else:
        cause = f"{short.subject} accepts {devices(before)} and {left} are free, but no node has more than {most} of"
        cause += f" them free, and {wants(short)}"
    return Finding(cause, "Wait until one is given back, accept other devices, or add some.")


def _withheld(short: Shortage) -> str:
    """The pools that cannot be used although the selectors choose devices of theirs."""
    if short.failing <= 1:
        return ""
    return _troubles([trouble for trouble in short.funnel[1].troubles if trouble.matching])


_FINDINGS: Mapping[str, Callable[[Shortage], Finding]] = {
    stages.PUBLISHED: _published,
    stages.COMPLETE: _complete,
    stages.VISIBLE: _visible,
    stages.UNTAINTED: _untainted,
    stages.LARGE: _large,
    stages.FREE: _free,
}
