"""A new pod: from YAML with findings where they stand, from a form that makes the same YAML; only where one may."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.test import Client

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from dashboard.workloads.pods.forms import EXAMPLES, PodForm, as_yaml, read
from insight.class_summary import read_stock
from manciple.store.event_log import latest_revision
from scheduling.rehearsal.workload import IMAGINED
from tests.builders import (
    make_claim,
    make_class,
    make_device,
    make_devices,
    make_namespace,
    make_node,
    make_pod,
    make_quota,
    make_request,
    make_slice,
    make_template,
)
from tests.dashboard import browsing, texts
from tests.dashboard.browsing import said, viewer
from tests.scheduling.cluster import Cluster, with_spec

__all__ = ["viewer"]

POD = """apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: team-a
spec:
  containers:
  - name: main
    image: example.com/main
"""
CLAIM = """apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: ours
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu.example.com
"""


@pytest.fixture
def namespaces(cluster: Cluster) -> Cluster:
    for name in ("default", "team-a", "team-b"):
        cluster.create(make_namespace(name))
    cluster.create(make_class())
    return cluster


@pytest.fixture
def member(namespaces: Cluster) -> Client:
    """Somebody who may make pods in team-a."""
    return browsing.member("ann", "team-a")


def _findings(client: Client, text: str, **fields: str) -> list[dict[str, Any]]:
    answer = client.post("/pods/new/diagnostics", {"text": text, **fields})
    assert answer.status_code == 200
    return [dict(one) for one in json.loads(answer.content)]


def test_several_documents_are_created_and_the_pod_is_shown(member: Client, cluster: Cluster) -> None:
    pod = POD + "  resourceClaims:\n  - name: gpu\n    resourceClaimName: ours\n"
    answer = member.post("/pods/new", {"yaml": f"{pod}---\n{CLAIM}", "namespace": "team-a", "action": "create"})
    assert answer.headers["Location"] == "/pods/team-a/web"
    assert cluster.get(Pod, "web", "team-a").spec.resource_claims[0].resource_claim_name == "ours"
    assert cluster.get(ResourceClaim, "ours", "team-a").spec.devices.requests[0].exactly is not None


def test_checking_says_where_the_pod_would_start_and_stores_nothing(member: Client, cluster: Cluster) -> None:
    cluster.create(make_node("node-1"))
    revision = latest_revision()
    answer = member.post("/pods/new", {"yaml": POD, "action": "check"})
    assert texts.NEW_POD_PREVIEW in said(answer.content.decode())
    started = answer.context["page"].started
    assert started.good
    assert "`node-1`" in started.title
    assert latest_revision() == revision
    assert cluster.find(Pod, "web", "team-a") is None


WRONG: list[tuple[str, int, int, str]] = [
    (POD.replace("  - name: main", "  - nam: main"), 8, 5, "nam is not a field here"),
    (POD.replace("    image: example.com/main", "    image: 7"), 9, 5, "image must be of type string, not number"),
    (POD.replace("  name: web", "  name: Web"), 4, 3, "metadata.name: Invalid value"),
    (POD.replace("kind: Pod", "kind: Pot"), 2, 1, "A Pot cannot be created here"),
    (POD.replace("v1", "v2"), 2, 1, "A Pod has apiVersion v1"),
    (POD.replace("team-a", "team-b"), 5, 3, "may not create anything in namespace team-b"),
    (POD.replace("  namespace: team-a\n", ""), 3, 1, "Name a namespace"),
    (f"# first\n---\n{POD.replace('  - name: main', '  - name: Main')}", 10, 5, "spec.containers[0].name"),
    (f"{POD}---\n{POD}", 14, 3, "web is already defined above"),
    ("apiVersion: [", 2, 1, ""),
    ("- a", 1, 1, "An object is a mapping"),
]


def test_what_is_wrong_is_told_where_it_stands(member: Client) -> None:
    for text, line, column, says in WRONG:
        first = _findings(member, text)[0]
        assert says in first["message"], text
        if says:
            assert (first["line"], first["column"]) == (line, column), text
        answer = member.post("/pods/new", {"yaml": text, "action": "create"})
        assert answer.status_code == 422, text
        assert f"Line {first['line']}, column {first['column']}:" in answer.content.decode(), text


def test_nothing_is_created_where_one_of_several_is_wrong_or_the_namespace_forged(
    member: Client, cluster: Cluster
) -> None:
    wrong = POD.replace("name: web", "name: Web")
    member.post("/pods/new", {"yaml": f"{CLAIM}---\n{POD}---\n{wrong}", "namespace": "team-a"})
    text = POD.replace("  namespace: team-a\n", "")
    assert member.post("/pods/new", {"yaml": text, "namespace": "team-b"}).status_code == 422
    assert cluster.all(Pod) == []
    assert cluster.all(ResourceClaim) == []
    assert _findings(member, POD) == []
    member.post("/pods/new", {"yaml": POD})
    (found,) = _findings(member, POD)
    assert found["message"] == texts.NAME_TAKEN("web", "team-a")


PCIE = "resource.kubernetes.io/pcieRoot"
FORM = {"from": "form", "name": "train", "namespace": "team-a", "image": "example.com/x", "devices": "class"}


def test_the_form_makes_a_template_and_a_pod_or_takes_one_that_exists(member: Client, cluster: Cluster) -> None:
    command = 'python train.py --name "two words"'
    fields = {**FORM, "class": "gpu.example.com", "count": "2", "command": command}
    answer = member.post("/pods/new", fields)
    assert answer.headers["Location"] == "/pods/team-a/train"
    pod = cluster.get(Pod, "train", "team-a")
    assert pod.spec.containers[0].command == ("python", "train.py", "--name", "two words")
    template = cluster.get(ResourceClaimTemplate, "train-devices", "team-a")
    exactly = template.spec.spec.devices.requests[0].exactly
    assert exactly is not None
    assert (exactly.device_class_name, exactly.count) == ("gpu.example.com", 2)
    member.post("/pods/new", {**FORM, "name": "again", "devices": "template", "template": "train-devices"})
    (entry,) = cluster.get(Pod, "again", "team-a").spec.resource_claims
    assert entry.resource_claim_template_name == "train-devices"


#: what was typed -> the field where the error stands
MISTAKES = (
    ({"cpu": "two"}, "cpu"),
    ({"memory": "-1Gi"}, "memory"),
    ({"least": "80 GB"}, "least"),
    ({"tolerations": "a=b:Never"}, "tolerations"),
    ({"device_tolerations": "a:b:c"}, "device_tolerations"),
    ({"name": ""}, "name"),
    ({"name": "Not A Name"}, "name"),
    ({"image": ""}, "image"),
    ({"class": ""}, "device_class"),
    ({"count": "0"}, "count"),
    ({"devices": "template"}, "template"),
)


# The form and its YAML ------------------------------------------------------------------------------------------------

#: what is typed -> what the YAML then has: at a path, or as a text
ASKED: dict[str, dict[str, str]] = {
    "several of a model, together": {
        "class": "gpu.example.com", "count": "2", "model": "gpu.example.com/model=A100",
        "together": PCIE,
    },
    "memory at least": {"class": "gpu.example.com", "least": "40Gi"},
    "a share": {"class": "gpu.example.com", "share": "10Gi"},
    "a model alone": {"class": "", "model": "gpu.example.com/model=A100"},
    "amounts of the node, a command, tolerations": {
        "class": "gpu.example.com", "cpu": "500m", "memory": "1Gi", "command": "sleep '1 2'",
        "tolerations": "team=a:NoSchedule, spare", "device_tolerations": "gpu.example.com/xid:NoExecute",
    },
    "no device": {"devices": "none", "cpu": "1"},
    "a template of others": {"devices": "template", "template": "theirs"},
}  # fmt: skip


@pytest.fixture
def devices(namespaces: Cluster) -> Cluster:
    """Node-1 has shared devices: three of 80 GiB, two of them on one PCIe root, and a small one."""
    namespaces.create(make_node("node-1"))
    roots = ("pci0", "pci1", "pci1", "pci2")
    namespaces.create(make_slice(devices=[
        make_device(
            f"gpu-{number}",
            attributes={"model": "T4" if root == "pci2" else "A100", PCIE: root},
            capacity={"memory": "16Gi" if root == "pci2" else "80Gi"},
            allow_multiple_allocations=True,
        )
        for number, root in enumerate(roots)
    ]))  # fmt: skip
    namespaces.create(make_template("theirs", namespace="team-a"))
    return namespaces


@pytest.mark.parametrize("fields", ASKED.values(), ids=ASKED)
def test_what_the_form_asks_for_is_created_as_its_yaml_says_and_runs(
    member: Client, devices: Cluster, fields: dict[str, str]
) -> None:
    sent = {**FORM, **fields}
    made = member.post("/pods/new/made", sent).context["form"]
    assert (made.composed.problem, made.composed.kept) == ("", [])
    assert _findings(member, made.composed.text) == [], "kubectl would apply it"
    answer = member.post("/pods/new", {**sent, "yaml": made.composed.text, "base": made.composed.base})
    assert answer.headers.get("Location") == "/pods/team-a/train", answer.content.decode()
    devices.settle()
    pod = devices.get(Pod, "train", "team-a")
    assert pod.spec.node_name == "node-1"
    claims = [one for one in devices.all(ResourceClaim) if one.status.allocation]
    given = [one for claim in claims if claim.status.allocation for one in claim.status.allocation.devices.results]
    assert len(given) == (0 if fields.get("devices") == "none" else int(fields.get("count", "1")))
    if "together" in fields:
        assert {one.device for one in given} == {"gpu-1", "gpu-2"}
    if "least" in fields:
        assert given[0].device != "gpu-3"
    if "share" in fields:
        assert given[0].consumed_capacity["memory"] == fields["share"]
    container = pod.spec.containers[0]
    requests = {name: str(amount) for name, amount in container.resources.requests.items()}
    assert requests == {name: fields[name] for name in ("cpu", "memory") if name in fields}
    if "tolerations" in fields:
        assert {one.key for one in pod.spec.tolerations} >= {"team", "spare"}
        (request,) = claims[0].spec.devices.requests
        assert request.exactly
        assert [one.key for one in request.exactly.tolerations] == ["gpu.example.com/xid"]


def _in_step(client: Client, before: Any, text: str = "", **fields: str) -> Any:
    """What the page has after somebody has changed the YAML, the form, or both."""
    data = {**json.loads(before.in_json), "yaml": text or before.text, "base": before.base} | fields
    return client.post("/pods/new/made", data).context["form"].composed


def test_the_form_follows_the_yaml_and_what_it_has_no_field_for_is_kept_and_named(
    member: Client, devices: Cluster
) -> None:
    made = member.post("/pods/new/made", {**FORM, "class": "gpu.example.com"}).context["form"].composed
    text = made.text.replace("name: main\n", "name: main  # the only one\n    workingDir: /srv\n")
    text = text.replace("    - name: device\n", "    # for training\n      - name: device\n", 1)
    text = text.replace("example.com/x", "example.com/y").replace(
        "deviceClassName: gpu.example.com", "count: 3\n          deviceClassName: other"
    )
    text = text.replace("spec:\n  restartPolicy", "spec:\n  nodeSelector:\n    zone: a\n  restartPolicy")
    followed = _in_step(member, made, text)
    assert followed.text == text
    assert (followed.values["image"], followed.values["count"], followed.values["device_class"]) == (
        "example.com/y",
        "3",
        "other",
    )
    assert sorted(followed.kept) == ["spec.containers[0].workingDir", "spec.nodeSelector.zone"]
    both = _in_step(member, followed, text.replace("zone: a", "zone: b"), name="other", count="1", cpu="2")
    for part in ("# the only one", "# for training", "workingDir: /srv", "zone: b", "name: other-devices", "cpu: '2'"):
        assert part in both.text, part
    assert "count:" not in both.text
    assert "train" not in both.text.replace("for training", "")
    assert both.values["image"] == "example.com/y"
    shown = member.post("/pods/new/made", {"yaml": both.text, "base": both.text}).content.decode()
    assert "<code>spec.nodeSelector.zone</code>" in shown


OTHER_CLAIMS = {
    "a claim of its own": ("resourceClaimTemplateName: train-devices", "resourceClaimName: ours"),
    "two requests": ("requests:", "requests:\n      - name: more\n        exactly:\n          deviceClassName: other"),
    "all devices": ("exactly:", "exactly:\n          allocationMode: All"),
    "alternatives": (
        "exactly:\n          deviceClassName: gpu.example.com",
        "firstAvailable:\n        - name: a\n          deviceClassName: b",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", OTHER_CLAIMS.values(), ids=OTHER_CLAIMS)
def test_claims_that_the_form_cannot_show_are_left_to_the_yaml(
    member: Client, devices: Cluster, change: tuple[str, str]
) -> None:
    made = member.post("/pods/new/made", {**FORM, "class": "gpu.example.com"}).context["form"].composed
    text = made.text.replace(*change)
    assert text != made.text
    followed = _in_step(member, made, text)
    assert (followed.problem, followed.values["devices"]) == ("", "yaml")
    assert followed.kept
    renamed = _in_step(member, followed, image="example.com/z")
    assert renamed.text == text.replace("example.com/x", "example.com/z"), "and nothing else is touched"


UNREADABLE = {"no YAML": "kind: [", "two pods": f"{POD}---\n{POD}", "no pod": CLAIM, "no mapping": "- a"}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_a_text_that_the_form_cannot_follow_is_left_alone_until_it_can(
    member: Client, devices: Cluster, text: str
) -> None:
    made = member.post("/pods/new/made", {**FORM, "class": "gpu.example.com"}).context["form"].composed
    broken = _in_step(member, made, text, name="meanwhile")
    assert broken.problem
    assert (broken.text, broken.values["name"], broken.base) == (text, "meanwhile", made.base)
    mended = _in_step(member, broken, made.text.replace("example.com/x", "example.com/y"))
    assert (mended.problem, mended.values["name"], mended.values["image"]) == ("", "meanwhile", "example.com/y")
    assert "name: meanwhile-devices" in mended.text


def test_without_a_script_a_button_brings_both_sides_in_step(member: Client, devices: Cluster) -> None:
    page = member.get("/pods/new").context["page"]
    assert page.from_form
    data = {**json.loads(page.form.composed.in_json), "base": page.form.composed.base, "from": "form"}
    text = page.written.replace("name: main", "name: main\n    workingDir: /srv")
    answer = member.post("/pods/new", {**data, "yaml": text, "name": "train", "action": "apply"})
    page = answer.context["page"]
    assert answer.status_code == 200
    assert "name: train\n" in page.written
    assert "workingDir: /srv" in page.written
    assert page.form.text("name") == "train"
    assert devices.all(Pod) == []


def test_a_pod_is_duplicated_in_the_form(member: Client, devices: Cluster) -> None:
    devices.create(make_pod("web", namespace="team-a"))
    page = member.get("/pods/new?like=team-a/web&from=form").context["page"]
    assert page.form.text("name") == "web-2"
    assert page.form.text("devices") == "none"


def test_the_navigation_leads_people_who_may_create_pods_to_the_form(member: Client, viewer: Client) -> None:
    for client, leads in ((member, True), (viewer, False)):
        for path in ("/pods", "/workloads"):
            text = client.get(path).content.decode()
            assert (re.search(r'class="btn primary submit"\s+href="/pods/new"', text) is not None) is leads, path
            assert (re.search(r'class="btn primary"\s+href="/pods/new', text) is not None) is leads, path


def test_errors_of_the_form_stand_at_their_fields(member: Client) -> None:
    for fields, field in MISTAKES:
        answer = member.post("/pods/new", {**FORM, "class": "gpu.example.com", "count": "1", **fields})
        assert answer.status_code == 422, fields
        form = answer.context["page"].form
        assert list(form.errors) == [field], fields
        assert f'id="{form[field].error_id}"' in answer.content.decode(), fields


@pytest.mark.parametrize("name", ["My pod", "x" * 254, "taken"])
def test_what_the_api_refuses_is_told_with_the_mistakes_of_other_fields(
    member: Client, cluster: Cluster, name: str
) -> None:
    cluster.create(make_pod("taken", namespace="team-a"))
    mistakes = [{"count": "0"}, {"image": ""}, {"class": ""}]
    if name != "taken":  # that is found out of what can be read
        mistakes.append({"cpu": "much", "tolerations": "a:b:c"})
    for fields in mistakes:
        sent = {**FORM, "class": "gpu.example.com", "count": "1", **fields, "name": name}
        form = member.post("/pods/new", sent).context["page"].form
        also = {"class": "device_class"}
        assert set(form.errors) == {"name", *(also.get(field, field) for field in fields)}, fields
        assert name in str(form.errors["name"])
        assert f"{name}-" not in str(form.errors["name"]), "the name of the template, which nobody typed"
        problems = member.post("/pods/new/made", sent).context["started"]
        if fields.get("class") != "":  # nothing is previewed before a class is chosen
            told = {one.partition(":")[0] for one in problems.problems}
            assert "Name" in told, told


@pytest.mark.parametrize(
    "name", ["x" * 240, "x" * 241, "x" * 253, f"{'x' * 239}-{'y' * 13}", f"{'x' * 238}.{'y' * 14}"]
)
def test_a_pod_may_have_any_name_that_the_api_allows(member: Client, cluster: Cluster, name: str) -> None:
    """Its template's name is cut, and two templates may begin alike."""
    fields = {**FORM, "class": "gpu.example.com", "name": name}
    for count, pod in (("1", name), ("2", f"{name[:-1]}z")):
        assert member.post("/pods/new", {**fields, "name": pod, "count": count}).status_code == 302, pod
    used = {pod.metadata.name: pod.spec.resource_claims[0].resource_claim_template_name for pod in cluster.all(Pod)}
    assert len(set(used.values())) == 2, "each has the template that asks for what it wants"


