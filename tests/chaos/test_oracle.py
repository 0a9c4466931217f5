"""The oracle sees each limit that is exceeded, and names the write; what is no violation, it lets pass."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from tests.chaos.oracle import GRACE, KINDS, Oracle, Reader, State, devices_asked, miscounts, quantity, requests_of

Document = dict[str, Any]
DRIVER, CLASS = "gpu.example.com", "gpu.example.com"


class History:
    """States by revision; read through the API's own form of pages."""

    def __init__(self, *states: dict[str, list[Document]]) -> None:
        self.states = dict(enumerate(states, 1))
        self.asked: list[int] = []

    def as_of(self, revision: int) -> State:
        self.asked.append(revision)
        return State(revision, {kind: self.states[revision].get(kind, []) for kind in KINDS})


def judged(*states: dict[str, list[Document]], looks: tuple[int, ...] = ()) -> list[str]:
    """What the oracle says that looks at these revisions; at the first and the last where none are named."""
    history = History(*states)
    reader = Reader(lambda _path, _params: None)
    reader.as_of = history.as_of  # type: ignore[method-assign]
    oracle = Oracle(reader, clock=lambda: 0.0)
    for revision in looks or (1, len(states)):
        oracle.judge(history.as_of(revision))
    return oracle.wrong


def claim(name: str, *devices: str, node: str = "node-1", **result: Any) -> Document:
    results = [{"driver": DRIVER, "pool": "pool", "device": device, **result} for device in devices]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}}
    return {
        "metadata": {"namespace": "lab", "name": name, "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": CLASS}}]}},
        "status": {"allocation": allocation} if devices else {},
    }


def share(name: str, memory: str) -> Document:
    return claim(name, "shared", shareID=name, consumedCapacity={"memory": memory})


def published(
    memory: str = "40Gi", *, devices: tuple[str, ...] = ("whole", "half-0", "half-1"), **spec: Any
) -> Document:
    drawn = {"whole": "40Gi", "half-0": "20Gi", "half-1": "20Gi"}
    return {
        "metadata": {"name": f"slice-{memory}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": "node-1",
            "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
            "sharedCounters": [{"name": "gpu", "counters": {"memory": {"value": memory}}}],
            "devices": [
                {
                    "name": one,
                    "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": drawn[one]}}}],
                }
                for one in devices
            ]
            + [{"name": "shared", "capacity": {"memory": {"value": memory}}}],
            **spec,
        },
    }


def pod(name: str, cpu: str = "1", *, node: str = "node-1", **spec: Any) -> Document:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    meta = {"namespace": "lab", "name": name, "uid": name}
    return {
        "metadata": meta,
        "spec": {"nodeName": node, "containers": containers, **spec},
        "status": {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]},
    }


def bound_by_hand(name: str, cpu: str = "1") -> Document:
    return pod(name, cpu) | {"status": {"phase": "Pending"}}


def node(cpu: str = "2", pods: str = "9") -> Document:
    return {"metadata": {"name": "node-1"}, "status": {"allocatable": {"cpu": cpu, "pods": pods}}}


def quota(used: str, hard: str, key: str = "pods") -> Document:
    status = {"used": {key: used}, "hard": {key: hard}}
    return {"metadata": {"namespace": "lab", "name": "most"}, "spec": {"hard": {key: hard}}, "status": status}


def uncounted(hard: str) -> Document:
    """As it is while its controller has not been there."""
    made = quota("0", hard)
    return {**made, "status": {"hard": made["status"]["hard"]}}


