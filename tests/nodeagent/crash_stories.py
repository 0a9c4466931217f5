"""The stories that are told once for each step at which an agent may be struck."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx

from nodeagent.failures import AgentError
from nodeagent.runtimes.protocol import Runtime
from tests.nodeagent.fake_api import FakeApi
from tests.nodeagent.faults import Fault, FaultyDisk, FaultyDriver, FaultyNetwork, FaultyRuntime, Killed
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import claim, container, pod

NIC = "nic.example.com"


@dataclass(frozen=True, slots=True)
class Chapter:
    """Something that happens to a node. down: while its agent is not running; it is started afterwards."""

    happens: Callable[[Machine], None]
    down: bool = False


def machine_under(folder: Path, fault: Fault) -> Machine:
    """A node with two drivers, each of whose steps `fault` sees."""
    api = FakeApi()
    drivers = [FaultyDriver(fault), FaultyDriver(fault, name=NIC)]

    def wrapped(runtime: Runtime) -> Runtime:
        return cast("Runtime", FaultyRuntime(runtime, fault))

    http = cast("httpx.Client", FaultyNetwork(api, fault))
    return Machine(folder, drivers=drivers, api=api, disk=FaultyDisk(fault), http=http, wrapped=wrapped)


def tell(folder: Path, fault: Fault, chapters: Sequence[Chapter]) -> Machine:
    """A story under `fault`; the invariants are checked after each chapter, and that the node is empty at the end."""
    machine = machine_under(folder, fault)
    live(machine, machine.start)
    for chapter in chapters:
        fault.begin_chapter()
        chapter.happens(machine)
        live(machine, machine.restart if chapter.down else None)
        machine.check_invariants()
    assert machine.agent.preparer.records() == ()
    return machine


def live(machine: Machine, start: Callable[[], None] | None = None) -> None:
    """Let the node do its work; an agent that is killed is started again."""
    while True:
        try:
            if start is not None:
                _insist(start, machine)
            machine.settle()
        except Killed:
            start = machine.restart
        else:
            return


def _insist(start: Callable[[], None], machine: Machine) -> None:
    """As `Agent.run` does with its first steps."""
    with suppress(AgentError):
        start()
        return
    machine.start()


# What happens.


def _comes(name: str, *uses: str, claims: dict[str, dict[str, Any]], **fields: Any) -> Callable[[Machine], None]:
    def happens(machine: Machine) -> None:
        for document in claims.values():
            machine.api.put("resourceclaims", document)
        names = {entry: document["metadata"]["name"] for entry, document in claims.items()}
        document = pod(name, container("main", *(uses or names)), claims=names, **json.loads(json.dumps(fields)))
        machine.api.put("pods", document)

    return happens


def _goes(*names: str, grace: int = 30, released: Sequence[dict[str, Any]] = ()) -> Callable[[Machine], None]:
    """Pods are deleted; the claims `released` are what the claim controller makes of theirs."""

    def happens(machine: Machine) -> None:
        for name in names:
            machine.api.delete("pods", name, grace=grace)
        for document in released:
            machine.api.put("resourceclaims", document)

    return happens


def _vanishes(machine: Machine) -> None:
    """Pod and claim are gone for good."""
    machine.api.delete("pods", "p", grace=0)
    machine.api.delete("resourceclaims", "c")


def _claim_vanishes(machine: Machine) -> None:
    """Somebody removed the finalizer of a claim in use."""
    machine.api.delete("pods", "p")
    machine.api.delete("resourceclaims", "c")


def _replaced(machine: Machine) -> None:
    """The device goes to the next claim of that name, and to its pod, before the node knows that the first is gone."""
    _vanishes(machine)
    machine.api.put("resourceclaims", claim("c", "gpu-0", pods=("uid-q",), uid="claim-next"))
    machine.api.put("pods", pod("q", claims={"a": "c"}))


def _allocated_anew(machine: Machine) -> None:
    """The same claim, another device and pod."""
    machine.api.delete("pods", "p", grace=0)
    machine.api.put("resourceclaims", claim("c", "gpu-5", pods=("uid-q",)))
    machine.api.put("pods", pod("q", claims={"a": "c"}))


def _damaged(machine: Machine) -> None:
    (machine.folder / "state" / "claims" / "claim-c.json").write_text('{"version": 1, "check')


def _damaged_and_alone(machine: Machine) -> None:
    _damaged(machine)
    _vanishes(machine)


def _rebooted(machine: Machine) -> None:
    machine.boot += "'"
    for driver in machine.recording_drivers:
        driver.held.clear()
    shutil.rmtree(machine.cdi_dir, ignore_errors=True)
    shutil.rmtree(machine.folder / "state" / "containers", ignore_errors=True)


def _finishes(machine: Machine) -> None:
    machine.clock.now += 60


def _ends(name: str) -> Chapter:
    return Chapter(_goes(name, released=(C_FREE,)))


C = claim("c", "gpu-0", pods=("uid-p",))
C_FREE = claim("c", "gpu-0")
BOTH = claim("c", "gpu-0", "gpu-1", pods=("uid-p",))
BOTH["status"]["allocation"]["devices"]["results"][1]["driver"] = NIC
INITS = {"spec": {"initContainers": [container("setup", "a"), container("side", restartPolicy="Always")]}}
ONCE = {"metadata": {"annotations": {"manciple.dev/run-seconds": "5"}}, "spec": {"restartPolicy": "Never"}}
COMES, GOES = Chapter(_comes("p", claims={"a": C})), Chapter(_goes("p", released=(C_FREE,)))
NEXT_GOES = Chapter(_goes("q", released=(claim("c", "gpu-5"),)))

#: Every chapter begins where the one before it has settled; so each can be struck in one telling, by one fault.
STORIES: dict[str, tuple[Chapter, ...]] = {
    "a pod with two claims, one of them shared with a second pod": (
        Chapter(_comes("p", "a/gpu1", "b", claims={"a": claim("own", "gpu-1", "gpu-2", pods=("uid-p",)), "b": C})),
        Chapter(_comes("q", claims={"b": claim("c", "gpu-0", pods=("uid-p", "uid-q"))})),
        Chapter(_goes("p", released=(claim("own", "gpu-1", "gpu-2"), claim("c", "gpu-0", pods=("uid-q",))))),
        Chapter(_goes("q", released=(C_FREE,))),
    ),
    "two drivers; init containers and a sidecar; a pod that ends by itself; one deleted by force": (
        Chapter(_comes("p", claims={"a": BOTH})),
        GOES,
        Chapter(_comes("p", claims={"a": C}, **INITS)),
        GOES,
        Chapter(_comes("p", claims={"a": C}, **ONCE)),
        Chapter(_finishes),
        GOES,
        COMES,
        Chapter(_goes("p", grace=0, released=(C_FREE,))),
    ),
    "pods and claims come, go, and vanish while the agent is down": (
        Chapter(COMES.happens, down=True),
        Chapter(GOES.happens, down=True),
        COMES,
        Chapter(_vanishes, down=True),
        COMES,
        Chapter(_claim_vanishes, down=True),
    ),
    "devices go to others while the agent is down": (
        COMES,
        Chapter(_replaced, down=True),
        NEXT_GOES,
        COMES,
        Chapter(_allocated_anew, down=True),
        NEXT_GOES,
    ),
    "records are damaged and the machine rebooted": (
        COMES,
        Chapter(_damaged, down=True),
        Chapter(_damaged_and_alone, down=True),
        COMES,
        Chapter(_rebooted, down=True),
        GOES,
    ),
}
