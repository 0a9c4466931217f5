"""The KEP-4381 draft, paragraph by paragraph: tests and rows are named after what they prove (README.md)."""

from __future__ import annotations

import html
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from claims.devices.cache import read_devices
from claims.models import Claim
from dashboard.workloads.claims import queries
from dashboard.workloads.claims.queries import read_claims
from inventory.drafts.structured.registration import NODE_RESOURCE_SLICE
from inventory.kinds import gates
from manciple.api import openapi
from manciple.people import ALL_NAMESPACES, Person
from manciple.per_process import reset_all
from manciple.processes.doctor import cluster as doctor
from manciple.processes.doctor.cluster import STUCK
from manciple.wire import codec
from manciple.wire.identity import MASTERS, Identity
from manciple.wire.resources import NODE_SLICES
from scheduling.cycle.scheduler import decide
from scheduling.queue.verdicts import Placement, Wait
from scheduling.rehearsal import repairs
from scheduling.state.cluster import ClusterState
from tests.builders import make_node, make_pod
from tests.dashboard.browsing import signed_in, words
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api
from tests.scheduling.cluster import Cluster
from tests.scheduling.earlier.structured_draft import (
    CLASS,
    DRIVER,
    NODE,
    SELECTOR,
    V1ALPHA2,
    DraftCluster,
    address,
    card,
    claim,
    class_parameters,
    class_with,
    example,
    named,
    node,
    node_slice,
    parameters,
    pod,
)
from tests.scheduling.test_feature_gates import restarted_with

__all__ = ["api"]
GATE = "DRAStructuredParametersDraft"
EVERYONE = Person(Identity("ada", (MASTERS,)), ALL_NAMESPACES)
CLAIMS = f"{V1ALPHA2}/namespaces/default/resourceclaims"
NO_CARD_SUITS = "cannot allocate all claims"
EIGHTY_GIB = parameters('attributes["memory"] >= "64Gi"')
CARDS = node_slice(
    card("gpu-0", memory={"quantity": "16Gi"}, runtimeVersion={"version": "12.1.0"}),
    card("gpu-1", memory={"quantity": "32Gi"}, runtimeVersion={"version": "v12.1"}),
)
BIG_CARD = node_slice(card("big", memory={"quantity": "80Gi"}), name="more", node="worker-2")


@pytest.fixture
def draft(api: Api, cluster: Cluster) -> Iterator[DraftCluster]:
    reset_all()
    with restarted_with(cluster, **{GATE: True}):
        yield DraftCluster(cluster, api)
        assert not cluster.violations()
    reset_all()


@pytest.fixture
def cards(draft: DraftCluster) -> DraftCluster:
    """A node with a card of 16Gi and one of 32Gi, and the class."""
    draft.apply(node(), CARDS, example()["ResourceClass"])
    return draft


# Using structured parameters ------------------------------------------------------------------------------------------

