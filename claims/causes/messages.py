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
    seen = f"that node `{cause.node}` sees" if cause.node else "that these nodes see"
    return f"of class `{cause.class_name}` {seen}" if cause.of_class and not cause.by_class else seen


def selector_name(cause: NotSelected) -> str:
    return f"selector {cause.selector}" if cause.selector else "the selector"


def _operand(operand: RefusingOperand, refused: int, *, some_left: bool) -> str:
    """The operand, the devices it refuses, and the values they have instead."""
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
            return f"{of}, which must be the same for {cause.wanted}{_meant(cause)}"
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
            text += have if cause.values else f"none of the free ones has it{_meant(cause)}"
        case causes.RequestsCompete(claim=claim) if claim:
            serve = "1 device serves" if cause.serving == 1 else f"{cause.serving} devices serve"
            text = f"the requests of claim `{claim}` want {cause.wanted} devices together, and only {serve} them; "
            text += "no claim gets a device twice, not even with admin access"
        case _:
            text = _CONFLICTS[type(cause)].format(cause)
    return text


def _meant(cause: causes.NoCommonValue | causes.TooFewValues) -> str:
    return f"; did you mean `{cause.meant}`?" if cause.meant else ""


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


SCHEDULER_NAME = "default-scheduler"

NO_NODES, CANNOT_ALLOCATE = "no nodes available to schedule pods", "cannot allocate all claims"
CLAIM_IN_USE, DEALLOCATED = "resourceclaim in use", "deallocation of ResourceClaim completed"
STILL_NOT_SCHEDULABLE, NO_NEW_CLAIMS = "still not schedulable", "no new claims to deallocate"
#: Why a volume of a claim never gets one, and what to do.
NO_VOLUME_CLAIMS = (
    "PersistentVolumeClaims are not served here; create the pod again with an emptyDir, hostPath, configMap or secret "
    "volume"
)

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
    causes.VolumeClaimMissing: 'persistentvolumeclaim "{0.name}" not found: volume "{0.volume}" cannot be mounted, '
    f"because {NO_VOLUME_CLAIMS}",
    causes.VolumeClaimNotCreated: 'persistentvolumeclaim "{0.name}" is not created: volume "{0.volume}" cannot be '
    f"mounted, because {NO_VOLUME_CLAIMS}",
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
    if isinstance(cause, causes.SearchStopped):
        return f"timed out trying to allocate devices{_stopped(cause)}" if cause.timed_out else ""
    if isinstance(cause, causes.GroupDoesNotFit) and (cause.annotated or cause.where) and not cause.room:
        return f"gang {cause.name}: {cause.placed} of the {cause.wanted} pods that it needs fit at once{_where(cause)}"
    waits = isinstance(cause, causes.GroupDoesNotFit) and cause.room
    return "pod group is unschedulable, pod group is waiting for preemption to complete" if waits else ""


def _as_many_as_may(cause: causes.ClaimInUse) -> str:
    if cause.most == 1:
        return "is in use by another pod, and cannot be shared"
    return f"is in use by {cause.most} pods, and no more than that can share a claim"


def _stopped(cause: causes.SearchStopped) -> str:
    if not cause.claims:
        return ""
    why = ", because pods of other namespaces were waiting" if cause.others_waited else ""
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
    return ", ".join(sorted(f"{count} {text}" for text, count in total.items()))


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
    causes.ClaimInUse: "its claim is in use by as many pods as may share it",
    causes.ClassMissing: "request `{0.request}` names class `{0.name}`, which does not exist",
    **dict.fromkeys(
        (causes.VolumeClaimMissing, causes.VolumeClaimNotCreated),
        "its volume `{0.volume}` needs PersistentVolumeClaim `{0.name}`, and such claims are not served here",
    ),
    causes.SearchStopped: "the search for devices was stopped after {0.trials} tries without an answer",
    causes.GroupMissing: "its group, PodGroup `{0.name}`, does not exist",
    causes.GroupIncomplete: "its group `{0.name}` has {0.pods} of the {0.wanted} pods that it needs",
    causes.GroupDoesNotFit: "only {0.placed} of the {0.wanted} pods that its group `{0.name}` needs fit at once",
    causes.QuotaUsedUp: "quota `{0.quota}` leaves too little of `{0.key}`: it needs {0.requested}, and {0.used} of "
    "{0.hard} is used",
}


