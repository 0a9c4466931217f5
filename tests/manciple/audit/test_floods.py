"""Nobody erases what others did from the trail: refusals are counted, have their own limit, and cuts are reported."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.db.models import Count, Sum
from django.test import Client
from pytest_django import Settings

from insight.cluster_metrics import of_audit
from manciple.access import people
from manciple.access.authentication import tokens
from manciple.access.models import SignInAttempts
from manciple.audit import budgets, retention, trail
from manciple.audit.budgets import ANONYMOUS_BUDGET, ANY_VERB, READS, REFUSALS, Budget
from manciple.audit.events import event_of, line, note_of
from manciple.audit.happenings import Happened
from manciple.audit.models import Entry, Shortfall
from manciple.audit.searching import Search
from manciple.controllers import housekeeping
from manciple.processes.doctor import audit_trail
from manciple.store import records
from manciple.store.records import LONGEST_ACTOR, LONGEST_TEXT, Origin
from manciple.wire.identity import Identity
from tests.manciple.api.requests import PODS, Api
from tests.manciple.audit.reading import look

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 28, 8, tzinfo=UTC)
CODES = (401, 403, 404, 429)
FLOOD = 3000

rng = random.Random(8)


def request(number: int, *, user: str = "", address: str = "203.0.113.7", code: int = 401, **parts: str) -> Happened:
    """One of many, each different from all others."""
    origin = Origin(
        audit_id=f"id-{number}",
        received=NOW,
        uri=f"/{number}",
        addresses=(address, f"10.0.{number % 256}.1"),
        agent=f"agent {number}",
        verb=parts.pop("verb", f"verb{number}"),
        identity=Identity(user) if user else None,
    )
    return Happened(origin=origin, code=code, resource=f"r{number}", namespace=f"n{number}", name=f"n{number}", **parts)


#: what a client varies -> (its requests, the entries of a minute at most)
VARIATIONS: dict[str, tuple[Callable[[int], Happened], int]] = {
    "paths, verbs and agents": (request, ANONYMOUS_BUDGET.of_address + 1),
    "answers too": (lambda n: request(n, code=CODES[n % 4]), ANONYMOUS_BUDGET.of_address + len(CODES)),
    "addresses in its own network": (lambda n: request(n, address=f"2001:db8::{n:x}"), ANONYMOUS_BUDGET.of_address + 1),
    "addresses in one of 2^16 networks": (
        lambda n: request(n, address=f"2001:db8:0:{n:x}::1", code=CODES[n % 4]),
        ANONYMOUS_BUDGET.of_sender + len(CODES),
    ),
    "addresses of IPv4, mapped or not": (
        lambda n: request(n, address=f"{'::ffff:' if n % 2 else ''}198.51.{n // 250}.{n % 250}"),
        ANONYMOUS_BUDGET.of_sender + 1,
    ),
    "addresses that are none": (lambda n: request(n, address=f"{n}" * 50), ANONYMOUS_BUDGET.of_sender + 1),
    "a known identity's": (lambda n: request(n, user="mallory", code=403), REFUSALS.of_address + 1),
    "and its addresses": (
        lambda n: request(n, user="mallory", code=403, address=f"2001:db8:0:{n:x}::1"),
        REFUSALS.of_sender + 1,
    ),
    "service accounts of a namespace": (
        lambda n: request(n, user=f"system:serviceaccount:lab:robot-{n}", code=403),
        REFUSALS.of_address + 1,
    ),
    "names in which it acts": (
        lambda n: as_another(request(n, user=f"name-{n}", code=403), "mallory"),
        REFUSALS.of_address + 1,
    ),
    "Secrets that it reads": (lambda n: request(n, user="mallory", code=200, verb="get"), READS.of_address + 1),
    "names that fail to sign in": (
        lambda n: replace(request(n), resource=budgets.SESSIONS),
        ANONYMOUS_BUDGET.of_address + 1,
    ),
}


def as_another(happened: Happened, who: str) -> Happened:
    happened.origin.impersonator = Identity(who)
    return happened


@pytest.fixture
def minute(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock of the trail to this many minutes after NOW."""

    class Clock(datetime):
        at = NOW

        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]  # always UTC
            return cls.at

    monkeypatch.setattr(trail, "datetime", Clock)

    def turn(minutes: int) -> None:
        Clock.at = NOW + timedelta(minutes=minutes)

    return turn


@pytest.mark.usefixtures("minute")
@pytest.mark.parametrize(("made", "most"), VARIATIONS.values(), ids=VARIATIONS.keys())
def test_a_flood_is_a_few_entries_a_minute_and_each_request_counts(made: Callable[[int], Happened], most: int) -> None:
    recorder = trail.TrailRecorder()
    for number in range(FLOOD):
        recorder.tell(made(number))
        if number % 500 == 0:
            recorder.flush(due=NOW)
    recorder.flush(due=NOW + timedelta(minutes=1))
    recorder.stop(write=False)
    # The first of its kind at once, those after it at the end of the minute.
    assert Entry.objects.count() <= 2 * most
    assert Entry.objects.aggregate(told=Sum("count"))["told"] == FLOOD
    assert not Entry.objects.filter(wrote=True).exists()


