"""`manciple mirror --guard` beside a second Manciple, whose API asks it: writers that race, guards that are killed."""

from __future__ import annotations

import base64
import os
import signal
import ssl
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests import services
from tests.e2e.api_client import Api
from tests.e2e.processes import ROOT, Process, Up, wait_for
from tests.manciple.mirror.guarded import review

NAMESPACE = "guarded"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MANIFEST = ROOT / "deploy" / "kubernetes" / "mirror-guard" / "guard.yaml"
Document = dict[str, Any]


@dataclass
class GuardedMirror:
    """A running `manciple mirror --guard`."""

    home: Path
    kubeconfig: Path
    mode: str = "enforce"
    env: Mapping[str, str] = field(default_factory=dict)

    def start(self) -> GuardedMirror:
        command = ["-m", "manciple", "mirror", "--kubeconfig", str(self.kubeconfig), "--home", str(self.home)]
        guard = ["--guard", self.mode, "--guard-listen", "127.0.0.1:0"]
        self.running = Process([sys.executable, *command, *guard], env=self.env, forked=False).start()
        self.url = self.running.line(r"(https://127\.0\.0\.1:\d+/guard)").group(1)
        self.running.line("Stop with Ctrl-C")
        self.connect()
        wait_for("the guard to be ready", lambda: self.http.get(self.url.replace("/guard", "/readyz")).is_success)
        return self

    def connect(self) -> None:
        authority = (self.home / "ca.crt").read_text()
        self.http = httpx.Client(verify=ssl.create_default_context(cadata=authority), timeout=30)

    def guard_process(self) -> int:
        """On PostgreSQL the guard is a process of its own; 0 while there is none."""
        threads = Path(f"/proc/{self.running._child.pid}/task").iterdir()
        children = [child for thread in threads for child in (thread / "children").read_text().split()]
        found = [int(one) for one in children if b"guard_process" in Path(f"/proc/{one}/cmdline").read_bytes()]
        return found[0] if found else 0

    def judged(self, asked: Document) -> Document:
        answer = self.http.post(self.url, json=asked)
        answer.raise_for_status()
        found: Document = answer.json()["response"]
        assert found["uid"] == asked["request"]["uid"]
        return found

    def kill(self) -> None:
        self.running.kill()
        self.http.close()


def webhook(mirror: GuardedMirror, *, policy: str) -> Document:
    """That of the manifest, but for where it leads, and the policy."""
    found = (one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"].startswith("Validating"))
    made: Document = deepcopy(next(found))
    (hook,) = made["webhooks"]
    bundle = base64.b64encode((mirror.home / "ca.crt").read_bytes()).decode()
    hook["clientConfig"] = {"url": mirror.url, "caBundle": bundle}
    hook["failurePolicy"] = policy
    return made


@pytest.fixture(scope="module")
def cluster(system: Up) -> Iterator[Api]:
    api = Api(system.kubeconfig)
    api.made("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    yield api
    api.delete(f"{HOOKS}/manciple-guard")
    for one in api.listed(CLAIMS):
        if one.get("status", {}).get("allocation"):
            api.put(f"{CLAIMS}/{one['metadata']['name']}/status", {**one, "status": {}})
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    wait_for("the namespace to be gone", lambda: api.find(f"/api/v1/namespaces/{NAMESPACE}") is None)


@pytest.fixture(scope="module")
def devices(cluster: Api) -> Iterator[tuple[str, str, str]]:
    """(driver, pool, device) of a node's free devices, one after the other."""
    held = {
        (one["pool"], one["device"])
        for claim in cluster.listed("/apis/resource.k8s.io/v1/resourceclaims")
        for one in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    }
    (one, *_) = (
        one["spec"]
        for one in cluster.listed("/apis/resource.k8s.io/v1/resourceslices")
        if one["spec"].get("nodeName") == "node-1" and len(one["spec"].get("devices", ())) > 3
    )
    found = [(one["driver"], one["pool"]["name"], device["name"]) for device in one["devices"]]
    return iter([device for device in found if device[1:] not in held])


def new_claims(cluster: Api, *names: str) -> list[Document]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    return [
        cluster.made(CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}})
        for name in names
    ]


def given(claim: Document, device: tuple[str, str, str]) -> Document:
    result = dict(zip(("request", "driver", "pool", "device"), ("gpu", *device), strict=True))
    on = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [on]}]}
    # Reserved for what only its own controller knows, so that nobody takes it back.
    user = {"apiGroup": "example.com", "resource": "things", "name": "one", "uid": "of-one-thing"}
    allocation = {"devices": {"results": [result]}, "nodeSelector": selector}
    return {**claim, "status": {"allocation": allocation, "reservedFor": [user]}}


def written(cluster: Api, claim: Document, device: tuple[str, str, str]) -> httpx.Response:
    made = given(claim, device)
    return cluster._http.put(f"{CLAIMS}/{claim['metadata']['name']}/status", json=made)


