"""After a restore nobody goes on from a revision that is lost, and everything else goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from claims.kinds.pods import Pod
from manciple.controllers.models import Heartbeat
from manciple.per_process import reset_all
from manciple.store import event_log, objects, sql
from manciple.store.restoring import skip_lost_revisions
from manciple.wire.errors import Expired
from manciple.wire.registry import Kind, registry
from tests.builders import make_claim, make_pod
from tests.scheduling.cluster import Cluster

pytestmark = pytest.mark.django_db(transaction=True)


def test_who_remembers_what_is_lost_lists_again_and_the_cluster_goes_on() -> None:
    cluster = Cluster()
    cluster.with_gpus("node-1")
    cluster.create(make_claim("held"))
    cluster.create(make_pod("before", claims={"gpu": "held"}))
    cluster.settle()
    known, names = event_log.latest_revision(), {one.name for one in objects.list(objects_kind()).items}

    following = skip_lost_revisions(1000)

    assert following == known + 1000
    for lost in (known, known + 1, following - 1):
        with pytest.raises(Expired):
            event_log.read_after(lost, limit=10)
    assert {one.name for one in objects.list(objects_kind()).items} == names
    cluster.create(make_claim("next"))
    cluster.create(make_pod("after", claims={"gpu": "next"}))
    cluster.settle()
    assert cluster.pod("after").spec.node_name == "node-1"
    assert int(cluster.pod("after").metadata.resource_version) > following
    assert cluster.violations() == {}


@pytest.fixture
def own_database(tmp_path: Path) -> Iterator[Path | None]:
    """A database of SQLite of this test alone: threads of other tests have theirs open, which must not be replaced."""
    if sql.on_postgresql():
        yield None
        return
    default = connections["default"]
    shared, own = default.settings_dict["NAME"], tmp_path / "own.sqlite3"
    with default.cursor() as cursor:
        cursor.execute("VACUUM INTO %s", [str(own)])
    use_database(own)
    yield own
    use_database(shared)


def use_database(name: str | Path) -> None:
    connections.close_all()
    connections["default"].settings_dict["NAME"] = name
    reset_all()


def test_a_backup_is_put_back_and_devices_are_given_once(own_database: Path | None, tmp_path: Path) -> None:
    """With PostgreSQL's own backup: tests/e2e/production/test_disaster.py."""
    if own_database is None:
        return
    cluster = Cluster()
    cluster.with_gpus("node-1", each=2)
    run(cluster, "before")
    call_command("backup", to=tmp_path)
    run(cluster, "lost")
    latest = event_log.latest_revision()

    connections.close_all()
    for suffix in ("-wal", "-shm"):
        own_database.with_name(own_database.name + suffix).unlink(missing_ok=True)
    (backup,) = tmp_path.glob("*/*.sqlite3")
    shutil.copy(backup, own_database)
    reset_all()
    call_command("restored")

    restored = Cluster()
    assert [pod.metadata.name for pod in restored.all(Pod)] == ["before"]
    run(restored, "after")
    held = [restored.devices(restored.claim(name)) for name in ("before", "after")]
    assert sorted(map(len, held)) == [1, 1]
    assert held[0] != held[1]
    assert int(restored.pod("after").metadata.resource_version) > latest
    assert restored.violations() == {}


def run(cluster: Cluster, name: str) -> None:
    """A pod with a device of its own."""
    cluster.create(make_claim(name))
    cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()
    assert cluster.pod(name).spec.node_name == "node-1"


def objects_kind() -> Kind:
    return registry.by_resource("resourceslices.resource.k8s.io")


def test_it_is_refused_while_somebody_works(capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(UTC)
    row = Heartbeat.objects.create(name="here-1", kind="worker", started_at=now, seen_at=now, lately={})
    with pytest.raises(CommandError, match="here-1 works on this database: stop every API process"):
        call_command("restored")
    Heartbeat.objects.filter(name=row.name).update(seen_at=now - timedelta(minutes=5))
    call_command("restored")
    assert "Revisions go on from 1" in capsys.readouterr().out
    assert not Heartbeat.objects.exists()
