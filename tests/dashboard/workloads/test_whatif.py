"""The what-if page: what it says of pods, claims, templates and pasted text; nothing is written, nothing leaks."""

from __future__ import annotations

import html
import json
from random import Random

import pytest
from django.http import QueryDict
from django.test import Client

from dashboard.workloads.changes import as_query, changes_of, meant
from dashboard.workloads.pods.forms import read
from dashboard.workloads.whatif import LONGEST_TEXT, Progress, Stopped, packed, progress, unpacked
from insight.advice import in_words
from manciple.store.event_log import latest_revision
from scheduling.rehearsal.departures import what_if_gone
from scheduling.rehearsal.workload import Changes
from tests.builders import (
    make_claim,
    make_class,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_slice,
    make_template,
)
from tests.dashboard import texts
from tests.dashboard.browsing import close_said, close_words, member, signed_in
from tests.dashboard.claim_scene import wants
from tests.scheduling.cluster import Cluster

EVEN = 'device.attributes["gpu.example.com"].index % 2 == 0'
CLAIM = """apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: pasted
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu.example.com
        count: 2
"""


@pytest.fixture
def pages(db: None) -> Client:
    """Somebody who may look at everything."""
    return member("alice")


def test_a_template_with_replicas(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", "node-2", each=4)
    cluster.create(make_template("gpus", requests=[make_request(count=2)]))
    revision = latest_revision()
    text = close_words(pages, "/what-if?template=default/gpus&replicas=6")
    assert f"{texts.SOME_WOULD_START('4 of 6', '2 nodes', 2)} because request gpu" in text
    assert texts.REHEARSAL_FIGURES(6, 4, 2) in text
    assert "node-1 2 1: gpu-0, gpu-1; 2: gpu-2, gpu-3" in text
    assert texts.MORE_NODES_NEEDED(1, "node-1", 2, 2) in text
    assert "all 8 held, 2 wanted" in text
    assert latest_revision() == revision


def test_more_nodes_are_rehearsed_and_named_as_new(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=4)
    cluster.create(make_template("gpus", requests=[make_request(count=4)]))
    address = pages.get("/what-if?template=default/gpus&replicas=3").context["page"].result.missing_url
    text = close_words(pages, address)
    assert texts.START_WITH_NEW_NODES(1, 3, 2, 2) in text
    assert "new node 1 like node-1" in text
    assert "~" not in text
    cluster.create(make_template("one"))
    text = close_words(pages, "/what-if?template=default/one&replicas=3")
    assert texts.ALL_WOULD_START_ON(3, "1 node") in text
    assert texts.MORE_WOULD_FIT(1) in text


def test_more_nodes_of_no_shape_are_like_the_one_that_helps(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("beta", each=2)
    cluster.create(make_node("alpha"))
    wants(cluster, "first", count=2)
    wants(cluster, "second", count=2)
    page = pages.get("/what-if?pod=default/second&nodes=1").context["page"]
    assert [one.model for one in page.result.nodes] == ["beta"]
    assert page.asked.shape == "beta", "the form shows what was rehearsed"
    page = pages.get("/what-if?pod=default/second&nodes=1&shape=alpha").context["page"]
    assert not page.result.nodes
    assert (page.result.missing.shape, page.result.missing.nodes) == ("beta", 1), "instead of the one that does not"
    wants(cluster, "huge", count=9)
    answer = pages.get("/what-if?pod=default/huge&nodes=1")
    assert (answer.status_code, answer.context["page"].result) == (422, None)


def test_nothing_starts_now_on_a_node_that_does_not_exist(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    wants(cluster, "first", count=2)
    wants(cluster, "second", count=2)
    address = "/what-if?pod=default/second&nodes=1&shape=node-1"
    text, result = close_words(pages, address), pages.get(address).context["page"].result
    assert texts.STARTS_WITH_A_NEW_NODE("new node 1 like node-1") in text
    assert not result.good
    assert pages.get("/what-if?pod=default/second&nodes=1&shape=nobody").context["page"].result is None


def test_a_waiting_pod_without_one_of_its_selectors(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    never = 'device.attributes["gpu.example.com"].index > 100'
    wants(cluster, "web", expressions=[EVEN, never])
    text = close_words(pages, "/what-if?pod=default/web&without=gpu/gpu:2")
    assert texts.ONE_WOULD_START_ON("node-1") in text
    assert "Tried without selector 2." in text
    page = close_words(pages, "/pods/default/web?without=gpu/gpu:2")
    assert texts.WOULD_START_WITHOUT_SELECTOR(2, "node-1, with gpu-0.") in page
    assert texts.LEFT_OUT_OF_REHEARSAL in page
    assert texts.RECREATE_WITHOUT_SELECTOR("web", 2) in page
    offers = pages.get("/pods/default/web").context["why"].verdict.steps
    assert "without=gpu/gpu:2" in "".join(offer.try_url for offer in offers)
    assert texts.STILL_WAITS_WITHOUT_SELECTOR(1) in close_words(pages, "/pods/default/web?without=gpu/gpu:1")


def test_who_would_have_to_leave_is_named_to_those_who_see_them(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    wants(cluster, "secret", namespace="other", count=2)
    cluster.create(make_template("gpus"))
    path = "/what-if?template=default/gpus"
    assert texts.WOULD_COME_FREE("node-1", "secret of other/secret", "2 devices") in close_words(pages, path)
    text = close_words(member("ann", "default"), path)
    assert "secret" not in text
    assert texts.CLAIMS_OF_HIDDEN_NAMESPACES("1 claim") in text
    wants(cluster, "waits")
    page = close_words(member("bob", "default"), "/pods/default/waits")
    assert "secret" not in page
    assert "somebody else" in page


def test_what_one_may_not_see_is_not_there(cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("gpus", namespace="other"))
    ann = member("ann", "default")
    assert ann.get("/what-if?template=other/gpus").status_code == 404
    answer = ann.post("/what-if", {"yaml": CLAIM.replace("name: pasted", "name: pasted\n  namespace: other")})
    assert texts.NAMESPACE_HIDDEN("other") in close_said(answer.content.decode())


def test_pasted_text_is_rehearsed_and_its_address_asks_the_same(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=4)
    revision = latest_revision()
    answer = pages.post("/what-if", {"yaml": CLAIM, "replicas": "3", "count.claim/gpu": "1"})
    text, result = close_said(answer.content.decode()), answer.context["page"].result
    assert (result.good, result.left, [node.name for node in result.nodes]) == (True, 0, ["node-1"])
    assert result.title in text
    assert "Tried with 1 device." in text
    address = answer.context["page"].asked.url()
    assert f'data-address="{html.escape(address)}"' in answer.content.decode()
    again = pages.get(address)
    assert again.context["page"].result.nodes == result.nodes
    assert again.context["page"].asked.text == answer.context["page"].asked.text == CLAIM
    assert result.title in close_said(again.content.decode())
    assert latest_revision() == revision


def test_text_that_is_too_long_for_an_address_says_so(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=4)
    random = Random(1)
    noise = "".join(random.choice("abcdefghij0123456789") for _ in range(14_000))
    answer = pages.post("/what-if", {"yaml": f"# {noise}\n{CLAIM}"})
    assert texts.LINK_TOO_LONG in close_said(answer.content.decode())
    assert answer.context["page"].asked.url() == "/what-if?replicas=1"
    assert unpacked(packed("a" * (LONGEST_TEXT + 1))) == ""
    assert unpacked("%%%") == unpacked("eJw") == ""


def test_what_was_rehearsed_is_created(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=4)
    cluster.create(make_template("four", requests=[make_request(count=9)]))
    cluster.create(make_pod("web", templates={"gpu": "four"}))
    cluster.settle()
    admin = signed_in("ann", staff=True)
    asked = admin.get("/what-if?pod=default/web&count.gpu/gpu=2&replicas=2")
    address = asked.context["page"].asked.create_url
    assert html.escape(address) in asked.content.decode()
    assert html.escape(address) not in pages.get("/what-if?pod=default/web&count.gpu/gpu=2&replicas=2").content.decode()
    text = admin.get(address).context["page"].text
    made = [(one.kind.kind, one.object.metadata.name) for one in read(text).documents]
    assert made == [("ResourceClaimTemplate", "four-2"), ("Pod", "web-2"), ("Pod", "web-3")]
    assert admin.post("/pods/new", {"yaml": text, "action": "create"}).status_code == 302
    cluster.settle()
    assert {cluster.pod(name).spec.node_name for name in ("web-2", "web-3")} == {"node-1"}
    pasted = admin.post("/what-if", {"yaml": CLAIM, "count.claim/gpu": "1"}).context["page"].asked.create_url
    page = admin.get(pasted)
    (claim,) = read(page.context["page"].text).documents
    assert claim.kind.kind == "ResourceClaim"
    assert "<h1>New claim</h1>" in page.content.decode()
    assert claim.object.spec.devices.requests[0].exactly.count == 1  # type: ignore[attr-defined]


WRONG = {
    CLAIM.replace("count: 2", "count: two"): "Line 11, column 9: count must be of type int, not string.",
    CLAIM.replace("name: gpu", "name: GPU"): "Line 8, column 7: spec.devices.requests[0].name",
    f"{CLAIM}---\n{CLAIM.replace('pasted', 'more')}": "Rehearse one claim at a time",
}


def test_what_cannot_be_rehearsed_or_is_not_there_is_said(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    for text, says in WRONG.items():
        answer = pages.post("/what-if", {"yaml": text})
        assert answer.status_code == 422
        assert says in close_said(answer.content.decode())
    assert 'Pods "nothing" not found.' in close_words(pages, "/what-if?pod=default/nothing", 422)
    cluster.create(make_template("gpus"))
    path = "/what-if?template=default/gpus&shape=nothing&nodes=1"
    assert 'Nodes "nothing" not found.' in close_words(pages, path, 422)


#: parameter -> what is no number for it
NO_NUMBERS = {
    "replicas": ("-3", "abc", "0", "1.5", "10001", "9" * 40, "\u0663"),
    "nodes": ("-1", "abc", "201"),
    "count.gpu/gpu": ("0", "-3", "abc", "33"),
}


def test_what_is_no_number_is_said_and_nothing_is_rehearsed(pages: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1")
    cluster.create(make_template("gpus"))
    for name, values in NO_NUMBERS.items():
        for value in values:
            for answer in (
                pages.get("/what-if", {"template": "default/gpus", name: value}),
                pages.post("/what-if", {"yaml": CLAIM, name: value}),
            ):
                asked = answer.context["page"].asked
                assert answer.status_code == 422, (name, value)
                assert answer.context["page"].result is None
                assert asked.typed == {name: value}
                assert value[:20] in asked.error
    for query in ({"replicas": ""}, {"nodes": "0"}, {"replicas": " 2 "}):
        assert pages.get("/what-if", {"template": "default/gpus", **query}).status_code == 200, query
    page = pages.get("/what-if?template=default/gpus&replicas=-3&nodes=abc").content.decode()
    assert 'value="-3"' in page, "what was typed stays"


# Addresses -----------------------------------------------------------------------------------------------------------


def test_an_address_and_what_it_asks_for_are_the_same() -> None:
    text = "without=gpus/gpu:2&class.gpus/gpu=h100&count.nic/nic=3&tolerate=devices"
    changes = changes_of(QueryDict(text))
    assert changes == Changes(
        without=frozenset({("gpus/gpu", 1)}),
        classes={"gpus/gpu": "h100"},
        counts={"nic/nic": 3},
        tolerate_devices=True,
    )
    assert "&".join(f"{name}={value}" for name, value in as_query(changes)) == text
    words = "without selector 2 of request `gpu`, with class `h100` of request `gpu`, with 3 devices of request `nic`"
    assert in_words(changes, {name: make_claim() for name in ("gpus", "nic")}) == texts.TOLERATES_EVERY_TAINT(words)


def test_what_cannot_be_read_or_changes_nothing_does_not_count() -> None:
    assert not changes_of(QueryDict("without=gpu&without=a/b:0&without=a/b:x&count.a/b=0&count.a/b=x&class.a/b=")).any
    claims = {"gpu": make_claim(requests=[make_request(count=2, expressions=["true"])])}
    same = Changes(classes={"gpu/gpu": "gpu.example.com"}, counts={"gpu/gpu": 2}, without=frozenset({("gpu/gpu", 7)}))
    assert not meant(same, claims).any
    assert meant(Changes(counts={"gpu/gpu": 3}), claims).any


# Progress ------------------------------------------------------------------------------------------------------------


def test_a_run_tells_how_far_it_is_to_its_owner_alone_and_can_be_stopped(pages: Client) -> None:
    progress.value.begin(("alice", "one"))
    progress.value.tell(("alice", "one"), 250)
    assert json.loads(pages.get("/what-if/progress?run=one").content) == {"placed": 250}
    other = member("mallory")
    assert json.loads(other.post("/what-if/progress?run=one").content) == {"placed": None}
    progress.value.tell(("alice", "one"), 500)
    pages.post("/what-if/progress?run=one")
    with pytest.raises(Stopped):
        progress.value.tell(("alice", "one"), 750)
    progress.value.end(("alice", "one"))
    assert json.loads(pages.get("/what-if/progress?run=one").content) == {"placed": None}


def test_only_so_many_runs_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.workloads.whatif.REMEMBERED", 2)
    kept = Progress()
    for name in ("a", "b", "c"):
        kept.begin(("alice", name))
    assert [kept.placed(("alice", name)) for name in ("a", "b", "c")] == [None, 0, 0]


RACK = "example.com/rack"
GANG_POD = """apiVersion: v1
kind: Pod
metadata:
  name: worker
  annotations:
    manciple.dev/gang: train
    manciple.dev/gang-size: "5"
    manciple.dev/gang-required-topology: example.com/rack
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpus}]
  containers: [{name: main, image: example.com/main}]
"""


def test_a_gang_is_rehearsed_as_a_whole_and_told_where_most_of_it_fits(pages: Client, cluster: Cluster) -> None:
    cluster.create(make_class())
    for rack, nodes in (("r1", 1), ("r2", 2)):
        for at in range(nodes):
            cluster.create(make_node(f"{rack}-{at}", labels={RACK: rack}))
            cluster.create(make_slice(node=f"{rack}-{at}", devices=make_devices(2)))
    cluster.create(make_template("gpus", requests=[make_request()]))
    answer = pages.post("/what-if", {"yaml": GANG_POD})
    told, result = close_said(answer.content.decode()), answer.context["page"].result
    best = f"{texts.GANG_WOULD_NOT_START('train', 4, 5)} on {RACK}=r2 (the best of 2)."
    assert best in told
    assert texts.GANG_REPLICAS_TRIED(5) in told
    assert (result.asked, result.fits, result.left) == (5, "0", 5)
    cluster.create(make_slice(node="r2-1", devices=make_devices(3), pool="more"))
    told = close_said(pages.post("/what-if", {"yaml": GANG_POD}).content.decode())
    assert texts.GANG_FITS_WHOLE("train", f"{RACK}=r2", "2 nodes", 5) in told


def test_deleting_a_pod_starts_no_part_of_a_gang(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=4)
    cluster.create(make_template("gpus", requests=[make_request()]))
    for name, count in (("small", 1), ("large", 2)):
        wants(cluster, name, count=count)
    annotations = {"manciple.dev/gang": "train", "manciple.dev/gang-size": "3"}
    for at in range(3):
        cluster.create(make_pod(f"w-{at}", templates={"gpu": "gpus"}, meta={"annotations": annotations}))
    cluster.settle()
    assert what_if_gone(cluster.pod("small")).started == ()
    assert {one.name for one in what_if_gone(cluster.pod("large")).started} == {"w-0", "w-1", "w-2"}
