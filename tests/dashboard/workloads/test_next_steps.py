"""Every next step does what it says: random clusters and waiting pods, and each step that a page offers is taken."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from django.test import Client
from msgspec import structs

from claims.causes.next_steps import UNKNOWN
from claims.kinds.containers import ResourceRequirements
from claims.kinds.pods import Pod, PodSchedulingGate
from claims.kinds.resource_claims import DeviceConstraint, DeviceRequest, ResourceClaim
from claims.quotas import QuotaExceeded
from dashboard.workloads.next_steps import StepLine
from insight.advice import (
    AddNode,
    Await,
    CreateClaim,
    CreateClass,
    RaiseQuota,
    RemoveGates,
    Repair,
    Request,
    ServeResource,
    Step,
    advice_of,
)
from inventory.kinds.devices import Device, DeviceClass, DeviceTaintRule, ResourceSlice
from inventory.kinds.nodes import Taint
from manciple.wire.errors import Conflict
from scheduling.rehearsal.explanations import explain_pod, pod_document
from scheduling.rehearsal.repairs import (
    ClosedNode,
    ForgottenClaim,
    IncompletePool,
    TaintedDevices,
    TaintingRule,
    read_mendings,
)
from tests.builders import (
    DRIVER,
    make_alternative,
    make_alternatives,
    make_claim,
    make_class,
    make_constraint,
    make_container,
    make_device,
    make_device_taint,
    make_meta,
    make_node,
    make_pod,
    make_quota,
    make_request,
    make_slice,
    make_template,
)
from tests.dashboard import texts
from tests.dashboard.browsing import close_words as words_of_page
from tests.dashboard.browsing import member, said, signed_in
from tests.scheduling.cluster import Cluster, with_spec

PCIE = "resource.kubernetes.io/pcieRoot"
RESOURCE = "nvidia.com/gpu"
MODELS = ("a100", "h100")


@pytest.fixture(autouse=True)
def in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests leaves out no step."""
    monkeypatch.setattr("insight.advice.BUDGET", 60.0)
    monkeypatch.setattr("insight.offers.BUDGET", 60.0)
    monkeypatch.setattr("insight.advice.PATIENCE", 60.0)
    monkeypatch.setattr("scheduling.rehearsal.repairs.BUDGET", 60.0)


# A random cluster -----------------------------------------------------------------------------------------------------


def _of_model(model: str) -> str:
    return f'device.attributes["{DRIVER}"].model == "{model}"'


def _build(cluster: Cluster, seed: int) -> None:
    """Nodes with devices of two models, some held, some tainted, perhaps a cordon and a quota; then pods that ask."""
    chance = random.Random(seed)
    cluster.create(make_class("any"))
    for model in MODELS:
        cluster.create(make_class(model, expressions=[_of_model(model)]))
    for number in range(1, chance.randint(2, 4)):
        name = f"node-{number}"
        labels = {"zone": chance.choice("ab")}
        cluster.create(make_node(name, labels=labels, unschedulable=chance.random() < 0.15))
        tainted = [make_device_taint("example.com/broken")] if chance.random() < 0.15 else []
        model, count = chance.choice(MODELS), chance.randint(1, 6)
        devices = [
            make_device(
                f"gpu-{at}",
                attributes={"model": model, "index": at, PCIE: f"root-{at // 2}"},
                taints=tainted,
            )
            for at in range(count)
        ]
        cluster.create(make_slice(node=name, devices=devices, slices=chance.choice((1, 1, 1, 1, 2))))
    for number in range(chance.randint(0, 3)):
        name = f"holds-{number}"
        cluster.create(make_claim(name, requests=[make_request(device_class="any", count=chance.randint(1, 3))]))
        cluster.create(make_pod(name, claims={"gpu": name}))
        cluster.settle()
    if chance.random() < 0.3:
        key = chance.choice(("count/resourceclaims.resource.k8s.io", "any.deviceclass.resource.k8s.io/devices"))
        cluster.create(make_quota({key: str(chance.randint(1, 3))}))
    for number in range(chance.randint(1, 2)):
        with suppress(QuotaExceeded):
            _asks(cluster, f"asks-{number}", chance)
    cluster.settle()
    cluster.retry()


