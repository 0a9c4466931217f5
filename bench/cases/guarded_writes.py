"""Writes that allocate, as an API server sends them to the guard; and how they come back into the copy."""

from __future__ import annotations

import json
import multiprocessing
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from django.conf import settings

from manciple.mirror.client import Remote
from manciple.mirror.guard.options import GuardOptions
from manciple.mirror.models import KindStatus, RemoteStatus
from manciple.mirror.sources import CLAIM, POD, SLICE, Reach
from manciple.mirror.stored_copy import Change, StoredCopy
from manciple.processes import mirror
from manciple.processes.mirror_guard import MirrorGuard
from manciple.telemetry import metrics
from tests.manciple.admission.webhook_server import self_signed
from tests.manciple.mirror.clusters import claim, pod, slice_of
from tests.manciple.mirror.guarded import change_of, review

Document = dict[str, Any]

#: Of a node; half of them are held.
DEVICES = 8
#: Changes that are stored together, and seconds until those that come meanwhile are.
TOGETHER, PAUSE = 200, 0.02
#: A cluster that nobody asks, as every device is free.
NOWHERE = {
    "apiVersion": "v1", "kind": "Config", "current-context": "lab",
    "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
    "clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}}],
    "users": [{"name": "me", "user": {"token": "t"}}],
}  # fmt: skip


class Writes:
    """Claims that are to get the free devices of `nodes` nodes, and the copy that knows all of these."""

    def __init__(self, nodes: int, most: int) -> None:
        self._versions, self._copy = count(1), StoredCopy()
        held = range(nodes * DEVICES // 2)
        slices = [change_of(SLICE, self._next(slice_of(f"n{number}", DEVICES))) for number in range(nodes)]
        holders = [self._changed(claim(f"h{number}", f"n{number % nodes}/gpu-{number // nodes}")) for number in held]
        self.pairs: list[tuple[Document, Document]] = []
        for number in held[:most]:
            device = f"n{number % nodes}/gpu-{DEVICES // 2 + number // nodes}"
            self.pairs.append((self._next(claim(f"new{number}")), claim(f"new{number}", device)))
        for changes in (slices, holders, [change_of(CLAIM, old) for old, _ in self.pairs]):
            for start in range(0, len(changes), TOGETHER):
                self._copy.apply(changes[start : start + TOGETHER])

    @property
    def bodies(self) -> list[bytes]:
        return [json.dumps(review(old, new)).encode() for old, new in self.pairs]

    def copied_while(self, admitted: Connection, changes: float) -> list[float]:
        """Store what is admitted, and `changes` changes of pods a second, until all is answered. How long each took."""
        began, stored = time.monotonic(), 0
        while True:
            numbers = list[int]()
            while admitted.poll(0 if numbers else PAUSE):
                news = admitted.recv()
                if isinstance(news, list):
                    return news
                numbers.append(news)
            due = int((time.monotonic() - began) * changes)
            others = [change_of(POD, self._next(pod(f"p{number % 500}", on="n1"))) for number in range(stored, due)]
            stored = due
            given = [self._changed(self.pairs[number][1]) for number in numbers]
            for start in range(0, len(changed := [*given, *others]), TOGETHER):
                self._copy.apply(changed[start : start + TOGETHER])

    def _changed(self, document: Document) -> Change:
        return change_of(CLAIM, self._next(document))

    def _next(self, document: Document) -> Document:
        document = deepcopy(document)
        document["metadata"]["resourceVersion"] = str(next(self._versions))
        return document


@dataclass
class Measured:
    """answered: seconds of each write, until its answer was there. buckets: of the guard's own time, by upper bound in
    seconds. total: of it. cpu: seconds of the guard's process for a write.
    """

    answered: list[float]
    lasted: float
    buckets: dict[float, float]
    total: float
    cpu: float

    @property
    def per_second(self) -> float:
        return len(self.answered) / self.lasted

    @property
    def mean(self) -> float:
        return self.total / len(self.answered)

    def within(self, seconds: float) -> float:
        return self.buckets[seconds] / len(self.answered)


def measured(
    api_server: Callable[[int, str, list[bytes], float, Connection], None],
    *,
    nodes: int,
    rate: float,
    seconds: float,
    changes: float,
) -> Measured:
    """api_server: in a process of its own. rate: 0 for as fast as can be."""
    home = Path(settings.HOME)
    writes = Writes(nodes, int(rate * seconds) if rate else nodes * DEVICES // 2)
    of_all_time = datetime.now(UTC) + timedelta(days=1)
    RemoteStatus.objects.create(id=1, context="lab", server="https://lab", namespace="", gates={})
    for source in (CLAIM, SLICE):
        KindStatus.objects.create(
            resource=source.resource, version="v1", reach=Reach.EVERYWHERE.value, detail="", unread=0,
            listed_at=of_all_time, heard_at=of_all_time,
        )  # fmt: skip
    kubeconfig = home / "elsewhere.yaml"
    kubeconfig.write_text(json.dumps(NOWHERE))
    files = home / "tls.crt", home / "tls.key"
    for path, content in zip(files, self_signed(), strict=True):
        path.write_bytes(content)
    arguments = ["--kubeconfig", str(kubeconfig), "--guard=enforce", "--guard-listen=127.0.0.1:0"]
    arguments += [f"--guard-tls-cert={files[0]}", f"--guard-tls-key={files[1]}"]
    options = mirror.parser().parse_args(arguments)
    remote = Remote(mirror.access_found(options), timeout=1.0)
    guard = MirrorGuard(GuardOptions.of(options), remote, folder=home, arguments=arguments)
    port = int(guard.description.rpartition(":")[2].partition("/")[0])
    with guard.running():
        _wait_until_ready(port)
        pid = _serving()
        before = _worked(pid)
        ours, theirs = multiprocessing.Pipe()
        arguments_ = (port, files[0].read_text(), writes.bodies, rate, theirs)
        process = multiprocessing.get_context("spawn").Process(target=api_server, args=arguments_)
        process.start()
        began = time.monotonic()
        answered = writes.copied_while(ours, changes)
        lasted = time.monotonic() - began
        process.join()
        cpu = (_worked(pid) - before) / len(answered)
        buckets, total = _own_times(len(answered))
    return Measured(answered, lasted, buckets, total, cpu)


def _serving() -> int:
    """The process that serves the guard: our child, or this one."""
    for thread in Path("/proc/self/task").iterdir():
        for child in (thread / "children").read_text().split():
            if b"guard_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    return os.getpid()


def _worked(pid: int) -> float:
    """Seconds of CPU."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _wait_until_ready(port: int) -> None:
    context = ssl._create_unverified_context()
    while True:
        try:
            with urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", context=context, timeout=10):
                return
        except urllib.error.HTTPError:
            time.sleep(0.1)


def _own_times(count: int) -> tuple[dict[float, float], float]:
    """(buckets, sum) of the histogram once it has all: a process of its own reports it every second."""
    name = "manciple_guard_duration_seconds"
    while True:
        for metric in metrics.REGISTRY.collect():
            samples = {(one.name, one.labels.get("le")): one.value for one in metric.samples}
            if samples.get((f"{name}_count", None), 0) >= count:
                buckets = {float(le): value for (_, le), value in samples.items() if le is not None}
                return buckets, samples[f"{name}_sum", None]
        time.sleep(0.1)
