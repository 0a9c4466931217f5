"""The demo's laboratory, served, and changes to it through the API: what the tests of all pages look at."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from manciple.api import kubeconfig
from tests.e2e.processes import Process, place_migrated, wait_for

PODS = "/api/v1/namespaces/{namespace}/pods/{name}"
NODES = "/api/v1/nodes/{name}"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
ALL_PODS, ALL_CLAIMS = "/api/v1/pods", "/apis/resource.k8s.io/v1/resourceclaims"
#: Looks in a row, some tenths of a second apart, that find everything as it was.
CALM_LOOKS = 5


@dataclass
class Demo:
    """A served laboratory."""

    home: Path
    process: Process
    web: str
    api: httpx.Client
    passwords: dict[str, str]

    def patch(self, path: str, change: dict[str, Any]) -> dict[str, Any]:
        """Merge `change` into an object, as an administrator."""
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = self.api.patch(path, json=change, headers=headers)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def get(self, path: str) -> dict[str, Any]:
        answer = self.api.get(path)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def wait_until_settled(self) -> None:
        """Pods and claims change no more by themselves: what was begun, here or by another test, has come about."""
        seen: list[dict[str, str]] = []

        def settled() -> bool:
            listed = [one for path in (ALL_PODS, ALL_CLAIMS) for one in self.get(path)["items"]]
            seen.append({one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in listed})
            return len(seen) >= CALM_LOOKS and all(one == seen[-1] for one in seen[-CALM_LOOKS:])

        wait_for("the laboratory to settle", settled)

    def cordon(self, node: str, *, cordoned: bool) -> None:
        self.patch(NODES.format(name=node), {"spec": {"unschedulable": cordoned or None}})

    def taint(self, pool: str, device: int, *, tainted: bool) -> None:
        """Taint one device of the node's GPU pool, or take its taints away."""
        name = next(
            one["metadata"]["name"]
            for one in self.get(SLICES)["items"]
            if one["spec"]["pool"]["name"] == pool and one["spec"]["driver"].startswith("gpu.")
        )
        path = f"{SLICES}/{name}"
        devices = self.get(path)["spec"]["devices"]
        taint = {"key": "lab.example.org/test", "effect": "NoSchedule", "timeAdded": "2026-11-20T10:00:00Z"}
        devices[device] = {key: value for key, value in devices[device].items() if key != "taints"}
        if tainted:
            devices[device]["taints"] = [taint]
        self.patch(path, {"spec": {"devices": devices}})


@contextmanager
def served(home: Path, *, size: str = "lab") -> Iterator[Demo]:
    """A laboratory on a home of its own, ready."""
    place_migrated(home)
    command = [sys.executable, "manage.py", "demo", "--serve", "--size", size, "--home", str(home)]
    process = Process([*command, "--api", "127.0.0.1:0", "--web", "127.0.0.1:0"]).start()
    web = process.line(r"Dashboard +(http\S+)").group(1)
    api = process.line(r"API +(https\S+)").group(1)
    process.line(r"Stop with Ctrl-C")
    people = dict(line.split() for line in (home / "demo-people").read_text().splitlines())
    token = kubeconfig.read_token((home / "kubeconfig").read_text())
    client = httpx.Client(
        base_url=api,
        verify=ssl.create_default_context(cafile=str(home / "ca.crt")),
        headers={"Authorization": f"Bearer {token}"},
        timeout=30,
    )
    try:
        yield Demo(home, process, web, client, people)
    finally:
        client.close()
        assert process.stop() == 0, "\n".join(process.output[-40:])
