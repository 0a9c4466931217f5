"""Who may read the audit trail.

Whoever a role allows to `list` the resource `events` of `audit.manciple.dev`: everywhere by a ClusterRoleBinding, in
one namespace by a RoleBinding there. There is no such resource in the API; it is there to be allowed. Administrators
may, as they may do everything.
"""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from manciple.access.authorization import Attributes, decide
from manciple.pages.people import person_of

GROUP, RESOURCE = "audit.manciple.dev", "events"


def may_audit(request: HttpRequest, namespace: str = "") -> bool:
    """namespace: whose part of the trail; "" for all of it."""
    wanted = Attributes(verb="list", group=GROUP, version="v1", resource=RESOURCE)
    identity = person_of(request).identity
    if decide(identity, wanted).allowed:
        return True
    inside = Attributes(verb="list", group=GROUP, version="v1", resource=RESOURCE, namespace=namespace)
    return bool(namespace) and decide(identity, inside).allowed


def demand_audit(request: HttpRequest, namespace: str = "") -> None:
    """Raises: PermissionDenied saying who may."""
    if not may_audit(request, namespace):
        where = f" of namespace {namespace}" if namespace else ""
        raise PermissionDenied(
            f"You may not read the audit trail{where}. Administrators may, and whoever a role allows to list events of "
            f"{GROUP}."
        )
