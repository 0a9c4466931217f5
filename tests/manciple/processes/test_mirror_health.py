"""What /readyz of a mirror says is degraded, and when it is not ready at all."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from manciple.api import health
from manciple.controllers import coordination
from manciple.mirror import standing
from manciple.mirror.leadership import LOCK
from manciple.mirror.models import KindStatus, RemoteStatus
from manciple.mirror.sources import BY_RESOURCE
from manciple.processes import mirror_system
from manciple.refusals import StartRefused
from tests.scheduling.cluster import in_threads

pytestmark = pytest.mark.django_db(transaction=True)


def known(**reaches: str) -> None:
    """Every kind was listed everywhere, but for these."""
    RemoteStatus.objects.create(id=1, context="lab", server="https://lab", namespace="", gates={}, version="", why="")
    now = datetime.now(UTC)
    for resource in BY_RESOURCE:
        reach = reaches.get(resource, "everywhere")
        listed = None if reach in ("forbidden", "failed") else now
        KindStatus.objects.create(
            resource=resource, version="v1", reach=reach, detail="", heard_at=listed, listed_at=listed, unread=0
        )
    standing.forget()


@pytest.mark.parametrize(
    ("reaches", "is_listed"),
    [({}, True), ({"nodes": "forbidden"}, True), ({"nodes": "absent"}, True), ({"nodes": "failed"}, False)],
    ids=["all", "one is forbidden", "one is not served", "one fails"],
)
def test_it_can_be_shown_once_every_kind_was_listed_that_may_be(reaches: dict[str, str], is_listed: bool) -> None:
    assert not standing.was_listed(), "before the first listing"
    known(**reaches)
    assert standing.was_listed() is is_listed


def test_a_kind_that_is_new_in_this_version_has_to_be_listed_first() -> None:
    known()
    KindStatus.objects.filter(resource="nodes").delete()
    standing.forget()
    assert not standing.was_listed()


def test_kinds_that_cannot_be_read_are_named() -> None:
    known(nodes="forbidden", pods="failed")
    with pytest.raises(health.NotReady, match="nodes") as refused:
        mirror_system._known()
    assert "pods" in str(refused.value)
    KindStatus.objects.update(reach="everywhere")
    standing.forget()
    mirror_system._known()


def test_that_nobody_copies_is_said() -> None:
    with pytest.raises(health.NotReady, match="no process copies"):
        mirror_system._copied()
    with coordination.alone(LOCK):
        mirror_system._copied()


def test_tables_are_changed_by_one_process_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_system, "MIGRATED_WITHIN", 0.3)
    monkeypatch.setattr(mirror_system, "LOOK_AGAIN", 0.05)
    migrated = list[str]()
    monkeypatch.setattr(mirror_system, "call_command", lambda name, **_options: migrated.append(name))
    with coordination.alone(mirror_system.MIGRATING):

        def wait() -> None:
            with pytest.raises(StartRefused, match="another process"):
                mirror_system.bring_up_to_date()

        in_threads(wait)
        assert migrated == []
    mirror_system.bring_up_to_date()
    assert migrated == ["migrate"]