def _asks(cluster: Cluster, name: str, chance: random.Random) -> None:
    spec: dict[str, Any] = {}
    if chance.random() < 0.15:
        spec["node_selector"] = {"zone": chance.choice("abc")}
    if chance.random() < 0.1:
        spec["scheduling_gates"] = (PodSchedulingGate(name="example.com/later"),)
    sort = chance.choice(("template", "template", "claim", "extended", "cpu", "no claim", "no template"))
    if sort in ("extended", "cpu"):
        wants = {RESOURCE: str(chance.randint(1, 3))} if sort == "extended" else {"cpu": chance.choice(("4", "12"))}
        container = make_container()
        resources = ResourceRequirements(requests=wants, limits=wants)
        cluster.create(make_pod(name, containers=[structs.replace(container, resources=resources)], **spec))
        return
    requests, constraints = _requests(chance), list[DeviceConstraint]()
    if chance.random() < 0.3:
        attribute = chance.choice((PCIE, PCIE, "resource.kubernetes.io/pcieRot"))
        constraints = [chance.choice((make_constraint(attribute), make_constraint(distinct=attribute)))]
    if sort == "claim":
        cluster.create(make_claim(f"{name}-claim", requests=requests, constraints=constraints))
        cluster.create(make_pod(name, claims={"gpu": f"{name}-claim"}, **spec))
    elif sort == "template":
        cluster.create(make_template(f"{name}-wants", requests=requests, constraints=constraints))
        cluster.create(make_pod(name, templates={"gpu": f"{name}-wants"}, **spec))
    elif sort == "no claim":
        cluster.create(make_pod(name, claims={"gpu": "nowhere"}, **spec))
    else:
        cluster.create(make_pod(name, templates={"gpu": "nowhere"}, **spec))


def _requests(chance: random.Random) -> list[DeviceRequest]:
    return [_request(f"gpu{number}", chance) for number in range(chance.choice((1, 1, 1, 2)))]


def _request(name: str, chance: random.Random) -> DeviceRequest:
    def wishes() -> dict[str, Any]:
        selector = chance.choice((f'device.attributes["{DRIVER}"].index > 1', _of_model("a100")))
        return {
            "device_class": chance.choice(("any", "any", *MODELS, "h1000", "tpu")),
            "count": chance.choice((1, 1, 2, 3, 5, 9)),
            "expressions": [selector] if chance.random() < 0.3 else (),
        }

    if chance.random() < 0.25:
        return make_alternatives(name, make_alternative("first", **wishes()), make_alternative("second", **wishes()))
    return make_request(name, **wishes())


# Taking a step --------------------------------------------------------------------------------------------------------


def _confirmed(client: Client, url: str, uid: str) -> None:
    """As somebody does who reads the preview and presses its button."""
    preview = client.get(url)
    assert preview.status_code == 200, url
    assert not preview.context["preview"].effect.refused
    assert client.post(url, {"uid": uid}).status_code == 302


def _create_class(client: Client, line: StepLine, name: str) -> None:
    assert name in client.get(line.do_url).content.decode()
    assert client.post("/classes/new", {"name": name}).status_code == 302


def _create_claim(client: Client, line: StepLine) -> None:
    text = client.get(line.do_url).context["page"].text.replace("deviceClassName: a100", "deviceClassName: any")
    answer = client.post("/pods/new", {"from": "yaml", "yaml": text, "namespace": "default", "action": "create"})
    assert answer.status_code == 302, said(answer.content.decode())


