"""Follows the Leases of nodes and schedulers into memory (`manciple.renewals`): they make no entry of the log.

Nothing else depends on them: where they may not be read, nodes are as their conditions say, and of schedulers only
what they place is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from manciple.mirror.json_texts import Malformed, decoded
from manciple.mirror.sources import Source
from manciple.mirror.standing import KindStanding
from manciple.mirror.stored_copy import Change, Known
from manciple.renewals import OF_NODES, OF_SCHEDULERS, renewals

#: The namespaces that are followed.
NAMESPACES: Final = (OF_NODES, OF_SCHEDULERS)


class _Spec(msgspec.Struct, rename="camel"):
    lease_duration_seconds: int | None = None


class _Lease(msgspec.Struct):
    spec: _Spec | None = None


_leases = msgspec.json.Decoder(_Lease)


class LeaseSink:
    """Takes what a follower reads in one namespace (`following.Sink`)."""

    def __init__(self, namespace: str, clock: Callable[[], datetime]) -> None:
        self._namespace, self._clock = namespace, clock
        self._known: dict[str, Known] = {}

    def known(self, _source: Source) -> Mapping[str, Known]:
        return dict(self._known)

    def apply(self, changes: Sequence[Change]) -> None:
        heard, now = renewals.value, self._clock()
        for change in changes:
            if change.gone:
                self._known.pop(change.uid, None)
                heard.forget(self._namespace, change.name)
                continue
            self._known[change.uid] = Known(change.namespace, change.name, change.version)
            heard.renew(self._namespace, change.name, now, seconds=_seconds(change.text))

    def note(self, standing: KindStanding, *, failing: str = "") -> None:
        if not failing and standing.heard_at is not None:
            renewals.value.hear(self._namespace, standing.heard_at)


def _seconds(text: bytes | None) -> int:
    """For which it holds; 0 where that cannot be read."""
    try:
        spec = decoded(_leases.decode, text or b"{}").spec
    except Malformed:
        return 0
    return max(0, spec.lease_duration_seconds or 0) if spec is not None else 0
