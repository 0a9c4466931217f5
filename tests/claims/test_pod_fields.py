"""New pods with one field that is wrong: which fields are named, and in which way, as Kubernetes 1.36 does it."""

from __future__ import annotations

from typing import Any

import pytest

from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from manciple.wire import codec

INVALID, REQUIRED, DUPLICATE = "FieldValueInvalid", "FieldValueRequired", "FieldValueDuplicate"
FORBIDDEN, NOT_FOUND, UNSUPPORTED = "FieldValueForbidden", "FieldValueNotFound", "FieldValueNotSupported"
TOO_LONG = "FieldValueTooLong"

Faults = set[tuple[str, str]]


def faults(spec: dict[str, Any], annotations: dict[str, str] | None = None) -> Faults:
    """(type, field below the spec) of what is wrong with a pod of this spec."""
    whole = {"serviceAccountName": "default", "containers": [{"name": "app", "image": "a:1"}]} | spec
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "annotations": annotations or {}},
        "spec": whole,
    }
    pod = POD.prepare_create(codec.decode_value(Pod, document))
    return {(error.type, error.field.removeprefix("spec.")) for error in POD.validate_create(pod)}


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "app", "image": "a:1", **fields}]}


def init_container(**fields: Any) -> dict[str, Any]:
    return {"initContainers": [{"name": "init", "image": "a:1", **fields}]}


def volume(*volumes: dict[str, Any]) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **fields} for fields in volumes]}


def template(**spec: Any) -> dict[str, Any]:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}} | spec
    return {"ephemeral": {"volumeClaimTemplate": {"spec": wanted}}}


def projected(*sources: dict[str, Any]) -> dict[str, Any]:
    return volume({"projected": {"sources": list(sources)}})


CLAIM = template()["ephemeral"]["volumeClaimTemplate"]
CERTIFICATE = {"signerName": "example.com/s", "keyType": "ED25519", "keyPath": "k"}
PVC, CLAIM_SPEC = "persistentVolumeClaim", "volumes[0].ephemeral.volumeClaimTemplate.spec"