def _raise(client: Client, line: StepLine) -> None:
    form = client.get(line.do_url).context["form"]
    assert client.post(line.do_url.partition("?")[0] + "/change", dict(form.typed)).status_code == 302


def _repair(cluster: Cluster, trouble: object) -> None:
    match trouble:
        case ClosedNode(node=name):
            cluster.update(with_spec(cluster.node(name), unschedulable=False))
        case TaintingRule(name=name):
            cluster.delete(cluster.get(DeviceTaintRule, name))
        case ForgottenClaim(namespace=namespace, claim=name):
            cluster.delete(cluster.get(ResourceClaim, name, namespace))
        case IncompletePool(pool=name):
            one = next(one for one in cluster.all(ResourceSlice) if one.spec.pool.name == name)
            cluster.update(with_spec(one, pool=structs.replace(one.spec.pool, resource_slice_count=1)))
        case TaintedDevices(driver=driver, taint=key):
            for one in cluster.all(ResourceSlice):
                devices = tuple(
                    structs.replace(device, taints=tuple(taint for taint in device.taints if taint.key != key))
                    for device in one.spec.devices
                )
                if one.spec.driver == driver:
                    cluster.update(with_spec(one, devices=devices))
        case _:
            raise AssertionError(trouble)


def _add_node(cluster: Cluster, like: str) -> None:
    model = cluster.node(like)
    name, labels = f"{like}-more", {**model.metadata.labels, "kubernetes.io/hostname": f"{like}-more"}
    cluster.create(structs.replace(with_spec(model, unschedulable=False), metadata=make_meta(name, "", labels=labels)))
    for one in cluster.all(ResourceSlice):
        if one.spec.node_name == like:
            devices = tuple(structs.replace(device, taints=()) for device in one.spec.devices)
            pool = structs.replace(one.spec.pool, name=name)
            copy = with_spec(one, node_name=name, pool=pool, devices=devices)
            cluster.create(structs.replace(copy, metadata=make_meta(f"{name}-{DRIVER}", "")))


def _take(cluster: Cluster, client: Client, pod: Pod, step: Step, line: StepLine) -> None:
    match step.act:
        case Request():
            _confirmed(client, line.do_url, pod.metadata.uid)
        case ServeResource(device_class=name):
            _confirmed(client, line.do_url, cluster.get(DeviceClass, name).metadata.uid)
        case CreateClass(name=name):
            _create_class(client, line, name)
        case CreateClaim():
            _create_claim(client, line)
        case RaiseQuota():
            _raise(client, line)
        case RemoveGates():
            cluster.update(with_spec(cluster.pod(pod.metadata.name), scheduling_gates=()))
        case Await(pods=pods, claims=claims):
            for namespace, name in pods:
                cluster.delete(cluster.get(Pod, name, namespace))
            for namespace, name in claims:
                cluster.delete(cluster.get(ResourceClaim, name, namespace))
        case AddNode(like=like):
            _add_node(cluster, like)
        case Repair(trouble=trouble):
            _repair(cluster, trouble)
    cluster.settle()
    cluster.retry()
    cluster.retry()


def _steps(client: Client, cluster: Cluster) -> list[tuple[Pod, Step, StepLine]]:
    """Of every waiting pod, what its page offers. All other pages say the same."""
    read_mendings(60.0)
    found = list[tuple[Pod, Step, StepLine]]()
    overview = client.get("/overview").context["reasons"]
    sentences = dict[str, str]()
    for pod in cluster.all(Pod):
        if pod.spec.node_name:
            continue
        verdict = client.get(f"/pods/default/{pod.metadata.name}").context["verdict"]
        explained = explain_pod("default", pod.metadata.name)
        advised = advice_of(explained)
        sentences[pod.metadata.uid] = verdict.next_step
        assert pod_document("default", pod.metadata.name)["nextStep"] == verdict.next_step
        for entry in pod.spec.resource_claims:
            name = entry.resource_claim_name or ""
            if name and cluster.find(ResourceClaim, name):
                sheet = client.get(f"/claims/default/{name}").context["sheet"]
                assert sheet.advice.next_step == verdict.next_step
        assert len(verdict.steps) == min(len(advised.steps), 6)
        found += [(pod, step, line) for step, line in zip(advised.steps, verdict.steps, strict=False)]
    for group in overview:
        if not group.of and group.topic.key != "turn":
            assert group.topic.next_step == sentences[group.pods[0].uid]
    return found


