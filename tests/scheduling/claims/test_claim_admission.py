"""Claims made from templates are shown to admission policies before they are made."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from claims.causes import causes
from claims.controllers import generated_claims, pod_groups
from claims.controllers import generated_claims as controller
from claims.controllers.generated_claims import Verdicts
from claims.kinds.pods import Pod, PodSchedulingGroup
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from inventory.kinds import gates
from manciple.admission.kinds.bindings import ValidatingAdmissionPolicyBinding
from manciple.admission.kinds.mutating_policies import MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding
from manciple.admission.kinds.policies import ValidatingAdmissionPolicy
from manciple.wire import codec
from manciple.wire.errors import ApiError
from manciple.wire.identity import Identity
from scheduling.claims import extended_resources
from scheduling.cycle import scheduler
from scheduling.queue import queue
from scheduling.queue.verdicts import Placement, Retry
from scheduling.state.cluster import ClusterState
from tests.builders import make_class, make_container, make_devices, make_node, make_pod, make_slice, make_template
from tests.builders.groups import make_group
from tests.manciple.admission.documents import binding, mutating_binding, mutating_policy, policy, rule
from tests.scheduling.cluster import Cluster

OF_CLAIMS = [rule("resourceclaims", "CREATE", group="resource.k8s.io")]


def forbid(cluster: Cluster, expression: str, **spec: Any) -> None:
    document = policy(
        "p", rules=OF_CLAIMS, validations=[{"expression": expression, "message": "not like this"}], **spec
    )
    cluster.create(codec.decode_value(ValidatingAdmissionPolicy, document))
    cluster.create(codec.decode_value(ValidatingAdmissionPolicyBinding, binding("p")))


def with_template(cluster: Cluster, pod: str = "web", **labels: str) -> None:
    cluster.create(make_template(f"for-{pod}", claim_meta={"labels": labels}))
    cluster.create(make_pod(pod, templates={"gpu": f"for-{pod}"}))


def test_a_claim_that_a_policy_refuses_is_not_made_from_a_template_either(cluster: Cluster) -> None:
    forbid(cluster, "object.metadata.?labels.team.orValue('') == 'a'")
    with_template(cluster, "good", team="a")
    with_template(cluster, "bad", team="b")
    cluster.settle()
    assert [claim.metadata.owner_references[0].name for claim in cluster.all(ResourceClaim)] == ["good"]
    (event,) = cluster.events("FailedResourceClaimCreation")
    assert event.message.endswith("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not like this")


def test_the_policy_is_asked_in_the_controllers_name_about_the_whole_claim(cluster: Cluster) -> None:
    forbid(
        cluster,
        "request.userInfo.username != 'system:serviceaccount:kube-system:resource-claim-controller' || "
        "object.metadata.ownerReferences[0].name != 'web' || namespaceObject.metadata.name != 'default' || "
        "object.spec.devices.requests.size() != 1",
    )
    with_template(cluster)
    cluster.settle()
    assert cluster.all(ResourceClaim) == []


def test_a_claim_that_was_lost_is_asked_about_again(cluster: Cluster) -> None:
    with_template(cluster)
    cluster.settle()
    forbid(cluster, "false")
    cluster.delete(cluster.generated_claim("web"))
    cluster.settle()
    assert cluster.all(ResourceClaim) == []


def test_a_template_that_changed_since_is_asked_about_next_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(cluster, "object.metadata.?labels.team.orValue('') != 'b'")
    with_template(cluster, team="a")
    ask = controller.ask_about

    def too_early(*arguments: Any) -> Verdicts:
        verdicts = ask(*arguments)
        cluster.label(cluster.get(ResourceClaimTemplate, "for-web"), "touched", "yes")
        return verdicts

    monkeypatch.setattr(controller, "ask_about", too_early)
    generated_claims.sync([("default", "web")])
    assert cluster.all(ResourceClaim) == []
    assert cluster.events("FailedResourceClaimCreation") == []
    monkeypatch.undo()
    generated_claims.sync([("default", "web")])
    assert len(cluster.all(ResourceClaim)) == 1


def test_who_waits_for_a_slow_webhook_lets_others_go_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(cluster, "true")
    monkeypatch.setattr(controller, "PATIENCE", -1.0)
    with_template(cluster)
    generated_claims.sync([("default", "web")])
    assert cluster.all(ResourceClaim) == []
    monkeypatch.undo()
    generated_claims.sync([("default", "web")])
    assert len(cluster.all(ResourceClaim)) == 1


def test_who_is_slow_for_some_pods_does_not_keep_the_others_from_being_asked_about_for_ever(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(cluster, "object.metadata.ownerReferences[0].name == 'good'")
    names = ["a-slow", "b-slow", "good", "y-slow", "z-slow"]
    for name in names:
        with_template(cluster, name)
    ask, now = controller.admitted, [0.0]

    def ask_slowly(claim: ResourceClaim, identity: Identity) -> ResourceClaim | ApiError:
        now[0] += 10 * controller.PATIENCE
        return ask(claim, identity)

    monkeypatch.setattr(controller, "admitted", ask_slowly)
    monkeypatch.setattr(controller, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    for _ in range(100):
        if cluster.all(ResourceClaim):
            break
        generated_claims.sweep(cluster.now)
    (claim,) = cluster.all(ResourceClaim)
    assert claim.metadata.owner_references[0].name == "good"


def change(cluster: Cluster, expression: str) -> None:
    document = mutating_policy("m", expression, rules=OF_CLAIMS)
    cluster.create(codec.decode_value(MutatingAdmissionPolicy, document))
    cluster.create(codec.decode_value(MutatingAdmissionPolicyBinding, mutating_binding("m")))


def test_a_policy_changes_the_claims_that_are_made_from_templates(cluster: Cluster) -> None:
    cluster.create(make_class())
    cluster.create(make_node())
    cluster.create(make_slice())
    change(
        cluster,
        """[JSONPatch{op: "add", path: "/metadata/labels", value: {"team": "a"}},
            JSONPatch{op: "replace", path: "/spec/devices/requests/0/name", value: "changed"}]""",
    )
    forbid(cluster, "object.metadata.labels.team == 'a'")
    with_template(cluster)
    cluster.settle()
    (claim,) = cluster.all(ResourceClaim)
    assert (claim.metadata.labels["team"], claim.spec.devices.requests[0].name) == ("a", "changed")
    assert claim.metadata.owner_references[0].name == "web"
    assert cluster.pod("web").spec.node_name == "node-1"


def test_a_policy_that_spoils_a_claim_is_told_of(cluster: Cluster) -> None:
    change(cluster, """[JSONPatch{op: "replace", path: "/spec/devices/requests/0/name", value: "Not a name"}]""")
    with_template(cluster)
    cluster.settle()
    assert cluster.all(ResourceClaim) == []
    (event,) = cluster.events("FailedResourceClaimCreation")
    assert 'spec.devices.requests[0].name: Invalid value: "Not a name"' in event.message


def test_the_claims_of_groups_are_changed_as_well(cluster: Cluster) -> None:
    with gates.using(GenericWorkload=True, GangScheduling=True, DRAWorkloadResourceClaims=True):
        change(cluster, """Object{metadata: Object.metadata{labels: {"team": "a"}}}""")
        cluster.create(make_template("shared"))
        cluster.create(make_group("train", 2, templates={"gpu": "shared"}))
        pod_groups.reconcile(cluster.now)
        assert [claim.metadata.labels for claim in cluster.all(ResourceClaim)] == [{"team": "a"}]


def test_a_policy_is_asked_about_the_claim_for_extended_resources_in_the_schedulers_name(cluster: Cluster) -> None:
    cluster.create(make_class(extended_resource_name="example.com/gpu"))
    cluster.create(make_node())
    cluster.create(make_slice())
    forbid(
        cluster,
        "request.userInfo.username != 'system:kube-scheduler' || object.metadata.ownerReferences[0].name == 'good'",
    )
    for name in ("good", "bad"):
        cluster.create(make_pod(name, containers=[make_container(limits={"example.com/gpu": "1"})]))
    cluster.settle()
    assert [claim.metadata.owner_references[0].name for claim in cluster.all(ResourceClaim)] == ["good"]
    assert cluster.condition("bad").reason == "SchedulerError"
    assert cluster.why_pending("bad").endswith("with binding 'p' denied request: not like this")


def asking(name: str, **spec: Any) -> Pod:
    return make_pod(name, containers=[make_container(limits={"example.com/gpu": "1"})], **spec)


def test_a_gang_of_which_a_policy_refuses_a_claim_for_extended_resources_gets_no_place_and_is_told_why(
    cluster: Cluster,
) -> None:
    with gates.using(GenericWorkload=True, GangScheduling=True):
        cluster.create(make_class(extended_resource_name="example.com/gpu"))
        cluster.create(make_node())
        cluster.create(make_slice())
        forbid(cluster, "object.metadata.ownerReferences[0].name == 'good'")
        cluster.create(make_group("train", 2))
        for name in ("good", "bad"):
            cluster.create(asking(name, scheduling_group=PodSchedulingGroup(pod_group_name="train")))
        cluster.settle()
        assert cluster.all(ResourceClaim) == []
        assert cluster.why_pending("bad").endswith("with binding 'p' denied request: not like this")
        assert isinstance(cluster.cause("good"), causes.GroupDoesNotFit)


def test_who_is_asked_about_claims_for_extended_resources_and_is_slow_holds_up_no_other_pods(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extended_resources, "PATIENCE", 0.0)
    cluster.create(make_class(extended_resource_name="example.com/gpu"))
    cluster.create(make_node())
    cluster.create(make_slice(devices=make_devices(2)))
    forbid(cluster, "true")
    pods = [cluster.create(asking(name)) for name in ("first", "second")]
    pods.append(cluster.create(make_pod("asks-for-nothing")))
    state = ClusterState.captured()
    queue.feed(state, cluster.now)
    decided = extended_resources.asked([scheduler.decide(state, pod) for pod in pods], state)
    assert [type(one) for one in decided] == [Placement, Retry, Placement]
    cluster.settle()
    assert {pod.spec.node_name for pod in cluster.all(Pod)} == {"node-1"}
