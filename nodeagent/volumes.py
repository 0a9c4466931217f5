"""The files that pods get of Secrets, ConfigMaps, tokens and themselves: read with the agent's credential, kept fresh.

`PodSources` reads. What it has read is good for a minute, and for a new pod no longer than the pod itself: a pod sees
what stood there when it was made. `PodTokens` asks for tokens, bound to the pod, and for the next one when four fifths
of a token's life are over. `PodVolumes` brings each volume of a pod to what it should be, at every look at the pod: a
file is replaced together with all others of its volume (`nodeagent.filesets`). `StorageWatch` sees that a pod does not
fill the disk.
Source: kubernetes pkg/kubelet/{secret,configmap,token}, pkg/volume/projected.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from claims.kinds.pod_resources import limits_of
from claims.kinds.pods import Pod
from claims.kinds.volumes import ServiceAccountTokenProjection, Volume
from manciple.access.kinds.secrets import ConfigMap, Secret
from manciple.access.kinds.service_accounts import BoundObjectReference, ServiceAccount, TokenRequest, TokenRequestSpec
from manciple.wire.base import ApiObject, ObjectMeta
from manciple.wire.quantity import Format, Quantity
from nodeagent import filesets
from nodeagent.client import CONFIG_MAPS, SECRETS, ApiResource, Client, posix_seconds
from nodeagent.failures import AgentError, ApiFailure
from nodeagent.lifecycle import PodFailure
from nodeagent.runtimes.protocol import PodStorage, Runtime
from nodeagent.runtimes.sources import MissingSource, files_of, is_made_of_files, names_of

log = logging.getLogger(__name__)

Object = TypeVar("Object", bound=ApiObject)


class MountFailed(AgentError):
    """A volume of a pod cannot be made. Told to the pod's owner by an event."""


# Secrets and ConfigMaps -----------------------------------------------------------------------------------------------


#: Seconds for which what was read is good.
FRESH_SECONDS = 60.0
#: In nearly every pod, and changed once in years: also good for pods that came after it was read.
SHARED = "kube-root-ca.crt"


@dataclass(frozen=True, slots=True)
class _Read:
    """at: steady seconds."""

    object: ApiObject
    at: float


class PodSources:
    """A `PodSource`: the objects that the node's pods name. Thread-safe. monotonic: seconds that nobody sets."""

    def __init__(self, client: Client, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, str], _Read] = {}

    def secret(self, namespace: str, name: str) -> Secret:
        return self._get(SECRETS, namespace, name)

    def config_map(self, namespace: str, name: str) -> ConfigMap:
        return self._get(CONFIG_MAPS, namespace, name)

    def refresh(self, namespace: str, volume_names: set[tuple[str, str]]) -> None:
        """What is read of these (kind, name) from now on is not from before. For a new pod."""
        plurals = {"Secret": SECRETS.plural, "ConfigMap": CONFIG_MAPS.plural}
        with self._lock:
            for kind, name in volume_names:
                if name != SHARED:
                    self._known.pop((plurals[kind], namespace, name), None)

    def forget_old(self) -> None:
        """What nobody has asked for lately is not kept: Secrets least of all."""
        with self._lock:
            now = self._monotonic()
            self._known = {key: read for key, read in self._known.items() if now - read.at < FRESH_SECONDS}

    def _get(self, resource: ApiResource[Object], namespace: str, name: str) -> Object:
        key = (resource.plural, namespace, name)
        now = self._monotonic()
        with self._lock:
            known = self._known.get(key)
        if known is not None and now - known.at < FRESH_SECONDS and isinstance(known.object, resource.type):
            return known.object
        try:
            found = self._client.get(resource, name, namespace=namespace)
        except ApiFailure as failure:
            told = f'{resource.kind.lower()} "{name}" not found' if failure.not_found else failure.message
            raise MissingSource(told, absent=failure.not_found) from failure
        with self._lock:
            self._known[key] = _Read(found, now)
        return found


# Tokens ---------------------------------------------------------------------------------------------------------------


#: Of a token's life, what is left of it when the next one is asked for; seconds after which one is replaced anyway.
LEFT, LONGEST_USE = 0.2, 24 * 3600.0


@dataclass(frozen=True, slots=True)
class _Token:
    """Times in POSIX seconds."""

    text: str
    replace_at: float
    ends_at: float


