"""The pages' WebSockets: who may open one, what each identity hears there, and when it ends.

The identities are the thirteen of the table of recorded decisions (`tests/manciple/access/test_table.py`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from manciple import asgi
from manciple.access import sign_ins
from manciple.access.authentication import chain, tokens
from manciple.access.bootstrap import ensure_roles
from manciple.access.membership import Standing, change
from manciple.access.people import stored_key
from manciple.api.lanes import SocketLimits
from manciple.api.namespaces import ensure_namespaces
from manciple.audit import events
from manciple.audit.models import Entry
from manciple.audit.searching import Search
from manciple.live import consumers, topics
from manciple.live.consumers import NOT_SIGNED_IN, PATH, TOO_MANY, Beats, live
from manciple.live.origins import same_origin
from manciple.store.event_log import Tail, latest_revision
from tests.manciple.access.test_table import (
    NODES,
    RBAC,
    RESOURCE,
    TABLE,
    headers_of,
    make,
    meta,
    set_up_nodes,
    set_up_people,
    set_up_team,
)
from tests.manciple.api.requests import NAMESPACES, Api
from tests.manciple.audit.reading import about, look
from tests.manciple.live.sockets import PAGE, PATIENCE, opened

#: Those of the identities who are people: they sign in. "root" is the table's `master`.
PEOPLE = ("alice", "bob", "carol", "dave", "erin", "master")
#: What everybody who may sign in hears of: what the inventory holds.
INVENTORY = {"node:n3", "nodes", "pool:d.example.com/n3", "slices", "class:other", "classes", "namespaces"}


def of_namespace(name: str) -> set[str]:
    """What is heard of what happens in it (see `happen`)."""
    if name == "new":
        return {"accounts:new"}  # its first
    return {
        f"pods:{name}", f"pod:{name}/q", f"node-pods:n1:{name}",
        f"claims:{name}", f"claim:{name}/cl2", f"template:{name}/t2", f"events:{name}",
        f"accounts:{name}",
    }  # fmt: skip


#: person -> the namespaces of which they hear
HEARD = {
    "alice": ["team-a"],
    "bob": ["team-a"],
    "carol": ["team-a"],
    "dave": [],
    "erin": ["team-a", "team-b", "new"],
    "master": ["team-a", "team-b", "new"],
}
#: kind of topics -> what of the API tells the same
ASKED = {
    **dict.fromkeys(("node", "nodes"), "/api/v1/nodes"),
    **dict.fromkeys(("pool", "slices"), f"{RESOURCE}/resourceslices"),
    **dict.fromkeys(("class", "classes"), f"{RESOURCE}/deviceclasses"),
    **dict.fromkeys(("pod", "pods", "node-pods"), "/api/v1/namespaces/{}/pods"),
    **dict.fromkeys(("claim", "claims"), f"{RESOURCE}/namespaces/{{}}/resourceclaims"),
    "template": f"{RESOURCE}/namespaces/{{}}/resourceclaimtemplates",
    "events": "/api/v1/namespaces/{}/events",
    "accounts": "/api/v1/namespaces/{}/serviceaccounts",
}


@pytest.fixture
def root(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """The table's cluster, as an administrator of its API."""
    monkeypatch.setattr(chain, "LOOK", 0.02)
    monkeypatch.setattr(asgi, "_socket_limits", SocketLimits(rate=0))
    ensure_namespaces()
    ensure_roles()
    api = Api(tokens.issue("root", ["system:masters"]))
    set_up_people(api)
    set_up_nodes(api)
    for namespace, node in NODES.items():
        set_up_team(api, namespace, node)
    yield api
    Tail.instance().stop()


def signed_in(who: str) -> tuple[User, str]:
    """The person, and the key of their session. They are in a group of their own: others may look at everything."""
    name: str = TABLE["who"][who][0]
    person = User.objects.create_user(name, password="x", is_staff=who == "master")
    person.groups.add(Group.objects.get_or_create(name="table")[0])
    return person, session_of(person)


def session_of(person: User) -> str:
    client = Client()
    client.force_login(person)
    key: str = client.session.session_key or ""
    return key


def denied() -> list[Entry]:
    """What the audit trail tells of refusals."""
    return look(Search(outcome="denied", routine=True))


def happen(root: Api) -> None:
    """Something to each kind of thing that pages show."""
    make(root, "/api/v1/nodes", meta("n3"))
    pool = {"name": "n3", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "nodeName": "n3", "pool": pool, "devices": [{"name": "d0"}]}
    make(root, f"{RESOURCE}/resourceslices", {**meta("s-n3"), "spec": spec})
    make(root, f"{RESOURCE}/deviceclasses", {**meta("other"), "spec": {}})
    make(root, NAMESPACES, meta("new"))
    for namespace in NODES:
        happen_in(root, namespace)


