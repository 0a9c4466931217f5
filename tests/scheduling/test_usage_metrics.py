"""metrics.k8s.io: what agents tell of cpu and memory, by node and pod; who may read it; what asking costs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from insight.usage_metrics import FRESH_SECONDS, Usages
from inventory.agents import AgentAddress
from inventory.kinds.nodes import Node
from inventory.kinds.usage_metrics import PodUsage, Usage, UsageReport, window_of
from manciple.access.authentication import tokens
from manciple.api.computed import COMPUTED
from manciple.wire import codec
from tests.manciple.api.conftest import api as api  # noqa: PLC0414 - a fixture
from tests.manciple.api.requests import TABLE, Api

ALL = "/apis/metrics.k8s.io/v1beta1"
NODES, PODS = f"{ALL}/nodes", f"{ALL}/namespaces/default/pods"
#: Of a node: where its agent listens.
STATUS = {
    "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
}


class Agents:
    """The agents of all nodes. asked: the nodes of each question; silent: those that do not answer."""

    def __init__(self) -> None:
        self.reports: dict[str, UsageReport] = {}
        self.asked: list[list[str]] = []
        self.silent: set[str] = set()
        self.now = 0.0

    def ask(self, addresses: Iterable[AgentAddress]) -> Mapping[str, UsageReport]:
        names = sorted(address.node for address in addresses)
        self.asked.append(names)
        return {name: self.reports[name] for name in names if name in self.reports and name not in self.silent}


def usage(millis: int, mebibytes: int, *, at: float = 1_800_000_000.0, window: float = 15.0) -> Usage:
    return Usage(at=at, window=window, cpu_nanos=millis * 10**6, memory_bytes=mebibytes * 2**20)


@pytest.fixture
def agents(api: Api, monkeypatch: pytest.MonkeyPatch) -> Agents:
    """web (of two containers) and quiet on node a; far on b, and lost, which its agent does not know."""
    agents = Agents()
    shared = Usages(agents.ask, clock=lambda: agents.now)
    for computed in COMPUTED.values():
        monkeypatch.setattr(computed.list.__self__.usages, "of", shared.of)  # type: ignore[attr-defined]
    for name in ("a", "b"):
        api.made("/api/v1/nodes", {"metadata": {"name": name, "labels": {"zone": name}}, "status": STATUS})
        agents.reports[name] = UsageReport(node=usage(500, 1000))
    told: dict[str, list[PodUsage]] = {"a": [], "b": []}
    for name, node in {"web": "a", "quiet": "a", "far": "b", "lost": "b"}.items():
        uid = pod(api, name, node)
        containers = {"main": usage(250, 64)} | ({"side": usage(50, 16, at=1_799_999_999)} if name == "web" else {})
        if name != "lost":
            told[node].append(PodUsage(namespace="default", name=name, uid=uid, containers=containers))
    for node, pods in told.items():
        agents.reports[node] = UsageReport(node=usage(500, 1000), pods=tuple(pods))
    return agents


def pod(api: Api, name: str, node: str, namespace: str = "default") -> str:
    """Its uid."""
    container = {"name": "main", "image": "busybox"}
    spec = {"containers": [container], "nodeName": node}
    document = {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}
    made: dict[str, Any] = api.made(f"/api/v1/namespaces/{namespace}/pods", document)
    return str(made["metadata"]["uid"])


def names(api: Api, path: str) -> list[str]:
    answer = api.get(path)
    assert answer.code == 200, answer.text
    return [item["metadata"]["name"] for item in answer.json["items"]]


def test_a_pod_is_shown_as_the_metrics_server_shows_it(api: Api, agents: Agents) -> None:
    shown = api.get(f"{PODS}/web").json
    assert shown.pop("metadata").items() >= {"name": "web", "namespace": "default", "labels": {"app": "web"}}.items()
    assert shown == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "timestamp": "2027-01-15T07:59:59Z",  # of the oldest figure
        "window": "15s",
        "containers": [
            {"name": "main", "usage": {"cpu": "250000000n", "memory": "65536Ki"}},
            {"name": "side", "usage": {"cpu": "50000000n", "memory": "16384Ki"}},
        ],
    }


def test_a_node_is_shown_as_the_metrics_server_shows_it(api: Api, agents: Agents) -> None:
    shown = api.get(f"{NODES}/a").json
    assert shown["kind"] == "NodeMetrics"
    assert shown["metadata"]["labels"]["zone"] == "a"
    assert (shown["timestamp"], shown["window"]) == ("2027-01-15T08:00:00Z", "15s")
    assert shown["usage"] == {"cpu": "500000000n", "memory": "1024000Ki"}


#: path -> the names that it lists
LISTS = {
    f"{ALL}/pods": ["far", "quiet", "web"],
    PODS: ["far", "quiet", "web"],
    f"{PODS}?labelSelector=app%3Dweb": ["web"],
    f"{PODS}?labelSelector=app+notin+(web,far)": ["quiet"],
    f"{PODS}?fieldSelector=metadata.name%3Dfar": ["far"],
    f"{PODS}?fieldSelector=spec.nodeName%3Da": ["quiet", "web"],
    f"{ALL}/namespaces/other/pods": [],
    NODES: ["a", "b"],
    f"{NODES}?labelSelector=zone%3Db": ["b"],
    f"{NODES}?fieldSelector=metadata.name%3Da": ["a"],
}


@pytest.mark.parametrize("path", LISTS)
def test_lists_are_selected_as_those_of_the_pods_and_nodes(api: Api, agents: Agents, path: str) -> None:
    assert names(api, path) == LISTS[path]


def test_a_list_has_pages_and_a_table(api: Api, agents: Agents) -> None:
    first = api.get(f"{PODS}?limit=1").json
    assert first["kind"] == "PodMetricsList"
    assert [item["metadata"]["name"] for item in first["items"]] == ["far"]
    assert names(api, f"{PODS}?limit=9&continue={first['metadata']['continue']}") == ["quiet", "web"]

    table = api.get(PODS, accept=TABLE).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "cpu", "memory", "Window"]
    assert [row["cells"] for row in table["rows"]][2] == ["web", "300000000n", "81920Ki", "15s"]
    assert api.get(NODES, accept=TABLE).json["rows"][0]["cells"] == ["a", "500000000n", "1024000Ki", "15s"]


#: path -> the code, and a part of the message
REFUSED: dict[str, tuple[int, str]] = {
    f"{PODS}/nosuch": (404, 'podmetrics.metrics.k8s.io "default/nosuch" not found'),
    f"{PODS}/lost": (404, 'podmetrics.metrics.k8s.io "default/lost" not found'),
    f"{NODES}/nosuch": (404, 'nodemetrics.metrics.k8s.io "nosuch" not found'),
    f"{PODS}?labelSelector=a%3D%3D%3Db": (400, "unable to parse labelSelector"),
    f"{NODES}?fieldSelector=spec.nosuch%3Db": (400, "field label not supported"),
    f"{PODS}?watch=true": (405, 'watch is not supported on resources of kind "pods.metrics.k8s.io"'),
}


@pytest.mark.parametrize("path", REFUSED)
def test_what_cannot_be_shown_is_refused_in_kubernetes_words(api: Api, agents: Agents, path: str) -> None:
    code, message = REFUSED[path]
    answer = api.get(path)
    assert (answer.code, message in answer.message) == (code, True), answer.text


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_nothing_is_written_there(api: Api, agents: Agents, method: str) -> None:
    assert api.send(method, f"{PODS}/web", body={}).code == 405


# Agents ---------------------------------------------------------------------------------------------------------------


def test_only_the_agents_of_selected_pods_are_asked(api: Api, agents: Agents) -> None:
    names(api, f"{PODS}?labelSelector=app%3Dweb")
    names(api, f"{ALL}/namespaces/other/pods")
    assert agents.asked == [["a"]]


def test_an_answer_is_used_for_a_while_by_everybody(api: Api, agents: Agents) -> None:
    for path in (PODS, f"{PODS}/web", NODES, PODS):
        api.get(path)
    assert agents.asked == [["a", "b"]]

    agents.now += FRESH_SECONDS
    api.get(NODES)
    assert agents.asked == [["a", "b"]] * 2


def test_a_node_whose_agent_is_away_is_left_out_and_waited_for_once(api: Api, agents: Agents) -> None:
    agents.silent.add("a")
    assert names(api, NODES) == ["b"]
    assert names(api, PODS) == ["far"]
    assert api.get(f"{PODS}/web").code == 404
    assert agents.asked == [["a", "b"]]


def test_figures_that_are_no_longer_told_are_not_shown(api: Api, agents: Agents) -> None:
    assert names(api, NODES) == ["a", "b"]
    agents.silent |= {"a", "b"}
    agents.now += FRESH_SECONDS
    assert names(api, NODES) == []


def test_an_agent_tells_of_its_own_pods_only(api: Api, agents: Agents) -> None:
    """Neither of those of another node, nor of one that had the name before."""
    agents.silent.add("a")
    lies = [PodUsage(namespace="default", name="web", uid=uid_of(api, "web"), containers={"main": usage(9000, 1)})]
    old = PodUsage(namespace="default", name="lost", uid="another", containers={"main": usage(9000, 1)})
    agents.reports["b"] = UsageReport(node=usage(1, 1), pods=(*lies, old))
    assert names(api, PODS) == []


def uid_of(api: Api, name: str) -> str:
    return str(api.get(f"/api/v1/namespaces/default/pods/{name}").json["metadata"]["uid"])


def test_those_who_ask_at_once_wait_for_one_answer() -> None:
    began, release = threading.Event(), threading.Event()
    asked: list[int] = []

    def ask(addresses: Iterable[AgentAddress]) -> Mapping[str, UsageReport]:
        asked.append(len(list(addresses)))
        began.set()
        release.wait(20)
        return {}

    node = codec.decode_text(Node, json.dumps({"metadata": {"name": "n"}, "status": STATUS}))
    usages = Usages(ask)
    threads = [threading.Thread(target=usages.of, args=([node],)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert began.wait(20)
    release.set()
    for thread in threads:
        thread.join(20)
    assert asked == [1]


# Rights ---------------------------------------------------------------------------------------------------------------


def bound(api: Api, role: str, namespace: str = "") -> Api:
    """Bob, who has the cluster role in the namespace, or everywhere."""
    rights = "/apis/rbac.authorization.k8s.io/v1"
    where = f"{rights}/namespaces/{namespace}/rolebindings" if namespace else f"{rights}/clusterrolebindings"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}
    api.made(where, {"metadata": {"name": "bob"}, "roleRef": reference, "subjects": [subject]})
    return Api(tokens.issue("bob", []))


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_who_may_view_a_namespace_sees_what_its_pods_use(api: Api, agents: Agents, role: str) -> None:
    bob = bound(api, role, "default")
    assert names(bob, PODS) == ["far", "quiet", "web"]
    assert bob.get(f"{PODS}/web").code == 200
    for path in (f"{ALL}/pods", f"{ALL}/namespaces/other/pods", NODES, f"{NODES}/a"):
        assert bob.get(path).code == 403, path


def test_who_may_see_nodes_sees_what_they_use(api: Api, agents: Agents) -> None:
    bob = bound(api, "manciple:inventory-viewer")
    assert names(bob, NODES) == ["a", "b"]
    assert bob.get(PODS).code == 403


def test_strangers_see_nothing_and_ask_no_agent(api: Api, agents: Agents) -> None:
    stranger = Api(tokens.issue("mallory", []))
    assert {stranger.get(path).code for path in (PODS, NODES, f"{PODS}/web")} == {403}
    assert Api("").get(PODS).code in (401, 403)
    assert agents.asked == []


# Discovery ------------------------------------------------------------------------------------------------------------


def test_the_group_is_discovered(api: Api) -> None:
    groups = {group["name"]: group for group in api.get("/apis").json["groups"]}
    assert groups["metrics.k8s.io"]["preferredVersion"]["version"] == "v1beta1"
    resources = {one["name"]: one for one in api.get(ALL).json["resources"]}
    assert {name: (one["kind"], one["namespaced"], one["verbs"]) for name, one in resources.items()} == {
        "nodes": ("NodeMetrics", False, ["get", "list"]),
        "pods": ("PodMetrics", True, ["get", "list"]),
    }


WINDOWS = {0.0: "0s", 1.5: "1.5s", 15.0314: "15.031s", 60: "1m0s", 90.25: "1m30.25s", 3600: "1h0m0s", 59.9999: "1m0s"}


@pytest.mark.parametrize("seconds", WINDOWS)
def test_a_window_is_written_as_go_writes_it(seconds: float) -> None:
    assert window_of(usage(1, 1, window=seconds)) == WINDOWS[seconds]
