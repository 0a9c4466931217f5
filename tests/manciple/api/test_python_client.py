"""The official Python client against the API."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.manciple.api.server import ApiServer

#: Half typed: some of it says Optional where its own answers never are, the rest says nothing.
kubernetes: Any = importlib.import_module("kubernetes")
ApiException: Any = kubernetes.client.rest.ApiException


@pytest.fixture
def client(api_server: ApiServer) -> Iterator[Any]:
    with kubernetes.config.new_client_from_config(str(api_server.kubeconfig)) as made:
        yield made


def claim_of(name: str) -> Any:
    v1 = kubernetes.client
    exactly = v1.V1ExactDeviceRequest(device_class_name="gpu.example.com")
    request = v1.V1DeviceRequest(name="one", exactly=exactly)
    return v1.ResourceV1ResourceClaim(
        metadata=v1.V1ObjectMeta(name=name),
        spec=v1.V1ResourceClaimSpec(devices=v1.V1DeviceClaim(requests=[request])),
    )


def class_of(name: str) -> Any:
    v1 = kubernetes.client
    return v1.V1DeviceClass(metadata=v1.V1ObjectMeta(name=name), spec=v1.V1DeviceClassSpec())


def test_claims_are_created_read_changed_and_deleted(client: Any) -> None:
    api = kubernetes.client.ResourceV1Api(client)
    made = api.create_namespaced_resource_claim("default", claim_of("c"))
    made.metadata.labels = {"team": "red"}
    api.replace_namespaced_resource_claim("c", "default", made)
    api.patch_namespaced_resource_claim("c", "default", {"metadata": {"annotations": {"a": "b"}}})
    read = api.read_namespaced_resource_claim("c", "default")
    assert (read.metadata.labels, read.metadata.annotations) == ({"team": "red"}, {"a": "b"})
    assert [item.metadata.name for item in api.list_resource_claim_for_all_namespaces().items] == ["c"]
    deleted = api.delete_namespaced_resource_claim("c", "default")
    assert deleted.metadata.uid == read.metadata.uid
    with pytest.raises(ApiException, match="404"):
        api.read_namespaced_resource_claim("c", "default")


def test_a_conflict_is_told(client: Any) -> None:
    api = kubernetes.client.ResourceV1Api(client)
    made = api.create_namespaced_resource_claim("default", claim_of("c"))
    api.patch_namespaced_resource_claim("c", "default", {"metadata": {"labels": {"a": "b"}}})
    made.metadata.labels = {"a": "c"}
    with pytest.raises(ApiException, match="409"):
        api.replace_namespaced_resource_claim("c", "default", made)


def test_leases_are_renewed(client: Any) -> None:
    api = kubernetes.client.CoordinationV1Api(client)
    made = api.create_namespaced_lease(
        "kube-node-lease",
        kubernetes.client.V1Lease(
            metadata=kubernetes.client.V1ObjectMeta(name="n1"),
            spec=kubernetes.client.V1LeaseSpec(holder_identity="n1", lease_duration_seconds=40),
        ),
    )
    made.spec.lease_transitions = 1
    assert api.replace_namespaced_lease("n1", "kube-node-lease", made).spec.lease_transitions == 1
    deleted = api.delete_namespaced_lease("n1", "kube-node-lease")
    assert client.sanitize_for_serialization(deleted)["status"] == "Success"
    assert not api.list_namespaced_lease("kube-node-lease").items


def test_a_watch_follows_a_list_like_an_informer(client: Any) -> None:
    """List, then watch from the list's revision: what happens in between is seen."""
    api = kubernetes.client.ResourceV1Api(client)
    revision = api.list_device_class().metadata.resource_version
    api.create_device_class(class_of("early"))
    later = threading.Thread(target=api.create_device_class, args=(class_of("late"),))
    watch = kubernetes.watch.Watch()
    seen = []
    for event in watch.stream(api.list_device_class, resource_version=revision):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 1:
            later.start()
        if len(seen) == 2:
            watch.stop()
    later.join()
    assert seen == [("ADDED", "early"), ("ADDED", "late")]


