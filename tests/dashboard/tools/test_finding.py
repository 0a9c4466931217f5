"""Finding things by their name: the best first, and only what the person may see."""

from __future__ import annotations

import html
import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from claims.kinds.pods import Pod
from dashboard.tools import manual
from dashboard.tools.find import EXACT, PART, PREFIX, Sought, search
from inventory.kinds.devices import DeviceTaint
from inventory.kinds.nodes import Taint
from manciple.access.kinds.roles import CLUSTER_ROLE, ClusterRole
from manciple.api.namespaces import ensure_namespaces
from manciple.people import person_of_user
from manciple.store import objects
from manciple.wire.base import ObjectMeta
from manciple.wire.registry import registry
from networking.kinds.services import Service
from tests.builders import (
    make_claim,
    make_class,
    make_device,
    make_devices,
    make_namespace,
    make_node,
    make_pod,
    make_quota,
    make_slice,
    make_template,
)
from tests.dashboard import texts
from tests.dashboard.browsing import admin, signed_in, viewer, words
from tests.scheduling.cluster import Cluster, with_spec
from tests.workloads.cluster import (
    make_cron_job,
    make_daemon_set,
    make_deployment,
    make_job,
    make_replica_set,
    make_stateful_set,
)
from tests.workloads.test_horizontal_pod_autoscalers import make_autoscaler
from workloads.kinds.jobs import JOB

__all__ = ["admin", "viewer"]

RANKS = {
    ("llama", "llama", ""): EXACT,
    ("LLAMA", "llama", ""): EXACT,
    ("llama", "llama-7b", ""): PREFIX,
    ("lama", "llama", ""): PART,
    ("camel", "llama", ""): None,
    ("lab/llama", "llama", "lab"): EXACT,
    ("la/llama", "llama", "lab"): PREFIX,
    ("den/llama", "llama", "lab"): None,
    ("lab/", "llama", "lab"): PREFIX,
}


@pytest.mark.parametrize("case", RANKS)
def test_how_well_a_name_fits(case: tuple[str, str, str]) -> None:
    text, name, place = case
    assert Sought(text).rank(name, place) == RANKS[case]


@pytest.fixture
def lab(cluster: Cluster) -> Cluster:
    """One thing of each kind whose name holds `alpha`."""
    cluster.create(make_namespace("alpha-lab"))
    cluster.create(make_node("alpha-1"))
    cluster.create(make_slice(node="alpha-1", driver="alpha.example.com", devices=make_devices(2)))
    cluster.create(make_claim("my-alpha", namespace="alpha-lab"))
    cluster.create(make_template("alpha-template", namespace="alpha-lab"))
    cluster.create(make_pod("alpha", namespace="alpha-lab"))
    return cluster


def sections(client: Client, text: str) -> dict[str, list[str]]:
    """title -> what was found, in order."""
    page = client.get("/find", {"q": text}).content.decode()
    parts = re.split(r'<section class="sheet mb"', page)[1:]
    plain = {re.sub(r"<[^>]*>", "", re.findall(r"<h2[^>]*>(.*?)</h2>", part)[0]): part for part in parts}
    return {
        title: [re.sub(r"<[^>]*>", "", one) for one in re.findall(r'<a class="ent"[^>]*>(.*?)</a>', part)]
        for title, part in plain.items()
    }


def test_the_best_match_comes_first_within_a_kind(viewer: Client, cluster: Cluster) -> None:
    for name in ("a-web", "web", "web-2", "aa-web"):
        cluster.create(make_pod(name))
    assert sections(viewer, "web")["Pods"] == ["web", "web-2", "a-web", "aa-web"]


DEVICES = {
    "gpu-1": ["alpha-1 / gpu-1"],
    "alpha-1 / gpu-0": ["alpha-1 / gpu-0"],
    "alpha.example.com/alpha-1/gpu-0": ["alpha-1 / gpu-0"],
    "alpha-1/": ["alpha-1 / gpu-0", "alpha-1 / gpu-1"],
}


