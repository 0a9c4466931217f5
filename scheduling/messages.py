"""What the scheduler tells people, worded as kube-scheduler words it.

Upstream: pkg/scheduler/framework/types.go (FitError), plugins/dynamicresources/dynamicresources.go. PURE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

NO_NODES = "no nodes available to schedule pods"
CANNOT_ALLOCATE = "cannot allocate all claims"
CLAIM_NOT_ON_NODE = "resourceclaim not available on the node"
CLAIM_IN_USE = "resourceclaim in use"
DEALLOCATED = "deallocation of ResourceClaim completed"
STILL_NOT_SCHEDULABLE = "still not schedulable"

SCHEDULER_NAME = "default-scheduler"


#: Characters that a dominant reason may have: condition and event must hold it with what stands around it.
LONGEST_DETAIL = 700


def sentence(clause: str) -> str:
    """A clause as a sentence without its final stop, of bounded length. A resource's name stays as it is."""
    text = clause if len(clause) <= LONGEST_DETAIL else f"{clause[: LONGEST_DETAIL - 1]}…"
    first = text.partition(" ")[0]
    return text if "." in first else text[:1].upper() + text[1:]


def no_node_fits(
    *,
    nodes: int,
    node_reasons: Iterable[Iterable[str]] = (),
    pod_reason: str = "",
    detail: str = "",
    post_filter: str = "",
) -> str:
    """`0/3 nodes are available: 1 node(s) were unschedulable, 2 cannot allocate all claims. still not schedulable`.

    node_reasons: for each refused node, what spoke against it. pod_reason: what refused the pod before any node was
    looked at; it stands in place of the nodes' reasons. detail: a clause that says more about the most frequent one.
    post_filter: what PostFilter has to add.
    """
    if nodes == 0 and not pod_reason:
        return NO_NODES
    text = f"0/{nodes} nodes are available:"
    if pod_reason:
        text += f" {pod_reason}."
    elif counted := Counter(reason for reasons in node_reasons for reason in reasons):
        text += f" {', '.join(sorted(f'{count} {reason}' for reason, count in counted.items()))}."
    if detail:
        text += f" {detail}."
    return f"{text} {post_filter}" if post_filter else text


def claim_not_created(pod: str, entry: str) -> str:
    """pod: `namespace/name`; entry: the name in spec.resourceClaims."""
    return f'pod "{pod}": ResourceClaim for {entry} not created yet'


def claim_not_found(name: str) -> str:
    return f'resourceclaim.resource.k8s.io "{name}" not found'


def claim_being_deleted(name: str) -> str:
    return f'resourceclaim "{name}" is being deleted'


def claim_not_for_pod(claim: str, pod: str) -> str:
    """claim and pod: `namespace/name`."""
    return f"ResourceClaim {claim} was not created for pod {pod} (pod is not owner)"


def class_missing(request: str, name: str) -> str:
    return f"request {request}: device class {name} does not exist"


def assigned(pod: str, node: str) -> str:
    """The text of a Scheduled event; pod: `namespace/name`."""
    return f"Successfully assigned {pod} to {node}"
