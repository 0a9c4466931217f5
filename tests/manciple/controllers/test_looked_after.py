"""What a task looks at itself is not sent for; everything else is."""

from __future__ import annotations

import pytest

from claims.controllers import generated_claims
from manciple.controllers import tasks
from manciple.controllers.coordination import LookedAfter
from manciple.controllers.declaration import controllers
from manciple.controllers.tasks import WakeTable
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire.errors import AlreadyExists
from tests.builders import make_pod, make_template
from tests.scheduling.cluster import Cluster, kind_of

SCHEDULE = frozenset({"schedule"})


def concerned_after(position: int) -> list[str]:
    """The controllers to wake for what came after `position`, by name."""
    table = WakeTable([one for one in controllers.value if not one.rests_without_work])
    return list(table.concerned_by(table.read(position).changes))


def test_exactly_what_is_written_within_is_noted(cluster: Cluster) -> None:
    noting = LookedAfter()
    pods = [make_pod(f"pod-{number}") for number in range(3)]
    with objects.writing() as writer, noting.noted(writer, SCHEDULE):
        made = writer.create(kind_of(pods[0]), pods[0])
    first = int(made.metadata.resource_version)
    assert [noting.by(revision) for revision in (first - 1, first, first + 1)] == [frozenset(), SCHEDULE, frozenset()]


def test_what_was_undone_is_not_noted(cluster: Cluster) -> None:
    noting, pod = LookedAfter(), make_pod()

    def write_twice() -> None:
        with objects.writing() as writer, noting.noted(writer, SCHEDULE):
            writer.create(kind_of(pod), pod)
            writer.create(kind_of(pod), pod)

    with pytest.raises(AlreadyExists):
        write_twice()
    assert noting.by(latest_revision() + 1) == frozenset()


def test_a_pod_from_a_template_needs_one_look_until_it_is_bound(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("one-gpu"))
    cluster.settle()
    before = latest_revision()
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    assert concerned_after(before) == ["schedule", "sync_claims"]
    before = latest_revision()
    tasks.run("schedule")
    assert cluster.pod("web").spec.node_name == "node-1"
    # It has patience, and finds that there is nothing to do.
    assert concerned_after(before) == ["sync_claims"]
    assert WakeTable(controllers.value).with_work(["sync_claims"]) == []


def test_what_the_controller_of_claims_makes_wakes_the_scheduler(cluster: Cluster) -> None:
    cluster.create(make_template("one-gpu"))
    cluster.create(make_pod("web", templates={"gpu": "one-gpu"}))
    before = latest_revision()
    generated_claims.FOLLOWER.follow(cluster.clock)
    assert concerned_after(before) == ["schedule"]
