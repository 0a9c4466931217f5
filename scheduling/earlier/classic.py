"""Classic DRA (KEP-3063): drivers' controllers allocate, and agree with the scheduler on a node.

They agree in the PodSchedulingContext of the pod. What the scheduler writes there (`ClassicNegotiator`):

    a claim must be reallocated, or its class is missing                 nothing: the pod waits
    nodes are left that no driver was asked about                        `potentialNodes`
    one claim waits, or the drivers have answered for every claim        `selectedNode`
    both say that already                                                nothing: it is the drivers' turn
    no claim waits any more                                              the pod is placed like any other

Nodes that the class or a driver excludes are refused. The next spec follows from what is stored and the nodes that
would take the pod, so either side may restart at any time. A node that a driver has excluded is not listed again,
because drivers also answer for nodes that they excluded before.

For pods that other schedulers bound, and for contexts that are left over, a controller does the rest (`reconcile`):

    a pod has a node, and a claim of it is not allocated                 its context gets this `selectedNode`
    the same, and all its claims are allocated                           they are reserved for the pod
    the same, and nothing is left to ask                                 its context is deleted
    a context whose pod has ended, or is another one of that name        it is deleted
    a claim that its driver is to deallocate                             nothing: only the driver does that

Two things differ from Kubernetes 1.30. A pod with claims of drivers and of the scheduler gets its node selected; there
it waits forever (Reserve). And the selected node stays selected while the pod fits there, so that the claims of two
drivers are not allocated for different nodes.
Sources, of Kubernetes 1.30: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go,
pkg/controller/resourceclaim/controller.go (ensurePodSchedulingContext, reserveForPod).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, cast

from msgspec import structs

from claims import models
from claims.causes.causes import AwaitingDrivers, NobodyAllocates, NodeRefusal
from claims.classic.kinds import PodSchedulingContext, PodSchedulingContextSpec
from claims.classic.ownership import controller_of
from claims.classic.rules import NODES_MAX
from claims.controllers import generated_claims
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import IMMEDIATE, ResourceClaim, is_allocated_by_controller, names_controller
from claims.pod_claims import (
    controlled_by,
    is_controlled_by,
    is_done,
    is_for_pod,
    is_reserved_for,
    references,
    requested_classes,
)
from claims.pod_claims import controller_of as owning_pod
from inventory.classic.values import ResourceClass
from inventory.kinds import gates
from inventory.kinds.devices import DeviceClass
from inventory.kinds.nodes import NodeSelector
from manciple.controllers.declaration import Controller
from manciple.store import objects, sql
from manciple.store.objects import Writer, decoded, listed
from manciple.wire.base import ObjectMeta
from manciple.wire.resources import (
    ADDED,
    CLAIMS,
    CLASSES,
    CONTEXTS,
    DELETED,
    MODIFIED,
    NEW_PHASES,
    PODS,
    RESOURCE_CLASSES,
    Key,
    kind,
)
from manciple.wire.selectors import node_selector_matches
from scheduling.allocator import NodeView
from scheduling.claims import kept
from scheduling.claims.negotiation import (
    Negotiation,
    NegotiationWrite,
    NegotiationWrites,
    PossibleNodes,
    StillNegotiating,
)
from scheduling.queue.hints import About, Wake, claim_key, class_key, resource_class_key
from scheduling.queue.reasons import Hold, Reason
from scheduling.state.extensions import Extension
from scheduling.state.nodes import FilterResult, NodeTable

#: KEP-3063's words: before a node is selected, and after.
WAITING_FOR_INFORMATION = "waiting for resource driver to provide information"
WAITING_FOR_ALLOCATION = "waiting for resource driver to allocate resource"
EXCLUDED_BY_CLASS = NodeRefusal("DynamicResources", "class", "excluded by resource class node filter")
UNSUITABLE = NodeRefusal(
    "DynamicResources", "unsuitable", "resourceclaim cannot be allocated for the node (unsuitable)"
)


# One pod --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedClaim:
    """A claim that a driver has to allocate for the pod. entry: of spec.resourceClaims."""

    entry: str
    claim: ResourceClaim
    driver: str
    #: a node must match every one
    suitable_nodes: tuple[NodeSelector, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicNegotiation(Negotiation):
    """The negotiation about one pod, as its context says."""

    pod: Pod
    #: the claims that are not allocated yet, in the order of the pod's entries
    pending: tuple[AwaitedClaim, ...] = ()
    context: PodSchedulingContext | None = None
    #: entry -> the nodes that its driver has excluded; entries without an answer are missing
    unsuitable: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def selected(self) -> str:
        return "" if self.context is None else self.context.spec.selected_node

    @property
    def drivers(self) -> tuple[str, ...]:
        return tuple(sorted({awaited.driver for awaited in self.pending}))

    @property
    def awaited(self) -> frozenset[str]:
        if not self.pending:
            return frozenset()
        keys = {context_key(*self.pod.key)}
        for awaited in self.pending:
            keys.add(claim_key(*awaited.claim.key))
            if awaited.claim.spec.resource_class_name:
                keys.add(resource_class_key(awaited.claim.spec.resource_class_name))
            keys.update(class_key(name) for _, name in requested_classes(awaited.claim))
        return frozenset(keys)

    def left(self, wanting: Iterable[ResourceClaim]) -> tuple[ResourceClaim, ...]:
        of_drivers = {awaited.claim.metadata.uid for awaited in self.pending}
        return tuple(claim for claim in wanting if claim.metadata.uid not in of_drivers)

    def refusal(self, name: str, labels: Mapping[str, str]) -> NodeRefusal | None:
        """Why the class or a driver excludes the node."""
        for awaited in self.pending:
            if not all(node_selector_matches(selector, name, labels) for selector in awaited.suitable_nodes):
                return EXCLUDED_BY_CLASS
            if name in self.unsuitable.get(awaited.entry, ()):
                return UNSUITABLE
        return None

    def restricted(self, filtered: FilterResult, nodes: NodeTable) -> FilterResult:
        """Also replaces other refusals of an excluded node: pods that leave it would not help."""
        refused = dict(filtered.refused)
        for node in nodes.views if self.pending else ():
            if (refusal := self.refusal(node.name, node.labels)) is not None:
                refused[node.name] = (refusal,)
        fitting = tuple(node for node in filtered.fitting if node.name not in refused)
        return replace(filtered, fitting=fitting, refused=refused)

    def preferred(self, fitting: tuple[NodeView, ...]) -> tuple[NodeView, ...]:
        """The selected node alone, if it would take the pod; otherwise all of them."""
        return tuple(node for node in fitting if node.name == self.selected) or fitting

    def next(self, node: str, possible: PossibleNodes) -> StillNegotiating | NegotiationWrites:
        if not self.pending:
            return () if self.context is None else (NegotiationWrite(resource=CONTEXTS, before=self.context),)
        current = PodSchedulingContextSpec() if self.context is None else self.context.spec
        spec = self.next_spec(node, possible(NODES_MAX))
        writes = (self._write(spec),) if self.context is None or spec != current else ()
        return StillNegotiating(hold=self.hold(spec.selected_node), writes=writes)

    def next_spec(self, node: str, fitting: Sequence[str]) -> PodSchedulingContextSpec:
        """What the context should say. node: the scheduler's choice. fitting: all that would take the pod; the first
        are offered if there are too many.
        """
        is_answered = all(awaited.entry in self.unsuitable for awaited in self.pending)
        selected = node if len(self.pending) == 1 or is_answered else self.selected
        return PodSchedulingContextSpec(selected_node=selected, potential_nodes=self._potential(node, fitting))

    def _potential(self, node: str, fitting: Sequence[str]) -> tuple[str, ...]:
        """Nodes that were offered stay while there is none to add."""
        offered = () if self.context is None else self.context.spec.potential_nodes
        suiting, asked = frozenset(fitting), frozenset(offered)
        new = [name for name in fitting if name not in asked]
        if not new:
            return offered
        kept = [name for name in offered if name in suiting][:NODES_MAX]
        added = sorted(new, key=lambda name: name != node)[: NODES_MAX - len(kept)]
        return tuple(sorted((*kept, *added))) if added else offered

    def hold(self, selected: str) -> Hold:
        """selected: the node for which the drivers allocate; "" while they are asked which nodes suit."""
        message = WAITING_FOR_ALLOCATION if selected else WAITING_FOR_INFORMATION
        return Hold(reasons=Reason.NEGOTIATION, awaited=self.awaited, cause=AwaitingDrivers(message, self.drivers))

    def giving_back(self, claims: Iterable[ResourceClaim]) -> NegotiationWrites:
        """No node is selected any more, or the driver would allocate for the same node again at once."""
        if self.context is None or not self.selected or not any(map(is_allocated_by_controller, claims)):
            return ()
        return (self._write(structs.replace(self.context.spec, selected_node="")),)

    def _write(self, spec: PodSchedulingContextSpec) -> NegotiationWrite:
        after = new_context(self.pod, spec) if self.context is None else structs.replace(self.context, spec=spec)
        return NegotiationWrite(resource=CONTEXTS, before=self.context, after=after)


def new_context(pod: Pod, spec: PodSchedulingContextSpec) -> PodSchedulingContext:
    """Has the pod's name, and the pod as its owner."""
    meta = pod.metadata
    owner = structs.replace(controlled_by(pod), block_owner_deletion=True)
    metadata = ObjectMeta(namespace=meta.namespace, name=meta.name, owner_references=(owner,))
    context_kind = kind(CONTEXTS)
    return PodSchedulingContext(
        api_version=context_kind.api_version, kind=context_kind.kind, metadata=metadata, spec=spec
    )


