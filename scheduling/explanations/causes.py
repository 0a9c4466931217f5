"""Causes that are no matter of devices, each with its next step: holds, nodes that do not fit, errors. PURE."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from scheduling.allocator.sentences import Finding
from scheduling.policy import Refusal
from scheduling.reasons import Hold, Reason

#: What to do about the refusals of a plugin.
NEXT_OF_PLUGIN = {
    "NodeUnschedulable": "Let a node take pods again (`kubectl uncordon NODE`), or add one.",
    "NodeName": "Name a node that exists in `spec.nodeName`, or leave the choice to the scheduler.",
    "TaintToleration": "Add a toleration to the pod, or take the taint off a node.",
    "NodeAffinity": "Change the pod's nodeSelector or node affinity, or label a node as it asks.",
    "NodeResourcesFit": "Ask for less, or wait until pods on a node end.",
    "DynamicResources": "Let the pod run where its claim is allocated, or give it another claim.",
}
NEXT_OF_HOLD = (
    (Reason.GATED, "Whoever set the gates takes them off `spec.schedulingGates` when the pod may start."),
    (Reason.CLASS_MISSING, "Create that DeviceClass, or name one that exists (`kubectl get deviceclasses`)."),
    (Reason.CLAIM_MISSING, "Create the claim, or name one that exists. One from a template is made within seconds."),
    (Reason.CLAIM_BUSY, "Wait until the claim can be used, or give the pod another one."),
)
_NEXT_OF_ERROR = (
    (
        r"CEL runtime error: no such key",
        'Let the selector ask first whether the device has it (`"NAME" in device.attributes["DOMAIN"] && ...`).',
    ),
    (r"CEL runtime error", "Change the selector so that it can be answered for every device that reaches it."),
    (r"CEL compile error", "Mend the expression; the page of the class shows at once which devices it selects."),
    (r"device ?class", "Create that DeviceClass, or name one that exists (`kubectl get deviceclasses`)."),
    (r"feature", "Leave the field out, or have the feature gate switched on."),
    (r"resource pool|invalid resource pools", "Look at the driver of the pool: it has to publish it whole."),
)


def of_hold(hold: Hold) -> Finding:
    """What keeps a pod from being tried at all."""
    cause = hold.message
    if Reason.GATED in hold.reasons:
        cause = "its scheduling gates are not removed yet"
    next_step = next((text for reason, text in NEXT_OF_HOLD if reason in hold.reasons), "")
    return Finding(cause, next_step)


def of_nodes(refused: Mapping[str, Iterable[Refusal]], *, nodes: int) -> Finding:
    """No node takes the pod, whatever devices there are."""
    if not nodes:
        return Finding("there is no node yet", "Start a node agent, or register a Node.")
    found = [refusal for refusals in refused.values() for refusal in refusals]
    counted = Counter(refusal.message for refusal in found)
    parts = [_plain(text, count) for text, count in counted.most_common()]
    plugin = Counter(refusal.plugin for refusal in found).most_common(1)[0][0] if found else ""
    who = "the only node does not take" if nodes == 1 else f"none of the {nodes} nodes takes"
    return Finding(f"{who} it: {'; '.join(parts)}", NEXT_OF_PLUGIN.get(plugin, ""))


def _plain(text: str, count: int) -> str:
    """`node(s) were unschedulable` -> `2 nodes were unschedulable`."""
    rest = text.removeprefix("node(s) ")
    if rest == text:
        return f"{text[:1].lower()}{text[1:]} on {count} node{'' if count == 1 else 's'}"
    return f"1 node {re.sub('^were ', 'was ', rest)}" if count == 1 else f"{count} nodes {rest}"


def of_error(text: str) -> Finding:
    """A claim, class, selector or pool is wrong."""
    lowered = text.lower()
    step = next((step for pattern, step in _NEXT_OF_ERROR if re.search(pattern.lower(), lowered)), "Mend the claim.")
    return Finding(f"there is an error to mend: {' '.join(text.split())}", step)


def of_undecided(trials: int) -> Finding:
    cause = f"the search for devices was stopped after {trials} tries without an answer"
    return Finding(cause, "It is tried again. Fewer devices or constraints in one claim make it easier.")