def test_every_kind_is_found_by_its_name_and_a_device_as_it_is_shown(viewer: Client, lab: Cluster) -> None:
    assert sections(viewer, "alpha") == {
        "Pods": ["alpha"],
        "Claim templates": ["alpha-template"],
        "Nodes": ["alpha-1"],
        "Drivers": ["alpha.example.com"],
        "Namespaces": ["alpha-lab"],
        "Devices": ["alpha-1 / gpu-0", "alpha-1 / gpu-1"],
        "Claims": ["my-alpha"],
    }
    assert {text: sections(viewer, text)["Devices"] for text in DEVICES} == DEVICES


#: words -> section -> what is found
SEVERAL = {
    "gpu-1 alpha": ("Devices", ["alpha-1 / gpu-1"]),
    "alpha gpu": ("Devices", ["alpha-1 / gpu-0", "alpha-1 / gpu-1"]),
    "a100 alpha-2": ("Devices", ["alpha-2 / nic-0"]),
    "GPU example.com 1": ("Devices", ["alpha-1 / gpu-0", "alpha-1 / gpu-1"]),
    "lab my": ("Claims", ["my-alpha"]),
    "template alpha-lab": ("Claim templates", ["alpha-template"]),
    "alpha zone=b": ("Nodes", ["alpha-2"]),
    "small lab": ("Quotas", ["small"]),
    "pods alpha-lab": ("Quotas", ["small"]),
    "alpha-lab": ("Quotas", ["small"]),
    "camel alpha": ("Devices", []),
    "gpu-1 alpha-2": ("Devices", []),
}


def test_several_words_may_stand_in_any_field(admin: Client, lab: Cluster) -> None:
    lab.create(make_node("alpha-2", labels={"zone": "b"}))
    other = make_device("nic-0", attributes={"model": "A100"})
    lab.create(make_slice(node="alpha-2", driver="beta.example.com", devices=[other]))
    lab.create(make_quota({"pods": "3"}, name="small", namespace="alpha-lab"))
    found = {text: (title, sections(admin, text).get(title, [])) for text, (title, _) in SEVERAL.items()}
    assert found == SEVERAL


def test_the_words_of_a_name_find_it_first(admin: Client, lab: Cluster) -> None:
    lab.create(make_node("gpu-a17"))
    lab.create(make_slice(node="gpu-a17", devices=[make_device("gpu-0")]))
    assert next(iter(sections(admin, "gpu a17").items())) == ("Nodes", ["gpu-a17"])


def test_administrators_find_people_and_nobody_else_does(admin: Client, viewer: Client, lab: Cluster) -> None:
    signed_in("zoe", "namespace:alpha-lab")
    assert [sections(admin, text).get("People") for text in ("zo", "zoe alpha-lab", "zoe beta")] == [
        ["zoe"],
        ["zoe"],
        None,
    ]
    assert "People" not in sections(viewer, "zoe")


def test_roles_and_pages_of_the_manual_are_found_by_their_names(admin: Client, lab: Cluster) -> None:
    lab.create(
        ClusterRole(
            api_version=CLUSTER_ROLE.api_version, kind=CLUSTER_ROLE.kind, metadata=ObjectMeta(name="gpu-keeper")
        )
    )
    assert sections(admin, "gpu-keep")["Roles"] == ["gpu-keeper"]
    assert "Roles" not in sections(signed_in("mia", "namespace:other"), "gpu-keep")
    assert sections(admin, "monitor")["Manual"] == ["Monitoring"]
    found = admin.get("/find", {"q": "gpu-keep"}).context["sections"]
    assert [hit.url for section in found for hit in section.found] == ["/roles/gpu-keeper"]
    assert {manual.title_of(name) for name in manual.NAMES}.isdisjoint(manual.NAMES), "each has a heading"


def test_quotas_are_found_by_those_who_may_read_them(admin: Client, lab: Cluster) -> None:
    lab.create(make_quota({"pods": "3"}, name="small", namespace="alpha-lab"))
    assert sections(admin, "small")["Quotas"] == ["small"]
    assert "Quotas" not in sections(signed_in("mia", "namespace:other"), "small")


def test_classes_stand_before_templates(admin: Client, lab: Cluster) -> None:
    lab.create(make_class("alpha-class"))
    titles = list(sections(admin, "alpha-"))
    assert titles.index("Classes") < titles.index("Claim templates")


