"""`metrics.k8s.io`: what nodes and pods use of cpu and memory, as `kubectl top` shows it.

    agents                 sample their containers, and the machine, at a pace (`nodeagent.pods.usage`)
    GET .../pods, /nodes   finds the nodes of the selected pods, and asks the agents of these nodes

Nothing is stored, and nothing is asked while nobody reads: 500 agents that report every 15 seconds would cost more than
all else at rest. An agent's answer is used for 15 seconds by everybody who asks this process; so is its failure: a node
that is away is waited for once. What an agent does not tell in time is left out, as by the metrics server.

Who may read them is said by roles: `view` gives the pods of a namespace.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from inventory import agents
from inventory.agents import AgentAddress
from inventory.kinds.nodes import Node
from inventory.kinds.usage_metrics import (
    NODE_METRICS,
    POD_METRICS,
    NodeMetrics,
    PodMetrics,
    PodUsage,
    Usage,
    UsageReport,
    amounts,
    containers_of,
    time_of,
    window_of,
)
from manciple.api import computed
from manciple.api.computed import ComputedKind
from manciple.api.requests import ListOptions
from manciple.api.verbs import list_page
from manciple.store import objects
from manciple.store.records import Page, Stored
from manciple.wire import codec
from manciple.wire.base import ApiObject, ObjectMeta, timestamp
from manciple.wire.errors import ApiError, NotFound
from manciple.wire.registry import Kind, registry
from manciple.wire.resources import NODES, PODS

log = logging.getLogger(__name__)

#: Seconds for which an agent's answer is used.
FRESH_SECONDS = 15.0
#: Seconds that all agents of one request may take, and how many are asked at once.
ASK_SECONDS, AT_ONCE = 8.0, 32
#: Bytes of one agent's answer: a thousand containers.
ANSWER_BYTES = 1 << 20

#: Asks the agents of some nodes: those that answered, by name.
Ask = Callable[[Iterable[AgentAddress]], Mapping[str, UsageReport]]


# Asking agents --------------------------------------------------------------------------------------------------------


def ask(addresses: Iterable[AgentAddress]) -> Mapping[str, UsageReport]:
    """Call from a thread: it waits for them."""
    return asyncio.run(_ask_all(list(addresses)))


async def _ask_all(addresses: Collection[AgentAddress]) -> Mapping[str, UsageReport]:
    found: dict[str, UsageReport] = {}
    places = asyncio.Semaphore(AT_ONCE)

    async def one(address: AgentAddress) -> None:
        async with places:
            try:
                found[address.node] = await _report_of(address)
            except (ApiError, msgspec.MsgspecError, agents.AnswerTooLong, OSError) as error:
                log.info("node %s tells no usage: %s", address.node, error)

    tasks = [asyncio.create_task(one(address)) for address in addresses]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=ASK_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def _report_of(address: AgentAddress) -> UsageReport:
    content = b""
    async with agents.ask(address, "/usage", {}) as pieces:
        async for piece in pieces:
            content += piece
            if len(content) > ANSWER_BYTES:
                raise agents.AnswerTooLong(f"more than {ANSWER_BYTES} bytes")
    return msgspec.json.decode(content, type=UsageReport)


class _Answer(NamedTuple):
    """report: None where the agent did not answer. at: monotonic seconds."""

    at: float
    report: UsageReport | None


class Usages:
    """The agents' answers. One request at a time asks, and the next one finds its answers. Thread-safe."""

    def __init__(self, ask: Ask = ask, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[str, _Answer] = {}

    def of(self, nodes: Iterable[Node]) -> Mapping[str, UsageReport]:
        """What the agents of these nodes tell, by node; the others are left out. May take seconds."""
        wanted = {node.metadata.name: node for node in nodes}
        with self._lock:
            now = self._clock()
            fresh = {name: one for name, one in self._answers.items() if now - one.at < FRESH_SECONDS}
            asked = [address for name, node in wanted.items() if name not in fresh and (address := _address(node))]
            found = self._ask(asked) if asked else {}
            now = self._clock()
            fresh |= {address.node: _Answer(now, found.get(address.node)) for address in asked}
            self._answers = fresh
        return {name: report for name in wanted if (one := fresh.get(name)) and (report := one.report) is not None}


def _address(node: Node) -> AgentAddress | None:
    try:
        return agents.address_of(node)
    except ApiError as error:
        log.info("node %s tells no usage: %s", node.metadata.name, error)
        return None


# Nodes ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OfNodes:
    """NodeMetrics."""

    usages: Usages

    def get(self, _namespace: str, name: str) -> Stored:
        stored = objects.get(registry.by_resource(NODES), "", name)
        shown = self._shown([stored]) if stored is not None else ()
        return _only(shown, NODE_METRICS, "nodemetrics", name)

    def list(self, _namespace: str, options: ListOptions) -> Page:
        page = list_page(registry.by_resource(NODES), namespace="", options=options)
        return replace(page, items=self._shown(page.items))

    def _shown(self, found: Iterable[Stored]) -> tuple[Stored, ...]:
        nodes = [(stored, codec.decode_text(Node, stored.text)) for stored in found]
        reports = self.usages.of(node for _, node in nodes)
        return tuple(
            _with(stored, NODE_METRICS, _node_metrics(node.metadata, usage))
            for stored, node in nodes
            if (report := reports.get(node.metadata.name)) is not None and (usage := report.node) is not None
        )


def _node_metrics(of: ObjectMeta, usage: Usage) -> NodeMetrics:
    return NodeMetrics(metadata=_metadata(of), timestamp=time_of(usage), window=window_of(usage), usage=amounts(usage))


# Pods -----------------------------------------------------------------------------------------------------------------


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    """As much of a pod as is needed of ten thousand."""

    metadata: ObjectMeta
    spec: _Spec = _Spec()


_pods = msgspec.json.Decoder(_Pod)


@dataclass(frozen=True, slots=True)
class OfPods:
    """PodMetrics."""

    usages: Usages

    def get(self, namespace: str, name: str) -> Stored:
        stored = objects.get(registry.by_resource(PODS), namespace, name)
        shown = self._shown([stored]) if stored is not None else ()
        return _only(shown, POD_METRICS, "podmetrics", f"{namespace}/{name}")

    def list(self, namespace: str, options: ListOptions) -> Page:
        page = list_page(registry.by_resource(PODS), namespace=namespace, options=options)
        return replace(page, items=self._shown(page.items))

    def _shown(self, found: Iterable[Stored]) -> tuple[Stored, ...]:
        pods = [(stored, _pods.decode(stored.text)) for stored in found]
        keys = [("", name) for name in sorted({pod.spec.node_name for _, pod in pods} - {""})]
        nodes = objects.get_many(registry.by_resource(NODES), keys)
        reports = self.usages.of(codec.decode_text(Node, node.text) for node in nodes)
        # By node, too: an agent tells of the pods of its own node only.
        told = {(name, one.uid): one for name, report in reports.items() for one in report.pods if one.containers}
        return tuple(
            _with(stored, POD_METRICS, _pod_metrics(pod.metadata, usage))
            for stored, pod in pods
            if (usage := told.get((pod.spec.node_name, pod.metadata.uid))) is not None
        )


def _pod_metrics(of: ObjectMeta, usage: PodUsage) -> PodMetrics:
    oldest = min(usage.containers.values(), key=lambda one: one.at)
    return PodMetrics(
        metadata=_metadata(of),
        timestamp=time_of(oldest),
        window=window_of(oldest),
        containers=containers_of(usage.containers),
    )


# ----------------------------------------------------------------------------------------------------------------------


def _metadata(of: ObjectMeta) -> ObjectMeta:
    now = timestamp(datetime.now(UTC))
    return ObjectMeta(name=of.name, namespace=of.namespace, labels=of.labels, creation_timestamp=now)


def _with(stored: Stored, kind: Kind, shown: ApiObject) -> Stored:
    typed = msgspec.structs.replace(shown, api_version=kind.api_version, kind=kind.kind)
    return msgspec.structs.replace(stored, text=codec.encode(typed).decode())


def _only(shown: tuple[Stored, ...], kind: Kind, resource: str, name: str) -> Stored:
    """Raises: NotFound, as the metrics server says it."""
    if not shown:
        details = {"name": name, "group": kind.group, "kind": resource}
        raise NotFound(f'{resource}.{kind.group} "{name}" not found', details=details)
    return shown[0]


def register() -> None:
    """Serve them in this process."""
    usages = Usages()
    nodes, pods = OfNodes(usages), OfPods(usages)
    stored_nodes, stored_pods = registry.by_resource(NODES), registry.by_resource(PODS)
    computed.register(ComputedKind(kind=NODE_METRICS, of=stored_nodes, get=nodes.get, list=nodes.list))
    computed.register(ComputedKind(kind=POD_METRICS, of=stored_pods, get=pods.get, list=pods.list))