def test_the_form_shows_the_yaml_that_it_makes_and_can_go_on_as_yaml(member: Client) -> None:
    fields = {**FORM, "class": "gpu.example.com", "count": "2"}
    made = as_yaml(PodForm(fields))
    shown = member.post("/pods/new/made", fields).content.decode()
    assert "name: train-devices" in shown
    assert member.post("/pods/new", {**fields, "action": "yaml"}).context["page"].text == made
    assert [one.kind.kind for one in read(made).documents] == ["ResourceClaimTemplate", "Pod"]


@pytest.mark.parametrize("example", [one.name for one in EXAMPLES])
def test_every_example_can_be_created_as_it_stands(member: Client, cluster: Cluster, example: str) -> None:
    text = member.get(f"/pods/new?example={example}").context["page"].text
    assert _findings(member, text) == []
    assert member.post("/pods/new", {"yaml": text}).status_code == 302
    assert cluster.all(Pod)


def test_completions_come_from_the_types_and_from_what_exists(member: Client, cluster: Cluster) -> None:
    cluster.create(make_template("gpus", namespace="team-a"))
    cluster.create(make_template("secret", namespace="team-b"))
    table = json.loads(member.get("/pods/new/completions").content)
    containers = {one["label"]: one for one in table["keys"]["Pod/spec.containers"]}
    assert containers["image"]["detail"] == "string"
    requests = [one["label"] for one in table["keys"]["ResourceClaim/spec.devices.requests.exactly"]]
    assert {"deviceClassName", "selectors", "count"} <= set(requests)
    assert table["values"]["metadata.namespace"] == ["team-a"]
    assert table["values"]["spec.resourceClaims.resourceClaimTemplateName"] == ["gpus"]
    assert table["values"]["ResourceClaim/spec.devices.requests.exactly.deviceClassName"] == ["gpu.example.com"]


