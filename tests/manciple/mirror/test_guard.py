"""The guard: which writes it admits, which it refuses, and what it does where it cannot tell."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError

from inventory.impairments import CONTESTED
from inventory.models import Incident
from manciple.mirror.guard import findings, promises, reviews
from manciple.mirror.guard.judging import PROMISED, Guard, Knowledge, LiveClaim, Verdict
from manciple.mirror.guard.reviews import NoReview
from manciple.mirror.models import DevicePromise, GuardFinding
from tests.examples import sample
from tests.manciple.mirror.clusters import NAMESPACE, OTHER, claim, slice_of
from tests.manciple.mirror.guarded import GuardedCluster, answered, giving, guards, review

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cluster() -> GuardedCluster:
    made = GuardedCluster()
    made.publish(slice_of("n1", 4), slice_of("n2", 4))
    for name in ("a", "b", "c"):
        made.put(claim(name))
    made.put(claim("theirs", namespace=OTHER))
    made.copy()
    return made


@pytest.fixture
def both(cluster: GuardedCluster) -> Iterator[list[Guard]]:
    """Two replicas that enforce."""
    with guards(cluster) as made:
        yield made


@pytest.fixture
def watching(cluster: GuardedCluster) -> Iterator[Guard]:
    with guards(cluster, (False,)) as (guard,):
        yield guard


def promised() -> list[str]:
    return sorted(f"{one.claim}:{one.device}" for one in DevicePromise.objects.all())


# What passes at once --------------------------------------------------------------------------------------------------


def reserved(document: dict[str, Any]) -> None:
    document["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "u"}]


def reported(document: dict[str, Any]) -> None:
    document["status"]["devices"] = [{"driver": "d", "pool": "n1", "device": "gpu-0", "conditions": []}]


def deallocated(document: dict[str, Any]) -> None:
    document["status"] = {"allocation": None}


def deleted(document: dict[str, Any]) -> None:
    document["metadata"]["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    document["metadata"]["finalizers"] = []


QUICK = {"reserved": reserved, "reported": reported, "deallocated": deallocated, "deleted": deleted}


class Untouched(GuardedCluster):
    def guard(self, *, enforce: bool = True) -> Guard:
        def touched(*_: object) -> Any:
            pytest.fail("neither the database nor the cluster is asked")

        return Guard(enforce=enforce, ask=touched, know=touched)


@pytest.mark.parametrize("change", QUICK.values(), ids=QUICK.keys())
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_write_that_allocates_nothing_new_passes_at_once(change: Any, version: str) -> None:
    old = claim("a", "n1/gpu-0")
    new = deepcopy(old)
    change(new)
    with guards(Untouched(), (True,)) as (guard,):
        assert answered(guard, review(old, new, version=version)).verdict is Verdict.UNCHANGED


OTHERS = {
    "another resource": {"resource": {"group": "", "version": "v1", "resource": "pods"}},
    "the claim itself": {"subResource": ""},
    "a deletion": {"operation": "DELETE", "object": None},
    "nothing but admin access": {
        "object": {**claim("a"), "status": {"allocation": giving("n1/gpu-0", adminAccess=True)}}
    },
}


@pytest.mark.parametrize("request_", OTHERS.values(), ids=OTHERS.keys())
def test_what_does_not_concern_it_passes(request_: dict[str, Any]) -> None:
    new = claim("a", "n1/gpu-0")
    with guards(Untouched(), (True,)) as (guard,):
        assert answered(guard, review(claim("a"), new, **request_)).verdict is Verdict.UNCHANGED


# What is refused ------------------------------------------------------------------------------------------------------


def test_a_device_that_another_claim_holds_is_refused(cluster: GuardedCluster, both: list[Guard]) -> None:
    cluster.put(claim("a", "n1/gpu-0"))
    cluster.copy()
    answer = cluster.write(both[0], "b", giving("n1/gpu-1", "n1/gpu-0"))
    assert answer.verdict is Verdict.REFUSED
    assert "n1/gpu-0" in answer.refusal
    assert f"{NAMESPACE}/a" in answer.refusal
    assert "gpu-1" not in answer.refusal
    assert promised() == []
    assert cluster.write(both[0], "b", giving("n1/gpu-1")).verdict is Verdict.ADMITTED


def test_claims_of_other_namespaces_are_named_in_the_audit_log_alone(
    cluster: GuardedCluster, both: list[Guard]
) -> None:
    cluster.put(claim("theirs", "n1/gpu-0", namespace=OTHER))
    cluster.copy()
    answer = cluster.write(both[0], "b", giving("n1/gpu-0"))
    assert answer.verdict is Verdict.REFUSED
    assert "theirs" not in answer.refusal
    assert OTHER not in answer.refusal
    assert f"{OTHER}/theirs" in answer.notes["overlap"]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1", "v1alpha3"])
def test_every_version_of_the_api_is_judged(cluster: GuardedCluster, both: list[Guard], version: str) -> None:
    cluster.put(claim("a", "n1/gpu-0"))
    cluster.copy()
    asked = cluster.allocating("b", giving("n1/gpu-0"), version=version)
    for document in (asked["request"]["object"], asked["request"]["oldObject"]):
        document |= {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceClaim"}
        if version in ("v1beta1", "v1alpha3"):
            (request,) = document["spec"]["devices"]["requests"]
            request |= request.pop("exactly")
    assert answered(both[0], asked).verdict is Verdict.REFUSED


def test_of_two_writers_the_second_is_refused_though_the_copy_shows_nothing(
    cluster: GuardedCluster, both: list[Guard]
) -> None:
    """Whether the first write has arrived or is on its way, whichever replica is asked."""
    asked = cluster.allocating("a", giving("n1/gpu-0"))
    assert answered(both[0], asked).verdict is Verdict.ADMITTED
    for guard in both:
        assert cluster.write(guard, "b", giving("n1/gpu-0")).verdict is Verdict.REFUSED
    assert cluster.stored(asked)
    for guard in both:
        assert cluster.write(guard, "b", giving("n1/gpu-0")).verdict is Verdict.REFUSED
    cluster.copy()
    for guard in both:
        assert cluster.write(guard, "b", giving("n1/gpu-0")).verdict is Verdict.REFUSED
        guard.settle()
    assert promised() == []


@pytest.mark.parametrize("replicas", [1, 2])
def test_of_writers_at_the_same_time_exactly_one_is_admitted(cluster: GuardedCluster, replicas: int) -> None:
    writers = [f"w{number}" for number in range(6)]
    for name in writers:
        cluster.put(claim(name))
    cluster.copy()
    with guards(cluster, (True,) * replicas) as made, ThreadPoolExecutor(len(writers)) as pool:
        for device in ("gpu-0", "gpu-1", "gpu-2"):
            asked = [cluster.allocating(name, giving(f"n1/{device}")) for name in writers]
            answers = list(pool.map(lambda one: answered(made[one[0] % replicas], one[1]), enumerate(asked)))
            assert Counter(one.verdict for one in answers) == {Verdict.ADMITTED: 1, Verdict.REFUSED: 5}


def test_a_claim_that_is_written_again_passes(cluster: GuardedCluster, both: list[Guard]) -> None:
    asked = cluster.allocating("a", giving("n1/gpu-0"))
    for guard in (*both, *both):
        assert answered(guard, asked).verdict is Verdict.ADMITTED
    assert promised() == ["a:gpu-0"]


# What is let through since the cluster says otherwise -----------------------------------------------------------------


def test_a_late_copy_refuses_nothing_that_is_free_by_now(cluster: GuardedCluster, both: list[Guard]) -> None:
    cluster.put(claim("a", "n1/gpu-0"))
    cluster.copy()
    cluster.write(both[0], "a", None)
    assert cluster.write(both[0], "b", giving("n1/gpu-0")).verdict is Verdict.ADMITTED
    assert cluster.asked == ["a"]


def test_a_claim_that_is_gone_holds_nothing_nor_does_another_of_its_name(
    cluster: GuardedCluster, both: list[Guard]
) -> None:
    cluster.put(claim("a", "n1/gpu-0"))
    cluster.put(claim("c", "n1/gpu-1"))
    cluster.copy()
    del cluster.claims[NAMESPACE, "a"]
    again = claim("c", "n1/gpu-1")
    again["metadata"]["uid"] = "another"
    cluster.put(again)
    assert cluster.write(both[0], "b", giving("n1/gpu-0")).verdict is Verdict.ADMITTED


def test_a_claim_that_holds_another_device_by_now_does_not_hold_this(
    cluster: GuardedCluster, both: list[Guard]
) -> None:
    cluster.put(claim("a", "n1/gpu-0"))
    cluster.copy()
    cluster.put(claim("a", "n1/gpu-3"))
    assert cluster.write(both[0], "b", giving("n1/gpu-0")).verdict is Verdict.ADMITTED


def test_what_happens_while_the_cluster_is_asked_counts(cluster: GuardedCluster, both: list[Guard]) -> None:
    cluster.put(claim("a", "n1/gpu-0"))
    cluster.copy()
    cluster.write(both[0], "a", None)
    again = iter([giving("n1/gpu-0")])

    def ask(version: str, namespace: str, name: str) -> LiveClaim | None:
        found = cluster.ask(version, namespace, name)
        if (allocation := next(again, None)) is not None:
            assert cluster.write(both[1], "a", allocation).verdict is Verdict.ADMITTED
            cluster.copy()
            both[1].settle()
        return found

    both[0]._ask = ask
    assert cluster.write(both[0], "b", giving("n1/gpu-0")).verdict is Verdict.REFUSED


def test_a_promise_ends_when_the_claim_has_changed_without_it(cluster: GuardedCluster, both: list[Guard]) -> None:
    assert answered(both[0], cluster.allocating("a", giving("n1/gpu-0"))).verdict is Verdict.ADMITTED
    cluster.put(claim("a"))  # the write that was admitted met a conflict
    assert cluster.write(both[1], "b", giving("n1/gpu-0")).verdict is Verdict.ADMITTED
    assert promised() == ["b:gpu-0"]


def test_a_promise_ends_after_a_while_without_a_trace_of_it(cluster: GuardedCluster, both: list[Guard]) -> None:
    assert answered(both[0], cluster.allocating("a", giving("n1/gpu-0"))).verdict is Verdict.ADMITTED
    cluster.now += PROMISED - 1
    assert cluster.write(both[1], "b", giving("n1/gpu-0")).verdict is Verdict.REFUSED
    both[0].settle()
    assert promised() == ["a:gpu-0"]
    cluster.now += 2
    assert cluster.write(both[1], "b", giving("n1/gpu-0")).verdict is Verdict.ADMITTED


def test_a_promise_does_not_end_while_its_write_has_arrived_and_the_copy_is_late(
    cluster: GuardedCluster, both: list[Guard]
) -> None:
    assert cluster.write(both[0], "a", giving("n1/gpu-0")).verdict is Verdict.ADMITTED
    cluster.now += 10 * PROMISED
    both[1].settle()
    assert promised() == ["a:gpu-0"]
    cluster.failing = True
    both[1].settle()
    assert promised() == ["a:gpu-0"], "nobody says that it has not arrived"
    cluster.failing = False
    cluster.put(claim("a"))
    both[1].settle()
    assert promised() == []


def test_a_later_write_of_the_claim_ends_what_was_promised_to_earlier_versions(
    cluster: GuardedCluster, both: list[Guard]
) -> None:
    assert answered(both[0], cluster.allocating("a", giving("n1/gpu-0"))).verdict is Verdict.ADMITTED
    assert answered(both[1], cluster.allocating("a", giving("n1/gpu-1"))).verdict is Verdict.ADMITTED
    assert promised() == ["a:gpu-0", "a:gpu-1"], "either may arrive"
    assert cluster.write(both[0], "b", giving("n1/gpu-0")).verdict is Verdict.REFUSED
    cluster.put(claim("a"))
    assert answered(both[0], cluster.allocating("a", giving("n1/gpu-2"))).verdict is Verdict.ADMITTED
    assert promised() == ["a:gpu-2"]


def test_a_dry_run_is_judged_and_promises_nothing(cluster: GuardedCluster, both: list[Guard]) -> None:
    assert cluster.write(both[0], "a", giving("n1/gpu-0"), dry_run=True).verdict is Verdict.ADMITTED
    assert promised() == []
    assert cluster.write(both[0], "b", giving("n1/gpu-0")).verdict is Verdict.ADMITTED
    assert cluster.write(both[0], "a", giving("n1/gpu-0"), dry_run=True).verdict is Verdict.REFUSED
    assert not GuardFinding.objects.exists()


# Where it cannot tell -------------------------------------------------------------------------------------------------


def test_nothing_is_concluded_from_kinds_that_may_not_be_read(cluster: GuardedCluster, both: list[Guard]) -> None:
    cluster.put(claim("a", "n1/gpu-0"))
    cluster.copy()
    cluster.known = Knowledge("v1", None)
    answer = cluster.write(both[0], "b", giving("n1/gpu-0"))
    assert answer.verdict is Verdict.UNJUDGED
    assert answer.warnings
    assert promised() == []


def test_a_late_copy_admits_with_a_warning_and_refuses_what_the_cluster_confirms(
    cluster: GuardedCluster, both: list[Guard]
) -> None:
    cluster.known = Knowledge("v1", "lab cannot be reached since 10:00:00 UTC")
    answer = cluster.write(both[0], "a", giving("n1/gpu-0"))
    assert answer.verdict is Verdict.UNJUDGED
    assert "10:00:00" in answer.warnings[0]
    assert promised() == ["a:gpu-0"]
    assert cluster.write(both[1], "b", giving("n1/gpu-0")).verdict is Verdict.REFUSED


def test_what_the_cluster_does_not_confirm_is_let_through_and_promised(
    cluster: GuardedCluster, both: list[Guard]
) -> None:
    cluster.put(claim("a", "n1/gpu-0"))
    cluster.copy()
    cluster.failing = True
    answer = cluster.write(both[0], "b", giving("n1/gpu-0"))
    assert answer.verdict is Verdict.UNJUDGED
    assert "did not answer" in answer.warnings[0]
    assert promised() == ["b:gpu-0"]


def test_a_claim_that_cannot_be_read_is_let_through(cluster: GuardedCluster, both: list[Guard]) -> None:
    asked = cluster.allocating("a", giving("n1/gpu-0"))
    asked["request"]["object"]["spec"] = "no object"
    answer = answered(both[0], asked)
    assert answer.verdict is Verdict.UNJUDGED
    assert answer.warnings


def test_a_fault_is_no_answer_unless_it_only_watches(cluster: GuardedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    with guards(cluster, (True, False)) as (enforcing, watching):
        asked = cluster.allocating("a", giving("n1/gpu-0"))
        monkeypatch.setattr("manciple.mirror.guard.promises.locked", fails)
        with pytest.raises(RuntimeError, match="a fault"):
            answered(enforcing, asked)
        assert answered(watching, asked).verdict is Verdict.UNJUDGED


def test_what_the_database_refuses_to_keep_is_not_admitted(
    cluster: GuardedCluster, both: list[Guard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL it is refused when COMMIT has been sent already."""
    store = promises.store

    def twice(write: Any, beside: Any, *, at: float) -> None:
        store(write, beside, at=at)
        store(write, (), at=at)

    asked = cluster.allocating("a", giving("n1/gpu-0"))
    monkeypatch.setattr(promises, "store", twice)
    with pytest.raises(IntegrityError):
        answered(both[0], asked)
    monkeypatch.undo()
    assert promised() == []
    assert answered(both[0], asked).verdict is Verdict.ADMITTED
    assert promised() == ["a:gpu-0"]


