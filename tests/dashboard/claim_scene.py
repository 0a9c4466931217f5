"""Claims in use and in trouble, for the tests of their pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from msgspec import structs

from claims.kinds.resource_claims import ResourceClaim
from dashboard.workloads.claims import queries
from tests.builders import make_claim, make_meta, make_pod, make_request
from tests.dashboard.browsing import signed_in
from tests.scheduling.cluster import Cluster


@pytest.fixture
def pages(db: None) -> Client:
    """An administrator's browser."""
    return signed_in("ada", staff=True)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happened a moment ago happened long ago."""
    monkeypatch.setattr(queries, "MOMENT", timedelta(0))


def wants(cluster: Cluster, name: str, *, namespace: str = "default", **request: Any) -> None:
    """A pod with a claim of the same name for such devices; placed where there is room."""
    cluster.create(make_claim(name, namespace=namespace, requests=[make_request(**request)]))
    cluster.create(make_pod(name, namespace=namespace, claims={"gpu": name}))
    cluster.settle()


def runs(cluster: Cluster, name: str, *, count: int = 1) -> ResourceClaim:
    """The claim of such a pod."""
    wants(cluster, name, count=count)
    return cluster.claim(name)


def starts(cluster: Cluster, name: str) -> None:
    """The node's agent reports that the pod runs."""
    pod = cluster.pod(name)
    cluster.update(structs.replace(pod, status=structs.replace(pod.status, phase="Running")))


def is_held_by_a_finalizer(cluster: Cluster, name: str) -> ResourceClaim:
    """A deleted claim that somebody else's controller does not let go."""
    metadata = make_meta(name, "default", finalizers=("example.org/report",))
    made = cluster.create(structs.replace(make_claim(name), metadata=metadata))
    cluster.delete(made)
    return cluster.claim(name)
