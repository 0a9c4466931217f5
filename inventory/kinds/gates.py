"""Feature gates by Kubernetes' names: those that concern DRA, and what they are by default. PURE.

A feature that is off: its fields are dropped when an object is created, and kept where an object has them already
(`inventory.kinds.gated_fields`); the allocator gives nothing by it. So a gate can be turned off and on again while pods
run. A gate that is locked cannot be turned off.
Source: pkg/features/kube_features.go of Kubernetes 1.36. One default is ours: DeviceTaintRules are served, so their
gate is on. DynamicResourceAllocation, which 1.36 locks, can be turned off as its KEPs describe.
DRAControlPlaneController is Kubernetes 1.31's; the two drafts never had a gate there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Stage = Literal["ALPHA", "BETA", "GA"]
#: Names that stand for all gates of a stage.
GROUPS: Mapping[str, Stage] = MappingProxyType({"AllAlpha": "ALPHA", "AllBeta": "BETA"})


@dataclass(frozen=True, slots=True)
class Gate:
    """needs: other gates without which it is off."""

    stage: Stage
    default: bool
    locked: bool = False
    needs: tuple[str, ...] = ()


#: All of it: while this is off, `resource.k8s.io` is not served, and pods run as if they asked for no claims.
DYNAMIC_RESOURCE_ALLOCATION = "DynamicResourceAllocation"
#: KEP-3063: claims that a driver's controller allocates.
CONTROL_PLANE_CONTROLLER = "DRAControlPlaneController"
STRUCTURED_PARAMETERS_DRAFT = "DRAStructuredParametersDraft"
CLAIMS_DRAFT = "DRAClaimsDraft"

_ALL = (DYNAMIC_RESOURCE_ALLOCATION,)

KNOWN: Mapping[str, Gate] = MappingProxyType(
    {
        "DRAAdminAccess": Gate("GA", True, locked=True, needs=_ALL),
        "DRAClaimsDraft": Gate("ALPHA", False, needs=("DRAControlPlaneController",)),
        "DRAConsumableCapacity": Gate("BETA", True, needs=_ALL),
        "DRAControlPlaneController": Gate("ALPHA", False, needs=_ALL),
        "DRADeviceBindingConditions": Gate("BETA", True, needs=("DRAResourceClaimDeviceStatus",)),
        "DRADeviceTaintRules": Gate("BETA", True, needs=("DRADeviceTaints",)),
        "DRADeviceTaints": Gate("BETA", True, needs=_ALL),
        "DRAExtendedResource": Gate("BETA", True, needs=_ALL),
        "DRAListTypeAttributes": Gate("ALPHA", False, needs=_ALL),
        "DRANodeAllocatableResources": Gate("ALPHA", False, needs=_ALL),
        "DRAPartitionableDevices": Gate("BETA", True, needs=_ALL),
        "DRAPrioritizedList": Gate("GA", True, needs=_ALL),
        "DRAResourceClaimDeviceStatus": Gate("BETA", True, needs=_ALL),
        "DRAResourceClaimGranularStatusAuthorization": Gate("BETA", True, needs=("DRAResourceClaimDeviceStatus",)),
        "DRAResourcePoolStatus": Gate("ALPHA", False, needs=_ALL),
        "DRASchedulerFilterTimeout": Gate("BETA", True, needs=_ALL),
        "DRAStructuredParametersDraft": Gate("ALPHA", False, needs=_ALL),
        "DRAWorkloadResourceClaims": Gate("ALPHA", False, needs=("GenericWorkload", *_ALL)),
        DYNAMIC_RESOURCE_ALLOCATION: Gate("GA", True),
        "GangScheduling": Gate("ALPHA", False, needs=("GenericWorkload",)),
        "GenericWorkload": Gate("ALPHA", False),
    }
)

DEFAULTS: Mapping[str, bool] = MappingProxyType({name: gate.default for name, gate in KNOWN.items()})


def parse(text: str) -> dict[str, bool]:
    """Every gate, on or off, as "NAME=true,NAME=false" says; the others by default. AllAlpha and AllBeta come first.

    Raises: ValueError for what Kubernetes refuses at its start: an unknown name, no truth value, a locked gate.
    """
    given: dict[str, bool] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, value = part.partition("=")
        if name not in KNOWN and name not in GROUPS:
            raise ValueError(f"unrecognized feature gate: {name}; known are {', '.join((*GROUPS, *KNOWN))}")
        if value.lower() not in ("true", "false"):
            raise ValueError(f"invalid value of {name}: {value!r}, must be true or false")
        given[name] = value.lower() == "true"
    wanted = dict(DEFAULTS)
    for group, stage in GROUPS.items():
        if group in given:
            wanted |= {name: given[group] for name, gate in KNOWN.items() if gate.stage == stage}
    wanted |= {name: on for name, on in given.items() if name in KNOWN}
    for name, gate in KNOWN.items():
        if gate.locked and wanted[name] is not gate.default:
            raise ValueError(f"cannot set feature gate {name} to false, feature is locked to true")
    for name in [one for one in KNOWN if wanted[one]]:
        if missing := [other for other in _needed_by(name) if not wanted[other]]:
            if given.get(name):
                raise ValueError(f"{name} needs {', '.join(missing)}")
            wanted[name] = False
    return wanted


def _needed_by(name: str) -> Iterator[str]:
    for other in KNOWN[name].needs:
        yield other
        yield from _needed_by(other)


_now: dict[str, bool] = dict(DEFAULTS)


def use(gates: Mapping[str, bool]) -> None:
    """These hold in this process; a gate that is not named is as it is by default."""
    _now.clear()
    _now.update({**DEFAULTS, **gates})


@contextmanager
def using(**gates: bool) -> Iterator[None]:
    """Within it, these hold beside those that held before."""
    before = dict(_now)
    use({**before, **gates})
    try:
        yield
    finally:
        use(before)


def enabled(name: str) -> bool:
    return _now[name]


def serves(group: str, _version: str, _plural: str) -> bool:
    """Whether clients may find what is registered there, as far as its whole group is concerned."""
    return group != "resource.k8s.io" or _now[DYNAMIC_RESOURCE_ALLOCATION]
