"""The language of device selectors: CEL, as Kubernetes' device class and request selectors speak it.

    selector = compile_selector('device.attributes["gpu.example.com"].memory >= 16')   # raises CompileError
    selector.matches(DeviceView.of("gpu.example.com", device))                         # raises EvaluationError

An expression is parsed (`parser`), typed against the declared functions and judged (`checker`), priced
(`estimate`) and made runnable once; the result is kept by its text. Nothing here imports Django.
"""

from scheduling.cel.device import DeviceView, is_readable
from scheduling.cel.errors import CelError, CompileError, CostLimitExceeded, EvaluationError
from scheduling.cel.functions import CelFeatures
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
