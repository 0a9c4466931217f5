"""The text of each cause: for the condition, the event, explanations and pages. PURE.

`message` has kube-scheduler's words, for the condition and the event. `clause` says it in plain words: it has no
capital and no final stop, so that it can follow "It waits because"; names and expressions stand in backticks. Its part
about devices is `shortage`. `brief` is the line of a list. Next steps are in `claims.causes.next_steps`.
Upstream: pkg/scheduler/framework/types.go (FitError), and of plugins/ dynamicresources, nodename, nodeunschedulable,
tainttoleration, nodeaffinity, noderesources, nodeports, podtopologyspread, interpodaffinity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from claims.causes import causes
from claims.causes.causes import (
    AnyCause,
    Ineligible,
    NodeRefusal,
    NoNodeFits,
    NotSelected,
    NotTogether,
    OfNode,
    RefusingOperand,
    TooFew,
)
from manciple.durations import duration

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
    return f"{count:,} device" if count == 1 else f"{count:,} devices"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _needs(cause: TooFew, subject: str) -> str:
    """How most clauses begin: `request `gpu` needs 8 on one node`."""
    if cause.everything:
        return f"{subject} needs all"
    return f"{subject} needs {cause.wanted:,}" + (" on one node" if _on_one_node(cause) else "")


def _on_one_node(cause: TooFew) -> bool:
    return cause.wanted > 1 and not cause.node and not cause.everything


def _every(count: int) -> str:
    """`all 24 matching devices are`, `the only matching device is`."""
    return {1: "the only matching device is", 2: "both matching devices are"}.get(
        count, f"all {count:,} matching devices are"
    )


def _best(cause: TooFew) -> str:
    return f"the best node has {cause.most:,}"


def _some(cause: TooFew, adjective: str) -> str:
    """How many of the devices are so: on the best node where one has to have them all."""
    if _on_one_node(cause):
        return f"{_best(cause)} {adjective}"
    return f"only {cause.left:,} of {cause.before:,} matching devices {_are(cause.left)} {adjective}"


def _published(cause: TooFew, subject: str) -> str:
    published = f"only {cause.left:,} {_are(cause.left)} published" if cause.left else "no device is published yet"
    return f"{_needs(cause, subject)}; {published}"


def _unusable(cause: causes.PoolsUnusable, subject: str) -> str:
    which = "no published device is usable"
    if cause.everything:
        which = "how many there are is unknown"
    elif cause.accepted:
        which = "the only match is unusable" if cause.accepted == 1 else f"the {cause.accepted:,} matches are unusable"
    elif cause.left:
        which = f"only {cause.left:,} of {cause.before:,} published devices {_are(cause.left)} usable"
    return f"{_needs(cause, subject)}; {which}: {_troubles(cause)}"


def _troubles(cause: TooFew) -> str:
    named = [f"pool `{one.driver}/{one.name}` is {one.trouble} ({one.detail})" for one in cause.pools]
    return "; ".join([*named, f"so are {cause.more_pools:,} more"] if cause.more_pools else named)


def _not_visible(cause: TooFew, subject: str) -> str:
    needs = _needs(cause, subject)
    if cause.before == 1:
        return f"{needs}; the only published device is on another node"
    if cause.left >= cause.wanted:
        return f"{needs}; the best node sees {cause.most:,} of the {cause.before:,} published"
    who = f"node `{cause.node}` sees" if cause.node else "these nodes see"
    return f"{needs}; {who} {f'only {cause.left:,}' if cause.left else 'none'} of the {cause.before:,} published"


def _not_selected(cause: NotSelected, subject: str) -> str:
    if cause.is_scattered and cause.by_class:
        return f"{_needs(cause, subject)}; {_best(cause)} of class `{cause.class_name}`"
    who, verb = (f"class `{cause.class_name}` of {subject}", "select") if cause.by_class else (subject, "accept")
    pool = f"the {f'{cause.before:,} devices' if cause.before > 1 else 'one device'} {_candidates(cause)}"
    text = f"{who} {verb}s none of {pool}" if cause.before > 1 else f"{who} does not {verb} {pool}"
    if cause.is_scattered:
        text = f"{_needs(cause, subject)}; {_best(cause)} that {selector_name(cause)} accepts"
    elif cause.left:
        text = f"{who} {verb}s only {cause.left:,} of {pool}, and {_needs(cause, 'it')}"
    if cause.operand is None:
        return f"{text}: {selector_name(cause)} is `{cause.expression}`"
    return f"{text}: {_operand(cause.operand, cause.before - cause.left, some_left=bool(cause.left))}"


def _candidates(cause: NotSelected) -> str:
    """Which devices were left before the selector."""
    seen = f"that node `{cause.node}` sees" if cause.node else "that these nodes see"
    return f"of class `{cause.class_name}` {seen}" if cause.of_class and not cause.by_class else seen


def selector_name(cause: NotSelected) -> str:
    return f"selector {cause.selector}" if cause.selector else "the selector"


def _operand(operand: RefusingOperand, refused: int, *, some_left: bool) -> str:
    """The operand, the devices it refuses, and the values they have instead."""
    who = f"{operand.refuses:,} of them"
    if operand.refuses_all:
        who = f"the other {refused:,}" if some_left else {1: "it", 2: "both"}.get(refused, f"all {refused:,}")
    has = _has(operand, refused) if operand.all_asked else ""
    return f"`{operand.text}` refuses {who}" + (f"; {has}" if has else "")


def _has(operand: RefusingOperand, refused: int) -> str:
    if not operand.values:
        return ""
    if len(operand.values) == 1 and not operand.more_values:
        return f"{'it has' if refused == 1 else 'they have'} {operand.values[0][0]}"
    if operand.operator in (">", ">=") and operand.greatest:
        return f"the most is {operand.greatest}"
    if operand.operator in ("<", "<=") and operand.least:
        return f"the least is {operand.least}"
    listed = [f"{value} ({count:,})" for value, count in operand.values]
    last = "others" if operand.more_values else listed.pop()
    return f"they have {', '.join(listed)} and {last}"


def _tainted(cause: causes.Tainted, subject: str) -> str:
    rules = (*(by_rule(*rule) for rule in cause.rules), *("" for _ in cause.taints))
    named = ", ".join(
        (f"`{key}={value}:{effect}`" if value else f"`{key}:{effect}`") + (f" by {rule}" if rule else "")
        for (key, value, effect), rule in zip(cause.taints, rules, strict=False)
    )
    if not cause.left:
        return f"{_needs(cause, subject)}; {_every(cause.before)} tainted ({named})"
    return f"{_needs(cause, subject)}; {_some(cause, 'untainted')} (the others: {named})"


def by_rule(name: str, more: int) -> str:
    """Which rules put a taint on devices; "" where none does."""
    if not name:
        return ""
    return f"DeviceTaintRule `{name}`" + (f" and {more} more" if more else "")


def _too_small(cause: causes.TooSmall, subject: str) -> str:
    asked = ", ".join(f"{amount} of `{name}`" for name, amount in cause.capacity) or "the smallest share"
    needs = f"{_needs(cause, subject)} with {asked}"
    if cause.unpublished:
        return (
            f"{needs}; no matching device publishes capacity {' or '.join(f'`{name}`' for name in cause.unpublished)}"
        )
    if not cause.left:
        return f"{needs}; {'the only matching device' if cause.before == 1 else 'each matching device'} has less"
    return f"{needs}; {_some(cause, 'large enough')}"


def _in_use(cause: causes.DevicesInUse, subject: str) -> str:
    room = f"{_amounts(cause.takes)} left{_defaults(cause)}" if cause.takes else ""
    needs = _needs(cause, subject)
    if cause.left and room:
        if _on_one_node(cause):
            have = "is free or has" if cause.most == 1 else "are free or have"
            return f"{needs}; the best node has {cause.most:,} that {have} {room}"
        have = "is free or has" if cause.left == 1 else "are free or have"
        return f"{needs}; only {cause.left:,} of {cause.before:,} matching devices {have} {room}"
    if cause.left:
        return f"{needs}; {_some(cause, 'free')}"
    if not room:
        return f"{needs}; {_every(cause.before)} {'full' if cause.shared else 'held'}"
    if cause.held:
        held = f"{cause.held} of {cause.before:,} matching devices {_are(cause.held)} held"
        shared = cause.before - cause.held
        rest = "the other does not have" if shared == 1 else f"none of the other {shared} has"
        return f"{needs}; {held}, and {rest} {room}"
    which = {1: "the only matching device does not have", 2: "neither matching device has"}
    return f"{needs}; {which.get(cause.before, f'none of the {cause.before:,} matching devices has')} {room}"


def _amounts(takes: Sequence[tuple[str, str]]) -> str:
    *others, last = (f"{amount} of `{name}`" if amount else f"enough `{name}`" for name, amount in takes)
    return f"{', '.join(others)} and {last}" if others else last


def _defaults(cause: causes.DevicesInUse) -> str:
    """What of the amounts the request does not say itself."""
    if not cause.by_default:
        return ""
    names = " and ".join(f"`{name}`" for name in cause.by_default)
    return f" (the default of {names})"


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
    NotTogether: "each request fits by itself, but not all together",
}


def _conflict(cause: NotTogether) -> str:
    match cause:
        case causes.NoCommonValue():
            same = f"claim `{cause.claim}` needs {cause.wanted:,} devices with the same `{cause.attribute}`"
            if not cause.most:
                return f"{same}; no matching device has it{_meant(cause)}"
            if len(cause.requests) > 1:
                *others, last = (f"`{one}`" for one in cause.requests)
                same += f" for requests {', '.join(others)} and {last}"
            return f"{same}; {'no two' if cause.most == 1 else f'at most {cause.most:,}'} free ones share a value"
        case causes.CountersExhausted():
            return _counters(cause)
        case causes.ConstraintsUnmet():
            rules = " and ".join(f"`{one}`" for one in cause.constraints)
            return f"no devices that claim `{cause.claim}` accepts satisfy {rules} together"
        case causes.TooFewValues():
            have = f"the free ones have only {cause.values} value{'' if cause.values == 1 else 's'}"
            text = f"claim `{cause.claim}` needs {cause.wanted:,} devices that differ in `{cause.attribute}`; "
            text += have if cause.values else f"no free one has it{_meant(cause)}"
        case causes.RequestsCompete(claim=claim) if claim:
            serve = f"only {_devices(cause.serving)} serve{'s' if cause.serving == 1 else ''} them"
            text = f"the requests of claim `{claim}` need {cause.wanted:,} devices; {serve}, "
            text += "and no claim gets a device twice, not even with admin access"
        case causes.RequestsCompete():
            serve = "device serves" if cause.serving == 1 else "devices serve"
            text = f"its requests need {cause.wanted} devices; only {cause.serving} free {serve} them"
        case _:
            text = _CONFLICTS[type(cause)].format(cause)
    return text


def _meant(cause: causes.NoCommonValue | causes.TooFewValues) -> str:
    return f", but they have `{cause.meant}`" if cause.meant else ""


def _counters(cause: causes.CountersExhausted) -> str:
    which = f"any of the {cause.accepted:,} devices"
    if cause.accepted == 1:
        which = "the only device"
    elif cause.served is None:
        which = f"{cause.wanted:,} of the {cause.accepted:,} devices"
    elif cause.served:
        which = f"more than {cause.served} of the {cause.accepted:,} devices"
    text = f"shared counters have no room for {which} that request `{cause.request}` accepts"
    if not cause.unpublished:
        return text
    names = " and ".join(f"`{name}`" for name in cause.unpublished)
    are, draw = ("is", "draws") if len(cause.unpublished) == 1 else ("are", "draw")
    return f"{text}: {names} {are} held and still {draw} on them, though unpublished"


SCHEDULER_NAME = "default-scheduler"

NO_NODES, CANNOT_ALLOCATE = "no nodes available to schedule pods", "cannot allocate all claims"
CLAIM_IN_USE, DEALLOCATED = "resourceclaim in use", "deallocation of ResourceClaim completed"
STILL_NOT_SCHEDULABLE, NO_NEW_CLAIMS = "still not schedulable", "no new claims to deallocate"

#: Characters that a dominant reason may have: condition and event must hold it with what stands around it.
LONGEST_DETAIL = 700


def sentence(clause: str) -> str:
    """A clause as a sentence without its final stop, of bounded length. A resource's name stays as it is."""
    text = clause if len(clause) <= LONGEST_DETAIL else f"{clause[: LONGEST_DETAIL - 1]}…"
    first = text.partition(" ")[0]
    return text if "." in first else text[:1].upper() + text[1:]