MOST_STEPS = 7


@pytest.mark.sample(24)
@pytest.mark.parametrize("number", range(MOST_STEPS))
@pytest.mark.parametrize("seed", range(60))
def test_each_step_does_what_it_says(cluster: Cluster, seed: int, number: int) -> None:
    _build(cluster, seed)
    admin = signed_in("root", staff=True)
    steps = _steps(admin, cluster)
    if number >= len(steps):
        return
    pod, step, line = steps[number]
    before = explain_pod("default", pod.metadata.name).cause
    _take(cluster, admin, pod, step, line)
    now = cluster.pod(pod.metadata.name)
    if isinstance(step.act, Repair) or step.node:
        assert now.spec.node_name, (line, cluster.why_pending(pod.metadata.name))
        if step.node and not isinstance(step.act, AddNode):
            assert now.spec.node_name == step.node, line
    else:
        explained = explain_pod("default", pod.metadata.name)
        assert explained.cause != before or step not in advice_of(explained).steps, line
    assert cluster.violations() == {}


# The faults that were reported ----------------------------------------------------------------------------------------


def _advised(client: Client, cluster: Cluster, name: str = "asks") -> list[str]:
    """What the page of a pod offers; its next step is the first of it."""
    cluster.settle()
    verdict = client.get(f"/pods/default/{name}").context["verdict"]
    if verdict.steps:
        assert verdict.next_step.startswith(verdict.steps[0].word)
    return [one.word for one in verdict.steps]


@pytest.fixture
def admin(db: None) -> Client:
    return signed_in("ada", staff=True)


def _devices(count: int, *, each_root: int = 1, model: str = "a100") -> list[Device]:
    return [
        make_device(f"gpu-{at}", attributes={"model": model, "index": at, PCIE: f"root-{at // each_root}"})
        for at in range(count)
    ]


def test_as_many_are_advised_as_one_node_can_give_with_the_constraint(cluster: Cluster, admin: Client) -> None:
    cluster.create(make_class())
    for number in range(1, 4):
        cluster.create(make_node(f"node-{number}"))
        cluster.create(make_slice(node=f"node-{number}", devices=_devices(8, each_root=2)))
    cluster.create(make_claim("wants", requests=[make_request(count=22)], constraints=[make_constraint(PCIE)]))
    cluster.create(make_pod("asks", claims={"gpu": "wants"}))
    words = _advised(admin, cluster)
    assert "Ask for 2 devices" in words
    assert not any("21" in word or "8" in word for word in words)


def test_alternatives_are_advised_like_requests_and_changed_with_one_click(cluster: Cluster, admin: Client) -> None:
    cluster.create(make_class())
    cluster.create(make_class("none", expressions=["false"]))
    cluster.create(make_node())
    cluster.create(make_slice(devices=_devices(3)))
    unlike = [_of_model("h100")]
    one = make_alternatives(
        "gpu",
        make_alternative("best", device_class="none", count=2),
        make_alternative("many", count=5),
        make_alternative("other", expressions=unlike),
    )
    cluster.create(make_template("wants", requests=[one]))
    cluster.create(make_pod("asks", templates={"gpu": "wants"}))
    assert any("gpu/other" in word for word in _advised(admin, cluster))
    lines = admin.get("/pods/default/asks").context["verdict"].steps
    (line,) = (line for line in lines if "gpu/many" in line.word)
    assert "count.gpu/gpu/many=3" in line.do_url
    _confirmed(admin, line.do_url, cluster.pod("asks").metadata.uid)
    cluster.settle()
    assert len(cluster.devices(cluster.generated_claim("asks"))) == 3


