"""A few seconds of the storm of `python -m tests.chaos --limits --mode embedded`: everything in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import embedded
from tests.chaos.verdict import Plan, Weather

pytestmark = pytest.mark.e2e

SECONDS = 10.0


@pytest.mark.long
def test_nothing_exceeds_its_limit_while_the_one_process_is_killed(tmp_path: Path) -> None:
    with embedded.prepared(tmp_path) as field:
        plan = Plan(seed=1, seconds=SECONDS, pause=5.0, registrars=1, users=1, limits=True)
        verdict = Weather(field, plan, print).pass_over()
    assert verdict.violations == []
    assert int(str(verdict.figures["looks of the oracle"])) > 0
