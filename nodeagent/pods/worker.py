"""Brings a pod's containers, claims and status to the desired state, however they came to differ from it.

`PodWorker.sync` runs whenever something about the pod may have changed, and works out from the API's pod, the
checkpoint and the runtime what to do:

    the pod is        containers    claims                      then
    gone              stop          unprepare                   forget it
    being deleted     stop          unprepare                   remove it from the API
    finished          stop          unprepare                   keep it
    ending            stop          unprepare                   report how it ended
    to run            start         prepare before the first    report its status

Claims are unprepared before the pod is reported as ended or removed: only then may other pods get its devices.

Init containers run one after the other, each to its end; sidecars (init containers that always restart) keep running
beside them, and the next one starts once the sidecar's startup probe has succeeded; then the main containers run side
by side. A container that ends is restarted if its rules or policy say so, after a delay that doubles. The pod has ended
when no main container runs or will be restarted.

The status has only what the node knows: other conditions (PodScheduled and the like), the claims generated for the pod
and the quality of service stay unchanged. A condition's time changes only with its status.

Source: KEP-753 (sidecars), KEP-1287 and KEP-5419 (resizing), KEP-5307 (restart rules), kubernetes
pkg/kubelet/kuberuntime/kuberuntime_container.go, pkg/kubelet/kubelet_pods.go and pkg/kubelet/status/generate.go.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as changed_to
from functools import partial
from typing import Literal

from msgspec.structs import replace

from claims.kinds.containers import Container, ResourceRequirements
from claims.kinds.pods import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    HostIP,
    Pod,
    PodCondition,
    PodIP,
    PodStatus,
    ResourceStatus,
)
from claims.kinds.resource_usage import (
    INFEASIBLE,
    RESIZE_PENDING,
    as_allocated,
    node_requests_of,
    requests_of,
    resources_of,
)
from manciple.access.kinds.secrets import Secret
from manciple.telemetry import traces
from manciple.wire.quantity import Quantity
from manciple.wire.resources import NEW_PHASES
from nodeagent.api.client import PODS, Client, posix_seconds, seconds_text
from nodeagent.api.events import EventRecorder
from nodeagent.claims.checkpoint import ClaimRecord
from nodeagent.claims.prepare import KnownHealth, Preparer, container_devices, is_terminal, resource_statuses
from nodeagent.failures import (
    AgentError,
    ApiFailure,
    ContainerFailed,
    PrepareFailed,
    PrepareRefused,
    StillStopping,
    StorageFailed,
    UnprepareFailed,
)
from nodeagent.pods.claimed_volumes import MountFailed
from nodeagent.pods.volumes import PodSources, PodVolumes, StorageWatch
from nodeagent.runtimes import image_keys
from nodeagent.runtimes.image_keys import PullKey
from nodeagent.runtimes.protocol import (
    PULLING,
    Addresses,
    ContainerRequest,
    ContainerRun,
    EndedRun,
    Happening,
    Limits,
    MissingSource,
    Role,
    Runtime,
    container_limits,
    container_request,
    pod_limits,
)
from nodeagent.storage import is_file_name
from nodeagent.work import PodCache

log = logging.getLogger(__name__)

#: How often a status write is retried after a conflict.
CONFLICT_RETRIES = 5
#: The reason of a pod that has used more of the disk than it may.
EVICTED = "Evicted"
#: Seconds in which a pod that fills the disk has to end (upstream: immediateEvictionGracePeriodSeconds).
EVICTION_GRACE = 1
#: The reason of a container that waits for its next attempt, or for that to pull its image.
CRASHING, PULL_WAITS = "CrashLoopBackOff", "ImagePullBackOff"
#: Happenings of a pod that are kept until the next look at it; the oldest go first.
MOST_HAPPENINGS = 32
#: Bytes that the messages of all terminated containers of a pod may have (upstream: MaxPodTerminationMessageLogLength).
MESSAGES_BYTES = 12 * 1024


class PodTrace:
    """Traces the pod's steps on its node, and the time from its creation to its start. pod: None for no trace."""

    def __init__(self, pod: Pod | None, clock: Callable[[], float]) -> None:
        self._pod = pod
        self._clock = clock

    @contextmanager
    def step(self, name: str, **numbers: int) -> Iterator[None]:
        """A span; an exception is its error."""
        if self._pod is None:
            yield
            return
        began, error = self._clock(), ""
        try:
            yield
        except AgentError as failure:
            error = str(failure)
            raise
        finally:
            attributes = {f"manciple.{what}": number for what, number in numbers.items()}
            traces.tell(
                self._pod.metadata.uid, name, began=began, ended=self._clock(), error=error, attributes=attributes
            )

    def ended(self) -> None:
        """All containers have been started."""
        if self._pod is None:
            return
        meta = self._pod.metadata
        traces.tell(
            meta.uid,
            f"pod {meta.namespace}/{meta.name}",
            began=posix_seconds(meta.creation_timestamp) if meta.creation_timestamp else self._clock(),
            ended=self._clock(),
            outermost=True,
            attributes={
                "k8s.namespace.name": meta.namespace,
                "k8s.pod.name": meta.name,
                "k8s.node.name": self._pod.spec.node_name,
            },
        )


