"""The metrics of all processes together, and those of processes that listen to nobody else.

Every process of an installation says what it is (`begin`). Where there is Redis, it then puts what its registry tells
there every `EVERY` seconds, for `KEPT` seconds; an API process reads the others' from there when somebody asks for all
(`AllProcesses`), and marks each sample with the `role` and the `process` it is of. Nothing is added up: Prometheus can,
and a counter of a process that was started again would make a sum go backwards. Redis keeps nothing that matters: while
it is away, each process is asked alone.

A worker has no listener of its own. Where an address is named, it gets one for its metrics: plain HTTP without
authentication, so it belongs on loopback or in a network of its own.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal
from wsgiref.simple_server import WSGIServer

import msgspec
from prometheus_client.core import Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Sample

from manciple.per_process import PerProcess
from manciple.telemetry import metrics, traces
from manciple.telemetry.bounded_server import serve_metrics

if TYPE_CHECKING:
    import redis

log = logging.getLogger(__name__)

#: embedded: API and worker in one process (`manage.py up`, `serve --with-worker`)
Role = Literal["api", "worker", "embedded"]

#: Seconds between two times that a process tells, and for which it counts as there.
EVERY, KEPT = 10.0, 35
#: Seconds that Redis may take to answer.
TIMEOUT = 2.0
#: Of the set of processes; with ".NAME" behind it, what that one tells.
KEY = "manciple.metrics"
#: The metric that tells of which version a process is.
BUILD = "manciple_build_info"


class RedisAway(Exception):
    """Redis does not answer."""


def _client(url: str) -> redis.Redis:
    import redis  # noqa: PLC0415 - 15 MiB that a process without Redis need not hold

    return redis.Redis.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)


@contextmanager
def _asking() -> Iterator[None]:
    """Raises: RedisAway."""
    import redis  # noqa: PLC0415 - as above

    try:
        yield
    except redis.RedisError as error:
        raise RedisAway(str(error)) from error


class _Sample(msgspec.Struct, frozen=True, array_like=True):
    name: str
    labels: dict[str, str]
    value: float


class _Family(msgspec.Struct, frozen=True, array_like=True):
    name: str
    documentation: str
    type: str
    samples: list[_Sample]


class _Told(msgspec.Struct, frozen=True, array_like=True):
    """What one process tells."""

    role: str
    process: str
    families: list[_Family]


def _families(collector: Collector) -> list[_Family]:
    return [
        _Family(
            metric.name,
            metric.documentation,
            metric.type,
            [_Sample(sample.name, dict(sample.labels), float(sample.value)) for sample in metric.samples],
        )
        for metric in collector.collect()
    ]


def _told(role: str, process: str, collector: Collector) -> _Told:
    return _Told(role, process, _families(collector))


def packed(prefix: str) -> bytes:
    """One line: the metrics of this process whose names begin so, for the process that it belongs to."""
    return msgspec.json.encode([one for one in _families(metrics.REGISTRY) if one.name.startswith(prefix)]) + b"\n"


def unpacked(line: bytes) -> Sequence[Metric]:
    """Raises: msgspec.MsgspecError."""
    found = []
    for family in msgspec.json.decode(line, type=list[_Family]):
        metric = Metric(family.name, family.documentation, family.type)
        metric.samples = [Sample(sample.name, sample.labels, sample.value) for sample in family.samples]
        found.append(metric)
    return found


def name_of_process() -> str:
    """HOST-PID."""
    return f"{os.uname().nodename}-{os.getpid()}"


# One process ----------------------------------------------------------------------------------------------------------


class MetricsPublisher:
    """Puts what this process tells into Redis, from a thread of its own, until it is stopped."""

    def __init__(self, redis_url: str, role: str, process: str, collector: Collector = metrics.REGISTRY) -> None:
        self._client = _client(redis_url)
        self._role, self._process, self._collector = role, process, collector
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._failing = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The process ends on purpose: nobody reads of it any more."""
        self._stopping.set()
        self._thread.join(TIMEOUT * 2)
        try:
            with _asking():
                self._client.delete(f"{KEY}.{self._process}")
        except RedisAway:
            log.info("the metrics of %s stay in Redis for %d seconds", self._process, KEPT)
        self._client.close()

    def publish(self) -> None:
        """Once. Raises: RedisAway."""
        told = msgspec.msgpack.encode(_told(self._role, self._process, self._collector))
        with _asking(), self._client.pipeline(transaction=False) as pipeline:
            pipeline.set(f"{KEY}.{self._process}", told, ex=KEPT)
            pipeline.sadd(KEY, self._process)
            pipeline.execute()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.publish()
                self._failing = False
            except RedisAway as error:
                if not self._failing:
                    log.warning("the metrics of this process are not in Redis: %s", error)
                self._failing = True
            self._stopping.wait(EVERY)


