"""The pure core is imported in a fresh interpreter, and none of the frameworks comes with it."""

import json
import subprocess
import sys

PURE = [
    "manciple.wire",
    "manciple.cel",
    "inventory.kinds",
    "claims.kinds",
    "scheduling.cel",
    "scheduling.allocator",
    "scheduling.state.node_fit",
    "nodeagent",
]
FRAMEWORKS = {"django", "rest_framework", "celery", "channels"}

PROBE = """
import importlib, json, pkgutil, sys
imported = {}
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(package, "__path__", []), name + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    imported[name] = sorted({one.partition(".")[0] for one in sys.modules})
print(json.dumps(imported))
"""


def test_a_pure_package_imports_no_framework() -> None:
    """One after the other: the first of them that imports a framework is to blame."""
    answer = subprocess.run([sys.executable, "-c", PROBE, *PURE], capture_output=True, text=True, check=True)
    imported = json.loads(answer.stdout)
    assert "msgspec" in imported["manciple.wire"]
    assert {package: FRAMEWORKS.intersection(names) for package, names in imported.items()} == {
        package: set() for package in PURE
    }