class PodWorker:
    """Syncs pods; one thread at a time for one pod.

    started: called for every attempt to start a container, with "container" or "init_container", and the failure or "".
    """

    def __init__(
        self,
        *,
        pods: PodCache,
        client: Client,
        preparer: Preparer,
        runtime: Runtime,
        events: EventRecorder,
        health: Callable[[], KnownHealth],
        sources: PodSources,
        volumes: PodVolumes,
        host_ip: str,
        capacity: Mapping[str, str],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        started: Callable[[str, str], None] = lambda _type, _failure: None,
    ) -> None:
        self._pods = pods
        self._started = started
        self._client = client
        self._preparer = preparer
        self._runtime = runtime
        self._events = events
        self._health = health
        self._sources = sources
        self._volumes = volumes
        self._host_ip = host_ip
        self._capacity = capacity
        self._clock = clock
        self._storage = StorageWatch(runtime, monotonic)
        self._steady = SteadyRuns(clock=clock, monotonic=monotonic)
        self._admission = threading.Lock()
        self._admitted: set[str] = set()  # uids; a pod is admitted once
        self._happenings = Happenings()
        self._stopping: set[str] = set()  # uids
        runtime.listen(self._happened)

    def sync(self, uid: str) -> float | None:
        """Bring pod `uid` to its desired state. Returns the seconds until the next sync; None to wait for a change.

        Raises: AgentError; the sync is retried.
        """
        try:
            seconds = self._sync(uid)
        except StillStopping as stopping:
            seconds = stopping.seconds
        except AgentError:
            self._tell(uid)
            raise
        self._tell(uid)
        if seconds is None and self._pods.get(uid) is None:
            self._pods.forget(uid)
        return seconds

    def _happened(self, uid: str, happening: Happening) -> None:
        """Told after the work, except that an image is pulled: that may take as long as all else together."""
        self._happenings.add(uid, happening)
        pod = self._pods.get(uid)
        if happening.reason != PULLING or pod is None:
            return
        try:
            self._tell(uid)
            self._report(pod, self._observed(pod, self._plan(pod)))
        except AgentError as error:  # the pull does not wait for the API
            log.info("pod %s: that an image is pulled could not be reported: %s", uid, error)

    def _tell(self, uid: str) -> None:
        """Write the events of what has happened: after the work and its report, which nothing should hold up. The pod
        may be gone by then, as `kubectl delete --force` makes it.
        """
        pod = self._pods.last(uid)
        for one in self._happenings.taken(uid):
            if pod is not None:
                write = self._events.warn if one.is_warning else self._events.note
                write(pod, one.reason, one.message, container=one.container)

    def _sync(self, uid: str) -> float | None:
        pod = self._pods.get(uid)
        if pod is None:
            if self._pods.listed:  # else listing the pods queues this one again
                leftovers = self._leftovers_of(uid)
                self._stop(uid, grace_seconds=0)
                if leftovers:
                    self._events.warn_node("PodUnknown", leftovers)
                self._forget(uid)
            return None
        if pod.metadata.deletion_timestamp is not None:
            self._terminate(pod)
            return None
        if is_terminal(pod):
            self._stop(uid, grace_seconds=0)
            return None
        step = self._plan(pod)
        failure = None if step.ending else self._failure(pod)
        if failure or step.ending:
            self._end(pod, step.ending or "Failed", failure)
            return None
        return self._run(pod, step)

    def _leftovers_of(self, uid: str) -> str:
        """The event's message about containers and devices of a pod that the API does not have; "" for none."""
        runs = [name for name, run in self._runtime.runs(uid).items() if run.running]
        records = [record for record in self._preparer.records() if uid in record.pods]
        if not runs and not records:
            return ""
        held = {
            record.label: ", ".join(
                f"{driver.driver}/{device.pool}/{device.device}"
                for driver in record.drivers
                for device in driver.devices
            )
            for record in records
        }
        devices = "; ".join(f"{claim}: {names}" for claim, names in held.items() if names)
        return (
            f"The API does not know the pod with uid {uid}, or has not bound it to this node: stopped "
            f"{len(runs)} {'container' if len(runs) == 1 else 'containers'}, and unprepared {devices or 'no devices'}. "
            "It was deleted without a grace period, or the API was restored to a time before the pod was bound"
        )

    def _failure(self, pod: Pod) -> PodFailure | None:
        """Why the node must end the pod although its containers could run; else None. Raises: ContainerFailed."""
        if pod.spec.os is not None and pod.spec.os.name != platform.system().lower():
            return OTHER_OS
        if refusal := self._refusal(pod):
            return refusal
        deadline = deadline_of(pod)
        if deadline is not None and self._clock() >= deadline:
            return OVERDUE
        excess = self._storage.excess_of(pod)
        return PodFailure(reason=EVICTED, message=excess) if excess else None

    def _refusal(self, pod: Pod) -> PodFailure | None:
        """Why the node has no room for a pod that has not started yet: it was bound without the scheduler.

        Such a pod counts after those that the scheduler placed, also where these have not started either.
        """
        uid = pod.metadata.uid
        if uid in self._admitted:
            return None
        with self._admission:
            if pod.status.start_time is None and not self._runtime.runs(uid):
                others = [
                    other
                    for other in self._pods.all()
                    if other.metadata.uid != uid
                    and not is_terminal(other)
                    and (
                        other.metadata.uid in self._admitted
                        or other.status.start_time is not None
                        or (is_scheduled(other) and not is_scheduled(pod))
                    )
                ]
                if refusal := lack_of_room(pod, others, self._capacity):
                    return refusal
            self._admitted.add(uid)
        return None

    def _plan(self, pod: Pod) -> ContainerPlan:
        uid = pod.metadata.uid
        return plan(pod, self._steady.corrected(uid, self._runtime.runs(uid)), now=self._clock())

    # Ending.

    def _stop(self, uid: str, *, grace_seconds: int) -> None:
        """Stop the containers, then unprepare their claims. Raises: StillStopping until all containers have ended."""
        if uid not in self._stopping:
            self._stopping.add(uid)
            for name, run in self._runtime.runs(uid).items():
                if run.running:
                    self._happenings.add(uid, Happening(name, "Killing", f"Stopping container {name}"))
        seconds = self._runtime.stop(uid, grace_seconds=grace_seconds)
        if seconds is not None:
            raise StillStopping(seconds)
        try:
            self._preparer.unprepare(uid)
        except (UnprepareFailed, StorageFailed) as error:
            # An event on the pod says why it stays; if the pod is gone already, one on the node.
            reason, message = "FailedUnprepareDynamicResources", f"Failed to unprepare dynamic resources: {error}"
            if (pod := self._pods.get(uid)) is not None:
                held = "the pod and its devices are held until it succeeds; the agent retries. Fix what is named here"
                self._events.warn(pod, reason, f"{message}; {held}")
            else:
                held = f"the devices of the deleted pod with uid {uid} are held until it succeeds; the agent retries"
                self._events.warn_node(reason, f"{message}; {held}")
            raise

    def _forget(self, uid: str) -> None:
        self._runtime.remove(uid)
        self._volumes.forget(uid)
        self._steady.forget(uid)
        self._storage.forget(uid)
        self._stopping.discard(uid)
        with self._admission:
            self._admitted.discard(uid)

    def _terminate(self, pod: Pod) -> None:
        uid, meta = pod.metadata.uid, pod.metadata
        self._stop(uid, grace_seconds=meta.deletion_grace_period_seconds or 0)
        if meta.finalizers and not is_terminal(pod):
            # The object stays; its status must show that the containers have ended.
            runs = self._runtime.runs(uid)
            succeeded = all(c.name in runs and runs[c.name].exit_code == 0 for c in pod.spec.containers)
            self._report(pod, Observed(runs=runs, ending="Succeeded" if succeeded else "Failed"))
        try:
            self._client.delete(PODS, meta.name, namespace=meta.namespace, uid=uid, grace_seconds=0)
        except ApiFailure as failure:
            # Deleted already, or replaced by another pod of the same name, perhaps on another node.
            gone = failure.not_found or failure.conflict or (failure.forbidden and self._fetch(pod) is None)
            if not gone:
                raise
        if not meta.finalizers:
            self._forget(uid)

    def _end(self, pod: Pod, ending: Ending, failure: PodFailure | None = None) -> None:
        if failure:
            self._events.warn(pod, failure.reason, failure.message)
        grace = pod.spec.termination_grace_period_seconds or 0
        if failure and failure.reason == EVICTED:
            grace = min(grace, EVICTION_GRACE)
        self._stop(pod.metadata.uid, grace_seconds=grace)
        self._report(pod, Observed(runs=self._runtime.runs(pod.metadata.uid), ending=ending, failure=failure))

    # Running.

    def _run(self, pod: Pod, step: ContainerPlan) -> float | None:
        uid = pod.metadata.uid
        first = traces.recorder.value is not None and bool(step.starts) and pod.status.phase in NEW_PHASES
        trace = PodTrace(pod if first else None, self._clock)
        with trace.step("prepare", claims=len(pod.spec.resource_claims)):
            records = self._prepare(pod, step)
            self._mount(pod, step)
        with trace.step("start", containers=len(step.starts)):
            while step.starts or step.changed:
                self._stop_changed(pod, step)
                self._start_all(pod, step, records)
                step = self._plan(pod)
        trace.ended()
        if step.ending:
            self._end(pod, step.ending)
            return None
        self._tell_of_backoff(pod, step)
        resized = self._resize(pod, step, records)
        self._report(self._pods.get(uid) or pod, self._observed(pod, step, records=records, resized=resized))
        # The first report sets the pod's start time, which its deadline counts from.
        deadline = deadline_of(self._pods.get(uid) or pod)
        times = [at for at in (step.look_at, self._runtime.next_change(uid), deadline) if at is not None]
        delays = [max(0.0, min(times) - self._clock())] if times else []
        if resized.pending is not None and resized.pending.reason == DEFERRED:
            delays.append(RETRY_SECONDS)
        if (until_measured := self._storage.next_look(uid)) is not None:
            delays.append(until_measured)
        return min(delays, default=None)

    def _tell_of_backoff(self, pod: Pod, step: ContainerPlan) -> None:
        """Once for each attempt, whatever its status already says."""
        shown = {
            (status.name, status.restart_count)
            for status in _statuses(pod)
            if status.state.waiting is not None and status.state.waiting.reason == CRASHING
        }
        runs = self._runtime.runs(pod.metadata.uid) if step.waiting else {}
        for name in sorted(step.waiting):
            if (name, runs[name].attempt) not in shown:
                message = f"Back-off restarting failed container {name} in pod {_in_full(pod)}"
                self._happenings.add(pod.metadata.uid, Happening(name, "BackOff", message, is_warning=True))

    def _resize(self, pod: Pod, step: ContainerPlan, records: Mapping[str, ClaimRecord]) -> Resized:
        uid = pod.metadata.uid
        others = (other for other in self._pods.all() if other.metadata.uid != uid and not is_terminal(other))
        resized = begin_resize(pod, self._runtime.runs(uid), others, self._capacity)
        if (pending := resized.pending) is not None and not is_reported(pod, RESIZE_PENDING, pending.message):
            self._events.warn(pod, f"Resize{pending.reason}", pending.message)
        if not resized.progress:
            return resized
        if not any(condition.type == IN_PROGRESS for condition in pod.status.conditions):
            self._report(pod, self._observed(pod, step, records=records, resized=resized))
        resized = finish_resize(pod, resized, self._runtime, lambda container: self._restart(pod, container, records))
        if resized.trouble and not is_reported(pod, IN_PROGRESS, resized.trouble):
            self._events.warn(pod, "ResizeError", resized.trouble)
        return resized

    def _restart(self, pod: Pod, container: Container, records: Mapping[str, ClaimRecord]) -> None:
        """Raises: ContainerFailed."""
        uid = pod.metadata.uid
        self._runtime.end(uid, container.name, grace_seconds=pod.spec.termination_grace_period_seconds or 0)
        run = self._runtime.runs(uid)[container.name]
        start = Start(container, run.role, run.attempt + 1, run.streak)
        keys = partial(self._keys, pod, container)
        self._runtime.start(self._request(self._pods.get(uid) or pod, start, records), keys)

    def _prepare(self, pod: Pod, step: ContainerPlan) -> Mapping[str, ClaimRecord]:
        try:
            return self._preparer.prepare(pod)
        except (PrepareRefused, PrepareFailed, StorageFailed) as error:
            self._events.warn(pod, "FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {error}")
            self._report(pod, self._observed(pod, step, prepared=False))
            raise

    def _mount(self, pod: Pod, step: ContainerPlan) -> None:
        """A failure stops no running container, but no container starts without its volumes."""
        try:
            self._volumes.update(pod, starting=bool(step.starts or step.changed))
        except MountFailed as error:
            if not error.is_expected:
                self._events.warn(pod, "FailedMount", str(error))
            if step.starts:
                self._report(pod, self._observed(pod, step, prepared=False))
                raise

    def _stop_changed(self, pod: Pod, step: ContainerPlan) -> None:
        """Source: kubernetes pkg/kubelet/kuberuntime/kuberuntime_manager.go (computePodActions)."""
        uid = pod.metadata.uid
        for start in step.changed:
            message = f"Container {start.container.name} definition changed, will be restarted"
            self._happenings.add(uid, Happening(start.container.name, "Killing", message))
            self._runtime.end(uid, start.container.name, grace_seconds=pod.spec.termination_grace_period_seconds or 0)

    def _start_all(self, pod: Pod, step: ContainerPlan, records: Mapping[str, ClaimRecord]) -> None:
        trouble: dict[str, ContainerFailed] = {}
        for start in (*step.starts, *step.changed):
            kind = "container" if start.role == "main" else "init_container"
            try:
                self._runtime.start(self._request(pod, start, records), partial(self._keys, pod, start.container))
                self._started(kind, "")
            except ContainerFailed as error:
                self._started(kind, error.reason)
                trouble[start.container.name] = error
                if not self._shows_backoff(pod, start.container, error):
                    for happening in _about_failure(start.container, error):
                        self._happenings.add(pod.metadata.uid, happening)
        if trouble:
            self._report(pod, self._observed(pod, step, trouble=trouble))
            raise ContainerFailed("; ".join(f"container {name}: {why}" for name, why in trouble.items()))

    def _shows_backoff(self, pod: Pod, container: Container, error: ContainerFailed) -> bool:
        """Whether the status says already that the pull waits: each look in the meantime is no event."""
        shown = _statuses(self._pods.get(pod.metadata.uid) or pod)
        waiting = (one.state.waiting for one in shown if one.name == container.name)
        return error.reason == PULL_WAITS and any(one is not None and one.reason == PULL_WAITS for one in waiting)

    def _keys(self, pod: Pod, container: Container) -> Sequence[PullKey]:
        """What the pod's `imagePullSecrets` hold for the container's image."""
        secrets, missing = list[Secret](), list[str]()
        for reference in pod.spec.image_pull_secrets:
            try:
                secrets.append(self._sources.secret(pod.metadata.namespace, reference.name))
            except MissingSource:
                missing.append(reference.name)
        if missing:
            message = (
                f"Unable to retrieve some image pull secrets ({', '.join(missing)}); attempting to pull the image may "
                "not succeed."
            )
            happening = Happening(container.name, "FailedToRetrieveImagePullSecret", message, is_warning=True)
            self._happenings.add(pod.metadata.uid, happening)
        return image_keys.fitting(secrets, container.image)

    def _request(self, pod: Pod, start: Start, records: Mapping[str, ClaimRecord]) -> ContainerRequest:
        """Raises: ContainerFailed."""
        for name in (pod.metadata.uid, start.container.name, *(volume.name for volume in pod.spec.volumes)):
            if not is_file_name(name):
                raise ContainerFailed(f"{name!r} cannot be a file's name", reason="CreateContainerConfigError")
        devices = container_devices(pod, start.container, records)
        mounted, container = self._volumes.mounted(*with_allocated(pod, start.container))
        return container_request(
            mounted,
            container,
            role=start.role,
            attempt=start.attempt,
            streak=start.streak,
            cdi_devices=devices,
            claims=tuple(
                record.uid
                for record in records.values()
                if any(not set(devices).isdisjoint(device.cdi_device_ids) for device in record.devices)
            ),
            addresses=Addresses(host=self._host_ip, pod=pod_ip(pod, host_ip=self._host_ip)),
            source=self._sources,
            api=self._runtime.api,
        )

    def _observed(
        self,
        pod: Pod,
        step: ContainerPlan,
        *,
        prepared: bool = True,
        trouble: Mapping[str, ContainerFailed] | None = None,
        records: Mapping[str, ClaimRecord] | None = None,
        resized: Resized | None = None,
    ) -> Observed:
        reports = self._health() if records else {}
        containers = (*pod.spec.init_containers, *pod.spec.containers) if records else ()
        return Observed(
            runs=self._runtime.runs(pod.metadata.uid),
            prepared=prepared,
            initialized=step.initialized,
            waiting=step.waiting,
            trouble=trouble or {},
            resized=resized,
            health={c.name: resource_statuses(pod, c, records or {}, reports) for c in containers},
        )

    # Reporting.

    def _report(self, pod: Pod, seen: Observed) -> None:
        """Write the pod's status if it has changed, unless the pod is deleted or replaced."""
        for _ in range(CONFLICT_RETRIES):
            # Even if the clock was set back, nothing happens before the pod's start time.
            now = max(self._clock(), posix_seconds(pod.status.start_time))
            status = pod_status(pod, seen, host_ip=self._host_ip, now=now)
            if status == pod.status:
                return
            try:
                self._pods.put(self._client.update(PODS, replace(pod, status=status), subresource="status"))
            except ApiFailure as failure:
                if failure.not_found:
                    return
                if not (failure.conflict or failure.forbidden):
                    raise
                refused = failure
            else:
                return
            fresh = self._fetch(pod)
            if fresh is None or (is_terminal(fresh) and not seen.ending):
                return  # the pod was ended through the API and does not run again
            if refused.forbidden and fresh.metadata.resource_version == pod.metadata.resource_version:
                raise refused
            pod = fresh
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        raise AgentError(f"pod {name} changes faster than its status can be written")

    def _fetch(self, pod: Pod) -> Pod | None:
        """The pod in the API; None if it was deleted or replaced, perhaps by a pod of another node."""
        try:
            fresh = self._client.get(PODS, pod.metadata.name, namespace=pod.metadata.namespace)
        except ApiFailure as failure:
            if failure.not_found or failure.forbidden:
                return None
            raise
        if fresh.metadata.uid != pod.metadata.uid:
            return None
        self._pods.put(fresh)
        return fresh


