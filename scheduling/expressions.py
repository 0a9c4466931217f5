"""How validation learns whether a CEL expression compiles: the checker that `inventory.kinds.device_rules` asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scheduling.cel import CompileError, Features, compile_new_selector


def checker(gates: Mapping[str, bool]) -> Callable[[str], str]:
    """A function that says what is wrong with a new or changed expression ("" when nothing is).

    gates: feature gates by their Kubernetes names; what is not named is on, as in the allocator.
    """
    features = Features(
        consumable_capacity=gates.get("DRAConsumableCapacity", True),
        list_type_attributes=gates.get("DRAListTypeAttributes", True),
    )

    def problem_of(expression: str) -> str:
        try:
            selector = compile_new_selector(expression, features)
        except CompileError as error:
            return error.message
        return "too complex, exceeds cost limit" if selector.exceeds_cost_limit else ""

    return problem_of
