"""Browsers for tests of pages: who is signed in, what a page says."""

from __future__ import annotations

import csv
import html
import io
import re
import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from dashboard.kit.previews import Consequence
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


def words(client: Client, path: str, status: int = 200, *, between: str = " ") -> str:
    """The page's words, blanks joined. between: what takes the place of a tag."""
    answer = client.get(path)
    assert answer.status_code == status, path
    return said(answer.content.decode(), between=between)


def said(page: str, *, between: str = " ") -> str:
    """The same of a page's markup."""
    main = page.partition("<main")[2].partition("</main>")[0]
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", between, main)))


#: The same without a blank in place of each tag: "2<b>x</b>." is "2x.".
close_words, close_said = partial(words, between=""), partial(said, between="")


def plain(sentence: str) -> str:
    """A sentence as a page shows it: what stands in backticks becomes code."""
    return sentence.replace("`", "")


def linked(consequences: Iterable[Consequence]) -> list[list[str]]:
    """The objects that each line of a preview links to."""
    return [[title for title, _ in one.links] for one in consequences if one.links]


def undo(client: Client, path: str) -> str:
    """Press the Undo button of the page; what it then says."""
    (offer,) = re.findall(r'name="offer" value="([^"]+)"', client.get(path).content.decode())
    answer = client.post("/undo", {"offer": offer, "back": path}, follow=True)
    return said(answer.content.decode())


def exported(client: Client, path: str = "/timeline.csv") -> list[dict[str, str]]:
    """The rows of a CSV file."""
    answer: Any = client.get(path)
    assert answer.streaming
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Django's test client reads an asynchronous stream as a whole, and says so
        text = b"".join(answer).decode()
    assert text.count("\r\n") == text.count("\n"), "RFC 4180 ends lines with CRLF"
    return list(csv.DictReader(io.StringIO(text, newline="")))
