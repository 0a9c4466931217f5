"""Making allocated devices ready: the driver's own CDI files, one a claim, and the metadata files of KEP-5304.

Nothing is remembered but files, so an instance of the driver can take over from another at any moment. The driver's own
files are YAML, as the CDI library in Go writes them (`Cache.WriteSpec`); those of KEP-5304 are JSON (metadata.go).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]

#: Where a container finds the description of its devices.
DESCRIPTIONS = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims"


class InUse(Exception):
    """A device was asked for that another claim has: the driver is the last who can see that."""


@dataclass(frozen=True)
class Ready:
    """A device that was made ready. request: of the claim that it is for. share: the share of it, "" for all."""

    request: str
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share: str = ""


@dataclass(frozen=True)
class Devices:
    """The devices of one driver. data: its own folder. describes: whether containers get descriptions (KEP-5304)."""

    driver: str
    cdi_dir: Path
    data: Path
    describes: bool = False

    def prepare(self, claim: Document) -> list[Ready]:
        """Raises: InUse. Asked again, it does the same again."""
        uid = claim["metadata"]["uid"]
        found = claim["status"]["allocation"]["devices"].get("results", [])
        results = [result for result in found if result["driver"] == self.driver]
        keys = [[result["pool"], result["device"]] for result in results if not result.get("shareID")]
        for path in self._held().glob("*.json"):
            if path.stem != uid and (twice := [key for key in json.loads(path.read_text()) if key in keys]):
                raise InUse(f"device {twice[0]} is in use by claim {path.stem}")
        _write(self._held() / f"{uid}.json", keys)
        _put(self._path(uid), yaml.safe_dump(self._spec(claim, results), explicit_start=True))
        described = self._describe(claim, results) if self.describes else {}
        ready = []
        for result in results:
            request = _base(result)
            ids = [f"{self.driver}/device={uid}-{result['device']}", *described.pop(request, ())]
            ready.append(Ready(request, result["pool"], result["device"], tuple(ids), result.get("shareID", "")))
        return ready

    def unprepare(self, uid: str) -> None:
        """Also for a claim that is not prepared."""
        self._path(uid).unlink(missing_ok=True)
        for path in self.cdi_dir.glob(f"{self.driver}-metadata-{uid}-*.json"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.data / "descriptions" / uid, ignore_errors=True)
        (self._held() / f"{uid}.json").unlink(missing_ok=True)

    def _held(self) -> Path:
        """One file a claim that is prepared: its exclusive devices as [pool, device]."""
        folder = self.data / "prepared"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _path(self, uid: str) -> Path:
        return self.cdi_dir / f"{self.driver}-device_{uid}.yaml"

    def _spec(self, claim: Document, results: list[Document]) -> Document:
        uid = claim["metadata"]["uid"]
        devices = [
            {"name": f"{uid}-{result['device']}", "containerEdits": {"env": self._environment(claim, result)}}
            for result in results
        ]
        return {"cdiVersion": "0.5.0", "kind": f"{self.driver}/device", "devices": devices}

    def _environment(self, claim: Document, result: Document) -> list[str]:
        """DEVICE_<request>, and the parameters that are for this driver and request, the claim's after the class's."""
        request = _base(result)
        found = {f"DEVICE_{request}": f"{result['pool']}/{result['device']}"}
        config = claim["status"]["allocation"]["devices"].get("config", [])
        for entry in sorted(config, key=lambda entry: entry["source"] != "FromClass"):
            opaque = entry.get("opaque", {})
            named = [name.partition("/")[0] for name in entry.get("requests", ())]
            if opaque.get("driver") == self.driver and (not named or request in named):
                found |= {f"{request}_{key}": str(value) for key, value in opaque["parameters"].items()}
        return [f"{name}={value}" for name, value in found.items()]

    def _describe(self, claim: Document, results: list[Document]) -> dict[str, tuple[str, ...]]:
        """Request -> the CDI device that mounts the description of its devices."""
        meta = claim["metadata"]
        named: dict[str, tuple[str, ...]] = {}
        for request in dict.fromkeys(_base(result) for result in results):
            devices = [
                {"driver": self.driver, "pool": result["pool"], "name": result["device"]}
                for result in results
                if _base(result) == request
            ]
            host = self.data / "descriptions" / meta["uid"] / request / "metadata.json"
            host.parent.mkdir(parents=True, exist_ok=True)
            kept = {key: meta[key] for key in ("name", "namespace", "uid")} | {"generation": 1}
            head = {"apiVersion": "metadata.resource.k8s.io/v1beta1", "kind": "DeviceMetadata"}
            _write(host, {**head, "metadata": kept, "requests": [{"name": request, "devices": devices}]})
            mount = {
                "hostPath": str(host),
                "containerPath": f"{DESCRIPTIONS}/{meta['name']}/{request}/{self.driver}-metadata.json",
                "options": ["ro", "bind"],
            }
            name = f"{meta['uid']}_{request}"
            device = {"name": name, "containerEdits": {"mounts": [mount]}}
            spec = {"cdiVersion": "0.5.0", "kind": f"{self.driver}/metadata", "devices": [device]}
            _write(self.cdi_dir / f"{self.driver}-metadata-{meta['uid']}-{request}.json", spec)
            named[request] = (f"{self.driver}/metadata={name}",)
        return named


def _base(result: Document) -> str:
    """The request without the alternative that was chosen."""
    return str(result["request"]).partition("/")[0]


def _write(path: Path, content: Any) -> None:
    _put(path, json.dumps(content))


def _put(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text)
    draft.replace(path)