SLICES = [published()]
#: states, and the limit that the last of them exceeds
EXCEEDED: dict[str, tuple[list[dict[str, list[Document]]], str]] = {
    "a device that two claims hold": (
        [{"claims": [claim("a", "whole")]}, {"claims": [claim("a", "whole"), claim("b", "whole")]}],
        "device gpu.example.com pool  whole at revision 2: 2 of 1",
    ),
    "a device that one holds and another shares": (
        [{}, {"claims": [claim("a", "shared"), share("b", "1Gi")]}],
        "device gpu.example.com pool  shared at revision 2: 2 of 1",
    ),
    "overlapping partitions": (
        [{"slices": SLICES}, {"slices": SLICES, "claims": [claim("a", "whole"), claim("b", "half-0")]}],
        "counter gpu.example.com pool  gpu memory at revision 2",
    ),
    "capacity that is shared": (
        [{"slices": SLICES}, {"slices": SLICES, "claims": [share("a", "30Gi"), share("b", "11Gi")]}],
        "capacity gpu.example.com pool  shared memory at revision 2",
    ),
    "what a device draws that is not published any more": (
        [
            {"slices": SLICES, "claims": [claim("a", "half-0")]},
            {"slices": [published(devices=("whole",))], "claims": [claim("a", "half-0")]},
            {"slices": [published(devices=("whole",))], "claims": [claim("a", "half-0"), claim("b", "whole")]},
        ],
        "counter gpu.example.com pool  gpu memory at revision 3",
    ),
    "a shared device that is not published any more": (
        [
            {"slices": SLICES, "claims": [share("a", "30Gi")]},
            {"claims": [share("a", "30Gi"), share("b", "30Gi")]},
        ],
        "capacity gpu.example.com pool  shared memory at revision 2",
    ),
    "processors of a node": (
        [{"nodes": [node()]}, {"nodes": [node()], "pods": [pod("a"), pod("b"), pod("c", "1m")]}],
        "node node-1 cpu at revision 2: 2.001 of 2",
    ),
    "what is given beside a pod that its user bound": (
        [
            {"nodes": [node()], "pods": [pod("a")]},
            {"nodes": [node()], "pods": [pod("a"), bound_by_hand("b", "2")]},
            {"nodes": [node()], "pods": [pod("a"), bound_by_hand("b", "2"), pod("c")]},
        ],
        "node node-1 cpu at revision 3: 4 of 2 in use (before: 3 of 2)",
    ),
    "pods of a node": (
        [{"nodes": [node(pods="1")]}, {"nodes": [node(pods="1")], "pods": [pod("a"), pod("b")]}],
        "node node-1 pods at revision 2: 2 of 1",
    ),
    "a quota": (
        [{"quotas": [quota("1", "1")]}, {"quotas": [quota("2", "1")]}],
        "quota lab/most pods at revision 2: 2 of 1",
    ),
    "a limit that was lowered first": (
        [{"quotas": [quota("3", "9")]}, {"quotas": [quota("3", "1")]}, {"quotas": [quota("4", "1")]}],
        "quota lab/most pods at revision 3: 4 of 1 in use (before: 3 of 1)",
    ),
}


@pytest.mark.parametrize("what", EXCEEDED)
def test_what_is_exceeded_is_named_with_the_write(what: str) -> None:
    states, sentence = EXCEEDED[what]
    (said,) = judged(*states)
    assert said.startswith(sentence)


ALLOWED: dict[str, list[dict[str, list[Document]]]] = {
    "access for administrators": [{}, {"claims": [claim("a", "whole"), claim("b", "whole", adminAccess=True)]}],
    "sharing within the capacity": [
        {"slices": SLICES},
        {"slices": SLICES, "claims": [share("a", "30Gi"), share("b", "10Gi")]},
    ],
    "two halves": [{"slices": SLICES}, {"slices": SLICES, "claims": [claim("a", "half-0"), claim("b", "half-1")]}],
    "a quota that has not been counted yet": [{"quotas": [uncounted("1")]}, {"quotas": [quota("3", "1")]}],
    "a new quota below what is used": [{}, {"quotas": [quota("3", "1")]}],
    "a smaller quota": [{"quotas": [quota("3", "9")]}, {"quotas": [quota("3", "1")]}, {"quotas": [quota("2", "1")]}],
    "a driver that publishes less": [
        {"slices": SLICES, "claims": [claim("a", "whole")]},
        {"slices": [published("10Gi")], "claims": [claim("a", "whole")]},
    ],
    "a node that shrinks": [
        {"nodes": [node()], "pods": [pod("a"), pod("b")]},
        {"nodes": [node("1")], "pods": [pod("a"), pod("b")]},
    ],
    "a pod that its user binds to a full node": [
        {"nodes": [node()], "pods": [pod("a")]},
        {"nodes": [node()], "pods": [pod("a"), bound_by_hand("b", "2")]},
    ],
    "pods that have ended": [
        {"nodes": [node()]},
        {"nodes": [node()], "pods": [pod("a"), pod("b"), {**pod("c"), "status": {"phase": "Failed"}}]},
    ],
    "pools of one name on two nodes": [
        {"slices": [published(), {**published(), "spec": {**published()["spec"], "nodeName": "node-2"}}]},
        {
            "slices": [published(), {**published(), "spec": {**published()["spec"], "nodeName": "node-2"}}],
            "claims": [claim("a", "whole"), claim("b", "whole", node="node-2")],
        },
    ],
}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_is_no_violation_is_let_pass(what: str) -> None:
    assert judged(*ALLOWED[what]) == []


