"""What `manage.py up` makes for a first visitor."""

from __future__ import annotations

from inventory.kinds import gates
from manciple.processes.standing import ensure_standing_objects
from manciple.processes.system import NAMESPACE, build_demo
from manciple.store import objects
from manciple.wire.registry import registry

TEMPLATES, NAMESPACES = map(registry.by_resource, ("resourceclaimtemplates.resource.k8s.io", "namespaces"))


def test_the_demo_is_made_once_its_kinds_are_served(db: None) -> None:
    ensure_standing_objects()
    with gates.using(**gates.parse("DynamicResourceAllocation=false")):
        assert not build_demo()
        assert objects.get(NAMESPACES, "", NAMESPACE) is None
    assert build_demo()
    assert objects.get(TEMPLATES, NAMESPACE, "one-gpu") is not None
    assert not build_demo()
