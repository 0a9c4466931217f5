"""`manciple end-gates`: gates of steered pods end after a while, whatever the cluster does meanwhile."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from manciple.mirror import client, kubeconfig
from manciple.mirror.client import Remote
from manciple.mirror.kubeconfig import Choice
from manciple.mirror.steering import end_gates
from manciple.mirror.steering.end_gates import COMPONENT, REASON, SELECTOR, GatedPod, GateEnder, GateTable, run
from manciple.mirror.steering.names import GATE, LABEL, LABEL_VALUE, TIME_LIMIT
from tests.manciple.api.server import ApiServer
from tests.manciple.mirror import clusters
from tests.manciple.mirror.clusters import NAMESPACE, remote_of
from tests.manciple.mirror.living import Living
from tests.manciple.mirror.replay import Document
from tests.manciple.mirror.test_replicator import until
from tests.manciple.mirror.writable import Request, Writable

NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)
OTHER_GATE = "example.com/quota"
ROOT = Path(__file__).resolve().parents[3]


def gated(name: str, *gates: str, created: str = "2026-11-01T08:00:00Z", **meta: Any) -> Document:
    """Long over, unless `created` says otherwise. gates: ours alone where none are given."""
    listed = [{"name": one} for one in gates or (GATE,)]
    made = clusters.pod(name, schedulingGates=listed)
    made["metadata"] |= {"labels": {LABEL: LABEL_VALUE}, "creationTimestamp": created, **meta}
    return made


def young(name: str, **meta: Any) -> Document:
    return gated(name, created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"), **meta)


def gates_of(server: Living, name: str) -> list[str] | None:
    found = server.get("pods", NAMESPACE, name)
    return None if found is None else [one["name"] for one in found["spec"].get("schedulingGates", ())]


def patches(server: Writable) -> list[Request]:
    return [one for one in server.written if one.method == "PATCH"]


@contextmanager
def ending(
    server: Living | Remote, *, limit: float = TIME_LIMIT, silence: float = 30.0, namespace: str = ""
) -> Iterator[GateEnder]:
    remote = server if isinstance(server, Remote) else remote_of(server)
    ender = GateEnder(remote, GateTable(limit), silence=silence, namespace=namespace)
    threads = [threading.Thread(target=loop) for loop in (ender.follow, ender.end)]
    for thread in threads:
        thread.start()
    try:
        yield ender
    finally:
        ender.stop()
        for thread in threads:
            thread.join(timeout=20)
        assert not any(thread.is_alive() for thread in threads)
        remote.close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits in tests for a server that can do it now."""
    for name in ("FIRST_PAUSE", "LONGEST_PAUSE", "FIRST_RETRY", "LONGEST_RETRY"):
        monkeypatch.setattr(end_gates, name, 0.02)
    monkeypatch.setattr(end_gates, "SPREAD", 0.0)


@pytest.fixture
def server() -> Iterator[Writable]:
    with Writable({"pods": [], "events": []}, live=True) as server:
        yield server


# When -----------------------------------------------------------------------------------------------------------------


def entry_at(created: datetime | None, *, limit: float = 300.0) -> float:
    """Seconds from now to the end of the gate of a pod that is first seen now."""
    table = GateTable(limit, clock=lambda: 1000.0, now=lambda: NOW)
    table.put(GatedPod(NAMESPACE, "train", "u", 0, created))
    return table._entries["u"].at - 1000.0


ENDS = {
    "a new pod": (NOW, 300.0),
    "an older one": (NOW - timedelta(seconds=100), 200.0),
    "one whose time was over before it was seen": (NOW - timedelta(days=3), 0.0),
    "one from the future: some clock is wrong": (NOW + timedelta(days=3), 300.0),
    "one that does not say when it was created": (None, 300.0),
}


@pytest.mark.parametrize(("created", "ends"), ENDS.values(), ids=ENDS)
def test_a_gate_ends_so_long_after_its_pod_was_created_and_never_later_than_that_after_it_was_seen(
    created: datetime | None, ends: float
) -> None:
    assert entry_at(created) == ends


def test_the_age_of_a_pod_is_by_the_clock_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    table = GateTable(300.0)
    monkeypatch.setattr(client.clock_skew, "value", 3600.0)
    assert abs((table.now() - datetime.now(UTC)).total_seconds() - 3600) < 60


