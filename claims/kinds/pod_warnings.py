"""What the author of a new pod is warned of: fields that do nothing any more, or not what they seem to.

Source: pkg/api/pod/warnings.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any

from claims.kinds.containers import Container, ContainerPort
from claims.kinds.pods import Pod, PodSpec
from claims.kinds.security_context_rules import containers_with_paths
from claims.kinds.volumes import ProjectedVolumeSource, Volume, VolumeProjection, sources_of
from inventory.kinds.nodes import NodeSelectorTerm
from manciple.wire.quantity import Quantity
from manciple.wire.time_limit import check_time
from manciple.wire.validation import METADATA, SPEC, Path, check_dns_label, check_label_value

_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_OLD_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_OLD_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_OLD_VOLUMES = {
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
}
_NO_SOURCES = VolumeProjection()
#: Amounts of these are whole bytes.
_BYTES = ("memory", "ephemeral-storage")


def warnings_of(pod: Pod) -> Iterator[str]:
    spec, name = pod.spec, pod.metadata.name
    if name and (messages := check_dns_label(name)):
        why = "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended"
        yield f"{METADATA.child('name')}: {why}: [{', '.join(messages)}]"
    if pod.metadata.annotations:
        yield from _of_annotations(pod)
    if spec.node_selector or spec.topology_spread_constraints or spec.affinity is not None:
        yield from _of_node_labels(spec)
        yield from _of_selectors(spec)
    if spec.volumes:
        yield from _of_volumes(spec.volumes)
    if spec.host_aliases or spec.image_pull_secrets or spec.dns_config is not None:
        yield from _of_duplicates(spec)
        yield from _of_addresses(spec)
    yield from _of_amounts(spec.overhead, SPEC, "overhead")
    containers = tuple(containers_with_paths(spec))
    for container, path in containers:
        yield from _of_amounts(container.resources.limits, path, "resources.limits")
        yield from _of_amounts(container.resources.requests, path, "resources.requests")
        if len(container.env) > 1:
            yield from _of_variables(container, path.child("env"))
    if any(container.ports for container, _ in containers):
        yield from _of_ports(containers)


def _of_annotations(pod: Pod) -> Iterator[str]:
    """Annotations that fields have replaced, and that no field repeats."""
    annotations, of_pod = pod.metadata.annotations, pod.spec.security_context
    path = METADATA.child("annotations")
    for key in annotations:
        if key in _OLD_ANNOTATIONS:
            yield f"{path.key(key)}: {_OLD_ANNOTATIONS[key]}"
    message = 'non-functional in v1.27+; use the "seccompProfile" field instead'
    if _SECCOMP_POD in annotations and (of_pod is None or of_pod.seccomp_profile is None):
        yield f"{path.key(_SECCOMP_POD)}: {message}"
    for container, _ in containers_with_paths(pod.spec):
        key, context = f"{_SECCOMP_CONTAINER}{container.name}", container.security_context
        if key in annotations and (context is None or context.seccomp_profile is None):
            yield f"{path.key(key)}: {message}"
        if (key := f"{_APP_ARMOR}{container.name}") in annotations:
            yield f'{path.key(key)}: deprecated since v1.30; use the "appArmorProfile" field instead'


def _of_node_labels(spec: PodSpec) -> Iterator[str]:
    for key in spec.node_selector:
        if key in _OLD_LABELS:
            yield f"{SPEC.child('nodeSelector').key(key)}: {_OLD_LABELS[key]}"
    for position, constraint in enumerate(spec.topology_spread_constraints):
        if (key := constraint.topology_key) in _OLD_LABELS:
            at = SPEC.child("topologySpreadConstraints").at(position).child("topologyKey")
            yield f"{at}: {key} is {_OLD_LABELS[key]}"
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None:
        return
    path = SPEC.child("affinity", "nodeAffinity")
    wanted = affinity.required_during_scheduling_ignored_during_execution
    for position, term in enumerate(wanted.node_selector_terms if wanted is not None else ()):
        at = path.child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").at(position)
        yield from _of_term(term, at, preferred=False)
    for position, weighted in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        at = path.child("preferredDuringSchedulingIgnoredDuringExecution").at(position).child("preference")
        yield from _of_term(weighted.preference, at, preferred=True)


def _of_term(term: NodeSelectorTerm, path: Path, *, preferred: bool) -> Iterator[str]:
    """preferred: values that no label has are accepted there."""
    for position, requirement in enumerate(term.match_expressions):
        at = path.child("matchExpressions").at(position)
        if requirement.key in _OLD_LABELS:
            yield f"{at.child('key')}: {requirement.key} is {_OLD_LABELS[requirement.key]}"
        for place, value in enumerate(requirement.values if preferred else ()):
            for message in check_label_value(value):
                yield f"{at.child('values').at(place)}: {value} is invalid, {message}"


# Volumes --------------------------------------------------------------------------------------------------------------


def _of_volumes(volumes: Iterable[Volume]) -> Iterator[str]:
    for position, volume in enumerate(volumes):
        at = SPEC.child("volumes").at(position)
        old = [source for source in sources_of(volume) if source in _OLD_VOLUMES and getattr(volume, source)]
        yield from (f"{at.child(source)}: {_OLD_VOLUMES[source]}" for source in old)
        yield from _of_claim(volume, at)
        if volume.secret is not None:
            paths = [(one.path, "") for one in volume.secret.items]
            yield from _of_paths(paths, f'volume "{volume.name}" (Secret "{volume.secret.secret_name}")')
        if volume.config_map is not None:
            paths = [(one.path, "") for one in volume.config_map.items]
            yield from _of_paths(paths, f'volume "{volume.name}" (ConfigMap "{volume.config_map.name}")')
        if volume.downward_api is not None:
            paths = [(one.path, "") for one in volume.downward_api.items]
            yield from _of_paths(paths, f'volume "{volume.name}" (DownwardAPI)')
        if volume.projected is not None:
            yield from _of_projected(volume.projected, f'volume "{volume.name}" (Projected)')


def _of_claim(volume: Any, path: Path) -> Iterator[str]:
    template = volume.ephemeral.volumeClaimTemplate if volume.ephemeral is not None else None
    if template is not None:
        at = path.child("ephemeral", "volumeClaimTemplate", "spec", "resources")
        for which in ("requests", "limits"):
            amounts = getattr(template.spec.resources, which)
            yield from _of_amounts(amounts, at, which, names=("storage",))


def _of_projected(projected: ProjectedVolumeSource, volume: str) -> Iterator[str]:
    for source in projected.sources:
        if source == _NO_SOURCES:
            yield f"{volume} has no sources provided"
    paths = [found for source in projected.sources for found in _projected_paths(source)]
    yield from _of_paths(paths, volume)


def _projected_paths(source: VolumeProjection) -> Iterator[tuple[str, str]]:
    """(path, of what it is)"""
    if source.config_map is not None:
        yield from ((one.path, f' (ConfigMap "{source.config_map.name}")') for one in source.config_map.items)
    elif source.secret is not None:
        yield from ((one.path, f' (Secret "{source.secret.name}")') for one in source.secret.items)
    elif source.downward_api is not None:
        yield from ((one.path, " (DownwardAPI)") for one in source.downward_api.items)
    elif source.service_account_token is not None:
        yield source.service_account_token.path, " (ServiceAccountToken)"
    elif (bundle := source.cluster_trust_bundle) is not None:
        yield bundle.path, f' (ClusterTrustBundle "{bundle.signer_name if bundle.name is None else bundle.name}")'
    elif (certificate := source.pod_certificate) is not None:
        yield certificate.certificate_chain_path, " (PodCertificate chain)"
        yield certificate.key_path, " (PodCertificate key)"
        yield certificate.credential_bundle_path, " (PodCertificate credential bundle)"


def _of_paths(paths: list[tuple[str, str]], volume: str) -> Iterator[str]:
    """A file that is another's folder, or the same, is not there."""
    paths = [(path.rstrip("/"), source) for path, source in paths if path]
    for position, (path, source) in enumerate(paths):
        check_time()
        for other, other_source in paths[:position]:
            if f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/"):
                yield f'{volume}: overlapping paths: "{path}"{source} with "{other}"{other_source}'


