"""Steering: which pods get nodes, what is written for them in the cluster, and what is told of what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from claims.kinds.pods import Pod
from manciple.mirror import standing
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.models import KindStatus, SteeredPod
from manciple.mirror.sources import SLICE, Reach
from manciple.mirror.steering import names, releasing, rights
from manciple.mirror.steering.choosing import PROMISED, REFUSED_FOR, Choosing, is_steered
from manciple.mirror.steering.releasing import OUTCOMES, Releasing
from manciple.mirror.steering.telling import told_of
from manciple.refusals import StartRefused
from manciple.wire import codec
from scheduling import steering
from scheduling.cycle.scheduler import SchedulingWorker
from tests.acting import Scene, acting_mirror
from tests.manciple.mirror.clusters import claim, cluster, pod, remote_of
from tests.manciple.mirror.replay import Document
from tests.manciple.mirror.writable import Request, Writable

pytestmark = pytest.mark.django_db

STEERED = {names.LABEL: names.LABEL_VALUE}
LIMIT = timedelta(seconds=names.TIME_LIMIT)
State = SteeredPod.State


def gated(name: str, *claims: str, gates: tuple[str, ...] = (names.GATE,), **fields: Any) -> Document:
    labels, annotations = fields.pop("labels", STEERED), fields.pop("annotations", {})
    made = pod(name, *claims, schedulingGates=[{"name": one} for one in gates], **fields)
    made["metadata"] |= {"labels": dict(labels), "annotations": dict(annotations)}
    made["metadata"]["creationTimestamp"] = datetime.now(UTC).isoformat(timespec="seconds")
    made["status"] = {"phase": "Pending"}
    return made


@dataclass
class Steered:
    """A mirror that steers, whose parts take their turns when they are told to."""

    scene: Scene
    choosing: Choosing
    ahead: timedelta = field(default_factory=timedelta)

    def __post_init__(self) -> None:
        self.worker = SchedulingWorker(self.clock, places=False)
        self.restart()

    def clock(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def restart(self) -> None:
        self.releasing = Releasing(self.scene.remote, keep=self.scene.keep, clock=self.clock)

    @property
    def server(self) -> Writable:
        return self.scene.server

    def create(self, *documents: Document) -> None:
        for one in documents:
            self.server.put("pods", one)

    def decide(self) -> None:
        self.scene.look()
        self.worker.run()

    def turn(self) -> None:
        self.decide()
        self.releasing.turn()

    def later(self, span: timedelta) -> None:
        self.ahead += span + timedelta(seconds=1)

    def there(self, name: str) -> Document:
        found = self.server.get("pods", "team-a", name)
        assert found is not None
        return found

    def seen(self, name: str) -> tuple[str, list[str]]:
        """The nomination and the gates."""
        found = self.there(name)
        gates = found["spec"].get("schedulingGates") or []
        return found["status"].get("nominatedNodeName", ""), [gate["name"] for gate in gates]

    def place(self, name: str, node: str = "") -> str:
        """As the cluster's scheduler does: where it is nominated, unless told otherwise."""
        found = deepcopy(self.there(name))
        assert not found["spec"].get("schedulingGates")
        found["spec"]["nodeName"] = node = node or found["status"].pop("nominatedNodeName")
        self.server.put("pods", found)
        return node

    def row(self, name: str) -> SteeredPod:
        return SteeredPod.objects.get(name=name)

    def states(self) -> dict[str, str]:
        return dict(SteeredPod.objects.values_list("name", "state"))


@pytest.fixture
def server() -> Iterator[Writable]:
    with Writable(cluster(*(("resourceclaims", claim(name)) for name in "abcd"))) as server:
        yield server


@pytest.fixture
def steered(server: Writable, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Steered]:
    with acting_mirror(server, settings, monkeypatch) as scene:
        choosing = steering.chooser.value = Choosing(limit=LIMIT)
        yield Steered(scene, choosing)
        steering.chooser.reset()


