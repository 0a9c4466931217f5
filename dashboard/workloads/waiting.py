"""Why pods wait: what they have in common, and what would start them.

Where something in the cluster could be repaired, the pods that would start then are grouped under it, and no others;
the rest are grouped by the topic of their cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from claims.causes.causes import AnyCause, decode
from claims.causes.messages import brief
from claims.causes.next_steps import TOPICS, Topic, topic_of
from dashboard.templatetags.kit import claim_url, driver_url, node_url, page_url
from insight.advice import words_of
from insight.capacity import classes_asked
from scheduling.models import QueuedPod
from scheduling.rehearsal.repairs import (
    UNKNOWN,
    ClosedNode,
    ForgottenClaim,
    IncompletePool,
    Mended,
    TaintedDevices,
    TaintingRule,
    Trouble,
)

#: Pods that a group names.
NAMED = 3
#: What the keys of mendings begin with, where an address names one in the place of a topic.
MEND = "mend:"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A row of the queue. cause: None until it was tried."""

    namespace: str
    name: str
    since: datetime
    cause: AnyCause | None
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingGroup:
    """The pods that wait for one thing, the oldest first. of: how many wait in all, where something can be mended."""

    topic: Topic
    pods: tuple[WaitingPod, ...]
    sentence: str = ""
    of: int = 0
    url: str = ""  # of what is to be mended
    #: the word and the address of the next step's button; dialog: it opens a preview
    button: tuple[str, str] = ("", "")
    dialog: bool = False

    @property
    def count(self) -> int:
        return len(self.pods)

    @property
    def named(self) -> tuple[WaitingPod, ...]:
        return self.pods[:NAMED]

    @property
    def more(self) -> int:
        return max(0, self.count - NAMED)


class _Reasons:
    """The keys that an address may name."""

    def __contains__(self, key: object) -> bool:
        return key in TOPICS or (isinstance(key, str) and key.startswith(MEND))


REASONS = _Reasons()


def key_of(uid: str, cause: AnyCause | None, mended: Mended) -> str:
    """What a pod waits for: the key of a topic, or of a mending with `MEND` before it."""
    mending = mended.of(uid)
    return f"{MEND}{mending.trouble.key}" if mending else topic_of(mended.rest.get(uid) or cause).key


def by_topic(
    pods: Iterable[WaitingPod], mended: Mended = UNKNOWN, sees: Callable[[str], bool] = lambda _namespace: True
) -> Sequence[WaitingGroup]:
    """What can be mended comes first, then what most pods wait for; those that wait for their turn last.

    A group's sentence is about the pod that waits longest. sees: whether who looks may know of what is in a namespace.
    """
    found: dict[str, list[WaitingPod]] = {}
    for pod in sorted(pods, key=lambda one: (one.since, one.namespace, one.name)):
        found.setdefault(key_of(pod.uid, pod.cause, mended), []).append(pod)
    waiting = sum(map(len, found.values()))
    troubles = {f"{MEND}{one.trouble.key}": one.trouble for one in mended.mendings}
    groups = []
    for key, members in found.items():
        count, first, of, url = len(members), members[0], 0, ""
        if trouble := troubles.get(key):
            title, step, url = said_of(trouble, sees)
            topic, of = Topic(key, title, step), waiting
            some = f"{count} of the {waiting} waiting pods"
            if count == waiting:
                some = "the waiting pod" if waiting == 1 else f"all {waiting}"
            sentence = f"Fixing this would start {some}."
        else:
            topic, then = TOPICS[key], mended.rest.get(first.uid)
            sentence = brief(first.cause)
            if then is not None and topic_of(first.cause).key != key:
                sentence = f"They would still wait: {brief(then)}"
        groups.append(WaitingGroup(topic=topic, pods=tuple(members), sentence=sentence, of=of, url=url))
    return sorted(
        groups, key=lambda group: (not group.of, group.topic.key == "turn", -group.count, group.pods[0].since)
    )


def said_of(trouble: Trouble, sees: Callable[[str], bool]) -> tuple[str, str, str]:
    """(what is wrong, what to do, where)."""
    match trouble:
        case IncompletePool(driver=driver, node=node):
            url = node_url(node) if node else driver_url(driver)
        case TaintedDevices():
            url = f"{page_url('devices')}?state={'bad' if trouble.unhealthy else 'taint'}"
        case TaintingRule(name=name):
            url = f"{page_url('find')}?q={name}"
        case ClosedNode(node=node):
            url = node_url(node)
        case ForgottenClaim(namespace=namespace, claim=claim):
            url = claim_url(namespace, claim) if sees(namespace) else ""
    title, step = words_of(trouble, sees)
    return title, f"{step}.", url


def begun(title: str) -> str:
    """A title within a sentence."""
    return f"{title[:1].lower()}{title[1:]}"


#: Waiting pods that are looked at; of more, those that wait longest.
LOOKED_AT = 5000


def waiting_for(key: str, mended: Mended) -> list[str]:
    """The uids of the pods in the queue that wait for this (see `key_of`)."""
    rows = QueuedPod.objects.waiting().order_by("created_at").values_list("uid", "cause")[:LOOKED_AT]
    return [uid for uid, cause in rows if key_of(uid, decode(cause), mended) == key]


def title_of(key: str, mended: Mended, sees: Callable[[str], bool]) -> str:
    """What the pods have in common that wait for this; "" for what nobody waits for any more."""
    if key in TOPICS:
        return TOPICS[key].title
    trouble = next((one.trouble for one in mended.mendings if f"{MEND}{one.trouble.key}" == key), None)
    return said_of(trouble, sees)[0] if trouble else ""


def asking_for(device_class: str) -> list[str]:
    """The uids of the pods in the queue whose claims without devices ask for this class."""
    return [uid for uid, names in classes_asked(QueuedPod.objects.waiting()).items() if device_class in names]
