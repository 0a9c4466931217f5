"""How many verdicts a second selectors give on one core: `python bench/cel.py [--seconds S] [--json]`.

Each case is one compiled expression asked about devices that are wrapped once. "compile" is how long a first use takes.
The budget is 500,000/s for the first case.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from manciple.cel.kubernetes import parse_amount, parse_semver
from scheduling.cel import DeviceView, EvaluationError, compile_selector

_GPU = 'device.attributes["gpu.example.com"]'
CASES = {
    "driver, int and text": f'device.driver == "gpu.example.com" && {_GPU}.memory >= 16 && {_GPU}.model == "A100"',
    "guarded by has()": f"has({_GPU}.model) && {_GPU}.model.startsWith('A')",
    "capacity": 'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
    "version": f'{_GPU}.driverVersion.isGreaterThan(semver("1.2.0"))',
    "optional": f'{_GPU}.?family.orValue("none") == "none"',
    "bound": f"cel.bind(gpu, {_GPU}, gpu.memory >= 16 && gpu.model == 'A100')",
    "fold": f"{_GPU}.exists(name, name == 'model')",
    "regular expression": f"{_GPU}.model.matches('^A[0-9]+$')",
    "error": f"{_GPU}.nosuch == 1",
}


def devices() -> list[DeviceView]:
    return [
        DeviceView(
            driver="gpu.example.com",
            attributes={
                "memory": 80 if index % 2 else 8,
                "model": "A100" if index % 3 else "H100",
                "driverVersion": parse_semver("1.3.0"),
            },
            capacity={"memory": parse_amount("80Gi")},
        )
        for index in range(6)
    ]


def measure(expression: str, seconds: float) -> dict[str, float]:
    """Verdicts a second, and the milliseconds of the first compilation."""
    started = time.perf_counter()
    matches = compile_selector(expression).matches
    compiled = time.perf_counter() - started
    views = devices()
    asked = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        for _ in range(200):
            for view in views:
                with suppress(EvaluationError):
                    matches(view)
        asked += 200 * len(views)
    return {"per_second": asked / (time.perf_counter() - started), "compile_ms": compiled * 1000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each case runs")
    parser.add_argument("--json", action="store_true", help="one JSON line per case")
    options = parser.parse_args()
    compile_selector("true")  # builds the parser
    for name, expression in CASES.items():
        result = measure(expression, options.seconds)
        if options.json:
            print(json.dumps({"case": name, **result}))
        else:
            print(f"{name:<24}{result['per_second']:>12,.0f}/s   compile {result['compile_ms']:6.2f} ms")


if __name__ == "__main__":
    main()
