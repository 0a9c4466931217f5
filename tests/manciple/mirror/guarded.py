"""A cluster whose API server asks guards: claims with versions, writes that may be late or lost, and a copy that is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from manciple.mirror.failures import RemoteFailure
from manciple.mirror.guard import reviews
from manciple.mirror.guard.judging import Answer, Guard, Knowledge, LiveClaim
from manciple.mirror.sources import CLAIM, SLICE
from manciple.mirror.stored_copy import Change, StoredCopy
from tests.manciple.mirror.clusters import NAMESPACE, claim
from tests.manciple.mirror.replay import Document

SCHEDULER = "system:kube-scheduler"
CURRENT = Knowledge("v1", "")


def giving(*devices: str, **fields: Any) -> Document:
    """An allocation of `node/device`s, on the node of the first."""
    allocation: Document = claim("c", *devices)["status"]["allocation"]
    for result in allocation["devices"]["results"]:
        result.update(fields)
    return allocation


def review(
    old: Document | None, new: Document | None, *, version: str = "v1", dry_run: bool = False, **request: Any
) -> Document:
    meta = (new or old or {"metadata": {}})["metadata"]
    resource = {"group": CLAIM.group, "version": version, "resource": CLAIM.plural}
    made = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": CLAIM.group, "version": version, "kind": "ResourceClaim"},
        "resource": resource,
        "subResource": "status",
        "requestKind": {"group": CLAIM.group, "version": version, "kind": "ResourceClaim"},
        "requestResource": resource,
        "requestSubResource": "status",
        "name": meta.get("name", ""),
        "namespace": meta.get("namespace", ""),
        "operation": "UPDATE",
        "userInfo": {"username": SCHEDULER, "groups": ["system:authenticated"]},
        "object": new,
        "oldObject": old,
        "dryRun": dry_run,
        "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
        **request,
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": made}


def answered(guard: Guard, asked: Document) -> Answer:
    return guard.answer(reviews.read(json.dumps(asked).encode()))


@dataclass
class GuardedCluster:
    """claims: as they are, by (namespace, name). known: how far the copy may be trusted. failing: nobody is answered.

    asked: the claims that guards have looked up.
    """

    claims: dict[tuple[str, str], Document] = field(default_factory=dict)
    known: Knowledge = CURRENT
    failing: bool = False
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._versions, self._copied = count(100), dict[tuple[str, str], Document]()
        self.now = 1_000_000.0

    def guard(self, *, enforce: bool = True) -> Guard:
        return Guard(enforce=enforce, ask=self.ask, know=lambda: self.known, clock=lambda: self.now)

    def ask(self, version: str, namespace: str, name: str) -> LiveClaim | None:
        self.asked.append(name)
        if self.failing:
            raise RemoteFailure("the cluster did not answer in time")
        found = self.claims.get((namespace, name))
        return None if found is None else LiveClaim(*reviews.read_claim(version, json.dumps(found).encode()))

    # What happens ----------------------------------------------------------------------------------------------------

    def publish(self, *slices: Document) -> None:
        StoredCopy().apply([change_of(SLICE, self._next(deepcopy(one))) for one in slices])

    def put(self, document: Document) -> Document:
        """Whoever wrote it; nobody is asked."""
        document = self._next(deepcopy(document))
        self.claims[document["metadata"]["namespace"], document["metadata"]["name"]] = document
        return document

    def allocating(
        self, name: str, allocation: Document | None, *, namespace: str = NAMESPACE, **more: Any
    ) -> Document:
        """The question about a write."""
        old = self.claims[namespace, name]
        new = deepcopy(old)
        new["status"] = {"allocation": allocation} if allocation else {}
        return review(old, new, **more)

    def stored(self, asked: Document) -> bool:
        """An admitted write arrives, unless the claim has changed since it was judged."""
        request = asked["request"]
        key = request["namespace"], request["name"]
        current = self.claims.get(key)
        if current is None or _version(current) != _version(request["oldObject"]):
            return False
        self.put(request["object"])
        return True

    def write(self, guard: Guard, name: str, allocation: Document | None, **more: Any) -> Answer:
        asked = self.allocating(name, allocation, **more)
        answer = answered(guard, asked)
        if not answer.refusal and not asked["request"]["dryRun"]:
            assert self.stored(asked)
        return answer

    def copy(self, *names: str) -> None:
        """The copy catches up, with all claims or those of the names."""
        now = {key: one for key, one in self.claims.items() if not names or key[1] in names}
        before = {key: one for key, one in self._copied.items() if not names or key[1] in names}
        changes = [change_of(CLAIM, one) for key, one in now.items() if before.get(key) != one]
        changes += [change_of(CLAIM, one, gone=True) for key, one in before.items() if key not in now]
        StoredCopy().apply(changes)
        self._copied = {**{key: one for key, one in self._copied.items() if key not in before}, **now}

    def _next(self, document: Document) -> Document:
        document["metadata"]["resourceVersion"] = str(next(self._versions))
        return document


def _version(document: Mapping[str, Any]) -> str:
    version: str = document["metadata"]["resourceVersion"]
    return version


def change_of(source: Any, document: Document, *, gone: bool = False) -> Change:
    meta = document["metadata"]
    text = json.dumps(document).encode()
    return Change(
        source, "v1", meta["uid"], meta.get("namespace", ""), meta["name"], meta["resourceVersion"], text, gone
    )


@contextmanager
def guards(cluster: GuardedCluster, modes: Sequence[bool] = (True, True)) -> Iterator[list[Guard]]:
    """Replicas, which share the database. modes: whether each enforces."""
    made = [cluster.guard(enforce=one) for one in modes]
    try:
        yield made
    finally:
        for guard in made:
            guard.close()
