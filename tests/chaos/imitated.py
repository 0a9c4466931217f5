"""Nodes and drivers that are imitated by the storm itself, through the API: what agents of a real cluster would write.

The simulated drivers of `nodeagent` publish what a well-behaved driver does. These publish everything else: pools of
which half is there, a generation that takes devices away which are held, counters and capacity that shrink, pools under
another name, the same again after a moment without any. Their nodes renew Leases, run what is bound to them, report it,
end it, and sometimes do not answer for a while.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from tests.chaos.clients import Client, Worker
from tests.chaos.oracle import ENDED
from tests.e2e.api_client import PLACES, Document

NODES = ("imitated-1", "imitated-2", "imitated-3")
DRIVERS = ("exclusive.storm.example.com", "parts.storm.example.com", "shares.storm.example.com")
EXCLUSIVE, PARTS, SHARES = DRIVERS
#: Served by devices (of EXCLUSIVE), and advertised by a device plugin.
EXTENDED, PLUGIN = "storm.example.com/gpu", "storm.example.com/plugin"
ALLOCATABLE = {"cpu": "8", "memory": "16Gi", "pods": "25", "ephemeral-storage": "50Gi", PLUGIN: "3"}
SLICES = PLACES["ResourceSlice"]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
#: Memory, in GiB, of a device that is partitioned or shared, as it is published at different times.
MEMORY = (40, 40, 40, 20, 60)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# What drivers publish -------------------------------------------------------------------------------------------------


def exclusive_devices(_memory: int) -> list[Document]:
    return [
        {"name": f"gpu-{number}", "attributes": {"index": {"int": number}, "numa": {"int": number // 2}}}
        for number in range(6)
    ]


def partitions(_memory: int) -> list[Document]:
    """A whole device, its halves and its quarters; each quarter has a counter that says whether it is taken."""
    found = []
    for name, size in (("whole", 4), ("half", 2), ("quarter", 1)):
        for first in range(0, 4, size):
            counters = {"memory": {"value": f"{10 * size}Gi"}}
            counters |= {f"quarter-{number}": {"value": "1"} for number in range(first, first + size)}
            drawn = [{"counterSet": "gpu", "counters": counters}]
            found.append({"name": f"{name}-{first}", "attributes": {"size": {"int": size}}, "consumesCounters": drawn})
    return found


def counters(memory: int) -> list[Document]:
    return [
        {
            "name": "gpu",
            "counters": {
                "memory": {"value": f"{memory}Gi"},
                **{f"quarter-{number}": {"value": "1"} for number in range(4)},
            },
        }
    ]


def shared_devices(memory: int) -> list[Document]:
    policy = {"default": "10Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    return [
        {
            "name": f"shared-{number}",
            "allowMultipleAllocations": True,
            "capacity": {"memory": {"value": f"{memory}Gi", "requestPolicy": policy}},
        }
        for number in range(2)
    ]


DEVICES: dict[str, Callable[[int], list[Document]]] = {
    EXCLUSIVE: exclusive_devices,
    PARTS: partitions,
    SHARES: shared_devices,
}


class Driver(Worker):
    """One driver on one node, which publishes again and again, seldom the same."""

    def __init__(self, driver: str, node: str, client: Client, seed: int) -> None:
        super().__init__(f"{driver} on {node}", client, seed)
        self._driver, self._node = driver, node
        self._generations = itertools.count(1)
        self._there: list[str] = []

    def act(self) -> None:
        if not self._there:
            self._publish()
        self.pause(12.0)
        acts = (self._publish, self._less, self._half, self._again, self._rename, self._taint)
        self.chance.choices(acts, (6, 4, 2, 1, 1, 2))[0]()

    def restore(self) -> None:
        """Publish everything, and as much as ever."""
        self._publish(memory=max(MEMORY))

    def forget(self) -> None:
        self._there = []
        self._remove_others()

    def _publish(self, *, memory: int = 0, left_out: float = 0.0, slices: int = 0, pool: str = "") -> None:
        """slices: that the pool is said to have, where it is not what is published."""
        memory = memory or self.chance.choice(MEMORY)
        devices = [one for one in DEVICES[self._driver](memory) if self.chance.random() >= left_out]
        parts: list[Document] = [{"devices": devices[:4]}, {"devices": devices[4:]}]
        if self._driver == PARTS:
            parts.append({"sharedCounters": counters(memory)})
        if slices:
            self.chance.shuffle(parts)
            parts = parts[:1]
        self._replace(pool or f"{self._node}-{self._driver.partition('.')[0]}", parts, slices or len(parts))

    def _replace(self, pool: str, parts: list[Document], count: int) -> None:
        generation = next(self._generations)
        self._there = []
        for number, part in enumerate(parts):
            name = f"{pool}-{generation}-{number}"
            spec = {
                "driver": self._driver,
                "nodeName": self._node,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
                **part,
            }
            self.client.ask("POST", SLICES, {"metadata": {"name": name}, "spec": spec})
            self._there.append(name)
        self._remove_others()

    def _remove_others(self) -> None:
        """All of this driver on this node but what it has just published, also what could not be removed before."""
        own = f"spec.driver={self._driver},spec.nodeName={self._node}"
        found = self.client.ask("GET", SLICES, fieldSelector=own)
        if found is not None and found.is_success:
            names = {one["metadata"]["name"] for one in found.json()["items"]}
            for name in sorted(names.difference(self._there)):
                self.client.ask("DELETE", f"{SLICES}/{name}")

    def _less(self) -> None:
        self._publish(left_out=0.5)
        self.pause(6.0)
        self._publish()

    def _half(self) -> None:
        """The pool is incomplete for a while."""
        self._publish(slices=3)
        self.pause(6.0)
        self._publish()

    def _again(self) -> None:
        """It is started again, and everything is gone for a moment."""
        self.forget()
        self.pause(3.0)
        self._publish()

    def _rename(self) -> None:
        self._publish(pool=f"{self._node}-renamed-{self._driver.partition('.')[0]}")
        self.pause(10.0)
        self._publish()

    def _taint(self) -> None:
        for name in self._there[:1]:
            found = self.client.ask("GET", f"{SLICES}/{name}")
            if found is not None and found.is_success and found.json()["spec"].get("devices"):
                devices = found.json()["spec"]["devices"]
                effect = self.chance.choice(("NoSchedule", "NoExecute"))
                devices[0]["taints"] = [{"key": "storm.example.com/hot", "effect": effect}]
                self.client.ask("PATCH", f"{SLICES}/{name}", {"spec": {"devices": devices}})


# What nodes do --------------------------------------------------------------------------------------------------------


class ImitatedNode(Worker):
    """Registers itself, renews its Lease, and runs pods: they start, end, and go when they are deleted."""

    def __init__(self, node: str, client: Client, seed: int) -> None:
        super().__init__(f"agent of {node}", client, seed)
        self._node = node

    def act(self) -> None:
        if self.chance.random() < 0.01:  # does not answer
            self.pause(20.0)
        self._register()
        for pod in self._pods():
            self._look_after(pod)
        self.pause(2.0)

    def _register(self) -> None:
        name = self._node
        labels = {"kubernetes.io/hostname": name, "storm.example.com/imitated": "true"}
        place = PLACES["Node"]
        found = self.client.ask("GET", f"{place}/{name}")
        if found is not None and found.status_code == 404:
            self.client.ask("POST", place, {"metadata": {"name": name, "labels": labels}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": now()}
        status = {"allocatable": ALLOCATABLE, "capacity": ALLOCATABLE, "conditions": [ready]}
        self.client.ask("PATCH", f"{place}/{name}/status", {"status": status})
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now()}
        lease = {"metadata": {"name": name}, "spec": spec}
        renewed = self.client.ask("PATCH", f"{LEASES}/{name}", {"spec": spec})
        if renewed is not None and renewed.status_code == 404:
            self.client.ask("POST", LEASES, lease)

    def _pods(self) -> Iterator[Document]:
        found = self.client.ask("GET", "/api/v1/pods", fieldSelector=f"spec.nodeName={self._node}")
        if found is not None and found.is_success:
            yield from found.json()["items"]

    def _look_after(self, pod: Document) -> None:
        meta, phase = pod["metadata"], pod.get("status", {}).get("phase", "Pending")
        place = f"{PLACES['Pod'].format(namespace=meta['namespace'])}/{meta['name']}"
        if "deletionTimestamp" in meta:
            if self.chance.random() < 0.7:
                self.client.ask("DELETE", place, gracePeriodSeconds="0")
        elif phase == "Pending":
            self.client.ask("PATCH", f"{place}/status", {"status": self._running(pod)})
        elif phase not in ENDED and self.chance.random() < 0.03:
            status = {"phase": self.chance.choice(ENDED)}
            self.client.ask("PATCH", f"{place}/status", {"status": status})

    def _running(self, pod: Document) -> Document:
        """What it is given is what it asks for now; a resize is never granted here, so that is all it ever has."""
        state: dict[str, Any] = {"running": {"startedAt": now()[:19] + "Z"}}
        told = [
            {
                "name": one["name"],
                "image": one["image"],
                "imageID": "",
                "restartCount": 0,
                "ready": True,
                "state": state,
                "allocatedResources": one.get("resources", {}).get("requests", {}),
                "resources": one.get("resources", {}),
            }
            for one in pod["spec"]["containers"]
        ]
        return {"phase": "Running", "containerStatuses": told}
