"""Node fit: which nodes a pod may run on as far as everything but new devices goes, and which it prefers. PURE.

`needs_of` reads a pod once; `check` filters one node with the rules of kube-scheduler's Filter plugins, in their order,
and stops at the first plugin that refuses, as it does. Amounts are nanos of a unit (`Quantity.nanos`).

Rules about the pods of all nodes follow (`Neighbours`): affinity and anti-affinity, topology spread, host ports. Pods
of one namespace with the same labels and the same affinity are one group (`AlikePods`), and a group is counted by node,
so a rule costs as much as there are groups and nodes, not pods. A pod without such rules costs nothing if no running
pod keeps others away: its rules are None.

    neighbours.place(pod, node); neighbours.remove_pod(uid)    what runs where
    rules = neighbours.rules_for(pod, nodes)                   the pod's rules, counted once for all nodes
    rules.refusal(node); rules.wish(node)                      one node: why it is refused, how much it is preferred

Sources: pkg/scheduler/framework/plugins/{nodename,nodeunschedulable,tainttoleration,nodeaffinity,noderesources,
interpodaffinity,podtopologyspread,nodeports}, component-helpers/resource/helpers.go (v1.36).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from msgspec import Struct

from claims.causes.causes import NodeRefusal
from claims.kinds.pods import (
    Affinity,
    NodeAffinity,
    Pod,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
    tolerates,
)
from claims.kinds.resource_claims import ResourceClaim
from claims.kinds.resource_usage import Amounts, node_requests_of, requests_of
from inventory.kinds.devices import HARD_EFFECTS, DeviceClass
from inventory.kinds.nodes import Node, Taint
from manciple.wire import codec
from manciple.wire.machinery import Namespace
from manciple.wire.quantity import Quantity
from manciple.wire.resources import CLASSES, NAMESPACES
from manciple.wire.selectors import (
    ParsedLabelSelector,
    ParsedNodeTerm,
    Requirement,
    as_label_selector,
    node_selector_matches,
    parsed_node_terms,
)
from manciple.wire.validation import DEVICE_CLASS_RESOURCE_PREFIX
from scheduling.queue.reasons import Reason
from scheduling.state.part import Part

#: What a cordoned node is tainted with; a pod that tolerates it may be placed there.
UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
#: What a node counts as tainted with until it has reported for the first time. (Upstream's admission taints every new
#: node so.)
UNHEARD_TAINT = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
#: The effects that only make a node less welcome.
SOFT_EFFECTS = ("PreferNoSchedule",)


#: Which of the queue's reasons a filter's refusal is.
REASON_OF_PLUGIN = {
    "NodeResourcesFit": Reason.RESOURCES,
    "DynamicResources": Reason.CLAIM_ELSEWHERE,
    "NodePorts": Reason.NEIGHBOURS,
    "PodTopologySpread": Reason.NEIGHBOURS,
    "VolumeBinding": Reason.NODE | Reason.VOLUME | Reason.NEIGHBOURS,
    "InterPodAffinity": Reason.NEIGHBOURS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNeeds:
    """What a pod asks of a node."""

    node_name: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    #: required node affinity; None where there is none
    affinity: tuple[ParsedNodeTerm, ...] | None = None
    #: (term, weight) of preferred node affinity
    preferences: tuple[tuple[ParsedNodeTerm, int], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    requests: Amounts = field(default_factory=dict)
    #: of the requests, those that devices serve on nodes that advertise nothing of the resource (KEP-5004)
    by_devices: frozenset[str] = frozenset()
    #: the nodes that its claims of volumes can be mounted on: of each, terms of which one must hold
    volumes: tuple[tuple[ParsedNodeTerm, ...], ...] = ()


#: The resource of a node that each pod takes one of.
PODS = "pods"


def needs_of(pod: Pod, classes: Container[str] = (), requests: Amounts | None = None) -> PodNeeds:
    """Read a pod once, for all nodes. classes: the extended resources that DeviceClasses serve.

    requests: of the pod, where they are known.
    """
    spec = pod.spec
    affinity = (spec.affinity.node_affinity if spec.affinity else None) or NodeAffinity()
    required = affinity.required_during_scheduling_ignored_during_execution
    preferred = affinity.preferred_during_scheduling_ignored_during_execution
    requests = node_requests_of(pod) if requests is None else requests
    return PodNeeds(
        node_name=spec.node_name,
        node_selector=spec.node_selector,
        affinity=None if required is None else parsed_node_terms(required),
        preferences=tuple((ParsedNodeTerm.of(one.preference), one.weight) for one in preferred),
        tolerations=spec.tolerations,
        requests=requests,
        by_devices=frozenset(name for name in requests if name in classes),
    )


def extended_names(pod: Pod) -> Iterator[str]:
    """The extended resources that the pod asks for: a DeviceClass may serve them, or come to serve them."""
    return (name for name in requests_of(pod) if "/" in name)


def check(
    needs: PodNeeds, node: Node, *, used: Amounts, pods: int, claims: Sequence[ResourceClaim] = ()
) -> tuple[NodeRefusal, ...]:
    """Why the pod may not run on `node`; empty when it may.

    used: the requests of the pods on the node, `pods` their number. claims: those of the pod's claims that are
    allocated already.
    """
    for refusals in (
        _unschedulable(needs, node),
        _node_name(needs, node),
        _taints(needs, node),
        _affinity(needs, node),
        _resources(needs, node, used=used, pods=pods),
        _volumes(needs, node) if needs.volumes else (),
        _allocated_claims(node, claims),
    ):
        found = tuple(refusals)
        if found:
            return found
    return ()


def preference(needs: PodNeeds, node: Node) -> tuple[int, int]:
    """Higher is better: (untolerated soft taints, negated; weights of the preferred affinity terms that match)."""
    labels = node.metadata.labels
    weight = sum(weight for term, weight in needs.preferences if term.matches(node.metadata.name, labels))
    return -len(_untolerated(node.spec.taints, needs.tolerations, SOFT_EFFECTS)), weight


# The plugins ----------------------------------------------------------------------------------------------------------


def _unschedulable(needs: PodNeeds, node: Node) -> Iterator[NodeRefusal]:
    if node.spec.unschedulable and not _tolerated(UNSCHEDULABLE_TAINT, needs.tolerations):
        yield NodeRefusal("NodeUnschedulable")


def _node_name(needs: PodNeeds, node: Node) -> Iterator[NodeRefusal]:
    if needs.node_name and needs.node_name != node.metadata.name:
        yield NodeRefusal("NodeName")


def _taints(needs: PodNeeds, node: Node) -> Iterator[NodeRefusal]:
    """Names the first taint, as upstream does. A node that is not ready carries one."""
    for taint in _untolerated(node.spec.taints, needs.tolerations, HARD_EFFECTS)[:1]:
        yield NodeRefusal("TaintToleration", taint.key, taint.value)


def _affinity(needs: PodNeeds, node: Node) -> Iterator[NodeRefusal]:
    if not is_selected(needs, node):
        yield NodeRefusal("NodeAffinity")


def _volumes(needs: PodNeeds, node: Node) -> Iterator[NodeRefusal]:
    name, labels = node.metadata.name, node.metadata.labels
    if not all(any(term.matches(name, labels) for term in terms) for terms in needs.volumes):
        yield NodeRefusal("VolumeBinding")


def is_selected(needs: PodNeeds, node: Node) -> bool:
    """Whether the pod's node selector and required node affinity choose `node`."""
    labels = node.metadata.labels
    if not all(labels.get(key) == value for key, value in needs.node_selector.items()):
        return False
    return needs.affinity is None or any(term.matches(node.metadata.name, labels) for term in needs.affinity)


