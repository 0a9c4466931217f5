"""What `manciple devices` says: one line a device, and what is free by class and model.

A device is called free only where everything is known that could keep it: claims, taint rules, nodes and pods. States
are those of the pages (`claims.devices.states`), and two more: `held-twice` where several claims hold all of it, which
Kubernetes' API does not prevent, and `unknown`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from claims.devices.cache import DeviceSnapshot, read_devices
from claims.devices.holdings import Holder
from claims.devices.published import CandidateDevice, DeviceKey, attribute_text
from claims.devices.states import DeviceState
from insight.selector_matches import SelectorVerdict, class_selectors, judge, keep_views
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.judgement import may_not
from manciple.mirror.listing import Found
from manciple.mirror.sources import CLASS, NODE, SLICE, KindState, Reach, Source
from manciple.wire.limits import Deadline, time_limit
from manciple.wire.validation import natural

GROUP_VERSION: Final = "manciple.dev/v1alpha1"
UNKNOWN, HELD_TWICE, NONE = "unknown", "held-twice", "<none>"
#: Seconds of processor time for evaluating the selectors of all classes.
SECONDS: Final = 5.0
_HELD: Final = (DeviceState.RESERVED, DeviceState.ALLOCATED, DeviceState.PREPARING)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLine:
    """classes: None if they are unknown."""

    node: str
    driver: str
    pool: str
    name: str
    model: str
    state: str
    classes: tuple[str, ...] | None
    holders: tuple[Holder, ...]
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTable:
    """gaps: the kinds that are not known entirely. complaints: of classes whose selectors say nothing."""

    devices: tuple[DeviceLine, ...]
    gaps: tuple[KindState, ...]
    complaints: tuple[str, ...]

    @property
    def stock(self) -> Mapping[tuple[str, str], Counter[str]]:
        """(class, model) -> devices: all, free, held, and the others by what they are."""
        found: dict[tuple[str, str], Counter[str]] = {}
        for one in self.devices:
            use = "free" if one.state == "free" else "held" if one.holders else "other"
            if one.state == UNKNOWN:
                use = UNKNOWN
            for name in (UNKNOWN,) if one.classes is None else one.classes:
                found.setdefault((name, one.model), Counter()).update(("devices", use))
        return dict(sorted(found.items()))

    def document(self) -> dict[str, Any]:
        return {
            "kind": "DeviceReport",
            "apiVersion": GROUP_VERSION,
            "items": [_document(one) for one in self.devices],
            "stock": [
                {"class": name, "model": model, **counts} for (name, model), counts in self.stock.items()
            ],
            "notReadable": [
                {"resource": state.source.resource, "reach": state.reach.value, "reason": may_not(state)}
                for state in self.gaps
            ],
            "complaints": list(self.complaints),
        }  # fmt: skip

    def lines(self, *, wide: bool = False, headers: bool = True) -> Iterator[str]:
        if not self.devices and headers:
            yield "No such device is published. Drivers publish them as ResourceSlices: is one running?"
            return
        head = ["NODE", "POOL", "DEVICE", "CLASS", "MODEL", "STATE", "CLAIM", "POD"]
        rows = [_row(one, wide=wide) for one in self.devices]
        if wide:
            head += ["DRIVER", "ATTRIBUTES"]
        yield from _aligned([head, *rows] if headers else rows)
        if not headers:
            return
        yield ""
        uses = ["devices", "free", "held", "other"]
        if any(counts[UNKNOWN] for counts in self.stock.values()):
            uses.append(UNKNOWN)
        stock = [
            [name, model or NONE, *(_told(counts, use) for use in uses)] for (name, model), counts in self.stock.items()
        ]
        yield from _aligned([["CLASS", "MODEL", *map(str.upper, uses)], *stock])
        for text in (
            *self.complaints,
            *(["Not judged: " + "; ".join(map(may_not, self.gaps)) + "."] if self.gaps else []),
        ):
            yield ""
            yield text


def _told(counts: Counter[str], use: str) -> str:
    """Where some are unknown, there may be more of the others."""
    if not counts[UNKNOWN] or use in ("devices", UNKNOWN):
        return str(counts[use])
    return f"{counts[use]}+" if counts[use] else "-"


def read(found: Found, *, device_class: str = "", node: str = "") -> DeviceTable:
    """Raises: RemoteFailure where nothing can be said about devices, or there is no such class."""
    slices = found.states[SLICE.resource]
    if slices.reach is Reach.ABSENT:
        raise RemoteFailure("the server has no resourceslices: it needs Kubernetes 1.31 or later, with DRA enabled")
    if slices.reach is not Reach.EVERYWHERE:
        raise RemoteFailure(f"nothing can be said about devices: {may_not(slices)}")
    is_whole = {source: found.states[source.resource].is_whole for source in (NODE, CLASS)}
    snapshot = read_devices()
    verdicts, complaints = _verdicts(snapshot)
    if device_class and device_class not in verdicts and is_whole[CLASS]:
        there = f"there is {', '.join(sorted(verdicts))}" if verdicts else "there is none at all"
        raise RemoteFailure(f'there is no DeviceClass "{device_class}"; {there}')
    keys = {one.key: one for one in snapshot.candidates}
    held = (key for pool in snapshot.pools.values() for key in pool.holders if key not in keys)
    line = partial(_line, snapshot, verdicts, is_whole)
    lines = [line(key, keys.get(key)) for key in (*keys, *held)]
    chosen = [
        one for one in lines
        if (not node or one.node == node) and (not device_class or device_class in (one.classes or ()))
    ]  # fmt: skip
    if node and not any(one.node == node for one in lines) and node not in snapshot.nodes and is_whole[NODE]:
        raise RemoteFailure(f'there is no Node "{node}": see `kubectl get nodes`')
    return DeviceTable(
        devices=tuple(sorted(chosen, key=lambda one: [natural(part) for part in (one.node, one.pool, one.name)])),
        gaps=tuple(state for state in found.states.values() if not state.is_whole),
        complaints=complaints,
    )


def _verdicts(snapshot: DeviceSnapshot) -> tuple[Mapping[str, SelectorVerdict], tuple[str, ...]]:
    keep_views(snapshot)
    with time_limit(Deadline.after_work(SECONDS)):
        verdicts = {name: judge(selectors, snapshot.published) for name, selectors in class_selectors().items()}
    complaints = [f"DeviceClass {name}: {one.complaint}" for name, one in verdicts.items() if one.complaint]
    complaints += [
        f"DeviceClass {name}: its selectors take too long to evaluate" for name, one in verdicts.items() if one.unjudged
    ]
    return verdicts, tuple(complaints)


def _line(
    snapshot: DeviceSnapshot,
    verdicts: Mapping[str, SelectorVerdict],
    is_whole: Mapping[Source, bool],
    key: DeviceKey,
    device: CandidateDevice | None,
) -> DeviceLine:
    driver, pool, name, node = key
    holders = snapshot.held_by(key)
    return DeviceLine(
        node=device.node if device is not None else node,
        driver=driver,
        pool=pool,
        name=name,
        model=device.model if device is not None else "",
        state=_state(snapshot.state(key), holders, is_whole),
        classes=tuple(one for one, verdict in verdicts.items() if device in verdict.matching)
        if is_whole[CLASS]
        else None,
        holders=holders,
        attributes={
            one: attribute_text(value)
            for one, value in (device.device.attributes if device is not None else {}).items()
        },
    )


def _state(state: DeviceState, holders: Sequence[Holder], is_whole: Mapping[Source, bool]) -> str:
    if sum(not one.shared for one in holders) > 1:
        return HELD_TWICE
    if state in (DeviceState.CLOSED, DeviceState.UNREACHABLE) and not is_whole[NODE]:
        return "reserved" if holders else UNKNOWN
    return state.name.lower().replace("_", "-")


def _document(one: DeviceLine) -> dict[str, Any]:
    return {
        "node": one.node,
        "driver": one.driver,
        "pool": one.pool,
        "device": one.name,
        "classes": None if one.classes is None else list(one.classes),
        "model": one.model,
        "state": one.state,
        "holders": [
            {"namespace": holder.namespace, "claim": holder.claim, "users": list(holder.users), "shared": holder.shared}
            for holder in one.holders
        ],
        "attributes": dict(one.attributes),
    }


def _row(one: DeviceLine, *, wide: bool) -> list[str]:
    claims = ",".join(f"{holder.namespace}/{holder.claim}" for holder in one.holders)
    pods = ",".join(user for holder in one.holders for user in holder.users)
    row = [
        one.node or NONE,
        one.pool,
        one.name,
        UNKNOWN if one.classes is None else ",".join(one.classes) or NONE,
        one.model or NONE,
        one.state,
        claims or NONE,
        pods or NONE,
    ]
    if wide:
        row += [one.driver, ",".join(f"{name}={value}" for name, value in one.attributes.items()) or NONE]
    return row


def _aligned(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """As kubectl aligns them: three blanks between columns."""
    listed = list(rows)
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    for row in listed:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
