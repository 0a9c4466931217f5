"""No number on any page of a mirror is concluded from a kind that may not be read.

Every page of the laboratory is shown of the whole cluster, and of what is left of it without the objects of one kind,
or two. A number that then stands there stood there before, at the same place, or it says that there may be more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import combinations

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from pytest_django.fixtures import Settings

from manciple import gaps
from manciple.access.mirrored import OWNERS
from manciple.gaps import Gap
from manciple.mirror.sources import Reach
from manciple.per_process import reset_all
from manciple.processes.demolab.pages import every_page
from manciple.processes.demolab.views import save_views
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.registry import registry
from manciple.wire.resources import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, QUOTAS, SLICES, TAINT_RULES, TEMPLATES
from tests.dashboard.browsing import signed_in
from tests.dashboard.test_mirror import know, stand
from tests.laboratory import furnish
from tests.mirrors import become_mirror

KINDS = (NODES, PODS, NAMESPACES, SLICES, CLASSES, TAINT_RULES, CLAIMS, QUOTAS, TEMPLATES)
#: What a number may be called that is not known.
NOT_KNOWN = re.compile(
    r"\N{EN DASH}|\d\+|may not list|cannot be judged|cannot be rehearsed|cannot be told|not known|unknown|perhaps more"
)
#: Ages and times, which go on; what no kind has to do with.
_TIMES = re.compile(r"\b\d+(\.\d+)? ?(ms|s|min|h|d|days?|weeks?|hours?|minutes?)\b|\d+:\d+(:\d+)?|\d{4}-\d\d-\d\d")
_BLOCKS = frozenset({"p", "li", "h1", "h2", "h3", "td", "th", "dt", "dd", "summary", "legend", "figcaption", "header"})


@dataclass
class Statements(HTMLParser):
    """What a page says with a number in it, each with the row and the column, or the term, that it stands under."""

    html: str
    found: set[str] = field(default_factory=set)
    _stack: list[tuple[str, list[str]]] = field(default_factory=list)
    _heads: list[str] = field(default_factory=list)
    _row: list[str] = field(default_factory=list)
    _term: str = ""
    _label: str = ""
    _hidden: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.html.partition("<main")[2].partition("</main>")[0])

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag in ("script", "style", "svg", "textarea", "select", "pre", "code"):
            self._hidden = self._hidden or tag
        if tag == "table":
            self._heads = []
        if tag == "tr":
            self._row = []
        if tag in _BLOCKS:
            self._stack.append((tag, []))
            self._label = given.get("data-l") or ""

    def handle_data(self, data: str) -> None:
        if self._stack and not self._hidden:
            self._stack[-1][1].append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == self._hidden:
            self._hidden = ""
        if tag not in _BLOCKS or not self._stack:
            return
        name, parts = self._stack.pop()
        text = re.sub(r"\s+", " ", " ".join(parts)).strip()
        if name == "dt":
            self._term = text
        if name == "th" and not self._row:
            self._heads.append(text)
        if name in ("td", "th"):
            column = self._label or (self._heads[len(self._row)] if len(self._row) < len(self._heads) else "")
            self._row.append(text)
            text = f"{self._row[0]} | {column}: {text}" if len(self._row) > 1 else text
        elif name == "dd":
            text = f"{self._term}: {text}"
        bare = _TIMES.sub("", text)
        if re.search(r"\d", bare):
            self.found.add(bare)


def said(client: Client) -> dict[str, set[str]]:
    """By the page's address."""
    found = {}
    for address in every_page():
        answer = client.get(address.path)
        if answer.status_code == 200 and not answer.streaming and "text/html" in answer.headers["Content-Type"]:
            found[address.path] = Statements(answer.content.decode()).found
    return found


@pytest.fixture
def owner(db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Client:
    furnish()
    client = signed_in("ola", OWNERS)
    save_views(User.objects.get(username="ola"))
    become_mirror(settings, monkeypatch)
    stand()
    know(Reach.EVERYWHERE)
    return client


@contextmanager
def without(*resources: str) -> Iterator[None]:
    found = [Gap(one, f"you may not list {one}", forbidden=True) for one in resources]
    with transaction.atomic(), gaps.knowing(*found):
        for resource in resources:
            kind = registry.by_resource(resource)
            with objects.writing() as writer:
                for stored in objects.list(kind).items:
                    writer.replicate(kind, decoded(stored, kind.type), json.loads(stored.text), gone=True)
        reset_all()
        try:
            yield
        finally:
            transaction.set_rollback(True)
            reset_all()


@pytest.mark.sample(2)
@pytest.mark.parametrize("resources", [*((one,) for one in KINDS), *combinations(KINDS, 2)], ids="+".join)
def test_no_number_is_concluded_from_what_may_not_be_read(owner: Client, resources: tuple[str, ...]) -> None:
    whole = said(owner)
    assert len(whole) > 50
    with without(*resources):
        concluded = {
            f"{path}: {one}"
            for path, statements in said(owner).items()
            for one in statements - whole[path]
            if not NOT_KNOWN.search(one)
        }
    assert not concluded, "\n".join(sorted(concluded))