def _resources(needs: PodNeeds, node: Node, *, used: Amounts, pods: int) -> Iterator[NodeRefusal]:
    """A resource that the node does not name counts as none of it; the number of pods only where it is named."""
    for resource, _ in shortages(needs, node, used=used, pods=pods):
        hopeless = resource != PODS and needs.requests[resource] > _nanos(node.status.allocatable, resource)
        yield NodeRefusal("NodeResourcesFit", resource, resolvable=not hopeless)


def shortages(needs: PodNeeds, node: Node, *, used: Amounts, pods: int) -> Iterator[tuple[str, int]]:
    """(resource, nanos of it that are too little on the node)."""
    allocatable = node.status.allocatable
    if PODS in allocatable and (short := (pods + 1) * 10**9 - _nanos(allocatable, PODS)) > 0:
        yield PODS, short
    for resource, wanted in needs.requests.items():
        if resource in needs.by_devices and not _nanos(allocatable, resource):
            continue
        if (short := wanted - _nanos(allocatable, resource) + used.get(resource, 0)) > 0:
            yield resource, short


def _allocated_claims(node: Node, claims: Sequence[ResourceClaim]) -> Iterator[NodeRefusal]:
    for claim in claims:
        allocation = claim.status.allocation
        selector = allocation.node_selector if allocation else None
        if selector is not None and not node_selector_matches(selector, node.metadata.name, node.metadata.labels):
            yield NodeRefusal("DynamicResources")
            return