def happen_in(root: Api, namespace: str) -> None:
    claim = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "cls"}}]}}
    work, core = f"{RESOURCE}/namespaces/{namespace}", f"{NAMESPACES}/{namespace}"
    make(root, f"{work}/resourceclaims", {**meta("cl2"), "spec": claim})
    make(root, f"{work}/resourceclaimtemplates", {**meta("t2"), "spec": {"spec": claim}})
    make(root, f"{core}/pods", {**meta("q"), "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "x"}]}})
    about = {"kind": "Pod", "namespace": namespace, "name": "q"}
    make(root, f"{core}/serviceaccounts", meta("robot"))
    make(root, f"{core}/events", {**meta("e"), "involvedObject": about, "reason": "R", "message": "m"})


def test_everybody_hears_what_they_may_list_and_nothing_else(root: Api) -> None:
    people = {who: signed_in(who) for who in PEOPLE}

    async def heard() -> dict[str, set[str]]:
        async with AsyncExitStack() as sockets:
            pages = {}
            for who, (_, session) in people.items():
                pages[who] = await sockets.enter_async_context(opened(session=session))
                assert (await pages[who].message())["type"] == "websocket.accept"
                await pages[who].told()
            await asyncio.to_thread(happen, root)
            revision = await asyncio.to_thread(latest_revision)
            return {who: await page.hears_until(revision) for who, page in pages.items()}

    found = asyncio.run(heard())
    assert found == {who: INVENTORY.union(*map(of_namespace, HEARD[who])) for who in PEOPLE}
    for who, (person, _) in people.items():
        api = Api(tokens.issue_for_person(person, lifetime=None)[0])
        told = {address for topic in found["master"] if (address := address_of(topic)) and topic in found[who]}
        assert {address for address in told if api.get(address).code != 200} == set(), who


def address_of(topic: str) -> str:
    kind, _, rest = topic.partition(":")
    namespace = rest.rpartition(":")[2] if kind == "node-pods" else rest.partition("/")[0]
    return ASKED.get(kind, "").format(namespace)


def test_nobody_opens_a_page_s_line_but_who_is_signed_in_and_no_other_line_is_served(root: Api) -> None:
    """The API's credentials are none at the pages, whoever they belong to."""
    signed_in("alice")

    async def tried(path: str, **shown: Any) -> list[tuple[str, int | None]]:
        async with opened(path, **shown) as socket:
            first = await socket.message()
            last = await socket.message() if first["type"] == "websocket.accept" else first
            return [(one["type"], one.get("code")) for one in (first, last) if one["type"] != "websocket.accept"]

    for who in TABLE["who"]:
        shown = {"headers": {**PAGE, **headers_of(who)}, "token": "" if who == "anonymous" else root._token}
        assert asyncio.run(tried(PATH, **shown)) == [("websocket.close", NOT_SIGNED_IN)], who
        for path in (f"{NAMESPACES}/team-a/pods?watch=1", "/"):
            assert ("websocket.close", None) in asyncio.run(tried(path, **shown)), (who, path)


@pytest.mark.parametrize("subresource", ["exec?command=sh&stdout=1", "attach?stdout=1", "portforward?ports=80"])
def test_a_session_with_a_pod_is_for_those_who_may_edit_there(root: Api, subresource: str) -> None:
    async def code(**shown: Any) -> int:
        async with opened(f"{NAMESPACES}/team-a/pods/p/{subresource}", **shown) as socket:
            answer = await socket.message()
            assert answer["type"] == "websocket.http.response.start"
            found: int = answer["status"]
            return found

    def shown_by(who: str) -> dict[str, Any]:
        return {"headers": {**PAGE, **headers_of(who)}, "token": "" if who == "anonymous" else root._token}

    codes = {who: asyncio.run(code(**shown_by(who))) for who in TABLE["who"]}
    let_in = {"alice", "bob", "master"}  # as far as the pod's node, which has no agent, or the pod, which does not run
    assert {who for who, code in codes.items() if code in (400, 500)} == let_in
    assert {who for who, code in codes.items() if code == 403} == TABLE["who"].keys() - let_in
    told = {about(entry)[0] for entry in denied() if entry.subresource == subresource.partition("?")[0]}
    assert told == {name for who, (name, *_) in TABLE["who"].items() if who not in let_in}


#: (origin, the rest of what the socket shows) -> whether it is opened
ORIGINS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "the page": ("http://localhost:8000", {}, True),
    "with the port that goes without saying": ("http://localhost", {"host": "localhost:80"}, True),
    "in capitals": ("HTTP://LocalHost:8000", {}, True),
    "over TLS": ("https://localhost:8000", {"scheme": "wss"}, True),
    "IPv6": ("http://[::1]:8000", {"host": "[::1]:8000"}, True),
    "a trusted one": ("https://front.example.org", {}, True),
    "a subdomain of a trusted one": ("https://a.sub.example.org:8443", {}, True),
    "another port": ("http://localhost:3000", {}, False),
    "no port": ("http://localhost", {}, False),
    "another scheme": ("https://localhost:8000", {}, False),
    "another host": ("http://127.0.0.1:8000", {}, False),
    "a host that is not ours, twice": ("http://evil.example:8000", {"host": "evil.example:8000"}, False),
    "a trusted one with another port": ("https://front.example.org:8443", {}, False),
    "a trusted one without TLS": ("http://front.example.org", {}, False),
    "a domain that ends like a trusted one": ("https://evilsub.example.org:8443", {}, False),
    "an address": ("http://localhost:8000/page", {}, False),
    "somebody at a host": ("http://x@localhost:8000", {}, False),
    "a port that is none": ("http://localhost:99999", {}, False),
    "nowhere": ("null", {}, False),
    "nothing": ("", {}, False),
}


@pytest.mark.parametrize(("origin", "more", "allowed"), ORIGINS.values(), ids=ORIGINS.keys())
def test_only_pages_of_the_same_origin_open_a_line(
    origin: str, more: dict[str, Any], allowed: bool, settings: Any
) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://front.example.org", "https://*.sub.example.org:8443"]
    opened = asyncio.Event()

    async def application(*_: Any) -> None:
        opened.set()

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    host = more.get("host", "localhost:8000")
    scope = {"scheme": more.get("scheme", "ws"), "headers": [(b"host", host.encode()), (b"origin", origin.encode())]}
    asyncio.run(same_origin(application)(scope, None, send))
    assert (opened.is_set(), sent) == (allowed, [] if allowed else [{"type": "websocket.close"}])


@pytest.mark.parametrize(
    "headers",
    [
        [(b"host", b"localhost")],
        [(b"origin", b"http://localhost")],
        [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"origin", b"http://evil.example")],
        [(b"host", b"localhost"), (b"host", b"evil.example"), (b"origin", b"http://localhost")],
    ],
    ids=["no origin", "no host", "two origins", "two hosts"],
)
def test_a_line_whose_origin_is_unclear_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(same_origin(live)({"scheme": "ws", "headers": headers}, None, send))
    assert sent == [{"type": "websocket.close"}]


