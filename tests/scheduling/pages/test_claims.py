"""The claim pages as the server draws them; Chromium looks at them in tests/e2e."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from scheduling.explanations import current
from tests.builders import make_claim, make_pod, make_request
from tests.scheduling.cluster import Cluster


@pytest.fixture
def pages(db: None) -> Iterator[Client]:
    """A browser in which an administrator is signed in."""
    current.forget()
    client = Client()
    client.force_login(User.objects.create_user("ada", is_staff=True))
    yield client
    current.forget()


def words(client: Client, path: str) -> str:
    """The page's words, tags left out and blanks joined."""
    answer = client.get(path)
    assert answer.status_code == 200, answer.status_code
    main = answer.content.decode().partition("<main")[2]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", main)).replace("&quot;", '"').replace("&gt;", ">")


def runs(cluster: Cluster, name: str, *, count: int = 1) -> None:
    """A pod with a claim of the same name; placed where there is room."""
    cluster.create(make_claim(name, requests=[make_request(count=count)]))
    cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()


def test_an_empty_list_says_what_to_do(pages: Client) -> None:
    assert "No claim yet" in words(pages, "/claims")


def test_the_list_and_the_sheet(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    runs(cluster, "first", count=2)
    runs(cluster, "second")
    text = words(pages, "/claims")





    assert "1 claim holds 2 devices; 1 waits" in text
