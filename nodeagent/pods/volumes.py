"""The volumes of pods: files made of Secrets, ConfigMaps, tokens and the pod itself, kept fresh; limits of disk use.

`PodSources` reads with the agent's credential and caches for a minute; a new pod sees objects no older than itself.
`PodTokens` requests tokens bound to the pod, and renews them when four fifths of their lifetime are over. `files_of`
makes a volume's files. `publish_files` replaces all files of a volume at once. `PodVolumes` does so at every sync of a
pod. `StorageWatch` ends pods that use more of the disk than they may.

Source: kubernetes pkg/kubelet/{secret,configmap,token}, pkg/volume/{secret,configmap,downwardapi,projected},
pkg/volume/util/atomic_writer.go, pkg/volume/volume_linux.go, pkg/kubelet/eviction/eviction_manager.go.
"""

from __future__ import annotations

import base64
import logging
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

from claims.kinds.containers import Container, KeyToPath
from claims.kinds.pods import Pod, uses_volume_claims
from claims.kinds.resource_usage import limits_of
from claims.kinds.volumes import DownwardAPIVolumeFile, ServiceAccountTokenProjection, Volume, VolumeProjection
from manciple.access.kinds.secrets import ConfigMap, Secret
from manciple.access.kinds.service_accounts import BoundObjectReference, ServiceAccount, TokenRequest, TokenRequestSpec
from manciple.wire.base import ApiObject, ObjectMeta
from manciple.wire.quantity import Format, Quantity
from nodeagent.api.client import CONFIG_MAPS, SECRETS, ApiResource, Client, posix_seconds
from nodeagent.failures import ApiFailure
from nodeagent.pods.claimed_volumes import ClaimedVolumes, MountFailed
from nodeagent.runtimes.protocol import (
    Addresses,
    MissingSource,
    PodSource,
    PodStorage,
    Runtime,
    field_value,
    is_made_of_files,
    resource_value,
)

log = logging.getLogger(__name__)

Object = TypeVar("Object", bound=ApiObject)


# Secrets and ConfigMaps -----------------------------------------------------------------------------------------------


#: Seconds for which a read object is cached.
FRESH_SECONDS = 60.0
#: In nearly every pod, and changed once in years: cached for new pods too.
SHARED = "kube-root-ca.crt"


@dataclass(frozen=True, slots=True)
class _Read:
    """at: steady seconds."""

    object: ApiObject
    at: float