def test_another_site_opens_no_line_and_the_trail_says_so(root: Api) -> None:
    _, session = signed_in("alice")

    async def tried(origin: str) -> str:
        async with opened(session=session, headers={**PAGE, "origin": origin}) as socket:
            kind: str = (await socket.message())["type"]
            return kind

    assert asyncio.run(tried("https://evil.example")) == "websocket.close"
    (entry,) = denied()
    assert (entry.code, events.event_of(entry).request_uri) == (403, PATH)


def test_what_happens_before_it_is_known_who_opened_the_page_is_told_once_it_is(
    root: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "LOOK", 60)
    _, session = signed_in("master")
    flushing, heard_in, flush = threading.Event(), topics.heard_in, consumers.LiveConsumer._flush

    async def flushed(page: consumers.LiveConsumer) -> None:
        if not page.person:  # the second
            flushing.set()
        await flush(page)

    async def some_turns() -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    async def opening() -> None:
        loop = asyncio.get_running_loop()

        def slowly(*arguments: Any) -> Any:
            monkeypatch.setattr(consumers, "heard_in", heard_in)
            make(root, "/api/v1/nodes", meta("meanwhile"))
            assert flushing.wait(PATIENCE)
            asyncio.run_coroutine_threadsafe(some_turns(), loop).result(PATIENCE)
            return heard_in(*arguments)

        async with opened(session=session) as first:  # the first one's rights are soon asked again
            await first.first_words()
            monkeypatch.setattr(consumers.LiveConsumer, "_flush", flushed)
            monkeypatch.setattr(consumers, "heard_in", slowly)
            async with opened(f"{PATH}?after={await asyncio.to_thread(latest_revision)}", session=session) as page:
                assert (await page.message())["type"] == "websocket.accept"
                assert "node:meanwhile" in await page.hears_until(await asyncio.to_thread(latest_revision))

    asyncio.run(opening())


def test_one_person_has_so_many_pages_open_and_no_more(root: Api, settings: Any) -> None:
    settings.IDENTITY_WATCHES = 1
    _, session = signed_in("alice")
    _, other = signed_in("bob")

    async def opening() -> None:
        async with opened(session=session) as first:
            assert await first.first_words() == {
                "revision": await asyncio.to_thread(latest_revision),
                "everything": True,
            }
            for key, served in ((session, False), (other, True)):
                async with opened(session=key) as page:
                    await page.message()
                    assert (await page.message()).get("code", 0) == (0 if served else TOO_MANY)
        async with opened(session=session) as again:
            assert (await again.first_words())["everything"]

    asyncio.run(opening())