def test_a_minute_later_there_is_room_again(minute: Callable[[int], None]) -> None:
    recorder = trail.TrailRecorder()
    for minutes in range(3):
        minute(minutes)
        for number in range(50):
            recorder.tell(request(number))
        recorder.flush()
    recorder.stop(write=False)
    assert Entry.objects.filter(verb=ANY_VERB).count() == 3
    assert Entry.objects.count() == 3 * (ANONYMOUS_BUDGET.of_address + 1)


def test_the_first_is_seen_at_once_and_the_rest_when_the_minute_ends(minute: Callable[[int], None]) -> None:
    recorder = trail.TrailRecorder()
    minute(0)
    recorder.tell(request(1))
    assert recorder.flush(due=NOW) == 1
    for _ in range(100):
        recorder.tell(request(1))
    assert recorder.flush(due=NOW + timedelta(seconds=59)) == 0
    assert recorder.flush(due=NOW + timedelta(minutes=1)) == 1
    assert list(Entry.objects.order_by("id").values_list("count", flat=True)) == [1, 100]
    recorder.stop(write=False)


@pytest.mark.usefixtures("minute")
def test_one_who_is_refused_hides_nothing_that_somebody_else_or_they_themselves_did() -> None:
    """Neither reads of Secrets, nor tokens, nor another's refusals are lost among many refusals."""
    for number in range(FLOOD):
        trail.tell(request(number, user="mallory", code=403))
        trail.tell(request(number, address=f"2001:db8:0:{number:x}::1"))
    read = request(-1, user="mallory", code=200, verb="get")
    made = request(-2, user="mallory", code=201, verb="create")
    refused = request(-3, user="bob", code=403)
    for happened in (read, made, refused):
        trail.tell(happened)
    trail.flush()
    for happened in (read, made, refused):
        assert Entry.objects.get(audit_id=happened.origin.audit_id, name=happened.name).count == 1


@pytest.mark.usefixtures("minute")
def test_requests_that_are_counted_together_say_so_and_give_an_example() -> None:
    for number in range(50):
        trail.tell(request(number))
    trail.flush()
    entry = Entry.objects.get(verb=ANY_VERB)
    assert (entry.count, entry.resource, entry.name, entry.username) == (45, "", "", "")
    assert "counted together" in entry.message
    assert note_of(entry).request_uri == "/5"
    assert event_of(entry).annotations == {"audit.manciple.dev/count": "45", "audit.manciple.dev/example": "true"}


def test_over_the_network_too(api: Api) -> None:
    """The whole way: no credential, names and headers that a client makes up."""
    for number in range(60):
        answer = Api("wrong").send("get", f"/api/v1/namespaces/n{number}/pods", extra={"User-Agent": f"a{number}"})
        assert answer.code == 401
    bob = Api(tokens.issue("bob", []))
    assert bob.get(PODS).code == 403
    found = look(Search(outcome="denied"))
    assert len(found) <= 13  # two minutes may have begun
    assert sum(entry.count for entry in found) == 61
    assert found[0].username == "bob"


def test_failed_sign_ins_are_counted() -> None:
    User.objects.create_user("ann", password="x")
    for number in range(20):
        Client().post("/login", {"username": f"name-{number}", "password": "guess"})
    Client().post("/login", {"username": "ann", "password": "guess"})
    found = look(Search(resource=budgets.SESSIONS))
    assert sorted((entry.name, entry.count) for entry in found) == [("", 20), ("ann", 1)]


def test_names_and_addresses_that_failed_to_sign_in_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "MOST_KEYS", 20)
    for number in range(60):
        people.count_attempt(f"name-{number}", address=f"2001:db8:0:{number:x}::1")
    assert SignInAttempts.objects.count() <= 21
    assert SignInAttempts.objects.filter(key=people.name_key("name-59")).exists()


def test_what_clients_choose_is_clipped() -> None:
    long = "x" * 100_000
    identity = Identity("u" * 5000, tuple(f"{n}{'g' * 900}" for n in range(200)), extra=(("k", (long,) * 99),) * 99)
    origin = Origin(audit_id=long, received=NOW, agent=long, uri=long, verb=long, subresource=long, identity=identity)
    origin.annotations = {f"{n}{long}": long for n in range(5)}
    trail.tell(Happened(origin=origin, code=403, reason=long, message=long, resource=long, namespace=long, name=long))
    trail.flush()
    entry = Entry.objects.get()
    assert len(line(entry)) < 4 * LONGEST_ACTOR + 30 * LONGEST_TEXT


# Retention ------------------------------------------------------------------------------------------------------------


