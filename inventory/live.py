"""Which live topics the inventory's events touch: the pool of a slice, the class itself, the nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable

from manciple.store.tail import EventRecord


def slice_topics(record: EventRecord) -> Iterable[str]:
    """The pool that a ResourceSlice belongs to."""
    spec = json.loads(record.text)["spec"]
    return (f"pool:{spec['driver']}/{spec['pool']['name']}", "slices")


def class_topics(record: EventRecord) -> Iterable[str]:
    """The list of classes, and this one."""
    return ("classes", f"class:{record.name}")


def node_topics(_record: EventRecord) -> Iterable[str]:
    """The nodes, all as one."""
    return ("nodes",)
