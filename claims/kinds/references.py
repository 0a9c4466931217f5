"""What a pod names: the objects that whoever runs it must be able to read. PURE.

Everything is in the pod's own namespace. A pod that a node made itself (a mirror pod) names nothing: no node can give
itself rights by making one. Sources: pkg/api/v1/pod/util.go (VisitPodSecretNames, VisitPodConfigmapNames),
dynamic-resource-allocation/resourceclaim/claim.go (Name), plugin/pkg/auth/authorizer/node/graph.go (AddPod).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from claims.kinds.containers import Container
from claims.kinds.pods import MIRROR, Pod
from claims.kinds.volumes import Volume

SECRETS, CONFIG_MAPS, ACCOUNTS = "secrets", "configmaps", "serviceaccounts"
CLAIMS, DRAFT_CLAIMS = "resourceclaims.resource.k8s.io", "resourceclaims.cdi.k8s.io"
VOLUME_CLAIMS = "persistentvolumeclaims"


class Reference(NamedTuple):
    """An object, by resource ("secrets", "resourceclaims.resource.k8s.io") and name."""

    resource: str
    name: str


def references(pod: Pod) -> frozenset[Reference]:
    """All that `pod` names."""
    if MIRROR in pod.metadata.annotations:
        return frozenset()
    return frozenset(found for found in named_by(pod) if found.name)


def named_by(pod: Pod) -> Iterator[Reference]:
    spec = pod.spec
    yield Reference(ACCOUNTS, spec.service_account_name)
    for secret in spec.image_pull_secrets:
        yield Reference(SECRETS, secret.name)
    for container in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers):
        yield from of_environment(container)
    for volume in spec.volumes:
        yield from of_volume(volume, pod.metadata.name)
    for name in claim_names(pod):
        yield Reference(CLAIMS, name)
    for entry in spec.resources if isinstance(spec.resources, tuple) else ():
        yield Reference(DRAFT_CLAIMS, entry.resource_claim_name or f"{pod.metadata.name}-{entry.name}")


def of_environment(container: Container) -> Iterator[Reference]:
    """The secrets and config maps in a container's environment."""
    for whole in container.env_from:
        if whole.secret_ref is not None:
            yield Reference(SECRETS, whole.secret_ref.name)
        if whole.config_map_ref is not None:
            yield Reference(CONFIG_MAPS, whole.config_map_ref.name)
    for variable in container.env:
        source = variable.value_from
        if source is not None and source.secret_key_ref is not None:
            yield Reference(SECRETS, source.secret_key_ref.name)
        if source is not None and source.config_map_key_ref is not None:
            yield Reference(CONFIG_MAPS, source.config_map_key_ref.name)


def of_volume(volume: Volume, pod_name: str) -> Iterator[Reference]:
    """What `volume` mounts, and the secrets that mounting it takes. pod_name: whose volume it is."""
    if volume.secret is not None:
        yield Reference(SECRETS, volume.secret.secret_name)
    if volume.config_map is not None:
        yield Reference(CONFIG_MAPS, volume.config_map.name)
    for source in volume.projected.sources if volume.projected is not None else ():
        if source.secret is not None:
            yield Reference(SECRETS, source.secret.name)
        if source.config_map is not None:
            yield Reference(CONFIG_MAPS, source.config_map.name)
    yield from _of_carried(volume, pod_name)


#: Sources that are only carried (`claims.kinds.volumes`) and name a secret of the pod's namespace.
_WITH_SECRETS = ("cephfs", "cinder", "csi", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos")


def _of_carried(volume: Any, pod_name: str) -> Iterator[Reference]:
    if volume.persistentVolumeClaim is not None:
        yield Reference(VOLUME_CLAIMS, volume.persistentVolumeClaim.claimName)
    if volume.ephemeral is not None:
        yield Reference(VOLUME_CLAIMS, f"{pod_name}-{volume.name}")
    if volume.azureFile is not None:
        yield Reference(SECRETS, volume.azureFile.secretName)
    for source in (getattr(volume, name) for name in _WITH_SECRETS):
        secret = getattr(source, "nodePublishSecretRef" if source is volume.csi else "secretRef", None)
        if secret is not None:
            yield Reference(SECRETS, secret.name)


def claim_names(pod: Pod) -> Iterator[str]:
    """The claims of `pod`: those that it names, those made for it from the templates that it names, and the one for its
    extended resources.
    """
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    for claim in pod.spec.resource_claims:
        name = claim.resource_claim_name if claim.resource_claim_name is not None else made.get(claim.name)
        if name:
            yield name
    if pod.status.extended_resource_claim_status is not None:
        yield pod.status.extended_resource_claim_status.resource_claim_name
