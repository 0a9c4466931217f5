"""Bytes, documents, patches, queries and heads that are wrong on purpose: no 5xx, nothing half written."""

from __future__ import annotations

import pytest

from tests.security.fuzz.driving import SENDERS, judged, send_all
from tests.security.fuzz.mutations import hostile


@pytest.mark.sample(1)
@pytest.mark.parametrize("who", SENDERS)
def test_whatever_comes_is_answered(transactional_db: None, who: str) -> None:
    with judged(SENDERS[who]) as (judge, builder):
        send_all(judge, builder, hostile(SENDERS[who].namespace))
        print(judge.tally)
