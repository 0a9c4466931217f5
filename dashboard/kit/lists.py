"""Lists: what a list's address asks for, the table that it answers with, and the same as a file (CSV, RFC 4180).

A list's view reads its `ListQuery` from the address, makes a `Table` that can read its rows and hands it to
`rendering.show_list`; its template extends `kit/list.html`, which draws the filters, the tabs, the head, the pager and
the tools, and leaves to it the cells of one row, in the order of the columns. Everything that a person chose stands in
the address: filters, order, columns, density, page and the row that is open. The same address with `.csv` is the list
as a file: all rows, not only those of the page, in the columns that are shown; with `.json` the same for programs. The
table reads the rows of the page or those of the file, never both. `list_paths` are a list's three routes.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Self, TypeVar
from urllib.parse import urlencode

from django.db.models import Func, TextField
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, get_resolver, path, reverse
from django.utils.text import slugify

from manciple.access.authorization import routes
from manciple.wire.limits import give_way
from manciple.wire.quantity import whole

CONTENT_TYPE = "text/csv; charset=utf-8; header=present"
#: What a spreadsheet would begin a formula with.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_cell(cell: Any) -> str:
    """A cell's text; one that a spreadsheet would calculate gets an apostrophe, which makes it text there."""
    text = str(cell)
    return f"'{text}" if text.startswith(_FORMULA) else text


