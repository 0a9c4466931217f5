"""The podman runtime: what is known of each pod's containers, and what is done with them.

What podman said last is kept, and podman asked again only about a container that has been started or has ended since:
a node at rest runs no command. Order of a start: folder, note, network, `podman run`; of a removal: containers,
network, folder. A crash in between leaves a note or a folder, from which the next agent goes on.
"""

from __future__ import annotations

import logging
import shlex
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from claims.kinds.pod_security import safe_sysctls
from claims.kinds.pod_streams import StreamOptions
from nodeagent.config import AgentConfig
from nodeagent.failures import ContainerFailed, StreamFailed
from nodeagent.runtimes.api_access import ApiAccess, ApiGateway
from nodeagent.runtimes.conversations import Conversation, PortConversation
from nodeagent.runtimes.image_keys import PullKeys, no_keys
from nodeagent.runtimes.logs import LogQuery, read_log
from nodeagent.runtimes.podman import program, sessions, starting
from nodeagent.runtimes.podman.actions import SOON, Actions, Prober, Stopper, Stopping
from nodeagent.runtimes.podman.confinement import Confinement, folder_of, needs_image_user, user_of
from nodeagent.runtimes.podman.folder import Backoff, ContainerNote, DiskUsage, PodFolder, volume_options
from nodeagent.runtimes.podman.groups import pod_groups
from nodeagent.runtimes.podman.kernel import (
    ExitWatcher,
    PodNetworks,
    group_usage,
    is_oom_killed,
    machine_usage,
    why_not_connected,
)
from nodeagent.runtimes.podman.processes import PodProcesses
from nodeagent.runtimes.podman.program import (
    COMMAND_SECONDS,
    Podman,
    PodmanFailed,
    Seen,
    installed_podman,
    least_oom_score,
    limits,
    lost,
    run_of,
    seconds,
    wait_for_orphans,
)
from nodeagent.runtimes.podman.starting import CdiLinks, ConfidentialVariables, Place, run_arguments
from nodeagent.runtimes.protocol import (
    PULLING,
    ContainerRequest,
    ContainerRun,
    ContainerUsage,
    Happening,
    Limits,
    PodStorage,
    logged_run,
)
from nodeagent.storage import Disk

# What the runtime knows of one pod, and the requests and runs that have no container of their own.

NETWORKS, VARIABLES = Path("/run/manciple/netns"), Path("/run/manciple/variables")
SESSIONS = Path("/run/manciple/sessions")