def assigned(pod: str, node: str) -> str:
    """The text of a Scheduled event; pod: `namespace/name`."""
    return f"Successfully assigned {pod} to {node}"


# Kubernetes' words ---------------------------------------------------------------------------------------------------

#: plugin, and its part where it has several -> what it has against a node: what follows "node(s)"
_AGAINST_NODE = {
    "NodeUnschedulable": "were unschedulable",
    "NodeName": "didn't match the requested node name",
    "TaintToleration": "had untolerated taint {{{key}: {value}}}",
    "NodeAffinity": "didn't match Pod's node affinity/selector",
    "VolumeBinding": "didn't match PersistentVolume's node affinity",
    "NodePorts": "didn't have free ports for the requested pod ports",
    "PodTopologySpread": "didn't match pod topology spread constraints",
    "PodTopologySpread missing-label": "didn't match pod topology spread constraints (missing required label)",
    "GangTopology": "didn't match the topology of the pod's gang ({key}={value})",
    "InterPodAffinity affinity": "didn't match pod affinity rules",
    "InterPodAffinity anti-affinity": "didn't match pod anti-affinity rules",
    "InterPodAffinity existing-anti-affinity": "didn't satisfy existing pods anti-affinity rules",
}


#: cause -> its words, to be formatted with it
_MESSAGES: Mapping[type[causes.Cause], str] = {
    causes.Gated: "Scheduling is blocked due to non-empty scheduling gates",
    causes.ClaimNotCreated: 'pod "{0.pod}": ResourceClaim for {0.entry} not created yet',
    causes.ClaimNotFound: 'resourceclaim.resource.k8s.io "{0.name}" not found',
    causes.ClaimBeingDeleted: 'resourceclaim "{0.name}" is being deleted',
    causes.ClaimNotForPod: "ResourceClaim {0.claim} was not created for pod {0.pod} (pod is not owner)",
    causes.ClaimInUse: CLAIM_IN_USE,
    causes.ClaimNotShareable: "node allocatable resource claim {0.name} has a mapped device and cannot be shared across"
    " pods",
    causes.ClassMissing: "request {0.request}: device class {0.name} does not exist",
    causes.ParametersMissing: "resourceclaim {0.name}: {0.detail}",
    causes.VolumeClaimMissing: 'persistentvolumeclaim "{0.name}" not found',
    causes.VolumeClaimNotCreated: "waiting for ephemeral volume controller to create the persistentvolumeclaim "
    '"{0.name}"',
    causes.VolumeClaimUnusable: "{0.message}",
    causes.QuotaUsedUp: "exceeded quota: {0.quota}, requested: {0.key}={0.requested}, used: {0.key}={0.used}, limited: "
    "{0.key}={0.hard}",
    causes.GroupMissing: 'waiting for pods\'s pod group "{0.name}" to appear in scheduling queue',
    causes.GroupIncomplete: "waiting for minCount pods from a gang to appear in scheduling queue",
    causes.GroupDoesNotFit: "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled",
    causes.AwaitingBinding: "waiting for binding conditions for device on node {0.node}",
    causes.ClaimNotMade: 'running PreBind plugin "DynamicResources": create claim for extended resources '
    "{0.pod}: {0.error}",
    **dict.fromkeys((causes.AwaitingDrivers, causes.NobodyAllocates), "{0.message}"),
    **dict.fromkeys((causes.Interrupted, causes.Misconfigured), "{0.error}"),
    causes.SearchStopped: "allocation undecided: the search stopped after {0.trials} device trials",
    causes.CannotAllocate: CANNOT_ALLOCATE,
    causes.PreemptionNotHelpful: "Preemption is not helpful for scheduling",
    causes.NoVictims: "No preemption victims found for incoming pod",
}
#: What preemption answers instead of nodes.
_NOT_ELIGIBLE = {
    Ineligible.POLICY: "not eligible due to preemptionPolicy=Never.",
    Ineligible.WAITING: "not eligible due to a terminating pod on the nominated node.",
    Ineligible.UNDECIDED: "the search for victims was stopped.",
}


