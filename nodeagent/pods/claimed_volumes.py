"""The volumes of PersistentVolumeClaims, those of ephemeral volumes too: folders of the node, mounted like a hostPath.

    the claim is not bound yet                -> the pod waits; an event says so if it takes long
    bound to a folder of `LOCAL_PROVISIONER`  -> STATE_DIR/volumes/NAME, NAME being the volume's
    bound to a hostPath or local volume       -> its path
    bound to anything else, on other nodes    -> `MountFailed`

A finalizer on the volume says that its folder is there: it is set once the folder is made, before a container sees it,
and removed once the folder is. So a folder goes with its deleted volume only, a kill at any moment leaves neither
without the other, and a folder that should be there and is not is noticed before a pod starts with an empty one.
The size of a claim is not enforced.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from claims.kinds.containers import Container
from claims.kinds.persistent_volumes import DELETE, FOLDER_FINALIZER, RELEASED, PersistentVolume
from claims.kinds.pods import Pod, is_made_for, not_made_for, volume_claim_of
from claims.kinds.volume_claims import BOUND
from claims.kinds.volumes import HostPathVolumeSource, Volume
from manciple.wire.base import ObjectReference
from manciple.wire.selectors import node_selector_matches
from nodeagent.api.client import NODES, VOLUME_CLAIMS, VOLUMES, Client, WatchEvent
from nodeagent.failures import AgentError, ApiFailure
from nodeagent.runtimes.podman.kernel import mounts_below, unmount
from nodeagent.storage import hand_to_group, is_file_name, is_of_group, make_private, remove_tree

log = logging.getLogger(__name__)

#: Containers of the pod run as various users.
FOLDER_MODE = 0o777
#: Seconds that a pod waits for its claim without an event.
PATIENCE = 20.0


class MountFailed(AgentError):
    """A volume of the pod cannot be mounted. is_expected: it will be in a moment: no event reports it."""

    def __init__(self, message: str, *, is_expected: bool = False) -> None:
        super().__init__(message)
        self.is_expected = is_expected


class Mounted(NamedTuple):
    """path: on the node. type: as in a hostPath volume."""

    path: str
    type: str
    read_only: bool


class ClaimedVolumes:
    """folders: where the folders are; None for a runtime without files. look: have `sweep` called soon. is_running:
    whether containers of the pod with that uid run.
    """

    def __init__(
        self,
        client: Client,
        folders: Path | None,
        *,
        node: str,
        warn: Callable[[ObjectReference, str, str], None],
        look: Callable[[], None],
        is_running: Callable[[str], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._folders, self._node = client, folders, node
        self._warn, self._look, self._is_running, self._monotonic = warn, look, is_running, monotonic
        self._lock = threading.Lock()
        #: the volumes that are folders of this node, by the watch; None before it has listed them
        self._volumes: dict[str, PersistentVolume] | None = None
        #: folders that this agent has made or found
        self._touched: set[str] = set()
        #: pod uid -> volume -> what it is
        self._mounted: dict[str, dict[str, Mounted]] = {}
        #: uids of the pods that it is asked about
        self.users: set[str] = set()
        #: pod uid -> since when it waits
        self._waiting: dict[str, float] = {}

    # Of pods ----------------------------------------------------------------------------------------------------------

    def resolve(self, pod: Pod) -> None:
        """Find its volumes of claims, and make their folders. Raises: MountFailed."""
        volumes: tuple[Any, ...] = pod.spec.volumes
        self.users.add(pod.metadata.uid)
        claimed = [volume for volume in volumes if volume_claim_of(pod, volume)]
        with self._lock:
            known = self._mounted.get(pod.metadata.uid, {})
        # What is mounted stays: containers that start again need no second look at all files of a volume.
        mounted = {one.name: known.get(one.name) or self._volume(pod, one) for one in claimed}
        with self._lock:
            self._mounted[pod.metadata.uid] = mounted
            self._waiting.pop(pod.metadata.uid, None)

    def mounted(self, pod: Pod, container: Container) -> tuple[Pod, Container]:
        """Both, with paths of the node in place of claims. Raises: MountFailed."""
        if pod.metadata.uid not in self._mounted:  # it was mounted by an earlier agent
            self.resolve(pod)
        with self._lock:
            known = self._mounted.get(pod.metadata.uid, {})
        paths = tuple(
            _as_path(volume, known[volume.name]) if volume.name in known else volume for volume in pod.spec.volumes
        )
        mounts = tuple(
            replace(mount, read_only=True) if mount.name in known and known[mount.name].read_only else mount
            for mount in container.volume_mounts
        )
        pod = replace(pod, spec=replace(pod.spec, volumes=paths))
        return pod, replace(container, volume_mounts=mounts)

    def forget(self, pod_uid: str) -> None:
        """The pod is gone."""
        self.users.discard(pod_uid)
        with self._lock:
            self._waiting.pop(pod_uid, None)
            mounted = self._mounted.pop(pod_uid, None)
        if mounted:
            self._look()

    def _volume(self, pod: Pod, volume: Any) -> Mounted:
        """Raises: MountFailed."""
        name, namespace = volume_claim_of(pod, volume), pod.metadata.namespace
        read_only = volume.persistentVolumeClaim is not None and bool(volume.persistentVolumeClaim.readOnly)
        where, full = f'MountVolume.SetUp failed for volume "{volume.name}" : ', f"{namespace}/{name}"
        try:
            claim = self._client.get(VOLUME_CLAIMS, name, namespace=namespace)
            if volume.ephemeral is not None and not is_made_for(claim.metadata, pod):
                raise MountFailed(f"{where}{not_made_for(name, pod)}")
            if claim.status.phase != BOUND:
                message = f"{where}PersistentVolumeClaim {full} is not bound: its events say why"
                raise MountFailed(message, is_expected=self._waits_briefly(pod))
            stored = self._client.get(VOLUMES, claim.spec.volume_name)
            reference = stored.spec.claim_ref
            if reference is None or reference.uid != claim.metadata.uid:
                raise MountFailed(f"{where}{stored.metadata.name} is bound to another claim")
            found = self._path(stored, where, read_only=read_only)
            if (stored.is_folder or stored.spec.local is not None) and self._folders is not None and not read_only:
                _hand_over(pod, Path(found.path))
        except ApiFailure as failure:
            message = f"{where}error processing PVC {full}: {failure.message}"
            raise MountFailed(message, is_expected=failure.conflict) from failure
        except OSError as error:
            raise MountFailed(f"{where}{error}") from error
        return found

    def _waits_briefly(self, pod: Pod) -> bool:
        with self._lock:
            since = self._waiting.setdefault(pod.metadata.uid, self._monotonic())
        return self._monotonic() - since < PATIENCE

    def _path(self, volume: PersistentVolume, where: str, *, read_only: bool) -> Mounted:
        """Raises: MountFailed, ApiFailure, OSError."""
        selector = volume.selector
        if selector is not None and not node_selector_matches(selector, self._node, self._labels(volume)):
            raise MountFailed(f"{where}{volume.metadata.name} is not on node {self._node}")
        if volume.is_folder:
            return Mounted(self._folder(volume, where), "Directory", read_only)
        if volume.spec.host_path is not None:
            return Mounted(volume.spec.host_path.path, volume.spec.host_path.type or "", read_only)
        if volume.spec.local is not None:
            return Mounted(volume.spec.local.path, "Directory", read_only)
        raise MountFailed(f"{where}{volume.metadata.name} is no folder of a node: no other volumes are served here")

    def _folder(self, volume: PersistentVolume, where: str) -> str:
        """The path of its folder, which is made if it is new. Raises: MountFailed, ApiFailure, OSError."""
        name = volume.metadata.name
        if not is_file_name(name):
            raise MountFailed(f"{where}{name!r} cannot be a file's name")
        if self._folders is None:
            return name
        folder, is_marked = self._folders / name, FOLDER_FINALIZER in volume.metadata.finalizers
        if is_marked and not folder.is_dir():
            raise MountFailed(
                f"{where}the folder of {name} is gone from node {self._node}, with all that was in it: delete "
                "PersistentVolumeClaim and pod to begin with an empty one"
            )
        if not is_marked:
            with self._lock:
                self._touched.add(name)  # from here on `sweep` leaves it alone
            make_private(self._folders)
            folder.mkdir(exist_ok=True)
            folder.chmod(FOLDER_MODE)
            self._mark(volume, is_there=True)
        return str(folder)

    def _labels(self, volume: PersistentVolume) -> dict[str, str]:
        """Of the node, where the volume asks for them."""
        selector = volume.selector
        asks = selector is not None and any(term.match_expressions for term in selector.node_selector_terms)
        return self._client.get(NODES, self._node).metadata.labels if asks else {}

    def _mark(self, volume: PersistentVolume, *, is_there: bool) -> None:
        """Say on the volume whether its folder is there. Raises: ApiFailure."""
        meta = volume.metadata
        finalizers = [one for one in meta.finalizers if one != FOLDER_FINALIZER]
        finalizers += [FOLDER_FINALIZER] if is_there else []
        patch = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}}
        self._client.patch(VOLUMES, meta.name, patch)

    # Of deleted volumes -----------------------------------------------------------------------------------------------

    def listed(self, volumes: Sequence[PersistentVolume]) -> None:
        with self._lock:
            self._volumes = {volume.metadata.name: volume for volume in volumes}
        self._look()

    def changed(self, change: WatchEvent[PersistentVolume]) -> None:
        volume = change.object
        with self._lock:
            known = {} if self._volumes is None else self._volumes
            known.pop(volume.metadata.name, None)
            if change.type != "DELETED":
                known[volume.metadata.name] = volume
            self._volumes = known
        if volume.metadata.deletion_timestamp is not None:
            self._look()

    def sweep(self) -> None:
        """Remove the folders of deleted volumes that no container uses. Raises: AgentError, after having tried all."""
        with self._lock:
            if self._folders is None or self._volumes is None:
                return
            mounted, volumes = dict(self._mounted), [one for one in self._volumes.values() if _is_going(one)]
        running = [found for uid, found in mounted.items() if self._is_running(uid)]
        used = {Path(one.path).name for found in running for one in found.values()}
        going = [volume for volume in volumes if volume.metadata.name not in used]
        failed: AgentError | None = None
        for volume in going:
            try:
                if volume.spec.persistent_volume_reclaim_policy == DELETE:
                    self._remove(self._folders / volume.metadata.name)
                self._mark(volume, is_there=False)
            except OSError as error:
                message = f"the folder on node {self._node} cannot be removed: {error}"
                meta = volume.metadata
                about = ObjectReference(api_version="v1", kind="PersistentVolume", name=meta.name, uid=meta.uid)
                self._warn(about, "VolumeFailedDelete", message)
                failed = AgentError(message)
            except ApiFailure as failure:
                failed = failed or failure
        self._remove_unmarked(self._folders)
        if failed is not None:
            raise failed

    def _remove(self, folder: Path) -> None:
        """Raises: OSError."""
        for mounted in sorted(mounts_below(folder), reverse=True):  # by a privileged container: the node's files
            unmount(mounted)
        if folder.is_dir():
            remove_tree(folder)

    def _remove_unmarked(self, folders: Path) -> None:
        """Empty folders that an agent was about to mark when it was killed, and whose volume has gone meanwhile."""
        for folder in folders.iterdir() if folders.is_dir() else ():
            with self._lock:
                if folder.name in (self._volumes or ()) or folder.name in self._touched:
                    continue
                try:
                    folder.rmdir()
                except OSError:  # it is not empty: of a volume that was retained, or that this server does not know
                    log.debug("folder %s belongs to no volume", folder.name)


def _is_going(volume: PersistentVolume) -> bool:
    meta = volume.metadata
    is_going = meta.deletion_timestamp is not None and volume.status.phase == RELEASED
    return is_going and volume.is_folder and is_file_name(meta.name) and FOLDER_FINALIZER in meta.finalizers


def _hand_over(pod: Pod, folder: Path) -> None:
    """Give what is in the volume to the pod's `fsGroup`. Raises: OSError."""
    context = pod.spec.security_context
    if context is None or context.fs_group is None:
        return
    if context.fs_group_change_policy == "OnRootMismatch" and is_of_group(folder, context.fs_group):
        return
    hand_to_group(folder, context.fs_group)


def _as_path(volume: Volume, mounted: Mounted) -> Volume:
    return Volume(name=volume.name, host_path=HostPathVolumeSource(path=mounted.path, type=mounted.type))
