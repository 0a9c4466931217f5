"""Plays what was played on a Kubernetes 1.36 control plane without node agents, and compares what there is afterwards.

`tests/conformance_data/lifecycle.json` holds, by scenario, what the reference had when each part of it was over:

    pods    node, phase, whether it is being deleted, PodScheduled as "STATUS REASON", the claim for extended resources
    claims  metadata, spec and status without what differs from run to run
    rules   the conditions of DeviceTaintRules
    events  [kind, name, type, reason, message], without those of scheduling attempts, which race with the nodes' start

The nodes are the test's own: it says what an agent would say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from claims.kinds.containers import Container
from inventory.kinds.devices import Device
from manciple.wire.base import timestamp
from tests.builders import make_class, make_container, make_node, make_request, make_slice
from tests.conformance import read
from tests.e2e.api_client import Document, Hands
from tests.e2e.production.scene import Scene

#: What differs from run to run, or tells nothing.
_NOISE = frozenset(
    {"uid", "resourceVersion", "managedFields", "creationTimestamp", "generation", "lastTransitionTime"}
    | {"observedGeneration", "deletionTimestamp", "timeAdded", "allocationTimestamp"}
)
#: The random end of a name that was made: p1-t-x4kzq
_RANDOM = re.compile(r"\b(p\d*-[a-z0-9-]+?)-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_SHARE = re.compile(r'"shareID":"[^"]+"')
Found = dict[str, Any]
#: Seconds within which a part comes to rest.
SETTLING = 30.0


def recorded(scenario: str) -> dict[str, Found]:
    """What the reference had, by the name of the part."""
    return dict(json.loads(read("lifecycle.json"))[scenario])


class Stage(Scene):
    """One scenario, with the names that the reference's had."""

    def __init__(self, api: Hands, scenario: str) -> None:
        super().__init__(api, scenario, namespace=f"lc-{scenario}")
        self._recorded = recorded(scenario)

    def node(self, short: str, *, unschedulable: bool = False) -> str:
        name = f"{self.name}-{short}"
        capacity = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        labels = {"kubernetes.io/hostname": name, "sc": self.name}
        node = make_node(name, labels=labels, unschedulable=unschedulable, capacity=capacity)
        self.make(node)
        self.change("Node", name, {"status": self.document(node)["status"]}, part="status")
        return name

    def device_class_named(self, short: str = "gpu", **fields: Any) -> None:
        self.make(make_class(f"{self.name}-{short}", expressions=[f"device.driver == '{self.driver}'"], **fields))

    def devices_on(self, node: str | None, *devices: Device, pool: str = "") -> None:
        pool = pool or node or ""
        where: Document = {} if node else {"all_nodes": True}
        self.make(make_slice(f"{pool}-0", node=node, driver=self.driver, pool=pool, devices=devices, **where))

    def wanted(self, short: str = "gpu", **fields: Any) -> Any:
        """A request `gpu` of the class that `device_class_named` made."""
        return make_request("gpu", device_class=f"{self.name}-{short}", **fields)

    def asking(self, name: str, amounts: Mapping[str, int] | None) -> Container:
        """A container that asks for so much of extended resources."""
        limits = {resource: str(amount) for resource, amount in (amounts or {}).items()}
        return make_container(name, image="x", limits=limits)

    def use(self, pod: str, *claims: str, **spec: Any) -> Document:
        """A pod for the nodes of this scenario."""
        spec.setdefault("node_selector", {"sc": self.name})
        return self.pod(pod, *claims, **spec)

    def agent_says(self, phase: str, *pods: str) -> None:
        """The phase of the pods, and whether they are Ready."""
        ready = {"type": "Ready", "status": str(phase == "Running"), "lastTransitionTime": timestamp(datetime.now(UTC))}
        for pod in pods:
            self.change("Pod", pod, {"status": {"phase": phase, "conditions": [ready]}}, part="status")

    # Comparing -------------------------------------------------------------------------------------------------------

    def compare(self, part: str, explained: Mapping[str, str] = MappingProxyType({})) -> None:
        """Wait until what there is differs from what the reference had in what is explained (path -> why) alone."""
        theirs = self._recorded.pop(part)

        def difference() -> list[str]:
            found = differing(theirs, self.taken())
            unexplained = [f"{path}: {what}" for path, what in found.items() if _explanation(path, explained) is None]
            agreeing = [f"{why} agrees" for why in explained if not any(path.startswith(why) for path in found)]
            return unexplained + agreeing

        last: list[str] = []

        def same() -> bool:
            last[:] = difference()
            return not last

        try:
            self.until(f"{self.name}, {part}, to be as recorded", same, timeout=SETTLING)
        except AssertionError as error:
            raise AssertionError("\n".join([*last, str(error)])) from None

    def finish(self) -> None:
        """Every part was compared."""
        assert self._recorded == {}

    def taken(self) -> Found:
        rules = {one["metadata"]["name"]: one for one in self.api.listed(self.place("DeviceTaintRule"))}
        ours = {name: one for name, one in rules.items() if name.startswith(self.name)}
        found = {
            "pods": {one["metadata"]["name"]: _of_pod(one) for one in self.all("Pod")},
            "claims": {one["metadata"]["name"]: _of_claim(one) for one in self.all("ResourceClaim")},
            "rules": {name: one.get("status", {}).get("conditions", []) for name, one in ours.items()},
            "events": sorted(_of_events(self.api.listed(f"/api/v1/namespaces/{self.namespace}/events"))),
        }
        return normal(found)


