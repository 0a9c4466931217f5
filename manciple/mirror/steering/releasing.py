"""Nominates in the cluster the nodes that were chosen, and removes the gates: one thread of the replica that copies it.

    releasing = Releasing(remote, keep=leadership.keep)
    threading.Thread(target=releasing.run, kwargs={...})

Each write is a JSON patch that tests the pod's uid and version, and what it relies on: the nomination, our gate. So
nothing happens to a pod that is not as it is here, and what was done before a crash is seen in the copy. The answer is
stored in the copy at once. Where the pod has changed, its node is chosen again; a gang's together, as long as no pod of
it was released.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

import msgspec
from django.db import connections, transaction
from django.db.models import Exists, OuterRef, Q, Subquery

from claims.kinds.pods import Pod
from claims.models import Pod as PodRow
from manciple.controllers.coordination import utc_now
from manciple.mirror.acting import JSON_PATCH, MANAGER, refusal_of
from manciple.mirror.client import Answer, Remote, clock_skew
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.models import RemoteVersion, SteeredPod
from manciple.mirror.sources import POD
from manciple.mirror.steering import names
from manciple.mirror.steering.choosing import GATED, PROMISED, REFUSED_FOR, State, is_steered
from manciple.mirror.stored_copy import Change
from manciple.store import objects, sql
from manciple.telemetry import metrics
from manciple.wire.errors import Conflict, Invalid, NotFound
from manciple.wire.resources import PODS, kind
from scheduling.queue import queue
from scheduling.queue.hints import FREED

log = logging.getLogger(__name__)

#: Seconds between two looks at the table, unless something was noted; until a write that failed is tried again.
LOOK, FIRST_PAUSE, LONGEST_PAUSE = 1.0, 0.5, 30.0
#: Seconds that a request may take. Rows that one look reads.
TIMEOUT, MOST = 10.0, 500

OUTCOMES: Final = metrics.counter(
    "manciple_steering_outcomes_total",
    "Steered pods: followed (placed on the node that was nominated), elsewhere, released (without a nomination), "
    "refused (the cluster refused a write).",
    "outcome",
)
#: As the metric has them.
_OUTCOMES: Final = {
    State.FOLLOWED: "followed",
    State.ELSEWHERE: "elsewhere",
    State.LET_GO: "released",
    State.REFUSED: "refused",
}

Patch = list[dict[str, Any]]


class _Changed(Exception):
    """The pod is not, or no longer, what was decided about."""


class _Gone(Exception):
    """There is no such pod, or it is not steered any more."""


class _Refused(Exception):
    """The cluster will not have it."""


class _Failed(Exception):
    """The cluster could not do it; for other pods it may."""


@dataclass(frozen=True, slots=True)
class _Copied:
    """The pod as the copy has it. version: the cluster's."""

    pod: Pod
    revision: int
    version: str

    @property
    def has_gate(self) -> bool:
        return any(gate.name == names.GATE for gate in self.pod.spec.scheduling_gates)

    @property
    def ungating(self) -> Patch:
        place = f"/spec/schedulingGates/{[gate.name for gate in self.pod.spec.scheduling_gates].index(names.GATE)}"
        return [{"op": "test", "path": f"{place}/name", "value": names.GATE}, {"op": "remove", "path": place}]


