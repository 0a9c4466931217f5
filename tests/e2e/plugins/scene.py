"""What one plugin scenario plays with: its drivers with classes of their own, its namespace, claims and pods.

Afterwards everything is given back, and nothing may be left on the node: no prepared claim, no CDI file, no slice.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodeagent.cdi import SUFFIXES, parse_document, validate_spec
from tests.e2e.api_client import Document
from tests.e2e.plugins.cluster import CLAIMS, CLASSES, NODE, PODS, SLICES, System
from tests.e2e.plugins.driver_process import DriverProcess, Orders
from tests.e2e.processes import wait_for

_numbers = itertools.count(1)
Pools = dict[str, tuple[tuple[str, ...], ...]]
POOLS: Pools = {NODE: (("gpu-0", "gpu-1"),)}


@dataclass
class Scene:
    """Make one a test, `end` it when the test is over."""

    system: System
    folder: Path
    number: int = field(default_factory=lambda: next(_numbers))
    drivers: list[DriverProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.api = self.system.api
        self.agent = self.system.agent
        self.namespace = f"scene-{self.number}"
        self.api.made("/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    # Drivers.

    def driver(
        self, letter: str = "a", *, uid: str = "", pools: Pools = POOLS, options: Sequence[str] = ()
    ) -> DriverProcess:
        """Start a driver and make a class of its devices; it registers and publishes in its own time."""
        name = f"{letter}{self.number}.example.com"
        if all(other.name != name for other in self.drivers):
            selectors = [{"cel": {"expression": f'device.driver == "{name}"'}}]
            self.api.made(CLASSES, {"metadata": {"name": name}, "spec": {"selectors": selectors}})
        made = DriverProcess(
            name,
            self.folder / name,
            [
                *("--node", NODE, "--kubeconfig", str(self.system.drivers_kubeconfig)),
                *("--plugin-dir", str(self.agent.plugins), "--cdi-dir", str(self.agent.cdi)),
                *("--descriptors", str(self.folder / "descriptors"), "--sync-delay", "0.2"),
                *options,
            ],
            uid=uid,
            orders=Orders(pools=pools),
        )
        self.drivers.append(made)
        return made.start()

    def slices(self, driver: DriverProcess) -> list[Document]:
        """By name, as the allocator sees them."""
        found = self.api.listed(SLICES, fieldSelector=f"spec.driver={driver.name}")
        return sorted(found, key=lambda one: str(one["metadata"]["name"]))

    def published(self, driver: DriverProcess, count: int = 0) -> list[Document]:
        """Its slices, once all of a pool of one generation are there; `count` of them, where given."""

        def complete() -> list[Document]:
            found = self.slices(driver)
            pools = {(one["spec"]["pool"]["generation"], one["spec"]["pool"]["resourceSliceCount"]) for one in found}
            complete = len(pools) == 1 and next(iter(pools))[1] == len(found)
            return found if complete and count in (0, len(found)) else []

        return wait_for(f"the slices of {driver.name}", complete)

    # Claims and pods.

    def claim(self, name: str, *drivers: DriverProcess, config: Sequence[Document] = ()) -> Document:
        """A claim with one request for each driver, called after its letter."""
        requests = [{"name": one.name[0], "exactly": {"deviceClassName": one.name}} for one in drivers]
        devices = {"requests": requests, **({"config": list(config)} if config else {})}
        return self.api.made(self._claims, {"metadata": {"name": name}, "spec": {"devices": devices}})

    def pod(
        self,
        name: str,
        *claims: str,
        containers: Sequence[Document] | None = None,
        seconds: float | None = None,
        node: str = "",
    ) -> Document:
        """A pod that uses claims. containers: one that names all of them, where not given. seconds: it runs so long."""
        named = [{"name": claim} for claim in claims]
        made = containers if containers is not None else [{"name": "main", "resources": {"claims": named}}]
        annotations = {} if seconds is None else {"manciple.dev/run-seconds": str(seconds)}
        spec = {
            "containers": [{"image": "busybox", **one} for one in made],
            "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
            "restartPolicy": "Never",
            **({"nodeName": node} if node else {}),
        }
        return self.api.made(self._pods, {"metadata": {"name": name, "annotations": annotations}, "spec": spec})

    def pod_using(self, name: str, *drivers: DriverProcess, seconds: float | None = None) -> Document:
        """A pod with a claim of its own name."""
        self.claim(name, *drivers)
        return self.pod(name, name, seconds=seconds)

    def bound(self, name: str) -> Document:
        return wait_for(f"pod {name} to be bound", lambda: self._pod_if(name, lambda pod: "nodeName" in pod["spec"]))

    def phase(self, name: str) -> str:
        found = self.api.find(f"{self._pods}/{name}")
        return str((found or {}).get("status", {}).get("phase", "gone"))

    def reaches(self, name: str, phase: str) -> Document:
        """Wait for the phase of a pod."""
        try:
            return wait_for(
                f"pod {name} to be {phase}", lambda: self._pod_if(name, lambda pod: pod["status"].get("phase") == phase)
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._told(name)}") from None

    def _told(self, name: str) -> str:
        """What there is to know about a pod that does not get on."""
        said = {"system": self.system.up.process, "agent": self.agent.process}
        said |= {driver.name: driver.process for driver in self.drivers}
        lasts = {who: "\n".join(process.output[-60:]) for who, process in said.items()}
        found = {
            "pod": self.api.find(f"{self._pods}/{name}"),
            "claim": self.api.find(f"{self._claims}/{name}"),
            "events": self.events(name),
            "slices": [one["spec"] for driver in self.drivers for one in self.slices(driver)],
        }
        return json.dumps(found, indent=1) + "".join(f"\n-- {who}\n{last}" for who, last in lasts.items())

    def runs(self, name: str) -> Document:
        pod = self.reaches(name, "Running")
        for path in self.cdi_files():
            assert validate_spec(parse_document(path.read_bytes(), suffix=path.suffix)) == [], path
        return pod

    def delete_pod(self, name: str, *, grace: int | None = None) -> None:
        self.api.delete(f"{self._pods}/{name}", grace=grace)

    def delete_claim(self, name: str) -> None:
        self.api.delete(f"{self._claims}/{name}")

    def gone(self, name: str) -> None:
        wait_for(f"pod {name} to be gone", lambda: self.phase(name) == "gone")

    def events(self, name: str) -> list[str]:
        """The messages of the events about a pod."""
        found = self.api.listed(f"/api/v1/namespaces/{self.namespace}/events")
        return [one["message"] for one in found if one["involvedObject"]["name"] == name]

    def says(self, name: str, text: str) -> str:
        """Wait for an event about a pod that says so."""
        return wait_for(
            f"an event of pod {name} about {text!r}",
            lambda: next((message for message in self.events(name) if text in message), ""),
        )

    def cdi_files(self) -> list[Path]:
        """Those of the scene's drivers, and those that the agent wrote for them."""
        names = {driver.name for driver in self.drivers}
        files = [path for path in self.agent.cdi.iterdir() if path.suffix in SUFFIXES]
        return sorted(path for path in files if any(name in path.name for name in names))

    @property
    def _pods(self) -> str:
        return PODS.format(self.namespace)

    @property
    def _claims(self) -> str:
        return CLAIMS.format(self.namespace)

    def _pod_if(self, name: str, condition: Any) -> Document | None:
        pod = self.api.find(f"{self._pods}/{name}")
        return pod if pod is not None and condition(pod) else None

    # The end.

    def end(self) -> None:
        """Give everything back, with agent and drivers as they should be, and look that nothing is left."""
        if not self.agent.process.running:
            self.agent.start()
        for driver in self.drivers:
            driver.order(Orders(pools=driver.orders.pools))
        for pod in self.api.listed(self._pods):
            self.delete_pod(pod["metadata"]["name"])
        wait_for("the pods to be gone", lambda: not self.api.listed(self._pods))
        for claim in self.api.listed(self._claims):
            self.delete_claim(claim["metadata"]["name"])
        wait_for("the claims to be gone", lambda: not self.api.listed(self._claims))
        wait_for("the agent to have unprepared everything", lambda: not self.agent.prepared())
        assert self.cdi_files() == []
        for driver in self.drivers:
            if driver.process.running:
                driver.stop()
            for one in self.slices(driver):
                self.api.delete(f"{SLICES}/{one['metadata']['name']}")
            self.api.delete(f"{CLASSES}/{driver.name}")
