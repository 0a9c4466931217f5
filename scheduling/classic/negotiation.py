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

from claims.classic.kinds import PodSchedulingContext, PodSchedulingContextSpec
from claims.classic.ownership import IMMEDIATE, controller_of, is_on
from claims.classic.rules import NODES_MAX
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, is_allocated_by_controller, names_controller
from inventory.classic.values import ResourceClass
from inventory.kinds import gates
from inventory.kinds.devices import DeviceClass
from inventory.kinds.nodes import NodeSelector
from manciple.wire.selectors import node_selector_matches
from scheduling.allocator import NodeView
from scheduling.causes import AwaitingDrivers, Hold, NodeRefusal, Reason
from scheduling.hints import claim_key, class_key, context_key, resource_class_key
from scheduling.nodes import FilterResult
from scheduling.plans import POD_SCHEDULED, PodRefusal, Proposal, condition_of
from scheduling.pod_claims import controller_of as owning_pod
from scheduling.pod_claims import references, requested_classes
from scheduling.resources import CLASSES, CONTEXTS, RESOURCE_CLASSES

log = logging.getLogger(__name__)

#: What is followed for it.
FOLLOWED = (RESOURCE_CLASSES, CONTEXTS)
#: resource -> what is done with an object of it
Hearing = dict[str, Callable[[Any], None]]

#: Kubernetes' words.
WAITING = "waiting for resource driver"
WAITING_FOR_INFORMATION = "waiting for resource driver to provide information"
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
class Negotiation:
    """One pod's, as it stands."""

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
        keys = {context_key(*self.pod.key)}
        for one in self.pending:
            keys.add(claim_key(*one.claim.key))
            if one.claim.spec.resource_class_name:
                keys.add(resource_class_key(one.claim.spec.resource_class_name))
            keys.update(class_key(name) for _, name in requested_classes(one.claim))
        return frozenset(keys)

    def without_pending(self, wanting: Iterable[ResourceClaim]) -> tuple[ResourceClaim, ...]:
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

    def filtered(self, found: FilterResult, views: Iterable[NodeView]) -> FilterResult:
        """`found` without the nodes that are excluded here. views: every node, those that are refused already too: who
        leaves them would not help the pod.
        """
        refused = dict(found.refused)
        for node in views:
            if (why := self.refusal(node.name, node.labels)) is not None:
                refused[node.name] = (why,)
        fitting = tuple(node for node in found.fitting if node.name not in refused)
        return replace(found, fitting=fitting, refused=refused)

    def selected_of(self, fitting: tuple[NodeView, ...]) -> tuple[NodeView, ...]:
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

    def cause(self, *, proposing: bool) -> AwaitingDrivers:
        """proposing: the drivers are told something new."""
        informed = proposing or self.selected or self.is_answered
        return AwaitingDrivers(WAITING if informed else WAITING_FOR_INFORMATION, self.drivers)


