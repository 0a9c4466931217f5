"""Parts of a driver's answer to NodePrepareResources: CDI devices, opaque parameters, files with metadata.

`prepare_claim` is for drivers whose CDI files the agent writes: one CDI device for each allocated device.
`MetadataDriver` adds the files of KEP-5304, with which a container reads about its devices. For each request of a claim
there is a file

    <plugin directory>/dra-device-metadata/<namespace>_<claim>/<request>/metadata.json

with the same object once for every version of the format, newest first, one JSON object after the other; and a CDI
spec of one device, `<driver>/metadata=<claim uid>_<request>`, that mounts it read-only at

    /var/run/kubernetes.io/dra-device-attributes/resourceclaims/<claim>/<request>/<driver>-metadata.json

or, for a claim generated from a template, at resourceclaimtemplates/<name of the claim in the pod>/... there. The first
prepared device of the request has the CDI device's name, so every container with the request gets the file. There is no
state in memory: the name of the CDI file and the content of the metadata file have the claim's uid. So files that a
crash left are overwritten when the claim is prepared again, and removed when it is unprepared.

Source: kubernetes staging/src/k8s.io/dynamic-resource-allocation/kubeletplugin/metadata.go, api/metadata; KEP-4381
"OpaqueDeviceConfiguration".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from claims.kinds.resource_claims import (
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    NetworkDeviceData,
    ResourceClaim,
)
from inventory.kinds.devices import DeviceAttribute
from inventory.kinds.named_resources import ResourceHandle
from manciple.wire.base import Value
from manciple.wire.validation import check_dns_label
from nodeagent import cdi
from nodeagent.cdi import Mount
from nodeagent.drivers.protocol import (
    ClaimIdentity,
    DeviceHealth,
    DeviceMetadata,
    Driver,
    Failed,
    HandlingDriver,
    Pool,
    Prepared,
    PreparedDevice,
)
from nodeagent.storage import Disk

#: The CDI edits of a container with this device. Raises: ValueError with the reason if it cannot have the device.
EditsOf = Callable[[DeviceRequestAllocationResult], cdi.ContainerEdits]


class DeviceGone(ValueError):
    """An allocated device is not on the node."""

    def __init__(self, pool: str, device: str) -> None:
        super().__init__(f"device {pool}/{device} no longer exists on this node")


def prepare_claim(
    claim: ResourceClaim, *, driver: str, edits_of: EditsOf, shared: cdi.ContainerEdits | None = None
) -> Prepared | Failed:
    """The answer for one claim. shared: edits that apply once, however many devices of the claim a container has."""
    if claim.status.allocation is None:
        return Failed(f"ResourceClaim {claim.metadata.name} is not allocated")
    results = [result for result in claim.status.allocation.devices.results if result.driver == driver]
    # The device; of a shared one, the share (KEP-5075).
    labels = [one.device if one.share_id is None else f"{one.device}-{one.share_id}" for one in results]
    names = cdi_device_names(claim.metadata.uid, labels)
    try:
        devices = tuple(
            cdi.CdiDevice(name=name, container_edits=edits_of(result))
            for name, result in zip(names, results, strict=True)
        )
    except ValueError as error:
        return Failed(str(error))
    prepared = tuple(
        PreparedDevice(
            requests=(result.request,),
            pool=result.pool,
            device=result.device,
            cdi_device_ids=(cdi.qualified_name(cdi.kind_of(driver), name),),
        )
        for result, name in zip(results, names, strict=True)
    )
    return Prepared(prepared, cdi.Spec.of(cdi.kind_of(driver), devices, edits=shared))


def cdi_device_names(claim_uid: str, devices: Sequence[str]) -> list[str]:
    """`<claim uid>-<device>` for each; repeats of a device that serves several requests are numbered."""
    return [
        f"{claim_uid}-{device}" + (f"-{seen}" if (seen := devices[:index].count(device)) else "")
        for index, device in enumerate(devices)
    ]


def device_names(claims: Sequence[ResourceClaim], driver: str) -> dict[str, set[str]]:
    """Claim uid -> the names of the driver's devices that are allocated to it."""
    allocations = ((claim.metadata.uid, claim.status.allocation) for claim in claims)
    return {
        uid: {result.device for result in allocation.devices.results if result.driver == driver}
        if allocation
        else set()
        for uid, allocation in allocations
    }


