"""The objects that every installation has: made where they are missing, before anybody is served."""

from __future__ import annotations

from claims.admission import ensure_priority_classes, ensure_storage_class
from manciple.access.bootstrap import ensure_roles
from manciple.api.namespaces import ensure_namespaces
from networking import kubernetes_service


def ensure_standing_objects() -> None:
    ensure_namespaces()
    ensure_roles()
    ensure_priority_classes()
    kubernetes_service.ensure()
    ensure_storage_class()
