"""A cluster for tests: the real store and controllers, a clock that the test moves, and one worker that runs on demand.

`settle()` does what the Celery tasks would: it runs every follower and the scheduling worker until nothing changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

from django.db import connections
from msgspec import structs

from claims.causes import causes
from claims.causes.causes import AnyCause
from claims.controllers import generated_claims, reservations
from claims.controllers.reservations import FINALIZER
from claims.kinds.pods import Pod, PodCondition, PodResourceClaimStatus, PodStatus
from claims.kinds.resource_claims import AllocationResult, ResourceClaim
from inventory.kinds.devices import DeviceClass, ResourceSlice
from inventory.kinds.nodes import Node
from manciple.controllers import housekeeping
from manciple.store import objects
from manciple.store.objects import Sources
from manciple.wire.base import ApiObject
from manciple.wire.machinery import Event, Namespace
from manciple.wire.registry import Kind, registry
from scheduling.cluster_facts import gather
from scheduling.cycle.scheduler import SchedulingWorker
from scheduling.invariants import violations
from scheduling.models import QueuedPod
from tests.builders import (
    CLASS,
    DRIVER,
    NAMESPACE,
    make_class,
    make_devices,
    make_meta,
    make_namespace,
    make_node,
    make_slice,
)

ObjectT = TypeVar("ObjectT", bound=ApiObject)


def kind_of(obj: ApiObject) -> Kind:
    kind = registry.find_kind(obj.api_version, obj.kind)
    assert kind is not None, f"nobody registered {obj.api_version} {obj.kind}"
    return kind


def with_spec(obj: ObjectT, **changes: Any) -> ObjectT:
    """`obj` with some fields of its spec replaced."""
    return structs.replace(obj, spec=structs.replace(obj.spec, **changes))  # type: ignore[attr-defined]


def in_threads(*actions: Callable[[], object]) -> None:
    """Run the actions at once, each with its own database connection; raises what they raise."""
    start, failures = threading.Barrier(len(actions)), []

    def run(action: Callable[[], object]) -> None:
        try:
            start.wait()
            action()
        except BaseException as error:
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class Cluster:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC).replace(microsecond=0)
        self.worker = self.new_worker()

    def clock(self) -> datetime:
        return self.now

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def new_worker(self) -> SchedulingWorker:
        return SchedulingWorker(self.clock)

    # Acting ----------------------------------------------------------------------------------------------------------

    def create(self, obj: ObjectT) -> ObjectT:
        """As the API would: with defaults, checked, at the time of the test's clock."""
        kind = kind_of(obj)
        prepared = kind.prepare_create(obj)
        problems = kind.validate_create(prepared)
        assert not problems, problems
        with objects.writing(sources=Sources(now=self.clock)) as writer:
            if kind.namespaced:
                self._open_namespace(writer, prepared.metadata.namespace)
            return cast("ObjectT", writer.create(kind, prepared))

    def _open_namespace(self, writer: objects.Writer, name: str) -> None:
        """Controllers make nothing in a namespace that does not exist."""
        if writer.get(registry.by_resource("namespaces"), "", name) is None:
            namespace = make_namespace(name)
            writer.create(kind_of(namespace), namespace)

    def with_gpus(self, *nodes: str, each: int = 2) -> None:
        """A class, and nodes with `each` GPUs."""
        self.create(make_class())
        for node in nodes or ("node-1",):
            self.create(make_node(node))
            self.create(make_slice(node=node, devices=make_devices(each)))

    def update(self, obj: ObjectT) -> ObjectT:
        with objects.writing() as writer:
            return cast("ObjectT", writer.update(kind_of(obj), obj))

    def delete(self, obj: ApiObject, *, grace: int | None = 0) -> None:
        with objects.writing() as writer:
            writer.delete(kind_of(obj), obj.metadata.namespace, obj.metadata.name, grace_seconds=grace)

    def finish(self, name: str, phase: str = "Succeeded") -> None:
        """What the node's agent reports when all containers ended."""
        pod = self.pod(name)
        self.update(structs.replace(pod, status=structs.replace(pod.status, phase=phase)))

    def needs_no_claim(self, name: str, entry: str) -> None:
        """Record that `entry` of the pod's claims was found not to need one."""
        pod = self.pod(name)
        statuses = (PodResourceClaimStatus(name=entry),)
        self.update(structs.replace(pod, status=structs.replace(pod.status, resource_claim_statuses=statuses)))

    def settle(self) -> None:
        """Let every controller and the worker do all that they have to do now."""
        while (
            reservations.FOLLOWER.follow(self.clock)
            + self.worker.run().settled
            + generated_claims.FOLLOWER.follow(self.clock)
            + housekeeping.collect_garbage(self.now)
        ):
            pass

    def retry(self) -> None:
        """`settle`, after every backoff is over."""
        self.later(11)
        self.settle()

    def create_allocated(self, claim: ResourceClaim, allocation: AllocationResult) -> ResourceClaim:
        """A claim with an allocation that somebody wrote by hand."""
        made = self.create(claim)
        metadata = structs.replace(made.metadata, finalizers=(FINALIZER,))
        status = structs.replace(made.status, allocation=allocation)
        return self.update(structs.replace(made, metadata=metadata, status=status))

    def label(self, obj: ObjectT, key: str, value: str) -> ObjectT:
        metadata = structs.replace(obj.metadata, labels={**obj.metadata.labels, key: value})
        return self.update(structs.replace(obj, metadata=metadata))

    def replace_pod(self, name: str) -> Pod:
        """Delete a pod and create one of the same name that uses the same claims."""
        old = self.pod(name)
        self.delete(old)
        return self.create(structs.replace(old, metadata=make_meta(name, NAMESPACE), status=PodStatus()))

    def all_namespaces(self) -> dict[str, Namespace]:
        return {one.metadata.name: one for one in self.all(Namespace)}

    def label_namespace(self, name: str, labels: dict[str, str]) -> None:
        """Make the namespace, or give it these labels."""
        known = self.find(Namespace, name)
        if known is None:
            self.create(make_namespace(name, labels=labels))
        else:
            self.update(structs.replace(known, metadata=structs.replace(known.metadata, labels=labels)))

    # Looking ---------------------------------------------------------------------------------------------------------

    def find(self, type_: type[ObjectT], name: str, namespace: str = NAMESPACE) -> ObjectT | None:
        kind = next(kind for kind in registry if kind.type is type_)
        stored = objects.get(kind, namespace if kind.namespaced else "", name)
        return None if stored is None else cast("ObjectT", objects.decode(kind, stored.text))

    def get(self, type_: type[ObjectT], name: str, namespace: str = NAMESPACE) -> ObjectT:
        found = self.find(type_, name, namespace)
        assert found is not None, f"{type_.__name__} {name} does not exist"
        return found

    def pod(self, name: str) -> Pod:
        return self.get(Pod, name)

    def claim(self, name: str) -> ResourceClaim:
        return self.get(ResourceClaim, name)

    def node(self, name: str = "node-1") -> Node:
        return self.get(Node, name)

    def slice(self, node: str = "node-1") -> ResourceSlice:
        return self.get(ResourceSlice, f"{node}-{DRIVER}")

    def device_class(self) -> DeviceClass:
        return self.get(DeviceClass, CLASS)

    def generated_claim(self, pod: str, entry: str = "gpu") -> ResourceClaim:
        """The claim that was made for an entry of the pod's claims."""
        statuses = {one.name: one.resource_claim_name for one in self.pod(pod).status.resource_claim_statuses}
        return self.claim(statuses[entry] or "")

    def devices(self, claim: ResourceClaim) -> list[str]:
        """pool/device of everything the claim holds."""
        allocation = claim.status.allocation
        return [f"{one.pool}/{one.device}" for one in (allocation.devices.results if allocation else ())]

    def all(self, type_: type[ObjectT]) -> list[ObjectT]:
        kind = next(kind for kind in registry if kind.type is type_)
        return [cast("ObjectT", objects.decode(kind, stored.text)) for stored in objects.list(kind).items]

    def condition(self, name: str) -> PodCondition:
        """The pod's PodScheduled condition."""
        (condition,) = (one for one in self.pod(name).status.conditions if one.type == "PodScheduled")
        return condition

    def events(self, reason: str) -> list[Event]:
        return [event for event in self.all(Event) if event.reason == reason]

    def why_pending(self, name: str) -> str:
        """The message of the pod's PodScheduled condition."""
        condition = self.condition(name)
        assert condition.status == "False"
        return condition.message

    def cause(self, name: str) -> AnyCause | None:
        """Why the pod waits."""
        return causes.decode(self.queued(name).cause)

    def queued(self, name: str) -> QueuedPod:
        return QueuedPod.objects.get(name=name)

    def violations(self) -> dict[str, tuple[str, ...]]:
        return {name: found for name, found in violations(gather(self.now)).items() if found}
