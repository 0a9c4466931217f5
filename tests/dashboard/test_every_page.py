"""Every page there is, on the demo's laboratory, for each kind of person; and queries that are written for one engine.

`tests/test_on_postgresql.py` runs this on PostgreSQL as well. What is expected is counted here from the rows, so that
both engines are held to the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import cache
from html.parser import HTMLParser
from http import HTTPStatus

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from msgspec import structs

from claims.devices.cache import read_devices
from claims.models import AllocatedDevice, PastAllocation
from dashboard.capacity.overview import read_signs
from dashboard.capacity.timeline import STEPS, Timeline, TimelineQuery
from dashboard.kit.charts import ChosenTime, Window
from manciple.people import ALL_NAMESPACES, Person, person_of_user
from manciple.processes.demolab.pages import every_page, is_document
from manciple.processes.demolab.views import save_views
from manciple.store import history, objects
from manciple.store.event_log import latest_revision
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.resources import EVENTS, SLICES, kind
from tests.builders import make_slice
from tests.examples import ALL, sample
from tests.laboratory import NOW, furnish
from tests.page_words import sentences, words

#: person -> the namespace that they work in, "" for who looks at everything; the administrator besides
PEOPLE = {"ada": None, "vic": "", "nora": "nlp-lab"}
EVERYONE = Person(Identity("ada", (MASTERS,)), ALL_NAMESPACES)


@pytest.fixture
def lab(db: None) -> None:
    furnish()


def signed_in(name: str) -> tuple[Client, Person]:
    namespace = PEOPLE[name]
    user = User.objects.create_user(name, is_staff=namespace is None)
    if namespace:
        user.groups.add(Group.objects.create(name=f"namespace:{namespace}"))
    client = Client()
    client.force_login(user)
    return client, person_of_user(user)


def test_every_page_opens_for_who_may_see_it(lab: None) -> None:
    addresses = every_page()
    assert len(addresses) > 50
    # On PostgreSQL the question is what it is asked, and who may look at everything has it asked what ada has.
    people = [name for name in PEOPLE if name != "vic" or (ALL and connection.vendor == "sqlite")]
    clients = {name: signed_in(name) for name in people}
    save_views(User.objects.get(username="ada"))
    User.objects.create_user("admin")  # whom an address names
    refused: dict[str, set[int]] = {name: set() for name in PEOPLE}
    for name, (client, _) in clients.items():
        # The administrator opens every page; what others may open, test_route_rights.py asks of every route as well.
        for page in addresses if name == "ada" else sample(addresses, 40):
            answer = client.get(page.path)
            expected = {200, 302, 405} if name == "ada" else {200, 302, 403, 404, 405}
            assert answer.status_code in expected, (name, page.path, answer.status_code)
            if answer.status_code >= HTTPStatus.BAD_REQUEST:
                refused[name].add(answer.status_code)
    assert refused["ada"] <= {405}
    assert 403 in refused["vic"] or "vic" not in people, "who looks may not change"
    assert 404 in refused["nora"], "of other namespaces nothing is told"


#: Where a backtick is code, or is typed by a person.
VERBATIM = frozenset({"code", "pre", "kbd", "samp", "textarea", "script", "style", "template"})
#: Attributes that a person reads or hears.
SAID = ("title", "aria-label", "placeholder", "alt", "aria-valuetext", "data-says")


class Backticks(HTMLParser):
    """Collects visible texts with a backtick."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._verbatim: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in VERBATIM:
            self._verbatim.append(tag)
        self.found += [text for name, text in attributes if name in SAID and text and "`" in text]

    def handle_endtag(self, tag: str) -> None:
        if self._verbatim and tag == self._verbatim[-1]:
            self._verbatim.pop()

    def handle_data(self, text: str) -> None:
        if "`" in text and not self._verbatim:
            self.found.append(" ".join(text.split()))


@cache
def pages() -> Mapping[str, str]:
    """Address -> page, or part of one, as the administrator sees the laboratory."""
    client, _ = signed_in("ada")
    answers = {page.path: client.get(page.path) for page in every_page()}
    return {
        path: answer.content.decode()
        for path, answer in answers.items()
        if "text/html" in answer.headers.get("Content-Type", "") and not answer.streaming
    }


def test_no_page_shows_a_backtick(lab: None) -> None:
    """Texts mark names with backticks, which pages make code of (`with_code`), or leave out where that cannot be."""
    shown = {path: found for path, page in pages().items() if (found := Backticks(page).found)}
    assert not shown, "\n".join(f"{path}: {found}" for path, found in shown.items())


#: Words of sentences on a page, on average: a text that says more has to say something else in fewer.
MOST_WORDS = 34


def test_pages_have_few_words(lab: None) -> None:
    counted = {
        path: words(page)
        for path, page in pages().items()
        if is_document("text/html", page) and not path.startswith("/manual")
    }
    wordiest = sorted(counted.items(), key=lambda item: -item[1])[:5]
    total = sum(counted.values())
    assert total <= MOST_WORDS * len(counted), f"{total} words; the wordiest: {wordiest}"


def test_backticks_are_found_in_texts_and_labels_and_not_in_code() -> None:
    page = '<p>a `b`</p><code>`c`</code><a title="`d`" href="?q=`e`">f</a><pre><b>`g`</b></pre><p>`h</p>'
    assert Backticks(page).found == ["a `b`", "`d`", "`h"]


