"""Device metadata (KEP-5304): what a container may read of its devices, as files mounted into it by CDI.

For each request of a claim there is a file

    <plugin directory>/dra-device-metadata/<namespace>_<claim>/<request>/metadata.json

with the same object once for every version of the format, newest first, one JSON object after the other; and a CDI
spec of one device, `<driver>/metadata=<claim uid>_<request>`, that mounts it read-only at

    /var/run/kubernetes.io/dra-device-attributes/resourceclaims/<claim>/<request>/<driver>-metadata.json

or, for a claim made from a template, at resourceclaimtemplates/<name of the claim in the pod>/... there. The first
prepared device of the request carries the CDI device's name, so every container that gets the request gets the file.

Nothing is remembered: the CDI file's name carries the claim's uid, the metadata file's content does, so what a crash
left is overwritten when the claim is prepared again, and found when it is given back.

Source: kubernetes staging/src/k8s.io/dynamic-resource-allocation/kubeletplugin/metadata.go, api/metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from claims.kinds.resource_claims import NetworkDeviceData, ResourceClaim
from inventory.kinds.devices import DeviceAttribute
from manciple.wire.base import Value
from manciple.wire.validation import check_dns_label
from nodeagent import cdi
from nodeagent.cdi.spec import Mount
from nodeagent.checkpoint import PreparedDevice
from nodeagent.disk import Disk
from nodeagent.drivers.protocol import (
    ClaimIdentity,
    DeviceHealth,
    DeviceMetadata,
    Driver,
    Failed,
    HandlingDriver,
    Pool,
    Prepared,
)

API_VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
FOLDER = "dra-device-metadata"
FILE = "metadata.json"
CONTAINER_FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
#: Names the claim in the pod, on claims that were made from a template.
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
#: Containers read the file as whoever they run as.
FILE_MODE = 0o644


class ClaimMeta(Value):
    """The claim. generation: raised with every change of the file."""

    name: str
    namespace: str
    uid: str
    generation: int


class MetadataDevice(Value):
    """One allocated device."""

    driver: str
    pool: str
    name: str
    attributes: dict[str, DeviceAttribute] = {}
    network_data: NetworkDeviceData | None = None


class MetadataRequest(Value):
    """One request, with the subrequest that was chosen ("request/subrequest")."""

    name: str
    devices: tuple[MetadataDevice, ...] = ()


class MetadataFile(Value):
    """What the file says, in any of its versions: they do not differ yet."""

    kind: str
    api_version: str
    metadata: ClaimMeta
    pod_claim_name: str | None = None
    requests: tuple[MetadataRequest, ...] = ()


# Built here, in one thread: msgspec must not describe a struct to itself in two threads at once.
_decoder = msgspec.json.Decoder(MetadataFile)
_encoder = msgspec.json.Encoder()
_encoder.encode(MetadataFile(kind="", api_version="", metadata=ClaimMeta(name="", namespace="", uid="", generation=1)))


def telling(drivers: Iterable[Driver], *, plugin_dir: Path, cdi_dir: Path, disk: Disk) -> list[TellingDriver]:
    """The drivers, each with a directory of its own below `plugin_dir`."""
    return [
        TellingDriver(one, MetadataFiles(one.name, plugin_dir=plugin_dir / one.name, cdi_dir=cdi_dir, disk=disk))
        for one in drivers
    ]


def base_request(request: str) -> str:
    """The request of "request/subrequest"."""
    return request.partition("/")[0]


class MetadataFiles:
    """The metadata files of one driver. plugin_dir: the driver's own; cdi_dir: where runtimes look."""

    def __init__(self, driver: str, *, plugin_dir: Path, cdi_dir: Path, disk: Disk) -> None:
        self._driver = driver
        self._root = plugin_dir / FOLDER
        self._cdi_dir = cdi_dir
        self._disk = disk

    def write(self, claim: ResourceClaim, prepared: Prepared) -> Prepared:
        """Write the files of a prepared claim; returns it with their CDI devices. Raises: OSError, ValueError."""
        ids = {}
        for request, devices in _by_request(prepared.devices).items():
            path = self._write_file(claim, request, devices, prepared.metadata or {})
            ids[base_request(request)] = self._write_spec(claim, base_request(request), path)
        return replace(prepared, devices=tuple(_with_ids(prepared.devices, ids)))

    def remove(self, claim: ClaimIdentity) -> None:
        """Remove what was written for the claim; nothing is fine. Without its name it is sought. Raises: OSError."""
        if not self._root.is_dir():
            return
        prefix = f"{self._driver}_metadata_{claim.uid}_"
        for name in self._disk.names(self._cdi_dir, ".json"):
            if name.startswith(prefix):
                self._disk.remove(self._cdi_dir / name)
        if claim.name:
            self._clear(self._folder(claim.namespace, claim.name), claim.uid)
            return
        for folder in list(self._root.iterdir()):
            if any(meta is not None and meta.uid == claim.uid for meta in map(self._known, folder.glob(f"*/{FILE}"))):
                self._clear(folder, claim.uid)

    def _clear(self, folder: Path, uid: str) -> None:
        """Remove the files of the claim with `uid`, and what a crash left half-written; not those of a later claim
        of the same name."""
        for request in list(folder.iterdir()) if folder.is_dir() else ():
            known = self._known(request / FILE)
            if known is None or known.uid == uid:
                self._disk.sweep(request)
                self._disk.remove(request / FILE)
                _remove_empty(request)
        _remove_empty(folder)

    def _folder(self, namespace: str, name: str) -> Path:
        return self._root / f"{namespace}_{name}"

    def _write_file(
        self,
        claim: ResourceClaim,
        request: str,
        devices: Sequence[PreparedDevice],
        metadata: Mapping[tuple[str, str], DeviceMetadata],
    ) -> Path:
        path = self._folder(claim.metadata.namespace, claim.metadata.name) / base_request(request) / FILE
        known = self._known(path)
        told = tuple(self._device(device, metadata) for device in devices)

        def content(generation: int) -> bytes:
            objects = (self._object(claim, request, told, version, generation) for version in API_VERSIONS)
            return b"".join(_encoder.encode(one) + b"\n" for one in objects)

        generation = known.generation if known is not None and known.uid == claim.metadata.uid else 0
        if not generation or self._disk.read(path) != content(generation):
            self._disk.write(path, content(generation + 1), mode=FILE_MODE)
        return path

    def _device(self, device: PreparedDevice, metadata: Mapping[tuple[str, str], DeviceMetadata]) -> MetadataDevice:
        told = metadata.get((device.pool, device.device), DeviceMetadata())
        return MetadataDevice(
            driver=self._driver,
            pool=device.pool,
            name=device.device,
            attributes=dict(told.attributes),
            network_data=told.network,
        )

    def _object(
        self, claim: ResourceClaim, request: str, devices: tuple[MetadataDevice, ...], version: str, generation: int
    ) -> MetadataFile:
        meta = claim.metadata
        return MetadataFile(
            kind="DeviceMetadata",
            api_version=version,
            metadata=ClaimMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid, generation=generation),
            pod_claim_name=meta.annotations.get(POD_CLAIM_ANNOTATION),
            requests=(MetadataRequest(name=request, devices=devices),),
        )

    def _write_spec(self, claim: ResourceClaim, request: str, path: Path) -> str:
        """Returns the CDI device id. Raises: OSError, ValueError for a driver whose name is no CDI vendor."""
        name = f"{claim.metadata.uid}_{request}"
        mount = Mount(host_path=str(path), container_path=self._container_path(claim, request), options=("ro", "bind"))
        device = cdi.CdiDevice(name=name, container_edits=cdi.ContainerEdits(mounts=(mount,)))
        content = _encoder.encode(cdi.Spec.of(f"{self._driver}/metadata", (device,)))
        if problems := cdi.validate_spec(msgspec.json.decode(content)):
            raise ValueError(f"its CDI spec is invalid: {'; '.join(problems)}")
        target = self._cdi_dir / f"{self._driver}_metadata_{claim.metadata.uid}_{request}.json"
        if not target.exists() or self._disk.read(target) != content:
            self._disk.write(target, content, mode=FILE_MODE)
        return cdi.qualified_name(f"{self._driver}/metadata", name)

    def _container_path(self, claim: ResourceClaim, request: str) -> str:
        """An annotation that is no name of a claim in a pod was put there by somebody else, and counts for nothing."""
        entry = claim.metadata.annotations.get(POD_CLAIM_ANNOTATION, "")
        entry = "" if check_dns_label(entry) else entry
        of = f"resourceclaimtemplates/{entry}" if entry else f"resourceclaims/{claim.metadata.name}"
        return f"{CONTAINER_FOLDER}/{of}/{request}/{self._driver}-metadata.json"

    def _known(self, path: Path) -> ClaimMeta | None:
        """Whose file lies there; None where there is none that can be read."""
        try:
            return _decoder.decode(self._disk.read(path).partition(b"\n")[0]).metadata
        except (FileNotFoundError, msgspec.MsgspecError):
            return None


