"""The part of a storm in which people run into limits: who takes part, and what must hold of it.

limits = Limits(kubeconfig, server, seed, notes, say)
limits.furnish()          # before the storm
limits.workers            # tenants, an operator, drivers and the oracle: they work while it lasts
limits.nodes              # imitated nodes: they work until everything is cleared
limits.take_back(); limits.clear()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.chaos import imitated, tenants
from tests.chaos.clients import Client, Notes, Worker
from tests.chaos.imitated import DRIVERS, NODES, Driver, ImitatedNode
from tests.chaos.oracle import Oracle
from tests.chaos.tenants import NAMESPACES, Operator, RoughClient, Tenant, class_of, reader_of
from tests.e2e.api_client import PLACES, Hands
from tests.e2e.processes import wait_for

#: Seconds from one look of the oracle to the next, at most.
PAUSE = 2.0
#: Seconds within which everything that was deleted is gone.
CLEARED = 120.0


class Onlooker(Worker):
    """Has the oracle look, and says at once what it finds."""

    def __init__(self, client: Client, seed: int, oracle: Oracle, say: Callable[[str], None]) -> None:
        super().__init__("oracle", client, seed)
        self._oracle, self._say = oracle, say

    def act(self) -> None:
        known = len(self._oracle.wrong)
        self._oracle.look()
        for sentence in self._oracle.wrong[known:]:
            self._say(f"VIOLATED {sentence}")
        self.pause(PAUSE)


class Limits:
    """See the module's docstring."""

    def __init__(self, kubeconfig: Path, server: str, seed: int, notes: Notes, say: Callable[[str], None]) -> None:
        self._say = say
        self._kubeconfig, self._server, self._seed, self._notes = kubeconfig, server, seed, notes
        self.oracle = Oracle(reader_of(kubeconfig, notes, server))
        self._drivers = [Driver(driver, node, self._client(), seed) for node in NODES for driver in DRIVERS]
        self.nodes: Sequence[Worker] = [ImitatedNode(node, self._client(), seed) for node in NODES]
        self.workers: Sequence[Worker] = list(self._made_workers())

    def _client(self, tenant: str = "") -> RoughClient:
        return RoughClient(self._kubeconfig, self._notes, self._server, tenant=tenant)

    def _made_workers(self) -> Iterator[Worker]:
        yield from self._drivers
        for number, namespace in enumerate((*NAMESPACES, NAMESPACES[0])):
            yield Tenant(f"tenant-{number}", namespace, self._client(f"tenant-{namespace}"), self._seed)
        yield Operator("operator", self._client(), self._seed)
        yield Onlooker(self._client(), self._seed, self.oracle, self._say)

    def furnish(self) -> None:
        tenants.furnish(Hands(self._kubeconfig))

    def take_back(self) -> None:
        """What operator and drivers left behind. Raises: AssertionError where nobody answers."""
        client = self._client()
        for namespace in NAMESPACES:
            quotas = PLACES["ResourceQuota"].format(namespace=namespace)
            for one in client.items(quotas):
                client.surely("DELETE", f"{quotas}/{one['metadata']['name']}", fine=(404,))
        for driver in DRIVERS:
            client.surely("PATCH", f"{PLACES['DeviceClass']}/{driver}", {"spec": class_of(driver)["spec"]})
        for node in NODES:
            spec = {"spec": {"unschedulable": None, "taints": None}}
            client.surely("PATCH", f"{PLACES['Node']}/{node}", spec, fine=(404,))
        for driver_on_node in self._drivers:
            driver_on_node.restore()

    def clear(self) -> None:
        """Everything is deleted, and gone. Raises: AssertionError."""
        client = self._client()
        for kind in ("Pod", "ResourceClaim"):
            for place in self._places(kind):
                client.surely("DELETE", place, fine=(403, 404))
        wait_for("pods and claims with limits to be gone", lambda: not self._left(client), timeout=CLEARED)
        self.oracle.look()
        for worker in self.nodes:
            worker.stop()
        for one in self._drivers:
            one.forget()
        for node in NODES:
            client.surely("DELETE", f"{PLACES['Node']}/{node}", fine=(404,))
            client.surely("DELETE", f"{imitated.LEASES}/{node}", fine=(404,))

    def _places(self, kind: str) -> Iterator[str]:
        for namespace in NAMESPACES:
            yield PLACES[kind].format(namespace=namespace)

    def _left(self, client: Client) -> list[str]:
        return [
            f"{kind} {one['metadata']['namespace']}/{one['metadata']['name']}"
            for kind in ("Pod", "ResourceClaim")
            for place in self._places(kind)
            for one in client.items(place)
        ]

    def figures(self) -> dict[str, object]:
        return {
            "looks of the oracle": self.oracle.looks,
            "limits in use at once, at most": dict(self.oracle.most),
            "limits that were seen full": dict(self.oracle.full),
        }