class Releasing:
    """keep: stores what the cluster has answered; whether it is stored."""

    def __init__(
        self, remote: Remote, *, keep: Callable[[Change], bool], clock: Callable[[], datetime] = utc_now
    ) -> None:
        self._remote, self._keep, self._clock = remote, keep, clock
        #: uid -> until when nothing is sent about the pod, and for how many seconds it was
        self._resting = dict[str, tuple[datetime, float]]()
        #: uids whose promise has ended
        self._ended = set[str]()

    def run(self, stopping: threading.Event, noted: threading.Event, *, may_act: Callable[[], bool]) -> None:
        """Until `stopping`, which whoever sets it follows by `noted`. may_act: the copy is current, and made here."""
        pause, acted = 0.0, False
        try:
            while not stopping.is_set():
                noted.clear()
                try:
                    if may := may_act():
                        if not acted:
                            self.begin()
                        self.turn()
                    pause, acted = 0.0, may
                except RemoteFailure as failure:
                    pause = _longer(pause)
                    log.warning("pods are not steered for %.1f seconds: %s", pause, failure)
                except Exception:  # the database is away, say
                    pause = _longer(pause)
                    log.warning("pods are not steered for %.1f seconds", pause, exc_info=True)
                if pause:
                    stopping.wait(pause)
                else:
                    noted.wait(LOOK)
        finally:
            connections.close_all()

    def begin(self) -> None:
        """Choose again what was chosen on an older copy."""
        self._wait_again(SteeredPod.objects.filter(state=State.DECIDED).values_list("pod_uid", flat=True))

    def turn(self) -> None:
        """Do what there is to do. Raises: RemoteFailure where nothing can be written now."""
        self._look()
        rows, there = SteeredPod.objects.order_by("at"), self._clock() + timedelta(seconds=clock_skew.value)
        for row in rows.filter(state=State.DECIDED)[:MOST]:
            self._carry_out(row, self._nominate)
        incomplete = SteeredPod.objects.filter(state=State.DECIDED, group=OuterRef("group"))
        for row in rows.filter(state=State.NOMINATED).exclude(~Q(group=""), Exists(incomplete))[:MOST]:
            self._carry_out(row, self._release)
        for row in rows.filter(state__in=GATED, ends_at__lte=there)[:MOST]:
            self._carry_out(row, self._let_go)

    # What the copy shows ----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Which pods are gone, and where the others were placed."""
        rows = SteeredPod.objects.alias(is_there=Exists(PodRow.objects.filter(uid=OuterRef("pod_uid"))))
        if gone := list(rows.filter(is_there=False).values_list("pod_uid", flat=True)):
            with sql.in_turn():
                SteeredPod.objects.filter(pod_uid__in=gone).delete()
        node = PodRow.objects.filter(uid=OuterRef("pod_uid")).exclude(node_name="").values("node_name")
        for row in SteeredPod.objects.filter(placed_on="").annotate(there=Subquery(node)).exclude(there=None):
            self._placed(row, row.there)
        refused = SteeredPod.objects.filter(state=State.REFUSED, placed_on="", at__lte=self._clock() - REFUSED_FOR)
        self._wait_again(refused.values_list("pod_uid", flat=True))
        self._end_promises()

    def _placed(self, row: SteeredPod, node: str) -> None:
        match State(row.state):
            case State.NOMINATED | State.RELEASED:
                state = State.FOLLOWED if row.node == node else State.ELSEWHERE
            case State.WAITING | State.DECIDED:
                state = State.LET_GO
            case settled:
                state = settled
        self._move(row, state, placed_on=node)

    def _end_promises(self) -> None:
        """Pods that wait for what was promised to others learn of its end."""
        old = SteeredPod.objects.filter(state=State.RELEASED, at__lte=self._clock() - PROMISED)
        ended = set(old.values_list("pod_uid", flat=True))
        if ended - self._ended:
            with sql.in_turn():
                queue.try_again(lifted=int(FREED))
        self._ended = ended

    # The steps --------------------------------------------------------------------------------------------------------

    def _carry_out(self, row: SteeredPod, step: Callable[[SteeredPod, _Copied], None]) -> None:
        """Raises: RemoteFailure where nothing can be written now, of any pod."""
        until, pause = self._resting.get(row.pod_uid, (self._clock(), 0.0))
        if until > self._clock():
            return
        try:
            step(row, self._copied(row))
        except _Gone:
            self._choose_again(row)
            with sql.in_turn():
                SteeredPod.objects.filter(pod_uid=row.pod_uid).delete()
        except _Changed:
            self._choose_again(row)
        except _Refused as refused:
            log.warning("%s/%s is not steered: %s", row.namespace, row.name, refused)
            self._choose_again(row)
            self._move(row, State.REFUSED, of=GATED, message=str(refused), at=self._clock())
            self._rest(row, pause)
            return
        except _Failed as failed:
            log.warning("%s/%s is steered later: %s", row.namespace, row.name, failed)
            self._rest(row, pause)
            return
        self._resting.pop(row.pod_uid, None)

    def _rest(self, row: SteeredPod, before: float) -> None:
        pause = _longer(before)
        self._resting[row.pod_uid] = self._clock() + timedelta(seconds=pause), pause

    def _copied(self, row: SteeredPod) -> _Copied:
        """Raises: _Gone."""
        stored = objects.get(kind(PODS), row.namespace, row.name)
        version = RemoteVersion.objects.filter(uid=row.pod_uid).values_list("version", flat=True).first()
        if stored is None or stored.uid != row.pod_uid or version is None:
            raise _Gone
        return _Copied(objects.decoded(stored, Pod), stored.revision, version)

    def _nominate(self, row: SteeredPod, copied: _Copied) -> None:
        """Raises: _Changed, _Gone, _Refused, _Failed, RemoteFailure."""
        if self._is_let_go(row, copied):
            return
        if copied.revision != row.pod_revision:
            raise _Changed
        if copied.pod.status.nominated_node_name != row.node:
            patch = [{"op": "add", "path": "/status/nominatedNodeName", "value": row.node}]
            self._patch(row, copied, patch, subresource="/status")
        now = self._clock()
        self._move(row, State.NOMINATED, at=now, nominated_at=now, message="")

    def _release(self, row: SteeredPod, copied: _Copied) -> None:
        """Raises: as `_nominate`."""
        if copied.has_gate:
            if not is_steered(copied.pod) or copied.pod.status.nominated_node_name != row.node:
                raise _Changed
            nominated = {"op": "test", "path": "/status/nominatedNodeName", "value": row.node}
            self._patch(row, copied, [nominated, *copied.ungating])
        self._move(row, State.RELEASED, of=GATED, node=row.node, at=self._clock())

    def _let_go(self, row: SteeredPod, copied: _Copied) -> None:
        """Raises: as `_nominate`."""
        if not self._is_let_go(row, copied):
            self._patch(row, copied, copied.ungating)
            self._move(row, State.LET_GO, of=GATED, at=self._clock())

    def _is_let_go(self, row: SteeredPod, copied: _Copied) -> bool:
        """Whether somebody else has removed the gate. Raises: _Gone where the pod is not steered any more."""
        if copied.has_gate and not is_steered(copied.pod):
            raise _Gone
        if not copied.has_gate:
            self._move(row, State.LET_GO, of=GATED, at=self._clock())
        return not copied.has_gate

    def _choose_again(self, row: SteeredPod) -> None:
        """Of the pod, and of those of its gang that are not released."""
        rows = SteeredPod.objects.filter(Q(pod_uid=row.pod_uid) | (Q(group=row.group) & ~Q(group="")))
        chosen = rows.filter(state__in=(State.DECIDED, State.NOMINATED))
        self._wait_again(chosen.values_list("pod_uid", flat=True))

    def _wait_again(self, uids: Iterable[str]) -> None:
        """The scheduler decides about these again."""
        if uids := list(uids):
            with sql.in_turn(), transaction.atomic():
                rows = SteeredPod.objects.filter(pod_uid__in=uids, state__in=GATED)
                rows.update(state=State.WAITING, node="", group="", at=self._clock())
                queue.try_again(uids)

    def _move(
        self, row: SteeredPod, state: SteeredPod.State, *, of: Sequence[SteeredPod.State] = (), **fields: Any
    ) -> None:
        """Unless the row is another one by now. of: the states that it may have; without, that which was read."""
        same = SteeredPod.objects.filter(pod_uid=row.pod_uid, state__in=of or (row.state,))
        with sql.in_turn():
            moved = (same if of else same.filter(node=row.node)).update(state=state, **fields)
        # A write that is refused again is no other outcome.
        if moved and state != row.state and state in _OUTCOMES and not (state == State.REFUSED and row.message):
            OUTCOMES[_OUTCOMES[state]].inc()

    # The cluster ------------------------------------------------------------------------------------------------------

    def _patch(self, row: SteeredPod, copied: _Copied, patch: Patch, *, subresource: str = "") -> None:
        """Raises: _Changed, _Gone, _Refused, _Failed; RemoteFailure where nothing can be written now, of any pod."""
        tests = [
            {"op": "test", "path": "/metadata/uid", "value": row.pod_uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": copied.version},
        ]
        path = POD.path("v1", namespace=row.namespace, name=row.name)
        answer = self._remote.send(
            "PATCH",
            path + subresource,
            params={"fieldManager": MANAGER},
            body=msgspec.json.encode([*tests, *patch]),
            content_type=JSON_PATCH,
            timeout=TIMEOUT,
        )
        if answer.code < HTTPStatus.BAD_REQUEST:
            self._stored(row, answer)
            return
        refusal = refusal_of(answer, f"PATCH {path}{subresource}")
        if answer.code == HTTPStatus.TOO_MANY_REQUESTS:
            raise RemoteFailure(refusal.message, code=answer.code)
        if answer.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise _Failed(refusal.message)
        # Servers do not say which test has failed, if one has.
        if isinstance(refusal, NotFound | Conflict | Invalid) and self._version_now(row, path) != copied.version:
            raise _Changed
        raise (_Failed if isinstance(refusal, Conflict) else _Refused)(refusal.message)

    def _version_now(self, row: SteeredPod, path: str) -> str:
        """Of the pod, which is also stored in the copy. Raises: _Gone, _Failed, RemoteFailure."""
        answer = self._remote.send("GET", path, timeout=TIMEOUT)
        if answer.code == HTTPStatus.NOT_FOUND:
            self._keep(Change(POD, "v1", row.pod_uid, row.namespace, row.name, "", None, gone=True))
            raise _Gone
        if answer.code >= HTTPStatus.BAD_REQUEST:
            raise _Failed(refusal_of(answer, f"GET {path}").message)
        return self._stored(row, answer)

    def _stored(self, row: SteeredPod, answer: Answer) -> str:
        """Store the pod that was answered; its version. Raises: _Gone where it is another one; _Failed."""
        try:
            meta = msgspec.json.decode(answer.content, type=_Answered).metadata
        except msgspec.MsgspecError as error:
            raise _Failed(f"what was answered about {row.namespace}/{row.name} cannot be read") from error
        change = Change(POD, "v1", meta.uid, row.namespace, row.name, meta.resource_version, answer.content)
        if not self._keep(change):
            raise _Failed("the copy is late")
        if meta.uid != row.pod_uid:
            raise _Gone
        return meta.resource_version


def _longer(pause: float) -> float:
    """The pause after one of so many seconds."""
    return min(max(pause * 2, FIRST_PAUSE), LONGEST_PAUSE)


class _Meta(msgspec.Struct, rename="camel"):
    uid: str
    resource_version: str


class _Answered(msgspec.Struct):
    metadata: _Meta
