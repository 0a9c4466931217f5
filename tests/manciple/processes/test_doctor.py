"""`manciple doctor`: each thing that may be wrong is found, with the object and what to do; a sound system has none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.db.migrations.executor import MigrationExecutor
from msgspec import structs
from prometheus_client import CollectorRegistry, Gauge
from pytest_django import Settings
from redis import Redis

from claims.kinds.pods import PodStatus
from claims.kinds.resource_claims import (
    AllocationResult,
    DeviceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from claims.models import AllocatedDevice
from inventory.kinds import gates
from inventory.reachability import LEASE_NAMESPACE
from manciple import descriptors, layout
from manciple.access.invitations import invite
from manciple.api import certificates
from manciple.controllers import coordination
from manciple.controllers.models import Cursor, Heartbeat
from manciple.processes import backup
from manciple.processes.doctor import backups, cluster, database, diagnoses, machine, redis, versions
from manciple.processes.doctor.checkups import CHECKUPS
from manciple.processes.doctor.diagnoses import Checkup, Diagnosis, examined, number_of, problem
from manciple.processes.home import DATABASE_FILES, close_to_others
from manciple.store import space, sql
from manciple.store.space import DatabaseRoom
from manciple.telemetry.processes import BUILD, KEY, MetricsPublisher
from manciple.wire.machinery import Lease, LeaseSpec
from scheduling.models import QueuedPod
from tests.builders import (
    make_allocation,
    make_claim,
    make_consumer,
    make_meta,
    make_node,
    make_pod,
    make_result,
    make_slice,
)
from tests.scheduling.cluster import Cluster, with_spec
from tests.services import Server

pytestmark = pytest.mark.django_db(transaction=True)
Examine = Callable[[datetime], Iterator[Diagnosis]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, settings: Settings) -> Path:
    settings.HOME = tmp_path
    settings.CA_FILE = settings.CLIENT_CA_FILE = tmp_path / "ca.crt"
    return tmp_path


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """With a worker that gave a sign of life and leads, and an administrator who has come in."""
    invite("admin", administers=True)
    admin = get_user_model().objects.get(username="admin")
    admin.set_password("correct horse")
    admin.save()
    made = Cluster()
    made.with_gpus("node-1")
    now = made.now
    Heartbeat.objects.create(name="here-1", kind="worker", started_at=now, seen_at=now, lately={})
    monkeypatch.setattr(coordination, "is_held", lambda _name: True)
    return made


def told(examine: Examine, now: datetime | None = None) -> list[str]:
    return [f"{one.level} {one.about}: {one.what}" for one in examine(now or datetime.now(UTC))]


def test_a_sound_installation_has_nothing_wrong(
    running: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_limits_of_processes", list)  # others may run on this machine
    call_command("doctor")
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if not line.startswith("ok ")] == ["", "0 problems, 0 warnings"]


def test_the_exit_status_says_that_there_are_problems(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError) as error:
        call_command("doctor", "--json", "--only", "people")
    assert error.value.returncode == 1
    (found,) = json.loads(capsys.readouterr().out)["found"]
    assert (found["about"], found["advice"]) == ("administrator", "run `manciple bootstrap --server URL`")
    with pytest.raises(CommandError, match="there is no checkup weather, but configuration, disks,"):
        call_command("doctor", "--only", "weather")


def test_what_rests_on_something_broken_is_not_examined() -> None:
    def broken(_now: datetime) -> Iterator[Diagnosis]:
        yield problem("x", "y", "z")
        raise OperationalError("no such table: store_revision")

    checkups = (Checkup(name="tables", examine=broken), Checkup(name="pods", examine=broken, needs=("tables",)))
    tables, pods = examined(checkups, datetime.now(UTC))
    assert tables.found[0].what == "could not be examined: no such table: store_revision"
    assert pods.skipped == "tables"
    assert "skipped  pods: needs tables" in diagnoses.as_text([tables, pods])


def test_every_checkup_needs_one_that_comes_before_it() -> None:
    names = [one.name for one in CHECKUPS]
    for position, one in enumerate(CHECKUPS):
        assert set(one.needs) <= set(names[:position])


# This machine ---------------------------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_and_a_folder_that_is_missing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1 << 20, "total": 1 << 40}))
    assert told(machine.examine_disks) == [f"problem disk of {home}: 0.0 GiB of 1024.0 GiB are free"]


def test_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: 1024)
    (found,) = (one for one in machine.examine_files(datetime.now(UTC)) if one.about == "this command")
    assert "768 connections" in found.what
    assert "LimitNOFILE=65536" in found.advice


def test_a_running_process_with_few_open_files(tmp_path: Path) -> None:
    """As it was started: the limit of this command says nothing about it."""
    program = tmp_path / "manage.py"
    program.write_text(
        "import resource, time; resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512)); print(flush=True); "
        "time.sleep(60)"
    )
    command = [sys.executable, str(program), "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            about = f"process {process.pid} (serve)"
            (found,) = (one for one in machine.examine_files(datetime.now(UTC)) if one.about == about)
            assert "384 connections" in found.what
        finally:
            process.kill()


def test_a_home_that_does_not_exist(settings: Settings) -> None:
    settings.HOME = Path("/nowhere")
    assert told(machine.examine_disks) == ["problem folder /nowhere: does not exist"]


def test_keys_that_others_can_read(home: Path, settings: Settings) -> None:
    settings.PRODUCTION = False
    for name in ("secret-key", "kubeconfig"):
        (home / name).write_text("x")
        (home / name).chmod(0o640)
    (home / "encryption-keys").touch(0o600)
    found = told(machine.examine_permissions)
    assert [line.split(":")[0] for line in found] == [
        f"problem file {home}/secret-key",
        f"problem file {home}/kubeconfig",
    ]


def test_a_home_a_database_and_backups_that_others_can_read(home: Path, settings: Settings, tmp_path: Path) -> None:
    settings.PRODUCTION, settings.BACKUP_DIR = False, str(tmp_path / "backups")
    home.chmod(0o755)
    for name in DATABASE_FILES:
        (home / name).touch()
        (home / name).chmod(0o644)
    made = tmp_path / "backups" / "2026-11-28T000000Z"
    made.mkdir(parents=True)
    note = backup.BackupNote(at=datetime.now(UTC), version="1", database="sqlite", revision=1)
    (made / backup.NOTE).write_bytes(msgspec.json.encode(note))
    made.chmod(0o750)
    made.parent.chmod(0o755)
    readable = [f"folder {home}", *(f"file {home / name}" for name in DATABASE_FILES)]
    found = [line.split(":")[0] for line in told(machine.examine_permissions)]
    assert found == [f"problem {path}" for path in readable]
    made.chmod(0o755)
    assert f"problem backup {made}: others can read it" in "\n".join(told(machine.examine_permissions))
    made.parent.chmod(0o700)
    close_to_others(home)
    assert told(machine.examine_permissions) == []


def test_certificates_that_end(home: Path) -> None:
    certificates.ensure(home)
    assert told(machine.examine_certificates) == []
    later = datetime.now(UTC) + timedelta(days=365 * 30)
    assert f"certificate {home}/ca.crt: ended on" in "\n".join(told(machine.examine_certificates, later))


def test_a_setting_that_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANCIPLE_AUDIT_DAY", "3")
    assert "MANCIPLE_AUDIT_DAYS?" in told(machine.examine_configuration)[0]


# The database, as it would answer -------------------------------------------------------------------------------------

SOUND: Mapping[str, Any] = {
    "SELECT pg_is_in_recovery": [(False,)],
    "current_setting('fsync')": [("on", "on", "on", "on", "150001", "UTF8", "100", "0")],
    "FROM pg_stat_activity": [(3,)],
    "FROM pg_stat_user_tables": [],
    "synchronous_standby_names": [("",)],
    "FROM pg_stat_replication": [],
    "FROM pg_replication_slots": [],
    "archive_mode": [("on",)],
    "FROM pg_stat_archiver": [(None, None, None)],
    "SELECT 1": [(1,)],
}
NOW = datetime.now(UTC)

#: What the server answers -> (who examines it, what is told)
SERVERS: dict[str, tuple[Mapping[str, Any], Examine, str]] = {
    "a standby": ({"SELECT pg_is_in_recovery": [(True,)]}, database.examine_settings, "leads to a standby"),
    "without fsync": (
        {"current_setting('fsync')": [("off", "on", "on", "on", "150001", "UTF8", "100", "0")]},
        database.examine_settings,
        "fsync is off",
    ),
    "an old one, in Latin 1, in a hurry": (
        {"current_setting('fsync')": [("on", "on", "on", "on", "120000", "LATIN1", "100", "30s")]},
        database.examine_settings,
        "statement_timeout is 30s",
    ),
    "too few connections": (
        {"current_setting('fsync')": [("on", "on", "on", "on", "150001", "UTF8", "20", "0")]},
        database.examine_settings,
        "max_connections is 20",
    ),
    "nearly all connections taken": ({"FROM pg_stat_activity": [(95,)]}, database.examine_settings, "95 of 100"),
    "dead rows": (
        {"FROM pg_stat_user_tables": [("store_event", 900_000, 10)]},
        database.examine_upkeep,
        "warning table store_event: 900000 dead rows",
    ),
    "a synchronous standby that is away": (
        {"synchronous_standby_names": [("ANY 1 (*)",)]},
        database.examine_replicas,
        "every commit hangs",
    ),
    "an asynchronous standby": (
        {"FROM pg_stat_replication": [("b", "async")]},
        database.examine_replicas,
        "devices may be given twice",
    ),
    "a slot that nobody reads": (
        {"FROM pg_replication_slots": [("b", 5 << 30)]},
        database.examine_replicas,
        "5.0 GiB of log are kept",
    ),
    "no archive": ({"archive_mode": [("off",)]}, backups.examine_archive, "its log is not archived"),
    "an archive that fails": (
        {"FROM pg_stat_archiver": [(NOW, NOW - timedelta(hours=1), "0001")]},
        backups.examine_archive,
        "archiving 0001 failed",
    ),
    "a clock that is ahead": (
        {"clock_timestamp": [(datetime(2999, 1, 1, tzinfo=UTC),)]},
        database.examine_clock,
        "s ahead of it",
    ),
}


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, Any]], None]:
    """Let the database be a PostgreSQL that answers so: by a part of the question."""

    def set_answers(answers: Mapping[str, Any]) -> None:
        known = {**answers, **{part: told for part, told in SOUND.items() if part not in answers}}

        def fetch(statement: str, _parameters: Sequence[Any] = ()) -> Any:
            return next(told for part, told in known.items() if part in statement)

        monkeypatch.setattr(sql, "on_postgresql", lambda: True)
        monkeypatch.setattr(sql, "fetch", fetch)

    return set_answers


@pytest.mark.parametrize(("answers", "examine", "what"), SERVERS.values(), ids=SERVERS)
def test_what_is_wrong_with_postgresql(
    answer: Callable[[Mapping[str, Any]], None], answers: Mapping[str, Any], examine: Examine, what: str
) -> None:
    answer(answers)
    assert what in "\n".join(told(examine))


def test_a_sound_server_has_nothing_wrong(answer: Callable[[Mapping[str, Any]], None]) -> None:
    answer({"clock_timestamp": [(datetime.now(UTC),)]})
    examinations: list[Examine] = [examine for _, examine, _ in SERVERS.values()]
    assert [line for examine in examinations for line in told(examine)] == []


def test_a_database_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OperationalError("connection refused\n")

    monkeypatch.setattr(sql, "fetch", refuse)
    assert told(database.examine_connection) == ["problem database: it cannot be opened: connection refused"]


def test_tables_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    class Executor(MigrationExecutor):
        def __init__(self, connection: Any) -> None:
            super().__init__(connection)
            last = next(key for key in self.loader.graph.leaf_nodes() if key[0] == "store")
            applied = self.loader.applied_migrations
            applied["store", "9999_of_the_future"] = applied.pop(last)

    monkeypatch.setattr(database, "MigrationExecutor", Executor)
    missing, later = told(database.examine_schema)
    assert "1 migration of this version not applied: store." in missing
    assert "migrated by a later version than this one: store.9999_of_the_future" in later


# Redis ----------------------------------------------------------------------------------------------------------------


class FakeRedis:
    """memory: as INFO tells it."""

    def __init__(self, *, timeout: int = 0, **memory: Any) -> None:
        self.memory, self.timeout = memory, timeout

    def time(self) -> tuple[int, int]:
        return int(datetime.now(UTC).timestamp()), 0

    def info(self, _part: str) -> dict[str, Any]:
        return self.memory

    def config_get(self, _name: str) -> dict[str, int]:
        return {"timeout": self.timeout}


REDIS = {
    "one that forgets": (
        {"maxmemory": 100, "maxmemory_policy": "allkeys-lru", "used_memory": 1},
        "throws away messages",
    ),
    "a full one": (
        {"maxmemory": 100 << 20, "maxmemory_policy": "noeviction", "used_memory": 99 << 20},
        "99 of 100 MiB",
    ),
    "one that hangs up": ({"timeout": 60}, "closes connections that are quiet"),
}


@pytest.mark.parametrize(("server", "what"), REDIS.values(), ids=REDIS)
def test_what_is_wrong_with_redis(server: dict[str, Any], what: str) -> None:
    assert what in "\n".join(one.what for one in redis._of_server(FakeRedis(**server)))


def test_a_redis_that_is_away(settings: Settings) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert "problem Redis: it does not answer" in told(redis.examine_redis)[0]


@pytest.fixture
def processes_of(redis_server: Server, settings: Settings) -> Iterator[Callable[..., None]]:
    """Let processes tell of themselves: name -> its version, "" for one that tells none."""
    settings.REDIS_URL = redis_server.url

    def tell(**named: str) -> None:
        for name, version in named.items():
            registry = CollectorRegistry()
            if version:
                Gauge(BUILD, "1", ["version"], registry=registry).labels(version).set(1)
            MetricsPublisher(redis_server.url, "worker", name, registry).publish()

    with Redis.from_url(redis_server.url) as client:
        client.delete(KEY)  # other tests' processes
        yield tell
        client.delete(KEY)


def test_parts_of_one_version_are_nothing_to_tell(processes_of: Callable[..., None]) -> None:
    processes_of(one=layout.version(), two=layout.version())
    assert told(versions.examine_versions) == []


def test_versions_side_by_side_are_told_with_who_is_of_which(processes_of: Callable[..., None]) -> None:
    own = layout.version()
    processes_of(a=own, b="99.0", c="99.0", d="")
    assert told(versions.examine_versions) == [
        f"warning versions: 3 run side by side: {own}: worker a, this command; 99.0: worker b, worker c; "
        "an earlier version: worker d"
    ]


def test_versions_of_a_redis_that_is_away(settings: Settings) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert told(versions.examine_versions) == []


# Backups --------------------------------------------------------------------------------------------------------------


def test_a_backup_that_is_missed(tmp_path: Path, settings: Settings) -> None:
    settings.BACKUP_DIR = str(tmp_path / "backups")
    settings.BACKUP_HOURS = 26
    assert told(backups.examine_backups) == [f"problem backups in {tmp_path}/backups: there is none that is whole"]
    now = datetime.now(UTC)
    backup.take(tmp_path / "backups", now)
    assert told(backups.examine_backups, now + timedelta(hours=25)) == []
    (found,) = told(backups.examine_backups, now + timedelta(hours=30))
    assert "30 hours ago; there should be one every 26" in found


# The cluster ----------------------------------------------------------------------------------------------------------


def test_no_worker_and_no_administrator() -> None:
    assert "none has given a sign of life so far" in told(cluster.examine_processes)[0]
    assert told(cluster.examine_people) == ["problem administrator: there is none"]
    invite("admin", administers=True)
    assert told(cluster.examine_people) == ["warning administrator: nobody has set their password"]


def test_workers_of_which_none_leads(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "on_postgresql", lambda: True)
    monkeypatch.setattr(coordination, "is_held", lambda name: name != coordination.LEADERSHIP)
    (found,) = cluster.examine_processes(running.now)
    assert (found.level, found.about) == ("problem", "dispatcher")
    assert "periodic runs do not happen" in found.what
    assert "`manciple worker`" in found.advice


def test_work_that_does_not_keep_up(running: Cluster) -> None:
    revision = sql.counter()[0]
    Cursor.objects.create(name="queue", revision=revision - cluster.BEHIND - 1)
    long_ago = running.now - timedelta(minutes=5)
    QueuedPod.objects.create(uid="u", namespace="n", name="p", created_at=long_ago)
    found = told(cluster.examine_processes, running.now)
    assert [line.split(":")[0] for line in found] == ["warning cursor queue", "warning queue"]


def test_a_silent_node_and_one_whose_clock_is_wrong(running: Cluster) -> None:
    running.create(make_node("node-2", ready=False))
    ahead = (running.now + timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = LeaseSpec(holder_identity="node-1", renew_time=ahead)
    meta = make_meta("node-1", LEASE_NAMESPACE)
    running.create(Lease(api_version="coordination.k8s.io/v1", kind="Lease", metadata=meta, spec=spec))
    silent, skewed = told(cluster.examine_nodes, running.now)
    assert silent == "problem node node-2: it is not ready; its agent has given no sign of life ever"
    assert skewed.startswith("warning node node-1: its clock is ")
    assert "s ahead of the API server's" in skewed


def test_drivers_that_are_stale(running: Cluster) -> None:
    running.create(make_node("node-2", ready=False))
    for node, slices in (("node-2", 1), ("node-9", 1)):
        running.create(make_slice(node=node, slices=slices))
    running.create(make_slice(node="node-2", pool="second"))
    running.create(make_node("node-3"))
    running.create(make_slice(node="node-3", slices=2))
    held = make_allocation(make_result("gpu-99", pool="node-1"))
    running.create_allocated(make_claim("lost"), held)
    found = told(cluster.examine_drivers)
    assert "pool node-3 of driver gpu.example.com: 1 of 2 ResourceSlices are there" in found[0]
    assert "it is of node node-9, which does not exist" in found[1]
    assert "it is stale on 1 silent node (node-2)" in found[2]
    assert "claims hold 1 device that it does not publish any more: node-1/gpu-99" in found[3]


def test_what_a_controller_allocates_need_not_be_published(running: Cluster) -> None:
    of_controller = structs.replace(
        make_allocation(make_result("card-0", pool="cards")), controller_name="gpu.example.com"
    )
    claim = running.create(make_claim("classic"))
    status = structs.replace(claim.status, allocation=of_controller)
    running.update(structs.replace(claim, status=status))
    assert AllocatedDevice.objects.exclude(controller="").exists()
    assert told(cluster.examine_drivers) == []


def test_devices_of_the_draft_are_not_missed_while_its_gate_is_off(
    running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = with_spec(make_claim("draft"), devices=DeviceClaim(), resource_class_name="cards.example.com")
    held = make_allocation(make_result("gpu-99", pool="node-1", request="resource-0"))
    running.create_allocated(draft, held)
    assert told(cluster.examine_drivers) == []

    monkeypatch.setattr(gates, "enabled", lambda _gate: True)
    (problem,) = told(cluster.examine_drivers)
    assert "node-1/gpu-99" in problem


def test_claims_that_are_stuck(running: Cluster) -> None:
    held = [make_allocation(make_result(f"gpu-{n}", pool="node-1")) for n in (0, 1)]
    running.create_allocated(make_claim("idle"), held[0])
    haunted = running.create_allocated(make_claim("haunted"), held[1])
    status = structs.replace(haunted.status, reserved_for=(make_consumer("ghost"),))
    running.update(structs.replace(haunted, status=status))
    assert told(cluster.examine_claims, running.now) == []
    haunted_told, idle_told = told(cluster.examine_claims, running.now + cluster.STUCK + timedelta(minutes=1))
    assert "/haunted: it is reserved for pods that are gone: ghost" in haunted_told
    assert "/idle: it holds devices, and nobody uses it" in idle_told


#: case -> (changes of the claim's status, whether it is deleted, the expected finding)
KEPT: dict[str, tuple[dict[str, Any], bool, str]] = {
    "something that is no pod uses it": (
        {"reserved_for": (ResourceClaimConsumerReference(api_group="batch", resource="jobs", name="train", uid="u"),)},
        False,
        "",
    ),
    "its driver's controller keeps it": ({}, False, ""),
    "its driver does not deallocate it": (
        {"deallocation_requested": True},
        False,
        "nobody uses it, and driver lamps.example.com does not deallocate it",
    ),
    "its driver does not let it go": (
        {},
        True,
        "driver lamps.example.com",
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_a_claim_that_a_drivers_controller_allocated(running: Cluster, case: str) -> None:
    status, deleted, what = KEPT[case]
    claim = running.create(with_spec(make_claim("kept"), controller_name="lamps.example.com"))
    metadata = structs.replace(claim.metadata, finalizers=("lamps.example.com/deletion-protection",))
    given = ResourceClaimStatus(allocation=AllocationResult(controller_name="lamps.example.com"), **status)
    claim = running.update(structs.replace(claim, metadata=metadata, status=given))
    if deleted:
        running.delete(claim)
    found = told(cluster.examine_claims, running.now + cluster.STUCK + timedelta(minutes=1))
    assert [what in one for one in found] == ([True] if what else [])


def test_a_claim_that_somebody_deleted_waits_for_its_pod(running: Cluster) -> None:
    pod = running.create(make_pod("user", node="node-1"))
    held = make_allocation(make_result("gpu-0", pool="node-1"))
    claim = running.create_allocated(make_claim("wanted"), held)
    status = structs.replace(claim.status, reserved_for=(make_consumer(pod),))
    running.delete(running.update(structs.replace(claim, status=status)))
    (found,) = told(cluster.examine_claims, running.now + cluster.STUCK + timedelta(minutes=1))
    assert "somebody deleted it, and it waits for the pods that use it: user" in found


def test_pods_that_are_stuck(running: Cluster) -> None:
    running.create(make_node("node-2", ready=False))
    running.create(make_pod("slow", node="node-1"))
    gone = running.create(make_pod("gone", node="node-2"))
    running.update(structs.replace(gone, status=PodStatus(phase="Running")))
    running.delete(running.pod("gone"), grace=30)
    assert told(cluster.examine_pods, running.now) == []
    deleted, slow = told(cluster.examine_pods, running.now + cluster.STUCK + timedelta(minutes=1))
    assert "its node node-2, which is not ready, has not let it go" in deleted
    assert "it was bound to node node-1, which is ready, and has not started" in slow


@pytest.mark.parametrize(
    ("room", "level", "what"),
    [
        (DatabaseRoom(100 << 20, 10 << 30), "", ""),
        (DatabaseRoom(9 << 30, 10 << 30), "warning", "92%"),
        (DatabaseRoom(10 << 30, 10 << 30), "problem", ""),
    ],
    ids=["room", "little room", "no room"],
)
def test_the_room_of_the_database(room: DatabaseRoom, level: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "measure", lambda: room)
    found = list(database.examine_room(datetime.now(UTC)))
    assert [one.level for one in found] == ([level] if level else [])
    assert all(one.what.startswith((what, space.warning(room))) for one in found)
    assert all("MANCIPLE_DATABASE_BYTES" in one.advice for one in found)


def test_a_database_whose_room_nobody_knows(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(space, "measure", lambda: DatabaseRoom(1 << 30, None))
    settings.PRODUCTION = True
    assert [one.level for one in database.examine_room(datetime.now(UTC))] == ["warning"]


def test_one_of_a_kind_is_not_many() -> None:
    assert [number_of(count, "device") for count in (0, 1, 2)] == ["0 devices", "1 device", "2 devices"]
