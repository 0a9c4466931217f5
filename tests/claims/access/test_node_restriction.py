"""What an agent may write: recorded requests of two agents, against our API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from manciple.access.authentication import tokens
from manciple.wire.identity import AUTHENTICATED, NODES
from tests import conformance
from tests.manciple.access.test_certificate_requests import NODE_SIGNER, PATH, pem
from tests.manciple.access.test_certificate_requests import request as certificate_request
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Answer, Api

__all__ = ["api"]

#: name -> why ours is another answer.
DIFFERENT: Mapping[str, str] = {"invalid status n1": "a phase that does not exist is refused, whoever reports it"}


@cache
def recorded() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(conformance.read("node_requests.json"))
    return document


class Scene:
    """The recorded objects, and uids in place of those of the record."""

    def __init__(self, api: Api) -> None:
        self._uids: dict[str, str] = {}
        self._agents: dict[str, Api] = {}
        for path, body in recorded()["setup"]:
            answer = api.post(path, body)
            assert answer.code in (201, 409), answer.text
        for node in ("n1", "n2"):
            self._uids[f"UID-{node}"] = api.get(f"/api/v1/nodes/{node}").json["metadata"]["uid"]
            self._uids[f"UID-p-p-{node}"] = api.get(f"/api/v1/namespaces/team-b/pods/p-{node}").json["metadata"]["uid"]
            self._uids[f"UID-p-{node}"] = self._uids[f"UID-p-p-{node}"]

    def ask(self, request: Mapping[str, Any]) -> Answer:
        body = json.dumps(request["body"]) if "body" in request else ""
        for placeholder, uid in self._uids.items():
            body = body.replace(f'"{placeholder}"', f'"{uid}"')
        node = request["node"]
        if node not in self._agents:
            self._agents[node] = Api(tokens.issue(f"system:node:{node}", [NODES, AUTHENTICATED]))
        return self._agents[node].send(
            request["method"],
            request["path"],
            body=json.loads(body) if body else None,
            content_type=request.get("type", "application/json"),
        )

    def told(self, answer: Answer) -> str:
        """The message with placeholders in place of our uids."""
        message = answer.message if answer.code >= 400 else ""
        for uid in self._uids.values():
            message = message.replace(uid, "UID")
        return message


def test_every_recorded_request_of_an_agent_is_answered_like_that(api: Api, settings: Any) -> None:
    settings.POD_SECURITY = ""  # as where it was recorded
    scene = Scene(api)
    different = []
    for request in recorded()["requests"]:
        if request["what"] in DIFFERENT:
            continue
        answer = scene.ask(request)
        ours, theirs = (answer.code, scene.told(answer)), (request["code"], request.get("message", ""))
        if ours != theirs:
            different.append((request["node"], request["what"], ours, theirs))
    assert different == []


SERVING_SIGNER = "kubernetes.io/kubelet-serving"
#: (signer, what is asked) -> the refusal; "" for none
CERTIFICATE_REQUESTS = {
    "its own certificate": (NODE_SIGNER, pem("system:node:n1"), ""),
    "another node's": (
        NODE_SIGNER,
        pem("system:node:n2"),
        'certificatesigningrequests.certificates.k8s.io "c" is forbidden: can only create a node CSR with '
        "CN=system:node:n1",
    ),
    "another node's, to serve with": (
        SERVING_SIGNER,
        pem("system:node:n2"),
        'certificatesigningrequests.certificates.k8s.io "c" is forbidden: can only create a node CSR with '
        "CN=system:node:n1",
    ),
    "nonsense": (
        NODE_SIGNER,
        b"nonsense",
        'certificatesigningrequests.certificates.k8s.io "c" is forbidden: unable to parse csr: PEM block type must be '
        "CERTIFICATE REQUEST",
    ),
    "what is no node's, and waits for somebody's approval": (
        "kubernetes.io/kube-apiserver-client",
        pem("alice"),
        "",
    ),
}


@pytest.mark.parametrize("phrase", CERTIFICATE_REQUESTS)
def test_an_agent_asks_for_a_certificate_of_its_own_name_alone(api: Api, phrase: str) -> None:
    signer, content, refusal = CERTIFICATE_REQUESTS[phrase]
    agent = Api(tokens.issue("system:node:n1", [NODES, AUTHENTICATED]))
    usages = ["server auth" if signer == SERVING_SIGNER else "client auth", "digital signature"]
    answer = agent.post(PATH, certificate_request(content, name="c", signerName=signer, usages=usages))
    assert (answer.message if answer.code >= 400 else "") == refusal
