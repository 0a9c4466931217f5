"""The nodes: how each one is, what it publishes and what of it is given out.

`/nodes` lists them, those that need a look under tabs of their own; `?q=`, `?state=`, `?l=` (a label selector) and
`?page=` say which are shown. A lease that is renewed changes nothing on the page: only falling silent and coming back
do, and these change the Node.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from claims.devices.cache import read_devices
from manciple.store.tail import latest_revision
from manciple.wire.selectors import LabelSelector, parse_label_selector
from scheduling.pages.devices.words import MEANINGS, STATES
from scheduling.pages.nodes.reading import TABS, has_tab, is_meant, lines_of, pools_on, read_nodes

#: Nodes on a page.
SHOWN = 50


@login_required
@require_safe
def list_nodes(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision = latest_revision()
    text, tab = request.GET.get("q", "").strip(), request.GET.get("state", "")
    selector, complaint = read_selector(request.GET.get("l", ""))
    nodes = read_nodes()
    snapshot = read_devices()
    broken = {name for name, pools in pools_on(snapshot).items() if not all(pool.complete for pool in pools)}
    meant = [known for known in nodes if is_meant(known, text, selector)]
    page = Paginator([known for known in meant if has_tab(known, tab, broken)], SHOWN).get_page(request.GET.get("page"))
    context: dict[str, Any] = {
        "place": "nodes",
        "revision": revision,
        "total": len(nodes),
        "silent": sum(known.state == "Silent" for known in nodes),
        "tabs": [
            (word, title, sum(has_tab(known, word, broken) for known in meant), with_query(request.GET, state=word))
            for word, title in TABS
        ],
        "tab": tab,
        "text": text,
        "selector": request.GET.get("l", ""),
        "complaint": complaint,
        "lines": lines_of(list(page.object_list), snapshot, STATES),
        "page": page,
        "older": with_query(request.GET, page=str(page.next_page_number())) if page.has_next() else "",
        "newer": with_query(request.GET, page=str(page.previous_page_number())) if page.has_previous() else "",
        "states": STATES,
        "meanings": MEANINGS,
    }
    return render(request, "nodes/list.html", context)


def read_selector(text: str) -> tuple[LabelSelector, str]:
    """The selector, or one that selects all and what is wrong with the text."""
    try:
        return parse_label_selector(text), ""
    except ValueError as error:
        return LabelSelector(), str(error)


def with_query(query: QueryDict, **changes: str) -> str:
    """The query with other values, the first page again unless `changes` name one; "" values are left out."""
    kept = {key: query.get(key, "") for key in query if key not in ("page", *changes)}
    return "?" + urlencode({key: value for key, value in (*kept.items(), *changes.items()) if value})