def test_the_dynamic_client_finds_resources_by_discovery(client: Any) -> None:
    dynamic = kubernetes.dynamic.DynamicClient(client)
    classes = dynamic.resources.get(api_version="resource.k8s.io/v1", kind="DeviceClass")
    classes.create(body={"metadata": {"name": "gpu.example.com"}, "spec": {}})
    assert [item.metadata.name for item in classes.get().items] == ["gpu.example.com"]


# The groups that workloads and what belongs to them are in ------------------------------------------------------------

POD_TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
}
RUNNING = {"selector": {"matchLabels": {"app": "web"}}, "template": POD_TEMPLATE}
ENDING = {"metadata": {}, "spec": {**POD_TEMPLATE["spec"], "restartPolicy": "Never"}}
BACKEND = {"service": {"name": "web", "port": {"number": 80}}}
#: (API, the object's name in the methods, whether it is in a namespace, what is sent beside the name)
SENT: dict[str, tuple[str, str, bool, dict[str, Any]]] = {
    "Deployment": ("AppsV1Api", "deployment", True, {"spec": RUNNING}),
    "ReplicaSet": ("AppsV1Api", "replica_set", True, {"spec": RUNNING}),
    "StatefulSet": ("AppsV1Api", "stateful_set", True, {"spec": {**RUNNING, "serviceName": "web"}}),
    "DaemonSet": ("AppsV1Api", "daemon_set", True, {"spec": RUNNING}),
    "ControllerRevision": ("AppsV1Api", "controller_revision", True, {"revision": 1, "data": {"a": 1}}),
    "Job": ("BatchV1Api", "job", True, {"spec": {"template": ENDING}}),
    "CronJob": (
        "BatchV1Api",
        "cron_job",
        True,
        {"spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": ENDING}}}},
    ),
    "Service": ("CoreV1Api", "service", True, {"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}),
    "ConfigMap": ("CoreV1Api", "config_map", True, {"data": {"a": "b"}}),
    "Secret": ("CoreV1Api", "secret", True, {"stringData": {"a": "b"}}),
    "ServiceAccount": ("CoreV1Api", "service_account", True, {}),
    "LimitRange": (
        "CoreV1Api",
        "limit_range",
        True,
        {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}},
    ),
    "PodTemplate": ("CoreV1Api", "pod_template", True, {"template": POD_TEMPLATE}),
    "PodDisruptionBudget": (
        "PolicyV1Api",
        "pod_disruption_budget",
        True,
        {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}},
    ),
    "EndpointSlice": (
        "DiscoveryV1Api",
        "endpoint_slice",
        True,
        {"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": [{"port": 80}]},
    ),
    "Ingress": (
        "NetworkingV1Api",
        "ingress",
        True,
        {"spec": {"rules": [{"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": BACKEND}]}}]}},
    ),
    "NetworkPolicy": (
        "NetworkingV1Api",
        "network_policy",
        True,
        {"spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}},
    ),
    "IngressClass": ("NetworkingV1Api", "ingress_class", False, {"spec": {"controller": "example.com/one"}}),
    "RuntimeClass": ("NodeV1Api", "runtime_class", False, {"handler": "kata"}),
    "CSIDriver": ("StorageV1Api", "csi_driver", False, {"spec": {"attachRequired": False}}),
    "CSINode": ("StorageV1Api", "csi_node", False, {"spec": {"drivers": []}}),
    "PriorityClass": ("SchedulingV1Api", "priority_class", False, {"value": 10}),
}


