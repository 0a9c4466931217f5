"""Policies and webhooks are asked about sessions (CONNECT), and may change what is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manciple.audit import trail
from manciple.audit.models import Entry
from nodeagent.http import server as https
from tests.manciple.admission import documents, webhook_server
from tests.manciple.admission.webhook_server import WebhookServer, patching
from tests.manciple.api.server import ApiServer
from tests.manciple.api.session_world import (
    LocalAgent,
    SpdyConnection,
    heard,
    path_of,
    place,
    serving,
    websocket,
)
from tests.manciple.api.test_sessions import refusal


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> https.Certificate:
    return https.ensure_certificate(tmp_path_factory.mktemp("serving"), ("alpha", "127.0.0.1"))


@pytest.fixture
def agent(api_server: ApiServer, certificate: https.Certificate) -> Iterator[LocalAgent]:
    made = LocalAgent()
    with serving(made, certificate) as endpoint:
        place(api_server, port=endpoint.port, fingerprint=certificate.fingerprint)
        yield made


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[WebhookServer]:
    with webhook_server.serving(tmp_path) as server:
        yield server


def make(api_server: ApiServer, path: str, document: dict[str, Any]) -> None:
    with api_server.client() as http:
        answer = http.post(path, json=document)
        assert answer.status_code == 201, answer.text


def rules(*subresources: str) -> list[dict[str, Any]]:
    return [documents.rule(f"pods/{name}", "CONNECT") for name in subresources]


#: What is refused of which options, and what is let through.
POLICIES = {
    "exec": ("!has(object.tty)", path_of("exec", "true", stdout=True, tty=True), path_of("exec", "true", stdout=True)),
    "attach": ("!has(object.stdin)", path_of("attach", stdin=True, stdout=True), path_of("attach", stdout=True)),
    "portforward": ("request.name != 'p'", path_of("portforward"), ""),
}


@pytest.mark.parametrize("subresource", POLICIES)
@pytest.mark.parametrize("how", ["websocket", "spdy"])
def test_a_policy_refuses_a_session(api_server: ApiServer, agent: LocalAgent, subresource: str, how: str) -> None:
    expression, refused, allowed = POLICIES[subresource]
    make(api_server, documents.POLICIES, documents.policy("strict", expression, rules=rules(subresource)))
    make(api_server, documents.BINDINGS, documents.binding("strict"))
    code, message = refusal(api_server, refused, how)
    assert code == 422
    assert message.startswith("pods \"p\" is forbidden: ValidatingAdmissionPolicy 'strict'")
    assert agent.requests == []
    if allowed:
        connection = SpdyConnection(api_server, allowed, "v4.channel.k8s.io")
        assert connection.code == 101
        connection.close()


def test_a_policy_for_writes_of_pods_says_nothing_of_sessions(api_server: ApiServer, agent: LocalAgent) -> None:
    wide = [documents.rule("pods", "CREATE", "UPDATE"), documents.rule("pods/log", "CONNECT")]
    make(api_server, documents.POLICIES, documents.policy("strict", "false", rules=wide))
    make(api_server, documents.BINDINGS, documents.binding("strict"))
    with websocket(api_server, path_of("exec", "echo", "hello", stdout=True)) as session:
        assert heard(session).out == b"hello\n"


def test_a_webhook_is_shown_the_options_and_the_trail_has_its_annotation(
    api_server: ApiServer, agent: LocalAgent, hooks: WebhookServer
) -> None:
    hooks.behaviours["/1"] = {"response": {"allowed": True, "auditAnnotations": {"ticket": "4711"}}}
    hook = documents.webhook(hooks.client_config("/1"), rules=rules("exec"))
    make(api_server, documents.WEBHOOKS, documents.webhooks(hook))
    with websocket(api_server, path_of("exec", "echo", "a b", stdout=True, container="main")) as session:
        assert heard(session).out == b"a b\n"
    (_, review), *others = hooks.asked
    assert others == []
    asked = review["request"]
    assert asked["operation"] == "CONNECT"
    assert (asked["kind"]["kind"], asked["resource"]["resource"]) == ("PodExecOptions", "pods")
    assert (asked["subResource"], asked["name"], asked["namespace"]) == ("exec", "p", "default")
    assert asked["userInfo"]["username"] == "admin"
    assert asked["object"] == {
        "kind": "PodExecOptions",
        "apiVersion": "v1",
        "stdout": True,
        "container": "main",
        "command": ["echo", "a b"],
    }
    assert asked["oldObject"] is None
    trail.flush()
    entry = Entry.objects.get(subresource="exec")
    assert "4711" in str(entry.__dict__)


def test_a_webhook_refuses_a_session(api_server: ApiServer, agent: LocalAgent, hooks: WebhookServer) -> None:
    hooks.behaviours["/1"] = {"response": {"allowed": False, "status": {"message": "no shells"}}}
    hook = documents.webhook(hooks.client_config("/1"), rules=rules("*"))
    make(api_server, documents.WEBHOOKS, documents.webhooks(hook))
    for how in ("websocket", "spdy"):
        code, message = refusal(api_server, path_of("exec", "sh", stdout=True), how)
        assert (code, "no shells" in message) == (400, True)
    assert agent.requests == []


def test_a_webhook_changes_the_command(api_server: ApiServer, agent: LocalAgent, hooks: WebhookServer) -> None:
    hooks.behaviours["/1"] = {"response": patching([{"op": "replace", "path": "/command", "value": ["echo", "tame"]}])}
    hook = documents.webhook(hooks.client_config("/1"), rules=rules("exec"))
    make(api_server, documents.MUTATING_WEBHOOKS, documents.mutating_webhooks(hook))
    with websocket(api_server, path_of("exec", "echo", "wild", stdout=True)) as session:
        assert heard(session).out == b"tame\n"


def test_what_a_webhook_makes_of_the_options_is_checked(
    api_server: ApiServer, agent: LocalAgent, hooks: WebhookServer
) -> None:
    hooks.behaviours["/1"] = {"response": patching([{"op": "remove", "path": "/command"}])}
    hook = documents.webhook(hooks.client_config("/1"), rules=rules("exec"))
    make(api_server, documents.MUTATING_WEBHOOKS, documents.mutating_webhooks(hook))
    code, message = refusal(api_server, path_of("exec", "sh", stdout=True), "websocket")
    assert (code, message) == (400, "you must specify at least 1 command for the container")
    assert agent.requests == []