def outcomes() -> dict[str, float]:
    return {outcome: OUTCOMES[outcome]._value.get() for outcome in ("followed", "elsewhere", "released", "refused")}


@pytest.fixture
def counted() -> Callable[[], dict[str, float]]:
    before = outcomes()
    return lambda: {name: value - before[name] for name, value in outcomes().items() if value != before[name]}


# Which pods -----------------------------------------------------------------------------------------------------------

OTHERS: dict[str, Document] = {
    "without the label": gated("a", "a", labels={}),
    "with another value of the label": gated("a", "a", labels={names.LABEL: "false"}),
    "without the gate": gated("a", "a", gates=()),
    "with another gate": gated("a", "a", gates=("other",)),
    "with another gate behind": gated("a", "a", gates=(names.GATE, "other")),
    "with another gate before": gated("a", "a", gates=("other", names.GATE)),
    "that is bound": gated("a", "a", nodeName="n1"),
}


@pytest.mark.parametrize("document", OTHERS.values(), ids=OTHERS)
def test_other_pods_are_never_touched(steered: Steered, document: Document) -> None:
    steered.create(document)
    for _ in range(2):
        steered.turn()
        steered.later(LIMIT)
    assert steered.server.written == []
    assert not SteeredPod.objects.exists()


def test_what_is_steered_is_told_from_the_whole_pod() -> None:
    found = {name: is_steered(codec.decode_value(Pod, document)) for name, document in OTHERS.items()}
    assert found == dict.fromkeys(OTHERS, False)
    assert is_steered(codec.decode_value(Pod, gated("a")))


# The steps ------------------------------------------------------------------------------------------------------------


def test_a_pod_is_nominated_and_then_released(steered: Steered, counted: Callable[[], dict[str, float]]) -> None:
    steered.create(gated("a", "a"))
    steered.turn()
    first, second = steered.server.written
    node, gates = steered.seen("a")
    assert node in ("n1", "n2")
    assert gates == []
    path, meta = "/api/v1/namespaces/team-a/pods/a", steered.there("a")["metadata"]
    assert (first.method, first.path, second.method, second.path) == ("PATCH", f"{path}/status", "PATCH", path)
    tested = [one["path"] for one in second.body if one["op"] == "test"]
    assert tested == [
        "/metadata/uid", "/metadata/resourceVersion", "/status/nominatedNodeName", "/spec/schedulingGates/0/name",
    ]  # fmt: skip
    assert first.body[0]["value"] == meta["uid"]
    assert steered.states() == {"a": State.RELEASED}
    assert counted() == {}
    steered.turn()
    assert len(steered.server.written) == 2
    steered.place("a")
    steered.turn()
    assert steered.states() == {"a": State.FOLLOWED}
    assert counted() == {"followed": 1}
    steered.server.delete("pods", "team-a", "a")
    steered.turn()
    assert steered.states() == {}
    steered.scene.agree("pods", "resourceclaims")


def test_a_pod_that_goes_elsewhere_is_told(steered: Steered, counted: Callable[[], dict[str, float]]) -> None:
    steered.create(gated("a", "a"))
    steered.turn()
    nominated = steered.row("a").node
    elsewhere = {"n1": "n2", "n2": "n1"}[nominated]
    steered.place("a", elsewhere)
    steered.turn()
    row = steered.row("a")
    assert (row.state, row.node, row.placed_on) == (State.ELSEWHERE, nominated, elsewhere)
    assert counted() == {"elsewhere": 1}


def test_a_nominee_that_is_cordoned_before_the_release_is_replaced(steered: Steered) -> None:
    steered.create(gated("a", "a"))
    steered.decide()
    before = steered.row("a").node
    node = deepcopy(steered.server.get("nodes", "", before))
    assert node is not None
    steered.server.put("nodes", {**node, "spec": {"unschedulable": True}})
    steered.later(timedelta(seconds=20))  # its backoff
    steered.turn()
    nominated, gates = steered.seen("a")
    assert nominated not in (before, "")
    assert gates == []


