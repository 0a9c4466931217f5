"""`manciple end-gates`: ends the gates of steered pods that nobody has ended in time, Manciple or not.

A process of its own, which needs the cluster's API and nothing else: no database, no Redis, no mirror. While all is
well it only watches, because Manciple removes a gate long before its time is over.

    follow   lists and watches the pods with the label, and keeps those at the gate in a `GateTable`
    end      waits until a gate's time is over, removes it, and says so in an event

Each watch begins with a listing, which replaces the table: nothing is missed for longer than a watch lasts, whether the
server forgot the past (410), was restarted or restored, or sent what is no event.

Any number of replicas may run: the patch says which pod it is for and that the gate is where it was seen, so the second
one changes nothing. Other gates of the pod stay.
"""

from __future__ import annotations

import argparse
import logging
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import msgspec

from manciple.durations import duration, moment
from manciple.mirror import command, credentials, listing
from manciple.mirror.client import Remote, Watch, clock_skew
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.json_texts import Malformed, decoded
from manciple.mirror.kubeconfig import Access
from manciple.mirror.sources import POD
from manciple.mirror.steering.names import GATE, LABEL, LABEL_VALUE, TIME_LIMIT
from manciple.telemetry import logs

log = logging.getLogger(__name__)

SELECTOR: Final = f"{LABEL}={LABEL_VALUE}"
#: Seconds from a pod's creation after which its gate ends: Manciple, which ends it after TIME_LIMIT, comes first.
AFTER: Final = TIME_LIMIT + 30.0
#: Seconds without a line after which a watch counts as dead; servers send bookmarks every minute.
SILENCE: Final = 150.0
#: Seconds until the server ends a watch by itself: at least so many, and at most twice as many.
WATCH_SECONDS: Final = 300
#: Seconds between two attempts where the server cannot do it now: at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
#: Seconds until a pod is tried again whose gate could not be removed: at first, and at most.
FIRST_RETRY, LONGEST_RETRY = 2.0, 300.0
#: Seconds by which replicas differ in when they end a gate.
SPREAD: Final = 2.0
#: Seconds for which a loop is waited for that is to end.
STOPPED_WITHIN: Final = 5.0
#: Seconds between two lines of the log about the same failure.
SAID_EVERY: Final = 60.0

#: Of the events.
REASON, COMPONENT = "SteeringGateEnded", "manciple-end-gates"
#: What servers answer that cannot do it now.
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
#: It has changed since it was seen: it is another pod of that name, or its gates are others.
_OTHERWISE: Final = frozenset({HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY})


# What is read ---------------------------------------------------------------------------------------------------------


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class _Gate(msgspec.Struct):
    name: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    scheduling_gates: list[_Gate] | None = None


class _Pod(msgspec.Struct):
    """Or a bookmark."""

    metadata: _Meta
    spec: _Spec | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    message: str = ""
    code: int = 0


_events, _pods = msgspec.json.Decoder(_Event), msgspec.json.Decoder(_Pod)
_statuses = msgspec.json.Decoder(_Status)


@dataclass(frozen=True, slots=True)
class GatedPod:
    """index: of our gate among the pod's."""

    namespace: str
    name: str
    uid: str
    index: int
    created: datetime | None

    @classmethod
    def of(cls, pod: _Pod) -> GatedPod | None:
        """None for one that is not at our gate, or is being deleted."""
        meta, gates = pod.metadata, (pod.spec.scheduling_gates if pod.spec is not None else None) or ()
        index = next((number for number, gate in enumerate(gates) if gate.name == GATE), None)
        if index is None or meta.deletion_timestamp:
            return None
        try:
            created = moment(meta.creation_timestamp)
        except ValueError:
            created = None
        return cls(meta.namespace, meta.name, meta.uid, index, created)

    def patch(self) -> bytes:
        """JSON patch that removes the gate, of this pod alone, and only while it is where it was seen."""
        gate = f"/spec/schedulingGates/{self.index}"
        return msgspec.json.encode(
            [
                {"op": "test", "path": "/metadata/uid", "value": self.uid},
                {"op": "test", "path": f"{gate}/name", "value": GATE},
                {"op": "remove", "path": gate},
            ]
        )

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# When gates end -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class GateEntry:
    """at: when the pod's gate ends or is tried again, by the monotonic clock. selected: it is still among the pods that
    are followed. attempts: that failed.
    """

    pod: GatedPod
    at: float
    selected: bool = True
    attempts: int = 0


