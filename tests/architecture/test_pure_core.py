"""The pure core is imported in a fresh interpreter, and none of the frameworks comes with it."""

import subprocess
import sys

import pytest

PURE = [
    "manciple.wire",
    "manciple.cel",
    "inventory.kinds",
    "claims.kinds",
    "scheduling.cel",
    "scheduling.allocator",
    "scheduling.policy",
    "nodeagent",
]
FRAMEWORKS = {"django", "rest_framework", "celery", "channels"}

PROBE = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for found in pkgutil.walk_packages(getattr(package, "__path__", []), sys.argv[1] + "."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
print(*{name.partition(".")[0] for name in sys.modules})
"""


@pytest.mark.parametrize("package", PURE)
def test_a_pure_package_imports_no_framework(package: str) -> None:
    answer = subprocess.run([sys.executable, "-c", PROBE, package], capture_output=True, text=True, check=True)
    assert "msgspec" in answer.stdout or package in ("manciple.cel", "scheduling.cel")
    assert FRAMEWORKS.isdisjoint(answer.stdout.split())
