"""A public class has a name of its own: whoever reads it knows which one is meant."""

from __future__ import annotations

from collections import defaultdict

from tests.architecture.sources import within

ROOMS = ("manciple", "inventory", "claims", "scheduling", "nodeagent", "bench")
#: Django looks for them by these names.
NEEDED = {"Command", "Migration"}
#: The same thing in another form: a row of an index, an older version of the API, a message of the plugin protocol.
FORMS = (
    "/models.py",
    "/conversion.py",
    "/classic/kinds.py",
    "/classic/later.py",
    "/classic/values.py",
    "/drafts/cdi/values.py",
    "nodeagent/plugins/protocol.py",
)


def test_no_two_public_classes_have_one_name() -> None:
    found = defaultdict(list)
    for place, source in within(*ROOMS).items():
        if place.endswith(FORMS):
            continue
        for name in source.classes:
            if not name.startswith("_") and name not in NEEDED:
                found[name].append(place)
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
