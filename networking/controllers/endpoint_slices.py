"""Keeps the EndpointSlices and Endpoints of Services with a selector: the pods that it selects and their state.

A view of the log knows the Services, and of each pod what an endpoint says of it. It notes which Services to look at:
one that changed, one whose pods changed. Pods with the same port numbers share slices; an endpoint stays in its slice,
and new ones fill slices that have room. What is written for a Service is one transaction, which checks that the Service
has not changed. As long as there is no Service nobody follows anything.

Sources: pkg/controller/endpointslice, pkg/controller/endpoint, staging/src/k8s.io/endpointslice of Kubernetes 1.36.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import ClassVar, NamedTuple

from msgspec.structs import replace

from claims.kinds.pods import Pod
from claims.kinds.resource_usage import is_sidecar
from inventory.kinds.nodes import Node
from manciple.controllers.declaration import DELETING, FINISHED, Controller
from manciple.controllers.turns import Failed, Rest, attempt
from manciple.store import objects, sql
from manciple.store.event_log import Follower, View
from manciple.store.objects import Writer
from manciple.store.records import Written
from manciple.wire.base import ApiObject, ObjectMeta, ObjectReference, OwnerReference, condition_of
from manciple.wire.errors import Conflict
from manciple.wire.identity import controller
from manciple.wire.resources import ADDED, DELETED, FINISHED_PHASES, MODIFIED, NODES, PODS, Key
from networking.kinds.endpoint_slices import (
    ENDPOINT_SLICE,
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
)
from networking.kinds.endpoints import ENDPOINTS, EndpointAddress, Endpoints, EndpointSubset
from networking.kinds.endpoints import EndpointPort as Port
from networking.kinds.services import EXTERNAL_NAME, IPV4, SERVICE, Service, ServicePort, family_of, is_headless
from networking.kubernetes_service import KEY, SERVICE_NAME

log = logging.getLogger(__name__)

IDENTITY, ENDPOINTS_IDENTITY = controller("endpointslice-controller"), controller("endpoint-controller")
SERVICES, SLICES = SERVICE.resource, ENDPOINT_SLICE.resource
MANAGED_BY, MANAGER = "endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"
HEADLESS = "service.kubernetes.io/headless"
ZONE = "topology.kubernetes.io/zone"
#: Endpoints in one slice (upstream: --max-endpoints-per-slice), and addresses in one Endpoints.
MOST_IN_SLICE, MOST_ADDRESSES = 100, 1000
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
#: Services that are looked at in one turn.
BURST = 100

#: Whether there is any Service that selects pods; that of the API does not.
_CONDITION, _PARAMETERS = sql.any_of((SERVICES,), but=KEY)
ANY: sql.Query = (f"SELECT {_CONDITION}", _PARAMETERS)


class PodPort(NamedTuple):
    """A port that a container names."""

    name: str
    protocol: str
    number: int


@dataclass(frozen=True, slots=True)
class PodEndpoint:
    """What of a pod its endpoints say. address: its first one. subdomain: of its hostname's Service."""

    name: str
    uid: str
    labels: Mapping[str, str]
    address: str
    node: str
    hostname: str
    subdomain: str
    is_ready: bool
    is_terminating: bool
    ports: tuple[PodPort, ...]

    @classmethod
    def of(cls, pod: Pod) -> PodEndpoint | None:
        """None of a pod that has ended, or has no address yet."""
        if not pod.status.pod_ip or pod.status.phase in FINISHED_PHASES:
            return None
        ready = condition_of(pod.status.conditions, "Ready")
        sidecars = (one for one in pod.spec.init_containers if is_sidecar(one))
        return cls(
            name=pod.metadata.name,
            uid=pod.metadata.uid,
            labels=pod.metadata.labels,
            address=pod.status.pod_ip,
            node=pod.spec.node_name,
            hostname=pod.spec.hostname,
            subdomain=pod.spec.subdomain,
            is_ready=ready is not None and ready.status == "True",
            is_terminating=pod.metadata.deletion_timestamp is not None,
            ports=tuple(
                PodPort(port.name, port.protocol, port.container_port)
                for container in (*pod.spec.containers, *sidecars)
                for port in container.ports
                if port.name
            ),
        )


