"""In a mirror that steers: which pods have their node chosen here, what was chosen, and what that promises.

A gate keeps such a pod from its scheduler, and is no reason to wait here. Where it is placed is noted in
the transaction that settles its row (`scheduling.cycle.observation`), for the one who nominates that node in the
cluster (`manciple.mirror.steering`). Until the pod is bound, what it takes there is promised: the next decisions count
it as nominated (`scheduling.state.cluster`).

Every other installation has no chooser, and asks none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from claims.kinds.pods import Pod
from manciple.per_process import PerProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """group: of a gang, whose pods get their nodes together; "" for a pod by itself."""

    pod: Pod
    node: str
    group: str = ""


class Chooser(Protocol):
    def chooses(self, pod: Pod) -> bool:
        """Whether this chooser's gate alone keeps the pod from its scheduler."""

    def promised(self) -> Mapping[str, str]:
        """uid -> the node that counts as the pod's; "" where none does, whatever its status says."""

    def note(self, chosen: Sequence[Choice], unplaced: Sequence[Pod], *, revision: int, now: datetime) -> None:
        """Part of a transaction. revision: of the state that was decided on. unplaced: no node takes them now."""


#: None in every installation that does not steer.
chooser = PerProcess[Chooser | None](lambda: None)


def is_chosen_for(pod: Pod) -> bool:
    """Whether the pod's node is chosen here."""
    return bool(pod.spec.scheduling_gates) and (by := chooser.value) is not None and by.chooses(pod)
