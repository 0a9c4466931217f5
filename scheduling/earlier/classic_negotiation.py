"""How scheduler and drivers agree on a node for a pod whose claims drivers' controllers allocate (KEP-3063). PURE.

    a claim of the pod must be reallocated, or its class is missing     -> Hold: no node is asked
    nodes that the class or a driver excludes                           -> refused
    nodes are left that no driver was asked about                       -> `potentialNodes`
    one claim waits, or the drivers have answered for each that does    -> `selectedNode`
    both as the drivers know them already                               -> nothing: they have the turn
    no claim waits any more                                             -> the pod is placed like any other

In: the pod, its claims and its PodSchedulingContext as they are stored, and the nodes that would take the pod. Out: the
spec that its context should have. Nothing is remembered between two attempts, so it matters to nobody when which of
the partners is started anew. A node that a driver has excluded is not listed again: drivers answer for the nodes that
they excluded before, too.

Two things differ from 1.30. A pod with claims of both kinds may get its node selected (there it waits for ever:
kubernetes/kubernetes, plugins/dynamicresources, Reserve). And the selected node stays selected while the pod fits
there, so that the claims of two drivers are not allocated for different nodes.
Source: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go of Kubernetes 1.30.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from msgspec import structs

from claims.causes.causes import AwaitingDrivers, NobodyAllocates, NodeRefusal
from claims.classic.kinds import PodSchedulingContext, PodSchedulingContextSpec
from claims.classic.ownership import controller_of
from claims.classic.rules import NODES_MAX
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import IMMEDIATE, ResourceClaim, is_allocated_by_controller, names_controller
from claims.pod_claims import controlled_by, references, requested_classes
from claims.pod_claims import controller_of as owning_pod
from inventory.classic.values import ResourceClass
from inventory.kinds import gates
from inventory.kinds.devices import DeviceClass
from inventory.kinds.nodes import NodeSelector
from manciple.wire.base import ObjectMeta
from manciple.wire.resources import CLASSES, CONTEXTS, RESOURCE_CLASSES, kind
from manciple.wire.selectors import node_selector_matches
from scheduling.allocator import NodeView
from scheduling.claims.negotiation import NegotiationWrite, NegotiationWrites, Negotiator, StillNegotiating
from scheduling.queue.hints import claim_key, class_key, context_key, resource_class_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.nodes import FilterResult, NodeTable

log = logging.getLogger(__name__)

#: KEP-3063's words: before a node is selected, and after.
WAITING_FOR_INFORMATION = "waiting for resource driver to provide information"
WAITING_FOR_ALLOCATION = "waiting for resource driver to allocate resource"
EXCLUDED_BY_CLASS = NodeRefusal("DynamicResources", "class", "excluded by resource class node filter")
UNSUITABLE = NodeRefusal(
    "DynamicResources", "unsuitable", "resourceclaim cannot be allocated for the node (unsuitable)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedClaim:
    """A claim that a driver is to allocate for the pod. entry: of spec.resourceClaims."""

    entry: str
    claim: ResourceClaim
    driver: str
    #: every one must match a node
    suitable_nodes: tuple[NodeSelector, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextNegotiation:
    """One pod's, as it stands (`scheduling.claims.negotiation.Negotiation`)."""

    pod: Pod
    #: the claims that are not allocated yet, in the order of the pod's entries; empty where all are
    pending: tuple[AwaitedClaim, ...] = ()
    context: PodSchedulingContext | None = None
    #: entry -> the nodes that its driver has excluded; no entry: it has not answered
    unsuitable: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def selected(self) -> str:
        return "" if self.context is None else self.context.spec.selected_node

    @property
    def drivers(self) -> tuple[str, ...]:
        return tuple(sorted({one.driver for one in self.pending}))

    @property
    def awaited(self) -> frozenset[str]:
        """What may bring the negotiation on."""
        if not self.pending:
            return frozenset()
        keys = {context_key(*self.pod.key)}
        for one in self.pending:
            keys.add(claim_key(*one.claim.key))
            if one.claim.spec.resource_class_name:
                keys.add(resource_class_key(one.claim.spec.resource_class_name))
            keys.update(class_key(name) for _, name in requested_classes(one.claim))
        return frozenset(keys)

    def left(self, wanting: Iterable[ResourceClaim]) -> tuple[ResourceClaim, ...]:
        """Those of the claims that the scheduler allocates itself."""
        drivers = {one.claim.metadata.uid for one in self.pending}
        return tuple(claim for claim in wanting if claim.metadata.uid not in drivers)

    def refusal(self, name: str, labels: Mapping[str, str]) -> NodeRefusal | None:
        """What a class or a driver has against the node."""
        for one in self.pending:
            if not all(node_selector_matches(selector, name, labels) for selector in one.suitable_nodes):
                return EXCLUDED_BY_CLASS
            if name in self.unsuitable.get(one.entry, ()):
                return UNSUITABLE
        return None

    def restricted(self, found: FilterResult, nodes: NodeTable) -> FilterResult:
        """`found` without the nodes that are excluded here, those that are refused already too: who leaves them would
        not help the pod.
        """
        refused = dict(found.refused)
        for node in nodes.views if self.pending else ():
            if (why := self.refusal(node.name, node.labels)) is not None:
                refused[node.name] = (why,)
        fitting = tuple(node for node in found.fitting if node.name not in refused)
        return replace(found, fitting=fitting, refused=refused)

    def preferred(self, fitting: tuple[NodeView, ...]) -> tuple[NodeView, ...]:
        """The selected node alone, if it would take the pod; else all of them."""
        return tuple(node for node in fitting if node.name == self.selected) or fitting

    def next_spec(self, node: str, fitting: Sequence[str]) -> PodSchedulingContextSpec:
        """What the context should say. node: the scheduler's choice; fitting: all that would take the pod, of which the
        first are offered where there are too many.
        """
        selected = node if len(self.pending) == 1 or self.is_answered else self.selected
        return PodSchedulingContextSpec(selected_node=selected, potential_nodes=self._potential(node, fitting))

    @property
    def is_answered(self) -> bool:
        """Whether the drivers have said what they exclude, for each claim."""
        return all(one.entry in self.unsuitable for one in self.pending)

    def _potential(self, node: str, fitting: Sequence[str]) -> tuple[str, ...]:
        """Nodes that were offered stay, as long as there is nothing to add."""
        offered = () if self.context is None else self.context.spec.potential_nodes
        known = frozenset(offered)
        new = [name for name in fitting if name not in known]
        if not new:
            return offered
        suiting = frozenset(fitting)
        kept = [name for name in offered if name in suiting][:NODES_MAX]
        added = sorted(new, key=lambda name: name != node)[: NODES_MAX - len(kept)]
        return tuple(sorted((*kept, *added))) if added else offered

    def hold(self, selected: str) -> Hold:
        """selected: the node for which the drivers are to allocate; "" while they are asked which nodes suit."""
        message = WAITING_FOR_ALLOCATION if selected else WAITING_FOR_INFORMATION
        return Hold(reasons=Reason.NEGOTIATION, awaited=self.awaited, cause=AwaitingDrivers(message, self.drivers))

    def next(self, node: str, possible: Callable[[], Sequence[str]]) -> StillNegotiating | NegotiationWrites:
        """What the drivers are told, if there is anything to tell, while the pod waits for them."""
        if not self.pending:
            return () if self.context is None else (_closing(self.context),)
        known = PodSchedulingContextSpec() if self.context is None else self.context.spec
        spec = self.next_spec(node, possible())
        writes = (self._saying(spec),) if self.context is None or spec != known else ()
        return StillNegotiating(hold=self.hold(spec.selected_node), writes=writes)

    def giving_back(self, claims: Iterable[ResourceClaim]) -> NegotiationWrites:
        """Before a driver is asked to deallocate one: it must not allocate for the same node at once."""
        if self.context is None or not self.selected or not any(map(is_allocated_by_controller, claims)):
            return ()
        return (self._saying(structs.replace(self.context.spec, selected_node="")),)

    def _saying(self, spec: PodSchedulingContextSpec) -> NegotiationWrite:
        wanted = new_context(self.pod, spec) if self.context is None else structs.replace(self.context, spec=spec)
        return NegotiationWrite(resource=CONTEXTS, known=self.context, wanted=wanted)