# A guard that watches -------------------------------------------------------------------------------------------------


def test_while_it_watches_it_lets_through_and_reports(cluster: GuardedCluster, watching: Guard) -> None:
    assert cluster.write(watching, "a", giving("n1/gpu-0")).verdict is Verdict.ADMITTED
    answer = cluster.write(watching, "b", giving("n1/gpu-0"))
    assert (answer.verdict, answer.refusal) == (Verdict.WOULD_REFUSE, "")
    assert "n1/gpu-0" in answer.warnings[0]
    assert promised() == ["a:gpu-0", "b:gpu-0"]
    (finding,) = GuardFinding.objects.all()
    assert (finding.claim, finding.device, finding.node, finding.refused) == ("b", "gpu-0", "n1", False)
    assert f"{NAMESPACE}/a" in finding.message
    assert finding.author == "system:kube-scheduler"
    assert cluster.write(watching, "c", giving("n1/gpu-1")).verdict is Verdict.ADMITTED


def test_its_findings_are_an_incident_of_the_device_while_it_goes_on(
    cluster: GuardedCluster, both: list[Guard]
) -> None:
    cluster.put(claim("a", "n1/gpu-0"))
    cluster.copy()
    cluster.now = datetime.now(UTC).timestamp()
    for _ in range(2):
        assert cluster.write(both[0], "b", giving("n1/gpu-0")).verdict is Verdict.REFUSED
    now = datetime.fromtimestamp(cluster.now, UTC)
    findings.keep(now)
    (incident,) = Incident.objects.all()
    assert (incident.key, incident.pool, incident.ended_at) == (CONTESTED, "n1", None)
    assert "refused" in incident.impairments.get().message
    assert NAMESPACE not in incident.impairments.get().message
    findings.keep(now + timedelta(minutes=11))
    assert Incident.objects.get().ended_at is not None
    findings.keep(now + timedelta(days=91))
    assert not GuardFinding.objects.exists()


