"""kubectl against the API, as a user types it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from claims.controllers import pool_statuses
from inventory.kinds import gates
from inventory.kinds.registration import RESOURCE_SLICE
from manciple.access.bootstrap import ensure_roles
from manciple.api import openapi
from manciple.store import objects
from tests.builders import make_slice
from tests.e2e.kubectl import Kubectl, find_kubectl
from tests.manciple.api.server import ApiServer

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: main, image: busybox}
"""
CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu}
spec:
  devices:
    requests:
    - name: one
      exactly: {deviceClassName: gpu.example.com}
"""


@pytest.fixture
def kubectl(api_server: ApiServer) -> Kubectl:
    return Kubectl(api_server.kubeconfig, find_kubectl())


def test_client_side_apply_creates_keeps_and_changes(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=POD) == "pod/web created\n"
    assert kubectl("apply", "-f", "-", stdin=POD) == "pod/web unchanged\n"
    assert kubectl("apply", "-f", "-", stdin=POD.replace("app: web", "app: shop")) == "pod/web configured\n"
    assert kubectl.json("get", "pod", "web")["metadata"]["labels"] == {"app": "shop"}


@pytest.mark.long
def test_claims_of_a_pod_that_are_told_in_both_ways_are_no_change_to_either(kubectl: Kubectl) -> None:
    """As Kubernetes 1.30 had them, and as today."""
    ways = {"old": "source: {resourceClaimName: gpu}", "new": "resourceClaimName: gpu"}
    pods = "---\n".join(
        f"{POD.replace('web', name)}  resourceClaims:\n  - {{name: gpu, {way}}}\n" for name, way in ways.items()
    )
    with using(DRAControlPlaneController=True):
        assert kubectl("apply", "-f", "-", stdin=pods) == "pod/old created\npod/new created\n"
        assert kubectl("apply", "-f", "-", stdin=pods) == "pod/old unchanged\npod/new unchanged\n"


DRAFT_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: device-consumer}
spec:
  containers:
  - {name: workload, image: my-app, podResources: [gpu]}
  resources:
  - name: gpu
    template: {resourceClassName: acme-gpu, parameters: {memory: 2Gi}}
"""


@pytest.mark.long
def test_a_pod_of_the_first_draft_of_kep_3063_is_applied_again_and_read_by_commands_with_types(
    kubectl: Kubectl,
) -> None:
    with using(DRAControlPlaneController=True, DRAClaimsDraft=True):
        assert kubectl("apply", "-f", "-", stdin=DRAFT_POD) == "pod/device-consumer created\n"
        assert kubectl("apply", "-f", "-", stdin=DRAFT_POD) == "pod/device-consumer unchanged\n"
        changed = DRAFT_POD.replace("my-app", "my-app:2")
        assert kubectl("apply", "-f", "-", stdin=changed) == "pod/device-consumer configured\n"
        kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=changed)
        described = kubectl("describe", "pod", "device-consumer")
        assert "my-app:2" in described
        assert "error" not in described
        assert "error" not in kubectl("logs", "device-consumer", check=False)
        kubectl("set", "image", "pod/device-consumer", "workload=my-app:3")
        kubectl("label", "pod", "device-consumer", "a=b")
        assert "<[]string>" in kubectl("explain", "pod.spec.containers.podResources")
        pod = kubectl.json("get", "pod", "device-consumer")
        assert pod["spec"]["containers"][0]["image"] == "my-app:3"
        assert pod["spec"]["containers"][0]["podResources"] == ["gpu"]
        assert pod["spec"]["resources"][0]["name"] == "gpu"
        kubectl("delete", "pod", "device-consumer", "--wait=false")


@pytest.mark.long
def test_a_slice_of_1_30_is_applied_on_the_client_then_on_the_server(kubectl: Kubectl) -> None:
    document = """\
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceSlice
metadata: {name: old}
nodeName: node-1
driverName: old.example.com
namedResources: {instances: [{name: gpu-0}]}
"""
    with using(DRAControlPlaneController=True):
        kubectl("apply", "-f", "-", stdin=document)
        applied = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=document, check=False)
        assert applied == "resourceslice.resource.k8s.io/old serverside-applied\n", "and no warning"


def test_server_side_apply_tells_conflicts(kubectl: Kubectl) -> None:
    assert kubectl("apply", "--server-side", "-f", "-", stdin=POD) == "pod/web serverside-applied\n"
    changed = POD.replace("app: web", "app: shop")
    refused = kubectl("apply", "--server-side", "--field-manager=bob", "-f", "-", stdin=changed, check=False)
    assert "Apply failed with 1 conflict" in refused
    kubectl("apply", "--server-side", "--field-manager=bob", "--force-conflicts", "-f", "-", stdin=changed)
    assert kubectl.json("get", "pod", "web")["metadata"]["labels"] == {"app": "shop"}


