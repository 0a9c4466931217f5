"""Fills an empty store with a cluster: nodes with GPUs, a class, a template, and pods that ask for one GPU each.

Objects are prepared as the API prepares them and written through the store, a hundred in a transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from django.db import connection, connections
from msgspec import structs

from manciple.store import objects, sql
from manciple.store.objects import to_read
from manciple.wire.base import ApiObject
from manciple.wire.machinery import Lease, LeaseSpec
from manciple.wire.registry import Kind, registry
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
#: Objects in one transaction.
BATCH = 100


def create(made: Iterable[ApiObject]) -> None:
    """Store new objects of any kinds. Whether their names are free is asked once for each transaction."""
    for chunk in sql.chunks(made, BATCH):
        news = [(kind_of(obj), obj) for obj in chunk]
        reads = to_read(*((kind, [obj.key]) for kind, obj in news))
        with objects.writing(reads=reads) as writer:
            for kind, obj in news:
                writer.create(kind, kind.prepare_create(obj))


def kind_of(obj: ApiObject) -> Kind:
    kind = registry.find_kind(obj.api_version, obj.kind)
    assert kind is not None, obj.kind
    return kind


def fill(*, nodes: int, devices: int) -> None:
    """Everything but pods; one pool of `devices` GPUs a node, with eight attributes each, as drivers publish them."""
    create([make_namespace(NAMESPACE), make_class(), make_template(TEMPLATE)])
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
    create([make_namespace(LEASES)])
    create(map(_lease, names))
    create(map(make_node, names))
    create(make_slice(node=name, devices=gpus) for name in names)


def node_names(nodes: int) -> list[str]:
    """The first `nodes` of them."""
    return [f"node-{number:05}" for number in range(nodes)]


@contextmanager
def alive(nodes: int) -> Iterator[None]:
    """Renews the Leases of the first `nodes` of them, as their agents would, while this is entered: none runs here."""
    stop = threading.Event()
    thread = threading.Thread(target=_renew, args=(node_names(nodes), stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _renew(names: Sequence[str], stop: threading.Event) -> None:
    while not stop.is_set():
        renew(names)
        stop.wait(RENEWAL)
    connections.close_all()


def renew(nodes: Iterable[str]) -> None:
    """The Lease of each, so many in a transaction as `BATCH` allows."""
    kind = registry.by_resource("leases.coordination.k8s.io")
    for chunk in sql.chunks(nodes, BATCH):
        with objects.writing() as writer:
            writer.load(kind, [(LEASES, name) for name in chunk])
            for name in chunk:
                lease: Any = writer.get(kind, LEASES, name)
                writer.update(kind, structs.replace(lease, spec=_renewed(name)))


def stand_for_a_minute() -> None:
    """PostgreSQL knows how large its tables are, as where its autovacuum has come by since they were filled."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _lease(node: str) -> Lease:
    return Lease(
        api_version="coordination.k8s.io/v1", kind="Lease", metadata=make_meta(node, LEASES), spec=_renewed(node)
    )


def _renewed(node: str) -> LeaseSpec:
    return LeaseSpec(holder_identity=node, renew_time=now())


def now() -> str:
    """As Leases tell the time."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def pods(count: int, *, prefix: str = "pod") -> Iterable[ApiObject]:
    """Pods that get one GPU each, by template."""
    return (make_pod(f"{prefix}-{number:06}", templates={"gpu": TEMPLATE}) for number in range(count))