class ServiceView(View):
    """See the module. Services are found by the first label of their selector."""

    resources: ClassVar[Sequence[str]] = (NODES, SERVICES, SLICES, PODS)

    def __init__(self) -> None:
        self.services: dict[Key, Service] = {}
        #: (namespace, label, value) -> the Services whose selector begins with it
        self._selecting: dict[tuple[str, str, str], set[Key]] = {}
        #: namespace -> its pods that may be endpoints, by name
        self.pods: dict[str, dict[str, PodEndpoint]] = {}
        #: (namespace, name of a Service) -> the slices that are kept here, by name
        self.slices: dict[Key, dict[str, EndpointSlice]] = {}
        self.zones: dict[str, str] = {}
        self.changed: set[Key] = set()
        #: Services that are looked at again -> when, as POSIX seconds
        self.later: dict[Key, float] = {}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:  # noqa: ARG002 - an object says what it is
        for obj in objects:
            self._put(obj, is_gone=False)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            self._put(change.object, is_gone=change.type == DELETED)

    def _put(self, obj: ApiObject, *, is_gone: bool) -> None:
        if isinstance(obj, Pod):
            self._put_pod(obj.key, None if is_gone else PodEndpoint.of(obj))
        elif isinstance(obj, Service):
            self._put_service(obj, is_gone=is_gone)
        elif isinstance(obj, EndpointSlice):
            self._put_slice(obj, is_gone=is_gone)
        elif isinstance(obj, Node):
            self._put_node(obj.metadata.name, "" if is_gone else obj.metadata.labels.get(ZONE, ""))

    def _put_pod(self, key: Key, pod: PodEndpoint | None) -> None:
        namespace, name = key
        pods = self.pods.setdefault(namespace, {})
        before = pods.pop(name, None)
        if pod is not None:
            pods[name] = pod
        if not pods:
            del self.pods[namespace]
        if before == pod:
            return
        for one in (before, pod):
            if one is not None:
                self.changed.update(self._selecting_pod(namespace, one))

    def _selecting_pod(self, namespace: str, pod: PodEndpoint) -> Iterator[Key]:
        for label, value in pod.labels.items():
            for key in self._selecting.get((namespace, label, value), ()):
                if self.services[key].spec.selector.items() <= pod.labels.items():
                    yield key

    def _put_service(self, service: Service, *, is_gone: bool) -> None:
        key = service.key
        before = self.services.pop(key, None)
        if before is not None and (first := _first_label(before)) is not None:
            self._selecting[first].discard(key)
            if not self._selecting[first]:
                del self._selecting[first]
        if is_gone:
            self.later.pop(key, None)
            return
        self.services[key] = service
        if (first := _first_label(service)) is not None:
            self._selecting.setdefault(first, set()).add(key)
        if before is None or (before.spec, before.metadata.labels) != (service.spec, service.metadata.labels):
            self.changed.add(key)

    def _put_slice(self, one: EndpointSlice, *, is_gone: bool) -> None:
        labels, meta = one.metadata.labels, one.metadata
        known = self.slices.setdefault((meta.namespace, labels.get(SERVICE_NAME, "")), {})
        known.pop(meta.name, None)
        if not is_gone and labels.get(MANAGED_BY) == MANAGER:
            known[meta.name] = one
        if not known:
            del self.slices[meta.namespace, labels.get(SERVICE_NAME, "")]
        self.changed.add((meta.namespace, labels.get(SERVICE_NAME, "")))

    def _put_node(self, name: str, zone: str) -> None:
        if self.zones.get(name, "") == zone:
            return
        self.zones.pop(name, None)
        if zone:
            self.zones[name] = zone
        for namespace, pods in self.pods.items():
            for pod in pods.values():
                if pod.node == name:
                    self.changed.update(self._selecting_pod(namespace, pod))

    def take(self, now: datetime) -> list[Service]:
        """Those with news, at most `BURST`."""
        self.changed.update(key for key, at in self.later.items() if at <= now.timestamp())
        self.changed &= self.services.keys()
        taken = sorted(self.changed)[:BURST]
        self.changed.difference_update(taken)
        for key in taken:
            self.later.pop(key, None)
        found = (self.services[key] for key in taken)
        return [one for one in found if one.spec.selector and one.spec.type != EXTERNAL_NAME]

    def pods_of(self, service: Service) -> list[PodEndpoint]:
        selector = service.spec.selector.items()
        pods = self.pods.get(service.metadata.namespace, {}).values()
        return [pod for pod in pods if selector <= pod.labels.items()]


