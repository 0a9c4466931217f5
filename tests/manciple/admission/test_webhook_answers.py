"""Webhooks are asked what Kubernetes 1.36 asked them, and their answers have the same consequences."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from manciple.access.authentication import tokens
from tests import conformance
from tests.manciple.admission.test_answers import as_told, send, told
from tests.manciple.admission.webhook_server import Review, WebhookServer, self_signed, serving
from tests.manciple.api.requests import Api

#: case -> why ours is answered otherwise
EXPLAINED = {
    "denied, status: code 700": "no answer of HTTP has this code; ours is 400",
}
#: What follows in a message is the words of the language that the server is written in, or an identifier.
_OUR_WORDS = re.compile(r"((?:failed to call webhook|received invalid webhook response): ).*", re.DOTALL)
_DRAWN = re.compile(r'"g-[a-z0-9]{5}"')
_UNTOLD = frozenset({"managedFields", "uid", "creationTimestamp", "resourceVersion", "extra"})


def cases() -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in conformance.read("admission_webhooks.jsonl").splitlines()]
    return {case["name"]: case for case in found}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    with serving(tmp_path_factory.mktemp("webhook")) as server:
        yield server


@pytest.fixture
def admin(api: Api) -> Api:
    """Who asked the reference."""
    return Api(tokens.issue("admin", ["system:masters"]))


@pytest.mark.sample(20)
@pytest.mark.parametrize("case", cases().values(), ids=cases().keys())
def test_webhooks_are_asked_and_heard_as_by_the_reference(
    admin: Api, server: WebhookServer, case: dict[str, Any]
) -> None:
    server.behaviours.update(case["behaviours"])
    for step in case["setup"]:
        answer = send(admin, filled(step, server))
        assert answer.code == 201, answer.text
    same = True
    for step, answered, asked in zip(case["steps"], case["answers"], case["asked"], strict=True):
        del server.asked[:]
        found = settled(told(send(admin, step)))
        expected = settled(as_told(answered))
        if case["name"] in EXPLAINED:
            same = same and found == expected
            continue
        assert found == expected, step
        assert sorted(map(normal, server.asked), key=lambda one: one[0]) == [normal(one) for one in asked], step
    assert not (case["name"] in EXPLAINED and same), "this case agrees by now"


def filled(step: Any, server: WebhookServer) -> Any:
    """With this server in place of the one that was recorded."""
    local = server.url.replace("127.0.0.1", "localhost")
    text = json.dumps(step).replace("SERVER", server.url).replace("LOCALHOST", local)
    other = base64.b64encode(self_signed()[0]).decode() if "OTHER" in text else ""
    return json.loads(text.replace('"CA"', json.dumps(server.ca_bundle)).replace('"OTHER"', json.dumps(other)))


def settled(answer: dict[str, Any]) -> Any:
    def words(found: Any) -> Any:
        if isinstance(found, dict):
            return {key: words(value) for key, value in found.items()}
        if isinstance(found, list):
            return [words(value) for value in found]
        return _OUR_WORDS.sub(r"\1...", found) if isinstance(found, str) else found

    # How a call failed is told in words of its own.
    return json.loads(json.dumps(words(answer)).replace("received invalid webhook response", "failed to call webhook"))


def normal(asked: tuple[str, Review]) -> tuple[str, Any]:
    """Without what is different each time: identifiers, moments, drawn names."""

    def without(found: Any) -> Any:
        if isinstance(found, dict):
            kept = ((key, without(value)) for key, value in found.items() if key not in _UNTOLD)
            # The reference writes an empty metadata of a template's claims.
            return {key: value for key, value in kept if (key, value) != ("metadata", {})}
        return [without(value) for value in found] if isinstance(found, list) else found

    path, review = asked
    return path, json.loads(_DRAWN.sub('"g-NAME"', json.dumps(without(review))))
