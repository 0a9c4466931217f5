"""How far a guard trusts the copy, what it asks the cluster, and how it is started."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manciple.mirror import standing
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.following import SILENCE
from manciple.mirror.guard.judging import ask_cluster, knowledge
from manciple.mirror.guard.options import AUDIT, GuardOptions
from manciple.mirror.models import KindStatus, RemoteStatus
from manciple.mirror.sources import CLAIM, SLICE, Reach
from manciple.processes.mirror_guard import MirrorGuard
from manciple.refusals import StartRefused
from tests.manciple.mirror.clusters import NAMESPACE, claim, cluster, remote_of
from tests.manciple.mirror.replay import Replay


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    standing.forget()
    yield
    standing.forget()


def known(resource: str, **fields: Any) -> None:
    now = datetime.now(UTC)
    row = {"version": "v1beta1", "reach": Reach.EVERYWHERE.value, "detail": "", "unread": 0, "listed_at": now}
    KindStatus.objects.create(**{"resource": resource, "heard_at": now, **row, **fields})


def remote(**fields: Any) -> None:
    RemoteStatus.objects.create(id=1, context="lab", server="https://lab", namespace="", gates={}, **fields)


#: what of the claims is known -> whether something can be concluded, and whether the copy is late
CASES: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "current": ({}, True, False),
    "silent, as a watch is between bookmarks": ({"ago": SILENCE - 30}, True, False),
    "silent for long": ({"ago": SILENCE + 30}, True, True),
    "of one namespace": ({"reach": Reach.NAMESPACE.value}, False, False),
    "forbidden": ({"reach": Reach.FORBIDDEN.value}, False, False),
    "some cannot be read": ({"unread": 1}, False, False),
    "not listed yet": ({"listed_at": None, "heard_at": None}, False, False),
}


@pytest.mark.django_db
@pytest.mark.parametrize("resource", [CLAIM.resource, SLICE.resource])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_how_far_the_copy_is_trusted(case: tuple[dict[str, Any], bool, bool], resource: str) -> None:
    fields, concludes, is_late = case
    fields = dict(fields)
    if (ago := fields.pop("ago", None)) is not None:
        fields["heard_at"] = datetime.now(UTC) - timedelta(seconds=ago)
    remote()
    for one in (CLAIM.resource, SLICE.resource):
        known(one, **(fields if one == resource else {}))
    found = knowledge()
    assert found.version == "v1beta1"
    assert (found.late is not None, bool(found.late)) == (concludes, is_late)


@pytest.mark.django_db
def test_nothing_is_known_before_the_first_listing_and_the_copy_is_late_while_the_cluster_is_away() -> None:
    assert knowledge().late is None
    remote(away_since=datetime.now(UTC), why="down")
    known(CLAIM.resource)
    known(SLICE.resource)
    standing.forget()
    assert "lab" in (knowledge().late or "")


def test_the_cluster_tells_of_a_claim_or_that_it_is_gone_and_a_refusal_is_none_of_both() -> None:
    held = claim("a", "n1/gpu-0")
    held["metadata"]["resourceVersion"] = "77"
    with Replay(cluster(("resourceclaims", held))) as server:
        ask = ask_cluster(remote_of(server))
        found = ask("v1", NAMESPACE, "a")
        assert found is not None
        assert (found.uid, found.version) == (held["metadata"]["uid"], "77")
        assert found.allocation is not None
        assert [one.device for one in found.allocation.devices.results] == ["gpu-0"]
        assert ask("v1", NAMESPACE, "gone") is None
        busy = 0

        def answer(_path: str) -> tuple[int, dict[str, str], bytes]:
            nonlocal busy
            busy += 1
            return 429, {"Retry-After": "1"}, b"{}"

        server.answer = answer
        with pytest.raises(RemoteFailure):
            ask("v1", NAMESPACE, "a")
        assert busy == 1, "an API server waits for the guard meanwhile"


# How it is started ----------------------------------------------------------------------------------------------------


def options(**fields: Any) -> GuardOptions:
    return GuardOptions(
        **{"mode": AUDIT, "listen": "127.0.0.1:0", "certificate": None, "key": None, "token": None, **fields}
    )


WRONG: dict[str, dict[str, Any]] = {
    "beyond loopback without a token": {"listen": "0.0.0.0:0"},
    "no address": {"listen": "9443"},
    "a certificate without its key": {"certificate": Path("tls.crt")},
    "files that are not there": {"certificate": Path("/nowhere/tls.crt"), "key": Path("/nowhere/tls.key")},
    "a token that can be guessed": {"token": "short"},
    "a token that is no part of a Service's path": {"token": "A_TOKEN_THAT_IS_LONG"},
}


@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG.keys())
def test_what_it_cannot_be_started_with(fields: dict[str, Any], tmp_path: Path) -> None:
    if "token" in fields:
        (tmp_path / "token").write_text(fields["token"])
        fields = {"token": tmp_path / "token"}
    with Replay(cluster()) as server, pytest.raises(StartRefused):
        MirrorGuard(options(**fields), remote_of(server), folder=tmp_path)
