"""Which connection goes when there are too many."""

from __future__ import annotations

from typing import Any

import pytest

from manciple.api.connections import ConnectionTable, OpenConnection, network_of
from manciple.wire.identity import ANONYMOUS_USER, MASTERS, NODES, UNAUTHENTICATED, Identity

ALICE, BOB = Identity("alice"), Identity("bob")
NODE, ADMIN = Identity("system:node:n1", (NODES,)), Identity("root", (MASTERS,))
LIMIT = 80


class Table(ConnectionTable):
    """Notes what was dropped."""

    def __init__(self, limit: int = LIMIT, *, descriptors: int = 10_000) -> None:
        super().__init__(limit, descriptors=descriptors)
        self.gone: list[OpenConnection] = []

    def connect(self, address: str = "10.0.0.1", identity: Identity | None = None, **more: Any) -> OpenConnection:
        connection = self.add(address, descriptor=more.pop("descriptor", 3))
        assert connection is not None
        connection.cancel_handshake = lambda: self.gone.append(connection)
        if more.pop("busy", False):
            connection.protocol = Busy(lambda: self.gone.append(connection))
        connection.claim_for(identity)
        return connection


class Busy:
    """A connection that serves a request."""

    busy = True

    def __init__(self, drop: Any) -> None:
        self.transport: Any = type("Transport", (), {"abort": staticmethod(drop)})


def test_too_many_idle_strangers_lose_the_oldest_of_the_address_with_most() -> None:
    table = Table()
    patient = table.connect("10.0.0.2")
    attackers = [table.connect() for _ in range(LIMIT)]
    assert table.counts["strangers"] == LIMIT / 8
    assert table.gone == attackers[: -(LIMIT // 8 - 1)]
    assert patient not in table.gone


def test_strangers_never_push_out_who_is_known() -> None:
    table = Table()
    known = [table.connect(identity=one) for one in (ALICE, BOB, NODE, ADMIN) for _ in range(5)]
    for n in range(10 * LIMIT):
        table.connect(f"10.0.{n // 256}.{n % 256}", busy=n % 2 == 0)
    assert not set(known) & set(table.gone)


def test_requests_that_are_served_stay_while_there_is_room() -> None:
    table = Table()
    served = [table.connect(busy=True) for _ in range(LIMIT // 2)]
    for _ in range(LIMIT // 2):
        table.connect()
    assert not set(served) & set(table.gone)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "watches"])
def test_one_tenant_makes_room_for_all_others(busy: bool) -> None:
    table = Table()
    others = [table.connect(identity=one, busy=True) for one in (BOB, NODE, ADMIN) for _ in range(5)]
    alices = [table.connect(identity=ALICE, busy=busy) for _ in range(3 * LIMIT)]
    late = [table.connect(identity=Identity(f"user-{n}"), busy=True) for n in range(30)]
    assert sum(table.counts.values()) == LIMIT
    assert set(table.gone) < set(alices)
    assert not set(table.gone) & {*others, *late}


def test_many_service_accounts_of_one_namespace_count_together() -> None:
    table = Table()
    bobs = [table.connect(identity=BOB, busy=True) for _ in range(5)]
    for n in range(3 * LIMIT):
        table.connect(identity=Identity(f"system:serviceaccount:team-a:robot-{n}"), busy=True)
    assert not set(bobs) & set(table.gone)


def test_a_node_that_opens_too_many_loses_its_own() -> None:
    table = Table()
    others = [table.connect(identity=one) for one in (ALICE, ADMIN, Identity("system:node:n2", (NODES,)))]
    for _ in range(3 * LIMIT):
        table.connect(identity=NODE)
    assert not set(others) & set(table.gone)


def test_the_one_that_was_quiet_for_longest_goes_first() -> None:
    table = Table()
    first, second = table.connect(identity=ALICE), table.connect(identity=ALICE)
    first.claim_for(ALICE)  # a second request
    while not table.gone:
        table.connect(identity=ALICE)
    assert table.gone == [second]


def test_a_late_descriptor_replaces_a_connection_however_few_there_are() -> None:
    table = Table(descriptors=1024)
    idle = table.connect(identity=ALICE)
    table.connect(identity=BOB, descriptor=1000)
    assert table.gone == [idle]


def test_an_anonymous_request_makes_nobody_known() -> None:
    table = Table()
    table.connect(identity=Identity(ANONYMOUS_USER, (UNAUTHENTICATED,)))
    assert table.counts["strangers"] == 1


def test_what_has_ended_is_no_more_counted() -> None:
    table = Table()
    connections = [table.connect(identity=one) for one in (ALICE, NODE)]
    for one in [*connections, *connections]:
        one.close()
        one.claim_for(BOB)
    assert not any(table.counts.values())


NETWORKS = {
    "10.1.2.3": "10.1.2.3",
    "::ffff:10.1.2.3": "10.1.2.3",
    "2001:db8::1": "2001:db8::/64",
    "2001:db8:0:0:ffff::2": "2001:db8::/64",
    "fe80::1%eth0": "fe80::/64",
    "": "",
}


@pytest.mark.parametrize(("address", "network"), NETWORKS.items(), ids=NETWORKS.keys())
def test_the_addresses_that_one_client_may_have_count_together(address: str, network: str) -> None:
    assert network_of(address) == network