VOLUMES: dict[str, tuple[dict[str, Any], Faults]] = {
    "a claim that only the pod itself creates": (
        {"volumes": [{"name": "e", **template()}, {"name": "v", PVC: {"claimName": "p-e"}}]},
        {(INVALID, f"volumes[1].{PVC}.claimName")},
    ),
    "fields of a GCE disk": (
        volume({"gcePersistentDisk": {"pdName": "", "partition": 300}}),
        {(REQUIRED, "volumes[0].persistentDisk.pdName"), (INVALID, "volumes[0].persistentDisk.partition")},
    ),
    "a second source is not looked into": (
        volume({"emptyDir": {}, "secret": {"items": [{"key": "", "path": ""}]}}),
        {(FORBIDDEN, "volumes[0].secret")},
    ),
    "a second source that the reference misspells": (
        volume({"emptyDir": {}, "downwardAPI": {}, "cephfs": {"monitors": ["m"]}}),
        {(FORBIDDEN, "volumes[0].downwarAPI"), (FORBIDDEN, "volumes[0].cephFS")},
    ),
    "files of the downward API come before those of a config map": (
        volume({"downwardAPI": {"items": [{"path": "a"}]}, "configMap": {"name": ""}}),
        {(REQUIRED, "volumes[0].downwardAPI"), (FORBIDDEN, "volumes[0].configMap")},
    ),
    "a registry without a port": (
        volume({"quobyte": {"registry": "a", "volume": "v"}}),
        {(INVALID, "volumes[0].quobyte.registry")},
    ),
    "a registry by an IPv6 address": (volume({"quobyte": {"registry": "[::1]:7,b:x", "volume": "v"}}), set()),
    "a long tenant": (
        volume({"quobyte": {"registry": "a", "volume": "v", "tenant": "t" * 65}}),
        {(REQUIRED, "volumes[0].quobyte.tenant")},
    ),
    "an underscore in the name of an iSCSI target": (
        volume({"iscsi": {"targetPortal": "t", "iqn": "iqn.2001-04.com_example:a"}}),
        {(INVALID, "volumes[0].iscsi.iqn")},
    ),
    "the secret of a CSI driver": (
        volume({"csi": {"driver": "d.example.com", "nodePublishSecretRef": {"name": "A"}}}),
        {(INVALID, "volumes[0].csi.name")},
    ),
    "the metadata of a claim": (
        volume({"ephemeral": {"volumeClaimTemplate": {"metadata": {"uid": "u"}, **CLAIM}}}),
        {(FORBIDDEN, "volumes[0].ephemeral.volumeClaimTemplate.metadata.uID")},
    ),
    "the class of a claim's attributes": (
        volume(template(volumeAttributesClassName="A")),
        {(INVALID, f"{CLAIM_SPEC}.volumeAttributesClassName")},
    ),
    "a source of data without a group": (
        volume(template(dataSource={"kind": "Snapshot", "name": ""})),
        {(REQUIRED, f"{CLAIM_SPEC}.dataSource.name"), (INVALID, f"{CLAIM_SPEC}.dataSource")},
    ),
    "two sources of data": (
        volume(
            template(
                dataSource={"kind": "PersistentVolumeClaim", "name": "a"},
                dataSourceRef={"kind": "PersistentVolumeClaim", "name": "b"},
            )
        ),
        {(INVALID, CLAIM_SPEC)},
    ),
    "a source of data in another namespace": (
        volume(
            template(
                dataSource={"kind": "PersistentVolumeClaim", "name": "a"},
                dataSourceRef={"kind": "PersistentVolumeClaim", "name": "a", "namespace": "B"},
            )
        ),
        {(INVALID, CLAIM_SPEC), (INVALID, f"{CLAIM_SPEC}.dataSourceRef.namespace")},
    ),
    "two tokens at one path": (
        projected({"serviceAccountToken": {"path": "t"}}, {"serviceAccountToken": {"path": "t"}}),
        set(),
    ),
    "a signer with a long domain": (
        projected({"podCertificate": CERTIFICATE | {"signerName": f"{'a' * 64}.example/s"}}),
        {(INVALID, "volumes[0].projected.sources[0].podCertificate.signerName")},
    ),
    "a signer whose domain has one part": (
        projected({"clusterTrustBundle": {"signerName": "kubernetes/a", "path": "p"}}),
        {(INVALID, "volumes[0].projected.sources[0].clusterTrustBundle.signerName")},
    ),
    "how long a signer of Kubernetes signs for": (
        projected({"podCertificate": CERTIFICATE | {"signerName": "x.kubernetes.io/s", "maxExpirationSeconds": 86401}}),
        {(INVALID, "volumes[0].projected.sources[0].podCertificate.maxExpirationSeconds")},
    ),
    "an annotation of a certificate without a domain": (
        projected({"podCertificate": CERTIFICATE | {"userAnnotations": {"a": "b", "c.d/e": "f"}}}),
        {(INVALID, "volumes[0].projected.sources[0].podCertificate.userAnnotations")},
    ),
    "a token of a pod without an account, whose volume is mounted": (
        {"serviceAccountName": ""}
        | projected({"serviceAccountToken": {"path": "t"}})
        | container(volumeMounts=[{"name": "v", "mountPath": "/m"}]),
        set(),
    ),
}

ENV = "containers[0].env[0].valueFrom"


def variable(**source: Any) -> dict[str, Any]:
    return container(env=[{"name": "A", "valueFrom": source}])