class TellingDriver:
    """A driver whose metadata is written when it prepares, and removed when it gives back. files: the driver's."""

    def __init__(self, driver: Driver, files: MetadataFiles) -> None:
        self._driver = driver
        self._files = files

    @property
    def name(self) -> str:
        return self._driver.name

    @property
    def wants_handles(self) -> bool:
        return isinstance(self._driver, HandlingDriver) and self._driver.wants_handles

    def pools(self) -> Sequence[Pool]:
        return self._driver.pools()

    def health(self) -> Sequence[DeviceHealth]:
        return self._driver.health()

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._driver.subscribe(changed)

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        by_uid = {claim.metadata.uid: claim for claim in claims}
        answers = self._driver.prepare(claims)
        return {uid: self._told(by_uid[uid], answer) for uid, answer in answers.items() if uid in by_uid}

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        answers = dict(self._driver.unprepare(claims))
        for claim in claims:
            if claim.uid in answers and answers[claim.uid] is None:
                answers[claim.uid] = self._forgotten(claim)
        return answers

    def _told(self, claim: ResourceClaim, answer: Prepared | Failed) -> Prepared | Failed:
        if isinstance(answer, Failed) or answer.metadata is None:
            return answer
        try:
            return self._files.write(claim, answer)
        except (OSError, ValueError) as error:
            return Failed(f"the metadata of its devices cannot be written: {error}")

    def _forgotten(self, claim: ClaimIdentity) -> Failed | None:
        try:
            self._files.remove(claim)
        except OSError as error:
            return Failed(f"the metadata of its devices cannot be removed: {error}")
        return None


def _by_request(devices: Sequence[PreparedDevice]) -> dict[str, list[PreparedDevice]]:
    """A device without requests is in none: its containers need not name a request."""
    found: dict[str, list[PreparedDevice]] = {}
    for device in devices:
        for request in device.requests:
            found.setdefault(request, []).append(device)
    return found


def _with_ids(devices: Sequence[PreparedDevice], ids: Mapping[str, str]) -> Iterator[PreparedDevice]:
    """The first device of each request also stands for the request's file. ids: by request."""
    left = dict(ids)
    for device in devices:
        own = [left.pop(base_request(r)) for r in device.requests if base_request(r) in left]
        yield msgspec.structs.replace(device, cdi_device_ids=(*device.cdi_device_ids, *own))


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # it is not there, or not empty
        folder.rmdir()
