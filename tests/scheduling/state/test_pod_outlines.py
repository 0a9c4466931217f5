"""A worker keeps of a pending pod what decisions depend on, however much else its author wrote."""

from __future__ import annotations

from typing import Any

import pytest

from claims.kinds.pods import Pod, outline
from manciple.wire import codec
from scheduling.state.cluster import ClusterState
from tests.builders import make_pod
from tests.scheduling.cluster import Cluster

#: Entries of a list, and the bytes that an outline may have.
MANY, SMALL = 2_000, 2_500

CONTAINER: dict[str, Any] = {
    "args": ["argument"] * MANY,
    "command": ["command"] * MANY,
    "env": [{"name": f"E{at}", "value": "v"} for at in range(MANY)],
    "envFrom": [{"configMapRef": {"name": f"c{at}"}} for at in range(MANY)],
    "ports": [{"containerPort": 1 + at} for at in range(MANY)],
    "volumeMounts": [{"name": "v", "mountPath": f"/{at}"} for at in range(MANY)],
    "volumeDevices": [{"name": "v", "devicePath": f"/{at}"} for at in range(MANY)],
    "livenessProbe": {"exec": {"command": ["probe"] * MANY}},
    "lifecycle": {"preStop": {"exec": {"command": ["stop"] * MANY}}},
    "securityContext": {"capabilities": {"drop": ["ALL"] * MANY}},
    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}] * MANY,
}
SPEC: dict[str, Any] = {
    "volumes": [{"name": f"v{at}", "emptyDir": {}} for at in range(MANY)],
    "volumes of claims": [{"name": f"v{at}", "persistentVolumeClaim": {"claimName": "c"}} for at in range(MANY)],
    "imagePullSecrets": [{"name": f"s{at}"} for at in range(MANY)],
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["host-name"] * MANY}],
    "dnsConfig": {"searches": ["example.com"] * MANY},
    "readinessGates": [{"conditionType": f"c{at}"} for at in range(MANY)],
    "schedulingGates": [{"name": f"g{at}"} for at in range(MANY)],
    "ephemeralContainers": [{"name": "debug", "args": ["argument"] * MANY}],
}
METADATA: dict[str, Any] = {
    "finalizers": [f"example.com/f{at}" for at in range(MANY)],
    "managedFields": [{"manager": f"m{at}"} for at in range(MANY)],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": f"u{at}"} for at in range(MANY)],
}


def large_pods() -> dict[str, dict[str, Any]]:
    """What is large -> a pod's document."""
    pods = {}
    for key, value in CONTAINER.items():
        for containers in ("containers", "initContainers"):
            pods[f"{key} of {containers}"] = {"spec": {containers: [{"name": "c", key: value}]}}
    pods |= {key: {"spec": {key.partition(" ")[0]: value}} for key, value in SPEC.items()}
    return pods | {key: {"metadata": {key: value}} for key, value in METADATA.items()}


@pytest.mark.parametrize("pod", large_pods().values(), ids=large_pods().keys())
def test_what_no_decision_depends_on_is_left_out(pod: dict[str, Any]) -> None:
    full = codec.decode_value(Pod, pod)
    assert len(codec.encode(full)) > 4 * SMALL
    assert len(codec.encode(outline(full))) < SMALL


def test_a_worker_keeps_outlines_and_writes_whole_pods(cluster: Cluster) -> None:
    cluster.with_gpus()
    large = codec.decode_value(Pod, {"spec": {"containers": [{"name": "c", "image": "i", "args": ["x"] * MANY}]}})
    cluster.create(make_pod("web", claims=None, containers=large.spec.containers))
    state = ClusterState.captured()
    assert [len(codec.encode(pod)) < SMALL for pod in state.pending.values()] == [True]
    cluster.worker.run()
    bound = cluster.pod("web")
    assert bound.spec.node_name
    assert bound.spec.containers[0].args == ("x",) * MANY
