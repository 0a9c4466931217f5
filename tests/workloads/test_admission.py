"""Pods that controllers make are shown to mutating policies and webhooks, as those of any client."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.containers import Container, SecurityContext
from claims.kinds.priority_classes import PRIORITY_CLASS, PriorityClass
from manciple.access import webhook_client
from manciple.admission.kinds.mutating_policies import (
    MUTATING_BINDING,
    MUTATING_POLICY,
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
)
from manciple.admission.kinds.webhooks import MUTATING_WEBHOOKS, MutatingWebhookConfiguration
from manciple.api import verbs
from manciple.controllers import turns
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.base import ObjectMeta
from manciple.wire.identity import SYSTEM
from manciple.wire.machinery import NAMESPACE, Event, Namespace
from manciple.wire.registry import Kind
from tests.manciple.admission.conftest import listening, server
from tests.manciple.admission.documents import (
    mutating_binding,
    mutating_policy,
    mutating_webhooks,
    rule,
    webhook,
)
from tests.manciple.admission.webhook_server import WebhookServer
from tests.workloads.cluster import Cluster, make_deployment, make_pod_template, make_replica_set
from workloads import pod_control
from workloads.kinds.deployments import DEPLOYMENT
from workloads.kinds.replica_sets import REPLICA_SET

__all__ = ["listening", "server"]

OF_PODS = [rule("pods", "CREATE")]


def configure(kind: Kind, obj: Any) -> None:
    verbs.create(kind, obj, identity=SYSTEM)


def install(server: WebhookServer, behaviour: Any, **members: Any) -> None:
    server.behaviours["/"] = behaviour
    document = mutating_webhooks(webhook(server.client_config("/"), rules=OF_PODS, **members))
    configure(MUTATING_WEBHOOKS, codec.decode_value(MutatingWebhookConfiguration, document))


def test_a_webhook_changes_the_pods_of_a_deployment_and_no_pod_is_replaced_for_that(
    cluster: Cluster, server: WebhookServer
) -> None:
    sidecar = {"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "proxy"}}
    install(server, {"patch": [sidecar]})
    cluster.create(DEPLOYMENT, make_deployment(replicas=3))
    cluster.settle()
    pods = cluster.pods()
    assert [[one.name for one in pod.spec.containers] for pod in pods] == [["app", "sidecar"]] * 3
    assert len(server.asked) == 3
    told = server.asked[0][1]["request"]
    assert told["userInfo"]["username"] == "system:serviceaccount:kube-system:replicaset-controller"
    assert told["namespace"] == "default"
    cluster.settle()
    assert {pod.metadata.uid for pod in cluster.pods()} == {pod.metadata.uid for pod in pods}


def test_a_policy_changes_the_pods_of_a_replica_set(cluster: Cluster) -> None:
    document = mutating_policy("p", """Object{spec: Object.spec{priorityClassName: "high"}}""", rules=OF_PODS)
    configure(MUTATING_POLICY, codec.decode_value(MutatingAdmissionPolicy, document))
    configure(MUTATING_BINDING, codec.decode_value(MutatingAdmissionPolicyBinding, mutating_binding("p")))
    high = PriorityClass(
        api_version="scheduling.k8s.io/v1", kind="PriorityClass", metadata=ObjectMeta(name="high"), value=7
    )
    configure(PRIORITY_CLASS, high)
    cluster.create(REPLICA_SET, make_replica_set(replicas=2))
    cluster.run()
    # The priority is worked out in the transaction, of the class that the policy has set.
    assert [pod.spec.priority for pod in cluster.pods()] == [7, 7]


def test_what_a_webhook_refuses_is_told_and_tried_again(cluster: Cluster, server: WebhookServer) -> None:
    install(server, {"response": {"allowed": False, "status": {"message": "not now"}}})
    cluster.create(REPLICA_SET, make_replica_set(replicas=2))
    cluster.run()
    assert cluster.pods() == []
    (condition,) = cluster.replica_set().status.conditions
    assert condition.message == 'admission webhook "w.example.com" denied the request: not now'
    server.behaviours["/"] = {"response": {"allowed": True}}
    cluster.pass_time(turns.RETRY_AFTER + 1)
    cluster.run()
    assert len(cluster.pods()) == 2


def test_a_slow_webhook_has_a_turn_end_early_and_all_pods_are_made_in_the_end(
    cluster: Cluster, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_control, "PATIENCE", -1.0)
    install(server, {"response": {"allowed": True}})
    cluster.create(REPLICA_SET, make_replica_set(replicas=4))
    seen = []

    def writing(*arguments: Any, **named: Any) -> Any:
        seen.append(len(cluster.pods()))
        return begin(*arguments, **named)

    begin = objects.writing
    monkeypatch.setattr(objects, "writing", writing)
    cluster.run()
    assert len(cluster.pods()) == 4
    assert set(seen) >= {0, 1, 2, 3}


def test_webhooks_are_asked_outside_of_transactions(
    cluster: Cluster, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = webhook_client.call

    def watched(calls: Any) -> Any:
        assert not objects.is_open()
        return call(calls)

    monkeypatch.setattr(webhook_client, "call", watched)
    install(server, {"response": {"allowed": True}})
    cluster.create(DEPLOYMENT, make_deployment(replicas=2))
    cluster.settle()
    assert len(server.asked) == 2


def test_who_makes_pods_is_told_which_label_admits_them(cluster: Cluster) -> None:
    """As the DaemonSet of a driver's chart, where nobody has labelled its namespace."""
    container = Container(name="app", image="app:1", security_context=SecurityContext(privileged=True))
    template = make_pod_template()
    template = replace(template, spec=replace(template.spec, containers=(container,)))
    cluster.create(REPLICA_SET, make_replica_set(replicas=1, template=template))
    cluster.run()
    (condition,) = cluster.replica_set().status.conditions
    label = "pod-security.kubernetes.io/enforce=privileged"
    assert condition.message.endswith(f"; label its namespace {label} to admit it"), condition.message
    events = objects.listed("events", Event)[1]
    assert {(one.reason, label in one.message) for one in events} == {("FailedCreate", True)}
    (namespace,) = (one for one in objects.listed("namespaces", Namespace)[1] if one.metadata.name == "default")
    labels = dict([label.split("=")])
    changed = replace(namespace, metadata=replace(namespace.metadata, labels=namespace.metadata.labels | labels))
    verbs.update(NAMESPACE, changed, name="default", identity=SYSTEM)
    cluster.pass_time(turns.RETRY_AFTER + 1)
    cluster.run()
    assert len(cluster.pods()) == 1
