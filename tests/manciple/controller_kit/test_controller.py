"""What a controller of the kit does with claims and contexts, in the order of drivers on Kubernetes 1.30."""

from __future__ import annotations

import threading

import httpx
import pytest

from claims.classic.rules import NODES_MAX
from tests.manciple.controller_kit.conftest import FINALIZER, NAME, SECONDS, Scene
from tests.nodeagent.fake_api import Refused

GIVEN = ("allocation", "driverName")


def test_immediate_claim_is_protected_and_then_allocated_without_a_pod(scene: Scene) -> None:
    scene.claim("c", mode="Immediate")
    scene.start()
    scene.allocates("c")
    assert scene.states("c") == [
        ("ADDED", (), ()),
        ("MODIFIED", (FINALIZER,), ()),
        ("MODIFIED", (FINALIZER,), GIVEN),
    ]
    status = scene.found("c")["status"]
    assert status["driverName"] == NAME
    assert status["allocation"] == {
        "resourceHandles": [{"driverName": NAME, "data": "c of lamps"}],
        "shareable": True,
    }
    assert ("allocate", (("c",), "")) in scene.driver.calls


def test_delayed_claim_is_allocated_for_the_selected_node_and_reserved_for_its_pod_in_one_write(scene: Scene) -> None:
    scene.claim("c")
    scene.pod("p", "c")
    scene.start()
    scene.context("p", "n1", "n2", selected="n2")
    scene.allocates("c")
    assert scene.states("c")[1:] == [
        ("MODIFIED", (FINALIZER,), ()),
        ("MODIFIED", (FINALIZER,), (*GIVEN, "reservedFor")),
    ]
    status = scene.found("c")["status"]
    assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "pod-p"}]
    (term,) = status["allocation"]["availableOnNodes"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]
    scene.tells("p", {"c": []})
    assert not scene.complaints()


def test_nothing_is_allocated_before_a_node_is_selected_and_all_claims_of_the_driver_are_told_of(scene: Scene) -> None:
    """A driver must add entries for all its pending claims, even if no node is unsuitable."""
    for name in "ab":
        scene.claim(name)
    scene.pod("p", "a", "b")
    scene.driver.unsuitable = {"n2"}
    scene.start()
    scene.context("p", "n1", "n2")
    scene.tells("p", {"a": ["n2"], "b": ["n2"]})
    assert not scene.driver.count("allocate")
    scene.context("p", "n1", selected="n1")
    scene.allocates("a", "b")
    assert ("allocate", (("a", "b"), "n1")) in scene.driver.calls  # together


def test_selected_node_that_does_not_suit_is_not_allocated_for(scene: Scene) -> None:
    scene.claim("c")
    scene.pod("p", "c")
    scene.driver.unsuitable = {"n1"}
    scene.start()
    scene.context("p", "n1", "n2", selected="n1")
    scene.tells("p", {"c": ["n1"]})
    assert not scene.driver.count("allocate")
    assert not scene.found("c")["metadata"].get("finalizers")


def test_prior_unsuitable_nodes_are_checked_again_though_the_scheduler_lists_them_no_more(scene: Scene) -> None:
    scene.claim("c")
    scene.pod("p", "c")
    scene.driver.unsuitable = {"n1", "n2"}
    scene.start()
    scene.context("p", "n1", "n2")
    scene.tells("p", {"c": ["n1", "n2"]})
    scene.driver.unsuitable = {"n2"}
    scene.context("p", "n3")
    scene.tells("p", {"c": ["n2"]})
    assert scene.driver.calls[-1] == ("unsuitable_nodes", ("n3", "n1", "n2"))


def test_the_list_of_nodes_is_cut_and_keeps_the_selected_one(scene: Scene) -> None:
    nodes = [f"n{number}" for number in range(NODES_MAX)]
    scene.claim("c")
    scene.pod("p", "c")
    scene.driver.unsuitable = {*nodes, "selected"}
    scene.start()
    scene.context("p", *nodes, selected="selected")
    scene.tells("p", {"c": ["selected", *nodes[:-1]]})


def test_information_is_refreshed_periodically(scene: Scene) -> None:
    scene.claim("c")
    scene.pod("p", "c")
    scene.driver.unsuitable = {"n1"}
    scene.start(recheck_seconds=0.05)
    scene.context("p", "n1")
    scene.tells("p", {"c": ["n1"]})
    scene.driver.unsuitable = set()
    scene.tells("p", {"c": []})


def test_information_is_refreshed_after_another_claim_was_given_up(scene: Scene) -> None:
    scene.claim("c")
    scene.pod("p", "c")
    scene.claim("other", mode="Immediate")
    scene.start()
    scene.allocates("other")
    scene.driver.unsuitable = {"n1"}
    scene.context("p", "n1")
    scene.tells("p", {"c": ["n1"]})
    scene.driver.unsuitable = set()
    scene.api.delete("resourceclaims", "other")
    scene.tells("p", {"c": []})


