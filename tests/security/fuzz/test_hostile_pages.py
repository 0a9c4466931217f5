"""Pages, whatever their addresses and forms hold: no 5xx."""

from __future__ import annotations

import pytest

from tests.security.fuzz.driving import SENDERS, drawn, judged
from tests.security.fuzz.pages import open_page, page_requests, visitor


@pytest.mark.sample(1)
@pytest.mark.parametrize("who", SENDERS)
def test_whatever_a_page_is_asked_it_answers(transactional_db: None, who: str) -> None:
    sender = SENDERS[who]
    with judged(sender) as (judge, _):
        client = visitor(sender.name, sender.namespace)
        drawn(page_requests(), lambda asked: open_page(judge, client, *asked))
        print(judge.tally)
