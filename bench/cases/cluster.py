"""Fills an empty store with a cluster (cases/documents.py), and renews its Leases there.

Objects are prepared as the API prepares them and written through the store, a hundred in a transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connection, connections
from msgspec import structs

from cases import documents
from cases.documents import LEASES, RENEWAL
from manciple.store import objects, sql
from manciple.store.objects import to_read
from manciple.wire.base import ApiObject
from manciple.wire.registry import Kind, registry

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
    """Everything but pods."""
    for stage in documents.stages(nodes=nodes, devices=devices):
        create(stage)


@contextmanager
def alive(nodes: int) -> Iterator[None]:
    """Renews the Leases of the first `nodes` of them, as their agents would, while this is entered: none runs here."""
    stop = threading.Event()
    thread = threading.Thread(target=_renew, args=(documents.node_names(nodes), stop))
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
                writer.update(kind, structs.replace(lease, spec=documents.renewed(name)))


def stand_for_a_minute() -> None:
    """PostgreSQL knows how large its tables are, as where its autovacuum has come by since they were filled."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