# Where it would start ------------------------------------------------------------------------------------------------


TRAINER = {"from": "form", "name": "trainer", "namespace": "team-a", "image": "example.com/main", "devices": "class"}


def _made(client: Client, **fields: str) -> str:
    return said(f"<main{_posted(client, **fields).content.decode()}</main>")


def _posted(client: Client, **fields: str) -> Any:
    answer = client.post("/pods/new/made", {**TRAINER, "class": "gpu.example.com", **fields})
    assert answer.status_code == 200
    return answer


def test_the_form_says_where_the_pod_starts_and_the_scheduler_does_so(member: Client, namespaces: Cluster) -> None:
    for node, each in (("node-1", 2), ("node-2", 4)):
        namespaces.create(make_node(node))
        namespaces.create(make_slice(node=node, devices=make_devices(each)))
    assert texts.STARTS_NOW_ON("node-2", "gpu-0 , gpu-1 , gpu-2") in _made(member, count="3")
    assert texts.WAITS_BECAUSE in _made(member, count="5")
    assert texts.NEXT_ASK_FOR_FEWER(4, "node-2") in _made(member, count="5")
    assert _posted(member, **{"class": ""}).context["started"] is None
    assert _posted(member, namespace="team-b", count="1").context["started"].problems  # where they may make nothing
    member.post("/pods/new", {**TRAINER, "class": "gpu.example.com", "count": "3", "action": "create"})
    namespaces.settle()
    assert namespaces.get(Pod, "trainer", "team-a").spec.node_name == "node-2"