@pytest.mark.parametrize("kind", SENT)
def test_an_object_is_created_read_changed_listed_and_deleted(client: Any, kind: str) -> None:
    """The client's own types hold all that comes back: it refuses what lacks a field that it takes for required."""
    name, noun, namespaced, fields = SENT[kind]
    api, where = getattr(kubernetes.client, name)(client), {"namespace": "default"} if namespaced else {}

    def call(verb: str, *arguments: Any, **more: Any) -> Any:
        method = f"{verb}_namespaced_{noun}" if namespaced else f"{verb}_{noun}"
        return getattr(api, method)(*arguments, **where, **more)

    made = call("create", body={"metadata": {"name": "web"}, **fields})
    assert type(made).__name__ == f"V1{kind}"
    if kind != "ControllerRevision":  # which no PATCH changes, as in Kubernetes
        made = call("patch", "web", body={"metadata": {"labels": {"team": "red"}}})
        assert made.metadata.labels["team"] == "red"
    made.metadata.annotations = {"a": "b"}
    replaced = call("replace", "web", body=made)
    read = call("read", "web")
    assert (read.metadata.uid, read.metadata.annotations["a"]) == (made.metadata.uid, "b")
    assert read.metadata.resource_version == replaced.metadata.resource_version
    assert "web" in [one.metadata.name for one in call("list").items]
    call("delete", "web", propagation_policy="Background")
    with pytest.raises(ApiException, match="404"):
        call("read", "web")


def test_a_deployment_is_scaled_and_its_status_written(client: Any) -> None:
    api = kubernetes.client.AppsV1Api(client)
    api.create_namespaced_deployment("default", {"metadata": {"name": "web"}, "spec": RUNNING})
    scale = api.read_namespaced_deployment_scale("web", "default")
    assert (scale.spec.replicas, scale.status.selector) == (1, "app=web")
    scale.spec.replicas = 3
    assert api.replace_namespaced_deployment_scale("web", "default", scale).spec.replicas == 3
    deployment = api.read_namespaced_deployment("web", "default")
    assert deployment.spec.replicas == 3
    deployment.status.replicas = 2
    assert api.replace_namespaced_deployment_status("web", "default", deployment).status.replicas == 2


def test_an_event_of_one_api_is_read_by_the_other(client: Any) -> None:
    v1 = kubernetes.client
    event = {
        "metadata": {"name": "web.1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/one",
        "reportingInstance": "one-0",
        "action": "Trying",
        "reason": "Tried",
        "type": "Normal",
        "note": "It was tried.",
        "regarding": {"kind": "Pod", "name": "web", "namespace": "default", "apiVersion": "v1"},
    }
    made = v1.EventsV1Api(client).create_namespaced_event("default", event)
    assert made.regarding.name == "web"
    old = v1.CoreV1Api(client).read_namespaced_event("web.1", "default")
    assert (old.message, old.involved_object.name) == ("It was tried.", "web")


def test_a_token_of_a_service_account_is_good_for_its_name(client: Any) -> None:
    v1 = kubernetes.client
    api = v1.CoreV1Api(client)
    api.create_namespaced_service_account("default", {"metadata": {"name": "robot"}})
    asked = {"spec": {"audiences": [], "expirationSeconds": 600}}
    token = api.create_namespaced_service_account_token("robot", "default", asked).status.token
    review = v1.AuthenticationV1Api(client).create_token_review({"spec": {"token": token}})
    assert review.status.user.username == "system:serviceaccount:default:robot"


def test_an_autoscaler_is_made_in_one_version_and_read_in_the_other(client: Any) -> None:
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "maxReplicas": 3}
    old, new = kubernetes.client.AutoscalingV1Api(client), kubernetes.client.AutoscalingV2Api(client)
    scaler = {"metadata": {"name": "web"}, "spec": {**spec, "targetCPUUtilizationPercentage": 50}}
    old.create_namespaced_horizontal_pod_autoscaler("default", scaler)
    read = new.read_namespaced_horizontal_pod_autoscaler("web", "default")
    assert read.spec.metrics[0].resource.target.average_utilization == 50
    read.spec.metrics[0].resource.target.average_utilization = 70
    new.replace_namespaced_horizontal_pod_autoscaler("web", "default", read)
    (listed,) = old.list_namespaced_horizontal_pod_autoscaler("default").items
    assert listed.spec.target_cpu_utilization_percentage == 70


def test_a_client_of_what_is_not_served_learns_what_to_do_instead(client: Any) -> None:
    keeper = {"metadata": {"name": "web"}, "spec": {"replicas": 1, "template": POD_TEMPLATE}}
    with pytest.raises(ApiException, match="404") as refusal:
        kubernetes.client.CoreV1Api(client).create_namespaced_replication_controller("default", keeper)
    assert "use a Deployment" in refusal.value.body