# Taints ---------------------------------------------------------------------------------------------------------------


def is_tolerated(needs: PodNeeds, node: Node) -> bool:
    """Whether no taint of `node` keeps the pod off; a cordon counts as one."""
    taints = (*node.spec.taints, UNSCHEDULABLE_TAINT) if node.spec.unschedulable else node.spec.taints
    return not _untolerated(taints, needs.tolerations, HARD_EFFECTS)


def _untolerated(
    taints: Iterable[Taint], tolerations: Sequence[Toleration], effects: Collection[str]
) -> tuple[Taint, ...]:
    return tuple(taint for taint in taints if taint.effect in effects and not _tolerated(taint, tolerations))


def _tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def _nanos(amounts: Mapping[str, str], resource: str) -> int:
    text = amounts.get(resource)
    return Quantity.parse(text).nanos if text is not None else 0


# Extended resources that devices serve (KEP-5004) ---------------------------------------------------------------------


@dataclass(slots=True, eq=False, kw_only=True, repr=False)
class ServingClasses(Part):
    """Which DeviceClass serves which resource. Of several with one name the newest does, then the first by name."""

    follows: ClassVar[tuple[str, ...]] = (CLASSES,)

    #: the gate DRAExtendedResource
    enabled: bool = True
    #: resource -> the class that serves it; read directly, so that a pod without extended resources costs one look-up
    by_resource: dict[str, str] = field(default_factory=dict)
    #: every class -> its own extendedResourceName; "" for none
    own: dict[str, str] = field(default_factory=dict)
    #: such a name -> the classes that have it, each with its creationTimestamp
    _sharing: dict[str, dict[str, str]] = field(default_factory=dict)

    def serve(self, pod: Pod) -> bool:
        """Whether `pod` names a resource that a class serves."""
        served, spec = self.by_resource, pod.spec
        return any(
            name in served for one in (*spec.containers, *spec.init_containers) for name in one.resources.requests
        )

    def put(self, device_class: DeviceClass) -> None:
        name, own = device_class.metadata.name, device_class.spec.extended_resource_name or ""
        self.remove(device_class)
        self.own[name] = own
        if self.enabled:
            self.by_resource[f"{DEVICE_CLASS_RESOURCE_PREFIX}{name}"] = name
        if own:
            self._sharing.setdefault(own, {})[name] = device_class.metadata.creation_timestamp or ""
            self._choose(own)

    def remove(self, device_class: DeviceClass) -> None:
        name = device_class.metadata.name
        own = self.own.pop(name, "")
        self.by_resource.pop(f"{DEVICE_CLASS_RESOURCE_PREFIX}{name}", None)
        if own:
            del self._sharing[own][name]
            self._choose(own)

    def _choose(self, resource: str) -> None:
        sharing = self._sharing[resource]
        if not sharing:
            del self._sharing[resource]
            self.by_resource.pop(resource, None)
        elif self.enabled:
            newest = max(sharing.values())
            self.by_resource[resource] = min(name for name, created in sharing.items() if created == newest)


