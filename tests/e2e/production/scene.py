"""What one test in production mode plays with: a namespace, a driver that nobody runs, classes, claims and pods.

Devices that run pods are those of the agents' simulated drivers. What these have not (taints, conditions of binding,
counters of the test's choice) is published here as the test's own driver would: pods get these devices and are bound,
and no more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from claims.kinds.resource_claims import DeviceRequest
from inventory.kinds.devices import Device
from manciple.wire.base import ApiObject
from tests.builders import (
    CREATED,
    make_claim,
    make_class,
    make_namespace,
    make_pod,
    make_request,
    make_slice,
    make_template,
)
from tests.e2e.api_client import PLACES, Document, Hands
from tests.e2e.processes import PATIENCE, wait_for

_numbers = itertools.count(1)
GPU = "gpu.example.com"


class Scene:
    """Make one a test, `end` it when the test is over. Names of what is in no namespace begin with `name`."""

    def __init__(self, api: Hands, name: str = "", *, namespace: str = "") -> None:
        self.api = api
        self.name = name or f"scene-{next(_numbers)}"
        self.namespace = namespace or self.name
        self.driver = f"{self.name}.example.com"
        self._made: list[str] = []
        self.make(make_namespace(self.namespace, labels={"resource.kubernetes.io/admin-access": "true"}))

    # Making ----------------------------------------------------------------------------------------------------------

    def document(self, obj: ApiObject) -> Document:
        """As it is sent, in the scene's namespace where its kind is in one."""
        if "{namespace}" in PLACES[obj.kind]:
            obj = replace(obj, metadata=replace(obj.metadata, namespace=self.namespace))
        return dict(msgspec.to_builtins(obj))

    def place(self, kind: str, name: str = "") -> str:
        collection = PLACES[kind].format(namespace=self.namespace)
        return f"{collection}/{name}" if name else collection

    def make(self, *objs: ApiObject) -> Document:
        """The last of them, as the API answers."""
        made: Document = {}
        for obj in objs:
            made = self.api.made(self.place(obj.kind), self.document(obj))
            if "{namespace}" not in PLACES[obj.kind] and obj.kind != "Namespace":
                self._made.append(self.place(obj.kind, obj.metadata.name))
        return made

    def refused(self, obj: ApiObject) -> str:
        """What the API says to whoever wants to make it."""
        return str(self.api.refused("POST", self.place(obj.kind), self.document(obj))["message"])

    def device_class(self, *, parameters: Any = None, expressions: Sequence[str] | None = None) -> str:
        """Of the scene's own devices, unless `expressions` say others; its name is the scene's."""
        chosen = [f"device.driver == '{self.driver}'"] if expressions is None else expressions
        self.make(make_class(self.name, expressions=chosen, parameters=parameters))
        return self.name

    def publish(self, *devices: Device, node: str | None = "node-1", **spec: Any) -> Document:
        """A slice of the scene's driver. spec: what else `make_slice` understands."""
        pool = spec.pop("pool", f"{self.name}-{node or 'all'}")
        name = spec.pop("name", f"{pool}-0")
        if node is None:
            spec.setdefault("all_nodes", True)
        return self.make(make_slice(name, node=node, driver=self.driver, pool=pool, devices=devices, **spec))

    def request(self, name: str = "gpu", **fields: Any) -> DeviceRequest:
        """Of the class `device_class` made."""
        return make_request(name, device_class=self.name, **fields)

    def claim(self, name: str, *requests: DeviceRequest, **spec: Any) -> Document:
        """For a simulated GPU unless `requests` say otherwise."""
        return self.make(make_claim(name, requests=requests or (make_request(device_class=GPU),), **spec))

    def template(self, name: str, *requests: DeviceRequest, **spec: Any) -> Document:
        return self.make(make_template(name, requests=requests or (make_request(device_class=GPU),), **spec))

    def pod(
        self,
        name: str,
        *claims: str,
        templates: Sequence[str] = (),
        seconds: float | None = None,
        exit_code: int = 0,
        **spec: Any,
    ) -> Document:
        """It names claims and templates as they are called. seconds: it runs so long, and ends with `exit_code`."""
        ends = {"manciple.dev/run-seconds": str(seconds), "manciple.dev/exit-code": str(exit_code)}
        annotations = {} if seconds is None else ends
        spec.setdefault("termination_grace_period_seconds", 0)
        spec.setdefault("restart_policy", "Never")
        claimed, made = {one: one for one in claims}, {one: one for one in templates}
        return self.make(make_pod(name, meta={"annotations": annotations}, claims=claimed, templates=made, **spec))

    def delete(self, kind: str, name: str) -> None:
        self.api.delete(self.place(kind, name))

    def change(self, kind: str, name: str, change: Document, *, part: str = "") -> Document:
        """Merge `change` into it, or into its `part`."""
        return self.api.patch(self.place(kind, name) + (f"/{part}" if part else ""), change)

    def report(self, claim: str, condition: str) -> None:
        """What the driver says of the only device of a claim."""
        (result,) = self.allocated(claim)["devices"]["results"]
        told = {"type": condition, "status": "True", "reason": "Fabric", "lastTransitionTime": CREATED}
        device = {name: result[name] for name in ("driver", "pool", "device")} | {"conditions": [told]}
        self.change("ResourceClaim", claim, {"status": {"devices": [device]}}, part="status")

    # Looking ---------------------------------------------------------------------------------------------------------

    def find(self, kind: str, name: str) -> Document:
        """{} where it is not there."""
        return self.api.find(self.place(kind, name)) or {}

    def all(self, kind: str) -> list[Document]:
        return self.api.listed(self.place(kind))

    def until(self, what: str, condition: Callable[[], Any], *, timeout: float = PATIENCE) -> Any:
        """Wait for it. A failure tells how the scene's pods and claims stand, and its events."""
        try:
            return wait_for(what, condition, timeout=timeout)
        except AssertionError as error:
            told = [msgspec.json.encode(one).decode() for kind in ("Pod", "ResourceClaim") for one in self.all(kind)]
            raise AssertionError("\n".join([str(error), *told, *self.events()])) from None

    def bound(self, *pods: str) -> str:
        """Wait until they are bound; the node of the last."""
        node = ""
        for pod in pods:
            node = self.until(f"{pod} to be bound", partial(self.node_of, pod))
        return node

    def node_of(self, pod: str) -> str:
        return str(self.find("Pod", pod).get("spec", {}).get("nodeName", ""))

    def phase(self, pod: str) -> str:
        return str(self.find("Pod", pod).get("status", {}).get("phase", "gone"))

    def reaches(self, phase: str, *pods: str) -> None:
        """Wait until all of them are in the phase."""
        for pod in pods:
            self.until(f"{pod} to be {phase}", partial(self._is_in, phase, pod))

    def _is_in(self, phase: str, pod: str) -> bool:
        return self.phase(pod) == phase

    def runs(self, *pods: str) -> None:
        self.reaches("Running", *pods)

    def waits(self, pod: str, text: str = "") -> str:
        """Wait until the scheduler says why it cannot place the pod, in words that contain `text`."""

        def said() -> str:
            conditions = self.find("Pod", pod).get("status", {}).get("conditions", ())
            messages = [one.get("message", "") for one in conditions if one["type"] == "PodScheduled"]
            return next((message for message in messages if message and text in message), "")

        return str(self.until(f"{pod} to wait because of {text!r}", said))

    def gone(self, kind: str, name: str) -> None:
        self.until(f"{kind} {name} to be gone", lambda: not self.find(kind, name))

    def allocation(self, claim: str) -> Document:
        """{} where it has none."""
        return dict(self.find("ResourceClaim", claim).get("status", {}).get("allocation", {}))

    def allocated(self, claim: str) -> Document:
        """Wait for its allocation."""
        return dict(self.until(f"{claim} to be allocated", partial(self.allocation, claim)))

    def devices(self, claim: str) -> list[str]:
        """Those allocated to it, as "request pool/device"."""
        results = self.allocation(claim).get("devices", {}).get("results", ())
        return [f"{one['request']} {one['pool']}/{one['device']}" for one in results]

    def free(self, claim: str) -> None:
        """Wait until it has no device."""
        self.until(f"{claim} to be free", lambda: not self.allocation(claim))

    def made_for(self, pod: str) -> list[str]:
        """The claims made for a pod."""
        statuses = self.find("Pod", pod).get("status", {}).get("resourceClaimStatuses", ())
        return [one["resourceClaimName"] for one in statuses if one.get("resourceClaimName")]

    def events(self, pod: str = "") -> list[str]:
        """ "reason: message" of those about the pod, or about all."""
        found = self.api.listed(f"/api/v1/namespaces/{self.namespace}/events")
        return [f"{one['reason']}: {one['message']}" for one in found if pod in ("", one["involvedObject"]["name"])]

    # The end ---------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Give everything back."""
        self.api.clear(self.namespace, "Pod", "ResourceClaim", "ResourceClaimTemplate")
        for place in reversed(self._made):
            self.api.delete(place)