def test_a_change_of_the_pod_does_not_put_its_end_off() -> None:
    clock = [0.0]
    table = GateTable(300.0, clock=lambda: clock[0], now=lambda: NOW)
    table.put(GatedPod(NAMESPACE, "train", "u", 0, NOW))
    clock[0] = 200.0
    table.put(GatedPod(NAMESPACE, "train", "u", 1, NOW))
    table.replace([GatedPod(NAMESPACE, "train", "u", 1, NOW)])
    assert table._entries["u"].at == 300.0
    assert table._entries["u"].pod.index == 1


# What -----------------------------------------------------------------------------------------------------------------


def test_our_gate_ends_and_others_stay_and_the_pod_says_why(server: Writable) -> None:
    server.put("pods", gated("train", OTHER_GATE, GATE))
    server.put("pods", young("new"))
    server.put("pods", gated("other", OTHER_GATE))
    server.put("pods", gated("leaving", deletionTimestamp="2026-12-01T08:00:00Z"))
    with ending(server) as ender:
        until(lambda: bool(server.objects["events"]))
        assert gates_of(server, "train") == [OTHER_GATE]
        assert len(ender.table) == 1, "the new pod"
    assert gates_of(server, "new") == [GATE]
    assert len(patches(server)) == 1
    (event,) = server.objects["events"]
    assert (event["reason"], event["source"]["component"]) == (REASON, COMPONENT)
    assert event["involvedObject"].items() >= {"kind": "Pod", "name": "train", "uid": f"{NAMESPACE}-train"}.items()
    assert GATE in event["message"]
    asked = [path for path in server.asked if "/pods" in path]
    assert all(f"labelSelector={LABEL.replace('/', '%2F')}%3D{LABEL_VALUE}" in path for path in asked), SELECTOR


def test_pods_that_come_later_are_seen_and_those_whose_gate_somebody_removes_are_left_alone(server: Writable) -> None:
    with ending(server) as ender:
        server.put("pods", young("a"))
        server.put("pods", young("b"))
        until(lambda: len(ender.table) == 2)
        server.put("pods", clusters.pod("a"))
        server.delete("pods", NAMESPACE, "b")
        server.put("pods", gated("late"))
        until(lambda: gates_of(server, "late") == [] and not len(ender.table))
    assert {one.path.rpartition("/")[2] for one in patches(server)} <= {"late", "b"}
    assert gates_of(server, "b") is None


def test_only_the_pods_of_its_namespace_are_followed_where_one_is_named(server: Writable) -> None:
    server.put("pods", gated("theirs", namespace="team-b"))
    server.put("pods", gated("mine"))
    with ending(server, namespace=NAMESPACE):
        until(lambda: gates_of(server, "mine") == [])
    assert [path for path in server.asked if "/namespaces/team-a/pods" not in path] == []
    assert len(patches(server)) == 1


def test_replicas_end_a_gate_once(server: Writable) -> None:
    """The second one has not heard of it yet, which the patch notices."""
    for number in range(5):
        server.put("pods", gated(f"p{number}", OTHER_GATE, GATE))
    with ending(server) as first, ending(server) as second:
        until(lambda: not len(first.table) and not len(second.table))
        until(lambda: len(server.objects["events"]) == 5)
    assert all(gates_of(server, f"p{number}") == [OTHER_GATE] for number in range(5))


def test_a_gate_that_a_replica_has_just_ended_takes_no_other_with_it(server: Writable) -> None:
    def before(request: Request) -> None:
        if request.method == "PATCH" and len(patches(server)) == 1:
            server.put("pods", gated("train", OTHER_GATE))

    server.put("pods", gated("train", GATE, OTHER_GATE))
    server.before = before
    with ending(server) as ender:
        until(lambda: bool(patches(server)) and not len(ender.table))
    assert gates_of(server, "train") == [OTHER_GATE]
    assert server.objects["events"] == [], "who ended it has said so"


