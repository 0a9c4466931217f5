"""Every pod runs as a service account of its namespace: which one, and how its token gets into the containers.

Admission of every pod that a client creates. Its account is `default` if it names none, and must exist. Unless pod or
account opt out (automountServiceAccountToken), every container gets the account's token, the API's CA and the namespace
as files, in a projected volume that the node's agent refreshes. A container with a mount of its own at that path keeps
it.

Accounts are cached by following the log, so a pod costs no query. A cached account may be half a second old if an
announcement was lost; before a pod is refused, the log is read. Source:
plugin/pkg/admission/serviceaccount/admission.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from msgspec.structs import replace

from claims.access.node_authorizer import CONFIG_MAPS, SECRETS, node_of, references
from claims.kinds.containers import Container, KeyToPath, ObjectFieldSelector, VolumeMount
from claims.kinds.pods import MIRROR, Pod
from claims.kinds.volumes import (
    ConfigMapProjection,
    DownwardAPIProjection,
    DownwardAPIVolumeFile,
    ProjectedVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeProjection,
)
from manciple.access.kinds.service_accounts import DEFAULT_NAME, ServiceAccount
from manciple.access.namespace_defaults import AUTHORITY_KEY, ROOT_CA, SERVICE_ACCOUNTS
from manciple.api import first_stage
from manciple.store.event_log import POLL_INTERVAL, Follower, View
from manciple.store.hooks import Write
from manciple.store.records import Written
from manciple.wire.base import RANDOM, ApiObject, LocalObjectReference
from manciple.wire.errors import Forbidden
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.validation import generate_name

PODS = "pods"
#: The path at which programs expect their token.
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME_PREFIX = "kube-api-access-"
#: The lifetime of tokens in seconds; the agent renews them long before. The seven beyond the hour distinguish them from
#: tokens that users request (upstream: WarnOnlyBoundTokenExpirationPeriod).
TOKEN_SECONDS = 60 * 60 + 7
FILE_MODE = 0o644


def register() -> None:
    first_stage.register_completion(PODS, admit)


# Accounts -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Account:
    """The fields of an account that its pods use."""

    automounts: bool
    image_pull_secrets: tuple[LocalObjectReference, ...]


class Accounts(View):
    """(namespace, name) -> the account."""

    resources: ClassVar[Sequence[str]] = (SERVICE_ACCOUNTS,)

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], _Account] = {}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:  # noqa: ARG002 - there is one
        for obj in objects:
            self._add(obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            if change.type == "DELETED":
                self.known.pop((change.object.metadata.namespace, change.object.metadata.name), None)
            else:
                self._add(change.object)

    def _add(self, obj: ApiObject) -> None:
        if isinstance(obj, ServiceAccount):
            found = _Account(obj.automount_service_account_token is not False, obj.image_pull_secrets)
            self.known[obj.key] = found


_following = Follower(Accounts)


def _account(namespace: str, name: str) -> _Account | None:
    with _following.view(within=POLL_INTERVAL) as accounts:
        found = accounts.known.get((namespace, name))
    if found is None:
        with _following.view() as accounts:
            found = accounts.known.get((namespace, name))
    return found


# Pods -----------------------------------------------------------------------------------------------------------------


def admit(write: Write) -> Pod:
    """The pod with its account and token. Raises: Forbidden."""
    pod: Pod = write.new
    if MIRROR in pod.metadata.annotations:
        return _checked_mirror(pod, write.identity)
    name = pod.spec.service_account_name or pod.spec.service_account or DEFAULT_NAME
    namespace = pod.metadata.namespace
    account = _account(namespace, name)
    if account is None:
        missing = f'serviceaccount "{name}" not found'
        raise _refusal(pod, f"error looking up service account {namespace}/{name}: {missing}")
    spec = replace(
        pod.spec,
        service_account_name=name,
        service_account=name,
        image_pull_secrets=pod.spec.image_pull_secrets or account.image_pull_secrets,
    )
    wanted = spec.automount_service_account_token
    pod = replace(pod, spec=spec)
    return _with_token(pod) if (account.automounts if wanted is None else wanted) else pod


def _checked_mirror(pod: Pod, identity: Identity) -> Pod:
    """A mirror pod shows a static pod of a node, and must not use objects of the API. Raises: Forbidden.

    Drains skip mirror pods, so only nodes and administrators may create them. (In Kubernetes everybody may.)
    """
    if not node_of(identity) and MASTERS not in identity.groups:
        raise _refusal(pod, f'only nodes can create mirror pods (annotation "{MIRROR}")')
    spec = pod.spec
    if spec.service_account_name or spec.service_account:
        raise _refusal(pod, "a mirror pod may not reference service accounts")
    if any(reference.resource == SECRETS for reference in references(pod)):
        raise _refusal(pod, "a mirror pod may not reference secrets")
    if any(reference.resource == CONFIG_MAPS for reference in references(pod)):
        raise _refusal(pod, "a mirror pod may not reference configmaps")
    if spec.resource_claims or isinstance(spec.resources, tuple):
        raise _refusal(pod, "a mirror pod may not reference resourceclaims")
    sources = (source for volume in spec.volumes if volume.projected for source in volume.projected.sources)
    if any(source.service_account_token is not None for source in sources):
        raise _refusal(pod, "a mirror pod may not use ServiceAccountToken volume projections")
    return pod


def _refusal(pod: Pod, why: str) -> Forbidden:
    name = pod.metadata.name or pod.metadata.generate_name or "Unknown"
    return Forbidden(f'pods "{name}" is forbidden: {why}', details={"name": name, "kind": PODS})


# The token's volume ---------------------------------------------------------------------------------------------------


#: The same for all pods.
_TOKEN_VOLUME = ProjectedVolumeSource(
    default_mode=FILE_MODE,
    sources=(
        VolumeProjection(
            service_account_token=ServiceAccountTokenProjection(expiration_seconds=TOKEN_SECONDS, path="token")
        ),
        VolumeProjection(
            config_map=ConfigMapProjection(name=ROOT_CA, items=(KeyToPath(key=AUTHORITY_KEY, path=AUTHORITY_KEY),))
        ),
        VolumeProjection(
            downward_api=DownwardAPIProjection(
                items=(
                    DownwardAPIVolumeFile(
                        path="namespace",
                        field_ref=ObjectFieldSelector(api_version="v1", field_path="metadata.namespace"),
                    ),
                )
            )
        ),
    ),
)


def _with_token(pod: Pod) -> Pod:
    """Add the token's volume, and its mount to every container that has no mount at that path."""
    spec = pod.spec
    known = next((volume.name for volume in spec.volumes if volume.name.startswith(VOLUME_PREFIX)), "")
    name = known or generate_name(VOLUME_PREFIX, RANDOM())
    mount = VolumeMount(name=name, read_only=True, mount_path=MOUNT_PATH)
    containers, init_containers = _mounting(spec.containers, mount), _mounting(spec.init_containers, mount)
    changed = containers != spec.containers or init_containers != spec.init_containers
    added = (Volume(name=name, projected=_TOKEN_VOLUME),) if changed and not known else ()
    return replace(
        pod,
        spec=replace(spec, containers=containers, init_containers=init_containers, volumes=(*spec.volumes, *added)),
    )


def _mounting(containers: tuple[Container, ...], mount: VolumeMount) -> tuple[Container, ...]:
    return tuple(
        one
        if any(own.mount_path == mount.mount_path for own in one.volume_mounts)
        else replace(one, volume_mounts=(*one.volume_mounts, mount))
        for one in containers
    )
