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

from claims.models import Ending
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
    r"\N{EN DASH}|\d\+|at least|perhaps more|not (be )?known|unknown|may not list|"
    r"cannot be (judged|rehearsed|told|estimated)",
    re.IGNORECASE,
)
#: Pages of what was recorded when it was known.
RECORDED = ("/ended", "/timeline", "/usage", "/incidents", "/audit", "/find")
#: What goes on without the cluster; what scripts fill in; how many pods wait for one reason, which is another where not
#: enough is known; measurements.
NOT_OF_KINDS = (
    *("Event log", "Database", "Workers", "Periodic tasks", "Rehearsals", "need attention"),
    *("more", "pods, oldest", "On average", "Temperature", "Power"),
    # Causes of waiting, in place of what would end it (test_mirror_judgement.py).
    *("are unusable", "cannot be used"),
)
#: Ages and times, which go on; names with numbers in them.
_AGES = re.compile(r"\b\d+(\.\d+)? ?(ms|s|min|h|d|days?|weeks?|hours?|minutes?)\b|\d+:\d+(:\d+)?|\d{4}-\d\d-\d\d")
#: A row of what was recorded.
_HOURS = re.compile(r"[A-Z][a-z]{2} \d\d:\d\d \|")
_NAMES = re.compile(r"\b[\w./@:-]*[A-Za-z][\w./@:-]*")
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
    _is_head: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.html.partition("<main")[2].partition("</main>")[0])

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag in ("script", "style", "svg", "textarea", "select", "pre", "code"):
            self._hidden = self._hidden or tag
        if tag == "table":
            self._heads = []
        if tag == "th":
            self._is_head = given.get("scope") == "col"
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
        if name == "th" and self._is_head:
            self._heads.append(text)
        if name in ("td", "th"):
            column = self._label or (self._heads[len(self._row)] if len(self._row) < len(self._heads) else "")
            self._row.append(text)
            text = f"{self._row[0]} | {column}: {text}" if len(self._row) > 1 else text
        elif name == "dd":
            text = f"{self._term}: {text}"
        if _HOURS.match(text) or any(one in text for one in NOT_OF_KINDS):
            return
        place, _, told = text.rpartition(": ")
        told = _AGES.sub("", told)
        if re.search(r"\d", _NAMES.sub("", told)):
            self.found.add(re.sub(r"\s+", " ", f"{place}: {told}").strip(": "))


def said(client: Client) -> dict[str, set[str]]:
    """By the page's address."""
    found = dict[str, set[str]]()
    for address in every_page():
        if address.path.startswith(RECORDED):
            continue
        answer = client.get(address.path)
        found[address.path] = set()
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
    endings = set(Ending.objects.values_list("pk", flat=True))
    with transaction.atomic(), gaps.knowing(*found):
        for resource in resources:
            kind = registry.by_resource(resource)
            with objects.writing() as writer:
                for stored in objects.list(kind).items:
                    writer.replicate(kind, decoded(stored, kind.type), json.loads(stored.text), gone=True)
        Ending.objects.exclude(pk__in=endings).delete()  # they have not ended, they are not known
        reset_all()
        try:
            yield
        finally:
            transaction.set_rollback(True)
            reset_all()


@pytest.mark.sample(1)
@pytest.mark.parametrize("resources", [*((one,) for one in KINDS), *combinations(KINDS, 2)], ids="+".join)
def test_no_number_is_concluded_from_what_may_not_be_read(owner: Client, resources: tuple[str, ...]) -> None:
    whole = said(owner)
    assert sum(map(bool, whole.values())) > 50
    for path, statements in said(owner).items():  # what was still looked for
        whole[path] |= statements
    with without(*resources):
        concluded = {
            f"{path}: {one}"
            for path, statements in said(owner).items()
            for one in statements - whole[path]
            if not (NOT_KNOWN.search(one) or _is_other_row(one, whole[path]) or _has_same_numbers(one, whole[path]))
        }
    assert not concluded, "\n".join(sorted(concluded))


def _is_other_row(statement: str, before: set[str]) -> bool:
    """Whether its row was not on the first page of a list before: the order may depend on what is not known."""
    row, cells, _ = statement.partition(" | ")
    return bool(cells) and not any(one.startswith(f"{row} | ") for one in before)


def _has_same_numbers(statement: str, before: set[str]) -> bool:
    """Whether only words around them went, such as the choice of a class."""
    begin = statement.split(" ", 1)[0]
    return any(one.startswith(begin) and _numbers(one) == _numbers(statement) for one in before)


def _numbers(statement: str) -> list[str]:
    return re.findall(r"\d[\d,.]*", _NAMES.sub("", statement))
