"""What is done with running containers: hooks and probes (a command, a connection, a GET, a gRPC call, a pause), and
stopping.

Source: kubernetes pkg/probe (a GET succeeds with a status from 200 to 399; pkg/probe/grpc); grpc.health.v1.Health.
"""

from __future__ import annotations

import heapq
import http.client
import itertools
import json
import logging
import os
import selectors
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urljoin, urlsplit, urlunsplit

from msgspec.structs import replace

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman.kernel import PodNetworks, why_not_connected
from nodeagent.runtimes.podman.program import Podman, PodmanTimedOut, run_bounded, runc_complaint
from nodeagent.runtimes.protocol import Action, ContainerRequest, ContainerRun, Happening, ProbeRequest, killing

log = logging.getLogger(__name__)

_OK = range(200, 400)
#: How many answers one GET may take, as in Go, and the least time for one.
_REDIRECTS, _LEAST_SECONDS = 10, 0.05
#: How much of an answer is shown, and how much of what a command prints is read. Source: kubernetes pkg/probe/exec.
_SHOWN, _EXEC_BYTES = 200, 10 * 1024


class NotPerformed(Exception):
    """An action that could not be tried: it says nothing about the container."""


class Actions:
    """Performs them for the containers of one agent.

    id_of: the container's id. files: a directory in memory, for the files of commands. A command is started by runc
    itself, which takes a quarter of podman's time and tells which process to kill when the time is over.
    """

    def __init__(
        self,
        networks: PodNetworks,
        id_of: Callable[[ContainerRequest], str],
        *,
        files: Path,
        runc: str = "runc",
    ) -> None:
        self._networks = networks
        self._id_of = id_of
        self._files = files
        self._runc = runc
        self._numbers = itertools.count()

    def perform(self, action: Action, request: ContainerRequest, *, timeout: float) -> str:
        """Blocks; "" when it went well, else what went wrong."""
        try:
            return self.attempt(action, request, timeout=timeout)
        except NotPerformed as error:
            return str(error)

    def attempt(self, action: Action, request: ContainerRequest, *, timeout: float) -> str:
        """As `perform`. Raises: NotPerformed."""
        if action.unknown_port:
            raise NotPerformed(f"port {action.unknown_port} not found")
        try:
            if action.command:
                return self._execute(action, request, timeout)
            if action.port and action.path:
                return self._get(action, request, timeout)
            if action.port and action.service is not None:
                return self._ask(action, request, timeout)
            if action.port:
                self._connect(action, request, timeout).close()
            elif action.seconds:
                threading.Event().wait(min(action.seconds, timeout))
        except ContainerFailed as error:
            raise NotPerformed(str(error)) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            scheme = "https" if action.tls else "http"
            place = f"{action.host}:{action.port}"
            asked = f'Get "{scheme}://{place}{action.path}": ' if action.path else ""
            why = f"dial tcp {place}: {why_not_connected(error)}" if isinstance(error, OSError) else str(error)
            return f"{asked}{why or type(error).__name__}"
        return ""

    def _execute(self, action: Action, request: ContainerRequest, timeout: float) -> str:
        self._files.mkdir(mode=0o700, parents=True, exist_ok=True)
        process = self._files / f"action-{next(self._numbers)}.pid"
        log = process.with_suffix(".log")
        options = ("--log", str(log), "--log-format", "json")
        words = (self._runc, *options, "exec", "--pid-file", str(process), self._id_of(request), *action.command)
        try:
            done = run_bounded(words, timeout=timeout, keep=_EXEC_BYTES)
            complaint = "" if process.exists() else runc_complaint(log)
        except subprocess.TimeoutExpired:
            with suppress(OSError, ValueError):
                os.killpg(int(process.read_text()), signal.SIGKILL)  # runc makes each command the leader of a session
            return f"command timed out: {json.dumps(' '.join(action.command))} timed out after {timeout:g}s"
        finally:
            process.unlink(missing_ok=True)
            log.unlink(missing_ok=True)
        if done.returncode == 0:
            return ""
        text = (done.stdout + done.stderr)[:_EXEC_BYTES].decode(errors="replace").strip()
        if complaint:
            raise NotPerformed(complaint)
        return text or f"command exited with status {done.returncode}"

    def _connect(self, action: Action, request: ContainerRequest, timeout: float) -> socket.socket:
        address = (action.host, action.port)
        if request.host_network:
            return socket.create_connection(address, timeout=timeout)
        return self._networks.connect(request.pod_uid, address, timeout=timeout)

    def _get(self, action: Action, request: ContainerRequest, timeout: float) -> str:
        """Follows the answers that lead elsewhere on the same host; another host is not asked, and that is well."""
        deadline = time.monotonic() + timeout
        for _ in range(_REDIRECTS):
            answer, body = self._answer(action, request, max(_LEAST_SECONDS, deadline - time.monotonic()))
            following = _redirected(action, answer)
            if following is None:
                return "" if answer.status in _OK else f"HTTP probe failed with statuscode: {answer.status}: {body}"
            action = following
        return f"stopped after {_REDIRECTS} redirects"

    def _answer(
        self, action: Action, request: ContainerRequest, timeout: float
    ) -> tuple[http.client.HTTPResponse, str]:
        """With the beginning of its body."""
        with self._connect(action, request, timeout) as plain, _cut_off(plain, timeout):
            sock = _unverified().wrap_socket(plain) if action.tls else plain
            connection = http.client.HTTPConnection(action.host, action.port, timeout=timeout)
            connection.sock = sock
            connection.request("GET", action.path, headers={"User-Agent": "manciple-probe", **dict(action.headers)})
            answer = connection.getresponse()
            body = answer.read(_SHOWN).decode(errors="replace")
            sock.close()
        return answer, body

    def _ask(self, action: Action, request: ContainerRequest, timeout: float) -> str:
        """Source: grpc.health.v1 HealthCheckRequest (1: service), HealthCheckResponse (1: status)."""
        import grpc  # noqa: PLC0415 - large; few pods have such probes

        asked = (action.service or "").encode()
        with self._connect(action, request, timeout) as inside, _reachable(inside) as address:
            options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
            with grpc.insecure_channel(address, options=[*options, ("grpc.default_authority", action.host)]) as channel:
                check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
                try:
                    answer = check(b"\n" + _varint(len(asked)) + asked if asked else b"", timeout=timeout)
                except grpc.RpcError as error:
                    return _of_rpc(error, timeout)
        status = answer[1] if len(answer) > 1 and answer[:1] == b"\x08" else 0
        named = dict(enumerate(_HEALTH)).get(status, str(status))
        return "" if named == "SERVING" else f'service unhealthy (responded with "{named}")'