def message(cause: AnyCause | causes.PreemptionNotHelpful | causes.NoVictims) -> str:
    """What condition and event say."""
    if isinstance(cause, NoNodeFits):
        return _no_node_fits(cause)
    if isinstance(cause, NodeRefusal):
        return _refusal(cause)
    if isinstance(cause, (TooFew, NotTogether)):
        return f"{CANNOT_ALLOCATE}: {clause(cause, names_claim=True)}"
    if isinstance(cause, causes.BindingFailed):
        return f'running PreBind plugin "DynamicResources": {_binding_failed(cause)}'
    return _in_special_case(cause) or _MESSAGES[type(cause)].format(cause)


def _in_special_case(cause: object) -> str:
    if isinstance(cause, causes.ClaimInUse) and cause.claim:
        return f"{CLAIM_IN_USE}: {cause.claim} {_as_many_as_may(cause)}"
    if isinstance(cause, causes.NotPlaced):
        return _not_placed(cause)
    if isinstance(cause, causes.NotJudged):
        return f"it cannot be judged: {'; '.join(cause.why)}"
    if isinstance(cause, causes.SearchStopped):
        return f"timed out trying to allocate devices{_stopped(cause)}" if cause.timed_out else ""
    if isinstance(cause, causes.GroupDoesNotFit) and (cause.annotated or cause.where) and not cause.room:
        return (
            f"gang {cause.name}: {cause.placed} of the {cause.wanted:,} pods that it needs fit at once{_where(cause)}"
        )
    waits = isinstance(cause, causes.GroupDoesNotFit) and cause.room
    return "pod group is unschedulable, pod group is waiting for preemption to complete" if waits else ""


