"""People and groups are kept in Django's own administration, which the menu leads to."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from manciple.audit import events
from manciple.audit.searching import Search
from tests.manciple.audit.reading import about, look

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["/admin/", "/admin/auth/user/", "/admin/auth/user/add/", "/admin/auth/group/"])
def test_an_administrator_reaches_people_and_groups(path: str) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    answer = client.get(path)
    assert answer.status_code == 200
    assert b"Django administration" in answer.content


def test_what_is_changed_there_is_in_the_audit_trail() -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    password = dict.fromkeys(("password1", "password2"), "Correct-horse-7")
    typed = {"username": "zoe", "usable_password": "true", **password}
    assert client.post("/admin/auth/user/add/", typed).status_code == 302
    assert client.post("/admin/auth/group/add/", {"name": "readers"}).status_code == 302
    zoe = User.objects.get(username="zoe")
    assert client.post(f"/admin/auth/user/{zoe.pk}/delete/", {"post": "yes"}).status_code == 302
    told = [about(entry) for entry in look(Search(user="root")) if not entry.resource.startswith("sessions")]
    assert sorted(told) == [
        ("root", "create", "groups.manciple.dev:/readers", 201),
        ("root", "create", "people.manciple.dev:/zoe", 201),
        ("root", "delete", "people.manciple.dev:/zoe", 200),
    ]
    assert "Correct-horse-7" not in b"".join(map(events.line, look())).decode()


def test_nobody_else_does() -> None:
    client = Client()
    client.force_login(User.objects.create_user("viewer"))
    assert client.get("/admin/").status_code == 302


def test_signing_in_is_a_page_of_our_own() -> None:
    assert b"Manciple" in Client().get("/login").content
