"""The pods that a Simulation is about, grouped by what decides where they fit.

A pod that waits is tried as it is, with the claims that were made for it. Where they are not made yet, and of a pod
that does not exist, a replica is tried, made as the API and the claim controller would make it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from claims.pod_claims import is_for_pod, references
from manciple.store import objects
from manciple.wire.errors import Conflict, NotFound
from manciple.wire.resources import PODS, Key, kind
from scheduling.rehearsal.workload import Workload, of_pod, replica
from scheduling.state import node_fit
from scheduling.state.cluster import ClusterState


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedSubject:
    """One pod to be placed. claims: that are there for it alone, and only as long as it is tried or placed."""

    name: str
    pod: Pod
    claims: tuple[ResourceClaim, ...] = ()
    #: see `group_of`; empty until it was tried
    group: bytes = b""

    @property
    def namespace(self) -> str:
        return self.pod.metadata.namespace

    @property
    def key(self) -> Key:
        return self.namespace, self.name

    @property
    def turn(self) -> tuple[int, str, int]:
        """The order of the queue: the highest priority first, then who has waited longest."""
        meta = self.pod.metadata
        return -(self.pod.spec.priority or 0), meta.creation_timestamp or "~", int(meta.resource_version or 0)


def all_waiting(state: ClusterState) -> Iterator[SimulatedSubject]:
    """Every pod that wants a node now. What a gate holds back wants none yet."""
    return (_waiting(pod) for pod in state.pending.values() if not pod.spec.scheduling_gates)


def waiting(state: ClusterState, names: Iterable[tuple[str, str]]) -> Iterator[SimulatedSubject]:
    """Those of these names, each once. Raises: NotFound; Conflict for one that does not wait."""
    by_name = {pod.key: pod for pod in state.pending.values()}
    for namespace, name in dict.fromkeys(names):
        if (namespace, name) not in by_name:
            if objects.get(kind(PODS), namespace, name) is None:
                raise NotFound.of(PODS, name)
            raise Conflict.of(PODS, name, "it does not wait for a node of this scheduler")
        yield _waiting(by_name[namespace, name])


def replicas(workload: Workload, count: int) -> Iterator[SimulatedSubject]:
    """`count` pods like the workload's, called NAME~NUMBER."""
    for number in range(1, count + 1):
        pod, claims = replica(workload, number)
        yield SimulatedSubject(name=pod.metadata.name, pod=pod, claims=claims)


def _waiting(pod: Pod) -> SimulatedSubject:
    if all(one.claim or not one.needed for one in references(pod)):
        return SimulatedSubject(name=pod.metadata.name, pod=pod)
    made, claims = replica(of_pod(pod), 1)
    meta = msgspec.structs.replace(made.metadata, creation_timestamp=pod.metadata.creation_timestamp)
    return SimulatedSubject(name=pod.metadata.name, pod=msgspec.structs.replace(made, metadata=meta), claims=claims)


def group_of(pod: Pod, claims: Sequence[ResourceClaim]) -> bytes:
    """Equal for pods of which every node takes both or neither: what one is refused, the other need not ask for."""
    spec, meta = pod.spec, pod.metadata
    needs = node_fit.needs_of(pod)
    return msgspec.json.encode(
        [
            meta.namespace,
            sorted(meta.labels.items()),
            spec.priority,
            spec.affinity,
            spec.topology_spread_constraints,
            sorted(map(str, node_fit.host_ports(pod))),
            [needs.node_name, sorted(needs.node_selector.items()), needs.tolerations, sorted(needs.requests.items())],
            [one.spec if _is_own(one, pod) else one.metadata.uid for one in claims],
        ]
    )


def _is_own(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether nobody else can use the claim, and it holds nothing yet."""
    imagined = claim.metadata.uid == claim.metadata.name
    return claim.status.allocation is None and (imagined or is_for_pod(claim, pod))
