"""Keeps the Service `kubernetes` in `default`, and its EndpointSlice and Endpoints: where the API is reached.

Clients and test suites look for it. Its address is the first of the range; programs in pods are told another one, which
leads to the API (`nodeagent`).
Source: pkg/controlplane/controller/kubernetesservice, pkg/controlplane/reconcilers of Kubernetes 1.36.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from msgspec.structs import replace

from manciple.store import objects
from manciple.store.objects import Writer
from manciple.wire.base import ApiObject, ObjectMeta
from manciple.wire.identity import SYSTEM
from manciple.wire.machinery import DEFAULT_NAMESPACE
from manciple.wire.registry import Kind
from networking.addresses import network
from networking.kinds.endpoint_slices import (
    ENDPOINT_SLICE,
    FQDN,
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
)
from networking.kinds.endpoints import ENDPOINTS, EndpointAddress, Endpoints, EndpointSubset
from networking.kinds.endpoints import EndpointPort as Port
from networking.kinds.services import SERVICE, Service, ServicePort, ServiceSpec, family_of

NAME = "kubernetes"
KEY = (DEFAULT_NAMESPACE, NAME)
SERVICE_NAME = "kubernetes.io/service-name"
PORT_NAME, PORT = "https", 443


def ensure() -> int:
    """Make what is missing, and correct where the API is reached. Returns how many objects were written.

    A process that does not know where the API is reached leaves that to those that do.
    """
    wanted = _wanted()
    known = [objects.get(kind, *KEY) for kind, _ in wanted]
    if all(
        found is not None and _holds(objects.decode(kind, found.text), one)
        for (kind, one), found in zip(wanted, known, strict=True)
    ):
        return 0
    with objects.writing(identity=SYSTEM) as writer:
        before = writer.revision
        for kind, one in wanted:
            _write(writer, kind, one)
        return writer.revision - before


def _write(writer: Writer, kind: Kind, one: ApiObject) -> None:
    known = writer.get(kind, *KEY)
    if known is None:
        writer.create(kind, kind.prepare_create(one))
    elif not _holds(known, one):
        writer.update(kind, replace(one, metadata=known.metadata))


def _holds(known: ApiObject, one: ApiObject) -> bool:
    """The Service may be changed; where the API is reached may not."""
    if isinstance(known, EndpointSlice) and isinstance(one, EndpointSlice):
        return (known.address_type, known.endpoints, known.ports) == (one.address_type, one.endpoints, one.ports)
    if isinstance(known, Endpoints) and isinstance(one, Endpoints):
        return known.subsets == one.subsets
    return True


def _wanted() -> list[tuple[Kind, ApiObject]]:
    found: list[tuple[Kind, ApiObject]] = [(SERVICE, _service())]
    parts = urlsplit(settings.API_URL)
    if not parts.hostname:
        return found
    port = parts.port or PORT
    try:
        family = family_of(parts.hostname)
    except ValueError:
        family = FQDN
    one = EndpointSlice(
        api_version="discovery.k8s.io/v1",
        kind="EndpointSlice",
        metadata=ObjectMeta(namespace=DEFAULT_NAMESPACE, name=NAME, labels={SERVICE_NAME: NAME}),
        address_type=family,
        endpoints=(Endpoint(addresses=(parts.hostname,), conditions=EndpointConditions(ready=True)),),
        ports=(EndpointPort(name=PORT_NAME, protocol="TCP", port=port),),
    )
    found.append((ENDPOINT_SLICE, one))
    if family != FQDN:
        subset = EndpointSubset(
            addresses=(EndpointAddress(ip=parts.hostname),), ports=(Port(name=PORT_NAME, port=port, protocol="TCP"),)
        )
        labels = {"endpointslice.kubernetes.io/skip-mirror": "true"}
        metadata = ObjectMeta(namespace=DEFAULT_NAMESPACE, name=NAME, labels=labels)
        earlier = Endpoints(api_version="v1", kind="Endpoints", metadata=metadata, subsets=(subset,))
        found.append((ENDPOINTS, earlier))
    return found


def _service() -> Service:
    port = urlsplit(settings.API_URL).port or PORT
    address = str(network().network_address + 1)
    return Service(
        api_version="v1",
        kind="Service",
        metadata=ObjectMeta(
            namespace=DEFAULT_NAMESPACE, name=NAME, labels={"component": "apiserver", "provider": "kubernetes"}
        ),
        spec=ServiceSpec(
            ports=(ServicePort(name=PORT_NAME, protocol="TCP", port=PORT, target_port=port),), cluster_ip=address
        ),
    )
