"""pods/log against an agent that the test plays: what is handed on, what comes back, and what may go wrong."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from manciple.access.authentication import tokens
from manciple.api import sessions
from nodeagent.http import server as https
from nodeagent.http.server import Endpoint, HttpsAnswer, Request
from tests.e2e.processes import wait_for
from tests.manciple.api.server import ApiServer
from tests.services import free_port

ANNOTATION = "manciple.dev/agent-certificate-sha256"
PODS = "/api/v1/namespaces/default/pods"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
TIMEOUT = 60.0


@dataclass
class FakeAgent:
    """Answers as told. ended: one item for each stream that ended."""

    answer: Callable[[Request], HttpsAnswer] = lambda _: HttpsAnswer(body="hello\n")
    requests: list[Request] = field(default_factory=list)
    ended: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    port: int = 0
    fingerprint: str = ""

    def respond(self, request: Request) -> HttpsAnswer:
        self.requests.append(request)
        return self.answer(request)

    def stream(self, request: Request) -> HttpsAnswer:
        return HttpsAnswer(body=self._pieces(request))

    def _pieces(self, request: Request) -> Iterator[bytes]:
        yield b"one\n"
        while not request.hung_up.wait(0.05):
            pass
        self.ended.put("ended")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> https.Certificate:
    return https.ensure_certificate(tmp_path_factory.mktemp("serving"), ("alpha", "127.0.0.1"))


@pytest.fixture
def agent(certificate: https.Certificate) -> Iterator[FakeAgent]:
    made = FakeAgent(fingerprint=certificate.fingerprint)
    endpoint = Endpoint("127.0.0.1", 0, certificate.context(), made.respond)
    endpoint.start()
    made.port = endpoint.port
    yield made
    endpoint.stop()


@pytest.fixture
def http(api_server: ApiServer) -> Iterator[httpx.Client]:
    with api_server.client() as client:
        yield client


def let_view(http: httpx.Client, name: str) -> None:
    binding = {
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": name}],
    }
    assert http.post(BINDINGS, json=binding).status_code == 201


def container(name: str) -> dict[str, Any]:
    return {"name": name, "image": "busybox"}


def make_pod(http: httpx.Client, name: str = "p", *names: str, node: str = "alpha", **spec: Any) -> None:
    containers = [container(one) for one in names or ("main",)]
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, **({"nodeName": node} if node else {}), **spec},
    }
    assert http.post(PODS, json=document).status_code == 201


def make_node(
    http: httpx.Client, *, port: int, fingerprint: str, addresses: tuple[tuple[str, str], ...] | None = None
) -> None:
    """The node alpha, its agent on this machine's loopback."""
    annotations = {ANNOTATION: fingerprint} if fingerprint else {}
    meta = {"name": "alpha", "annotations": annotations}
    made = http.post("/api/v1/nodes", json={"apiVersion": "v1", "kind": "Node", "metadata": meta})
    assert made.status_code == 201, made.text
    addresses = (("Hostname", "alpha"), ("InternalIP", "127.0.0.1")) if addresses is None else addresses
    status = {
        "addresses": [{"type": type_, "address": address} for type_, address in addresses],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    assert http.put("/api/v1/nodes/alpha/status", json={**made.json(), "status": status}).status_code == 200


@pytest.fixture
def bound(http: httpx.Client, agent: FakeAgent) -> FakeAgent:
    """Pod p is bound to the node of the agent."""
    make_node(http, port=agent.port, fingerprint=agent.fingerprint)
    make_pod(http)
    return agent


def test_the_log_comes_from_the_agent_of_the_pods_node(http: httpx.Client, bound: FakeAgent) -> None:
    answer = http.get(f"{PODS}/p/log")
    assert (answer.status_code, answer.text) == (200, "hello\n")
    assert answer.headers["content-type"] == "text/plain"
    (request,) = bound.requests
    assert request.path == ("containerLogs", "default", "p", "main")
    assert request.query == {}
    assert tokens.audience(request.token) == f"system:node:alpha:{bound.fingerprint}"


def test_the_options_are_handed_on(http: httpx.Client, bound: FakeAgent) -> None:
    query = {
        "previous": "true",
        "timestamps": "1",
        "follow": "false",
        "tailLines": "5",
        "limitBytes": "100",
        "sinceTime": "2026-05-01T12:00:00Z",
        "stream": "Stdout",
    }
    assert http.get(f"{PODS}/p/log", params={**query, "container": "main"}).status_code == 200
    assert bound.requests[0].query == {
        "previous": "true",
        "timestamps": "true",
        "tailLines": "5",
        "limitBytes": "100",
        "sinceTime": "2026-05-01T12:00:00Z",
        "stream": "Stdout",
    }


def test_following_sends_each_piece_as_it_comes_and_ends_with_the_client(
    api_server: ApiServer, http: httpx.Client, bound: FakeAgent
) -> None:
    bound.answer = bound.stream
    with (
        api_server.client() as follower,
        follower.stream("GET", f"{PODS}/p/log", params={"follow": "true"}) as response,
    ):
        lines = response.iter_lines()  # kept: an iterator that nobody has ends its connection
        assert next(lines) == "one"
        assert http.get(f"{PODS}/p").status_code == 200
    assert bound.ended.get(timeout=TIMEOUT) == "ended"


def test_logs_count_among_the_sessions_of_whoever_reads_them(
    api_server: ApiServer, http: httpx.Client, bound: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound.answer = bound.stream
    monkeypatch.setattr(sessions, "MOST_EACH", 2)
    let_view(http, "bob")
    follow = {"follow": "true"}
    with api_server.client(token=tokens.issue("bob", [])) as bob:
        with ExitStack() as held:
            for _ in range(2):
                held.enter_context(bob.stream("GET", f"{PODS}/p/log", params=follow))
            refused = bob.get(f"{PODS}/p/log", params=follow)
            assert (refused.status_code, refused.json()["reason"]) == (429, "TooManyRequests")
            assert {request.person for request in bound.requests} == {"bob"}
            with http.stream("GET", f"{PODS}/p/log", params=follow) as response:  # others have theirs
                assert response.status_code == 200
        wait_for("room", lambda: sessions.OPEN.count("bob") == 0)
        with bob.stream("GET", f"{PODS}/p/log", params=follow) as response:
            assert response.status_code == 200


def test_an_agent_with_too_many_logs_says_so(http: httpx.Client, bound: FakeAgent) -> None:
    bound.answer = lambda _: HttpsAnswer(code=429, body="this node has 96 sessions and logs")
    answer = http.get(f"{PODS}/p/log")
    assert (answer.status_code, answer.json()["message"]) == (429, "this node has 96 sessions and logs")
    assert answer.headers["retry-after"]


def test_more_follow_than_there_are_threads(api_server: ApiServer, http: httpx.Client, bound: FakeAgent) -> None:
    bound.answer = bound.stream
    followers = [api_server.client() for _ in range(20)]
    streams = [one.stream("GET", f"{PODS}/p/log", params={"follow": "true"}) for one in followers]
    lines = [stream.__enter__().iter_lines() for stream in streams]
    assert [next(one) for one in lines] == ["one"] * 20
    assert http.get(f"{PODS}/p").status_code == 200
    for follower in followers:
        follower.close()
    assert [bound.ended.get(timeout=TIMEOUT) for _ in followers] == ["ended"] * 20


def test_a_log_that_breaks_off_does_not_look_complete(http: httpx.Client, bound: FakeAgent) -> None:
    def broken() -> Iterator[bytes]:
        yield b"one\n"
        raise OSError("the disk is gone")

    bound.answer = lambda _: HttpsAnswer(body=broken())
    with pytest.raises(httpx.RemoteProtocolError):
        http.get(f"{PODS}/p/log")


def test_a_pod_without_a_node_has_an_empty_log(http: httpx.Client) -> None:
    make_pod(http, node="")
    answer = http.get(f"{PODS}/p/log")
    assert (answer.status_code, answer.text) == (200, "")


# Which container.

INIT: dict[str, Any] = {"initContainers": [container("first")]}
CONTAINERS: dict[str, tuple[tuple[str, ...], dict[str, Any], str, str]] = {
    "the only one": (("main",), {}, "", "main"),
    "the only one besides an init container": (("main",), INIT, "", "main"),
    "an init container": (("main",), INIT, "first", "first"),
    "one of two": (("a", "b"), {}, "b", "b"),
}
NO_CONTAINER: dict[str, tuple[tuple[str, ...], dict[str, Any], str, str]] = {
    "none of two": (
        ("a", "b"),
        INIT,
        "",
        "a container name must be specified for pod p, choose one of: [first a b]",
    ),
    "one that is not there": (("a",), {}, "x", "container x is not valid for pod p"),
}


@pytest.mark.parametrize("case", CONTAINERS)
def test_the_container_is_chosen(http: httpx.Client, agent: FakeAgent, case: str) -> None:
    names, spec, wanted, expected = CONTAINERS[case]
    make_node(http, port=agent.port, fingerprint=agent.fingerprint)
    make_pod(http, "p", *names, **spec)
    assert http.get(f"{PODS}/p/log", params={"container": wanted}).status_code == 200
    assert agent.requests[0].path[-1] == expected


@pytest.mark.parametrize("case", NO_CONTAINER)
def test_a_container_that_cannot_be_chosen_is_a_bad_request(http: httpx.Client, case: str) -> None:
    names, spec, wanted, message = NO_CONTAINER[case]
    make_pod(http, "p", *names, **spec)
    answer = http.get(f"{PODS}/p/log", params={"container": wanted})
    assert (answer.status_code, answer.json()["reason"], answer.json()["message"]) == (400, "BadRequest", message)


def test_a_log_ends_with_the_right_to_read_it(api_server: ApiServer, http: httpx.Client, bound: FakeAgent) -> None:
    bound.answer = bound.stream
    let_view(http, "bob")
    with (
        api_server.client(token=tokens.issue("bob", [])) as bob,
        bob.stream("GET", f"{PODS}/p/log", params={"follow": "true"}) as response,
    ):
        pieces = response.iter_text()
        assert next(pieces) == "one\n"
        assert http.delete(f"{BINDINGS}/bob").status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
    assert bound.ended.get(timeout=TIMEOUT) == "ended"


# What is refused.

SINCE_TWICE = 'PodLogOptions "p" is invalid: : Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified'
OPTIONS = {
    "tailLines=-1": (
        422,
        'PodLogOptions "p" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0',
    ),
    "limitBytes=0": (422, 'PodLogOptions "p" is invalid: limitBytes: Invalid value: 0: must be greater than 0'),
    "sinceSeconds=0": (422, 'PodLogOptions "p" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0'),
    "sinceSeconds=1&sinceTime=2026-05-01T12:00:00Z": (422, SINCE_TWICE),
    "stream=x": (422, 'PodLogOptions "p" is invalid: stream: Unsupported value: "x"'),
    "tailLines=x": (400, "tailLines: 'x' is not a whole number"),
    "sinceTime=yesterday": (400, "sinceTime: 'yesterday' is not a time such as 2026-05-01T12:00:00Z"),
}


@pytest.mark.parametrize("query", OPTIONS)
def test_wrong_options_are_refused(http: httpx.Client, bound: FakeAgent, query: str) -> None:
    code, message = OPTIONS[query]
    answer = http.get(f"{PODS}/p/log?{query}")
    assert answer.status_code == code
    assert answer.json()["message"].startswith(message)
    assert bound.requests == []


def test_a_pod_that_is_not_there_has_no_log(http: httpx.Client) -> None:
    answer = http.get(f"{PODS}/p/log")
    assert (answer.status_code, answer.json()["message"]) == (404, 'pods "p" not found')


def test_without_a_token_nothing_is_shown(api_server: ApiServer, bound: FakeAgent) -> None:
    with api_server.client(token="") as nobody:
        assert nobody.get(f"{PODS}/p/log").status_code == 403
    assert bound.requests == []


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_log_is_only_read(http: httpx.Client, bound: FakeAgent, method: str) -> None:
    assert http.request(method, f"{PODS}/p/log", json={}).status_code == 405
    assert bound.requests == []


@pytest.mark.parametrize("path", ["/api/v1/namespaces/default/events/e/log", "/api/v1/nodes/alpha/log"])
def test_other_kinds_have_no_log(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 404


# What the agent says, and what becomes of an agent that says nothing.

WAITING = 'container "main" in pod "p" is waiting to start: ContainerCreating'
SAID = {
    "a bad request": (400, WAITING, 400, "BadRequest", WAITING),
    "not found": (404, 'pod "p" does not exist', 404, "NotFound", 'pod "p" does not exist'),
    "a failure": (
        500,
        "oh",
        500,
        "InternalError",
        'Internal error occurred: the agent of node "alpha" answered 500: oh',
    ),
    "no entry": (401, "Unauthorized", 500, "InternalError", "all API servers have the same MANCIPLE_SECRET_KEY"),
}


@pytest.mark.parametrize("case", SAID)
def test_what_the_agent_refuses_becomes_a_status(http: httpx.Client, bound: FakeAgent, case: str) -> None:
    code, text, answered, reason, message = SAID[case]
    bound.answer = lambda _: HttpsAnswer(code=code, body=text)
    answer = http.get(f"{PODS}/p/log")
    assert (answer.status_code, answer.json()["reason"]) == (answered, reason)
    assert message in answer.json()["message"]


def test_an_agent_that_does_not_answer_is_told_with_what_to_do(http: httpx.Client) -> None:
    port = free_port()
    make_node(http, port=port, fingerprint="ab")
    make_pod(http)
    answer = http.get(f"{PODS}/p/log")
    assert (answer.status_code, answer.json()["reason"]) == (500, "InternalError")
    message = answer.json()["message"]
    assert message.startswith(f'Get "https://127.0.0.1:{port}/containerLogs/default/p/main": ')
    assert 'the agent of node "alpha" does not answer: see that it runs, and that this server can reach' in message


def test_somebody_else_in_the_agents_place_is_shown_no_token(http: httpx.Client, agent: FakeAgent) -> None:
    make_node(http, port=agent.port, fingerprint="0" * 64)
    make_pod(http)
    answer = http.get(f"{PODS}/p/log")
    assert answer.status_code == 500
    assert "another certificate than that of the agent" in answer.json()["message"]
    assert agent.requests == []


def test_whoever_answers_is_believed_where_the_client_wants_that(http: httpx.Client, agent: FakeAgent) -> None:
    make_node(http, port=agent.port, fingerprint="0" * 64)
    make_pod(http)
    answer = http.get(f"{PODS}/p/log", params={"insecureSkipTLSVerifyBackend": "true"})
    assert (answer.status_code, answer.text) == (200, "hello\n")
    # What it was shown is good behind its own certificate, and not behind that of the node's agent.
    assert tokens.audience(agent.requests[0].token) == f"system:node:alpha:{agent.fingerprint}"


def test_nobody_answers_where_anybody_would_be_believed(http: httpx.Client) -> None:
    port = free_port()
    make_node(http, port=port, fingerprint="")
    make_pod(http)
    answer = http.get(f"{PODS}/p/log", params={"insecureSkipTLSVerifyBackend": "true"})
    assert (answer.status_code, answer.json()["reason"]) == (500, "InternalError")
    assert answer.json()["message"].endswith(f" {port}")


# What a Node may not make the API server do.

ELSEWHERE = ("169.254.169.254", "0.0.0.0", "224.0.0.1", "::ffff:169.254.169.254", "no..name")


@pytest.mark.parametrize("trusting", ["false", "true"])
@pytest.mark.parametrize("address", ELSEWHERE)
def test_an_address_that_is_no_nodes_is_not_connected_to(http: httpx.Client, address: str, trusting: str) -> None:
    make_node(http, port=443, fingerprint="ab", addresses=(("InternalIP", address),))
    make_pod(http)
    answer = http.get(f"{PODS}/p/log", params={"insecureSkipTLSVerifyBackend": trusting})
    assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")
    assert 'node "alpha"' in answer.json()["message"]
    assert address in answer.json()["message"]


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1"])
def test_in_production_the_api_server_does_not_connect_to_itself(
    http: httpx.Client, agent: FakeAgent, settings: Any, address: str
) -> None:
    settings.LOCAL_CONNECTIONS = False
    make_node(http, port=agent.port, fingerprint=agent.fingerprint, addresses=(("InternalIP", address),))
    make_pod(http)
    answer = http.get(f"{PODS}/p/log")
    assert (answer.status_code, agent.requests) == (400, [])
    assert "MANCIPLE_LOCAL_CONNECTIONS=1" in answer.json()["message"]


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_redirects_are_not_followed(http: httpx.Client, bound: FakeAgent, code: int) -> None:
    location = f"text/plain\r\nLocation: https://127.0.0.1:{bound.port}/healthz"
    bound.answer = lambda _: HttpsAnswer(code=code, body="elsewhere", content_type=location)
    answer = http.get(f"{PODS}/p/log")
    assert answer.status_code == 500
    assert f" {code}: elsewhere" in answer.json()["message"]
    assert len(bound.requests) == 1


def test_an_answer_without_end_is_cut_off(
    http: httpx.Client, bound: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inventory.agents.ANSWER_BYTES", 1_000_000)
    bound.answer = lambda request: HttpsAnswer(body=(b"x" * 65536 for _ in iter(request.hung_up.is_set, True)))
    with pytest.raises(httpx.RemoteProtocolError):
        http.get(f"{PODS}/p/log")


UNREACHABLE: dict[str, tuple[int, str, tuple[tuple[str, str], ...] | None, str]] = {
    "no port": (0, "ab", None, "start the agent with --listen ADDRESS:PORT"),
    "no address": (1, "ab", (), 'node "alpha": no preferred addresses found; known addresses: []'),
    "no certificate": (1, "", None, f"annotation {ANNOTATION}"),
}


@pytest.mark.parametrize("case", UNREACHABLE)
def test_a_node_that_does_not_say_how_its_agent_is_reached(http: httpx.Client, case: str) -> None:
    port, fingerprint, addresses, message = UNREACHABLE[case]
    make_node(http, port=port, fingerprint=fingerprint, addresses=addresses)
    make_pod(http)
    answer = http.get(f"{PODS}/p/log")
    assert (answer.status_code, answer.json()["reason"]) == (500, "InternalError")
    assert message in answer.json()["message"]


def test_a_pod_on_a_node_that_is_gone(http: httpx.Client) -> None:
    make_pod(http, node="beta")
    answer = http.get(f"{PODS}/p/log")
    assert (answer.status_code, answer.json()["message"]) == (404, 'nodes "beta" not found')


# How clients find it.


def test_pods_log_is_listed_in_discovery(http: httpx.Client) -> None:
    lines = {line["name"]: line for line in http.get("/api/v1").json()["resources"]}
    expected = {"name": "pods/log", "singularName": "", "namespaced": True, "kind": "Pod", "verbs": ["get"]}
    assert lines["pods/log"] == expected


@pytest.mark.parametrize("path", ["/openapi/v3/api/v1", "/openapi/v2"])
def test_pods_log_is_described(http: httpx.Client, path: str) -> None:
    document = http.get(path, headers={"Accept": "application/json"}).json()
    operation = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/log"]["get"]
    assert operation["operationId"] == "readCoreV1NamespacedPodLog"
    names = {parameter["name"] for parameter in operation["parameters"]}
    assert {"container", "follow", "previous", "sinceSeconds", "tailLines", "timestamps", "limitBytes"} <= names
    assert "text/plain" in json.dumps(operation)
