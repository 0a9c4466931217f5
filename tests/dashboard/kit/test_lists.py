"""Lists: what an address asks for, how columns sort, which rows a page shows; and templates without indentation."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
from django.template import Context, Engine, Template
from django.test import RequestFactory

from dashboard.kit.lists import (
    BulkAct,
    Filter,
    ListColumn,
    ListQuery,
    PageOfRows,
    Table,
    parameter,
    sorted_by,
    state_tabs,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FruitQuery(ListQuery):
    state: str = parameter("state", known=("ripe", "green"))
    text: str = parameter("q")
    at: str = parameter("at", selects=True)


COLUMNS = (
    ListColumn[str](title="Name", sort="name", key=lambda fruit: fruit),
    ListColumn[str](title="Length", css="num", sort="length", key=len),
    ListColumn[str](title="Taste"),
)


def asked(query: str = "") -> FruitQuery:
    return FruitQuery.read(RequestFactory().get(f"/fruit?{query}"))


def table(query: str = "", *, total: int = 0) -> Table[str]:
    found = asked(query)
    page = PageOfRows(total, 10, found.page)
    filters = (Filter("q", "Name", found.text),)
    return Table(
        id="fruit",
        topics="",
        title="Fruits",
        query=found,
        columns=COLUMNS,
        read=[""][:0].__getitem__,
        page=page,
        filters=filters,
    )


READ = {
    "cols=name,length&cols=taste&dense=1&saved=abc": FruitQuery(
        path="/fruit", cols=("name", "length", "taste"), dense=True, saved="abc"
    ),
    "state=ripe&q=+apple+": FruitQuery(path="/fruit", state="ripe", text="apple"),
    "state=blue": FruitQuery(path="/fruit"),
    "page=3": FruitQuery(path="/fruit", page=3),
    "page=0": FruitQuery(path="/fruit"),
    "page=x": FruitQuery(path="/fruit"),
    "page=²": FruitQuery(path="/fruit"),
    "page=99999999999": FruitQuery(path="/fruit"),
}


@pytest.mark.parametrize("query", READ)
def test_what_is_not_understood_is_left_out(query: str) -> None:
    assert asked(query) == READ[query]


def test_another_filter_begins_at_the_first_page_and_another_row_does_not() -> None:
    now = asked("state=ripe&q=apple&page=3&at=one&sort=name")
    assert now.url(at="two") == "/fruit?state=ripe&q=apple&sort=name&page=3&at=two"
    assert now.url(page=4) == "/fruit?state=ripe&q=apple&sort=name&page=4&at=one"
    assert now.url(state="green") == "/fruit?state=green&q=apple&sort=name&at=one"
    assert asked().url() == "/fruit"


def test_an_open_row_narrows_nothing() -> None:
    assert not asked("at=one&page=2&sort=name").narrows
    assert asked("q=apple").narrows


def test_a_column_is_sorted_one_way_and_then_the_other_numbers_from_the_greatest() -> None:
    assert [head.url for head in table().heads] == ["/fruit?sort=name", "/fruit?sort=-length", ""]
    assert [head.order for head in table("sort=name").heads] == ["ascending", "", ""]
    assert table("sort=name").heads[0].url == "/fruit?sort=-name"
    fruits = ["fig", "cherry", "apple"]
    assert sorted_by(COLUMNS, "name", fruits) == ["apple", "cherry", "fig"]
    assert sorted_by(COLUMNS, "-length", fruits) == ["cherry", "apple", "fig"]
    assert sorted_by(COLUMNS, "taste", fruits) == fruits


PAGES = {(0, 1): (1, 0), (7, 1): (1, 7), (10, 1): (1, 10), (25, 2): (11, 20), (25, 3): (21, 25), (25, 9): (21, 25)}


@pytest.mark.parametrize("case", PAGES)
def test_past_the_end_stands_the_last_page(case: tuple[int, int]) -> None:
    total, number = case
    page = PageOfRows(total, 10, number)
    assert (page.first, page.last) == PAGES[case]


def test_the_pager_tells_how_many_there_are() -> None:
    assert table(total=1).told == "1 fruit"
    assert table(total=7).told == "7 fruits"
    assert (table("page=2", total=25).before, table("page=2", total=25).after) == ("/fruit", "/fruit?page=3")
    assert table("page=2", total=25).told == "11 to 20 of 25"


def test_sending_the_filters_keeps_what_else_the_address_says() -> None:
    assert table("state=ripe&q=apple&sort=name&page=2").hidden == {"state": "ripe", "sort": "name"}


def test_columns_are_chosen_by_their_names_and_the_first_is_always_there() -> None:
    assert [one.shown for one in table().choices] == [True, True, True]
    assert [one.shown for one in table("cols=taste").choices] == [True, False, True]
    assert table("cols=taste&dense=1").classes == "stack dense hide-2"
    assert table("cols=no-such-column").classes == "stack"
    picked = dataclasses.replace(table("cols=taste"), acts=(BulkAct("Eat", "/bulk/fruit/eat"),))
    assert picked.classes == "stack hide-3", "the box of a row is its first cell"


def test_what_is_extra_is_shown_to_whoever_asks_for_it() -> None:
    columns = (*COLUMNS, ListColumn[str](title="Seeds", extra=True))
    assert [one.shown for one in dataclasses.replace(table(), columns=columns).choices] == [True, True, True, False]
    assert [head.title for head in dataclasses.replace(table(), columns=columns).heads] == ["Name", "Length", "Taste"]
    asked_for = dataclasses.replace(table("cols=name,seeds"), columns=columns)
    assert [one.shown for one in asked_for.choices] == [True, False, False, True]
    assert [head.title for head in asked_for.heads] == ["Name", "Length", "Taste", "Seeds"]
    assert asked_for.classes == "stack hide-2 hide-3"


def test_columns_and_density_stay_when_something_else_is_chosen() -> None:
    now = asked("state=ripe&cols=name&dense=1&saved=abc&page=2")
    assert now.url(state="green") == "/fruit?state=green&cols=name&dense=1&saved=abc"
    assert table("q=fig&cols=name,taste&dense=1").hidden == {"cols": "name,taste", "dense": "1"}
    assert now.everything == "/fruit?cols=name&dense=1"
    assert asked("state=ripe").everything == "/fruit?saved=", "or a usual view would be opened"


def test_the_file_has_all_rows_in_the_columns_that_are_shown() -> None:
    columns = [dataclasses.replace(one, text=f"{one.title} of {{}}".format) for one in COLUMNS]
    read = list[slice]()

    def reader(part: slice) -> list[str]:
        read.append(part)
        return ["fig", "=1+1"][part]

    shown = dataclasses.replace(table("cols=name,taste&page=2"), columns=columns, read=reader)
    assert shown.csv_url == "/fruit.csv?cols=name,taste"
    answer = shown.as_file(RequestFactory().get("/rows.csv"))
    expected = ["Name,Taste", *(f"Name of {fruit},Taste of {fruit}" for fruit in ("fig", "=1+1"))]
    assert answer.content.decode().splitlines() == expected
    assert read == [slice(None)], "the rows of the page are not read for the file"
    assert answer["Content-Disposition"] == 'attachment; filename="fruit.csv"'
    assert table().csv_url == "", "no column says what would stand in it"


#: page of nine rows by two -> (first, before, after, last)
ENDS = {
    1: ("", "", "/fruit?page=2", "/fruit?page=5"),
    2: ("", "/fruit", "/fruit?page=3", "/fruit?page=5"),
    3: ("/fruit", "/fruit?page=2", "/fruit?page=4", "/fruit?page=5"),
    4: ("/fruit", "/fruit?page=3", "/fruit?page=5", ""),
    9: ("/fruit", "/fruit?page=4", "", ""),
}


@pytest.mark.parametrize("page", ENDS)
def test_one_may_jump_to_the_first_and_the_last_page(page: int) -> None:
    shown = dataclasses.replace(table(f"page={page}"), page=PageOfRows(9, 2, page))
    assert (shown.first_url, shown.before, shown.after, shown.last_url) == ENDS[page]


COUNTED = {("Device classes", 1): "1 device class", ("Nodes", 3): "3 nodes", ("Entries", 1): "1 entry"}


@pytest.mark.parametrize("case", COUNTED)
def test_a_list_without_tabs_says_how_many_there_are(case: tuple[str, int]) -> None:
    title, number = case
    assert (
        dataclasses.replace(table(), title=title, read=(["x"] * number).__getitem__, page=PageOfRows()).counted
        == COUNTED[case]
    )


def test_tabs_count_and_alarm_where_there_is_something() -> None:
    tabs = state_tabs(asked("state=ripe"), {"ripe": "Ripe"}, ["ripe", "green"], {"ripe": 2}, alarming="green")
    assert [(tab.label, tab.count, tab.current, tab.alarming) for tab in tabs] == [
        ("All", 2, False, False),
        ("Ripe", 2, True, False),
        ("green", 0, False, False),
    ]


def test_a_template_is_drawn_without_its_indentation() -> None:
    drawn = Engine.get_default().get_template("404.html").source
    assert "\n " not in str(drawn)
    assert "\n\n" not in str(drawn)


def test_an_icon_is_hidden_from_who_hears_the_page() -> None:
    drawn = Template('{% icon "i-pod" 13 %}').render(Context())
    assert drawn == '<svg width="13" height="13" aria-hidden="true"><use href="#i-pod"/></svg>'
