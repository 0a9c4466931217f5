"""Why there are too few devices, in plain words: the part of `claims.causes.messages.clause` about devices. PURE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from claims.causes import causes
from claims.causes.causes import NotSelected, NotTogether, RefusingOperand, TooFew

#: What the claim for a pod's extended resources is called before it is written; no claim in the API can have this name.
EXTENDED_RESOURCES = "<extended-resources>"


def shortage(cause: TooFew | NotTogether, *, names_claim: bool = False) -> str:
    """names_claim: for readers who do not see which claim it is about."""
    if isinstance(cause, NotTogether):
        return _conflict(cause)
    text = _CLAUSES[type(cause)](cause, f"request `{cause.request}`{_of_claim(cause.claim) if names_claim else ''}")
    if cause.pools and not isinstance(cause, causes.PoolsUnusable):
        text = f"{_troubles(cause)}, and {text}"
    return text if cause.nodes is None else f"{text} (on {cause.nodes[0]} of {cause.nodes[1]} nodes)"


def _of_claim(claim: str) -> str:
    if claim.endswith(f"/{EXTENDED_RESOURCES}"):
        return " for its extended resources"
    return f" of claim `{claim}`"


def _devices(count: int) -> str:
    return f"{count} device" if count == 1 else f"{count} devices"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _all_are(count: int) -> str:
    """`all 12 are`, `both are`, `it is`: taking up what was just counted."""
    return {1: "it is", 2: "both are"}.get(count, f"all {count} are")


def _wants(cause: TooFew) -> str:
    if cause.everything:
        return "it asks for all of them"
    return f"it wants {cause.wanted}" + (" on one node" if cause.wanted > 1 and not cause.node else "")


def _leaves(cause: TooFew, *, of: str, none: str) -> str:
    """`only 2 of ...`, or that no node has enough though the nodes together do."""
    if cause.left == 0:
        return none
    if cause.left < cause.wanted:
        return f"{of.format(f'only {cause.left}')}, and {_wants(cause)}"
    return f"{of.format(cause.left)}, but no node has more than {cause.most} of them, and {_wants(cause)}"


def _published(cause: TooFew, subject: str) -> str:
    if not cause.left:
        return f"no node publishes a device yet, and {subject} wants {cause.wanted}"
    return f"{subject} wants {cause.wanted}, and only {_devices(cause.left)} {_are(cause.left)} published"


def _unusable(cause: causes.PoolsUnusable, subject: str) -> str:
    if cause.everything:
        return f"{subject} asks for all devices, and which these are cannot be known: {_troubles(cause)}"
    if cause.accepted:
        those = f"the {cause.accepted} that it accepts are" if cause.accepted > 1 else "the only one that it accepts is"
        pools = "a pool" if len(cause.pools) + cause.more_pools == 1 else "pools"
        return (
            f"{subject} wants {_devices(cause.wanted)}, and {those} in {pools} that cannot be used: {_troubles(cause)}"
        )
    rest = "every published device is in a pool that cannot be used"
    if cause.left:
        rest = f"only {cause.left} of the {cause.before} published {_are(cause.left)} in a pool that can be used"
    return f"{subject} wants {_devices(cause.wanted)}, and {rest}: {_troubles(cause)}"


def _troubles(cause: TooFew) -> str:
    named = [f"pool `{one.driver}/{one.name}` is {one.trouble} ({one.detail})" for one in cause.pools]
    return "; ".join([*named, f"so are {cause.more_pools} more"] if cause.more_pools else named)


def _not_visible(cause: TooFew, subject: str) -> str:
    where, see, do = "the nodes in question", "see", "do"
    if cause.node:
        where, see, do = f"node `{cause.node}`", "sees", "does"
    none = f"{where} {see} none of the {cause.before} in the cluster"
    if cause.before == 1:
        none = f"{where} {do} not see the only one in the cluster"
    wanting = f"{subject} wants {_devices(cause.wanted)}, and {none}"
    return _leaves(cause, of=f"{where} {see} {{}} of the {_devices(cause.before)} in the cluster", none=wanting)


def _not_selected(cause: NotSelected, subject: str) -> str:
    who, verb = (f"class `{cause.class_name}` of {subject}", "select") if cause.by_class else (subject, "accept")
    pool = f"the {f'{cause.before} devices' if cause.before > 1 else 'one device'} {_candidates(cause)}"
    none = f"{who} {verb}s none of {pool}" if cause.before > 1 else f"{who} does not {verb} {pool}"
    text = _leaves(cause, of=f"{who} {verb}s {{}} of {pool}", none=none)
    if cause.operand is None:
        return f"{text}: {selector_name(cause)} is `{cause.expression}`"
    return f"{text}: {_operand(cause.operand, cause.before - cause.left, some_left=bool(cause.left))}"


def _candidates(cause: NotSelected) -> str:
    """Which devices were left before the selector."""
    if cause.of_class and not cause.by_class:
        return f"of class `{cause.class_name}`"
    return f"that node `{cause.node}` sees" if cause.node else "that these nodes see"


def selector_name(cause: NotSelected) -> str:
    return f"selector {cause.selector}" if cause.selector else "the selector"


def _operand(operand: RefusingOperand, refused: int, *, some_left: bool) -> str:
    """What the operand asks, whom it refuses, and what the devices have there."""
    who = f"{operand.refuses} of them"
    if operand.refuses_all:
        who = f"the other {refused}" if some_left else {1: "it", 2: "both"}.get(refused, f"all {refused}")
    has = _has(operand, refused) if operand.all_asked else ""
    return f"`{operand.text}` refuses {who}" + (f"; {has}" if has else "")


def _has(operand: RefusingOperand, refused: int) -> str:
    if not operand.values:
        return ""
    if len(operand.values) == 1 and not operand.more_values:
        return f"{'it has' if refused == 1 else 'they have'} {operand.values[0][0]}"
    if operand.operator in (">", ">=") and operand.greatest:
        return f"the most any of them has is {operand.greatest}"
    if operand.operator in ("<", "<=") and operand.least:
        return f"the least any of them has is {operand.least}"
    listed = [f"{value} ({count})" for value, count in operand.values]
    last = "others" if operand.more_values else listed.pop()
    return f"they have {', '.join(listed)} and {last}"


def _tainted(cause: causes.Tainted, subject: str) -> str:
    rules = (*(by_rule(*rule) for rule in cause.rules), *("" for _ in cause.taints))
    named = ", ".join(
        (f"`{key}={value}:{effect}`" if value else f"`{key}:{effect}`") + (f" by {rule}" if rule else "")
        for (key, value, effect), rule in zip(cause.taints, rules, strict=False)
    )
    if not cause.left:
        return f"{subject} accepts only {_devices(cause.before)} and {_all_are(cause.before)} tainted ({named})"
    some = f"of which {cause.left} {_are(cause.left)} not tainted, and {_wants(cause)} (the others: {named})"
    return f"{subject} accepts {_devices(cause.before)}, {some}"


def by_rule(name: str, more: int) -> str:
    """Which rules put a taint on devices; "" where none does."""
    if not name:
        return ""
    return f"DeviceTaintRule `{name}`" + (f" and {more} more" if more else "")


def _too_small(cause: causes.TooSmall, subject: str) -> str:
    asked = ", ".join(f"{amount} of `{name}`" for name, amount in cause.capacity) or "its least share"
    if cause.unpublished:
        few = cause.before == 1
        none = "the one device that it accepts does not publish" if few else (
            f"none of the {cause.before} devices that it accepts publishes"
        )  # fmt: skip
        named = " or ".join(f"`{name}`" for name in cause.unpublished)
        return f"{subject} asks for {asked}, and {none} capacity {named}"
    none = f"none of the {cause.before} devices" if cause.before > 1 else "not even the one device"
    return _leaves(
        cause,
        of=f"{{}} of the {_devices(cause.before)} that {subject} accepts can give {asked}",
        none=f"{subject} asks for {asked}, and {none} that it accepts can give that much",
    )


def _in_use(cause: causes.DevicesInUse, subject: str) -> str:
    room = f"{_amounts(cause.takes)} left{_defaults(cause)}" if cause.takes else ""
    if cause.left == 0 and room and cause.held:
        shared = cause.before - cause.held
        which = "the other does not have" if shared == 1 else f"none of the other {shared} has"
        held = f"{cause.held} {_are(cause.held)} held"
        return f"{subject} accepts only {_devices(cause.before)}: {held}, and {which} {room}"
    if cause.left == 0 and room:
        which = {1: "it does not have", 2: "neither has"}.get(cause.before, f"none of the {cause.before} has")
        return f"{subject} accepts only {_devices(cause.before)}, and {which} {room}"
    if cause.left == 0:
        held = "full" if cause.shared else "held"
        return f"{subject} accepts only {_devices(cause.before)} and {_all_are(cause.before)} {held}"
    free = f"{_are(cause.left)} free" + (f" or {'has' if cause.left == 1 else 'have'} {room}" if room else "")
    if not cause.is_scattered:
        return f"{subject} accepts only {_devices(cause.before)}, of which {cause.left} {free}, and {_wants(cause)}"
    few = f"but no node has more than {cause.most} of them{'' if room else ' free'}, and {_wants(cause)}"
    return f"{subject} accepts {_devices(cause.before)} and {cause.left} {free}, {few}"


def _amounts(takes: Sequence[tuple[str, str]]) -> str:
    *others, last = (f"{amount} of `{name}`" if amount else f"enough `{name}`" for name, amount in takes)
    return f"{', '.join(others)} and {last}" if others else last


def _defaults(cause: causes.DevicesInUse) -> str:
    """What of the amounts the request does not say itself."""
    if not cause.by_default:
        return ""
    names = " and ".join(f"`{name}`" for name in cause.by_default)
    return f" (for {names} that is the default, because the request does not say how much)"


_CLAUSES: Mapping[type[TooFew], Callable[[Any, str], str]] = {
    causes.TooFewPublished: _published,
    causes.PoolsUnusable: _unusable,
    causes.NotVisible: _not_visible,
    causes.NotSelected: _not_selected,
    causes.Tainted: _tainted,
    causes.TooSmall: _too_small,
    causes.DevicesInUse: _in_use,
}


_CONFLICTS: Mapping[type[NotTogether], str] = {
    NotTogether: "each request has enough devices for itself, but not all of them together",
    causes.RequestsCompete: "its requests want {0.wanted} devices together, and only {0.serving} of the free ones serve"
    " them",
}


def _conflict(cause: NotTogether) -> str:
    match cause:
        case causes.NoCommonValue(most=0):
            of = f"none of the devices that claim `{cause.claim}` accepts has `{cause.attribute}`"
            return f"{of}, which must be the same for {cause.wanted}"
        case causes.NoCommonValue():
            same = f"claim `{cause.claim}` wants {cause.wanted} devices with the same `{cause.attribute}`"
            if len(cause.requests) > 1:
                *others, last = (f"`{one}`" for one in cause.requests)
                named = f"{', '.join(others)} and {last}"
                return f"{same} for requests {named}, and no value has free ones for more than {cause.most} of them"
            share = "no two" if cause.most == 1 else f"no more than {cause.most}"
            return f"{same}, and {share} of the free ones share a value"
        case causes.CountersExhausted():
            return _counters(cause)
        case causes.ConstraintsUnmet():
            rules = " and ".join(f"`{one}`" for one in cause.constraints)
            return f"no devices that claim `{cause.claim}` accepts satisfy {rules} together"
        case causes.TooFewValues():
            have = f"the free ones have only {cause.values} value{'' if cause.values == 1 else 's'}"
            text = f"claim `{cause.claim}` wants {cause.wanted} devices that differ in `{cause.attribute}`, and "
            text += have if cause.values else "none of the free ones has it"
        case causes.RequestsCompete(claim=claim) if claim:
            serve = "1 device serves" if cause.serving == 1 else f"{cause.serving} devices serve"
            text = f"the requests of claim `{claim}` want {cause.wanted} devices together, and only {serve} them; "
            text += "no claim gets a device twice, not even with admin access"
        case _:
            text = _CONFLICTS[type(cause)].format(cause)
    return text


def _counters(cause: causes.CountersExhausted) -> str:
    drawing = f"the {cause.accepted} devices that request `{cause.request}` accepts draw on shared counters"
    if cause.accepted == 1:
        drawing = f"the one device that request `{cause.request}` accepts draws on shared counters"
    left = f"serves {f'only {cause.served}' if cause.served else 'none'} of them"
    if cause.served is None:
        left = f"does not serve {cause.wanted} of them together"
    elif cause.accepted == 1:
        left = "does not serve it"
    text = f"{drawing}, and what is left of these {left}"
    if not cause.unpublished:
        return text
    names = " and ".join(f"`{name}`" for name in cause.unpublished)
    are, draw = ("is", "draws") if len(cause.unpublished) == 1 else ("are", "draw")
    return f"{text}: {names} {are} held and still {draw} on them, though not published any more"
