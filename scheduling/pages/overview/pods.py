"""Which pods stand behind the overview's numbers: those that wait for a cause, those that ask for a class."""

from __future__ import annotations

from scheduling.capacity import classes_asked
from scheduling.causes import decode
from scheduling.models import QueuedPod
from scheduling.next_steps import topic_of

#: Waiting pods that are looked at; of more, those that wait longest.
LOOKED_AT = 5000


def waiting_for(topic: str) -> list[str]:
    """The uids of the pods in the queue that wait for this (a key of `next_steps.TOPICS`)."""
    rows = QueuedPod.objects.order_by("created_at").values_list("uid", "cause")[:LOOKED_AT]
    return [uid for uid, cause in rows if topic_of(decode(cause)).key == topic]


def asking_for(device_class: str) -> list[str]:
    """The uids of the pods in the queue whose claims without devices ask for this class."""
    return [uid for uid, names in classes_asked(QueuedPod.objects.all()).items() if device_class in names]
