"""The nodes: how each one is, what it publishes and what of it is given out.

`/nodes` lists them, those that need attention under tabs of their own; `?q=`, `?state=`, `?l=` (a label selector) and
`?page=` say which are shown. A lease that is renewed changes nothing on the page: only falling silent and coming back
do, and these change the Node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from claims.devices.cache import read_devices
from claims.devices.pools import DeviceSnapshot
from manciple.pages.lists import Filter, ListColumn, ListQuery, PageOfRows, Tab, Table, parameter, sorted_by
from manciple.pages.rendering import ListContext, render_page
from manciple.store.tail import latest_revision
from manciple.wire.selectors import ParsedLabelSelector, parse_label_selector
from manciple.wire.validation import natural
from scheduling.pages.devices.words import MEANINGS, STATES
from scheduling.pages.nodes.reading import TABS, Known, Marked, NodeRow, has_tab, is_meant, lines_of, marked, read_nodes

#: Nodes on a page.
SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuery(ListQuery):
    """What the list's address asks for."""

    state: str = parameter("state", known=TABS)
    text: str = parameter("q")
    labels: str = parameter("l")

    @property
    def selector(self) -> tuple[ParsedLabelSelector, str]:
        """The selector, or one that selects all and what is wrong with the text."""
        try:
            return parse_label_selector(self.labels), ""
        except ValueError as error:
            return ParsedLabelSelector(), str(error)


#: What the list tells of a node. Sorted by what is known of all nodes; devices and pods are read of those shown.
COLUMNS = (
    ListColumn[Known](title="Node", sort="name", key=lambda known: natural(known.name)),
    ListColumn[Known](title="State", sort="state", key=lambda known: known.state),
    ListColumn[Known](title="Lease"),
    ListColumn[Known](title="Pools"),
    ListColumn[Known](title="Devices"),
    ListColumn[Known](title="Pods", css="num"),
    ListColumn[Known](title="CPU", css="num"),
    ListColumn[Known](title="Memory", css="num"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesContext(ListContext):
    """complaint: what is wrong with the label selector. states, meanings: of devices."""

    query: NodeQuery
    complaint: str
    total: int
    silent: int
    states: Mapping[str, str]
    meanings: Mapping[str, str]


@login_required
@require_safe
def list_nodes(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision = latest_revision()
    query = NodeQuery.read(request)
    nodes = read_nodes()
    context = NodesContext(
        place="nodes",
        revision=revision,
        query=query,
        table=_table(query, nodes, read_devices()),
        complaint=query.selector[1],
        total=len(nodes),
        silent=sum(known.state == "Silent" for known in nodes),
        states=STATES,
        meanings=MEANINGS,
    )
    return render_page(request, "nodes/list.html", context)


def _table(query: NodeQuery, nodes: Sequence[Known], snapshot: DeviceSnapshot) -> Table[NodeRow]:
    there = marked(snapshot)
    selector, complaint = query.selector
    meant = [known for known in nodes if is_meant(known, query.text, selector)]
    chosen = sorted_by(COLUMNS, query.sort, [known for known in meant if has_tab(known, query.state, there)])
    page = PageOfRows(len(chosen), SHOWN, query.page)
    return Table(
        id="nodes",
        topics="nodes slices pool: pods:",
        title="Nodes",
        css="stack nodes-tbl",
        query=query,
        columns=COLUMNS,
        rows=lines_of(chosen[page.rows], snapshot),
        page=page,
        filters=(
            Filter("q", "Name, address, version or label", query.text, hint="Name, address, label"),
            Filter("l", "Label selector", query.labels, hint="rack in (r1, r2), !gpu", complaint=complaint),
        ),
        tabs=[_tab(query, word, meant, there) for word in TABS],
    )


def _tab(query: NodeQuery, word: str, meant: Sequence[Known], there: Marked) -> Tab:
    count = sum(has_tab(known, word, there) for known in meant)
    return Tab(TABS[word], count, query.url(state=word), current=word == query.state)
