"""What the scheduler and the plugins say to each other in the claims of one pod, and what comes next. PURE.

The draft has no object for the conversation: it stands in the status of each claim. In: the claims of the pod as they
are, and the nodes on which it could run but for them. Out: a `NegotiationStep`: what the scheduler writes into the
claims, and whether the pod goes on waiting, or has a choice of nodes:

    1. a claim that nobody allocates yet is told the potential nodes            -> its plugin answers with suitable ones
    2. once every such claim has a suitable node in common, that is selected    -> the plugins allocate, or unset it
    3. what is allocated leaves some nodes; where it leaves none, or none for
       the other claims, an allocation that nobody uses is given up             -> its plugin frees it: Pending again
    4. when all are allocated, the pod is bound, and is entered in usedBy

A node that was selected stands no longer among the potential ones. So a plugin that only unsets it is not asked to
allocate there again before all others were tried. Nothing is written twice: a step that only waits writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from claims.drafts.cdi.rules import can_be_used
from claims.drafts.cdi.values import ALLOCATED, DELAYED, REALLOCATE, ResourceClaim, with_status
from claims.kinds.pods import Pod
from manciple.wire.base import OwnerReference
from manciple.wire.selectors import node_selector_matches

#: node -> its labels
Nodes = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NegotiationStep:
    """waits: why the pod waits; "" where it may be bound to one of `nodes`. writes: the claims as they shall be.

    rests: this attempt has come to nothing, and the next one is made after a rest: what was agreed is given up, all
    nodes are offered once more, or only another node would help.
    """

    waits: str = ""
    rests: bool = False
    writes: tuple[ResourceClaim, ...] = ()
    nodes: frozenset[str] = frozenset()


def next_step(
    pod: Pod,
    claims: Sequence[ResourceClaim],
    nodes: Nodes,
    *,
    exists: Callable[[str], bool],
    plugins: Mapping[str, str],
) -> NegotiationStep:
    """nodes: where the pod could run. exists: whether there is such a node. plugins: the plugin of each class."""
    if waits := _unusable(pod, claims):
        return NegotiationStep(waits=waits)
    given = [claim for claim in claims if claim.status.phase == ALLOCATED]
    left = [name for name, labels in nodes.items() if all(_available(claim, name, labels) for claim in given)]
    wanted = [claim for claim in claims if claim.status.phase != ALLOCATED]
    if not wanted:
        return NegotiationStep(nodes=frozenset(left)) if left else _elsewhere(given, nodes)
    if awaited := [claim for claim in wanted if not _is_open(claim)]:
        return NegotiationStep(waits=_waiting_for(awaited))
    if selected := _selected(wanted):
        return _keep_selection(wanted, selected, exists)
    return _offer(wanted, given, left, nodes, exists=exists, plugins=plugins)


def _unusable(pod: Pod, claims: Sequence[ResourceClaim]) -> str:
    for claim in claims:
        name, mine = claim.metadata.name, any(one.uid == pod.metadata.uid for one in claim.status.used_by)
        if claim.metadata.deletion_timestamp is not None:
            return f'resourceclaim "{name}" is being deleted'
        if claim.status.phase == ALLOCATED and not mine and not can_be_used(claim):
            limit = claim.status.user_limit
            return f'resourceclaim "{name}" is in use: {limit} of {limit} users'
    return ""


def _available(claim: ResourceClaim, node: str, labels: Mapping[str, str]) -> bool:
    selector = claim.status.available_on_nodes
    return selector is None or node_selector_matches(selector, node, labels)


def _is_open(claim: ResourceClaim) -> bool:
    """Whether the scheduler has a say in it now."""
    return claim.spec.allocation_mode == DELAYED and claim.status.phase != REALLOCATE


def _waiting_for(claims: Sequence[ResourceClaim]) -> str:
    claim = min(claims, key=lambda one: one.metadata.name)
    plugin = claim.status.plugin_name or f"class {claim.spec.resource_class_name}"
    done = "free" if claim.status.phase == REALLOCATE else "allocate"
    return f'waiting for resource plugin {plugin} to {done} resourceclaim "{claim.metadata.name}"'


# Step 3 ---------------------------------------------------------------------------------------------------------------


def _elsewhere(given: Sequence[ResourceClaim], nodes: Nodes) -> NegotiationStep:
    """What is allocated leaves none of the nodes: what nobody uses is given up, if that can help."""
    blocking = [
        claim for claim in given if nodes and not all(_available(claim, name, labels) for name, labels in nodes.items())
    ]
    nowhere = "is available on none of the nodes on which the pod could run"
    return _give_up(blocking, otherwise=f"what is allocated for {_names(blocking or given)} {nowhere}")


def _give_up(given: Sequence[ResourceClaim], *, otherwise: str) -> NegotiationStep:
    """What nobody uses of it. otherwise: why the pod waits where all of it is used."""
    idle = [claim for claim in given if not claim.status.used_by and claim.spec.allocation_mode == DELAYED]
    if not idle:
        return NegotiationStep(waits=otherwise, rests=True)
    return NegotiationStep(
        waits=f"what is allocated for {_names(idle)} is given up, to be allocated for another node",
        rests=True,
        writes=tuple(with_status(claim, phase=REALLOCATE) for claim in idle),
    )


def _names(claims: Sequence[ResourceClaim]) -> str:
    return ", ".join(sorted(claim.metadata.name for claim in claims))


# Step 2 ---------------------------------------------------------------------------------------------------------------


def _selected(wanted: Sequence[ResourceClaim]) -> str:
    return next((claim.status.selected_node for claim in wanted if claim.status.selected_node), "")


def _keep_selection(wanted: Sequence[ResourceClaim], selected: str, exists: Callable[[str], bool]) -> NegotiationStep:
    """The plugins have the word. Only a node that is gone is taken back by us: another pod may have selected it."""
    if exists(selected):
        return NegotiationStep(waits=_waiting_for([claim for claim in wanted if claim.status.selected_node]))
    writes = tuple(with_status(one, selected_node="") for one in wanted if one.status.selected_node == selected)
    return NegotiationStep(waits=f"node {selected}, which was selected, is gone", writes=writes)


def _offer(
    wanted: Sequence[ResourceClaim],
    given: Sequence[ResourceClaim],
    left: Sequence[str],
    nodes: Nodes,
    *,
    exists: Callable[[str], bool],
    plugins: Mapping[str, str],
) -> NegotiationStep:
    possible = [name for name in left if all(_suits(claim, name) for claim in wanted)]
    if possible:
        return _select(wanted, possible[0])
    stuck = [claim for claim in wanted if claim.status.suitable_nodes and not set(left) & set(_open_nodes(claim))]
    if given and stuck and (not left or any(set(_open_nodes(claim)) & nodes.keys() for claim in stuck)):
        return _give_up(given, otherwise=f"the other claims of the pod cannot be allocated where {_names(given)} is")
    # Whoever still has a node to try is told of more only where nobody else has to answer: else what it has tried would
    # stand among them again, and be tried for ever.
    without = [claim for claim in wanted if not set(left) & set(_open_nodes(claim))]
    asked = [claim for claim in without or wanted if not set(left) <= set(claim.status.potential_nodes)]
    if not left:
        return NegotiationStep(waits="no node is left on which the pod could run", rests=True)
    plugin = ", ".join(sorted({plugins[claim.spec.resource_class_name] for claim in wanted}))
    return NegotiationStep(
        waits=f"waiting for resource plugin {plugin} to provide information about suitable nodes",
        rests=any(claim.status.suitable_nodes for claim in asked),
        writes=tuple(
            with_status(
                claim,
                potential_nodes=_offered(claim, left, exists),
                plugin_name=plugins[claim.spec.resource_class_name],
            )
            for claim in asked
        ),
    )


def _open_nodes(claim: ResourceClaim) -> tuple[str, ...]:
    """Where its plugin could allocate, without the nodes that were tried."""
    return tuple(name for name in claim.status.suitable_nodes if name in claim.status.potential_nodes)


def _suits(claim: ResourceClaim, node: str) -> bool:
    return node in claim.status.suitable_nodes and node in claim.status.potential_nodes


def _select(wanted: Sequence[ResourceClaim], node: str) -> NegotiationStep:
    writes = tuple(
        with_status(
            claim,
            selected_node=node,
            potential_nodes=tuple(name for name in claim.status.potential_nodes if name != node),
        )
        for claim in wanted
    )
    return NegotiationStep(waits=_waiting_for(wanted), writes=writes)


def _offered(claim: ResourceClaim, left: Sequence[str], exists: Callable[[str], bool]) -> tuple[str, ...]:
    """Those that were offered stay: another pod may wait for the claim there."""
    return tuple(dict.fromkeys((*filter(exists, claim.status.potential_nodes), *left)))


# Step 4 ---------------------------------------------------------------------------------------------------------------


def used_by(claim: ResourceClaim, pod: Pod) -> ResourceClaim:
    """`claim` with the pod among its users; the same value where it is one."""
    if any(one.uid == pod.metadata.uid for one in claim.status.used_by):
        return claim
    user = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid)
    return with_status(claim, used_by=(*claim.status.used_by, user))