# What is asked and answered -------------------------------------------------------------------------------------------


def test_an_answer_is_an_admission_review_as_kubernetes_has_it() -> None:
    refused = json.loads(reviews.answer("u", refusal="why", warnings=["w"], notes={"overlap": "n"}))
    assert refused == {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "response": {
            "uid": "u",
            "allowed": False,
            "status": {"status": "Failure", "message": "why", "reason": "Forbidden", "code": 403},
            "warnings": ["w"],
            "auditAnnotations": {"overlap": "n"},
        },
    }
    assert json.loads(reviews.answer("u"))["response"] == {"uid": "u", "allowed": True}


_GOOD = json.dumps(review(claim("a"), claim("a", "n1/gpu-0")))
GARBAGE = {
    "nothing": b"",
    "no JSON": b"\x16\x03\x01",
    "a list": b"[]",
    "no kind": b"{}",
    "another version": _GOOD.replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1).encode(),
    "another kind": _GOOD.replace('"AdmissionReview"', '"TokenReview"', 1).encode(),
    "no request": b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}',
    "a request of null": b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": null}',
    "no uid": _GOOD.replace('"705ab4f5-6393-11e8-b7cc-42010a800002"', '""').encode(),
    "a uid that is no text": _GOOD.replace('"705ab4f5-6393-11e8-b7cc-42010a800002"', "7").encode(),
    "an object that is none": json.dumps(review(claim("a"), claim("a"), object=[])).encode(),
    "no UTF-8": _GOOD.replace("kube", "\udcff").encode("utf-8", "surrogateescape"),
    "too deep": b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request":' + b"[" * 100_000,
}


