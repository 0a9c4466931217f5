"""Webhooks that are slow, call back, or undo each other cost others little; only administrators install any."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from manciple.access import webhook_client
from manciple.access.authentication import tokens
from manciple.access.bootstrap import ensure_roles
from manciple.per_process import PerProcess
from tests.e2e.processes import wait_for
from tests.manciple.admission.conftest import listening, server
from tests.manciple.admission.documents import (
    BINDINGS,
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    MUTATING_WEBHOOKS,
    POLICIES,
    WEBHOOKS,
    binding,
    config_map,
    mutating_binding,
    mutating_policy,
    mutating_webhooks,
    policy,
    webhook,
    webhooks,
)
from tests.manciple.admission.webhook_server import WebhookServer
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api
from tests.manciple.api.server import ApiServer, api_server, server_certificates
from tests.manciple.extensions.builders import DEFINITIONS, definition, version

__all__ = ["api", "api_server", "listening", "server", "server_certificates"]

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PLACES = 3


@pytest.fixture(autouse=True)
def few_places(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    places = PerProcess(lambda: threading.BoundedSemaphore(PLACES))
    monkeypatch.setattr(webhook_client, "_places", places)
    monkeypatch.setattr(webhook_client, "PLACE_SECONDS", 0.2)
    yield
    assert all(places.value.acquire(blocking=False) for _ in range(PLACES)), "a place was not given back"


def install(api_server: ApiServer, path: str, document: Any) -> None:
    with api_server.client() as http:
        answer = http.post(path, json=document)
        assert answer.status_code == 201, answer.text


def test_slow_webhooks_leave_threads_to_those_who_need_none(api_server: ApiServer, server: WebhookServer) -> None:
    server.behaviours["/"] = {"late": True, "response": {"allowed": True}}
    install(api_server, WEBHOOKS, webhooks(webhook(server.client_config("/"), timeoutSeconds=20)))
    tenants = [tokens.issue(f"tenant-{number}", ["system:masters"]) for number in range(6)]

    def create(number: int) -> httpx.Response:
        with api_server.client(token=tenants[number % len(tenants)]) as http:
            return http.post(CONFIG_MAPS, json=config_map(f"c-{number}"))

    with ThreadPoolExecutor(12) as clients:
        answers = [clients.submit(create, number) for number in range(12)]
        wait_for("all places to be taken", lambda: len(server.asked) == PLACES)
        refused = wait_for("some to be refused", lambda: [one for one in answers if one.done()])
        with api_server.client() as http:  # while the first ones wait still
            assert http.get(CONFIG_MAPS).status_code == 200
            assert http.post("/api/v1/namespaces", json={"metadata": {"name": "other"}}).status_code == 201
        wait_for("the others to be refused", lambda: sum(one.done() for one in answers) == 12 - PLACES)
        assert {one.result().status_code for one in refused} == {429}
        assert refused[0].result().headers["Retry-After"] == "1"
        server.closing.set()
        codes = [one.result().status_code for one in answers]
    server.closing.clear()
    assert sorted(codes) == [201] * PLACES + [429] * (12 - PLACES)


def test_a_webhook_that_calls_back_ends(api_server: ApiServer, server: WebhookServer) -> None:
    """Each call of the webhook makes another request about which it is asked."""

    def call_back(review: Any) -> list[Any]:
        name = review["request"]["object"]["metadata"]["name"]
        with api_server.client() as http:
            answer = http.post(CONFIG_MAPS, json=config_map(f"{name}x"))
        codes.append(answer.status_code)
        return []

    codes: list[int] = []
    server.behaviours["/"] = {"patch": call_back}
    install(api_server, MUTATING_WEBHOOKS, mutating_webhooks(webhook(server.client_config("/"), timeoutSeconds=10)))
    with api_server.client() as http:
        assert http.post(CONFIG_MAPS, json=config_map("c")).status_code == 201
        assert codes == [429, *[201] * (PLACES - 1)]
        assert http.get(CONFIG_MAPS).status_code == 200


def test_two_that_undo_each_other_are_asked_twice(api: Api, server: WebhookServer) -> None:
    hooks = []
    for text in ("a", "b"):
        server.behaviours[f"/{text}"] = {"patch": [{"op": "add", "path": "/data", "value": {"by": text}}]}
        client = server.client_config(f"/{text}")
        hooks.append(webhook(client, name=f"{text}.example.com", reinvocationPolicy="IfNeeded"))
    api.made(MUTATING_WEBHOOKS, mutating_webhooks(*hooks))
    expressions = [f'Object{{data: {{"policy": string(size(object.data)) + "{text}"}}}}' for text in "ab"]
    for number, expression in enumerate(expressions):
        made = mutating_policy(f"p-{number}", expression, reinvocationPolicy="IfNeeded")
        api.made(MUTATING_POLICIES, made)
        api.made(MUTATING_BINDINGS, mutating_binding(f"p-{number}"))
    assert api.made(CONFIG_MAPS, config_map(x="y"))["data"]["by"] == "b"
    assert [path[1] for path, _ in server.asked] == ["a", "b", "a", "b"]


def test_tenants_install_none(api: Api, server: WebhookServer) -> None:
    ensure_roles()
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}
    bound = {"metadata": {"name": "t"}, "subjects": [subject], "roleRef": role}
    api.made("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", bound)
    tenant = Api(tokens.issue("tenant", []))
    assert tenant.post(CONFIG_MAPS, config_map()).code == 201
    hook = webhook(server.client_config("/"))
    for path, document in {
        WEBHOOKS: webhooks(hook),
        MUTATING_WEBHOOKS: mutating_webhooks(hook),
        POLICIES: policy("p", "true"),
        BINDINGS: binding("p"),
        MUTATING_POLICIES: mutating_policy("p", "Object{}"),
        MUTATING_BINDINGS: mutating_binding("p"),
        DEFINITIONS: definition(version("v1")),
    }.items():
        assert tenant.post(path, document).code == 403, path
        assert (
            tenant.patch(f"{path}/p?fieldManager=m", document, content_type="application/apply-patch+yaml").code == 403
        )
        assert tenant.get(path).code == 403, path
        assert tenant.delete(path).code == 403, path
    assert server.asked == []


#: Within the cost that an expression may have, and seconds of work.
COSTLY = """Object{data: {"x": string(range.map(a, range.filter(b, range.exists(c, c > a + b + 1000))).size())}}"""


@pytest.mark.long
def test_costly_policies_end_with_their_request(api_server: ApiServer) -> None:
    """Each has its own limit, all of them together that of the request; meanwhile others are answered."""
    numbers = "[" + ",".join(map(str, range(100))) + "]"
    for number in range(20):
        expression = COSTLY.replace("range", numbers)
        install(api_server, MUTATING_POLICIES, mutating_policy(f"p-{number}", expression, failurePolicy="Ignore"))
        install(api_server, MUTATING_BINDINGS, mutating_binding(f"p-{number}"))

    def create() -> httpx.Response:
        with api_server.client() as http:
            return http.post(CONFIG_MAPS, json=config_map(), timeout=150)

    with ThreadPoolExecutor(1) as clients:
        answer = clients.submit(create)
        with api_server.client() as http:
            while not answer.done():
                asked = time.monotonic()
                assert http.get("/api/v1/namespaces/default").status_code == 200
                assert time.monotonic() - asked < 5
    ended = answer.result()
    assert (ended.status_code, ended.json()["reason"]) == (504, "Timeout"), ended.text
    with api_server.client() as http:
        assert http.get(f"{CONFIG_MAPS}/c").status_code == 404