def test_the_write_is_found_among_many() -> None:
    """What happened between two looks: the limit fell, was exceeded, and more went on."""
    quotas = [quota("3", "9")] * 10 + [quota("3", "2")] * 10 + [quota("4", "2")] * 20
    (said,) = judged(*({"quotas": [one]} for one in quotas))
    assert said.startswith("quota lab/most pods at revision 21: 4 of 2 in use (before: 3 of 2)")


def test_what_controllers_bring_right_is_wrong_only_when_it_lasts() -> None:
    bound = pod("a", resourceClaims=[{"name": "d", "resourceClaimName": "gone"}])
    bound["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    at = [0.0]
    oracle = Oracle(Reader(lambda _path, _params: None), clock=lambda: at[0])
    for revision, now in enumerate((0.0, GRACE - 1, GRACE + 1, GRACE + 2), 1):
        at[0] = now
        oracle.judge(State(revision, {kind: [bound] if kind == "pods" else [] for kind in KINDS}))
        assert len(oracle.wrong) == (1 if revision > 2 else 0)
    assert "pod lab/a on node-1: claim gone does not exist" in oracle.wrong[0]


COUNTED: dict[str, Callable[[], Document]] = {
    "pods": lambda: quota("1", "9"),
    "requests.cpu": lambda: quota("1500m", "9", "requests.cpu"),
    "devices of a class": lambda: quota("35", "99", f"{CLASS}.deviceclass.resource.k8s.io/devices"),
}


@pytest.mark.parametrize("what", COUNTED)
def test_what_a_quota_tells_is_counted_again(what: str) -> None:
    exact, every = {"deviceClassName": CLASS, "count": 3}, {"deviceClassName": CLASS, "allocationMode": "All"}
    first, second = claim("a"), claim("b")
    first["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": [exact, {"deviceClassName": "other"}]}]
    second["spec"]["devices"]["requests"] = [{"name": "r", "exactly": every}]
    told = COUNTED[what]()
    found = {"pods": [pod("a", "1500m")], "claims": [first, second], "quotas": [told]}
    state = State(1, {kind: found.get(kind, []) for kind in KINDS})
    assert list(miscounts(state)) == []
    (key,) = told["status"]["used"]
    told["status"]["used"][key] = "7"
    assert len(list(miscounts(state))) == 1


def test_amounts() -> None:
    amounts = {"100m": Fraction(1, 10), "2Gi": 2 * 1024**3, "1e3": 1000, "-5": -5, "1.5k": 1500, "7": 7}
    assert {text: quantity(text) for text in amounts} == amounts
    assert devices_asked(claim("a")) == {CLASS: 1}


def test_a_pod_asks_for_the_larger_of_its_containers_and_its_beginning() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    beginning = {"name": "i", "resources": {"requests": {"cpu": "3"}}}
    asked = pod("a", "2", initContainers=[sidecar, beginning])
    assert requests_of(asked)["cpu"] == 4
    assert requests_of(pod("a", "2", initContainers=[sidecar]))["cpu"] == 3
    assert requests_of(pod("a", "2", resources={"requests": {"cpu": "5"}}))["cpu"] == 5


def test_one_revision_of_every_kind_is_read_page_by_page() -> None:
    pages: list[tuple[str, str]] = []

    def ask(path: str, params: Any) -> Document:
        pages.append((path, params.get("continue", "")))
        if path == "/api/v1/namespaces":
            return {"metadata": {"resourceVersion": "7"}, "items": []}
        more = {} if params["continue"] == "more" else {"continue": "more"}
        return {"metadata": more, "items": [{"metadata": {"name": params["continue"][:4]}}]}

    state = Reader(ask).newest()
    assert state is not None
    assert state.revision == 7
    assert all(len(state[kind]) == 2 for kind in KINDS)
    assert len(pages) == 1 + 2 * len(KINDS)