@dataclass(slots=True)
class GateTable:
    """The pods at the gate, by uid. limit: seconds from a pod's creation to the end of its gate. From any thread.

    Ages are by the server's clock. Whichever is wrong, a gate ends at most `limit` seconds after it was first seen.
    """

    limit: float
    clock: Callable[[], float] = time.monotonic
    #: the time at the server
    now: Callable[[], datetime] = lambda: datetime.fromtimestamp(time.time() + clock_skew.value, UTC)
    _entries: dict[str, GateEntry] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _stopped: bool = False

    def __len__(self) -> int:
        return len(self._entries)

    def replace(self, pods: Iterable[GatedPod]) -> None:
        """These are all that are followed."""
        with self._changed:
            listed = {pod.uid: pod for pod in pods}
            for uid in [uid for uid, entry in self._entries.items() if entry.selected and uid not in listed]:
                del self._entries[uid]
            for pod in listed.values():
                self._put(pod)
            self._changed.notify_all()

    def put(self, pod: GatedPod) -> None:
        with self._changed:
            self._put(pod)
            self._changed.notify_all()

    def _put(self, pod: GatedPod) -> None:
        entry = self._entries.get(pod.uid)
        if entry is None:
            age = (self.now() - pod.created).total_seconds() if pod.created is not None else 0.0
            left = min(max(self.limit - age, 0.0), self.limit)
            spread = random.uniform(0.0, min(SPREAD, self.limit / 10))  # noqa: S311 - not a secret
            entry = self._entries[pod.uid] = GateEntry(pod, self.clock() + left + spread)
        entry.pod, entry.selected = pod, True

    def deselect(self, pod: GatedPod) -> None:
        """It is followed no more: it was deleted, or lost its label and so is steered no more. Then its gate, which
        nobody would ever look at again, ends now.
        """
        with self._changed:
            self._entries[pod.uid] = GateEntry(pod, self.clock(), selected=False)
            self._changed.notify_all()

    def drop(self, uid: str) -> None:
        with self._changed:
            self._entries.pop(uid, None)

    def retry(self, uid: str) -> float:
        """Later, and later each time: how many seconds. 0 where it is followed no more."""
        with self._changed:
            entry = self._entries.get(uid)
            if entry is None or not entry.selected:
                self._entries.pop(uid, None)
                return 0.0
            wait = min(FIRST_RETRY * 2.0**entry.attempts, LONGEST_RETRY)
            entry.at, entry.attempts = self.clock() + wait, min(entry.attempts + 1, 10)
            return wait

    def due(self) -> GateEntry | None:
        """Waits for the next whose time is over. None once it is stopped."""
        with self._changed:
            while not self._stopped:
                first = min(self._entries.values(), key=lambda entry: entry.at, default=None)
                if first is not None and first.at <= self.clock():
                    return first
                self._changed.wait(None if first is None else first.at - self.clock())
        return None

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


# The two loops --------------------------------------------------------------------------------------------------------