class PodTokens:
    """Tokens of the pods' service accounts. Thread-safe. clock: POSIX seconds."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        #: pod uid -> (audience, seconds) -> the token
        self._known: dict[str, dict[tuple[str, int], _Token]] = {}

    def get(self, pod: Pod, wanted: ServiceAccountTokenProjection) -> str:
        """Raises: MissingSource where none is to be had, and the last one has ended."""
        uid, key = pod.metadata.uid, (wanted.audience, wanted.expiration_seconds or 0)
        with self._lock:
            known = self._known.get(uid, {}).get(key)
        now = self._clock()
        if known is not None and now < known.replace_at:
            return known.text
        try:
            fresh = self._request(pod, wanted, now)
        except ApiFailure as failure:
            if known is not None and now < known.ends_at:
                log.warning("pod %s keeps its token for now: %s", uid, failure)
                return known.text
            raise MissingSource(f"failed to fetch token: {failure.message}") from failure
        with self._lock:
            self._known.setdefault(uid, {})[key] = fresh
        return fresh.text

    def forget(self, pod_uid: str) -> None:
        with self._lock:
            self._known.pop(pod_uid, None)

    def _request(self, pod: Pod, wanted: ServiceAccountTokenProjection, now: float) -> _Token:
        meta = pod.metadata
        request = TokenRequest(
            metadata=ObjectMeta(name=pod.spec.service_account_name, namespace=meta.namespace),
            spec=TokenRequestSpec(
                audiences=(wanted.audience,) if wanted.audience else (),
                expiration_seconds=wanted.expiration_seconds,
                bound_object_ref=BoundObjectReference(kind="Pod", api_version="v1", name=meta.name, uid=meta.uid),
            ),
        )
        given = self._client.connect(SERVICE_ACCOUNTS, "token", TOKEN_REQUESTS, request)
        ends_at = posix_seconds(given.status.expiration_timestamp)
        life = given.spec.expiration_seconds or 0
        return _Token(given.status.token, now + min(life * (1 - LEFT), LONGEST_USE), ends_at)


SERVICE_ACCOUNTS = ApiResource(ServiceAccount, "v1", "serviceaccounts")
TOKEN_REQUESTS = ApiResource(TokenRequest, "authentication.k8s.io/v1", "tokenrequests")


# Volumes --------------------------------------------------------------------------------------------------------------


class PodVolumes:
    """Makes and keeps the files of pods' volumes. One thread at a time for one pod."""

    def __init__(self, sources: PodSources, tokens: PodTokens, runtime: Runtime) -> None:
        self._sources = sources
        self._tokens = tokens
        self._runtime = runtime
        self._lock = threading.Lock()
        self._met: set[str] = set()  # the pods that have been looked at before

    def update(self, pod: Pod, *, starting: bool) -> None:
        """Bring them to what they should be. starting: containers are to be started. Raises: MountFailed.

        A runtime without files has nothing to keep fresh: what its pods name is looked for when they start.
        """
        if starting:
            _refuse_volume_claims(pod)
        volumes = [volume for volume in pod.spec.volumes if is_made_of_files(volume)]
        if starting and self._is_new(pod.metadata.uid):
            named = {(kind, name) for volume in volumes for kind, name, _ in names_of(volume)}
            self._sources.refresh(pod.metadata.namespace, named)
        for volume in volumes:
            try:
                self._update(pod, volume, starting=starting)
            except (MissingSource, OSError) as error:
                raise MountFailed(f'MountVolume.SetUp failed for volume "{volume.name}" : {error}') from error
        self._sources.forget_old()

    def forget(self, pod_uid: str) -> None:
        """The pod is gone."""
        self._tokens.forget(pod_uid)
        with self._lock:
            self._met.discard(pod_uid)

    def _is_new(self, pod_uid: str) -> bool:
        with self._lock:
            known = pod_uid in self._met
            self._met.add(pod_uid)
        return not known

    def _update(self, pod: Pod, volume: Volume, *, starting: bool) -> None:
        uid = pod.metadata.uid
        folder = self._runtime.files_folder(uid, volume.name)
        if folder is not None:
            files = files_of(pod, volume, self._sources, lambda wanted: self._tokens.get(pod, wanted))
            security = pod.spec.security_context
            filesets.publish(folder, files, group=security.fs_group if security is not None else None)
        elif starting:
            files_of(pod, volume, self._sources, lambda _wanted: "")


def _refuse_volume_claims(pod: Pod) -> None:
    """Raises: MountFailed for the first volume of a PersistentVolumeClaim: these are not served."""
    for volume in pod.spec.volumes:
        source: Any = volume
        name = f"{pod.metadata.name}-{volume.name}" if source.ephemeral is not None else ""
        if source.persistentVolumeClaim is not None:
            name = source.persistentVolumeClaim.claimName
        if name:
            full = f"{pod.metadata.namespace}/{name}"
            raise MountFailed(
                f"Unable to attach or mount volumes: unmounted volumes=[{volume.name}], unattached volumes=[], failed "
                f"to process volumes=[{volume.name}]: error processing PVC {full}: failed to fetch PVC from API "
                f'server: persistentvolumeclaims "{name}" not found. PersistentVolumeClaims are not served here: '
                "create the pod again with another volume (emptyDir, hostPath, configMap, secret)"
            )


