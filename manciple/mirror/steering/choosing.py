"""Which pods are steered, and the nodes that the mirror's scheduler chooses for them (`scheduling.steering`)."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q

from claims.kinds.pods import Pod
from manciple.durations import moment
from manciple.mirror.models import SteeredPod
from manciple.mirror.steering import names
from scheduling.steering import Choice

State = SteeredPod.State

#: How long a node stays promised to a pod that its scheduler does not place; until a refused write is tried again.
PROMISED, REFUSED_FOR = timedelta(seconds=60), timedelta(seconds=30)
#: Rows whose nodes are promised.
PROMISING: Final = (State.DECIDED, State.NOMINATED, State.RELEASED)
#: Rows whose gate is still there.
GATED: Final = (State.WAITING, State.DECIDED, State.NOMINATED, State.REFUSED)


def is_steered(pod: Pod) -> bool:
    """Whether it has the label, and waits for nothing but the removal of our gate."""
    opted_in = pod.metadata.labels.get(names.LABEL) == names.LABEL_VALUE
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    waits = not pod.spec.node_name and pod.metadata.deletion_timestamp is None
    return opted_in and gates == [names.GATE] and waits


class Choosing:
    """A `scheduling.steering.Chooser`. limit: how long a pod waits for a node, from its creation.

    noted: set once a choice is stored.
    """

    def __init__(self, *, limit: timedelta) -> None:
        self._limit = limit
        self.noted = threading.Event()

    def chooses(self, pod: Pod) -> bool:
        return is_steered(pod)

    def promised(self) -> Mapping[str, str]:
        # A nomination that was given up stays in the pod's status.
        told = Q(state__in=PROMISING) | Q(nominated_at__isnull=False, placed_on="")
        rows = SteeredPod.objects.filter(told).values_list("pod_uid", "state", "node", "at")
        since = datetime.now(UTC) - PROMISED
        return {uid: node if state in PROMISING and at > since else "" for uid, state, node, at in rows}

    def note(self, chosen: Sequence[Choice], unplaced: Sequence[Pod], *, revision: int, now: datetime) -> None:
        pods = [*(one.pod for one in chosen), *unplaced]
        known = SteeredPod.objects.in_bulk([pod.metadata.uid for pod in pods]) if pods else {}
        for one in chosen:
            self._choose(one, known.get(one.pod.metadata.uid), revision=revision, now=now)
        for pod in unplaced:
            row = known.get(pod.metadata.uid)
            if row is None:
                self._row(pod, State.WAITING, revision=revision, now=now).save(force_insert=True)
            else:
                chosen_before = Q(state__in=(State.DECIDED, State.NOMINATED))
                _move(row, chosen_before, state=State.WAITING, node="", group="", at=now)
        if chosen:
            transaction.on_commit(self.noted.set)

    def _choose(self, choice: Choice, row: SteeredPod | None, *, revision: int, now: datetime) -> None:
        decided = {
            "state": State.DECIDED,
            "node": choice.node,
            "group": choice.group,
            "pod_revision": int(choice.pod.metadata.resource_version or 0),
            "revision": revision,
            "at": now,
        }
        if row is None:
            made = self._row(choice.pod, State.DECIDED, revision=revision, now=now)
            for name, value in decided.items():
                setattr(made, name, value)
            made.save(force_insert=True)
            return
        # The gate of one that is nominated is about to be removed.
        better = Q(state=State.NOMINATED) & ~Q(node=choice.node)
        _move(row, Q(state__in=(State.WAITING, State.DECIDED)) | better, **decided)

    def _row(self, pod: Pod, state: SteeredPod.State, *, revision: int, now: datetime) -> SteeredPod:
        meta = pod.metadata
        return SteeredPod(
            pod_uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            state=state,
            pod_revision=int(meta.resource_version or 0),
            revision=revision,
            ends_at=(moment(meta.creation_timestamp) or now) + self._limit,
            at=now,
        )


def _move(row: SteeredPod, may: Q, **fields: object) -> bool:
    """Whether the row still was as `may` says."""
    return bool(SteeredPod.objects.filter(may, pod_uid=row.pod_uid).update(**fields))