GOES = {
    "q=alpha-1&go=1": "/nodes/alpha-1",
    "q=ALPHA-LAB&go=1": "/namespaces/alpha-lab",
    "q=alpha-lab/alpha&go=1": "/pods/alpha-lab/alpha",
    "q=alpha-1+/+gpu-0&go=1": "/devices/d/alpha.example.com/alpha-1/gpu-0",
    "q=alpha-&go=1": None,
    "q=alpha-1": None,
    "q=nothing&go=1": None,
}


def test_a_match_that_is_exact_and_alone_opens(viewer: Client, lab: Cluster) -> None:
    assert {query: viewer.get(f"/find?{query}").headers.get("Location") for query in GOES} == GOES
    lab.create(make_claim("alpha", namespace="alpha-lab"))
    assert viewer.get("/find?q=alpha&go=1").status_code == 200, "there are two to choose from"


def test_a_namespace_narrows_and_only_what_one_may_see_is_found(viewer: Client, lab: Cluster) -> None:
    lab.create(make_pod("alpha", namespace="away"))
    assert "away" not in words(viewer, "/find?q=alpha-lab/alpha")
    mia = signed_in("mia", "namespace:other")
    assert set(sections(mia, "alpha")) == {"Nodes", "Drivers", "Devices"}
    assert mia.get("/find?q=alpha-lab/alpha&go=1").status_code == 200
    uid = lab.get(Pod, "alpha", "alpha-lab").metadata.uid
    assert sections(viewer, uid)["UIDs"] == sections(viewer, uid[:13])["UIDs"] == [uid]
    assert "UIDs" not in sections(mia, uid)


def test_of_many_the_first_are_shown_with_a_bounded_number_of_queries(viewer: Client, cluster: Cluster) -> None:
    person = person_of_user(viewer.get("/find").wsgi_request.user)
    with CaptureQueriesContext(connection) as few:
        search("web", person)
    for index in range(30):
        cluster.create(make_pod(f"web-{index}"))
    with CaptureQueriesContext(connection) as many:
        (section,) = search("web", person)
    assert (len(section.found), section.more) == (20, True)
    assert len(many) <= len(few)
    assert texts.FIND_ONLY_THE_FIRST(20) in words(viewer, "/find?q=web")


# By what things have -------------------------------------------------------------------------------------------------


@pytest.fixture
def hardware(cluster: Cluster) -> Cluster:
    """Two devices with a UUID each and one model, one of them tainted, on a node with a label and a taint."""
    devices = [
        make_device(
            f"gpu-{number}",
            attributes={"uuid": f"GPU-{number}f3a", "pciAddress": f"0000:4{number}:00.0", "model": "Hopper"},
            taints=(DeviceTaint(key="lab/repair", value="fan", effect="NoSchedule"),) * number,
        )
        for number in range(2)
    ]
    node = make_node("box-1", labels={"rack": "r_7"})
    cluster.create(with_spec(node, taints=(Taint(key="lab/moving", effect="NoSchedule"),)))
    cluster.create(make_slice(node="box-1", devices=devices))
    return cluster


VALUES = {
    "GPU-1f3": ("Device attributes", ["GPU-1f3a"], "/devices/d/gpu.example.com/box-1/gpu-1"),
    "0000:40": ("Device attributes", ["0000:40:00.0"], "/devices/d/gpu.example.com/box-1/gpu-0"),
    "hopper": ("Device attributes", ["Hopper"], "/devices?attr=model%3AHopper"),
    "repair": ("Taints", ["lab/repair=fan:NoSchedule"], "/devices/d/gpu.example.com/box-1/gpu-1"),
    "lab/moving": ("Taints", ["lab/moving:NoSchedule"], "/nodes/box-1"),
    "rack=r_7": ("Labels", ["rack=r_7"], "/nodes/box-1"),
}


def test_a_thing_is_found_by_what_it_has_and_by_no_pattern(viewer: Client, hardware: Cluster) -> None:
    for text, (title, found, url) in VALUES.items():
        assert sections(viewer, text)[title] == found, text
        assert f'href="{url}"' in viewer.get("/find", {"q": text}).content.decode(), text
    for text in ("rack=r.7", "rack=%", "gpu-%f3a", '"rack"'):
        assert not {"Labels", "Device attributes"} & set(sections(viewer, text)), text