Documents = tuple[dict[str, Any], ...]
VENDORS_PARAMETERS = {"apiGroup": "dra.example.com", "kind": "CardClassParameters", "name": "gpu-parameters"}
ONE_SELECTOR = parameters() | {
    "requests": [{"driverName": DRIVER, "namedResourcesWithAttributes": {"selector": SELECTOR}}]
}
TWO_DRIVERS = parameters(SELECTOR)
TWO_DRIVERS["requests"] += parameters(
    'attributes["speed"] >= 100 && "b" in attributes["links"]', driver="nics.dra.example.com"
)["requests"]
TODAYS_SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "t"},
    "spec": {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 0, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "capacity": {"memory": {"value": "16Gi"}}}],
    },
}
#: what is applied beside the two cards, and the resources that each claim gets
GIVEN: dict[str, tuple[Documents, dict[str, list[str]]]] = {
    "parameters that users write themselves are named by the claim directly": (
        (parameters(SELECTOR), claim(), pod()), {"my-card": ["gpu-1"]},
    ),
    "each entry is a request for one resource": (
        (parameters('attributes["memory"] >= "32Gi"', "true"), claim(), pod()), {"my-card": ["gpu-1", "gpu-0"]},
    ),
    "one selector in place of a list is a request, as the Go types of the draft have it": (
        (ONE_SELECTOR, claim(), pod()), {"my-card": ["gpu-1"]},
    ),
    "a claim may use resources of several drivers": (
        (
            node_slice(
                card("nic-0", speed={"int": 100}, links={"stringSlice": ["a", "b"]}),
                name="nics", driver="nics.dra.example.com",
            ),
            TWO_DRIVERS, claim(), pod(),
        ),
        {"my-card": ["gpu-1", "nic-0"]},
    ),
    "class parameters add a selector to every request made with the class": (
        (
            class_parameters("small", 'attributes["memory"] <= "16Gi"'), class_with("small"), parameters("true"),
            claim(of_class="small"), pod(), claim("second", of_class="small"), pod("q", "second"),
        ),
        {"my-card": ["gpu-0"], "second": []},
    ),
    "several slices of a driver add up on a node": (
        (
            node_slice(card("gpu-2", memory={"quantity": "64Gi"}), name="more"),
            EIGHTY_GIB, claim(), pod(), parameters("true", "true", name="both"), claim("both", params="both"),
            pod("q", "both"),
        ),
        {"my-card": ["gpu-2"], "both": ["gpu-0", "gpu-1"]},
    ),
    "where a driver publishes ResourceSlices of today too those count": (
        (
            TODAYS_SLICE, parameters("true", "true"), claim(), pod(), parameters("true", name="one"),
            claim("one", params="one"), pod("q", "one"),
        ),
        {"my-card": [], "one": ["gpu-0"]},
    ),
    "a claim is for one pod at a time unless its parameters say that it is shareable": (
        (
            parameters(SELECTOR), claim(), pod("one"), claim("other"), pod("two", "other"),
            parameters("true", name="s", shareable=True), claim("shared", params="s"), pod("three", "shared"),
            pod("four", "shared"),
        ),
        {"my-card": ["gpu-1"], "other": [], "shared": ["gpu-0"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GIVEN)
def test_claims_get_what_their_parameters_ask_for(cards: DraftCluster, case: str) -> None:
    documents, given = GIVEN[case]
    cards.apply(*documents)
    cards.cluster.retry()
    assert {name: cards.given(name) for name in given} == given
    assert cards.node_of(documents[-1]["metadata"]["name"]) == (NODE if given[cards.claim_of(documents[-1])] else "")


#: what lies there beside the node and the two cards, why its pod waits, and what ends the waiting
WAITS: dict[str, tuple[Documents, str, Documents, list[str]]] = {
    "a claim waits for parameters that it names directly": (
        (example()["ResourceClass"], claim(), pod()),
        "resourceclaim my-card: claim parameters default/wanted not found",
        (parameters(SELECTOR),), ["gpu-1"],
    ),
    "a claim that names a vendors object waits for the parameters that the vendor makes of it": (
        (
            *(example()[kind] for kind in ("ResourceClass", "CustomResourceDefinition", "CardParameters")),
            example()["ResourceClaim"], pod(),
        ),
        "generated claim parameters for CardParameters.dra.example.com default/my-parameters not found",
        (example()["ResourceClaimParameters"],), ["gpu-1"],
    ),
    "a class that is not there is waited for": (
        (parameters(SELECTOR), claim(), pod()), f"resource class {CLASS} not found",
        (example()["ResourceClass"],), ["gpu-1"],
    ),
    "class parameters are found by the vendors object that they were made of": (
        (class_with("vendors", parametersRef=VENDORS_PARAMETERS), parameters("true"), claim(of_class="vendors"), pod()),
        "CardClassParameters.dra.example.com gpu-parameters",
        (class_parameters("some", 'attributes["memory"] > "16Gi"', generatedFrom=VENDORS_PARAMETERS | {"uid": "u"}),),
        ["gpu-1"],
    ),
    "a class without structured parameters is left to its drivers controller": (
        (named("ResourceClass", "opaque", driverName=DRIVER), claim(params="", of_class="opaque"), pod()),
        "resource class opaque has no structuredParameters", (), [],
    ),
    "a selector that no resource meets keeps the pod waiting until one does": (
        (example()["ResourceClass"], EIGHTY_GIB, claim(), pod()), NO_CARD_SUITS, (node("worker-2"), BIG_CARD), ["big"],
    ),
    "parameters that change wake the pods that wait": (
        (example()["ResourceClass"], EIGHTY_GIB, claim(), pod()), NO_CARD_SUITS, (parameters(SELECTOR),), ["gpu-1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WAITS)
def test_a_pod_says_what_its_claim_waits_for_and_starts_once_it_is_there(draft: DraftCluster, case: str) -> None:
    documents, why, later, given = WAITS[case]
    draft.apply(node(), CARDS, *documents)
    assert why in draft.why_pending()
    assert draft.handles() == []
    draft.apply(*later)
    draft.cluster.retry()
    assert draft.given() == given


def test_parameters_that_were_made_twice_of_one_object_are_told_of(draft: DraftCluster) -> None:
    documents = example()
    made = documents.pop("ResourceClaimParameters")
    draft.apply(node(), made, {**made, "metadata": {"name": "once-more", "namespace": "default"}}, *documents.values())
    assert "default/my-parameters-generated, default/once-more" in draft.why_pending("with-card")
    draft.delete("ResourceClaimParameters", "once-more")
    draft.cluster.retry()
    assert draft.given() == ["gpu-1"]


# What Kubernetes 1.30 made of it --------------------------------------------------------------------------------------

KINDS_OF_CARD = {"name": "kinds", "stringSlice": {"strings": ["fast", "red"]}}
SLICE_OF_1_30 = named(
    "ResourceSlice", "cards", nodeName=NODE, driverName=DRIVER,
    namedResources={
        "instances": [
            {"name": name, "attributes": [{"name": "memory", "quantity": amount}, KINDS_OF_CARD]}
            for name, amount in (("gpu-0", "16Gi"), ("gpu-1", "32Gi"))
        ]
    },
)  # fmt: skip
BIG = 'attributes.quantity["memory"].isGreaterThan(quantity("20Gi"))'


def of_1_30(selector: str, **vendor: Any) -> dict[str, Any]:
    request = {"namedResources": {"selector": selector}, **vendor}
    return named(
        "ResourceClaimParameters", "wanted", driverRequests=[{"driverName": DRIVER, "requests": [request], **vendor}]
    )


@pytest.mark.parametrize(
    ("published", "wanted", "results"),
    [
        pytest.param(
            CARDS, of_1_30(BIG, vendorParameters={"b": 2}),
            [{"vendorRequestParameters": {"b": 2}, "namedResources": {"name": "gpu-1"}}],
            id="resource types of Kubernetes 1.30",
        ),
        pytest.param(
            SLICE_OF_1_30, of_1_30(f'{BIG} && "red" in attributes.stringslice["kinds"]'),
            [{"namedResources": {"name": "gpu-1"}}], id="instances that drivers of Kubernetes 1.30 publish",
        ),
        pytest.param(
            SLICE_OF_1_30, None, [{"namedResources": {"name": "gpu-0"}}], id="a claim without parameters",
        ),
    ],
)  # fmt: skip
def test_what_kubernetes_1_30_made_of_the_draft_is_allocated_likewise(
    draft: DraftCluster, published: dict[str, Any], wanted: dict[str, Any] | None, results: list[Any]
) -> None:
    draft.apply(node(), example()["ResourceClass"], *([wanted] if wanted else []))
    draft.apply(claim(params="wanted" if wanted else ""), pod())
    assert draft.handles() == []
    with gates.using(DRAControlPlaneController=True):
        draft.api.made(address(published), published)
    draft.cluster.retry()
    (handle,) = draft.handles()
    vendor = {"vendorClaimParameters": {"b": 2}} if "vendorRequestParameters" in results[0] else {}
    assert handle["structuredData"] == {"nodeName": NODE, "results": results, **vendor}
    assert {device.name for device in read_devices().candidates} == {"gpu-0", "gpu-1"}


# Communicating allocation to the DRA driver ---------------------------------------------------------------------------


def test_the_result_has_the_form_of_the_draft_and_the_scheduler_sets_a_finalizer(draft: DraftCluster) -> None:
    documents = example()
    vendors = {"kind": "CardClass", "power": 70}
    documents["ResourceClass"] |= {"parametersRef": VENDORS_PARAMETERS}
    made = named("ResourceClassParameters", "c", generatedFrom=VENDORS_PARAMETERS, vendorParameters=vendors)
    draft.apply(node(), made, *documents.values())
    found = draft.claim()
    status, allocation = found["status"], found["status"]["allocation"]
    assert status["driverName"] == DRIVER
    assert allocation["resourceHandles"] == [
        {
            "driverName": DRIVER,
            "structuredData": {
                "vendorClassParameters": vendors,
                "vendorClaimParameters": documents["ResourceClaimParameters"]["vendorParameters"],
                "nodeName": NODE,
                "namedResourcesWithAttributes": {"resources": [{"id": "gpu-1"}]},
            },
        }
    ]
    (term,) = allocation["availableOnNodes"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": [NODE]}]
    assert [one["name"] for one in status["reservedFor"]] == ["with-card"]
    assert "structured.dra.k8s.io/delete-protection" in found["metadata"]["finalizers"]
    # One device is not given twice, whichever form a claim has: v1 shows it.
    seen = draft.api.get("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/my-card").json
    (result,) = seen["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"], result["device"]) == (DRIVER, NODE, "gpu-1")
    assert seen["spec"] == {"devices": {}}


def test_a_claim_without_parameters_gets_any_resource_and_can_be_shared_also_made_of_a_template(
    cards: DraftCluster,
) -> None:
    asked = pod("p")
    asked["spec"]["resourceClaims"] = [{"name": "c0", "resourceClaimTemplateName": "each"}]
    spec = {"metadata": {}, "spec": claim(params="")["spec"]}
    cards.apply(named("ResourceClaimTemplate", "each", spec=spec), asked)
    (status,) = cards.get("Pod", "p")["status"]["resourceClaimStatuses"]
    allocation = cards.claim(status["resourceClaimName"])["status"]["allocation"]
    (given,) = cards.given(status["resourceClaimName"])
    (handle,) = allocation["resourceHandles"]
    assert handle["structuredData"] == {
        "nodeName": NODE, "namedResourcesWithAttributes": {"resources": [{"id": given}]}
    }  # fmt: skip
    assert allocation["shareable"] is True


def test_the_result_keeps_the_parameters_as_they_were_set_at_the_time_of_allocation(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR, vendorParameters={"strategy": "TimeSliced"}), claim(), pod())
    cards.apply(parameters(SELECTOR, vendorParameters={"strategy": "Exclusive"}))
    cards.delete("ResourceClaimParameters", "wanted")
    assert cards.handles()[0]["structuredData"]["vendorClaimParameters"] == {"strategy": "TimeSliced"}


def test_a_status_that_is_written_back_as_it_was_read_stays_the_schedulers(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR), claim(), pod())
    shared = cards.claim()
    shared["status"]["reservedFor"].append({"resource": "pods", "name": "another", "uid": "u"})
    assert cards.api.put(f"{CLAIMS}/my-card/status", shared).code == 422, "it is not shareable"
    before = cards.cluster.claim("my-card")
    assert cards.api.put(f"{CLAIMS}/my-card/status", cards.claim()).code == 200
    assert cards.cluster.claim("my-card").status == before.status
    cards.delete("Pod", "p")
    assert cards.given() == []


# NodeResourceSlice, deallocation --------------------------------------------------------------------------------------


def test_a_slice_goes_with_the_node_that_owns_it(draft: DraftCluster) -> None:
    draft.apply(node())
    uid = draft.get("Node", NODE)["metadata"]["uid"]
    published = node_slice(card("gpu-0"))
    published["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid}]
    draft.apply(published)
    draft.delete("Node", NODE)
    assert draft.api.get(f"{V1ALPHA2}/noderesourceslices").json["items"] == []


def test_capacity_that_is_reduced_while_it_is_allocated_is_given_to_nobody_else(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR), claim(), pod())
    cards.apply(node_slice(card("gpu-0", memory={"quantity": "16Gi"}, runtimeVersion={"version": "12.1.0"})))
    assert (cards.node_of(), cards.given()) == (NODE, ["gpu-1"])
    cards.apply(claim("second"), pod("q", "second"))
    assert cards.given("second") == []


def test_a_claim_that_is_no_longer_in_use_is_deallocated_and_others_can_use_the_capacity_again(
    cards: DraftCluster,
) -> None:
    cards.apply(parameters(SELECTOR), claim(), claim("second"), pod(), pod("q", "second"))
    assert (cards.given(), cards.given("second")) == (["gpu-1"], [])
    cards.delete("Pod", "p")
    cards.cluster.retry()
    assert (cards.given(), cards.given("second")) == ([], ["gpu-1"])
    assert "finalizers" not in cards.claim()["metadata"]
    assert "deallocationRequested" not in cards.claim()["status"]


def test_a_claim_that_is_deleted_while_it_is_used_stays_until_its_pod_is_gone(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR), claim(), pod())
    cards.delete("ResourceClaim", "my-card")
    assert cards.given() == ["gpu-1"]
    cards.delete("Pod", "p")
    assert cards.api.get(CLAIMS).json["items"] == []


def test_an_immediate_claim_says_what_it_waits_for_and_is_allocated_without_a_pod(cards: DraftCluster) -> None:
    cards.apply(claim(mode="Immediate"))
    (event,) = cards.cluster.events("AllocationPending")
    assert "default/wanted" in event.message
    cards.apply(EIGHTY_GIB)
    assert len(cards.cluster.events("AllocationPending")) == 2
    cards.apply(parameters(SELECTOR))
    assert cards.given() == ["gpu-1"]
    cards.apply(pod())
    assert cards.node_of() == NODE


def test_a_claim_with_immediate_allocation_remains_allocated_when_no_longer_in_use_which_is_no_trouble(
    cards: DraftCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "FORGOTTEN", timedelta(0))
    monkeypatch.setattr(repairs, "FORGOTTEN", 0.0)
    cards.apply(parameters(SELECTOR), claim(mode="Immediate"), pod())
    cards.delete("Pod", "p")
    cards.cluster.later(3600)
    cards.settle()
    assert cards.given() == ["gpu-1"]
    assert "reservedFor" not in cards.claim()["status"]
    later = cards.cluster.now + STUCK + timedelta(minutes=1)
    assert [*doctor.examine_drivers(later), *doctor.examine_claims(later)] == []
    (line,) = read_claims(Claim.objects.filter(name="my-card"))
    assert line.state == "unused"
    assert repairs.troubles() == []
    cards.delete("ResourceClaim", "my-card")
    assert cards.api.get(CLAIMS).json["items"] == []


def test_devices_of_the_draft_that_are_gone_and_slices_of_silent_or_missing_nodes_are_told_of(
    cards: DraftCluster,
) -> None:
    cards.apply(parameters(SELECTOR), claim(), pod())
    cards.api.made(address(node_slice()), node_slice(card("gpu-9"), name="stray", node="worker-9"))
    cards.delete("NodeResourceSlice", "cards")
    missing, lost = doctor.examine_drivers(cards.cluster.now)
    assert missing.about == f"pool worker-9 of driver {DRIVER}"
    assert missing.advice == "kubectl delete noderesourceslices --field-selector=spec.nodeName=worker-9"
    assert "worker-1/gpu-1" in lost.what


# The gate, pages, simulations -----------------------------------------------------------------------------------------


def test_with_the_gate_off_running_pods_keep_what_they_have_and_new_ones_are_told(
    cards: DraftCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cards.apply(parameters(SELECTOR), claim(), claim("later"), pod())
    with restarted_with(cards.cluster, **{GATE: False}):
        cards.api.made("/api/v1/namespaces/default/pods", pod("q", "later"))
        assert f"nobody allocates for resource class {CLASS}: the feature gates" in cards.why_pending("q")
        assert f"{GATE} is off; claims that were allocated with structured parameters: 1." in caplog.text
        assert cards.node_of() == NODE
        assert cards.cluster.devices(cards.cluster.claim("my-card")) == ["worker-1/gpu-1"]
        # The next reader of the claim loses nothing of it.
        cards.cluster.label(cards.cluster.claim("my-card"), "seen", "yes")
    assert cards.given() == ["gpu-1"]
    cards.delete("Pod", "p")
    cards.cluster.retry()
    assert cards.given("later") == ["gpu-1"]


def test_with_the_gate_off_nobody_finds_the_drafts_kinds(api: Api) -> None:
    assert api.get(V1ALPHA2).code == 404
    assert "v1alpha2" not in api.get("/apis/resource.k8s.io").text
    assert "NodeResourceSlice" not in api.get("/openapi/v3/apis/resource.k8s.io/v1").text


def test_with_the_gate_on_its_kinds_are_found(draft: DraftCluster) -> None:
    found = {one["name"] for one in draft.api.get(V1ALPHA2).json["resources"]}
    assert found - {"resourceclaims/explain", "resourceclaims/simulate"} == {
        "noderesourceslices", "resourceclaimparameters", "resourceclaims", "resourceclaims/status",
        "resourceclaimtemplates", "resourceclasses", "resourceclassparameters",
    }  # fmt: skip
    openapi.renew()
    schemas = draft.api.get(f"/openapi/v3{V1ALPHA2}").json["components"]["schemas"]
    assert "intSlice" in schemas["io.k8s.api.resource.v1alpha2.NamedResourceAttribute"]["properties"]
    openapi.renew()


def test_pages_show_what_is_published_and_given_in_the_drafts_form(
    cards: DraftCluster, client: Client, django_user_model: type[User]
) -> None:
    cards.apply(parameters(SELECTOR), claim(), pod(), claim("waiting", params="unknown"), pod("q", "waiting"))
    cards.why_pending("q")
    client.force_login(django_user_model.objects.create_superuser("root", password="x"))
    shown = {
        "/devices": "gpu-1",
        f"/devices/d/{DRIVER}/worker-1/gpu-1": "32Gi",
        "/claims/default/my-card": "gpu-1",
        "/claims/default/waiting": "default/unknown",
        "/pods/default/p": "worker-1",
        "/pods/default/q": "default/unknown",
        "/nodes/worker-1": "gpu-1",
        f"/drivers/{DRIVER}": "worker-1",
        "/overview": "The requests of a claim are unknown",
    }
    for path, wanted in shown.items():
        answer = client.get(path)
        assert (path, answer.status_code) == (path, 200)
        assert wanted in html.unescape(answer.content.decode()), path


def test_a_simulation_decides_as_the_scheduler_would_on_a_copy_of_the_state(cards: DraftCluster) -> None:
    """Simulation with CA: with a node that is only imagined, and nothing of it is written."""
    cards.apply(EIGHTY_GIB, claim())
    imagined = ClusterState.captured().copy()
    asking = make_pod("p", claims={"card": "my-card"})
    assert isinstance(decide(imagined, asking), Wait)
    imagined.put("nodes", make_node("worker-2"))
    imagined.put(NODE_SLICES, codec.decode_document(NODE_RESOURCE_SLICE, BIG_CARD, strictness="Strict").object)
    placed = decide(imagined, asking)
    assert isinstance(placed, Placement)
    assert placed.node == "worker-2"
    assert cards.given() == []


def test_why_such_a_claim_waits_is_explained(cards: DraftCluster) -> None:
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/my-card/explain"
    explained = ("default/wanted", "64Gi", "Schedulable")
    for document, wanted in zip((claim(), EIGHTY_GIB, parameters(SELECTOR)), explained, strict=True):
        cards.apply(document)
        assert wanted in cards.api.get(path).text


def test_its_classes_and_slices_stand_on_the_pages_and_what_is_said_of_them_is_true(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR), claim(mode="Immediate"))
    cards.cluster.later(3600)
    cards.settle()
    pages = signed_in("ada", staff=True)
    driver, pool, device = DRIVER, NODE, "gpu-1"
    said = {
        path: words(pages, path)
        for path in (
            *("/overview", "/nodes", f"/nodes/{NODE}", "/drivers", f"/drivers/{driver}", "/classes", "/claims"),
            *(f"/devices?at={driver}/{pool}/{device}", f"/devices/d/{driver}/{pool}/{device}"),
            *("/claims/default/my-card", "/claims?at=default/my-card"),
        )
    }
    for path, text in said.items():
        assert "generation -1" not in text, path
        assert " -1 " not in text, path
        assert " holds , " not in text, path
    assert CLASS in said["/classes"]
    assert DRIVER in said["/classes"]
    assert f"{CARDS['metadata']['name']} " in said["/drivers"].partition("NodeResourceSlice")[2]
    (row,) = pages.get("/claims").context["table"].rows
    assert (row.state, row.cause) == ("unused", "unused")
    assert pages.get(f"/yaml/noderesourceslices.resource.k8s.io/{CARDS['metadata']['name']}").status_code == 200
    with gates.using(**{GATE: False}):
        assert "NodeResourceSlice" not in words(pages, "/drivers").partition("Rows")[2]
