"""The pods that wait, sorted by what they wait for.

The pod's own page says more: its funnel, and what would help.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from scheduling.capacity import classes_asked
from scheduling.causes import AnyCause, decode
from scheduling.messages import brief
from scheduling.models import QueuedPod
from scheduling.next_steps import TOPICS, Topic, topic_of

#: Of one topic, pods that are named.
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A row of the queue. cause: None until it was tried."""

    namespace: str
    name: str
    since: datetime
    cause: AnyCause | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingGroup:
    """The pods that wait for one thing, the oldest first."""

    topic: Topic
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
        """What the scheduler says of the one that waits longest; "" of those that were not tried yet."""
        return brief(self.pods[0].cause)


def by_topic(pods: Iterable[WaitingPod]) -> Sequence[WaitingGroup]:
    """What most pods wait for comes first; those that wait for their turn last."""
    found: dict[str, list[WaitingPod]] = {}
    for pod in sorted(pods, key=lambda one: (one.since, one.namespace, one.name)):
        found.setdefault(topic_of(pod.cause).key, []).append(pod)
    groups = [WaitingGroup(topic=TOPICS[key], pods=tuple(members)) for key, members in found.items()]
    return sorted(groups, key=lambda group: (group.topic.key == "turn", -group.count, group.pods[0].since))


# Which pods stand behind the numbers ---------------------------------------------------------------------------------


#: Waiting pods that are looked at; of more, those that wait longest.
LOOKED_AT = 5000


def waiting_for(topic: str) -> list[str]:
    """The uids of the pods in the queue that wait for this (a key of `next_steps.TOPICS`)."""
    rows = QueuedPod.objects.order_by("created_at").values_list("uid", "cause")[:LOOKED_AT]
    return [uid for uid, cause in rows if topic_of(decode(cause)).key == topic]


def asking_for(device_class: str) -> list[str]:
    """The uids of the pods in the queue whose claims without devices ask for this class."""
    return [uid for uid, names in classes_asked(QueuedPod.objects.all()).items() if device_class in names]
