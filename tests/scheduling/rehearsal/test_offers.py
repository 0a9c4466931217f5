"""What is offered to a pod that waits starts it; what would not is not offered."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from claims.kinds.pods import Pod
from insight.offers import Offer, offers
from scheduling.allocator.placement import _FullSearch
from scheduling.placement.demands import Demand, DemandMix
from scheduling.queue.verdicts import Placement, Wait
from scheduling.rehearsal.explanations import apart, explain_pod
from scheduling.rehearsal.explanations import cluster as warm
from scheduling.rehearsal.rehearsal import Rehearsal
from scheduling.rehearsal.workload import Changes, of_claim, stored_pod, written_anew
from tests.builders import (
    DRIVER,
    make_claim,
    make_class,
    make_device_taint,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_slice,
    make_template,
)
from tests.scheduling.cluster import Cluster

FIRST = f'device.attributes["{DRIVER}"].index == 0'


def _offers(cluster: Cluster, **request: object) -> tuple[Offer, ...]:
    cluster.create(make_template("wants", requests=[make_request(**request)]))  # type: ignore[arg-type]
    cluster.create(make_pod("web", templates={"gpu": "wants"}))
    cluster.settle()
    explained = explain_pod("default", "web")
    return offers(stored_pod("default", "web"), explained.cause)


def test_as_many_as_one_node_has_free(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=3)
    cluster.create(make_claim("held"))
    cluster.create(make_pod("holds", claims={"gpu": "held"}))
    cluster.settle()
    (offer,) = _offers(cluster, count=4)
    assert dict(offer.changes.counts) == {"gpu/gpu": 3}
    assert offer.fits == 1
    taken = cluster.pod("holds").spec.node_name
    assert offer.node == ({"node-1", "node-2"} - {taken}).pop()


def test_without_the_selector_that_stands_in_the_way(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=3)
    found = _offers(cluster, count=2, expressions=[f'device.driver == "{DRIVER}"', FIRST])
    changes = [one.changes for one in found]
    assert Changes(counts={"gpu/gpu": 1}) in changes
    assert Changes(without=frozenset({("gpu/gpu", 1)})) in changes
    assert Changes(without=frozenset({("gpu/gpu", 0)})) not in changes


def test_a_machine_that_is_busy_with_others_changes_nothing_about_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_next = Rehearsal.place_next

    def place_when_the_processor_is_free(rehearsal: Rehearsal, *, briefly: bool = False) -> Placement | Wait:
        time.sleep(0.1)
        return place_next(rehearsal, briefly=briefly)

    monkeypatch.setattr("insight.offers.BUDGET", 0.1)
    monkeypatch.setattr(Rehearsal, "place_next", place_when_the_processor_is_free)
    cluster.with_gpus("node-1", each=3)
    assert len(_offers(cluster, count=2, expressions=[f'device.driver == "{DRIVER}"', FIRST])) == 2


def test_another_class_of_the_same_kind_and_how_many_it_fits(cluster: Cluster) -> None:
    cluster.create(make_class("small", expressions=[f'device.attributes["{DRIVER}"].index < 1']))
    cluster.create(make_class("large", expressions=[f'device.attributes["{DRIVER}"].index >= 1']))
    cluster.create(make_class("network", expressions=['device.driver == "nic.example.com"']))
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(node="node-1", devices=make_devices(6)))
    cluster.create(make_claim("held", requests=[make_request(device_class="small")]))
    cluster.create(make_pod("holds", claims={"gpu": "held"}))
    cluster.settle()
    (offer,) = _offers(cluster, device_class="small")
    assert (dict(offer.changes.classes), offer.fits, offer.node) == ({"gpu/gpu": "large"}, 5, "node-1")


def test_of_a_class_that_does_not_exist_one_with_a_similar_name(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    (offer,) = _offers(cluster, device_class="gpu.exmaple.com")
    assert dict(offer.changes.classes) == {"gpu/gpu": "gpu.example.com"}


def test_taints_are_tolerated_only_where_they_keep_it_away(cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(devices=make_devices(2, taints=[make_device_taint("example.com/maintenance")])))
    (offer,) = _offers(cluster)
    assert offer.changes == Changes(tolerate_devices=True)
    assert offer.fits == 2


@pytest.mark.parametrize("wanted", [{"count": 9}, {"expressions": ["false"]}], ids=["too many", "none"])
def test_what_is_offered_then_happens_and_nothing_of_the_rehearsal_stays(
    cluster: Cluster, wanted: dict[str, object]
) -> None:
    cluster.with_gpus("node-1", "node-2", each=4)
    first, *_ = _offers(cluster, **wanted)
    with warm() as state:
        assert [pod.metadata.name for pod in state.pending.values()] == ["web"]
    workload = stored_pod("default", "web")
    spec = written_anew(workload.claims["gpu"], "gpu", first.changes)
    assert "true" not in str(spec.devices.requests)
    for number in range(first.fits + 1):
        name = f"like-{number}"
        cluster.create(make_claim(name, requests=spec.devices.requests))
        cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()
    bound = [one for one in cluster.all(Pod) if one.spec.node_name]
    assert len(bound) == first.fits
    assert first.node in {one.spec.node_name for one in bound}


def test_whether_it_fits_is_asked_without_why_each_node_refuses(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.with_gpus("node-1", "node-2", each=3)

    def refused(*_: object) -> None:
        raise AssertionError("the reasons are computed")

    monkeypatch.setattr(_FullSearch, "best", refused)
    wants = of_claim(make_claim(requests=[make_request(count=4)]))
    with apart() as copy:
        rehearsal = Rehearsal(copy, wants)
        assert isinstance(rehearsal.place_next(briefly=True), Wait)
        with pytest.raises(AssertionError, match="reasons are computed"):
            rehearsal.place_next()
    with apart() as copy:
        fits = Rehearsal(copy, of_claim(make_claim(requests=[make_request(count=3)])))
        assert [isinstance(fits.place_next(briefly=True), Placement) for _ in range(3)] == [True, True, False]


def test_what_pods_usually_ask_for_is_learned_once_for_all_copies(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.with_gpus("node-1", "node-2", each=3)
    cluster.create(make_claim("held"))
    cluster.create(make_pod("holds", claims={"gpu": "held"}))
    cluster.settle()
    learned, of = list[DemandMix](), DemandMix.of

    def learning(demands: Iterable[Demand]) -> DemandMix:
        learned.append(mix := of(demands))
        return mix

    monkeypatch.setattr(DemandMix, "of", learning)
    for _ in range(3):
        with apart() as copy:
            assert isinstance(Rehearsal(copy, of_claim(make_claim())).place_next(), Placement)
    assert len(learned) == 1
