"""A mirror that acts, of a cluster that can be written to, for tests: the copy is made at once, and no thread runs.

scene.server            the cluster (`writable.Writable`)
scene.look()            the copy is brought up to date
scene.acting            where pages write
scene.agree("nodes")    the copy is what the cluster has
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from inventory.kinds import gates
from manciple.access import mirrored
from manciple.access.mirrored import OWNERS
from manciple.api.verbs import elsewhere
from manciple.mirror import standing
from manciple.mirror.acting import Acting
from manciple.mirror.client import Remote
from manciple.mirror.models import KindStatus, RemoteStatus
from manciple.mirror.naming import own_credential
from manciple.mirror.own_rights import OwnRights
from manciple.mirror.sources import COPIED, Reach
from manciple.mirror.stored_copy import Change
from manciple.wire.identity import Identity
from tests.laboratory import NOW
from tests.manciple.mirror.clusters import remote_of
from tests.manciple.mirror.living import KINDS
from tests.manciple.mirror.test_copying import Mirror, kept, stored, there
from tests.manciple.mirror.writable import Writable
from tests.mirrors import PROD, become_mirror

MESSAGES = "django.contrib.messages.middleware.MessageMiddleware"
OWNER = Identity("ola", (OWNERS,))
PLURALS = (
    "namespaces", "nodes", "resourceslices", "deviceclasses", "devicetaintrules", "resourceclaims",
    "resourceclaimtemplates", "poddisruptionbudgets", "pods",
)  # fmt: skip


@dataclass
class Scene:
    server: Writable
    remote: Remote
    mirror: Mirror
    acting: Acting
    rights: OwnRights
    #: by the clock of `acting` and `rights`
    now: list[float]

    def keep(self, change: Change) -> bool:
        self.mirror.copy.keep(change)
        return True

    def look(self) -> None:
        """Bring the copy up to date."""
        self.mirror.restart()
        self.mirror.turn()
        self.know()

    def know(self, *, away: bool = False) -> None:
        for source in COPIED:  # those that are not followed: there are none of them
            known = self.mirror.copy.standings.get(source.plural)
            version = known.version if known is not None else source.versions[0]
            row: dict[str, Any] = {"version": version, "reach": Reach.EVERYWHERE, "detail": "", "unread": 0}
            row |= {"listed_at": NOW, "heard_at": NOW}
            KindStatus.objects.update_or_create(resource=source.resource, defaults=row)
        remote: dict[str, Any] = {
            "context": PROD,
            "server": self.server.url,
            "namespace": "team-a",
            "version": "v1.36.2",
            "gates": {},
        }
        remote |= {"away_since": NOW if away else None, "why": "connection refused" if away else ""}
        RemoteStatus.objects.update_or_create(pk=1, defaults=remote)
        standing.forget()

    def agree(self, *plurals: str) -> None:
        for plural in plurals:
            theirs = {key: kept(one) for key, one in there(self.server, plural).items()}
            assert {key: kept(one) for key, one in stored(plural).items()} == theirs

    def wait_out(self) -> None:
        """The time for which nothing is sent after a failure."""
        self.now[0] += 60.0


@contextmanager
def acting_mirror(server: Writable, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Of the cluster as it is now, for the rest of the test."""
    become_mirror(settings, monkeypatch)
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE[: (place := settings.MIDDLEWARE.index(MESSAGES) + 1)],
        "dashboard.kit.mirrored.RemoteWarnings",
        *settings.MIDDLEWARE[place:],
    ]
    rules = [one for one in PLURALS if one != "devicetaintrules" or server.rules]
    versions = {KINDS[plural].plural: served for _, served, plural in server.places() if plural in rules}
    remote, now = remote_of(server), [1000.0]
    mirror = Mirror(remote, *rules, versions=versions)

    def keep(change: Change) -> bool:
        return scene.keep(change)

    acting = Acting(remote, named=own_credential, keep=keep, clock=lambda: now[0])
    rights = OwnRights(remote, named=own_credential, namespace="team-a", clock=lambda: now[0])
    scene = Scene(server, remote, mirror, acting, rights, now)
    mirrored.act_by(rights)
    elsewhere.value = acting
    with gates.using():
        try:
            scene.look()
            yield scene
        finally:
            elsewhere.reset()
            mirrored.act_by(None)
            standing.forget()
            remote.close()
