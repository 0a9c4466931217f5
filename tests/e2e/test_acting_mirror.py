"""`manciple mirror --act` beside a second Manciple: each action as a browser presses it, and what both have then."""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.e2e.api_client import Api, Document, connect
from tests.e2e.pages.browser import launched
from tests.e2e.processes import Process, Up, wait_for
from tests.e2e.test_mirror import CONTEXT, Mirror
from tests.manciple.mirror.test_copying import kept

NAMESPACE = "acted"
NODES, CLASSES = "/api/v1/nodes", "/apis/resource.k8s.io/v1/deviceclasses"
RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
TEMPLATES = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaimtemplates"


@dataclass
class ActingMirror(Mirror):
    acts: bool = True

    def process(self) -> Process:
        command = ["-m", "manciple", "mirror", "--kubeconfig", str(self.kubeconfig), "--home", str(self.home), "--act"]
        return Process([sys.executable, *command], forked=False)

    def press(self, page: str, to: str = "", *, status: int = 200, **values: str) -> str:
        """Send the form of a page with these values; the words of the page that it leads to."""
        opened = self.browser.get(f"{self.url}{page}")
        assert opened.status_code == 200, (page, opened.text)
        hidden = dict(re.findall(r'<input type="hidden" name="(csrfmiddlewaretoken|uid)" value="([^"]+)"', opened.text))
        answer = self.browser.post(f"{self.url}{to or page}", data={**hidden, **values})
        assert answer.status_code == status, (page, answer.status_code, words(answer))
        return words(answer)

    def undo(self, page: str) -> str:
        offer = re.search(r'name="offer" value="([^"]+)"', self.browser.get(f"{self.url}{page}").text)
        assert offer is not None, page
        return self.press(page, "/undo", offer=offer.group(1), back=page)


def words(answer: httpx.Response) -> str:
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.text.partition("<main")[2])))


@pytest.fixture(scope="module")
def cluster(system: Up) -> Iterator[Api]:
    api = Api(system.kubeconfig)
    api.made("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    yield api
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    wait_for("the namespace to be gone", lambda: api.find(f"/api/v1/namespaces/{NAMESPACE}") is None)


@pytest.fixture(scope="module")
def mirror(system: Up, cluster: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActingMirror]:
    mirror = ActingMirror(tmp_path_factory.mktemp("acting") / "home", system.kubeconfig)
    mirror.start()
    mirror.shows(f"/pods?ns={NAMESPACE}", "Pods")
    yield mirror
    assert mirror.running.stop() == 0, "\n".join(mirror.running.output)


@pytest.fixture(autouse=True)
def both_agree(mirror: ActingMirror, cluster: Api) -> Iterator[None]:
    """At the end of each test the copy is what the cluster has."""
    yield
    with connect(mirror.home / "kubeconfig") as copy:

        def listed(path: str) -> dict[str, Document]:
            answer = copy.get(path).json()["items"]
            return {one["metadata"]["name"]: kept(one) for one in answer}

        def agree() -> bool:
            paths = (NODES, CLASSES, RULES, PODS, TEMPLATES)
            return all(
                {one["metadata"]["name"]: kept(one) for one in cluster.listed(path)} == listed(path) for path in paths
            )

        wait_for("both to agree", agree)


def pod(name: str, **spec: Any) -> Document:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [container], **spec}}


def is_cordoned(cluster: Api, node: str) -> bool:
    return bool(cluster.found("Node", node).get("spec", {}).get("unschedulable"))


def test_the_terminal_says_that_it_acts(mirror: ActingMirror) -> None:
    assert f"is done in {CONTEXT}" in "\n".join(mirror.running.output)
    assert "What you do here is done there" in mirror.page("/devices")


def test_a_node_is_cordoned_and_that_is_undone(mirror: ActingMirror, cluster: Api) -> None:
    page, action = "/nodes/node-1?change=cordon", "/nodes/node-1/change"
    assert "cordoned" in mirror.press(page, action, change="cordon")
    assert is_cordoned(cluster, "node-1")
    assert re.search("Undone", mirror.undo("/nodes/node-1"))
    assert not is_cordoned(cluster, "node-1")


