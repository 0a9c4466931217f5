"""What the API says against what a workload would make next, as its controller's last events tell: quotas, LimitRanges,
Pod Security, webhooks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from manciple.store import objects
from manciple.store.objects import decoded
from manciple.store.records import Stored
from manciple.wire.machinery import Event
from manciple.wire.resources import EVENTS, kind
from workloads.models import Workload
from workloads.pod_control import FAILED_CREATE

_CREATED = "SuccessfulCreate"
#: What its controller begins such an event with -> what a page says instead.
_BEGINNINGS = {"Error creating: ": "A pod cannot be created: ", "Error creating job: ": "A Job cannot be created: "}


@dataclass(frozen=True, slots=True)
class _About:
    """Selects events of one reason about some objects. mentions: what the database looks for."""

    reason: str
    uids: Collection[str]
    mentions: Collection[str]

    def matches(self, values: Any, /) -> bool:
        return values.get("reason") == self.reason and values.get("involvedObject.uid") in self.uids


def last_refusals(uids: Collection[str], namespace: str = "") -> Mapping[str, str]:
    """uid of a workload -> why its next pod, or one of what it controls, is not created; without those that got one
    since. Three queries, or one more where something was refused.
    """
    controlled = Workload.objects.filter(controller_uid__in=uids, finished_at=None)
    wanted = set(uids)
    makers = dict.fromkeys(wanted, "") | dict(controlled.values_list("uid", "controller_uid"))
    failed = _newest(FAILED_CREATE, makers, (FAILED_CREATE,), namespace)
    if not failed:
        return {}
    created = _newest(_CREATED, failed, tuple(failed), namespace)
    found = dict[str, str]()
    for uid, event in failed.items():
        if uid not in created or created[uid].revision < event.revision:
            text = _sentence(decoded(event, Event).message.strip())
            found.update({one: text for one in (uid, makers[uid]) if one in wanted})
    return found


def _newest(reason: str, uids: Collection[str], mentions: Collection[str], namespace: str) -> dict[str, Stored]:
    """uid -> the event that was written last."""
    fields = _About(reason, uids, mentions)
    found: dict[str, Stored] = {}
    for stored in sorted(
        objects.list(kind(EVENTS), namespace=namespace, fields=fields).items, key=lambda one: one.revision
    ):
        found[decoded(stored, Event).involved_object.uid] = stored
    return found


def _sentence(message: str) -> str:
    beginning = next((one for one in _BEGINNINGS if message.startswith(one)), "")
    return f"{_BEGINNINGS.get(beginning, '')}{message.removeprefix(beginning).rstrip('.')}."
