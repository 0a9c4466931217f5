"""What a process keeps of its database goes when it gets another one: `reset_all`, after each test."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from manciple.access.authentication import chain
from manciple.live.topics import relay
from manciple.per_process import reset_all
from manciple.store.event_log import Tail, latest_revision
from manciple.store.records import EventRecord
from tests.e2e.processes import wait_for
from tests.manciple.live.test_relay import write


@pytest.mark.django_db(transaction=True)
def test_no_subscription_is_carried_over() -> None:
    write("a")
    before, page = relay.value, list[object]()
    before.join(page.append, after=latest_revision())
    reset_all()
    heard: list[EventRecord] = []
    Tail.instance().subscribe(heard.extend, after=latest_revision(), on_expired=print)
    newest = write("b")
    wait_for("the new subscriber", lambda: heard)
    assert heard[-1].revision == newest
    assert page == []
    assert relay.value is not before


@pytest.mark.django_db(transaction=True)
def test_a_closed_account_of_another_database_is_unknown() -> None:
    """Both databases have counted as many revocations."""
    ada = User.objects.create_user("ada", is_active=False)
    assert chain.is_closed("ada")
    ada.delete()
    reset_all()
    assert not chain.is_closed("ada")
