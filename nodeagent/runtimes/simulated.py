"""A runtime whose containers are notes in a file: they "start" at once and run until they are stopped.

Annotations of the pod let them end by themselves: `manciple.dev/run-seconds` after how long, `manciple.dev/exit-code`
and `manciple.dev/exit-reason` how (0 without it). Init containers end at once, successfully. Probes succeed as soon as
they may, but for those that `manciple.dev/failing-probes` names ("liveness,readiness"). `manciple.dev/start-failure`
keeps containers from starting, with that reason. A container uses the cpu and memory that it requests.

What a real container would find in its environment, CDI's part included, is recorded for each run and can be read in
`<pod uid>.json`; like real containers, the records outlive the agent. A device that no CDI file defines fails the
start, as in a real runtime. A start is told by the container's status alone: a laboratory starts thousands, and an
event would be as costly as the rest of a start.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from claims.kinds.pod_streams import StreamOptions
from manciple.wire.base import Value
from nodeagent.cdi import CdiRegistry
from nodeagent.config import AgentConfig
from nodeagent.failures import ContainerFailed, StreamRefused
from nodeagent.runtimes.conversations import Conversation
from nodeagent.runtimes.image_keys import PullKeys, no_keys
from nodeagent.runtimes.logs import LogLine, LogPrinter, LogQuery, wanted
from nodeagent.runtimes.protocol import (
    ContainerRequest,
    ContainerRun,
    ContainerUsage,
    Happening,
    Limits,
    PodStorage,
    ProbeRequest,
    killing,
    logged_run,
)
from nodeagent.storage import Disk

log = logging.getLogger(__name__)

RUN_SECONDS = "manciple.dev/run-seconds"
EXIT_CODE, EXIT_REASON = "manciple.dev/exit-code", "manciple.dev/exit-reason"
FAILING_PROBES, START_FAILURE = "manciple.dev/failing-probes", "manciple.dev/start-failure"
#: Exit code of a container that a failing probe stops.
KILLED = 137
#: Seconds that a container may be told to run for: a hundred years.
LONGEST_RUN = 100 * 365 * 86400
#: Why nobody can talk to a simulated container.
_SIMULATED = "the containers of this node are simulated: they run no programs"
#: How often one who follows a log looks whether the container still runs.
FOLLOW_SECONDS = 0.2
#: Exit code of a container that is stopped, by SIGTERM: what was stopped has not succeeded.
STOPPED = 143


class _Run(ContainerRun):
    """A run with its destiny: when it ends by itself, and how; when its probes have succeeded, None for never.

    unhealthy: the probe that fails at `fails_at`. cpu_millis, memory_bytes: what it uses.
    """

    ends_at: float | None = None
    ends_with: int = 0
    ends_because: str = ""
    starts_at: float | None = 0.0
    ready_at: float | None = 0.0
    unhealthy: str = ""
    fails_at: float = 0.0
    cpu_millis: int = 0
    memory_bytes: int = 0

    def at(self, now: float) -> _Run:
        """The run as it is at `now`."""
        if not self.running:
            return self
        if self.ends_at is not None and self.ends_at <= now:
            return replace(self, finished_at=self.ends_at, exit_code=self.ends_with, reason=self.ends_because)
        started = self.starts_at is not None and self.starts_at <= now
        ready = started and self.ready_at is not None and self.ready_at <= now
        return self if (started, ready) == (self.started, self.ready) else replace(self, started=started, ready=ready)

    def changes(self) -> Iterator[float]:
        times = (self.ends_at, self.starts_at, self.ready_at, self.fails_at if self.unhealthy else None)
        return (at for at in times if at is not None)


def _stopped(run: _Run, now: float) -> _Run:
    return replace(run, finished_at=now, exit_code=STOPPED) if run.running else run


class _Pod(Value):
    """The file of one pod."""

    namespace: str
    name: str
    containers: dict[str, _Run]


# Built here, in one thread: msgspec must not describe a struct to itself in two threads at once.
_decoder = msgspec.json.Decoder(_Pod)


class SimulatedRuntime:
    """A `Runtime`. `folder`: where it keeps its notes; `clock`: POSIX seconds."""

    api: ClassVar[None] = None
    counts_evenly: ClassVar[bool] = True
    has_files = False

    def __init__(self, folder: Path, cdi: CdiRegistry, *, disk: Disk, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._cdi = cdi
        self._disk = disk
        self._clock = clock
        self._lock = threading.Lock()
        self._happened: Callable[[str, Happening], None] = lambda _uid, _happening: None
        self._told: dict[str, set[tuple[str, int]]] = {}  # pod uid -> (container, attempt) whose failing probe was told
        self._pods = self._load()

    @property
    def version(self) -> str:
        return "simulated://1.0"

    def start(self, request: ContainerRequest, keys: PullKeys = no_keys) -> None:  # noqa: ARG002 - nothing is pulled
        with self._lock:
            pod = self._pods.get(request.pod_uid) or _Pod(namespace=request.namespace, name=request.pod, containers={})
            known = pod.containers.get(request.name)
            if known is None or known.attempt < request.attempt:
                run = self._run(request, known)
                self._keep(request.pod_uid, replace(pod, containers={**pod.containers, request.name: run}))

    def resize(self, pod_uid: str, container: str, limits: Limits) -> None:
        """Nothing holds a simulated container to its limits."""

    def resize_pod(self, pod_uid: str, limits: Limits) -> None:
        """Nor a pod."""

    def end(self, pod_uid: str, container: str, *, grace_seconds: int) -> None:  # noqa: ARG002 - simulated containers obey at once
        now = self._clock()
        with self._lock:
            pod = self._pods.get(pod_uid)
            run = pod.containers.get(container) if pod is not None else None
            if pod is None or run is None:
                raise ContainerFailed(f"container {container} is not known here")
            self._keep(pod_uid, replace(pod, containers={**pod.containers, container: _stopped(run.at(now), now)}))

    def files_folder(self, pod_uid: str, volume: str) -> Path | None:  # noqa: ARG002 - nobody would read them
        return None

    def runs(self, pod_uid: str) -> Mapping[str, ContainerRun]:
        now = self._clock()
        with self._lock:
            pod = self._pods.get(pod_uid)
            runs = {name: run.at(now) for name, run in pod.containers.items()} if pod is not None else {}
            for run in runs.values():
                self._tell_of_probe(pod_uid, run, now)
        return runs

    def _tell_of_probe(self, pod_uid: str, run: _Run, now: float) -> None:
        """The first failure of each attempt."""
        told = self._told.setdefault(pod_uid, set())
        if not run.unhealthy or now < run.fails_at or (run.name, run.attempt) in told:
            return
        told.add((run.name, run.attempt))
        message = f"{run.unhealthy.capitalize()} probe failed: the annotation {FAILING_PROBES} says so"
        self._happened(pod_uid, Happening(run.name, "Unhealthy", message, is_warning=True))
        if run.unhealthy != "readiness":
            self._happened(pod_uid, killing(run.name, run.unhealthy))

    def usage(self, pod_uid: str) -> Mapping[str, ContainerUsage]:
        now = self._clock()
        return {
            name: ContainerUsage(
                at=now,
                started_at=run.started_at,
                cpu_nanos=int(run.cpu_millis * 1e6 * max(0.0, now - run.started_at)),
                memory_bytes=run.memory_bytes,
            )
            for name, run in self._of(pod_uid).items()
            if run.at(now).running
        }

    def machine_usage(self) -> ContainerUsage:
        """As if what runs now had run for a minute: it is the machine of these containers alone."""
        now = self._clock()
        with self._lock:
            runs = [run.at(now) for pod in self._pods.values() for run in pod.containers.values()]
        running = [run for run in runs if run.running]
        return ContainerUsage(
            at=now,
            started_at=now - 60,
            cpu_nanos=60 * 10**6 * sum(run.cpu_millis for run in running),
            memory_bytes=sum(run.memory_bytes for run in running),
        )

    def _of(self, pod_uid: str) -> Mapping[str, _Run]:
        with self._lock:
            pod = self._pods.get(pod_uid)
            return pod.containers if pod is not None else {}

    def storage(self, pod_uid: str, volumes: Collection[str], *, layers: bool) -> PodStorage:  # noqa: ARG002 - no files
        return PodStorage()

    def next_change(self, pod_uid: str) -> float | None:
        now = self._clock()
        runs = (run.at(now) for run in self._of(pod_uid).values())
        return min((at for run in runs if run.running for at in run.changes() if at > now), default=None)

    def listen(self, happened: Callable[[str, Happening], None]) -> None:
        self._happened = happened

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Simulated containers change only when `next_change` says."""

    def stop(self, pod_uid: str, *, grace_seconds: int) -> float | None:  # noqa: ARG002 - simulated containers obey at once
        now = self._clock()
        with self._lock:
            pod = self._pods.get(pod_uid)
            if pod is None:
                return None
            runs = {name: run.at(now) for name, run in pod.containers.items()}
            ended = {name: _stopped(run, now) for name, run in runs.items()}
            if ended != pod.containers:
                self._keep(pod_uid, replace(pod, containers=ended))
        return None

    def remove(self, pod_uid: str) -> None:
        with self._lock:
            if pod_uid in self._pods:
                try:
                    self._disk.remove(self._path(pod_uid))
                except OSError as error:
                    raise ContainerFailed(f"the containers of pod {pod_uid} cannot be removed: {error}") from error
                del self._pods[pod_uid]
                self._told.pop(pod_uid, None)

    def pod_uids(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._pods)

    def logs(self, pod_uid: str, container: str, query: LogQuery, *, stop: threading.Event) -> Iterator[bytes]:
        lines = list(_log_of(logged_run(self.runs(pod_uid), pod_uid, container, query), previous=query.previous))
        return self._log(pod_uid, container, lines, query, stop)

    def execute(self, pod_uid: str, container: str, options: StreamOptions) -> Conversation:  # noqa: ARG002 - nothing runs
        raise StreamRefused(f"{_SIMULATED}, so no command can be run in container {container}")

    def attach(self, pod_uid: str, container: str, options: StreamOptions) -> Conversation:  # noqa: ARG002 - nothing runs
        raise StreamRefused(f"{_SIMULATED}, so there is nothing to attach to in container {container}")

    def connect(self, pod_uid: str, port: int) -> Conversation:  # noqa: ARG002 - nothing runs
        raise StreamRefused(f"{_SIMULATED}, so nothing listens on port {port}")

    def _log(
        self, pod_uid: str, container: str, lines: Iterable[LogLine], query: LogQuery, stop: threading.Event
    ) -> Iterator[bytes]:
        printer = LogPrinter(query)
        yield from printer.bytes_of(wanted(lines, query))
        while query.follow and not query.previous and not printer.done and not stop.wait(FOLLOW_SECONDS):
            run = self.runs(pod_uid).get(container)
            if run is None or not run.running:
                return

    def _run(self, request: ContainerRequest, known: _Run | None) -> _Run:
        if reason := request.annotations.get(START_FAILURE):
            raise ContainerFailed(f"the annotation {START_FAILURE} says so", reason=reason)
        now = self._clock()
        seconds, code = (0.0, 0) if request.role == "init" else _destiny(request.annotations)
        try:
            edits = self._cdi.edits(request.cdi_devices)
        except LookupError as error:
            raise ContainerFailed(str(error.args[0])) from error
        added = dict(line.split("=", 1) for edit in edits for line in edit.env)
        identity = f"{request.pod_uid}/{request.name}/{request.attempt}"
        run = _Run(
            name=request.name,
            role=request.role,
            attempt=request.attempt,
            container_id=f"simulated://{hashlib.sha256(identity.encode()).hexdigest()}",
            image=request.image,
            cdi_devices=request.cdi_devices,
            environment={**request.recorded_environment, **added},
            claims=request.claims,
            streak=request.streak,
            stop_signal=request.stop_signal or "SIGTERM",
            started_at=now,
            previous=known.at(now).ended() if known is not None else None,
            ends_at=None if seconds is None or request.role == "sidecar" else now + seconds,
            ends_with=code,
            ends_because=request.annotations.get(EXIT_REASON, "") if code else "",
            cpu_millis=request.limits.cpu_request_millis,
            memory_bytes=request.memory_request_bytes,
        )
        return _probed(run, request) if request.role != "init" else run

    def _keep(self, pod_uid: str, pod: _Pod) -> None:
        try:
            self._disk.write(self._path(pod_uid), msgspec.json.format(msgspec.json.encode(pod), indent=2))
        except OSError as error:
            raise ContainerFailed(f"the containers of pod {pod_uid} cannot be recorded: {error}") from error
        self._pods[pod_uid] = pod

    def _path(self, pod_uid: str) -> Path:
        return self._folder / f"{pod_uid}.json"

    def _load(self) -> dict[str, _Pod]:
        """What ran when the last agent ended. A note that cannot be read is a container that is gone."""
        self._disk.sweep(self._folder)
        pods = {}
        for name in self._disk.names(self._folder, ".json"):
            try:
                pods[name.removesuffix(".json")] = _decoder.decode(self._disk.read(self._folder / name))
            except msgspec.MsgspecError as error:
                log.error("%s cannot be read: %s; its containers are started again", self._folder / name, error)  # noqa: TRY400 - a damaged file, not a bug
        return pods


