"""What an autoscaler waits for: simulations of a cluster that has no room, and of one that has too much."""

from __future__ import annotations

import ssl
import time
from typing import Any

import httpx

from cases import cluster, cpu, documents
from cases.figures import Figure
from cases.installation import Installation, installed
from claims.controllers.generated_claims import FOLLOWER
from tests.builders import NAMESPACE, make_pod

PATH = "/apis/manciple.dev/v1alpha1/simulations"
#: Of each question; the first is not counted, since the process learns the cluster with it.
ASKED = 3


def measure(*, nodes: int, devices: int, pods: int) -> list[Figure]:
    """`pods` wait at first, all of which fit; then as many more as fill `pods` / `devices` new nodes."""
    cluster.fill(nodes=nodes, devices=devices)
    cluster.create(documents.pods(pods))
    FOLLOWER.follow()
    with installed(workers=0) as installation:
        found = [
            *_asked(installation, f"{pods:,} pods placed on {nodes} nodes", {}, budget=2000),
            *_asked(installation, f"of {nodes} nodes, those that can go", {"scaleDown": True}),
        ]
        more = nodes * devices  # as many as there is room for, so that all of `pods` are too many
        new = {"pod": {"metadata": {"namespace": NAMESPACE}} | _pod(), "replicas": more}
        both = {"newPods": [new, new | {"replicas": pods}], "nodeTemplates": [{"name": "new", "like": "node-00000"}]}
        name = f"{more + pods:,} pods on {nodes} nodes and {pods // devices} new ones"
        return [*found, *_asked(installation, name, both)]


def _pod() -> dict[str, Any]:
    from manciple.wire import codec  # noqa: PLC0415

    return codec.to_builtins(make_pod("more", templates={"gpu": documents.TEMPLATE}))


def _asked(installation: Installation, name: str, spec: dict[str, Any], budget: float | None = None) -> list[Figure]:
    took, spent = [], cpu.by_role()
    trust = ssl.create_default_context(cafile=str(installation.authority))
    headers = {"Authorization": f"Bearer {installation.token}"}
    with httpx.Client(base_url=installation.api, verify=trust, headers=headers, timeout=60) as client:
        for number in range(ASKED + 1):
            if number == 1:
                spent = cpu.by_role()
            began = time.perf_counter()
            answer = client.post(PATH, json={"spec": spec})
            took.append((time.perf_counter() - began) * 1000)
            assert answer.json()["status"]["complete"], answer.text
    used = cpu.since(spent)["api"] * 1000 / ASKED
    return [
        Figure(name=name, value=min(took[1:]), unit="ms", budget=budget),
        Figure(name="  CPU of the API process", value=used, unit="ms"),
    ]