def test_a_quota_that_refuses_the_claim_is_told_before_the_pod_is_made(member: Client, namespaces: Cluster) -> None:
    namespaces.create(make_node("node-1"))
    namespaces.create(make_slice(node="node-1", devices=make_devices(4)))
    one_device = {"gpu.example.com.deviceclass.resource.k8s.io/devices": "1"}
    namespaces.create(make_quota(one_device, name="one", namespace="team-a"))
    revision = latest_revision()
    starts, waits = (_posted(member, count=count).context["started"] for count in ("1", "2"))
    assert (starts.good, waits.good) == (True, False)
    assert "`devices`" in waits.title
    assert "`one`" in waits.title
    assert latest_revision() == revision, "nothing was written to find that out"
    member.post("/pods/new", {**TRAINER, "class": "gpu.example.com", "count": "2", "action": "create"})
    namespaces.settle()
    assert namespaces.get(Pod, "trainer", "team-a").spec.node_name == "", "and so it is"


def test_classes_are_chosen_by_what_they_have(member: Client, namespaces: Cluster) -> None:
    for node, each in (("node-1", 2), ("node-2", 4)):
        namespaces.create(make_node(node))
        devices = make_devices(each, attributes={"model": "A100"})
        namespaces.create(make_slice(node=node, devices=devices))
    namespaces.create(make_template("three", requests=[make_request(count=3)]))
    namespaces.create(make_pod("holds", templates={"gpu": "three"}))
    namespaces.settle()
    (one,) = read_stock(namespaces.now)
    assert (one.models, one.devices, one.free, one.fits) == (("A100",), 6, 3, 3)
    assert (one.largest, one.node, one.waits and one.waits.claims) == (2, "node-1", 1)
    shown = said(member.get("/pods/new?from=form").content.decode())
    assert texts.STOCK_ROW("gpu.example.com A100 3 of 6", "node-1") in shown
    namespaces.update(with_spec(namespaces.node("node-1"), unschedulable=True))
    (one,) = read_stock(namespaces.now)
    assert (one.largest, one.node) == (1, "node-2")


