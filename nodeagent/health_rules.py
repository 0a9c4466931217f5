"""Keeps pods off unhealthy devices of drivers that publish their slices themselves: one DeviceTaintRule per device.

    a driver behind a socket reports a device Unhealthy  -> create a rule with the taint
    it reports the device Healthy                        -> delete the rule
    its health is Unknown, after the driver crashed, say -> keep the rule: the device may still be broken

The Node owns the rules, so they are deleted with it; the agent finds those of its earlier runs by their owner. Enabled
by `--taint-unhealthy-plugins`: the agent needs a right that Kubernetes gives to no node (docs/how-to/drivers.md).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from inventory.kinds.devices import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from manciple.wire.base import ObjectMeta, OwnerReference
from nodeagent.client import ApiResource, Client
from nodeagent.drivers.protocol import DeviceHealth
from nodeagent.failures import ApiFailure

log = logging.getLogger(__name__)

TAINT_RULES = ApiResource(DeviceTaintRule, "resource.k8s.io/v1beta2", "devicetaintrules", namespaced=False)
#: (driver, pool, device)
Place = tuple[str, str, str]


class HealthRules:
    """owner: returns the Node as an owner. taint: of unhealthy devices."""

    def __init__(self, client: Client, *, owner: Callable[[], OwnerReference], taint: DeviceTaint) -> None:
        self._client, self._owner, self._taint = client, owner, taint
        #: the names of the existing rules by device; None until they are read
        self._rules: dict[Place, str] | None = None

    def sync(self, reported: Mapping[str, Sequence[DeviceHealth]]) -> None:
        """reported: by driver. Raises: ApiFailure; call again later."""
        rules = self._known()
        states = {
            (driver, device.pool, device.device): device.health
            for driver, devices in reported.items()
            for device in devices
        }
        for place in sorted(place for place, health in states.items() if health == "Unhealthy" and place not in rules):
            rules[place] = self._create(place)
        for place in sorted(place for place in rules if states.get(place) == "Healthy"):
            self._delete(rules[place])
            del rules[place]

    def _known(self) -> dict[Place, str]:
        if self._rules is None:
            found = {_place_of(rule): rule for rule in self._own()}
            for place, rule in found.items():
                if rule.spec.taint.effect != self._taint.effect:  # the agent was started with another effect
                    self._delete(rule.metadata.name)
                    self._create(place)
            self._rules = {place: rule.metadata.name for place, rule in found.items()}
        return self._rules

    def _own(self) -> Iterable[DeviceTaintRule]:
        uid = self._owner().uid
        for rule in self._client.list(TAINT_RULES).items:
            ours = any(one.uid == uid for one in rule.metadata.owner_references)
            if ours and rule.metadata.name == _name(uid, _place_of(rule)):
                yield rule

    def _create(self, place: Place) -> str:
        owner, (driver, pool, device) = self._owner(), place
        name = _name(owner.uid, place)
        rule = DeviceTaintRule(
            api_version=TAINT_RULES.api_version,
            kind=TAINT_RULES.kind,
            metadata=ObjectMeta(name=name, owner_references=(owner,)),
            spec=DeviceTaintRuleSpec(
                device_selector=DeviceTaintSelector(driver=driver, pool=pool, device=device), taint=self._taint
            ),
        )
        try:
            self._client.create(TAINT_RULES, rule)
        except ApiFailure as failure:
            if failure.reason != "AlreadyExists":
                raise
        log.warning("device %s/%s/%s is unhealthy: DeviceTaintRule %s keeps pods off it", *place, name)
        return name

    def _delete(self, name: str) -> None:
        try:
            self._client.delete_by_name(TAINT_RULES, name)
        except ApiFailure as failure:
            if not failure.not_found:
                raise


def _place_of(rule: DeviceTaintRule) -> Place:
    selector = rule.spec.device_selector or DeviceTaintSelector()
    return selector.driver or "", selector.pool or "", selector.device or ""


def _name(node_uid: str, place: Place) -> str:
    """Of the rule for a device: the same for the same device of a Node, so it is made once."""
    return f"unhealthy-{hashlib.sha256(chr(0).join((node_uid, *place)).encode()).hexdigest()[:20]}"
