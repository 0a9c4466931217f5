"""The pages of objects that have no model instance at hand: `reverse()` of the routes in the sections' `urls.py`.

Instances of the index models know their page themselves (`get_absolute_url`).
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse

from inventory import models


@lru_cache(maxsize=16_384)
def page_url(route: str, *args: str) -> str:
    """`reverse(route, args=args)`, cached: lists link each row several times, and draw the same rows again.

    "" for a name that no object can have, such as one with a slash in an Event.
    """
    try:
        return reverse(route, args=args)
    except NoReverseMatch:
        return ""


def pod_url(namespace: str, name: str) -> str:
    return page_url("pod", namespace, name)


def claim_url(namespace: str, name: str) -> str:
    return page_url("claim", namespace, name)


def template_url(namespace: str, name: str) -> str:
    return page_url("template", namespace, name)


@lru_cache(maxsize=16_384)
def device_url(driver: str, pool: str, device: str, node: str = "") -> str:
    try:
        return models.device_url(driver, pool, device, node)
    except NoReverseMatch:
        return ""


def device_in_grid_url(driver: str, pool: str, device: str, node: str = "") -> str:
    """The grid with the device's panel open."""
    suffix = f"?node={node}" if models.is_ambiguous(pool, node) else ""
    return f"{page_url('devices')}?{urlencode({'at': f'{driver}/{pool}/{device}{suffix}'})}"


def node_url(name: str) -> str:
    return page_url("node", name)


def class_url(name: str) -> str:
    return page_url("class-edit", name)


def driver_url(name: str) -> str:
    return page_url("driver", name)


def namespace_url(name: str) -> str:
    return page_url("namespace", name)


def incident_url(name: str) -> str:
    return page_url("incident", name)


def quota_url(namespace: str, name: str) -> str:
    return page_url("quota", namespace, name)


def taint_rule_url(name: str) -> str:
    return page_url("taint-rule", name)


def role_url(name: str, namespace: str = "") -> str:
    """Without a namespace a ClusterRole's."""
    return page_url("role", name) + (f"?{urlencode({'ns': namespace})}" if namespace else "")


def access_url(user: str) -> str:
    """What a user of the API may do; a service account under the name that it has there."""
    return f"{page_url('access')}?{urlencode({'user': user})}"


def person_url(name: str) -> str:
    return f"{page_url('people')}?{urlencode({'who': name})}"


def yaml_url(resource: str, namespace: str, name: str) -> str:
    """Any object as YAML. resource: `resourceclaims.resource.k8s.io`."""
    return page_url("yaml", resource, name) + (f"?{urlencode({'ns': namespace})}" if namespace else "")


def object_url(resource: str, namespace: str, name: str) -> str:
    """The page of an object, "" where its kind has none."""
    in_namespace = {
        "pods": pod_url,
        "resourceclaims.resource.k8s.io": claim_url,
        "resourceclaimtemplates.resource.k8s.io": template_url,
        "resourcequotas": quota_url,
        "roles.rbac.authorization.k8s.io": _role_in,
    }
    of_cluster = {
        "deviceclasses.resource.k8s.io": class_url,
        "devicetaintrules.resource.k8s.io": taint_rule_url,
        "nodes": node_url,
        "namespaces": namespace_url,
        "clusterroles.rbac.authorization.k8s.io": role_url,
    }
    if resource in in_namespace:
        return in_namespace[resource](namespace, name)
    return of_cluster[resource](name) if resource in of_cluster else ""


def _role_in(namespace: str, name: str) -> str:
    return role_url(name, namespace)


def manual_url(place: str) -> str:
    """place: a page of the manual, with one of its headings or without: `dashboard#times`."""
    name, _, heading = place.partition("#")
    return page_url("manual-page", name) + (f"#{heading}" if heading else "")