# The extension of the scheduler ---------------------------------------------------------------------------------------


def context_key(namespace: str, name: str) -> str:
    """What a pod awaits when drivers have to answer in its PodSchedulingContext."""
    return f"context:{namespace}/{name}"


def _context_modified(about: About, seen: Any) -> Iterable[Wake]:
    """Not for what the scheduler writes itself, which comes before any answer or after the last."""
    if seen.status.resource_claims:
        yield Wake(reasons=Reason.NEGOTIATION, key=context_key(about.namespace, about.name))


def _context_deleted(about: About, _seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.NEGOTIATION, key=context_key(about.namespace, about.name))


def _class_written(about: About, _seen: Any) -> Iterable[Wake]:
    yield Wake(reasons=Reason.CLASS_MISSING | Reason.NEGOTIATION, key=resource_class_key(about.name))
    yield Wake(reasons=Reason.DEVICES | Reason.ERROR)


@dataclass(slots=True, eq=False, repr=False)
class ClassicNegotiator(Extension):
    """The PodSchedulingContexts and classes of the cluster."""

    follows: ClassVar = (RESOURCE_CLASSES, CONTEXTS, CLASSES)
    wakes: ClassVar = {
        (RESOURCE_CLASSES, ADDED): _class_written,
        (RESOURCE_CLASSES, MODIFIED): _class_written,
        (CONTEXTS, MODIFIED): _context_modified,
        (CONTEXTS, DELETED): _context_deleted,
    }
    invariants: ClassVar = kept.INVARIANTS[gates.CONTROL_PLANE_CONTROLLER]

    _contexts: dict[Key, PodSchedulingContext] = field(default_factory=dict)
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

    def negotiation(self, pod: Pod, claims: Sequence[ResourceClaim]) -> ClassicNegotiation | Hold | None:
        if not any(map(names_controller, claims)):
            return None
        context = self._contexts.get(pod.key)
        if context is not None and not is_controlled_by(context.metadata, pod):
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
            awaited = self._awaited(reference.entry, claim)
            if isinstance(awaited, Hold):
                return awaited
            if awaited is not None:
                pending.setdefault(claim.metadata.uid, awaited)
        answers = () if context is None else context.status.resource_claims
        unsuitable = {answer.name: frozenset(answer.unsuitable_nodes) for answer in answers}
        return ClassicNegotiation(pod=pod, pending=tuple(pending.values()), context=context, unsuitable=unsuitable)

    def _awaited(self, entry: str, claim: ResourceClaim) -> AwaitedClaim | Hold | None:
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
            keys = frozenset({resource_class_key(name)})
            return Hold(reasons=Reason.NEGOTIATION, awaited=keys, cause=NobodyAllocates(text))
        if claim.spec.allocation_mode == IMMEDIATE:
            return _hold("unallocated immediate resourceclaim", {claim_key(*claim.key)}, drivers=(driver,))
        selectors = [] if resource_class is None else [resource_class.suitable_nodes]
        selectors += [self._suitable.get(device_class) for _, device_class in requested_classes(claim)]
        suitable = tuple(selector for selector in selectors if selector is not None)
        return AwaitedClaim(entry=entry, claim=claim, driver=driver, suitable_nodes=suitable)

    def undecided(self, pod: Pod, claims: Sequence[ResourceClaim]) -> Hold | None:
        negotiation = self.negotiation(pod, claims)
        if isinstance(negotiation, ClassicNegotiation):
            return negotiation.hold(negotiation.selected) if negotiation.pending else None
        return negotiation


