"""A node under test: one agent, driven without threads, on directories and containers that outlive it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.agent import Agent
from nodeagent.cdi import validate_spec
from nodeagent.config import AgentConfig
from nodeagent.drivers.protocol import ClaimIdentity, Driver, Failed, Prepared
from nodeagent.drivers.simulated import SimulatedDriver
from nodeagent.failures import AgentError
from nodeagent.node.catalog import create_runtime
from nodeagent.runtimes.protocol import Runtime
from nodeagent.storage import Disk
from tests.nodeagent.fake_api import FakeApi
from tests.nodeagent.objects import NODE, claim, pod


class Clock:
    """POSIX seconds that pass when told to. `jump`: by how much somebody set it; `steady` knows nothing of that."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now
        self.jump = 0.0

    def __call__(self) -> float:
        return self.now + self.jump

    def steady(self) -> float:
        return self.now


class RecordingDriver(SimulatedDriver):
    """Knows which claims it holds; what it holds outlives agents, as a device's state does.

    violations: what it was asked to do and no agent may ask for. runs: whether a container runs with a claim.
    """

    def __init__(self, node_name: str = NODE, **options: Any) -> None:
        super().__init__(node_name, **options)
        self.held: set[str] = set()
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.violations: list[str] = []
        self.runs: Callable[[str], bool] = lambda _uid: False
        self._held_devices: dict[str, set[str]] = {}

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        self.calls.append(("prepare", tuple(c.metadata.name for c in claims)))
        answers = super().prepare(claims)
        for one in claims:
            if isinstance(answers.get(one.metadata.uid), Prepared):
                self._hold(one)
        return answers

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        self.calls.append(("unprepare", tuple(c.name for c in claims)))
        self.violations += [f"{c.uid} is unprepared while a container runs with it" for c in claims if self.runs(c.uid)]
        answers = super().unprepare(claims)
        self.held -= {uid for uid, answer in answers.items() if answer is None}
        return answers

    def _hold(self, given: ResourceClaim) -> None:
        uid, allocation = given.metadata.uid, given.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        self._held_devices[uid] = {r.device for r in results if r.driver == self.name and not r.admin_access}
        for other in self.held - {uid}:
            if both := self._held_devices[other] & self._held_devices[uid]:
                self.violations.append(f"{sorted(both)} are prepared for {uid} while {other} holds them")
        self.held.add(uid)

    def count(self, operation: str) -> int:
        return sum(1 for name, _ in self.calls if name == operation)


def _failure_of(step: Callable[[], object]) -> list[str]:
    try:
        step()
    except AgentError as error:
        return [str(error)]
    return []


