"""What browsers, and proxies on the way, keep of pages: nothing, and cookies under names of each installation."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.contrib.auth.models import User
from django.test import Client

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice() -> User:
    return User.objects.create_user("alice", is_staff=True)


PRIVATE = {
    "a page": "/devices",
    "the account": "/account",
    "a spreadsheet": "/devices?format=csv",
    "a page that does not exist": "/no-such-page",
    "signing in": "/login",
}


@pytest.mark.parametrize("path", PRIVATE.values(), ids=PRIVATE.keys())
def test_pages_are_stored_nowhere(alice: User, path: str) -> None:
    client = Client()
    client.force_login(alice)
    assert "no-store" in client.get(path).headers["Cache-Control"]
    assert "no-store" in Client().get(path).headers["Cache-Control"]


def test_static_files_may_be_kept() -> None:
    assert "no-store" not in Client().get("/static/manciple/kit/theme.js").headers.get("Cache-Control", "")


def names_of_cookies(key: str, **more: str) -> list[str]:
    """As a process with this signing key has them."""
    code = "from django.conf import settings as s; print(s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME)"
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "manciple.settings", "MANCIPLE_SECRET_KEY": key * 16, **more}
    told = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    return told.stdout.split()


def test_two_installations_on_one_host_do_not_share_cookies() -> None:
    ours, theirs = names_of_cookies("a"), names_of_cookies("b")
    assert not set(ours) & set(theirs)
    assert names_of_cookies("a", MANCIPLE_SECURE_COOKIES="1") == [f"__Host-{name}" for name in ours]
