"""Feature gates by Kubernetes' names: those that concern DRA, and what they are by default. PURE.

A feature that is off: its fields are dropped when an object is created, and kept where an object has them already
(`inventory.kinds.gated_fields`); the allocator gives nothing by it. So a gate can be turned off and on again while pods
run. A gate that Kubernetes locks cannot be turned off.
Source: pkg/features/kube_features.go of Kubernetes 1.36. One default is ours: DeviceTaintRules are served, so their
gate is on. DRAControlPlaneController is Kubernetes 1.31's; the two drafts never had a gate there.
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


#: KEP-3063: claims that a driver's controller allocates.
CONTROL_PLANE_CONTROLLER = "DRAControlPlaneController"
STRUCTURED_PARAMETERS_DRAFT = "DRAStructuredParametersDraft"
CLAIMS_DRAFT = "DRAClaimsDraft"

KNOWN: Mapping[str, Gate] = MappingProxyType(
    {
        "DRAAdminAccess": Gate("GA", True, locked=True),
        "DRAClaimsDraft": Gate("ALPHA", False, needs=("DRAControlPlaneController",)),
        "DRAConsumableCapacity": Gate("BETA", True),
        "DRAControlPlaneController": Gate("ALPHA", False),
        "DRADeviceBindingConditions": Gate("BETA", True, needs=("DRAResourceClaimDeviceStatus",)),
        "DRADeviceTaintRules": Gate("BETA", True, needs=("DRADeviceTaints",)),
        "DRADeviceTaints": Gate("BETA", True),
        "DRAExtendedResource": Gate("BETA", True),
        "DRAListTypeAttributes": Gate("ALPHA", False),
        "DRANodeAllocatableResources": Gate("ALPHA", False),
        "DRAPartitionableDevices": Gate("BETA", True),
        "DRAPrioritizedList": Gate("GA", True),
        "DRAResourceClaimDeviceStatus": Gate("BETA", True),
        "DRAResourceClaimGranularStatusAuthorization": Gate("BETA", True, needs=("DRAResourceClaimDeviceStatus",)),
        "DRAResourcePoolStatus": Gate("ALPHA", False),
        "DRASchedulerFilterTimeout": Gate("BETA", True),
        "DRAStructuredParametersDraft": Gate("ALPHA", False),
        "DRAWorkloadResourceClaims": Gate("ALPHA", False, needs=("GenericWorkload",)),
        "DynamicResourceAllocation": Gate("GA", True, locked=True),
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
        if wanted[name] and not all(wanted[other] for other in gate.needs):
            if given.get(name):
                raise ValueError(f"{name} needs {', '.join(gate.needs)}")
            wanted[name] = False
    return wanted


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