CONTAINERS: dict[str, tuple[dict[str, Any], Faults]] = {
    "two ports of one name that is not valid": (
        container(ports=[{"name": "A_", "containerPort": 1}, {"name": "A_", "containerPort": 2}]),
        {(INVALID, "containers[0].ports[0].name"), (INVALID, "containers[0].ports[1].name")},
    ),
    "the node by its old name": (variable(fieldRef={"fieldPath": "spec.host"}), set()),
    "a label with a quote": (
        variable(fieldRef={"fieldPath": "metadata.labels['a'b']"}),
        {(INVALID, f"{ENV}.fieldRef")},
    ),
    "a unit that is written in another way": (
        variable(resourceFieldRef={"resource": "limits.memory", "divisor": "1024"}),
        {(INVALID, f"{ENV}.resourceFieldRef.divisor")},
    ),
    "the unit of an unknown resource": (
        variable(resourceFieldRef={"resource": "limits.gpu", "divisor": "7"}),
        {(UNSUPPORTED, f"{ENV}.resourceFieldRef.resource")},
    ),
    "a file of a volume that is not there": (
        variable(fileKeyRef={"volumeName": "", "path": "/a", "key": "K"}),
        {(REQUIRED, f"{ENV}.fileKeyRef.volumeName"), (NOT_FOUND, f"{ENV}.fileKeyRef.volumeName")},
    ),
    "a file of a volume that is not valid itself": (
        {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "-1"}}]}
        | variable(fileKeyRef={"volumeName": "v", "path": "../a", "key": "K"}),
        {(FORBIDDEN, "volumes[0].emptyDir.sizeLimit"), (INVALID, f"{ENV}.fileKeyRef.path")},
    ),
    "the prefix of names of config maps": (container(envFrom=[{"configMapRef": {"name": "a-"}}]), set()),
    "a mount that is a device too": (
        container(
            volumeMounts=[{"name": "v", "mountPath": "/m"}], volumeDevices=[{"name": "v", "devicePath": "/dev/../x"}]
        ),
        {
            (NOT_FOUND, "containers[0].volumeMounts[0].name"),
            (INVALID, "containers[0].volumeMounts[0].name"),
            (NOT_FOUND, "containers[0].volumeDevices[0].name"),
            (INVALID, "containers[0].volumeDevices[0].name"),
            (INVALID, "containers[0].volumeDevices[0].devicePath"),
        },
    ),
    "two paths in a volume": (
        {"volumes": [{"name": "v"}]}
        | container(volumeMounts=[{"name": "v", "mountPath": "/m", "subPath": "a", "subPathExpr": "b"}]),
        {(INVALID, "containers[0].volumeMounts[0].subPathExpr")},
    ),
    "many rules of restarts, and a wrong one": (
        container(restartPolicy="Never", restartPolicyRules=[{"action": "Stay"}] + 20 * [{"action": "Restart"}]),
        {
            ("FieldValueTooMany", "containers[0].restartPolicyRules"),
            (UNSUPPORTED, "containers[0].restartPolicyRules[0].action"),
            *((REQUIRED, f"containers[0].restartPolicyRules[{n}].exitCodes") for n in range(21)),
        },
    ),
    "an init container that is to be restarted by a resize": (
        init_container(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]),
        {(INVALID, "initContainers[0].resizePolicy[0].restartPolicy")},
    ),
    "a sidecar that is to be restarted by a resize": (
        init_container(
            restartPolicy="Always", resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
        ),
        set(),
    ),
    "a part of a claim and the whole": (
        {"resourceClaims": [{"name": "c", "resourceClaimName": "x"}]}
        | container(resources={"claims": [{"name": "c", "request": "r"}, {"name": "c"}]}),
        {(DUPLICATE, "containers[0].resources.claims[1]")},
    ),
    "a foreign resource without a limit": (
        container(resources={"requests": {"example.com/bad name": "1"}}),
        {
            (INVALID, "containers[0].resources.requests[example.com/bad name]"),
            (REQUIRED, "containers[0].resources.limits"),
        },
    ),
}

