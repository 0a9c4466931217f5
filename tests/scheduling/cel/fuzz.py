"""Fuzzes the expression language for as long as one likes: `python -m tests.scheduling.cel.fuzz --minutes 10`.

The strategies are those of test_robustness, with a new seed each round. Anything but a verdict or the language's own
error, and any expression that takes longer than `SLOWEST`, ends it with the seed and the expression.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.scheduling.cel.devices import gpu
from tests.scheduling.cel.test_robustness import _PIECES, ask, trees

#: CPU seconds that one expression may take on one device.
SLOWEST = 5.0
ROUND = 500

STRATEGIES: dict[str, st.SearchStrategy[str]] = {
    "pieces": st.lists(st.sampled_from(_PIECES), max_size=60).map("".join),
    "text": st.text(max_size=200),
    "trees": trees(depth=4),
    "mixed": st.builds("{}{}{}".format, trees(), st.sampled_from(_PIECES), st.text(max_size=5)),
}


class TooSlow(Exception):
    """An expression that took longer than SLOWEST."""


def fuzz_round(strategy: st.SearchStrategy[str], number: int) -> None:
    """ROUND expressions of one strategy. Raises: whatever was found."""

    @seed(number)
    @settings(
        max_examples=ROUND,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def one(expression: str) -> None:
        started = time.process_time()
        ask(expression, gpu())
        if time.process_time() - started > SLOWEST:
            raise TooSlow(expression)

    one()


def rounds(until: float, clock: Callable[[], float]) -> Iterator[tuple[str, int]]:
    """(strategy, seed) in turn, until the time is over."""
    while clock() < until:
        for name in STRATEGIES:
            yield name, random.SystemRandom().getrandbits(32)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    minutes = parser.parse_args().minutes
    asked = 0
    for name, number in rounds(time.monotonic() + 60 * minutes, time.monotonic):
        try:
            fuzz_round(STRATEGIES[name], number)
        except BaseException:
            print(f"found by strategy {name} with seed {number}", file=sys.stderr)
            raise
        asked += ROUND
    print(f"{asked} expressions in {minutes:g} minutes: nothing but verdicts and the language's own errors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
