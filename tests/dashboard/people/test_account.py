"""A person's own account: tokens, kubeconfig files, password, sessions."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.auth.models import User
from django.test import Client

from dashboard.people.account import browser_of
from manciple.access.authentication import tokens
from manciple.access.models import SignIn, Token
from manciple.access.people import MOST_BY_NAME, stored_key
from tests.dashboard import texts

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"
NEW = "another horse entirely"


@pytest.fixture
def alice() -> User:
    return User.objects.create_user("alice", password=PASSWORD)


@pytest.fixture
def client(alice: User) -> Client:
    return signed_in("alice")


def signed_in(name: str, password: str = PASSWORD) -> Client:
    client = Client(headers={"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"})
    answer = client.post("/login", {"username": name, "password": password}, REMOTE_ADDR="203.0.113.7")
    assert answer.status_code == 302
    return client


def make(client: Client, **fields: str) -> Any:
    return client.post("/account/tokens", {"title": "laptop", "days": "90", **fields})


def shown(answer: Any) -> str:
    found = re.search(r"mcp_\w{46}", answer.content.decode())
    assert found is not None
    return found.group()


def test_a_token_is_shown_once_and_opens_what_the_person_may_do(client: Client) -> None:
    answer = make(client, description="my own")
    assert answer.status_code == 200
    assert "no-store" in answer.headers["Cache-Control"]
    text = shown(answer)
    identity = tokens.identify(text, address="198.51.100.9")
    assert identity is not None
    assert identity.name == "alice"
    assert identity.groups == ("manciple:people", "system:authenticated")

    page = client.get("/account").content.decode()
    assert text not in page
    for told in ("laptop", "my own", text[:12], "198.51.100.9"):
        assert told in page
    assert text not in str(dict(client.session))


def test_a_kubeconfig_is_downloaded_ready_to_use(client: Client, settings: Any, tmp_path: Path) -> None:
    settings.CA_FILE = tmp_path / "ca.crt"
    document = yaml.safe_load(make(client, kubeconfig="1").content)
    assert document["clusters"][0]["cluster"] == {"server": "https://testserver:6443"}, "where the dashboard is"
    settings.API_URL = "https://api.example.org:6443"
    settings.CA_FILE.write_text("PEM")
    answer = make(client, kubeconfig="1", title="My lap/top")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="kubeconfig-alice-my-laptop.yaml"'
    assert "no-store" in answer.headers["Cache-Control"]
    document = yaml.safe_load(answer.content)
    assert document["clusters"][0]["cluster"]["server"] == "https://api.example.org:6443"
    assert document["clusters"][0]["cluster"]["certificate-authority-data"]
    assert tokens.identify(document["users"][0]["user"]["token"]) is not None


WRONG = {
    "no title": {"title": ""},
    "a lifetime that is not offered": {"days": "4000"},
    "no end where one is needed": {"days": "never"},
    "no number": {"days": "nan"},
    "a title that is too long": {"title": "x" * 101},
}


def test_a_token_that_may_not_be_is_not_made(client: Client) -> None:
    for case, fields in WRONG.items():
        answer = make(client, **fields)
        assert answer.status_code == 422, case
        assert b"field-error" in answer.content, case
    assert not Token.objects.exists()


def test_lifetimes_are_those_of_the_settings_and_the_chosen_one_counts(client: Client, settings: Any) -> None:
    settings.TOKEN_MAX_DAYS, settings.TOKEN_DAYS = 30.0, 14.0
    page = client.get("/account").content.decode()
    assert re.findall(r'<option value="(\w+)"', page) == ["1", "7", "14", "30"]
    assert '<option value="14" selected>' in page
    make(client, days="7")
    settings.TOKEN_MAX_DAYS = 0.0
    make(client, days="never")
    week, endless = Token.objects.order_by("created")
    assert week.expires is not None
    assert (week.expires - week.created, endless.expires) == (timedelta(days=7), None)


def test_revoked_tokens_let_nobody_in(client: Client) -> None:
    texts = [shown(make(client)) for _ in range(3)]
    first = Token.objects.order_by("created")[0]
    assert client.post("/account/tokens/revoke", {"token": first.pk}).status_code == 302
    assert [tokens.identify(text) is None for text in texts] == [True, False, False]
    assert client.post("/account/tokens/revoke", {"token": first.pk}).status_code == 404
    assert b"Revoke all" in client.get("/account").content
    client.post("/account/tokens/revoke", {"all": "1"})
    assert not Token.objects.exists()


def test_nobody_sees_or_revokes_the_tokens_of_another(client: Client) -> None:
    User.objects.create_user("bob", password=PASSWORD)
    others = shown(make(signed_in("bob"), title="bobs laptop"))
    for given in (Token.objects.get().pk, "", "x", "-1", "9" * 30, "\u0661"):
        assert client.post("/account/tokens/revoke", {"token": given}).status_code == 404, given
    client.post("/account/tokens/revoke", {"all": "1"})
    assert tokens.identify(others) is not None
    tokens.issue("alice", ["system:masters"])  # a machine of the same name is not this person
    page = client.get("/account").content.decode()
    assert "bobs laptop" not in page
    assert 'name="token"' not in page


# The password.


def change(client: Client, *, old: str = PASSWORD, new: str = NEW, again: str = "") -> Any:
    return client.post("/account/password", {"old": old, "new": new, "again": again or new})


def test_a_changed_password_keeps_this_browser_and_ends_the_others(client: Client, alice: User) -> None:
    elsewhere = signed_in("alice")
    key = client.session.session_key
    assert change(client).status_code == 302
    assert client.session.session_key != key
    assert b"Your password is changed" in client.get("/account").content
    assert elsewhere.get("/account").status_code == 302
    assert [one.session_key for one in SignIn.objects.all()] == [stored_key(client.session.session_key or "")]
    alice.refresh_from_db()
    assert alice.check_password(NEW)


REFUSED = {
    "the old one is wrong": ({"old": "wrong"}, "Wrong password."),
    "the new ones differ": ({"again": "something else"}, "differ"),
    "the new one is common": ({"new": "password123"}, "too common"),
    "the new one is short": ({"new": "abc"}, "too short"),
    "the new one is like the name": ({"new": "alice123"}, "too similar"),
}


@pytest.mark.parametrize(("fields", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_a_password_that_will_not_do_changes_nothing(
    client: Client, alice: User, fields: dict[str, str], told: str
) -> None:
    answer = change(client, **fields)
    assert answer.status_code == 422
    assert told in answer.content.decode()
    alice.refresh_from_db()
    assert alice.check_password(PASSWORD)
    assert client.get("/account").status_code == 200


def test_an_open_browser_is_no_place_to_try_passwords_at(client: Client) -> None:
    for _ in range(MOST_BY_NAME):
        change(client, old="wrong")
    answer = change(client)
    assert answer.status_code == 422
    assert texts.TOO_MANY_SIGN_INS in answer.content.decode()


def test_who_has_no_password_changes_none(client: Client, alice: User) -> None:
    alice.set_unusable_password()
    alice.save()
    client.force_login(alice)
    assert b"Change password" not in client.get("/account").content
    assert change(client, old="").status_code == 422


# Sessions.


def test_a_person_signs_out_everywhere_else(client: Client) -> None:
    elsewhere = signed_in("alice")
    page = client.get("/account").content.decode()
    assert page.count("Firefox on Linux") == 2
    assert page.count("this one") == 1
    assert client.post("/account/sessions").status_code == 302
    assert elsewhere.get("/account").status_code == 302
    assert client.get("/account").status_code == 200


AGENTS = {
    "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0": "Edge on Windows",
    "Mozilla/5.0 (Linux; Android 16) AppleWebKit/537.36 Chrome/140.0 Mobile Safari/537.36": "Chrome on Android",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) Version/19.0 Safari/605": "Safari on iPhone",
    "curl/8.10": "curl/8.10",
    "": "unknown browser",
}


def test_a_browser_has_a_name_that_its_owner_knows() -> None:
    assert {agent: browser_of(SignIn(agent=agent)) for agent in AGENTS} == AGENTS


# Who may.


POSTS = ("/account/tokens", "/account/tokens/revoke", "/account/password", "/account/sessions")


def test_a_form_of_another_site_changes_nothing(alice: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    for path in POSTS:
        assert client.post(path, {"title": "x", "days": "90", "all": "1"}).status_code == 403, path
    assert not Token.objects.exists()