def csv_lines(rows: Iterable[Sequence[str]]) -> str:
    """Rows as text, with CRLF."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def file_answer(request: HttpRequest, name: str, rows: Iterable[Sequence[Any]]) -> HttpResponse:
    """A whole file, in the form that the address ends with. name: without its ending; rows: the head first."""
    if request.path.endswith(JSON):
        lines = iter(rows)
        keys = [re.sub(r"\W+", "_", str(title).strip().lower()) for title in next(lines)]
        items = [dict(zip(keys, row, strict=False)) for row in lines]
        return JsonResponse({"items": items}, json_dumps_params={"ensure_ascii": False})
    answer = HttpResponse(csv_lines([*map(csv_cell, row)] for row in rows), content_type=CONTENT_TYPE)
    answer["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    return answer


T = TypeVar("T")

#: Rows that a page draws of a table without pages of its own. Drawing one takes as long as reading several.
MOST_ROWS = 500
#: The page before which the first one is.
SECOND = 2
#: Digits of a page's number that are read; longer ones are nobody's.
_DIGITS = 7
#: What a list's address ends with where it is asked for as a file.
CSV, JSON = FILES = (".csv", ".json")


def is_file(request: HttpRequest) -> bool:
    return request.path.endswith(FILES)


def page_path(request: HttpRequest) -> str:
    """Of the list that a file is of."""
    path, dot, ending = request.path.rpartition(".")
    return path if f"{dot}{ending}" in FILES else request.path


class ListPattern(URLPattern):
    """The route of a list that has files. query: of its address, where that is a `ListQuery`."""

    query: type[ListQuery] | None = None


def list_paths(
    route: str, page: Callable[..., HttpResponseBase], query: type[ListQuery] | None = None, *, file: Any = None
) -> list[URLPattern]:
    """The routes of a list, as a page and as files. file: the view of these, where it is another one."""
    found = path(route, page, name=route)
    listed = ListPattern(found.pattern, found.callback, found.default_args, found.name)
    listed.query = query
    return [
        listed,
        *(path(f"{route}{ending}", file or page, name=f"{route}-{ending[1:]}") for ending in FILES),
    ]


def list_files() -> dict[str, type[ListQuery] | None]:
    """route -> query, of every list that programs may read."""
    found = routes(get_resolver().url_patterns)
    return {route: one.query for route, one in found if isinstance(one, ListPattern)}


def parameter(name: str, *, known: Container[str] | None = None, selects: bool = False) -> Any:
    """A field of a `ListQuery`: `name` in the address. known: all others are ignored; selects: a row, and no filter."""
    return dataclasses.field(default="", metadata={"parameter": name, "known": known, "selects": selects})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """What an address asks of a list. What is not understood is left out: an address never fails."""

    path: str = ""
    sort: str = ""  # the column's `sort`, with a "-" before it from the greatest to the least
    cols: tuple[str, ...] = ()  # names of the columns that are wanted; none for the usual ones
    dense: bool = False
    saved: str = ""  # the saved view that it was opened as (see `dashboard.kit.preferences`)
    page: int = 1

    @classmethod
    def read(cls, request: HttpRequest) -> Self:
        query = request.GET
        values: dict[str, Any] = {"path": page_path(request), "sort": query.get("sort", "")}
        values["cols"] = tuple(name for some in query.getlist("cols") for name in some.split(",") if name)
        values["dense"], values["saved"] = query.get("dense") == "1", query.get("saved", "")
        values["page"] = max(1, whole(query.get("page", ""), digits=_DIGITS) or 1)
        for one in _parameters(cls):
            value, known = query.get(one.metadata["parameter"], "").strip(), one.metadata["known"]
            values[one.name] = value if known is None or value in known else ""
        return cls(**values)

    @classmethod
    def parameters(cls) -> dict[str, Container[str] | None]:
        """name in the address -> its values, None where there are others."""
        named = {one.metadata["parameter"]: one.metadata["known"] for one in _parameters(cls)}
        return named | {"sort": None, "cols": None}

    @property
    def filters(self) -> dict[str, str]:
        """parameter -> value of those that say which rows are wanted."""
        wanted = ((one, getattr(self, one.name)) for one in _parameters(type(self)) if not one.metadata["selects"])
        return {one.metadata["parameter"]: value for one, value in wanted if value}

    @property
    def narrows(self) -> bool:
        return bool(self.filters)

    @property
    def layout(self) -> dict[str, str]:
        """parameter -> value of those that say how the rows are shown."""
        shown = {
            "sort": self.sort,
            "cols": ",".join(self.cols),
            "dense": "1" if self.dense else "",
            "saved": self.saved,
        }
        return {name: value for name, value in shown.items() if value}

    @property
    def everything(self) -> str:
        """The address without filters. Where nothing is left in it, `saved=` keeps a usual view from being opened."""
        filters = {one.name: "" for one in _parameters(type(self)) if not one.metadata["selects"]}
        url = self.url(**filters, saved="")
        return f"{url}?saved=" if url == self.path else url

    def url(self, **changes: Any) -> str:
        """The address with other values; the first page again unless only the page or the open row is another."""
        selecting = {"page"} | {one.name for one in _parameters(type(self)) if one.metadata["selects"]}
        changed = dataclasses.replace(self, **({} if changes.keys() <= selecting else {"page": 1}) | changes)
        parts = changed.filters | changed.layout
        if changed.page > 1:
            parts["page"] = str(changed.page)
        for one in _parameters(type(self)):
            if one.metadata["selects"] and (value := getattr(changed, one.name)):
                parts[one.metadata["parameter"]] = value
        return f"{self.path}?{urlencode(parts, safe=',')}" if parts else self.path


def _parameters(query: type[ListQuery]) -> Iterable[dataclasses.Field[Any]]:
    return (one for one in dataclasses.fields(query) if "parameter" in one.metadata)


@dataclass(frozen=True, slots=True)
class Filter:
    """One input above a list. options: a choice of these and of `every`; without them any text may be typed."""

    name: str  # the parameter in the address
    label: str
    value: str = ""
    options: Sequence[str] | None = None
    every: str = ""
    hint: str = ""
    complaint: str = ""  # what is wrong with the value

    @property
    def id(self) -> str:
        return f"f-{self.name}"

    @classmethod
    def of_namespaces(cls, chosen: str, names: Iterable[str]) -> Filter:
        return cls("ns", "Namespace", chosen, every="All namespaces", options=sorted(set(names)))


@dataclass(frozen=True, slots=True)
class Tab:
    """One state of the rows, or all. alarming: its number asks for somebody."""

    label: str
    count: int
    url: str
    current: bool
    alarming: bool = False


def state_tabs(
    query: ListQuery, names: Mapping[str, str], shown: Iterable[str], counts: Mapping[str, int], *, alarming: str = ""
) -> list[Tab]:
    """A tab for all rows and for each state that is shown. query: has a field `state`; names: state -> its label,
    where that is another word."""
    now = query.filters.get("state", "")
    return [
        Tab(
            label=names.get(state, state) if state else "All",
            count=counts.get(state, 0) if state else sum(counts.values()),
            url=query.url(state=state),
            current=state == now,
            alarming=state == alarming and bool(counts.get(state)),
        )
        for state in ("", *shown)
    ]


@dataclass(frozen=True, kw_only=True)
class ListColumn(Generic[T]):
    """sort: what the address calls sorting by it, "" where nobody would; key: by what, where the rows are in memory;
    text: of a row of the table, what the file says; extra: drawn only for whoever asks for it. Its cells
    stand under `table.shown`, or under `table.drawn` where only some addresses have it as an extra one.
    """

    title: str
    css: str = ""
    sort: str = ""
    key: Callable[[T], Any] | None = None
    text: Callable[[Any], Any] | None = None
    extra: bool = False

    @property
    def name(self) -> str:
        """What the address calls it."""
        return slugify(self.title)


@dataclass(frozen=True, slots=True)
class Head:
    """A column's head. order: what it is sorted in now, as `aria-sort` says it; url: sorts by it, "" for none."""

    title: str
    css: str
    url: str = ""
    order: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChoice:
    """A column that may be shown or not. place: of its cells in a row, from 1; 0 of an extra one that is not drawn."""

    name: str
    title: str
    place: int
    shown: bool
    extra: bool