def test_applying_on_the_client_then_on_the_server(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    kubectl("apply", "--server-side", "-f", "-", stdin=POD.replace("app: web", "app: shop"))
    assert kubectl.json("get", "pod", "web")["metadata"]["labels"] == {"app": "shop"}


def test_unknown_fields_are_refused(kubectl: Kubectl) -> None:
    told = kubectl("create", "-f", "-", stdin=CLAIM.replace("exactly", "exctly"), check=False)
    assert 'strict decoding error: unknown field "spec.devices.requests[0].exctly"' in told
    assert "not found" in kubectl("get", "resourceclaim", "gpu", check=False)


def test_a_kind_that_is_not_served_is_said_to_be_missing_and_nothing_else(kubectl: Kubectl) -> None:
    gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web}\n"
    told = kubectl("apply", "-f", "-", stdin=gateway, check=False)
    assert 'no matches for kind "Gateway" in version "gateway.networking.k8s.io/v1"' in told
    assert "validate=false" not in told


@pytest.mark.long
def test_unknown_fields_are_warned_of(kubectl: Kubectl) -> None:
    colourful = POD.replace("image: busybox", "image: busybox, colour: red")
    told = kubectl("create", "--validate=warn", "-f", "-", stdin=colourful, check=False)
    assert 'Warning: unknown field "spec.containers[0].colour"' in told
    assert "pod/web created" in told


def test_diff_shows_what_apply_would_change(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    shown = kubectl("diff", "-f", "-", stdin=POD.replace("app: web", "app: shop"), check=False)
    assert "-    app: web" in shown
    assert "+    app: shop" in shown


@pytest.mark.long
def test_dry_runs_on_the_server(kubectl: Kubectl) -> None:
    assert kubectl("apply", "--dry-run=server", "-f", "-", stdin=POD) == "pod/web created (server dry run)\n"
    assert kubectl("get", "pods", check=False) == "No resources found in default namespace.\n"


def test_labels_annotations_and_patches(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=CLAIM)
    kubectl("label", "resourceclaim", "gpu", "team=red")
    kubectl("annotate", "resourceclaim", "gpu", "note=mine")
    kubectl("patch", "resourceclaim", "gpu", "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels/team"}]')
    metadata = kubectl.json("get", "resourceclaim", "gpu")["metadata"]
    assert (metadata.get("labels"), metadata["annotations"]) == (None, {"note": "mine"})


