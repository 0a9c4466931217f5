"""A short storm over the installation of these tests; the long ones are `make chaos` (docs/evidence/reliability.md)."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.chaos import faults, tenants
from tests.chaos.clients import NAMESPACE
from tests.chaos.faults import Victim
from tests.chaos.field import Field, faults_of, furnish
from tests.chaos.imitated import DRIVERS
from tests.chaos.links import Link
from tests.chaos.verdict import Plan, Weather
from tests.e2e.api_client import Hands
from tests.e2e.production.installation import NODES, Installation
from tests.services import Server

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

SECONDS = 12.0
CONTROL_PLANE = ("api", "worker-1", "worker-2")


@pytest.fixture
def field(installation: Installation, api: Hands, postgresql: Server, redis_server: Server) -> Iterator[Field]:
    """The control plane reaches its servers, and clients reach the API, by links that can be cut."""
    database = installation.env["MANCIPLE_DATABASE_URL"]
    links = {"clients": _link(api.server), "the database": _link(database), "Redis": _link(redis_server.url)}
    # The servers of tests may lose what they have said is done; here they are killed, and must not.
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ALTER DATABASE production SET synchronous_commit = on")
    installation.restart_control_plane(
        MANCIPLE_DATABASE_URL=f"postgresql://postgres@{links['the database'].address}/production",
        MANCIPLE_REDIS_URL=f"redis://{links['Redis'].address}/0",
    )
    victims: dict[str, Victim] = {**installation.processes, "postgresql": postgresql, "redis": redis_server}
    server = f"https://{links['clients'].address}"
    made = Field(installation, installation.home, victims, {}, server, templates=("gpu", "nic"))
    furnish(api, made.templates)
    made.faults = faults_of(made, [*CONTROL_PLANE, *NODES], clocks=False, frozen=3.0)
    made.faults |= faults.of_process("postgresql", postgresql, frozen=3.0)
    made.faults |= faults.of_process("redis", redis_server, frozen=3.0)
    for name, link in links.items():
        made.faults |= faults.of_link(name, link)
    yield made
    for namespace in (NAMESPACE, *tenants.NAMESPACES):
        api.remove("Namespace", namespace)
    for name in DRIVERS:
        api.remove("DeviceClass", name)
    installation.restart_control_plane()
    for link in links.values():
        link.close()


def _link(url: str) -> Link:
    parts = urlsplit(url)
    return Link((parts.hostname or "", parts.port or 0))


@pytest.mark.long
def test_what_must_hold_holds_after_a_storm(field: Field) -> None:
    plan = Plan(seed=1, seconds=SECONDS, pause=0.8, registrars=2, users=2, limits=True)
    verdict = Weather(field, plan, print).pass_over()
    assert verdict.violations == []
    assert int(str(verdict.figures["devices given at once, at most"])) > 0
    assert int(str(verdict.figures["looks of the oracle"])) > 0
