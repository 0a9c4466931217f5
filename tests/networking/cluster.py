"""Services in a database without nodes: pods have the addresses and states that the test gives them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from claims.kinds.containers import Container, ContainerPort
from claims.kinds.pods import Pod, PodCondition, PodSpec, PodStatus
from claims.kinds.registration import POD
from manciple.api import verbs
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.base import ObjectMeta
from manciple.wire.identity import SYSTEM
from manciple.wire.registry import Kind
from networking.controllers import endpoint_slices
from networking.kinds.endpoint_slices import ENDPOINT_SLICE, Endpoint, EndpointSlice
from networking.kinds.endpoints import ENDPOINTS, Endpoints
from networking.kinds.services import SERVICE, Service, ServicePort, ServiceSpec

NAMESPACE = "default"
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


def make_service(name: str = "web", **spec: Any) -> Service:
    filled = {"selector": {"app": "x"}, "ports": (ServicePort(port=80, target_port=8080),), **spec}
    return Service(
        api_version="v1",
        kind="Service",
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=ServiceSpec(**filled),
    )


class Cluster:
    def create(self, kind: Kind, obj: Any) -> Any:
        return verbs.create(kind, obj, namespace=NAMESPACE, identity=SYSTEM)

    def edit(self, kind: Kind, name: str, change: Any) -> Any:
        """change: the object -> its successor."""
        return verbs.modify(kind, change, namespace=NAMESPACE, name=name, identity=SYSTEM).object

    def delete(self, kind: Kind, name: str, *, grace: int = 0) -> None:
        with objects.writing() as writer:
            writer.delete(kind, NAMESPACE, name, grace_seconds=grace)

    def run_pod(
        self,
        name: str,
        address: str,
        *,
        labels: dict[str, str] | None = None,
        ready: bool = True,
        ports: dict[str, int] | None = None,
        **spec: Any,
    ) -> None:
        """A pod that runs at that address; ports: of its container, by name."""
        named = tuple(
            ContainerPort(name=one, container_port=port, protocol="TCP") for one, port in (ports or {}).items()
        )
        pod = Pod(
            api_version="v1",
            kind="Pod",
            metadata=ObjectMeta(name=name, namespace=NAMESPACE, labels={"app": "x"} if labels is None else labels),
            spec=PodSpec(containers=(Container(name="app", image="app", ports=named),), **spec),
        )
        self.create(POD, pod)
        self.report(name, address=address, ready=ready)

    def report(self, name: str, *, address: str | None = None, ready: bool = True, phase: str = "Running") -> None:
        """What the pod's agent says of it."""
        condition = PodCondition(type="Ready", status="True" if ready else "False")
        with objects.writing() as writer:
            pod: Any = writer.get(POD, NAMESPACE, name)
            status = PodStatus(
                phase=phase, pod_ip=pod.status.pod_ip if address is None else address, conditions=(condition,)
            )
            writer.update(POD, replace(pod, spec=replace(pod.spec, node_name="node-1"), status=status))

    def run(self) -> None:
        """The controller, until it has nothing to do."""
        for _ in range(50):
            if not endpoint_slices.reconcile(NOW):
                return
        raise AssertionError("the controller finds no rest")

    def slices(self, service: str = "web") -> list[EndpointSlice]:
        found = [decoded(one, EndpointSlice) for one in objects.list(ENDPOINT_SLICE, namespace=NAMESPACE).items]
        return [one for one in found if one.metadata.labels.get("kubernetes.io/service-name") == service]

    def endpoints(self, service: str = "web") -> dict[str, Endpoint]:
        """By address."""
        return {one.addresses[0]: one for found in self.slices(service) for one in found.endpoints}

    def addresses(self, service: str = "web") -> set[str]:
        """Of pods that take connections."""
        return {address for address, one in self.endpoints(service).items() if one.conditions.ready}

    def earlier(self, service: str = "web") -> Endpoints:
        return decoded(objects.get(ENDPOINTS, NAMESPACE, service), Endpoints)  # type: ignore[arg-type]  # it is there

    def service(self, name: str = "web") -> Service:
        return decoded(objects.get(SERVICE, NAMESPACE, name), Service)  # type: ignore[arg-type]  # it is there