@dataclass(frozen=True, slots=True)
class BulkAct:
    """A button under a list, for the rows that are picked. url: the page that says what it would do (`tools.bulk`)."""

    word: str
    url: str
    destroys: bool = False


def bulk_acts(resource: str, *acts: str) -> tuple[BulkAct, ...]:
    """acts: delete, cordon, uncordon or drain (`dashboard.tools.bulk.ACTS`)."""
    return tuple(
        BulkAct(f"{act.capitalize()}…", reverse("bulk", args=(resource, act)), destroys=act in ("delete", "drain"))
        for act in acts
    )


def sorted_by(columns: Sequence[ListColumn[T]], sort: str, rows: Iterable[T]) -> list[T]:
    """The rows in the order that `sort` asks for; as they come where it names no column."""
    key = next((one.key for one in columns if one.sort and one.sort == sort.removeprefix("-")), None)
    rows = giving_way(rows)
    return sorted(rows, key=key, reverse=sort.startswith("-")) if key else list(rows)


class Natural(Func):
    """Sorts node-2 before node-10 in the database, as `manciple.wire.validation.natural` does in memory."""

    function = "natural_key"
    output_field = TextField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        connection.ensure_connection()
        connection.connection.create_function("natural_key", 1, _padded, deterministic=True)
        return self.as_sql(compiler, connection, **context)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        padded = (
            r"regexp_replace(regexp_replace(%(expressions)s, '(\d+)', '0000000000\1', 'g'), '0*(\d{10})', '\1', 'g')"
        )
        return self.as_sql(compiler, connection, template=padded, **context)


def _padded(name: str | None) -> str | None:
    return name and re.sub(r"\d+", lambda digits: digits[0].lstrip("0").zfill(10), name)


def giving_way(rows: Iterable[T]) -> Iterator[T]:
    """The same rows. There may be as many as somebody stores objects, so making them gives way to other requests."""
    for row in rows:
        give_way()
        yield row


@dataclass(frozen=True, slots=True)
class PageOfRows:
    """Which of all rows are shown: the page that was asked for, or the last one where there are not so many."""

    total: int = 0
    size: int = 0  # 0 for all on one page
    asked: int = 1

    @classmethod
    def unless_few(cls, total: int, asked: int) -> Self:
        """All on one page, unless there are more than one page can show."""
        return cls(total, MOST_ROWS if total > MOST_ROWS else 0, asked)

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // self.size)) if self.size else 1

    @property
    def number(self) -> int:
        return min(self.asked, self.pages)

    @property
    def first(self) -> int:
        return (self.number - 1) * self.size + 1

    @property
    def last(self) -> int:
        return min(self.first + self.size - 1, self.total) if self.size else self.total

    @property
    def rows(self) -> slice:
        return slice(self.first - 1, self.last) if self.size else slice(None)


