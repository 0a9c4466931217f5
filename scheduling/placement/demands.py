"""What pods usually ask for, where a file declares it (`MANCIPLE_DEMANDS`): it counts instead of what pods ask for.

- share: 3                 # how many of all pods, compared with the others; 1 where it does not say
  cpu: "8"                 # what such a pod takes of its node
  memory: 32Gi
  claims:                  # specs of ResourceClaims
  - devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import yaml
from django.core.exceptions import ImproperlyConfigured

from claims.kinds.resource_claims import ResourceClaim
from manciple.wire.codec import decode_document
from manciple.wire.errors import ApiError
from manciple.wire.quantity import Quantity
from manciple.wire.resources import CLAIMS, kind
from scheduling.allocator import Demand, DemandMix
from scheduling.placement.fragmentation.demands import MOST_WEIGHT
from scheduling.state.nodes import needs_of


@lru_cache(maxsize=1)
def declared_demands(path: str) -> DemandMix:
    """Read once. Raises: ImproperlyConfigured."""
    try:
        listed = yaml.safe_load(Path(path).read_text())
        return DemandMix.of(map(_declared, listed))
    except (OSError, yaml.YAMLError, ApiError, KeyError, TypeError, ValueError, AttributeError) as error:
        expected = "a list of {share, cpu, memory, claims: [specs of ResourceClaims]}"
        raise ImproperlyConfigured(f"MANCIPLE_DEMANDS: {path} is not {expected}: {error}") from error


def _declared(one: Mapping[str, Any]) -> Demand:
    share = float(one.get("share", 1))
    if not 0 < share < MOST_WEIGHT:
        raise ValueError(f"a share must be more than 0, not {share}")
    return Demand(
        claims=tuple(map(_claim, one.get("claims", ()))),
        needs=needs_of({name: Quantity.parse(str(one.get(name, "0"))).nanos for name in ("cpu", "memory")}),
        weight=share,
    )


def _claim(spec: Mapping[str, Any]) -> ResourceClaim:
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "declared"}, "spec": spec}
    claims = kind(CLAIMS)
    return cast("ResourceClaim", claims.prepare_create(decode_document(claims, body, strictness="Strict").object))