def test_a_drain_leaves_the_pod_that_a_budget_keeps(mirror: ActingMirror, cluster: Api) -> None:
    here = {"nodeName": "node-2"}
    cluster.made(
        BUDGETS,
        {"metadata": {"name": "keep"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}},
    )
    for name in ("kept", "free"):
        cluster.made(PODS, pod(name, **here))
        mirror.shows(f"/pods/{NAMESPACE}/{name}", "Running")
    said = mirror.press("/nodes/node-2?change=drain", "/nodes/node-2/change", change="drain")
    assert f"Pod {NAMESPACE}/kept was not evicted" in said
    assert "disruption budget" in said
    wait_for("the other one to go", lambda: cluster.find(f"{PODS}/free") is None)
    assert cluster.found("Pod", "kept", NAMESPACE)["metadata"].get("deletionTimestamp") is None
    mirror.undo("/nodes/node-2")
    assert not is_cordoned(cluster, "node-2")
    cluster.delete(f"{BUDGETS}/keep")
    mirror.press(f"/pods/{NAMESPACE}/kept/delete")
    wait_for("the pod to be gone", lambda: cluster.find(f"{PODS}/kept") is None)


def test_a_class_is_made_and_deleted(mirror: ActingMirror, cluster: Api) -> None:
    mirror.press("/classes/new", name="acted", selector="true")
    assert cluster.found("DeviceClass", "acted")["spec"]["selectors"] == [{"cel": {"expression": "true"}}]
    assert "already exists" in mirror.press("/classes/new", name="acted", selector="true", status=422)
    mirror.press("/classes/c/acted/delete")
    assert cluster.find(f"{CLASSES}/acted") is None


def test_what_the_cluster_finds_wrong_stands_at_its_field(mirror: ActingMirror, cluster: Api) -> None:
    assert "RFC 1123" in mirror.press("/classes/new", name="Not A Name", selector="true", status=422)
    assert not any(one["metadata"]["name"] == "Not A Name" for one in cluster.listed(CLASSES))


def test_a_taint_rule_is_made_changed_and_deleted(mirror: ActingMirror, cluster: Api) -> None:
    rule: dict[str, Any] = {
        "name": "acted",
        "driver": "nobody.example.com",
        "key": "example.com/x",
        "effect": "NoSchedule",
    }
    mirror.press("/taint-rules/new", **rule)
    made = cluster.found("DeviceTaintRule", "acted")
    assert made["spec"]["taint"]["effect"] == "NoSchedule"
    page = mirror.browser.get(f"{mirror.url}/taint-rules/acted/change").text
    version = re.search(r'value="(\d+)"[^>]*name="version"|name="version"[^>]*value="(\d+)"', page)
    assert version is not None
    changed: dict[str, Any] = {**rule, "effect": "NoExecute", "version": version.group(1) or version.group(2)}
    mirror.press("/taint-rules/acted/change", **changed)
    assert cluster.found("DeviceTaintRule", "acted")["spec"]["taint"]["effect"] == "NoExecute"
    mirror.press("/taint-rules/acted/delete")
    assert cluster.find(f"{RULES}/acted") is None
    mirror.undo("/taint-rules")
    assert cluster.found("DeviceTaintRule", "acted")["spec"]["taint"]["effect"] == "NoExecute"
    mirror.press("/taint-rules/acted/delete")


MANIFEST = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: mine, namespace: {NAMESPACE}}}
spec:
  nodeSelector: {{disk: none}}
  containers:
    - {{name: c, image: i, env: [{{name: KEY, value: kept-there}}], resources: {{claims: [{{name: gpu}}]}}}}
  resourceClaims: [{{name: gpu, resourceClaimTemplateName: one}}]