# Lists ----------------------------------------------------------------------------------------------------------------


def _of_duplicates(spec: PodSpec) -> Iterator[str]:
    addresses: set[str] = set()
    for position, alias in enumerate(spec.host_aliases):
        if alias.ip in addresses:
            yield f'{SPEC.child("hostAliases").at(position).child("ip")}: duplicate ip "{alias.ip}"'
        addresses.add(alias.ip)
    seen: set[str] = set()
    for position, secret in enumerate(spec.image_pull_secrets):
        at = SPEC.child("imagePullSecrets").at(position).child("name")
        if not secret.name:
            yield f'{at}: invalid empty name ""'
        elif secret.name in seen:
            yield f'{at}: duplicate name "{secret.name}"'
        seen.add(secret.name)


def _of_variables(container: Container, path: Path) -> Iterator[str]:
    """A later definition of a variable counts; it may refer to the earlier one."""
    seen: set[str] = set()
    for position, variable in enumerate(container.env):
        reference = f"$({variable.name})"
        extends = variable.value_from is None and reference in variable.value != reference
        if variable.name in seen and not extends:
            hidden = f'hides previous definition of "{variable.name}", which may be dropped when using apply'
            yield f"{path.at(position)}: {hidden}"
        seen.add(variable.name)


def _of_selectors(spec: PodSpec) -> Iterator[str]:
    message = "a null labelSelector results in matching no pod"
    for position, constraint in enumerate(spec.topology_spread_constraints):
        if constraint.label_selector is None:
            yield f"{SPEC.child('topologySpreadConstraints').at(position).child('labelSelector')}: {message}"
    affinity = spec.affinity
    for field, rules in (
        ("podAffinity", affinity.pod_affinity if affinity is not None else None),
        ("podAntiAffinity", affinity.pod_anti_affinity if affinity is not None else None),
    ):
        if rules is None:
            continue
        path = SPEC.child("affinity", field)
        for position, term in enumerate(rules.required_during_scheduling_ignored_during_execution):
            if term.label_selector is None:
                at = path.child("requiredDuringSchedulingIgnoredDuringExecution").at(position)
                yield f"{at.child('labelSelector')}: {message}"
        for position, weighted in enumerate(rules.preferred_during_scheduling_ignored_during_execution):
            if weighted.pod_affinity_term.label_selector is None:
                at = path.child("preferredDuringSchedulingIgnoredDuringExecution").at(position)
                yield f"{at.child('podAffinityTerm', 'labelSelector')}: {message}"