def _log_of(run: ContainerRun, *, previous: bool) -> Iterator[LogLine]:
    """What a simulated container has "printed": that it is one, and its environment as a shell's `export` shows it."""
    started = run.previous.started_at if previous and run.previous is not None else run.started_at
    texts = [f"# {run.name} is a simulated container: nothing was run. It would have been given:"]
    texts += [f'declare -x {name}="{_quoted(value)}"' for name, value in sorted(run.environment.items())]
    for text in texts:
        for line in text.split("\n"):
            yield LogLine(int(started * 1e9), "stdout", whole=True, text=line.encode())


def _quoted(value: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", value)


def _probed(run: _Run, request: ContainerRequest) -> _Run:
    """The run with what becomes of its probes. Raises: ContainerFailed."""
    failing = {name.strip() for name in request.annotations.get(FAILING_PROBES, "").split(",")} - {""}
    if wrong := sorted(failing - {"startup", "readiness", "liveness"}):
        raise ContainerFailed(f"{FAILING_PROBES} knows startup, readiness and liveness, not {', '.join(wrong)}")
    begin, probes = run.started_at, request.probes
    if probes.startup is not None:
        if "startup" in failing:
            return _killed(run, "startup", begin, probes.startup)
        begin += probes.startup.initial_delay
        run = replace(run, starts_at=begin, started=begin <= run.started_at)
    if probes.readiness is not None:
        first = max(begin, run.started_at + probes.readiness.initial_delay)
        passes = first + probes.readiness.period * (probes.readiness.successes - 1)
        run = replace(run, ready_at=None if "readiness" in failing else passes)
        if "readiness" in failing:
            run = replace(run, unhealthy="readiness", fails_at=first)
    if probes.liveness is not None and "liveness" in failing:
        return _killed(run, "liveness", begin, probes.liveness)
    return run


def _killed(run: _Run, kind: str, begin: float, probe: ProbeRequest) -> _Run:
    """By a probe that fails from the first time on, unless the container ends before."""
    at = max(begin, run.started_at + probe.initial_delay) + probe.period * (probe.failures - 1)
    if kind == "startup":
        run = replace(run, starts_at=None)
    if run.ends_at is not None and run.ends_at <= at:
        return run
    return replace(run, unhealthy=kind, fails_at=at, ends_at=at, ends_with=KILLED, ends_because="")


def _destiny(annotations: Mapping[str, str]) -> tuple[float | None, int]:
    """(seconds until a container ends by itself or None, its exit code). Raises: ContainerFailed."""
    if RUN_SECONDS not in annotations:
        return None, 0
    try:
        seconds, code = float(annotations[RUN_SECONDS]), int(annotations.get(EXIT_CODE, "0"))
    except ValueError as error:
        raise ContainerFailed(f"the annotations {RUN_SECONDS} and {EXIT_CODE} must be numbers: {error}") from error
    if not 0 <= seconds <= LONGEST_RUN or code not in range(256):
        raise ContainerFailed(f"{RUN_SECONDS} must be within {LONGEST_RUN}, {EXIT_CODE} within 255")
    return seconds, code


def create(config: AgentConfig, *, disk: Disk, clock: Callable[[], float]) -> SimulatedRuntime:
    others = [folder for folder in config.more_cdi_dirs if folder.resolve() != config.cdi_dir.resolve()]
    registry = CdiRegistry([*others, config.cdi_dir])
    return SimulatedRuntime(config.state_dir / "containers", registry, disk=disk, clock=clock)
