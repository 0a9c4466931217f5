"""A public class has a name of its own: whoever reads it knows which one is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("manciple", "inventory", "claims", "scheduling", "nodeagent", "bench")
#: Django looks for them by these names.
NEEDED = {"Command", "Migration"}
#: The same thing in another form: a row of an index, an older version of the API, a message of the plugin protocol.
FORMS = ("/models.py", "/conversion.py", "nodeagent/plugins/protocol.py")


def test_no_two_public_classes_have_one_name() -> None:
    found = defaultdict(list)
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            place = str(path.relative_to(ROOT))
            if place.endswith(FORMS):
                continue
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in NEEDED:
                    found[node.name].append(place)
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
