"""A controller is declared in one file; everything else that knows of controllers follows from that."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from celery import Celery
from pytest_django.fixtures import Settings

from inventory.kinds import gates
from manciple.celery import app
from manciple.controllers import declaration, tasks
from manciple.controllers.declaration import (
    Controller,
    Queue,
    controllers,
    declaring,
    discover,
    task_name,
    task_routes,
)
from manciple.controllers.tasks import WakeTable
from manciple.processes.management.commands import controllers as command
from manciple.store.event_log import latest_revision
from tests.laboratory import NOW, furnish

ONE_FILE = """
from datetime import datetime

from manciple.controllers.declaration import Controller
from manciple.wire.resources import ADDED
from manciple.wire.resources import NODES

asked: list[datetime] = []


def reconcile(now: datetime) -> int:
    asked.append(now)
    return 0


CONTROLLER = Controller(
    name="greet_nodes",
    does="greets nodes that are new",
    in_mirror=False,
    reconcile=reconcile,
    every=7,
    wakes_on=frozenset({(NODES, ADDED)}),
)
"""


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a package of controllers that is one file."""
    package = tmp_path / "more_controllers"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "greeting.py").write_text(ONE_FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield package.name
    for name in (package.name, f"{package.name}.greeting"):
        sys.modules.pop(name, None)


def test_one_file_makes_task_and_route_and_schedule_and_wake_ups(added: str, cluster: object) -> None:
    (controller,) = discover([added])
    name, other = task_name("greet_nodes"), Celery("other", broker="memory://", set_as_current=False)
    task = tasks.register(other, controller)
    task.work()
    assert other.tasks[name] is task
    assert len(sys.modules[f"{added}.greeting"].asked) == 1
    assert task_routes([controller]) == {name: {"queue": "sweeps"}}
    assert WakeTable([controller]).concerned([("nodes", "ADDED")]) == ["greet_nodes"]
    assert WakeTable([controller]).concerned([("nodes", "DELETED")]) == []
    assert "greets nodes that are new" in command.told([controller])


def test_celery_knows_every_controller() -> None:
    app.loader.import_default_modules()
    names = {task_name(one.name) for one in controllers.value}
    assert names <= set(app.tasks)
    assert set(app.conf.task_routes) == names
    assert {queue.name for queue in app.conf.task_queues} == {queue.value for queue in Queue}


def test_there_is_no_controller_of_a_feature_that_is_off() -> None:
    with gates.using(**dict.fromkeys(gates.KNOWN, True)):
        optional = {one.name for one in discover(declaring()) if one.gate}
        assert optional <= {one.name for one in declaration.enabled()}
    with gates.using(**dict.fromkeys(gates.KNOWN, False)):
        assert optional
        assert optional.isdisjoint(one.name for one in declaration.enabled())


def test_those_that_run_in_a_mirror_leave_every_object_as_it_is(db: None, settings: Settings) -> None:
    furnish()
    settings.MIRROR_OF, settings.MIRROR = "prod", True
    running = declaration.enabled()
    assert {"record_incidents", "audit", "prune", "notify", "schedule"} <= {one.name for one in running}
    assert len(running) < len(discover(declaring())) / 2
    before, later = latest_revision(), NOW + timedelta(days=2)  # when there is something to prune
    for now in (NOW, later):
        for one in running:
            one.reconcile(now)
            assert latest_revision() == before, one.name


def test_more_messages_may_be_fetched_than_scheduling_has_controllers() -> None:
    scheduling = [one for one in controllers.value if one.queue is Queue.SCHEDULING]
    assert app.conf.worker_prefetch_multiplier * app.conf.worker_concurrency > len(scheduling)


def test_two_controllers_of_one_name_are_refused(added: str) -> None:
    module = Path(str(sys.path[0])) / added / "again.py"
    module.write_text(ONE_FILE)
    with pytest.raises(ValueError, match="greet_nodes"):
        discover([added])
    sys.modules.pop(f"{added}.again", None)


def controller(*, singleton: bool = True, changes: int = 0, most: int = 0, ran: list[int] | None = None) -> Controller:
    def reconcile(_now: object) -> int:
        (ran if ran is not None else []).append(changes)
        return changes

    return Controller(
        name="counted",
        does="counts",
        in_mirror=False,
        reconcile=reconcile,
        every=1,
        singleton=singleton,
        most_per_turn=most,
    )


@pytest.mark.parametrize(("changes", "again"), [(0, False), (4, False), (5, True), (6, True)])
def test_a_run_that_did_as_much_as_it_may_asks_for_another(cluster: object, changes: int, again: bool) -> None:
    assert tasks.work(controller(changes=changes, most=5)) is again


def test_one_that_does_it_all_asks_for_nothing(cluster: object) -> None:
    assert tasks.work(controller(changes=100)) is False
