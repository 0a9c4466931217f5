"""TokenReview: whose token somebody was shown, told to nodes and administrators."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from manciple.access.authentication import tokens
from tests.manciple.api.requests import Api

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
API = "https://kubernetes.default.svc"
AGENT = "system:node:alpha:c0ffee"
NODE = (AGENT, API)


def review(token: str, *audiences: str) -> dict[str, object]:
    spec = {"token": token, "audiences": list(audiences)}
    return {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": spec}


@pytest.fixture
def node(api: Api) -> Api:
    return Api(tokens.issue("system:node:alpha", ["system:nodes"]))


def test_the_token_of_a_user_is_told_with_name_and_groups(node: Api) -> None:
    token = tokens.issue("bob", ["team"])
    assert node.made(PATH, review(token))["status"] == {
        "authenticated": True,
        "user": {"username": "bob", "groups": ["team", "system:authenticated"]},
        "audiences": [API],
    }


@pytest.mark.parametrize("audiences", [(), (AGENT,), NODE])
def test_a_token_that_nobody_holds_is_not_authenticated(node: Api, audiences: tuple[str, ...]) -> None:
    assert node.made(PATH, review("abc", *audiences))["status"]["error"] == "invalid bearer token"
    assert "authenticated" not in node.made(PATH, review("abc", *audiences))["status"]


def test_an_expired_token_is_not_authenticated(node: Api) -> None:
    token = tokens.issue("bob", [], lifetime=timedelta(seconds=-1))
    assert "authenticated" not in node.made(PATH, review(token))["status"]


def test_the_api_server_is_known_to_the_agent_of_the_node_that_its_token_names(node: Api) -> None:
    status = node.made(PATH, review(tokens.issue_for_node("alpha", certificate="c0ffee"), *NODE))["status"]
    assert status["authenticated"]
    assert status["user"]["username"] == "system:kube-apiserver"
    assert status["audiences"] == [AGENT]


@pytest.mark.parametrize("audiences", [(), ("system:node:beta:c0ffee",), ("system:node:alpha:facade",), (API,)])
def test_a_token_for_one_agent_is_worth_nothing_elsewhere(node: Api, audiences: tuple[str, ...]) -> None:
    status = node.made(PATH, review(tokens.issue_for_node("alpha", certificate="c0ffee"), *audiences))["status"]
    assert "authenticated" not in status
    assert f"token audiences [{AGENT}] is invalid for the target audiences" in status["error"]


def test_a_token_for_a_node_does_not_open_the_api(api: Api) -> None:
    assert Api(tokens.issue_for_node("alpha", certificate="c0ffee")).get("/api/v1/namespaces").code == 401
    assert api.get("/api/v1/namespaces").code == 200


def test_a_token_for_a_node_expires(node: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tokens.issue_for_node("alpha", certificate="c0ffee")
    assert node.made(PATH, review(token, *NODE))["status"]["authenticated"]
    monkeypatch.setattr(tokens, "AGENT_TOKEN_LIFETIME", -1)
    assert "authenticated" not in node.made(PATH, review(token, *NODE))["status"]


def test_a_token_for_a_node_that_was_changed_is_not_believed() -> None:
    token = tokens.issue_for_node("alpha", certificate="c0ffee")
    assert tokens.audience(token) == AGENT
    payload, stamp, signature = token.split(":")
    other = tokens.issue_for_node("beta", certificate="c0ffee").split(":")[0]
    assert tokens.audience(f"{other}:{stamp}:{signature}") is None
    assert tokens.audience(f"{payload}:{stamp}:{signature[::-1]}") is None


def test_a_token_is_good_in_every_process_with_the_same_key_and_in_no_other() -> None:
    token = tokens.issue_for_node("alpha", certificate="c0ffee")
    with override_settings(SECRET_KEY="another cluster's"):
        assert tokens.audience(token) is None
    assert tokens.audience(token) == AGENT


def test_a_user_may_not_ask(api: Api) -> None:
    bob = Api(tokens.issue("bob", ["team"]))
    answer = bob.post(PATH, review(tokens.issue("carol", [])))
    assert answer.code == 403
    assert answer.message == (
        'tokenreviews.authentication.k8s.io is forbidden: User "bob" cannot create resource "tokenreviews" in API '
        'group "authentication.k8s.io" at the cluster scope'
    )
    assert api.post(PATH, review("abc")).code == 201


def test_a_question_without_a_token_is_a_bad_request(node: Api) -> None:
    answer = node.post(PATH, review(""))
    assert answer.code == 400
    assert answer.message == "token is required for TokenReview in authentication"


def test_token_reviews_are_listed_in_discovery(api: Api) -> None:
    lines = api.get("/apis/authentication.k8s.io/v1").json["resources"]
    assert {"tokenreviews"} == {line["name"] for line in lines if line["kind"] == "TokenReview"}
