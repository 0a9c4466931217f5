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


#: What is said where the server was too busy to try anything.
UNKNOWN = "What would start it is unknown: the server is busy. Try again."
#: What is said where requests, nodes or others would have to change, and no single change does.
NO_SINGLE_CHANGE = "No single change tried would start it now."
#: In the place of that, where not enough is known to try any.
NOT_REHEARSED = "What would start it cannot be rehearsed: {}."

#: key, title, next step
TOPICS = {key: Topic(key, title, step) for key, title, step in (
    ("pool", "A pool cannot be used", "Check the driver there: slices are missing or wrong."),
    ("no-devices", "No device is published", "Start a driver for these devices on a node."),
    ("too-few", "Too few devices exist", NO_SINGLE_CHANGE),
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
     "Wait a few seconds; its events then say why."),
    ("volume", "A volume needs a PersistentVolumeClaim",
     "Create the claim, of a StorageClass that provides volumes or with a PersistentVolume for it; its events say what "
     "it lacks."),
    ("group", "Their group is not complete",
     "Create the PodGroup or its missing pods."),
    ("parameters", "The requests of a claim are unknown",
     "Create what the message names."),
    ("gang", "Others of their group do not fit",
     "See what its other pods wait for."),
    ("quota", "A quota is used up", NO_SINGLE_CHANGE),
    ("claim-deleting", "A claim is being deleted",
     "Create it again once it is gone, or name another one."),
    ("claim-not-own", "A claim belongs to another pod",
     "Delete the claim of that name, if nothing needs it."),
    ("claim-busy", "A claim cannot be used now", "Wait until it can be used, or name another one."),
    ("claim-elsewhere", "A claim is allocated on another node", NO_SINGLE_CHANGE),
    ("room", "Nodes lack resources", NO_SINGLE_CHANGE),
    ("error", "A selector fails", "Fix the expression of its class."),
    ("claim-wrong", "A claim cannot be met as written", "Fix the claim."),
    ("stopped", "The search for devices was stopped",
     "It is tried again. Simpler selectors or fewer devices per claim help."),
    ("no-nodes", "There is no node", "Add a node."),
    ("gated", "Scheduling gates hold them", NO_SINGLE_CHANGE),
    ("nodes", "No node takes them", NO_SINGLE_CHANGE),
    ("binding", "Devices are being attached",
     "Wait for the driver; its log has details."),
    ("binding-failed", "Devices could not be attached",
     "Other devices are tried; the driver's log has the reason."),
    ("claim-refused", "The claim for extended resources is refused",
     "Ask for less, or have the quota or policy changed."),
    ("driver", "Drivers decide about their claims",
     "Wait for the drivers' controllers; their logs have details."),
    ("unallocatable", "Nobody allocates their claims",
     "Create the class, or have its feature gate enabled."),
    ("retry", "The last attempt failed", "The scheduler retries them."),
    ("not-placed", "They fit, but are not placed", "See whether their scheduler runs, and what it logs of them."),
    ("not-judged", "Why they wait cannot be judged", "See what their scheduler says in their events."),
    ("turn", "Waiting for their turn", "The scheduler tries them next."),
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
    causes.VolumeClaimNotCreated: "claim-not-created",
    causes.VolumeClaimUnusable: "volume",
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
    causes.NotPlaced: "not-placed",
    causes.NotJudged: "not-judged",
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
    "NodeName": "Name an existing node in `spec.nodeName`, or none.",
    "NodePorts": "Ask for another `hostPort`, or end the pod that has it.",
    "PodTopologySpread": "Add nodes, or use `whenUnsatisfiable: ScheduleAnyway`.",
    "GangTopology": "Wait for free devices there, or only prefer that topology.",
    "InterPodAffinity": "Change its affinity or anti-affinity, or move the other pods.",
}
_NEXT_OF_FAULT = {
    Fault.NO_SUCH_KEY: 'Check first whether the device has it: `"NAME" in device.attributes["DOMAIN"] && ...`.',
    Fault.RUNTIME: "Change the selector to have a value for every device.",
    Fault.COMPILE: "Fix the expression of the class.",
    Fault.FEATURE: "Remove the field, or have the feature gate enabled.",
    Fault.POOL: "Check the pool's driver: slices are missing or wrong.",
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
        case causes.NotJudged(forbidden=True):
            found = "Ask somebody who may list them, or ask for a role that may."
        case causes.NotPlaced(scheduler=scheduler, silent=True):
            found = f"Start `{scheduler}`: its Lease is overdue."
        case causes.NotPlaced(scheduler=scheduler):
            found = f"See whether `{scheduler}` runs, and what it logs of the pod."
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
        trouble = (
            "slices of its pool are missing" if cause.worst_pool.trouble == "incomplete" else "its pool is invalid"
        )
        return f"Check driver `{cause.worst_pool.driver}`: {trouble}."
    if isinstance(cause, causes.TooSmall) and cause.unpublished:
        return "Ask for a capacity that devices publish."
    return ""