# Neighbours -----------------------------------------------------------------------------------------------------------


Labels = Mapping[str, str]
#: (host IP, protocol, port)
HostPort = tuple[str, str, int]
#: (topology key, value of the label)
Topology = tuple[str, str]
T = TypeVar("T")
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - how a pod says "on every address of the node"
#: What a required affinity of a running pod weighs for those that satisfy it (upstream: hardPodAffinityWeight).
REQUIRED_WEIGHT = 1
#: What one pod more in a topology weighs for those that would rather be spread.
SPREAD_WEIGHT = 10

# Terms ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Term:
    """One affinity term of a pod, read: which pods it means, and what "together" is."""

    key: str
    pods: ParsedLabelSelector
    namespaces: frozenset[str]
    #: further namespaces, by their labels
    namespace_labels: ParsedLabelSelector | None

    def means(self, group: AlikePods, labels_of: Callable[[str], Labels]) -> bool:
        """labels_of: a namespace's labels."""
        if group.namespace not in self.namespaces:
            chosen = self.namespace_labels
            if chosen is None or not chosen.matches(labels_of(group.namespace)):
                return False
        return self.pods.matches(group.labels)


def _read(term: PodAffinityTerm, namespace: str, own: Labels) -> Term:
    """own: the labels of the pod that asks."""
    chosen = term.namespace_selector
    names = frozenset(term.namespaces)
    return Term(
        key=term.topology_key,
        pods=_narrowed(as_label_selector(term.label_selector), own, term.match_label_keys, term.mismatch_label_keys),
        namespaces=names if names or chosen is not None else frozenset({namespace}),
        namespace_labels=None if chosen is None else as_label_selector(chosen),
    )


def _narrowed(
    selector: ParsedLabelSelector, own: Labels, same: Sequence[str], other: Sequence[str] = ()
) -> ParsedLabelSelector:
    """To pods that have the same value as `own` of some labels, and another of others."""
    more = [Requirement(key, "In", (own[key],)) for key in same if key in own]
    more += [Requirement(key, "NotIn", (own[key],)) for key in other if key in own]
    return ParsedLabelSelector((*selector.requirements, *more), selector.nothing) if more else selector


# Groups ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class AlikePods:
    """Pods with equal labels and affinity.

    near, away: what they require. wishes: (term, weight) of what they prefer; negative for what they avoid.
    """

    namespace: str
    labels: Labels
    terminating: bool = False
    near: tuple[Term, ...] = ()
    away: tuple[Term, ...] = ()
    wishes: tuple[tuple[Term, int], ...] = ()
    #: whether any of these is about other namespaces
    outward: bool = True

    def may_mean(self, other: AlikePods) -> bool:
        """Whether any term may be about `other`. Most terms are about pods of their own namespace alone."""
        return other.namespace == self.namespace or self.outward

    @classmethod
    def of(cls, pod: Pod) -> AlikePods:
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        affinity = pod.spec.affinity or Affinity()
        near, away = affinity.pod_affinity, affinity.pod_anti_affinity
        wanted = near.preferred_during_scheduling_ignored_during_execution if near else ()
        unwanted = away.preferred_during_scheduling_ignored_during_execution if away else ()
        weighted = [(one.pod_affinity_term, one.weight) for one in wanted]
        weighted += [(one.pod_affinity_term, -one.weight) for one in unwanted]
        required = near.required_during_scheduling_ignored_during_execution if near else ()
        forbidden = away.required_during_scheduling_ignored_during_execution if away else ()
        terms = (*required, *forbidden, *(term for term, _ in weighted))
        return cls(
            namespace=namespace,
            labels=labels,
            terminating=pod.metadata.deletion_timestamp is not None,
            near=tuple(_read(term, namespace, labels) for term in required),
            away=tuple(_read(term, namespace, labels) for term in forbidden),
            wishes=tuple((_read(term, namespace, labels), weight) for term, weight in weighted),
            outward=any(term.namespace_selector is not None or term.namespaces for term in terms),
        )


