"""People as administrators look after them: invitations, groups, closed accounts, tokens."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from manciple.access import membership
from manciple.access.authentication import tokens
from manciple.access.membership import ChangeRefused, Standing
from manciple.access.models import Token
from manciple.access.people import groups_of_user
from manciple.audit.searching import Search
from manciple.audit.sign_ins import PEOPLE, TOKENS
from tests.builders import make_namespace
from tests.dashboard import texts
from tests.dashboard.browsing import admin, signed_in, viewer, words
from tests.manciple.audit.reading import look
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]

pytestmark = pytest.mark.django_db


def person(name: str, *groups: str) -> User:
    user = User.objects.create_user(name, password="correct horse battery")
    user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return user


def token_of(user: User, title: str = "laptop") -> str:
    text, _ = tokens.issue_for_person(
        user, lifetime=timedelta(days=1), purpose=tokens.Purpose(title=title), creator=user.username
    )
    return text


def change(client: Client, who: str, **fields: str) -> Any:
    return client.post("/people/change", {"who": who, "groups": "", "sure": "on", **fields})


def test_only_administrators_look_at_people(viewer: Client) -> None:
    person("ada")
    for path in ("/people", "/people?who=ada"):
        answer = viewer.get(path)
        assert answer.status_code == 403, path
        assert "Only administrators" in answer.content.decode(), path
        assert 'aria-label="Main"' in answer.content.decode(), path
        assert Client().get(path).headers["Location"].startswith("/login"), path


LISTS = {
    "": ["ada", "bob", "eve"],
    "?q=B": ["bob"],
    "?kind=Administrators": ["ada"],
    "?kind=Closed accounts": ["eve"],
    "?sort=-name": ["eve", "bob", "ada"],
    "?sort=-tokens": ["bob", "ada", "eve"],
    "?sort=nonsense&page=7": ["ada", "bob", "eve"],
    "?group=namespace:vision": ["bob"],
    "?q=nobody": [],
}


def test_the_list_shows_who_is_asked_for_with_groups_sign_ins_and_tokens(admin: Client) -> None:
    bob, eve = person("bob", "namespace:vision", "readers"), person("eve")
    token_of(bob), token_of(bob)
    expired, _ = tokens.issue_for_person(bob, lifetime=timedelta(seconds=-1))
    assert tokens.identify(expired) is None
    eve.is_active = False
    eve.save()
    for query, expected in LISTS.items():
        page = admin.get(f"/people{query}").content.decode()
        assert re.findall(r'class="ent" href="/people\?[^"]*who=(\w+)', page) == expected, query
    assert texts.PERSON_ROW("bob namespace:vision", 2) in words(admin, "/people")


def test_an_address_of_nobody_says_so_and_who_is_meant(admin: Client) -> None:
    person("carla")
    for who, meant in {"carol": "carla", "x" * 150: ""}.items():
        answer = admin.get("/people", {"who": who})
        assert (answer.status_code, answer.context["shown"]) == (404, None)
        assert answer.context["unknown"].startswith(f"Nobody called {who}")
        assert answer.context["unknown"].endswith(f"Did you mean {meant}?" if meant else "here.")
        assert answer.context["unknown"] in answer.content.decode()
    assert admin.get("/people?who=carla").context["unknown"] == ""


def test_an_invitation_makes_a_person_and_a_link_that_lets_them_in_once(admin: Client) -> None:
    answer = admin.post("/people/invite", {"name": "bob", "groups": "namespace:vision, readers readers", "sure": "on"})
    assert answer.status_code == 200
    assert "no-store" in answer.headers["Cache-Control"]
    bob = User.objects.get(username="bob")
    assert (bob.is_staff, sorted(group.name for group in bob.groups.all())) == (False, ["namespace:vision", "readers"])
    found = re.search(r"http://testserver(/welcome/[^<\s]+)", answer.content.decode())
    assert found is not None
    assert "autofocus>A link for bob" in answer.content.decode(), "it is not shown again: it is read first"
    assert Client().get(found.group(1), follow=True).status_code == 200
    assert found.group(1) not in admin.get("/people?who=bob").content.decode()


def test_tokens_of_a_name_are_shown_before_somebody_gets_it_and_end_with_the_account(admin: Client) -> None:
    older = tokens.issue("admin", ["system:masters"])
    tokens.issue("eve", [])
    answer = admin.post("/people/invite", {"name": "admin", "groups": ""}).content.decode()
    assert texts.TOKENS_WITH_GROUPS("1 token", "admin") in answer
    assert texts.TOKEN_GROUPS("system:masters") in answer
    assert "HOME/kubeconfig" in answer
    assert "admin none never 1" in words(admin, "/people")
    assert "admin none never 1" in words(admin, "/people?sort=-tokens")
    assert change(admin, "admin").status_code == 302
    page = words(admin, "/people")
    assert texts.PERSON_CLOSED_WITH_TOKENS("admin", "1 token") in page
    assert texts.KUBECONFIG_OUT_OF_USE("HOME/kubeconfig") in page
    assert tokens.identify(older) is None
    assert Token.objects.get().name == "eve"


def test_tokens_of_a_person_and_of_their_name_are_revoked_by_an_administrator(admin: Client) -> None:
    of_the_name, bob, eve = tokens.issue("bob", []), person("bob"), person("eve")
    first, second, others = token_of(bob), token_of(bob), token_of(eve)
    rows = {row.digest: row.pk for row in bob.tokens.all()}
    revoked = {"who": "bob", "token": str(rows[tokens.digest_of(first)])}
    assert admin.post("/people/revoke", revoked).status_code == 302
    assert tokens.identify(first) is None
    assert tokens.identify(second) is not None
    assert admin.post("/people/revoke", revoked).status_code == 404
    assert admin.post("/people/revoke", {"who": "eve", "token": rows[tokens.digest_of(second)]}).status_code == 404
    assert admin.post("/people/revoke", {"who": "bob", "all": "1"}).status_code == 302
    assert (tokens.identify(second), tokens.identify(of_the_name)) == (None, None)
    assert tokens.identify(others) is not None


def test_who_forgot_the_password_gets_a_new_link(admin: Client) -> None:
    person("bob", "readers")
    answer = admin.post("/people/invite", {"who": "bob", "again": "1"})
    assert "/welcome/" in answer.content.decode()
    assert User.objects.get(username="bob").groups.count() == 1
    assert admin.post("/people/invite", {"who": "nobody", "again": "1"}).status_code == 404
    assert not User.objects.filter(username="nobody").exists()


REFUSED = {
    "no name": ({"name": ""}, "invite-name-error"),
    "a name that is none": ({"name": "no blanks"}, "invite-name-error"),
    "somebody who is here": ({"name": "ada"}, "invite-name-error"),
    "somebody who is here, in capitals": ({"name": "ADA"}, "invite-name-error"),
    "a name with group in it, in two scripts": ({"name": "group\u0430"}, "invite-name-error"),
    "a group of the system": ({"name": "bob", "groups": "system:masters"}, "invite-groups-error"),
    "a group that is too long": ({"name": "bob", "groups": "g" * 151}, "invite-groups-error"),
}


def test_an_invitation_that_is_refused_says_why_and_makes_nobody(admin: Client) -> None:
    for case, (fields, place) in REFUSED.items():
        answer = admin.post("/people/invite", fields)
        assert answer.status_code == 422, case
        assert f'id="{place}"' in answer.content.decode(), case
    assert [one.username for one in User.objects.all()] == ["ada"]


def test_what_is_changed_counts_at_once(admin: Client) -> None:
    text = token_of(person("bob", "readers"))
    change(admin, "bob", groups="namespace:vision", administers="on", active="on")
    bob = User.objects.get(username="bob")
    assert (bob.is_staff, bob.is_superuser) == (True, True)
    change(admin, "bob", groups="namespace:vision", active="on")
    bob.refresh_from_db()
    assert (bob.is_staff, bob.is_superuser) == (False, False)
    after = tokens.identify(text)
    assert after is not None
    assert after.groups == groups_of_user(bob)
    assert ("namespace:vision" in after.groups, "readers" in after.groups) == (True, False)


def test_a_closed_account_lets_nobody_in(admin: Client) -> None:
    person("bob")
    text = token_of(User.objects.get(username="bob"))
    browser = Client()
    browser.force_login(User.objects.get(username="bob"))
    assert browser.get("/account").status_code == 200
    change(admin, "bob")
    assert tokens.identify(text) is None
    assert browser.get("/account").status_code == 302
    change(admin, "bob", active="on")
    assert tokens.identify(text) is None, "tokens end for good"
    assert browser.get("/account").status_code == 302, "sessions ended for good"


UNWISE = {
    "closing one's own account": ({"administers": "on"}, "close your own account"),
    "no administrator any more": ({"active": "on"}, "give up being an administrator"),
    "a group of the system": ({"administers": "on", "active": "on", "groups": "system:nodes"}, "system:nodes"),
}


def test_nobody_shuts_themselves_out(admin: Client) -> None:
    for case, (fields, told) in UNWISE.items():
        answer = change(admin, "ada", **fields)
        assert answer.status_code == 422, case
        assert told in answer.content.decode(), case
    ada = User.objects.get(username="ada")
    assert (ada.is_staff, ada.is_active, ada.groups.count()) == (True, True, 0)


def test_the_last_administrator_stays(admin: Client) -> None:
    """Whoever else may change people: a role can let them do everything."""
    ada = User.objects.get(username="ada")
    for standing in (
        Standing(groups=(), administers=False, active=True),
        Standing(groups=(), administers=True, active=False),
    ):
        with pytest.raises(ChangeRefused, match="last administrator"):
            membership.change(ada, standing, by="somebody")
        ada.refresh_from_db()
        assert (ada.is_staff, ada.is_active) == (True, True)
    root = signed_in("root", staff=True)
    assert change(root, "ada", active="on").status_code == 302
    assert change(admin, "root", active="on").status_code == 403, "who is none any more changes nobody"


def test_what_is_done_to_accounts_and_tokens_is_in_the_audit_trail(admin: Client) -> None:
    token_of(person("bob"))
    change(admin, "bob", active="on", groups="team")
    admin.post("/people/revoke", {"who": "bob", "all": "1"})
    admin.post("/people/invite", {"name": "eve", "groups": ""})
    admin.post("/account/tokens", {"title": "laptop", "description": "", "days": "30"})
    told = [
        (entry.verb, resource.partition(".")[0], entry.name)
        for resource in (PEOPLE, TOKENS)
        for entry in look(Search(resource=resource))
        if entry.username == "ada"
    ]
    assert sorted(told) == [
        ("create", "people", "eve"),
        ("create", "tokens", "ada"),
        ("delete", "tokens", "bob"),
        ("update", "people", "bob"),
    ]


#: what is typed -> what is meant, "" where nothing is like it
TYPING_ERRORS = {
    "namespace:visoin": "namespace:vision",
    "vision": "namespace:vision",
    "raeders": "readers",
    "manciple:viewer": "manciple:viewers",
    "Readers": "readers",
    "zebras": "",
}


@pytest.mark.parametrize("typed", TYPING_ERRORS)
def test_a_group_that_nobody_knows_is_refused_until_one_is_sure(admin: Client, cluster: Cluster, typed: str) -> None:
    cluster.create(make_namespace("vision"))
    person("bob", "readers")
    person("eve")
    for path, fields, form in (
        ("/people/invite", {"name": "zoe", "groups": f"{typed} readers"}, "invitation"),
        ("/people/change", {"who": "eve", "groups": f"{typed} readers", "active": "on"}, "standing"),
    ):
        answer = admin.post(path, fields)
        (message,) = answer.context[form].errors["groups"]
        assert answer.status_code == 422
        assert answer.context[form].doubts
        assert (f"Did you mean {TYPING_ERRORS[typed]}?" in message) is bool(TYPING_ERRORS[typed]), message
        assert 'name="sure"' in answer.content.decode()
        assert not Group.objects.filter(name=typed).exists()
        assert admin.post(path, {**fields, "sure": "on"}).status_code in (200, 302)
        Group.objects.filter(name=typed).delete()


def test_groups_are_chosen_from_those_that_there_are(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_namespace("vision"))
    person("bob", "readers")
    page = admin.get("/people").content.decode()
    for name in ("namespace:vision", "readers", "manciple:viewers"):
        assert f'<option value="{name}">' in page, name
    admin.post("/people/invite", {"name": "zoe", "groups": "readers", "add": "namespace:vision"})
    assert set(User.objects.get(username="zoe").groups.values_list("name", flat=True)) == {
        "readers",
        "namespace:vision",
    }