def test_more_pods_than_devices_get_no_device_twice(steered: Steered) -> None:
    """Four devices; whoever gets none waits, and is told why."""
    names_ = [f"p{number}" for number in range(6)]
    for name in names_:
        steered.server.put("resourceclaims", claim(name))
    steered.create(*(gated(name, name) for name in names_))
    steered.turn()
    nodes = [steered.seen(name)[0] for name in names_]
    assert sorted(filter(None, nodes)) == ["n1", "n1", "n2", "n2"]
    assert sorted(steered.states().values()) == [State.RELEASED] * 4 + [State.WAITING] * 2
    for name in names_:
        node, gates = steered.seen(name)
        assert gates == ([] if node else [names.GATE])
    steered.turn()
    assert sorted(filter(None, (steered.seen(name)[0] for name in names_))) == ["n1", "n1", "n2", "n2"]


def test_a_promise_ends(steered: Steered) -> None:
    for name in ("p0", "p1", "p2", "p3", "late"):
        steered.server.put("resourceclaims", claim(name))
    steered.create(*(gated(f"p{number}", f"p{number}") for number in range(4)))
    steered.turn()
    steered.create(gated("late", "late"))
    steered.later(timedelta(seconds=20))
    steered.turn()
    assert steered.states()["late"] == State.WAITING
    SteeredPod.objects.filter(state=State.RELEASED).update(at=datetime.now(UTC) - 2 * PROMISED)
    steered.turn()
    steered.turn()
    assert steered.states()["late"] == State.RELEASED


# Gangs ----------------------------------------------------------------------------------------------------------------


def member(name: str, size: int = 3) -> Document:
    return gated(name, name, annotations={"manciple.dev/gang": "train", "manciple.dev/gang-size": str(size)})


def test_a_gang_waits_for_all_of_its_pods(steered: Steered) -> None:
    steered.create(member("a"), member("b"))
    steered.turn()
    assert steered.server.written == []
    steered.create(member("c"))
    steered.later(timedelta(seconds=20))
    steered.turn()
    order = [request.path.rpartition("/pods/")[2] for request in steered.server.written]
    assert sorted(order[:3]) == ["a/status", "b/status", "c/status"]
    assert sorted(order[3:]) == ["a", "b", "c"]


def test_a_gang_of_which_one_has_changed_is_not_released(steered: Steered) -> None:
    steered.create(member("a"), member("b"), member("c"))

    def change(request: Request) -> None:
        if request.path.endswith("b/status"):
            steered.server.before = lambda _request: None
            changed = deepcopy(steered.there("b"))
            changed["metadata"]["annotations"]["changed"] = "meanwhile"
            steered.server.put("pods", changed)

    steered.server.before = change
    steered.turn()
    assert {tuple(steered.seen(name)[1]) for name in "abc"} == {(names.GATE,)}
    assert set(steered.states().values()) == {State.WAITING}
    steered.turn()
    assert {tuple(steered.seen(name)[1]) for name in "abc"} == {()}


def test_a_gang_of_which_one_cannot_be_nominated_is_not_released(steered: Steered) -> None:
    steered.create(member("a"), member("b"), member("c"))
    steered.server.refuses["b/status"] = (500, "InternalError", "failed calling webhook")
    steered.turn()
    assert steered.states() == {"a": State.NOMINATED, "b": State.DECIDED, "c": State.NOMINATED}
    assert {tuple(steered.seen(name)[1]) for name in "abc"} == {(names.GATE,)}
    steered.server.refuses.clear()
    steered.later(timedelta(seconds=releasing.LONGEST_PAUSE))
    for _ in range(2):
        steered.turn()
    assert {tuple(steered.seen(name)[1]) for name in "abc"} == {()}


