"""cdi.k8s.io/v1alpha1 (KEP-3063, first draft): what may be created, how claims change, how pods name them."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from claims.drafts.cdi import rules
from claims.drafts.cdi.registration import CLAIM, CLASS, PLUGIN
from claims.drafts.cdi.values import (
    ALLOCATED,
    PENDING,
    REALLOCATE,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClass,
    spec_of,
    with_status,
)
from claims.kinds import pod_strategy
from claims.kinds.listed_claims import ResourceClaimSpec
from claims.kinds.pods import Pod, claim_of, listed_resources
from claims.kinds.registration import POD
from claims.kinds.resource_usage import resources_of
from inventory.kinds import gates
from manciple.wire import apply, codec, managed_fields, protobuf
from manciple.wire.base import ObjectMeta, OwnerReference
from manciple.wire.errors import BadRequest
from manciple.wire.validation import SPEC
from tests.claims.drafts.acme import CLASS_OF_THE_STORY

USERS = tuple(OwnerReference(api_version="v1", kind="Pod", name=f"pod-{at}", uid=f"uid-{at}") for at in range(4))


def claim(**status: Any) -> ResourceClaim:
    given = {"phase": PENDING, "user_limit": 1, "plugin_name": "gpu.acme.com", **status}
    return ResourceClaim(
        api_version="cdi.k8s.io/v1alpha1",
        kind="ResourceClaim",
        metadata=ObjectMeta(name="gpu", namespace="team", uid="c-1"),
        spec=ResourceClaimSpec(resource_class_name="acme-gpu", allocation_mode="Delayed"),
        status=ResourceClaimStatus(**given),
    )


def wrote(old: ResourceClaim, **status: Any) -> tuple[ResourceClaim, list[str]]:
    """A write of the status as the API prepares it, and the fields that it refuses."""
    new = rules.update_claim_status(with_status(old, **status), old)
    return new, [error.field for error in rules.validate_claim_status_update(new, old)]


# Phases -------------------------------------------------------------------------------------------------------------


ALLOWED = {(PENDING, ALLOCATED), (ALLOCATED, REALLOCATE), (REALLOCATE, PENDING)}


@pytest.mark.parametrize(("before", "after"), [*product((PENDING, ALLOCATED, REALLOCATE), repeat=2)])
def test_phases_follow_each_other_as_the_draft_draws_them(before: str, after: str) -> None:
    _, refused = wrote(claim(phase=before, selected_node="node-1"), phase=after)
    assert bool(refused) is not (before == after or (before, after) in ALLOWED)


IMMEDIATE = replace(claim(), spec=replace(claim().spec, allocation_mode="Immediate"))
LEAVING = replace(claim(phase=ALLOCATED), metadata=replace(claim().metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
#: what is written over which claim, and the field that is refused
WRITES: dict[str, tuple[ResourceClaim, dict[str, Any], str]] = {
    "an unknown phase": (claim(), {"phase": "Ready"}, "phase"),
    "the scheduler must set the node before the plugin proceeds": (claim(), {"phase": ALLOCATED}, "selectedNode"),
    "with the node selected it does": (claim(selected_node="node-1"), {"phase": ALLOCATED}, ""),
    "an immediate claim is allocated without a node selected": (IMMEDIATE, {"phase": ALLOCATED}, ""),
    "nobody allocates without a plugin": (
        claim(plugin_name="", selected_node="node-1"), {"phase": ALLOCATED}, "pluginName"
    ),
    "what is used must not be reallocated": (
        claim(phase=ALLOCATED, used_by=USERS[:1]), {"phase": REALLOCATE, "used_by": ()}, "phase"
    ),
    "the plugin that allocated a claim stays the one that frees it": (
        claim(phase=ALLOCATED), {"plugin_name": "other.example.com"}, "pluginName"
    ),
    "nobody uses what is not allocated": (claim(), {"used_by": USERS[:1]}, "usedBy"),
    "a claim that is being deleted gets no new users": (LEAVING, {"used_by": USERS[:1]}, "usedBy"),
    "one user by default": (claim(phase=ALLOCATED), {"used_by": USERS[:2]}, "usedBy"),
    "as many users as its limit": (claim(phase=ALLOCATED, user_limit=3), {"used_by": USERS[:3]}, ""),
    "no more users than its limit": (claim(phase=ALLOCATED, user_limit=3), {"used_by": USERS[:4]}, "usedBy"),
    "any number of users with the limit -1": (claim(phase=ALLOCATED, user_limit=-1), {"used_by": USERS[:4]}, ""),
    "a user limit is positive or -1": (claim(), {"user_limit": -2}, "userLimit"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITES)
def test_a_write_of_the_status_is_refused_at_its_field(case: str) -> None:
    before, changed, field = WRITES[case]
    assert wrote(before, **changed)[1] == ([f"status.{field}"] if field else [])


def test_nothing_is_left_of_a_resource_that_was_freed() -> None:
    freed, refused = wrote(
        claim(phase=REALLOCATE, selected_node="node-1", attributes={"card": "0"}, user_limit=-1), phase=PENDING
    )
    assert refused == []
    assert (freed.status.selected_node, freed.status.attributes, freed.status.user_limit) == ("", {}, 1)


def test_one_user_is_the_default_limit() -> None:
    assert rules.create_claim(claim(user_limit=7)).status.user_limit == 1
    assert wrote(claim(), user_limit=0)[0].status.user_limit == 1


ACTIONS = st.sampled_from(
    [
        {"phase": PENDING},
        {"phase": ALLOCATED},
        {"phase": REALLOCATE},
        {"selected_node": "node-1"},
        {"selected_node": ""},
        {"used_by": USERS[:1]},
        {"used_by": USERS[:2]},
        {"used_by": ()},
        {"user_limit": 2},
        {"user_limit": -1},
        {"plugin_name": "other.example.com"},
        {"attributes": {"a": "b"}},
    ]
)


@given(st.lists(ACTIONS, max_size=12))
def test_whatever_is_written_a_claim_never_has_users_without_an_allocation(actions: list[dict[str, Any]]) -> None:
    now = rules.create_claim(claim())
    for action in actions:
        after, refused = wrote(now, **action)
        if refused:
            continue
        status = after.status
        assert not status.used_by or status.phase == ALLOCATED
        assert status.phase != ALLOCATED or status.plugin_name
        assert (now.status.phase, status.phase) in ALLOWED or now.status.phase == status.phase
        if now.status.phase in (ALLOCATED, REALLOCATE) and status.phase != PENDING:
            assert status.plugin_name == now.status.plugin_name
        now = after


# Claims, classes, plugins -------------------------------------------------------------------------------------------


def test_the_spec_of_a_claim_can_only_be_set_once() -> None:
    new = replace(claim(), spec=replace(claim().spec, resource_class_name="other"))
    assert [error.field for error in rules.validate_claim_update(new, claim())] == ["spec"]


def test_waiting_for_a_pod_is_the_default_and_other_modes_are_refused() -> None:
    assert rules.with_defaults(ResourceClaimSpec(resource_class_name="a")).allocation_mode == "Delayed"
    wrong = ResourceClaimSpec(resource_class_name="a", allocation_mode="Later")
    assert [error.field for error in rules.validate_claim_spec(wrong, SPEC)] == ["spec.allocationMode"]


def test_a_class_must_name_its_plugin_and_the_apiserver_does_not_check_that_the_class_exists() -> None:
    assert rules.validate_claim(claim()) == []
    found = rules.validate_class(ResourceClass(metadata=ObjectMeta(name="acme-gpu")))
    assert [error.field for error in found] == ["pluginName"]


def test_features_of_plugins_that_nobody_knows_are_taken() -> None:
    document = {"metadata": {"name": "gpu.acme.com"}, "features": [{"name": "TimeTravel", "parameters": {"years": 3}}]}
    made = codec.decode(PLUGIN, json.dumps(document).encode(), content_type="application/json", strictness="Strict")
    assert rules.validate_plugin(made.object) == []


def test_the_class_of_the_administrators_story_is_read_as_it_stands() -> None:
    text = f"apiVersion: cdi.k8s.io/v1alpha1{CLASS_OF_THE_STORY}".encode()
    made = codec.decode(CLASS, text, content_type="application/yaml", strictness="Strict").object
    assert rules.validate_class(made) == []
    assert made.parameters["initCommand"][-1] == "my-cluster"
    assert protobuf.decode(ResourceClass, protobuf.encode(made)).parameters == made.parameters


def test_claims_keep_everything_in_protobuf() -> None:
    full = claim(phase=ALLOCATED, selected_node="n", attributes={"a": "b"}, used_by=USERS, user_limit=-1)
    assert protobuf.decode(ResourceClaim, protobuf.encode(full)).status == full.status


def test_the_kinds_are_served_only_while_the_gate_is_on() -> None:
    assert not any(kind.is_served() for kind in (PLUGIN, CLASS, CLAIM))
    with gates.using(DRAControlPlaneController=True, DRAClaimsDraft=True):
        assert all(kind.is_served() for kind in (PLUGIN, CLASS, CLAIM))


def test_the_gate_needs_that_of_control_plane_controllers() -> None:
    with pytest.raises(ValueError, match="DRAClaimsDraft needs DRAControlPlaneController"):
        gates.parse("DRAClaimsDraft=true")


# Pods ---------------------------------------------------------------------------------------------------------------


def document(resources: Any, *, uses: tuple[str, ...] = (), name: str = "device-consumer") -> dict[str, Any]:
    container = {"name": "workload", "image": "my-app", **({"podResources": list(uses)} if uses else {})}
    spec = {"containers": [container], "resources": resources}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "team"}, "spec": spec}


def decoded(resources: Any, **more: Any) -> Pod:
    return from_json(document(resources, **more))


def from_json(body: dict[str, Any]) -> Pod:
    """As it is read while the gate is on; while it is off, `podResources` is unknown."""
    text = json.dumps(body).encode()
    with gates.using(DRAControlPlaneController=True, DRAClaimsDraft=True):
        made: Pod = codec.decode(POD, text, content_type="application/json", strictness="Strict").object
    return made


INLINE: list[dict[str, Any]] = [
    {"name": "gpu", "template": {"resourceClassName": "acme-gpu", "parameters": {"memory": "2Gi"}}}
]
NESTED: list[dict[str, Any]] = [
    {"name": "gpu", "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"resourceClassName": "acme-gpu"}}}
]
BY_NAME = [{"name": "gpu", "resourceClaimName": "shared"}]
LEVEL = {"requests": {"cpu": "1"}}


@pytest.mark.parametrize("resources", [INLINE, NESTED, BY_NAME, LEVEL])
def test_a_list_and_an_object_are_told_apart_and_survive_every_encoding(resources: Any) -> None:
    pod = decoded(resources, uses=("gpu",))
    assert isinstance(resources, list) is bool(listed_resources(pod))
    assert isinstance(resources, dict) is (resources_of(pod.spec) is not None)
    assert protobuf.decode(Pod, protobuf.encode(pod)).spec == pod.spec
    assert codec.decode_text(Pod, codec.encode(pod)) == pod
    assert codec.to_builtins(pod)["spec"]["resources"] == resources


def test_a_container_names_its_resources_as_the_drafts_types_or_as_its_example_do() -> None:
    body = document(INLINE, uses=("gpu",))
    (container,) = body["spec"]["containers"]
    container["podResources"] = [{"name": "gpu"}]
    assert from_json(body) == decoded(INLINE, uses=("gpu",))
    container["podResources"] = [{"name": "gpu", "count": 2}]
    with pytest.raises(BadRequest, match=r'unknown field "spec.containers\[0\].podResources\[0\].count"'):
        from_json(body)
    container["podResources"] = [{"name": 1}]
    with pytest.raises(BadRequest, match=r"field spec.containers\[0\].podResources\[0\].name of type string"):
        from_json(body)
    with pytest.raises(BadRequest, match=r"cannot unmarshal string into field spec.resources of type ResourceReq"):
        decoded("2Gi")
    container["podResources"] = [{}]
    assert [one.field for one in rules.validate_pod_resources(from_json(body))] == [
        "spec.containers[0].podResources[0]"
    ]


@pytest.mark.parametrize("resources", [INLINE, LEVEL])
def test_server_side_apply_owns_either_form(resources: Any) -> None:
    manager = apply.Manager(name="me", operation="Apply", api_version="v1")
    shape = managed_fields.splitting_of(POD)
    made = apply.apply_patch(None, document(resources), manager=manager, force=False, shape=shape, now="")
    owned = made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:resources"]
    assert owned == ({} if isinstance(resources, list) else {"f:requests": {"f:cpu": {}}})
    again = apply.apply_patch(made, document(resources), manager=manager, force=False, shape=shape, now="")
    assert again["spec"]["resources"] == resources


def refused(resources: Any, **more: Any) -> list[str]:
    return [error.field for error in rules.validate_pod_resources(decoded(resources, **more))]


@pytest.mark.parametrize(
    ("resources", "more", "fields"),
    [
        pytest.param(INLINE, {"uses": ("gpu",)}, [], id="the draft's example"),
        pytest.param(NESTED, {"uses": ("gpu",)}, [], id="the draft's type"),
        pytest.param([{"name": "gpu"}], {}, ["spec.resources[0]"], id="neither a claim nor a template"),
        pytest.param([{**INLINE[0], **BY_NAME[0]}], {}, ["spec.resources[0]"], id="a claim and a template"),
        pytest.param(
            [{"name": "gpu", "template": {**INLINE[0]["template"], **NESTED[0]["template"]}}],
            {}, ["spec.resources[0].template"], id="both forms of a template",
        ),
        pytest.param(INLINE * 2, {}, ["spec.resources[1]"], id="a name twice"),
        pytest.param(INLINE, {"name": "p" * 252}, ["spec.resources[0].name"], id="the claim's name would be too long"),
        pytest.param(INLINE, {"uses": ("fpga",)}, ["spec.containers[0].podResources[0]"], id="an unknown resource"),
        pytest.param(
            [{"name": "gpu", "template": {"metadata": {"name": "x"}, "spec": {"resourceClassName": "a"}}}],
            {}, ["spec.resources[0].template.metadata.name"], id="metadata other than labels and annotations",
        ),
        pytest.param(
            [{"name": "gpu", "template": {"parameters": {}}}],
            {}, ["spec.resources[0].template.resourceClassName"], id="no class",
        ),
    ],
)  # fmt: skip
def test_pod_validation_will_reject(resources: Any, more: dict[str, Any], fields: list[str]) -> None:
    assert refused(resources, **more) == fields


def test_the_name_of_the_claim_is_the_pods_and_the_resources() -> None:
    pod = decoded(INLINE)
    assert claim_of(pod, listed_resources(pod)[0]) == "device-consumer-gpu"
    assert spec_of(listed_resources(pod)[0].template).parameters == {"memory": "2Gi"}  # type: ignore[arg-type]


def test_an_existing_claim_that_is_not_owned_by_the_pod_will_not_be_used() -> None:
    pod = replace(decoded(INLINE), metadata=ObjectMeta(name="device-consumer", uid="uid-0"))
    owned = replace(claim(), metadata=replace(claim().metadata, owner_references=USERS[:1]))
    assert rules.is_owned_by(owned, pod)
    assert not rules.is_owned_by(claim(), pod)


def test_with_the_gate_off_a_list_is_refused_as_it_ever_was() -> None:
    with pytest.raises(BadRequest, match=r"cannot unmarshal array into field spec.resources of type ResourceReq"):
        POD.prepare_create(decoded(INLINE))


def test_with_the_gate_off_pod_resources_are_dropped_and_a_pods_own_resources_stay() -> None:
    made = POD.prepare_create(decoded(LEVEL, uses=("gpu",)))
    assert made.spec.containers[0].pod_resources == ()
    assert resources_of(made.spec) is not None


def test_with_the_gate_off_pods_that_have_the_list_go_on_with_it() -> None:
    with gates.using(DRAControlPlaneController=True, DRAClaimsDraft=True):
        known = POD.prepare_create(decoded(INLINE, uses=("gpu",)))
    labelled = replace(known, metadata=replace(known.metadata, labels={"a": "b"}))
    assert POD.prepare_update(labelled, known).spec == known.spec
    assert not POD.validate_update(labelled, known)


def test_only_a_pod_with_a_list_of_resources_is_decoded_for_typed_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The health of devices in a pod's status has lists of that name: pods with devices are most of them."""
    health = '{"status":{"containerStatuses":[{"allocatedResourcesStatus":[{"name":"claim:a","resources":[{}]}]}]}}'
    text = health.replace("{", '{"spec":{"containers":[]},', 1)
    listed = text.replace('"containers":[]', '"containers":[],"resources":[{"name":"r"}]')
    assert '"resources"' not in pod_strategy.text_for_typed_clients(listed).partition('"status"')[0]
    monkeypatch.setattr(pod_strategy, "orjson", None)
    assert pod_strategy.text_for_typed_clients(text) is text
