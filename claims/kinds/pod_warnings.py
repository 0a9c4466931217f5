"""What the author of a new pod is warned of: fields that do nothing any more, or not what they seem to.

Source: pkg/api/pod/warnings.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from claims.kinds.containers import Container
from claims.kinds.pods import Pod, PodSpec
from claims.kinds.volumes import Volume
from manciple.wire.quantity import Quantity
from manciple.wire.validation import METADATA, SPEC, Path, check_dns_label

_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
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
#: Amounts of these are whole bytes.
_BYTES = ("memory", "ephemeral-storage")


def warnings_of(pod: Pod) -> Iterator[str]:
    spec, name = pod.spec, pod.metadata.name
    if name and (messages := check_dns_label(name)):
        told = "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended"
        yield f"{METADATA.child('name')}: {told}: [{', '.join(messages)}]"
    yield from _of_annotations(pod.metadata.annotations)
    yield from _of_volumes(spec.volumes)
    seen: set[str] = set()
    for position, secret in enumerate(spec.image_pull_secrets):
        at = SPEC.child("imagePullSecrets").at(position).child("name")
        if not secret.name:
            yield f'{at}: invalid empty name ""'
        elif secret.name in seen:
            yield f'{at}: duplicate name "{secret.name}"'
        seen.add(secret.name)
    yield from _of_selectors(spec)
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for position, container in enumerate(containers):
            yield from _of_amounts(container, SPEC.child(field).at(position).child("resources"))
    yield from _of_ports(spec)


def _of_annotations(annotations: Mapping[str, str]) -> Iterator[str]:
    for key in annotations:
        at = METADATA.child("annotations").key(key)
        if key.startswith(_APP_ARMOR):
            yield f'{at}: deprecated since v1.30; use the "appArmorProfile" field instead'
        elif key == _SECCOMP_POD or key.startswith(_SECCOMP_CONTAINER):
            yield f'{at}: non-functional in v1.27+; use the "seccompProfile" field instead'


def _of_volumes(volumes: Iterable[Volume]) -> Iterator[str]:
    for position, volume in enumerate(volumes):
        for source, told in _OLD_VOLUMES.items():
            if getattr(volume, source) is not None:
                yield f"{SPEC.child('volumes').at(position).child(source)}: {told}"
        if volume.projected is not None and not volume.projected.sources:
            yield f'volume "{volume.name}" (Projected) has no sources provided'
        if volume.secret is not None:
            yield from _of_paths(
                [one.path for one in volume.secret.items], volume.name, "Secret", volume.secret.secret_name
            )
        if volume.config_map is not None:
            yield from _of_paths(
                [one.path for one in volume.config_map.items], volume.name, "ConfigMap", volume.config_map.name
            )


def _of_paths(paths: list[str], volume: str, kind: str, name: str) -> Iterator[str]:
    """A file that is another's folder, or the same, is not there."""
    for position, path in enumerate(paths):
        for other in paths[:position]:
            if path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/"):
                yield f'volume "{volume}" ({kind} "{name}"): overlapping paths: "{path}" with "{other}"'


def _of_selectors(spec: PodSpec) -> Iterator[str]:
    told = "a null labelSelector results in matching no pod"
    for position, constraint in enumerate(spec.topology_spread_constraints):
        if constraint.label_selector is None:
            yield f"{SPEC.child('topologySpreadConstraints').at(position).child('labelSelector')}: {told}"
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
                yield f"{at.child('labelSelector')}: {told}"
        for position, weighted in enumerate(rules.preferred_during_scheduling_ignored_during_execution):
            if weighted.pod_affinity_term.label_selector is None:
                at = path.child("preferredDuringSchedulingIgnoredDuringExecution").at(position)
                yield f"{at.child('podAffinityTerm', 'labelSelector')}: {told}"


def _of_amounts(container: Container, path: Path) -> Iterator[str]:
    for which, amounts in (("limits", container.resources.limits), ("requests", container.resources.requests)):
        for name in _BYTES:
            if (text := amounts.get(name)) is not None and not Quantity.parse(text).is_integer:
                at = path.child(which).key(name)
                yield f'{at}: fractional byte value "{text}" is invalid, must be an integer'


def _of_ports(spec: PodSpec) -> Iterator[str]:
    """Two definitions of one port, or two ports of one name."""
    defined: dict[tuple[int, str, int, str], Path] = {}
    named: dict[tuple[str, str], Path] = {}
    for place, container in enumerate(spec.containers):
        for position, port in enumerate(container.ports):
            at = SPEC.child("containers").at(place).child("ports").at(position)
            key = (port.container_port, port.protocol, port.host_port, port.host_ip)
            if key in defined:
                yield f"{at}: duplicate port definition with {defined[key]}"
            defined.setdefault(key, at)
            if not port.name:
                continue
            if (first := named.get((port.name, port.protocol))) is not None:
                yield (
                    f'{at}: duplicate port name "{port.name}" with {first}, services and probes that select ports by '
                    f"name will use {first}"
                )
            named.setdefault((port.name, port.protocol), at)