def test_a_gate_that_is_elsewhere_by_now_is_looked_for_again(server: Writable) -> None:
    def before(request: Request) -> None:
        if request.method == "PATCH" and len(patches(server)) == 1:
            changed = deepcopy(server.get("pods", NAMESPACE, "train"))
            assert changed is not None
            changed["spec"]["schedulingGates"] = [{"name": GATE}]
            server.put("pods", changed)

    server.put("pods", gated("train", OTHER_GATE, GATE))
    server.before = before
    with ending(server) as ender:
        until(lambda: gates_of(server, "train") == [] and not len(ender.table))
    assert len(patches(server)) > 1


def test_another_pod_of_the_same_name_keeps_its_gate(server: Writable) -> None:
    """A StatefulSet makes the same name again, and the news is not here yet."""

    def before(request: Request) -> None:
        if request.method == "PATCH" and len(patches(server)) == 1:
            server.put("pods", young("train", uid="another"))

    server.put("pods", gated("train"))
    server.before = before
    with ending(server) as ender:
        until(lambda: bool(patches(server)) and set(ender.table._entries) == {"another"})
    assert gates_of(server, "train") == [GATE]


# Faults ---------------------------------------------------------------------------------------------------------------


def _prune(server: Writable) -> None:
    server.prune()


def _busy(server: Writable) -> None:
    server.busy = 3
    server.end_watches()


def _broken(server: Writable) -> None:
    server.broken_after = 0
    server.end_watches()


def _restored(server: Writable) -> None:
    server.restore()


def _no_pod(server: Writable) -> None:
    server.put("pods", {"metadata": {"name": "odd", "namespace": NAMESPACE, "uid": "odd"}, "spec": ["no", "pod"]})


