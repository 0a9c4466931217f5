"""Every link of the navigation opens, for every kind of person; and whatever they may open of it is in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from dashboard.kit.navigation import MORE, OWN, PLACES
from manciple.access.mirrored import OWNERS
from manciple.wire.identity import MASTERS
from tests.dashboard.browsing import member, signed_in
from tests.manciple.mirror.reviewing import INVENTORY, ReviewingCluster, mirror_of
from tests.mirrors import become_mirror

HERE = "team-a"
NO_ACCESS = "No access yet"
LINK = re.compile(r'<a [^>]*?href="([^"]+)"')


def newcomer() -> Client:
    User.objects.create_user("new")
    client = Client()
    client.force_login(User.objects.get(username="new"))
    return client


#: Of an installation of its own.
PEOPLE: Mapping[str, Callable[[], Client]] = {
    "an administrator": lambda: signed_in("ada", staff=True),
    "who looks at everything": lambda: signed_in("vic"),
    "who works in a namespace": lambda: member("nora", HERE),
    "who has no role yet": newcomer,
}


def asked(cluster: ReviewingCluster, who: str) -> None:
    """What the cluster lets each of its users do."""
    for verb in ("get", "list", "watch"):
        if who in ("a reader", "a user of a namespace who sees nodes"):
            cluster.allow(who, verb, *INVENTORY)
        if who == "a reader":
            cluster.allow(who, verb, "pods", "resourceclaims", "resourceclaimtemplates", "events")
        if who == "an administrator there":
            cluster.allow(who, "*", "*")
            cluster.allow(who, verb, "*")
        if who == "who reads taint rules alone":
            cluster.allow(who, verb, "devicetaintrules")
    if who.startswith("a user of a namespace"):
        cluster.open(who, HERE)


#: Of a cluster, in its mirror.
USERS = (
    "a reader", "a user of a namespace who sees nodes", "a user of a namespace", "an administrator there",
    "one of system:masters", "who reads taint rules alone", "a stranger",
)  # fmt: skip


def navigation(client: Client, path: str) -> list[str]:
    """The links around the page that the path leads to."""
    page = client.get(path, follow=True).content.decode()
    before, _, rest = page.partition("<main")
    return [
        link
        for link in dict.fromkeys(LINK.findall(before.partition("<header")[2] + rest.partition("</main>")[2]))
        if link.startswith("/") and not link.startswith("/static")
    ]


def assert_all_open(client: Client) -> list[str]:
    links = [link for path in ("/", "/account", "/views") for link in navigation(client, path)]
    assert links
    answers = {link: client.get(link, follow=True).status_code for link in dict.fromkeys(links)}
    closed = {link for link, code in answers.items() if code != 200}
    assert closed == ({"/"} if NO_ACCESS in client.get("/", follow=True).content.decode() else set())
    for name, *_ in (*PLACES, *MORE, *OWN):
        url = reverse(name)
        missing = url not in links and client.get(url).status_code == 200
        assert not missing or name in HIDDEN, f"{url} can be opened, and nothing leads there"
    return links


#: Pages that say little to those who see no link to them: roles to others than administrators; kinds no mirror copies.
HIDDEN = {"roles", "access", "autoscalers"}


@pytest.mark.django_db
@pytest.mark.parametrize("who", PEOPLE)
def test_every_link_opens_and_none_is_missing(who: str) -> None:
    assert_all_open(PEOPLE[who]())


@pytest.mark.django_db
def test_every_link_opens_for_the_owner_of_a_mirror(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    become_mirror(settings, monkeypatch)
    links = assert_all_open(signed_in("ola", OWNERS))
    assert "/access" in links


@pytest.mark.django_db
@pytest.mark.parametrize("who", USERS)
def test_every_link_opens_for_users_of_the_cluster(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    cluster = ReviewingCluster()
    asked(cluster, who)
    mirror_of(cluster, settings, monkeypatch)
    client = Client()
    groups = (MASTERS,) if who == "one of system:masters" else ()
    if groups:
        cluster.allow(MASTERS, "list", "*")
    assert client.post("/login", {"token": cluster.token_of(who, *groups)}).status_code == 302
    links = assert_all_open(client)
    assert "/access" in links
    assert not {"/people", "/roles"} & set(links)
