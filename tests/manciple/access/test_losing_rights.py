"""Losing something never widens rights; an account that was closed or deleted leaves no credential behind."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from dashboard.kit.live import Hearing
from manciple.access import membership
from manciple.access.authentication import chain, tokens
from manciple.access.authentication import external as client_certificates
from manciple.access.authentication.chain import Credentials
from manciple.access.authentication.external import PersonRefused, person_of_provider, person_of_proxy
from manciple.access.bootstrap import ensure_roles
from manciple.access.invitations import invite
from manciple.access.kinds.roles import CLUSTER_ROLE_BINDING, ROLE_BINDING
from manciple.access.membership import Standing
from manciple.access.models import CertificateRevocation, Token
from manciple.access.people import groups_as_told, groups_of_user
from manciple.api import certificates, kubeconfig
from manciple.api.kubeconfig import Server
from manciple.live.topics import TopicChange
from manciple.notifications import sight
from manciple.notifications.models import Happening, Notification
from manciple.people import Person, person_of_user
from manciple.processes import accounts
from manciple.processes.home import Home
from manciple.store import objects
from manciple.wire.errors import Unauthorized
from manciple.wire.identity import AUTHENTICATED, MASTERS, PEOPLE, VIEWERS, Identity
from tests.manciple.access.client_keys import signed

pytestmark = pytest.mark.django_db

MIGRATION: Any = import_module("manciple.access.migrations.0010_rights_are_given")


def person(name: str, *groups: str, **fields: Any) -> User:
    made = User.objects.create_user(name, **fields)
    made.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return made


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


# Groups ---------------------------------------------------------------------------------------------------------------


def leave(mia: User) -> None:
    mia.groups.clear()


def lose_the_group(_: User) -> None:
    Group.objects.all().delete()


def be_put_into_none(mia: User) -> None:
    membership.change(mia, Standing(groups=(), administers=False, active=True), by="ada")


def be_told_none(mia: User) -> None:
    from manciple.access.authentication.external import _follow

    _follow(mia, [], prefix="")


def be_left_with_a_group_of_the_systems(mia: User) -> None:
    mia.groups.set([Group.objects.create(name="system:nodes")])


def lose_the_binding(_: User) -> None:
    with objects.writing() as writer:
        for kind in (ROLE_BINDING, CLUSTER_ROLE_BINDING):
            for one in list(writer.list(kind)):
                if one.metadata.name.startswith("manciple:viewers"):
                    writer.delete(kind, one.metadata.namespace, one.metadata.name)
    leave(_)


LOSSES = (leave, lose_the_group, be_put_into_none, be_told_none, be_left_with_a_group_of_the_systems, lose_the_binding)


@pytest.mark.parametrize("lose", LOSSES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("groups", [("namespace:vision",), ("readers",), (VIEWERS,), ("namespace:vision", VIEWERS)])
def test_losing_a_group_never_widens_what_somebody_sees(lose: Callable[[User], None], groups: tuple[str, ...]) -> None:
    ensure_roles()
    person("ada", is_staff=True)
    mia = person("mia", *groups)
    before = person_of_user(mia)
    token, _ = tokens.issue_for_person(mia, lifetime=None)
    lose(mia)
    after = person_of_user(User.objects.get(pk=mia.pk))
    assert VIEWERS not in groups_of_user(mia) or VIEWERS in before.identity.groups
    if lose is not be_told_none or VIEWERS not in groups:  # what an administrator gave is not a provider's to take
        assert after.namespaces == frozenset()
        assert not after.may("list", "pods", "vision")
    identity = tokens.identify(token)
    assert identity is not None
    assert set(identity.groups) <= set(before.identity.groups)


def test_nothing_that_is_missing_means_all() -> None:
    """A person without namespaces, a topic without one, a notification that nobody answers for."""
    nobody = Person(Identity("eve", (AUTHENTICATED,)))
    assert nobody.namespaces == frozenset()
    assert not nobody.sees("vision")
    assert list(Hearing.of(nobody)(["pods:", "pod:/a", "events:", "node-pods:n:", "unheard:of", ""])) == []
    assert TopicChange(1, frozenset()).everything is False


def test_nobody_is_told_anything_before_somebody_answers_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    note = Notification(person=person("eve", VIEWERS), happening=Happening.POD_FAILED, namespaces=["vision"])
    assert sight.may_tell(note)
    monkeypatch.setattr(sight, "_asked", [])
    assert not sight.may_tell(note)


@pytest.mark.parametrize("namespaces", [[], None])
def test_a_notification_that_names_no_namespace_is_told_to_nobody(namespaces: Any) -> None:
    note = Notification(person=person("eve", "namespace:vision"), happening=Happening.POD_FAILED, namespaces=namespaces)
    assert not sight.may_tell(note)


# Providers ------------------------------------------------------------------------------------------------------------


def test_a_provider_cannot_put_anybody_into_groups_of_this_installation() -> None:
    assert groups_as_told([VIEWERS, PEOPLE, "system:masters", "gpu", ""]) == ("gpu", AUTHENTICATED)


@pytest.mark.parametrize("told", [(), ("gpu",), (VIEWERS,)])
def test_who_comes_without_a_group_sees_nothing_and_reads_whom_to_ask(settings: Any, told: tuple[str, ...]) -> None:
    settings.OIDC_GROUPS_CLAIM, settings.OIDC_GROUPS_PREFIX = "groups", ""
    person("zoe", is_staff=True)
    eve = person_of_provider("https://id", "u-1", Identity("eve", groups_as_told(told)))
    client = client_of(eve)
    assert person_of_user(eve).namespaces == frozenset()
    for path in ("/overview", "/pods", "/claims", "/events", "/namespaces", "/pods.csv"):
        answer = client.get(path)
        if path == "/overview" and told == ("gpu",):
            continue  # in a group of the provider's: an administrator can bind it
        assert answer.status_code == 403, path
        assert "Administrators here: zoe." in answer.content.decode()
    if told != ("gpu",):
        assert "No access yet" in client.get("/", follow=True).content.decode()
    assert client.get("/account").status_code == 200


def test_what_an_administrator_gave_stays_at_each_sign_in(settings: Any) -> None:
    settings.OIDC_GROUPS_CLAIM, settings.OIDC_GROUPS_PREFIX = "groups", ""
    eve = person_of_provider("https://id", "u-1", Identity("eve", ()))
    eve.groups.add(Group.objects.create(name=VIEWERS))
    eve = person_of_provider("https://id", "u-1", Identity("eve", ()))
    assert person_of_user(eve).namespaces is None


# The migration --------------------------------------------------------------------------------------------------------


class _Editor:
    connection = connection


def test_people_without_a_group_become_viewers_and_later_ones_do_not() -> None:
    person("old")
    person("only-the-systems", "system:nodes")
    person("closed", is_active=False)
    person("member", "namespace:vision")
    person("ada", is_staff=True)
    MIGRATION.keep_viewers(apps, _Editor)
    MIGRATION.keep_viewers(apps, _Editor)
    person("late")
    viewers = User.objects.filter(groups__name=VIEWERS).order_by("username").values_list("username", flat=True)
    assert list(viewers) == ["closed", "old", "only-the-systems"]
    assert person_of_user(User.objects.get(username="old")).namespaces is None
    assert person_of_user(User.objects.get(username="late")).namespaces == frozenset()


def test_an_empty_installation_gets_no_group() -> None:
    MIGRATION.keep_viewers(apps, _Editor)
    assert not Group.objects.exists()


# Closed accounts ------------------------------------------------------------------------------------------------------


def close_on_the_page(bob: User) -> None:
    membership.change(bob, Standing(groups=(VIEWERS,), administers=False, active=False), by="ada")


def close_directly(bob: User) -> None:
    bob.is_active = False
    bob.save()


def open_on_the_page(bob: User) -> None:
    membership.change(bob, Standing(groups=(VIEWERS,), administers=False, active=True), by="ada")


def open_directly(bob: User) -> None:
    bob.is_active = True
    bob.save()


@pytest.mark.parametrize("close", [close_on_the_page, close_directly], ids=lambda one: one.__name__)
@pytest.mark.parametrize("reopen", [open_on_the_page, open_directly], ids=lambda one: one.__name__)
def test_a_closed_account_leaves_nothing_that_works_after_it_is_opened_again(
    close: Callable[[User], None], reopen: Callable[[User], None]
) -> None:
    person("ada", is_staff=True)
    bob = person("bob", VIEWERS, password="correct horse battery")
    token, _ = tokens.issue_for_person(bob, lifetime=None)
    browser, link = client_of(bob), invite("bob").path
    assert browser.get("/account").status_code == 200
    close(bob)
    reopen(User.objects.get(pk=bob.pk))
    assert User.objects.get(pk=bob.pk).is_active
    assert tokens.identify(token) is None
    assert not Token.objects.exists()
    assert browser.get("/account").status_code == 302
    assert Client().get(link, follow=True).status_code == 410, "the old link"
    assert Client().get(invite("bob").path, follow=True).status_code == 200, "a new one"
    assert CertificateRevocation.objects.filter(name="bob").exists()


@pytest.mark.parametrize("close", [close_on_the_page, close_directly, User.delete], ids=lambda one: one.__name__)
def test_a_token_of_the_name_that_is_older_than_the_account_ends_with_it(close: Callable[[User], object]) -> None:
    person("ada", is_staff=True)
    older, others = tokens.issue("bob", [MASTERS]), tokens.issue("rob", [MASTERS])
    bob = person("bob", VIEWERS)
    assert tokens.identify(older) is not None
    close(bob)
    assert tokens.identify(older) is None
    assert tokens.identify(others) is not None
    if bob.pk:
        open_directly(User.objects.get(pk=bob.pk))
        assert tokens.identify(older) is None


def test_closing_an_account_leaves_the_token_of_whoever_had_its_name_before() -> None:
    robert = person("bob")
    token, _ = tokens.issue_for_person(robert, lifetime=None)
    robert.username = "robert"
    robert.save()
    close_directly(person("bob"))
    assert tokens.identify(token) is not None


def test_no_token_of_a_closed_name_is_recognised_or_issued(tmp_path: Path) -> None:
    bob = person("bob")
    close_directly(bob)
    text = "N0-whatever_code_wrote_this"
    Token.objects.create(name="bob", groups=[MASTERS], digest=tokens.digest_of(text), created=timezone.now())
    assert tokens.identify(text) is None
    for command in (
        ["token", "issue", "bob"],
        ["certificate", "issue", "bob", "--kubeconfig", str(tmp_path / "bob"), "--server", "https://127.0.0.1:1"],
    ):
        with pytest.raises(CommandError, match="The account bob is closed"):
            call_command(*command, stdout=StringIO())
    assert not (tmp_path / "bob").exists()
    open_directly(bob)
    call_command("token", "issue", "bob", stdout=StringIO())


def test_a_certificate_of_a_closed_name_lets_nobody_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates.ensure(tmp_path)
    shown = Credentials(headers={}, certificate=signed(tmp_path, "bob", [MASTERS]).der)
    bob = person("bob")
    assert chain.identify(shown) is not None
    close_directly(bob)
    CertificateRevocation.objects.all().delete()  # so only the closed account is against it
    chain.settle_epoch()
    with pytest.raises(Unauthorized):
        chain.identify(shown)
    assert chain.remembered(shown) is None
    open_directly(bob)
    CertificateRevocation.objects.all().delete()
    client_certificates._last_revocations.reset()
    monkeypatch.setattr(chain, "EPOCH_WINDOW", 3600.0)  # a busy machine may take longer than it lasts
    assert chain.identify(shown) is not None
    assert chain.remembered(shown) is not None


def test_the_kubeconfig_of_a_closed_administrator_works_again_after_they_come_back(tmp_path: Path) -> None:
    home, server = Home(tmp_path), Server(url="https://127.0.0.1:1")

    def who() -> str | None:
        accounts.write_kubeconfigs(home, server=server, nodes=[])
        token = kubeconfig.read_token(home.kubeconfig.read_text())
        identity = tokens.identify(token) if token else None
        return identity.name if identity else None

    assert who() == "admin"
    admin = person("admin", is_staff=True)
    close_directly(admin)
    assert who() is None
    assert kubeconfig.read_server(home.kubeconfig.read_text()) == server
    assert "the account admin is closed" in accounts.how_to_sign_in(accounts.first_link("https://127.0.0.1:1"))
    open_directly(admin)
    assert who() == "admin"


def test_an_account_under_the_name_of_a_deleted_one_has_none_of_its_credentials() -> None:
    bob = person("bob", VIEWERS)
    token, _ = tokens.issue_for_person(bob, lifetime=None)
    browser, link = client_of(bob), invite("bob").path
    bob.delete()
    person("bob", VIEWERS)
    assert tokens.identify(token) is None
    assert browser.get("/account").status_code == 302
    assert Client().get(link, follow=True).status_code == 410
    assert CertificateRevocation.objects.filter(name="bob").exists()


def test_a_token_follows_its_person_to_another_name() -> None:
    """Who gets the old name later is not whom the token means."""
    bob = person("bob", VIEWERS)
    token, _ = tokens.issue_for_person(bob, lifetime=None)
    bob.username = "robert"
    bob.save()
    person("bob", is_staff=True)
    identity = tokens.identify(token)
    assert identity is not None
    assert identity.name == "robert"


def test_who_a_provider_or_proxy_names_in_another_case_is_not_made_beside_the_one_who_is_here() -> None:
    person("admin", is_staff=True)
    with pytest.raises(PersonRefused, match=" admin "):
        person_of_provider("https://idp", "1", Identity("Admin", ()))
    with pytest.raises(PersonRefused, match=" admin "):
        person_of_proxy(Identity("ADMIN", ()))
    person_of_provider("https://idp", "2", Identity("zoe", ()))
    assert person_of_provider("https://idp", "2", Identity("Zoe", ())).username == "Zoe", "their own name"
