"""What the authors of Services and their like are warned of: what has no effect, and what is not served here.

Source: GetWarningsForService (pkg/api/service/warnings.go) of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from claims.admission import MOST_WARNINGS
from manciple.store import hooks, records
from manciple.store.hooks import Write
from networking.kinds.api_services import API_SERVICE
from networking.kinds.ingresses import INGRESS
from networking.kinds.network_policies import NETWORK_POLICY
from networking.kinds.services import (
    EXTERNAL_NAME,
    LOAD_BALANCER,
    NO_AFFINITY,
    SERVICE,
    TOPOLOGY_HINTS,
    TOPOLOGY_MODE,
    Service,
    is_headless,
)

NO_LOAD_BALANCER = "spec.type: load balancers are not served here: the Service's external address stays pending"
NO_INGRESS = "Ingresses are kept and not served here: nothing listens for their hosts"
NO_POLICIES = (
    "NetworkPolicies are kept and not enforced here: a pod of its own network reaches the API alone, one of the node's "
    "network whatever the node reaches"
)

NO_OTHER_SERVERS = "APIServices are kept and not served here: requests for their groups are answered 404"


def warn(write: Write) -> None:
    if write.subresource or write.operation not in ("CREATE", "UPDATE"):
        return
    new, old = write.new, write.old
    for text in islice(_of_service(new), MOST_WARNINGS) if new.kind == SERVICE.kind else ():
        records.warn(text)
    if old is None and new.kind in _UNSERVED:
        records.warn(_UNSERVED[new.kind])
    if _waits_for_balancer(new) and (old is None or not _waits_for_balancer(old)):
        records.warn(NO_LOAD_BALANCER)


_UNSERVED = {INGRESS.kind: NO_INGRESS, NETWORK_POLICY.kind: NO_POLICIES, API_SERVICE.kind: NO_OTHER_SERVERS}


def _of_service(new: Service) -> Iterator[str]:
    spec = new.spec
    if TOPOLOGY_HINTS in new.metadata.annotations:
        yield f"annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"
    ignored = "is ignored for headless services"
    if is_headless(spec):
        if spec.load_balancer_ip:
            yield f"spec.loadBalancerIP {ignored}"
        if spec.external_ips:
            yield f"spec.externalIPs {ignored}"
        if spec.session_affinity != NO_AFFINITY:
            yield f"spec.SessionAffinity {ignored}"
    elif spec.external_ips and spec.type != EXTERNAL_NAME:
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.external_ips and spec.type == EXTERNAL_NAME:
        yield f'spec.externalIPs is ignored when spec.type is "{EXTERNAL_NAME}"'
    if spec.external_name and spec.type != EXTERNAL_NAME:
        yield f'spec.externalName is ignored when spec.type is not "{EXTERNAL_NAME}"'
    if spec.traffic_distribution == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _waits_for_balancer(obj: Any) -> bool:
    """Whether it is a Service for whose load balancer nobody cares; one with a class has a controller of its own."""
    return isinstance(obj, Service) and obj.spec.type == LOAD_BALANCER and not obj.spec.load_balancer_class


def register() -> None:
    hooks.register_check(warn, resources={kind.resource for kind in (SERVICE, INGRESS, NETWORK_POLICY, API_SERVICE)})