class GateEnder:
    """`follow` and `end` run in a thread each, until `stop`. namespace: the only one with gates to end; "" for all."""

    def __init__(self, remote: Remote, table: GateTable, *, namespace: str = "", silence: float = SILENCE) -> None:
        self.table = table
        self._remote, self._namespace, self._silence = remote, namespace, silence
        self._path = POD.path("v1", namespace=namespace)
        self._stopping = threading.Event()
        self._open: Watch | None = None
        self._following, self._ending = _Pauses("follow pods"), _Pauses("end gates")
        self._event_refused = False

    def stop(self) -> None:
        self._stopping.set()
        self.table.stop()
        if (watch := self._open) is not None:
            watch.end()

    def follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self._watch(self._listed())
            except RemoteFailure as failure:
                if not self._stopping.is_set():
                    self._stopping.wait(self._following.after(failure))
            else:
                # A server that ends each watch at once is not asked without end.
                self._stopping.wait(FIRST_PAUSE)

    def _listed(self) -> str:
        """The version that was listed. Raises: RemoteFailure."""
        found, reached = list[GatedPod](), ""
        for page in listing.pages(self._remote, self._path, selector=SELECTOR):
            if page.is_first:
                found, reached = [], page.version
            found += filter(None, map(_gated, page.items))
        self.table.replace(found)
        return reached

    def _watch(self, version: str) -> None:
        """From there, until the server ends it. Raises: RemoteFailure."""
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": SELECTOR,
            "resourceVersion": version,
            "timeoutSeconds": str(random.randint(WATCH_SECONDS, 2 * WATCH_SECONDS)),  # noqa: S311 - not a secret
        }
        with self._remote.watch(self._path, params, silence=self._silence) as watch:
            self._open = watch
            try:
                if self._stopping.is_set():
                    watch.end()
                self._following.over()
                for line in watch:
                    self._note(line)
            finally:
                self._open = None

    def _note(self, line: bytes) -> None:
        """Raises: RemoteFailure for an error, and for what is no event."""
        try:
            event = decoded(_events.decode, line)
            if event.type == "ERROR":
                status = decoded(_statuses.decode, event.object)
                raise RemoteFailure(status.message or "the watch ended with an error", code=status.code)
            pod = decoded(_pods.decode, event.object)
        except Malformed as error:
            raise RemoteFailure(f"the watch of pods sent something that is not an event: {error}") from error
        gated = None if event.type == "BOOKMARK" else GatedPod.of(pod)
        if gated is None:
            self.table.drop(pod.metadata.uid)
        elif event.type == "DELETED":
            self.table.deselect(gated)
        else:
            self.table.put(gated)

    def end(self) -> None:
        while (entry := self.table.due()) is not None:
            try:
                self._end(entry.pod, selected=entry.selected)
            except RemoteFailure as failure:
                self._stopping.wait(self._ending.after(failure))
            else:
                self._ending.over()

    def _end(self, pod: GatedPod, *, selected: bool) -> None:
        """Raises: RemoteFailure where the server cannot do it now."""
        path = POD.path("v1", namespace=pod.namespace, name=pod.name)
        answer = self._remote.send("PATCH", path, body=pod.patch(), content_type="application/json-patch+json")
        if answer.code < HTTPStatus.BAD_REQUEST:
            self.table.drop(pod.uid)
            if selected:
                why = f"it was still there after {duration(self._age(pod))}"
            else:
                why = f"the pod has no label {SELECTOR} any more"
            log.info("pod %s: its gate was removed, because %s", pod, why)
            self._tell(pod, why)
        elif answer.code == HTTPStatus.NOT_FOUND:
            self.table.drop(pod.uid)
        elif answer.code in _BUSY:
            raise RemoteFailure(_message(answer.content, answer.code), code=answer.code)
        elif (wait := self.table.retry(pod.uid)) and answer.code not in _OTHERWISE:
            said = _message(answer.content, answer.code)
            log.warning("pod %s: its gate could not be ended, next attempt in %s: %s", pod, duration(wait), said)

    def _age(self, pod: GatedPod) -> float:
        """The server's clock tells whole seconds: a pod may seem a little younger than it must be."""
        created = pod.created or self.table.now()
        return max(self.table.limit, (self.table.now() - created).total_seconds())

    def _tell(self, pod: GatedPod, why: str) -> None:
        """In an event, which `kubectl describe` shows. Without the right to create it, the log has it all the same."""
        now = self.table.now().isoformat(timespec="seconds").replace("+00:00", "Z")
        event: Mapping[str, object] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{pod.name[:230].rstrip('-.')}.{time.time_ns():x}", "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "type": "Warning",
            "reason": REASON,
            "message": f"The gate {GATE} was removed, because {why}. The scheduler chooses a node by itself.",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": socket.gethostname(),
        }
        path = f"/api/v1/namespaces/{pod.namespace}/events"
        try:
            answer = self._remote.send("POST", path, body=msgspec.json.encode(event))
            refused = "" if answer.code < HTTPStatus.BAD_REQUEST else _message(answer.content, answer.code)
        except RemoteFailure as failure:
            refused = str(failure)
        if refused and not self._event_refused:
            log.warning("events cannot be created: %s", refused)
        self._event_refused = bool(refused)