def test_a_template_that_an_earlier_pod_left_is_used_again_or_another_name_is_taken(
    member: Client, namespaces: Cluster
) -> None:
    form = {**TRAINER, "class": "gpu.example.com", "action": "create"}
    for count, template in (("1", "trainer-devices"), ("1", "trainer-devices"), ("2", "trainer-devices-2")):
        assert member.post("/pods/new", {**form, "count": count}).status_code == 302
        pod = namespaces.get(Pod, "trainer", "team-a")
        assert pod.spec.resource_claims[0].resource_claim_template_name == template
        namespaces.delete(pod)
    assert "name: trainer-devices-2" in _posted(member, count="2").content.decode()
    assert texts.TEMPLATE_EXISTS in _made(member, count="2")
    assert len(namespaces.all(ResourceClaimTemplate)) == 2


def test_a_pod_is_duplicated_without_what_the_api_filled_in(member: Client, namespaces: Cluster) -> None:
    namespaces.create(make_claim("ours", namespace="team-a"))
    for name in ("web", "web-2"):
        namespaces.create(make_pod(name, namespace="team-a", claims={"gpu": "ours"}, node="node-1"))
    namespaces.create(make_pod("secret", namespace="team-b", node="node-1"))
    answer = member.get("/pods/new?like=team-a/web").content.decode()
    text = html.unescape(answer.partition('id="yaml"')[2].partition(">")[2].partition("</textarea>")[0])
    (document,) = read(text).documents
    assert document.object.metadata.name == "web-3"
    assert "nodeName" not in text
    assert "uid" not in text
    assert "resourceClaimName: ours" in text
    assert "secret" not in member.get("/pods/new?like=team-b/secret").content.decode()
    assert member.post("/pods/new", {"yaml": text, "action": "create"}).status_code == 302


