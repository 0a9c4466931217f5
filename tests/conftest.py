"""Fixtures that every test may use: a database in a file, and servers that start when a test first asks for them."""

from __future__ import annotations

import gc
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management.commands import flush
from django.db import connections
from hypothesis import HealthCheck, settings
from whitenoise.middleware import WhiteNoiseMiddleware

from manciple.audit import trail
from manciple.extensions import catalogue
from manciple.store.per_process import forget_database
from manciple.wire.registry import Nothing, registry
from tests import services
from tests.examples import ALL, ORDER, sample, some

# How long a busy machine takes to make an example says nothing about the code; CI draws the same examples every time.
settings.register_profile(
    "manciple",
    max_examples=some(30),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("manciple")

#: What Django notes about models when it has migrated; no test changes it.
ABOUT_MODELS = {"django_content_type", "auth_permission"}

# Thousands of collected tests stay for the whole run: the garbage collector need not look at them again and again. What
# a test makes is mostly freed as soon as nobody holds it: a look for circles at each 700 objects took 7% of the run.
gc.disable()


@pytest.hookimpl(tryfirst=True)  # pytest itself then puts together what shares a fixture
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not ALL and "long" not in config.option.markexpr:
        kept = quick(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    if ORDER:
        chance = random.Random(ORDER)
        files = sorted({str(item.path) for item in items})
        place = dict(zip(files, chance.sample(range(len(files)), len(files)), strict=True))
        chance.shuffle(items)
        items.sort(key=lambda item: place[str(item.path)])


def quick(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """All but the long ones, and of a test with a sample as many cases as it says."""
    kept = {item for item in items if not item.get_closest_marker("long")}
    tables: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item in kept and (marker := item.get_closest_marker("sample")):
            tables[item.nodeid.partition("[")[0], marker.args[0]].append(item)
    for (_, count), cases in tables.items():
        kept -= set(cases) - set(sample(cases, count))
    return kept


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A database of this process's own. SQLite's is a file, because the tests write from several threads."""
    settings = connections["default"].settings_dict
    if settings["ENGINE"].endswith("sqlite3"):
        settings["TEST"]["NAME"] = tmp_path_factory.mktemp("database") / "manciple.sqlite3"
    else:
        settings["TEST"]["NAME"] = f"test_manciple_{os.getpid()}"


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Our commands narrow it for their whole process."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(scope="session", autouse=True)
def _the_database_is_emptied_quickly() -> Iterator[None]:
    """After a test of several transactions: all rows go but those of what the migrations tell about the models.

    Django would empty these two tables as well, and fill them again model by model, which takes longer than most tests;
    and PostgreSQL makes new files for each table and index that it truncates, a tenth of a second for all.
    """

    def sql_flush(_style: object, tables: Sequence[str], **_options: object) -> list[str]:
        emptied = [connection.ops.quote_name(table) for table in tables if table not in ABOUT_MODELS]
        return [f"DELETE FROM {table}" for table in emptied]

    connection = connections["default"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.ops, "sql_flush", sql_flush)
        patch.setattr(flush, "emit_post_migrate_signal", lambda *_, **__: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _documents_can_be_encrypted() -> None:
    """An installation has its key, and its authority, in a home that nobody has made here."""
    django_settings.ENCRYPTION_KEYS = ("for the test run only",)
    django_settings.CA_FILE = Path("/nowhere/ca.crt")


@pytest.fixture(scope="session", autouse=True)
def _passwords_are_hashed_quickly() -> None:
    """How slow a password is to check is what one test asks, not all that need somebody signed in."""
    django_settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(scope="session", autouse=True)
def _the_audit_trail_waits_for_whoever_reads_it() -> Iterator[None]:
    """What tests are refused is not written into their database behind their backs; `trail.flush` does it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trail, "GATHERING", 3600.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _static_files_are_listed_once() -> Iterator[None]:
    """Every client that a test makes has middleware of its own, which would look at each static file anew."""
    listed: dict[str, Any] = {}
    look = WhiteNoiseMiddleware.add_files_from_finders

    def look_once(middleware: WhiteNoiseMiddleware) -> None:
        if not listed:
            look(middleware)
            listed.update(middleware.files)
        middleware.files.update(listed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", look_once)
        yield


@pytest.fixture(scope="session")
def postgresql() -> Iterator[services.Server]:
    """A PostgreSQL server for this test process; `.url` is what MANCIPLE_DATABASE_URL takes."""
    with services.postgresql(**services.FOR_TESTS) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[services.Server]:
    """A Redis server for this test process; `.url` is what MANCIPLE_REDIS_URL takes. Who stops it starts it again."""
    with services.redis_server() as server:
        yield server


#: Fixtures that give a test a database.
DATABASES = {"db", "transactional_db"}
NOTHING = Nothing()


# Hooks, not fixtures that every test uses: pytest takes a third of a millisecond for each of those, for each test.


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test without a database knows the server's own kinds alone."""
    has_database = item.get_closest_marker("django_db") is not None
    if not has_database and not DATABASES & set(getattr(item, "fixturenames", ())):
        registry.extend(lambda _surely: NOTHING)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """The next test has another database: what this one's process knows of it goes."""
    try:
        return (yield)
    finally:
        registry.extend(catalogue.added)
        forget_database()
