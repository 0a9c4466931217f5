"""The kinds of networking, in the order in which clients find them."""

from __future__ import annotations

from manciple.wire.registry import Kind
from networking.kinds.api_services import API_SERVICE
from networking.kinds.endpoint_slices import ENDPOINT_SLICE
from networking.kinds.endpoints import ENDPOINTS
from networking.kinds.ingresses import INGRESS, INGRESS_CLASS
from networking.kinds.network_policies import NETWORK_POLICY
from networking.kinds.services import SERVICE

KINDS: tuple[Kind, ...] = (ENDPOINTS, SERVICE, ENDPOINT_SLICE, INGRESS_CLASS, INGRESS, NETWORK_POLICY, API_SERVICE)
