"""Saved views of the laboratory's administrator, one of them shared."""

from __future__ import annotations

from typing import Any

from dashboard.kit.preferences import canonical
from dashboard.models import SavedView
from manciple.processes.demolab.pages import SHARED_VIEW

_VIEWS = (
    (
        SHARED_VIEW,
        "/pods",
        "Longest waiting",
        "state=Waiting&cols=pod,namespace,status,waits-since,why-it-waits&sort=since",
    ),
    ("lab-views-02", "/nodes", "Full of memory", "sort=-memory&dense=1"),
    ("lab-views-03", "/devices", "Free on Hopper", "class=gpu-hopper&state=free"),
)


def save_views(owner: Any) -> None:
    for name, path, title, query in _VIEWS:
        values = {"owner": owner, "path": path, "name": title, "query": canonical(query), "shared": name == SHARED_VIEW}
        SavedView.objects.get_or_create(id=name, defaults=values)