def _not_placed(cause: causes.NotPlaced) -> str:
    named = ", ".join(f"`{one}`" for one in cause.nodes)
    more = f" and {cause.more} more" if cause.more else ""
    waits = f" for {duration(cause.seconds)}" if cause.seconds else ""
    silent = ", and does not renew its Lease" if cause.silent else ""
    return f"it fits{f' on {named}{more}' if named else ''}; `{cause.scheduler}` has not placed it{waits}{silent}"


def _as_many_as_may(cause: causes.ClaimInUse) -> str:
    if cause.most == 1:
        return "is in use by another pod, and cannot be shared"
    return f"is in use by {cause.most:,} pods, the most that can share a claim"


def _stopped(cause: causes.SearchStopped) -> str:
    if not cause.claims:
        return ""
    why = " because pods of other namespaces waited" if cause.others_waited else ""
    return f": stopped after {cause.seconds:g} s at claim {cause.claims}{why}"


def _binding_failed(cause: causes.BindingFailed) -> str:
    if cause.timed_out:
        return f"device binding timeout: claim={cause.claim}"
    return f'device binding failed: claim={cause.claim}, reason={cause.reason}, message="{cause.detail}"'


def _where(cause: causes.GroupDoesNotFit) -> str:
    if not cause.where:
        return ""
    return f" on {cause.where}" + (f", the best of {cause.domains}" if cause.domains > 1 else "")


