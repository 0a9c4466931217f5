"""What all pages share: who sees what, how long ago something was, where things are."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.template import Context, Template
from django.template.loader import render_to_string
from django.test import Client
from django.urls import resolve, reverse
from msgspec import structs

from dashboard.kit.live import Hearing
from dashboard.kit.navigation import MORE, PLACES
from dashboard.templatetags.kit import age, class_url, clock, device_url, pod_url
from manciple.access.bootstrap import ensure_roles
from manciple.access.kinds.roles import (
    CLUSTER_ROLE_BINDING,
    GROUP,
    ROLE,
    ROLE_BINDING,
    ClusterRoleBinding,
    PolicyRule,
    Role,
    RoleBinding,
    RoleRef,
    Subject,
)
from manciple.durations import duration
from manciple.people import person_of_user
from manciple.store import objects
from manciple.wire.base import ObjectMeta
from manciple.wire.identity import VIEWERS

NOW = datetime(2026, 11, 20, 10, 20, 4, tzinfo=UTC)

DURATIONS = {
    0.4: "0 s",
    59: "59 s",
    60: "1 min",
    3599: "59 min",
    3600: "1 h",
    11520: "3 h 12 min",
    187200: "2 d 4 h",
    86400: "1 d",
    -5: "0 s",
}


@pytest.mark.parametrize("seconds", DURATIONS)
def test_a_duration_has_two_units_at_most(seconds: float) -> None:
    assert duration(seconds) == DURATIONS[seconds]


CLOCKS = {
    timedelta(0): "10:20:04",
    timedelta(days=1): "Thu 10:20",
    timedelta(days=7): "2026-11-13 10:20",
    -timedelta(days=1): "2026-11-21 10:20",
}


@pytest.mark.parametrize("ago", CLOCKS)
def test_a_moment_reads_shorter_the_nearer_it_is(ago: timedelta) -> None:
    assert clock(NOW - ago, now=NOW) == CLOCKS[ago]


def test_times_of_the_api_are_read_too() -> None:
    assert age("2026-11-20T10:19:56Z", now=NOW) == "8 s"
    assert age(None) == clock("") == ""


def user(name: str, *groups: str, staff: bool = False) -> User:
    made = User.objects.create_user(name, is_staff=staff)
    made.groups.set([Group.objects.create(name=group) for group in groups])
    return made


@pytest.mark.django_db
def test_staff_see_and_change_everything() -> None:
    person = person_of_user(user("ada", "namespace:vision", staff=True))
    assert person.sees("nlp-lab")
    assert person.may("update", "nodes")
    assert person.may_edit("nlp-lab")


@pytest.mark.django_db
def test_a_viewer_sees_everything_and_changes_nothing() -> None:
    person = person_of_user(user("vic", VIEWERS))
    assert person.sees("nlp-lab")
    assert not person.may("update", "nodes")
    assert not person.may_edit("nlp-lab")


@pytest.mark.django_db
def test_a_member_of_a_namespace_sees_and_changes_that_one_only() -> None:
    person = person_of_user(user("mia", "namespace:vision", "readers"))
    assert [person.sees(namespace) for namespace in ("vision", "nlp-lab", "")] == [True, False, True]
    assert [person.may_edit(namespace) for namespace in ("vision", "nlp-lab", "")] == [True, False, False]
    assert [person.may(verb, "nodes") for verb in ("list", "update")] == [True, False]


@pytest.mark.django_db
def test_a_binding_opens_a_namespace_to_whom_it_names() -> None:
    """The pages show and offer what the API would answer and allow."""
    eve = user("eve", "strangers")
    assert person_of_user(eve).namespaces == frozenset()
    bind("view", "vision", Subject(kind="User", api_group=GROUP, name="eve"))
    bind("edit", "nlp-lab", Subject(kind="Group", api_group=GROUP, name="strangers"))
    person = person_of_user(eve)
    assert person.namespaces == frozenset({"vision", "nlp-lab"})
    assert [person.may_edit(namespace) for namespace in ("vision", "nlp-lab")] == [False, True]


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/overview", "/devices", "/nodes", "/classes", "/drivers", "/timeline", "/what-if"])
def test_who_may_not_list_the_inventory_is_told_whom_to_ask(client: Client, path: str) -> None:
    ensure_roles()
    with objects.writing() as writer:
        binding = writer.get(CLUSTER_ROLE_BINDING, "", "manciple:people")
        assert isinstance(binding, ClusterRoleBinding)
        writer.update(CLUSTER_ROLE_BINDING, structs.replace(binding, subjects=()))
    client.force_login(user("eve", "strangers"))
    answer = client.get(path)
    assert answer.status_code == 403
    assert client.get("/account").status_code == 200


def bind(role: str, namespace: str, *subjects: Subject, to: str = "ClusterRole") -> None:
    reference = RoleRef(api_group=GROUP, kind=to, name=role)
    meta = ObjectMeta(name=f"{role}-here", namespace=namespace)
    made = RoleBinding(
        api_version=ROLE_BINDING.api_version, kind="RoleBinding", metadata=meta, subjects=subjects, role_ref=reference
    )
    with objects.writing() as writer:
        writer.create(ROLE_BINDING, made)


RESOURCE = "resource.k8s.io"
WHAT = {("", "pods"), ("", "events"), (RESOURCE, "resourceclaims"), (RESOURCE, "resourceclaimtemplates")}


@pytest.mark.django_db
@pytest.mark.parametrize("lacking", [*WHAT, None], ids=str)
def test_a_namespace_is_shown_to_who_may_list_all_that_its_pages_are_made_of(lacking: tuple[str, str] | None) -> None:
    rules = tuple(PolicyRule(verbs=("list",), api_groups=(one[0],), resources=(one[1],)) for one in WHAT - {lacking})
    role = Role(metadata=ObjectMeta(name="some", namespace="lab"), rules=rules)
    with objects.writing() as writer:
        writer.create(ROLE, structs.replace(role, api_version=ROLE.api_version, kind=ROLE.kind))
    bind("some", "lab", Subject(kind="Group", api_group=GROUP, name="few"), to="Role")
    person = person_of_user(user("mia", "few"))
    assert person.namespaces == (frozenset() if lacking else {"lab"})
    assert not person.may("get", "pods/log", "lab")


@pytest.mark.django_db
def test_live_topics_of_other_namespaces_are_not_told() -> None:
    heard = Hearing.of(person_of_user(user("mia", "namespace:vision")))
    named = ["pods:vision", "pod:vision/a", "node-pods:node-1:vision", "pool:gpu.example.com/node-1"]
    others = ["pods:nlp-lab", "pod:nlp-lab/b", "node-pods:node-1:nlp-lab", "claims:nlp-lab", "nothing:known"]
    assert list(heard([*named, *others])) == named


@pytest.mark.django_db
def test_a_person_finds_what_they_may_see(client: Client) -> None:
    client.force_login(user("vic", VIEWERS))
    page = client.get("/find", {"q": "nothing-of-that-name"})
    assert "Nothing is called" in page.content.decode()


LINKS = {
    pod_url("a", "b"): ("pod", {"namespace": "a", "name": "b"}),
    class_url("gpu.example.com"): ("class-edit", {"name": "gpu.example.com"}),
}


@pytest.mark.parametrize("path", LINKS)
def test_links_lead_to_the_page_they_name(path: str) -> None:
    match = resolve(path)
    assert (match.url_name, match.kwargs) == LINKS[path]


def test_a_device_is_addressed_with_the_slashes_of_its_pool() -> None:
    assert device_url("d.example.com", "rack/1", "gpu-0") == "/devices/d/d.example.com/rack/1/gpu-0"


def test_an_age_on_a_page_carries_its_time_for_the_script() -> None:
    at = datetime.now(UTC) - timedelta(minutes=3, seconds=5)
    exact = at.isoformat(timespec="seconds").replace("+00:00", "Z")
    page = Template('{% ago at %}|{% ago at "ago" %}|{% ago nothing %}')
    plain, sentence, none = page.render(Context({"at": at, "nothing": None})).split("|")
    assert plain == f'<span class="age" data-ago="{exact}">3 min</span>'
    assert sentence == f'<span class="age" data-ago="{exact}" data-after=" ago">3 min ago</span>'
    assert none == ""


def test_the_live_sign_tells_the_time_of_the_server() -> None:
    shown = render_to_string("kit/live.html", {"revision": 7})
    told = re.search(r'data-now="([^"]*)"', shown)
    assert told is not None
    assert abs(datetime.fromisoformat(told[1]) - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize("place", [place for place, _, _ in (*PLACES, *MORE)])
def test_every_place_of_the_navigation_has_a_page(place: str) -> None:
    assert resolve(reverse(place)).func is not None