#: what stands in the form instead -> the field that the preview complains about; "": where it would start
PREVIEWED: dict[str, tuple[dict[str, str], str]] = {
    "as it is": ({}, ""),
    "still without a name": ({"name": ""}, ""),
    "still without an image": ({"image": " "}, ""),
    "the most that one claim is given": ({"count": "32"}, ""),
    "too many for one claim": ({"count": "33"}, "Number"),
    "far too many": ({"count": "99999"}, "Number"),
    "none": ({"count": "0"}, "Number"),
    "fewer than none": ({"count": "-3"}, "Number"),
    "no number": ({"count": "two"}, "Number"),
    "half a device": ({"count": "1.5"}, "Number"),
    "nothing as the number": ({"count": ""}, "Number"),
    "a name that is taken": ({"name": "taken"}, "Name"),
    "a name that none may have": ({"name": "My pod"}, "Name"),
    "a name that is too long": ({"name": "x" * 254}, "Name"),
    "a namespace of others": ({"namespace": "team-b"}, "Namespace"),
    "a namespace that does not exist": ({"namespace": "nowhere"}, "Namespace"),
    "a class whose name none may have": ({"class": "No class"}, "Class"),
    "no device, but a name that is taken": ({"devices": "none", "name": "taken"}, "Name"),
    "a source that there is not": ({"devices": "magic"}, "Devices"),
}