class Happenings:
    """What happened with the containers of each pod and is not written yet. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, deque[Happening]] = {}

    def add(self, pod_uid: str, happening: Happening) -> None:
        with self._lock:
            self._of.setdefault(pod_uid, deque(maxlen=MOST_HAPPENINGS)).append(happening)

    def taken(self, pod_uid: str) -> Sequence[Happening]:
        """In the order in which they happened."""
        with self._lock:
            return tuple(self._of.pop(pod_uid, ()))


def _about_failure(container: Container, error: ContainerFailed) -> Iterator[Happening]:
    """Source: kubernetes pkg/kubelet/images/image_manager.go, pkg/kubelet/kuberuntime/kuberuntime_container.go."""
    reason = {
        "ErrImagePull": "Failed",
        "InvalidImageName": "InspectFailed",
        "ErrImageNeverPull": "ErrImageNeverPull",
    }.get(error.reason)
    if reason is not None:
        yield Happening(container.name, reason, str(error), is_warning=True)
    if error.reason == PULL_WAITS:
        yield Happening(container.name, "BackOff", f'Back-off pulling image "{container.image}"')
    short = reason is not None or error.reason == PULL_WAITS
    yield Happening(container.name, "Failed", f"Error: {error.reason if short else error}", is_warning=True)


# Which containers to start --------------------------------------------------------------------------------------------


#: Seconds before the second restart, and the longest wait; the first restart comes at once.
FIRST_DELAY, LONGEST_DELAY = 10.0, 300.0
#: After so many the delay has reached its limit; a container may restart for years.
MOST_DOUBLINGS = 5
#: A container that ran this long restarts without a delay, and the next delays are short again.
STEADY_SECONDS = 600.0

Ending = Literal["", "Succeeded", "Failed"]


@dataclass(frozen=True, slots=True)
class Start:
    """A container to start now."""

    container: Container
    role: Role
    attempt: int
    streak: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """starts: the containers to start now; changed: those that run with another image and are stopped first. look_at:
    the next restart (POSIX seconds). ending: the pod's end.

    waiting: containers in backoff. initialized: whether the main containers may run.
    """

    starts: tuple[Start, ...] = ()
    changed: tuple[Start, ...] = ()
    look_at: float | None = None
    ending: Ending = ""
    waiting: frozenset[str] = frozenset()
    initialized: bool = False


@dataclass(slots=True)
class _Draft:
    now: float
    starts: list[Start] = field(default_factory=list)
    changed: list[Start] = field(default_factory=list)
    due: list[float] = field(default_factory=list)
    waiting: set[str] = field(default_factory=set)

    def restart(self, container: Container, role: Role, run: ContainerRun) -> None:
        """Restart `container` now, or after its backoff."""
        due = (run.finished_at or self.now) + restart_delay(run)
        if due <= self.now:
            streak = 1 if _was_steady(run) else run.streak + 1
            self.starts.append(Start(container, role, run.attempt + 1, streak))
        else:
            self.due.append(due)
            self.waiting.add(container.name)

    def keep(self, container: Container, role: Role, run: ContainerRun) -> None:
        """Let it run on, unless its image has been changed since: then its policy is not asked."""
        if run.image and run.image != container.image:
            self.changed.append(Start(container, role, run.attempt + 1, run.streak))

    def plan(self, *, initialized: bool) -> ContainerPlan:
        return ContainerPlan(
            starts=tuple(self.starts),
            changed=tuple(self.changed),
            look_at=min(self.due, default=None),
            waiting=frozenset(self.waiting),
            initialized=initialized,
        )


def plan(pod: Pod, runs: Mapping[str, ContainerRun], *, now: float) -> ContainerPlan:
    """The containers of `pod` to start next, from the state of its containers."""
    draft = _Draft(now)
    state = _plan_init(pod, runs, draft)
    if state == "failed":
        return ContainerPlan(ending="Failed")
    if state == "waiting":
        return draft.plan(initialized=False)
    ending = _plan_main(pod, runs, draft)
    # Ephemeral containers start once, beside the others, and nothing waits for them.
    ephemeral = [container for container in pod.spec.ephemeral_containers if container.name not in runs]
    draft.starts += [Start(container, "main", 0) for container in ephemeral]
    return ContainerPlan(ending=ending, initialized=True) if ending else draft.plan(initialized=True)


def restart_delay(run: ContainerRun) -> float:
    """Seconds between the end of `run` and the next attempt."""
    if run.streak == 0 or _was_steady(run):
        return 0.0
    doublings = min(run.streak - 1, MOST_DOUBLINGS)
    return min(FIRST_DELAY * 2.0**doublings, LONGEST_DELAY)


def _was_steady(run: ContainerRun) -> bool:
    return (run.finished_at or run.started_at) - run.started_at >= STEADY_SECONDS


def is_sidecar(container: Container) -> bool:
    """Whether an init container is a sidecar."""
    return container.restart_policy == "Always"


def _restarts(pod: Pod, container: Container, run: ContainerRun) -> bool:
    """By the container's own rules first, then by its own policy, then by the pod's (KEP-5307)."""
    for rule in container.restart_policy_rules:
        codes = rule.exit_codes
        if (
            rule.action == "Restart"
            and codes is not None
            and (run.exit_code in codes.values) == (codes.operator == "In")
        ):
            return True
    policy = container.restart_policy or pod.spec.restart_policy
    return policy in ("", "Always") or (policy == "OnFailure" and run.exit_code != 0)


def _plan_init(pod: Pod, runs: Mapping[str, ContainerRun], draft: _Draft) -> Literal["done", "waiting", "failed"]:
    begun = any(container.name in runs for container in pod.spec.containers)
    for container in pod.spec.init_containers:
        run = runs.get(container.name)
        role: Role = "sidecar" if is_sidecar(container) else "init"
        if run is None and begun and role == "init":
            continue  # it ran to its end before the main containers started, although the runtime has forgotten it
        if run is None:
            draft.starts.append(Start(container, role, 0))
            return "waiting"
        if role == "sidecar":
            (draft.keep if run.running else draft.restart)(container, role, run)
            if not begun and not (run.running and run.started):
                return "waiting"
        elif run.running:
            return "waiting"
        elif run.exit_code != 0:
            if not _restarts(pod, container, run):
                return "failed"
            draft.restart(container, role, run)
            return "waiting"
    return "done"


def _plan_main(pod: Pod, runs: Mapping[str, ContainerRun], draft: _Draft) -> Ending:
    alive = False
    for container in pod.spec.containers:
        run = runs.get(container.name)
        if run is None:
            draft.starts.append(Start(container, "main", 0))
        elif not run.running:
            if not _restarts(pod, container, run):
                continue
            draft.restart(container, "main", run)
        else:
            draft.keep(container, "main", run)
        alive = True
    if alive:
        return ""
    succeeded = all(runs[container.name].exit_code == 0 for container in pod.spec.containers)
    return "Succeeded" if succeeded else "Failed"


# A runtime's times are of the wall clock, which may be set, a day ahead or back, during a container's backoff; but the
# backoff is a duration. So `SteadyRuns` notes the monotonic time when it first sees a start or an end, and from then on
# counts from that.

#: Difference between the clocks in seconds that is ignored: slewing.
DRIFT = 1.0


@dataclass(slots=True)
class _Seen:
    """One attempt at a container. Monotonic seconds."""

    attempt: int
    started: float
    finished: float | None = None


class SteadyRuns:
    """Corrects the times of runs after the wall clock was set. Thread-safe."""

    def __init__(self, *, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._pods: dict[str, dict[str, _Seen]] = {}

    def corrected(self, pod_uid: str, runs: Mapping[str, ContainerRun]) -> dict[str, ContainerRun]:
        """`runs` with the times that they would have if the wall clock had never been set."""
        now, steady = self._clock(), self._monotonic()
        corrected = {}
        with self._lock:
            attempts = self._pods.setdefault(pod_uid, {})
            for name, run in runs.items():
                seen = attempts.get(name)
                if seen is None or seen.attempt != run.attempt:
                    seen = attempts[name] = _Seen(run.attempt, steady - max(0.0, now - run.started_at))
                if run.finished_at is not None and seen.finished is None:
                    seen.finished = max(seen.started, steady - max(0.0, now - run.finished_at))
                started, finished = now - (steady - seen.started), run.finished_at
                if abs(run.started_at - started) <= DRIFT:
                    started = run.started_at
                if finished is not None and seen.finished is not None:
                    steady_finish = now - (steady - seen.finished)
                    finished = finished if abs(finished - steady_finish) <= DRIFT else steady_finish
                corrected[name] = replace(run, started_at=started, finished_at=finished)
        return corrected

    def forget(self, pod_uid: str) -> None:
        with self._lock:
            self._pods.pop(pod_uid, None)


# Resizing -------------------------------------------------------------------------------------------------------------

# A resize beyond the node's capacity is infeasible, one for which there is no room now is deferred: the containers keep
# their resources, the condition PodResizePending says why, and the next sync retries. The reported status has the
# containers' current resources, so a restarted agent continues from there. A container that cannot be resized keeps its
# resources, and the condition PodResizeInProgress says why.


#: container name -> its resources
Held = Mapping[str, ResourceRequirements]

#: Condition of a pod: some container does not have its new resources yet, or cannot have them (reason Error).
IN_PROGRESS = "PodResizeInProgress"
DEFERRED = "Deferred"
#: Seconds until a deferred resize is retried.
RETRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class PendingResize:
    """Why a resize is not accepted. reason: Deferred or Infeasible."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Resized:
    """held: current resources of the running containers. allocated: those they will have, and the node counts.

    level, allocated_level: the same of the pod as a whole, if it has any. progress: whether something is being resized.
    trouble: why something could not be. changed: the containers to resize.
    """

    held: Held
    allocated: Held
    level: ResourceRequirements | None = None
    allocated_level: ResourceRequirements | None = None
    pending: PendingResize | None = None
    progress: bool = False
    trouble: str = ""
    changed: tuple[Container, ...] = ()


