"""A placement policy is one file: it is named in one place, imported when it is used, and needs no other change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from manciple import configuration
from manciple.configuration import ConfigurationRefused
from manciple.declared_settings import PLACEMENT, PLACEMENT_POLICIES
from scheduling.placement.policies import PlacementPolicy, named
from tests.scheduling.placement.decide import decided

ROOT = Path(__file__).resolve().parents[3]
FRAGMENTATION = "scheduling.placement.fragmentation"

ONE_FILE = """
from scheduling.allocator import Fit, NodeScore
from scheduling.placement.policies import ScoredPolicy


def cheapness(fit: Fit) -> float:
    return -float(fit.node.labels.get("price", 0))


CHEAPEST = ScoredPolicy(NodeScore(cheapness), "the cheapest")
"""


def test_with_another_policy_no_module_of_fragmentation_is_imported(tmp_path: Path) -> None:
    answer = decided(tmp_path, MANCIPLE_PLACEMENT="pack")
    assert answer["node"] == "node-small"
    assert "scheduling.placement.policies" in answer["modules"]
    assert [name for name in answer["modules"] if name.startswith(FRAGMENTATION)] == []


def test_a_policy_in_one_file_is_usable_without_any_other_change(tmp_path: Path) -> None:
    (tmp_path / "site_policies.py").write_text(ONE_FILE)
    answer = decided(tmp_path, MANCIPLE_PLACEMENT="site_policies.CHEAPEST")
    assert answer["node"] == "node-large"
    assert answer["why"].startswith("site_policies.CHEAPEST: the cheapest of 2 nodes")
    assert [name for name in answer["modules"] if name.startswith(FRAGMENTATION)] == []


@pytest.mark.parametrize("name", PLACEMENT_POLICIES)
def test_every_listed_policy_can_be_used(name: str) -> None:
    assert isinstance(named(name), PlacementPolicy)
    assert PLACEMENT.problem(name) == ""


def test_the_names_of_the_policies_are_listed_once() -> None:
    """Three files listed them once, so that a new one was forgotten in two."""
    listing = re.compile(r"[\"']first-fit[\"'].*?[\"']best-fit[\"']", re.DOTALL)
    packages = ("manciple", "scheduling", "claims", "inventory", "insight", "dashboard")
    files = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    assert [path.name for path in files if listing.search(path.read_text())] == ["declared_settings.py"]


@pytest.mark.parametrize("name", ["tight", "no such.path", ".", "a..b", "site policies.CHEAPEST"])
def test_what_is_neither_a_name_nor_a_dotted_path_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationRefused, match="must be one of first-fit"):
        configuration.apply({"MANCIPLE_PLACEMENT": name})


@pytest.mark.parametrize("path", ["no_such_module.POLICY", "scheduling.placement.policies.NO_SUCH", "os.path.join"])
def test_a_path_without_a_policy_is_refused_at_the_start(path: str) -> None:
    assert PLACEMENT.problem(path) == ""
    with pytest.raises(ImproperlyConfigured, match=re.escape(path)):
        named(path)