# Opaque parameters: the allocator copies the configurations of the classes and of the claim into
# `status.allocation.devices.config`. A configuration applies to a device if it names its driver, and its request or
# none. Those of the claim override those of its classes, and later ones override earlier ones.

_PRECEDENCE = {"FromClass": 0, "FromClaim": 1}


def request_matches(named: str, request: str) -> bool:
    """Whether `named` ("request" or "request/subrequest") covers the `request` of an allocation result."""
    return named in (request, request.partition("/")[0])


def parameters_for(allocation: DeviceAllocationResult, *, driver: str, request: str) -> tuple[Any, ...]:
    """The parameters for the device allocated for `request`, in rising order of precedence."""
    return tuple(
        config.opaque.parameters
        for config in sorted(allocation.config, key=lambda config: _PRECEDENCE.get(config.source, 0))
        if config.opaque is not None
        and config.opaque.driver == driver
        and (not config.requests or any(request_matches(named, request) for named in config.requests))
    )


# Resource handles (KEP-3063): data from a driver's controller for the driver's node plugin.


def names_devices(claim: ResourceClaim) -> bool:
    """Whether the claim's allocation, if any, names devices."""
    return claim.status.allocation is None or bool(claim.status.allocation.devices.results)


def handles_of(claim: ResourceClaim) -> tuple[ResourceHandle, ...]:
    """The claim's resource handles, each with the name of its driver."""
    return claim.status.allocation.resource_handles if claim.status.allocation is not None else ()


def handles_for(claim: ResourceClaim, driver: str) -> tuple[ResourceHandle, ...]:
    """The handles of `driver`; it prepares the claim even if its handle is empty."""
    return tuple(handle for handle in handles_of(claim) if handle.driver_name == driver)


# Metadata files -------------------------------------------------------------------------------------------------------


API_VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
FOLDER = "dra-device-metadata"
FILE = "metadata.json"
CONTAINER_FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
#: On a claim generated from a template: its name in the pod.
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
#: Containers of any user read the file.
FILE_MODE = 0o644


class ClaimMeta(Value):
    """The claim. generation: incremented by every change of the file."""

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
    """The content of the file, in each of its versions: they do not differ yet."""

    kind: str
    api_version: str
    metadata: ClaimMeta
    pod_claim_name: str | None = None
    requests: tuple[MetadataRequest, ...] = ()


# Built here, in one thread: msgspec must not inspect a struct in two threads at once.
_decoder = msgspec.json.Decoder(MetadataFile)
_encoder = msgspec.json.Encoder()
_encoder.encode(MetadataFile(kind="", api_version="", metadata=ClaimMeta(name="", namespace="", uid="", generation=1)))


def with_metadata(drivers: Iterable[Driver], *, plugin_dir: Path, cdi_dir: Path, disk: Disk) -> list[MetadataDriver]:
    """The drivers, each with a directory of its own below `plugin_dir`."""
    folders = ((driver, plugin_dir / driver.name) for driver in drivers)
    return [
        MetadataDriver(driver, MetadataFiles(driver.name, plugin_dir=folder, cdi_dir=cdi_dir, disk=disk))
        for driver, folder in folders
    ]


def base_request(request: str) -> str:
    """The request of "request/subrequest"."""
    return request.partition("/")[0]