def test_where_several_classes_are_missing_none_of_them_alone_is_promised_to_do(
    cluster: Cluster, admin: Client
) -> None:
    cluster.with_gpus("node-1", each=4)
    cluster.create(
        make_claim("wants", requests=[make_request("a", device_class="x"), make_request("b", device_class="y")])
    )
    cluster.create(make_pod("asks", claims={"gpu": "wants"}))
    cluster.settle()
    (step,) = (one for one in advice_of(explain_pod("default", "asks")).steps if isinstance(one.act, CreateClass))
    assert not step.node
    assert "`y`" in step.then


def test_the_commonest_request_of_all_gets_a_class_with_one_click(cluster: Cluster, admin: Client) -> None:
    cluster.create(make_class("gpu-a100", expressions=[_of_model("a100")]))
    cluster.create(make_class("nothing", expressions=["false"]))
    cluster.create(make_node())
    cluster.create(make_slice(devices=_devices(2)))
    resources = ResourceRequirements(requests={RESOURCE: "1"}, limits={RESOURCE: "1"})
    cluster.create(make_pod("asks", containers=[structs.replace(make_container(), resources=resources)]))
    words = _advised(admin, cluster)
    assert "`gpu-a100`" in words[0]
    assert f"`{RESOURCE}`" in words[0]
    assert not any("nothing" in word for word in words)
    (line, *_) = admin.get("/pods/default/asks").context["verdict"].steps
    preview = admin.get(line.do_url).context["preview"]
    assert [links for one in preview.effect.consequences for links, _ in one.links] == ["default/asks"]
    _confirmed(admin, line.do_url, cluster.get(DeviceClass, "gpu-a100").metadata.uid)
    cluster.settle()
    assert cluster.get(DeviceClass, "gpu-a100").spec.extended_resource_name == RESOURCE
    assert cluster.pod("asks").spec.node_name == "node-1"
    assert signed_in("looker").get(line.do_url).status_code == 403


def test_a_class_that_serves_something_is_given_no_other_name(cluster: Cluster, admin: Client) -> None:
    device_class = cluster.create(make_class("gpu"))
    cluster.update(with_spec(device_class, extended_resource_name="amd.com/gpu"))
    uid, url = device_class.metadata.uid, f"/classes/c/gpu/serve?resource={RESOURCE}"
    assert "amd.com/gpu" in admin.get(url).context["preview"].effect.refused
    admin.post(url, {"uid": uid})
    for path in ("/classes/c/gpu/serve", "/classes/c/gpu/serve?resource=no+resource"):
        cluster.update(with_spec(cluster.get(DeviceClass, "gpu"), extended_resource_name=None))
        assert admin.get(path).status_code in (200, 409)
        admin.post(path, {"uid": uid})
        assert not cluster.get(DeviceClass, "gpu").spec.extended_resource_name


def test_a_claim_that_a_quota_refuses_is_not_created_within_seconds(cluster: Cluster, admin: Client) -> None:
    cluster.with_gpus("node-1", each=4)
    cluster.create(make_quota({"count/resourceclaims.resource.k8s.io": "1"}))
    cluster.create(make_claim("other"))
    cluster.create(make_template("wants"))
    cluster.create(make_pod("asks", templates={"gpu": "wants"}))
    words = _advised(admin, cluster)
    assert [part for part in words[0].split("`") if "/" in part or part in ("most", " to 2")] == [
        "count/resourceclaims.resource.k8s.io", "most", " to 2",
    ]  # fmt: skip
    (group,) = admin.get("/overview").context["reasons"]
    assert "`most`" in group.sentence
    assert group.button[1].startswith("/quotas/default/most?try=1&")
    assert "within seconds" not in group.topic.next_step
    for listed in ("/pods", "/pods?state=Waiting&ns=default"):
        reasons = {row.name: row.reason for row in admin.get(listed).context["table"].rows}
        assert "`most`" in reasons["asks"], "a list says what the pod's page says"