def is_reported(pod: Pod, condition: str, message: str) -> bool:
    """Whether the pod's status has the condition with this message."""
    return any(c.type == condition and c.message == message for c in pod.status.conditions)


def held_by(pod: Pod) -> Held:
    """The containers' resources by the pod's status."""
    return {status.name: status.resources for status in _statuses(pod) if status.resources is not None}


def with_allocated(pod: Pod, container: Container) -> tuple[Pod, Container]:
    """Both with the resources to start with: while a resize is pending, the old ones."""
    if not any(condition.type == RESIZE_PENDING for condition in pod.status.conditions):
        return pod, container
    allocated = as_allocated(pod)
    named = {one.name: one for one in (*allocated.spec.init_containers, *allocated.spec.containers)}
    return allocated, named.get(container.name, container)


def begin_resize(
    pod: Pod, runs: Mapping[str, ContainerRun], others: Iterable[Pod], capacity: Mapping[str, str]
) -> Resized:
    """The containers to resize, if the node has room. others: its other pods. capacity: of the node, by resource."""
    names = {name for name, run in runs.items() if run.running}
    running = [one for one in (*pod.spec.init_containers, *pod.spec.containers) if one.name in names]
    desired = {
        one.name: ResourceRequirements(limits=one.resources.limits, requests=one.resources.requests) for one in running
    }
    reported = held_by(pod)
    held = {name: reported.get(name, resources) for name, resources in desired.items()}
    changed = tuple(one for one in running if held[one.name] != desired[one.name])
    level, level_held = resources_of(pod.spec), pod.status.resources
    if not changed and (level == level_held or level_held is None):
        return Resized(held, held, level, level)
    if pending := _why_pending(pod, others, capacity):
        kept = {**reported, **held}  # including containers in backoff
        return Resized(kept, kept, level_held, level_held, pending=pending)
    before = as_allocated(pod)
    inheriting = [one for one in running if held[one.name] == desired[one.name]]
    changed += tuple(one for one in inheriting if container_limits(pod, one) != container_limits(before, one))
    return Resized(held, desired, level_held or level, level, progress=True, changed=changed)