@pytest.mark.parametrize("case", PREVIEWED)
def test_the_preview_is_about_the_values_as_they_stand(member: Client, cluster: Cluster, case: str) -> None:
    fields, complains = PREVIEWED[case]
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(devices=make_devices(40)))
    cluster.create(make_pod("taken", namespace="team-a"))
    revision = latest_revision()
    answer = member.post("/pods/new/made", {**FORM, "class": "gpu.example.com", "count": "1", **fields})
    started = answer.context["started"]
    assert answer.status_code == 200
    assert started.good == (not complains)
    assert [one.partition(":")[0] for one in started.problems] == ([complains] if complains else [])
    for problem in started.problems:
        assert problem.replace("`", "") in said(f"<main{answer.content.decode()}</main>")
    assert latest_revision() == revision


def test_the_preview_says_why_a_pod_would_wait_that_can_be_created(member: Client, cluster: Cluster) -> None:
    cluster.create(make_node("node-1"))
    cluster.create(make_slice(node="node-1", devices=make_devices(2)))
    unmet = {"count": "2", "together": PCIE}
    for fields in ({"count": "3"}, unmet, {"class": "gone"}, {"devices": "template", "template": "gone"}):
        answer = member.post("/pods/new/made", {**FORM, "class": "gpu.example.com", **fields})
        started = answer.context["started"]
        assert not started.good
        assert started.title
        assert IMAGINED not in started.title
