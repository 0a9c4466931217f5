"""Requests made of our own OpenAPI documents (schemathesis): no 5xx, nothing half written, the log gives the state."""

from __future__ import annotations

import pytest

from tests.security.fuzz.driving import SENDERS, judged, send_all
from tests.security.fuzz.generated import generated


@pytest.mark.sample(1)
@pytest.mark.parametrize("who", SENDERS)
def test_whatever_the_openapi_allows_is_answered(transactional_db: None, who: str) -> None:
    with judged(SENDERS[who]) as (judge, builder):
        send_all(judge, builder, generated(SENDERS[who].namespace))
        print(judge.tally)
