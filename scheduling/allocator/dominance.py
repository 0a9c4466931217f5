"""The one reason that a person should read first, out of those that several nodes give."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import structs

from scheduling.allocator.outcome import Reason, Unallocatable, cause_of
from scheduling.allocator.stages import ASKED
from scheduling.causes import OfDevices, TooFew


def dominant(refusals: Iterable[Unallocatable]) -> tuple[Reason, ...]:
    """The reasons of one request, of all nodes where it is short: those of the nodes that came closest decide which.

    Nodes that have nothing of the kind are many, and what they lack is no news. Of requests that came equally close,
    the one that holds most nodes; then the first by name.
    """
    leading = [one.reasons[0] for one in refusals if one.reasons]
    closest = max((reason.progress for reason in leading), default=0)
    by_request: dict[tuple[str, str], list[Reason]] = defaultdict(list)
    for reason in leading:
        if reason.progress == closest:
            by_request[reason.claim, reason.request].append(reason)
    if not by_request:
        return ()
    key = min(by_request, key=lambda one: (-len(by_request[one]), one))
    if by_request[key][0].conflict:
        return tuple(by_request[key])
    return tuple(reason for reason in leading if (reason.claim, reason.request) == key and not reason.conflict)


def overall(refusals: Sequence[Unallocatable], *, asked: int = ASKED) -> OfDevices | None:
    """The dominant reason's cause; None where nobody gave any. asked: as for `cause_of`."""
    reasons = dominant(refusals)
    if not reasons:
        return None
    found = cause_of(reasons, asked=asked)
    if len(reasons) == len(refusals) or not isinstance(found, TooFew):
        return found
    return structs.replace(found, nodes=(len(reasons), len(refusals)))