@pytest.fixture(scope="module")
def mirror(system: Up, cluster: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedMirror]:
    made = GuardedMirror(tmp_path_factory.mktemp("guard") / "home", system.kubeconfig).start()
    cluster.made(HOOKS, webhook(made, policy="Fail"))
    yield made
    cluster.delete(f"{HOOKS}/manciple-guard")
    assert made.running.stop() == 0, "\n".join(made.running.output)


def test_of_writers_that_race_for_a_device_the_guard_admits_one(
    mirror: GuardedMirror, cluster: Api, devices: Iterator[tuple[str, str, str]]
) -> None:
    """The index of our own API would refuse the others as well, with 409: nobody gets that far."""
    device = next(devices)
    claims = new_claims(cluster, *(f"racer-{number}" for number in range(4)))
    with ThreadPoolExecutor(len(claims)) as pool:
        answers = list(pool.map(lambda one: written(cluster, one, device), claims))
    assert Counter(one.status_code for one in answers) == {200: 1, 403: 3}
    (winner,) = (one.json()["metadata"]["name"] for one in answers if one.is_success)
    for refused in (one.json() for one in answers if one.is_error):
        assert refused["reason"] == "Forbidden"
        assert refused["message"].startswith('admission webhook "guard.manciple.dev" denied the request: ')
        assert f"{NAMESPACE}/{winner}" in refused["message"]
    # Reserving, and giving it back, do not wait for the guard; then another may have it at once.
    held = cluster.found("ResourceClaim", winner, NAMESPACE)
    other = next(one for one in claims if one["metadata"]["name"] != winner)
    freed = cluster.put(f"{CLAIMS}/{winner}/status", {**held, "status": {}})
    assert not freed.get("status", {}).get("allocation")
    assert written(cluster, other, device).status_code == 200
    assert mirror.running.running


def test_a_guard_that_was_killed_is_missed_as_the_policy_says_and_knows_afterwards_what_it_admitted(
    mirror: GuardedMirror, cluster: Api, devices: Iterator[tuple[str, str, str]]
) -> None:
    device, another = next(devices), next(devices)
    first, second, third = new_claims(cluster, "first", "second", "third")
    assert written(cluster, first, device).status_code == 200
    mirror.kill()
    failed = written(cluster, second, another)
    assert failed.status_code == 500
    assert 'failed calling webhook "guard.manciple.dev"' in failed.json()["message"]
    mirror.start()
    cluster.patch(f"{HOOKS}/manciple-guard", {"webhooks": webhook(mirror, policy="Ignore")["webhooks"]})
    assert written(cluster, second, device).status_code == 403
    assert written(cluster, second, another).status_code == 200
    mirror.kill()
    assert written(cluster, third, device).status_code == 409, "nobody but our own index keeps it"
    mirror.start()
    cluster.patch(f"{HOOKS}/manciple-guard", {"webhooks": webhook(mirror, policy="Fail")["webhooks"]})


@contextmanager
def replicas(system: Up, folder: Path, count: int) -> Iterator[Sequence[GuardedMirror]]:
    with services.postgresql() as server, ExitStack() as stack:
        made = []
        for number in range(count):
            env = {"MANCIPLE_DATABASE_URL": server.url}
            one = GuardedMirror(folder / f"replica-{number}", system.kubeconfig, env=env).start()
            stack.callback(one.running.kill)
            made.append(one)
        yield made


def test_two_replicas_with_one_database_admit_one_of_many_also_when_one_is_killed(
    system: Up, cluster: Api, devices: Iterator[tuple[str, str, str]], tmp_path: Path
) -> None:
    cluster.delete(f"{HOOKS}/manciple-guard")
    claims = new_claims(cluster, *(f"writer-{number}" for number in range(8)))
    with replicas(system, tmp_path, 2) as (one, other), ThreadPoolExecutor(len(claims)) as pool:

        def race(device: tuple[str, str, str], guards: Sequence[GuardedMirror]) -> list[str]:
            """The names of the claims that get it."""
            asked = [review(claim, given(claim, device)) for claim in claims]
            found = pool.map(lambda at: guards[at % len(guards)].judged(asked[at]), range(len(asked)))
            names = [claim["metadata"]["name"] for claim in claims]
            return [name for name, answer in zip(names, found, strict=True) if answer["allowed"]]

        first, second = next(devices), next(devices)
        (winner,) = race(first, (one, other))
        one.kill()
        assert race(first, (other,)) == [winner], "what the killed one has promised holds"
        (winner,) = race(second, (other,))
        guard = other.guard_process()
        os.kill(guard, signal.SIGKILL)
        wait_for("the guard to be started again", lambda: other.guard_process() not in (0, guard))
        other.connect()
        assert race(second, (other,)) == [winner], "what the guard's killed process has promised holds"
        guard = other.guard_process()
        other.kill()
        wait_for("the guard to end with its mirror", lambda: not Path(f"/proc/{guard}").exists())