def _refusal(refusal: NodeRefusal) -> str:
    if against := _against(refusal):
        return f"node(s) {against}"
    if refusal.plugin == "NodeResourcesFit":
        return "Too many pods" if refusal.key == "pods" else f"Insufficient {refusal.key}"
    if refusal.plugin == "PodLevelResources":
        return (
            f"pod level request for {refusal.key} is insufficient to cover the aggregated container and "
            "node-allocatable DRA requests"
        )
    if refusal.plugin == "DynamicResources":
        return refusal.value or "resourceclaim not available on the node"
    return refusal.value or f"node(s) didn't pass {refusal.plugin}"  # an extension of the scheduler says it itself


def _against(refusal: NodeRefusal) -> str:
    """ "" for a plugin that is about something else than the node."""
    text = _AGAINST_NODE.get(f"{refusal.plugin} {refusal.key}") or _AGAINST_NODE.get(refusal.plugin, "")
    return text.format(key=refusal.key, value=refusal.value)


def _no_node_fits(cause: NoNodeFits) -> str:
    """`0/3 nodes are available: 1 node(s) were unschedulable, 2 cannot allocate all claims. still not schedulable`."""
    if cause.nodes == 0 and cause.because is None:
        return NO_NODES
    text = f"0/{cause.nodes} nodes are available:"
    if cause.refused:
        text += f" {_listed(cause.refused)}."
    if cause.because is not None and not isinstance(cause.because, (TooFew, NotTogether)):
        text += f" {message(cause.because)}."
        return f"{text} {_post_filter(cause)}" if isinstance(cause.preemption, causes.Unhelpful) else text
    if not isinstance(cause.preemption, causes.Evicting):
        text += f" {_post_filter(cause)}"
    if cause.because is None:
        return text
    # Kubernetes' sentences come first, as it writes them; ours follows.
    return f"{text.removesuffix('.')}. {sentence(clause(cause.because, names_claim=True))}."


