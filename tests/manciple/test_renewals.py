"""When a Lease of a copied cluster counts as overdue: by our own clock, and only by what was heard since."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from manciple.renewals import OF_NODES, OF_SCHEDULERS, Renewals

BEGIN = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


@pytest.fixture
def heard() -> Renewals:
    """Two nodes renew their Leases at the beginning; of a scheduler, too."""
    renewals = Renewals()
    for name in ("n1", "n2"):
        renewals.renew(OF_NODES, name, at(0), seconds=40)
    renewals.renew(OF_SCHEDULERS, "kube-scheduler", at(0), seconds=15)
    for namespace in (OF_NODES, OF_SCHEDULERS):
        renewals.hear(namespace, at(0))
    return renewals


def goes_on(renewals: Renewals, *names: str, until: int, since: int = 0) -> None:
    """Every ten seconds, the server tells of these nodes' renewals alone."""
    for seconds in range(since + 10, until + 1, 10):
        for name in names:
            renewals.renew(OF_NODES, name, at(seconds), seconds=40)
        renewals.hear(OF_NODES, at(seconds))


def test_a_node_is_silent_once_others_were_heard_for_long_enough_and_until_it_renews(heard: Renewals) -> None:
    goes_on(heard, "n1", until=80)
    assert heard.silent_nodes() == {}
    assert heard.of_nodes(at(80)) == {"n1": at(80)}, "whether the other is overdue is not known yet"
    goes_on(heard, "n1", since=80, until=90)
    assert heard.silent_nodes() == {"n2": at(0)}
    assert heard.of_nodes(at(90)) == {"n1": at(90), "n2": at(0)}
    heard.renew(OF_NODES, "n2", at(91), seconds=40)
    assert heard.silent_nodes() == {}


def test_while_the_server_says_nothing_nothing_is_overdue(heard: Renewals) -> None:
    assert heard.of_nodes(at(3600)) == {}
    assert heard.silent_nodes() == {}
    heard.hear(OF_NODES, at(3600))
    assert heard.silent_nodes() == {}, "we slept, or were cut off: they have as long as at the beginning"
    goes_on(heard, since=3600, until=3690)
    assert set(heard.silent_nodes()) == {"n1", "n2"}


def test_bookmarks_are_enough_to_hear_that_every_node_died(heard: Renewals) -> None:
    for seconds in (60, 120):
        heard.hear(OF_NODES, at(seconds))
    assert set(heard.silent_nodes()) == {"n1", "n2"}


def test_a_clock_that_is_set_back_makes_nothing_overdue(heard: Renewals) -> None:
    heard.hear(OF_NODES, at(-7200))
    goes_on(heard, since=-7200, until=-7100)
    assert heard.silent_nodes() == {}


def test_a_node_that_left_is_not_silent(heard: Renewals) -> None:
    heard.forget(OF_NODES, "n2")
    goes_on(heard, "n1", until=120)
    assert heard.silent_nodes() == {}


@pytest.mark.parametrize(
    ("scheduler", "lease"),
    [("default-scheduler", "kube-scheduler"), ("volcano", "volcano")],
    ids=["default", "another"],
)
def test_a_scheduler_is_silent_once_its_lease_is_overdue(heard: Renewals, scheduler: str, lease: str) -> None:
    heard.renew(OF_SCHEDULERS, lease, at(0), seconds=15)
    for seconds, expected in ((20, None), (30, None), (40, at(0))):
        heard.hear(OF_SCHEDULERS, at(seconds))
        assert heard.silent_since(scheduler) == expected
    heard.renew(OF_SCHEDULERS, lease, at(41), seconds=15)
    assert heard.silent_since(scheduler) is None


def test_of_a_scheduler_without_a_lease_nothing_is_concluded(heard: Renewals) -> None:
    heard.hear(OF_SCHEDULERS, at(60))
    assert heard.silent_since("nobody") is None


def test_a_lease_that_holds_for_long_is_overdue_later(heard: Renewals) -> None:
    heard.renew(OF_SCHEDULERS, "kube-scheduler", at(0), seconds=60)
    for seconds, silent in ((60, False), (120, False), (180, True)):
        heard.hear(OF_SCHEDULERS, at(seconds))
        assert (heard.silent_since("default-scheduler") is not None) is silent