def _of_amounts(amounts: Mapping[str, str], path: Path, field: str, names: Iterable[str] = _BYTES) -> Iterator[str]:
    if not amounts:
        return
    for name in names:
        if (text := amounts.get(name)) is not None and not Quantity.parse(text).is_integer:
            yield f'{path.child(field).key(name)}: fractional byte value "{text}" is invalid, must be an integer'


def _of_ports(containers: Iterable[tuple[Container, Path]]) -> Iterator[str]:
    """Definitions of one port that do not fit together, and ports of one name."""
    defined: dict[tuple[int, str], list[tuple[Path, ContainerPort]]] = {}
    named: dict[str, Path] = {}
    for container, path in containers:
        for position, port in enumerate(container.ports):
            at = path.child("ports").at(position)
            if port.host_ip and not port.host_port:
                yield f"{at}: hostIP set without hostPort: {port.host_ip}"
            same = defined.setdefault((port.container_port, port.protocol), [])
            check_time()
            yield from (
                f"{at}: {how} port definition with {one}" for one, other in same if (how := _clash(port, other))
            )
            same.append((at, port))
            if port.name in named:
                first = named[port.name]
                yield (
                    f'{at}: duplicate port name "{port.name}" with {first}, services and probes that select ports by '
                    f"name will use {first}"
                )
            elif port.name:
                named[port.name] = at


def _clash(port: ContainerPort, other: ContainerPort) -> str:
    if (port.host_ip, port.host_port) == (other.host_ip, other.host_port):
        return "duplicate"
    if not port.host_port or not other.host_port:
        return "overlapping"
    ambiguous = port.host_port == other.host_port and bool(port.host_ip) != bool(other.host_ip)
    return "dangerously ambiguous" if ambiguous else ""


def _of_addresses(spec: PodSpec) -> Iterator[str]:
    addresses = [
        (SPEC.child("hostAliases").at(place).child("ip"), one.ip) for place, one in enumerate(spec.host_aliases)
    ]
    if spec.dns_config is not None:
        path = SPEC.child("dnsConfig", "nameservers")
        addresses += [(path.at(place), one) for place, one in enumerate(spec.dns_config.nameservers)]
    for at, text in addresses:
        address = ip_address(text)
        if isinstance(address, IPv6Address) and str(address) != text:
            yield f'{at}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{address}")'
