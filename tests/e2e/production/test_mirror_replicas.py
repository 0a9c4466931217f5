"""Two `manciple mirror` on one PostgreSQL: both show the cluster, one copies it, and either may be killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.e2e.api_client import Api
from tests.e2e.processes import Process, wait_for
from tests.e2e.production.installation import Installation, environment, new_database
from tests.e2e.test_mirror import Mirror, pod
from tests.exposition import samples
from tests.services import Server, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.postgres]

NAMESPACE = "replicated"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
#: Entries that say what the one before of the same object said, but for our own number of it.
DOUBLED = """
    WITH said AS (
        SELECT resource, namespace, name, revision, type,
            regexp_replace(document, '"resourceVersion":"[0-9]*"', '') AS text FROM store_event
    ), compared AS (
        SELECT *, lag(text) OVER (PARTITION BY resource, namespace, name ORDER BY revision) AS before FROM said
    )
    SELECT resource, name, revision FROM compared WHERE text = before AND type <> 'DELETED'
"""
#: Of an object of that name.
ENTRIES = "SELECT type FROM store_event WHERE resource = 'pods' AND name = %s ORDER BY revision"


@dataclass
class Replica(Mirror):
    env: Mapping[str, str] = field(default_factory=dict)
    metrics: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")

    def process(self) -> Process:
        command = ["-m", "manciple", "mirror", "--kubeconfig", str(self.kubeconfig), "--home", str(self.home)]
        env = {**self.env, "MANCIPLE_METRICS_LISTEN": self.metrics, "MANCIPLE_LOG_LEVEL": "INFO"}
        return Process([sys.executable, *command], env=env, forked=False)

    def tells(self, name: str, **labels: str) -> float:
        """The sum of what its metrics say."""
        text = httpx.get(f"http://{self.metrics}/metrics").text
        return sum(one.value for one in samples(text, name) if labels.items() <= one.labels.items())

    def leads(self) -> bool:
        return self.tells("manciple_mirror_leads") == 1


@dataclass
class Pair:
    replicas: Sequence[Replica]
    database: str

    def leader(self) -> Replica:
        """The one that copies; the other one does not."""
        leading = wait_for("one that copies", lambda: [one for one in self.replicas if one.leads()])
        (leader,) = leading
        return leader

    def asked(self, statement: str, *parameters: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.database) as connection:
            return connection.execute(statement, parameters).fetchall()


@pytest.fixture
def cluster(installation: Installation) -> Iterator[Api]:
    api = Api(installation.home / "kubeconfig")
    api.made("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    yield api
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    wait_for("the namespace to be gone", lambda: api.find(f"/api/v1/namespaces/{NAMESPACE}") is None)


@pytest.fixture
def pair(installation: Installation, cluster: Api, postgresql: Server, tmp_path: Path) -> Iterator[Pair]:
    """Both are started at once, on an empty database."""
    database = new_database(postgresql, "mirrored")
    settings = environment(tmp_path, database, "")
    kubeconfig = installation.home / "kubeconfig"
    replicas = [Replica(tmp_path / name, kubeconfig, env=settings) for name in ("first", "second")]
    try:
        for one in replicas:
            one.running = one.process().start()
        for one in replicas:
            one.enter()
        yield Pair(replicas, database)
        for one in replicas:
            assert one.running.stop() == 0, "\n".join(one.running.output)
    finally:
        for one in replicas:
            one.running.kill()


def test_either_of_two_may_be_killed_and_nothing_is_copied_twice(pair: Pair, cluster: Api) -> None:
    leader = pair.leader()
    (other,) = (one for one in pair.replicas if one is not leader)
    cluster.made(PODS, pod("before", nodeSelector={"disk": "ssd"}))
    for one in pair.replicas:
        one.shows("/nodes", r"node-3.*Ready")
        one.shows(f"/pods/{NAMESPACE}/before", "Why it waits")
    assert other.tells("manciple_mirror_writes_total") == 0
    assert other.tells("manciple_mirror_remote_reachable") == 1

    leader.running.kill()
    cluster.made(PODS, pod("meanwhile", nodeSelector={"disk": "ssd"}))
    wait_for("the other one to copy", other.leads)
    other.shows(f"/pods/{NAMESPACE}/meanwhile", "Why it waits")
    cluster.patch(f"{PODS}/before", {"metadata": {"labels": {"team": "seismics"}}})
    other.shows(f"/pods/{NAMESPACE}/before?tab=yaml", "seismics")

    leader.start()
    leader.shows(f"/pods/{NAMESPACE}/meanwhile", "Why it waits")
    assert pair.leader() is other, "who comes back waits"

    other.running.pause()
    with psycopg.connect(pair.database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    wait_for("the one that still works to copy", leader.leads)
    cluster.delete(f"{PODS}/meanwhile", grace=0)
    leader.no_longer_shows(f"/pods/{NAMESPACE}/meanwhile", "Why it waits")
    other.running.resume()
    wait_for("the one that was cut off to notice", lambda: not other.leads())
    other.no_longer_shows(f"/pods/{NAMESPACE}/meanwhile", "Why it waits")
    assert pair.leader() is leader

    assert pair.asked(DOUBLED) == []
    for name, once in (("before", ["ADDED"]), ("meanwhile", ["ADDED", "DELETED"])):
        assert [entry for (entry,) in pair.asked(ENTRIES, name) if entry != "MODIFIED"] == once
