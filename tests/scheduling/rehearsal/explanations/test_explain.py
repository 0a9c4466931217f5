"""GET .../pods/NAME/explain and .../resourceclaims/NAME/explain: why something waits, asked of the API."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from claims.causes import causes
from claims.causes.causes import AnyCause, NodeRefusal, NoNodeFits, TroubledPool
from claims.kinds.pods import PodSchedulingGate, PodSchedulingGroup
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds import gates
from manciple.store.event_log import latest_revision
from manciple.wire.limits import check_time
from scheduling.rehearsal import explanations
from scheduling.rehearsal.explanations import Loosening
from tests.builders import (
    CLASS,
    DRIVER,
    make_alternative,
    make_alternatives,
    make_claim,
    make_class,
    make_constraint,
    make_container,
    make_device,
    make_device_taint,
    make_devices,
    make_node,
    make_pod,
    make_quota,
    make_request,
    make_slice,
    make_template,
)
from tests.builders.groups import make_group
from tests.manciple.api.requests import CLAIMS, PODS, Api
from tests.scheduling.cluster import Cluster, with_spec

#: What a request for one device, of which node-1 has none to give, is refused with.
ONE: dict[str, Any] = {"claim": "default/web", "request": "gpu", "wanted": 1, "left": 0, "most": 0, "node": "node-1"}
HALF = TroubledPool(DRIVER, "node-1", "incomplete", "1 of 2 slices of generation 1")
MEMORY = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("200Gi")) >= 0'


@pytest.fixture
def cluster(api: Api) -> Cluster:
    """A cluster beside the API: what the API made when it started (namespaces) is no business of the invariants."""
    return Cluster()


def _wait(cluster: Cluster, name: str = "web", **request: Any) -> None:
    """A pod with one claim of one request, after the scheduler did what it could."""
    cluster.create(make_claim(name, requests=[make_request(**request)]))
    cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()


def _explained(api: Api, name: str = "web") -> dict[str, Any]:
    answer = api.get(f"{PODS}/{name}/explain")
    assert answer.code == 200, answer.text
    document: dict[str, Any] = answer.json
    assert (document["kind"], document["apiVersion"]) == ("Explanation", "manciple.dev/v1alpha1")
    assert document["involvedObject"]["name"] == name
    return document


def _cause(document: dict[str, Any]) -> AnyCause | None:
    return causes.decode(msgspec.json.encode(document["cause"]).decode())


def _funnel(document: dict[str, Any]) -> list[int]:
    return [stage["left"] for stage in document["requests"][0]["stages"]]


def test_a_selector_that_nothing_passes_is_quoted_with_what_there_is(api: Api, cluster: Cluster) -> None:
    cluster.create(make_class())
    for node, memory in (("node-1", "80Gi"), ("node-2", "192Gi")):
        cluster.create(make_node(node))
        cluster.create(make_slice(node=node, devices=[make_device("gpu-0", capacity={"memory": memory})]))
    _wait(cluster, expressions=[f"device.driver == '{DRIVER}' && {MEMORY}"])
    found = _explained(api)
    assert found["state"] == "Waiting"
    cause = _cause(found)
    assert isinstance(cause, causes.NotSelected)
    assert (cause.claim, cause.request, cause.wanted, cause.before, cause.left) == ("default/web", "gpu", 1, 2, 0)
    assert (cause.class_name, cause.of_class) == (DRIVER, True)
    assert cause.operand is not None
    assert (cause.operand.text, cause.operand.refuses, cause.operand.refuses_all) == ("memory >= 200Gi", 2, True)
    assert (cause.operand.subject, cause.operand.limit, cause.operand.greatest) == ("memory", "200Gi", "192Gi")
    assert found["hints"] == ["Without its selector, `node-1` has what request `gpu` wants, free now."]
    assert _funnel(found) == [2, 2, 2, 2, 0, 0, 0]
    (refused,) = found["requests"][0]["stages"][4]["refusedBy"]
    assert (refused["clause"], refused["short"], refused["devices"]) == (MEMORY, "memory >= 200Gi", 2)
    assert (refused["least"], refused["greatest"]) == ("80Gi", "192Gi")
    assert [node["name"] for node in found["nodes"]] == ["node-1", "node-2"]
    assert "192Gi" not in found["nodes"][0]["reason"]


def test_the_condition_has_the_short_form(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    _wait(cluster, "first")
    _wait(cluster, "second")
    assert cluster.why_pending("second").endswith(
        "Request `gpu` of claim `default/second` needs 1; the only matching device is held."
    )
    assert cluster.events("FailedScheduling")[0].message == cluster.why_pending("second")


def test_a_waiting_pods_report_is_computed_again_only_after_a_change(
    api: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.with_gpus("node-1", each=1)
    _wait(cluster, count=2)
    first = explanations.explain_pod("default", "web")
    assert explanations.explain_pod("default", "web").report is first.report
    cluster.create(make_node("node-2"))
    cluster.create(make_slice(node="node-2", devices=make_devices(2)))
    changed = explanations.explain_pod("default", "web")
    assert (first.state, changed.state) == ("Waiting", "Schedulable")
    assert changed.revision > first.revision
    monkeypatch.setattr(explanations, "KEPT_SECONDS", 0.0)
    assert explanations.explain_pod("default", "web").report is not changed.report


def test_a_report_that_was_cut_short_is_computed_again(
    api: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has looks complete: nothing else tells that hints are missing."""
    cluster.create(make_class())
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(node="node-1", devices=[make_device("gpu-0", capacity={"memory": "80Gi"})]))
    _wait(cluster, expressions=[f"device.driver == '{DRIVER}' && {MEMORY}"])
    limit = SimpleNamespace(next_look=float("-inf"), has_passed=False)

    def too_slow(*_claims: Any, **_request: Any) -> Iterator[Loosening]:
        limit.has_passed = True
        check_time()
        yield from ()

    with monkeypatch.context() as patched:
        patched.setattr(explanations, "Deadline", SimpleNamespace(after=lambda _: limit, after_work=lambda _: limit))
        patched.setattr(explanations, "_without_selectors", too_slow)
        cut_short = explanations.explain_pod("default", "web").report
    whole = explanations.explain_pod("default", "web").report
    assert cut_short is not None
    assert whole is not None
    assert (cut_short.is_partial, len(cut_short.loosenings)) == (True, 0)
    assert (whole.is_partial, len(whole.loosenings)) == (False, 1)


