"""What must be true of a manifest's pods while they run, and after they are gone; asked the way a user asks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.conftest import node_folders
from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import ROOT, wait_for
from tests.nodeagent.cdi.checks import problems_of

#: (driver, pool, device)
Device = tuple[str, str, str]


@dataclass(frozen=True)
class Manifest:
    """A YAML file of a user's."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [document for document in yaml.safe_load_all(self.path.read_text()) if document]

    @property
    def api_versions(self) -> set[str]:
        return {document["apiVersion"] for document in self.documents}

    @property
    def pods(self) -> list[tuple[str, str]]:
        """(namespace, name) of the manifest's pods."""
        metas = [document["metadata"] for document in self.documents if document["kind"] == "Pod"]
        return [(meta.get("namespace", "default"), meta["name"]) for meta in metas]


#: Served while the gate DRAControlPlaneController is on; tests/e2e/plugins/test_controllers.py plays its example.
GATED = "resource.k8s.io/v1alpha2"
_SHOWN = [Manifest(path) for path in sorted((ROOT / "docs" / "examples").glob("*.yaml"))]
#: Those that users are shown and that have pods; what makes a kind of its own is tested where kinds are.
EXAMPLES = [one for one in _SHOWN if one.pods and GATED not in one.api_versions]


def run_manifest(kubectl: Kubectl, manifest: Manifest) -> None:
    """apply, and wait until every pod is Ready."""
    kubectl("apply", "-f", str(manifest.path))
    wait_ready(kubectl, manifest)


def wait_ready(kubectl: Kubectl, manifest: Manifest) -> None:
    """All pods of a namespace with one `kubectl wait`."""
    for namespace in sorted({namespace for namespace, _ in manifest.pods}):
        pods = [f"pod/{name}" for space, name in manifest.pods if space == namespace]
        kubectl("wait", "--for=condition=Ready", "-n", namespace, *pods)


def claims_in(kubectl: Kubectl, namespaces: Iterable[str]) -> list[dict[str, Any]]:
    wanted = set(namespaces)
    found = kubectl.api.listed("/apis/resource.k8s.io/v1/resourceclaims")
    return [claim for claim in found if claim["metadata"]["namespace"] in wanted]


def assert_claims_are_held(kubectl: Kubectl, manifest: Manifest) -> list[dict[str, Any]]:
    """Every claim of the manifest shows `allocated,reserved`."""
    namespaces = {namespace for namespace, _ in manifest.pods}
    claims = claims_in(kubectl, namespaces)
    assert claims
    lines = kubectl("get", "resourceclaims", "-A", "--no-headers").splitlines()
    shown = {tuple(line.split()[:2]): line.split()[2] for line in lines}
    for claim in claims:
        key = (claim["metadata"]["namespace"], claim["metadata"]["name"])
        assert shown[key] == "allocated,reserved"
    return claims


def exclusive_devices(claim: dict[str, Any]) -> set[Device]:
    results = claim["status"]["allocation"]["devices"]["results"]
    shared = [entry.get("adminAccess") or entry.get("shareID") for entry in results]
    return {(e["driver"], e["pool"], e["device"]) for e, free in zip(results, shared, strict=True) if not free}


def assert_no_device_is_given_twice(claims: list[dict[str, Any]]) -> None:
    given = [device for claim in claims if claim["status"].get("allocation") for device in exclusive_devices(claim)]
    assert len(given) == len(set(given)), f"given twice: {given}"


def cdi_files(home: Path) -> list[Path]:
    """Every file under HOME/cdi/NODE/, drafts included: none may be left over."""
    found = (path for folder in node_folders(home) for path in folder.iterdir())
    return sorted(path for path in found if not path.name.startswith("."))  # a file that is being written is none yet


def assert_cdi_files_are_valid(home: Path, claims: list[dict[str, Any]]) -> None:
    """One valid file for each claim, on the node that its pods run on."""
    files = cdi_files(home)
    assert [problem for path in files for problem in problems_of(path)] == []
    for claim in claims:
        uid = claim["metadata"]["uid"]
        assert [path for path in files if uid in path.name], f"no CDI file for claim {uid} among {files}"


def assert_containers_got_their_devices(kubectl: Kubectl, home: Path, manifest: Manifest) -> None:
    """Each container was started with exactly the CDI devices of the requests that it names, and no others."""
    for namespace, name in manifest.pods:
        pod = kubectl.api.found("Pod", name, namespace)
        started = json.loads(next(home.glob(f"nodes/*/containers/{pod['metadata']['uid']}.json")).read_text())
        for container in pod["spec"]["containers"]:
            wanted = {
                device
                for reference in container.get("resources", {}).get("claims", ())
                for device in _devices_of(kubectl, pod, reference)
            }
            assert set(started["containers"][container["name"]]["cdiDevices"]) == wanted


def _devices_of(kubectl: Kubectl, pod: dict[str, Any], reference: dict[str, str]) -> list[str]:
    """The CDI devices of a container's `resources.claims` entry: of one request, or of the whole claim."""
    statuses = pod["status"].get("resourceClaimStatuses", ())
    names = {entry["name"]: entry.get("resourceClaimName") for entry in pod["spec"]["resourceClaims"]}
    names |= {entry["name"]: entry["resourceClaimName"] for entry in statuses}
    claim = kubectl.api.found("ResourceClaim", names[reference["name"]], pod["metadata"]["namespace"])
    return [
        f"k8s.{result['driver']}/claim=" + "-".join([claim["metadata"]["uid"], result["device"], *_share(result)])
        for result in claim["status"]["allocation"]["devices"]["results"]
        if reference.get("request") in {None, result["request"]}
    ]


def _share(result: dict[str, Any]) -> list[str]:
    return [result["shareID"]] if "shareID" in result else []


def assert_all_is_given_back(kubectl: Kubectl, home: Path, manifest: Manifest) -> None:
    """After the delete: the namespaces' claims are gone or pending, and no CDI file of them is left."""
    namespaces = {namespace for namespace, _ in manifest.pods}

    def nothing_allocated() -> bool:
        return not any(claim.get("status", {}).get("allocation") for claim in claims_in(kubectl, namespaces))

    wait_for(f"the claims of {manifest.name} to be deallocated", nothing_allocated)
    wait_for("the CDI files to be removed", lambda: not cdi_files(home))
