"""Many clients at once against quotas, while processes are killed: no quota is ever exceeded, and none miscounts.

Clients make claims and pods, whose claims the controller makes from a template, and delete some of what they made, in
several namespaces of which each has quotas for less than is asked for: of claims, of devices asked for, and of devices
held. All the while the API process and the workers are killed (SIGKILL) and started again; which, when and for
how long, and what is made and deleted, is drawn from a seed.

Looked at are: every status that a quota ever had, from the log; what clients saw meanwhile; and at the end, against a
count of everything from nothing, what each quota says is used.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from django.db import connection

from cases import cluster, documents
from cases.connection import COME_BACK, Connection, HttpAnswer, running
from cases.figures import Figure
from cases.installation import Installation, installed
from cases.storm import figures_of, raging, supervised, wrong_with
from claims.kinds.quotas import ResourceQuota
from claims.kinds.resource_usage import parsed
from claims.quotas import recount
from manciple.store import event_log
from manciple.store.objects import decoded
from manciple.wire.codec import encode
from manciple.wire.errors import Expired
from manciple.wire.resources import QUOTAS
from scheduling.management.commands.check_invariants import persisting
from tests.builders import CLASS, make_claim, make_namespace, make_pod, make_quota, make_template
from tests.chaos.faults import Storm

NAMESPACES = tuple(f"team-{number}" for number in range(8))
#: Of all that is made: pods, for which the controller makes the claim; what is deleted again.
PODS_PART, DELETED_PART = 0.2, 0.25
#: Of the claims asked for in a namespace, as many as its quotas allow: of claims, of devices, of devices held.
ROOM, DEVICES_ROOM, HELD_ROOM = 0.5, 0.45, 0.05
#: Seconds within which somebody is killed every so often.
STORM = 20.0
PAUSE = 0.25
PATIENCE = 30.0
#: Seconds from quiet within which whatever has room is made and allocated.
SETTLED = 60.0
READ_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Wish:
    """Something that a client makes, and perhaps deletes."""

    namespace: str
    plural: str
    name: str
    body: bytes
    deleted: bool

    @property
    def path(self) -> str:
        group = "/apis/resource.k8s.io/v1" if self.plural == "resourceclaims" else "/api/v1"
        return f"{group}/namespaces/{self.namespace}/{self.plural}"


@dataclass(slots=True)
class _Heard:
    """What all clients were told."""

    outcomes: Counter[str] = field(default_factory=Counter)
    broken: int = 0
    samples: int = 0
    #: in words: statuses above their limits, and answers that should not have been
    exceeded: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def measure(*, seed: int, nodes: int, devices: int, claims: int, clients: int) -> list[Figure]:
    cluster.fill(nodes=nodes, devices=devices)
    limits = _limits(claims)
    cluster.create(make_namespace(name) for name in NAMESPACES)
    cluster.create(make_template(documents.TEMPLATE, namespace=name) for name in NAMESPACES)
    cluster.create(make_quota(limits, name="most", namespace=name) for name in NAMESPACES)
    began = time.monotonic()
    with installed(workers=2) as installation, cluster.alive(nodes):
        connection.close()
        heard, storm = asyncio.run(_weathered(installation, seed=seed, claims=claims, clients=clients))
        made_within = time.monotonic() - began
        _wait_until_settled()
    return _figures(heard, storm, limits, made_within=made_within, claims=claims)


def _limits(claims: int) -> dict[str, str]:
    each = claims / len(NAMESPACES)
    return {
        "count/resourceclaims.resource.k8s.io": str(int(each * ROOM)),
        f"{CLASS}.deviceclass.resource.k8s.io/devices": str(int(each * DEVICES_ROOM)),
        f"manciple.dev/allocated.{CLASS}": str(int(each * HELD_ROOM)),
    }


def _wishes(seed: int, count: int) -> Iterator[Wish]:
    chance = random.Random(seed)
    for number in range(count):
        namespace, deleted = chance.choice(NAMESPACES), chance.random() < DELETED_PART
        if chance.random() < PODS_PART:
            pod = make_pod(f"pod-{number:05}", namespace=namespace, templates={"gpu": documents.TEMPLATE})
            yield Wish(namespace, "pods", pod.metadata.name, encode(pod), deleted)
        else:
            claim = make_claim(f"claim-{number:05}", namespace=namespace)
            yield Wish(namespace, "resourceclaims", claim.metadata.name, encode(claim), deleted)


# The clients ---------------------------------------------------------------------------------------------------------


async def _weathered(installation: Installation, *, seed: int, claims: int, clients: int) -> tuple[_Heard, Storm]:
    heard, wishes = _Heard(), _wishes(seed, claims)
    async with supervised(installation.processes) as storm, running(_sample(installation.connect(), heard)):
        work = [_make_all(installation.connect(), wishes, heard, random.Random(seed + one)) for one in range(clients)]
        await asyncio.gather(raging(storm, seed, STORM), *work)
    return heard, storm


async def _make_all(server: Connection, wishes: Iterator[Wish], heard: _Heard, chance: random.Random) -> None:
    """Make what is wished for, one after the other; what is to be deleted goes some time later."""
    doomed: list[Wish] = []
    for wish in wishes:
        outcome = await _make(server, wish, heard)
        heard.outcomes[f"{wish.plural} {outcome}"] += 1
        if wish.deleted and outcome == "made":
            doomed.append(wish)
        if doomed and chance.random() < DELETED_PART:
            await _delete(server, doomed.pop(chance.randrange(len(doomed))), heard)
    for wish in doomed:
        await _delete(server, wish, heard)
    server.close()


async def _make(server: Connection, wish: Wish, heard: _Heard) -> str:
    """Until it certainly is there, or a quota refuses it."""
    in_doubt = False
    while True:
        answer = await _ask(server, "POST", wish.path, wish.body, heard)
        if answer is None:
            in_doubt = True
        elif answer.status == 201 or (answer.status == 409 and in_doubt):
            return "made"
        elif answer.status == 403 and b"exceeded quota" in answer.body:
            return "refused"
        elif answer.status in COME_BACK:
            in_doubt = in_doubt or answer.status == 504
        else:
            heard.wrong.append(f"POST {wish.path}/{wish.name}: {answer.status} {answer.body[:300]!r}")
            return "wrong"
        await asyncio.sleep(answer.retry_after if answer and answer.retry_after else PAUSE)


async def _delete(server: Connection, wish: Wish, heard: _Heard) -> None:
    path = f"{wish.path}/{wish.name}?gracePeriodSeconds=0"
    while (answer := await _ask(server, "DELETE", path, b"", heard)) is None or answer.status not in (200, 202, 404):
        if answer is not None and answer.status not in COME_BACK:
            heard.wrong.append(f"DELETE {path}: {answer.status} {answer.body[:300]!r}")
            return
        await asyncio.sleep(answer.retry_after if answer and answer.retry_after else PAUSE)
    heard.outcomes[f"{wish.plural} deleted"] += 1


async def _ask(server: Connection, method: str, path: str, body: bytes, heard: _Heard) -> HttpAnswer | None:
    """None where the connection broke, or nobody answered in time."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await server.request(method, path, body)
    except (OSError, EOFError, TimeoutError):
        server.close()
        heard.broken += 1
        return None