class Negotiations:
    """The contexts and classes of the cluster, kept up to date by whoever follows them."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[str, str], PodSchedulingContext] = {}
        self._classes: dict[str, ResourceClass] = {}
        #: DeviceClass -> the only nodes for pods whose claims a controller has yet to allocate
        self._suitable: dict[str, NodeSelector] = {}

    def copied(self) -> Negotiations:
        made = Negotiations()
        made._contexts, made._classes = dict(self._contexts), dict(self._classes)
        made._suitable = dict(self._suitable)
        return made

    def hear(self, applying: Hearing, forgetting: Hearing) -> None:
        """Take part in what is done, by resource, with each object that is written or gone."""
        written: Hearing = {
            RESOURCE_CLASSES: self.put_class, CONTEXTS: self.put_context, CLASSES: self.put_device_class,
        }  # fmt: skip
        gone: Hearing = {
            RESOURCE_CLASSES: self.remove_class, CONTEXTS: self.remove_context, CLASSES: self.remove_device_class,
        }  # fmt: skip
        applying.update({resource: _both(applying.get(resource), done) for resource, done in written.items()})
        forgetting.update({resource: _both(forgetting.get(resource), done) for resource, done in gone.items()})

    def put_context(self, context: PodSchedulingContext) -> None:
        self._contexts[context.key] = context

    def remove_context(self, context: PodSchedulingContext) -> None:
        self._contexts.pop(context.key, None)

    def put_class(self, resource_class: ResourceClass) -> None:
        self._classes[resource_class.metadata.name] = resource_class

    def remove_class(self, resource_class: ResourceClass) -> None:
        self._classes.pop(resource_class.metadata.name, None)

    def put_device_class(self, device_class: DeviceClass) -> None:
        self.remove_device_class(device_class)
        if device_class.spec.suitable_nodes is not None:
            self._suitable[device_class.metadata.name] = device_class.spec.suitable_nodes

    def remove_device_class(self, device_class: DeviceClass) -> None:
        self._suitable.pop(device_class.metadata.name, None)

    def of(self, pod: Pod, claims: Iterable[ResourceClaim]) -> Negotiation | Hold:
        """How it stands between the pod and the drivers of its claims, or what keeps it from every node at once."""
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
        return Negotiation(pod=pod, pending=tuple(pending.values()), context=context, unsuitable=unsuitable)

    def _pending(self, entry: str, claim: ResourceClaim) -> AwaitedClaim | Hold | None:
        """None: the scheduler allocates the claim."""
        name = claim.spec.resource_class_name
        resource_class = self._classes.get(name)
        if name and resource_class is None:
            return _hold(f"resource class {name} does not exist", {resource_class_key(name)}, Reason.CLASS_MISSING)
        driver = controller_of(claim, resource_class)
        if not driver:
            if claim.spec.devices.requests:
                return None
            text = f"resource class {name} has structured parameters, which gate DRAStructuredParametersDraft serves"
            return _hold(text, {resource_class_key(name)})
        if claim.spec.allocation_mode == IMMEDIATE:
            return _hold("unallocated immediate resourceclaim", {claim_key(*claim.key)}, drivers=(driver,))
        selectors = [] if resource_class is None else [resource_class.suitable_nodes]
        selectors += [self._suitable.get(device_class) for _, device_class in requested_classes(claim)]
        suitable = tuple(selector for selector in selectors if selector is not None)
        return AwaitedClaim(entry=entry, claim=claim, driver=driver, suitable_nodes=suitable)


def _both(first: Callable[[Any], None] | None, then: Callable[[Any], None]) -> Callable[[Any], None]:
    def done(obj: Any) -> None:
        if first is not None:
            first(obj)
        then(obj)

    return done


class NegotiatedState:
    """A part of `scheduling.capture.ClusterState`."""

    #: None while drivers' controllers allocate nothing (gate DRAControlPlaneController)
    negotiations: Negotiations | None = None
    resources: ClassVar[Sequence[str]]
    _claims: dict[tuple[str, str], ResourceClaim]
    _applying: Hearing
    _forgetting: Hearing

    def _follow_negotiations(self, known: Negotiations | None = None) -> None:
        """known: of the state of which this one is a copy."""
        if not is_on():
            return
        self.negotiations = Negotiations() if known is None else known.copied()
        self.resources = tuple(dict.fromkeys((*FOLLOWED, *self.resources)))  # type: ignore[misc]
        self.negotiations.hear(self._applying, self._forgetting)

    def _tell_of_kept_by_drivers(self) -> None:
        """Say in the log that claims from before the gate was turned off keep what they have."""
        kept = 0 if self.negotiations is not None else sum(map(is_allocated_by_controller, self._claims.values()))
        if kept:
            log.warning(
                "%d claims were allocated by controllers of drivers, and DRAControlPlaneController is off: their pods "
                "go on, and no more are allocated; what is to be deallocated waits until the feature is on again",
                kept,
            )


def with_drivers(known: Negotiations | None, pod: Pod, claims: Sequence[ResourceClaim]) -> Negotiation | Hold | None:
    """How it stands with the drivers' controllers; None where they have nothing to do with it.

    known: None while they are not served (gate DRAControlPlaneController): what they have allocated stays in use, and
    pods with claims that they have not wait.
    """
    if known is not None:
        return known.of(pod, claims)
    if gates.enabled("DRAStructuredParametersDraft"):  # which says what it thinks of their classes
        claims = [claim for claim in claims if claim.spec.controller_name]
    for claim in claims:
        if claim.status.allocation is None and names_controller(claim):
            text = f"resourceclaim {claim.metadata.name} is allocated by its driver's controller, and feature gate"
            return _hold(f"{text} DRAControlPlaneController is off", set())
    return None


def proposed(talks: Negotiation, node: str, fitting: Sequence[str]) -> PodRefusal:
    """What the drivers are told, if there is anything to tell; the pod waits for them."""
    known = PodSchedulingContextSpec() if talks.context is None else talks.context.spec
    spec = talks.next_spec(node, fitting)
    changed = talks.context is None or spec != known
    condition = condition_of(talks.pod, POD_SCHEDULED)
    told = condition is not None and condition.message.startswith(WAITING)
    return PodRefusal(
        pod=talks.pod,
        hold=Hold(reasons=Reason.NEGOTIATION, awaited=talks.awaited, cause=talks.cause(proposing=changed)),
        proposal=Proposal(known=talks.context, spec=spec) if changed else None,
        told_before=told and not changed,
    )


def undecided(known: Negotiations | None, pod: Pod, claims: Sequence[ResourceClaim]) -> Hold | None:
    """What keeps everybody from knowing where the pod fits: a driver decides. None where that is known."""
    talks = with_drivers(known, pod, claims) if any(map(names_controller, claims)) else None
    if isinstance(talks, Negotiation):
        cause = talks.cause(proposing=True)
        return Hold(reasons=Reason.NEGOTIATION, awaited=talks.awaited, cause=cause) if talks.pending else None
    return talks


def is_of(context: PodSchedulingContext, pod: Pod) -> bool:
    return owning_pod(context.metadata) == (pod.metadata.name, pod.metadata.uid)


def _hold(text: str, awaited: Any, reason: Reason = Reason.NEGOTIATION, drivers: tuple[str, ...] = ()) -> Hold:
    return Hold(reasons=reason, awaited=frozenset(awaited), cause=AwaitingDrivers(text, drivers))
