"""Pod: rules of a new one, of an update, of a status."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.containers import (
    Container,
    ContainerPort,
    EnvVar,
    EnvVarSource,
    ObjectFieldSelector,
    VolumeMount,
)
from claims.kinds.pods import (
    Affinity,
    NodeAffinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    PodOS,
    PodReadinessGate,
    PodResourceClaim,
    PodSchedulingGate,
    PreferredSchedulingTerm,
    Toleration,
    TopologySpreadConstraint,
)
from claims.kinds.registration import POD
from claims.kinds.volumes import EmptyDirVolumeSource, HostPathVolumeSource, Volume
from inventory.kinds.nodes import NodeSelector
from manciple.wire.base import LabelSelector, LabelSelectorRequirement
from manciple.wire.errors import FieldError
from tests.builders import make_container, make_pod


def texts(errors: Iterable[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def wrong(pod: Pod) -> list[str]:
    """What is wrong with a pod as it would be stored, without the path to its spec."""
    return [text.removeprefix("spec.") for text in texts(POD.validate_create(POD.prepare_create(pod)))]


def assert_begins(found: list[str], expected: list[str]) -> None:
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected


def test_a_pod_with_claims_is_valid() -> None:
    assert wrong(make_pod(claims={"gpu": "mine"}, templates={"nic": "one"})) == []


def entry(name: str, claim: str | None = None, template: str | None = None) -> PodResourceClaim:
    return PodResourceClaim(name=name, resource_claim_name=claim, resource_claim_template_name=template)


@pytest.mark.parametrize(
    ("entries", "expected"),
    {
        "no name": ([entry("", "x")], ["resourceClaims[0].name: Required value"]),
        "bad name": ([entry("A", "x")], ['resourceClaims[0].name: Invalid value: "A": a lowercase RFC 1123 label']),
        "one name twice": (
            [entry("a", "x"), entry("a", "y")],
            ['resourceClaims[1].name: Duplicate value: "a"'],
        ),
        "no source": (
            [entry("a")],
            ['resourceClaims[0]: Invalid value: {"name":"a"}: must specify one of: `resourceClaimName`'],
        ),
        "two sources": (
            [entry("a", "x", "y")],
            ['resourceClaims[0]: Invalid value: {"name":"a","resourceClaimName":"x","resourceClaimTemplateName":"y"}'],
        ),
        "bad source": (
            [entry("a", template="_")],
            ['resourceClaims[0].resourceClaimTemplateName: Invalid value: "_": a lowercase RFC 1123 subdomain'],
        ),
    }.values(),
)
def test_claims_of_a_pod(entries: list[PodResourceClaim], expected: list[str]) -> None:
    plain = make_pod()
    assert_begins(wrong(replace(plain, spec=replace(plain.spec, resource_claims=tuple(entries)))), expected)


@pytest.mark.parametrize(
    ("claims", "expected"),
    {
        "a request of it": (["gpu/left", "gpu/right"], []),
        "unknown": (
            ["nic"],
            ['[0]: Not found: "nic": must be one of the names in pod.spec.resourceClaims: gpu'],
        ),
        "twice": (["gpu", "gpu"], ['[1]: Duplicate value: "gpu"']),
        "one request twice": (["gpu/a", "gpu/a"], ['[1]: Duplicate value: "gpu/a"']),
        "whole and in part": (["gpu", "gpu/a"], ['[1]: Duplicate value: "gpu/a"']),
        "nameless": ([""], ["[0]: Required value"]),
        "bad request": (["gpu/A"], ['[0].request: Invalid value: "A": a lowercase']),
    }.values(),
)
def test_containers_use_claims_of_their_pod(claims: list[str], expected: list[str]) -> None:
    found = wrong(make_pod(claims={"gpu": "mine"}, containers=[make_container(claims=claims)]))
    assert_begins([text.removeprefix("containers[0].resources.claims") for text in found], expected)


def test_a_pod_without_claims_says_so_to_its_containers() -> None:
    assert wrong(make_pod(containers=[make_container(claims=["gpu"])])) == [
        'containers[0].resources.claims[0]: Not found: "gpu": must be one of the names in pod.spec.resourceClaims '
        "which is empty"
    ]


@pytest.mark.parametrize(
    ("container", "expected"),
    {
        "nameless": (make_container(""), ["name: Required value"]),
        "no image": (make_container(image=""), ["image: Required value"]),
        "image with a space": (make_container(image=" a"), ['image: Invalid value: " a": must not have leading or']),
        "unknown pull policy": (
            make_container(image_pull_policy="Sometimes"),
            ['imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"'],
        ),
        "requests above limits": (
            make_container(requests={"cpu": "2"}, limits={"cpu": "1"}),
            ['resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
        ),
        "half a device": (
            make_container(limits={"example.com/gpu": "500m"}),
            [
                'resources.limits[example.com/gpu]: Invalid value: "500m": must be an integer',
                'resources.requests[example.com/gpu]: Invalid value: "500m": must be an integer',
            ],
        ),
        "devices of a class": (make_container(limits={"deviceclass.resource.kubernetes.io/gpu.example.com": "1"}), []),
        "devices of a class without limit": (
            make_container(requests={"deviceclass.resource.kubernetes.io/gpu.example.com": "1"}),
            [],
        ),
        "the name of a quota": (
            make_container(limits={"requests.a.b/c": "1"}),
            [
                'resources.limits[requests.a.b/c]: Invalid value: "requests.a.b/c": doesn\'t follow extended',
                'resources.requests[requests.a.b/c]: Invalid value: "requests.a.b/c": doesn\'t follow extended',
            ],
        ),
        "devices without limit": (
            make_container(requests={"example.com/gpu": "1"}),
            ["resources.limits: Required value: Limit must be set for non overcommitable resources"],
        ),
        "devices requested below their limit": (
            make_container(requests={"example.com/gpu": "1"}, limits={"example.com/gpu": "2"}),
            ['resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2'],
        ),
        "unknown resource": (
            make_container(requests={"gpu": "1"}),
            ['resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers'],
        ),
        "negative amount": (
            make_container(requests={"cpu": "-1"}),
            ['resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
        ),
        "no amount": (
            make_container(requests={"cpu": "few"}),
            ['resources.requests[cpu]: Invalid value: "few": quantities must match'],
        ),
        "ports": (
            make_container(
                ports=(
                    ContainerPort(name="web", container_port=80),
                    ContainerPort(name="web", container_port=70000, protocol="QUIC"),
                    ContainerPort(),
                )
            ),
            [
                "ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                'ports[1].protocol: Unsupported value: "QUIC": supported values: "SCTP", "TCP", "UDP"',
                "ports[2].containerPort: Required value",
                'ports[1].name: Duplicate value: "web"',
            ],
        ),
        "environment": (
            make_container(
                env=(
                    EnvVar(name="", value="x"),
                    EnvVar(name="a=b"),
                    EnvVar(name="c", value="x", value_from=EnvVarSource(field_ref=ObjectFieldSelector(field_path="x"))),
                    EnvVar(name="d", value_from=EnvVarSource()),
                )
            ),
            [
                "env[0].name: Required value",
                'env[1].name: Invalid value: "a=b": a valid environment variable name',
                'env[2].valueFrom.fieldRef.fieldPath: Invalid value: "x": error converting fieldPath',
                'env[2].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
                'env[3].valueFrom: Invalid value: "": must specify one of',
            ],
        ),
        "mounts": (
            make_container(
                volume_mounts=(
                    VolumeMount(name="data", mount_path="/a"),
                    VolumeMount(name="other", mount_path="/a"),
                    VolumeMount(sub_path="../x"),
                )
            ),
            [
                'volumeMounts[1].name: Not found: "other"',
                'volumeMounts[1].mountPath: Invalid value: "/a": must be unique',
                "volumeMounts[2].name: Required value",
                'volumeMounts[2].name: Not found: ""',
                "volumeMounts[2].mountPath: Required value",
                "volumeMounts.subPath: Invalid value: \"../x\": must not contain '..'",
            ],
        ),
    }.values(),
)
def test_wrong_fields_of_a_container(container: Container, expected: list[str]) -> None:
    volumes = (Volume(name="data", empty_dir=EmptyDirVolumeSource()),)
    found = wrong(make_pod(containers=[container], volumes=volumes))
    assert_begins([text.removeprefix("containers[0].") for text in found], expected)


AFFINITY = Affinity(
    node_affinity=NodeAffinity(
        required_during_scheduling_ignored_during_execution=NodeSelector(),
        preferred_during_scheduling_ignored_during_execution=(PreferredSchedulingTerm(weight=0),),
    ),
    pod_anti_affinity=PodAntiAffinity(
        required_during_scheduling_ignored_during_execution=(
            PodAffinityTerm(
                label_selector=LabelSelector(
                    match_expressions=(
                        LabelSelectorRequirement(key="a", operator="In"),
                        LabelSelectorRequirement(key="a", operator="Gt", values=("1",)),
                    )
                ),
                topology_key="kubernetes.io/hostname",
            ),
        )
    ),
)
NEAR = "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"
ANTI = "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchExpressions"


def spread(action: str = "DoNotSchedule", **fields: Any) -> TopologySpreadConstraint:
    fields.setdefault("label_selector", LabelSelector(match_labels={"part": "of"}))
    return TopologySpreadConstraint(max_skew=1, topology_key="zone", when_unsatisfiable=action, **fields)


def near(*terms: PodAffinityTerm) -> Affinity:
    return Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms))


@pytest.mark.parametrize(
    ("spec", "expected"),
    {
        "no containers": ({"containers": []}, ["containers: Required value"]),
        "containers of one name": (
            {"init_containers": (make_container("main"),)},
            ['initContainers[0].name: Duplicate value: "main"'],
        ),
        "choices": (
            {"restart_policy": "Maybe", "dns_policy": "Guess"},
            [
                'restartPolicy: Unsupported value: "Maybe": supported values: "Always", "OnFailure", "Never"',
                'dnsPolicy: Unsupported value: "Guess"',
            ],
        ),
        "names": (
            {"hostname": "a.b", "service_account_name": "A", "node_selector": {"-": "x"}},
            [
                'hostname: Invalid value: "a.b": must not contain dots',
                'serviceAccountName: Invalid value: "A"',
                'nodeSelector: Invalid value: "-"',
            ],
        ),
        "gates": (
            {
                "scheduling_gates": (PodSchedulingGate(name="x"), PodSchedulingGate(name="x")),
                "readiness_gates": (PodReadinessGate(condition_type="-"),),
                "node": "n",
            },
            [
                'schedulingGates[1]: Duplicate value: "x"',
                'readinessGates[0].conditionType: Invalid value: "-"',
                "nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
            ],
        ),
        "system": (
            {"os": PodOS(name="plan9")},
            ['os: Unsupported value: "plan9": supported values: "linux", "windows"'],
        ),
        "system without a name": ({"os": PodOS()}, ["os.name: Required value: cannot be empty"]),
        "deadline": (
            {"active_deadline_seconds": 0},
            ["activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
        ),
        "volumes": (
            {
                "volumes": (
                    Volume(name="a", empty_dir=EmptyDirVolumeSource(), host_path=HostPathVolumeSource(path="/x")),
                    Volume(name="a", host_path=HostPathVolumeSource()),
                )
            },
            [
                "volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
                "volumes[1].hostPath.path: Required value",
            ],
        ),
        "tolerations": (
            {
                "tolerations": (
                    Toleration(operator="Equal"),
                    Toleration(key="a", operator="Exists", value="b"),
                    Toleration(key="a", operator="Like"),
                    Toleration(key="a", effect="NoSchedule", toleration_seconds=1),
                    Toleration(key="a", effect="Never"),
                )
            },
            [
                'tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty',
                "tolerations[1].operator: Invalid value: {",
                'tolerations[2].operator: Unsupported value: "Like": supported values: "Equal", "Exists"',
                "tolerations[3].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when",
                'tolerations[4].effect: Unsupported value: "Never"',
            ],
        ),
        "affinity": (
            {"affinity": AFFINITY},
            [
                "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required",
                "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: "
                "must be in the range 1-100",
                f"{ANTI}[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                f'{ANTI}[1].operator: Invalid value: "Gt": not a valid selector operator',
            ],
        ),
        "spreading": (
            {"topology_spread_constraints": (TopologySpreadConstraint(),)},
            [
                "topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
                "topologySpreadConstraints[0].topologyKey: Required value",
                'topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: ""',
            ],
        ),
        "spreading that nobody could do": (
            {
                "topology_spread_constraints": (
                    spread("ScheduleAnyway", min_domains=2, node_affinity_policy="Maybe", node_taints_policy="Ignore"),
                    spread("ScheduleAnyway", match_label_keys=("app",), label_selector=None),
                    spread(
                        match_label_keys=("app", "bad key"), label_selector=LabelSelector(match_labels={"app": "a"})
                    ),
                )
            },
            [
                "topologySpreadConstraints[0].minDomains: Invalid value: 2: can only use minDomains if",
                'topologySpreadConstraints[0].nodeAffinityPolicy: Unsupported value: "Maybe"',
                "topologySpreadConstraints[1].matchLabelKeys: Forbidden: must not be specified when labelSelector is",
                'topologySpreadConstraints[2].matchLabelKeys[1]: Invalid value: "bad key"',
                'topologySpreadConstraints[2][0]: Invalid value: "app": exists in both',
                "topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value",
            ],
        ),
        "pods that are meant by contradicting label keys": (
            {
                "affinity": near(
                    PodAffinityTerm(
                        topology_key="zone",
                        label_selector=LabelSelector(match_labels={"app": "web"}),
                        match_label_keys=("app", "tier"),
                        mismatch_label_keys=("tier", "bad key"),
                    ),
                    PodAffinityTerm(topology_key="zone", mismatch_label_keys=("tier",)),
                )
            },
            [
                f'{NEAR}[0].mismatchLabelKeys[1]: Invalid value: "bad key"',
                f'{NEAR}[0][0]: Invalid value: "app": exists in both matchLabelKeys and labelSelector',
                f'{NEAR}[0].matchLabelKeys[1]: Invalid value: "tier": exists in both matchLabelKeys and mismatch',
                f"{NEAR}[1].mismatchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
            ],
        ),
    }.values(),
)
def test_wrong_fields_of_a_pod(spec: dict[str, Any], expected: list[str]) -> None:
    assert_begins(wrong(make_pod(meta={"labels": {"app": "web"}}, **spec)), expected)
