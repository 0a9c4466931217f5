"""Device taints: what keeps claims off a device, and the rule by which an administrator adds one.

A driver publishes `DeviceTaint`s with its devices; a `DeviceTaintRule` adds a taint to every device that its selector
names, without touching the slice. Source: k8s.io/api/resource/v1.
"""

from __future__ import annotations

from typing import Annotated

from manciple.wire.base import ApiObject, Int64, TimeText, Value, always, pb
from manciple.wire.conditions import Condition

PACKAGE = "io.k8s.api.resource.v1"


class DeviceTaint(Value):
    """A reason not to use a device. `effect`: None, NoSchedule or NoExecute; unknown ones count as None.

    key: a label name; value: a label value; time_added: set by the server when absent.
    """

    key: Annotated[str, pb(1)] = ""
    value: Annotated[str, pb(2)] = ""
    effect: Annotated[str, pb(3)] = ""
    time_added: Annotated[TimeText | None, pb(4, encoding="time")] = None


class DeviceToleration(Value):
    """What lets a request use a tainted device.

    key: of the taint; an empty one with Exists tolerates every taint. operator: Equal (the default) or Exists.
    value: of the taint, for Equal. effect: of the taint; an empty one stands for every effect.
    toleration_seconds: how long NoExecute is borne after the taint was added; None means forever, zero
    and below means not at all.
    """

    key: Annotated[str, pb(1)] = ""
    operator: Annotated[str, pb(2)] = ""
    value: Annotated[str, pb(3)] = ""
    effect: Annotated[str, pb(4)] = ""
    toleration_seconds: Annotated[Int64 | None, pb(5)] = None


class DeviceTaintSelector(Value):
    """Which devices a rule taints: every field that is set must match; none set matches every device.

    driver: of the device. pool: of the device. device: its name.
    """

    driver: Annotated[str | None, pb(2)] = None
    pool: Annotated[str | None, pb(3)] = None
    device: Annotated[str | None, pb(4)] = None


class DeviceTaintRuleSpec(Value):
    """One selector and the taint that it puts on the devices."""

    device_selector: Annotated[DeviceTaintSelector | None, pb(1)] = None
    taint: Annotated[DeviceTaint, pb(2)] = always(DeviceTaint())


class DeviceTaintRuleStatus(Value):
    """How far the eviction of pods has come. Condition `EvictionInProgress` tells."""

    conditions: Annotated[tuple[Condition, ...], pb(1, merge_key="type")] = ()


class DeviceTaintRule(ApiObject):
    """Taints every device that its selector names, for as long as the rule exists. Cluster scoped."""

    spec: Annotated[DeviceTaintRuleSpec, pb(2)] = always(DeviceTaintRuleSpec())
    status: Annotated[DeviceTaintRuleStatus, pb(3)] = DeviceTaintRuleStatus()
