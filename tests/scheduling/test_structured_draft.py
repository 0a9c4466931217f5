"""The KEP-4381 draft, paragraph by paragraph: tests are named after what they prove (table in docs/classic.md)."""

from __future__ import annotations

import html
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from claims.devices.cache import read_devices
from inventory.drafts.structured.registration import NODE_RESOURCE_SLICE
from inventory.kinds import gates
from manciple.api import openapi
from manciple.pages.people import ALL_NAMESPACES, Person
from manciple.processes.doctor import cluster as doctor
from manciple.processes.doctor.cluster import STUCK
from manciple.store import follower
from manciple.wire import codec
from manciple.wire.identity import MASTERS, Identity
from scheduling import mendings
from scheduling.capture import ClusterState
from scheduling.controllers.scheduler import decide
from scheduling.pages.claims import states
from scheduling.pages.claims.reading import read_claims
from scheduling.plans import Placement, PodRefusal
from scheduling.resources import NODE_SLICES
from tests.builders import make_node, make_pod
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api
from tests.scheduling.cluster import Cluster
from tests.scheduling.structured_draft import (
    CLASS,
    DRIVER,
    NODE,
    SELECTOR,
    DraftCluster,
    address,
    card,
    claim,
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


@pytest.fixture
def draft(api: Api, cluster: Cluster) -> Iterator[DraftCluster]:
    with restarted_with(cluster, **{GATE: True}):
        yield DraftCluster(cluster, api)
        assert not cluster.violations()


@pytest.fixture
def cards(draft: DraftCluster) -> DraftCluster:
    """A node with a card of 16Gi and one of 32Gi, and the class."""
    small = card("gpu-0", memory={"quantity": "16Gi"}, runtimeVersion={"version": "12.1.0"})
    large = card("gpu-1", memory={"quantity": "32Gi"}, runtimeVersion={"version": "v12.1"})
    draft.apply(node(), node_slice(small, large), example()["ResourceClass"])
    return draft


# Using structured parameters ------------------------------------------------------------------------------------------


def test_a_claim_that_names_a_vendors_object_waits_for_the_parameters_that_the_vendor_makes_of_it(
    draft: DraftCluster,
) -> None:
    documents = example()
    made = documents.pop("ResourceClaimParameters")
    draft.apply(node(), *documents.values())
    assert "generated claim parameters for CardParameters.dra.example.com default/my-parameters not found" in (
        draft.why_pending("with-card")
    )
    draft.apply(made)
    assert draft.node_of("with-card") == "worker-1"
    assert draft.given() == ["gpu-1"]


def test_parameters_that_users_write_themselves_are_named_by_the_claim_directly(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR), claim(), pod())
    assert (cards.node_of(), cards.given()) == ("worker-1", ["gpu-1"])


def test_a_claim_waits_for_parameters_that_it_names_directly(cards: DraftCluster) -> None:
    cards.apply(claim(), pod())
    assert "resourceclaim my-card: claim parameters default/wanted not found" in cards.why_pending()
    cards.apply(parameters(SELECTOR))
    assert cards.node_of() == "worker-1"


def test_parameters_that_were_made_twice_of_one_object_are_told_of(draft: DraftCluster) -> None:
    documents = example()
    made = documents["ResourceClaimParameters"]
    draft.apply(node(), *documents.values(), {**made, "metadata": {"name": "once-more", "namespace": "default"}})
    draft.apply(claim("other") | {"spec": documents["ResourceClaim"]["spec"]}, pod("p", "other"))
    why = draft.why_pending()
    assert "are there 2 times: default/my-parameters-generated, default/once-more" in why
    draft.delete("ResourceClaimParameters", "once-more")
    assert "cannot allocate all claims" in draft.why_pending()  # the pod of the example has the only card that suits


def test_a_class_that_is_not_there_is_waited_for(draft: DraftCluster) -> None:
    draft.apply(node(), node_slice(card("gpu-0")), parameters("true"), claim(), pod())
    assert f"resource class {CLASS} not found" in draft.why_pending()
    draft.apply(example()["ResourceClass"])
    assert draft.node_of() == "worker-1"


def test_a_class_without_structured_parameters_is_left_to_its_drivers_controller(cards: DraftCluster) -> None:
    cards.apply(named("ResourceClass", "opaque", driverName=DRIVER), claim("x", params="", of_class="opaque"))
    cards.apply(pod("p", "x"))
    assert "resource class opaque has no structuredParameters" in cards.why_pending()
    assert cards.handles("x") == []


