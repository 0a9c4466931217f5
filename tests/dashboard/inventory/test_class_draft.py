"""What is typed into the workbench and not saved stands in the address, and the page reads it from there."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client

from dashboard.inventory.classes.forms import LONGEST, ClassForm, draft_of
from manciple.store.event_log import latest_revision
from tests.builders import CLASS, make_class
from tests.dashboard import texts
from tests.dashboard.browsing import admin, viewer
from tests.dashboard.inventory.test_class_form import class_form
from tests.scheduling.cluster import Cluster

__all__ = ["admin", "viewer"]

SELECTORS = ("device.driver == 'a'", "true")
CONFIGS = (("a.example.com", "kind: A\n"),)
STORED: dict[str, Any] = {
    "name": "gpu",
    "selectors": SELECTORS,
    "configs": CONFIGS,
    "extended": "example.com/gpu",
    "resource_version": "7",
}

#: what happened -> (what is stored, the fields that are typed)
DRAFTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a selector was changed": (STORED, {"selectors": ("device.driver == 'b & c'", "true")}),
    "a selector was added": (STORED, {"selectors": (*SELECTORS, 'x == "50%+1"\n&& y')}),
    "all selectors were taken out": (STORED, {"selectors": ("",)}),
    "a configuration was changed": (STORED, {"configs": (("b.example.com", "kind: B\nü: 1"),)}),
    "all configurations were taken out": (STORED, {"configs": ()}),
    "the extended name was taken out": (STORED, {"extended": ""}),
    "a new class was named": ({}, {"name": "new", "selectors": ("true",)}),
}


def typed(form: ClassForm) -> tuple[Any, ...]:
    return (
        [form[name].value() or "" for name in form.fields],
        [row["selector"].value() for row in form.selectors],
        [(row["driver"].value(), row["parameters"].value()) for row in form.configs],
    )


@pytest.mark.parametrize("case", DRAFTS)
def test_a_draft_comes_back_from_its_address(case: str) -> None:
    stored, changes = DRAFTS[case]
    form = class_form(**(stored | changes))
    draft = draft_of(form, class_form(**stored))
    assert draft.unsaved
    assert typed(class_form(**stored).with_query(QueryDict(draft.query))) == typed(form)


def test_the_address_holds_what_differs_alone_and_renames_no_class() -> None:
    stored = class_form(**STORED)
    assert draft_of(class_form(**STORED), stored).query == ""
    assert not draft_of(class_form(**STORED), stored).unsaved
    blank = class_form(**(STORED | {"selectors": (*SELECTORS, " "), "configs": (*CONFIGS, ("", ""))}))
    assert not draft_of(blank, stored).unsaved
    assert draft_of(class_form(**(STORED | {"selectors": ("false",)})), stored).query == "selector=false"
    for query in ("tab=workbench", "name=other"):
        assert typed(stored.with_query(QueryDict(query))) == typed(class_form(**STORED)), query


def test_a_long_text_is_not_put_into_the_address() -> None:
    short = class_form(selectors=("a" * (LONGEST - len("selector=")),))
    assert len(draft_of(short, ClassForm()).query) == LONGEST
    long = class_form(selectors=("a" * LONGEST,))
    assert draft_of(long, ClassForm()).query == ""
    assert draft_of(long, ClassForm()).too_long


# The page ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(cluster: Cluster) -> Cluster:
    cluster.create(make_class(expressions=["true"]))
    return cluster


def selectors(client: Client, path: str) -> list[str]:
    answer = client.get(path)
    assert answer.status_code == 200
    form = answer.content.decode().partition('id="selectors"')[2].partition("<template")[0]
    return [html.unescape(text).strip() for text in re.findall(r"<textarea[^>]*>(.*?)</textarea>", form, re.DOTALL)]


def test_a_link_shows_what_was_typed_and_saves_nothing(gpu: Cluster, admin: Client, viewer: Client) -> None:
    before = latest_revision()
    path = f"/classes/c/{CLASS}?selector=false&selector=1+%3C+2"
    for client in (admin, viewer):
        assert selectors(client, path) == ["false", "1 < 2"]
    page = admin.get(path).content.decode()
    assert 'data-query="selector=false&amp;selector=1+%3C+2" data-unsaved' in page
    assert "lines changed" in page
    assert "data-unsaved" not in viewer.get(path).content.decode(), "who may not save has nothing to lose"
    assert selectors(admin, f"/classes/c/{CLASS}") == ["true"]
    assert "data-unsaved" not in admin.get(f"/classes/c/{CLASS}").content.decode()
    shown = admin.post("/classes/verdicts", {"selector": "a" * LONGEST, "name": CLASS, "editing": CLASS})
    assert texts.DRAFT_TOO_LONG_FOR_A_LINK in shown.content.decode()
    assert 'data-query="" data-unsaved' in shown.content.decode()
    path = "/classes/new?name=mine&selector=true&driver=a.example.com&parameters=kind%3A+A&extended=example.com%2Fg"
    page = admin.get(path).content.decode()
    assert selectors(admin, path) == ["true"]
    for value in ('value="mine"', 'value="a.example.com"', "kind: A", 'value="example.com/g"'):
        assert value in page
    assert latest_revision() == before
