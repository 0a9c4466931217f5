"""Storms and what must hold after them.

When the last fault is over, clients stop, what administrators left behind is taken back, and the system settles: nodes
are ready, whatever can run runs, whatever is deleted goes. Then the invariants hold; everything is deleted, and they
hold again, with every device free. No client was told what it should not have been, nobody ended by itself, no object
was seen as one object could not have been, no watch lost anything, and at no revision was a device given twice.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx

from tests.builders import make_pod
from tests.chaos.clients import (
    NAMESPACE,
    Administrator,
    Client,
    Holdings,
    Notes,
    Registrar,
    Stays,
    User,
    Watcher,
    Worker,
    counted,
    document,
    place,
)
from tests.chaos.faults import Storm
from tests.chaos.field import CLASSES, Field
from tests.chaos.limits import Limits
from tests.chaos.linearizability import Undecided, contradiction
from tests.chaos.strikes import Strike, drawn
from tests.e2e.api_client import Document
from tests.e2e.processes import wait_for

#: Seconds from quiet within which everything has settled.
PROMISED = 90.0
ENDED = ("Succeeded", "Failed")


@dataclass
class Verdict:
    """violations: sentences. figures: what happened, for whoever reads it."""

    violations: list[str] = field(default_factory=list)
    figures: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """How large a storm is. pause: seconds from one fault to the next, in the mean. limits: with people who run into
    limits, and an oracle that adds up what is given (`tests.chaos.limits`).
    """

    seed: int
    seconds: float
    pause: float = 1.0
    registrars: int = 3
    users: int = 3
    limits: bool = False


class Weather:
    """One storm over a field."""

    def __init__(self, over: Field, plan: Plan, say: Callable[[str], None]) -> None:
        self._field, self._plan, self._say = over, plan, say
        self._notes, self._holdings, self._stays = Notes(), Holdings(), Stays()
        self._limits = self._made_limits() if plan.limits else None
        self._workers = list(self._made_workers())
        self._watchers = list(self._made_watchers())
        self._storm = Storm(over.faults, over.victims, say=self._stamped)
        self._began = self._quiet = time.monotonic()
        #: histories that are too tangled to be searched
        self._undecided: list[str] = []

    def _stamped(self, line: str) -> None:
        self._say(f"{time.monotonic() - self._began:7.1f}  {line}")

    def _client(self) -> Client:
        return Client(self._field.kubeconfig, self._notes, self._field.server)

    def _made_limits(self) -> Limits:
        over = self._field
        return Limits(over.kubeconfig, over.server, self._plan.seed, self._notes, self._stamped)

    def _made_workers(self) -> Iterator[Worker]:
        seed, templates = self._plan.seed, list(self._field.templates)
        classes = [CLASSES[name] for name in templates]
        for number in range(self._plan.registrars):
            yield Registrar(f"registrar-{number}", self._client(), seed, self._notes)
        for number in range(self._plan.users):
            yield User(f"user-{number}", self._client(), seed, templates, classes)
        yield Administrator("administrator", self._client(), seed, list(self._field.nodes), classes)
        yield from self._limits.workers if self._limits else ()

    def _made_watchers(self) -> Iterator[Watcher]:
        wrong, seed = self._notes.wrong, self._plan.seed
        yield Watcher("ResourceClaim", self._client(), seed, wrong=wrong, seen=self._holdings.seen)
        yield Watcher("Pod", self._client(), seed, wrong=wrong, seen=self._stays.seen)

    def pass_over(self) -> Verdict:
        """The storm, and what is found after it."""
        seconds = self._plan.seconds
        planned = list(drawn(self._plan.seed, self._storm.threats, seconds, pause=self._plan.pause))
        supervising = threading.Thread(target=self._storm.supervise, args=(self._field.excused,), daemon=True)
        supervising.start()
        if self._limits:
            self._limits.furnish()
        for worker in (*self._watchers, *self._standing, *self._workers):
            worker.start()
        try:
            self._storm.rage(planned, seconds)
        finally:
            self._storm.end()
            supervising.join()
            for worker in self._workers:
                worker.stopped.set()
        self._stamped("quiet")
        for worker in self._workers:
            worker.stop()
        return self._judged(planned)

    @property
    def _standing(self) -> Sequence[Worker]:
        """Those who work on after the storm."""
        return self._limits.nodes if self._limits else ()

    # The judgement ---------------------------------------------------------------------------------------------------

    def _judged(self, planned: Sequence[Strike]) -> Verdict:
        found = Verdict()
        self._quiet = quiet = time.monotonic()
        settling = Settling(self._field, self._client(), list(self._notes.histories))
        take_back, clear = (self._limits.take_back, self._limits.clear) if self._limits else (_nothing, _nothing)
        for name, act in (
            ("rid of limits", take_back),
            ("settled", settling.settle),
            ("told by the watches", self._watched),
            ("the invariants hold", self._invariants),
            ("cleared", settling.clear),
            ("cleared of what had limits", clear),
            ("told by the watches in the end", self._watched),
            ("the invariants hold with nothing left", self._invariants),
            ("nothing lies about", self._tidy),
        ):
            try:
                act()
            except AssertionError as error:
                found.violations.append(f"not {name}: {error}")
            self._stamped(f"{name}: {time.monotonic() - quiet:.1f} s after the storm")
        for watcher in (*self._watchers, *self._standing):
            watcher.stop()
        found.violations += [f"{name} ended by itself" for name in self._storm.ended]
        found.violations += self._storm.broken + self._notes.wrong + self._holdings.wrong + self._stays.wrong
        found.violations += self._limits.oracle.wrong if self._limits else []
        everybody = (*self._workers, *self._watchers, *self._standing)
        found.violations += [worker.error for worker in everybody if worker.error]
        found.violations += self._impossible()
        found.figures = self._figures(planned)
        return found

    def _invariants(self) -> None:
        """They hold, or do so within the time that healing may take. Raises: AssertionError."""
        while True:
            try:
                self._field.installation.check_invariants()
            except AssertionError:
                if time.monotonic() > self._quiet + PROMISED:
                    raise
            else:
                return

    def _tidy(self) -> None:
        """No file of a claim is left. Raises: AssertionError."""
        left = self._field.left_behind
        with suppress(AssertionError):
            wait_for("the last files to go", lambda: not left(), timeout=PROMISED)
        assert not left(), f"there are still {', '.join(left())}"

    def _watched(self) -> None:
        """The watches have told, or tell within a moment, all that a list finds. Raises: AssertionError."""
        client = self._client()
        for watcher in self._watchers:
            found = client.surely("GET", watcher.path)
            with suppress(AssertionError):
                wait_for("the watch to tell all", partial(_tells_all, watcher, found), timeout=20)
            if missed := watcher.missed(found):
                raise AssertionError(f"the {watcher.name} has missed {', '.join(missed)}")

    def _impossible(self) -> Iterator[str]:
        for path, history in sorted(self._notes.histories.items()):
            try:
                stuck = contradiction(history)
            except Undecided as error:
                self._undecided.append(f"{path}: {error}")
                continue
            if stuck:
                yield "\n    ".join([f"{path} was seen as one object cannot be; at", *map(str, stuck)])

    def _figures(self, planned: Sequence[Strike]) -> dict[str, object]:
        histories = self._notes.histories.values()
        return {
            "faults": len(planned),
            "operations of registers": sum(map(len, histories)),
            "histories that could not be decided": self._undecided or "none",
            "of unknown outcome": sum(one.outcome == "unknown" for history in histories for one in history),
            "events watched": sum(watcher.events for watcher in self._watchers),
            "devices given at once, at most": self._holdings.most,
            "states of pods seen": dict(self._stays.phases),
            "answers": counted(self._notes.answers),
            "kinds of faults": dict(Counter(fault.split()[0] for fault in self._storm.begun)),
            **(self._limits.figures() if self._limits else {}),
        }


def _nothing() -> None:
    """What is done where there is nothing to do."""


def _tells_all(watcher: Watcher, found: Document) -> bool:
    return not watcher.missed(found)


class Settling:
    """The quiet after a storm."""

    def __init__(self, over: Field, client: Client, registers: Iterable[str]) -> None:
        self._field, self._client, self._registers = over, client, registers
        self._end = time.monotonic() + PROMISED

    def _left(self) -> float:
        """Seconds until everything must have settled."""
        return max(0.0, self._end - time.monotonic())

    def settle(self) -> None:
        """Everything that may run runs. Raises: AssertionError."""
        self._take_back()
        for node in self._field.nodes:
            wait_for(f"{node} to be ready", partial(self._is_ready, node), timeout=self._left())
        for node in self._field.nodes:
            probe = make_pod(f"probe-{node}", namespace=NAMESPACE, node_selector={"kubernetes.io/hostname": node})
            self._client.surely("POST", place("Pod"), document(probe), fine=(409,))
        try:
            wait_for("every pod to have come to rest", lambda: not self._restless(), timeout=self._left())
        except AssertionError as error:
            raise AssertionError(f"{error}: {'; '.join(self._restless()[:5])}") from None

    def _take_back(self) -> None:
        for kind in ("DeviceTaintRule", "ResourceQuota"):
            for one in self._client.items(place(kind)):
                self._client.surely("DELETE", place(kind, one["metadata"]["name"]), fine=(404,))
        for node in self._field.nodes:
            self._client.surely("PATCH", place("Node", node), {"spec": {"unschedulable": None}}, fine=(404,))

    def _is_ready(self, node: str) -> bool:
        with suppress(httpx.TransportError):
            found = self._client.surely("GET", place("Node", node), fine=(404,))
            conditions = found.get("status", {}).get("conditions", ()) if found.get("kind") == "Node" else ()
            tainted = found.get("spec", {}).get("taints", ())
            return not tainted and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        return False

    def _restless(self) -> list[str]:
        """What is still to happen to pods, in words."""
        return [told for pod in self._client.items(place("Pod")) if (told := _still_to_come(pod))]

    def clear(self) -> None:
        """Everything is deleted, and gone. Raises: AssertionError."""
        for kind in ("Pod", "ResourceClaim"):
            for one in self._client.items(place(kind)):
                self._client.surely("DELETE", place(kind, one["metadata"]["name"]), fine=(404,))
        for path in self._registers:
            self._client.surely("DELETE", path, fine=(404,))
        wait_for("all pods and claims to be gone", self._is_empty, timeout=PROMISED)

    def _is_empty(self) -> bool:
        return not any(self._client.items(place(kind)) for kind in ("Pod", "ResourceClaim"))


def _still_to_come(pod: Document) -> str:
    """What is still to happen to a pod, in words; "" where it runs, has ended, or cannot be placed."""
    name, phase = pod["metadata"]["name"], pod.get("status", {}).get("phase", "Pending")
    if "deletionTimestamp" in pod["metadata"]:
        return f"{name} is being deleted"
    if phase in (*ENDED, "Running"):
        return ""
    conditions = {one["type"]: one for one in pod.get("status", {}).get("conditions", ())}
    scheduled = conditions.get("PodScheduled", {})
    if not pod["spec"].get("nodeName") and scheduled.get("status") == "False" and not name.startswith("probe-"):
        return ""
    return f"{name} is {phase} on {pod['spec'].get('nodeName', 'no node')}: {scheduled.get('message', '')}"


def keep(over: Field, folder: Path) -> None:
    """What processes and servers have written, for whoever looks for a cause."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, process in over.installation.processes.items():
        (folder / f"{name}.log").write_text("\n".join(process.output))
    for name, log in over.logs.items():
        (folder / f"{name}.log").write_text(log())
