"""The list of saved views: its order, and its pages."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from dashboard.models import SavedView
from dashboard.tools import saved_views
from tests.dashboard.browsing import signed_in


@pytest.fixture
def alice(db: None) -> Client:
    """Alice has two views of nodes and one of pods; Bob shares one of nodes, and keeps one."""
    client = signed_in("alice")
    bob = User.objects.create_user("bob")
    own = User.objects.get(username="alice")
    for owner, path, name, shared in (
        (own, "/nodes", "b", False),
        (own, "/pods", "z", False),
        (own, "/nodes", "a", False),
        (bob, "/nodes", "0-shared", True),
        (bob, "/nodes", "0-kept", False),
        (own, "/nowhere", "e", False),
    ):
        SavedView.objects.create(owner=owner, path=path, name=name, shared=shared)
    return client


def listed(client: Client, path: str = "/views") -> list[str]:
    return re.findall(r'<h2 id="h-\d+">(\w+)|<a class="ent" href="/views/[^"]+">([\w-]+)</a>', page(client, path))


def page(client: Client, path: str) -> str:
    return client.get(path).content.decode()


ALL = ["Pods", "z", "Nodes", "a", "b", "0-shared", "Elsewhere", "e"]


def test_views_stand_by_page_with_a_persons_own_first(alice: Client) -> None:
    assert ["".join(pair) for pair in listed(alice)] == ALL


def test_a_long_list_has_pages(alice: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 'rel="next"' not in page(alice, "/views")
    monkeypatch.setattr(saved_views, "ROWS", 3)
    assert ["".join(pair) for pair in listed(alice)] == ALL[:5]
    assert ["".join(pair) for pair in listed(alice, "/views?page=2")] == ["Nodes", *ALL[5:]]
    assert 'rel="next" href="/views?page=2"' in page(alice, "/views")
    assert 'rel="prev" href="/views"' in page(alice, "/views?page=2")