def finish_resize(pod: Pod, begun: Resized, runtime: Runtime, restart: Callable[[Container], None]) -> Resized:
    """Resize what has changed; returns the result. restart: with the new resources; may raise ContainerFailed.

    The kernel lets no container have more than its pod: the pod grows first, and shrinks last.
    """
    uid, held, trouble = pod.metadata.uid, dict(begun.held), list[str]()
    limits, old_limits = pod_limits(pod), pod_limits(as_allocated(pod))
    try:
        if limits is not None and limits != old_limits:
            runtime.resize_pod(uid, _larger(limits, old_limits or limits))
    except ContainerFailed as error:
        return changed_to(begun, progress=False, trouble=f"the pod keeps its resources: {error}")
    for container in begun.changed:
        try:
            if _needs_restart(container, begun.held[container.name]):
                restart(container)
            else:
                runtime.resize(uid, container.name, container_limits(pod, container))
        except ContainerFailed as error:
            trouble.append(f"container {container.name} keeps its resources: {error}")
        else:
            held[container.name] = begun.allocated[container.name]
    level = begun.level
    if not trouble:
        try:
            if limits is not None and limits != old_limits:
                runtime.resize_pod(uid, limits)
            level = begun.allocated_level
        except ContainerFailed as error:
            trouble.append(f"the pod keeps its resources: {error}")
    return changed_to(begun, held=held, level=level, progress=False, trouble="; ".join(trouble))