async def _sample(server: Connection, heard: _Heard) -> None:
    """Look at every quota again and again, as a client sees it."""
    while True:
        answer = await _ask(server, "GET", "/api/v1/resourcequotas", b"", heard)
        if answer is not None and answer.status == 200:
            heard.samples += 1
            for quota in json.loads(answer.body)["items"]:
                told, where = (
                    quota["status"],
                    f"{quota['metadata']['namespace']} at {quota['metadata']['resourceVersion']}",
                )
                heard.exceeded += _above(where, told.get("used", {}), told.get("hard", {}))
        await asyncio.sleep(PAUSE)


def _above(where: str, used: Mapping[str, str], hard: Mapping[str, str]) -> list[str]:
    amounts, most = parsed(used), parsed(hard)
    return [f"{where}: {key} {used[key]} of {hard[key]}" for key in amounts if amounts[key] > most[key]]


# The judgement -------------------------------------------------------------------------------------------------------


def _wait_until_settled() -> None:
    """Controllers and scheduler have done what there is room for: no quota changes any more."""
    end, before, unchanged = time.monotonic() + SETTLED, -1, 0
    while time.monotonic() < end and unchanged < 8:
        now = _last_change()
        unchanged = unchanged + 1 if now == before else 0
        before = now
        time.sleep(0.5)


def _last_change() -> int:
    return max((revision for revision, _ in _statuses()), default=0)


def _statuses() -> Iterable[tuple[int, ResourceQuota]]:
    """Every quota as it ever was, with the revision."""
    position = event_log.floor()
    while records := event_log.read_after(position, resources={QUOTAS}, limit=READ_AT_ONCE):
        for record in records:
            yield record.revision, decoded(record, ResourceQuota)
        position = records[-1].revision


def _wrong_by_recount() -> int:
    """Quotas of which the status tells something else than a count from nothing."""
    wrong = 0
    for namespace in NAMESPACES:
        try:
            wrong += recount(namespace)
        except Expired:
            wrong += recount(namespace)
    return wrong


def _figures(
    heard: _Heard, storm: Storm, limits: Mapping[str, str], *, made_within: float, claims: int
) -> list[Figure]:
    statuses, fullest, exceeded = 0, Counter[str](), list(heard.exceeded)
    for revision, quota in _statuses():
        statuses += 1
        exceeded += _above(f"{quota.metadata.namespace} at {revision}", quota.status.used, quota.status.hard)
        for key, text in quota.status.used.items():
            fullest[key] = max(fullest[key], int(text))
    violations = _violations()
    wrong = _wrong_by_recount()
    _explain([*exceeded, *heard.wrong, *violations, *wrong_with(storm)])
    tried = sum(count for told, count in heard.outcomes.items() if not told.endswith("deleted"))
    return [
        Figure(name="claims and pods tried", value=tried, unit="", budget=claims, at_least=True),
        *(Figure(name=f"  {told}", value=count, unit="") for told, count in sorted(heard.outcomes.items())),
        Figure(name="seconds", value=made_within, unit="s"),
        Figure(name="statuses of quotas in the log", value=statuses, unit=""),
        Figure(name="statuses that clients saw", value=heard.samples * len(NAMESPACES), unit=""),
        Figure(name="statuses above a limit", value=len(exceeded), unit="", budget=0),
        *(
            Figure(name=f"  most used of {key}, of {limit}", value=fullest[key], unit="", budget=int(limit))
            for key, limit in limits.items()
        ),
        Figure(name="quotas that a recount corrects", value=wrong, unit="", budget=0),
        Figure(name="invariants violated", value=len(violations), unit="", budget=0),
        Figure(name="answers that should not have been", value=len(heard.wrong), unit="", budget=0),
        Figure(name="connections broken", value=heard.broken, unit=""),
        *figures_of(storm),
    ]


def _violations() -> Sequence[str]:
    found = persisting(None, patience=10.0)
    return [f"{name}: {sentence}" for name, sentences in found.items() for sentence in sentences]


def _explain(sentences: Sequence[str]) -> None:
    for sentence in sentences[:40]:
        print(sentence, file=sys.stderr)