def test_a_limit_is_raised_for_all_pods_that_it_refuses(cluster: Cluster, admin: Client) -> None:
    """Nobody knows whose claims are created first."""
    cluster.with_gpus("node-1", each=4)
    cluster.create(make_quota({"count/resourceclaims.resource.k8s.io": "1"}))
    cluster.create(make_claim("other"))
    cluster.create(make_template("wants"))
    for name in ("asks", "also", "besides"):
        cluster.create(make_pod(name, templates={"gpu": "wants"}))
    words = _advised(admin, cluster)
    assert words[0].endswith("`most` to 4")
    (line, *_) = admin.get("/pods/default/asks").context["verdict"].steps
    _raise(admin, line)
    cluster.settle()
    cluster.retry()
    assert all(cluster.pod(name).spec.node_name for name in ("asks", "also", "besides"))


def test_nobody_is_told_to_create_what_a_quota_refuses(cluster: Cluster, admin: Client) -> None:
    cluster.with_gpus("node-1", each=4)
    cluster.create(make_quota({"count/resourceclaims.resource.k8s.io": "1"}))
    cluster.create(make_claim("other"))
    cluster.create(make_pod("asks", claims={"gpu": "nowhere"}))
    words = _advised(admin, cluster)
    assert [word.split()[0] for word in words] == ["Raise"]
    (line, *_) = admin.get("/pods/default/asks").context["verdict"].steps
    assert "`nowhere`" in line.follows
    _raise(admin, line)
    assert [word.split()[0] for word in _advised(admin, cluster)] == ["Create"]