@dataclass
class _ThisProcess:
    role: str = ""
    version: str = ""
    publisher: MetricsPublisher | None = None
    close_listener: Callable[[], None] | None = None
    redis_url: str = ""

    def end(self) -> None:
        if self.close_listener is not None:
            self.close_listener()
        if self.publisher is not None:
            self.publisher.stop()


_this = PerProcess(_ThisProcess, stop=_ThisProcess.end)


def _told_version() -> Iterator[Metric]:
    if version := _this.value.version:
        yield metrics.gauges(BUILD, "Of which version the process is.", ("version",), metrics.by_one({version: 1.0}))


metrics.OnDemand(_told_version)


def begin(
    role: Role,
    *,
    version: str = "",
    redis_url: str = "",
    listen: str = "",
    served: CollectorRegistry = metrics.REGISTRY,
    traced_to: str = "",
    traced_part: float = 1.0,
) -> None:
    """This process is a `role`; what it was first, it stays.

    version: of the program; "" to tell none.
    listen: HOST:PORT at which metrics are served as well, those of `served`; "" for nowhere.
    traced_to: where traces are sent, of this part of all pods (`traces.begin`); "" for nowhere.
    Raises: ValueError where `listen` is no address; OSError where somebody else listens there; traces.SdkMissing.
    """
    this = _this.value
    if this.role:
        return
    host, _, port = listen.rpartition(":")
    if listen and not (host and port.isdigit()):
        raise ValueError(f"{listen!r} is not HOST:PORT, for example 127.0.0.1:9410")
    if traced_to:
        traces.begin(f"manciple-{role}", traced_to, part=traced_part)
    this.role, this.version, this.redis_url = role, version, redis_url
    if redis_url:
        this.publisher = MetricsPublisher(redis_url, role, name_of_process())
        this.publisher.start()
    if listen:
        server, thread = serve_metrics(host.strip("[]"), int(port), served)
        this.close_listener = partial(_close, server, thread)
        log.info("metrics are served at http://%s/metrics", listen)


def role() -> str:
    """What this process is; "" before it has begun."""
    return _this.value.role


def _close(server: WSGIServer, thread: threading.Thread) -> None:
    server.shutdown()
    server.server_close()
    thread.join(TIMEOUT)


def end() -> None:
    """This process ends; it may `begin` again."""
    traces.end()
    _this.reset()


# All of them ----------------------------------------------------------------------------------------------------------


class AllProcesses(Collector):
    """What this process tells, and each that is there, by `role` and `process`. Raises: RedisAway."""

    def collect(self) -> Iterable[Metric]:
        this = _this.value
        own = _told(this.role or "api", name_of_process(), metrics.REGISTRY)
        others = [one for one in _read(this.redis_url) if one.process != own.process] if this.redis_url else []
        return _merged([own, *others])


@dataclass(frozen=True, slots=True)
class PresentProcess:
    """process: HOST-PID. version: "" of one that is older than this metric."""

    role: str
    process: str
    version: str


def present(redis_url: str) -> Sequence[PresentProcess]:
    """Every process that tells of itself in this Redis. Raises: RedisAway."""
    return [PresentProcess(one.role, one.process, _version(one)) for one in _read(redis_url)]


def _version(told: _Told) -> str:
    samples = (sample for family in told.families if family.name == BUILD for sample in family.samples)
    return next((sample.labels.get("version", "") for sample in samples), "")


def _read(redis_url: str) -> Sequence[_Told]:
    with _asking(), _client(redis_url) as client:
        names = sorted(name.decode() for name in client.smembers(KEY))
        if not names:
            return ()
        found = dict(zip(names, client.mget([f"{KEY}.{name}" for name in names]), strict=True))
        if gone := [name for name, told in found.items() if told is None]:
            client.srem(KEY, *gone)
    return [msgspec.msgpack.decode(told, type=_Told) for told in found.values() if told is not None]


def _merged(processes: Sequence[_Told]) -> Iterator[Metric]:
    """The format wants all samples of a metric in one place."""
    merged: dict[str, Metric] = {}
    for one in processes:
        marks = {"role": one.role, "process": one.process}
        for family in one.families:
            metric = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                metric.add_sample(sample.name, {**sample.labels, **marks}, sample.value)
    present = dict.fromkeys(("api", "worker", "embedded"), 0.0)
    for one in processes:
        present[one.role] = present.get(one.role, 0) + 1
    yield metrics.gauges(
        "manciple_processes",
        "Processes of the installation that tell of themselves.",
        ("role",),
        metrics.by_one(present),
    )
    yield from merged.values()
