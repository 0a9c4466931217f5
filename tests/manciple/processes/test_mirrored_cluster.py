"""A mirror does not take one cluster for another: everything of the first would seem to be deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from manciple.mirror.client import Remote
from manciple.mirror.failures import RemoteFailure
from manciple.processes.mirror_system import SYSTEM_NAMESPACE, refuse_another_cluster
from manciple.refusals import StartRefused
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.machinery import Namespace
from manciple.wire.resources import NAMESPACES, kind
from tests.builders import make_meta

pytestmark = pytest.mark.django_db


class Answering:
    def __init__(self, answer: object) -> None:
        self._answer = answer

    def get(self, path: str) -> bytes:
        assert path == f"/api/v1/namespaces/{SYSTEM_NAMESPACE}"
        if isinstance(self._answer, Exception):
            raise self._answer
        return json.dumps(self._answer).encode()


def refuse(answer: object) -> None:
    refuse_another_cluster(cast("Remote", Answering(answer)), Path("/copies/prod"))


def document(uid: str) -> dict[str, Any]:
    return {"metadata": {"name": SYSTEM_NAMESPACE, "uid": uid}}


@pytest.fixture
def copied() -> str:
    one = Namespace(metadata=structs.replace(make_meta(SYSTEM_NAMESPACE, namespace=""), uid="of-the-first"))
    with objects.writing() as writer:
        return writer.replicate(kind(NAMESPACES), one, codec.to_builtins(one)).metadata.uid


def test_a_copy_of_another_cluster_is_left_alone(copied: str) -> None:
    with pytest.raises(StartRefused, match=r"/copies/prod .*--home"):
        refuse(document("of-the-second"))


UNKNOWN = {
    "away": RemoteFailure("it cannot be reached"),
    "not to be read": RemoteFailure("forbidden", code=403),
    "not understood": {"kind": "Status"},
    "no object": [],
}


@pytest.mark.parametrize("answer", UNKNOWN)
def test_what_cannot_be_told_keeps_nobody_from_starting(copied: str, answer: str) -> None:
    refuse(UNKNOWN[answer])
    refuse(document(copied))


def test_the_first_start_compares_nothing() -> None:
    refuse(AssertionError("it is not asked"))