#: namespace, labels, whether it is terminating, the affinity as JSON
_GroupKey = tuple[str, frozenset[tuple[str, str]], bool, bytes]


def _key_of(pod: Pod) -> _GroupKey:
    meta, affinity = pod.metadata, pod.spec.affinity
    wishes = codec.encode(affinity) if affinity is not None else b""
    return meta.namespace, frozenset(meta.labels.items()), meta.deletion_timestamp is not None, wishes


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Of the containers that run together (upstream: util.GetHostPorts)."""
    sidecars = [one for one in pod.spec.init_containers if one.restart_policy == "Always"]
    return tuple(
        (port.host_ip or EVERY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in (*pod.spec.containers, *sidecars)
        for port in container.ports
        if port.host_port
    )


class _Placed(Struct, frozen=True, gc=False):
    """There are as many as pods, and the garbage collector need not look at any."""

    node: str
    key: _GroupKey
    ports: tuple[HostPort, ...]


@dataclass(slots=True)
class _Counted:
    """A group, and how many of its pods run on each node."""

    group: AlikePods
    key: _GroupKey
    nodes: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False, repr=False)
class Neighbours(Part):
    """See the module's docstring."""

    follows: ClassVar[tuple[str, ...]] = (NAMESPACES,)

    _placed: dict[str, _Placed] = field(default_factory=dict)
    _groups: dict[_GroupKey, _Counted] = field(default_factory=dict)
    #: those of `_groups` with a required anti-affinity
    _keeping: dict[_GroupKey, _Counted] = field(default_factory=dict)
    #: those of `_groups` whose affinity attracts or repels other pods
    _wishing: dict[_GroupKey, _Counted] = field(default_factory=dict)
    _ports: dict[str, Counter[HostPort]] = field(default_factory=dict)
    _namespaces: dict[str, Labels] = field(default_factory=dict)

    # What runs where -------------------------------------------------------------------------------------------------

    def place(self, pod: Pod, node: str) -> bool:
        """Count `pod` on `node`. Returns whether that changed anything."""
        uid, key = pod.metadata.uid, _key_of(pod)
        known = self._groups.get(key)
        placed = _Placed(node, key if known is None else known.key, host_ports(pod))
        if self._placed.get(uid) == placed:
            return False
        self.remove_pod(uid)
        self._count(uid, placed, AlikePods.of(pod) if known is None else known.group)
        return True

    def _count(self, uid: str, placed: _Placed, group: AlikePods) -> None:
        self._placed[uid] = placed
        self._counted(placed.key, group).nodes[placed.node] += 1
        if placed.ports:
            self._ports.setdefault(placed.node, Counter()).update(placed.ports)

    def _counted(self, key: _GroupKey, group: AlikePods) -> _Counted:
        known = self._groups.get(key)
        if known is None:
            known = self._groups[key] = _Counted(group, key)
            if known.group.away:
                self._keeping[key] = known
            if known.group.near or known.group.wishes:
                self._wishing[key] = known
        return known

    @contextmanager
    def without(self, uids: Iterable[str]) -> Iterator[None]:
        """Within it, these pods are not counted."""
        lifted = [(uid, placed, self._groups[placed.key].group) for uid in uids if (placed := self._placed.get(uid))]
        for uid, _, _ in lifted:
            self.remove_pod(uid)
        try:
            yield
        finally:
            for uid, placed, group in lifted:
                self._count(uid, placed, group)

    def may_refuse(self, pod: Pod) -> bool:
        """Whether other pods may keep `pod` off a node; False where none can."""
        asks = pod.spec.affinity is not None or pod.spec.topology_spread_constraints
        return bool(asks or self._keeping or host_ports(pod))

    def remove_pod(self, uid: str) -> None:
        """Stop counting a pod. One that isn't counted is no error."""
        placed = self._placed.pop(uid, None)
        if placed is None:
            return
        counted = self._groups[placed.key]
        _take(counted.nodes, (placed.node,))
        if not counted.nodes:
            for groups in (self._groups, self._keeping, self._wishing):
                groups.pop(placed.key, None)
        if placed.ports:
            _take(self._ports[placed.node], placed.ports)

    def group_of(self, uid: str) -> AlikePods | None:
        placed = self._placed.get(uid)
        return None if placed is None else self._groups[placed.key].group

    def put(self, namespace: Namespace) -> None:
        self._namespaces[namespace.metadata.name] = namespace.metadata.labels

    def remove(self, namespace: Namespace) -> None:
        self._namespaces.pop(namespace.metadata.name, None)

    @property
    def namespaces(self) -> Collection[str]:
        return self._namespaces.keys()

    # What a pod asks -------------------------------------------------------------------------------------------------

    def rules_for(self, pod: Pod, nodes: Mapping[str, Node]) -> NeighbourRules | None:
        """What `pod`, which is not counted, asks of these nodes; None where it takes any, and any takes it."""
        asks = pod.spec.affinity is not None or pod.spec.topology_spread_constraints
        ports = host_ports(pod)
        if not (asks or ports or self._keeping or self._wishing):
            return None
        return _Question(self, pod, nodes).rules(ports)

    def labels_of(self, namespace: str) -> Labels:
        return self._namespaces.get(namespace, {})

    def groups(self) -> Iterable[_Counted]:
        return self._groups.values()

    def keeping(self) -> Iterable[_Counted]:
        return self._keeping.values()

    def wishing(self) -> Iterable[_Counted]:
        return self._wishing.values()

    def ports_on(self, node: str) -> Mapping[HostPort, int]:
        return self._ports.get(node, {})


