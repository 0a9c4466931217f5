"""The endpoints of Simulations: of their own, below pods and below claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manciple.api import requests, reviews, subresources
from manciple.api.requests import ResourcePath, WriteOptions
from manciple.wire import codec
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind, Served
from manciple.wire.resources import CLAIMS, PODS
from scheduling.rehearsal.autoscaling import answer, checks
from scheduling.rehearsal.autoscaling.kinds import GROUP, VERSION, Simulation
from scheduling.rehearsal.workload import Workload, stored_claim, stored_pod

KIND = requests.virtual_kind(Simulation, group=GROUP, version=VERSION)


def simulate(asked: Simulation) -> Simulation:
    """Raises: Invalid; NotFound for a pod, claim, template or node that it names and that is not there."""
    return answer.answered(checks.prepared(asked, below=False))


def below(find: Callable[[str, str], Workload]) -> subresources.Post:
    """The same about one object. find: (namespace, name) -> what is rehearsed."""

    def post(
        _kind: Kind,
        where: ResourcePath,
        body: bytes,
        *,
        content_type: str,
        identity: Identity,  # noqa: ARG001 - nothing is written by anybody
        options: WriteOptions,
    ) -> dict[str, Any]:
        asked = Simulation()
        if body.strip():
            served = Served(KIND, VERSION)
            decoded = requests.decode_object(served, body, content_type=content_type, strictness=options.strictness)
            asked = decoded.object
        prepared = checks.prepared(asked, below=True)
        found = answer.answered(prepared, find(where.namespace, where.name))
        return {"kind": KIND.kind, "apiVersion": KIND.api_version, **codec.to_builtins(found)}

    return post


def register() -> None:
    """Puts Simulations, and `simulate` below pods and claims, into the API."""
    reviews.register(KIND, simulate)
    for resource, find in ((PODS, stored_pod), (CLAIMS, stored_claim)):
        connected = subresources.Connected(
            name="simulate", kind=KIND.kind, group=GROUP, version=VERSION, post=below(find)
        )
        subresources.register(resource, connected)