def _larger(one: Limits, other: Limits) -> Limits:
    """Of each limit; none is the largest."""

    def larger(first: int, second: int) -> int:
        return max(first, second) if first and second else 0

    return Limits(
        cpu_millis=larger(one.cpu_millis, other.cpu_millis),
        cpu_request_millis=one.cpu_request_millis,
        memory_bytes=larger(one.memory_bytes, other.memory_bytes),
    )


def _statuses(pod: Pod) -> Iterator[ContainerStatus]:
    yield from pod.status.init_container_statuses
    yield from pod.status.container_statuses


def _needs_restart(container: Container, held: ResourceRequirements) -> bool:
    """Whether a resource changes whose policy is to restart the container."""
    desired = container.resources
    return any(
        policy.restart_policy == "RestartContainer"
        and any(
            after.get(policy.resource_name) != before.get(policy.resource_name)
            for after, before in ((desired.limits, held.limits), (desired.requests, held.requests))
        )
        for policy in container.resize_policy
    )


def _why_pending(pod: Pod, others: Iterable[Pod], capacity: Mapping[str, str]) -> PendingResize | None:
    """Only resources that grow need room."""
    desired = node_requests_of(replace(pod, status=replace(pod.status, container_statuses=(), conditions=())))
    counted = requests_of(as_allocated(pod))
    grown = [name for name in ("cpu", "memory") if desired.get(name, 0) > counted.get(name, 0) and name in capacity]
    for name in grown:
        total = Quantity.parse(capacity[name]).nanos
        if desired[name] > total:
            amounts = f"requested: {_shown(name, desired[name])}, capacity: {_shown(name, total)}"
            return PendingResize(INFEASIBLE, f"Node didn't have enough capacity: {name}, {amounts}")
    if not grown:
        return None
    lacking = _lacking({name: desired[name] for name in grown}, others, capacity)
    return PendingResize(DEFERRED, lacking[1]) if lacking else None


