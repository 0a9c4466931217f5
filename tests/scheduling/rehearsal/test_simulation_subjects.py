"""What can be rehearsed, from documents and from the store; and what follows when a pod goes."""

from __future__ import annotations

import pytest

from manciple.store.event_log import latest_revision
from manciple.wire.errors import NotFound
from scheduling.rehearsal.departures import what_if_gone
from scheduling.rehearsal.simulation import Question, simulate
from scheduling.rehearsal.workload import (
    NotRehearsable,
    of_documents,
    stored_claim,
    stored_pod,
    stored_template,
)
from tests.builders import make_claim, make_pod, make_request, make_template
from tests.scheduling.cluster import Cluster


def test_a_stored_pod_gets_its_generated_claims_anew_and_shares_those_it_names(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=6)
    cluster.create(make_claim("ours"))
    cluster.create(make_template("gpus", requests=[make_request(count=2)]))
    cluster.create(make_pod("web", claims={"shared": "ours"}, templates={"own": "gpus"}))
    cluster.settle()
    workload = stored_pod("default", "web")
    assert list(workload.shared) == ["shared"]
    assert list(workload.own) == ["own"]
    answer = simulate(Question(workload=workload, replicas=5))
    assert answer.fits == 1  # 1 + 2 of the 6 are held; the next has 2 of its own and shares; 1 is left over
    assert [device.entry for device in answer.placed[0].devices] == ["own", "own"]


def test_a_stored_claim_is_rehearsed_as_if_it_had_nothing(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=5)
    cluster.create(make_claim("two", requests=[make_request(count=2)]))
    cluster.create(make_pod("web", claims={"gpu": "two"}))
    cluster.settle()
    assert simulate(Question(workload=stored_claim("default", "two"))).fits == 1


def test_a_stored_template(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=5)
    cluster.create(make_template("gpus", requests=[make_request(count=2)]))
    assert simulate(Question(workload=stored_template("default", "gpus"))).fits == 2


def test_what_a_document_names_is_found_beside_it_or_in_the_cluster(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=6)
    cluster.create(make_claim("there"))
    pod = make_pod("web", claims={"a": "there", "b": "beside"}, templates={"c": "workload"})
    beside = [make_claim("beside", requests=[make_request(count=2)]), make_template("workload")]
    answer = simulate(Question(workload=of_documents([*beside, pod]), replicas=9))
    assert answer.fits == 3  # 1 and 2 once for all of them, then 1 for each
    assert [len(one.devices) for one in answer.placed] == [4, 1, 1]
    with pytest.raises(NotFound):
        of_documents([pod])


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        ([], "Write a Pod"),
        ([make_pod("a"), make_pod("b")], "one pod at a time"),
        ([make_claim("a"), make_claim("b")], "one claim at a time"),
    ],
)
def test_what_cannot_be_rehearsed_is_said(documents: list[object], says: str) -> None:
    with pytest.raises(NotRehearsable, match=says):
        of_documents(documents)  # type: ignore[arg-type]


@pytest.mark.parametrize("read", [stored_pod, stored_claim, stored_template])
def test_what_is_not_there_cannot_be_rehearsed(cluster: Cluster, read: object) -> None:
    with pytest.raises(NotFound):
        read("default", "nothing")  # type: ignore[operator]


def test_what_follows_when_a_pod_goes_is_what_then_happens(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    cluster.create(make_template("one"))
    cluster.create(make_pod("web", templates={"gpu": "one"}))
    cluster.create(make_claim("ours"))
    cluster.create(make_pod("mate", claims={"gpu": "ours"}))
    cluster.settle()
    for name in ("first", "second"):
        cluster.create(make_pod(name, templates={"gpu": "one"}))
    cluster.settle()
    revision = latest_revision()
    found = what_if_gone(cluster.pod("web"))
    assert latest_revision() == revision
    assert found.frees == 1
    assert [(fate.goes, fate.others) for fate in found.claims] == [(True, ())]
    (started,) = found.started
    assert (started.name, started.node, found.tried_all) == ("first", "node-1", True)
    cluster.delete(cluster.pod("web"))
    cluster.retry()
    assert cluster.pod("first").spec.node_name == "node-1"
    assert cluster.pod("second").spec.node_name == ""


def test_a_claim_that_others_use_keeps_its_devices(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_claim("ours"))
    cluster.create(make_pod("web", claims={"gpu": "ours"}))
    cluster.create(make_pod("mate", claims={"gpu": "ours"}))
    cluster.create(make_template("one"))
    cluster.create(make_pod("waits", templates={"gpu": "one"}))
    cluster.settle()
    found = what_if_gone(cluster.pod("web"))
    assert [(fate.goes, fate.others, fate.frees) for fate in found.claims] == [(False, ("mate",), 0)]
    assert (found.frees, found.started) == (0, ())


def test_a_pod_that_waits_frees_nothing(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_template("two", requests=[make_request(count=2)]))
    cluster.create(make_pod("waits", templates={"gpu": "two"}))
    cluster.settle()
    found = what_if_gone(cluster.pod("waits"))
    assert [(fate.goes, fate.frees) for fate in found.claims] == [(True, 0)]
    assert (found.frees, found.started, found.tried_all) == (0, (), True)