class _Pauses:
    """How long to wait after failures in a row, each of which is said once a minute at most."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._failures, self._said, self._said_at = 0, "", 0.0

    def after(self, failure: RemoteFailure) -> float:
        pause = max(failure.retry_after, min(FIRST_PAUSE * 2.0**self._failures, LONGEST_PAUSE))
        self._failures = min(self._failures + 1, 10)
        now = time.monotonic()
        if str(failure) != self._said or now - self._said_at >= SAID_EVERY:
            self._said, self._said_at = str(failure), now
            log.warning("cannot %s: %s", self._what, command.printable(str(failure)))
        return pause * random.uniform(1.0, 1.5)  # noqa: S311 - not a secret

    def over(self) -> None:
        if self._said:
            log.info("can %s again", self._what)
        self._failures, self._said = 0, ""


def _gated(item: msgspec.Raw) -> GatedPod | None:
    """None also for what is no pod: it is no reason to leave the others at their gates."""
    try:
        return GatedPod.of(decoded(_pods.decode, item))
    except Malformed as error:
        log.warning("the list of pods holds what is no pod: %s", error)
        return None


def _message(content: bytes, code: int) -> str:
    try:
        return command.printable(decoded(_statuses.decode, content).message) or f"the server answered {code}"
    except Malformed:
        return f"the server answered {code}"


# The command ----------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="manciple end-gates",
        description=f"Removes the scheduling gate {GATE} from pods that still have it after a while.",
    )
    made.add_argument(
        "--after",
        type=command.seconds,
        default=AFTER,
        metavar="SECONDS",
        help="since the pod was created (default: %(default)g)",
    )
    made.add_argument("--log-format", choices=logs.FORMATS, default="text", help="(default: %(default)s)")
    command.add_options(made)
    return made


def main(arguments: Sequence[str]) -> int:
    """Until SIGINT or SIGTERM: 0. 1 where it cannot start, or one of its threads failed: start it again."""
    options = parser().parse_args(arguments)
    logs.begin(level="INFO", format_=options.log_format)

    def access() -> Access:
        return credentials.complete(command.access_of(options))

    try:
        remote = Remote(access(), timeout=options.request_timeout, renew=access)
    except RemoteFailure as failure:
        command.tell(failure, options)
        return command.FAILED
    ender = GateEnder(remote, GateTable(options.after), namespace=options.namespace)
    log.info("ending gates after %s, on %s", duration(options.after), remote.server)
    try:
        return run(ender)
    finally:
        remote.close()


def run(ender: GateEnder) -> int:
    """Until a signal, for which this thread waits. Returns the exit status."""
    ends, failed, waiting = (signal.SIGINT, signal.SIGTERM), threading.Event(), threading.get_ident()

    def guarded(loop: Callable[[], None]) -> None:
        try:
            loop()
        except Exception:
            log.exception("this process cannot go on")
            failed.set()
            signal.pthread_kill(waiting, signal.SIGTERM)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    threads = [threading.Thread(target=guarded, args=(loop,), daemon=True) for loop in (ender.follow, ender.end)]
    for thread in threads:
        thread.start()
    signal.sigwait(ends)
    ender.stop()
    for thread in threads:
        thread.join(STOPPED_WITHIN)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return command.FAILED if failed.is_set() else 0
