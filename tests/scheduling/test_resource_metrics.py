"""/metrics/resources: what each pod requests and may take, as kube-scheduler reports it."""

from __future__ import annotations

import pytest
from msgspec import structs

from claims.kinds.containers import Container, ResourceRequirements
from claims.kinds.pods import Pod
from insight.resource_metrics import PodResources
from manciple.access.authentication import tokens
from tests.builders import NAMESPACE, make_container, make_node, make_pod
from tests.exposition import samples
from tests.manciple.api.conftest import api as api  # noqa: PLC0414 - a fixture
from tests.manciple.api.requests import Api
from tests.scheduling.cluster import Cluster

REQUEST, LIMIT = "kube_pod_resource_request", "kube_pod_resource_limit"


@pytest.fixture
def cluster(api: Api) -> Cluster:
    return Cluster()


def scraped(name: str) -> dict[tuple[str, str], float]:
    """(pod, resource) -> amount."""
    answer = Api(tokens.issue("prometheus", ["system:monitoring"])).get("/metrics/resources")
    assert answer.code == 200, answer.text
    return {(one.labels["pod"], one.labels["resource"]): one.value for one in samples(answer.text, name)}


def labels_of(pod: str, name: str = REQUEST) -> list[dict[str, str]]:
    text = Api(tokens.issue("prometheus", ["system:monitoring"])).get("/metrics/resources").text
    return [dict(one.labels) for one in samples(text, name) if one.labels["pod"] == pod]


def test_a_pod_is_told_with_what_it_is_scheduled_by(cluster: Cluster) -> None:
    main = make_container(
        requests={"cpu": "500m", "memory": "1Gi", "example.com/gpu": "2"}, limits={"cpu": "1", "example.com/gpu": "2"}
    )
    cluster.create(make_pod("web", containers=[main]))
    shared = {"namespace": NAMESPACE, "pod": "web", "node": "", "scheduler": "default-scheduler", "priority": "0"}
    assert sorted(labels_of("web"), key=lambda one: one["resource"]) == [
        {**shared, "resource": resource, "unit": unit}
        for resource, unit in (("cpu", "cores"), ("example.com/gpu", ""), ("memory", "bytes"))
    ]
    assert scraped(REQUEST) == {("web", "cpu"): 0.5, ("web", "memory"): 2**30, ("web", "example.com/gpu"): 2}
    assert scraped(LIMIT)["web", "cpu"] == 1
    cluster.create(make_node())
    cluster.settle()
    assert {one["node"] for one in labels_of("web")} == {cluster.pod("web").spec.node_name}


def sidecar(**requests: str) -> Container:
    return structs.replace(make_container("side", requests=requests), restart_policy="Always")


#: what a pod says -> its requests in all, as they are scheduled
EFFECTIVE: dict[str, tuple[Pod, dict[str, float]]] = {
    "containers add up": (
        make_pod("p", containers=[make_container(name, requests={"cpu": "1"}) for name in ("a", "b")]),
        {"cpu": 2},
    ),
    "a larger init container counts alone": (
        make_pod(
            "p",
            containers=[make_container(requests={"cpu": "1"})],
            init_containers=(make_container("init", requests={"cpu": "3"}),),
        ),
        {"cpu": 3},
    ),
    "a sidecar counts beside the containers": (
        make_pod("p", containers=[make_container(requests={"cpu": "1"})], init_containers=(sidecar(cpu="2"),)),
        {"cpu": 3},
    ),
    "the pod's own resources replace those of its containers": (
        make_pod(
            "p",
            containers=[make_container(requests={"cpu": "1", "memory": "1Gi"})],
            resources=ResourceRequirements(requests={"cpu": "4"}),
        ),
        {"cpu": 4, "memory": 2**30},
    ),
    "zeros are left out": (
        make_pod("p", containers=[make_container(requests={"cpu": "0", "memory": "1"})]),
        {"memory": 1},
    ),
    "nothing": (make_pod("p"), {}),
}


@pytest.mark.parametrize("case", EFFECTIVE)
def test_requests_are_those_that_the_scheduler_counts(cluster: Cluster, case: str) -> None:
    pod, wanted = EFFECTIVE[case]
    cluster.create(pod)
    assert scraped(REQUEST) == {("p", resource): amount for resource, amount in wanted.items()}


def test_overhead_counts_beside_requests_and_limits() -> None:
    main = make_container(requests={"cpu": "1"}, limits={"memory": "1Gi"})
    view = PodResources()
    view.fill("pods", [make_pod("p", containers=[main], overhead={"cpu": "250m", "memory": "1Mi"})])
    told = {metric.name: {one.labels["resource"]: one.value for one in metric.samples} for metric in view.metrics()}
    assert told == {REQUEST: {"cpu": 1.25, "memory": 2**20}, LIMIT: {"memory": 2**30 + 2**20}}


def test_pods_that_have_ended_or_are_gone_are_left_out(cluster: Cluster) -> None:
    for name in ("runs", "ends", "fails", "goes"):
        cluster.create(make_pod(name, containers=[make_container(requests={"cpu": "1"})]))
    assert len(scraped(REQUEST)) == 4
    cluster.finish("ends")
    cluster.finish("fails", "Failed")
    cluster.delete(cluster.pod("goes"))
    assert scraped(REQUEST) == {("runs", "cpu"): 1}


@pytest.mark.parametrize(
    ("resource", "unit"),
    [
        ("hugepages-2Mi", "bytes"),
        ("ephemeral-storage", "bytes"),
        ("attachable-volumes-csi-x", "integer"),
        ("example.com/nic", ""),
    ],
)
def test_units_are_upstreams(resource: str, unit: str) -> None:
    view = PodResources()
    view.fill("pods", [make_pod("p", containers=[make_container(requests={resource: "3"})])])
    (sample,) = next(iter(view.metrics())).samples
    assert (sample.labels["unit"], sample.value) == (unit, 3)


def test_a_role_has_to_name_its_path(api: Api) -> None:
    path, alice = "/metrics/resources", Api(tokens.issue("alice", ["team"]))
    assert (Api("").get(path).code, alice.get(path).code) == (403, 403)
    assert Api(tokens.issue("prometheus", ["system:monitoring"])).get(path).code == 200
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "scraper"},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    }
    exact = {**role, "rules": [{"nonResourceURLs": [path], "verbs": ["get"]}]}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "scraper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    }
    for plural, document in (("clusterroles", role), ("clusterrolebindings", binding)):
        api.made(f"/apis/rbac.authorization.k8s.io/v1/{plural}", document)
    assert (alice.get("/metrics").code, alice.get(path).code) == (200, 403)
    assert api.put("/apis/rbac.authorization.k8s.io/v1/clusterroles/scraper", exact).code == 200
    assert (alice.get("/metrics").code, alice.get(path).code) == (403, 200)
    assert alice.post(path, {}).code in (403, 405)
