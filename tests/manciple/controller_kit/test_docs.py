"""docs/reference names what the author of a controller meets; the rules of classic.md are the demo controller's."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import yaml

from manciple.controller_kit.command import parser
from manciple.controller_kit.driver import ControllerDriver
from manciple.controller_kit.metrics import ControllerMetrics

ROOT = Path(__file__).parents[3]
CHAPTER = (
    (ROOT / "docs" / "reference" / "classic.md")
    .read_text()
    .partition("## Writing a controller")[2]
    .partition("\n## ")[0]
)
#: Of the command's options, in docs/reference/commands.md.
OPTIONS = (
    (ROOT / "docs" / "reference" / "commands.md")
    .read_text()
    .partition("### `manciple driver controller`")[2]
    .partition("\n## ")[0]
)
RULES = re.search(r"needs\n\n    rules:\n((?:    - .*\n)+)", CHAPTER)
Right = tuple[str, str, str]  # (group, resource, verb)


def rights(rules: list[dict[str, list[str]]]) -> set[Right]:
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


@pytest.mark.parametrize(
    "named",
    [
        *(f"`{name}(" for name, _ in inspect.getmembers(ControllerDriver, inspect.isfunction) if name[0] != "_"),
        *(
            metric.name + ("_total" if metric.type == "counter" else "")
            for metric in ControllerMetrics("lights.example.com").registry.collect()
            if not metric.name.startswith("process_")
        ),
    ],
)
def test_it_is_documented(named: str) -> None:
    assert named in CHAPTER


def test_every_option_is_documented() -> None:
    options = {option for action in parser()._actions for option in action.option_strings if len(option) > 2}
    assert {option for option in options - {"--help"} if f"`{option}" not in OPTIONS} == set()


def test_the_rights_that_the_documentation_names_are_those_of_the_demo_but_for_its_parameters_and_lease() -> None:
    assert RULES is not None
    documented = rights(yaml.safe_load(RULES[1]))
    demo = list(yaml.safe_load_all((ROOT / "manciple/processes/demo_accelerators.yaml").read_text()))
    (role,) = (one for one in demo if one["kind"] == "ClusterRole")
    lease = {right for right in documented if right[1] == "leases"}
    assert rights(role["rules"]) == documented - lease | {("", "configmaps", "get")}