def test_a_gang_that_fits_no_more_is_not_released_in_part(steered: Steered) -> None:
    steered.create(member("a"), member("b"), member("c"))
    steered.decide()
    SteeredPod.objects.filter(name__in=("a", "b")).update(state=State.NOMINATED)
    for name in ("n1", "n2"):
        node = deepcopy(steered.server.get("nodes", "", name))
        assert node is not None
        steered.server.put("nodes", {**node, "spec": {"unschedulable": True}})
    steered.later(timedelta(seconds=20))
    steered.turn()
    assert set(steered.states().values()) == {State.WAITING}
    assert {tuple(steered.seen(name)[1]) for name in "abc"} == {(names.GATE,)}


# What goes wrong ------------------------------------------------------------------------------------------------------


def test_after_a_crash_between_the_steps_the_pod_is_released(steered: Steered) -> None:
    steered.create(gated("a", "a"))
    steered.server.refuses["pods/a"] = (503, "ServiceUnavailable", "no")
    steered.turn()
    assert steered.states() == {"a": State.NOMINATED}
    nominated, gates = steered.seen("a")
    assert gates == [names.GATE]
    steered.server.refuses.clear()
    steered.restart()
    steered.releasing.begin()
    steered.turn()
    assert steered.seen("a") == (nominated, [])
    assert steered.states() == {"a": State.RELEASED}


def test_after_a_crash_before_a_nomination_was_noted_it_is_not_written_again(steered: Steered) -> None:
    steered.create(gated("a", "a"))
    steered.decide()
    node, found = steered.row("a").node, deepcopy(steered.there("a"))
    found["status"]["nominatedNodeName"] = node
    steered.server.put("pods", found)
    steered.scene.look()
    steered.restart()
    steered.releasing.begin()
    steered.turn()
    assert [request.path.rpartition("/pods/")[2] for request in steered.server.written] == ["a"]
    assert steered.seen("a") == (node, [])


def test_after_a_crash_before_a_release_was_noted_nothing_is_sent(steered: Steered) -> None:
    steered.create(gated("a", "a"))
    steered.turn()
    SteeredPod.objects.update(state=State.NOMINATED)
    before = len(steered.server.written)
    steered.restart()
    steered.turn()
    assert len(steered.server.written) == before
    assert steered.states() == {"a": State.RELEASED}


@pytest.mark.parametrize("what", ["nomination", "release"])
def test_a_pod_that_has_changed_is_judged_again(steered: Steered, what: str) -> None:
    steered.create(gated("a", "a"))

    def change(request: Request) -> None:
        if request.path.endswith("/status") is (what == "nomination"):
            steered.server.before = lambda _request: None
            changed = deepcopy(steered.there("a"))
            changed["spec"]["nodeSelector"] = {"only": "elsewhere"}
            steered.server.put("pods", changed)

    steered.server.before = change
    steered.turn()
    for _ in range(2):
        steered.turn()
        assert steered.seen("a")[1] == [names.GATE], "no node takes it any more"
        assert steered.states() == {"a": State.WAITING}


def test_a_choice_on_an_older_copy_is_not_written(steered: Steered) -> None:
    steered.create(gated("a", "a"))
    steered.decide()
    changed = deepcopy(steered.there("a"))
    changed["spec"]["nodeSelector"] = {"only": "elsewhere"}
    steered.server.put("pods", changed)
    steered.scene.look()
    steered.releasing.turn()
    assert steered.server.written == []
    assert steered.states() == {"a": State.WAITING}


@pytest.mark.parametrize("recreated", [False, True])
def test_a_pod_that_is_gone_is_dropped(steered: Steered, recreated: bool) -> None:
    steered.create(gated("a", "a"))

    def delete(_request: Request) -> None:
        steered.server.before = lambda _request: None
        steered.server.delete("pods", "team-a", "a")
        if recreated:
            made = gated("a", "a", gates=())
            made["metadata"]["uid"] = "another"
            steered.server.put("pods", made)

    steered.server.before = delete
    steered.turn()
    assert not SteeredPod.objects.exists()
    if recreated:
        assert steered.seen("a") == ("", [])
    steered.scene.agree("pods")


