"""Where the page of each thing is. Pages link through these, so that an address is written once.

They give paths, not Django's reversed names: a page of a lower floor may link to one of a higher floor.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode


def pod_url(namespace: str, name: str) -> str:
    return f"/pods/{_part(namespace)}/{_part(name)}"


def claim_url(namespace: str, name: str) -> str:
    return f"/claims/{_part(namespace)}/{_part(name)}"


def template_url(namespace: str, name: str) -> str:
    return f"/templates/{_part(namespace)}/{_part(name)}"


def device_url(driver: str, pool: str, device: str, node: str = "") -> str:
    """A pool's name may contain slashes; they stay."""
    path = f"/devices/d/{_part(driver)}/{quote(pool, safe='/')}/{_part(device)}"
    return f"{path}?{urlencode({'node': node})}" if _tells_apart(pool, node) else path


def _tells_apart(pool: str, node: str) -> bool:
    """Whether the address of a device needs the node: pools of several nodes may have one name."""
    return node not in ("", pool)


def device_in_grid_url(driver: str, pool: str, device: str, node: str = "") -> str:
    """The grid with the device's panel open."""
    suffix = f"?node={node}" if _tells_apart(pool, node) else ""
    return f"/devices?{urlencode({'at': f'{driver}/{pool}/{device}{suffix}'})}"


def node_url(name: str) -> str:
    return f"/nodes/{_part(name)}"


def class_url(name: str) -> str:
    return f"/classes/c/{_part(name)}"


def driver_url(name: str) -> str:
    return f"/drivers/{_part(name)}"


def namespace_url(name: str) -> str:
    return f"/namespaces/{_part(name)}"


def incident_url(name: str) -> str:
    return f"/incidents/{_part(name)}"


def quota_url(namespace: str, name: str) -> str:
    return f"/quotas/{_part(namespace)}/{_part(name)}"


def taint_rule_url(name: str) -> str:
    return f"/taint-rules/{_part(name)}"


def role_url(name: str, namespace: str = "") -> str:
    """Without a namespace a ClusterRole's."""
    return f"/roles/{_part(name)}" + (f"?{urlencode({'ns': namespace})}" if namespace else "")


def access_url(user: str) -> str:
    """What a user of the API may do; a service account under the name that it has there."""
    return f"/access?{urlencode({'user': user})}"


def person_url(name: str) -> str:
    return f"/people?{urlencode({'who': name})}"


def yaml_url(resource: str, namespace: str, name: str) -> str:
    """Any object as YAML. resource: `resourceclaims.resource.k8s.io`."""
    return f"/yaml/{_part(resource)}/{_part(name)}" + (f"?{urlencode({'ns': namespace})}" if namespace else "")


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


def _part(text: str) -> str:
    return quote(text, safe="")
