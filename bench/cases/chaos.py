"""Everything is killed at random while clients create pods: afterwards every pod has a node, and every promise holds.

Clients create pods from a template at a steady rate, and nodes renew their Leases, through the API's HTTPS door. All
the while the API process, the workers, Redis and PostgreSQL are killed (SIGKILL) and started again. When the last
of them has been started, quiet begins: from there on no pod may wait longer than `PROMISED`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from django.db import connection

from cases import cluster, documents
from cases.connection import PersistentClient, ServerAnswers, running
from cases.figures import Figure
from cases.fleet import renewals
from cases.installation import Installation, installed
from cases.storm import figures_of, raging, supervised, wrong_with
from claims.pod_claims import controller_of
from manciple.controllers.coordination import utc_now
from manciple.store import event_log
from manciple.wire.codec import encode
from manciple.wire.resources import PODS as POD_RESOURCE
from scheduling.cluster_facts import ClusterFacts, gather
from scheduling.management.commands.check_invariants import persisting
from scheduling.models import QueuedPod
from tests.builders import NAMESPACE
from tests.chaos.faults import Storm, Victim
from tests.services import Server

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
UNBOUND = f"{PODS}?fieldSelector=spec.nodeName%3D&limit=1"
#: Seconds within which somebody is killed every so often. Pods are created until the last of them has been started.
STORM = 25.0
#: Seconds from quiet within which every pod has a node.
PROMISED = 30.0
#: Seconds from quiet after which nobody waits any more.
PATIENCE = 90.0
#: Lines of each process that are shown after a failure.
SHOWN = 60


@dataclass(slots=True)
class _Outcome:
    """What was seen from outside."""

    storm: Storm
    heard: ServerAnswers = field(default_factory=ServerAnswers)
    #: names of the pods whose creation was confirmed
    confirmed: set[str] = field(default_factory=set)
    #: seconds from quiet until no pod was without a node; None where that did not happen
    bound_after: float | None = None


def measure(
    *, seed: int, nodes: int, devices: int, pods: int, clients: int, postgresql: Server, redis: Server
) -> list[Figure]:
    cluster.fill(nodes=nodes, devices=devices)
    servers = {"postgresql": postgresql, "redis": redis}
    with installed(workers=2) as installation:
        connection.close()  # which would not survive the storm
        victims: dict[str, Victim] = {**installation.processes, **servers}
        outcome = asyncio.run(_weathered(installation, victims, seed=seed, nodes=nodes, pods=pods, clients=clients))
        found = _Found.afterwards()
        figures = _figures(outcome, found, pods)
        if any(figure.met is False for figure in figures):
            _explain(outcome, found, installation, servers)
    return figures


# The storm -----------------------------------------------------------------------------------------------------------


async def _weathered(
    installation: Installation, victims: Mapping[str, Victim], *, seed: int, nodes: int, pods: int, clients: int
) -> _Outcome:
    async with supervised(victims) as storm:
        outcome = _Outcome(storm)
        agents = renewals(documents.node_names(nodes), lambda: _client(installation, outcome).patch)
        async with running(*agents):
            creating = asyncio.create_task(_create_all(installation, outcome, STORM, pods=pods, clients=clients))
            await raging(storm, seed, STORM)
            quiet = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await creating
                    await _all_bound(_client(installation, outcome))
                    outcome.bound_after = time.monotonic() - quiet
    return outcome


def _client(installation: Installation, outcome: _Outcome) -> PersistentClient:
    return PersistentClient(installation.connect(), outcome.heard)


async def _create_all(
    installation: Installation, outcome: _Outcome, seconds: float, *, pods: int, clients: int
) -> None:
    """At a steady rate for so long; whoever is free takes the next."""
    started = time.monotonic()
    due = ((started + number * seconds / pods, pod) for number, pod in enumerate(documents.pods(pods)))

    async def create() -> None:
        client = _client(installation, outcome)
        for moment, pod in due:
            await asyncio.sleep(max(0.0, moment - time.monotonic()))
            await client.create(PODS, pod.metadata.name, encode(pod))
            outcome.confirmed.add(pod.metadata.name)
        client.close()

    await asyncio.gather(*(create() for _ in range(clients)))


async def _all_bound(client: PersistentClient) -> None:
    while True:
        answer = await client.get(UNBOUND)
        if answer is not None and answer.status == 200 and not json.loads(answer.body)["items"]:
            client.close()
            return
        await asyncio.sleep(0.2)


# The judgement -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What is in the store afterwards."""

    facts: ClusterFacts
    #: pods that had two nodes in their history
    moved: Collection[str]
    #: pods that more than one claim was made for
    doubled: Collection[str]
    #: sentences of `manage.py check_invariants`
    violations: Sequence[str]

    @classmethod
    def afterwards(cls) -> _Found:
        found = persisting(None, patience=10.0)
        facts = gather(utc_now())
        return cls(
            facts=facts,
            moved=_moved(),
            doubled=_doubled(facts),
            violations=[f"{name}: {sentence}" for name, sentences in found.items() for sentence in sentences],
        )

    def bound(self) -> set[str]:
        return {pod.metadata.name for pod in self.facts.pods if pod.spec.node_name}

    def without_node(self) -> set[str]:
        return {pod.metadata.name for pod in self.facts.pods if not pod.spec.node_name}


