"""Whatever pod the API accepts, its node runs or refuses with an event; and no pod, accepted or not, lowers a sum."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from claims.kinds.pods import Pod
from claims.kinds.registration import POD
from claims.kinds.resource_usage import PODS, limits_of, node_requests_of, requests_of, usage_of
from manciple.wire import codec
from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import NODE, container, pod

PODS_PER_SEED = 60
AMOUNTS = ("1", "1", "2", "250m", "0.5", "1.5Gi", "-1", "-100", "100")
RESOURCES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu")
SOURCES: tuple[dict[str, Any], ...] = (
    {},
    {"emptyDir": {}},
    {"emptyDir": {"sizeLimit": "1Mi"}},
    {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    {"hostPath": {"path": "/tmp"}},
    {"hostPath": {"path": "/tmp/../etc"}},
    {"configMap": {"name": "absent", "optional": True}},
    {"configMap": {"name": "absent"}},
    {"secret": {"secretName": "absent"}},
    {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    {"projected": {"sources": [{"configMap": {"name": "absent", "optional": True}}]}},
    {"projected": {"sources": [{"podCertificate": {"signerName": "a.b/c", "keyType": "ED25519", "keyPath": "k"}}]}},
    {"projected": {"sources": [{"clusterTrustBundle": {"name": "b", "path": "p"}}]}},
    {"nfs": {"server": "s", "path": "/p"}},
    {"csi": {"driver": "d.example.com"}},
    {"image": {"reference": "a:1"}},
)
RIGHTS: tuple[dict[str, Any], ...] = (
    {"runAsUser": 5},
    {"privileged": True},
    {"runAsUser": -1},
    {"procMount": "Unmasked"},
)
PROBES: tuple[dict[str, Any], ...] = (
    {"exec": {"command": ["true"]}},
    {"httpGet": {"port": 80}},
    {"tcpSocket": {"port": "web"}},
    {"grpc": {"port": 80}},
    {"exec": {"command": ["true"]}, "grpc": {"port": 1}},
)


def resources(random: Random, names: tuple[str, ...] = RESOURCES) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for which in ("requests", "limits"):
        if random.random() < 0.4:
            made[which] = {name: random.choice(AMOUNTS) for name in random.sample(names, random.randint(1, 2))}
    return made


def any_container(random: Random, name: str, volumes: list[str], *, init: bool = False) -> dict[str, Any]:
    made = container(name, resources=resources(random) if random.random() < 0.5 else {})
    if volumes and random.random() < 0.5:
        made["volumeMounts"] = [{"name": random.choice(volumes), "mountPath": "/m"}]
    if init and random.random() < 0.4:
        made["restartPolicy"] = "Always"
    if random.random() < 0.3:
        made[random.choice(("livenessProbe", "readinessProbe", "startupProbe"))] = random.choice(PROBES)
    if random.random() < 0.2:
        made["lifecycle"] = {random.choice(("postStart", "preStop")): {"exec": {"command": ["true"]}}}
    if random.random() < 0.2:
        made["ports"] = [{"name": "web", "containerPort": random.choice((80, 81, 82, 70000))}]
    if random.random() < 0.3:
        made["securityContext"] = random.choice(RIGHTS)
    if random.random() < 0.3:
        made["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    return made


def any_pod(random: Random, name: str) -> dict[str, Any]:
    sources = [random.choice(SOURCES) for _ in range(random.randint(0, 2))]
    volumes = [{"name": f"v{position}", **source} for position, source in enumerate(sources)]
    names = [one["name"] for one in volumes]
    spec: dict[str, Any] = {
        "volumes": volumes,
        "initContainers": [any_container(random, f"i{n}", names, init=True) for n in range(random.randint(0, 2))],
    }
    if random.random() < 0.4:
        spec["resources"] = resources(random, RESOURCES if random.random() < 0.3 else ("cpu", "memory"))
    if random.random() < 0.2:
        spec |= random.choice(({"hostUsers": False}, {"os": {"name": "windows"}}, {"shareProcessNamespace": True}))
    mains = [any_container(random, f"c{n}", names) for n in range(random.randint(1, 2))]
    return pod(name, *mains, spec=spec)


def stored(document: dict[str, Any]) -> tuple[Pod, bool]:
    """As the API keeps it; and whether it takes it."""
    given = codec.decode(
        POD, codec.encode(codec.decode_value(Pod, document)), content_type="application/json", strictness="Ignore"
    )
    made: Pod = POD.prepare_create(given.object)
    return made, not POD.validate_create(made)


def resize(random: Random, machine: Machine, name: str) -> bool:
    """Ask for other amounts; whether the API takes that. Then the containers have them, or the pod says why not."""
    document = machine.pod(name)
    old = codec.decode_value(Pod, document)
    for one in (*document["spec"]["containers"], *document["spec"].get("initContainers", ())):
        one["resources"] = {
            which: {resource: random.choice(AMOUNTS) for resource in amounts}
            for which, amounts in one.get("resources", {}).items()
        }
    subresource = POD.subresources["resize"]
    new: Pod = subresource.prepare_update(codec.decode_value(Pod, document), old)
    assert all(amount >= 0 for sums in (requests_of(new), limits_of(new)) for amount in sums.values())
    if subresource.validate_update(new, old):
        return False
    machine.api.put("pods", codec.to_builtins(new))
    for _ in range(3):
        machine.look()
    seen = codec.decode_value(Pod, machine.pod(name))
    told = any(one.type.startswith("PodResize") for one in seen.status.conditions)
    wanted = {one.name: one.resources for one in seen.spec.containers}
    for status in seen.status.container_statuses:
        if status.state.running is not None and status.resources is not None and not told:
            assert (status.resources.requests, status.resources.limits) == (
                wanted[status.name].requests,
                wanted[status.name].limits,
            )
    return True


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(4))
def test_what_the_api_accepts_runs_or_says_why_not(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    machine = Machine(tmp_path)
    machine.start()
    accepted = resized = 0
    for number in range(PODS_PER_SEED):
        name = f"p{number}"
        document = any_pod(random, name)
        made, taken = stored(document)
        if not taken:
            continue
        accepted += 1
        taken_over = codec.to_builtins(made) | {"status": document["status"]}
        if random.random() < 0.2:
            taken_over["spec"]["ephemeralContainers"] = [container("debug")]
        machine.api.put("pods", taken_over)
        for _ in range(3):
            machine.look()
        status = machine.pod(name)["status"]
        told = [one for one in machine.api.all("events") if one["involvedObject"]["name"] == name]
        assert status["phase"] in ("Running", "Succeeded", "Failed") or told, (document, machine.failures[-2:])
        resized += resize(random, machine, name)
        machine.api.delete("pods", name)
        machine.settle()
    assert resized
    assert accepted > PODS_PER_SEED // 20
    assert machine.api.all("pods") == []


@pytest.mark.parametrize("seed", range(4))
def test_no_pod_lowers_a_sum(seed: int) -> None:
    random = Random(seed)
    for number in range(PODS_PER_SEED):
        made, _ = stored(any_pod(random, f"p{number}"))
        for sums in (requests_of(made), node_requests_of(made), limits_of(made)):
            assert all(amount >= 0 for amount in sums.values()), (made, sums)
        usage = usage_of(PODS, made, classes={})
        assert all(amount.sign >= 0 for amount in usage.values()), (made, usage)
        assert made.spec.node_name == NODE
