"""Pieces of an agent's work, by name: what stands in its queue."""

from __future__ import annotations

from typing import Literal, NamedTuple

from nodeagent.workqueue import WorkQueue


class Key(NamedTuple):
    """A piece of work. `name`: a pod's uid, or a driver's name; the node and the claims that nobody uses have none.

    away: a driver behind a socket cannot be reached any more.
    """

    kind: Literal["node", "pod", "slices", "unused", "away"]
    name: str = ""


AgentQueue = WorkQueue[Key]
