"""The nodes: how each one is, what it publishes and what of it is given out.

`/nodes` lists them, those that need attention under tabs of their own; `?q=`, `?state=`, `?l=` (a label selector) and
`?page=` say which are shown. A lease that is renewed changes nothing on the page: only falling silent and coming back
do, and these change the Node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from claims.devices.cache import read_devices
from claims.devices.pools import DeviceSnapshot
from dashboard.inventory.devices.words import MEANINGS, STATES, in_words
from dashboard.inventory.nodes.reading import STATES as NODE_STATES
from dashboard.inventory.nodes.reading import (
    TABS,
    Known,
    Marked,
    NodeRow,
    has_tab,
    is_meant,
    lines_of,
    marked,
    read_nodes,
)
from dashboard.kit.lists import (
    BulkAct,
    Filter,
    ListColumn,
    ListQuery,
    PageOfRows,
    Tab,
    Table,
    bulk_acts,
    parameter,
    sorted_by,
)
from dashboard.kit.rendering import ListContext, show_list
from dashboard.kit.rights import listing
from dashboard.kit.saved_views import opens_as_usual
from manciple.people import person_of
from manciple.store.event_log import latest_revision
from manciple.wire.resources import NODES, SLICES
from manciple.wire.selectors import ParsedLabelSelector, parse_label_selector
from manciple.wire.validation import natural

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


#: What the list tells of a node. Pods are read of the nodes that are shown, or of all where those sort them.
COLUMNS = (
    ListColumn[NodeRow](
        title="Node", sort="name", key=lambda row: natural(row.known.name), text=lambda row: row.known.name
    ),
    ListColumn[NodeRow](
        title="State",
        sort="state",
        key=lambda row: list(NODE_STATES).index(row.known.state),
        text=lambda row: row.known.state,
    ),
    ListColumn[NodeRow](
        title="Labels",
        extra=True,
        text=lambda row: " ".join(row.known.labelled),
    ),
    ListColumn[NodeRow](title="Addresses", extra=True, text=lambda row: " ".join(row.known.addresses)),
    ListColumn[NodeRow](
        title="Lease",
        sort="lease",
        key=lambda row: row.known.renewed_at.timestamp() if row.known.renewed_at else 0.0,
        text=lambda row: row.known.renewed_at.isoformat(timespec="seconds") if row.known.renewed_at else "",
    ),
    ListColumn[NodeRow](
        title="Pools",
        sort="pools",
        key=lambda row: (-len(row.incomplete), -len(row.pools)),
        text=lambda row: f"{len(row.pools) - len(row.incomplete)} of {len(row.pools)} complete",
    ),
    ListColumn[NodeRow](
        title="Devices",
        sort="free",
        key=lambda row: (-row.free, -row.total),
        text=lambda row: in_words(dict(row.devices)),
    ),
    ListColumn[NodeRow](title="Pods", css="num", sort="pods", key=lambda row: row.pods, text=lambda row: row.pods),
    ListColumn[NodeRow](
        title="CPU", css="num", sort="cpu", key=lambda row: row.percent("cpu"), text=lambda row: row.amount("cpu")
    ),
    ListColumn[NodeRow](
        title="Memory",
        css="num",
        sort="memory",
        key=lambda row: row.percent("memory"),
        text=lambda row: row.amount("memory"),
    ),
)
#: Columns that are sorted by what is known of every node without its pods.
_CHEAP = ("", "name", "state", "lease")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesContext(ListContext):
    """complaint: what is wrong with the label selector. states, meanings: of devices."""

    query: NodeQuery
    complaint: str
    total: int
    silent: int
    states: Mapping[str, str]
    meanings: Mapping[str, str]


@listing(NODES, SLICES)
@require_safe
@opens_as_usual
def list_nodes(request: HttpRequest) -> HttpResponse:
    """The list."""
    revision = latest_revision()
    query = NodeQuery.read(request)
    nodes = read_nodes()
    may_change = person_of(request).may("update", NODES)
    context = NodesContext(
        place="nodes",
        revision=revision,
        query=query,
        table=_table(
            query, nodes, read_devices(), acts=bulk_acts(NODES, "cordon", "uncordon", "drain") if may_change else ()
        ),
        complaint=query.selector[1],
        total=len(nodes),
        silent=sum(known.state == "Silent" for known in nodes),
        states=STATES,
        meanings=MEANINGS,
    )
    return show_list(request, "inventory/nodes/list.html", context)


def _table(
    query: NodeQuery, nodes: Sequence[Known], snapshot: DeviceSnapshot, *, acts: Sequence[BulkAct]
) -> Table[NodeRow]:
    there = marked(snapshot)
    selector, complaint = query.selector
    meant = [known for known in nodes if is_meant(known, query.text, selector)]
    chosen = [known for known in meant if has_tab(known, query.state, there)]
    page = PageOfRows(len(chosen), SHOWN, query.page)
    return Table(
        id="nodes",
        topics="nodes slices pool: pods:",
        title="Nodes",
        css="stack nodes-tbl",
        query=query,
        columns=COLUMNS,
        rows=_rows(query.sort, chosen, snapshot, page),
        all_rows=lambda: sorted_by(COLUMNS, query.sort, lines_of(chosen, snapshot)),
        acts=acts,
        page=page,
        filters=(
            Filter("q", "Name, address, version or label", query.text, hint="Name, address, label"),
            Filter("l", "Label selector", query.labels, hint="rack in (r1, r2), !gpu", complaint=complaint),
        ),
        tabs=[_tab(query, word, meant, there) for word in TABS],
    )


def _rows(sort: str, chosen: Sequence[Known], snapshot: DeviceSnapshot, page: PageOfRows) -> Sequence[NodeRow]:
    if sort.removeprefix("-") not in _CHEAP:
        return sorted_by(COLUMNS, sort, lines_of(chosen, snapshot))[page.rows]
    bare = [NodeRow.of(known) for known in chosen]
    return lines_of([row.known for row in sorted_by(COLUMNS, sort, bare)[page.rows]], snapshot)


def _tab(query: NodeQuery, word: str, meant: Sequence[Known], there: Marked) -> Tab:
    count = sum(has_tab(known, word, there) for known in meant)
    return Tab(TABS[word], count, query.url(state=word), current=word == query.state)
