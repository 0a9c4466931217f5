"""The documentation as pages: `/manual/NAME` draws `docs/*/NAME.md`, so that pages can link to what their words mean.

The files come with the program. Headings have the ids that GitHub gives them, so links between documents hold in both
places; each row of the glossary has one too. Pictures are left out: the pages that they show are a click away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe

from dashboard.kit.guards import signed_in
from dashboard.kit.rendering import PageContext, render_page
from dashboard.templatetags.kit import manual_url
from manciple import layout
from manciple.store.event_log import latest_revision

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

#: The documents for people who use or run an installation, in the order of the list.
NAMES = (
    "dashboard", "glossary", "scheduling", "placement", "gangs-and-moves", "operating", "people", "tenants", "audit",
    "keys", "notifications", "back-up", "upgrading", "monitoring", "settings", "commands", "gates", "policies",
    "workloads", "extended-resources", "custom-resources", "drivers", "nodeagent", "python",
)  # fmt: skip
_PUNCTUATION = re.compile(r"[^\w\- ]")
_LINK = re.compile(r"^(?:[\w./-]+/)?([\w-]+)\.md(?:#(.*))?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualPage:
    """One document. parts: (id, text) of its headings of the second level."""

    name: str
    title: str
    parts: Sequence[tuple[str, str]]
    ids: frozenset[str]
    html: SafeString


@lru_cache(maxsize=len(NAMES))
def title_of(name: str) -> str:
    """name: one of NAMES."""
    (path,) = layout.MANUAL.glob(f"*/{name}.md")
    lines = path.read_text().splitlines()
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), name)


@lru_cache(maxsize=len(NAMES))
def read(name: str) -> ManualPage | None:
    """None without a document of this name."""
    if name not in NAMES:
        return None
    (path,) = layout.MANUAL.glob(f"*/{name}.md")
    tokens = _parser().parse(path.read_text())
    headings = list(_headings(tokens))
    words = list(_words(tokens)) if name == "glossary" else []
    _lead_elsewhere(tokens, name)
    title = next((text for level, one, text in headings if level == "h1"), name)
    html = _parser().renderer.render(tokens, _parser().options, {})
    # What may be wider than the page can be scrolled by keyboard.
    html = html.replace("<pre>", '<pre tabindex="0">').replace("<table>", '<table tabindex="0">')
    return ManualPage(
        name=name,
        title=title,
        parts=[(id_, text) for level, id_, text in headings if level == "h2"],
        ids=frozenset([one for _, one, _ in headings] + words),
        html=mark_safe(html),  # noqa: S308 - the program's own files
    )


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - 1 MiB that only the manual needs

    return MarkdownIt("commonmark", {"html": True}).enable("table")


def _headings(tokens: Sequence[Token]) -> Iterator[tuple[str, str, str]]:
    """(tag, id, text). Sets each id."""
    for token, inside in pairwise(tokens):
        if token.type == "heading_open":
            text = inside.content.replace("`", "")
            token.attrSet("id", slug(text))
            yield token.tag, slug(text), text


def slug(text: str) -> str:
    """The id of a heading, as GitHub makes it."""
    return _PUNCTUATION.sub("", text.lower()).replace(" ", "-")


def _words(tokens: Sequence[Token]) -> Iterator[str]:
    """The ids of the glossary's rows, by the first word of each. Sets them."""
    for row, cell, inside in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if row.type == "tr_open" and cell.type == "td_open":
            word = slug(inside.content.partition(",")[0])
            row.attrSet("id", word)
            yield word


def _lead_elsewhere(tokens: Sequence[Token], name: str) -> None:
    """Point links to documents at their pages, and other relative links at this one; drop images."""
    for token in tokens:
        for one in token.children or ():
            if one.type == "link_open":
                one.attrSet("href", _target(str(one.attrGet("href") or ""), name))
        if token.children:
            token.children = [one for one in token.children if one.type != "image"]


def _target(href: str, name: str) -> str:
    if href.startswith("#"):
        return f"{manual_url(name)}{href}"
    link = _LINK.match(href)
    if link and link[1] in NAMES:
        return manual_url(f"{link[1]}#{link[2]}" if link[2] else link[1])
    return href if href.startswith("https://") else manual_url(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualContext(PageContext):
    """page: the document that is shown; others: all of them."""

    page: ManualPage
    others: Sequence[ManualPage]


@signed_in
@require_safe
def show_manual(request: HttpRequest) -> HttpResponse:  # noqa: ARG001 - the signature is Django's
    return redirect("manual-page", name=NAMES[0])


@signed_in
@require_safe
def show_manual_page(request: HttpRequest, name: str) -> HttpResponse:
    page = read(name)
    if page is None:
        raise Http404(f"There is no page of the manual called {name}.")
    others = [one for one in map(read, NAMES) if one is not None]
    context = ManualContext(place="manual", revision=latest_revision(), page=page, others=others)
    return render_page(request, "tools/manual/page.html", context)
