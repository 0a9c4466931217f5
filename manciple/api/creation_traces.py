"""The first step of a pod's trace: the request that creates it (see `manciple.telemetry.traces`)."""

from __future__ import annotations

import time

from manciple.store import hooks
from manciple.telemetry import traces
from manciple.wire.base import ApiObject
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind

PODS = "pods"


def trace_creation(kind: Kind, made: ApiObject, identity: Identity) -> None:
    """`made` was committed just now, in answer to the request that is served, if one is."""
    if kind.resource != PODS:
        return
    request, meta = hooks.origin(), made.metadata
    traces.tell(
        meta.uid,
        "create",
        began=time.time() if request is None else request.received.timestamp(),
        linked=request.traceparent if request is not None else "",
        attributes={
            "k8s.namespace.name": meta.namespace,
            "k8s.pod.name": meta.name,
            "enduser.id": identity.name,
            "manciple.request": request.audit_id if request is not None else "",
        },
    )