def test_pod_bound_by_hand_is_allocated_for_and_nothing_is_asked_of_nodes(scene: Scene) -> None:
    scene.claim("c")
    scene.pod("p", "c")
    scene.start()
    scene.context("p", selected="n1")
    scene.allocates("c")
    assert not scene.driver.count("unsuitable_nodes")


ORPHANS = {
    "its pod is gone": {},
    "its pod is being deleted": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    "another pod has that name": {"uid": "another"},
}


@pytest.mark.parametrize("case", ORPHANS)
def test_context_whose_pod_is_gone_must_be_ignored(scene: Scene, case: str) -> None:
    scene.claim("c")
    if ORPHANS[case]:
        scene.pod("p", "c", **ORPHANS[case])
    scene.claim("mark", mode="Immediate")
    scene.start()
    scene.context("p", "n1", selected="n1")
    scene.context("p", "n1", "n2", selected="n1")
    scene.claim("mark2", mode="Immediate")
    scene.allocates("mark", "mark2")  # the queue is in order, so the context has been looked at
    assert scene.driver.count("unsuitable_nodes") == 0
    assert not scene.found("c")["metadata"].get("finalizers")


def allocated(scene: Scene, name: str = "c") -> None:
    """A claim that waited for a pod, which has it now and whose context is gone, as after its binding."""
    scene.claim(name)
    scene.pod("p", name)
    scene.start()
    scene.context("p", "n1", selected="n1")
    scene.allocates(name)
    scene.tells("p", {name: []})
    scene.api.delete("podschedulingcontexts", "p")


def test_deallocation_that_is_requested_clears_allocation_and_request_and_then_the_finalizer(scene: Scene) -> None:
    allocated(scene)
    scene.write_status("c", reservedFor=[], deallocationRequested=True)
    scene.eventually(lambda: not scene.found("c")["metadata"].get("finalizers"))
    assert scene.states("c")[-3:] == [
        ("MODIFIED", (FINALIZER,), ("allocation", "deallocationRequested", "driverName", "reservedFor")),
        ("MODIFIED", (FINALIZER,), ()),
        ("MODIFIED", (), ()),
    ]
    assert scene.driver.count("deallocate") == 1


def test_claim_that_was_given_up_is_not_given_again_before_the_scheduler_says_where(scene: Scene) -> None:
    scene.claim("c")
    scene.pod("p", "c")
    scene.start()
    scene.context("p", "n1", selected="n1")
    scene.allocates("c")
    scene.tells("p", {"c": []})
    scene.write_status("c", reservedFor=[], deallocationRequested=True)
    scene.claim("mark", mode="Immediate")
    scene.allocates("mark")
    scene.eventually(lambda: not scene.found("c")["metadata"].get("finalizers"))
    scene.claim("mark2", mode="Immediate")
    scene.allocates("mark2")
    assert scene.driver.calls.count(("allocate", (("c",), "n1"))) == 1
    scene.context("p", "n2", selected="n2")
    scene.allocates("c")
    assert scene.driver.calls[-1] == ("allocate", (("c",), "n2"))


def test_deleted_claim_is_deallocated_and_goes_once_nobody_uses_it(scene: Scene) -> None:
    allocated(scene)
    scene.api.delete("resourceclaims", "c")
    scene.claim("mark", mode="Immediate")
    scene.allocates("mark")
    assert not scene.driver.count("deallocate")  # in use: nothing may be done for it now

    scene.write_status("c", reservedFor=[])
    scene.eventually(lambda: scene.api.find("resourceclaims", "c") is None)
    assert scene.driver.count("deallocate") == 1
    assert scene.states("c")[-2:] == [("MODIFIED", (FINALIZER,), ()), ("DELETED", (), ())]


def test_allocation_that_was_interrupted_is_stopped_when_the_claim_is_deleted(scene: Scene) -> None:
    scene.claim("c", mode="Immediate")
    scene.driver.refuses["c"] = "no lamp is free"
    scene.start()
    scene.complains("ResourceClaim", "c", "no lamp is free")
    scene.api.delete("resourceclaims", "c")
    scene.eventually(lambda: scene.api.find("resourceclaims", "c") is None)
    assert scene.driver.count("deallocate") == 1


NOT_OURS = {
    "another driver's class": {"class_": "strange"},
    "the scheduler allocates": {"class_": "structured"},
    "no such class": {"class_": "missing"},
}