@dataclass(frozen=True, kw_only=True)
class Table(Generic[T]):
    """One page of a list.

    id, topics, title: of the section that holds it; read: some of all rows, in their order; note: behind "1 to 100 of
    236"; acts: what can be done with picked rows, whose first cell is then a box (`{% pick table at name %}`).
    """

    id: str
    topics: str
    title: str
    query: ListQuery
    columns: Sequence[ListColumn[Any]]  # they sort what the rows are made of
    read: Callable[[slice], Iterable[T]]
    page: PageOfRows = PageOfRows()
    css: str = "stack"
    filters: Sequence[Filter] = ()
    tabs: Sequence[Tab] = ()
    note: str = ""
    acts: Sequence[BulkAct] = ()

    @cached_property
    def rows(self) -> Sequence[T]:
        """Of this page."""
        return list(self.read(self.page.rows))

    def in_pages(self) -> Self:
        """The table as it is drawn: one that has no pages gets some where it has too many rows."""
        if self.page.size or len(self.rows) <= MOST_ROWS:
            return self
        page = PageOfRows(len(self.rows), MOST_ROWS, self.query.page)
        return dataclasses.replace(self, page=page, read=self.rows.__getitem__)

    @property
    def heads(self) -> list[Head]:
        return [self._head(column) for column in self.columns if column.name in self.drawn]

    @cached_property
    def choices(self) -> list[ColumnChoice]:
        """The first column is always shown: it says what a row is."""
        wanted = {one.name for one in self.columns} & {*self.query.cols}
        found, drawn = list[ColumnChoice](), 1 if self.acts else 0
        for one in self.columns:
            shown = not found or (one.name in wanted if wanted else not one.extra)
            drawn += shown or not one.extra
            place = drawn if shown or not one.extra else 0
            found.append(ColumnChoice(name=one.name, title=one.title, place=place, shown=shown, extra=one.extra))
        return found

    @property
    def classes(self) -> str:
        """Of the table: its own, and which cells of a row are hidden."""
        hidden = [f"hide-{one.place}" for one in self.choices if one.place and not one.shown]
        return " ".join((self.css, *(("dense",) if self.query.dense else ()), *hidden))

    @cached_property
    def shown(self) -> set[str]:
        """Names of the columns that are shown."""
        return {one.name for one in self.choices if one.shown}

    @cached_property
    def drawn(self) -> set[str]:
        """Names of the columns that have cells, shown or not: a script shows and hides them."""
        return {one.name for one in self.choices if one.place}

    @property
    def csv_url(self) -> str:
        """The file, "" where no column says what would stand in it."""
        if not any(one.text for one in self.columns):
            return ""
        address, _, asked = self.query.url(page=1, saved="").partition("?")
        return f"{address}{CSV}{f'?{asked}' if asked else ''}"

    def as_file(self, request: HttpRequest) -> HttpResponse:
        chosen = [one for one in self.columns if one.text and one.name in self.shown]
        rows = giving_way(self.read(slice(None)))
        lines = ([one.text(row) for one in chosen if one.text] for row in rows)
        name = self.query.path.strip("/").replace("/", "-")
        return file_answer(request, name, ([one.title for one in chosen], *lines))

    def _head(self, column: ListColumn[Any]) -> Head:
        if not column.sort:
            return Head(column.title, column.css)
        up, down, now = column.sort, f"-{column.sort}", self.query.sort
        first, second = (down, up) if "num" in column.css.split() else (up, down)
        order = {up: "ascending", down: "descending"}.get(now, "")
        return Head(column.title, column.css, self.query.url(sort=second if now == first else first), order)

    @property
    def hidden(self) -> dict[str, str]:
        """What else the address says, which sending the filters must keep."""
        kept = self.query.filters | self.query.layout
        return {name: value for name, value in kept.items() if name not in {one.name for one in self.filters}}

    @property
    def kept(self) -> dict[str, str]:
        """What else the address says, which choosing columns must keep."""
        kept = self.query.filters | self.query.layout
        return {name: value for name, value in kept.items() if name not in ("cols", "dense")}

    @property
    def counted(self) -> str:
        """`56 nodes`, of a list without tabs that is on one page."""
        return "" if self.page.size else _count(len(self.rows), self.title)

    @property
    def told(self) -> str:
        """`236 pods`, or `101 to 200 of 236` where that is not all."""
        page = self.page
        if page.last - page.first + 1 == page.total:
            return f"{_count(page.total, self.title)}{self.note}"
        return f"{page.first:,} to {page.last:,} of {page.total:,}{self.note}"

    @property
    def before(self) -> str:
        return self.query.url(page=self.page.number - 1) if self.page.number > 1 else ""

    @property
    def first_url(self) -> str:
        """Of the first page, where that is not the one before."""
        return self.query.url(page=1) if self.page.number > SECOND else ""

    @property
    def last_url(self) -> str:
        """Of the last page, where that is not the next one."""
        return self.query.url(page=self.page.pages) if self.page.number < self.page.pages - 1 else ""

    @property
    def after(self) -> str:
        return self.query.url(page=self.page.number + 1) if self.page.last < self.page.total else ""


def _count(number: int, title: str) -> str:
    """`1 class`, `56 nodes`. title: of many."""
    one = f"{title[:-3]}y" if title.endswith("ries") else title.removesuffix("es" if title.endswith("sses") else "s")
    one = "person" if title == "People" else one
    return f"{number:,} {(one if number == 1 else title).lower()}"
