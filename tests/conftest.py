"""Fixtures that every test may use: a database in a file, and servers that start when a test first asks for them."""

from __future__ import annotations

import gc
import os
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from socketserver import BaseServer
from typing import Any

import pytest
from _pytest import main as pytest_main
from django.conf import settings as django_settings
from django.core import mail
from django.db import connections, transaction
from django.test import TransactionTestCase
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from whitenoise.middleware import WhiteNoiseMiddleware

from manciple import frames
from manciple.audit import trail
from manciple.extensions import catalogue
from manciple.per_process import reset_all
from manciple.wire.registry import Nothing, registry
from tests import services
from tests.e2e.nursery import NURSERY
from tests.examples import ALL, MIGRATED, ORDER, sample, some

# How long a busy machine takes to make an example says nothing about the code; CI draws the same examples every time.
settings.register_profile(
    "manciple",
    max_examples=some(30),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("manciple")
if not ALL:
    # Hypothesis reads the source of all our modules for constants to draw, in every process of a new checkout.
    providers._get_local_constants = Constants

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
    """A database of this process's own. SQLite's is a file, because the tests write from several threads.

    Nothing needs to survive a crash of the machine: SQLite does not wait for the disk.
    """
    settings = connections["default"].settings_dict
    if settings["ENGINE"].endswith("sqlite3"):
        settings["TEST"]["NAME"] = tmp_path_factory.mktemp("database") / "manciple.sqlite3"
        settings["OPTIONS"]["init_command"] += "PRAGMA synchronous=OFF;"
        if MIGRATED in os.environ:
            shutil.copy(os.environ[MIGRATED], settings["TEST"]["NAME"])
    else:
        settings["TEST"]["NAME"] = f"test_manciple_{os.getpid()}"


@pytest.fixture(scope="session")
def django_db_keepdb(request: pytest.FixtureRequest) -> bool:
    """Whether the database is there already, or stays."""
    is_sqlite = connections["default"].settings_dict["ENGINE"].endswith("sqlite3")
    return (is_sqlite and MIGRATED in os.environ) or request.config.getoption("reuse_db")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    """pytest's own, with room for its many frames and ours."""
    frames.make_room_in_threads()
    return frames.with_room(pytest_main.pytest_runtestloop, session)


# Hooks, not fixtures that every test uses: pytest takes a third of a millisecond for each of those, for each test.


def pytest_sessionstart() -> None:
    # An installation has its key, and its authority, in a home that nobody has made here.
    django_settings.ENCRYPTION_KEYS = ("for the test run only",)
    django_settings.CA_FILE = Path("/nowhere/ca.crt")
    # One test asks how slow a password is to check; all others only need somebody who is signed in.
    django_settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # The audit trail is not written behind the back of a test; `trail.flush` writes it.
    trail.GATHERING = 3600.0
    # A server in a thread looks twice a second whether it shall end, and each test that has one waits for that.
    BaseServer.serve_forever.__defaults__ = (0.02,)
    TransactionTestCase._fixture_teardown = _empty_the_database  # type: ignore[attr-defined]
    _list_static_files_once()


def _empty_the_database(_case: TransactionTestCase) -> None:
    """After a test of several transactions: all rows go, but those about the models, which the migrations made.

    Django's `flush` would look up every table each time and truncate it, for which PostgreSQL makes new files: a tenth
    of a second. And it would write the rows about the models again, which takes longer than most tests.
    """
    connection = connections["default"]
    with transaction.atomic(), connection.cursor() as cursor:
        for table in _tables():
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(table)}")


@cache
def _tables() -> list[str]:
    return sorted(set(connections["default"].introspection.django_table_names(only_existing=True)) - ABOUT_MODELS)


def _list_static_files_once() -> None:
    """Every client that a test makes has middleware of its own, which would look at each static file again."""
    listed: dict[str, Any] = {}
    look = WhiteNoiseMiddleware.add_files_from_finders

    def look_once(middleware: WhiteNoiseMiddleware) -> None:
        if not listed:
            look(middleware)
            listed.update(middleware.files)
        middleware.files.update(listed)

    WhiteNoiseMiddleware.add_files_from_finders = look_once


# No test here replaces URLs or apps, or serves pages from a thread of Django's. pytest-django prepares for that before
# each test, which takes a third of what an empty test does; a fixture of the session is set up once.
_NOTHING = pytest.fixture(scope="session")(lambda: None)
_dj_autoclear_mailbox = _django_clear_site_cache = _django_isolate_apps = _django_set_urlconf = _NOTHING
_django_setup_unittest = _live_server_helper = _template_string_if_invalid_marker = _NOTHING


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


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish() -> Iterator[None]:
    """The nursery ends after what came from it."""
    try:
        return (yield)
    finally:
        NURSERY.end()


#: Fixtures that give a test a database.
DATABASES = {"db", "transactional_db"}
NOTHING = Nothing()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test without a database knows the server's own kinds alone. Our commands narrow the umask of the process."""
    os.umask(0o022)
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
        reset_all()
        getattr(mail, "outbox", []).clear()