def test_the_connection_of_an_open_page_counts_for_its_person(root: Api) -> None:
    person, session = signed_in("alice")

    async def opening() -> tuple[str, str]:
        async with opened(session=session) as page:
            await page.first_words()
            return page.connection.level, page.connection.holder

    assert asyncio.run(opening()) == ("workload", person.username)


# The end --------------------------------------------------------------------------------------------------------------


def sign_out(person: User, session: str) -> None:
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = session
    assert client.post("/logout").status_code == 302


def close(person: User, _session: str) -> None:
    User.objects.create_user("other", is_staff=True)
    change(person, Standing(groups=(), administers=False, active=False), by="other")


def set_password(person: User, _session: str) -> None:
    person.set_password("another")
    person.save()


ENDS: dict[str, Callable[[User, str], Any]] = {
    "signing out": sign_out,
    "signing out from elsewhere": lambda person, _: sign_ins.end_others(person, but=None),
    "a new password": set_password,
    "a closed account": close,
    "no account any more": lambda person, _: person.delete(),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_a_page_s_line_ends_with_its_session(root: Api, end: Callable[[User, str], Any]) -> None:
    person, session = signed_in("alice")
    bystander = session_of(User.objects.create_user("bystander"))

    async def ended() -> dict[str, Any]:
        async with opened(session=session) as page, opened(session=bystander) as other:
            await page.message(), await page.told()
            await other.message(), await other.told()
            await asyncio.to_thread(end, person, session)
            how = await page.ends()
            await asyncio.to_thread(happen, root)
            assert await other.hears_until(await asyncio.to_thread(latest_revision)) != set()
            return how

    assert asyncio.run(ended()) == {"type": "websocket.close", "code": NOT_SIGNED_IN}
    assert denied() == [], "it was not refused: it has ended"


def test_a_page_s_line_ends_when_its_session_has_grown_old(root: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells of that: it is found when the page is asked about the next time."""
    monkeypatch.setattr(consumers, "ASKED_AGAIN", 0.05)
    _, session = signed_in("alice")

    async def ended() -> dict[str, Any]:
        async with opened(session=session) as page:
            assert (await page.first_words())["everything"]
            past = timezone.now() - timedelta(seconds=1)
            await asyncio.to_thread(Session.objects.filter(pk=stored_key(session)).update, expire_date=past)
            return await page.ends()

    assert asyncio.run(ended()) == {"type": "websocket.close", "code": NOT_SIGNED_IN}


def leave_group(person: User, _root: Api) -> None:
    person.groups.clear()
    person.groups.add(Group.objects.get_or_create(name="elsewhere")[0])


def unbind(_person: User, root: Api) -> None:
    assert root.delete(f"{RBAC}/namespaces/team-a/rolebindings/members").code == 200


@pytest.mark.parametrize("take", [leave_group, unbind], ids=["a group", "a binding"])
def test_what_was_taken_away_is_heard_no_more_on_lines_that_are_open(
    root: Api, take: Callable[[User, Api], None]
) -> None:
    person, session = signed_in("dave")
    group = {"kind": "Group", "name": "table"}
    binding = {**meta("members"), "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [group]}
    make(root, f"{RBAC}/namespaces/team-a/rolebindings", binding)

    async def heard() -> tuple[set[str], set[str]]:
        async with opened(session=session) as page:
            await page.message(), await page.told()
            await asyncio.to_thread(happen_in, root, "team-a")
            before = await page.hears_until(await asyncio.to_thread(latest_revision))
            await asyncio.to_thread(partial(take, person, root))
            while "everything" not in await page.told():
                pass  # the page draws itself anew, with what is left
            await asyncio.to_thread(root.delete, f"{NAMESPACES}/team-a/pods/q?gracePeriodSeconds=0")
            return before, await page.hears_until(await asyncio.to_thread(latest_revision))

    before, after = asyncio.run(heard())
    assert before == of_namespace("team-a")
    assert after == set()


def test_open_pages_get_signs_of_life_from_one_timer_and_nothing_ticks_for_none(
    root: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "BEAT", 0.02)
    monkeypatch.setattr(Tail, "behind", 3.25)
    _, session = signed_in("alice")

    async def lived() -> None:
        async with AsyncExitStack() as sockets:
            pages = [await sockets.enter_async_context(opened(session=session)) for _ in range(2)]
            for page in pages:
                await page.first_words()
            for page in pages:
                first, second = await page.beat(), await page.beat()
                assert first["beat"] >= 3.2  # what a log that cannot be read keeps from everybody
                assert first["at"] < second["at"]
            assert Beats.of_running_loop().timer is not None
        assert Beats.of_running_loop().timer is None

    asyncio.run(lived())
