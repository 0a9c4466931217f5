"""How a step (`insight.advice`) is taken in the cluster that is looked at: nothing is written from here."""

from __future__ import annotations

import json
import shlex

from claims.kinds.pods import Pod
from insight.advice import Act, Await, RaiseQuota, RemoveGates, Repair, Request, ServeResource
from manciple.wire.base import ApiObject
from scheduling.rehearsal.repairs import ClosedNode, ForgottenClaim, IncompletePool, TaintingRule


def how(act: Act, about: ApiObject | None) -> str:
    """Where other requests are written: what they stand in cannot be changed, so it is made again, and the pod."""
    if not isinstance(act, Request) or not isinstance(about, Pod):
        return ""
    found = dict.fromkeys(
        f"template `{one.resource_claim_template_name}`"
        if one.resource_claim_template_name
        else f"claim `{one.resource_claim_name}`"
        for one in about.spec.resource_claims
        if act.changes.concern(one.name)
    )
    return f"Create {' and '.join([*found, 'the pod'])} again with that."


def command_of(act: Act, about: ApiObject | None, *, context: str = "") -> str:
    """What to type for it; "" where that is not one command. about: what waits. context: of the kubeconfig, "" for the
    current one.
    """
    match act:
        case RemoveGates() if about is not None:
            meta = about.metadata
            patch = [{"op": "remove", "path": "/spec/schedulingGates"}]
            words = ["patch", "pod", "-n", meta.namespace, meta.name, "--type=json", "-p", json.dumps(patch)]
        case RaiseQuota(namespace=namespace, limits=limits) if len({one.quota for one in limits}) == 1:
            hard = {"spec": {"hard": {one.key: one.to for one in limits}}}
            words = ["patch", "resourcequota", "-n", namespace, limits[0].quota, "--type=merge", "-p", json.dumps(hard)]
        case ServeResource(device_class=name, resource=resource):
            served = {"spec": {"extendedResourceName": resource}}
            words = ["patch", "deviceclass", name, "--type=merge", "-p", json.dumps(served)]
        case Repair(trouble=trouble):
            words = _repairing(trouble)
        case Await(pods=((namespace, name),), claims=()):
            words = ["get", "pod", "-n", namespace, name]
        case _:
            return ""
    chosen = ["--context", context] if context else []
    return shlex.join(["kubectl", *chosen, *words]) if words else ""


def _repairing(trouble: object) -> list[str]:
    match trouble:
        case TaintingRule(name=name):
            return ["delete", "devicetaintrule", name]
        case ClosedNode(node=node, cordoned=True):
            return ["uncordon", node]
        case ClosedNode(node=node):
            return ["describe", "node", node]
        case ForgottenClaim(namespace=namespace, claim=claim):
            return ["delete", "resourceclaim", "-n", namespace, claim]
        case IncompletePool(driver=driver):
            return ["get", "resourceslices", "--field-selector", f"spec.driver={driver}"]
    return []