class MetadataFiles:
    """The metadata files of one driver. plugin_dir: the driver's own; cdi_dir: where runtimes read CDI files."""

    def __init__(self, driver: str, *, plugin_dir: Path, cdi_dir: Path, disk: Disk) -> None:
        self._driver = driver
        self._root = plugin_dir / FOLDER
        self._cdi_dir = cdi_dir
        self._disk = disk

    def write(self, claim: ResourceClaim, prepared: Prepared) -> Prepared:
        """Write the files of a prepared claim; returns it with their CDI devices. Raises: OSError, ValueError."""
        by_request: dict[str, list[PreparedDevice]] = {}  # devices without a request are in none
        for device in prepared.devices:
            for request in device.requests:
                by_request.setdefault(request, []).append(device)
        ids = {}
        for request, devices in by_request.items():
            path = self._write_file(claim, request, devices, prepared.metadata or {})
            ids[base_request(request)] = self._write_spec(claim, base_request(request), path)
        # The first device of each request also carries the CDI device of the request's file.
        devices_with_files = []
        for device in prepared.devices:
            own = [ids.pop(base_request(r)) for r in device.requests if base_request(r) in ids]
            devices_with_files.append(msgspec.structs.replace(device, cdi_device_ids=(*device.cdi_device_ids, *own)))
        return replace(prepared, devices=tuple(devices_with_files))

    def remove(self, claim: ClaimIdentity) -> None:
        """Remove the claim's files, if any; without its name, search all folders for its uid. Raises: OSError."""
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
            claims = map(self._claim_in, folder.glob(f"*/{FILE}"))
            if any(meta is not None and meta.uid == claim.uid for meta in claims):
                self._clear(folder, claim.uid)

    def _clear(self, folder: Path, uid: str) -> None:
        """Remove the claim's files and what a crash left half-written; not those of a later claim of the same name."""
        for request in list(folder.iterdir()) if folder.is_dir() else ():
            meta = self._claim_in(request / FILE)
            if meta is None or meta.uid == uid:
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
        meta, old = claim.metadata, self._claim_in(path)
        metadata_devices = tuple(
            MetadataDevice(
                driver=self._driver,
                pool=device.pool,
                name=device.device,
                attributes=dict(facts.attributes),
                network_data=facts.network,
            )
            for device in devices
            for facts in [metadata.get((device.pool, device.device), DeviceMetadata())]
        )

        def content(generation: int) -> bytes:
            objects = (
                MetadataFile(
                    kind="DeviceMetadata",
                    api_version=version,
                    metadata=ClaimMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid, generation=generation),
                    pod_claim_name=meta.annotations.get(POD_CLAIM_ANNOTATION),
                    requests=(MetadataRequest(name=request, devices=metadata_devices),),
                )
                for version in API_VERSIONS
            )
            return b"".join(_encoder.encode(file) + b"\n" for file in objects)

        generation = old.generation if old is not None and old.uid == meta.uid else 0
        if not generation or self._disk.read(path) != content(generation):
            self._disk.write(path, content(generation + 1), mode=FILE_MODE)
        return path

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
        """Ignores an annotation that cannot be the name of a claim in a pod."""
        entry = claim.metadata.annotations.get(POD_CLAIM_ANNOTATION, "")
        entry = "" if check_dns_label(entry) else entry
        of = f"resourceclaimtemplates/{entry}" if entry else f"resourceclaims/{claim.metadata.name}"
        return f"{CONTAINER_FOLDER}/{of}/{request}/{self._driver}-metadata.json"

    def _claim_in(self, path: Path) -> ClaimMeta | None:
        """The claim in a file; None if there is no readable file."""
        try:
            return _decoder.decode(self._disk.read(path).partition(b"\n")[0]).metadata
        except (FileNotFoundError, msgspec.MsgspecError):
            return None


class MetadataDriver:
    """A driver whose metadata files are written when it prepares, and removed when it unprepares."""

    def __init__(self, driver: Driver, files: MetadataFiles) -> None:
        self.name = driver.name
        self.wants_handles = isinstance(driver, HandlingDriver) and driver.wants_handles
        self._driver = driver
        self._files = files

    def pools(self) -> Sequence[Pool]:
        return self._driver.pools()

    def health(self) -> Sequence[DeviceHealth]:
        return self._driver.health()

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._driver.subscribe(changed)

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        by_uid = {claim.metadata.uid: claim for claim in claims}
        answers = self._driver.prepare(claims)
        return {uid: self._with_files(by_uid[uid], answer) for uid, answer in answers.items() if uid in by_uid}

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        answers = dict(self._driver.unprepare(claims))
        for claim in claims:
            if claim.uid in answers and answers[claim.uid] is None:
                try:
                    self._files.remove(claim)
                except OSError as error:
                    answers[claim.uid] = Failed(f"the metadata of its devices cannot be removed: {error}")
        return answers

    def _with_files(self, claim: ResourceClaim, answer: Prepared | Failed) -> Prepared | Failed:
        if isinstance(answer, Failed) or answer.metadata is None:
            return answer
        try:
            return self._files.write(claim, answer)
        except (OSError, ValueError) as error:
            return Failed(f"the metadata of its devices cannot be written: {error}")


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # missing, or not empty
        folder.rmdir()