# Doing something -----------------------------------------------------------------------------------------------------


def done(client: Client, text: str) -> list[str]:
    """Where the verbs that are offered lead."""
    answer = client.get("/find/suggestions", {"q": text}).content.decode()
    part = re.search(r'aria-label="Do">(.*?)</div>\s*(?:<div role="group"|</div>|$)', answer, re.DOTALL)
    return [html.unescape(url) for url in re.findall(r'<a [^>]*href="([^"]*)"', part[1])] if part else []


DONE = {
    "drain alpha-1": ["/nodes/alpha-1?change=drain"],
    "alpha-1 drain": ["/nodes/alpha-1?change=drain"],
    "cordon alpha-1 / gpu-0": ["/devices/act/cordon?at=alpha.example.com%2Falpha-1%2Fgpu-0"],
    "delete alpha-lab/alpha": ["/pods/alpha-lab/alpha/delete", "/claims/alpha-lab/my-alpha/delete"],
    "dup alpha": ["/pods/new?like=alpha-lab/alpha"],
    "logs alpha": ["/pods/alpha-lab/alpha?tab=logs"],
    "new po": ["/pods/new"],
    "dra": ["/find?q=drain+"],
    "drain nothing": [],
}


def test_a_verb_leads_to_what_it_would_do(admin: Client, lab: Cluster) -> None:
    for text, expected in DONE.items():
        found = done(admin, text)
        assert found[: len(expected)] == expected, text
        assert bool(found) == bool(expected), text


def test_nobody_is_offered_what_they_may_not_do(viewer: Client, lab: Cluster) -> None:
    for text in ("drain alpha-1", "delete alpha", "new pod", "taint alpha-1", "release my-alpha"):
        assert done(viewer, text) == [], text
    assert done(viewer, "yaml alpha-1")[:1] == ["/yaml/nodes/alpha-1"]
    assert done(signed_in("mia", "namespace:other"), "delete alpha") == []


def test_places_are_found_by_the_beginning_of_a_word(viewer: Client, db: None) -> None:
    assert sections(viewer, "rul")["Go to"] == ["Taint rules"]
    assert viewer.get("/find?q=timeline&go=1")["Location"] == "/timeline"
    assert "Go to" not in sections(viewer, "audit")


def test_suggestions_are_few_of_each_kind(viewer: Client, cluster: Cluster) -> None:
    for index in range(9):
        cluster.create(make_pod(f"web-{index}"))
    answer = viewer.get("/find/suggestions?q=web").content.decode()
    assert len(re.findall(r'href="/pods/default/web-\d"', answer)) == 5
    assert 'href="/find?q=web"' in answer, "the page has all of them"
    assert 'class="nothing"' in viewer.get("/find/suggestions?q=no-such").content.decode()


# Workloads, and what is done to them ----------------------------------------------------------------------------------


@pytest.fixture
def shop(cluster: Cluster) -> Cluster:
    """A workload of each kind, an autoscaler, a Service and a pod; the names of all begin with `x-`."""
    ensure_namespaces()
    workloads = (
        make_deployment("x-deploy", replicas=0),
        make_replica_set("x-set", replicas=0),
        make_stateful_set("x-stateful", replicas=0),
        make_daemon_set("x-daemon"),
        make_job("x-job", parallelism=0),
        make_cron_job("x-cron"),
        make_autoscaler("x-scaler"),
        Service(api_version="v1", kind="Service", metadata=ObjectMeta(name="x-service", namespace="default")),
    )
    with objects.writing() as writer:
        for one in workloads:
            kind = next(found for found in registry if found.kind == one.kind)
            made = kind.prepare_create(one)
            writer.create(kind, JOB.identified(made) if kind is JOB else made)
    cluster.create(make_pod("x-pod"))
    return cluster