def test_edit_writes_what_the_editor_leaves(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl("create", "-f", "-", stdin=POD)
    monkeypatch.setenv("KUBE_EDITOR", "sed -i s/app:.*/app:\\ edited/")
    assert kubectl("edit", "pod", "web") == "pod/web edited\n"
    assert kubectl.json("get", "pod", "web")["metadata"]["labels"] == {"app": "edited"}


def test_tables_have_the_columns_that_users_know(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    kubectl("apply", "-f", "-", stdin=CLAIM)
    assert kubectl("get", "pods").split("\n")[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert "NODE" in kubectl("get", "pods", "-o", "wide").split("\n")[0]
    lines = kubectl("get", "resourceclaims", "-A").split("\n")
    assert lines[0].split() == ["NAMESPACE", "NAME", "STATE", "AGE"]
    assert lines[1].split()[:3] == ["default", "gpu", "pending"]


def test_wait_sees_a_condition_come(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    kubectl("patch", "pod", "web", "--subresource=status", "--type=merge", "-p", json.dumps(status))
    assert kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=120s") == "pod/web condition met\n"


def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    kubectl("apply", "-f", "-", stdin=CLAIM)
    assert kubectl("delete", "pod", "web") == 'pod "web" deleted\n'
    assert "gpu" in kubectl("delete", "resourceclaim", "--all")
    assert kubectl("get", "pods,resourceclaims", check=False) == "No resources found in default namespace.\n"


@pytest.mark.long
def test_namespaces_are_made_and_deleted(kubectl: Kubectl) -> None:
    assert kubectl("create", "ns", "team") == "namespace/team created\n"
    assert kubectl("delete", "ns", "team", "--timeout=120s") == 'namespace "team" deleted\n'
    assert "NotFound" in kubectl("get", "ns", "team", check=False)


def test_who_am_i_and_may_i(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert "system:masters" in kubectl("auth", "whoami")


@pytest.mark.long
def test_an_administrator_asks_in_the_name_of_another(kubectl: Kubectl) -> None:
    assert "bob" in kubectl("auth", "whoami", "--as=bob", "--as-group=team")


RECONCILED = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: pod-reader, namespace: default}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [events], verbs: [list]}
"""


def test_roles_are_made_bound_reconciled_and_asked_about(api_server: ApiServer, kubectl: Kubectl) -> None:
    ensure_roles()
    kubectl("create", "role", "pod-reader", "--verb=get,list", "--resource=pods")
    assert kubectl(
        "create", "rolebinding", "bob", "--role=pod-reader", "--user=bob", "--serviceaccount=default:ci"
    ) == ("rolebinding.rbac.authorization.k8s.io/bob created\n")
    kubectl("create", "clusterrole", "node-reader", "--verb=get", "--resource=nodes", "--resource-name=n1")
    kubectl("create", "clusterrolebinding", "bob", "--clusterrole=node-reader", "--group=team")
    assert "Role/pod-reader" in kubectl("get", "rolebindings", "-o", "wide")
    assert "default/ci" in kubectl("get", "rolebinding", "bob", "-o", "wide", "--no-headers")
    assert "reconciled" in kubectl("auth", "reconcile", "-f", "-", stdin=RECONCILED)
    assert kubectl.json("get", "role", "pod-reader")["rules"][-1]["resources"] == ["events"]
    bob = Kubectl(api_server.kubeconfig_of("bob", "team"), find_kubectl())
    assert bob("auth", "can-i", "list", "pods").strip() == "yes"
    assert "no" in bob("auth", "can-i", "delete", "pods", check=False)
    assert bob("auth", "can-i", "get", "node/n1").splitlines()[-1] == "yes"
    listed = bob("auth", "can-i", "--list")
    assert "selfsubjectaccessreviews.authorization.k8s.io" in listed
    assert any(line.split()[0] == "pods" and "[get list watch]" in line for line in listed.splitlines()[1:])
    refused = bob("delete", "pod", "web", check=False)
    assert 'pods "web" is forbidden: User "bob" cannot delete resource "pods" in API group ""' in refused
    assert "system:authenticated" in bob("auth", "whoami")


@pytest.mark.parametrize("words", [("exec", "web", "--", "ls"), ("attach", "web"), ("port-forward", "web", ":80")])
def test_a_session_with_a_pod_that_does_not_run_is_refused_clearly(kubectl: Kubectl, words: tuple[str, ...]) -> None:
    kubectl("create", "-f", "-", stdin=POD)
    assert re.search("does not have a host assigned|pod is not running", kubectl(*words, check=False))


@pytest.mark.long
def test_a_container_is_added_to_a_pod_and_its_resources_are_changed(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=POD)
    kubectl("debug", "web", "--image=busybox", "--container=look")
    patch = '{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}'
    refused = kubectl("patch", "pod", "web", "--subresource=resize", "--patch", patch, check=False)
    assert "Pod QOS Class may not change as a result of resizing" in refused
    assert kubectl("get", "pod", "web", "-o", "jsonpath={.spec.ephemeralContainers[*].name}") == "look"


def test_explain_reads_the_types(kubectl: Kubectl) -> None:
    assert "deviceClassName" in kubectl("explain", "resourceclaim.spec.devices.requests.exactly")
    assert "FIELD: containers <[]Container>" in kubectl("explain", "pods.spec.containers")


@pytest.mark.long
def test_a_list_file_is_applied(kubectl: Kubectl, tmp_path: Path) -> None:
    indented = "".join(f"  {line}\n" for line in POD.splitlines())
    file = tmp_path / "list.yaml"
    file.write_text(f"apiVersion: v1\nkind: List\nitems:\n-{indented[1:]}")
    assert kubectl("create", "-f", str(file)) == "pod/web created\n"


def test_an_older_version_is_read_and_written(kubectl: Kubectl) -> None:
    old = CLAIM.replace("/v1\n", "/v1beta1\n").replace(
        "exactly: {deviceClassName: gpu.example.com}", "deviceClassName: gpu.example.com"
    )
    assert kubectl("apply", "-f", "-", stdin=old) == "resourceclaim.resource.k8s.io/gpu created\n"
    shown = kubectl.json("get", "resourceclaims.v1beta1.resource.k8s.io", "gpu")
    assert shown["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu.example.com"
    kubectl("label", "resourceclaims.v1beta1.resource.k8s.io", "gpu", "team=red")
    kubectl("apply", "-f", "-", stdin=old)  # the fields that were defaulted do not count as a change of the spec
    assert kubectl.json("get", "resourceclaim", "gpu")["metadata"]["labels"] == {"team": "red"}


def test_everything_that_is_served_is_discovered(kubectl: Kubectl) -> None:
    served = kubectl("api-resources", "-o", "name").split()
    assert {
        "pods",
        "nodes",
        "namespaces",
        "events",
        "leases.coordination.k8s.io",
        "deviceclasses.resource.k8s.io",
        "resourceclaims.resource.k8s.io",
        "resourceclaimtemplates.resource.k8s.io",
        "resourceslices.resource.k8s.io",
    } <= set(served)


NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"


def test_a_node_is_cordoned_tainted_and_drained(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=NODE)
    kubectl("create", "-f", "-", stdin=POD.replace("spec:\n", "spec:\n  nodeName: n1\n"))
    assert kubectl("taint", "nodes", "n1", "gpu=broken:NoSchedule") == "node/n1 tainted\n"
    kubectl("drain", "n1", "--force", "--grace-period=0", "--timeout=120s")
    spec = kubectl.json("get", "node", "n1")["spec"]
    assert spec["unschedulable"] is True
    assert {"key": "gpu", "value": "broken", "effect": "NoSchedule"} in spec["taints"]
    assert kubectl("get", "pods", check=False) == "No resources found in default namespace.\n"


def test_get_with_watch_prints_rows_as_they_come(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=CLAIM)
    environment = {**os.environ, "KUBECONFIG": str(kubectl.kubeconfig)}
    command = [kubectl.program, "get", "resourceclaims", "--watch", "--request-timeout=120s"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        shown = [watching.stdout.readline().split() for _ in range(2)]
        watching.kill()
    assert shown[0] == ["NAME", "STATE", "AGE"]
    assert shown[1][:2] == ["gpu", "pending"]


def test_accounts_secrets_and_config_maps_are_made_as_ever(kubectl: Kubectl) -> None:
    assert kubectl("create", "serviceaccount", "robot") == "serviceaccount/robot created\n"
    kubectl("create", "secret", "generic", "login", "--from-literal=user=ada", "--from-literal=password=x y")
    kubectl("create", "configmap", "colours", "--from-literal=sky=blue")
    assert kubectl("get", "secret", "login", "--no-headers").split()[:3] == ["login", "Opaque", "2"]
    assert kubectl("get", "configmap", "colours", "-o", "jsonpath={.data.sky}") == "blue"
    described = kubectl("describe", "secret", "login")
    assert "password:  3 bytes" in described
    assert "x y" not in described
    assert kubectl("create", "token", "robot", "--duration=20m").count(".") == 2


POOL_REQUEST = """\
apiVersion: resource.k8s.io/v1alpha3
kind: ResourcePoolStatusRequest
metadata: {name: gpus}
spec: {driver: gpu.example.com}
"""


@contextmanager
def using(**features: bool) -> Iterator[None]:
    """What kubectl knows of kinds is made once a process; here features come and go."""
    with gates.using(**features):
        openapi.renew()
        yield
    openapi.renew()


@pytest.fixture
def _pools_may_be_asked_for() -> Iterator[None]:
    with using(DRAResourcePoolStatus=True):
        yield


@pytest.mark.long
@pytest.mark.usefixtures("_pools_may_be_asked_for")
def test_the_status_of_pools_is_asked_for(kubectl: Kubectl) -> None:
    """As KEP-5677 shows it: create, wait, get."""
    with objects.writing() as writer:
        writer.create(RESOURCE_SLICE, make_slice())
    assert "resourcepoolstatusrequests" in kubectl("api-resources", "--api-group=resource.k8s.io")
    explained = kubectl("explain", "resourcepoolstatusrequest.status", "--api-version=resource.k8s.io/v1alpha3")
    assert "poolCount" in explained
    created = kubectl("create", "-f", "-", stdin=POOL_REQUEST)
    assert created == "resourcepoolstatusrequest.resource.k8s.io/gpus created\n"
    assert kubectl("get", "resourcepoolstatusrequest").split()[-10:-3] == ["gpus", "gpu.example.com", *"-" * 5]
    assert pool_statuses.reconcile(datetime.now(UTC)) == 1
    assert "condition met" in kubectl("wait", "--for=condition=Complete", "resourcepoolstatusrequest/gpus")
    cells = kubectl("get", "resourcepoolstatusrequest", "--no-headers").split()
    assert cells[:9] == ["gpus", "gpu.example.com", "2", "2", "0", "0", "0", "1", "Complete"]
    limit = '-p={"spec":{"limit":5}}'
    refused = kubectl("patch", "resourcepoolstatusrequest", "gpus", "--type=merge", limit, check=False)
    assert "spec: Invalid value" in refused
    assert "field is immutable" in refused
