"""Sessions and logs that pages open: by the session of the browser, with the rights of whoever is signed in."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from manciple.access.bootstrap import ensure_roles
from manciple.audit import trail
from manciple.audit.models import Entry
from manciple.wire import channels
from nodeagent.http import server as https
from tests.e2e.processes import wait_for
from tests.manciple.api.server import ApiServer
from tests.manciple.api.session_world import (
    TIMEOUT,
    Heard,
    LocalAgent,
    heard,
    path_of,
    place,
    serving,
    threaded_context,
    until,
)

EXEC = path_of("exec", "sh", "-c", "echo hello", stdout=True)
LOG = "/api/v1/namespaces/default/pods/p/log"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> https.Certificate:
    return https.ensure_certificate(tmp_path_factory.mktemp("serving"), ("alpha", "127.0.0.1"))


@pytest.fixture
def agent(api_server: ApiServer, certificate: https.Certificate) -> Iterator[LocalAgent]:
    ensure_roles()
    made = LocalAgent()
    with serving(made, certificate) as endpoint:
        place(api_server, port=endpoint.port, fingerprint=certificate.fingerprint)
        yield made


def signed_in(name: str, *groups: str, administers: bool = False) -> str:
    """The key of their session."""
    person = User.objects.create_user(name, password="x", is_staff=administers)
    person.groups.add(*(Group.objects.get_or_create(name=one)[0] for one in groups))
    client = Client()
    client.force_login(person)
    return client.session.session_key or ""


def cookie_of(session: str) -> str:
    return f"{settings.SESSION_COOKIE_NAME}={session}"


def opened(api_server: ApiServer, path: str, *, session: str = "", origin: str = "") -> ClientConnection:
    """Raises: InvalidStatus."""
    return connect(
        f"{api_server.url.replace('https:', 'wss:')}/sessions{path}",
        ssl=threaded_context(api_server),
        additional_headers={"Cookie": cookie_of(session)} if session else None,
        origin=Origin(origin or api_server.url),
        subprotocols=[Subprotocol(channels.V5)],
        open_timeout=TIMEOUT,
    )


def last_word(api_server: ApiServer, path: str, *, session: str = "") -> dict[str, Any]:
    with opened(api_server, path, session=session) as page:
        return heard(page).status


@pytest.mark.parametrize("groups", [("namespace:default",), ()])
def test_whoever_may_edit_in_a_namespace_opens_a_terminal_there(
    api_server: ApiServer, agent: LocalAgent, groups: tuple[str, ...]
) -> None:
    with opened(api_server, EXEC, session=signed_in("alice", *groups, administers=not groups)) as page:
        found: Heard = heard(page)
    assert (found.out, found.status["status"]) == (b"hello\n", "Success")
    assert agent.requests[0].person == "alice"
    trail.flush()
    entry = Entry.objects.get(subresource="exec")
    assert (entry.username, entry.code, entry.name) == ("alice", 101, "p")


@pytest.mark.parametrize("groups", [(), ("manciple:viewers",), ("namespace:other",)])
@pytest.mark.parametrize("path", [EXEC, path_of("attach", stdout=True), path_of("portforward", ports="80")])
def test_nobody_else_does_and_the_page_learns_why(
    api_server: ApiServer, agent: LocalAgent, path: str, groups: tuple[str, ...]
) -> None:
    status = last_word(api_server, path, session=signed_in("bob", *groups))
    assert status["code"] == 403
    assert 'User "bob" cannot' in status["message"]
    assert agent.requests == []
    trail.flush()
    assert set(Entry.objects.filter(resource="pods").values_list("username", "code")) >= {("bob", 403)}


@pytest.mark.parametrize("session", ["", "x" * 32])
def test_a_page_that_is_not_signed_in_is_told_so(api_server: ApiServer, agent: LocalAgent, session: str) -> None:
    assert last_word(api_server, EXEC, session=session)["code"] == 401
    assert agent.requests == []


def test_what_is_wrong_with_a_session_is_the_last_word(api_server: ApiServer, agent: LocalAgent) -> None:
    agent.runtime.ended.add("main")
    assert "container not found" in last_word(api_server, EXEC, session=signed_in("root", administers=True))["message"]


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1"])
def test_pages_of_other_sites_open_nothing(api_server: ApiServer, agent: LocalAgent, origin: str) -> None:
    session = signed_in("root", administers=True)
    with pytest.raises(InvalidStatus) as refused:
        opened(api_server, EXEC, session=session, origin=origin)
    assert refused.value.response.status_code == 403
    assert agent.requests == []


def test_a_browsers_session_means_nothing_to_the_api(api_server: ApiServer, agent: LocalAgent) -> None:
    session = signed_in("root", administers=True)
    context = ssl.create_default_context(cafile=str(api_server.ca_file))
    with pytest.raises(InvalidStatus) as refused:
        connect(
            f"{api_server.url.replace('https:', 'wss:')}{EXEC}",
            ssl=threaded_context(api_server),
            additional_headers={"Cookie": cookie_of(session)},
        )
    assert refused.value.response.status_code == 403
    with httpx.Client(base_url=api_server.url, verify=context, headers={"Cookie": cookie_of(session)}) as http:
        for path in ("/api/v1/pods", "/sessions/api/v1/pods", "/sessions/api/v1/namespaces/default/pods/p", LOG):
            assert http.get(path).status_code in (403, 404), path
        assert http.post(f"/sessions{LOG}").status_code in (403, 404)
        assert http.delete("/sessions/api/v1/namespaces/default/pods/p").status_code in (403, 404)


def test_a_terminal_ends_with_the_session_of_its_browser(
    api_server: ApiServer, agent: LocalAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manciple.access.authentication.chain.LOOK", 0.05)
    key = signed_in("root", administers=True)
    with opened(api_server, path_of("exec", "sh", "-c", "echo on; sleep 1000", stdout=True), session=key) as page:
        until(page, b"on")
        User.objects.get(username="root").delete()
        with pytest.raises(ConnectionClosed) as ended:
            page.recv(timeout=TIMEOUT)
        assert ended.value.rcvd is not None
    wait_for("the end of the conversation", lambda: agent.runtime.begun[0].ended is None)


def test_a_page_reads_a_log_as_it_grows(api_server: ApiServer, agent: LocalAgent) -> None:
    """As far as the agent, which serves none in this test."""
    context = ssl.create_default_context(cafile=str(api_server.ca_file))
    with httpx.Client(base_url=api_server.url, verify=context, timeout=TIMEOUT) as http:
        codes = {}
        for who, groups in {"alice": ["namespace:default"], "bob": [], "": []}.items():
            cookie = {"Cookie": cookie_of(signed_in(who, *groups))} if who else {}
            answer = http.get(f"/sessions{LOG}?follow=true", headers=cookie)
            codes[who] = (answer.status_code, json.loads(answer.content)["reason"])
    assert codes == {"alice": (404, "NotFound"), "bob": (403, "Forbidden"), "": (401, "Unauthorized")}
    assert [request.path for request in agent.requests] == [("containerLogs", "default", "p", "main")]


def test_a_client_that_speaks_no_channels_is_refused_before_it_begins(api_server: ApiServer, agent: LocalAgent) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(
            f"{api_server.url.replace('https:', 'wss:')}/sessions{EXEC}",
            ssl=threaded_context(api_server),
            origin=Origin(api_server.url),
        )
    assert refused.value.response.status_code == 401
    assert agent.requests == []