W = "/workloads"
#: what is typed -> the address of what is done, which comes first
MEANT = {
    "scale deployment x-deploy": f"{W}/deployments/default/x-deploy/scale",
    "scale deploy x-deploy": f"{W}/deployments/default/x-deploy/scale",
    "scale x-deploy": f"{W}/deployments/default/x-deploy/scale",
    "x-deploy scale": f"{W}/deployments/default/x-deploy/scale",
    "Scale the Deployment x-deploy": f"{W}/deployments/default/x-deploy/scale",
    "scale default/x-deploy": f"{W}/deployments/default/x-deploy/scale",
    "scale statefulset x-stateful": f"{W}/statefulsets/default/x-stateful/scale",
    "scale sts x-stateful": f"{W}/statefulsets/default/x-stateful/scale",
    "scale rs x-set": f"{W}/replicasets/default/x-set/scale",
    "restart daemonset x-daemon": f"{W}/daemonsets/default/x-daemon/restart",
    "pause deployment x-deploy": f"{W}/deployments/default/x-deploy/pause",
    "rerun job x-job": f"{W}/jobs/default/x-job/rerun",
    "rerun x-job": f"{W}/jobs/default/x-job/rerun",
    "stop job x-job": f"{W}/jobs/default/x-job/stop",
    "suspend job x-job": f"{W}/jobs/default/x-job/stop",
    "extend job x-job": f"{W}/jobs/default/x-job/extend",
    "suspend cronjob x-cron": f"{W}/cronjobs/default/x-cron/suspend",
    "suspend cj x-cron": f"{W}/cronjobs/default/x-cron/suspend",
    "run cronjob x-cron": f"{W}/cronjobs/default/x-cron/run",
    "resume cronjobs x-cron": f"{W}/cronjobs/default/x-cron/resume",
    "delete job x-job": f"{W}/jobs/default/x-job/delete",
    "logs of pod x-pod": "/pods/default/x-pod?tab=logs",
    "logs pod x-pod": "/pods/default/x-pod?tab=logs",
    "logs x-pod": "/pods/default/x-pod?tab=logs",
    "history hpa x-scaler": "/autoscalers/default/x-scaler?tab=history",
    "yaml svc x-service": "/yaml/services/x-service?ns=default",
    "history deployment x-deploy": f"{W}/deployments/default/x-deploy?tab=history",
}


def meant(client: Client, text: str) -> list[str]:
    """The addresses under "Do"."""
    found = client.get("/find", {"q": text}).context["sections"]
    return [hit.url for section in found if section.title == "Do" for hit in section.found]


@pytest.mark.parametrize("text", MEANT)
def test_what_is_done_to_workloads_is_found(text: str, admin: Client, shop: Cluster) -> None:
    urls = meant(admin, text)
    assert urls[:1] == [MEANT[text]], urls
    assert len(urls) == len(set(urls))
    assert admin.get(MEANT[text]).status_code == 200


def test_nothing_is_offered_that_one_may_not_do(viewer: Client, shop: Cluster) -> None:
    offered = {url.partition("?")[2] for text in MEANT for url in meant(viewer, text)}
    assert offered <= {"tab=logs", "tab=history", "ns=default"}
    assert meant(signed_in("sam", "namespace:other"), "scale deployment x-deploy") == []


def test_a_verb_and_a_kind_ask_for_a_name(admin: Client, shop: Cluster) -> None:
    assert meant(admin, "scale deployment") == ["/find?q=scale+"]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("x-deploy", f"{W}/deployments/default/x-deploy"),
        ("deployment x", f"{W}/deployments/default/x-deploy"),
        ("job x", f"{W}/jobs/default/x-job"),
        ("cronjob x", f"{W}/cronjobs/default/x-cron"),
        ("statefulset x", f"{W}/statefulsets/default/x-stateful"),
        ("daemonset x", f"{W}/daemonsets/default/x-daemon"),
        ("x replicaset", f"{W}/replicasets/default/x-set"),
        ("x-scaler", "/autoscalers/default/x-scaler"),
        ("x-service", "/yaml/services/x-service?ns=default"),
    ],
)
def test_workloads_are_found_by_their_kind_and_name(text: str, url: str, admin: Client, shop: Cluster) -> None:
    found = [hit.url for section in admin.get("/find", {"q": text}).context["sections"] for hit in section.found]
    assert url in found
