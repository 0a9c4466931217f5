"""No page contradicts itself, another page, or what the scheduler would do."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from insight.class_summary import read_stock
from manciple.wire.resources import CLASSES
from tests.builders import (
    CLASS,
    make_claim,
    make_class,
    make_container,
    make_device,
    make_node,
    make_pod,
    make_request,
    make_slice,
)
from tests.claims.devices.scene import put
from tests.dashboard import texts
from tests.dashboard.browsing import member, words
from tests.dashboard.claim_scene import later, pages, runs, wants
from tests.scheduling.cluster import Cluster

__all__ = ["later", "pages"]

DRIVER = "gpu.example.com"
BROKEN = 'device.driver == "gpu.example.com" && device.drivr == 1'


def context(client: Client, path: str) -> Any:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.context


# A selector that does not compile -------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [BROKEN, "device.driver ==", '"a" < 1'])
def test_nothing_is_free_through_a_class_whose_selector_does_not_compile(
    pages: Client, cluster: Cluster, broken: str
) -> None:
    cluster.with_gpus("node-1", each=3)
    put(make_class("broken", expressions=[f'device.driver == "{DRIVER}"', broken]))  # as an older version stored it
    (row,) = (one for one in context(pages, "/classes")["table"].rows if one.name == "broken")
    assert (row.matched, row.count.free, row.count.fits, row.bar) == (0, 0, 0, [])
    (row,) = (one for one in context(pages, "/overview")["classes"] if one.name == "broken")
    assert (row.free, row.total, bool(row.complaint)) == (0, 0, True)
    (said,) = context(pages, "/devices?class=broken")["page"].class_counts
    assert " free" not in said
    assert "does not compile" in said
    for bench in (
        context(pages, "/classes/c/broken")["bench"],
        pages.post("/classes/verdicts", {"editing": CLASS, "selector": broken}).context["bench"],
        pages.post("/classes/verdicts", {"editing": CLASS, "selector": ["true", broken]}).context["bench"],
    ):
        assert (bench.count.free, bench.count.fits) == (0, 0)
        assert {one.state for one in (*bench.shown, *bench.rest)} <= {None}
        assert "free" not in bench.fits_sentence
        assert not bench.effects
    shown = pages.post("/classes/verdicts", {"editing": CLASS, "selector": ["true", broken]}).content.decode()
    assert 'data-s="free"' not in shown
    assert "broken" not in {one.name for one in read_stock(datetime.now(UTC))}, "the new pod's form offers it not"


@pytest.mark.parametrize("broken", [BROKEN, "device.driver =="])
def test_a_filter_that_does_not_compile_counts_and_chooses_nothing(
    pages: Client, cluster: Cluster, broken: str
) -> None:
    cluster.with_gpus("node-1", each=3)
    query = urlencode({"cel": broken})
    page = pages.get(f"/devices?{query}").content.decode()
    assert 'aria-invalid="true"' in page
    assert '<span class="muted">not used</span>' in page.partition('id="sum"')[2][:200]
    part = pages.get(f"/devices/matches?{query}").content.decode()
    assert " match" not in part.partition('id="sum"')[2][:200]
    for act in ("list", "drain", "taint", "selector"):
        answer = pages.get(f"/devices/act/{act}?{urlencode({'matching': query})}", follow=True)
        assert texts.CHOOSES_NOTHING in answer.content.decode(), act
    rows = pages.get(f"/devices.csv?{urlencode({'matching': query})}").content.decode().splitlines()
    assert len(rows) <= 1, "the head alone"


# Who could run on a node ----------------------------------------------------------------------------------------------


def test_a_change_of_a_node_concerns_the_pods_that_could_run_there(pages: Client, cluster: Cluster) -> None:
    """Held devices may be released; devices that the node does not have never come."""
    draw = random.Random(7)
    sizes = {"node-1": [1, 1, 2], "node-2": [2]}
    cluster.create(make_class())
    cluster.create(make_class("large", expressions=[f'device.attributes["{DRIVER}"].size > 1']))
    for node, found in sizes.items():
        cluster.create(make_node(node))
        devices = [make_device(f"gpu-{index}", attributes={"size": size}) for index, size in enumerate(found)]
        cluster.create(make_slice(node=node, devices=devices))
    wants(cluster, "holder", count=3)
    wants(cluster, "other", count=1)
    cluster.create(make_pod("plain", node_selector={"no": "such"}))
    wanted: dict[str, tuple[str, int, tuple[str, ...]]] = {}
    for number in range(12):
        device_class, count = draw.choice([CLASS, "large", "missing"]), draw.randint(1, 4)
        own = draw.choice([(), (f'device.attributes["{DRIVER}"].size == 1',)])
        wanted[f"w{number}"] = (device_class, count, own)
        wants(cluster, f"w{number}", device_class=device_class, count=count, expressions=own)

    def could(node: str, device_class: str, count: int, own: tuple[str, ...]) -> bool:
        fitting = [size for size in sizes[node] if (size > 1 or device_class == CLASS) and (size == 1 or not own)]
        return device_class != "missing" and len(fitting) >= count

    for node in sizes:
        expected = {name for name, asked in wanted.items() if could(node, *asked)}
        assert 0 < len(expected) < len(wanted)
        cordon = context(pages, f"/nodes/{node}?change=cordon")["asked"].effects
        assert {pod.metadata.name for pod in cordon.kept_off} == expected
        drain = context(pages, f"/nodes/{node}?change=drain")["asked"].effects
        assert {pod.metadata.name for pod in drain.kept_off} == expected
        pages.post(f"/nodes/{node}/change", {"change": "cordon"})
        back = context(pages, f"/nodes/{node}?change=uncordon")["asked"].effects
        assert {pod.metadata.name for pod in back.let_in} == expected
        pages.post(f"/nodes/{node}/change", {"change": "uncordon"})


# Who waits for a claim's devices --------------------------------------------------------------------------------------


def test_a_claim_lists_those_that_wait_for_its_devices_and_nobody_else(pages: Client, cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_class("same"))  # the same devices by another name
    cluster.create(make_node())
    devices = [make_device(f"gpu-{index}", attributes={"size": index}) for index in range(2)]
    cluster.create(make_slice(devices=devices))
    small, large = (f'device.attributes["{DRIVER}"].size == {size}' for size in range(2))
    wants(cluster, "small", expressions=[small])
    wants(cluster, "large", expressions=[large])
    wants(cluster, "by-class", expressions=[small])
    wants(cluster, "by-other-class", device_class="same", expressions=[small])
    wants(cluster, "anything")
    wants(cluster, "the-large-one", expressions=[large])
    wants(cluster, "no-class", device_class="missing")
    wants(cluster, "never", expressions=["false"])
    wants(cluster, "too-many", count=5)
    cluster.create(make_claim("without-pod", requests=[make_request()]))
    cluster.settle()

    def rivals(claim: str) -> set[str]:
        return {name for name, _ in context(pages, f"/claims/default/{claim}")["sheet"].rivals}

    assert rivals("small") == {"by-class", "by-other-class", "anything"}
    assert rivals("large") == {"the-large-one", "anything"}
    text = words(pages, "/claims/default/small")
    assert "the-large-one" not in text
    assert "without-pod" not in text


# Who uses a class -----------------------------------------------------------------------------------------------------


def test_deleting_a_class_names_the_pods_that_use_its_extended_resource(pages: Client, cluster: Cluster) -> None:
    cluster.create(make_class(extended_resource_name="example.com/gpu"))
    cluster.create(make_node())
    cluster.create(make_slice(devices=[make_device(f"gpu-{index}") for index in range(2)]))
    for name, resource in (
        ("runs", "example.com/gpu"),
        ("runs-too", f"deviceclass.resource.kubernetes.io/{CLASS}"),
        ("waits", "example.com/gpu"),
        ("waits-too", f"deviceclass.resource.kubernetes.io/{CLASS}"),
        ("else", "example.com/other"),
    ):
        container = make_container(limits={resource: "1"}, requests={resource: "1"})
        cluster.create(make_pod(name, containers=[container]))
        cluster.settle()
    effect = context(pages, f"/classes/c/{CLASS}/delete")["preview"].effect
    told = {one.term: {name for name, _ in one.links} for one in effect.consequences}
    assert told["Pods that wait"] == {"default/waits", "default/waits-too"}
    assert told["Pods with devices"] == {"default/runs", "default/runs-too"}
    many = words(pages, f"/bulk/{CLASSES}/delete?pick={CLASS}")
    assert "default/waits" in many
    (used,) = context(pages, f"/classes/c/{CLASS}")["bench"].users.by_namespace
    assert used[0] == "default"
    assert used[1]["pods"] == 4


# What a person does not see -------------------------------------------------------------------------------------------


def test_counts_of_what_a_person_sees_say_so_wherever_there_is_more(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    runs(cluster, "mine")
    wants(cluster, "waits")
    wants(cluster, "theirs", namespace="other")
    mia = member("mia", "default")
    for path in (
        "/overview",
        "/classes",
        "/claims",
        "/pods",
        "/quotas",
        "/namespaces",
        "/templates",
        "/usage",
        "/drivers",
    ):
        assert texts.NOT_COUNTED in words(mia, path), path
        assert texts.NOT_COUNTED not in words(pages, path), path
    assert context(mia, "/overview")["waiting"] == 1
    assert texts.PODS_SEEN_WAIT("1 pod") in words(mia, "/overview")
