"""What the pods of a trace have asked for so far, as a mix for the policy `fragmentation`.

The scheduler learns its mix from the pods that there are; in a trace, pods come and go too fast for that.
"""

from __future__ import annotations

from collections.abc import Sequence

from claims.kinds.resource_claims import ResourceClaim
from scheduling.allocator.requests import asked_key
from scheduling.placement.demands import NO_DEMANDS, Demand, DemandMix, NodeNeeds

#: Whenever there are twice as many pods, each counts for half.
WINDOW = 4_000


class DemandHistory:
    """What pods have asked for lately: older ones count for less and less."""

    def __init__(self) -> None:
        self._counts: dict[tuple[bytes, NodeNeeds], float] = {}
        self._claims: dict[bytes, tuple[ResourceClaim, ...]] = {}
        self._pods = 0.0
        self._mix = NO_DEMANDS
        #: from how many pods the mix was made, and how many have come since
        self._made_of, self._since = 0.0, 0

    def note(self, claims: Sequence[ResourceClaim], needs: NodeNeeds) -> None:
        """A pod came."""
        asked = asked_key(claims)
        self._claims.setdefault(asked, tuple(claims))
        key = (asked, needs)
        self._counts[key] = self._counts.get(key, 0.0) + 1.0
        self._pods += 1.0
        self._since += 1
        if self._pods >= 2 * WINDOW:
            self._halve()

    def mix(self) -> DemandMix:
        """Of all pods that came, except perhaps the last ones."""
        if self._since >= max(1, min(self._made_of, WINDOW)):
            self._since = 0
            demands = (
                Demand(claims=self._claims[asked], needs=needs, weight=count)
                for (asked, needs), count in self._counts.items()
            )
            mix = DemandMix.of(demands)
            self._mix, self._made_of = mix.or_last(self._mix, self._made_of), mix.pods
        return self._mix

    def _halve(self) -> None:
        self._counts = {key: count / 2 for key, count in self._counts.items() if count > 1.0}
        asked = {key for key, _ in self._counts}
        self._claims = {key: claims for key, claims in self._claims.items() if key in asked}
        self._pods = sum(self._counts.values())
