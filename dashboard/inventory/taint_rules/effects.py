"""What taint rules would do if they came, changed or went: to free devices, to pods that run and to pods that wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec import structs

from claims.device_taints import NO_EXECUTE, Survey, ThreatenedPod
from claims.devices.pools import DeviceSnapshot
from claims.devices.published import DeviceKey
from claims.devices.states import DeviceState
from claims.kinds.pods import Pod
from dashboard.kit.evictions import Leaving, told_of
from dashboard.kit.previews import ActionEffect, Consequence
from inventory.kinds import gates
from inventory.kinds.devices import DeviceTaintRule
from inventory.kinds.taint_rules import GATE, TaintRules
from manciple.people import Person
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.resources import PODS, TAINT_RULES, kind
from scheduling.rehearsal.changes import Imagined, what_if_changed

#: What each effect means for claims without a toleration.
MEANINGS = {
    "None": "nothing happens; the rule's status says how many pods NoExecute would evict",
    "NoSchedule": "no new claim gets the device; a claim that holds it keeps it",
    "NoExecute": "no new claim gets the device, and pods that use it are evicted",
}
#: Devices that one line names.
NAMED = 8
OFF = f"feature gate {GATE} is off: rules have no effect"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    """One rule: before, None where it is new; after, None where it goes."""

    before: DeviceTaintRule | None = None
    after: DeviceTaintRule | None = None


def effect_of(
    changes: Sequence[RuleChange], person: Person, snapshot: DeviceSnapshot, now: datetime, *, summary: str = ""
) -> ActionEffect:
    """What all of them together would do now."""
    changes = [_named(change, number) for number, change in enumerate(changes)]
    coming = TaintRules(one.after for one in changes if one.after is not None)
    going = TaintRules(one.before for one in changes if one.before is not None)
    evicting = [rule for rule in coming if rule.spec.taint.effect == NO_EXECUTE]
    leaving = read_leaving(Survey().evicted_by(evicting, now), now) if gates.enabled(GATE) else []
    imagined = [Imagined(resource=TAINT_RULES, before=one.before, after=one.after) for one in changes]
    found = what_if_changed(imagined, [one.pod for one in leaving])
    touched = tuple(one.key for one in snapshot.candidates if coming.of(*one.key[:3]) or going.of(*one.key[:3]))
    lines = (*_of_devices(touched, coming, snapshot), *_dry_run(coming, now, person), *told_of(leaving, found, person))
    return ActionEffect(summary=summary, consequences=lines, warning="" if gates.enabled(GATE) else f"The {OFF}.")


def _named(change: RuleChange, number: int) -> RuleChange:
    """New rules have no name yet; imagined ones need one each."""
    new = change.after
    if new is None or new.metadata.name:
        return change
    name = f"{new.metadata.generate_name}{number}"
    meta = structs.replace(new.metadata, name=name, uid=name)
    return RuleChange(before=change.before, after=structs.replace(new, metadata=meta))


def read_leaving(threatened: Sequence[ThreatenedPod], now: datetime) -> list[Leaving]:
    """The pods, the first to go first."""
    until = {one.uid: one.threat.until for one in threatened}
    stored = objects.get_many(kind(PODS), [one.key for one in threatened])
    pods = [pod for pod in (decoded(one, Pod) for one in stored) if pod.metadata.uid in until]
    found = [Leaving(pod=pod, seconds=max(0.0, (until[pod.metadata.uid] - now).total_seconds())) for pod in pods]
    return sorted(found, key=lambda one: (one.seconds, one.pod.key))


def _of_devices(keys: Sequence[DeviceKey], coming: TaintRules, snapshot: DeviceSnapshot) -> Iterator[Consequence]:
    if not keys:
        yield Consequence(term="Devices", sentences=("No published device is selected now; later ones may be.",))
        return
    names = ", ".join(f"{pool}/{device}" for _, pool, device, _ in keys[:NAMED])
    more = f" and {len(keys) - NAMED:,} more" if len(keys) > NAMED else ""
    yield Consequence(term="Devices", sentences=(f"{_devices(len(keys))}: {names}{more}.",))
    fencing = [key for key in keys if any(rule.spec.taint.effect != "None" for rule in coming.of(*key[:3]))]
    if free := sum(snapshot.state(key) == DeviceState.FREE for key in fencing):
        whom = "no longer given to claims without a toleration."
        yield Consequence(
            term="Free", sentences=(f"{_devices(free)} {'is' if free == 1 else 'are'} free now and {whom}",)
        )
    if held := sum(bool(snapshot.held_by(key)) for key in keys):
        stays = any(rule.spec.taint.effect == NO_EXECUTE for rule in coming)
        what = "released when the pods are gone" if stays else "kept by the claims that hold them"
        yield Consequence(
            term="Held", sentences=(f"{_devices(held)} {'is' if held == 1 else 'are'} held, and {what}.",)
        )


def _dry_run(coming: TaintRules, now: datetime, person: Person) -> Iterator[Consequence]:
    harmless = [rule for rule in coming if rule.spec.taint.effect == "None"]
    if harmless:
        evicted = Survey().evicted_by(harmless, now, as_if=NO_EXECUTE)
        seen = sum(person.sees(one.namespace) for one in evicted)
        others = f", {len(evicted) - seen} of them in namespaces that you do not see" if seen < len(evicted) else ""
        would = (
            f"{len(evicted):,} pod{'' if len(evicted) == 1 else 's'} would be evicted with effect NoExecute{others}."
        )
        yield Consequence(term="Dry run", sentences=(f"Nothing happens: effect None only counts. {would}",))


def _devices(count: int) -> str:
    return f"{count:,} device{'' if count == 1 else 's'}"
