"""What a pod's page says of steering."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from claims.kinds.pods import Pod
from manciple.mirror.models import SteeredPod
from manciple.mirror.steering import names
from manciple.mirror.steering.choosing import State
from scheduling.claims.readiness import scheduler_of


@dataclass(frozen=True, slots=True)
class SteeringTold:
    """A sentence with a time in it; at: None for one without."""

    before: str
    at: datetime | None = None
    after: str = "."


def told_of(pod: Pod) -> SteeringTold | None:
    """None for a pod that was not steered."""
    if pod.metadata.labels.get(names.LABEL) != names.LABEL_VALUE:
        return None
    row = SteeredPod.objects.filter(pod_uid=pod.metadata.uid).first()
    return None if row is None else _told(row, scheduler_of(pod))


def _told(row: SteeredPod, scheduler: str) -> SteeringTold:
    placed = f"; `{scheduler}` placed it on `{row.placed_on}`." if row.placed_on else "."
    match State(row.state):
        case State.WAITING:
            told = SteeringTold("No node takes it yet; its gate is removed by", row.ends_at, " at the latest.")
        case State.DECIDED | State.NOMINATED:
            told = SteeringTold(f"Manciple nominates `{row.node}`, then removes its gate.", None, "")
        case State.LET_GO:
            told = SteeringTold("Its gate was removed without a nomination at", row.at, placed)
        case State.REFUSED:
            told = SteeringTold(f"Manciple could not nominate a node: {row.message.rstrip('.')}", None, placed)
        case released:
            after = {
                State.RELEASED: f"; `{scheduler}` has not placed it yet.",
                State.FOLLOWED: f", and `{scheduler}` placed it there.",
            }
            told = SteeringTold(f"Manciple nominated `{row.node}` at", row.nominated_at, after.get(released, placed))
    return told
