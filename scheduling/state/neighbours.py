"""What pods ask of each other's places: pod affinity and anti-affinity, topology spread, host ports. PURE.

Pods of one namespace with the same labels and the same affinity are one group (`AlikePods`), and a group is counted by
node; so a question costs as much as there are groups and nodes, not pods. A pod that asks for nothing of the kind costs
nothing where no running pod keeps others away: its rules are None.

    neighbours.place(pod, node); neighbours.remove_pod(uid)      what runs where
    rules = neighbours.rules_for(pod, nodes)                   what `pod` asks, counted once for all nodes
    rules.refusal(node); rules.wish(node)                      one node: what speaks against it, how welcome it is

"Together" means nodes with the same value of a label, the topology key. Anti-affinity counts both ways.
Sources: pkg/scheduler/framework/plugins/{interpodaffinity,podtopologyspread,nodeports} of Kubernetes 1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from msgspec import Struct

from claims.causes.causes import NodeRefusal
from claims.kinds.pods import Affinity, Pod, PodAffinityTerm, TopologySpreadConstraint
from inventory.kinds.nodes import Node
from manciple.wire import codec
from manciple.wire.machinery import Namespace
from manciple.wire.resources import NAMESPACES
from manciple.wire.selectors import ParsedLabelSelector, Requirement, as_label_selector
from scheduling.state import node_fit
from scheduling.state.part import Part

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
        needs = node_fit.needs_of(self.pod)
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


def _counts(constraint: TopologySpreadConstraint, needs: node_fit.PodNeeds, node: Node) -> bool:
    """Whether a node's pods count (upstream: matchNodeInclusionPolicies)."""
    if (constraint.node_affinity_policy or "Honor") == "Honor" and not node_fit.is_selected(needs, node):
        return False
    return constraint.node_taints_policy != "Honor" or node_fit.is_tolerated(needs, node)
