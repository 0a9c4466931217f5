"""Hands out the addresses and node ports of Services: each is in one Service at a time.

A rule of the writer, so it runs in the transaction that writes the Service, under the store's lock. What is taken it
reads from a view of the log, which is current there, and from what the same transaction has written.

Sources: pkg/registry/core/service/{ipallocator,portallocator}, storage/alloc.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import ClassVar

from django.conf import settings
from msgspec.structs import replace

from manciple.store import hooks
from manciple.store.event_log import Follower, View
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.store.records import Written
from manciple.wire.base import RANDOM, ApiObject
from manciple.wire.errors import FieldError, Invalid, invalid
from manciple.wire.resources import DELETED, Key
from manciple.wire.validation import SPEC, Path
from networking.kinds import services
from networking.kinds.services import NO_ADDRESS, SERVICE, Service, ServicePort, ServiceSpec

#: Node ports (upstream: --service-node-port-range).
NODE_PORTS = range(30000, 32768)
#: The part of a range that is left to those who ask for a number: a sixteenth, within these bounds.
LEAST_RESERVED, MOST_RESERVED = 16, 256
#: So many random numbers are tried before all are looked at.
TRIES = 16


def register() -> None:
    hooks.register_rule(hand_out, operations={"CREATE", "UPDATE"}, resources={SERVICE.resource})


class Taken(View):
    """Which Service has an address, which ones a node port: a number may serve one protocol each."""

    resources: ClassVar[Sequence[str]] = (SERVICE.resource,)

    def __init__(self) -> None:
        self.by_key: dict[Key, tuple[str, frozenset[int]]] = {}
        self.addresses: set[str] = set()
        self.ports: dict[int, set[Key]] = {}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:  # noqa: ARG002 - there is one
        for obj in objects:
            self._put(obj.key, obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            self._put(change.object.key, None if change.type == DELETED else change.object)

    def _put(self, key: Key, obj: ApiObject | None) -> None:
        address, ports = self.by_key.pop(key, ("", frozenset()))
        self.addresses.discard(address)
        for port in ports:
            self.ports[port].discard(key)
        if isinstance(obj, Service):
            address, ports = obj.spec.cluster_ip, frozenset(_numbers(obj.spec))
            self.by_key[key] = address, ports
            self.addresses.add(address)
            for port in ports:
                self.ports.setdefault(port, set()).add(key)


_follower = Follower(Taken)


def hand_out(writer: Writer, write: Write) -> Service | None:
    """The Service with what it lacks. Raises: Invalid where it asks for something that another one has."""
    new: Service = write.new
    spec, old = new.spec, write.old.spec if write.old is not None else ServiceSpec()
    kept = {NO_ADDRESS, *((old.cluster_ip,) if old.cluster_ip else ())}
    lacks_address = services.has_address(spec) and spec.cluster_ip not in kept
    if write.subresource or not (lacks_address or services.has_node_ports(spec)):
        return None
    addresses, ports = _taken(writer, new.key)
    if lacks_address:
        if spec.cluster_ip:
            _check_address(new, addresses)
        address = spec.cluster_ip or _free_address(new, addresses, dry_run=write.dry_run)
        spec = replace(spec, cluster_ip=address, cluster_ips=(address,))
    if services.has_node_ports(spec):
        spec = _with_ports(new, spec, ports - set(_numbers(old)))
    return None if spec == new.spec else replace(new, spec=spec)


def _taken(writer: Writer, key: Key) -> tuple[set[str], set[int]]:
    """The addresses and the ports that other Services have than the one with that key."""
    with _follower.view() as view:
        addresses = set(view.addresses)
        ports = {number for number, keys in view.ports.items() if keys - {key}}
    for written in writer.written:  # by the same transaction, and not in the log yet
        if isinstance(written.object, Service) and written.type != DELETED and written.object.key != key:
            addresses.add(written.object.spec.cluster_ip)
            ports.update(_numbers(written.object.spec))
    return addresses, ports


def _numbers(spec: ServiceSpec) -> Iterator[int]:
    """Its node ports."""
    yield from (port.node_port for port in spec.ports if port.node_port)
    if spec.health_check_node_port:
        yield spec.health_check_node_port


# Addresses ------------------------------------------------------------------------------------------------------------


def network() -> IPv4Network:
    found: IPv4Network = settings.SERVICE_NETWORK
    return found


def _check_address(new: Service, taken: Container[str]) -> None:
    """Raises: Invalid."""
    text, among = new.spec.cluster_ip, network()
    address, why = IPv4Address(text), ""
    if address not in among or address in (among.network_address, among.broadcast_address):
        why = f"the provided IP ({text}) is not in the valid range. The range of valid IPs is {among}"
    elif text in taken:
        why = "provided IP is already allocated"
    if why:
        at, addresses = SPEC.child("clusterIPs"), new.spec.cluster_ips
        raise _refusal(new, invalid(at, addresses, f"failed to allocate IP {text}: {why}"))


def _free_address(new: Service, taken: Container[str], *, dry_run: bool) -> str:
    """Raises: Invalid."""
    among = network()
    first = int(among.network_address)
    if dry_run:  # as in Kubernetes: nothing is taken
        return str(among.network_address)
    hosts = range(first + 1, int(among.broadcast_address))
    number = next((one for one in _candidates(hosts) if str(IPv4Address(one)) not in taken), None)
    if number is None:
        raise _refusal(new, invalid(SPEC.child("clusterIPs"), [], "failed to allocate a serviceIP: range is full"))
    return str(IPv4Address(number))


# Node ports -----------------------------------------------------------------------------------------------------------


def _with_ports(new: Service, spec: ServiceSpec, taken: set[int]) -> ServiceSpec:
    """Raises: Invalid. taken: by other Services."""
    for position, port in enumerate(spec.ports):
        if port.node_port:
            _check_port(new, port.node_port, taken, SPEC.child("ports").at(position).child("nodePort"))
    if spec.health_check_node_port:
        _check_port(new, spec.health_check_node_port, taken, SPEC.child("healthCheckNodePort"))
    taken = taken | set(_numbers(spec))
    if spec.type != services.LOAD_BALANCER or spec.allocate_load_balancer_node_ports:
        ports = list[ServicePort]()
        for port in spec.ports:
            # One that serves two protocols has one number.
            same = next((one.node_port for one in ports if one.port == port.port), 0)
            number = port.node_port or same or _free_port(new, taken)
            taken.add(number)
            ports.append(replace(port, node_port=number))
        spec = replace(spec, ports=tuple(ports))
    if services.has_health_check(spec) and not spec.health_check_node_port:
        spec = replace(spec, health_check_node_port=_free_port(new, taken))
    return spec


def _check_port(new: Service, number: int, taken: Container[int], path: Path) -> None:
    """Raises: Invalid."""
    if number not in NODE_PORTS:
        among = f"{NODE_PORTS.start}-{NODE_PORTS.stop - 1}"
        why = f"provided port is not in the valid range. The range of valid ports is {among}"
        raise _refusal(new, invalid(path, number, why))
    if number in taken:
        raise _refusal(new, invalid(path, number, "provided port is already allocated"))


def _free_port(new: Service, taken: Container[int]) -> int:
    """Raises: Invalid."""
    number = next((one for one in _candidates(NODE_PORTS) if one not in taken), None)
    if number is None:
        raise _refusal(new, invalid(SPEC.child("ports"), [], "failed to allocate a nodePort: range is full"))
    return number


def _candidates(numbers: range) -> Iterator[int]:
    """Some at random, which are rarely taken, then all: first those that nobody would ask for."""
    random, reserved = RANDOM.value, min(max(LEAST_RESERVED, len(numbers) // 16), MOST_RESERVED)
    own = numbers[reserved:] or numbers
    yield from (random.choice(own) for _ in range(TRIES))
    yield from own
    yield from numbers[:reserved]


def _refusal(new: Service, error: FieldError) -> Invalid:
    return Invalid.of(kind=SERVICE.kind, group=SERVICE.group, name=new.metadata.name, errors=[error])