def test_a_claim_without_parameters_gets_any_resource_of_its_classes_driver(cards: DraftCluster) -> None:
    cards.apply(claim(params=""), pod())
    (given,) = cards.given()
    assert cards.handles()[0]["structuredData"] == {
        "nodeName": "worker-1",
        "namedResourcesWithAttributes": {"resources": [{"id": given}]},
    }
    assert cards.claim()["status"]["allocation"]["shareable"] is True


def test_a_claim_without_parameters_of_a_driver_of_kubernetes_1_30_has_the_result_of_1_30(draft: DraftCluster) -> None:
    published = named(
        "ResourceSlice", "cards", nodeName=NODE, driverName=DRIVER, namedResources={"instances": [{"name": "gpu-0"}]}
    )
    draft.apply(node(), example()["ResourceClass"], claim(params=""), pod())
    with gates.using(DRAControlPlaneController=True):
        draft.api.made(address(published), published)
    draft.cluster.retry()
    (handle,) = draft.handles()
    assert handle["structuredData"]["results"] == [{"namedResources": {"name": "gpu-0"}}]


def test_each_entry_is_a_request_for_one_resource(cards: DraftCluster) -> None:
    cards.apply(parameters('attributes["memory"] >= "32Gi"', "true"), claim(), pod())
    assert cards.given() == ["gpu-1", "gpu-0"]


def test_one_selector_in_place_of_a_list_is_a_request_for_one_resource(cards: DraftCluster) -> None:
    """As the Go types of the draft have it, and not its YAML."""
    wanted = parameters("true")
    wanted["requests"][0]["namedResourcesWithAttributes"] = {"selector": SELECTOR}
    cards.apply(wanted, claim(), pod())
    assert cards.given() == ["gpu-1"]


def test_a_claim_may_use_resources_of_several_drivers(cards: DraftCluster) -> None:
    nic = card("nic-0", speed={"int": 100}, links={"stringSlice": ["a", "b"]})
    cards.apply(node_slice(nic, name="nics", driver="nics.dra.example.com"))
    fast = {"required": [{"selector": 'attributes["speed"] >= 100 && "b" in attributes["links"]'}]}
    wanted = parameters(SELECTOR)
    wanted["requests"].append({"driverName": "nics.dra.example.com", "namedResourcesWithAttributes": fast})
    cards.apply(wanted, claim(), pod())
    assert [one["driverName"] for one in cards.handles()] == [DRIVER, "nics.dra.example.com"]
    assert cards.given() == ["gpu-1", "nic-0"]


def test_a_selector_that_no_resource_meets_keeps_the_pod_waiting_until_one_does(cards: DraftCluster) -> None:
    cards.apply(parameters('attributes["memory"] >= "64Gi"'), claim(), pod())
    assert "cannot allocate all claims" in cards.why_pending()
    cards.apply(node("worker-2"), node_slice(card("big", memory={"quantity": "80Gi"}), name="more", node="worker-2"))
    assert (cards.node_of(), cards.given()) == ("worker-2", ["big"])


def test_parameters_that_change_wake_the_pods_that_wait(cards: DraftCluster) -> None:
    cards.apply(parameters('attributes["memory"] >= "64Gi"'), claim(), pod())
    cards.why_pending()
    cards.replace(parameters(SELECTOR))
    cards.cluster.retry()
    assert cards.node_of() == "worker-1"


def test_class_parameters_add_a_selector_to_every_request_made_with_the_class(cards: DraftCluster) -> None:
    small = {"driverName": DRIVER, "namedResourcesWithAttributes": {"selector": 'attributes["memory"] <= "16Gi"'}}
    cards.apply(
        named("ResourceClassParameters", "small", filters=[small], vendorParameters={"kind": "CardClass", "power": 70}),
        named(
            "ResourceClass", "small", driverName=DRIVER, structuredParameters=True,
            parametersRef={"apiGroup": "resource.k8s.io", "kind": "ResourceClassParameters", "name": "small"},
        ),
        parameters("true"), claim(of_class="small"), pod(),
    )  # fmt: skip
    assert cards.given() == ["gpu-0"]
    handle = cards.handles()[0]["structuredData"]
    assert handle["vendorClassParameters"] == {"kind": "CardClass", "power": 70}
    cards.apply(claim("second", of_class="small"), pod("q", "second"))
    assert cards.given("second") == []