def normal(found: Found) -> Found:
    text = json.dumps(_quiet(found), separators=(",", ":"))
    return dict(json.loads(_SHARE.sub('"shareID":"SHARE"', _RANDOM.sub(r"\1-XXXXX", text))))


def _quiet(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _quiet(one) for name, one in value.items() if name not in _NOISE}
    return [_quiet(one) for one in value] if isinstance(value, list) else value


def _of_pod(pod: Document) -> Found:
    status = pod.get("status", {})
    scheduled = [one for one in status.get("conditions", ()) if one["type"] == "PodScheduled"]
    extended = status.get("extendedResourceClaimStatus")
    return {
        **({"extended": extended} if extended else {}),
        "node": pod["spec"].get("nodeName", ""),
        "phase": status.get("phase", ""),
        "deleting": "deletionTimestamp" in pod["metadata"],
        "scheduled": " ".join(f"{one['status']} {one.get('reason', '')}".strip() for one in scheduled),
    }


def _of_claim(claim: Document) -> Found:
    shown = ("annotations", "labels", "finalizers", "ownerReferences", "generateName")
    metadata = claim["metadata"]
    return {
        "metadata": {name: metadata[name] for name in shown if name in metadata},
        "deleting": "deletionTimestamp" in metadata,
        "spec": claim["spec"],
        "status": claim.get("status", {}),
    }


def _of_events(events: list[Document]) -> set[tuple[str, ...]]:
    return {
        (about["kind"], about["name"], one["type"], one["reason"], one["message"])
        for one in events
        if (about := one["involvedObject"]) and one["reason"] != "FailedScheduling"
    }


def differing(theirs: Found, ours: Found, path: str = "") -> dict[str, str]:
    """path -> both sides"""
    found: dict[str, str] = {}
    for name in sorted({*theirs, *ours}):
        at = f"{path}.{name}" if path else name
        left, right = theirs.get(name), ours.get(name)
        if isinstance(left, dict) and isinstance(right, dict):
            found |= differing(left, right, at)
        elif left != right:
            found[at] = f"{json.dumps(left)}, ours {json.dumps(right)}"
    return found


def _explanation(path: str, explained: Mapping[str, str]) -> str | None:
    return next((why for prefix, why in explained.items() if path.startswith(prefix)), None)
