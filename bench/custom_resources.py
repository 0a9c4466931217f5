"""What custom resources cost over HTTP: `python bench/custom_resources.py [--objects N] [--json]`.

One embedded installation (`manage.py up`, SQLite) gets a definition and 10,000 objects of it. "list": all of them in
one answer, the median of several, with the CPU time that the server's process spent on it: on a busy machine that
alone compares. "watch": from a client's PATCH until another client has the event. Budgets: 300 ms, and 50 ms for 99 of
100.
"""

from __future__ import annotations

import argparse
import json
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import yaml
from cases.figures import Figure, quantile

ROOT = Path(__file__).resolve().parent.parent

GROUP = "bench.example.com"
PLANS = f"/apis/{GROUP}/v1/namespaces/default/plans"
LISTS, EVENTS, WRITERS = 9, 300, 8
#: Seconds between two changes that a watch sees.
PAUSE = 0.02
STATUS = {"type": "object", "properties": {"seen": {"type": "integer"}}}
SPEC = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer", "default": 1},
        "owner": {"type": "string"},
        "notes": {"type": "array", "items": {"type": "string"}},
    },
    "x-kubernetes-validations": [{"rule": "self.replicas < 100"}],
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"plans.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "plans", "kind": "Plan"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}},
            }
        ],
    },
}


@contextmanager
def served(home: Path) -> Iterator[tuple[httpx.Client, int]]:
    """A client of an installation of its own, and the process that serves it."""
    command = [sys.executable, "manage.py", "up", "--home", str(home), "--api", "127.0.0.1:17643"]
    command += ["--web", "127.0.0.1:17680", "--nodes", "0", "--mixed-nodes", "0", "--no-demo"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield client_of(home), process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)


def client_of(home: Path) -> httpx.Client:
    """Waits until the installation answers."""
    kubeconfig = home / "kubeconfig"
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if kubeconfig.exists():
            config = yaml.safe_load(kubeconfig.read_text())
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            client = httpx.Client(
                base_url=config["clusters"][0]["cluster"]["server"],
                headers={"Authorization": f"Bearer {config['users'][0]['user'].get('token', '')}"},
                verify=context,
                timeout=120,
            )
            try:
                if client.get("/readyz").is_success:
                    return client
            except httpx.HTTPError:
                pass
        time.sleep(0.2)
    raise TimeoutError("the installation did not answer within a minute")


def plan(number: int) -> dict[str, Any]:
    metadata = {"name": f"p-{number:05}", "labels": {"app": str(number % 7)}}
    spec = {"owner": "team", "notes": ["x" * 40] * 5}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Plan", "metadata": metadata, "spec": spec}


def fill(client: httpx.Client, objects: int) -> None:
    client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=DEFINITION).raise_for_status()
    with ThreadPoolExecutor(WRITERS) as pool:
        for answer in pool.map(lambda number: client.post(PLANS, json=plan(number)), range(objects)):
            answer.raise_for_status()


def cpu_seconds(process: int) -> float:
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / 100


def listed(client: httpx.Client, process: int, objects: int) -> list[Figure]:
    took, spent = [], []
    for _ in range(LISTS):
        began, cpu = time.perf_counter(), cpu_seconds(process)
        answer = client.get(PLANS)
        took.append(1000 * (time.perf_counter() - began))
        spent.append(1000 * (cpu_seconds(process) - cpu))
        assert len(answer.json()["items"]) == objects
    return [
        Figure(name=f"list of {objects:,} custom resources", value=median(took), unit="ms", budget=300),
        Figure(name="CPU time of the server for it", value=median(spent), unit="ms"),
    ]


def watched(client: httpx.Client) -> list[Figure]:
    sent: dict[int, float] = {}
    lags: list[float] = []
    begun = threading.Event()

    def follow() -> None:
        with client.stream("GET", PLANS, params={"watch": "1"}, timeout=None) as answer:
            for line in answer.iter_lines():
                event = json.loads(line)
                begun.set()
                if event["type"] == "MODIFIED":
                    lags.append(1000 * (time.perf_counter() - sent[event["object"]["status"]["seen"]]))
                if len(lags) == EVENTS:
                    return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    begun.wait(60)
    time.sleep(2)  # the state of ten thousand comes first
    for number in range(EVENTS):
        sent[number] = time.perf_counter()
        client.patch(
            f"{PLANS}/p-{number:05}/status",
            content=json.dumps({"status": {"seen": number}}),
            headers={"Content-Type": "application/merge-patch+json"},
        ).raise_for_status()
        time.sleep(PAUSE)
    follower.join(30)
    assert len(lags) == EVENTS
    return [
        Figure(name="a watch's event, half of them", value=median(lags), unit="ms"),
        Figure(name="a watch's event, 99 of 100", value=quantile(lags, 0.99), unit="ms", budget=50),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, served(Path(home)) as (client, process):
        fill(client, options.objects)
        figures = [*listed(client, process, options.objects), *watched(client)]
    print(json.dumps([asdict(one) for one in figures]) if options.json else "\n".join(one.row() for one in figures))


if __name__ == "__main__":
    main()
