"""Builders of the objects that a node meets: claims allocated and reserved, pods bound."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
NODE = "alpha"
DRIVER = "gpu.example.com"


def claim(
    name: str,
    *devices: str,
    pods: tuple[str, ...] = (),
    driver: str = DRIVER,
    uid: str = "",
    config: tuple[Document, ...] = (),
    node: str = NODE,
    **result: Any,
) -> Document:
    """A claim with one request "gpu<n>" for each of `devices`, reserved for the pods with the uids `pods`."""
    results = [
        {"request": f"gpu{index}", "driver": driver, "pool": NODE, "device": device, **result}
        for index, device in enumerate(devices)
    ]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"claim-{name}"},
        "spec": {"devices": {"requests": [{"name": r["request"]} for r in results]}},
        "status": {
            "allocation": {
                "devices": {"results": results, "config": list(config)},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            },
            "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in pods],
        },
    }


def opaque(source: str, parameters: Any, *requests: str, driver: str = DRIVER) -> Document:
    return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def container(name: str = "main", *uses: str, **fields: Any) -> Document:
    """A container that names claims: "gpus" for all of the entry, "gpus/gpu0" for one request."""
    claims = [dict(zip(("name", "request"), use.split("/", 1), strict=False)) for use in uses]
    return {"name": name, "image": "busybox", "resources": {"claims": claims}, **fields}


def pod(name: str, *containers: Document, claims: dict[str, str] | None = None, **fields: Any) -> Document:
    """A pod bound to the node; its uid is "uid-<name>". claims: entry -> claim name."""
    spec: Document = {
        "nodeName": NODE,
        "containers": list(containers) or [container("main", *(claims or {}))],
        "resourceClaims": [{"name": entry, "resourceClaimName": of} for entry, of in (claims or {}).items()],
        "restartPolicy": "Always",
        **fields.pop("spec", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **fields.pop("metadata", {})},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        **fields,
    }
