"""Browsers for tests of the pages of pages: who is signed in, what a page says."""

from __future__ import annotations

import html
import re

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from manciple.wire.identity import VIEWERS


@pytest.fixture
def admin(db: None) -> Client:
    return signed_in("ada", staff=True)


@pytest.fixture
def viewer(db: None) -> Client:
    return signed_in("vic")


def signed_in(name: str, *groups: str, staff: bool = False) -> Client:
    user = User.objects.create_user(name, is_staff=staff)
    user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups or (() if staff else (VIEWERS,))])
    client = Client()
    client.force_login(user)
    return client


def member(name: str, *namespaces: str) -> Client:
    """Somebody who works in these namespaces, or looks at all of them."""
    return signed_in(name, *(f"namespace:{namespace}" for namespace in namespaces))


def words(client: Client, path: str, status: int = 200) -> str:
    """The page's words, tags left out and blanks joined."""
    answer = client.get(path)
    assert answer.status_code == status
    return said(answer.content.decode())


def close_words(client: Client, path: str, status: int = 200) -> str:
    """The same, without a blank in the place of a tag."""
    answer = client.get(path)
    assert answer.status_code == status, path
    return close(answer.content.decode())


def close(page: str) -> str:
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page.partition("<main")[2])))


def said(page: str) -> str:
    main = page.partition("<main")[2].partition("</main>")[0]
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", main)))
