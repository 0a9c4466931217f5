"""The negotiation of a pod's node between the scheduler and the drivers of its claims, as the log recorded it: the form
in which the page shows it.

`classic_conversation` reads it from PodSchedulingContexts (KEP-3063), `draft_conversation` from the status of claims of
cdi.k8s.io (the KEP's first draft). Both are imported only for a pod with such claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from claims.kinds.pods import Pod, listed_resources
from claims.kinds.resource_claims import ResourceClaim, names_controller
from dashboard.workloads.pods.reading import ClaimLine
from dashboard.workloads.whatif.query import named
from manciple.durations import duration
from manciple.wire.deferred import deferred_function

#: Steps and nodes that are shown at once; of more steps the latest, of more nodes the others folded.
STEPS, NODES = 40, 8
#: The author of our writes before the pod has its node, and after.
SCHEDULER, CLAIM_CONTROLLER = "Scheduler", "Claim controller"

What = Literal["offers", "selects", "withdraws", "answers", "allocates", "asks back", "gives back", "binds"]
#: step -> the steps that answer it
_ANSWERS: Mapping[What, tuple[What, ...]] = {
    "offers": ("answers",), "selects": ("allocates",), "asks back": ("gives back",)
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NegotiationTurn:
    """One step.

    took: the time since the step that it answers, or else since the step before; "" if there is no such step, or if one
    write was both.
    """

    at: datetime
    who: str
    what: What
    text: str
    entry: str = ""
    refuses: bool = False
    took: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedTurn:
    """A step that the negotiation waits for. since: None where the log does not reach back."""

    who: str
    text: str
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedNode:
    """refused_by: (driver, entry of the claim)."""

    name: str
    selected: bool
    refused_by: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """earlier: whether there were steps before the first that is shown."""

    awaited: tuple[AwaitedTurn, ...]
    nodes: tuple[OfferedNode, ...]
    steps: tuple[NegotiationTurn, ...]
    earlier: bool
    node: str
    lasted: str

    @property
    def shown_nodes(self) -> tuple[OfferedNode, ...]:
        return self.nodes[:NODES]

    @property
    def folded_nodes(self) -> tuple[OfferedNode, ...]:
        return self.nodes[NODES:]

    @property
    def refused(self) -> int:
        return sum(bool(one.refused_by) for one in self.nodes)


#: (pod, entry -> a claim that names its driver's controller, or a resource class)
_read_classic: Callable[[Pod, Mapping[str, ResourceClaim]], Conversation | None] = deferred_function(
    "dashboard.workloads.pods.classic_conversation:read_classic_conversation"
)
_read_draft: Callable[[Pod], Conversation | None] = deferred_function(
    "dashboard.workloads.pods.draft_conversation:read_draft_conversation"
)


def read_conversation(pod: Pod, lines: Iterable[ClaimLine]) -> Conversation | None:
    """None where no driver's controller has a part in it; no query unless a claim names a controller or a class."""
    classic = {line.entry: line.claim for line in lines if line.claim is not None and names_controller(line.claim)}
    if classic and (conversation := _read_classic(pod, classic)):
        return conversation
    return _read_draft(pod) if listed_resources(pod) else None


# Steps ----------------------------------------------------------------------------------------------------------------


def answered(was: frozenset[str] | None, now: frozenset[str], entry: str) -> Iterator[tuple[str, bool]]:
    """(words, whether it refuses)."""
    if was is None and not now:
        yield f"Refuses no node for claim `{entry}`", False
    if refused := sorted(now - (was or frozenset())):
        yield f"Refuses {in_words(refused)} for claim `{entry}`", True
    if freed := sorted((was or frozenset()) - now):
        yield f"Refuses {in_words(freed)} no longer for claim `{entry}`", False


def timed(steps: Iterable[NegotiationTurn], entries: Iterable[str]) -> list[NegotiationTurn]:
    found: list[NegotiationTurn] = []
    asked: dict[tuple[What, str], datetime] = {}
    for one in steps:
        before = found[-1].at if found else one.at
        found.append(replace(one, took=took(asked.get((one.what, one.entry), before), one.at)))
        for what in _ANSWERS.get(one.what, ()):
            asked |= {(what, entry): one.at for entry in ([one.entry] if one.entry else entries)}
    return found


def took(began: datetime, ended: datetime) -> str:
    """Drivers answer in milliseconds or in minutes. "" where both were said at once."""
    seconds = (ended - began).total_seconds()
    if seconds < 0.001:  # noqa: PLR2004 - one write said both
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)  # noqa: PLR2004 - a digit more while it tells


def in_words(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{len(names)} nodes: {named(names)}"
