"""The gRPC services of a driver: registration, preparing, health. What goes wrong goes wrong by order of the tests."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tests.plugin_driver.devices import Devices, InUse, Ready
from tests.plugin_driver.kube import Kube, Refused
from tests.plugin_driver.messages import Messages, Method
from tests.plugin_driver.orders import Journal, Order, Orders, Report, read_orders, wait_while

DRA = "k8s.io.kubelet.pkg.apis.dra"
Document = dict[str, Any]


def crash() -> None:
    """End as kill -9 does."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Plugin:
    """One instance of a driver. serialized: what a call holds while it works, so that it works alone."""

    name: str
    endpoint: str
    services: Sequence[str]  # as registration lists them: "v1.DRAPlugin"
    kube: Kube
    devices: Devices
    messages: Messages
    journal: Journal
    orders: Path
    serialized: Callable[[], AbstractContextManager[Any]] = nullcontext
    stopping: threading.Event = field(default_factory=threading.Event)

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """The services of the driver's socket."""
        return [self._handler(service) for service in self.services]

    def registration(self) -> grpc.GenericRpcHandler:
        """The service of the registration socket."""
        methods: dict[str, Method] = {
            "GetInfo": self._get_info,
            "NotifyRegistrationStatus": self._notified,
        }
        return self.messages.handler("pluginregistration.Registration", methods)

    def _handler(self, service: str) -> grpc.GenericRpcHandler:
        version, _, kind = service.partition(".")
        if kind == "DRAResourceHealth":
            return self.messages.handler(service, {"NodeWatchResources": _Health(self, version).watch})
        calls = _Calls(self, version)
        methods = {"NodePrepareResources": calls.prepare, "NodeUnprepareResources": calls.unprepare}
        return self.messages.handler(f"{DRA}.{service}", methods)

    def ordered(self) -> Orders:
        return read_orders(self.orders)

    def _get_info(self, _request: Any, context: grpc.ServicerContext) -> Any:
        self.journal.write(call="GetInfo")
        if self.ordered().get_info.mode:
            context.abort(grpc.StatusCode.UNKNOWN, "refused by order")
        return self.messages["pluginregistration.PluginInfo"](
            type="DRAPlugin", name=self.name, endpoint=self.endpoint, supported_versions=self.services
        )

    def _notified(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.journal.write(call="NotifyRegistrationStatus", registered=request.plugin_registered, error=request.error)
        if self.ordered().notify.mode or not request.plugin_registered:
            context.abort(grpc.StatusCode.UNKNOWN, f"failed registration process: {request.error}")
        return self.messages["pluginregistration.RegistrationStatusResponse"]()


class _Failed(Exception):
    """The whole call failed; gRPC's code is that of a Go error without one."""


class _Calls:
    """DRAPlugin in one version."""

    def __init__(self, plugin: Plugin, version: str) -> None:
        self._plugin = plugin
        self._version = version
        self._package = f"{DRA}.{version}"

    def prepare(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._run("prepare", "NodePrepareResources", request, context, self._prepare)

    def unprepare(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._run("unprepare", "NodeUnprepareResources", request, context, self._unprepare)

    def _run(
        self,
        kind: str,
        call: str,
        request: Any,
        context: grpc.ServicerContext,
        work: Callable[[Any, Order], Any],
    ) -> Any:
        names = [claim.name for claim in request.claims]
        told = {"call": call, "service": self._version, "claims": names, "uids": [c.uid for c in request.claims]}
        self._plugin.journal.write(**told, phase="begin")
        try:
            answer = work(request, self._order(kind, names, context))
        except _Failed as failure:
            self._plugin.journal.write(**told, phase="end", error=str(failure))
            context.abort(grpc.StatusCode.UNKNOWN, str(failure))
        errors = {uid: one.error for uid, one in answer.claims.items() if one.error}
        self._plugin.journal.write(**told, phase="end", error="", errors=errors)
        return answer

    def _order(self, kind: str, names: Sequence[str], context: grpc.ServicerContext) -> Order:
        """How this call is to end; waits while it is to hang. Raises: _Failed."""

        def of(orders: Orders) -> Order:
            return orders.prepare if kind == "prepare" else orders.unprepare

        def hangs(orders: Orders) -> bool:
            return of(orders).mode == "hang" and any(of(orders).meets(name) for name in names)

        def active() -> bool:
            return context.is_active() and not self._plugin.stopping.is_set()

        if not wait_while(self._plugin.orders, hangs, active=active):
            raise _Failed("the caller has given up")
        order = of(self._plugin.ordered())
        meant = any(order.meets(name) for name in names)
        if meant and order.mode == "error":
            raise _Failed("the whole call is refused by order")
        if meant and order.mode == "crash-before":
            crash()
        return order if meant else Order()

    def _prepare(self, request: Any, order: Order) -> Any:
        claims = [self._fetched(claim) for claim in request.claims]
        answer = self._message("NodePrepareResourcesResponse")
        with self._plugin.serialized():
            for asked, claim in zip(request.claims, claims, strict=True):
                if order.meets(asked.name) and order.mode == "omit":
                    continue
                entry = answer.claims[asked.uid]
                if order.meets(asked.name) and order.mode == "fail":
                    entry.error = "refused by order"
                    continue
                try:
                    ready = self._plugin.devices.prepare(claim)
                except InUse as error:
                    entry.error = str(error)
                    continue
                entry.devices.extend(self._device(one) for one in ready)
                self._report(claim)
        if order.mode == "crash-after":
            crash()
        return answer

    def _unprepare(self, request: Any, order: Order) -> Any:
        answer = self._message("NodeUnprepareResourcesResponse")
        with self._plugin.serialized():
            for asked in request.claims:
                if order.meets(asked.name) and order.mode == "omit":
                    continue
                entry = answer.claims[asked.uid]
                entry.SetInParent()
                if order.meets(asked.name) and order.mode == "fail":
                    entry.error = "refused by order"
                else:
                    self._plugin.devices.unprepare(asked.uid)
        if order.mode == "crash-after":
            crash()
        return answer

    def _fetched(self, asked: Any) -> Document:
        """The claim, checked as the library checks it. Raises: _Failed."""
        name = f"{asked.namespace}/{asked.name}"
        try:
            claim = self._plugin.kube.claim(asked.namespace, asked.name)
        except Refused as error:
            raise _Failed(f"get resource claims: retrieve claim {name}: {error}") from error
        if "allocation" not in claim.get("status", {}):
            raise _Failed(f"get resource claims: claim {name} not allocated")
        if claim["metadata"]["uid"] != asked.uid:
            raise _Failed(f"get resource claims: claim {name} got replaced")
        return claim

    def _device(self, ready: Ready) -> Any:
        share = {"share_id": ready.share} if ready.share and self._version == "v1" else {}
        return self._message(
            "Device",
            request_names=[ready.request],
            pool_name=ready.pool,
            device_name=ready.device,
            cdi_device_ids=ready.cdi_ids,
            **share,
        )

    def _report(self, claim: Document) -> None:
        """The status of the claim's devices, by order."""
        if not self._plugin.ordered().status:
            return
        results = claim["status"]["allocation"]["devices"]["results"]
        mine = [result for result in results if result["driver"] == self._plugin.name]
        claim["status"]["devices"] = [
            {key: result[key] for key in ("driver", "pool", "device")} | {"data": {"prepared": True}} for result in mine
        ]
        self._plugin.kube.update_claim_status(claim)

    def _message(self, name: str, **members: Any) -> Any:
        return self._plugin.messages[f"{self._package}.{name}"](**members)


class _Health:
    """DRAResourceHealth in one version."""

    def __init__(self, plugin: Plugin, version: str) -> None:
        self._plugin = plugin
        self._version = version

    def watch(self, _request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """The health of all devices, whenever it is another."""
        self._plugin.journal.write(call="NodeWatchResources", service=self._version)
        while context.is_active() and not self._plugin.stopping.is_set():
            said = self._plugin.ordered().health
            yield self._plugin.messages[f"{self._version}.NodeWatchResourcesResponse"](
                devices=[
                    {
                        "device": {"pool_name": one.pool, "device_name": one.device},
                        "health": one.health,
                        "message": one.message,
                        "health_check_timeout_seconds": one.seconds,
                    }
                    for one in said
                ]
            )
            self._wait_until_else(said, context)

    def _wait_until_else(self, said: Sequence[Report], context: grpc.ServicerContext) -> None:
        wait_while(
            self._plugin.orders,
            lambda orders: orders.health == said,
            active=lambda: context.is_active() and not self._plugin.stopping.is_set(),
        )
