"""What a node agent does a second and costs at rest: `python bench/node_agent.py` prints each figure beside its budget.

    prepare     one claim prepared and given back, again and again, by as many threads as an agent has workers; the
                checkpoint and the CDI files on a real disk, the claims from memory
    flushes     the time that one flush of a file takes on that disk: a machine whose disk takes longer prepares slower
    lifecycle   pods that come, run and go, through a whole agent and an API server in memory, in one process
    rest        an agent in a process of its own, with 128 devices and 100 running pods, over 30 seconds

`--case NAME` runs one of them. Figures of a busy machine compare only with each other.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cases.figures import Figure

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.nodes import Node
from manciple.wire import codec
from manciple.wire.base import ObjectMeta
from nodeagent.agent import Agent
from nodeagent.cdi import CdiFolder
from nodeagent.claims.checkpoint import Checkpoint
from nodeagent.claims.prepare import DriverRegistry, Preparer
from nodeagent.config import AgentConfig
from nodeagent.drivers.simulated import SimulatedDriver
from nodeagent.http.metrics import AgentMetrics
from nodeagent.storage import Disk
from tests.nodeagent.fake_api import Document, FakeApi
from tests.nodeagent.http_api import serving
from tests.nodeagent.objects import NODE, claim, pod


def _no_draft(_namespace: str, name: str) -> NoReturn:
    raise LookupError(f"claim {name} is no claim of the draft")


WORKERS = 4
DEVICES, PODS, REST_SECONDS = 128, 100, 30.0


def prepare(folder: Path) -> list[Figure]:
    """Each thread has a device of its own, and its pods come one after the other."""
    rounds = 400
    claims = {f"of-{n}": _claim(f"of-{n}", f"gpu-{n % WORKERS}", f"uid-{n}") for n in range(WORKERS * rounds)}
    pods = [_pod(f"{n}") for n in range(WORKERS * rounds)]
    node = Node(metadata=ObjectMeta(name=NODE))
    preparer = Preparer(
        node=lambda: node,
        drivers=DriverRegistry([SimulatedDriver(NODE, gpus=DEVICES)]),
        checkpoint=Checkpoint(folder / "claims", Disk()),
        folder=CdiFolder(folder / "cdi", Disk()),
        fetch=lambda _namespace, name: claims[name],
        fetch_draft=_no_draft,
        read_handles=lambda claim: claim,
        running=lambda _uid: (),
        metrics=AgentMetrics(),
    )

    def work(worker: int) -> None:
        for number in range(worker, WORKERS * rounds, WORKERS):
            preparer.prepare(pods[number])
            preparer.unprepare(f"uid-{number}")

    began = time.perf_counter()
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))
    rate = WORKERS * rounds / (time.perf_counter() - began)
    return [Figure(name="claims prepared and given back", value=rate, unit="/s", budget=500, at_least=True)]


def flushes(folder: Path) -> list[Figure]:
    folder.mkdir()
    disk, count = Disk(), 200
    began = time.perf_counter()
    for number in range(count):
        disk.fill(folder / f"{number}", b"x" * 500, flushed=True)
    return [Figure(name="one file written and flushed", value=(time.perf_counter() - began) / count * 1e3, unit="ms")]


def lifecycle(folder: Path) -> list[Figure]:
    api = FakeApi()
    count = 300
    state, cdi = folder / "s", folder / "c"
    config = AgentConfig(server="http://api", token="t", node_name=NODE, state_dir=state, cdi_dir=cdi, pods=count)
    agent = Agent(config, [SimulatedDriver(NODE, gpus=count)], transport=api)
    stop = threading.Event()
    thread = threading.Thread(target=agent.run, args=(stop,))
    thread.start()
    agent.ready.wait(30)
    try:
        began = time.perf_counter()
        for number in range(count):
            _come(api, number)
        _wait(api, lambda: all(_is_ready(found) for found in api.all("pods")))
        for number in range(count):
            api.delete("pods", f"{number}")
        _wait(api, lambda: not api.all("pods"))
        rate = count / (time.perf_counter() - began)
    finally:
        stop.set()
        thread.join()
    return [Figure(name="pods that come, run and go", value=rate, unit="/s")]


def rest(folder: Path) -> list[Figure]:
    api = FakeApi()
    with serving(api) as url:
        folder.mkdir()
        (folder / "token").write_text("t")
        command = [sys.executable, "-m", "nodeagent", "--node-name", NODE, "--server", url, "--gpus", str(DEVICES)]
        command += ["--token-file", str(folder / "token"), "--state-dir", str(folder / "state"), "--cdi-dir"]
        root = Path(__file__).resolve().parent.parent
        process = subprocess.Popen([*command, str(folder / "cdi"), "--log-level", "WARNING"], cwd=root)
        try:
            _wait(api, lambda: bool(api.all("resourceslices")))
            for number in range(PODS):
                _come(api, number)
            _wait(api, lambda: all(_is_ready(found) for found in api.all("pods")))
            time.sleep(2.0)  # what was begun is ended, and rest begins
            before, began = _cpu_seconds(process.pid), time.perf_counter()
            time.sleep(REST_SECONDS)
            busy = (_cpu_seconds(process.pid) - before) / (time.perf_counter() - began)
            memory = _resident_bytes(process.pid)
        finally:
            process.terminate()
            process.wait()
    return [
        Figure(name=f"memory, {DEVICES} devices and {PODS} pods", value=memory / 1e6, unit="MB", budget=60),
        Figure(name="CPU at rest", value=busy * 100, unit="%", budget=2),
    ]


def _claim(name: str, device: str, pod_uid: str) -> ResourceClaim:
    return codec.decode_text(ResourceClaim, _text(claim(name, device, pods=(pod_uid,))))


def _pod(name: str) -> Pod:
    return codec.decode_text(Pod, _text(pod(name, claims={"gpus": f"of-{name}"})))


def _text(document: Document) -> bytes:
    return json.dumps(document).encode()


def _come(api: FakeApi, number: int) -> None:
    api.put("resourceclaims", claim(f"of-{number}", f"gpu-{number}", pods=(f"uid-{number}",)))
    api.put("pods", pod(f"{number}", claims={"gpus": f"of-{number}"}))


def _is_ready(found: Document) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in found["status"].get("conditions", []))


def _wait(api: FakeApi, condition: Callable[[], bool]) -> None:
    """Looked at a few times a second, so that looking does not slow down what is measured."""
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the agent does not get there")
        with api.changed:
            api.changed.wait(0.2)
        time.sleep(0.1)


def _cpu_seconds(pid: int) -> float:
    """User and system time. Source: proc(5), /proc/pid/stat."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


CASES: dict[str, Callable[[Path], list[Figure]]] = {
    "prepare": prepare,
    "flushes": flushes,
    "lifecycle": lifecycle,
    "rest": rest,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=tuple(CASES))
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    for name in [options.case] if options.case else CASES:
        with tempfile.TemporaryDirectory() as folder:
            figures = CASES[name](Path(folder) / name)
        print(f"-- {name} (load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores)")
        for figure in figures:
            print(figure.row())


if __name__ == "__main__":
    main()
