"""The language of device selectors: CEL, as Kubernetes' device class and request selectors speak it.

    selector = compile_selector('device.attributes["gpu.example.com"].memory >= 16')   # raises CompileError
    selector.matches(DeviceView.of("gpu.example.com", device))                         # raises EvaluationError

An expression is parsed (`syntax`), typed against the declared functions (`checker`), judged (`validators`), priced
(`estimate`) and made runnable once; the result is kept by its text. Nothing here imports Django.
"""

from scheduling.cel.declarations import Features
from scheduling.cel.device import DeviceView, is_readable
from scheduling.cel.errors import CelError, CompileError, CostLimitExceeded, EvaluationError
from scheduling.cel.references import DeviceReference, projection
from scheduling.cel.selector import COST_LIMIT, Selector, compile_new_selector, compile_selector

__all__ = [
    "COST_LIMIT",
    "CelError",
    "CompileError",
    "CostLimitExceeded",
    "DeviceReference",
    "DeviceView",
    "EvaluationError",
    "Features",
    "Selector",
    "compile_new_selector",
    "compile_selector",
    "is_readable",
    "projection",
]
