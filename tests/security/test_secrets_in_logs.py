"""No token, password or Secret stands in a log, in the audit trail or in an answer to somebody else, whatever fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from manciple.access.authentication import tokens
from manciple.api import verbs
from manciple.audit import recording, trail
from manciple.audit.models import Entry
from manciple.store.models import Event
from tests.dashboard.browsing import signed_in
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import PODS, Api

__all__ = ["api"]

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
PASSWORD = "a-password-of-nobody-else-17"
#: as it comes, and as it is once it is read
SECRET = ("VmVyeS1wcml2YXRlLTQy", "Very-private-42")


def logged_in_the_trail() -> str:
    trail.flush()
    recording.catch_up()
    return " ".join(f"{one.message} {one.note} {one.reason} {one.name} {one.username}" for one in Entry.objects.all())


def fail(*_arguments: Any, **_keywords: Any) -> None:
    raise RuntimeError("somewhere inside")


def secret(**more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"key": SECRET[0]}, **more}


def review(token: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, **more}}


#: what is asked, right and wrong
REQUESTS: dict[str, Callable[[Api, str], object]] = {
    "a list": lambda api, _: api.get(PODS),
    "something that is missing": lambda api, _: api.get(f"{PODS}/none"),
    "a path that nothing is served at": lambda api, _: api.get("/api/v1/nothing"),
    "a body that cannot be read": lambda api, _: api.post(PODS, b"{"),
    "a review of the token": lambda api, token: api.post(REVIEWS, review(token)),
    "a review with a field that is none": lambda api, token: api.post(
        f"{REVIEWS}?fieldValidation=Strict", review(token, token2=token)
    ),
    "a review with a wrong type": lambda api, token: api.post(REVIEWS, {**review(token), "spec": {"token": [token]}}),
    "a review whose body is damaged": lambda api, token: api.post(REVIEWS, f'{{"spec": {{"token": "{token}"'.encode()),
    "a Secret": lambda api, _: api.post("/api/v1/namespaces/default/secrets", secret()),
    "a Secret of a wrong type": lambda api, _: api.post("/api/v1/namespaces/default/secrets", secret(type=[1])),
    "a Secret without a name": lambda api, _: api.post("/api/v1/namespaces/default/secrets", secret(metadata={})),
}


@pytest.mark.parametrize("what", REQUESTS)
@pytest.mark.parametrize("broken", [False, True], ids=["as it is", "while something inside fails"])
def test_what_a_request_shows_stands_in_no_log(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, what: str, broken: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    token = tokens.issue("bob", ["system:masters"])
    if broken:
        for name in ("create", "list_page", "get"):
            monkeypatch.setattr(verbs, name, fail)
    REQUESTS[what](Api(token), token)
    kept = caplog.text + logged_in_the_trail() + " ".join(Event.objects.values_list("document", flat=True))
    for private in (token, token[12:], *SECRET):
        assert private not in kept, what


def test_no_page_shows_what_is_in_a_secret_not_even_to_an_administrator(api: Api) -> None:
    path = "/api/v1/namespaces/default/secrets"
    api.made(path, secret())
    assert api.put(f"{path}/s", secret(data={"key": "AAAA"}, metadata={"name": "s", "labels": {"a": "b"}})).code == 200
    recording.catch_up()
    browser = signed_in("ada", staff=True)
    shown = [browser.get(page) for page in ("/yaml/secrets/s?ns=default", "/find?q=s", "/audit.csv", "/audit.jsonl")]
    entries = Entry.objects.filter(resource="secrets").values_list("id", flat=True)
    shown += [browser.get(f"/audit?entry={entry}") for entry in entries]
    assert [one.status_code for one in shown] == [404, 200, 200, 200, *[200] * len(entries)]
    text = " ".join(b"".join(one).decode() if one.streaming else one.content.decode() for one in shown)
    assert "secrets" in text
    assert not [private for private in (*SECRET, "AAAA") if private in text]


def test_a_token_that_was_asked_for_stands_in_no_log(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    api.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}})
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    given = api.post(f"{ACCOUNTS}/a/token", wanted).json["status"]["token"]
    assert given.count(".") == 2
    kept = caplog.text + logged_in_the_trail()
    assert given not in kept
    assert given.rpartition(".")[2] not in kept


@pytest.mark.parametrize("right", [True, False])
def test_a_password_that_was_typed_stands_in_no_log(api: Api, caplog: pytest.LogCaptureFixture, right: bool) -> None:
    caplog.set_level(logging.DEBUG)
    User.objects.create_user("alice", password=PASSWORD if right else "another-of-hers-99")
    Client().post("/login", {"username": "alice", "password": PASSWORD})
    assert PASSWORD not in caplog.text + logged_in_the_trail()
