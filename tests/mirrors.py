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
    monkeypatch.setattr(gaps, "sources", [gaps_of_mirror])
    take_its_rights(monkeypatch)


def take_its_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the settings say already that it is a mirror."""
    for module, name in ((authorization, "_authorizers"), (authorization, "_resolvers"), (hooks, "_gates")):
        monkeypatch.setattr(module, name, dict(getattr(module, name)))
    monkeypatch.setattr(authorization, "_refusals", [])
    mirrored.register()