@dataclass(slots=True)
class KnownPod:
    """notes, runs: by container. stale: the containers that podman is to be asked about.

    processes: the first one of each running container.
    blind: those that podman takes for running and of which no process is found. starting: those that `podman run` is
    asked for now. stopping: while it is being stopped. shares: whether its containers share their processes, in a
    namespace that has been made.
    """

    uid: str
    folder: PodFolder
    notes: dict[str, ContainerNote] = field(default_factory=dict)
    runs: dict[str, ContainerRun] = field(default_factory=dict)
    processes: dict[str, int] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)
    blind: set[str] = field(default_factory=set)
    starting: set[str] = field(default_factory=set)
    stopping: Stopping | None = None
    shares: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a runtime keeps things. mark: of the agent, in the names and labels of all that is its own."""

    folder: Path
    mark: str
    node: str
    cdi_dir: Path
    confinement: Confinement
    api: ApiAccess
    networks: Path = NETWORKS


@dataclass(slots=True)
class _Image:
    """The image of one attempt at a container. pulled: whether it was tried, which is done once."""

    request: ContainerRequest
    keys: PullKeys
    pulled: bool = False

    @property
    def may_be_pulled(self) -> bool:
        return self.request.pull_policy != "Never" and not self.pulled


def unstarted(request: ContainerRequest, message: str, at: float) -> ContainerRun:
    """An attempt whose process could not be started."""
    return ContainerRun(
        name=request.name,
        role=request.role,
        attempt=request.attempt,
        container_id="",
        image=request.image,
        cdi_devices=request.cdi_devices,
        environment=request.recorded_environment,
        claims=request.claims,
        streak=request.streak,
        started_at=at,
        finished_at=at,
        exit_code=starting.START_ERROR_EXIT,
        reason="StartError",
        message=message,
    )


log = logging.getLogger(__name__)

#: How long fetching an image and starting a container may take.
RUN_SECONDS = 600.0
#: Times that a start without a CDI device changes the copies of its file: one that was left behind goes, a new one is
#: made.
LOWERINGS = 2
#: How long a postStart hook may take; a kubelet would wait for ever.
HOOK_SECONDS = 60.0
#: When a container is looked at again that podman takes for running and that has no process.
POLL_SECONDS = 1.0
#: The least time between two steps of stopping a pod.
SHORTLY = 0.05


class PodmanRuntime:
    """A `Runtime`. Reads at once what the last agent left. Raises: ContainerFailed when podman does not answer."""

    has_files = True

    def __init__(self, podman: Podman, setting: Setting, *, disk: Disk, clock: Callable[[], float] = time.time) -> None:
        self._podman = podman
        self._setting = setting
        self._disk = disk
        self._clock = clock
        self._limits = limits()
        self._least_oom_score = least_oom_score()
        self._links = CdiLinks(setting.cdi_dir, mark=setting.mark)
        self.api = setting.api
        self._networks = PodNetworks(setting.networks / setting.mark)
        self._gateway = ApiGateway(setting.api, self._networks.listen)
        self._groups = pod_groups(setting.mark)
        self._processes = PodProcesses(
            podman,
            mark=setting.mark,
            node=setting.node,
            limits=self._limits,
            least_oom_score=self._least_oom_score,
        )
        self._changed: Callable[[str], None] = lambda _pod_uid: None
        self._ended = threading.Condition()  # notified whenever a container ends
        self._lock = threading.Lock()
        self._pods: dict[str, KnownPod] = {}
        self._listener: Callable[[str, Happening], None] = lambda _uid, _happening: None
        self._exits = ExitWatcher(self._container_ended)
        self._variables = ConfidentialVariables(podman, VARIABLES, mark=setting.mark)
        self._actions = Actions(self._networks, self._id, files=SESSIONS / setting.mark)
        self._usage = DiskUsage(podman)
        self._stopper = Stopper(podman, self._actions, self._name, signal_of=self._stop_signal, happened=self._happened)
        self._prober = Prober(
            self._actions,
            changed=self._tell,
            happened=self._happened,
            kill=self._kill,
        )
        self._recover()

    @cached_property
    def version(self) -> str:
        return f"podman://{self._podman('version', '--format', '{{.Client.Version}}').strip()}"

    def subscribe(self, changed: Callable[[str], None]) -> None:
        self._changed = changed

    def listen(self, happened: Callable[[str, Happening], None]) -> None:
        self._listener = happened

    def _happened(self, pod_uid: str, happening: Happening) -> None:
        self._listener(pod_uid, happening)

    def resize(self, pod_uid: str, container: str, limits: Limits) -> None:
        pod = self._known(pod_uid)
        if pod is None or container not in pod.notes:
            raise ContainerFailed(f"container {container} is not known here")
        self._podman("update", *starting.resource_options(limits), self._name(pod.notes[container].request))

    def resize_pod(self, pod_uid: str, limits: Limits) -> None:
        pod = self._known(pod_uid)
        if pod is None or not any(note.request.pod_limits is not None for note in pod.notes.values()):
            raise ContainerFailed("its containers were started when it had no resources of its own")
        self._groups.limit(pod_uid, limits)

    def end(self, pod_uid: str, container: str, *, grace_seconds: int) -> None:
        pod = self._known(pod_uid)
        if pod is None or container not in pod.notes:
            raise ContainerFailed(f"container {container} is not known here")
        self._kill(pod.notes[container].request, grace_seconds)

    def files_folder(self, pod_uid: str, volume: str) -> Path | None:
        pod = self._known(pod_uid) or self._new(pod_uid)
        return pod.folder.files(volume)

    def pod_uids(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._pods)

    def storage(self, pod_uid: str, volumes: Collection[str], *, layers: bool) -> PodStorage:
        pod = self._known(pod_uid)
        if pod is None:
            return PodStorage()
        names = {name: self._name(note.request) if layers else "" for name, note in pod.notes.items()}
        return self._usage.measure(pod.folder, volumes, names)

    @property
    def counts_evenly(self) -> bool:
        return False

    def usage(self, pod_uid: str) -> Mapping[str, ContainerUsage]:
        pod = self._known(pod_uid)
        found = {}
        for name, process in list(pod.processes.items()) if pod is not None else ():
            run = pod.runs.get(name) if pod is not None else None
            if run is None or not run.running:
                continue
            counts = group_usage(process, run.container_id.removeprefix("podman://"))
            if counts is not None:
                cpu, memory = counts
                found[name] = ContainerUsage(
                    at=self._clock(), started_at=run.started_at, cpu_nanos=cpu, memory_bytes=memory
                )
        return found

    def machine_usage(self) -> ContainerUsage | None:
        try:
            booted, cpu, memory = machine_usage()
        except (OSError, KeyError, ValueError) as error:
            log.warning("the use of this machine cannot be measured: %s", error)
            return None
        return ContainerUsage(at=self._clock(), started_at=booted, cpu_nanos=cpu, memory_bytes=memory)

    def next_change(self, pod_uid: str) -> float | None:
        pod = self._known(pod_uid)
        if pod is None:
            return None
        times = [note.backoff.until for note in pod.notes.values() if note.backoff is not None]
        return min([*times, *([self._clock() + POLL_SECONDS] if pod.blind else [])], default=None)

    def close(self) -> None:
        """Let go of the containers, which run on: nothing is watched, probed or passed on from here any more."""
        self._gateway.stop()
        self._exits.close()
        self._prober.close()

    # What runs.

    def runs(self, pod_uid: str) -> Mapping[str, ContainerRun]:
        pod = self._known(pod_uid)
        if pod is None:
            return {}
        self._refresh(pod)
        return {name: self._prober.applied(pod_uid, run) for name, run in pod.runs.items()}

    def _refresh(self, pod: KnownPod) -> None:
        """Ask podman about the containers that are marked. Raises: ContainerFailed; they stay marked."""
        with self._lock:
            asked = frozenset((pod.stale | pod.blind) - pod.starting)
            pod.stale -= asked
        if not asked:
            return
        try:
            notes = {name: pod.notes[name] for name in asked if name in pod.notes}
            seen = self._podman.inspect(self._name(note.request) for note in notes.values())
            for note in notes.values():
                self._take(pod, note, seen.get(self._name(note.request)))
        except BaseException:
            with self._lock:
                pod.stale |= asked
            raise

    def _take(self, pod: KnownPod, note: ContainerNote, seen: Seen | None) -> None:
        """What podman knows of the container of `note` becomes what is known here."""
        name, known = note.request.name, pod.runs.get(note.request.name)
        if note.outcome is not None:
            run: ContainerRun | None = note.outcome
        elif seen is not None and seen.ran:
            run = run_of(seen)
            if run.running and not self._watch(pod, note.request, seen):
                run = lost(run, "the container and its monitor were killed", self._clock())
                self._keep(pod, replace(note, outcome=run))
            elif not run.running and self._exceeded_memory(note.request, run, seen):
                # Written down: the kernel's log forgets.
                run = replace(run, reason="OOMKilled", message=pod.folder.message(note.request, failed=True))
                self._keep(pod, replace(note, outcome=run))
            elif not run.running and not run.message:
                run = replace(run, message=pod.folder.message(note.request, failed=run.exit_code != 0))
        elif known is not None and known.attempt == note.request.attempt:
            run = lost(known, "the container is gone: somebody removed it", self._clock())
            self._keep(pod, replace(note, outcome=run))
        else:
            run = note.before  # the latest attempt has not been started
        if run is None:
            pod.runs.pop(name, None)
            return
        earlier = note.before if note.before is not None and note.before.attempt < run.attempt else None
        if seen is not None and run.running:
            pod.processes[name] = seen.state.pid
        pod.runs[name] = replace(run, previous=earlier.ended() if earlier is not None else None)
        if not run.running:
            self._prober.forget(pod.uid, name)
            pod.processes.pop(name, None)
            pod.blind.discard(name)

    def _exceeded_memory(self, request: ContainerRequest, run: ContainerRun, seen: Seen) -> bool:
        """Whether the kernel says so where podman does not."""
        return bool(request.limits.memory_bytes and run.exit_code and not run.reason and is_oom_killed(seen.id))

    def _watch(self, pod: KnownPod, request: ContainerRequest, seen: Seen) -> bool:
        """Be told of the container's end. False when podman takes it for running, twice, and no process of it is."""
        processes = (seen.state.conmon_pid, seen.state.pid)
        if not self._exits.watch(pod.uid, request.name, container_id=seen.id, processes=processes):
            if request.name in pod.blind:
                return False
            pod.blind.add(request.name)  # it may have ended since podman was asked
            return True
        pod.blind.discard(request.name)
        self._prober.watch(request, started_at=seconds(seen.state.started_at))
        return True

    def _container_ended(self, pod_uid: str, container: str) -> None:
        """Called from the thread that watches."""
        with self._lock:
            pod = self._pods.get(pod_uid)
            if pod is not None:
                pod.stale.add(container)
        with self._ended:
            self._ended.notify_all()
        self._tell(pod_uid)

    def _tell(self, pod_uid: str) -> None:
        self._changed(pod_uid)

    # Starting.

    def start(self, request: ContainerRequest, keys: PullKeys = no_keys) -> None:
        pod = self._known(request.pod_uid) or self._new(request.pod_uid)
        last = self.runs(request.pod_uid).get(request.name)
        if last is not None and last.attempt >= request.attempt:
            return
        noted = pod.notes.get(request.name)
        backoff = noted.backoff if noted is not None and noted.request.image == request.image else None
        self._refuse(request, backoff)
        before = last if last is None else replace(last, previous=None)
        self._keep(pod, ContainerNote(request=request, before=before, backoff=backoff))
        pod.folder.make(request)
        self._links.update()
        try:
            with self._being_started(pod, request.name), self._variables.given(request) as variables:
                image = _Image(request, keys)
                place = self._place(pod, request, image, variables)
                self._run(request, image, place)
        except ContainerFailed as error:
            self._start_failed(pod, request, error)
        else:
            if backoff is not None:
                self._keep(pod, replace(pod.notes[request.name], backoff=None))
            self._after_start(pod, request)
        if last is not None:
            self._discard([self._name(request, attempt=last.attempt)])

    @contextmanager
    def _being_started(self, pod: KnownPod, container: str) -> Iterator[None]:
        """podman is asked about it afterwards: who believed meanwhile that it does not run would start it again."""
        with self._lock:
            pod.stale.add(container)
            pod.starting.add(container)
        try:
            yield
        finally:
            with self._lock:
                pod.starting.discard(container)

    def _run(self, request: ContainerRequest, image: _Image, place: Place) -> None:
        """Raises: ContainerFailed."""
        tries = 0
        while True:
            try:
                self._podman(*self._monitor(request), *run_arguments(request, place), timeout=RUN_SECONDS)
            except ContainerFailed as error:
                if starting.is_absent(error) and image.may_be_pulled:
                    self._pull(image)
                elif not starting.lacks_device(error):
                    raise
                elif tries == LOWERINGS or not self._links.lower(request.cdi_devices):
                    raise ContainerFailed(f"{error}{self._links.explanation(request.cdi_devices)}") from error
                else:
                    tries += 1
            else:
                break
        if place.folder is None and not image.pulled:
            present = f'Container image "{request.image}" already present on machine and can be accessed by the pod'
            self._happened(request.pod_uid, Happening(request.name, "Pulled", present))
        self._happened(request.pod_uid, Happening(request.name, "Created", "Container created"))
        self._happened(request.pod_uid, Happening(request.name, "Started", "Container started"))

    def _monitor(self, request: ContainerRequest) -> tuple[str, ...]:
        """Options of podman. Its monitor ends the stdin of a container with that of the first session, unless told not
        to, for which podman has no option. Raises: ContainerFailed.
        """
        leaves_open = request.stdin and not request.tty and not request.stdin_once
        return ("--conmon", str(self._patient_monitor)) if leaves_open else ()

    @cached_property
    def _patient_monitor(self) -> Path:
        """Raises: ContainerFailed."""
        path = self._setting.folder.with_name("monitor")
        monitor = self._podman("info", "--format", "{{.Host.Conmon.Path}}").strip()
        script = f'#!/bin/sh\nexec {shlex.quote(monitor)} --leave-stdin-open "$@"\n'
        try:
            self._disk.write(path, script.encode(), mode=0o700)
        except OSError as error:
            raise ContainerFailed(f"{path} cannot be written: {error}") from error
        return path

    def _pull(self, image: _Image) -> None:
        """With each key that fits in turn, and at last with podman's own. Raises: ContainerFailed."""
        request, began = image.request, time.monotonic()
        image.pulled = True
        self._happened(request.pod_uid, Happening(request.name, PULLING, f'Pulling image "{request.image}"'))
        first: ContainerFailed | None = None
        for key in (*image.keys(), None):
            try:
                with self._variables.key(request, key) as options:
                    self._podman("pull", "--quiet", *options, "--", request.image, timeout=RUN_SECONDS)
            except ContainerFailed as error:
                first = first or error
            else:
                size = self._podman("image", "inspect", "--format", "{{.Size}}", "--", request.image).strip()
                took = f"{time.monotonic() - began:.3g}s"
                message = f'Successfully pulled image "{request.image}" in {took} ({took} including waiting).'
                happening = Happening(request.name, "Pulled", f"{message} Image size: {size} bytes.")
                self._happened(request.pod_uid, happening)
                return
        if first is not None:
            raise starting.not_pulled(first, request)

    def _refuse(self, request: ContainerRequest, backoff: Backoff | None) -> None:
        """Raises: ContainerFailed for what must not be started now."""
        if request.unserved:
            raise ContainerFailed("; ".join(request.unserved), reason="CreateContainerConfigError")
        if backoff is not None and self._clock() < backoff.until:
            raise starting.refusal(backoff, request)
        self._setting.confinement.refuse(request)

    def _image_user(self, image: _Image) -> str:
        """The user that an image names, once it is here. Raises: ContainerFailed."""
        asked = ("image", "inspect", "--format", "{{.User}}", "--", image.request.image)
        try:
            return self._podman(*asked).strip()
        except PodmanFailed:
            if not image.may_be_pulled:
                raise
        self._pull(image)
        return self._podman(*asked).strip()

    def _place(self, pod: KnownPod, request: ContainerRequest, image: _Image, variables: tuple[str, ...]) -> Place:
        confinement, security = self._setting.confinement, request.security
        folder = folder_of(request.image, confinement.rootfs)
        if folder is None and request.pull_policy == "Always":
            self._pull(image)
        asked = folder is None and needs_image_user(security)
        user = user_of(security, of_image=self._image_user(image) if asked else "")
        network = None
        if not request.host_network:
            network = self._networks.create(request.pod_uid, request.address)
            self._gateway.open(request.pod_uid)
        group = self._group(pod, request)
        return Place(
            name=self._name(request),
            labels=program.labels_of(request, mark=self._setting.mark, node=self._setting.node),
            log_file=pod.folder.log_file(request.name, request.attempt),
            message_file=pod.folder.message_file(request.name, request.attempt),
            hosts_file=pod.folder.hosts_file,
            resolver_file=pod.folder.resolver_file if request.resolver is not None else None,
            network=network,
            processes=self._namespace(pod, request, group),
            group=group,
            user=user,
            folder=folder,
            volumes=tuple(volume_options(pod.folder, request)),
            variables=variables,
            limits=self._limits,
            least_oom_score=self._least_oom_score,
            confinement=tuple(confinement.options(request)),
        )

    def _group(self, pod: KnownPod, request: ContainerRequest) -> str:
        """Around the container's; "" for podman's own. Raises: ContainerFailed."""
        if request.pod_limits is None:
            return ""
        if not self._running(pod) or pod.uid not in self._groups.pod_uids():  # else resizes set its limits
            self._groups.limit(pod.uid, request.pod_limits)
        return self._groups.name(pod.uid)

    def _namespace(self, pod: KnownPod, request: ContainerRequest, group: str) -> Path | None:
        """Of the processes that the container sees; None for its own. Raises: ContainerFailed."""
        if request.share_processes:
            pod.shares = True
            return self._processes.create(pod.uid, pod.folder.pause_root, group)
        return self._processes_of(request.pod_uid, request.target) if request.target else None

    def _processes_of(self, pod_uid: str, container: str) -> Path:
        """Their namespace, by its file: podman keeps a container whose name another one was given. Raises:
        ContainerFailed.
        """
        pod, run = self._known(pod_uid), self.runs(pod_uid).get(container)
        if pod is not None and run is not None and run.running:
            name = self._name(pod.notes[container].request)
            seen = self._podman.inspect([name]).get(name)
            if seen is not None and seen.running:
                return Path(f"/proc/{seen.state.pid}/ns/pid")
        raise ContainerFailed(f"unable to find target container {container}: it does not run")

    def _start_failed(self, pod: KnownPod, request: ContainerRequest, error: ContainerFailed) -> None:
        """A process that cannot be started is an attempt that ended; anything else is tried again as it is."""
        if starting.is_start_error(error):
            self._happened(request.pod_uid, Happening(request.name, "Failed", f"Error: {error}", is_warning=True))
            outcome = unstarted(request, str(error), self._clock())
            self._keep(pod, replace(pod.notes[request.name], outcome=outcome))
            return
        failure = starting.explained(error, request)
        if failure.reason == "ErrImagePull":
            note = pod.notes[request.name]
            backoff = starting.next_backoff(note.backoff, str(failure), now=self._clock())
            self._keep(pod, replace(note, backoff=backoff))
        raise failure

    def _after_start(self, pod: KnownPod, request: ContainerRequest) -> None:
        if request.post_start is None:
            return
        if trouble := self._actions.perform(request.post_start, request, timeout=HOOK_SECONDS):
            log.warning("pod %s, container %s: PostStartHook failed: %s; it is killed", pod.uid, request.name, trouble)
            # As a kubelet, without what the hook said: it may hold secrets.
            for happening in (
                Happening(request.name, "FailedPostStartHook", "PostStartHook failed", is_warning=True),
                Happening(request.name, "Killing", "FailedPostStartHook"),
            ):
                self._happened(request.pod_uid, happening)
            self._kill(request, 0)

    # Stopping.

    def stop(self, pod_uid: str, *, grace_seconds: int) -> float | None:
        pod = self._known(pod_uid)
        if pod is None:
            return None
        deadline = time.monotonic() + grace_seconds
        if pod.stopping is None:
            pod.stopping = Stopping(deadline)
        pod.stopping.deadline = min(pod.stopping.deadline, deadline)
        self._prober.forget_pod(pod_uid)
        until = time.monotonic() + SOON
        while running := self._running(pod):
            self._stopper.advance(pod.stopping, running)
            with self._ended:
                if not pod.stale:
                    self._ended.wait(min(SOON, max(SHORTLY, pod.stopping.look_in())))
            if time.monotonic() > until and (running := self._running(pod)):
                if pod.stopping.killed:
                    pod.stale |= {request.name for request in running}
                return max(SHORTLY, pod.stopping.look_in())
        if pod.shares:
            self._discard([self._processes.name(pod_uid)])
            pod.shares = False
        pod.stopping = None
        return None

    def _running(self, pod: KnownPod) -> Sequence[ContainerRequest]:
        self._refresh(pod)
        return [pod.notes[name].request for name, run in pod.runs.items() if run.running]

    def _kill(self, request: ContainerRequest, grace_seconds: int) -> None:
        """Stop one container, after a failed hook or probe; whether it is started again is the agent's to say."""
        pod = self._known(request.pod_uid)
        stopping = Stopping(time.monotonic() + grace_seconds)
        while pod is not None and pod.stopping is None and self._still_runs(request):
            self._stopper.advance(stopping, [request])
            with self._ended:
                self._ended.wait(min(SOON, max(SHORTLY, stopping.look_in())))

    def _stop_signal(self, request: ContainerRequest) -> str:
        """The manifest's, or the image's."""
        pod = self._known(request.pod_uid)
        run = pod.runs.get(request.name) if pod is not None else None
        return request.stop_signal or (run.stop_signal if run is not None else "") or "SIGTERM"

    def _still_runs(self, request: ContainerRequest) -> bool:
        seen = self._podman.inspect([self._name(request)]).get(self._name(request))
        return seen is not None and seen.running

    def remove(self, pod_uid: str) -> None:
        pod = self._known(pod_uid)
        if pod is None:
            return
        self._prober.forget_pod(pod_uid)
        own = [name for note in pod.notes.values() for name in self._names(note)]
        self._discard([*own, *([self._processes.name(pod_uid)] if pod.shares else [])])
        self._groups.delete(pod_uid)
        self._gateway.close(pod_uid)
        try:
            self._networks.delete(pod_uid)
        except OSError as error:
            raise ContainerFailed(f"the network of pod {pod_uid} cannot be removed: {error}") from error
        pod.folder.remove()
        self._links.update()
        with self._lock:
            self._pods.pop(pod_uid, None)

    # Logs.

    def logs(self, pod_uid: str, container: str, query: LogQuery, *, stop: threading.Event) -> Iterator[bytes]:
        run = logged_run(self.runs(pod_uid), pod_uid, container, query)
        attempt = run.attempt - 1 if query.previous else run.attempt
        folder = PodFolder(self._setting.folder / pod_uid, self._disk)

        def running() -> bool:
            now = self.runs(pod_uid).get(container)
            return now is not None and now.attempt == attempt and now.running

        return read_log(folder.log_file(container, attempt), query, running=running, stop=stop)

    # Sessions.

    def execute(self, pod_uid: str, container: str, options: StreamOptions) -> Conversation:
        self._running_request(pod_uid, container)
        run = self.runs(pod_uid)[container]
        folder = SESSIONS / self._setting.mark
        return sessions.execute(run.container_id.removeprefix("podman://"), options, folder=folder)

    def attach(self, pod_uid: str, container: str, options: StreamOptions) -> Conversation:
        request = self._running_request(pod_uid, container)
        if options.tty and not request.tty:
            raise StreamFailed(f"container {container} has no terminal")
        ends_stdin = request.stdin_once and not request.tty
        return sessions.attach(self._podman, self._name(request), options, ends_stdin=ends_stdin)

    def connect(self, pod_uid: str, port: int) -> Conversation:
        pod = self._known(pod_uid)
        if pod is None or not any(run.running for run in self.runs(pod_uid).values()):
            raise StreamFailed("the pod does not run")
        in_host = any(note.request.host_network for note in pod.notes.values())
        try:
            return PortConversation(self._networks.connect_local("" if in_host else pod_uid, port))
        except OSError as error:
            why = why_not_connected(error)
            raise StreamFailed(f"failed to connect to localhost:{port} inside the pod: {why}") from error

    def _running_request(self, pod_uid: str, container: str) -> ContainerRequest:
        pod, run = self._known(pod_uid), self.runs(pod_uid).get(container)
        if pod is None or run is None or not run.running:
            raise StreamFailed(f'container not found ("{container}")')
        return pod.notes[container].request

    # What the last agent left.

    def _recover(self) -> None:
        wait_for_orphans(self._setting.mark)
        sessions.recover(SESSIONS / self._setting.mark)
        self._variables.recover()
        for path in sorted(self._setting.folder.glob("*")):
            self._new(path.name)
        for uid in self._groups.pod_uids():
            if self._known(uid) is None:
                self._new(uid)
        for uid in self._networks.pod_uids():
            if self._known(uid) is None:
                self._new(uid)
            self._gateway.open(uid)
        found = self._podman.labelled(f"{program.AGENT}={self._setting.mark}")
        for seen in found.values():
            asked = program.request_of(seen.labels)
            pod = self._known(asked.pod_uid) or self._new(asked.pod_uid)
            if seen.name == self._processes.name(pod.uid):
                pod.shares = True
                continue
            note = pod.notes.get(asked.name)
            if note is None or (note.request.attempt < asked.attempt and note.outcome is None):
                pod.notes[asked.name] = ContainerNote(request=asked)
        expected = {self._name(note.request) for pod in self._pods.values() for note in pod.notes.values()}
        expected |= {self._processes.name(pod.uid) for pod in self._pods.values() if pod.shares}
        self._discard(sorted(found.keys() - expected))
        for pod in self._pods.values():
            for note in list(pod.notes.values()):
                self._take(pod, note, found.get(self._name(note.request)))
        self._links.update()

    # Small change.

    def _known(self, pod_uid: str) -> KnownPod | None:
        with self._lock:
            return self._pods.get(pod_uid)

    def _new(self, pod_uid: str) -> KnownPod:
        folder = PodFolder(self._setting.folder / pod_uid, self._disk)
        pod = KnownPod(pod_uid, folder, notes=folder.notes())
        with self._lock:
            return self._pods.setdefault(pod_uid, pod)

    def _keep(self, pod: KnownPod, note: ContainerNote) -> None:
        pod.folder.keep(note)
        pod.notes[note.request.name] = note

    def _discard(self, names: Sequence[str]) -> None:
        """Remove containers, running or not; those that are gone are fine."""
        if names:
            self._podman("rm", "--force", "--time", "0", "--volumes", "--ignore", *names, timeout=2 * COMMAND_SECONDS)

    def _names(self, note: ContainerNote) -> Iterator[str]:
        """Of the latest attempt, and of the one before it."""
        yield self._name(note.request)
        if note.before is not None:
            yield self._name(note.request, attempt=note.before.attempt)

    def _id(self, request: ContainerRequest) -> str:
        """Of the container that runs for this attempt. Raises: ContainerFailed."""
        pod = self._known(request.pod_uid)
        run = pod.runs.get(request.name) if pod is not None else None
        if run is not None and run.attempt == request.attempt:
            return run.container_id.removeprefix("podman://")
        seen = self._podman.inspect([self._name(request)]).get(self._name(request))
        if seen is None:
            raise ContainerFailed(f"container {request.name} is gone")
        return seen.id

    def _name(self, request: ContainerRequest, *, attempt: int | None = None) -> str:
        number = request.attempt if attempt is None else attempt
        return program.container_name(self._setting.mark, request.pod_uid, request.name, number)


def create(config: AgentConfig, *, disk: Disk, clock: Callable[[], float]) -> PodmanRuntime:
    """Raises: ValueError saying what the machine lacks, or what podman says is wrong with it."""
    podman = installed_podman()
    setting = Setting(
        folder=config.state_dir / "podman",
        mark=program.agent_mark(config.node_name, config.state_dir),
        node=config.node_name,
        api=ApiAccess.of(config.server),
        cdi_dir=config.cdi_dir,
        confinement=Confinement(
            rootfs=config.rootfs_dirs,
            seccomp=config.state_dir / "seccomp",
            pids=config.pids_limit,
            sysctls=safe_sysctls() | set(config.unsafe_sysctls),
        ),
    )
    try:
        return PodmanRuntime(podman, setting, disk=disk, clock=clock)
    except ContainerFailed as error:
        raise ValueError(f"podman does not work on this machine: {error}") from error
