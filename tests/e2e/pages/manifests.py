"""Pods with devices, and their claims and templates, as the tests of pages write them through the API."""

from __future__ import annotations

from typing import Any

from tests.e2e.api_client import Document

CLASS = "gpu.example.com"


def _devices(count: int, device_class: str) -> Document:
    exactly = {"deviceClassName": device_class, "count": count}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def claim(name: str, count: int = 1, *, namespace: str = "demo", device_class: str = CLASS, **meta: Any) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, **meta},
        "spec": _devices(count, device_class),
    }


def template(name: str, count: int) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "demo"},
        "spec": {"spec": _devices(count, CLASS)},
    }


def pod(name: str, *, namespace: str = "demo", of_claim: str = "", of_template: str = "") -> Document:
    """of_claim, of_template: where the devices of its container come from."""
    source = {"resourceClaimName": of_claim} if of_claim else {"resourceClaimTemplateName": of_template}
    container = {"name": "main", "image": "example.com/main", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "resourceClaims": [{"name": "gpu", **source}]},
    }