def _hold(text: str, keys: Iterable[str], drivers: tuple[str, ...] = ()) -> Hold:
    return Hold(reasons=Reason.NEGOTIATION, awaited=frozenset(keys), cause=AwaitingDrivers(text, drivers))


# The controller -------------------------------------------------------------------------------------------------------


def reconcile(_now: datetime) -> int:
    """Returns the number of pods and contexts for which something was written."""
    chunks = sql.chunks(dict.fromkeys((*_starting(), *_left_over())), generated_claims.BATCH)
    return sum(_reconcile_batch(chunk) for chunk in chunks)


def _starting() -> Iterator[Key]:
    """The pods that have a node and do not run yet, and lack a claim that a controller may allocate."""
    starting = models.Pod.objects.filter(phase__in=NEW_PHASES, deleting=False).exclude(node_name="")
    pods = list(starting.exclude(claim_names=[]).values_list("namespace", "name", "uid", "claim_names"))
    for chunk in sql.chunks(pods, generated_claims.BATCH):
        keys = [(namespace, name) for namespace, _, _, names in chunk for name in names]
        stored = (decoded(document, ResourceClaim) for document in objects.get_many(kind(CLAIMS), keys))
        claims = {claim.key: claim for claim in stored if names_controller(claim)}
        for namespace, pod, uid, names in chunk:
            named = [claims[namespace, name] for name in names if (namespace, name) in claims]
            if any(claim.status.allocation is None or not is_reserved_for(claim, uid) for claim in named):
                yield namespace, pod