def test_class_parameters_are_found_by_the_vendors_object_that_they_were_made_of(cards: DraftCluster) -> None:
    origin = {"apiGroup": "dra.example.com", "kind": "CardClassParameters", "name": "gpu-parameters"}
    cards.apply(
        named("ResourceClass", "vendors", driverName=DRIVER, structuredParameters=True, parametersRef=origin),
        parameters("true"), claim(of_class="vendors"), pod(),
    )  # fmt: skip
    why = "generated class parameters for CardClassParameters.dra.example.com gpu-parameters not found"
    assert why in cards.why_pending()
    large = {"driverName": DRIVER, "namedResourcesWithAttributes": {"selector": 'attributes["memory"] > "16Gi"'}}
    cards.apply(
        named("ResourceClassParameters", "some", generatedFrom={**origin, "uid": "foobar-uid"}, filters=[large])
    )
    cards.cluster.retry()
    assert cards.given() == ["gpu-1"]


def test_resource_types_of_kubernetes_1_30_are_allocated_likewise(cards: DraftCluster) -> None:
    selected = {"namedResources": {"selector": 'attributes.quantity["memory"].isGreaterThan(quantity("20Gi"))'}}
    request = {
        "driverName": DRIVER,
        "vendorParameters": {"a": 1},
        "requests": [{**selected, "vendorParameters": {"b": 2}}],
    }
    cards.apply(named("ResourceClaimParameters", "wanted", shareable=True, driverRequests=[request]), claim(), pod())
    (handle,) = cards.handles()
    assert handle["structuredData"] == {
        "vendorClaimParameters": {"a": 1},
        "nodeName": "worker-1",
        "results": [{"vendorRequestParameters": {"b": 2}, "namedResources": {"name": "gpu-1"}}],
    }


def test_instances_that_drivers_of_kubernetes_1_30_publish_are_allocated_likewise(draft: DraftCluster) -> None:
    kinds = {"name": "kinds", "stringSlice": {"strings": ["fast", "red"]}}
    small = {"name": "gpu-0", "attributes": [{"name": "memory", "quantity": "16Gi"}, kinds]}
    large = {"name": "gpu-1", "attributes": [{"name": "memory", "quantity": "32Gi"}, kinds]}
    published = named(
        "ResourceSlice", "cards", nodeName=NODE, driverName=DRIVER, namedResources={"instances": [small, large]}
    )
    big = 'attributes.quantity["memory"].isGreaterThan(quantity("20Gi"))'
    selector = f'{big} && "red" in attributes.stringslice["kinds"]'
    request = {"driverName": DRIVER, "requests": [{"namedResources": {"selector": selector}}]}
    wanted = named("ResourceClaimParameters", "wanted", driverRequests=[request])
    draft.apply(node(), example()["ResourceClass"], wanted, claim(), pod())
    assert draft.handles() == []
    with gates.using(DRAControlPlaneController=True):
        draft.api.made(address(published), published)
    draft.cluster.retry()
    (handle,) = draft.handles()
    assert handle["structuredData"]["results"] == [{"namedResources": {"name": "gpu-1"}}]
    follower.forget()
    assert {device.name for device in read_devices().candidates} == {"gpu-0", "gpu-1"}
    follower.forget()


# Communicating allocation to the DRA driver ---------------------------------------------------------------------------


def test_the_result_has_the_form_of_the_draft(draft: DraftCluster) -> None:
    documents = example()
    draft.apply(node(), *documents.values())
    allocation = draft.claim()["status"]["allocation"]
    assert draft.claim()["status"]["driverName"] == DRIVER
    assert allocation["resourceHandles"] == [
        {
            "driverName": DRIVER,
            "structuredData": {
                "vendorClaimParameters": documents["ResourceClaimParameters"]["vendorParameters"],
                "nodeName": "worker-1",
                "namedResourcesWithAttributes": {"resources": [{"id": "gpu-1"}]},
            },
        }
    ]
    (term,) = allocation["availableOnNodes"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["worker-1"]}]
    assert draft.claim()["status"]["reservedFor"][0]["name"] == "with-card"


def test_the_result_keeps_the_parameters_as_they_were_set_at_the_time_of_allocation(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR, vendorParameters={"strategy": "TimeSliced"}), claim(), pod())
    cards.replace(parameters(SELECTOR, vendorParameters={"strategy": "Exclusive"}))
    cards.delete("ResourceClaimParameters", "wanted")
    assert cards.handles()[0]["structuredData"]["vendorClaimParameters"] == {"strategy": "TimeSliced"}