def _first_label(service: Service) -> tuple[str, str, str] | None:
    if not service.spec.selector or service.spec.type == EXTERNAL_NAME:
        return None
    return service.metadata.namespace, *min(service.spec.selector.items())


_follower = Follower(ServiceView)
_rest = Rest(ServiceView.resources)


@dataclass(frozen=True, slots=True)
class Turn:
    """A Service, the pods that it selects with the zones of their nodes, and its slices."""

    service: Service
    pods: Sequence[PodEndpoint]
    zones: Mapping[str, str]
    slices: Sequence[EndpointSlice]


def reconcile(now: datetime) -> int:
    if not sql.fetch(*ANY)[0][0]:
        if _follower.place != ("", 0):
            _follower.reset()
        return 0
    changed, later, began = 0, dict[Key, float](), time.monotonic()
    try:
        with _follower.view() as view:
            services = [one for one in view.take(now) if one.metadata.deletion_timestamp is None]
            revision = view.revision
            next_turn = 0.0 if view.changed else min(view.later.values(), default=math.inf)
            later.update((one.key, now.timestamp()) for one in services)  # whatever cuts this off, no turn is lost
            turns = {one.key: attempt(SERVICES, one.key, partial(_turn, view, one)) for one in services}
        for key, turn in turns.items():
            done = turn if isinstance(turn, Failed) else attempt(SERVICES, key, partial(_sync, turn))
            if isinstance(done, Failed):
                later[key] = now.timestamp() + done.seconds
            else:
                changed += done
                del later[key]
    finally:
        if later:
            with _follower.view() as view:
                view.later.update(later)
    _rest.note(began, revision, min([next_turn, *later.values()]))
    return changed


def _turn(view: ServiceView, service: Service) -> Turn:
    pods = view.pods_of(service)
    zones = {pod.node: view.zones.get(pod.node, "") for pod in pods}
    return Turn(service, pods, zones, list(view.slices.get(service.key, {}).values()))


def _sync(turn: Turn) -> int:
    service = turn.service
    written, gone = slices_of(turn)
    earlier = earlier_form(turn)
    stored = objects.get(ENDPOINTS, *service.key)
    known = None if stored is None else objects.decoded(stored, Endpoints)
    has_news = known is None or (known.subsets, known.metadata.labels) != (earlier.subsets, earlier.metadata.labels)
    if not (written or gone or has_news):
        return 0
    with objects.writing(identity=IDENTITY) as writer:
        before = writer.revision
        _check_unchanged(writer, service)
        for one in written:
            if one.metadata.name:
                writer.update(ENDPOINT_SLICE, one)
            else:
                writer.create(ENDPOINT_SLICE, one)
        for one in gone:
            writer.delete(ENDPOINT_SLICE, *one.key)
        if has_news:
            with writer.savepoint(identity=ENDPOINTS_IDENTITY):
                _put_earlier(writer, earlier)
        return writer.revision - before


def _check_unchanged(writer: Writer, service: Service) -> None:
    """Raises: Conflict."""
    stored = writer.get(SERVICE, *service.key)
    if stored is None or stored.metadata.resource_version != service.metadata.resource_version:
        raise Conflict.of(SERVICES, service.metadata.name)


# Slices ---------------------------------------------------------------------------------------------------------------