def written(user: str, count: int, *, days: float = 1, wrote: bool = True, routine: bool = False) -> None:
    Entry.objects.bulk_create(
        Entry(
            at=NOW - timedelta(days=days), username=user, impersonator="", audit_id="", verb="patch", resource="pods",
            subresource="", namespace="lab", name=user, uid="", code=200 if wrote else 403, reason="", message="",
            dry_run=False, routine=routine, count=1, note="{}", wrote=wrote,
        )
        for _ in range(count)
    )  # fmt: skip


def left() -> dict[str, int]:
    return dict(Entry.objects.values_list("username").annotate(Count("id")).order_by("username"))


@pytest.fixture(autouse=True)
def _limits(settings: Settings) -> None:
    settings.AUDIT_ENTRIES, settings.AUDIT_REFUSALS = 100, 50


def test_refusals_never_take_the_place_of_writes() -> None:
    written("alice", 90, days=80)
    written("", 500, wrote=False)
    housekeeping.keep_audit_trail(NOW)
    assert left() == {"": 49, "alice": 90}


def test_who_writes_without_end_shortens_their_own_history_alone() -> None:
    written("alice", 10, days=80)
    written(SYSTEM_PART, 20, days=6, routine=True)
    for number in range(3):
        written("mallory", 200, days=3 - number)
    housekeeping.keep_audit_trail(NOW)
    assert left() == {"alice": 10, "mallory": 68, SYSTEM_PART: 20}
    assert Entry.objects.filter(username="mallory", at__lt=NOW - timedelta(days=1)).count() == 0


SYSTEM_PART = "system:kube-scheduler"


def test_service_accounts_that_a_tenant_makes_have_one_share() -> None:
    written("alice", 40, days=80)
    for number in range(200):
        written(f"system:serviceaccount:lab:robot-{number}", 1)
    written("system:serviceaccount:labor:robot", 10, days=80)
    housekeeping.keep_audit_trail(NOW)
    assert (left()["alice"], left()["system:serviceaccount:labor:robot"]) == (40, 10)


def shares() -> Iterator[tuple[dict[str, int], int]]:
    for _ in range(200):
        yield {f"user-{n}": rng.randrange(60) for n in range(rng.randrange(1, 9))}, rng.randrange(200)


def test_the_limit_is_met_exactly_and_nobody_loses_while_another_has_more() -> None:
    for counts, keep in shares():
        lost = retention.surpluses(counts, keep=keep)
        kept = {name: count - lost.get(name, 0) for name, count in counts.items()}
        assert sum(kept.values()) == min(keep, sum(counts.values()))
        assert all(count >= 0 for count in kept.values())
        if lost:
            assert max(kept.values()) - min(kept[name] for name in lost) <= 1


def test_a_limit_that_cuts_into_the_promised_days_is_told(caplog: pytest.LogCaptureFixture) -> None:
    written("mallory", 200, days=2)
    assert housekeeping.keep_audit_trail(NOW) == 102
    (shortfall,) = retention.shortfalls()
    assert (shortfall.sender, shortfall.wrote, shortfall.removed) == ("mallory", True, 102)
    assert retention.missing_days(shortfall, NOW) == pytest.approx(88)
    assert "102 writes by mallory" in caplog.text
    assert "MANCIPLE_AUDIT_ENTRIES" in caplog.text
    (found,) = audit_trail.examine_audit_trail(NOW)
    assert found.what.startswith("not all writes of mallory up to 2026-11-26 08:00 are there")
    samples = {sample.labels["entries"]: sample.value for metric in of_audit() for sample in metric.samples}
    assert samples == {"writes": pytest.approx(88, abs=400), "refusals": 0}
    assert samples["writes"] > 0
    housekeeping.keep_audit_trail(NOW + timedelta(days=87))
    assert retention.missing_days(Shortfall.objects.get(), NOW + timedelta(days=87)) == pytest.approx(1)
    housekeeping.keep_audit_trail(NOW + timedelta(days=89))
    assert not Shortfall.objects.exists()


def test_what_is_cut_after_the_promised_days_is_nothing_to_tell() -> None:
    written(SYSTEM_PART, 150, days=8, routine=True)
    Entry.objects.update(code=201)  # kept for longer than updates, where there is room
    assert housekeeping.keep_audit_trail(NOW) == 52
    assert not Shortfall.objects.exists()


def test_the_doctor_warns_before_a_limit_is_reached() -> None:
    assert list(audit_trail.examine_audit_trail(NOW)) == []
    written("", 46, days=10, wrote=False)
    (found,) = audit_trail.examine_audit_trail(NOW)
    assert found.what == "has 46 of 50 refusals and reads after 10 days; 90 are promised"
    written("old", 1, days=91, wrote=False)
    assert retention.prune(NOW) == 1


def test_budgets_are_what_the_documents_say() -> None:
    assert (Budget(5, 60), Budget(40, 100), Budget(100, 300)) == (ANONYMOUS_BUDGET, REFUSALS, READS)
    assert records.is_system(SYSTEM_PART)