def test_what_is_allocated_is_held_for_the_users_of_today_too(cards: DraftCluster) -> None:
    """One device is not given twice, whichever form a claim has."""
    cards.apply(parameters(SELECTOR), claim(), pod())
    seen = cards.api.get("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/my-card").json
    (result,) = seen["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"], result["device"]) == (DRIVER, "worker-1", "gpu-1")
    assert seen["spec"] == {"devices": {}}


def test_a_status_that_is_written_back_as_it_was_read_stays_the_schedulers(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR), claim(), pod())
    path = "/apis/resource.k8s.io/v1alpha2/namespaces/default/resourceclaims/my-card/status"
    read = cards.claim()
    read["status"]["reservedFor"].append({"resource": "pods", "name": "another", "uid": "u"})
    answer = cards.api.put(path, read)
    assert answer.code == 422  # not shareable
    shared = cards.cluster.claim("my-card")
    assert cards.api.put(path, cards.claim()).code == 200
    assert cards.cluster.claim("my-card").status == shared.status
    cards.delete("Pod", "p")
    assert cards.given() == []


# NodeResourceSlice ----------------------------------------------------------------------------------------------------


def test_several_slices_of_a_driver_add_up_on_a_node(cards: DraftCluster) -> None:
    cards.apply(node_slice(card("gpu-2", memory={"quantity": "64Gi"}), name="more"))
    cards.apply(parameters('attributes["memory"] >= "64Gi"'), claim(), pod())
    assert cards.given() == ["gpu-2"]
    cards.delete("NodeResourceSlice", "more")
    cards.apply(parameters("true", "true", name="both"), claim("both", params="both"), pod("q", "both"))
    assert cards.given("both") == ["gpu-0", "gpu-1"]


def test_where_a_driver_publishes_todays_slices_too_those_count(cards: DraftCluster) -> None:
    device = {"name": "gpu-0", "capacity": {"memory": {"value": "16Gi"}}}
    pool = {"name": "worker-1", "generation": 0, "resourceSliceCount": 1}
    todays = {"driver": DRIVER, "nodeName": "worker-1", "pool": pool, "devices": [device]}
    document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "t"}, "spec": todays}
    cards.api.made("/apis/resource.k8s.io/v1/resourceslices", document)
    cards.apply(parameters("true", "true"), claim(), pod())
    assert "cannot allocate all claims" in cards.why_pending()
    cards.apply(parameters("true", name="one"), claim("one", params="one"), pod("q", "one"))
    assert cards.given("one") == ["gpu-0"]


def test_a_slice_goes_with_the_node_that_owns_it(draft: DraftCluster) -> None:
    draft.apply(node())
    uid = draft.get("Node", "worker-1")["metadata"]["uid"]
    published = node_slice(card("gpu-0"))
    published["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": "worker-1", "uid": uid}]
    draft.apply(published)
    draft.delete("Node", "worker-1")
    assert draft.api.get("/apis/resource.k8s.io/v1alpha2/noderesourceslices").json["items"] == []


def test_capacity_that_is_reduced_while_it_is_allocated_is_given_to_nobody_else(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR, shareable=False), claim(), pod())
    cards.replace(node_slice(card("gpu-0", memory={"quantity": "16Gi"}, runtimeVersion={"version": "12.1.0"})))
    assert (cards.node_of(), cards.given()) == ("worker-1", ["gpu-1"])
    cards.apply(claim("second"), pod("q", "second"))
    assert cards.given("second") == []


# Scheduling, deallocation ---------------------------------------------------------------------------------------------


def test_the_scheduler_sets_a_finalizer_on_what_it_allocates(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR), claim(), pod())
    assert "structured.dra.k8s.io/delete-protection" in cards.claim()["metadata"]["finalizers"]


def test_a_claim_that_is_deleted_while_it_is_used_stays_until_its_pod_is_gone(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR), claim(), pod())
    cards.delete("ResourceClaim", "my-card")
    assert cards.given() == ["gpu-1"]
    cards.delete("Pod", "p")
    assert cards.api.get("/apis/resource.k8s.io/v1alpha2/namespaces/default/resourceclaims").json["items"] == []


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