def test_the_label_may_be_taken_back(steered: Steered) -> None:
    steered.create(gated("a", "a"))
    steered.decide()
    changed = deepcopy(steered.there("a"))
    changed["metadata"]["labels"] = {}
    steered.server.put("pods", changed)
    steered.scene.look()
    steered.releasing.turn()
    assert steered.server.written == []
    assert not SteeredPod.objects.exists()


def test_what_the_cluster_refuses_is_told_and_tried_again_later(
    steered: Steered, counted: Callable[[], dict[str, float]]
) -> None:
    steered.create(gated("a", "a"), gated("b", "b"))
    steered.server.refuses["a/status"] = (403, "Forbidden", "no such right")
    steered.turn()
    row = steered.row("a")
    assert (row.state, row.message) == (State.REFUSED, "no such right")
    assert steered.states()["b"] == State.RELEASED
    steered.turn()
    assert counted() == {"refused": 1}
    asked = len(steered.server.written)
    steered.turn()
    assert len(steered.server.written) == asked
    steered.server.refuses.clear()
    steered.later(REFUSED_FOR)
    steered.turn()
    steered.turn()
    assert steered.states()["a"] == State.RELEASED
    assert steered.row("a").message == ""


def test_a_failure_about_one_pod_keeps_no_other_waiting(steered: Steered) -> None:
    """A webhook of its namespace, say, that does not answer."""
    steered.create(gated("a", "a"), gated("b", "b"))
    steered.server.refuses["a/status"] = (500, "InternalError", "failed calling webhook")
    steered.turn()
    assert steered.states() == {"a": State.DECIDED, "b": State.RELEASED}
    asked = len(steered.server.written)
    steered.turn()
    assert len(steered.server.written) == asked, "it rests"
    steered.server.refuses.clear()
    steered.later(timedelta(seconds=releasing.LONGEST_PAUSE))
    steered.turn()
    assert steered.states() == {"a": State.RELEASED, "b": State.RELEASED}


@pytest.mark.parametrize(
    ("code", "reason", "state"),
    [(409, "Conflict", State.DECIDED), (422, "Invalid", State.REFUSED), (404, "NotFound", State.REFUSED)],
)
def test_a_refusal_of_an_unchanged_pod_is_no_change(
    steered: Steered, code: int, reason: str, state: SteeredPod.State
) -> None:
    steered.create(gated("a", "a"))
    steered.server.refuses["a/status"] = (code, reason, "no")
    steered.turn()
    assert steered.states() == {"a": state}


def test_nothing_is_chosen_while_a_kind_may_not_be_read(steered: Steered) -> None:
    steered.create(gated("a", "a"))
    steered.scene.look()
    KindStatus.objects.filter(resource=SLICE.resource).update(reach=Reach.FORBIDDEN)
    standing.forget()
    steered.worker.run()
    steered.releasing.turn()
    assert steered.states() == {"a": State.WAITING}
    assert steered.server.written == []


@pytest.mark.parametrize("how", ["silent_on", "loses"])
def test_nothing_is_lost_while_the_cluster_does_not_answer(steered: Steered, how: str) -> None:
    steered.create(gated("a", "a"), gated("b", "b"))
    setattr(steered.server, how, frozenset({"PATCH"}))
    with pytest.raises(RemoteFailure):
        steered.turn()
    assert set(steered.states().values()) == {State.DECIDED}
    setattr(steered.server, how, frozenset())
    for _ in range(3):
        steered.turn()
    assert set(steered.states().values()) == {State.RELEASED}
    for name in "ab":
        node, gates = steered.seen(name)
        assert node == steered.row(name).node
        assert gates == []


# The time limit -------------------------------------------------------------------------------------------------------


