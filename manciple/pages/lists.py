"""Lists: what a list's address asks for, and the table that it answers with.

A list's view reads its `ListQuery` from the address, finds its rows and makes a `Table` of them; its template extends
`list.html`, which draws the filters, the tabs, the head, the pager, and leaves to it the cells of one row. Everything
that a person chose stands in the address: filters, order, page and the row that is open.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar
from urllib.parse import urlencode

from django.http import HttpRequest

from manciple.wire.quantity import whole

T = TypeVar("T")

#: Digits of a page's number that are read; longer ones are nobody's.
_DIGITS = 7


def parameter(name: str, *, known: Container[str] | None = None, selects: bool = False) -> Any:
    """A field of a `ListQuery`: `name` in the address. known: all others are ignored; selects: a row, and no filter."""
    return dataclasses.field(default="", metadata={"parameter": name, "known": known, "selects": selects})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """What an address asks of a list. What is not understood is left out: an address never fails."""

    path: str = ""
    sort: str = ""  # the column's `sort`, with a "-" before it from the greatest to the least
    page: int = 1

    @classmethod
    def read(cls, request: HttpRequest) -> Self:
        query = request.GET
        values: dict[str, Any] = {"path": request.path, "sort": query.get("sort", "")}
        values["page"] = max(1, whole(query.get("page", ""), digits=_DIGITS) or 1)
        for one in _parameters(cls):
            value, known = query.get(one.metadata["parameter"], "").strip(), one.metadata["known"]
            values[one.name] = value if known is None or value in known else ""
        return cls(**values)

    @property
    def filters(self) -> dict[str, str]:
        """parameter -> value of those that say which rows are wanted."""
        wanted = ((one, getattr(self, one.name)) for one in _parameters(type(self)) if not one.metadata["selects"])
        return {one.metadata["parameter"]: value for one, value in wanted if value}

    @property
    def narrows(self) -> bool:
        return bool(self.filters)

    def url(self, **changes: Any) -> str:
        """The address with other values; the first page again unless only the page or the open row is another."""
        selecting = {"page"} | {one.name for one in _parameters(type(self)) if one.metadata["selects"]}
        changed = dataclasses.replace(self, **({} if changes.keys() <= selecting else {"page": 1}) | changes)
        parts = changed.filters
        if changed.sort:
            parts["sort"] = changed.sort
        if changed.page > 1:
            parts["page"] = str(changed.page)
        for one in _parameters(type(self)):
            if one.metadata["selects"] and (value := getattr(changed, one.name)):
                parts[one.metadata["parameter"]] = value
        return f"{self.path}?{urlencode(parts)}" if parts else self.path


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
    """sort: what the address calls sorting by it, "" where nobody would; key: by what, where the rows are in memory."""

    title: str
    css: str = ""
    sort: str = ""
    key: Callable[[T], Any] | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """A column's head. order: what it is sorted in now, as `aria-sort` says it; url: sorts by it, "" for none."""

    title: str
    css: str
    url: str = ""
    order: str = ""


def sorted_by(columns: Sequence[ListColumn[T]], sort: str, rows: Iterable[T]) -> list[T]:
    """The rows in the order that `sort` asks for; as they come where it names no column."""
    key = next((one.key for one in columns if one.sort and one.sort == sort.removeprefix("-")), None)
    return sorted(rows, key=key, reverse=sort.startswith("-")) if key else list(rows)


@dataclass(frozen=True, slots=True)
class PageOfRows:
    """Which of all rows are shown: the page that was asked for, or the last one where there are not so many."""

    total: int = 0
    size: int = 0  # 0 for all on one page
    asked: int = 1

    @property
    def number(self) -> int:
        return min(self.asked, max(1, -(-self.total // self.size))) if self.size else 1

    @property
    def first(self) -> int:
        return (self.number - 1) * self.size + 1

    @property
    def last(self) -> int:
        return min(self.first + self.size - 1, self.total) if self.size else self.total

    @property
    def rows(self) -> slice:
        return slice(self.first - 1, self.last)


@dataclass(frozen=True, kw_only=True)
class Table(Generic[T]):
    """One page of a list. id, topics, title: of the section that holds it; note: behind "1 to 100 of 236"."""

    id: str
    topics: str
    title: str
    query: ListQuery
    columns: Sequence[ListColumn[Any]]  # they sort what the rows are made of
    rows: Sequence[T]  # of this page
    page: PageOfRows = PageOfRows()
    css: str = "stack"
    filters: Sequence[Filter] = ()
    tabs: Sequence[Tab] = ()
    note: str = ""

    @property
    def heads(self) -> list[Head]:
        return [self._head(column) for column in self.columns]

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
        kept = self.query.filters | ({"sort": self.query.sort} if self.query.sort else {})
        return {name: value for name, value in kept.items() if name not in {one.name for one in self.filters}}

    @property
    def told(self) -> str:
        """`236 pods`, or `101 to 200 of 236` where that is not all."""
        page = self.page
        if page.last - page.first + 1 == page.total:
            return f"{page.total:,} {self.title.lower().removesuffix('s' if page.total == 1 else '')}{self.note}"
        return f"{page.first:,} to {page.last:,} of {page.total:,}{self.note}"

    @property
    def before(self) -> str:
        return self.query.url(page=self.page.number - 1) if self.page.number > 1 else ""

    @property
    def after(self) -> str:
        return self.query.url(page=self.page.number + 1) if self.page.last < self.page.total else ""