def clause(cause: AnyCause, *, names_claim: bool = False) -> str:
    """What follows "It waits because". names_claim: for readers who do not see which claim it is about."""
    match cause:
        case TooFew() | NotTogether():
            return shortage(cause, names_claim=names_claim)
        case NoNodeFits(because=because):
            return _nodes(cause) if because is None else clause(because, names_claim=names_claim)
        case causes.QuotaUsedUp(entry=entry) if entry:
            return f"its claim for `{entry}` is not made: {_PLAINER[causes.QuotaUsedUp].format(cause)}"
        case causes.AwaitingDrivers(message=text, drivers=[*others, last]):
            who = f"drivers `{'`, `'.join(others)}` and `{last}` decide" if others else f"driver `{last}` decides"
            return f"{text}: where it fits cannot be known, {who}"
        case causes.Misconfigured(error=error):
            return f"there is an error to fix: {' '.join(error.split())}"
    plainer = _PLAINER.get(type(cause))
    if isinstance(cause, causes.ClaimInUse) and cause.claim:
        plainer = f"its claim `{cause.claim}` {_as_many_as_may(cause)}"
    if isinstance(cause, causes.SearchStopped) and cause.timed_out:
        plainer = f"the search for devices was stopped{_stopped(cause).removeprefix(': stopped')}"
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
    Ineligible.WAITING: "it evicts nobody else while pods on its nominated node are being deleted",
    Ineligible.UNDECIDED: "the search for pods to evict was stopped, and goes on with the next attempt",
}


def _evicting(cause: causes.Evicting) -> str:
    if not cause.victims and not cause.more:
        return f"pods that are being deleted make room for it on node `{cause.node}`; nobody is evicted"
    named = [f"`{one.namespace}/{one.name}` (priority {one.priority})" for one in cause.victims]
    if cause.more:
        others = "that are not named here" if named else "of other namespaces"
        named.append(f"{cause.more} pod{'' if cause.more == 1 else 's'} {others}")
    listed = " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    return f"it evicts {listed} from node `{cause.node}`"


def _not_helped(one: OfNode | causes.PreemptionNotHelpful | causes.NoVictims, count: int) -> str:
    nodes = "1 node" if count == 1 else f"{count} nodes"
    if isinstance(one, causes.PreemptionNotHelpful):
        return f"{nodes} would not take it even if other pods left"
    if isinstance(one, causes.NoVictims):
        return f"nobody on {nodes} is less important"
    if isinstance(one, causes.CannotAllocate):
        return f"{nodes} would lack devices even without less important pods"
    return f"even without less important pods, {of_nodes(one, count)}"


def _nodes(cause: NoNodeFits) -> str:
    """No node takes the pod, whatever devices there are."""
    if not cause.nodes:
        return "there is no node yet"
    who = "the only node does not take" if cause.nodes == 1 else f"none of the {cause.nodes} nodes takes"
    return f"{who} it: {'; '.join(of_nodes(one, count) for one, count in cause.refused)}"


def of_nodes(one: OfNode, count: int) -> str:
    """`2 nodes are cordoned`, `insufficient cpu on 1 node`: a cordon is called what the node's page calls it."""
    nodes = "1 node" if count == 1 else f"{count} nodes"
    if isinstance(one, NodeRefusal) and _against(one):
        if one.plugin == "NodeUnschedulable":
            return f"{nodes} {'is' if count == 1 else 'are'} cordoned"
        return f"{nodes} {_against(one)}"
    text = message(one)
    return f"{text[:1].lower()}{text[1:]} on {nodes}"