def _take(counter: Counter[T], what: Iterable[T]) -> None:
    for one in what:
        counter[one] -= 1
        if not counter[one]:
            del counter[one]


# Rules ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One constraint, counted. counts: matching pods by value of the key; own: whether the pod itself matches."""

    key: str
    counts: Mapping[str, int]
    fewest: int
    own: bool
    max_skew: int

    def refusal(self, labels: Labels) -> NodeRefusal | None:
        value = labels.get(self.key)
        if value is None:
            return MISSING_LABEL
        return TOO_SKEWED if self.counts.get(value, 0) + self.own - self.fewest > self.max_skew else None

    def wish(self, labels: Labels) -> int:
        """Fewer is better; a node without the label is the worst."""
        value = labels.get(self.key)
        count = max(self.counts.values(), default=0) + 1 if value is None else self.counts.get(value, 0)
        return -SPREAD_WEIGHT * count


NO_FREE_PORT = NodeRefusal("NodePorts", resolvable=True)
MISSING_LABEL = NodeRefusal("PodTopologySpread", "missing-label")
TOO_SKEWED = NodeRefusal("PodTopologySpread", resolvable=True)
NOT_NEAR = NodeRefusal("InterPodAffinity", "affinity")
TOO_NEAR = NodeRefusal("InterPodAffinity", "anti-affinity", resolvable=True)
KEPT_AWAY = NodeRefusal("InterPodAffinity", "existing-anti-affinity", resolvable=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourRules:
    """What one pod asks of its neighbours, counted over all nodes."""

    ports: tuple[HostPort, ...]
    ports_on: Callable[[str], Mapping[HostPort, int]]
    spread: tuple[Spread, ...]
    #: the constraints with ScheduleAnyway
    loose: tuple[Spread, ...]
    #: topology keys that the node must have a label of, with the values of which one must be there; None: any will do
    near: tuple[tuple[str, frozenset[str] | None], ...]
    away: frozenset[Topology]
    kept_away: frozenset[Topology]
    wishes: Mapping[Topology, int]

    @property
    def is_indifferent(self) -> bool:
        """Whether `wish` is the same for every node."""
        return not self.wishes and not self.loose

    def refusal(self, node: Node) -> NodeRefusal | None:
        """The first plugin's that refuses, in the order of kube-scheduler's."""
        labels = node.metadata.labels
        if self.ports and _conflicts(self.ports, self.ports_on(node.metadata.name)):
            return NO_FREE_PORT
        for constraint in self.spread:
            if (refused := constraint.refusal(labels)) is not None:
                return refused
        for key, values in self.near:
            if (value := labels.get(key)) is None or (values is not None and value not in values):
                return NOT_NEAR
        if self.away and not self.away.isdisjoint(labels.items()):
            return TOO_NEAR
        if self.kept_away and not self.kept_away.isdisjoint(labels.items()):
            return KEPT_AWAY
        return None

    def wish(self, node: Node) -> int:
        """How welcome the pod is there, and the node to it; higher is better."""
        labels = node.metadata.labels
        welcome = sum(self.wishes.get(topology, 0) for topology in labels.items()) if self.wishes else 0
        return welcome + sum(constraint.wish(labels) for constraint in self.loose)


def _conflicts(wanted: Sequence[HostPort], taken: Mapping[HostPort, int]) -> bool:
    """A port on every address conflicts with the same port on any."""
    addresses: dict[tuple[str, int], set[str]] = {}
    for address, protocol, port in wanted:
        addresses.setdefault((protocol, port), set()).add(address)
    for other, protocol, port in taken:
        mine = addresses.get((protocol, port))
        if mine and (other in mine or other == EVERY_ADDRESS or EVERY_ADDRESS in mine):
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Question:
    """Counts what one pod's rules depend on."""

    neighbours: Neighbours
    pod: Pod
    nodes: Mapping[str, Node]

    def rules(self, ports: tuple[HostPort, ...]) -> NeighbourRules:
        own = AlikePods.of(self.pod)
        hard, loose = self._spread(own)
        return NeighbourRules(
            ports=ports,
            ports_on=self.neighbours.ports_on,
            spread=hard,
            loose=loose,
            near=self._near(own),
            away=frozenset(topology for term in own.away for topology in self._topologies(term)),
            kept_away=frozenset(self._kept_away(own)),
            wishes={topology: weight for topology, weight in self._wishes(own).items() if weight},
        )

    # Affinity --------------------------------------------------------------------------------------------------------

    def _topologies(self, term: Term) -> Counter[Topology]:
        """Where pods run that `term` means, with their number."""
        labels_of = self.neighbours.labels_of
        found: Counter[Topology] = Counter()
        for counted in self.neighbours.groups():
            if term.means(counted.group, labels_of):
                found.update(dict(self._of(counted, term.key)))
        return found

    def _of(self, counted: _Counted, key: str) -> Counter[Topology]:
        """Where the pods of a group run."""
        found: Counter[Topology] = Counter()
        for name, pods in counted.nodes.items():
            node = self.nodes.get(name)
            value = node.metadata.labels.get(key) if node is not None else None
            if value is not None:
                found[key, value] += pods
        return found

    def _near(self, own: AlikePods) -> tuple[tuple[str, frozenset[str] | None], ...]:
        """A pod counts where all terms mean it. The first of pods that want to be together may start anywhere."""
        labels_of = self.neighbours.labels_of
        meant = [one for one in self.neighbours.groups() if all(term.means(one.group, labels_of) for term in own.near)]
        near = {term.key: {value for one in meant for _, value in self._of(one, term.key)} for term in own.near}
        if not any(near.values()) and all(term.means(own, labels_of) for term in own.near):
            return tuple((term.key, None) for term in own.near)
        return tuple((key, frozenset(values)) for key, values in near.items())

    def _kept_away(self, own: AlikePods) -> Iterator[Topology]:
        """Where pods run that keep this one away."""
        labels_of = self.neighbours.labels_of
        for counted in self.neighbours.keeping():
            for term in counted.group.away if counted.group.may_mean(own) else ():
                if term.means(own, labels_of):
                    yield from self._of(counted, term.key)

    def _wishes(self, own: AlikePods) -> Counter[Topology]:
        """What the pod would rather, and what those that run would rather have of it."""
        labels_of = self.neighbours.labels_of
        found: Counter[Topology] = Counter()
        for term, weight in own.wishes:
            _add(found, self._topologies(term), weight)
        for counted in self.neighbours.wishing():
            group = counted.group
            if not group.may_mean(own):
                continue
            for term, weight in (*group.wishes, *((term, REQUIRED_WEIGHT) for term in group.near)):
                if term.means(own, labels_of):
                    _add(found, self._of(counted, term.key), weight)
        return found

    # Spread ----------------------------------------------------------------------------------------------------------

    def _spread(self, own: AlikePods) -> tuple[tuple[Spread, ...], tuple[Spread, ...]]:
        constraints = self.pod.spec.topology_spread_constraints
        hard = [one for one in constraints if one.when_unsatisfiable == "DoNotSchedule"]
        loose = [one for one in constraints if one.when_unsatisfiable != "DoNotSchedule"]
        return tuple(self._counted(own, hard)), tuple(self._counted(own, loose))

    def _counted(self, own: AlikePods, constraints: Sequence[TopologySpreadConstraint]) -> Iterator[Spread]:
        """Only nodes that have all the labels count, and where the pod could run as far as the constraint says."""
        keys = {one.topology_key for one in constraints}
        labelled = {name: node for name, node in self.nodes.items() if keys <= node.metadata.labels.keys()}
        needs = needs_of(self.pod)
        for constraint in constraints:
            key, counts = constraint.topology_key, Counter[str]()
            counting = {name: node for name, node in labelled.items() if _counts(constraint, needs, node)}
            for node in counting.values():
                counts[node.metadata.labels[key]] += 0
            selector = _narrowed(as_label_selector(constraint.label_selector), own.labels, constraint.match_label_keys)
            for group in self.neighbours.groups():
                alike = group.group
                if alike.namespace == own.namespace and not alike.terminating and selector.matches(alike.labels):
                    for name in group.nodes.keys() & counting.keys():
                        counts[counting[name].metadata.labels[key]] += group.nodes[name]
            few = len(counts) < (constraint.min_domains or 1)
            yield Spread(
                key=key,
                counts=counts,
                fewest=0 if few else min(counts.values(), default=0),
                own=selector.matches(own.labels),
                max_skew=constraint.max_skew,
            )


def _add(sums: Counter[Topology], found: Mapping[Topology, int], weight: int) -> None:
    for topology, pods in found.items():
        sums[topology] += weight * pods


def _counts(constraint: TopologySpreadConstraint, needs: PodNeeds, node: Node) -> bool:
    """Whether a node's pods count (upstream: matchNodeInclusionPolicies)."""
    if (constraint.node_affinity_policy or "Honor") == "Honor" and not is_selected(needs, node):
        return False
    return constraint.node_taints_policy != "Honor" or is_tolerated(needs, node)
