"""The variables of a container's manifest, resolved: literals, fields of the pod, amounts of the container.

Source: core/v1 EnvVarSource; kubernetes pkg/kubelet/kubelet_pods.go makeEnvironmentVariables and pkg/fieldpath.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from claims.kinds.containers import Container, EnvVarSource, ResourceFieldSelector
from claims.kinds.pods import Pod
from manciple.wire.quantity import Quantity
from nodeagent.config import machine_cpus, machine_memory
from nodeagent.runtimes.expansion import expanded

_SUBSCRIPT = re.compile(r"metadata\.(?P<map>labels|annotations)\['(?P<key>[^']+)'\]")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Of the node and of the pod."""

    host: str
    pod: str


@dataclass(slots=True)
class Environment:
    """variables: by name, in the manifest's order. unserved: what cannot be given, in words."""

    variables: dict[str, str] = field(default_factory=dict)
    unserved: list[str] = field(default_factory=list)


def environment_of(pod: Pod, container: Container, addresses: Addresses) -> Environment:
    """A value may refer to the variables before it. What is optional and not to be had is left out."""
    found = Environment()
    for origin in container.env_from:
        source = origin.config_map_ref or origin.secret_ref
        if source is not None and not source.optional:
            kind = "ConfigMap" if origin.config_map_ref is not None else "Secret"
            found.unserved.append(f"envFrom: {kind} {source.name} cannot be read: this agent serves none")
    for variable in container.env:
        if variable.value_from is None:
            found.variables[variable.name] = expanded(variable.value, found.variables)
            continue
        value, trouble = _value(pod, container, variable.value_from, addresses)
        if value is not None:
            found.variables[variable.name] = value
        elif trouble:
            found.unserved.append(f"env {variable.name}: {trouble}")
    return found


def field_value(pod: Pod, path: str, addresses: Addresses) -> str | None:
    """A field of `pod` that the downward API shows; None for any other."""
    if match := _SUBSCRIPT.fullmatch(path):
        labels = match["map"] == "labels"
        return (pod.metadata.labels if labels else pod.metadata.annotations).get(match["key"], "")
    fields: Mapping[str, Callable[[], str]] = {
        "metadata.name": lambda: pod.metadata.name,
        "metadata.namespace": lambda: pod.metadata.namespace,
        "metadata.uid": lambda: pod.metadata.uid,
        "spec.nodeName": lambda: pod.spec.node_name,
        "spec.serviceAccountName": lambda: pod.spec.service_account_name,
        "status.hostIP": lambda: addresses.host,
        "status.hostIPs": lambda: addresses.host,
        "status.podIP": lambda: addresses.pod,
        "status.podIPs": lambda: addresses.pod,
    }
    return fields[path]() if path in fields else None


def _value(pod: Pod, container: Container, source: EnvVarSource, at: Addresses) -> tuple[str | None, str]:
    """(the value, "") or (None, why there is none); no reason where it is optional."""
    if source.field_ref is not None:
        path = source.field_ref.field_path
        return field_value(pod, path, at), f"the field {path} is not one that a container can be shown"
    if source.resource_field_ref is not None:
        return _amount(pod, container, source.resource_field_ref)
    for kind, key in (("ConfigMap", source.config_map_key_ref), ("Secret", source.secret_key_ref)):
        if key is not None:
            return None, "" if key.optional else f"{kind} {key.name} cannot be read: this agent serves none"
    return None, "a value from this source cannot be read: this agent does not serve it"


def _amount(pod: Pod, container: Container, source: ResourceFieldSelector) -> tuple[str | None, str]:
    """A limit or request in units of the divisor, rounded up; where no limit is set, what the machine has."""
    containers = {one.name: one for one in (*pod.spec.init_containers, *pod.spec.containers)}
    of = containers.get(source.container_name, container)
    kind, _, resource = source.resource.partition(".")
    amounts = {"limits": of.resources.limits, "requests": of.resources.requests}.get(kind)
    whole = {"cpu": machine_cpus(), "memory": machine_memory()}
    if amounts is None or (resource not in amounts and resource not in whole):
        return None, f"the resource {source.resource} is not one that a container can be shown"
    text = amounts.get(resource) or (whole[resource] if kind == "limits" else "0")
    divisor = Quantity.parse(source.divisor or "1").nanos or Quantity.of(1).nanos
    return str(-(-Quantity.parse(text).nanos // divisor)), ""