def test_claims_are_made_of_templates_as_ever(cards: DraftCluster) -> None:
    spec = {"metadata": {}, "spec": claim()["spec"]}
    asked = pod("p")
    asked["spec"]["resourceClaims"] = [{"name": "c0", "resourceClaimTemplateName": "each"}]
    cards.apply(parameters("true"), named("ResourceClaimTemplate", "each", spec=spec), asked)
    status = cards.get("Pod", "p")["status"]["resourceClaimStatuses"]
    assert cards.node_of() == "worker-1"
    assert len(cards.given(status[0]["resourceClaimName"])) == 1


def test_a_claim_is_for_one_pod_at_a_time_unless_its_parameters_say_that_it_is_shareable(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR), claim(), pod("one"), pod("two"))
    assert [bool(cards.node_of(name)) for name in ("one", "two")].count(True) == 1
    cards.apply(parameters("true", name="s", shareable=True), claim("shared", params="s"))
    cards.apply(pod("three", "shared"), pod("four", "shared"))
    assert (cards.node_of("three"), cards.node_of("four")) == ("worker-1", "worker-1")
    assert cards.claim("shared")["status"]["allocation"]["shareable"] is True
    assert len(cards.claim("shared")["status"]["reservedFor"]) == 2


# Immediate allocation -------------------------------------------------------------------------------------------------


def test_a_claim_with_immediate_allocation_is_allocated_without_a_pod(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR), claim(mode="Immediate"))
    assert cards.given() == ["gpu-1"]
    cards.apply(pod())
    assert cards.node_of() == "worker-1"


def test_a_claim_with_immediate_allocation_remains_allocated_when_no_longer_in_use(cards: DraftCluster) -> None:
    cards.apply(parameters(SELECTOR), claim(mode="Immediate"), pod())
    cards.delete("Pod", "p")
    cards.cluster.later(3600)
    cards.settle()
    assert cards.given() == ["gpu-1"]
    assert "reservedFor" not in cards.claim()["status"]
    cards.delete("ResourceClaim", "my-card")
    assert cards.api.get("/apis/resource.k8s.io/v1alpha2/namespaces/default/resourceclaims").json["items"] == []


def test_a_claim_that_is_kept_by_design_and_devices_of_the_draft_are_no_trouble(
    cards: DraftCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "FORGOTTEN", timedelta(0))
    monkeypatch.setattr(mendings, "FORGOTTEN", 0.0)
    cards.apply(parameters(SELECTOR), claim(mode="Immediate"), pod())
    cards.delete("Pod", "p")
    later = cards.cluster.now + STUCK + timedelta(minutes=1)
    assert [*doctor.examine_drivers(later), *doctor.examine_claims(later)] == []
    (line,) = (one for one in read_claims(EVERYONE) if one.name == "my-card")
    assert (line.state, line.note) == ("unused", "No pod is reserved for it; allocated until it is deleted")
    assert mendings.troubles() == []


def test_devices_of_the_draft_that_are_gone_and_slices_of_silent_or_missing_nodes_are_told_of(
    cards: DraftCluster,
) -> None:
    cards.apply(parameters(SELECTOR), claim(), pod())
    cards.api.made(address(node_slice()), node_slice(card("gpu-9"), name="stray", node="worker-9"))
    cards.delete("NodeResourceSlice", "cards")
    missing, lost = doctor.examine_drivers(cards.cluster.now)
    assert missing.about == f"pool worker-9 of driver {DRIVER}"
    assert missing.advice == "kubectl delete noderesourceslices --field-selector=spec.nodeName=worker-9"
    assert "claims hold 1 device that it does not publish any more: worker-1/gpu-1" in lost.what


def test_an_immediate_claim_without_a_place_says_what_it_waits_for(cards: DraftCluster) -> None:
    cards.apply(claim(mode="Immediate"))
    (event,) = cards.cluster.events("AllocationPending")
    assert "claim parameters default/wanted not found" in event.message
    cards.apply(parameters('attributes["memory"] >= "64Gi"'))
    assert len(cards.cluster.events("AllocationPending")) == 2
    cards.replace(parameters(SELECTOR))
    assert cards.given() == ["gpu-1"]


# The gate -------------------------------------------------------------------------------------------------------------


