"""What a sign-in at an identity provider leaves behind: nothing that signs in, and nothing for long."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from dashboard.kit import signing_in as outside
from manciple.access import sign_ins
from tests.manciple.access.oidc_provider import Provider
from tests.manciple.access.test_oidc import first_key, provider, served, sign_in
from tests.manciple.audit.reading import look

__all__ = ["first_key", "provider", "served"]
pytestmark = pytest.mark.django_db


def test_what_the_provider_sends_is_not_in_the_audit_trail(provider: Provider) -> None:
    client = Client()
    sign_in(provider, client)
    client.get("/login/oidc/return?code=stolen&state=nothing")
    found = look()
    assert any("login/oidc/return" in entry.note for entry in found)
    assert [entry.note for entry in found if "code=" in entry.note or "state=" in entry.note] == []


def test_a_sign_in_that_is_only_begun_is_forgotten_soon(provider: Provider) -> None:
    """Anybody may begin one, as often as they like."""
    for _ in range(3):
        Client().get(f"/login/oidc?next=/{'x' * 7000}")
    begun = Session.objects.all()
    assert all(len(one.session_data) < 4000 for one in begun)
    assert sign_ins.prune(timezone.now() + timedelta(seconds=outside.PATIENCE + 1)) == 3
    client = Client()
    sign_in(provider, client)
    assert client.session.get_expiry_age() > 24 * 3600