def test_a_pod_that_no_node_takes_is_let_go_at_the_limit(
    steered: Steered, counted: Callable[[], dict[str, float]]
) -> None:
    steered.create(gated("a", "a", cpu="4000"))
    steered.turn()
    assert steered.seen("a") == ("", [names.GATE])
    steered.later(LIMIT - timedelta(seconds=60))
    steered.turn()
    assert steered.seen("a") == ("", [names.GATE])
    steered.later(timedelta(seconds=60))
    steered.turn()
    assert steered.seen("a") == ("", [])
    assert counted() == {"released": 1}
    steered.place("a", "n2")
    steered.turn()
    row = steered.row("a")
    assert (row.state, row.placed_on) == (State.LET_GO, "n2")
    assert counted() == {"released": 1}


def test_a_gate_that_somebody_else_removes_is_told(steered: Steered, counted: Callable[[], dict[str, float]]) -> None:
    steered.create(gated("a", "a", cpu="4000"))
    steered.turn()
    changed = deepcopy(steered.there("a"))
    changed["spec"]["schedulingGates"] = []
    steered.server.put("pods", changed)
    steered.place("a", "n1")
    steered.turn()
    assert steered.states() == {"a": State.LET_GO}
    assert counted() == {"released": 1}
    assert steered.server.written == []


# Rights ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lacks", [{"pods"}, {"pods/status"}, {"pods", "pods/status"}])
def test_a_missing_right_is_named_at_the_start(lacks: set[str]) -> None:
    def may(wanted: Any) -> bool:
        return "/".join(filter(None, (wanted["resource"], wanted.get("subresource")))) not in lacks

    with Writable({}, may=may) as server, pytest.raises(StartRefused) as refused:
        rights.demand(remote_of(server), "prod")
    assert " and ".join(sorted(lacks)) in str(refused.value)
    assert all(one["verb"] == "patch" for one in server.reviewed)


def test_with_both_rights_it_starts() -> None:
    with Writable({}) as server:
        rights.demand(remote_of(server), "prod")
    assert len(server.reviewed) == 2


# What is told ---------------------------------------------------------------------------------------------------------

AT = datetime(2026, 12, 1, 12, 3, tzinfo=UTC)
TOLD: dict[str, tuple[dict[str, Any], str]] = {
    "waiting": (
        {"state": State.WAITING, "ends_at": AT},
        "No node takes it yet; its gate is removed by 12:03 at the latest.",
    ),
    "decided": ({"state": State.DECIDED}, "Manciple nominates `n1`, then removes its gate."),
    "released": ({"state": State.RELEASED}, "Manciple nominated `n1` at 12:03; `volcano` has not placed it yet."),
    "followed": (
        {"state": State.FOLLOWED, "placed_on": "n1"},
        "Manciple nominated `n1` at 12:03, and `volcano` placed it there.",
    ),
    "elsewhere": (
        {"state": State.ELSEWHERE, "placed_on": "n2"},
        "Manciple nominated `n1` at 12:03; `volcano` placed it on `n2`.",
    ),
    "let go": ({"state": State.LET_GO}, "Its gate was removed without a nomination at 12:03."),
    "let go, and placed": (
        {"state": State.LET_GO, "placed_on": "n2"},
        "Its gate was removed without a nomination at 12:03; `volcano` placed it on `n2`.",
    ),
    "refused": ({"state": State.REFUSED, "message": "no."}, "Manciple could not nominate a node: no."),
}


@pytest.mark.parametrize(("fields", "sentence"), TOLD.values(), ids=TOLD)
def test_the_page_of_a_pod_tells_it(fields: dict[str, Any], sentence: str) -> None:
    found = codec.decode_value(Pod, gated("a", schedulerName="volcano"))
    assert told_of(found) is None
    row = {"node": "n1", "at": AT, "nominated_at": AT, "ends_at": AT, "pod_revision": 1, "revision": 1, **fields}
    SteeredPod.objects.create(pod_uid=found.metadata.uid, namespace="team-a", name="a", **row)
    told = told_of(found)
    assert told is not None
    assert f"{told.before}{f' {told.at:%H:%M}' if told.at else ''}{told.after}" == sentence