def slices_of(turn: Turn) -> tuple[list[EndpointSlice], list[EndpointSlice]]:
    """(slices to write, without a name where they are new; slices to delete)."""
    service = turn.service
    wanted: dict[tuple[EndpointPort, ...], dict[str, Endpoint]] = {}
    for pod in turn.pods:
        if family_of(pod.address) == IPV4:
            endpoint = _endpoint(service, pod, turn.zones.get(pod.node, ""))
            wanted.setdefault(_slice_ports(service, pod), {})[pod.uid] = endpoint
    if not wanted:
        wanted[()] = {}  # one slice says that there are none
    written: list[EndpointSlice] = []
    gone: list[EndpointSlice] = []
    labels = _labels(service)
    left: dict[tuple[EndpointPort, ...], list[EndpointSlice]] = {}
    for known in sorted(turn.slices, key=lambda one: (-len(one.endpoints), one.metadata.name)):
        endpoints = wanted.get(known.ports)
        if endpoints is None or known.address_type != IPV4:
            gone.append(known)
            continue
        uids = (endpoint.target_ref.uid for endpoint in known.endpoints if endpoint.target_ref is not None)
        still = tuple(found for uid in uids if (found := endpoints.pop(uid, None)) is not None)
        left.setdefault(known.ports, []).append(_with_content(known, still, labels))
    by_name = {one.metadata.name: one for one in turn.slices}
    for ports, endpoints in wanted.items():
        new = list(endpoints.values())
        filled = []
        for one in left.get(ports, []):
            room = MOST_IN_SLICE - len(one.endpoints)
            filled.append(_with_content(one, (*one.endpoints, *new[:room]), labels))
            del new[:room]
        kept = [one for one in filled if one.endpoints] or filled[:1]
        gone += [by_name[one.metadata.name] for one in filled if one not in kept]
        written += [one for one in kept if one != by_name[one.metadata.name]]
        portions = [new[at : at + MOST_IN_SLICE] for at in range(0, len(new), MOST_IN_SLICE)]
        if not portions and not filled:
            portions = [[]]
        written += [_new_slice(service, ports, portion, labels) for portion in portions]
    return written, gone


def _with_content(known: EndpointSlice, endpoints: tuple[Endpoint, ...], labels: dict[str, str]) -> EndpointSlice:
    return replace(known, endpoints=endpoints, metadata=replace(known.metadata, labels=labels))


def _new_slice(
    service: Service, ports: tuple[EndpointPort, ...], endpoints: Iterable[Endpoint], labels: dict[str, str]
) -> EndpointSlice:
    metadata = ObjectMeta(
        generate_name=f"{service.metadata.name}-",
        namespace=service.metadata.namespace,
        labels=labels,
        owner_references=(_owner(service),),
    )
    return EndpointSlice(
        api_version="discovery.k8s.io/v1",
        kind="EndpointSlice",
        metadata=metadata,
        address_type=IPV4,
        endpoints=tuple(endpoints),
        ports=ports,
    )