@dataclass(slots=True, eq=False, repr=False)
class ContextNegotiator(Negotiator):
    """The PodSchedulingContexts and classes of the cluster."""

    gate: ClassVar[str] = gates.CONTROL_PLANE_CONTROLLER
    follows: ClassVar[tuple[str, ...]] = (RESOURCE_CLASSES, CONTEXTS, CLASSES)

    _contexts: dict[tuple[str, str], PodSchedulingContext] = field(default_factory=dict)
    _classes: dict[str, ResourceClass] = field(default_factory=dict)
    #: DeviceClass -> the only nodes for pods whose claims a controller has yet to allocate
    _suitable: dict[str, NodeSelector] = field(default_factory=dict)

    def put(self, obj: PodSchedulingContext | ResourceClass | DeviceClass) -> None:
        self.remove(obj)
        if isinstance(obj, PodSchedulingContext):
            self._contexts[obj.key] = obj
        elif isinstance(obj, ResourceClass):
            self._classes[obj.metadata.name] = obj
        elif obj.spec.suitable_nodes is not None:
            self._suitable[obj.metadata.name] = obj.spec.suitable_nodes

    def remove(self, obj: PodSchedulingContext | ResourceClass | DeviceClass) -> None:
        if isinstance(obj, PodSchedulingContext):
            self._contexts.pop(obj.key, None)
        elif isinstance(obj, ResourceClass):
            self._classes.pop(obj.metadata.name, None)
        else:
            self._suitable.pop(obj.metadata.name, None)

    def of(self, pod: Pod, claims: Sequence[ResourceClaim]) -> ContextNegotiation | Hold | None:
        """How it stands between the pod and the drivers of its claims, or what keeps it from every node at once."""
        if not any(map(names_controller, claims)):
            return None
        context = self._contexts.get(pod.key)
        if context is not None and not is_of(context, pod):
            text = (
                f"PodSchedulingContext object with UID {context.metadata.uid} is not owned by Pod {'/'.join(pod.key)}"
            )
            return _hold(text, {context_key(*pod.key)})
        by_name = {claim.metadata.name: claim for claim in claims}
        pending: dict[str, AwaitedClaim] = {}
        for reference in references(pod):
            claim = by_name.get(reference.claim or "")
            if claim is None or claim.status.allocation is not None or not names_controller(claim):
                continue
            found = self._pending(reference.entry, claim)
            if isinstance(found, Hold):
                return found
            if found is not None:
                pending.setdefault(claim.metadata.uid, found)
        answers = () if context is None else context.status.resource_claims
        unsuitable = {answer.name: frozenset(answer.unsuitable_nodes) for answer in answers}
        return ContextNegotiation(pod=pod, pending=tuple(pending.values()), context=context, unsuitable=unsuitable)

    def _pending(self, entry: str, claim: ResourceClaim) -> AwaitedClaim | Hold | None:
        """None: the scheduler allocates the claim."""
        name = claim.spec.resource_class_name
        resource_class = self._classes.get(name)
        if name and resource_class is None:
            missing = NobodyAllocates(f"resource class {name} does not exist")
            return Hold(reasons=Reason.CLASS_MISSING, awaited=frozenset({resource_class_key(name)}), cause=missing)
        driver = controller_of(claim, resource_class)
        if not driver:
            if claim.spec.devices.requests:
                return None
            text = f"resource class {name} has structured parameters, which gate DRAStructuredParametersDraft serves"
            awaited = frozenset({resource_class_key(name)})
            return Hold(reasons=Reason.NEGOTIATION, awaited=awaited, cause=NobodyAllocates(text))
        if claim.spec.allocation_mode == IMMEDIATE:
            return _hold("unallocated immediate resourceclaim", {claim_key(*claim.key)}, drivers=(driver,))
        selectors = [] if resource_class is None else [resource_class.suitable_nodes]
        selectors += [self._suitable.get(device_class) for _, device_class in requested_classes(claim)]
        suitable = tuple(selector for selector in selectors if selector is not None)
        return AwaitedClaim(entry=entry, claim=claim, driver=driver, suitable_nodes=suitable)

    def undecided(self, pod: Pod, claims: Sequence[ResourceClaim]) -> Hold | None:
        talks = self.of(pod, claims)
        if isinstance(talks, ContextNegotiation):
            return talks.hold(talks.selected) if talks.pending else None
        return talks

    @staticmethod
    def while_off(_pod: Pod, claims: Sequence[ResourceClaim]) -> Hold | None:
        """What drivers' controllers have allocated stays in use, and pods with claims that they have not wait."""
        if gates.enabled(gates.STRUCTURED_PARAMETERS_DRAFT):  # which says what it thinks of their classes
            claims = [claim for claim in claims if claim.spec.controller_name]
        for claim in claims:
            if claim.status.allocation is None and names_controller(claim):
                text = f"resourceclaim {claim.metadata.name} is allocated by its driver's controller, and feature gate"
                cause = NobodyAllocates(f"{text} DRAControlPlaneController is off")
                return Hold(reasons=Reason.NEGOTIATION, cause=cause)
        return None

    @staticmethod
    def tell_of_kept(claims: Iterable[ResourceClaim]) -> None:
        if kept := sum(map(is_allocated_by_controller, claims)):
            log.warning(
                "DRAControlPlaneController is off; claims that drivers' controllers have allocated: %d. Their pods "
                "keep running, and no more are allocated; deallocations wait until the feature is on again",
                kept,
            )


def new_context(pod: Pod, spec: PodSchedulingContextSpec) -> PodSchedulingContext:
    """Named as the pod, and owned by it."""
    meta = pod.metadata
    owner = structs.replace(controlled_by(pod), block_owner_deletion=True)
    metadata = ObjectMeta(namespace=meta.namespace, name=meta.name, owner_references=(owner,))
    context_kind = kind(CONTEXTS)
    return PodSchedulingContext(
        api_version=context_kind.api_version, kind=context_kind.kind, metadata=metadata, spec=spec
    )


def _closing(context: PodSchedulingContext) -> NegotiationWrite:
    return NegotiationWrite(resource=CONTEXTS, known=context)


def is_of(context: PodSchedulingContext, pod: Pod) -> bool:
    return owning_pod(context.metadata) == (pod.metadata.name, pod.metadata.uid)


def _hold(text: str, awaited: Any, drivers: tuple[str, ...] = ()) -> Hold:
    return Hold(reasons=Reason.NEGOTIATION, awaited=frozenset(awaited), cause=AwaitingDrivers(text, drivers))