@pytest.mark.parametrize("case", NOT_OURS)
def test_claims_of_others_are_left_alone_until_their_class_names_the_driver(scene: Scene, case: str) -> None:
    scene.class_("strange", "other.example.com")
    scene.class_("structured", structuredParameters=True)
    class_ = NOT_OURS[case]["class_"]
    scene.claim("c", mode="Immediate", class_=class_)
    scene.claim("d", class_=class_)
    scene.pod("p", "d")
    scene.claim("mark", mode="Immediate")
    scene.start()
    scene.context("p", "n1", selected="n1")
    scene.allocates("mark")
    assert not scene.found("c")["metadata"].get("finalizers")
    scene.class_(class_)
    scene.allocates("c", "d")


def test_wrong_parameters_are_told_to_who_can_mend_them_and_read_again(scene: Scene) -> None:
    scene.claim("c")
    scene.pod("p", "c")
    scene.driver.fails["get_class_parameters"] = ValueError("no such ConfigMap")
    scene.start()
    scene.context("p", "n1", selected="n1")
    for kind, name in (("ResourceClass", "lamps"), ("ResourceClaim", "c"), ("Pod", "p")):
        scene.complains(kind, name, "class parameters none: no such ConfigMap")
    scene.allocates("c")


def test_claim_that_the_driver_refuses_is_tried_again_and_the_others_are_kept(scene: Scene) -> None:
    for name in ("a", "b", "unanswered"):
        scene.claim(name)
    scene.pod("p", "a", "b", "unanswered")
    scene.driver.refuses["b"] = "no lamp is free"
    scene.start()
    scene.context("p", "n1", selected="n1")
    scene.complains("ResourceClaim", "b", "allocate: no lamp is free")
    scene.complains("ResourceClaim", "unanswered", "did not answer")
    scene.allocates("a")
    del scene.driver.refuses["b"]
    scene.allocates("b")


def test_allocated_claim_must_not_be_reallocated_when_another_node_is_selected(scene: Scene) -> None:
    """That is for the scheduler to ask for, by deallocationRequested."""
    scene.claim("c")
    scene.pod("p", "c")
    scene.start()
    scene.context("p", "n1", "n2", selected="n1")
    scene.allocates("c")
    before = scene.found("c")
    scene.context("p", "n1", "n2", selected="n2")
    scene.claim("mark", mode="Immediate")
    scene.allocates("mark")
    assert scene.found("c") == before
    assert scene.driver.calls.count(("allocate", (("c",), "n2"))) == 0


def test_failed_allocation_is_followed_by_a_new_answer_about_nodes(scene: Scene) -> None:
    scene.claim("c")
    scene.pod("p", "c")
    scene.driver.refuses["c"] = "it was taken meanwhile"

    def takes(method: str) -> None:
        if method == "allocate":
            scene.driver.unsuitable = {"n1"}

    scene.driver.before = takes
    scene.start()
    scene.context("p", "n1", selected="n1")
    scene.tells("p", {"c": ["n1"]})


@pytest.mark.parametrize("method", ["allocate", "deallocate", "unsuitable_nodes", "get_claim_parameters"])
def test_driver_that_raises_is_asked_again(scene: Scene, method: str) -> None:
    scene.claim("c")
    scene.pod("p", "c")
    scene.driver.fails[method] = RuntimeError("the fuse blew")
    scene.start()
    scene.context("p", "n1", selected="n1")
    scene.allocates("c")
    scene.write_status("c", reservedFor=[])
    scene.api.delete("resourceclaims", "c")
    scene.eventually(lambda: scene.api.find("resourceclaims", "c") is None)
    assert any("the fuse blew" in message for _, _, message in scene.complaints())
    assert scene.driver.held == set()


def test_write_that_somebody_elses_came_before_is_done_again_without_a_word(scene: Scene) -> None:
    scene.claim("c", mode="Immediate")
    label = iter(range(3))

    def interfere(request: httpx.Request) -> None:
        if (
            request.method == "PUT"
            and "/resourceclaims/c" in request.url.path
            and (number := next(label, None)) is not None
        ):
            claim = scene.found("c")
            meta = {**claim["metadata"], "labels": {"seen": str(number)}}
            scene.api.put("resourceclaims", {**claim, "metadata": meta})

    scene.api.before = interfere
    scene.start()
    scene.allocates("c")
    assert not scene.complaints()


def test_restarts_of_the_api_server_are_survived(scene: Scene) -> None:
    scene.claim("a", mode="Immediate")
    scene.start()
    scene.allocates("a")

    def away(request: httpx.Request) -> None:
        raise httpx.ConnectError("connection refused", request=request)

    scene.api.before = away
    scene.api.prune()
    scene.claim("b", mode="Immediate")
    scene.claim("deleted", mode="Immediate")
    scene.api.delete("resourceclaims", "deleted")
    scene.api.before = lambda _request: None
    scene.allocates("a", "b")