def _redirected(action: Action, answer: http.client.HTTPResponse) -> Action | None:
    """Where an answer leads on the same host. Raises: ValueError. Source: kubernetes pkg/probe/http/http.go."""
    location = answer.getheader("Location", "")
    if answer.status not in (301, 302, 303, 307, 308) or not location:
        return None
    scheme = "https" if action.tls else "http"
    url = urlsplit(urljoin(f"{scheme}://{action.host}:{action.port}{action.path}", location))
    if url.hostname != action.host or url.scheme not in _PORTS:
        return None
    path = urlunsplit(("", "", url.path or "/", url.query, ""))
    return replace(action, port=url.port or _PORTS[url.scheme], tls=url.scheme == "https", path=path)


_PORTS = {"http": 80, "https": 443}
_HEALTH = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


def _of_rpc(error: Any, timeout: float) -> str:
    if error.code().name == "DEADLINE_EXCEEDED":
        return f"timeout: health rpc did not complete within {timeout:g}s"
    if error.code().name == "UNIMPLEMENTED":
        protocol = "this server does not implement the grpc health protocol (grpc.health.v1.Health)"
        return f"error: {protocol}: {error.details()}"
    return f"error: health rpc probe failed: {error.code().name}: {error.details()}"


def _varint(number: int) -> bytes:
    """A length in protobuf."""
    head = b""
    while number > _SEVEN_BITS:
        head += bytes([number & _SEVEN_BITS | 0x80])
        number >>= 7
    return head + bytes([number])


_SEVEN_BITS = 0x7F


