"""What `manage.py up` makes and waits for in a new home, also while nothing of DRA is served."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from django.core.management import CommandError, call_command

from inventory.kinds import gates
from manciple.api import health
from manciple.processes.management.commands import up
from manciple.processes.standing import ensure_standing_objects
from manciple.processes.system import (
    NAMESPACE,
    Options,
    SimulatedNodes,
    build_demo,
    plan,
    register_readiness,
)
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


@pytest.mark.parametrize("gate", ["true", "false"])
def test_the_start_waits_for_devices_where_they_are_served(monkeypatch: pytest.MonkeyPatch, gate: str) -> None:
    monkeypatch.setattr(health, "_checks", {})
    with gates.using(**gates.parse(f"DynamicResourceAllocation={gate}")):
        register_readiness(cast(SimulatedNodes, SimpleNamespace()))
    assert (health.one("devices-published") is not None) == (gate == "true")


def test_without_devices_there_is_no_laboratory() -> None:
    with (
        gates.using(**gates.parse("DynamicResourceAllocation=false")),
        pytest.raises(CommandError, match="needs the feature gate DynamicResourceAllocation"),
    ):
        call_command("demo")


@pytest.mark.parametrize(
    ("arguments", "nodes"),
    [
        ([], ["node-1", "node-2", "node-3", "mixed-1"]),
        (["--nodes", "0"], []),
        (["--nodes", "0", "--mixed-nodes", "2"], ["mixed-1", "mixed-2"]),
        (["--nodes", "1", "--mixed-nodes", "0"], ["node-1"]),
    ],
)
def test_the_simulated_nodes_are_those_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], nodes: list[str]
) -> None:
    started: list[Options] = []

    def system(options: Options, **_: object) -> SimpleNamespace:
        started.append(options)
        return SimpleNamespace(run=lambda _ready: None)

    monkeypatch.setattr(up, "System", system)
    monkeypatch.setattr("sys.setswitchinterval", lambda _seconds: None)
    call_command("up", *arguments)
    (options,) = started
    assert list(plan(nodes=options.nodes, mixed_nodes=options.mixed_nodes)) == nodes