def _owner(service: Service) -> OwnerReference:
    return OwnerReference(
        api_version="v1",
        kind="Service",
        name=service.metadata.name,
        uid=service.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def _labels(service: Service) -> dict[str, str]:
    """Those of the Service, and what says whose slice it is."""
    reserved = (SERVICE_NAME, MANAGED_BY, HEADLESS)
    labels = {key: value for key, value in service.metadata.labels.items() if key not in reserved}
    labels |= {MANAGED_BY: MANAGER, SERVICE_NAME: service.metadata.name}
    return {**labels, HEADLESS: ""} if is_headless(service.spec) else labels


def _slice_ports(service: Service, pod: PodEndpoint) -> tuple[EndpointPort, ...]:
    """The Service's ports as the pod has them; one that it does not have is left out."""
    return tuple(
        EndpointPort(name=port.name, protocol=port.protocol, port=number, app_protocol=port.app_protocol)
        for port in service.spec.ports
        if (number := _port_number(port, pod))
    )


def _port_number(port: ServicePort, pod: PodEndpoint) -> int:
    if isinstance(port.target_port, int):
        return port.target_port
    wanted = (port.target_port, port.protocol)
    return next((one.number for one in pod.ports if (one.name, one.protocol) == wanted), 0)


def _endpoint(service: Service, pod: PodEndpoint, zone: str) -> Endpoint:
    serving = pod.is_ready or (service.spec.publish_not_ready_addresses and not pod.is_terminating)
    ready = service.spec.publish_not_ready_addresses or (pod.is_ready and not pod.is_terminating)
    return Endpoint(
        addresses=(pod.address,),
        conditions=EndpointConditions(ready=ready, serving=serving, terminating=pod.is_terminating),
        hostname=_hostname(service, pod) or None,
        target_ref=_reference(service, pod),
        node_name=pod.node or None,
        zone=zone or None,
    )


def _hostname(service: Service, pod: PodEndpoint) -> str:
    return pod.hostname if pod.subdomain == service.metadata.name else ""


def _reference(service: Service, pod: PodEndpoint) -> ObjectReference:
    return ObjectReference(kind="Pod", namespace=service.metadata.namespace, name=pod.name, uid=pod.uid)


# Endpoints ------------------------------------------------------------------------------------------------------------


def earlier_form(turn: Turn) -> Endpoints:
    """The Endpoints of the Service: without pods that are being deleted."""
    service = turn.service
    takes_all = service.spec.publish_not_ready_addresses
    subsets: dict[tuple[EndpointPort, ...], tuple[list[EndpointAddress], list[EndpointAddress]]] = {}
    pods = sorted((pod for pod in turn.pods if takes_all or not pod.is_terminating), key=lambda one: one.name)
    for pod in pods[:MOST_ADDRESSES]:
        ports = _slice_ports(service, pod)
        if service.spec.ports and not ports:
            continue
        address = EndpointAddress(
            ip=pod.address,
            hostname=_hostname(service, pod),
            node_name=pod.node or None,
            target_ref=_reference(service, pod),
        )
        ready, others = subsets.setdefault(ports, ([], []))
        (ready if pod.is_ready or takes_all else others).append(address)
    metadata = ObjectMeta(
        name=service.metadata.name,
        namespace=service.metadata.namespace,
        labels={**service.metadata.labels, "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
        | ({HEADLESS: ""} if is_headless(service.spec) else {}),
        annotations={OVER_CAPACITY: "truncated"} if len(pods) > MOST_ADDRESSES else {},
        owner_references=(_owner(service),),
    )
    return Endpoints(
        api_version="v1",
        kind="Endpoints",
        metadata=metadata,
        subsets=tuple(
            EndpointSubset(
                addresses=tuple(ready), not_ready_addresses=tuple(others), ports=tuple(map(_earlier_port, ports))
            )
            for ports, (ready, others) in subsets.items()
        ),
    )


def _earlier_port(port: EndpointPort) -> Port:
    return Port(name=port.name or "", port=port.port or 0, protocol=port.protocol or "", app_protocol=port.app_protocol)


def _put_earlier(writer: Writer, wanted: Endpoints) -> None:
    known = writer.get(ENDPOINTS, *wanted.key)
    if known is None:
        writer.create(ENDPOINTS, wanted)
    else:
        annotations = {key: text for key, text in known.metadata.annotations.items() if key != OVER_CAPACITY}
        annotations |= wanted.metadata.annotations
        owners = wanted.metadata.owner_references
        metadata = replace(
            known.metadata, labels=wanted.metadata.labels, annotations=annotations, owner_references=owners
        )
        writer.update(ENDPOINTS, replace(wanted, metadata=metadata))


CONTROLLER = Controller(
    name="keep_endpoint_slices",
    does="writes where the pods of Services are reached",
    reconcile=reconcile,
    every=2,
    wakes_on=frozenset(
        {
            (SERVICES, ADDED),
            (SERVICES, MODIFIED),
            (SLICES, DELETED),
            (PODS, MODIFIED),
            (PODS, FINISHED),
            (PODS, DELETING),
            (PODS, DELETED),
        }
    ),
    has_work=ANY,
    is_work=frozenset({(SERVICES, ADDED), (SERVICES, MODIFIED)}),
    rests_without_work=True,
    rests_until=_rest.until,
    most_per_turn=BURST,
    queue_name="endpoint_slice",
)
