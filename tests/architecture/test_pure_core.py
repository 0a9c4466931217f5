"""The pure core is imported in a fresh interpreter: no framework comes with it, and nothing of classic DRA or the
drafts, whose gates are off by default.
"""

import json
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
    "scheduling.state.node_fit",
    "nodeagent",
]
FRAMEWORKS = {"django", "rest_framework", "celery", "channels"}
#: The entry point of node agents, and the kinds of everything that is served.
ENTRIES = ["nodeagent.run", "nodeagent.node.joining", "inventory.kinds.registration", "claims.kinds.registration"]
EARLY = ("claims.classic", "claims.drafts", "inventory.classic", "inventory.drafts")

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


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_imports_nothing_of_the_early_documents(entry: str) -> None:
    """The other processes are looked at in `test_a_pods_way`."""
    probe = f"import json, sys, {entry}; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    imported = json.loads(answer.stdout)
    assert "inventory.kinds.early" in imported
    assert [name for name in imported if name.startswith(EARLY)] == []