PODS: dict[str, tuple[dict[str, Any], Faults]] = {
    "a resource that whole pods do not have": (
        {"resources": {"limits": {"cpu": "1", "ephemeral-storage": "1", "pods": "1", "lamps": "1"}}},
        {
            *((UNSUPPORTED, f"resources.{which}[ephemeral-storage]") for which in ("limits",)),
            (UNSUPPORTED, "resources.limits[pods]"),
            (INVALID, "resources.limits[lamps]"),
        },
    ),
    "a negative amount": (
        {"resources": {"requests": {"cpu": "-100"}, "limits": {"cpu": "-1"}}},
        {(INVALID, "resources.requests[cpu]"), (INVALID, "resources.limits[cpu]")},
    ),
    "less than the containers request": (
        {"resources": {"requests": {"cpu": "1"}}} | container(resources={"requests": {"cpu": "2", "memory": "1Gi"}}),
        {(INVALID, "resources.requests[cpu]")},
    ),
    "nothing, whatever the containers request": (
        {"resources": {}} | container(resources={"requests": {"cpu": "2"}}),
        set(),
    ),
    "fewer huge pages than the containers": (
        {"resources": {"limits": {"hugepages-2Mi": "2Mi", "cpu": "1"}}}
        | container(resources={"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}),
        {
            (INVALID, "resources.limits[hugepages-2Mi]"),
            (INVALID, "resources.requests[hugepages-2Mi]"),
            (INVALID, "resources.containers[0][hugepages-2Mi].limits"),
        },
    ),
    "huge pages alone": (
        {"resources": {"limits": {"hugepages-2Mi": "0"}}},
        {(FORBIDDEN, "resources")},
    ),
    "a part of a thing that is counted": (
        container(resources={"requests": {"pods": "500m"}}),
        {(INVALID, "containers[0].resources.requests[pods]")},
    ),
    "no policy of preemption": ({"preemptionPolicy": ""}, {(REQUIRED, "preemptionPolicy")}),
    "sysctls of the host's namespaces": (
        {
            "hostNetwork": True,
            "hostIPC": True,
            "securityContext": {
                "sysctls": [
                    {"name": name, "value": "1"}
                    for name in (
                        "net.core.somaxconn",
                        "net/ipv4/conf/eth0.100/rp_filter",
                        "kernel/shm_rmid_forced",
                        "kernel.shm_other",
                        "fs.mqueue.msg_max",
                    )
                ]
            },
        },
        {(INVALID, f"securityContext.sysctls[{position}].name") for position in (0, 1, 2, 4)},
    ),
    "resources of a pod for Windows": (
        {"os": {"name": "windows"}, "securityContext": None, "resources": {"limits": {"lamps": "1"}}},
        {(FORBIDDEN, "resources")},
    ),
    "ports of the host of an init container": (
        {"hostNetwork": True} | init_container(ports=[{"containerPort": 1, "hostPort": 2}]),
        set(),
    ),
    "a device in a user namespace": (
        {"hostUsers": False, "volumes": [{"name": "v", PVC: {"claimName": "c"}}]}
        | container(volumeDevices=[{"name": "v", "devicePath": "/dev/x"}]),
        {(FORBIDDEN, "containers[0].volumeDevices")},
    ),
    "some processes of the host": (
        {
            "hostNetwork": True,
            "containers": [
                {"name": "a", "image": "a", "securityContext": {"windowsOptions": {"hostProcess": True}}},
                {"name": "b", "image": "a"},
            ],
        },
        {(INVALID, "spec")},
    ),
    "an address with a zone": ({"hostAliases": [{"ip": "fe80::1%eth0"}]}, {(INVALID, "hostAliases[0].ip")}),
    "a profile that is padded and long": (
        {"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": " " + 4095 * "a"}}},
        {
            (INVALID, "securityContext.appArmorProfile.localhostProfile"),
            (TOO_LONG, "securityContext.appArmorProfile.localhostProfile"),
        },
    ),
    "any key of a topology": (
        {
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "a b", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
            ]
        },
        set(),
    ),
    "a value that no label has, in a preference": (
        {
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "preference": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]},
                        }
                    ]
                }
            }
        },
        set(),
    ),
}


@pytest.mark.parametrize(("spec", "expected"), (VOLUMES | CONTAINERS | PODS).values(), ids=VOLUMES | CONTAINERS | PODS)
def test_the_fields_of_a_new_pod(spec: dict[str, Any], expected: Faults) -> None:
    assert faults(spec) == expected


SECCOMP = "container.seccomp.security.alpha.kubernetes.io/"
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"


@pytest.mark.parametrize(
    ("annotation", "value", "context", "expected"),
    [
        (f"{SECCOMP}app", "unconfined", {"seccompProfile": {"type": "Unconfined"}}, ""),
        (f"{SECCOMP}app", "docker/default", {"seccompProfile": {"type": "RuntimeDefault"}}, ""),
        (f"{SECCOMP}app", "unconfined", {"seccompProfile": {"type": "RuntimeDefault"}}, "seccompProfile.type"),
        (
            f"{SECCOMP}app",
            "localhost/a",
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "b"}},
            "seccompProfile.localhostProfile",
        ),
        (f"{APP_ARMOR}app", "unconfined", {"appArmorProfile": {"type": "RuntimeDefault"}}, "appArmorProfile.type"),
        (f"{APP_ARMOR}app", "runtime/default", {"appArmorProfile": {"type": "RuntimeDefault"}}, ""),
    ],
)
def test_an_annotation_says_the_same_as_the_field(
    annotation: str, value: str, context: dict[str, Any], expected: str
) -> None:
    found = faults(container(securityContext=context), annotations={annotation: value})
    assert found == ({(FORBIDDEN, f"containers[0].securityContext.{expected}")} if expected else set())
