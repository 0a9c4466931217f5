"""Every pod that a client makes runs as a service account of its namespace, and its containers get its token."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec.structs import replace

from claims.admission import MOUNT_PATH
from claims.kinds.containers import VolumeMount
from claims.kinds.pods import Pod, PodResourceClaim
from claims.kinds.registration import POD
from claims.kinds.volumes import ConfigMapVolumeSource, EmptyDirVolumeSource, Volume
from manciple.access.kinds.service_accounts import SERVICE_ACCOUNT, ServiceAccount
from manciple.api import verbs
from manciple.api.namespaces import ensure_namespaces
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.base import LocalObjectReference
from manciple.wire.errors import Forbidden
from manciple.wire.identity import AUTHENTICATED, MASTERS, Identity
from tests.builders import make_container, make_meta, make_pod

ALICE = Identity("alice", (MASTERS,))
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _namespaces(db: None) -> None:
    ensure_namespaces()


def create(pod: Pod) -> Any:
    """The document of the pod as it is stored."""
    return codec.to_builtins(verbs.create(POD, pod, namespace="default", identity=ALICE))


def account(name: str, **fields: Any) -> None:
    with objects.writing() as writer:
        made = ServiceAccount(api_version="v1", kind="ServiceAccount", metadata=make_meta(name, "default"), **fields)
        writer.create(SERVICE_ACCOUNT, made)


def with_spec(**fields: Any) -> Pod:
    pod = make_pod("web")
    return replace(pod, spec=replace(pod.spec, **fields))


def mounts(document: Any) -> list[list[str]]:
    spec = document["spec"]
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    return [[mount["mountPath"] for mount in one.get("volumeMounts", ())] for one in containers]


def test_a_pod_gets_the_default_account_and_its_token() -> None:
    made = create(with_spec(containers=(make_container("a"), make_container("b")), init_containers=(make_container(),)))
    spec = made["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    (volume,) = spec["volumes"]
    name = volume["name"]
    assert name.startswith("kube-api-access-")
    assert len(name) == len("kube-api-access-xxxxx")
    assert volume["projected"] == {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
    }
    mount = {"name": name, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    assert [one["volumeMounts"] for one in (*spec["initContainers"], *spec["containers"])] == [[mount]] * 3


AUTOMOUNT = [
    # account, pod, mounted
    (None, None, True),
    (True, None, True),
    (False, None, False),
    (False, True, True),
    (True, False, False),
]


@pytest.mark.parametrize(("of_account", "of_pod", "mounted"), AUTOMOUNT)
def test_the_pod_decides_before_its_account(of_account: bool | None, of_pod: bool | None, mounted: bool) -> None:
    account("robot", automount_service_account_token=of_account)
    made = create(with_spec(service_account_name="robot", automount_service_account_token=of_pod))
    assert made["spec"]["serviceAccountName"] == "robot"
    assert mounts(made) == [[MOUNT_PATH] if mounted else []]
    assert bool(made["spec"].get("volumes")) is mounted


def test_what_a_pod_mounts_there_itself_stays() -> None:
    own = VolumeMount(name="mine", mount_path=MOUNT_PATH)
    mine = replace(make_container("mine"), volume_mounts=(own,))
    volume = Volume(name="mine", empty_dir=EmptyDirVolumeSource())
    alone = create(with_spec(containers=(mine,), volumes=(volume,)))
    assert [one["name"] for one in alone["spec"]["volumes"]] == ["mine"]
    assert mounts(alone) == [[MOUNT_PATH]]


def test_a_volume_of_that_name_is_the_one_that_is_mounted() -> None:
    volume = Volume(name="kube-api-access-mine", empty_dir=EmptyDirVolumeSource())
    made = create(with_spec(volumes=(volume,)))
    assert [one["name"] for one in made["spec"]["volumes"]] == ["kube-api-access-mine"]
    assert made["spec"]["containers"][0]["volumeMounts"][0]["name"] == "kube-api-access-mine"


def test_secrets_for_images_are_taken_over_from_the_account() -> None:
    account("robot", image_pull_secrets=(LocalObjectReference(name="registry"),))
    assert create(with_spec(service_account_name="robot"))["spec"]["imagePullSecrets"] == [{"name": "registry"}]


def test_an_account_that_is_not_there_refuses_the_pod() -> None:
    with pytest.raises(Forbidden) as refused:
        create(with_spec(service_account_name="nobody"))
    assert refused.value.message == (
        'pods "web" is forbidden: error looking up service account default/nobody: serviceaccount "nobody" not found'
    )
    assert refused.value.details == {"name": "web", "kind": "pods"}


def test_an_account_is_known_as_soon_as_it_is_there_and_no_longer_than_it_is() -> None:
    pod = with_spec(service_account_name="robot", automount_service_account_token=False)
    pod = replace(pod, metadata=replace(pod.metadata, name="", generate_name="web-"))
    with pytest.raises(Forbidden, match='pods "web-" is forbidden'):
        create(pod)
    account("robot")
    create(pod)
    with objects.writing() as writer:
        writer.delete(SERVICE_ACCOUNT, "default", "robot")
    with pytest.raises(Forbidden):
        create(pod)


MIRROR = {"kubernetes.io/config.mirror": "x"}


def test_a_pod_of_a_nodes_own_names_no_account() -> None:
    pod = with_spec(service_account_name="default")
    mirror = replace(
        pod, metadata=replace(pod.metadata, annotations=MIRROR), spec=replace(pod.spec, node_name="node-1")
    )
    with pytest.raises(Forbidden, match="a mirror pod may not reference service accounts"):
        create(mirror)
    made = create(replace(mirror, spec=replace(mirror.spec, service_account_name="")))
    assert mounts(made) == [[]]


@pytest.mark.parametrize(("node", "why"), [("", "only nodes can create mirror pods"), ("n1", *MIRROR)])
def test_nobody_but_nodes_and_administrators_makes_a_pod_that_drains_leave_alone(node: str, why: str) -> None:
    mirror = with_spec(node_name=node)
    mirror = replace(mirror, metadata=replace(mirror.metadata, annotations=MIRROR))
    with pytest.raises(Forbidden, match=f'pods "web" is forbidden: .*{why}'):
        verbs.create(POD, mirror, namespace="default", identity=Identity("bob", (AUTHENTICATED,)))


def test_a_pod_of_a_nodes_own_uses_no_claim_and_no_config_map() -> None:
    settings = Volume(name="settings", config_map=ConfigMapVolumeSource(name="settings"))
    cases: dict[str, dict[str, Any]] = {
        "resourceclaims": {"resource_claims": (PodResourceClaim(name="gpu", resource_claim_name="mine"),)},
        "configmaps": {"volumes": (settings,)},
    }
    for what, fields in cases.items():
        mirror = with_spec(node_name="n1", **fields)
        mirror = replace(mirror, metadata=replace(mirror.metadata, annotations=MIRROR))
        with pytest.raises(Forbidden, match=f"a mirror pod may not reference {what}"):
            create(mirror)


@pytest.mark.django_db(transaction=True)
def test_a_pod_costs_no_query_for_its_account() -> None:
    def queries(pod: Pod) -> int:
        with CaptureQueriesContext(connection) as found:
            verbs.create(POD, pod, namespace="default", identity=ALICE, dry_run=True)
        return len(found)

    queries(make_pod("first"))
    mirror = make_pod("second")
    mirror = replace(
        mirror, metadata=replace(mirror.metadata, annotations=MIRROR), spec=replace(mirror.spec, node_name="node-1")
    )
    assert queries(make_pod("third")) == queries(mirror)
