"""An installation that is a mirror, for tests of what that changes."""

from __future__ import annotations

import pytest
from pytest_django.fixtures import Settings

from manciple import gaps
from manciple.access import authorization, mirrored
from manciple.mirror.judgement import gaps_of_mirror
from manciple.store import hooks

PROD = "prod"


def become_mirror(settings: Settings, monkeypatch: pytest.MonkeyPatch, context: str = PROD) -> None:
    """For the rest of the test, with the rights that a process has which started as one."""
    settings.MIRROR_OF, settings.MIRROR, settings.SCHEDULER_NAMES = context, True, None
    for module, name in ((authorization, "_authorizers"), (authorization, "_resolvers"), (hooks, "_gates")):
        monkeypatch.setattr(module, name, dict(getattr(module, name)))
    monkeypatch.setattr(authorization, "_refusals", [])
    monkeypatch.setattr(gaps, "sources", [gaps_of_mirror])
    mirrored.register()