class PodSources:
    """A `PodSource` with a cache. Thread-safe."""

    def __init__(self, client: Client, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._cache: dict[tuple[str, str, str], _Read] = {}

    def secret(self, namespace: str, name: str) -> Secret:
        return self._get(SECRETS, namespace, name)

    def config_map(self, namespace: str, name: str) -> ConfigMap:
        return self._get(CONFIG_MAPS, namespace, name)

    def refresh(self, namespace: str, volume_names: set[tuple[str, str]]) -> None:
        """For a new pod: drop these (kind, name) from the cache."""
        plurals = {"Secret": SECRETS.plural, "ConfigMap": CONFIG_MAPS.plural}
        with self._lock:
            for kind, name in volume_names:
                if name != SHARED:
                    self._cache.pop((plurals[kind], namespace, name), None)

    def forget_old(self) -> None:
        """Drop expired objects: Secrets must not stay in memory longer than needed."""
        with self._lock:
            now = self._monotonic()
            self._cache = {key: read for key, read in self._cache.items() if now - read.at < FRESH_SECONDS}

    def _get(self, resource: ApiResource[Object], namespace: str, name: str) -> Object:
        key = (resource.plural, namespace, name)
        now = self._monotonic()
        with self._lock:
            cached = self._cache.get(key)
        if cached is not None and now - cached.at < FRESH_SECONDS and isinstance(cached.object, resource.type):
            return cached.object
        try:
            fresh = self._client.get(resource, name, namespace=namespace)
        except ApiFailure as failure:
            message = f'{resource.kind.lower()} "{name}" not found' if failure.not_found else failure.message
            raise MissingSource(message, absent=failure.not_found) from failure
        with self._lock:
            self._cache[key] = _Read(fresh, now)
        return fresh


# Tokens ---------------------------------------------------------------------------------------------------------------


#: The share of a token's lifetime that is left when it is renewed; seconds after which it is renewed anyway.
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
        self._tokens: dict[str, dict[tuple[str, int], _Token]] = {}

    def get(self, pod: Pod, projection: ServiceAccountTokenProjection) -> str:
        """Raises: MissingSource if no token can be had and the last one has expired."""
        uid, key = pod.metadata.uid, (projection.audience, projection.expiration_seconds or 0)
        with self._lock:
            current = self._tokens.get(uid, {}).get(key)
        now = self._clock()
        if current is not None and now < current.replace_at:
            return current.text
        try:
            fresh = self._request(pod, projection, now)
        except ApiFailure as failure:
            if current is not None and now < current.ends_at:
                log.warning("pod %s keeps its token for now: %s", uid, failure)
                return current.text
            raise MissingSource(f"failed to fetch token: {failure.message}") from failure
        with self._lock:
            self._tokens.setdefault(uid, {})[key] = fresh
        return fresh.text

    def forget(self, pod_uid: str) -> None:
        with self._lock:
            self._tokens.pop(pod_uid, None)

    def _request(self, pod: Pod, projection: ServiceAccountTokenProjection, now: float) -> _Token:
        meta = pod.metadata
        request = TokenRequest(
            metadata=ObjectMeta(name=pod.spec.service_account_name, namespace=meta.namespace),
            spec=TokenRequestSpec(
                audiences=(projection.audience,) if projection.audience else (),
                expiration_seconds=projection.expiration_seconds,
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
    """Makes the files of pods' volumes and keeps them fresh. One thread at a time for one pod."""

    def __init__(self, sources: PodSources, tokens: PodTokens, runtime: Runtime, claimed: ClaimedVolumes) -> None:
        self._sources = sources
        self._tokens = tokens
        self._claimed = claimed
        self._runtime = runtime
        self._lock = threading.Lock()
        self._refreshed: set[str] = set()  # the pods whose sources were read after they were created

    def update(self, pod: Pod, *, starting: bool) -> None:
        """Bring the pod's volumes up to date. starting: before containers start. Raises: MountFailed.

        For a runtime without files this only checks, before containers start, that the sources exist.
        """
        if starting and uses_volume_claims(pod):
            self._claimed.resolve(pod)
        volumes = [volume for volume in pod.spec.volumes if is_made_of_files(volume)]
        uid, security = pod.metadata.uid, pod.spec.security_context
        if starting:
            with self._lock:
                is_new = uid not in self._refreshed
                self._refreshed.add(uid)
            if is_new:
                sources = {(kind, name) for volume in volumes for kind, name, _ in names_of(volume)}
                self._sources.refresh(pod.metadata.namespace, sources)
        for volume in volumes:
            try:
                folder = self._runtime.files_folder(uid, volume.name)
                if folder is not None:
                    files = files_of(pod, volume, self._sources, lambda projection: self._tokens.get(pod, projection))
                    publish_files(folder, files, group=security.fs_group if security is not None else None)
                elif starting:
                    files_of(pod, volume, self._sources, lambda _projection: "")
            except (MissingSource, OSError) as error:
                raise MountFailed(f'MountVolume.SetUp failed for volume "{volume.name}" : {error}') from error
        self._sources.forget_old()

    def mounted(self, pod: Pod, container: Container) -> tuple[Pod, Container]:
        """Both, with paths of the node in place of claims. Raises: MountFailed."""
        return self._claimed.mounted(pod, container) if uses_volume_claims(pod) else (pod, container)

    def forget(self, pod_uid: str) -> None:
        """The pod is gone."""
        self._tokens.forget(pod_uid)
        if pod_uid in self._claimed.users:
            self._claimed.forget(pod_uid)
        with self._lock:
            self._refreshed.discard(pod_uid)


# The files of a volume ------------------------------------------------------------------------------------------------


#: Default modes of a volume's files.
FILE_MODE, TOKEN_MODE = 0o644, 0o600


class FileContent(NamedTuple):
    """user: the owner; None for root."""

    data: bytes
    mode: int
    user: int | None = None


Files = dict[str, FileContent]
#: A token of the pod's account. Raises: MissingSource.
GiveToken = Callable[[ServiceAccountTokenProjection], str]


def names_of(volume: Volume) -> Iterator[tuple[str, str, bool]]:
    """("Secret" or "ConfigMap", name, whether it is optional) of the volume's sources."""
    if volume.secret is not None:
        yield "Secret", volume.secret.secret_name, bool(volume.secret.optional)
    if volume.config_map is not None:
        yield "ConfigMap", volume.config_map.name, bool(volume.config_map.optional)
    for source in volume.projected.sources if volume.projected is not None else ():
        for kind, projection in (("Secret", source.secret), ("ConfigMap", source.config_map)):
            if projection is not None:
                yield kind, projection.name, bool(projection.optional)


def files_of(pod: Pod, volume: Volume, source: PodSource, give_token: GiveToken) -> Files:
    """Path below the volume -> the file. Raises: MissingSource."""
    maker = _FileMaker(pod, source, give_token)
    if volume.secret is not None:
        secret = volume.secret
        files = maker.keys("Secret", secret.secret_name, secret.items, secret.default_mode, optional=secret.optional)
    elif volume.config_map is not None:
        config = volume.config_map
        files = maker.keys("ConfigMap", config.name, config.items, config.default_mode, optional=config.optional)
    elif volume.downward_api is not None:
        files = maker.downward(volume.downward_api.items, volume.downward_api.default_mode)
    elif volume.projected is not None:
        files = maker.projected(volume.projected.sources, volume.projected.default_mode)
    else:
        files = {}
    for path in files:
        # The API refuses such paths and keys; an agent that relied on that would write anywhere for a bad one.
        parts = PurePosixPath(path).parts
        if not parts or path.startswith(("/", "..")) or ".." in parts:
            raise MissingSource(f"the path {path} leads outside the volume")
    return files


@dataclass(frozen=True, slots=True)
class _FileMaker:
    pod: Pod
    source: PodSource
    give_token: GiveToken

    def keys(
        self, kind: str, name: str, items: Sequence[KeyToPath], mode: int | None, *, optional: bool | None
    ) -> Files:
        """A file per key; with `items`, only those, at the items' paths."""
        try:
            values = self._values(kind, name)
        except MissingSource as missing:
            if optional and missing.absent:
                return {}
            raise
        default = FILE_MODE if mode is None else mode
        if not items:
            return {key: FileContent(data, default) for key, data in values.items()}
        lacking = [item.key for item in items if item.key not in values]
        if lacking and not optional:
            what = "secret" if kind == "Secret" else "config"
            raise MissingSource(f"references non-existent {what} key: {lacking[0]}")
        return {
            item.path: FileContent(values[item.key], default if item.mode is None else item.mode, item.user)
            for item in items
            if item.key in values
        }

    def _values(self, kind: str, name: str) -> dict[str, bytes]:
        namespace = self.pod.metadata.namespace
        if kind == "Secret":
            secret = self.source.secret(namespace, name)
            return {key: base64.b64decode(text) for key, text in secret.data.items()}
        config = self.source.config_map(namespace, name)
        binary = {key: base64.b64decode(text) for key, text in config.binary_data.items()}
        return {**{key: text.encode() for key, text in config.data.items()}, **binary}

    def downward(self, items: Iterable[DownwardAPIVolumeFile], mode: int | None) -> Files:
        default = FILE_MODE if mode is None else mode
        return {
            item.path: FileContent(self._value(item).encode(), default if item.mode is None else item.mode, item.user)
            for item in items
        }

    def _value(self, item: DownwardAPIVolumeFile) -> str:
        value: str | None = None
        trouble = "there is nothing to show"
        if item.field_ref is not None:
            value = field_value(self.pod, item.field_ref.field_path, Addresses("", ""))
            trouble = f"the field {item.field_ref.field_path} cannot be exposed to a container"
        elif item.resource_field_ref is not None:
            value, trouble = resource_value(self.pod, item.resource_field_ref, None)
        if value is None:
            raise MissingSource(f"{item.path}: {trouble}")
        return value

    def projected(self, sources: Iterable[VolumeProjection], mode: int | None) -> Files:
        """The files of several sources. Raises: MissingSource with everything that is missing."""
        files: Files = {}
        missing: list[str] = []
        for source in sources:
            try:
                files |= self._projection(source, mode)
            except MissingSource as error:
                missing.append(str(error))
        if missing:
            raise MissingSource(missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]")
        return files

    def _projection(self, source: VolumeProjection, mode: int | None) -> Files:
        for kind, keys in (("Secret", source.secret), ("ConfigMap", source.config_map)):
            if keys is not None:
                return self.keys(kind, keys.name, keys.items, mode, optional=keys.optional)
        if source.downward_api is not None:
            return self.downward(source.downward_api.items, mode)
        if source.service_account_token is not None:
            return self._token(source.service_account_token, mode)
        return {}

    def _token(self, projection: ServiceAccountTokenProjection, mode: int | None) -> Files:
        """If all containers run as one user of the manifest, only that user can read the token."""
        user = _only_user(self.pod) if projection.user is None else projection.user
        security = self.pod.spec.security_context
        of_group = security is not None and security.fs_group is not None
        narrow = user is not None or of_group
        content = FileContent(
            self.give_token(projection).encode(),
            TOKEN_MODE if narrow else FILE_MODE if mode is None else mode,
            user,
        )
        return {projection.path: content}


def _only_user(pod: Pod) -> int | None:
    """The user that every container of the pod runs as; None if they differ or the manifest names none."""
    of_pod = pod.spec.security_context.run_as_user if pod.spec.security_context is not None else None
    users = {
        of_pod
        if container.security_context is None or container.security_context.run_as_user is None
        else container.security_context.run_as_user
        for container in (*pod.spec.init_containers, *pod.spec.containers)
    }
    return users.pop() if len(users) == 1 else None


# Atomic updates -------------------------------------------------------------------------------------------------------

# All files of a volume change at once: a reader sees the old files or the new.
#
#     DIR/..2026_11_23_06_06_03.x7k2/token      the current files
#     DIR/..data -> ..2026_11_23_06_06_03.x7k2  replaced by a rename
#     DIR/token -> ..data/token                 what programs open
#
# A program that has a file open keeps the old one. No file's name begins with two dots (`files_of` refuses it), so the
# names never clash. Containers get the directory read-only.

_DATA = "..data"
_NEW_DATA = "..data_tmp"
_FOLDER_MODE = 0o755
#: Permissions added for a volume's group.
_GROUP_FILE, _GROUP_FOLDER = 0o440, 0o2550


def publish_files(folder: Path, files: Mapping[str, FileContent], *, group: int | None = None) -> bool:
    """Replace the files in `folder`, which exists, by `files`; False if it has them already. Raises: OSError.

    group: the group that may read them besides their owner, if any.
    """
    target = {path: _Attributes.of(content, group) for path, content in files.items()}
    current = _current(folder)
    links = {name: f"{_DATA}/{name}" for name in {path.partition("/")[0] for path in files}}
    if current is not None and _files_in(current) == target and _links(folder) == links:
        return False
    fresh = Path(tempfile.mkdtemp(prefix=time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime()), dir=folder))
    try:
        _fill(fresh, files, group)
        link = folder / _NEW_DATA
        link.unlink(missing_ok=True)
        link.symlink_to(fresh.name)
        link.replace(folder / _DATA)  # from here on, the new files are visible
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    existing = _links(folder)
    for name, path in existing.items():
        if links.get(name) != path:
            (folder / name).unlink()
    for name, path in links.items():
        if existing.get(name) != path:
            (folder / name).symlink_to(path)
    for old in folder.iterdir():  # and what a crash left
        if old.name.startswith("..") and old.name not in (_DATA, fresh.name):
            shutil.rmtree(old, ignore_errors=True)
    return True


class _Attributes(tuple[bytes, int, int, int]):
    """(content, mode, user, group) of a file."""

    __slots__ = ()

    @classmethod
    def of(cls, content: FileContent, group: int | None) -> _Attributes:
        mode = content.mode if group is None else content.mode | _GROUP_FILE
        return cls((content.data, mode, content.user or 0, group or 0))


def _fill(fresh: Path, files: Mapping[str, FileContent], group: int | None) -> None:
    _hand_over(fresh, _FOLDER_MODE, 0, group, _GROUP_FOLDER)
    for path, content in files.items():
        target = fresh / path
        for parent in reversed(target.relative_to(fresh).parents[:-1]):
            if not (fresh / parent).is_dir():
                (fresh / parent).mkdir()
                _hand_over(fresh / parent, _FOLDER_MODE, 0, group, _GROUP_FOLDER)
        with target.open("xb") as stream:
            stream.write(content.data)
        _hand_over(target, content.mode, content.user or 0, group, _GROUP_FILE)


def _hand_over(path: Path, mode: int, user: int, group: int | None, for_group: int) -> None:
    if user or group:
        os.chown(path, user, group or 0)
    path.chmod(mode if group is None else mode | for_group)


def _links(folder: Path) -> dict[str, str]:
    """name -> target of each visible link; "" for what is not a link."""
    visible = (path for path in folder.iterdir() if not path.name.startswith(".."))
    return {path.name: str(path.readlink()) if path.is_symlink() else "" for path in visible}


def _current(folder: Path) -> Path | None:
    """The directory of the current files; None if there are none yet."""
    try:
        current = folder / (folder / _DATA).readlink()
    except FileNotFoundError:
        return None
    return current if current.is_dir() else None


def _files_in(current: Path) -> dict[str, _Attributes]:
    files = {}
    for path in current.rglob("*"):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            attributes = (path.read_bytes(), stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
            files[str(path.relative_to(current))] = _Attributes(attributes)
    return files


# Limits of disk use ---------------------------------------------------------------------------------------------------

# `emptyDir.sizeLimit`, and the `ephemeral-storage` limits of containers. A disk cannot refuse a container's write
# beyond a limit. So the agent measures each pod periodically, and evicts one beyond its limit, as a kubelet does
# (localStorageEviction). Measuring many files takes long; the next measurement waits for at least ten times as long.

RESOURCE = "ephemeral-storage"
#: Between two measurements of a pod: at least so many seconds, and so many times the duration of the last one.
INTERVAL, SHARE = 10.0, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLimits:
    """volumes: the limits of emptyDirs on the disk; disk_volumes: all emptyDirs on the disk. pod: of all containers."""

    volumes: Mapping[str, Quantity] = field(default_factory=dict)
    containers: Mapping[str, Quantity] = field(default_factory=dict)
    pod: Quantity | None = None
    disk_volumes: tuple[str, ...] = ()

    @classmethod
    def of(cls, pod: Pod) -> StorageLimits:
        """Without emptyDirs in memory: the kernel enforces their limits."""
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
        """The message about a limit that `used` exceeds; "" for none."""
        for name, limit in self.volumes.items():
            if used.volumes.get(name, 0) > limit.as_int64_ceil():
                return f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit.canonical()}". '
        whole = sum(used.volumes.values()) + sum(used.containers.values())
        if self.pod is not None and whole > self.pod.as_int64_ceil():
            return f"Pod ephemeral local storage usage exceeds the total limit of containers {self.pod.canonical()}. "
        for name, limit in self.containers.items():
            if used.containers.get(name, 0) > limit.as_int64_ceil():
                return f'Container {name} exceeded its local ephemeral storage limit "{limit.canonical()}". '
        return ""


@dataclass(slots=True)
class _Watched:
    """due: when to measure again. excess: the message about the first exceeded limit."""

    due: float
    excess: str = ""


class StorageWatch:
    """Measures the disk use of a node's pods."""

    def __init__(self, runtime: Runtime, monotonic: Callable[[], float]) -> None:
        self._runtime = runtime
        self._monotonic = monotonic
        self._watched: dict[str, _Watched] = {}

    def excess_of(self, pod: Pod) -> str:
        """The message about the limit that the pod has exceeded, once; "" for none. Raises: ContainerFailed."""
        limits, uid = StorageLimits.of(pod), pod.metadata.uid
        if not limits.any:
            return ""
        watched = self._watched.setdefault(uid, _Watched(due=self._monotonic()))
        began = self._monotonic()
        if not watched.excess and began >= watched.due:
            used = self._runtime.storage(uid, limits.disk_volumes, layers=bool(limits.containers))
            watched.due = self._monotonic() + max(INTERVAL, SHARE * (self._monotonic() - began))
            watched.excess = limits.exceeded(used)
        return watched.excess

    def next_look(self, uid: str) -> float | None:
        """Seconds until the next measurement; None for a pod without limits."""
        watched = self._watched.get(uid)
        return None if watched is None else max(0.0, watched.due - self._monotonic())

    def forget(self, uid: str) -> None:
        self._watched.pop(uid, None)