# How much of the node's disk a pod may use ----------------------------------------------------------------------------
# `emptyDir.sizeLimit`, and the `ephemeral-storage` limits of containers. A disk cannot refuse a container a write that
# would be too much. So what is used is measured now and then, and a pod that uses more than it may is ended, as a
# kubelet does: it is Evicted. A measurement takes time where there are many files; the next comes after ten times as
# long at the least. Source: kubernetes pkg/kubelet/eviction/eviction_manager.go (localStorageEviction).


EVICTED = "Evicted"
RESOURCE = "ephemeral-storage"
#: Seconds between two measurements of one pod, at the least, and in costs of the last one.
INTERVAL, SHARE = 10.0, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLimits:
    """volumes: of emptyDirs on the disk that have a limit; disk_volumes: all of those. pod: of all its containers."""

    volumes: Mapping[str, Quantity] = field(default_factory=dict)
    containers: Mapping[str, Quantity] = field(default_factory=dict)
    pod: Quantity | None = None
    disk_volumes: tuple[str, ...] = ()

    @classmethod
    def of(cls, pod: Pod) -> StorageLimits:
        """An emptyDir in memory has its limit from the kernel."""
        on_disk = [(one.name, one.empty_dir) for one in pod.spec.volumes if one.empty_dir and not one.empty_dir.medium]
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        texts = {one.name: one.resources.limits[RESOURCE] for one in containers if RESOURCE in one.resources.limits}
        given = {name: Quantity.parse(text) for name, text in texts.items()}
        whole = limits_of(pod).get(RESOURCE)
        return cls(
            volumes={name: Quantity.parse(volume.size_limit) for name, volume in on_disk if volume.size_limit},
            containers=given,
            pod=None
            if whole is None
            else Quantity(whole, next((one.format for one in given.values()), Format.BINARY_SI)),
            disk_volumes=tuple(name for name, _ in on_disk),
        )

    @property
    def any(self) -> bool:
        return bool(self.volumes or self.containers)

    def exceeded(self, used: PodStorage) -> str:
        """What is used beyond a limit, in words; "" for nothing."""
        return next(self._complaints(used), "")

    def _complaints(self, used: PodStorage) -> Iterator[str]:
        for name, limit in self.volumes.items():
            if used.volumes.get(name, 0) > limit.as_int64_ceil():
                yield f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit.canonical()}". '
        whole = sum(used.volumes.values()) + sum(used.containers.values())
        if self.pod is not None and whole > self.pod.as_int64_ceil():
            yield f"Pod ephemeral local storage usage exceeds the total limit of containers {self.pod.canonical()}. "
        for name, limit in self.containers.items():
            if used.containers.get(name, 0) > limit.as_int64_ceil():
                yield f'Container {name} exceeded its local ephemeral storage limit "{limit.canonical()}". '


@dataclass(slots=True)
class _Watched:
    """due: when to measure again. failure: of a pod that has used too much, once."""

    due: float
    failure: PodFailure | None = None


class StorageWatch:
    """Measures the pods of one node. monotonic: seconds that nobody sets."""

    def __init__(self, runtime: Runtime, monotonic: Callable[[], float]) -> None:
        self._runtime = runtime
        self._monotonic = monotonic
        self._watched: dict[str, _Watched] = {}

    def failure_of(self, pod: Pod) -> PodFailure | None:
        """Why the pod is to end; None while it uses no more than it may. Raises: ContainerFailed."""
        limits, uid = StorageLimits.of(pod), pod.metadata.uid
        if not limits.any:
            return None
        watched = self._watched.setdefault(uid, _Watched(due=self._monotonic()))
        if watched.failure is None and self._monotonic() >= watched.due:
            self._measure(uid, limits, watched)
        return watched.failure

    def _measure(self, uid: str, limits: StorageLimits, watched: _Watched) -> None:
        began = self._monotonic()
        used = self._runtime.storage(uid, limits.disk_volumes, layers=bool(limits.containers))
        watched.due = self._monotonic() + max(INTERVAL, SHARE * (self._monotonic() - began))
        if message := limits.exceeded(used):
            watched.failure = PodFailure(reason=EVICTED, message=message)

    def next_look(self, uid: str) -> float | None:
        """In how many seconds the pod is to be looked at again; None for one without limits."""
        watched = self._watched.get(uid)
        return None if watched is None else max(0.0, watched.due - self._monotonic())

    def forget(self, uid: str) -> None:
        self._watched.pop(uid, None)
