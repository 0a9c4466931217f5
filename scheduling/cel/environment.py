"""What a device selector may name: `device`, and `includes` beside the base functions.

Two things vary. Stored expressions are checked against everything any release allowed; new ones only against what the
enabled features allow: without list-typed attributes an attribute has the type `any` and there is no `includes`,
without consumable capacity there is no `device.allowMultipleAllocations`.
Source: dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from inventory.kinds import gates
from manciple.cel.costs import PLAIN, CallEstimate, CostRule, Range
from manciple.cel.errors import EvaluationError
from manciple.cel.functions import Environment, base_functions, declared, type_names
from manciple.cel.operators import contains
from manciple.cel.types import ANY, BOOL, DYN, QUANTITY, STRING, CelType, map_of, type_of_type
from scheduling.cel.device import DEVICE, UNLIMITED


@dataclass(frozen=True)
class CelFeatures:
    """Which feature gates are on, by their Kubernetes names without the DRA prefix."""

    consumable_capacity: bool = False
    list_type_attributes: bool = False

    @classmethod
    def from_gates(cls) -> CelFeatures:
        """The features whose gates are on in this process: what a new expression may use."""
        return cls(
            consumable_capacity=gates.enabled("DRAConsumableCapacity"),
            list_type_attributes=gates.enabled("DRAListTypeAttributes"),
        )


#: Stored expressions are checked against everything any release allowed.
ALL_FEATURES = CelFeatures(consumable_capacity=True, list_type_attributes=True)


def stored_environment() -> Environment:
    return environment_of(ALL_FEATURES)


def attribute_type(features: CelFeatures) -> CelType:
    """The type of an attribute's value."""
    return DYN if features.list_type_attributes else ANY


@lru_cache(maxsize=4)
def environment_of(features: CelFeatures) -> Environment:
    fields = {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, attribute_type(features))),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    if features.consumable_capacity:
        fields["allowMultipleAllocations"] = BOOL
    own = declared("includes dra_includes_dyn_dyn .(dyn, dyn) -> bool") if features.list_type_attributes else {}
    return Environment(
        functions={**base_functions(), **own},
        idents={**type_names(), DEVICE.name: type_of_type(DEVICE), "device": DEVICE},
        structs={DEVICE.name: fields},
        implementations={"dra_includes_dyn_dyn": includes},
        costs={"includes": CostRule(lambda _operands: CallEstimate(Range(0, INCLUDES_MAX)), PLAIN.count)},
        greatest_size=greatest_size,
    )


#: includes() takes no list longer than a list-typed attribute can be.
INCLUDES_MAX = 48


def includes(target: Any, wanted: Any) -> bool:
    """True when the value, or one of the list's values, is `wanted`. Raises: EvaluationError for too long a list."""
    if type(target) is not list:
        return contains(wanted, [target])
    if contains(wanted, target[:INCLUDES_MAX]):
        return True
    if len(target) > INCLUDES_MAX:
        raise EvaluationError(f"'includes' function cannot be applied to lists longer than {INCLUDES_MAX} values")
    return False


#: Path from `device` -> the greatest size of what lies there: the API's limits on names, texts and counts. A path's
#: steps are field names, `@keys`, `@values` and `@items`. An attribute is a text of 64 bytes or a list of 48 values.
#: Source: the declarations in dynamic-resource-allocation/cel/compile.go; limits from k8s.io/api/resource/v1.
_SIZES: Mapping[tuple[str, ...], int] = {
    (): UNLIMITED,
    ("driver",): 63,
    ("allowMultipleAllocations",): 1,
    **{(field,): 32 for field in ("attributes", "capacity")},
    **{(field, "@keys"): 63 for field in ("attributes", "capacity")},
    **{(field, "@values"): 32 for field in ("attributes", "capacity")},
    **{(field, "@values", "@keys"): 32 for field in ("attributes", "capacity")},
    ("attributes", "@values", "@values"): 64,
    ("capacity", "@values", "@values"): UNLIMITED,
}


def greatest_size(path: tuple[str, ...]) -> int | None:
    """None where nothing is declared of it. Any attribute has the same limit, whatever its name."""
    if not path or path[0] != "device":
        return None
    steps = tuple("@values" if step == "@items" else step for step in path[1:])
    if steps[:2] == ("attributes", "@values") and not steps[-1].startswith("@"):
        steps = (*steps[:-1], "@values")
    return _SIZES.get(steps)