FAULTS: dict[str, Callable[[Writable], None]] = {
    "the server has forgotten the past (410)": _prune,
    "it is too busy (429)": _busy,
    "a watch breaks off within a line": _broken,
    "the server went back to a backup": _restored,
    "a pod that is no pod": _no_pod,
    "the server ends all watches": Writable.end_watches,
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_whatever_happens_to_the_watch_later_pods_are_seen(server: Writable, fault: Callable[[Writable], None]) -> None:
    server.put("pods", gated("first"))
    server.backup()
    with ending(server) as ender:
        until(lambda: gates_of(server, "first") == [])
        fault(server)
        server.put("pods", gated("late"))
        server.put("pods", young("new"))
        until(lambda: gates_of(server, "late") == [] and len(ender.table) == 1)
    assert gates_of(server, "new") == [GATE]


def test_a_watch_that_says_nothing_for_long_is_opened_again(server: Writable) -> None:
    server.silent = True
    with ending(server, silence=0.2):
        until(lambda: any("watch=" in path for path in server.asked))
        server.put("pods", gated("late"))
        until(lambda: gates_of(server, "late") == [])


SERVER, POD_ALONE, NOBODY = "cannot end gates", "next attempt in", ""
#: Code, message, of what the log tells.
REFUSALS: dict[str, tuple[int, str, str]] = {
    "busy": (429, "too many requests", SERVER),
    "broken": (500, "etcdserver: leader changed", SERVER),
    "away": (503, "apiserver not ready", SERVER),
    "no right": (403, 'pods "train" is forbidden', POD_ALONE),
    "as a replica that came second is answered": (422, "the test failed", NOBODY),
}


@pytest.mark.parametrize(("code", "message", "told"), REFUSALS.values(), ids=REFUSALS)
def test_a_gate_that_cannot_be_ended_now_is_tried_again(
    server: Writable, caplog: pytest.LogCaptureFixture, code: int, message: str, told: str
) -> None:
    server.refuses = {"PATCH": (code, "", message)}
    server.put("pods", gated("train"))
    with caplog.at_level(logging.WARNING), ending(server):
        until(lambda: len(patches(server)) > 2)
        server.refuses = {}
        until(lambda: gates_of(server, "train") == [])
    assert [text for text in (SERVER, POD_ALONE) if text in caplog.text] == ([told] if told else [])
    assert (message in caplog.text) is bool(told)


def test_an_answer_that_does_not_come_is_asked_for_again(server: Writable) -> None:
    server.loses = frozenset({"PATCH"})
    server.put("pods", gated("train"))
    with ending(server):
        until(lambda: len(patches(server)) > 1)
        server.loses = frozenset()
        until(lambda: gates_of(server, "train") == [])


def test_pods_that_may_not_be_listed_are_asked_for_again_and_the_log_says_so_once(
    server: Writable, caplog: pytest.LogCaptureFixture
) -> None:
    server.forbidden = frozenset({"pods"})
    server.put("pods", gated("train"))
    with caplog.at_level(logging.INFO), ending(server):
        until(lambda: len(server.asked) > 3)
        server.forbidden = frozenset()
        until(lambda: gates_of(server, "train") == [])
    assert caplog.text.count("cannot follow pods") == caplog.text.count("can follow pods again") == 1


def test_without_the_right_to_create_events_gates_end_all_the_same(
    server: Writable, caplog: pytest.LogCaptureFixture
) -> None:
    server.refuses = {"POST": (403, "Forbidden", "events is forbidden")}
    for name in ("a", "b"):
        server.put("pods", gated(name))
    with caplog.at_level(logging.INFO), ending(server):
        until(lambda: sum(one.method == "POST" for one in server.written) == 2)
    assert (gates_of(server, "a"), gates_of(server, "b")) == ([], [])
    assert caplog.text.count("events is forbidden") == 1


# A second Manciple ----------------------------------------------------------------------------------------------------


def test_gates_end_in_another_manciple_and_with_the_label_at_once(api_server: ApiServer) -> None:
    pods = "/api/v1/namespaces/default/pods"

    def made(name: str, *gates: str, steered: bool = True) -> None:
        document = {
            "metadata": {"name": name, "labels": {LABEL: LABEL_VALUE} if steered else {}},
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "schedulingGates": [{"name": one} for one in gates],
            },
        }
        assert api.post(pods, json=document).status_code == 201

    def left(name: str) -> list[str]:
        return [one["name"] for one in api.get(f"{pods}/{name}").json()["spec"].get("schedulingGates", ())]

    with api_server.client() as api:
        made("train", OTHER_GATE, GATE)
        made("unlabelled", GATE, steered=False)
        with ending(Remote(kubeconfig.read(Choice(kubeconfig=str(api_server.kubeconfig)))), limit=0.2):
            until(lambda: left("train") == [OTHER_GATE])
            made("late", GATE)
            until(lambda: left("late") == [])
        made("opted-out", GATE)
        with ending(Remote(kubeconfig.read(Choice(kubeconfig=str(api_server.kubeconfig))))) as ender:
            until(lambda: len(ender.table) == 1)
            patch = {"metadata": {"labels": {LABEL: None}}}
            headers = {"Content-Type": "application/merge-patch+json"}
            assert api.patch(f"{pods}/opted-out", content=json.dumps(patch), headers=headers).status_code == 200
            until(lambda: left("opted-out") == [])
            until(lambda: not len(ender.table))
        assert left("unlabelled") == [GATE], "it is somebody else's affair"
        events = api.get("/api/v1/namespaces/default/events").json()["items"]
        said = {one["involvedObject"]["name"]: one["message"] for one in events if one["reason"] == REASON}
        assert said.keys() == {"train", "late", "opted-out"}
        assert LABEL in said["opted-out"]
        assert "still there" in said["train"]


# The process ----------------------------------------------------------------------------------------------------------


def test_the_process_ends_gates_until_it_is_told_to_end_and_is_small(server: Writable, tmp_path: Path) -> None:
    server.put("pods", gated("train"))
    command = [sys.executable, "-m", "manciple", "end-gates", "--kubeconfig", str(server.kubeconfig(tmp_path))]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: gates_of(server, "train") == [])
        status = Path(f"/proc/{process.pid}/status")
        if status.exists():
            kilobytes = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmRSS"))
            assert int(kilobytes) < 64 * 1024, "the limit of its pod is 96 MiB"
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=30)[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert f"pod {NAMESPACE}/train" in said
    assert "Traceback" not in said


def test_it_does_not_start_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert end_gates.main(["--kubeconfig", str(tmp_path / "none")]) == 1
    assert "none cannot be read" in capsys.readouterr().err


def test_a_loop_that_fails_ends_the_process_with_1(server: Writable, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it is, a new start is better than a process that does half of its work."""
    ender = GateEnder(remote_of(server), GateTable(1.0))

    def broken() -> None:
        raise AssertionError("it is broken")

    ender.end = broken  # type: ignore[method-assign]
    assert run(ender) == 1
    assert "it is broken" in caplog.text