def _post_filter(cause: NoNodeFits) -> str:
    """What was tried to make room: a claim that was in the way, then pods that are."""
    found = NO_NEW_CLAIMS if cause.without_claims else STILL_NOT_SCHEDULABLE
    if cause.deallocated:
        return DEALLOCATED
    match cause.preemption:
        case causes.NotEligible(because=because):
            return f"{found}, preemption: {_NOT_ELIGIBLE[because]}"
        case causes.Unhelpful(nodes=nodes):
            return f"{found}, preemption: 0/{cause.nodes} nodes are available: {_listed(nodes)}."
    return found


def _listed(counted: Iterable[tuple[AnyCause | causes.PreemptionNotHelpful | causes.NoVictims, int]]) -> str:
    """Nodes of which the same is told count together, whatever else is known of them."""
    total: Counter[str] = Counter()
    for one, count in counted:
        total[message(one)] += count
    return ", ".join(sorted(f"{count:,} {text}" for text, count in total.items()))


def brief(cause: AnyCause | None, *, names_claim: bool = True) -> str:
    """One sentence. names_claim: for readers who do not see which claim lacks devices."""
    return "" if cause is None else f"{sentence(_gist(cause, names_claim=names_claim))}."


def _gist(cause: AnyCause, *, names_claim: bool) -> str:
    """The message without what those of many pods begin and end with."""
    if not isinstance(cause, NoNodeFits):
        return clause(cause, names_claim=names_claim)
    if isinstance(cause.because, (TooFew, NotTogether)):
        return clause(cause.because, names_claim=names_claim)
    return clause(cause.because) if cause.because else _listed(cause.refused) or NO_NODES


# Plain words ---------------------------------------------------------------------------------------------------------


#: Causes that are told in plainer words than Kubernetes'.
_PLAINER: Mapping[type[causes.Cause], str] = {
    causes.Gated: "its scheduling gates are not removed yet",
    causes.ClaimNotCreated: "its claim for `{0.entry}` is not created yet",
    causes.ClaimNotFound: "its claim `{0.name}` does not exist",
    causes.ClaimBeingDeleted: "its claim `{0.name}` is being deleted",
    causes.ClaimNotForPod: "claim `{0.claim}` was not created for it",
    causes.ClaimInUse: "its claim is in use by as many pods as can share it",
    causes.ClassMissing: "class `{0.name}` of request `{0.request}` does not exist",
    causes.VolumeClaimMissing: "its volume `{0.volume}` names PersistentVolumeClaim `{0.name}`, which does not exist",
    causes.VolumeClaimNotCreated: "the claim of its ephemeral volume `{0.volume}` is not created yet",
    causes.VolumeClaimUnusable: "its volume `{0.volume}` cannot be mounted: {0.message}",
    causes.SearchStopped: "the search for devices stopped after {0.trials} tries",
    causes.GroupMissing: "its PodGroup `{0.name}` does not exist",
    causes.GroupIncomplete: "its group `{0.name}` has {0.pods} of {0.wanted} pods",
    causes.GroupDoesNotFit: "only {0.placed} of {0.wanted} pods of its group `{0.name}` fit at once",
}


def why_it_waits(cause: AnyCause, *, names_claim: bool = False) -> str:
    """A whole sentence. names_claim: as in `clause`."""
    text = clause(cause, names_claim=names_claim)
    return f"{sentence(text)}." if isinstance(cause, causes.OfOthers) else f"It waits because {text}."


