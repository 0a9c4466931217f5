"""Each address and node port is in one Service at a time."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest
from msgspec.structs import replace
from pytest_django.fixtures import Settings

from manciple.store import objects
from manciple.wire.errors import Invalid
from manciple.wire.identity import SYSTEM
from networking import addresses, kubernetes_service
from networking.kinds.endpoint_slices import ENDPOINT_SLICE
from networking.kinds.endpoints import ENDPOINTS
from networking.kinds.services import SERVICE, ServicePort
from tests.networking.cluster import Cluster, make_service


def test_services_get_different_addresses_of_the_range(cluster: Cluster, settings: Settings) -> None:
    settings.SERVICE_NETWORK = IPv4Network("10.7.0.0/29")
    found = {cluster.create(SERVICE, make_service(f"s{number}")).spec.cluster_ip for number in range(6)}
    assert found == {f"10.7.0.{number}" for number in range(1, 7)}
    with pytest.raises(Invalid, match="full"):
        cluster.create(SERVICE, make_service("one-too-many"))
    cluster.delete(SERVICE, "s3")
    cluster.create(SERVICE, make_service("next"))


def test_two_services_of_one_transaction_get_different_addresses(cluster: Cluster, settings: Settings) -> None:
    settings.SERVICE_NETWORK = IPv4Network("10.7.0.0/30")
    with objects.writing(identity=SYSTEM) as writer:
        found = [writer.create(SERVICE, SERVICE.prepare_create(make_service(name))) for name in ("a", "b")]
    assert {one.spec.cluster_ip for one in found} == {"10.7.0.1", "10.7.0.2"}  # type: ignore[attr-defined]  # Services


def test_an_address_that_another_service_has_is_refused(cluster: Cluster) -> None:
    cluster.create(SERVICE, make_service(cluster_ip="10.96.0.77"))
    with pytest.raises(Invalid, match="already allocated"):
        cluster.create(SERVICE, make_service("other", cluster_ip="10.96.0.77"))
    cluster.delete(SERVICE, "web")
    cluster.create(SERVICE, make_service("other", cluster_ip="10.96.0.77"))


def test_a_refused_service_takes_no_address(cluster: Cluster, settings: Settings) -> None:
    settings.SERVICE_NETWORK = IPv4Network("10.7.0.0/30")
    cluster.create(SERVICE, make_service("a"))
    for _ in range(3):
        with pytest.raises(Invalid):
            cluster.create(SERVICE, make_service("a-bad", ports=(ServicePort(port=0),)))
    cluster.create(SERVICE, make_service("b"))


def test_a_service_keeps_its_address_and_its_node_ports(cluster: Cluster) -> None:
    made = cluster.create(SERVICE, make_service(type="NodePort"))
    (port,) = made.spec.ports
    assert port.node_port in addresses.NODE_PORTS

    def change(service):  # type: ignore[no-untyped-def]  # as a client writes it, without what it was given
        ports = (replace(port, node_port=0, target_port=9090),)
        return replace(service, spec=replace(service.spec, cluster_ip="", cluster_ips=(), ports=ports))

    after = cluster.edit(SERVICE, "web", change)
    assert after.spec.cluster_ip == made.spec.cluster_ip
    assert after.spec.ports[0].node_port == port.node_port
    assert after.spec.ports[0].target_port == 9090


def test_a_node_port_that_another_service_has_is_refused(cluster: Cluster) -> None:
    wanted = (ServicePort(port=80, node_port=30123),)
    cluster.create(SERVICE, make_service(type="NodePort", ports=wanted))
    with pytest.raises(Invalid, match="already allocated"):
        cluster.create(SERVICE, make_service("other", type="NodePort", ports=wanted))
    with pytest.raises(Invalid, match="valid range"):
        cluster.create(SERVICE, make_service("far", type="NodePort", ports=(ServicePort(port=80, node_port=99),)))


def test_one_that_becomes_an_external_name_gives_its_address_up(cluster: Cluster) -> None:
    cluster.create(SERVICE, make_service(cluster_ip="10.96.0.77"))
    cluster.edit(
        SERVICE,
        "web",
        lambda one: replace(one, spec=replace(one.spec, type="ExternalName", external_name="db.example", ports=())),
    )
    assert cluster.service().spec.cluster_ip == ""
    cluster.create(SERVICE, make_service("other", cluster_ip="10.96.0.77"))


def test_the_api_has_a_service_and_says_where_it_is_reached(cluster: Cluster, settings: Settings) -> None:
    settings.API_URL = "https://192.0.2.7:6443"
    assert kubernetes_service.ensure() == 3
    assert kubernetes_service.ensure() == 0
    service = cluster.service("kubernetes")
    assert IPv4Address(service.spec.cluster_ip) == addresses.network().network_address + 1
    assert [(port.port, port.target_port) for port in service.spec.ports] == [(443, 6443)]
    assert cluster.addresses("kubernetes") == {"192.0.2.7"}
    cluster.delete(ENDPOINT_SLICE, "kubernetes")
    cluster.delete(ENDPOINTS, "kubernetes")
    cluster.delete(SERVICE, "kubernetes")
    assert kubernetes_service.ensure() == 3
    assert cluster.service("kubernetes").spec.cluster_ip == service.spec.cluster_ip