def test_held_devices_are_counted_over_all_nodes(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=2)
    for name in "abc":
        _wait(cluster, name)
    _wait(cluster, count=2)
    assert _cause(_explained(api)) == causes.DevicesInUse(
        claim="default/web", request="gpu", wanted=2, before=4, left=1, most=1
    )


@pytest.mark.parametrize(
    ("slice_fields", "cause"),
    [
        pytest.param(
            {"devices": [make_device(taints=[make_device_taint()])]},
            causes.Tainted(**ONE | {"before": 1}, taints=(("example.com/broken", "", "NoSchedule"),), rules=(("", 0),)),
            id="tainted",
        ),
        pytest.param(
            {"slices": 2},
            causes.PoolsUnusable(**ONE | {"before": 2}, pools=(HALF,), worst_pool=HALF, accepted=2),
            id="incomplete pool",
        ),
    ],
)
def test_what_keeps_devices_back_is_named(
    api: Api, cluster: Cluster, slice_fields: dict[str, Any], cause: AnyCause
) -> None:
    cluster.create(make_class())
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(node="node-1", **slice_fields))
    _wait(cluster)
    assert _cause(_explained(api)) == cause


def test_a_missing_class_is_named(api: Api, cluster: Cluster) -> None:
    cluster.create(make_node("node-1"))
    _wait(cluster, device_class="nothing")
    found = _explained(api)
    assert _cause(found) == causes.ClassMissing("gpu", "nothing")
    claim = api.get(f"{CLAIMS}/web/explain").json
    assert 'deviceclass.resource.k8s.io "nothing" not found' in claim["reason"]
    assert claim["nextStep"] == found["nextStep"]


