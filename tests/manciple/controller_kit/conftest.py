"""A controller over an API server in memory, and a driver that answers as the test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from claims.kinds.pods import Pod
from inventory.kinds.named_resources import ResourceHandle
from manciple.controller_kit.controller import DriverController
from manciple.controller_kit.driver import (
    Allocation,
    ControlledClaim,
    ControllerDriver,
    NotAllocated,
    PendingClaim,
    only_on,
)
from nodeagent.api.client import Client
from tests.nodeagent.fake_api import Document, FakeApi

NAME = "lights.example.com"
FINALIZER = f"{NAME}/deletion-protection"
SECONDS = 30.0
V1ALPHA2, V1ALPHA3 = "resource.k8s.io/v1alpha2", "resource.k8s.io/v1alpha3"


class RecordingDriver(ControllerDriver):
    """Gives every claim one handle. unsuitable: nodes that suit no claim. refuses: claim name -> why.

    fails: what the next call of a method raises, by its name. calls: (method, what it was about), in order.
    """

    name = NAME

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.restored: list[str] = []
        self.unsuitable: set[str] = set()
        self.refuses: dict[str, str] = {}
        self.fails: dict[str, Exception] = {}
        self.before: Callable[[str], None] = lambda _method: None
        self.held: set[str] = set()

    def restore(self, claims: Sequence[ControlledClaim]) -> None:
        self.restored = sorted(claim.metadata.name for claim in claims)
        self.held = {claim.metadata.uid for claim in claims}

    def get_class_parameters(self, class_: Any) -> Any:
        self._called("get_class_parameters", class_.metadata.name)
        return f"of {class_.metadata.name}"

    def get_claim_parameters(self, claim: Any, _class: Any, class_parameters: Any) -> Any:
        self._called("get_claim_parameters", claim.metadata.name)
        return f"{claim.metadata.name} {class_parameters}"

    def allocate(self, claims: Sequence[PendingClaim], selected_node: str) -> Mapping[str, Allocation | NotAllocated]:
        self._called("allocate", (tuple(one.claim.metadata.name for one in claims), selected_node))
        return {one.uid: self._given(one, selected_node) for one in claims if one.claim.metadata.name != "unanswered"}

    def deallocate(self, claim: ControlledClaim) -> None:
        self._called("deallocate", claim.metadata.name)
        self.held.discard(claim.metadata.uid)

    def unsuitable_nodes(
        self, _pod: Pod, claims: Sequence[PendingClaim], potential_nodes: Sequence[str]
    ) -> Mapping[str, Collection[str]]:
        self._called("unsuitable_nodes", tuple(potential_nodes))
        return {one.uid: self.unsuitable & set(potential_nodes) for one in claims}

    def count(self, method: str) -> int:
        return sum(1 for name, _ in self.calls if name == method)

    def _called(self, method: str, about: Any) -> None:
        self.calls.append((method, about))
        self.before(method)
        if method in self.fails:
            raise self.fails.pop(method)

    def _given(self, pending: PendingClaim, node: str) -> Allocation | NotAllocated:
        if reason := self.refuses.get(pending.claim.metadata.name):
            return NotAllocated(reason)
        self.held.add(pending.uid)
        handle = ResourceHandle(driver_name=NAME, data=str(pending.claim_parameters))
        return Allocation(handles=(handle,), nodes=only_on(node) if node else None, shareable=True)


@dataclass
class Scene:
    """The API with what a test puts there, and the controller that runs on it."""

    api: FakeApi = field(default_factory=FakeApi)
    driver: RecordingDriver = field(default_factory=RecordingDriver)
    controllers: list[tuple[DriverController, threading.Event, threading.Thread]] = field(default_factory=list)

    def start(self, **options: Any) -> DriverController:
        client = Client("http://api", token="t", transport=self.api)
        controller = DriverController(self.driver, client, **{"recheck_seconds": 3600.0, **options})
        stop = threading.Event()
        thread = threading.Thread(target=controller.run, args=(stop,))
        thread.start()
        self.controllers.append((controller, stop, thread))
        assert controller.working.wait(SECONDS)
        return controller

    def stop(self) -> None:
        for _, stop, _ in self.controllers:
            stop.set()
        for _, _, thread in self.controllers:
            thread.join(SECONDS)
            assert not thread.is_alive()
        self.controllers.clear()

    # What there is.

    def class_(self, name: str = "lamps", driver: str = NAME, **fields: Any) -> None:
        document = {"apiVersion": V1ALPHA2, "kind": "ResourceClass", "metadata": {"name": name}, "driverName": driver}
        self.api.put("resourceclasses", {**document, **fields})

    def claim(
        self, name: str, *, mode: str = "WaitForFirstConsumer", class_: str = "lamps", owner: str = "", **fields: Any
    ) -> Document:
        meta: Document = {"name": name, "namespace": "default", "uid": f"uid-{name}", **fields.pop("metadata", {})}
        if owner:
            meta["ownerReferences"] = [owned_by(owner)]
        spec = {"resourceClassName": class_, "allocationMode": mode}
        document = {"apiVersion": V1ALPHA2, "kind": "ResourceClaim", "metadata": meta, "spec": spec, "status": {}}
        return self.api.put("resourceclaims", {**document, **fields})

    def pod(self, name: str, *claims: str, **meta: Any) -> None:
        """Its uid is "pod-<name>"; the claims are named like their entries."""
        entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
        metadata = {"name": name, "namespace": "default", "uid": f"pod-{name}", **meta}
        spec = {"containers": [{"name": "main", "image": "i"}], "resourceClaims": entries}
        self.api.put("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}})

    def context(
        self, name: str, *potential: str, selected: str = "", uid: str = "", status: Document | None = None
    ) -> None:
        spec = {"potentialNodes": list(potential), "selectedNode": selected}
        owner = {**owned_by(name), "uid": uid or f"pod-{name}"}
        known = self.api.find("podschedulingcontexts", name) or {"status": {}}
        document = {
            "apiVersion": V1ALPHA2,
            "kind": "PodSchedulingContext",
            "metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]},
            "spec": {key: value for key, value in spec.items() if value},
            "status": status or known["status"],
        }
        self.api.put("podschedulingcontexts", document)

    def write_status(self, name: str, **members: Any) -> None:
        """Of a claim, as the scheduler does, or the controller of claims."""
        claim = self.found(name)
        self.api.put("resourceclaims", {**claim, "status": {**claim["status"], **members}})

    # What became of it.

    def eventually(self, condition: Callable[[], Any]) -> None:
        """Looked at after every change in the API."""
        with self.api.changed:
            assert self.api.changed.wait_for(condition, SECONDS)

    def found(self, name: str, plural: str = "resourceclaims") -> Document:
        return self.api.find(plural, name) or {"metadata": {}, "status": {}}

    def is_allocated(self, name: str) -> bool:
        return "allocation" in self.found(name).get("status", {})

    def allocates(self, *names: str) -> None:
        self.eventually(lambda: all(self.is_allocated(name) for name in names))

    def told(self, name: str) -> dict[str, list[str]]:
        """Of a pod's context: entry -> unsuitable nodes."""
        entries = self.found(name, "podschedulingcontexts").get("status", {}).get("resourceClaims", [])
        return {one["name"]: one.get("unsuitableNodes", []) for one in entries}

    def tells(self, name: str, told: dict[str, list[str]]) -> None:
        self.eventually(lambda: self.told(name) == told)

    def states(self, name: str) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        """Every state of a claim: (event, finalizers, members of its status)."""
        events = self.api.events_after("resourceclaims", lambda one: one["metadata"]["name"] == name, 0)
        return [
            (
                e["type"],
                tuple(e["object"]["metadata"].get("finalizers", ())),
                tuple(sorted(e["object"].get("status", {}))),
            )
            for e in events
        ]

    def complaints(self) -> set[tuple[str, str, str]]:
        """(kind, name, message) of every Event."""
        found = self.api.all("events")
        return {(e["involvedObject"]["kind"], e["involvedObject"]["name"], e["message"]) for e in found}

    def complains(self, kind: str, name: str, part: str) -> None:
        self.eventually(lambda: any(k == kind and n == name and part in m for k, n, m in self.complaints()))


def owned_by(pod: str) -> Document:
    return {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"pod-{pod}", "controller": True}


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    made.class_()
    yield made
    made.stop()
