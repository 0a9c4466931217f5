"""A pod that uses more of the node's disk than it may is ended, and says which limit that was."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claims.kinds.pods import Pod
from nodeagent.failures import ContainerFailed
from nodeagent.pods.volumes import INTERVAL, StorageLimits
from nodeagent.runtimes.protocol import PodStorage, Runtime
from tests.nodeagent.machine import Machine, run_pod
from tests.nodeagent.objects import claim, container, pod

MI = 1024 * 1024


class FillingRuntime:
    """Simulated containers that are told how much of the disk they use. asked: (volumes, layers) of measurements."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.used: PodStorage | ContainerFailed = PodStorage()
        self.asked: list[tuple[tuple[str, ...], bool]] = []
        #: done while it measures: time passes
        self.meanwhile: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def storage(self, _uid: str, volumes: Collection[str], *, layers: bool) -> PodStorage:
        self.asked.append((tuple(volumes), layers))
        self.meanwhile()
        if isinstance(self.used, ContainerFailed):
            raise self.used
        return self.used


@pytest.fixture
def filling(tmp_path: Path) -> Iterator[tuple[Machine, FillingRuntime]]:
    runtimes: list[FillingRuntime] = []

    def wrapped(runtime: Runtime) -> Any:
        runtimes.append(FillingRuntime(runtime))
        return runtimes[-1]

    machine = Machine(tmp_path, wrapped=wrapped)
    machine.start()
    yield machine, runtimes[-1]
    machine.check_invariants()


def emptydir(name: str = "scratch", **fields: Any) -> dict[str, Any]:
    return {"volumes": [{"name": name, "emptyDir": fields}]}


def limited(amount: str, name: str = "main") -> dict[str, Any]:
    return container(name, resources={"limits": {"ephemeral-storage": amount}})


# (containers, spec, used) -> what is said
CASES: dict[str, tuple[tuple[list[Any], dict[str, Any], PodStorage], str]] = {
    "a volume at its limit": (
        ([container("main")], emptydir(sizeLimit="1Mi"), PodStorage(volumes={"scratch": MI})),
        "",
    ),
    "a volume beyond it": (
        ([container("main")], emptydir(sizeLimit="1Mi"), PodStorage(volumes={"scratch": MI + 1})),
        'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". ',
    ),
    "a volume in memory has the kernel's": (
        ([container("main")], emptydir(sizeLimit="1Mi", medium="Memory"), PodStorage(volumes={"scratch": 9 * MI})),
        "",
    ),
    "a container beyond its own": (
        ([limited("1M"), limited("9M", "other")], {}, PodStorage(containers={"main": 2_000_000})),
        'Container main exceeded its local ephemeral storage limit "1M". ',
    ),
    "all of them with their volumes": (
        (
            [limited("1Mi"), limited("1Mi", "other")],
            emptydir(),
            PodStorage(volumes={"scratch": MI}, containers={"main": MI, "other": 1}),
        ),
        "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ",
    ),
    "no limit": (
        ([container("main")], emptydir(), PodStorage(volumes={"scratch": 99 * MI}, containers={"main": 99 * MI})),
        "",
    ),
}


@pytest.mark.parametrize(("given", "said"), CASES.values(), ids=CASES.keys())
def test_what_is_too_much(given: tuple[list[Any], dict[str, Any], PodStorage], said: str) -> None:
    containers, spec, used = given
    limits = StorageLimits.of(msgspec.convert(pod("p", *containers, spec=spec), Pod))
    assert (limits.exceeded(used) if limits.any else "") == said


def test_a_pod_that_fills_its_volume_is_evicted_and_gives_its_devices_back(
    filling: tuple[Machine, FillingRuntime],
) -> None:
    machine, runtime = filling
    machine.api.put("resourceclaims", claim("c", "gpu-0", pods=("uid-p",)))
    machine.api.put("pods", pod("p", claims={"gpu": "c"}, spec=emptydir(sizeLimit="1Mi")))
    runtime.used = PodStorage(volumes={"scratch": MI})
    machine.settle()
    assert machine.pod("p")["status"]["phase"] == "Running"

    runtime.used = PodStorage(volumes={"scratch": 2 * MI})
    machine.settle()
    assert machine.pod("p")["status"]["phase"] == "Running", "it is not measured at every look"
    machine.clock.now += INTERVAL
    machine.settle()

    status = machine.pod("p")["status"]
    said = 'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". '
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", said)
    assert machine.events("Evicted") == [said]
    assert machine.driver.held == set()


def test_measuring_takes_a_tenth_of_the_time_at_most_and_nobody_pays_without_a_limit(
    filling: tuple[Machine, FillingRuntime],
) -> None:
    machine, runtime = filling

    def takes_a_while() -> None:
        machine.clock.now += 30

    runtime.meanwhile = takes_a_while
    run_pod(machine, "free")
    machine.api.put("pods", pod("p", limited("1Gi"), spec=emptydir()))
    machine.settle()
    assert runtime.asked == [(("scratch",), True)]
    machine.clock.now += 299
    machine.settle()
    assert len(runtime.asked) == 1
    machine.clock.now += 1
    machine.settle()
    assert len(runtime.asked) == 2


def test_a_measurement_that_fails_ends_nobody(filling: tuple[Machine, FillingRuntime]) -> None:
    machine, runtime = filling
    runtime.used = ContainerFailed("podman does not answer")
    machine.api.put("pods", pod("p", spec=emptydir(sizeLimit="1Mi")))
    machine.look()
    runtime.used = PodStorage()
    machine.settle()
    assert machine.pod("p")["status"]["phase"] == "Running"