def test_what_could_not_be_tried_is_said_to_be_unknown_and_tried_again(
    cluster: Cluster, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.with_gpus("node-1", each=4)
    cluster.create(make_quota({"count/resourceclaims.resource.k8s.io": "1"}))
    cluster.create(make_claim("other"))
    cluster.create(make_template("wants"))
    cluster.create(make_pod("asks", templates={"gpu": "wants"}))
    cluster.settle()

    def conflict(*_: object) -> None:
        raise Conflict.of("resourcequotas", "most")

    with monkeypatch.context() as busy:
        busy.setattr("insight.advice.raises_for", conflict)
        assert admin.get("/pods/default/asks").context["verdict"].next_step == UNKNOWN
        admin.get("/overview")
    assert _advised(admin, cluster)[0].startswith("Raise")
    assert admin.get("/overview").context["reasons"][0].topic.next_step.startswith("Raise")


def test_as_many_holders_have_to_end_as_devices_are_needed(cluster: Cluster, admin: Client) -> None:
    cluster.with_gpus("node-1", each=4)
    for number in range(4):
        cluster.create(make_claim(f"held-{number}"))
        cluster.create(make_pod(f"holds-{number}", claims={"gpu": f"held-{number}"}))
    cluster.create(make_claim("wants", requests=[make_request(count=3)]))
    cluster.create(make_pod("asks", claims={"gpu": "wants"}))
    (words,) = (one for one in _advised(admin, cluster) if one.startswith("Wait"))
    assert "3 devices" in words


def test_pods_of_others_are_counted_and_not_named(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_claim("held", namespace="secret"))
    cluster.create(make_pod("holds", namespace="secret", claims={"gpu": "held"}))
    cluster.settle()
    cluster.create(make_claim("wants"))
    cluster.create(make_pod("asks", claims={"gpu": "wants"}))
    words = _advised(member("mia", "default"), cluster)
    assert not any("secret" in word or "holds" in word for word in words)
    assert any("1 pod on `node-1`" in word for word in words)
    assert "secret" not in str(pod_document("default", "asks")["nextStep"])


def test_nobody_is_sent_to_a_node_on_which_nothing_runs(cluster: Cluster, admin: Client) -> None:
    cluster.create(
        make_node("node-1", ready=False, taints=[Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule")])
    )
    cluster.create(make_pod("asks"))
    assert not any("tolerat" in word.casefold() for word in _advised(admin, cluster))


def test_a_constraint_with_a_wrong_name_is_mended_with_one_click(cluster: Cluster, admin: Client) -> None:
    cluster.create(make_class())
    cluster.create(make_node())
    cluster.create(make_slice(devices=_devices(4, each_root=2)))
    constraint = make_constraint("resource.kubernetes.io/pcieRot")
    cluster.create(make_template("wants", requests=[make_request(count=2)], constraints=[constraint]))
    cluster.create(make_pod("asks", templates={"gpu": "wants"}))
    words = _advised(admin, cluster)
    mends = next(number for number, word in enumerate(words) if f"Use attribute `{PCIE}`" in word)
    line = admin.get("/pods/default/asks").context["verdict"].steps[mends]
    assert admin.get(line.try_url).context["verdict"].good
    _confirmed(admin, line.do_url, cluster.pod("asks").metadata.uid)
    cluster.settle()
    assert cluster.pod("asks").spec.node_name == "node-1"
    (made,) = cluster.all(ResourceClaim)
    assert made.spec.devices.constraints[0].match_attribute == PCIE


def _keep_room(cluster: Cluster, *, others: int = 1, namespace: str = "default") -> None:
    """One device came free, and is kept for `large`, which wants as many as `stays` holds."""
    for name, count in (("leaves", 1), ("stays", others)):
        cluster.create(make_claim(name, requests=[make_request(count=count)]))
        cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.settle()
    wants = [make_request(count=max(others, 2))]
    cluster.create(make_claim("large", namespace=namespace, requests=wants))
    cluster.create(make_pod("large", namespace=namespace, claims={"gpu": "large"}))
    cluster.settle()
    cluster.later(70)
    cluster.finish("leaves")
    cluster.settle()
    assert cluster.get(Pod, "large", namespace).status.nominated_node_name == "node-1"


def test_a_pod_awaits_only_those_that_end_before_it_can_start(cluster: Cluster, admin: Client) -> None:
    """Room that is kept for the pod that has waited longest counts in each rehearsal, not in the first alone."""
    cluster.with_gpus("node-1", each=4)
    _keep_room(cluster, others=3)
    cluster.create(make_claim("wants"))
    cluster.create(make_pod("asks", claims={"gpu": "wants"}))
    (words,) = (one for one in _advised(admin, cluster) if one.startswith("Wait"))
    assert "`default/stays`" in words
    assert "kept for pod default/large" in words_of_page(admin, "/pods/default/asks")


def test_of_what_is_kept_for_a_pod_of_others_no_name_is_said(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    _keep_room(cluster, namespace="secret")
    cluster.create(make_claim("wants"))
    cluster.create(make_pod("asks", claims={"gpu": "wants"}))
    cluster.settle()
    page = words_of_page(member("mia", "default"), "/pods/default/asks")
    assert texts.KEPT_FOR_SOMEBODY in page
    assert "secret" not in page
    assert "large" not in page


def test_names_in_the_table_of_nodes_are_set_as_code(cluster: Cluster, admin: Client) -> None:
    cluster.create(make_class())
    cluster.create(make_node())
    cluster.create(make_slice(devices=_devices(4, each_root=2)))
    cluster.create(make_claim("wants", requests=[make_request(count=4)], constraints=[make_constraint(PCIE)]))
    cluster.create(make_pod("asks", claims={"gpu": "wants"}))
    cluster.settle()
    page = words_of_page(admin, "/pods/default/asks")
    assert page.count(f"with the same {PCIE}") > 1
    assert "`" not in page