def test_a_selector_that_fails_is_named_with_the_device(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    _wait(cluster, expressions=[f'device.attributes["{DRIVER}"].nothing == 1'])
    found = _explained(api)
    cause = _cause(found)
    assert isinstance(cause, causes.Misconfigured)
    assert cause.fault is causes.Fault.NO_SUCH_KEY
    for part in ("default/web", f"{DRIVER}/node-1/gpu-0", "nothing"):
        assert part in cause.error


def test_nodes_that_do_not_take_the_pod_say_why_and_what_they_could_give(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2")
    for name in ("node-1", "node-2"):
        cluster.update(with_spec(cluster.node(name), unschedulable=True))
    _wait(cluster)
    found = _explained(api)
    assert _cause(found) == NoNodeFits(nodes=2, refused=((NodeRefusal("NodeUnschedulable"), 2),))
    (hint,) = found["hints"]
    assert hint.startswith("`node-1`, `node-2` could give the devices now")
    assert found["nodes"][0]["refusals"] == [{"plugin": "NodeUnschedulable", "message": "node(s) were unschedulable"}]


def test_too_little_cpu_is_counted_by_node(api: Api, cluster: Cluster) -> None:
    cluster.create(make_node("node-1", capacity={"cpu": "1", "pods": "10"}))
    cluster.create(make_pod("web", containers=[make_container(requests={"cpu": "2"})]))
    cluster.settle()
    found = _explained(api)
    assert _cause(found) == NoNodeFits(nodes=1, refused=((NodeRefusal("NodeResourcesFit", "cpu"), 1),))


def test_a_cluster_without_nodes_is_told_so(api: Api, cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    assert _cause(_explained(api)) == NoNodeFits(nodes=0)


def test_scheduling_gates_are_told(api: Api, cluster: Cluster) -> None:
    cluster.create(with_spec(make_pod("web"), scheduling_gates=(PodSchedulingGate(name="quota"),)))
    assert _cause(_explained(api)) == causes.Gated()


def test_what_a_pod_of_a_gang_waits_for_is_told_in_pods_of_its_group(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    with gates.using(GenericWorkload=True, GangScheduling=True):
        cluster.create(make_group("train", 3))
        for number in range(3):
            name = f"w-{number}"
            cluster.create(make_claim(name, requests=[make_request()]))
            named = PodSchedulingGroup(pod_group_name="train")
            cluster.create(make_pod(name, claims={"gpu": name}, scheduling_group=named))
            cluster.settle()
            if number == 1:
                assert _cause(_explained(api, "w-0")) == causes.GroupIncomplete("train", pods=2, wanted=3)
        for name in ("w-0", "w-1", "w-2"):
            fits = _explained(api, name)
            assert fits["state"] == "Waiting"
            assert _cause(fits) == causes.GroupDoesNotFit("train", placed=2, wanted=3)


def test_a_quota_that_refuses_the_claim_of_a_pod_is_told_with_what_is_used_of_it(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    key = f"{CLASS}.deviceclass.resource.k8s.io/devices"
    cluster.create(make_quota({key: "1"}))
    cluster.create(make_claim())
    cluster.create(make_template())
    cluster.create(make_pod("web", templates={"gpu": "template"}))
    cluster.settle()
    found = _explained(api)
    assert found["cause"] == {
        "code": "quota-used-up", "quota": "most", "key": key, "requested": "1", "used": "1", "hard": "1", "entry": "gpu"
    }  # fmt: skip
    cluster.delete(cluster.claim("claim"))
    cluster.settle()
    assert _explained(api)["state"] == "Bound"


def test_a_claim_that_does_not_exist_is_told(api: Api, cluster: Cluster) -> None:
    cluster.create(make_pod("web", claims={"gpu": "nothing"}))
    found = _explained(api)
    assert _cause(found) == causes.ClaimNotFound("nothing")


def test_a_constraint_is_decisive_where_each_request_could_be_met(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    claim = make_claim(
        "web", requests=[make_request(count=2)], constraints=[make_constraint("example.com/root", requests=["gpu"])]
    )
    cluster.create(claim)
    cluster.create(make_pod("web", claims={"gpu": "web"}))
    cluster.settle()
    found = _explained(api)
    assert _cause(found) == causes.NoCommonValue(
        claim="default/web", attribute="example.com/root", wanted=2, most=0, requests=("gpu",)
    )
    assert found["requests"][0]["met"] is False
    assert found["requests"][0]["constraints"] == [
        {"matchAttribute": "example.com/root", "wanted": 2, "left": 0, "met": False}
    ]


def test_a_bound_pod_says_where_it_is_and_what_it_holds(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    _wait(cluster)
    found = _explained(api)
    assert (found["state"], found["nodeName"]) == ("Bound", "node-1")
    assert found["allocations"] == [
        {
            "claim": "default/web",
            "devices": [{"request": "gpu", "driver": DRIVER, "pool": "node-1", "device": "gpu-0"}],
            "reservedFor": [{"resource": "pods", "name": "web"}],
        }
    ]
    claim = api.get(f"{CLAIMS}/web/explain").json
    assert claim["state"] == "Allocated"
    assert claim["reason"] == f"It holds `{DRIVER}/node-1/gpu-0`, for `web`."


def test_a_claim_that_no_pod_uses_says_what_it_waits_for(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2")
    cluster.create(make_claim("spare"))
    found = api.get(f"{CLAIMS}/spare/explain").json
    assert found["state"] == "Schedulable"
    assert found["reason"] == ("2 of 2 nodes could give it devices; it gets them when a pod that uses it is scheduled.")
    assert found["nodes"][0]["devices"] == [f"{DRIVER}/node-1/gpu-0"]


def test_an_answer_follows_what_happens_and_writes_nothing(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    _wait(cluster, "first")
    _wait(cluster)
    before = latest_revision()
    assert isinstance(_cause(_explained(api)), causes.DevicesInUse)
    assert latest_revision() == before
    published = cluster.slice()
    devices = (*published.spec.devices, *make_devices(1, prefix="new"))
    cluster.update(structs.replace(published, spec=structs.replace(published.spec, devices=devices)))
    assert _explained(api)["state"] == "Schedulable"


def test_every_alternative_of_a_list_is_reported(api: Api, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    wants = make_alternatives("gpu", make_alternative("two", count=2), make_alternative("three", count=3))
    cluster.create(make_claim("web", requests=[wants]))
    cluster.create(make_pod("web", claims={"gpu": "web"}))
    found = _explained(api)
    assert [one["request"] for one in found["requests"]] == ["gpu/two", "gpu/three"]
    assert _cause(found) == causes.TooFewPublished(
        **ONE | {"request": "gpu/two", "wanted": 2, "before": 1, "left": 1, "most": 1}
    )


def test_what_is_not_there_is_not_explained(api: Api, cluster: Cluster) -> None:
    assert api.get(f"{PODS}/nothing/explain").code == 404
    assert api.get(f"{CLAIMS}/nothing/explain").reason == "NotFound"


def test_explain_can_only_be_read(api: Api, cluster: Cluster) -> None:
    cluster.create(make_pod("web"))
    for answer in (
        api.put(f"{PODS}/web/explain", {}),
        api.patch(f"{PODS}/web/explain", {}),
        api.delete(f"{PODS}/web/explain"),
        api.post(f"{PODS}/web/explain", {}),
    ):
        assert answer.code == 405


@pytest.mark.parametrize(
    ("path", "resource"),
    [("/api/v1", "pods"), ("/apis/resource.k8s.io/v1", "resourceclaims")],
    ids=["pods", "resourceclaims"],
)
def test_discovery_and_openapi_list_it(api: Api, path: str, resource: str) -> None:
    lines = {line["name"]: line for line in api.get(path).json["resources"]}
    line = lines[f"{resource}/explain"]
    assert (line["verbs"], line["kind"], line["group"], line["version"]) == (
        ["get"],
        "Explanation",
        "manciple.dev",
        "v1alpha1",
    )
    described = api.get(f"/openapi/v3{path}").json["paths"]
    assert "get" in described[f"{path}/namespaces/{{namespace}}/{resource}/{{name}}/explain"]


def test_which_class_and_claim_serve_an_extended_resource_is_told(api: Api, cluster: Cluster) -> None:
    cluster.create(make_class(extended_resource_name="example.com/gpu"))
    cluster.create(make_node())
    cluster.create(make_slice(devices=make_devices(1)))
    for name in ("one", "two"):
        cluster.create(make_pod(name, containers=[make_container(limits={"example.com/gpu": "1"})]))
    cluster.settle()
    running, waiting = (api.get(f"{PODS}/{name}/explain").json for name in ("one", "two"))
    served = {
        "containerName": "main",
        "resourceName": "example.com/gpu",
        "deviceClassName": CLASS,
        "requestName": "container-0-request-0",
    }
    (claim,) = cluster.all(ResourceClaim)
    assert running["extendedResources"] == [{**served, "claim": claim.metadata.name}]
    assert running["allocations"][0]["devices"][0]["device"] == "gpu-0"
    assert waiting["extendedResources"] == [served]
    cause = _cause(waiting)
    assert isinstance(cause, causes.DevicesInUse)
    assert (cause.request, cause.before, cause.left) == ("container-0-request-0", 1, 0)
