"""Evicts pods whose devices carry a NoExecute taint that their claims do not tolerate (KEP-5055).

    the taint is not tolerated              -> the pod goes at once
    it is tolerated for so many seconds     -> the pod goes when they are over, counted from the taint's time
    it is tolerated, or has another effect  -> the pod stays

A pod that was to go later, and may stay after all, is told so by an event.
Who that is the index tells, for all taints together (`claims.device_taints`). Pods are evicted so many in a
transaction, which asks the same questions once more for these pods alone; between two of these everybody else may
write.

Each rule's condition `EvictionInProgress` tells how far it is: before the first pod goes, then at most every ten
seconds; where nobody has to go, some seconds after the rule was made. A rule of effect None is told once how many pods
it would evict if its effect were NoExecute. What was evicted is still counted after a restart (upstream's controller
begins anew).
Upstream: pkg/controller/devicetainteviction/device_taint_eviction.go.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from msgspec import structs

from claims import event_recorder
from claims.device_taints import (
    EVICTING,
    NO_EXECUTE,
    KnownRules,
    Survey,
    Threat,
    ThreatenedPod,
    count_allocated,
    count_published,
    following,
)
from claims.event_recorder import EventNote
from claims.evictions import DEVICE_TAINT, disrupt
from claims.kinds.pods import Pod
from claims.pod_claims import is_done
from inventory.kinds import gates
from inventory.kinds.devices import DeviceTaintRule
from manciple.controllers import metrics
from manciple.controllers.coordination import looked_after
from manciple.controllers.declaration import Controller, batches
from manciple.per_process import PerProcess
from manciple.store import objects
from manciple.store.objects import Wanted, Writer, decoded, to_read
from manciple.wire.base import Condition, condition_of, timestamp
from manciple.wire.identity import controller
from manciple.wire.resources import ADDED, DELETED, EVENTS, MODIFIED, PODS, SLICES, TAINT_RULES, Key, kind

# What a rule's condition says -----------------------------------------------------------------------------------------


CONDITION = "EvictionInProgress"
#: While pods are evicted, a rule's status is written no more often.
STATUS_PERIOD = timedelta(seconds=10)
#: How long a rule that evicts nobody is left alone; its creation is known to the second.
YOUTH = timedelta(seconds=2)
_EVICTED = re.compile(r"(?<!\d)(\d++) pods? evicted since starting the controller\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionProgress:
    """pending: (namespace, name) of the pods that a rule is going to evict. evicted: how many it has."""

    pending: Sequence[Key] = ()
    evicted: int = 0
    #: of a rule of effect None: the devices that it selects
    published: int = 0
    allocated: int = 0


def condition_for(rule: DeviceTaintRule, progress: EvictionProgress, now: datetime) -> Condition:
    """As the controller of Kubernetes words it."""
    effect, messages = rule.spec.taint.effect, []
    status, namespaces = "False", len({namespace for namespace, _ in progress.pending})
    somewhere = "1 namespace" if namespaces == 1 else f"{namespaces} different namespaces"
    if effect == NO_EXECUTE and progress.pending:
        status, reason = "True", "PodsPendingEviction"
        need = "needs" if len(progress.pending) == 1 else "need"
        messages.append(f"{_many(len(progress.pending), 'pod')} {need} to be evicted in {somewhere}.")
    elif effect == NO_EXECUTE:
        reason = "Completed" if progress.evicted else "NotStarted"
    elif effect == "None":
        reason = "NoEffect"
        messages.append(
            f"{_many(progress.published, 'published device')} selected. "
            f"{_many(progress.allocated, 'allocated device')} selected. "
            f"{_many(len(progress.pending), 'pod')} would be evicted in {somewhere} if the effect was NoExecute. "
            "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
        )
    else:
        reason = "OtherEffect"
        messages.append("Eviction only happens for the NoExecute effect.")
    if progress.evicted:
        messages.append(f"{_many(progress.evicted, 'pod')} evicted since starting the controller.")
    return Condition(
        type=CONDITION,
        status=status,
        reason=reason,
        message=" ".join(messages),
        observed_generation=rule.metadata.generation,
        last_transition_time=timestamp(now),
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def is_new(rule: DeviceTaintRule) -> bool:
    """Whether its condition does not tell of what it says now."""
    told = condition_of(rule.status.conditions, CONDITION)
    return told is None or told.observed_generation != rule.metadata.generation


def is_due(rule: DeviceTaintRule, now: datetime) -> bool:
    """Whether its condition may be written again."""
    told = condition_of(rule.status.conditions, CONDITION)
    if told is None or is_new(rule):
        return True
    if rule.spec.taint.effect != NO_EXECUTE or told.last_transition_time is None:
        return False
    return now - datetime.fromisoformat(told.last_transition_time) >= STATUS_PERIOD


def is_young(rule: DeviceTaintRule, now: datetime) -> bool:
    """Whether who made it may still be at it: a status written between their requests would make theirs a conflict."""
    created = rule.metadata.creation_timestamp
    return created is not None and now - datetime.fromisoformat(created) < YOUTH


def evicted_before(rule: DeviceTaintRule) -> int:
    """How many pods its condition says were evicted: a restart does not lose them."""
    told = condition_of(rule.status.conditions, CONDITION)
    found = _EVICTED.search(told.message) if told is not None else None
    return int(found[1]) if found else 0


# Reconciling ----------------------------------------------------------------------------------------------------------


#: Who writes (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("device-taint-eviction-controller")
COMPONENT = "device-taint-eviction-controller"
#: What its events say.
MARKED, SPARED = "Marking for deletion", "Cancelling deletion"
#: Pods or rules in one transaction: other writers wait no longer than these take.
BATCH = 100
#: Rules told in one run that also evicts.
TOLD_FIRST = 20
#: It rests a tenth as long as other sweeps do: pods on broken devices come to harm, 5,000 of them leave in 5 seconds. A
#: batch is read outside of the transaction: meanwhile others may write, too.
REST = 0.1
#: Pods and rules changed in one run: each looks at all that are threatened before it evicts anybody.
MOST = 5000
#: What the controller itself goes on to look at.
LOOKING = frozenset({EVICTING})


class _Sentenced(NamedTuple):
    """A pod that has to go later. seen: when that was found last."""

    uid: str
    key: Key
    seen: datetime


class Evictions:
    """What this process remembers from run to run."""

    def __init__(self) -> None:
        self.survey = Survey()
        #: rule uid -> pods evicted of which its condition does not tell yet
        self.untold: Counter[str] = Counter()
        #: the pods that have to go later, by uid, and when that was found last
        self.sentenced: dict[str, _Sentenced] = {}


evictions = PerProcess(Evictions)


def reconcile(now: datetime) -> int:
    """Tell the rules how far they are, and evict who has to go by now. Returns how many objects were changed."""
    if not gates.enabled("DRADeviceTaints"):
        return 0
    with following.view() as view:
        rules = view.now()
    threatened = evictions.value.survey.threatened(rules, now)
    due = [one for one in threatened if one.threat.until <= now]
    # Of thousands of rules at once most are told when their pods have gone: twice as many writes would hold them up.
    told = _tell(rules, threatened, now, most=TOLD_FIRST if due else MOST)
    if due:
        evictions.value.survey.ask_again()
    told += _spare(threatened, now)
    return told + sum(_evict_batch(batch, now) for batch in batches(due[:MOST], BATCH, rest=REST))


def _tell(rules: KnownRules, threatened: Sequence[ThreatenedPod], now: datetime, *, most: int) -> int:
    """Write the conditions that have something else to say by now. Returns how many."""
    pending: dict[str, list[Key]] = defaultdict(list)
    for one in threatened:
        for uid in one.threat.rules:
            pending[uid].append(one.key)
    wanted = islice(_with_news(rules, pending, now), most)
    return sum(_tell_batch(batch, now) for batch in batches(wanted, BATCH, rest=REST))


def _with_news(
    rules: KnownRules, pending: Mapping[str, Sequence[Key]], now: datetime
) -> Iterator[tuple[DeviceTaintRule, EvictionProgress]]:
    """The rules whose conditions have something else to say by now. pending: rule uid -> who has to go."""
    for rule in rules.all:
        uid = rule.metadata.uid
        if is_due(rule, now) and _has_news(rule, pending) and (uid in pending or not is_young(rule, now)):
            progress = _progress(rule, pending.get(uid, ()), now)
            if _differs(rule, condition_for(rule, progress, now)):
                yield rule, progress


def _has_news(rule: DeviceTaintRule, pending: Mapping[str, Sequence[Key]]) -> bool:
    """Whether its condition may have something else to say; most rules have come to rest."""
    told, uid = condition_of(rule.status.conditions, CONDITION), rule.metadata.uid
    return is_new(rule) or told is None or told.status == "True" or uid in pending or uid in evictions.value.untold


def _progress(rule: DeviceTaintRule, pending: Sequence[Key], now: datetime) -> EvictionProgress:
    evicted = evicted_before(rule) + evictions.value.untold[rule.metadata.uid]
    if rule.spec.taint.effect != "None":
        return EvictionProgress(pending=pending, evicted=evicted)
    pods = Survey().would_evict(rule, now)
    return EvictionProgress(
        pending=[one.key for one in pods],
        evicted=evicted,
        published=count_published(rule),
        allocated=count_allocated(rule),
    )


def _differs(rule: DeviceTaintRule, condition: Condition) -> bool:
    told = condition_of(rule.status.conditions, CONDITION)
    return told is None or structs.replace(told, last_transition_time=condition.last_transition_time) != condition


def _tell_batch(told: Sequence[tuple[DeviceTaintRule, EvictionProgress]], now: datetime) -> int:
    changed = 0
    with objects.writing(identity=IDENTITY) as writer, looked_after.value.noted(writer, LOOKING):
        writer.load(kind(TAINT_RULES), [rule.key for rule, _ in told])
        for before, progress in told:
            rule = writer.get(kind(TAINT_RULES), *before.key)
            if not isinstance(rule, DeviceTaintRule) or rule.metadata.uid != before.metadata.uid:
                continue
            others = tuple(one for one in rule.status.conditions if one.type != CONDITION)
            status = structs.replace(rule.status, conditions=(*others, condition_for(rule, progress, now)))
            writer.update(kind(TAINT_RULES), structs.replace(rule, status=status), subresource="status")
            changed += 1
    for rule, _ in told:
        evictions.value.untold.pop(rule.metadata.uid, None)
    return changed


def _spare(threatened: Sequence[ThreatenedPod], now: datetime) -> int:
    """Tell the pods that had to go later, and need not any more. Returns how many."""
    threatens = {one.uid for one in threatened}
    spared = [one for uid, one in evictions.value.sentenced.items() if uid not in threatens]
    evictions.value.sentenced = {
        one.uid: _Sentenced(one.uid, one.key, now) for one in threatened if one.threat.until > now
    }
    return sum(_tell_spared(batch, now) for batch in batches(spared, BATCH, rest=REST))


def _tell_spared(pods: Sequence[_Sentenced], now: datetime) -> int:
    told = 0
    with objects.writing(identity=IDENTITY) as writer:
        writer.load(kind(PODS), [one.key for one in pods])
        found = [(one, writer.get(kind(PODS), *one.key)) for one in pods]
        staying = [(one, _note(pod, SPARED)) for one, pod in found if isinstance(pod, Pod) and _stays(pod, one.uid)]
        writer.load(kind(EVENTS), [event_recorder.key_of(note) for _, note in staying])
        for one, note in staying:
            # Another worker, which saw it later, may have told it.
            if not event_recorder.was_recorded(writer, note, since=one.seen):
                event_recorder.record(writer, note, now=now)
                told += 1
    return told


def _stays(pod: Pod, uid: str) -> bool:
    return pod.metadata.uid == uid and pod.metadata.deletion_timestamp is None and not is_done(pod)


def _evict_batch(pods: Sequence[ThreatenedPod], now: datetime) -> int:
    """Evict those of `pods` that have to go as things are inside the transaction."""
    evicted: list[str] = []
    with objects.writing(identity=IDENTITY, reads=_read_before(pods)) as writer:
        with following.view() as view:
            rules = view.now()
        threats = evictions.value.survey.still_threatened([one.uid for one in pods], rules.evicting, now)
        going = [pod for one in pods if (pod := _going(writer, one, threats, now)) is not None]
        for pod in going:
            disrupt(writer, pod, DEVICE_TAINT, now=now, note=_note(pod))
            evicted += threats[pod.metadata.uid].rules
    evictions.value.untold.update(evicted)
    for pod in going:
        metrics.FROM_DEVICES.tell((now - threats[pod.metadata.uid].until).total_seconds())
    return len(going)


def _read_before(threatened: Sequence[ThreatenedPod]) -> Wanted:
    """The pods and their events, for the transaction: everybody waits for that, so it reads only what changed since."""
    pods = [decoded(stored, Pod) for stored in objects.get_many(kind(PODS), [one.key for one in threatened])]
    read: Wanted = {(PODS, *pod.key): (kind(PODS), objects.known(kind(PODS), pod)) for pod in pods}
    return {**read, **to_read((kind(EVENTS), [event_recorder.key_of(_note(pod)) for pod in pods]))}


def _going(writer: Writer, one: ThreatenedPod, threats: Mapping[str, Threat], now: datetime) -> Pod | None:
    """The pod, if it is the same and still has to go now."""
    pod = writer.get(kind(PODS), *one.key)
    threat = threats.get(one.uid)
    if not isinstance(pod, Pod) or pod.metadata.uid != one.uid or threat is None or threat.until > now:
        return None
    if not pod.spec.node_name or pod.metadata.deletion_timestamp is not None or is_done(pod):
        return None
    return pod


def _note(pod: Pod, message: str = MARKED) -> EventNote:
    return EventNote(regarding=pod, reason="DeviceTaintManagerEviction", message=message, component=COMPONENT)


CONTROLLER = Controller(
    name=EVICTING,
    does="evicts pods whose devices have a NoExecute taint that their claims do not tolerate",
    in_mirror=False,
    reconcile=reconcile,
    # What a claim tolerates for a while ends without an event.
    every=1,
    wakes_on=frozenset(
        (resource, change) for resource in (TAINT_RULES, SLICES) for change in (ADDED, MODIFIED, DELETED)
    ),
    most_per_turn=MOST,
)