#: What has words that count, beside much that has none.
SHOWN = ["The first of two sentences.", "The second of them,", "with more of it"]


def test_words_are_those_of_sentences_that_are_shown() -> None:
    page = """
        <h1>What this page is about</h1>
        <p>The <b>first</b> of two sentences.</p>
        <p hidden>One that nobody sees here.</p>
        <p>Two words</p>
        <table><tr><td>What a cell says at length.</td></tr></table>
        <ul><li>The second of them,<br>with more of it</li></ul>
        <p class="row facts">created by somebody long ago</p>
    """
    assert sentences(page) == SHOWN
    assert words(page) == 13


# The timeline --------------------------------------------------------------------------------------------------------


def spans(window: tuple[datetime, datetime], column: str) -> Iterator[tuple[str, datetime, datetime | None]]:
    """(group, from, to) of what was held in the window, one for each device."""
    begin, end = window
    rows = PastAllocation.objects.filter(admin_access=False)
    for group, began, ended in rows.values_list(column, "began_at", "ended_at"):
        if ended > begin and began < end:
            yield group, began, ended
    now = AllocatedDevice.objects.filter(admin_access=False).select_related("claim")
    for one in now:
        began = one.claim.allocated_at or one.claim.created_at
        if began < end:
            yield one.device_class if column == "device_class" else one.claim.namespace, began, None


def test_the_timeline_counts_what_the_rows_say(lab: None) -> None:
    """The model is read by a query that each engine writes in its own way."""
    hours = {}
    for by, column in (("class", "device_class"), ("namespace", "namespace"), ("model", "")):
        query = TimelineQuery(by=by, time=ChosenTime(range="7d"))
        window, _ = query.time.window(NOW + timedelta(seconds=1))
        timeline = Timeline(EVERYONE, query, window)
        hours[by] = timeline.hours()
        assert set(timeline.levels(timeline.groups())) == set(hours[by])
        assert {one.group for one in timeline.waits()} <= set(hours[by])
        if column:
            held = list(spans((window.begin, window.end), column))
            assert len(held) > 500
            assert timeline.count() == len(held)
            assert timeline.groups() == Counter(group for group, _, _ in held)
            assert timeline.levels(timeline.groups()) == levels_of(held, window)
    assert sum(hours["model"].values()) == pytest.approx(sum(hours["class"].values()))
    assert {"NVIDIA H100 80GB", "NVIDIA H200 141GB"} <= set(hours["model"])


def levels_of(held: list[tuple[str, datetime, datetime | None]], window: Window) -> dict[str, list[int]]:
    """How many of each group are held at each step."""
    step = window.seconds / STEPS
    levels: dict[str, list[int]] = {group: [0] * STEPS for group, _, _ in held}
    for group, began, ended in held:
        first = max(0, int((began - window.begin).total_seconds() // step))
        last = STEPS if ended is None else int((ended - window.begin).total_seconds() // step)
        for number in range(first, min(last, STEPS)):
            levels[group][number] += 1
    return levels


# What is written for one engine --------------------------------------------------------------------------------------


def test_the_newest_events_come_in_the_order_in_which_they_were_written_and_the_health_tells_the_engine(
    lab: None,
) -> None:
    written = {stored.name: stored.revision for stored in objects.list(kind(EVENTS)).items}
    newest_first = sorted(written, key=lambda name: -written[name])
    read = history.newest(EVENTS, limit=10)
    assert [one.name for one in read] == newest_first[:10]
    further = history.newest(EVENTS, limit=10, before=read[-1].revision)
    assert [one.name for one in further] == newest_first[10:20]
    only = history.newest(EVENTS, limit=100, namespaces=["vision"])
    assert {one.namespace for one in only} == {"vision"}
    assert "vision" in history.namespaces_with(EVENTS)
    assert history.newest(EVENTS, limit=10, namespaces=[]) == ()
    signs = read_signs(read_devices(), EVERYONE, now=NOW)
    assert signs.database == {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[connection.vendor]
    assert signs.database_size > 1_000_000
    assert signs.sampled is not None
    assert signs.processes == []


@pytest.mark.django_db
@pytest.mark.parametrize("odd", ["50%", "a_b", "back\\slash", 'quo"te'])
def test_a_last_change_is_found_by_the_fields_as_they_are_written(odd: str) -> None:
    """None of these is a pattern."""
    before = latest_revision()
    with objects.writing() as writer:
        published = make_slice("odd", node="node-1")
        spec = structs.replace(published.spec, driver=odd)
        writer.create(kind(SLICES), structs.replace(published, spec=spec))
    moment = history.last_change(SLICES, {"spec.driver": odd}, after=before)
    assert moment is not None
    assert moment.tzinfo is not None
    assert history.last_change(SLICES, {"spec.driver": odd, "spec.nodeName": "node-1"}, after=before) == moment
    assert history.last_change(SLICES, {"spec.driver": odd}, after=latest_revision()) is None
    for alike in ("50 percent", "aXb", "backslash", "quote"):
        assert history.last_change(SLICES, {"spec.driver": alike}, after=before) is None