def _lacking(desired: Mapping[str, int], others: Iterable[Pod], capacity: Mapping[str, str]) -> tuple[str, str] | None:
    """The first resource of which the other pods leave too little, and the kubelet's sentence about it."""
    sums = [node_requests_of(as_allocated(other)) for other in others] if desired else []
    for name, amount in desired.items():
        total, used = Quantity.parse(capacity[name]).nanos, sum(amounts.get(name, 0) for amounts in sums)
        if used + amount > total:
            shown = [_shown(name, nanos) for nanos in (amount, used, total)]
            amounts = "requested: {}, used: {}, capacity: {}".format(*shown)
            return name, f"Node didn't have enough resource: {name}, {amounts}"
    return None


def _shown(name: str, nanos: int) -> int:
    """Thousandths of processors, bytes of memory, as in a kubelet's messages."""
    return -(-nanos // (10**6 if name == "cpu" else 10**9))


# Status ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFailure:
    """Why the node ends a pod whose containers could run.

    refused: before the first of them started, so none has a status.
    """

    reason: str
    message: str
    refused: bool = False


# Admission ------------------------------------------------------------------------------------------------------------

# The scheduler binds no pod to a node without room for it. Users may: `spec.nodeName` of a new pod, or a Binding.


def is_scheduled(pod: Pod) -> bool:
    """Whether the pod got its node after its creation."""
    return any(one.type == "PodScheduled" and one.status == "True" for one in pod.status.conditions)


def lack_of_room(pod: Pod, others: Sequence[Pod], capacity: Mapping[str, str]) -> PodFailure | None:
    """Why a pod does not fit beside the node's other pods. capacity: of cpu, memory and pods."""
    if len(others) >= int(capacity["pods"]):
        amounts = f"requested: 1, used: {len(others)}, capacity: {capacity['pods']}"
        return PodFailure(
            reason="OutOfpods", message=f"Node didn't have enough resource: pods, {amounts}", refused=True
        )
    requests = node_requests_of(pod)
    desired = {name: requests[name] for name in ("cpu", "memory") if requests.get(name)}
    lacking = _lacking(desired, others, capacity)
    return PodFailure(reason=f"OutOf{lacking[0]}", message=lacking[1], refused=True) if lacking else None


#: The kubelet's words (pkg/kubelet/active_deadline.go, pkg/kubelet/lifecycle/predicate.go).
OVERDUE = PodFailure(reason="DeadlineExceeded", message="Pod was active on the node longer than the specified deadline")
OTHER_OS = PodFailure(
    reason="PodOSNotSupported", message="Failed to admit pod as the OS field doesn't match node OS", refused=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A pod's state on its node.

    prepared: its claims are prepared, containers may start. waiting: containers in backoff. failure: why the node ended
    it, if it did. trouble: container name -> why it could not start. health: container name -> the health of its
    devices. resized: the containers' cpu and memory; None to keep the reported ones.
    """

    runs: Mapping[str, ContainerRun] = field(default_factory=dict)
    prepared: bool = False
    initialized: bool = False
    waiting: frozenset[str] = frozenset()
    ending: Ending = ""
    failure: PodFailure | None = None
    trouble: Mapping[str, ContainerFailed] = field(default_factory=dict)
    health: Mapping[str, tuple[ResourceStatus, ...]] = field(default_factory=dict)
    resized: Resized | None = None

    @property
    def refused(self) -> bool:
        return self.failure is not None and self.failure.refused


def pod_ip(pod: Pod, *, host_ip: str) -> str:
    """The node's address with hostNetwork; otherwise an address in 10.128.0.0/9 that is derived from the pod's uid:
    those of Services are below.
    """
    if pod.spec.host_network:
        return host_ip
    first, second, third = hashlib.sha256(pod.metadata.uid.encode()).digest()[:3]
    return f"10.{first | 128}.{second}.{third % 254 + 1}"


def pod_status(pod: Pod, seen: Observed, *, host_ip: str, now: float) -> PodStatus:
    """The status of `pod` at `now` (POSIX seconds)."""
    old, now_text = pod.status, seconds_text(now)
    address = pod_ip(pod, host_ip=host_ip) if seen.runs or old.pod_ip else ""
    held = held_by(pod) if seen.resized is None else seen.resized.held
    allocated = held if seen.resized is None else seen.resized.allocated
    level, allocated_level = old.resources, old.allocated_resources
    if seen.resized is not None:
        level = seen.resized.level
        allocated_level = seen.resized.allocated_level.requests if seen.resized.allocated_level is not None else {}
    finished = set() if seen.resized is None else {RESIZE_PENDING, IN_PROGRESS} - _resize_facts(seen.resized).keys()
    started = (
        replace(pod.spec, containers=(), init_containers=(), ephemeral_containers=()) if seen.refused else pod.spec
    )
    inits = tuple(_container_status(pod, one, seen, held, allocated) for one in started.init_containers)
    mains = tuple(_container_status(pod, one, seen, held, allocated) for one in started.containers)
    # A kubelet probes no ephemeral container, and says of none that it is ready or has started.
    ephemeral = tuple(
        replace(_container_status(pod, one, seen, held, allocated), ready=False, started=None)
        for one in started.ephemeral_containers
    )
    return replace(
        old,
        observed_generation=pod.metadata.generation,
        phase=_phase(pod, seen),
        conditions=_conditions(
            tuple(condition for condition in old.conditions if condition.type not in finished),
            _facts(pod, seen, (*inits, *mains)),
            now_text,
        ),
        host_ip=host_ip,
        host_ips=(HostIP(ip=host_ip),),
        pod_ip=address,
        pod_ips=(PodIP(ip=address),) if address else (),
        start_time=old.start_time or now_text,
        init_container_statuses=inits,
        container_statuses=mains,
        ephemeral_container_statuses=ephemeral,
        resources=level,
        allocated_resources=allocated_level,
        reason=seen.failure.reason if seen.failure else old.reason,
        message=seen.failure.message if seen.failure else old.message,
    )


def deadline_of(pod: Pod) -> float | None:
    """When (POSIX seconds) the pod has been on its node for as long as it may; None while it may run on."""
    seconds, since = pod.spec.active_deadline_seconds, pod.status.start_time
    return posix_seconds(since) + seconds if seconds is not None and since else None


def _phase(pod: Pod, seen: Observed) -> str:
    if seen.ending:
        return seen.ending
    if any(container.name in seen.runs for container in pod.spec.containers):
        return "Running"
    return "Pending"


# Containers.
def _container_status(pod: Pod, container: Container, seen: Observed, held: Held, allocated: Held) -> ContainerStatus:
    """held: the containers' current cpu and memory. allocated: those they will have."""
    run = seen.runs.get(container.name)
    if run is None:
        waiting = _never_started(pod, container, seen)
        return ContainerStatus(name=container.name, image=container.image, state=waiting, started=False)
    waits = container.name in seen.waiting
    state = ran = _state(run, pod)
    if waits:
        delay = _go_duration(restart_delay(run))
        message = f"back-off {delay} restarting failed container={run.name} pod={_in_full(pod)}"
        state = ContainerState(waiting=ContainerStateWaiting(reason=CRASHING, message=message))
    if trouble := seen.trouble.get(container.name):
        state = _waiting(trouble)
        waits = True
    running = run.running
    counts = running or (seen.resized is not None and seen.resized.pending is not None)
    resources = allocated.get(run.name) if counts else None
    last = ran if waits else _terminated(run.previous, pod) if run.previous is not None else ContainerState()
    return ContainerStatus(
        name=container.name,
        state=state,
        last_state=last,
        ready=running and run.ready if run.role != "init" else not running and run.exit_code == 0,
        started=running and run.started,
        restart_count=run.attempt,
        image=run.image,
        image_id=run.image_id or run.image,
        container_id=run.container_id,
        allocated_resources=resources.requests if resources is not None else {},
        resources=held.get(run.name) if counts else None,
        allocated_resources_status=seen.health.get(container.name, ()),
        stop_signal=run.stop_signal or None,
    )


def _in_full(pod: Pod) -> str:
    """A pod as a kubelet names it in messages."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})"


def _go_duration(seconds: float) -> str:
    """Whole seconds below an hour as Go writes them: "40s", "1m20s"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _state(run: ContainerRun, pod: Pod) -> ContainerState:
    if ended := run.ended():
        return _terminated(ended, pod)
    return ContainerState(running=ContainerStateRunning(started_at=seconds_text(run.started_at)))


def _terminated(run: EndedRun, pod: Pod) -> ContainerState:
    """The message is cut to the container's part of what the pod's messages may have together."""
    spec = pod.spec
    count = len(spec.init_containers) + len(spec.containers) + len(spec.ephemeral_containers)
    most = MESSAGES_BYTES // max(1, count)
    return ContainerState(
        terminated=ContainerStateTerminated(
            exit_code=run.exit_code,
            reason=run.reason or ("Completed" if run.exit_code == 0 else "Error"),
            message=run.message.encode()[:most].decode(errors="ignore"),
            started_at=seconds_text(run.started_at),
            finished_at=seconds_text(max(run.started_at, run.finished_at)),
            container_id=run.container_id,
        )
    )


def _waiting(trouble: ContainerFailed) -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=trouble.reason, message=str(trouble)))