class Machine:
    """The node `alpha`. `restart` is what kill -9 and a new start do."""

    def __init__(
        self,
        folder: Path,
        *,
        drivers: Sequence[Driver] | None = None,
        api: FakeApi | None = None,
        disk: Disk | None = None,
        http: httpx.Client | None = None,
        wrapped: Callable[[Runtime], Runtime] = lambda runtime: runtime,
    ) -> None:
        """wrapped: what stands between an agent and its simulated containers; http: what its client speaks through."""
        self.folder = folder
        self.wrapped = wrapped
        self.api = api or FakeApi()
        self.http = http
        self.disk = disk or Disk()
        self.clock = Clock()
        self.boot = "boot-1"
        self.cpu = "8"
        self.driver = RecordingDriver()
        self.drivers: Sequence[Driver] = drivers if drivers is not None else [self.driver]
        self.agent = self._agent()
        self.failures: list[str] = []
        for one in self.recording_drivers:
            one.runs = self._runs

    @property
    def recording_drivers(self) -> list[RecordingDriver]:
        return [driver for driver in self.drivers if isinstance(driver, RecordingDriver)]

    def _runs(self, claim_uid: str) -> bool:
        runtime = self.agent.runtime
        pods = (runtime.runs(uid) for uid in runtime.pod_uids())
        return any(run.running and claim_uid in run.claims for runs in pods for run in runs.values())

    @property
    def cdi_dir(self) -> Path:
        return self.folder / "cdi" / NODE

    def _agent(self) -> Agent:
        config = AgentConfig(
            server="http://api",
            token="secret",
            node_name=NODE,
            state_dir=self.folder / "state",
            cdi_dir=self.cdi_dir,
            cpu=self.cpu,
            memory="16Gi",
            boot=self.boot,
        )
        agent = Agent(
            config,
            self.drivers,
            runtime=self.wrapped(create_runtime("simulated", config, disk=self.disk, clock=self.clock)),
            disk=self.disk,
            transport=self.api,
            clock=self.clock,
            monotonic=self.clock.steady,
        )
        if self.http is not None:
            agent._client._http = self.http
        return agent

    def restart(self) -> None:
        self.agent = self._agent()
        self.start()

    def start(self) -> None:
        """What `Agent.run` does before its threads."""
        self.agent.remove_unregistered()
        self.agent.recover()
        self.agent.register()
        self.agent.publish_all()

    def look(self) -> list[str]:
        """See what the API has now and do each piece of work once; returns what failed."""
        failures = []
        for follower in self.agent.followers:
            failures += _failure_of(follower.relist)
        for key in sorted(self.agent.everything()):
            failures += _failure_of(partial(self.agent.work, key))
        self.failures += failures
        return failures

    def settle(self, *, attempts: int = 12) -> None:
        """Look until nothing fails and nothing changes any more."""
        for _ in range(attempts):
            before = self.api.revision
            if not self.look() and self.api.revision == before:
                return
        raise AssertionError(f"the node does not settle: {self.failures[-3:]}")

    # What a test looks at.

    def cdi_files(self) -> dict[str, Any]:
        """The CDI documents by file name; each is valid."""
        files = {path.name: json.loads(path.read_text()) for path in sorted(self.cdi_dir.glob("*.json"))}
        for name, document in files.items():
            assert validate_spec(document) == [], name
        return files

    def environment(self, pod: str, container: str = "main") -> dict[str, str]:
        return dict(self.agent.runtime.runs(f"uid-{pod}")[container].environment)

    def devices(self, pod: str, container: str = "main") -> tuple[str, ...]:
        return self.agent.runtime.runs(f"uid-{pod}")[container].cdi_devices

    def pod(self, name: str) -> dict[str, Any]:
        found = self.api.find("pods", name)
        assert found is not None, f"pod {name} is gone"
        return found

    def condition(self, pod: str, type_: str) -> str:
        conditions = self.pod(pod)["status"].get("conditions", [])
        return next((c["status"] for c in conditions if c["type"] == type_), "")

    def events(self, reason: str) -> list[str]:
        return [e["message"] for e in self.api.all("events") if e["reason"] == reason]

    def check_invariants(self) -> None:
        """Prepared claims of the checkpoint = CDI files = what the drivers hold = claims of pods that may run."""
        records = self.agent.preparer.records()
        recorded = {(driver.driver, r.uid) for r in records for driver in r.drivers}
        assert recorded == {_of_file(name) for name in self.cdi_files()}
        assert recorded == {(driver.name, uid) for driver in self.recording_drivers for uid in driver.held}
        assert recorded == self._wanted()
        assert all(r.state == "Prepared" for r in records)
        assert [v for driver in self.recording_drivers for v in driver.violations] == []
        assert {f"{r.uid}.json" for r in records} == {p.name for p in self.folder.glob("state/claims/*.json")}
        assert not [p for p in self.folder.rglob("*") if p.name.endswith((".tmp", ".open"))]

    def _wanted(self) -> set[tuple[str, str]]:
        """(driver, claim uid) of the claims of pods that may run here."""
        ended = ("Succeeded", "Failed")
        live = {p["metadata"]["uid"] for p in self.api.all("pods") if p["status"]["phase"] not in ended}
        return {
            (result["driver"], c["metadata"]["uid"])
            for c in self.api.all("resourceclaims")
            if any(r["uid"] in live for r in c["status"]["reservedFor"])
            for result in c["status"]["allocation"]["devices"]["results"]
        }


def _of_file(name: str) -> tuple[str, str]:
    """(driver, claim uid) of a CDI file's name."""
    driver, _, uid = name.removeprefix("k8s.").removesuffix(".json").partition("-claim_")
    return driver, uid


def run_pod(machine: Machine, name: str = "p", device: str = "gpu-0") -> None:
    """A pod with a claim on one device is bound to the node."""
    machine.api.put("resourceclaims", claim(f"of-{name}", device, pods=(f"uid-{name}",)))
    machine.api.put("pods", pod(name, claims={"gpus": f"of-{name}"}))


def release(machine: Machine, name: str = "p", device: str = "gpu-0") -> None:
    """What the claim controller does when the pod is done."""
    machine.api.put("resourceclaims", claim(f"of-{name}", device))