@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE.keys())
def test_what_is_no_review_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(NoReview, match=r"AdmissionReview"):
        reviews.read(body)


# Random histories -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", sample(range(20), 4))
def test_whatever_happens_no_device_is_given_twice_and_nothing_is_refused_that_is_free(seed: int) -> None:
    """Two writers, two replicas; writes that arrive late or never, claims that are freed, a copy that lags behind."""
    chance = random.Random(seed)
    cluster = GuardedCluster()
    cluster.publish(slice_of("n1", 3), slice_of("n2", 3))
    names = [f"c{number}" for number in range(8)]
    for name in names:
        cluster.put(claim(name))
    cluster.copy()
    on_their_way: list[dict[str, Any]] = []
    with guards(cluster) as both:
        for _ in range(60):
            name, guard, step = chance.choice(names), chance.choice(both), chance.random()
            if step < 0.55:
                node = chance.choice(("n1", "n2"))
                devices = chance.sample(range(3), chance.randint(1, 2))
                asked = cluster.allocating(name, giving(*(f"{node}/gpu-{one}" for one in devices)))
                if asked["request"]["oldObject"]["status"].get("allocation"):
                    continue  # it cannot be changed while there is one
                taken = _given(cluster, on_their_way, but=name)
                is_free = taken.isdisjoint((node, f"gpu-{one}") for one in devices)
                answer = answered(guard, asked)
                assert (answer.verdict is Verdict.ADMITTED) == is_free, answer
                if is_free:
                    on_their_way.append(asked)
            elif step < 0.75 and on_their_way:
                cluster.stored(on_their_way.pop(chance.randrange(len(on_their_way))))
            elif step < 0.85:
                cluster.put(claim(name))  # deallocated, or just touched: writes on their way meet a conflict
            elif step < 0.95:
                cluster.copy(name)
            else:
                guard.settle()
            given = [device for one in cluster.claims.values() for device in _devices(one)]
            assert len(given) == len(set(given))


def _given(cluster: GuardedCluster, on_their_way: list[dict[str, Any]], *, but: str) -> set[tuple[str, str]]:
    """What claims hold, and what may still arrive."""
    arriving = [
        one["request"]["object"]
        for one in on_their_way
        if cluster.claims[NAMESPACE, one["request"]["name"]]["metadata"]["resourceVersion"]
        == one["request"]["oldObject"]["metadata"]["resourceVersion"]
    ]
    every = [*cluster.claims.values(), *arriving]
    return {device for one in every if one["metadata"]["name"] != but for device in _devices(one)}


def _devices(document: dict[str, Any]) -> list[tuple[str, str]]:
    allocation = document["status"].get("allocation") or {"devices": {"results": []}}
    return [(one["pool"], one["device"]) for one in allocation["devices"]["results"]]