@contextmanager
def _reachable(inside: socket.socket) -> Iterator[str]:
    """An address under which gRPC, which opens its connections itself, reaches what `inside` is connected to."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("")  # a free abstract name
        listening.listen(1)
        passing = threading.Thread(target=_pass_on, args=(listening, inside), name="grpc-probe", daemon=True)
        passing.start()
        try:
            yield f"unix-abstract:{listening.getsockname()[1:].decode()}"
        finally:
            _shut_down(listening)
            _shut_down(inside)
            passing.join()


def _pass_on(listening: socket.socket, inside: socket.socket) -> None:
    """Between the first that connects and `inside`, until one of them ends."""
    with suppress(OSError):
        outside, _ = listening.accept()
        with outside, selectors.DefaultSelector() as selector:
            selector.register(outside, selectors.EVENT_READ, inside)
            selector.register(inside, selectors.EVENT_READ, outside)
            while True:
                for key, _events in selector.select():
                    if not (piece := cast("socket.socket", key.fileobj).recv(65536)):
                        return
                    key.data.sendall(piece)


@contextmanager
def _cut_off(connection: socket.socket, seconds: float) -> Iterator[None]:
    """End the connection after so long: a container that answers a byte at a time never lets a read time out."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        timer = threading.Timer(seconds, _shut_down, (same,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _unverified() -> ssl.SSLContext:
    """A probe asks whether the container answers, not who it is; a kubelet does the same."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


# Stops the containers of a pod, a step at a time, so that nobody has to wait where others could be served. The main
# containers first, then the sidecars from the last to the first, as KEP-753 has it: each container's preStop hook, then
# its stop signal; what has not ended when the grace period is over is killed.

#: How often a step is taken while a hook runs or a killed container is on its way out.
SOON = 0.5
#: What a container has left after its preStop hook, however long that took.
LEAST_SECONDS = 2.0
#: A container that has been killed and still runs after so long is given up, with an error.
KILL_SECONDS = 20.0


@dataclass(slots=True)
class Stopping:
    """How far stopping one pod, or one container, has come. deadline, spared_until: monotonic seconds."""

    deadline: float
    spared_until: dict[str, float] = field(default_factory=dict)
    hooks: dict[str, threading.Thread] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    killed: set[str] = field(default_factory=set)

    def look_in(self) -> float:
        """Seconds until the next step is due: after a hook, also one that has just ended, that is the signal."""
        if self.killed or not self.hooks.keys() <= self.asked:
            return SOON
        return max(0.0, max([self.deadline, *self.spared_until.values()]) - time.monotonic())


class Stopper:
    """name_of: the container's name in podman. signal_of: what stops it. happened: called with a pod's uid."""

    def __init__(
        self,
        podman: Podman,
        actions: Actions,
        name_of: Callable[[ContainerRequest], str],
        *,
        signal_of: Callable[[ContainerRequest], str],
        happened: Callable[[str, Happening], None],
    ) -> None:
        self._podman = podman
        self._actions = actions
        self._name_of = name_of
        self._signal_of = signal_of
        self._happened = happened

    def advance(self, stopping: Stopping, running: Sequence[ContainerRequest]) -> None:
        """Take the next step with the containers that still run. Raises: ContainerFailed."""
        late = time.monotonic() - stopping.deadline
        if late > KILL_SECONDS:
            names = ", ".join(request.name for request in running)
            raise ContainerFailed(f"killed {late:.0f} s ago and still running: {names}")
        if late >= 0:
            self._send(stopping, [one for one in running if one.name in stopping.hooks.keys() - stopping.asked])
            now = time.monotonic()
            self._kill(stopping, [one for one in running if stopping.spared_until.get(one.name, now) <= now])
        else:
            self._ask(stopping, _next_to_stop(running))

    def _kill(self, stopping: Stopping, running: Sequence[ContainerRequest]) -> None:
        due = [request for request in running if request.name not in stopping.killed]
        self._signal("KILL", due)
        stopping.killed |= {request.name for request in due}

    def _ask(self, stopping: Stopping, group: Sequence[ContainerRequest]) -> None:
        self._send(stopping, [r for r in group if r.name not in stopping.asked and self._hook_is_over(stopping, r)])

    def _send(self, stopping: Stopping, due: Sequence[ContainerRequest]) -> None:
        """The signal that stops each. As a kubelet: a hook that took all the time leaves its container a moment."""
        for sent in sorted({self._signal_of(request) for request in due}):
            self._signal(sent, [request for request in due if self._signal_of(request) == sent])
        stopping.asked |= {request.name for request in due}
        until = time.monotonic() + LEAST_SECONDS
        stopping.spared_until |= {request.name: until for request in due if request.name in stopping.hooks}

    def _hook_is_over(self, stopping: Stopping, request: ContainerRequest) -> bool:
        """Starts the preStop hook at the first call. A hook that fails stops nothing."""
        action = request.pre_stop
        if action is None:
            return True
        hook = stopping.hooks.get(request.name)
        if hook is None:
            left = max(1.0, stopping.deadline - time.monotonic())
            hook = threading.Thread(target=self._run_hook, args=(action, request, left), name="pre-stop", daemon=True)
            stopping.hooks[request.name] = hook
            hook.start()
            hook.join(SOON)
        return not hook.is_alive()

    def _run_hook(self, action: Action, request: ContainerRequest, timeout: float) -> None:
        if trouble := self._actions.perform(action, request, timeout=timeout):
            log.warning("pod %s, container %s: PreStopHook failed: %s", request.pod, request.name, trouble)
            failed = Happening(request.name, "FailedPreStopHook", "PreStopHook failed", is_warning=True)
            self._happened(request.pod_uid, failed)

    def _signal(self, sent: str, requests: Iterable[ContainerRequest]) -> None:
        """podman complains of those that have ended meanwhile; whether one has is asked afterwards anyway."""
        names = [self._name_of(request) for request in requests]
        if names:
            try:
                self._podman("kill", "--signal", sent.removeprefix("SIG"), *names)
            except PodmanTimedOut:
                raise
            except ContainerFailed:
                log.debug("not all of %s could be sent %s", names, sent)


def _next_to_stop(running: Sequence[ContainerRequest]) -> Sequence[ContainerRequest]:
    """The main and init containers, or when none is left the last sidecar."""
    first = [request for request in running if request.role != "sidecar"]
    return first or running[-1:]


# Asks running containers how they are: startup, readiness and liveness probes.
#
# Until the startup probe has succeeded the others do not run; a container is ready from the first success of its
# readiness probe; one whose startup or liveness probe fails too often is stopped, and its restart policy decides.
# Source: kubernetes pkg/kubelet/prober.

Kind = Literal["startup", "readiness", "liveness"]

#: How many probes run at once.
WORKERS = 4


@dataclass(slots=True)
class _Check:
    """One probe of one attempt. passed: by the thresholds; successes, failures: in a row."""

    request: ContainerRequest
    kind: Kind
    probe: ProbeRequest
    passed: bool
    successes: int = 0
    failures: int = 0

    def count(self, *, well: bool) -> None:
        self.successes, self.failures = (self.successes + 1, 0) if well else (0, self.failures + 1)
        if self.successes >= self.probe.successes:
            self.passed = True
        elif self.failures >= self.probe.failures:
            self.passed = False

    @property
    def fatal(self) -> bool:
        return self.kind != "readiness" and self.failures >= self.probe.failures


@dataclass(slots=True)
class _Watched:
    """The probes of one attempt at a container."""

    attempt: int
    checks: dict[Kind, _Check] = field(default_factory=dict)

    @property
    def started(self) -> bool:
        return "startup" not in self.checks or self.checks["startup"].passed

    @property
    def ready(self) -> bool:
        return self.started and ("readiness" not in self.checks or self.checks["readiness"].passed)

    def is_due(self, check: _Check) -> bool:
        return not check.passed if check.kind == "startup" else self.started


class Prober:
    """Thread-safe; without a probe to run it has no thread.

    changed: with a pod's uid. happened: with that and what its owner should know. kill: stop with grace seconds.
    """

    def __init__(
        self,
        actions: Actions,
        *,
        changed: Callable[[str], None],
        happened: Callable[[str, Happening], None],
        kill: Callable[[ContainerRequest, int], None],
    ) -> None:
        self._actions = actions
        self._changed = changed
        self._happened = happened
        self._kill = kill
        self._condition = threading.Condition()
        self._watched: dict[tuple[str, str], _Watched] = {}
        self._due: list[tuple[float, int, _Check]] = []  # a heap; the number breaks ties
        self._ticket = itertools.count()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def watch(self, request: ContainerRequest, *, started_at: float) -> None:
        """Probe the container; one that is watched already goes on as it is. started_at: POSIX seconds."""
        probes, key = request.probes, (request.pod_uid, request.name)
        wanted: dict[Kind, ProbeRequest | None] = {
            "startup": probes.startup,
            "readiness": probes.readiness,
            "liveness": probes.liveness,
        }
        with self._condition:
            known = self._watched.get(key)
            if (known is not None and known.attempt == request.attempt) or not any(wanted.values()):
                return
            watched = self._watched[key] = _Watched(request.attempt)
            age = time.time() - started_at
            for kind, probe in wanted.items():
                if probe is not None:
                    check = watched.checks[kind] = _Check(request, kind, probe, passed=kind == "liveness")
                    self._schedule(check, max(0.0, probe.initial_delay - age))

    def applied(self, pod_uid: str, run: ContainerRun) -> ContainerRun:
        """`run` with what its probes say."""
        with self._condition:
            watched = self._watched.get((pod_uid, run.name))
            if watched is None or watched.attempt != run.attempt or not run.running:
                return run
            return replace(run, started=watched.started, ready=watched.ready)

    def forget(self, pod_uid: str, container: str) -> None:
        with self._condition:
            self._watched.pop((pod_uid, container), None)

    def forget_pod(self, pod_uid: str) -> None:
        """A pod that is being stopped is not asked any more."""
        with self._condition:
            for key in [key for key in self._watched if key[0] == pod_uid]:
                del self._watched[key]

    def _schedule(self, check: _Check, seconds: float) -> None:
        """With the lock held."""
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._ticket), check))
        if not self._threads:
            self._threads = [threading.Thread(target=self._run, name="probe", daemon=True) for _ in range(WORKERS)]
            for thread in self._threads:
                thread.start()
        self._condition.notify()

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._watched.clear()
            self._condition.notify_all()

    def _run(self) -> None:
        while (check := self._next()) is not None:
            self._probe_and_go_on(check)

    def _next(self) -> _Check | None:
        """The next probe when it is due; None when there will be none."""
        with self._condition:
            while not self._closed:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._condition.wait(wait)
            return None

    def _probe_and_go_on(self, check: _Check) -> None:
        try:
            killed = self._probe(check)
        except Exception:  # a fault in one probe must not stop the others
            log.exception("the %s probe of container %s", check.kind, check.request.name)
            killed = False
        with self._condition:
            if not killed and self._of(check) is not None:
                self._schedule(check, check.probe.period)

    def _probe(self, check: _Check) -> bool:
        """Whether the container was killed by it."""
        watched = self._of(check)
        if watched is None or not watched.is_due(check):
            return False
        request = check.request
        try:
            trouble = self._actions.attempt(check.probe.action, request, timeout=check.probe.timeout)
        except NotPerformed as error:  # as a kubelet: the container is what it was
            message = f"{check.kind.capitalize()} probe errored: {error}"
            self._happened(request.pod_uid, Happening(request.name, "Unhealthy", message, is_warning=True))
            self._changed(request.pod_uid)
            return False
        before = (watched.started, watched.ready)
        check.count(well=not trouble)
        if trouble:
            log.info("pod %s, container %s: %s probe failed: %s", request.pod, request.name, check.kind, trouble)
            message = f"{check.kind.capitalize()} probe failed: {trouble}"
            self._happened(request.pod_uid, Happening(request.name, "Unhealthy", message, is_warning=True))
        if check.fatal:
            self._happened(request.pod_uid, killing(request.name, check.kind))
            grace = request.grace_seconds if check.probe.grace_seconds is None else check.probe.grace_seconds
            self._kill(request, grace)
            return True
        if trouble or before != (watched.started, watched.ready):
            self._changed(request.pod_uid)
        return False

    def _of(self, check: _Check) -> _Watched | None:
        """What the check belongs to; None when that is no longer watched."""
        watched = self._watched.get((check.request.pod_uid, check.request.name))
        return watched if watched is not None and watched.checks.get(check.kind) is check else None