def _left_over() -> Iterator[Key]:
    """The contexts that do not belong to a pod that waits for its node: those are the scheduler's."""
    contexts = {context.key: context for context in listed(CONTEXTS, PodSchedulingContext)[1]}
    columns = ("namespace", "name", "uid", "node_name", "deleting")
    rows = sql.select(models.Pod, columns, ("namespace", "name"), contexts)
    waiting = {(namespace, name): uid for namespace, name, uid, node, deleting in rows if not (node or deleting)}
    for key, context in contexts.items():
        if owning_pod(context.metadata) != (key[1], waiting.get(key)):
            yield key


def _reconcile_batch(keys: Sequence[Key]) -> int:
    with objects.writing(identity=generated_claims.IDENTITY) as writer:
        writer.load(kind(PODS), keys)
        writer.load(kind(CONTEXTS), keys)
        return sum(_reconcile_pod(writer, key) for key in keys)


def _reconcile_pod(writer: Writer, key: Key) -> bool:
    """See the table at the top. Returns whether something was written."""
    pod = cast("Pod | None", writer.get(kind(PODS), *key))
    context = cast("PodSchedulingContext | None", writer.get(kind(CONTEXTS), *key))
    if context is not None and context.metadata.deletion_timestamp is not None:
        return False
    if pod is None or is_done(pod) or (context is not None and not is_controlled_by(context.metadata, pod)):
        return _delete(writer, context)
    if not pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
        return False  # the scheduler's, or soon the garbage collector's
    reserved = generated_claims.reserve(writer, pod)
    if not _lacks_allocation(writer, pod):
        return _delete(writer, context) or reserved
    spec = PodSchedulingContextSpec() if context is None else context.spec
    if spec.selected_node == pod.spec.node_name:
        return reserved
    selecting = structs.replace(spec, selected_node=pod.spec.node_name)
    if context is None:
        writer.create(kind(CONTEXTS), new_context(pod, selecting))
    else:
        writer.update(kind(CONTEXTS), structs.replace(context, spec=selecting))
    return True


def _delete(writer: Writer, context: PodSchedulingContext | None) -> bool:
    if context is not None:
        writer.delete(kind(CONTEXTS), *context.key, uid=context.metadata.uid)
    return context is not None


def _lacks_allocation(writer: Writer, pod: Pod) -> bool:
    """Whether a driver has yet to allocate a claim for the pod."""
    for reference in references(pod):
        claim = reference.claim and writer.get(kind(CLAIMS), pod.metadata.namespace, reference.claim)
        if not isinstance(claim, ResourceClaim) or claim.metadata.deletion_timestamp is not None:
            continue
        if claim.status.allocation is not None or claim.spec.allocation_mode == IMMEDIATE:
            continue
        if reference.generated and not is_for_pod(claim, pod):
            continue
        name = claim.spec.resource_class_name
        resource_class = cast("ResourceClass | None", writer.get(kind(RESOURCE_CLASSES), "", name)) if name else None
        if names_controller(claim) and controller_of(claim, resource_class):
            return True
    return False


CONTROLLER = Controller(
    name="scheduling_contexts",
    does="asks drivers' controllers to allocate for pods that others bound, and removes unneeded contexts",
    in_mirror=False,
    reconcile=reconcile,
    every=5,
    wakes_on=frozenset({(CONTEXTS, MODIFIED)}),
    gate=gates.CONTROL_PLANE_CONTROLLER,
)