def test_with_the_gate_off_running_pods_keep_what_they_have_and_new_ones_are_told(
    cards: DraftCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cards.apply(parameters(SELECTOR), claim(), claim("later"), pod())
    with restarted_with(cards.cluster, **{GATE: False}):
        cards.api.made("/api/v1/namespaces/default/pods", pod("q", "later"))
        assert f"nobody allocates for resource class {CLASS}: the feature gates" in cards.why_pending("q")
        assert "DRAStructuredParametersDraft is off; claims that were allocated with structured parameters: 1." in (
            caplog.text
        )
        assert cards.node_of() == "worker-1"
        assert cards.cluster.devices(cards.cluster.claim("my-card")) == ["worker-1/gpu-1"]
        # The next reader of the claim loses nothing of it.
        cards.cluster.label(cards.cluster.claim("my-card"), "seen", "yes")
    assert cards.given() == ["gpu-1"]
    cards.delete("Pod", "p")
    cards.cluster.retry()
    assert cards.given("later") == ["gpu-1"]


def test_with_the_gate_off_nobody_finds_the_drafts_kinds(api: Api) -> None:
    answer = api.get("/apis/resource.k8s.io/v1alpha2")
    assert answer.code == 404
    assert "v1alpha2" not in api.get("/apis/resource.k8s.io").text
    assert "NodeResourceSlice" not in api.get("/openapi/v3/apis/resource.k8s.io/v1").text


def test_with_the_gate_on_its_kinds_are_found(draft: DraftCluster) -> None:
    found = {one["name"] for one in draft.api.get("/apis/resource.k8s.io/v1alpha2").json["resources"]}
    assert found - {"resourceclaims/explain", "resourceclaims/simulate"} == {
        "noderesourceslices", "resourceclaimparameters", "resourceclaims", "resourceclaims/status",
        "resourceclaimtemplates", "resourceclasses", "resourceclassparameters",
    }  # fmt: skip
    openapi.renew()
    schemas = draft.api.get("/openapi/v3/apis/resource.k8s.io/v1alpha2").json["components"]["schemas"]
    assert "intSlice" in schemas["io.k8s.api.resource.v1alpha2.NamedResourceAttribute"]["properties"]
    openapi.renew()


def test_pages_show_what_is_published_and_given_in_the_drafts_form(
    cards: DraftCluster, client: Client, django_user_model: type[User]
) -> None:
    follower.forget()
    cards.apply(parameters(SELECTOR), claim(), pod(), claim("waiting", params="unknown"), pod("q", "waiting"))
    cards.why_pending("q")
    client.force_login(django_user_model.objects.create_superuser("root", password="x"))
    shown = {
        "/devices": "gpu-1",
        f"/devices/d/{DRIVER}/worker-1/gpu-1": "32Gi",
        "/claims/default/my-card": "gpu-1",
        "/claims/default/waiting": "claim parameters default/unknown not found",
        "/pods/default/p": "worker-1",
        "/pods/default/q": "claim parameters default/unknown not found",
        "/nodes/worker-1": "gpu-1",
        f"/drivers/{DRIVER}": "worker-1",
        "/overview": "The requests of a claim are unknown",
    }
    for path, wanted in shown.items():
        answer = client.get(path)
        assert (path, answer.status_code) == (path, 200)
        assert wanted in html.unescape(answer.content.decode()), path
    follower.forget()


def test_a_simulation_decides_as_the_scheduler_would_on_a_copy_of_the_state(cards: DraftCluster) -> None:
    """Simulation with CA: with a node that is only imagined, and nothing of it is written."""
    cards.apply(parameters('attributes["memory"] >= "64Gi"'), claim())
    imagined = ClusterState.captured().copied()
    asking = make_pod("p", claims={"card": "my-card"})
    assert isinstance(decide(imagined, asking), PodRefusal)
    imagined.imagine("nodes", make_node("worker-9"))
    large = node_slice(card("big", memory={"quantity": "80Gi"}), name="more", node="worker-9")
    imagined.imagine(NODE_SLICES, codec.decode_document(NODE_RESOURCE_SLICE, large, strictness="Strict").object)
    placed = decide(imagined, asking)
    assert isinstance(placed, Placement)
    assert placed.node == "worker-9"
    assert cards.given() == []


def test_why_such_a_claim_waits_is_explained(cards: DraftCluster) -> None:
    follower.forget()
    cards.apply(claim())
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/my-card/explain"
    assert "claim parameters default/wanted not found" in cards.api.get(path).text
    cards.apply(parameters('attributes["memory"] >= "64Gi"'))
    assert "64Gi" in cards.api.get(path).text
    cards.replace(parameters(SELECTOR))
    assert "Schedulable" in cards.api.get(path).text
    follower.forget()