"""


def test_a_pod_is_made_replaced_and_deleted(mirror: ActingMirror, cluster: Api) -> None:
    exactly = {"deviceClassName": cluster.listed(CLASSES)[0]["metadata"]["name"]}
    requests = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    cluster.made(TEMPLATES, {"metadata": {"name": "one"}, "spec": {"spec": requests}})
    mirror.shows(f"/templates/{NAMESPACE}/one", "one")
    form: dict[str, Any] = {"from": "yaml", "yaml": MANIFEST, "namespace": NAMESPACE, "action": "create"}
    mirror.press("/pods/new", **form)
    made = cluster.found("Pod", "mine", NAMESPACE)
    mirror.shows(f"/pods/{NAMESPACE}/mine", "Why it waits")
    wait_for("its claim", lambda: bool(cluster.found("Pod", "mine", NAMESPACE)["status"].get("resourceClaimStatuses")))
    path = f"/pods/{NAMESPACE}/mine/replace?count.gpu/gpu=2"
    mirror.shows(path, "Comes")
    assert cluster.found("Pod", "mine", NAMESPACE)["metadata"]["uid"] == made["metadata"]["uid"]
    mirror.press(path)
    again = cluster.found("Pod", "mine", NAMESPACE)
    assert again["metadata"]["uid"] != made["metadata"]["uid"]
    assert again["spec"]["containers"][0]["env"] == [{"name": "KEY", "value": "kept-there"}]
    wanted = cluster.found("ResourceClaimTemplate", "one", NAMESPACE)["spec"]["spec"]["devices"]["requests"]
    assert wanted[0]["exactly"]["count"] == 2
    mirror.press(f"/pods/{NAMESPACE}/mine/delete")
    wait_for("the pod to be gone", lambda: cluster.find(f"{PODS}/mine") is None)


def test_the_api_of_the_mirror_and_other_origins_do_not_act(mirror: ActingMirror, cluster: Api) -> None:
    with connect(mirror.home / "kubeconfig") as copy:
        made = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "never"}}
        assert copy.post(CLASSES, json=made).status_code == 403
    opened = mirror.browser.get(f"{mirror.url}/nodes/node-1?change=cordon").text
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', opened)
    assert token is not None
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "http://127.0.0.1:1"}, {"Host": "evil.example"}):
        values = {"change": "cordon", "csrfmiddlewaretoken": token.group(1)}
        answer = mirror.browser.post(f"{mirror.url}/nodes/node-1/change", data=values, headers=headers)
        assert answer.status_code in (400, 403), headers
    assert not is_cordoned(cluster, "node-1")


def test_the_audit_trail_here_and_there_have_the_act(mirror: ActingMirror, system: Up) -> None:
    wait_for("the entry", lambda: "patch" in mirror.page("/audit"))
    text = "\n".join(mirror.running.output)
    token = re.search(r"token: (\S+)", system.kubeconfig.read_text())
    assert token is not None
    assert token.group(1) not in text


#: How far the header, or anything in it, stands out of the page.
OUTSIDE = """() => {
  const {clientWidth, scrollWidth} = document.documentElement;
  const shown = [...document.querySelectorAll(".top *")].filter((one) => one.offsetParent && !one.closest(".menu"));
  return Math.max(scrollWidth, ...shown.map((one) => one.getBoundingClientRect().right)) - clientWidth;
}"""


def test_the_header_has_room_for_a_long_name_at_every_width(mirror: ActingMirror) -> None:
    with launched() as chromium:
        context = chromium.new_context()
        context.add_cookies(
            [{"name": one.name, "value": one.value or "", "url": mirror.url} for one in mirror.browser.cookies.jar]
        )
        page = context.new_page()
        page.goto(f"{mirror.url}/nodes")
        page.locator(".mirrored summary span").evaluate(
            "(name) => name.textContent = 'arn:aws:eks:eu-west-1:cluster/prod'"
        )
        for width in (360, 390, 720, 981, 1101, 1181, 1220, 1301, 1321, 1440, 1441, 1601, 1721, 1920):
            page.set_viewport_size({"width": width, "height": 600})
            assert page.evaluate(OUTSIDE) <= 0, width
