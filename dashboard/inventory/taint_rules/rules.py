"""Which rules taint exactly the chosen devices, and which must go to untaint them. Pure: no Django, no database."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from claims.devices.published import DeviceKey, pool_of
from inventory.kinds.devices import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from inventory.kinds.pools import PoolKey
from inventory.kinds.taint_rules import TaintRules, place_of
from manciple.wire.base import ObjectMeta

#: What a device may not be called in an object's name.
_FOREIGN = re.compile(r"[^a-z0-9]+")
#: Characters of a rule's name before the five that the server adds.
_LONGEST = 57


def rules_for(
    chosen: Collection[DeviceKey], taint: DeviceTaint, pools: Mapping[PoolKey, Collection[DeviceKey]], *, word: str
) -> tuple[DeviceTaintRule, ...]:
    """One rule for a pool of which everything is chosen, else one for each device.

    pools: the published devices of each pool. word: what the rules' names begin with. The server completes the names.
    """
    by_pool: dict[PoolKey, list[DeviceKey]] = defaultdict(list)
    for key in sorted(set(chosen)):
        by_pool[pool_of(key)].append(key)
    found = list[DeviceTaintRule]()
    for pool, keys in by_pool.items():
        # A rule without a device is for the pools of all nodes with that name.
        namesakes = (published for other, published in pools.items() if other[:2] == pool[:2])
        whole = len(keys) > 1 and set(chosen).issuperset(chain.from_iterable(namesakes))
        found += [_rule(word, taint, *pool[:2])] if whole else [_rule(word, taint, *key[:3]) for key in keys]
    return tuple({rule.spec.device_selector: rule for rule in found}.values())


def _rule(word: str, taint: DeviceTaint, driver: str, pool: str, device: str | None = None) -> DeviceTaintRule:
    name = _FOREIGN.sub("-", "-".join(filter(None, (word, pool, device))).lower())[:_LONGEST].strip("-")
    selector = DeviceTaintSelector(driver=driver, pool=pool, device=device)
    return DeviceTaintRule(
        api_version="resource.k8s.io/v1beta2",
        kind="DeviceTaintRule",
        metadata=ObjectMeta(generate_name=f"{name}-"),
        spec=DeviceTaintRuleSpec(device_selector=selector, taint=taint),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Untaint:
    """What takes the taints of the chosen devices away.

    removed: rules that taint nothing else that is published. wider: (rule, how many other devices it taints), which
    stay. published: taints that the drivers themselves publish, which only they can take away.
    """

    removed: tuple[DeviceTaintRule, ...]
    wider: tuple[tuple[DeviceTaintRule, int], ...]
    published: tuple[tuple[DeviceKey, DeviceTaint], ...]


def untainting(
    chosen: Collection[DeviceKey],
    rules: Iterable[DeviceTaintRule],
    published: Mapping[DeviceKey, Sequence[DeviceTaint]],
) -> Untaint:
    """published: every published device, with the taints of its driver."""
    wanted, known = set(chosen), TaintRules(rules)
    touched = {rule.metadata.name: rule for key in sorted(wanted) for rule in known.of(*key[:3])}
    others = {name: sum(selects(rule, key) for key in published.keys() - wanted) for name, rule in touched.items()}
    return Untaint(
        removed=tuple(rule for name, rule in sorted(touched.items()) if not others[name]),
        wider=tuple((rule, others[name]) for name, rule in sorted(touched.items()) if others[name]),
        published=tuple((key, taint) for key in sorted(wanted) for taint in published.get(key, ())),
    )


def selects(rule: DeviceTaintRule, key: DeviceKey) -> bool:
    """Whether the rule's selector names the device."""
    place = place_of(rule)
    return place is not None and all(wanted in (None, is_) for wanted, is_ in zip(place, key[:3], strict=True))


def selected_in_words(rule: DeviceTaintRule) -> str:
    """Which devices it taints: `gpu-3 of pool gpu-a17, driver gpu.nvidia.com`."""
    place = place_of(rule)
    if place is None:
        return "No device: it has no selector"
    driver, pool, device = place
    first = f"device {device}" if device else "every device"
    rest = [f"pool {pool}" if pool else "", f"driver {driver}" if driver else ""]
    return f"{first[0].upper()}{first[1:]}" + "".join(f", {one}" for one in rest if one)


def taint_in_words(taint: DeviceTaint) -> str:
    """As `kubectl taint` writes it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