def test_error_of_the_api_server_is_told_and_tried_again(scene: Scene) -> None:
    scene.claim("c", mode="Immediate")
    refusals = iter([True])

    def forbid(request: httpx.Request) -> None:
        if request.method == "PUT" and next(refusals, False):
            raise Refused(403, "Forbidden", "you may not")

    scene.api.before = forbid
    scene.start()
    scene.complains("ResourceClaim", "c", "you may not")
    scene.allocates("c")


def test_driver_is_told_at_the_start_what_it_has_given_and_gives_it_to_nobody_else(scene: Scene) -> None:
    for name in "ab":
        scene.claim(name, mode="Immediate")
    scene.start()
    scene.allocates("a", "b")
    scene.stop()
    scene.driver = type(scene.driver)()
    strange = {"driverName": "other.example.com", "allocation": {}}
    scene.claim("strange", status=strange, metadata={"finalizers": ["other.example.com/deletion-protection"]})
    scene.start()
    assert scene.driver.restored == ["a", "b"]
    assert not scene.driver.count("allocate")


def test_claim_that_is_made_after_its_context_is_seen_at_once(scene: Scene) -> None:
    scene.pod("p", "c")
    scene.start()
    scene.context("p", "n1", selected="n1")
    scene.claim("mark", mode="Immediate")
    scene.allocates("mark")
    scene.claim("c")
    scene.allocates("c")


def test_claim_from_a_template_must_be_the_pods_own(scene: Scene) -> None:
    scene.claim("mine", owner="p")
    scene.claim("theirs", owner="q")
    entries = [{"name": name, "resourceClaimTemplateName": "t"} for name in ("mine", "theirs")]
    statuses = [{"name": name, "resourceClaimName": name} for name in ("mine", "theirs")]
    scene.pod("p")
    pod = scene.found("p", "pods")
    spec = {**pod["spec"], "resourceClaims": entries}
    scene.api.put("pods", {**pod, "spec": spec, "status": {"resourceClaimStatuses": statuses}})
    scene.start()
    scene.context("p", "n1", selected="n1")
    scene.allocates("mine")
    scene.tells("p", {"mine": []})
    assert not scene.is_allocated("theirs")


def test_claim_that_is_being_deleted_is_not_allocated_for_a_pod(scene: Scene) -> None:
    going = {"deletionTimestamp": "2026-11-24T00:00:00Z", "finalizers": ["example.com/keep"]}
    scene.claim("going", metadata=going)
    scene.claim("stays")
    scene.pod("p", "going", "stays")
    scene.start()
    scene.context("p", "n1", selected="n1")
    scene.allocates("stays")
    scene.tells("p", {"stays": []})
    assert [about for name, about in scene.driver.calls if name == "allocate"] == [(("stays",), "n1")]
    assert scene.found("going")["metadata"]["finalizers"] == ["example.com/keep"]


def test_reservation_can_be_left_to_the_scheduler(scene: Scene) -> None:
    """SetReservedFor(false) of the library."""
    scene.claim("c")
    scene.pod("p", "c")
    scene.start(reserve=False)
    scene.context("p", "n1", selected="n1")
    scene.allocates("c")
    assert "reservedFor" not in scene.found("c")["status"]


def test_clean_stop_waits_for_the_driver_and_what_it_gave_is_written(scene: Scene) -> None:
    scene.claim("c", mode="Immediate")
    asked, go_on = threading.Event(), threading.Event()

    def wait(method: str) -> None:
        if method == "allocate":
            asked.set()
            go_on.wait(SECONDS)

    scene.driver.before = wait
    scene.start()
    assert asked.wait(SECONDS)
    ((_, stop, thread),) = scene.controllers
    stop.set()
    thread.join(0.05)
    assert thread.is_alive()
    go_on.set()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert scene.is_allocated("c")


def test_metrics_have_the_names_of_the_kep_and_of_kubernetes(scene: Scene) -> None:
    """KEP-3063 "Monitoring Requirements"."""
    scene.claim("a", mode="Immediate")
    scene.claim("b", mode="Immediate")
    scene.driver.fails["allocate"] = RuntimeError("the fuse blew")
    controller = scene.start()
    scene.allocates("a", "b")

    def value(metric: str, **labels: str) -> float | None:
        return controller.metrics.registry.get_sample_value(metric, labels)

    driver, queue = {"driver_name": NAME}, {"name": f"{NAME}-queue"}
    assert value("resource_controller_create_total", **driver) == 3
    assert value("resource_controller_create_failures_total", **driver) == 1
    assert value("workqueue_retries_total", **queue) == 1
    assert value("workqueue_depth", **queue) is not None
    assert (value("workqueue_work_duration_seconds_count", **queue) or 0) >= 2
    calls = "manciple_controller_driver_call_duration_seconds_count"
    assert value(calls, **driver, method="Allocate", is_error="false") == 2
    assert value(calls, **driver, method="Allocate", is_error="true") == 1
    assert b"leader_election_master_status" in controller.metrics.text()
