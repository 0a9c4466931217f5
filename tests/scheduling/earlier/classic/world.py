"""A cluster with drivers, whose parts take turns; between any two turns something may happen to one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from claims.classic.kinds import PodSchedulingContext
from claims.controllers import generated_claims, reservations
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate
from claims.kinds.resource_claims import ResourceClaimTemplateSpec as TemplateSpec
from inventory.classic.values import ResourceClass
from inventory.kinds import gates
from manciple.controllers import housekeeping
from manciple.store import event_log
from scheduling.earlier import classic
from tests.builders import NAMESPACE, make_meta, make_node
from tests.scheduling.cluster import Cluster
from tests.scheduling.earlier.classic.driver import ClassicDriver

CLASS = "gpu.example.com"
DRIVER = "gpu.resource.example.com"


def classic_spec(resource_class: str = CLASS, mode: str = "WaitForFirstConsumer") -> ResourceClaimSpec:
    return ResourceClaimSpec(resource_class_name=resource_class, allocation_mode=mode)


class World(Cluster):
    def __init__(self) -> None:
        super().__init__()
        self.drivers: list[ClassicDriver] = []
        #: who takes the next turn, where both have something to do
        self.drivers_first = True

    def with_driver(self, *, resource_class: str = CLASS, name: str = DRIVER, **fields: Any) -> ClassicDriver:
        """A driver with its class."""
        suitable = fields.pop("suitable_nodes", None)
        self.create(
            ResourceClass(
                api_version="resource.k8s.io/v1alpha2",
                kind="ResourceClass",
                metadata=make_meta(resource_class),
                driver_name=name,
                suitable_nodes=suitable,
            )
        )
        self.drivers.append(ClassicDriver(self, name=name, **fields))
        return self.drivers[-1]

    def with_nodes(self, *names: str) -> None:
        for name in names:
            self.create(make_node(name, labels={"zone": name[-1]}))

    def make_claim(
        self, name: str, resource_class: str = CLASS, mode: str = "WaitForFirstConsumer", namespace: str = NAMESPACE
    ) -> ResourceClaim:
        spec = classic_spec(resource_class, mode)
        return self.create(
            ResourceClaim(
                api_version="resource.k8s.io/v1", kind="ResourceClaim", metadata=make_meta(name, namespace), spec=spec
            )
        )

    def make_template(
        self, name: str, resource_class: str = CLASS, namespace: str = NAMESPACE
    ) -> ResourceClaimTemplate:
        return self.create(
            ResourceClaimTemplate(
                api_version="resource.k8s.io/v1",
                kind="ResourceClaimTemplate",
                metadata=make_meta(name, namespace),
                spec=TemplateSpec(spec=classic_spec(resource_class)),
            )
        )

    def context(self, pod: str = "pod", namespace: str = NAMESPACE) -> PodSchedulingContext | None:
        return self.find(PodSchedulingContext, pod, namespace)

    def bound(self, name: str = "pod") -> str:
        return self.pod(name).spec.node_name

    # Turns -----------------------------------------------------------------------------------------------------------

    def _turns(self) -> list[Callable[[], object]]:
        ours: list[Callable[[], object]] = [
            lambda: generated_claims.FOLLOWER.follow(self.clock),
            self.worker.run,
            lambda: reservations.FOLLOWER.follow(self.clock),
            lambda: housekeeping.collect_garbage(self.now),
        ]
        if gates.enabled(gates.CONTROL_PLANE_CONTROLLER):
            ours.append(lambda: classic.reconcile(self.now))
        drivers: list[Callable[[], object]] = [driver.step for driver in self.drivers]
        return [*drivers, *ours] if self.drivers_first else [*ours, *drivers]

    def run(self, between: Callable[[int], None] | None = None, *, rests: int = 3) -> int:
        """Let everybody take turns until nothing happens any more, rests included.

        Returns how many turns did something. between: what happens after the so-manyth of them.
        """
        done, quiet = 0, 0
        while quiet <= rests:
            before = self.revision()
            for turn in self._turns():
                known = self.revision()
                turn()
                if self.revision() != known:
                    done += 1
                    if between is not None:
                        between(done)
                    if self.revision() != known:
                        break  # the next to see it is the first again
            quiet = quiet + 1 if self.revision() == before else 0
            if quiet:
                self.later(11)
            assert done < 200, "they do not come to an end"
        return done

    def revision(self) -> int:
        return event_log.latest_revision()

    def kill_scheduler(self) -> None:
        self.worker = self.new_worker()

    def restart_driver(self, at: int = 0) -> None:
        old = self.drivers[at]
        self.drivers[at] = ClassicDriver(
            self, old.name, set(old.unsuitable), shareable=old.shareable, reserves=old.reserves
        )

    def end(self, pod: str, namespace: str = NAMESPACE) -> None:
        """Delete a pod, as a user and then its node do."""
        found = self.get(Pod, pod, namespace)
        if found.spec.node_name:
            self.delete(found, grace=30)
        self.delete(self.get(Pod, pod, namespace), grace=0)

    def leftovers(self) -> list[str]:
        """What of the negotiation is still there."""
        held = [one for one in self.all(ResourceClaim) if one.status != type(one.status)() or one.metadata.finalizers]
        return [one.metadata.name for one in (*held, *self.all(PodSchedulingContext))]
