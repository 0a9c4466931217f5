"""Which pods stand behind the overview's numbers: those that wait for a cause, those that ask for a class."""

from __future__ import annotations

from scheduling.capacity import classes_asked
from scheduling.models import QueuedPod
from scheduling.pages.overview.waiting import cause_of

#: Waiting pods that are looked at; of more, those that wait longest.
LOOKED_AT = 5000


def waiting_for(cause: str) -> list[str]:
    """The uids of the pods in the queue that wait for this cause (a key of `overview_waiting.CAUSES`)."""
    rows = QueuedPod.objects.order_by("created_at").values_list("uid", "message", "held_by")[:LOOKED_AT]
    return [uid for uid, message, held_by in rows if cause_of(message, held_by).key == cause]


def asking_for(device_class: str) -> list[str]:
    """The uids of the pods in the queue whose claims without devices ask for this class."""
    return [uid for uid, names in classes_asked(QueuedPod.objects.all()).items() if device_class in names]
