"""The language of device selectors: CEL, as Kubernetes' device class and request selectors speak it.

    selector = compile_selector('device.attributes["gpu.example.com"].memory >= 16')   # raises CompileError
    selector.matches(DeviceView.of("gpu.example.com", device))                         # raises EvaluationError

The language itself is `manciple.cel`; here are its environment for devices (`environment`, `device`), the compiled
selectors, kept by their text (`selector`), the fast evaluator (`compiler`) and what tells why a selector refuses
(`clauses`). Nothing here imports Django.
"""

from manciple.cel.errors import CelError, CompileError, CostLimitExceeded, EvaluationError
from scheduling.cel.device import DeviceView, is_readable
from scheduling.cel.environment import CelFeatures
from scheduling.cel.selector import (
    COST_LIMIT,
    DeviceReference,
    Selector,
    compile_new_selector,
    compile_selector,
    projection,
)

__all__ = [
    "COST_LIMIT",
    "CelError",
    "CelFeatures",
    "CompileError",
    "CostLimitExceeded",
    "DeviceReference",
    "DeviceView",
    "EvaluationError",
    "Selector",
    "compile_new_selector",
    "compile_selector",
    "is_readable",
    "projection",
]
