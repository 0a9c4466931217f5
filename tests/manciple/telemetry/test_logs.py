"""Lines of the log as JSON: which object each is about, in which request it was written."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from manciple.controllers.coordination import utc_now
from manciple.store import records
from manciple.store.records import Origin
from manciple.telemetry import logs
from manciple.telemetry.logs import JsonLines, about
from manciple.wire.identity import Identity
from tests.builders import make_node, make_pod
from tests.scheduling.cluster import Cluster
from tests.scheduling.conftest import cluster

__all__ = ["cluster"]

log = logging.getLogger("scheduling.example")


class Lines(io.StringIO):
    """What is written to the log, as JSON."""

    def read_all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def lines() -> Iterator[Lines]:
    written = Lines()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    logging.getLogger("scheduling").addHandler(handler)
    yield written
    logging.getLogger("scheduling").removeHandler(handler)


def test_a_line_has_the_key_of_the_object_that_is_worked_on(lines: Lines) -> None:
    pod = make_pod("train-1", namespace="lab", meta={"uid": "6d1c"})
    with about(pod):
        log.warning("waits for %d devices", 2)
        with about(make_node("gpu-a01")), about(None):
            log.warning("another object")
    log.warning("nothing in particular")
    first, second, third = lines.read_all()
    assert first["object"] == {"kind": "Pod", "namespace": "lab", "name": "train-1", "uid": "6d1c"}
    assert (first["level"], first["logger"], first["msg"]) == ("WARNING", "scheduling.example", "waits for 2 devices")
    assert first["ts"].endswith("Z")
    assert (second["object"]["kind"], second["object"]["name"]) == ("Node", "gpu-a01")
    assert "object" not in third


def test_a_line_has_the_id_of_the_request_in_which_it_is_written(lines: Lines) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    clients = f"00-{trace}-00f067aa0ba902b7-01"
    alice = Identity("alice")
    origin = Origin(audit_id="request-1", received=utc_now(), verb="create", identity=alice, traceparent=clients)
    with records.collecting(origin):
        log.warning("within")
    log.warning("without")
    within, without = lines.read_all()
    assert (within["requestId"], within["user"], within["verb"]) == ("request-1", "alice", "create")
    assert within["traceId"] == trace
    assert "requestId" not in without


def test_what_was_raised_is_one_line_too(lines: Lines) -> None:
    try:
        {"": 1}["a\nb"]
    except KeyError:
        log.exception("failed")
    (line,) = lines.read_all()
    assert line["error"].startswith("Traceback")
    assert line["error"].endswith("KeyError: 'a\\nb'")


def test_a_worker_names_the_pod_that_it_could_not_decide_about(
    cluster: Cluster, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ArithmeticError("one pod is strange")

    cluster.with_gpus()
    pod = cluster.create(make_pod("strange"))
    monkeypatch.setattr("scheduling.cycle.scheduler.decide", fail)
    cluster.worker.run()
    found = [line for line in lines.read_all() if "no decision for pod" in line["msg"]]
    assert [line["object"] for line in found] == [
        {
            "kind": "Pod",
            "namespace": "default",
            "name": "strange",
            "uid": pod.metadata.uid,
            "resourceVersion": pod.metadata.resource_version,
        }
    ]


def test_there_is_no_third_format() -> None:
    with pytest.raises(ValueError, match="no format of the log: text or json"):
        logs.begin(level="INFO", format_="xml")
