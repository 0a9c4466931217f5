"""exec and attach through the API server to an agent that runs real processes: protocols, rights, ends, refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from manciple.audit import trail
from manciple.audit.models import Entry
from manciple.wire import channels
from manciple.wire.channels import ERROR, RESIZE, STDERR, STDIN, STDOUT, Subprotocol
from nodeagent.http import server as https
from tests.e2e.processes import wait_for
from tests.manciple.api.server import ApiServer
from tests.manciple.api.session_world import (
    END_OF_STDIN,
    LocalAgent,
    SpdyConnection,
    heard,
    make_pod,
    path_of,
    person,
    place,
    serving,
    until,
    websocket,
)

BOTH = "echo out; echo err >&2; exit 3"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> https.Certificate:
    return https.ensure_certificate(tmp_path_factory.mktemp("serving"), ("alpha", "127.0.0.1"))


@pytest.fixture
def agent(api_server: ApiServer, certificate: https.Certificate) -> Iterator[LocalAgent]:
    made = LocalAgent()
    with serving(made, certificate) as endpoint:
        place(api_server, port=endpoint.port, fingerprint=certificate.fingerprint)
        yield made


@pytest.mark.parametrize("protocol", channels.PROTOCOLS)
def test_a_command_tells_its_output_and_how_it_ended(api_server: ApiServer, agent: LocalAgent, protocol: str) -> None:
    path = path_of("exec", "sh", "-c", BOTH, stdout=True, stderr=True)
    with websocket(api_server, path, protocol) as session:
        assert (session.subprotocol or "") == protocol
        found = heard(session, protocol)
    assert (found.bytes[STDOUT], found.bytes[STDERR]) == (b"out\n", b"err\n")
    if Subprotocol(protocol).has_status:
        assert found.status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
    else:
        assert b"exit code 3" in found.bytes[ERROR]
    assert agent.requests[0].person == "admin"


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"])
def test_a_command_that_ends_well_is_a_success(api_server: ApiServer, agent: LocalAgent, protocol: str) -> None:
    with websocket(api_server, path_of("exec", "true", stdout=True), protocol) as session:
        assert heard(session, protocol).status["status"] == "Success"
    wait_for("the end of the conversation", lambda: agent.runtime.begun[0].ended is None)


def test_words_go_to_the_command_as_they_are(api_server: ApiServer, agent: LocalAgent) -> None:
    words = ["printf", "%s|", "a b", "&x=1", "ü", "-n", ""]
    with websocket(api_server, path_of("exec", *words, stdout=True)) as session:
        assert heard(session).out == "a b|&x=1|ü|-n||".encode()
    assert agent.requests[0].path == ("exec", "default", "p", "main")


def test_standard_input_can_end_before_the_session(api_server: ApiServer, agent: LocalAgent) -> None:
    with websocket(api_server, path_of("exec", "sort", stdin=True, stdout=True)) as session:
        for line in (b"b\n", b"c\n", b"a\n"):
            session.send(bytes((STDIN,)) + line)
        session.send(END_OF_STDIN)
        found = heard(session)
    assert (found.out, found.status["status"]) == (b"a\nb\nc\n", "Success")


def test_much_goes_through_in_both_directions(api_server: ApiServer, agent: LocalAgent) -> None:
    text = bytes(range(256)) * 16 * 1024  # 4 MiB
    with websocket(api_server, path_of("exec", "cat", stdin=True, stdout=True), max_size=None) as session:

        def send() -> None:
            for start in range(0, len(text), 100_000):
                session.send(bytes((STDIN,)) + text[start : start + 100_000])
            session.send(END_OF_STDIN)

        sender = threading.Thread(target=send)
        sender.start()
        found = heard(session)
        sender.join()
    assert found.out == text


def test_a_terminal_has_a_size_and_one_stream(api_server: ApiServer, agent: LocalAgent) -> None:
    script = "echo err >&2; read -r line; stty size"
    path = path_of("exec", "sh", "-c", script, stdin=True, stdout=True, stderr=True, tty=True)
    with websocket(api_server, path) as session:
        until(session, b"err")
        session.send(bytes((RESIZE,)) + json.dumps({"Width": 101, "Height": 37}).encode())
        session.send(bytes((STDIN,)) + b"\n")
        assert b"37 101" in heard(session).out


@pytest.mark.parametrize("size", ["{", "{}", '{"Width":-1,"Height":5}', '{"Width":70000,"Height":5}', "[]"])
def test_a_size_that_is_none_changes_nothing(api_server: ApiServer, agent: LocalAgent, size: str) -> None:
    script = "stty size; read -r line; stty size"
    with websocket(api_server, path_of("exec", "sh", "-c", script, stdin=True, stdout=True, tty=True)) as session:
        before = until(session, b"\n")
        session.send(bytes((RESIZE,)) + size.encode())
        session.send(bytes((STDIN,)) + b"\n")
        assert before.strip() in heard(session).out


def test_attaching_leads_to_the_containers_own_process(api_server: ApiServer, agent: LocalAgent) -> None:
    path = path_of("attach", pod="two", container="b", stdin=True, stdout=True)
    with websocket(api_server, path) as session:
        session.send(bytes((STDIN,)) + b"hello\n")
        assert until(session, b"\n") == b"got hello\n"
        session.send(END_OF_STDIN)
        assert heard(session).status["status"] == "Success"
    assert agent.requests[0].path == ("attach", "default", "two", "b")


def test_a_command_is_left_when_its_client_goes(api_server: ApiServer, agent: LocalAgent) -> None:
    with websocket(api_server, path_of("exec", "sleep", "1000", stdout=True)):
        wait_for("a command", lambda: bool(agent.runtime.begun))
        command = agent.runtime.begun[0]
    wait_for("the end of the conversation", lambda: command.ended is None)


def test_a_session_ends_with_its_agent(api_server: ApiServer, certificate: https.Certificate) -> None:
    agent = LocalAgent()
    with serving(agent, certificate) as endpoint:
        place(api_server, port=endpoint.port, fingerprint=certificate.fingerprint)
        with websocket(api_server, path_of("exec", "sh", "-c", "echo on; sleep 1000", stdout=True)) as session:
            until(session, b"on")
            endpoint.stop()
            assert "agent has ended the session" in heard(session).status["message"]


def test_a_session_ends_with_the_server(api_server: ApiServer, agent: LocalAgent) -> None:
    with websocket(api_server, path_of("exec", "sh", "-c", "echo on; sleep 1000", stdout=True)) as session:
        until(session, b"on")
        api_server.end_streams()
        with pytest.raises(ConnectionClosed) as ended:
            session.recv(timeout=30)
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == 1001
    with pytest.raises(InvalidStatus) as refused:
        websocket(api_server, path_of("exec", "true", stdout=True))
    assert refused.value.response.status_code == 503


# SPDY, which kubectl 1.29 and most programs in Go speak.


def test_a_command_over_spdy(api_server: ApiServer, agent: LocalAgent) -> None:
    path = path_of("exec", "sh", "-c", f"cat; {BOTH}", stdin=True, stdout=True, stderr=True)
    connection = SpdyConnection(api_server, path, "v5.channel.k8s.io, v4.channel.k8s.io", "v3.channel.k8s.io")
    assert connection.code == 101
    assert "v4.channel.k8s.io" in connection.answer
    error, stdin = connection.begin("error"), connection.begin("stdin")
    stdout, stderr = connection.begin("stdout"), connection.begin("stderr")
    connection.send(stdin, b"in\n", last=True)
    found = connection.read_all(error, stdout, stderr)
    assert (found[stdout], found[stderr]) == (b"in\nout\n", b"err\n")
    assert json.loads(found[error])["reason"] == "NonZeroExitCode"
    connection.close()


def test_output_waits_for_the_streams_that_carry_it(api_server: ApiServer, agent: LocalAgent) -> None:
    connection = SpdyConnection(api_server, path_of("exec", "echo", "early", stdout=True), "v4.channel.k8s.io")
    error = connection.begin("error")
    stdout = connection.begin("stdout")
    found = connection.read_all(stdout, error)
    assert found[stdout] == b"early\n"
    connection.close()


def test_streams_that_nobody_asked_for_are_refused(api_server: ApiServer, agent: LocalAgent) -> None:
    connection = SpdyConnection(api_server, path_of("exec", "cat", stdin=True, stdout=True), "v4.channel.k8s.io")
    strange = connection.begin("stderr")
    first = next(connection.frames())
    assert (first.kind, first.stream) == (3, strange)
    connection.close()


# Refusals, in Kubernetes' words; the same for a WebSocket, for SPDY, and for a request without an upgrade.

REFUSALS: dict[str, tuple[str, int, str]] = {
    "no such pod": (path_of("exec", "true", pod="none", stdout=True), 404, 'pods "none" not found'),
    "no command": (path_of("exec", stdout=True), 400, "you must specify at least 1 command for the container"),
    "no stream": (path_of("exec", "true"), 400, "you must specify at least 1 of stdin, stdout, stderr"),
    "no such container": (
        path_of("exec", "true", stdout=True, container="x"),
        400,
        "container x is not valid for pod p",
    ),
    "one of several": (
        path_of("attach", pod="two", stdout=True),
        400,
        "a container name must be specified for pod two, choose one of: [a b]",
    ),
    "no node": (path_of("exec", "true", pod="waiting", stdout=True), 400, "pod waiting does not have a host assigned"),
    "no node to attach to": (
        path_of("attach", pod="waiting", stdout=True),
        400,
        "pod waiting does not have a host assigned",
    ),
    "no node to forward to": (
        path_of("portforward", pod="waiting"),
        400,
        "pod waiting does not have a host assigned",
    ),
    "not running": (
        path_of("portforward", pod="done"),
        400,
        "unable to forward port because pod is not running. Current status=Succeeded",
    ),
}


@pytest.mark.parametrize("how", ["websocket", "spdy", "plain"])
def test_refusals_are_those_of_kubernetes(api_server: ApiServer, agent: LocalAgent, how: str) -> None:
    make_pod(api_server, "waiting", node="", phase="Pending")
    make_pod(api_server, "done", node="alpha", phase="Succeeded")
    for path, code, message in REFUSALS.values():
        assert refusal(api_server, path, how) == (code, message)
    assert agent.requests == []


def refusal(api_server: ApiServer, path: str, how: str, token: str | None = None) -> tuple[int, str]:
    """(code, message) of the Status."""
    if how == "websocket":
        with pytest.raises(InvalidStatus) as refused:
            websocket(api_server, path, token=token)
        status: dict[str, Any] = json.loads(refused.value.response.body or b"")
        assert refused.value.response.status_code == status["code"]
    elif how == "spdy":
        connection = SpdyConnection(api_server, path, "v4.channel.k8s.io", "portforward.k8s.io", token=token)
        status = connection.status()
        assert connection.code == status["code"]
        connection.close()
    else:
        with api_server.client(token=token) as http:
            status = http.post(path).json()
    return status["code"], status["message"]


def test_a_container_that_does_not_run_is_not_found(api_server: ApiServer, agent: LocalAgent) -> None:
    agent.runtime.ended.add("main")
    path = path_of("exec", "true", stdout=True)
    expected = (500, 'unable to upgrade connection: container not found ("main")')
    assert refusal(api_server, path, "websocket") == expected
    assert refusal(api_server, path, "spdy") == expected


def test_without_an_upgrade_there_is_no_session(api_server: ApiServer, agent: LocalAgent) -> None:
    path = path_of("exec", "true", stdout=True)
    with api_server.client() as http:
        for answer in (http.get(path), http.post(path)):
            assert (answer.status_code, answer.json()["message"]) == (400, "Upgrade request required")
    assert agent.requests == []


def test_a_client_without_a_common_protocol_is_told_which_there_are(api_server: ApiServer, agent: LocalAgent) -> None:
    path = path_of("exec", "true", stdout=True)
    with pytest.raises(InvalidStatus) as refused:
        websocket(api_server, path, "chat")
    assert "server accepts [v5.channel.k8s.io" in json.loads(refused.value.response.body or b"")["message"]
    connection = SpdyConnection(api_server, path, "portforward.k8s.io")
    assert "server accepts [v4.channel.k8s.io]" in connection.status()["message"]
    assert agent.requests == []


# Rights.

EXEC = path_of("exec", "echo", "hello", stdout=True)


@pytest.mark.parametrize(
    ("verbs", "how", "may"),
    [
        ((), "websocket", False),
        ((), "spdy", False),
        ((), "plain", False),
        (("get",), "websocket", False),
        (("create",), "websocket", False),
        (("get", "create"), "websocket", True),
        (("get",), "spdy", False),
        (("create",), "spdy", True),
    ],
)
def test_a_session_takes_the_verbs_of_kubernetes(
    api_server: ApiServer, agent: LocalAgent, verbs: tuple[str, ...], how: str, may: bool
) -> None:
    token = person("bob", api_server, *verbs)
    if may and how == "websocket":
        with websocket(api_server, EXEC, token=token) as session:
            assert heard(session).out == b"hello\n"
    elif may:
        connection = SpdyConnection(api_server, EXEC, "v4.channel.k8s.io", token=token)
        assert connection.code == 101
        connection.close()
    else:
        code, message = refusal(api_server, EXEC, how, token)
        assert code == 403
        assert 'User "bob" cannot' in message
        assert agent.requests == []


@pytest.mark.parametrize("how", ["websocket", "spdy"])
def test_pods_of_other_namespaces_are_closed(api_server: ApiServer, agent: LocalAgent, how: str) -> None:
    token = person("bob", api_server, "get", "create")
    with api_server.client() as http:
        assert http.post("/api/v1/namespaces", json={"metadata": {"name": "other"}}).status_code == 201
    make_pod(api_server, "p", node="alpha", phase="Running", namespace="other")
    path = path_of("exec", "true", namespace="other", stdout=True)
    code, message = refusal(api_server, path, how, token)
    assert code == 403
    assert 'pods/exec" in API group "" in the namespace "other"' in message
    assert agent.requests == []


def test_a_session_ends_with_the_right_to_it(api_server: ApiServer, agent: LocalAgent) -> None:
    token = person("bob", api_server, "get", "create")
    path = path_of("exec", "sh", "-c", "echo on; sleep 1000", stdout=True)
    with websocket(api_server, path, token=token) as session:
        until(session, b"on")
        with api_server.client() as http:
            assert http.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/bob").status_code == 200
        with pytest.raises(ConnectionClosed):
            session.recv(timeout=30)
    wait_for("the end of the conversation", lambda: agent.runtime.begun[0].ended is None)


def test_sessions_are_audited_with_who_began_them(api_server: ApiServer, agent: LocalAgent) -> None:
    with websocket(api_server, EXEC) as session:
        heard(session)
    refusal(api_server, EXEC, "websocket", person("bob", api_server))
    trail.flush()
    found = Entry.objects.filter(subresource="exec").values_list("username", "verb", "name", "code")
    assert set(found) == {("admin", "get", "p", 101), ("bob", "get", "p", 403)}


# What is told of it.


def test_discovery_and_openapi_name_the_sessions(api_server: ApiServer) -> None:
    with api_server.client() as http:
        lines = {one["name"]: one for one in http.get("/api/v1").json()["resources"]}
        paths = http.get("/openapi/v2").json()["paths"]
    for name, kind in {
        "exec": "PodExecOptions",
        "attach": "PodAttachOptions",
        "portforward": "PodPortForwardOptions",
    }.items():
        assert lines[f"pods/{name}"]["kind"] == kind
        assert lines[f"pods/{name}"]["verbs"] == ["create", "get"]
        path = paths[f"/api/v1/namespaces/{{namespace}}/pods/{{name}}/{name}"]
        assert {"get", "post"} <= path.keys()
