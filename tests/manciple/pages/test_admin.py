"""People and groups are kept in Django's own administration, which the menu leads to."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["/admin/", "/admin/auth/user/", "/admin/auth/user/add/", "/admin/auth/group/"])
def test_an_administrator_reaches_people_and_groups(path: str) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    answer = client.get(path)
    assert answer.status_code == 200
    assert b"Django administration" in answer.content


def test_nobody_else_does() -> None:
    client = Client()
    client.force_login(User.objects.create_user("viewer"))
    assert client.get("/admin/").status_code == 302


def test_signing_in_is_a_page_of_our_own() -> None:
    assert b"Manciple" in Client().get("/login").content
