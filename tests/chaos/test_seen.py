"""What is noticed in the events of a watch."""

from __future__ import annotations

from typing import Any

from tests.chaos.clients import Holdings, Stays


def claim(name: str, *devices: str, revision: int = 1, **more: Any) -> dict[str, Any]:
    results = [{"driver": "d", "pool": "p", "device": device, **more} for device in devices]
    metadata = {"name": name, "uid": name, "resourceVersion": str(revision)}
    return {"metadata": metadata, "status": {"allocation": {"devices": {"results": results}}} if devices else {}}


def pod(node: str, phase: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "uid": "p"}, "spec": {"nodeName": node}, "status": {"phase": phase}}


def test_a_device_that_two_claims_have_at_one_revision_is_noticed() -> None:
    found = Holdings()
    found.seen({}, claim("a", "gpu-0"))
    found.seen({}, claim("b", "gpu-0", revision=7))
    assert found.wrong == ["at revision 7 d/p/gpu-0 is given to b b and a a"]


def test_a_device_may_go_from_one_to_another_and_be_shared() -> None:
    found = Holdings()
    found.seen({}, claim("a", "gpu-0", "gpu-1"))
    found.seen(claim("a", "gpu-0", "gpu-1"), claim("a", "gpu-1"))
    found.seen({}, claim("b", "gpu-0"))
    for name in "cd":
        found.seen({}, claim(name, "nic-0", shareID=name))
        found.seen({}, claim(name, "gpu-0", adminAccess=True))
    assert (found.wrong, found.most) == ([], 2)


def test_a_pod_that_moves_or_comes_back_is_noticed() -> None:
    found = Stays()
    for node, phase in (("", "Pending"), ("n1", "Pending"), ("n1", "Running"), ("n1", "Failed")):
        found.seen({}, pod(node, phase))
    assert found.wrong == []
    found.seen({}, pod("n2", "Failed"))
    found.seen({}, pod("n2", "Running"))
    assert found.wrong == ["pod p was on n1 and is on n2", "pod p was Failed and is Running"]