def _moved() -> list[str]:
    nodes: dict[str, set[str]] = defaultdict(set)
    position = event_log.floor()
    while records := event_log.read_after(position, resources={POD_RESOURCE}):
        for record in records:
            nodes[record.name].add(record.fields["spec.nodeName"])
        position = records[-1].revision
    return [pod for pod, found in nodes.items() if len(found - {""}) > 1]


def _doubled(facts: ClusterFacts) -> list[str]:
    owners = Counter(owner[0] for claim in facts.claims if (owner := controller_of(claim.metadata)))
    return [pod for pod, count in owners.items() if count > 1]


def _figures(outcome: _Outcome, found: _Found, expected: int) -> list[Figure]:
    heard = outcome.heard
    lost = outcome.confirmed - found.bound() - found.without_node()
    late = PATIENCE if outcome.bound_after is None else outcome.bound_after
    return [
        Figure(name="pods created for certain", value=len(outcome.confirmed), unit="", budget=expected, at_least=True),
        Figure(name="pods bound", value=len(found.bound()), unit="", budget=expected, at_least=True),
        Figure(name="from quiet to the last bound", value=late, unit="s", budget=PROMISED),
        Figure(name="pods without a node", value=len(found.without_node()), unit="", budget=0),
        Figure(name="pods confirmed and lost", value=len(lost), unit="", budget=0),
        Figure(name="pods bound twice", value=len(found.moved), unit="", budget=0),
        Figure(name="pods with two claims", value=len(found.doubled), unit="", budget=0),
        Figure(name="invariants violated", value=len(found.violations), unit="", budget=0),
        Figure(name="answers 500", value=heard.of_status(500), unit="", budget=0),
        Figure(name="answers that should not have been", value=len(heard.wrong), unit="", budget=0),
        Figure(name="requests without an answer", value=heard.unanswered, unit="", budget=0),
        Figure(name="connections broken or refused", value=heard.broken, unit=""),
        *(Figure(name=f"  {method} {code}", value=n, unit="") for (method, code), n in sorted(heard.codes.items())),
        *figures_of(outcome.storm),
    ]


def _explain(outcome: _Outcome, found: _Found, installation: Installation, servers: Mapping[str, Server]) -> None:
    """To standard error, what somebody who looks for the cause wants to see first."""
    outputs = {name: process.output for name, process in installation.processes.items()}
    outputs |= {name: server.log().splitlines() for name, server in servers.items()}
    for name, lines in outputs.items():
        print(f"== the last lines of {name}", *lines[-SHOWN:], sep="\n", file=sys.stderr)
    print("== what is wrong", file=sys.stderr)
    waiting = {pod: f"{row.state} {row.cause}" for row in QueuedPod.objects.all() if (pod := row.name)}
    for pod in sorted(found.without_node()):
        print(f"{pod} has no node: {waiting.get(pod, 'and is not in the queue')}", file=sys.stderr)
    for sentence in (
        *(f"{pod} had two nodes" for pod in found.moved),
        *(f"{pod} has two claims" for pod in found.doubled),
        *wrong_with(outcome.storm),
        *found.violations,
        *outcome.heard.wrong,
    ):
        print(sentence, file=sys.stderr)
