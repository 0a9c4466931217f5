"""Why pods wait, in few words: the scheduler's messages sorted into causes, each with what to do next. Pure.

The sentences are those of `scheduling.allocator.sentences`, `scheduling.pod_claims` and `scheduling.messages`; a cause
is recognised by the words that only its sentence has. The pod's own page says more: its funnel, and what would help.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from scheduling.explanations.causes import NEXT_OF_HOLD, NEXT_OF_PLUGIN
from scheduling.messages import CANNOT_ALLOCATE, DEALLOCATED, NO_NODES, STILL_NOT_SCHEDULABLE, sentence
from scheduling.reasons import Reason

_NEXT_OF_HOLD = dict(NEXT_OF_HOLD)
#: Of one cause, pods that are named.
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What several pods wait for. key: as the address of a page names it."""

    key: str
    title: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A row of the queue."""

    namespace: str
    name: str
    since: datetime
    message: str
    held_by: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The pods that wait for one cause, the oldest first."""

    cause: Cause
    pods: tuple[WaitingPod, ...]

    @property
    def count(self) -> int:
        return len(self.pods)

    @property
    def named(self) -> tuple[WaitingPod, ...]:
        return self.pods[:NAMED]

    @property
    def more(self) -> int:
        return max(0, self.count - NAMED)

    @property
    def sentence(self) -> str:
        """What the scheduler says of the one that waits longest."""
        return clause_of(self.pods[0].message)


def _cause(key: str, title: str, next_step: str) -> Cause:
    return Cause(key=key, title=title, next_step=next_step)


#: (words that only this cause has, the cause), the first that is found counts
_BY_WORDS = (
    (
        r"in a pool that can(not)? be used| is incomplete \(|pool .* is invalid \(",
        _cause("pool", "A pool cannot be used", "Look at the driver on that node: it has to publish its slices whole."),
    ),
    (
        r"no node publishes a device",
        _cause("no-devices", "No device is published", "Start a node agent with a driver for these devices."),
    ),
    (
        r"is published$|are published$",
        _cause("too-few", "Fewer devices exist than are asked for", "Ask for fewer devices, or add some."),
    ),
    (
        r" tainted[ ,(]",
        _cause("tainted", "The devices are tainted", "Add a toleration to the request, or have the taint taken away."),
    ),
    (
        r"no node has more than",
        _cause(
            "one-node",
            "Too few free devices on one node",
            "Ask for fewer on one node, or wait until one node is given enough back.",
        ),
    ),
    (
        r"of which \d+ (is|are) free",
        _cause("few-free", "Too few matching devices are free", "Wait until more are given back, or ask for fewer."),
    ),
    (
        r"(it is|both are|all \d+ are) (held|full)(;|$)",
        _cause(
            "held",
            "Every matching device is held",
            "Wait until one is given back, let the request accept other devices, or add some.",
        ),
    ),
    (
        r"can give that much|can give ",
        _cause("size", "The devices are too small", "Ask for less, or add devices that are larger."),
    ),
    (
        r"(accepts|selects) (none|only \d+|\d+) of|does not (accept|select) the one",
        _cause("selector", "The selectors leave too few devices", "Loosen the selector that refuses them."),
    ),
    (
        r" sees? (none|\d+) of | not see the only one",
        _cause("elsewhere", "The devices are on other nodes", "Let the pod run on the nodes that have them."),
    ),
    (
        r"device class \S+ does not exist",
        _cause("class-missing", "A DeviceClass does not exist", _NEXT_OF_HOLD[Reason.CLASS_MISSING]),
    ),
    (
        r'resourceclaim\S* ".*" not found|ResourceClaim for \S+ not created yet',
        _cause("claim-missing", "A claim does not exist", _NEXT_OF_HOLD[Reason.CLAIM_MISSING]),
    ),
    (
        r"is being deleted|in use|was not created for pod",
        _cause("claim-busy", "A claim cannot be used now", _NEXT_OF_HOLD[Reason.CLAIM_BUSY]),
    ),
    (
        r"not available on the node",
        _cause("claim-elsewhere", "A claim is allocated on another node", NEXT_OF_PLUGIN["DynamicResources"]),
    ),
    (
        r"^(Insufficient|\d+ Insufficient|.*Too many pods)",
        _cause("room", "Nodes are full", NEXT_OF_PLUGIN["NodeResourcesFit"]),
    ),
    (
        r"CEL |error",
        _cause("error", "A selector fails", "Mend the expression; the page of its class shows what it selects."),
    ),
    (rf"^{NO_NODES}", _cause("no-nodes", "There is no node", "Start a node agent.")),
)
_GATED = _cause("gated", "Scheduling gates hold them", _NEXT_OF_HOLD[Reason.GATED])
_NODES = _cause("nodes", "No node takes them", "The pod's page says what speaks against each node.")
_NEW = _cause("turn", "Waiting for their turn", "Nothing: the scheduler tries them next.")
_OTHER = _cause("other", "Another reason", "The pod's page says what it waits for.")

CAUSES = {cause.key: cause for cause in (*(cause for _, cause in _BY_WORDS), _GATED, _NODES, _NEW, _OTHER)}


#: What the scheduler says after counting the nodes' reasons, where a lack of devices is one of them.
_DOMINANT = re.compile(rf"0/\d+ nodes are available: .*?{CANNOT_ALLOCATE}.*?\. (.+)", re.DOTALL)


def clause_of(message: str) -> str:
    """The scheduler's message without what all of them begin and end with."""
    text = message.removesuffix(STILL_NOT_SCHEDULABLE).removesuffix(DEALLOCATED).strip()
    dominant = _DOMINANT.match(text)
    found = dominant[1] if dominant else re.sub(r"^0/\d+ nodes are available: ", "", text)
    return sentence(found.rstrip("."))


def cause_of(message: str, held_by: int = 0) -> Cause:
    """What a pod with this message waits for."""
    if Reason.GATED in Reason(held_by):
        return _GATED
    if not message:
        return _NEW
    text = clause_of(message)
    for words, cause in _BY_WORDS:
        if re.search(words, text, re.IGNORECASE):
            return cause
    return _NODES if re.search(r"node\(s\)|nodes are available", message) else _OTHER


def by_cause(pods: Iterable[WaitingPod]) -> Sequence[Waiting]:
    """The causes that most pods wait for first; those that wait for their turn last."""
    found: dict[str, list[WaitingPod]] = {}
    for pod in sorted(pods, key=lambda one: (one.since, one.namespace, one.name)):
        found.setdefault(cause_of(pod.message, pod.held_by).key, []).append(pod)
    groups = [Waiting(cause=CAUSES[key], pods=tuple(members)) for key, members in found.items()]
    return sorted(groups, key=lambda group: (group.cause is _NEW, -group.count, group.pods[0].since))