def _never_started(pod: Pod, container: Container, seen: Observed) -> ContainerState:
    if seen.ending and not _is_past_init(pod, seen.runs):
        return ContainerState(waiting=ContainerStateWaiting(reason="PodInitializing"))
    if seen.ending:
        # It was due, never ran and never will: the pod was stopped first.
        message = "The container could not be located when the pod was terminated"
        ended = ContainerStateTerminated(exit_code=137, reason="ContainerStatusUnknown", message=message)
        return ContainerState(terminated=ended)
    if trouble := seen.trouble.get(container.name):
        return _waiting(trouble)
    reason = "PodInitializing" if seen.prepared and not seen.initialized else "ContainerCreating"
    return ContainerState(waiting=ContainerStateWaiting(reason=reason))


def _is_past_init(pod: Pod, runs: Mapping[str, ContainerRun]) -> bool:
    """Whether the init containers of a pod that has ended had done their work."""
    if not pod.spec.init_containers or any(container.name in runs for container in pod.spec.containers):
        return True
    last = pod.spec.init_containers[-1]
    run = runs.get(last.name)
    return run is not None and (run.started if is_sidecar(last) else not run.running and run.exit_code == 0)


# Conditions.

#: type -> (whether it is True, reason, message)
_Facts = Mapping[str, tuple[bool, str, str]]


def _facts(pod: Pod, seen: Observed, statuses: Iterable[ContainerStatus]) -> _Facts:
    """The conditions that the node reports."""
    ready = {status.name for status in statuses if status.ready}
    if seen.ending:
        reason = "PodCompleted" if seen.ending == "Succeeded" else "PodFailed"
        undone = " ".join(c.name for c in pod.spec.init_containers if c.name not in ready)
        initialized = _fact(
            _is_past_init(pod, seen.runs), "ContainersNotInitialized", f"containers with incomplete status: [{undone}]"
        )
        if seen.ending == "Succeeded":
            initialized = (True, reason, "")
        ran = {"PodReadyToStartContainers": (False, "", ""), "Initialized": initialized}
        return {**ran, "Ready": (False, reason, ""), "ContainersReady": (False, reason, "")}
    inits = [c.name for c in pod.spec.init_containers if not is_sidecar(c) and not seen.initialized]
    needed = [c.name for c in pod.spec.containers] + [c.name for c in pod.spec.init_containers if is_sidecar(c)]
    unready = [name for name in needed if name not in ready]
    uninitialized = [name for name in inits if name not in ready]
    containers = _fact(not unready, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    true = {condition.type for condition in pod.status.conditions if condition.status == "True"}
    gates = [gate.condition_type for gate in pod.spec.readiness_gates if gate.condition_type not in true]
    return {
        **_resize_facts(seen.resized),
        "PodReadyToStartContainers": (seen.prepared or bool(seen.runs), "", ""),
        "Initialized": _fact(
            seen.initialized or not pod.spec.init_containers,
            "ContainersNotInitialized",
            f"containers with incomplete status: [{' '.join(uninitialized)}]",
        ),
        "ContainersReady": containers,
        "Ready": containers if unready else _fact(not gates, "ReadinessGatesNotReady", f"{' '.join(gates)} not True"),
    }


def _resize_facts(resized: Resized | None) -> _Facts:
    if resized is None:
        return {}
    facts = {}
    if resized.pending is not None:
        facts[RESIZE_PENDING] = (True, resized.pending.reason, resized.pending.message)
    if resized.progress or resized.trouble:
        facts[IN_PROGRESS] = (True, "Error" if resized.trouble else "", resized.trouble)
    return facts


def _fact(holds: bool, reason: str, message: str) -> tuple[bool, str, str]:
    return (True, "", "") if holds else (False, reason, message)


def _conditions(old: tuple[PodCondition, ...], facts: _Facts, now: str) -> tuple[PodCondition, ...]:
    conditions = {condition.type: condition for condition in old}
    for type_, (holds, reason, message) in facts.items():
        before = conditions.get(type_)
        status = "True" if holds else "False"
        since = before.last_transition_time if before is not None and before.status == status else now
        conditions[type_] = PodCondition(
            type=type_, status=status, last_transition_time=since, reason=reason, message=message
        )
    return tuple(conditions.values())
