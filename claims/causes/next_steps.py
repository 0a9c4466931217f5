"""What a cause is about, for lists of many pods, and what to do next about it. PURE.

One table has the title and the next step of every topic; where a cause knows more (which taint, which driver, what the
devices have), `next_step` says more.
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
    NotSelected,
    NotTogether,
    OfNode,
    RefusingOperand,
    TooFew,
)
from claims.causes.messages import by_rule, selector_name


@dataclass(frozen=True, slots=True)
class Topic:
    """What several pods wait for. key: as the address of a page names it; next_step: where no cause says more."""

    key: str
    title: str
    next_step: str


#: key, title, next step
TOPICS = {key: Topic(key, title, step) for key, title, step in (
    ("pool", "A pool cannot be used", "Check the driver on that node: it has to publish every slice of its pool."),
    ("no-devices", "No device is published", "Start a node agent with a driver for these devices."),
    ("too-few", "Fewer devices exist than are asked for", "Ask for fewer devices, or add some."),
    ("tainted", "The devices are tainted", "Add a toleration to the request, or have the taint removed."),
    ("one-node", "Too few devices on one node",
     "Ask for fewer on one node, or wait until enough are released on one node."),
    ("few-free", "Too few matching devices are free", "Wait until more are released, or ask for fewer."),
    ("held", "Every matching device is held", "Wait until one is released, accept other devices, or add some."),
    ("size", "The devices are too small", "Ask for less, or add devices that are larger."),
    ("selector", "The selectors leave too few devices", "Loosen the selector that refuses them."),
    ("elsewhere", "The devices are on other nodes",
     "Let the pod run on nodes that have such devices, or add some to its nodes."),
    ("together", "Requests cannot be met together",
     "Drop or loosen the constraints between the devices, or accept more devices."),
    ("class-missing", "A DeviceClass does not exist",
     "Create that DeviceClass, or name one that exists: the list of classes has them."),
    ("claim-missing", "A claim does not exist",
     "Create the claim, or name one that exists."),
    ("claim-not-created", "A claim from a template is not created yet",
     "Wait: it is created within seconds, unless its template is missing or a quota refuses it (see the pod's page)."),
    ("volume", "A volume needs a PersistentVolumeClaim",
     "PersistentVolumeClaims are not served here: create the pod again with another volume (`emptyDir`, `hostPath`,"
     " `configMap`, `secret`)."),
    ("group", "Their group is not complete",
     "Create the PodGroup, or the pods that it lacks: either all are placed together, or none."),
    ("parameters", "The requests of a claim are unknown",
     "Create what the message names; its driver makes the ResourceClaimParameters of a vendor's object."),
    ("gang", "Others of their group do not fit",
     "See what the other pods of the group wait for: either all are placed together, or none."),
    ("quota", "A quota is used up",
     "Wait until claims of the namespace release devices, ask for fewer, or have the quota raised."),
    ("claim-deleting", "A claim is being deleted",
     "Create it again once it is gone, or give the pod another one."),
    ("claim-not-own", "A claim belongs to another pod",
     "Delete the claim that has the name, if nothing needs it, so that the pod gets its own."),
    ("claim-busy", "A claim cannot be used now", "Wait until the claim can be used, or give the pod another one."),
    ("claim-elsewhere", "A claim is allocated on another node",
     "Let the pod run where its claim is allocated, or give it another claim."),
    ("room", "Nodes are full", "Ask for less, or wait until pods on a node end."),
    ("error", "A selector fails", "Fix the expression; the page of its class shows what it selects."),
    ("claim-wrong", "A claim cannot be met as it is written", "Fix the claim."),
    ("stopped", "The search for devices was stopped",
     "It is tried again. Simpler selectors, and fewer devices or constraints in one claim, make it easier."),
    ("no-nodes", "There is no node", "Start a node agent, or register a Node."),
    ("gated", "Scheduling gates hold them",
     "Whoever set the gates removes them from `spec.schedulingGates` when the pod may start."),
    ("nodes", "No node takes them", "The pod's page shows why each node was rejected."),
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


#: What to do about the refusals of a plugin.
_NEXT_OF_PLUGIN = {
    "NodeUnschedulable": "Uncordon a node on its page, or add one.",
    "NodeName": "Name a node that exists in `spec.nodeName`, or leave the choice to the scheduler.",
    "TaintToleration": "Add a toleration to the pod, or remove the taint from a node.",
    "NodeAffinity": "Change the pod's nodeSelector or node affinity, or label a node as it asks.",
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


def next_step(cause: AnyCause) -> str:
    """What to do next about it: a sentence of its own."""
    found = ""
    match cause:
        case NoNodeFits(because=because) if because is not None:
            return next_step(because)
        case NoNodeFits() if cause.refused:
            return next_step(_commonest(cause))
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
    found = ""
    if cause.worst_pool is not None:
        whole = "slices that are missing" if cause.worst_pool.trouble == "incomplete" else "pool without the fault"
        found = f"Check driver `{cause.worst_pool.driver}`: it has to publish the {whole}."
    elif isinstance(cause, causes.Tainted):
        found = _tolerate(cause)
    elif isinstance(cause, causes.TooSmall) and cause.unpublished:
        found = "Ask for a capacity that devices publish: their pages list them. Or add devices that have this one."
    elif cause.is_scattered and not isinstance(cause, causes.DevicesInUse):
        found = f"Ask for {cause.most} or fewer, the most that a node has; or add such devices to one node."
    elif isinstance(cause, NotSelected):
        simple = cause.operand is not None and not cause.by_class and not cause.left
        found = (simple and cause.operand and _instead(cause.operand)) or _loosen(cause)
    elif cause.most and not cause.everything and not isinstance(cause, causes.DevicesInUse):
        found = f"Ask for {cause.most} or fewer, or add such devices."
    elif not isinstance(cause, causes.TooFewPublished):
        found = TOPICS[_TOPIC_OF[type(cause)]].next_step
    return found


def _tolerate(cause: causes.Tainted) -> str:
    rule = by_rule(*cause.rules[0]) if cause.rules else ""
    remove = f"delete {rule}" if rule else "have the taint removed: its driver put it there"
    return f"Add a toleration for `{cause.taints[0][0]}` to the request, or {remove}."


def _instead(operand: RefusingOperand) -> str:
    """What could be asked for instead, where the devices say so."""
    if operand.operator in (">", ">=") and operand.greatest:
        return f"Ask for {operand.greatest} or less, or add devices that have more `{operand.subject}`."
    if operand.operator in ("<", "<=") and operand.least:
        return f"Allow {operand.least} or more, or add devices that have less `{operand.subject}`."
    if operand.operator == "==" and operand.values:
        instead = f"`{operand.subject} == {operand.values[0][0]}`"
        return f"Ask for what there is, such as {instead}, or add devices with {operand.limit}."
    return ""


def _loosen(cause: NotSelected) -> str:
    name = selector_name(cause)
    if cause.by_class and cause.most:
        added = f"add devices that class `{cause.class_name}` selects"
        return f"Ask for {cause.most} or fewer, ask for another class, or {added}."
    if cause.by_class:
        return f"Change {name} of class `{cause.class_name}`, ask for another class, or add devices that it selects."
    fewer = f"Ask for {cause.most} or fewer, loosen" if cause.most else "Loosen"
    return f"{fewer} {name} of request `{cause.request}`, or add devices that it accepts."
