"""Brings one pod from how it is to how it should be, whatever happened in between.

`sync` is called whenever something about the pod may have changed, and works out from the API's pod, the checkpoint
and the runtime what is missing:

    the pod is        containers    claims                      then
    gone              stop          give back                   forget
    being deleted     stop          give back                   delete it for good
    finished          stop          give back                   keep it
    ending            stop          give back                   report how it ended
    to run            start         prepare before the first    report how it stands

Claims are given back before the pod is reported as ended or let go: only then may others have its devices.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from msgspec.structs import replace

from claims.kinds.containers import Container
from claims.kinds.pods import Pod, PodStatus
from manciple.telemetry import traces
from nodeagent.checkpoint import ClaimRecord
from nodeagent.client import PODS, Client, posix_seconds
from nodeagent.disk import is_file_name
from nodeagent.events import EventRecorder
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
from nodeagent.lifecycle import (
    OTHER_OS,
    OVERDUE,
    ContainerPlan,
    Ending,
    Observed,
    PodFailure,
    Start,
    SteadyRuns,
    deadline_of,
    plan,
    pod_ip,
    pod_status,
)
from nodeagent.podclaims import KnownHealth, container_devices, is_terminal, resource_statuses
from nodeagent.prepare import Preparer
from nodeagent.resizing import DEFERRED, IN_PROGRESS, PENDING, RETRY_SECONDS, Resized, allocated, begin, is_told, resize
from nodeagent.runtimes.protocol import ContainerRequest, Runtime
from nodeagent.runtimes.requests import container_request
from nodeagent.runtimes.sources import Addresses
from nodeagent.volumes import EVICTED, MountFailed, PodSources, PodVolumes, StorageWatch
from nodeagent.work import PodCache

log = logging.getLogger(__name__)

#: How often a status is written again after somebody else changed the pod.
CONFLICT_RETRIES = 5
#: Seconds in which a pod that fills the disk has to end (upstream: immediateEvictionGracePeriodSeconds).
EVICTION_GRACE = 1


class TracedWay:
    """The last steps of a pod's way, and with them the whole of it. pod: None where nothing is to be told."""

    def __init__(self, pod: Pod | None, clock: Callable[[], float]) -> None:
        self._pod = pod
        self._clock = clock

    @contextmanager
    def step(self, name: str, **numbers: int) -> Iterator[None]:
        """Around one of them; what is raised is its error."""
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
            told = {f"manciple.{what}": number for what, number in numbers.items()}
            traces.tell(self._pod.metadata.uid, name, began=began, ended=self._clock(), error=error, attributes=told)

    def ended(self) -> None:
        """All that was to be started has been."""
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
    """Syncs pods; one thread at a time for one pod. clock: POSIX seconds. monotonic: seconds that nobody sets.

    started: told of every container that was to be started: "container" or "init_container", and why not, or "".
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

    def sync(self, uid: str) -> float | None:
        """Do what is missing for pod `uid`. Returns in how many seconds to look again, None for not before a change.

        Raises: AgentError; what is missing is tried again later.
        """
        try:
            return self._sync(uid)
        except StillStopping as stopping:
            return stopping.seconds

    def _sync(self, uid: str) -> float | None:
        pod = self._pods.get(uid)
        if pod is None:
            if self._pods.listed:  # else whoever lists the pods has this one looked at again
                left = self._left_of(uid)
                self._stop(uid, grace_seconds=0)
                if left:
                    self._events.warn_node("PodUnknown", left)
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

    def _left_of(self, uid: str) -> str:
        """The event's message for a pod that runs here, or holds devices, and that the API does not know; or "".

        It was deleted without asking its node, or the API was set back to a time before it was bound here.
        """
        runs = [name for name, run in self._runtime.runs(uid).items() if run.running]
        records = [record for record in self._preparer.records() if uid in record.pods]
        if not runs and not records:
            return ""
        held = {
            record.label: ", ".join(
                f"{one.driver}/{device.pool}/{device.device}" for one in record.drivers for device in one.devices
            )
            for record in records
        }
        devices = "; ".join(f"{claim}: {of}" for claim, of in held.items() if of)
        return (
            f"The API does not know the pod with uid {uid}, or has not bound it to this node: stopped "
            f"{len(runs)} {'container' if len(runs) == 1 else 'containers'}, and unprepared {devices or 'no devices'}. "
            "It was deleted without a grace period, or the API was restored to a time before the pod was bound"
        )

    def _failure(self, pod: Pod) -> PodFailure | None:
        """Why the pod is to be ended here, though its containers would run on. Raises: ContainerFailed."""
        if pod.spec.os is not None and pod.spec.os.name != platform.system().lower():
            return OTHER_OS
        deadline = deadline_of(pod)
        if deadline is not None and self._clock() >= deadline:
            return OVERDUE
        return self._storage.failure_of(pod)

    def _plan(self, pod: Pod) -> ContainerPlan:
        uid = pod.metadata.uid
        return plan(pod, self._steady.corrected(uid, self._runtime.runs(uid)), now=self._clock())

    # Ending.

    def _stop(self, uid: str, *, grace_seconds: int) -> None:
        """Containers first: a claim is in use until the last of them is gone. Raises: StillStopping until then."""
        seconds = self._runtime.stop(uid, grace_seconds=grace_seconds)
        if seconds is not None:
            raise StillStopping(seconds)
        try:
            self._preparer.unprepare(uid)
        except (UnprepareFailed, StorageFailed) as error:
            self._say_why_held(uid, error)
            raise

    def _say_why_held(self, uid: str, error: AgentError) -> None:
        """A pod that does not go must say why; one that is gone already cannot, so its node does."""
        message = f"Failed to unprepare dynamic resources: {error}"
        if (pod := self._pods.get(uid)) is not None:
            held = "the pod and its devices are held until it succeeds; the agent retries. Fix what is named here"
            self._events.warn(pod, "FailedUnprepareDynamicResources", f"{message}; {held}")
        else:
            held = f"the devices of the deleted pod with uid {uid} are held until it succeeds; the agent retries"
            self._events.warn_node("FailedUnprepareDynamicResources", f"{message}; {held}")

    def _forget(self, uid: str) -> None:
        self._runtime.remove(uid)
        self._volumes.forget(uid)
        self._steady.forget(uid)
        self._storage.forget(uid)

    def _terminate(self, pod: Pod) -> None:
        uid, meta = pod.metadata.uid, pod.metadata
        self._stop(uid, grace_seconds=meta.deletion_grace_period_seconds or 0)
        if meta.finalizers and not is_terminal(pod):
            # Somebody keeps the object; that its containers have ended must be seen nevertheless.
            self._report(pod, Observed(runs=self._runtime.runs(uid), ending=self._how_it_ended(pod)))
        try:
            self._client.delete(PODS, meta.name, namespace=meta.namespace, uid=uid, grace_seconds=0)
        except ApiFailure as failure:
            # Gone already, or replaced by another pod of the same name, perhaps on another node.
            gone = failure.not_found or failure.conflict or (failure.forbidden and self._fetch(pod) is None)
            if not gone:
                raise
        if not meta.finalizers:
            self._forget(uid)

    def _how_it_ended(self, pod: Pod) -> Ending:
        runs = self._runtime.runs(pod.metadata.uid)
        ended_well = all(c.name in runs and runs[c.name].exit_code == 0 for c in pod.spec.containers)
        return "Succeeded" if ended_well else "Failed"

    def _end(self, pod: Pod, ending: Ending, failure: PodFailure | None = None) -> None:
        if failure:
            self._events.warn(pod, failure.reason, failure.message)
        self._stop(pod.metadata.uid, grace_seconds=_grace(pod, failure))
        self._report(pod, Observed(runs=self._runtime.runs(pod.metadata.uid), ending=ending, failure=failure))

    # Running.

    def _run(self, pod: Pod, step: ContainerPlan) -> float | None:
        uid = pod.metadata.uid
        way = self._way_of(pod, step)
        with way.step("prepare", claims=len(pod.spec.resource_claims)):
            records = self._prepare(pod, step)
            self._mount(pod, step)
        with way.step("start", containers=len(step.starts)):
            while step.starts:
                self._start_all(pod, step, records)
                step = self._plan(pod)
        way.ended()
        if step.ending:
            self._end(pod, step.ending)
            return None
        resized = self._resize(pod, step, records)
        self._report(self._pods.get(uid) or pod, self._observed(pod, step, records=records, resized=resized))
        # The first report says since when the pod is here, so its deadline is known only after it.
        deadline = deadline_of(self._pods.get(uid) or pod)
        times = [at for at in (step.look_at, self._runtime.next_change(uid), deadline) if at is not None]
        waits = [max(0.0, min(times) - self._clock())] if times else []
        if resized.pending is not None and resized.pending.reason == DEFERRED:
            waits.append(RETRY_SECONDS)
        measured = self._storage.next_look(uid)
        return min((*waits, *(() if measured is None else (measured,))), default=None)

    def _resize(self, pod: Pod, step: ContainerPlan, records: Mapping[str, ClaimRecord]) -> Resized:
        uid = pod.metadata.uid
        others = (one for one in self._pods.all() if one.metadata.uid != uid and not is_terminal(one))
        resized = begin(pod, self._runtime.runs(uid), others, self._capacity)
        if (pending := resized.pending) is not None and not is_told(pod, PENDING, pending.message):
            self._events.warn(pod, f"Resize{pending.reason}", pending.message)
        if not resized.progress:
            return resized
        if not any(one.type == IN_PROGRESS for one in pod.status.conditions):
            self._report(pod, self._observed(pod, step, records=records, resized=resized))
        resized = resize(pod, resized, self._runtime, lambda one: self._restart(pod, one, records))
        if resized.trouble and not is_told(pod, IN_PROGRESS, resized.trouble):
            self._events.warn(pod, "ResizeError", resized.trouble)
        return resized

    def _restart(self, pod: Pod, container: Container, records: Mapping[str, ClaimRecord]) -> None:
        """Raises: ContainerFailed."""
        uid = pod.metadata.uid
        self._runtime.end(uid, container.name, grace_seconds=pod.spec.termination_grace_period_seconds or 0)
        run = self._runtime.runs(uid)[container.name]
        start = Start(container, run.role, run.attempt + 1)
        self._runtime.start(self._request(self._pods.get(uid) or pod, start, records))

    def _way_of(self, pod: Pod, step: ContainerPlan) -> TracedWay:
        """Of a pod that begins here; else nothing is traced."""
        begins = traces.on() and bool(step.starts) and pod.status.phase in ("", "Pending")
        return TracedWay(pod if begins else None, self._clock)

    def _prepare(self, pod: Pod, step: ContainerPlan) -> Mapping[str, ClaimRecord]:
        try:
            return self._preparer.prepare(pod)
        except (PrepareRefused, PrepareFailed, StorageFailed) as error:
            self._events.warn(pod, "FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {error}")
            self._report(pod, self._observed(pod, step, prepared=False))
            raise

    def _mount(self, pod: Pod, step: ContainerPlan) -> None:
        """Containers that run go on with the files that they have; none is started without what it names."""
        try:
            self._volumes.update(pod, starting=bool(step.starts))
        except MountFailed as error:
            self._events.warn(pod, "FailedMount", str(error))
            if step.starts:
                self._report(pod, self._observed(pod, step, prepared=False))
                raise

    def _start_all(self, pod: Pod, step: ContainerPlan, records: Mapping[str, ClaimRecord]) -> None:
        trouble: dict[str, ContainerFailed] = {}
        for start in step.starts:
            kind = "container" if start.role == "main" else "init_container"
            try:
                self._runtime.start(self._request(pod, start, records))
                self._started(kind, "")
            except ContainerFailed as error:
                self._started(kind, error.reason)
                trouble[start.container.name] = error
                self._events.warn(pod, "Failed", f"Error: container {start.container.name}: {error}")
        if trouble:
            self._report(pod, self._observed(pod, step, trouble=trouble))
            raise ContainerFailed("; ".join(f"container {name}: {why}" for name, why in trouble.items()))

    def _request(self, pod: Pod, start: Start, records: Mapping[str, ClaimRecord]) -> ContainerRequest:
        """Raises: ContainerFailed."""
        for name in (pod.metadata.uid, start.container.name, *(volume.name for volume in pod.spec.volumes)):
            if not is_file_name(name):
                raise ContainerFailed(f"{name!r} cannot be a file's name", reason="CreateContainerConfigError")
        devices = container_devices(pod, start.container, records)
        given = set(devices)
        return container_request(
            pod,
            allocated(pod, start.container),
            role=start.role,
            attempt=start.attempt,
            cdi_devices=devices,
            claims=tuple(r.uid for r in records.values() if any(given & set(d.cdi_device_ids) for d in r.devices)),
            addresses=Addresses(host=self._host_ip, pod=pod_ip(pod, host_ip=self._host_ip)),
            source=self._sources,
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
        known = self._health() if records else {}
        containers = (*pod.spec.init_containers, *pod.spec.containers) if records else ()
        return Observed(
            runs=self._runtime.runs(pod.metadata.uid),
            prepared=prepared,
            initialized=step.initialized,
            waiting=step.waiting,
            trouble=trouble or {},
            resized=resized,
            health={c.name: resource_statuses(pod, c, records or {}, known) for c in containers},
        )

    # Reporting.

    def _report(self, pod: Pod, seen: Observed) -> None:
        """Write the pod's status if it has changed. A pod that is gone or has been replaced needs no report."""
        for _ in range(CONFLICT_RETRIES):
            # A clock that was set back must not let things happen before the pod began.
            now = max(self._clock(), posix_seconds(pod.status.start_time))
            status = pod_status(pod, seen, host_ip=self._host_ip, now=now)
            if status == pod.status:
                return
            try:
                self._write(pod, status)
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
                return  # what somebody else ended does not run again
            if refused.forbidden and fresh.metadata.resource_version == pod.metadata.resource_version:
                raise refused
            pod = fresh
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        raise AgentError(f"pod {name} changes faster than its status can be written")

    def _write(self, pod: Pod, status: PodStatus) -> None:
        self._pods.put(self._client.update(PODS, replace(pod, status=status), subresource="status"))

    def _fetch(self, pod: Pod) -> Pod | None:
        """The pod as it is now; None when it is gone or another, perhaps of another node, has taken its name."""
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


def _grace(pod: Pod, failure: PodFailure | None) -> int:
    """Seconds in which its containers may end by themselves."""
    given = pod.spec.termination_grace_period_seconds or 0
    return min(given, EVICTION_GRACE) if failure and failure.reason == EVICTED else given
