"""The objects of a cluster: nodes with GPUs and Leases, a class, a template, and pods that ask for one GPU each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from manciple.wire.base import ApiObject
from manciple.wire.machinery import Lease, LeaseSpec
from tests.builders import (
    NAMESPACE,
    make_class,
    make_device,
    make_meta,
    make_namespace,
    make_node,
    make_pod,
    make_slice,
    make_template,
)

TEMPLATE = "one-gpu"
#: Where nodes keep their leases.
LEASES = "kube-node-lease"
#: Seconds between two renewals of a node's Lease, as kubelet's.
RENEWAL = 10.0


def stages(*, nodes: int, devices: int) -> Iterator[Iterable[ApiObject]]:
    """Everything but pods, in the order of creation; the objects of a stage are independent of each other.

    One pool of `devices` GPUs a node, with eight attributes each, as drivers publish them.
    """
    gpus = [
        make_device(
            f"gpu-{number}",
            attributes={
                "index": number,
                "model": "A100",
                "memory": 80,
                "numa": number // 4,
                "healthy": True,
                "family": "ampere",
                "firmware": "92.00.45.00.03",
                "uuid": f"GPU-{number:08}",
            },
            capacity={"memory": "80Gi"},
        )
        for number in range(devices)
    ]
    names = node_names(nodes)
    yield [make_namespace(NAMESPACE), make_namespace(LEASES)]
    yield [make_class(), make_template(TEMPLATE)]
    yield (
        Lease(api_version="coordination.k8s.io/v1", kind="Lease", metadata=make_meta(name, LEASES), spec=renewed(name))
        for name in names
    )
    yield map(make_node, names)
    yield (make_slice(node=name, devices=gpus) for name in names)


def node_names(nodes: int) -> list[str]:
    """The first `nodes` of them."""
    return [f"node-{number:05}" for number in range(nodes)]


def pods(count: int, *, prefix: str = "pod") -> Iterable[ApiObject]:
    """Pods that get one GPU each, by template."""
    return (make_pod(f"{prefix}-{number:06}", templates={"gpu": TEMPLATE}) for number in range(count))


def renewed(node: str) -> LeaseSpec:
    return LeaseSpec(holder_identity=node, renew_time=now())


def now() -> str:
    """The current time in the format of Leases."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