def clause(cause: AnyCause, *, names_claim: bool = False) -> str:
    """What follows "It waits because"; of a pod of another scheduler a whole sentence (`why_it_waits`).

    names_claim: for readers who do not see which claim it is about.
    """
    match cause:
        case TooFew() | NotTogether():
            return shortage(cause, names_claim=names_claim)
        case NoNodeFits(because=because):
            return _nodes(cause) if because is None else clause(because, names_claim=names_claim)
        case causes.QuotaUsedUp(quota=quota, entry=entry):
            full = f"quota `{quota}` is full: {cause.used} of {cause.hard} `{cause.key}`"
            if cause.used != cause.hard:
                use = f"{cause.used} of {cause.hard} `{cause.key}` used"
                full = f"quota `{quota}` is too small: {use}, {cause.requested} more needed"
            return f"its claim for `{entry}` is refused: {full}" if entry else full
        case causes.AwaitingDrivers(message=text, drivers=[*others, last]):
            who = f"drivers `{'`, `'.join(others)}` and `{last}` decide" if others else f"driver `{last}` decides"
            return f"{text}: {who} where it fits"
        case causes.Misconfigured(error=error):
            return f"there is an error: {' '.join(error.split())}"
    plainer = _PLAINER.get(type(cause))
    if isinstance(cause, causes.ClaimInUse) and cause.claim:
        plainer = f"its claim `{cause.claim}` {_as_many_as_may(cause)}"
    if isinstance(cause, causes.SearchStopped) and cause.timed_out:
        plainer = f"the search for devices stopped{_stopped(cause).removeprefix(': stopped')}"
    text = plainer.format(cause) if plainer else message(cause)
    return f"{text}{_where(cause)}" if isinstance(cause, causes.GroupDoesNotFit) else text


def preemption_clause(cause: causes.OfPreemption) -> str:
    """Whom a pod that waits would evict, or why nobody. Without capital and final stop."""
    match cause:
        case causes.Evicting():
            return _evicting(cause)
        case causes.NotEligible(because=because):
            return _PLAIN_NOT_ELIGIBLE[because]
        case causes.Unhelpful(nodes=nodes):
            why = "; ".join(_not_helped(one, count) for one, count in nodes)
            return f"preemption would not help: {why or 'there is no node'}"


_PLAIN_NOT_ELIGIBLE = {
    Ineligible.POLICY: "it evicts nobody: its preemptionPolicy is `Never`",
    Ineligible.WAITING: "it evicts nobody else while pods on its nominated node end",
    Ineligible.UNDECIDED: "the search for pods to evict continues with the next attempt",
}


def _evicting(cause: causes.Evicting) -> str:
    if not cause.victims and not cause.more:
        return f"pods that are being deleted make room for it on node `{cause.node}`"
    named = [f"`{one.namespace}/{one.name}` (priority {one.priority})" for one in cause.victims]
    if cause.more:
        others = "more" if named else "of other namespaces"
        named.append(f"{cause.more} pod{'' if cause.more == 1 else 's'} {others}")
    listed = " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    return f"it evicts {listed} from node `{cause.node}`"


def _not_helped(one: OfNode | causes.PreemptionNotHelpful | causes.NoVictims, count: int) -> str:
    nodes = "1 node" if count == 1 else f"{count:,} nodes"
    if isinstance(one, causes.PreemptionNotHelpful):
        return f"{nodes} would not take it even if other pods left"
    if isinstance(one, causes.NoVictims):
        return f"{nodes} {'has' if count == 1 else 'have'} no less important pods"
    if isinstance(one, causes.CannotAllocate):
        return f"{nodes} {'lacks' if count == 1 else 'lack'} devices even without less important pods"
    return f"even without less important pods, {of_nodes(one, count)}"


def _nodes(cause: NoNodeFits) -> str:
    """No node takes the pod, whatever devices there are."""
    if not cause.nodes:
        return "there is no node yet"
    return f"no node takes it: {'; '.join(of_nodes(one, count) for one, count in cause.refused)}"


def of_nodes(one: OfNode, count: int) -> str:
    """`2 nodes are cordoned`, `insufficient cpu on 1 node`: a cordon is called what the node's page calls it."""
    nodes = "1 node" if count == 1 else f"{count:,} nodes"
    if isinstance(one, NodeRefusal) and _against(one):
        if one.plugin == "NodeUnschedulable":
            return f"{nodes} {'is' if count == 1 else 'are'} cordoned"
        return f"{nodes} {_against(one)}"
    text = message(one)
    return f"{text[:1].lower()}{text[1:]} on {nodes}"
