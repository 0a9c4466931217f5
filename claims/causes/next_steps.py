"""What a cause is about, for lists of many pods, and what only people outside of the cluster can do about it. PURE.

Steps that the scheduler can rehearse (other requests, repairs, room that others make) are `insight.advice`'s, which
comes here when none of them would start the pod. So nothing here promises that a pod then starts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from claims.causes import causes
from claims.causes.causes import (
    AnyCause,
    Fault,
    NodeRefusal,
    NoNodeFits,
    NotTogether,
    OfNode,
    TooFew,
)


@dataclass(frozen=True, slots=True)
class Topic:
    """What several pods wait for. key: as the address of a page names it; next_step: where nothing that can be
    rehearsed helps, and no cause says more."""

    key: str
    title: str
    next_step: str


#: What is said where requests, nodes or others would have to change, and no single change does.
NO_SINGLE_CHANGE = "No single change that was tried would start it now. What if tries several at once, and more nodes."

#: key, title, next step
TOPICS = {key: Topic(key, title, step) for key, title, step in (
    ("pool", "A pool cannot be used", "Check the driver on that node: it has to publish every slice of its pool."),
    ("no-devices", "No device is published", "Start a node agent with a driver for these devices."),
    ("too-few", "Fewer devices exist than are asked for", NO_SINGLE_CHANGE),
    ("tainted", "The devices are tainted", NO_SINGLE_CHANGE),
    ("one-node", "Too few devices on one node", NO_SINGLE_CHANGE),
    ("few-free", "Too few matching devices are free", NO_SINGLE_CHANGE),
    ("held", "Every matching device is held", NO_SINGLE_CHANGE),
    ("size", "The devices are too small", NO_SINGLE_CHANGE),
    ("selector", "The selectors leave too few devices", NO_SINGLE_CHANGE),
    ("elsewhere", "The devices are on other nodes", NO_SINGLE_CHANGE),
    ("together", "Requests cannot be met together", NO_SINGLE_CHANGE),
    ("class-missing", "A DeviceClass does not exist", NO_SINGLE_CHANGE),
    ("claim-missing", "A claim does not exist", NO_SINGLE_CHANGE),
    ("claim-not-created", "A claim from a template is not created yet",
     "Nothing, if the pod is new: its claim is created within seconds. Otherwise its events say why it is refused."),
    ("volume", "A volume needs a PersistentVolumeClaim",
     "PersistentVolumeClaims are not served here: create the pod again with another volume (`emptyDir`, `hostPath`,"
     " `configMap`, `secret`)."),
    ("group", "Their group is not complete",
     "Create the PodGroup, or the pods that it lacks: either all are placed together, or none."),
    ("parameters", "The requests of a claim are unknown",
     "Create what the message names; its driver makes the ResourceClaimParameters of a vendor's object."),
    ("gang", "Others of their group do not fit",
     "See what the other pods of the group wait for: either all are placed together, or none."),
    ("quota", "A quota is used up", NO_SINGLE_CHANGE),
    ("claim-deleting", "A claim is being deleted",
     "Create it again once it is gone, or give the pod another one."),
    ("claim-not-own", "A claim belongs to another pod",
     "Delete the claim that has the name, if nothing needs it, so that the pod gets its own."),
    ("claim-busy", "A claim cannot be used now", "Wait until the claim can be used, or give the pod another one."),
    ("claim-elsewhere", "A claim is allocated on another node", NO_SINGLE_CHANGE),
    ("room", "Nodes are full", NO_SINGLE_CHANGE),
    ("error", "A selector fails", "Fix the expression; the page of its class shows what it selects."),
    ("claim-wrong", "A claim cannot be met as it is written", "Fix the claim."),
    ("stopped", "The search for devices was stopped",
     "It is tried again. Simpler selectors, and fewer devices or constraints in one claim, make it easier."),
    ("no-nodes", "There is no node", "Start a node agent, or register a Node."),
    ("gated", "Scheduling gates hold them", NO_SINGLE_CHANGE),
    ("nodes", "No node takes them", NO_SINGLE_CHANGE),
    ("binding", "Devices are being attached",
     "Wait: the driver attaches them and reports it in the claim's status. See the driver's log for details."),
    ("binding-failed", "Devices could not be attached",
     "Nothing: the scheduler tries other devices. See the driver's log for the reason."),
    ("claim-refused", "The claim for extended resources is refused",
     "Ask for less, or have the quota or policy changed that refuses it."),
    ("driver", "Drivers decide about their claims",
     "Wait: the drivers' controllers allocate their claims. See their logs for details."),
    ("unallocatable", "Nobody allocates their claims",
     "Create the class that the message names, or have the feature gate that it names enabled: until then nobody"
     " allocates the claim."),
    ("retry", "The last attempt failed", "Nothing: the scheduler retries them."),
    ("turn", "Waiting for their turn", "Nothing: the scheduler tries them next."),
)}  # fmt: skip

_TOPIC_OF: dict[type[causes.Cause], str] = {
    causes.Gated: "gated",
    causes.ClaimNotCreated: "claim-not-created",
    causes.ClaimNotFound: "claim-missing",
    causes.ClaimBeingDeleted: "claim-deleting",
    causes.ClaimNotForPod: "claim-not-own",
    causes.ClaimInUse: "claim-busy",
    causes.ClaimNotShareable: "claim-busy",
    causes.ClassMissing: "class-missing",
    causes.ParametersMissing: "parameters",
    causes.VolumeClaimMissing: "volume",
    causes.VolumeClaimNotCreated: "volume",
    causes.QuotaUsedUp: "quota",
    causes.GroupMissing: "group",
    causes.GroupIncomplete: "group",
    causes.GroupDoesNotFit: "gang",
    causes.AwaitingBinding: "binding",
    causes.BindingFailed: "binding-failed",
    causes.ClaimNotMade: "claim-refused",
    causes.AwaitingDrivers: "driver",
    causes.NobodyAllocates: "unallocatable",
    causes.Interrupted: "retry",
    causes.SearchStopped: "stopped",
    causes.CannotAllocate: "nodes",
    causes.TooFewPublished: "too-few",
    causes.PoolsUnusable: "pool",
    causes.NotVisible: "elsewhere",
    causes.NotSelected: "selector",
    causes.Tainted: "tainted",
    causes.TooSmall: "size",
    causes.DevicesInUse: "held",
}
_TOPIC_OF_FAULT = {
    Fault.CLASS: "class-missing", Fault.POOL: "pool", Fault.FEATURE: "claim-wrong", Fault.CLAIM: "claim-wrong"
}  # fmt: skip
_TOPIC_OF_PLUGIN = {"DynamicResources": "claim-elsewhere", "NodeResourcesFit": "room"}
#: Where nodes refuse a pod for several reasons: those that say more than "nodes", the first that is among them.
_MORE_THAN_NODES = ("claim-elsewhere", "room", "pool", "stopped")


def topic_of(cause: AnyCause | None) -> Topic:
    """None: the pod was not tried yet."""
    return TOPICS["turn" if cause is None else _topic(cause)]


def _topic(cause: AnyCause) -> str:
    match cause:
        case NoNodeFits(because=because) if because is not None:
            return _topic(because)
        case NoNodeFits():
            found = {_topic(one) for one, _ in cause.refused}
            return next((key for key in _MORE_THAN_NODES if key in found), "nodes" if cause.nodes else "no-nodes")
        case NodeRefusal():
            return _TOPIC_OF_PLUGIN.get(cause.plugin, "nodes")
        case causes.Misconfigured():
            return _TOPIC_OF_FAULT.get(cause.fault, "error")
        case TooFew():
            return _topic_of_few(cause)
    return "together" if isinstance(cause, NotTogether) else _TOPIC_OF[type(cause)]


def _topic_of_few(cause: TooFew) -> str:
    if cause.pools:
        return "pool"
    if isinstance(cause, causes.TooFewPublished):
        return "too-few" if cause.left else "no-devices"
    if cause.is_scattered and not isinstance(cause, causes.Tainted):
        return "one-node"
    return "few-free" if isinstance(cause, causes.DevicesInUse) and cause.left else _TOPIC_OF[type(cause)]


#: What to do about the refusals of a plugin that are not rehearsed.
_NEXT_OF_PLUGIN = {
    "NodeName": "Name a node that exists in `spec.nodeName`, or leave the choice to the scheduler.",
    "NodePorts": "Ask for another `hostPort`, or for none; or end the pod that has it.",
    "PodTopologySpread": "Wait until the others are spread, add nodes, or use `whenUnsatisfiable: ScheduleAnyway`.",
    "GangTopology": "Wait until devices come free there, or prefer that topology instead of requiring it.",
    "InterPodAffinity": "Change the pod's affinity or anti-affinity, or move the pods that it refers to.",
}
_NEXT_OF_FAULT = {
    Fault.NO_SUCH_KEY: 'Let the selector check first whether the device has it (`"NAME" in device.attributes["DOMAIN"]'
    " && ...`).",
    Fault.RUNTIME: "Change the selector so that it can be answered for every device that reaches it.",
    Fault.COMPILE: "Fix the expression; the page of the class shows at once which devices it selects.",
    Fault.FEATURE: "Remove the field, or have the feature gate enabled.",
    Fault.POOL: "Check the driver of the pool: it has to publish the complete pool.",
}


def outside(cause: AnyCause) -> str:
    """What to do about it where nothing that can be rehearsed helps: a sentence of its own."""
    found = ""
    match cause:
        case NoNodeFits(because=because) if because is not None:
            return outside(because)
        case NoNodeFits() if cause.refused:
            return outside(_commonest(cause))
        case NodeRefusal():
            found = _NEXT_OF_PLUGIN.get(cause.plugin, "")
        case causes.Misconfigured():
            found = _NEXT_OF_FAULT.get(cause.fault, "")
        case TooFew():
            found = _next_of_few(cause)
    return found or topic_of(cause).next_step


def _commonest(cause: NoNodeFits) -> OfNode:
    """A refusal of the plugin that refuses most."""
    counted: Counter[str] = Counter()
    for one, count in cause.refused:
        counted[_plugin(one)] += count
    plugin = counted.most_common(1)[0][0]
    return next(one for one, _ in cause.refused if _plugin(one) == plugin)


def _plugin(one: OfNode) -> str:
    return one.plugin if isinstance(one, NodeRefusal) else ""


def _next_of_few(cause: TooFew) -> str:
    if cause.worst_pool is not None:
        whole = "slices that are missing" if cause.worst_pool.trouble == "incomplete" else "pool without the fault"
        return f"Check driver `{cause.worst_pool.driver}`: it has to publish the {whole}."
    if isinstance(cause, causes.TooSmall) and cause.unpublished:
        return "Ask for a capacity that devices publish: their pages list them. Or add devices that have this one."
    return ""
