"""Signing in with a password: links that set it, attempts that are counted, sessions, and what browsers are told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.db import connection
from django.http import HttpRequest
from django.test import Client
from django.utils import timezone

from manciple.access import people, sign_ins
from manciple.access.authentication import tokens
from manciple.access.invitations import GroupRefused, NameRefused, invite
from manciple.access.models import SignIn, SignInAttempts
from manciple.access.people import BROWSER_COOKIE, MOST_BY_ADDRESS, MOST_BY_NAME, PERIOD, SignInLocked, stored_key
from manciple.wire.identity import VIEWERS

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"
STRANGER = "203.0.113.7"


@pytest.fixture
def alice() -> User:
    person = User.objects.create_user("alice", password=PASSWORD)
    person.groups.add(Group.objects.create(name=VIEWERS))
    return person


def try_to_sign_in(
    client: Client, *, name: str = "alice", password: str = PASSWORD, address: str = STRANGER, **query: str
) -> Any:
    form = {"username": name, "password": password, **query}
    return client.post("/login", form, REMOTE_ADDR=address)


# Links.


def set_password(client: Client, path: str, password: str = PASSWORD) -> Any:
    """What answers the form that the link leads to."""
    opened = client.get(path)
    assert opened.status_code == 302, "the link's token goes into the session, and out of the address"
    form = opened.headers["Location"]
    assert path.rsplit("/", 1)[1] not in form
    return client.post(form, {"new_password1": password, "new_password2": password})


def test_who_is_new_sets_a_password_by_a_link_and_is_signed_in() -> None:
    invitation = invite("bob", groups=["namespace:team-a"])
    client = Client()
    assert set_password(client, invitation.path).status_code == 302
    assert client.get("/overview").status_code == 200
    bob = User.objects.get(username="bob")
    assert (bob.is_staff, [group.name for group in bob.groups.all()]) == (False, ["namespace:team-a"])
    assert try_to_sign_in(Client(), name="bob").status_code == 302


def test_a_link_works_once() -> None:
    path = invite("bob").path
    set_password(Client(), path)
    again = Client().get(path)
    assert again.status_code == 410
    assert b"no longer valid" in again.content


def test_a_link_that_was_opened_and_not_used_is_still_good() -> None:
    path = invite("bob").path
    Client().get(path)  # a program that looks where a link in a message leads
    assert set_password(Client(), path).status_code == 302


ENDED: dict[str, Callable[[User], object]] = {
    "the password was set otherwise": lambda user: User.objects.filter(pk=user.pk).update(password="another one"),
    "they have signed in": lambda user: User.objects.filter(pk=user.pk).update(last_login=timezone.now()),
    "they may not sign in any more": lambda user: User.objects.filter(pk=user.pk).update(is_active=False),
    "they are gone": lambda user: user.delete(),
}


@pytest.mark.parametrize("event", ENDED.values(), ids=ENDED.keys())
def test_a_link_ends_with_what_it_was_made_for(alice: User, event: Callable[[User], object]) -> None:
    path = invite("alice").path
    event(alice)
    assert Client().get(path).status_code == 410


def test_a_link_expires(settings: Any, alice: User) -> None:
    path = invite("alice").path
    settings.PASSWORD_RESET_TIMEOUT = -1
    assert Client().get(path).status_code == 410


def test_a_link_of_one_person_does_not_work_for_another(alice: User) -> None:
    _, uid, token = invite("alice").path.rsplit("/", 2)
    other = invite("bob").path.rsplit("/", 2)[1]
    assert Client().get(f"/welcome/{other}/{token}").status_code == 410
    assert Client().get(f"/welcome/{uid}/{token}").status_code == 302


@pytest.mark.parametrize("password", ["short", "password123", "alice123", "1234567890"])
def test_a_password_that_is_easily_guessed_is_refused(alice: User, password: str) -> None:
    answer = set_password(Client(), invite("alice").path, password)
    assert answer.status_code == 422
    assert b"field-error" in answer.content


def test_a_new_password_ends_the_sessions_elsewhere_and_the_lockout(alice: User) -> None:
    elsewhere = Client()
    elsewhere.force_login(alice)
    for _ in range(MOST_BY_NAME + 1):
        try_to_sign_in(Client(), password="wrong")
    client = Client()
    User.objects.filter(pk=alice.pk).update(last_login=None)
    set_password(client, invite("alice").path, "another horse")
    assert elsewhere.get("/overview").status_code == 302
    assert client.get("/overview").status_code == 200
    assert try_to_sign_in(Client(), password="another horse").status_code == 302


@pytest.mark.parametrize("group", ["system:masters", "system:nodes"])
def test_nobody_is_invited_into_a_group_of_the_system(group: str) -> None:
    with pytest.raises(GroupRefused, match=group):
        invite("bob", groups=[group])
    assert not User.objects.exists()
    assert not Group.objects.exists()


@pytest.mark.parametrize("name", ["", "system:admin", "a b", "x" * 151])
def test_nobody_is_invited_under_a_name_that_is_none(name: str) -> None:
    with pytest.raises(NameRefused):
        invite(name)


def test_a_name_in_other_characters_is_the_same_name() -> None:
    assert invite("n12").new
    assert not invite("\uff4e\uff11\uff12").new
    assert list(User.objects.values_list("username", flat=True)) == ["n12"]


def run(command: str, *arguments: str) -> tuple[str, str]:
    out, error = StringIO(), StringIO()
    call_command(command, *arguments, stdout=out, stderr=error)
    return out.getvalue().strip(), error.getvalue().strip()


def test_the_command_prints_a_link_and_nothing_else_on_its_output() -> None:
    out, told = run("invite", "bob", "--administrator", "--url", "https://lab.example.org/")
    assert out.startswith("https://lab.example.org/welcome/")
    assert told == "bob is new: the link works once, within 24 hours."
    assert User.objects.get(username="bob").is_staff
    assert set_password(Client(), out.removeprefix("https://lab.example.org")).status_code == 302


def test_the_command_tells_of_tokens_that_the_name_has_already() -> None:
    tokens.issue("bob", ["system:masters"])
    tokens.issue("bob", [], lifetime=timedelta(seconds=-1))
    _, told = run("invite", "bob", "--administrator")
    assert "1 token was issued to the name bob, with groups of its own" in told
    assert "issued" not in run("invite", "eve", "--administrator")[1]


def test_inviting_again_changes_nothing_that_was_not_asked_for() -> None:
    run("invite", "bob", "--administrator")
    run("invite", "bob", "--group", "team")
    bob = User.objects.get(username="bob")
    assert (bob.is_staff, bob.groups.count()) == (True, 1)
    run("invite", "bob", "--no-administrator")
    assert not User.objects.get(username="bob").is_staff
    with pytest.raises(CommandError, match="are the system's: nobody is added to system:masters"):
        run("invite", "bob", "--group", "system:masters")


# Attempts.


def test_after_too_many_wrong_passwords_the_right_one_is_not_looked_at_either(alice: User) -> None:
    client = Client()
    for _ in range(MOST_BY_NAME):
        assert try_to_sign_in(client, password="wrong").status_code == 422
    locked = try_to_sign_in(client)
    assert locked.status_code == 429
    assert 0 < int(locked.headers["Retry-After"]) <= PERIOD.total_seconds()
    assert b"Try again in 15 minutes" in locked.content
    assert "_auth_user_id" not in client.session
    assert try_to_sign_in(Client(), address="198.51.100.1").status_code == 429, "from anywhere"


@pytest.mark.parametrize("spelling", ["Alice", "alice ", "\uff41lice"])
def test_other_spellings_of_a_name_are_counted_with_it(alice: User, spelling: str) -> None:
    for _ in range(MOST_BY_NAME):
        try_to_sign_in(Client(), name=spelling, password="wrong")
    assert try_to_sign_in(Client()).status_code == 429


def test_who_guesses_at_many_names_is_locked_out_by_address(alice: User) -> None:
    for number in range(MOST_BY_ADDRESS):
        try_to_sign_in(Client(), name=f"guess-{number}", password="wrong")
    assert try_to_sign_in(Client()).status_code == 429
    assert try_to_sign_in(Client(), address="198.51.100.1").status_code == 302


ADDRESSES = {
    "203.0.113.7": "address:203.0.113.7",
    "::ffff:203.0.113.7": "address:203.0.113.7",
    "2001:db8:1:2:3:4:5:6": "address:2001:db8:1:2::/64",
    "2001:db8:1:2::ffff": "address:2001:db8:1:2::/64",
    "fe80::1%eth0": "address:fe80::/64",
    "127.0.0.1": "",
    "::1": "",
    "": "",
    "unix:": "",
}


@pytest.mark.parametrize(("address", "key"), ADDRESSES.items(), ids=ADDRESSES.keys())
def test_an_address_counts_as_whoever_has_it(address: str, key: str) -> None:
    assert people.address_key(address) == key


def test_a_lockout_passes(alice: User) -> None:
    for _ in range(MOST_BY_NAME + 1):
        try_to_sign_in(Client(), password="wrong")
    past = timezone.now() - PERIOD - timedelta(seconds=1)
    SignInAttempts.objects.update(last=past)
    assert try_to_sign_in(Client()).status_code == 302


def test_attempts_during_a_lockout_do_not_make_it_longer(alice: User) -> None:
    for _ in range(MOST_BY_NAME):
        try_to_sign_in(Client(), password="wrong")
    last = SignInAttempts.objects.get(key=people.name_key("alice")).last
    assert try_to_sign_in(Client()).status_code == 429
    assert SignInAttempts.objects.get(key=people.name_key("alice")).last == last


def test_signing_in_forgives_earlier_mistakes(alice: User) -> None:
    for _ in range(3):
        for _ in range(MOST_BY_NAME - 1):
            try_to_sign_in(Client(), password="wrong")
        assert try_to_sign_in(Client()).status_code == 302


def test_a_stranger_cannot_lock_a_person_out_of_the_browser_that_they_use(alice: User) -> None:
    own = Client()
    try_to_sign_in(own)
    own.post("/logout")
    for _ in range(MOST_BY_NAME + 1):
        try_to_sign_in(Client(), password="wrong", address="198.51.100.1")
    assert try_to_sign_in(Client()).status_code == 429
    assert try_to_sign_in(own).status_code == 302


def test_the_mark_of_a_browser_is_good_for_one_name_and_for_few_attempts(alice: User) -> None:
    User.objects.create_user("mallory", password=PASSWORD)
    client = Client()
    try_to_sign_in(client, name="mallory")
    client.post("/logout")
    for _ in range(MOST_BY_NAME):
        try_to_sign_in(client, password="wrong")
    assert try_to_sign_in(client).status_code == 429, "mallory's browser is none of alice's"
    for _ in range(MOST_BY_NAME):
        try_to_sign_in(client, name="mallory", password="wrong")
    assert try_to_sign_in(client, name="mallory").status_code == 429


@pytest.mark.parametrize("cookie", ["", "forged", "a:b:c"])
def test_a_forged_mark_is_none(alice: User, cookie: str) -> None:
    for _ in range(MOST_BY_NAME):
        try_to_sign_in(Client(), password="wrong")
    client = Client()
    client.cookies[BROWSER_COOKIE] = cookie
    assert try_to_sign_in(client).status_code == 429


def test_what_was_typed_as_a_name_is_not_kept() -> None:
    try_to_sign_in(Client(), name="my-password-in-the-wrong-field", password="wrong")
    kept = " ".join(SignInAttempts.objects.values_list("key", flat=True))
    assert "my-password" not in kept


def test_an_administrator_lifts_a_lockout(alice: User) -> None:
    for _ in range(MOST_BY_NAME):
        try_to_sign_in(Client(), password="wrong")
    assert try_to_sign_in(Client()).status_code == 429
    assert run("unlock", "alice")[0] == "alice may try again"
    assert try_to_sign_in(Client()).status_code == 302
    assert run("unlock", "nobody")[0] == "no failed attempts were counted for nobody"


def test_the_lockout_of_an_address_is_lifted() -> None:
    for number in range(MOST_BY_ADDRESS):
        people.count_attempt(f"guess-{number}", address=STRANGER)
    with pytest.raises(people.SignInLocked):
        people.count_attempt("guess", address=STRANGER)
    people.lift_lockout(STRANGER)
    people.count_attempt("guess", address=STRANGER)


def test_every_way_to_check_a_password_is_counted(alice: User) -> None:
    """Whoever calls `authenticate` is counted, not only the form."""
    request = HttpRequest()
    request.META["REMOTE_ADDR"] = STRANGER
    for _ in range(MOST_BY_NAME):
        assert authenticate(request, username="alice", password="wrong") is None
    assert authenticate(request, username="alice", password=PASSWORD) is None


@pytest.mark.django_db(transaction=True)
def test_attempts_at_the_same_moment_are_all_counted() -> None:
    refused: list[int] = []
    barrier = threading.Barrier(4)

    def guess() -> None:
        barrier.wait()
        for _ in range(5):
            try:
                people.count_attempt("alice", address="")
            except SignInLocked:
                refused.append(1)
        connection.close()

    threads = [threading.Thread(target=guess) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(refused) == 20 - MOST_BY_NAME


# What a refusal tells.


WHO = {
    "nobody of that name": lambda: None,
    "a person": lambda: User.objects.create_user("alice", password=PASSWORD),
    "a person without a password": lambda: User.objects.create_user("alice"),
    "a person who may not sign in": lambda: User.objects.create_user("alice", password=PASSWORD, is_active=False),
}


@pytest.mark.parametrize("make", WHO.values(), ids=WHO.keys())
def test_a_refusal_takes_as_much_work_and_says_the_same_whoever_is_named(
    make: Callable[[], Any], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    monkeypatch.setattr(PBKDF2PasswordHasher, "iterations", 10)
    make()
    hashed: list[int] = []
    encode = PBKDF2PasswordHasher.encode

    def noted(self: Any, password: str, salt: str, iterations: int | None = None) -> str:
        hashed.append(iterations or self.iterations)
        return encode(self, password, salt, iterations)

    monkeypatch.setattr(PBKDF2PasswordHasher, "encode", noted)
    answer = try_to_sign_in(Client(), password="wrong")
    assert hashed == [10]
    assert answer.status_code == 422
    assert b"Wrong username or password" in answer.content


# Sessions.


def test_a_session_that_was_put_into_a_browser_is_worth_nothing_after_signing_in(alice: User) -> None:
    client = Client()
    client.session.save()
    session = client.session
    session["planted"] = "by somebody else"
    session.save()
    planted = session.session_key or ""
    client.cookies[settings.SESSION_COOKIE_NAME] = planted
    try_to_sign_in(client)
    assert client.session.session_key != planted
    assert not Session.objects.filter(session_key=stored_key(planted)).exists()


def test_a_session_of_somebody_else_is_emptied(alice: User) -> None:
    client = Client()
    client.force_login(User.objects.create_user("bob"))
    session = client.session
    session["note"] = "bob's"
    session.save()
    client.get("/logout")
    set_password(client, invite("alice").path)
    assert "note" not in client.session


def test_a_session_ends_after_a_week(alice: User, settings: Any) -> None:
    assert settings.SESSION_COOKIE_AGE == 7 * 24 * 3600
    client = Client()
    try_to_sign_in(client)
    assert int(client.cookies[settings.SESSION_COOKIE_NAME]["max-age"]) == settings.SESSION_COOKIE_AGE
    Session.objects.update(expire_date=timezone.now())
    assert client.get("/overview").status_code == 302


def test_where_a_person_is_signed_in_is_known_until_they_sign_out(alice: User) -> None:
    client = Client(headers={"User-Agent": "Browser/1.0"})
    try_to_sign_in(client)
    (row,) = sign_ins.of_person(alice)
    assert (row.address, row.agent) == (STRANGER, "Browser/1.0")
    client.post("/logout")
    assert sign_ins.of_person(alice) == []


def test_sessions_elsewhere_are_ended(alice: User) -> None:
    here, there = Client(), Client()
    try_to_sign_in(here)
    try_to_sign_in(there)
    assert sign_ins.end_others(alice, but=here.session.session_key) == 1
    assert here.get("/overview").status_code == 200
    assert there.get("/overview").status_code == 302
    assert SignIn.objects.count() == 1


# Redirects, foreign forms, frames.


ELSEWHERE = ("https://evil.example", "//evil.example", "///evil", "/\\evil.example", "javascript:alert(1)", "http:evil")


@pytest.mark.parametrize("target", ELSEWHERE)
def test_signing_in_leads_to_no_other_site(alice: User, target: str) -> None:
    answer = try_to_sign_in(Client(), next=target)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/devices")
    signed_in = Client()
    signed_in.force_login(alice)
    assert signed_in.get("/login", {"next": target}).headers["Location"] == "/devices"


def test_signing_in_leads_back_to_the_page_that_was_asked_for(alice: User) -> None:
    assert try_to_sign_in(Client(), next="/pods?ns=a").headers["Location"] == "/pods?ns=a"


@pytest.mark.parametrize("path", ["/login", "/logout", "/welcome/MQ/set"])
def test_a_form_of_another_site_is_refused(alice: User, path: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    answer = client.post(path, {"username": "alice", "password": PASSWORD})
    assert answer.status_code == 403


def test_signing_out_needs_a_form(alice: User) -> None:
    client = Client()
    client.force_login(alice)
    assert client.get("/logout").status_code == 405
    assert client.get("/overview").status_code == 200


def pages(client: Client) -> list[Any]:
    return [client.get(path) for path in ("/login", "/overview", "/no-such-page", invite("bob").path, "/welcome/MQ/x")]


def test_no_page_can_be_framed_by_another_site(alice: User) -> None:
    client = Client()
    client.force_login(alice)
    for answer in pages(Client()) + pages(client):
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Referrer-Policy"] == "same-origin"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"


@pytest.mark.parametrize("path", ["/login", "/welcome/MQ/x"])
def test_pages_of_signing_in_are_kept_by_no_cache(path: str) -> None:
    assert "no-store" in Client().get(path).headers["Cache-Control"]


def test_behind_tls_browsers_are_told_to_come_in_no_other_way(settings: Any) -> None:
    settings.SECURE_HSTS_SECONDS = 3600
    assert Client().get("/login", secure=True).headers["Strict-Transport-Security"] == "max-age=3600"
    assert "Strict-Transport-Security" not in Client().get("/login").headers


def test_cookies_go_over_tls_alone_and_scripts_do_not_see_them(alice: User, settings: Any) -> None:
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = True
    client = Client()
    answer = client.post("/login", {"username": "alice", "password": PASSWORD}, secure=True)
    for name in (settings.SESSION_COOKIE_NAME, BROWSER_COOKIE):
        cookie = answer.cookies[name]
        assert (cookie["secure"], cookie["httponly"], cookie["samesite"]) == (True, True, "Lax")
    assert answer.cookies[settings.CSRF_COOKIE_NAME]["secure"]
