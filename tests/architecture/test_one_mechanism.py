"""One mechanism for each thing: feature gates, settings, evictions, phases, conditions, the log, the identity of pools.

A second one fails here. `test_process_wide_values.py` does the same for what a process caches.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

from claims import evictions
from inventory.kinds import gates
from manciple import declared_settings
from manciple.controllers.declaration import declaring, discover
from tests.architecture.sources import ROOT

PACKAGES = ("manciple", "inventory", "claims", "scheduling", "insight", "dashboard", "nodeagent")


def matching(pattern: str, *folders: str) -> set[str]:
    """The modules whose text has a match."""
    return {place for place, text in texts(*folders) if re.search(pattern, text, re.MULTILINE)}


@cache
def texts(*folders: str) -> tuple[tuple[str, str], ...]:
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return tuple((str(path.relative_to(ROOT)), path.read_text()) for path in paths)


# Feature gates --------------------------------------------------------------------------------------------------------


def test_gates_are_read_from_the_setting_once_and_then_only_asked_for() -> None:
    """`gates.enabled` knows each gate's default; a reader of the setting would need one of its own."""
    declared = {"manciple/declared_settings.py", "manciple/settings.py"}
    readers = matching(r"\bFEATURE_GATES\b", *PACKAGES, "bench", "tests")
    assert readers - {str(Path(__file__).relative_to(ROOT))} == {*declared, "inventory/apps.py"}
    assert (ROOT / "inventory" / "apps.py").read_text().count("FEATURE_GATES") == 1


def test_every_gate_that_is_asked_for_is_declared() -> None:
    everything = "\n".join(text for _, text in texts(*PACKAGES))
    named = re.findall(r"gates\.enabled\(\s*\"(\w+)\"", everything)
    constants = re.findall(r"^\w*GATE = \"(\w+)\"", everything, re.MULTILINE)
    assert len(named) > 10
    assert len(constants) > 2
    assert {*named, *constants} - gates.KNOWN.keys() == set()
    assert {one.gate for one in discover(declaring())} - {""} <= gates.KNOWN.keys()


def test_the_gates_are_documented_with_their_defaults() -> None:
    page = (ROOT / "docs" / "reference" / "gates.md").read_text()
    table = page[: page.index("## Turning a gate off")]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (on|off)\b", table, re.MULTILINE)
    assert {name: default == "on" for name, default in rows} == gates.DEFAULTS
    effects = re.findall(r"^\| `(\w+)` \|", page[len(table) :], re.MULTILINE)
    assert set(effects) == {name for name, gate in gates.KNOWN.items() if not gate.locked}


# Settings -------------------------------------------------------------------------------------------------------------


def test_the_environment_is_read_by_declarations_alone() -> None:
    """Any other setting would have no type, no documentation and no place in the configuration file."""
    reads = r"""(environ\.get\(|environ\[|getenv\()\s*["']MANCIPLE_"""
    assert matching(reads, *PACKAGES) == {
        "manciple/processes/command_line.py",  # before Django's settings, which a missing home would make needlessly
        "manciple/processes/demolab/pages.py",  # the browser of a developer
    }
    settings = (ROOT / "manciple" / "settings.py").read_text()
    names = re.findall(r"\bread\(declared\.(\w+)", settings)
    is_declared = declared_settings.Setting
    declared = {name for name, value in vars(declared_settings).items() if isinstance(value, is_declared)}
    assert set(names) == declared
    assert [name for name, times in Counter(names).items() if times > 1] == []
    assert "environ.get" not in settings


# Evictions ------------------------------------------------------------------------------------------------------------


def test_only_disrupt_deletes_pods_with_a_condition() -> None:
    """Condition, event and deletion of a pod that has to go: `claims.evictions.disrupt`, with its `Disruption`."""
    home = "claims/evictions.py"
    assert matching(r"\blast_status=", *PACKAGES) == {home}
    assert matching(r"\bdisrupted\((?!pod: Pod)", *PACKAGES) == {home}
    assert matching(r"\bDISRUPTION_TARGET\b", *PACKAGES) == {
        "claims/kinds/disruption_budgets.py",
        "claims/kinds/pod_groups.py",  # a column, read only
        "claims/endings.py",  # read only, too
    }
    reasons = {why.reason for why in vars(evictions).values() if isinstance(why, evictions.Disruption)}
    reasons |= {evictions.preemption_by("").reason}
    assert len(reasons) == 6
    for reason in reasons:
        assert matching(f'"{reason}"', *PACKAGES) == {home}
    assert matching('"DisruptionTarget"', *PACKAGES) == {"claims/kinds/disruption_budgets.py"}


# Phases ---------------------------------------------------------------------------------------------------------------


def test_sets_of_phases_have_one_home() -> None:
    """FINISHED_PHASES and NEW_PHASES of `manciple.wire.resources`, which every layer may import."""
    listing = r"""["']Succeeded["'],\s*["']Failed["']\s*[)}\]]|[({\[]\s*["']["'],\s*["']Pending["']"""
    reversed_ = r"""["']Failed["'],\s*["']Succeeded["']|["']Pending["'],\s*["']["']"""
    compared = r"""== ["']Succeeded["'] or .* == ["']Failed["']"""
    assert matching(f"{listing}|{reversed_}|{compared}", *PACKAGES) == {
        "manciple/wire/resources.py",
        "nodeagent/pods/worker.py",  # a Literal: how a pod's containers ended
    }


# Conditions -----------------------------------------------------------------------------------------------------------


def test_conditions_are_found_by_one_function() -> None:
    """`manciple.wire.base.condition_of`, whatever kind the conditions are of."""
    home = "manciple/wire/base.py"
    assert matching(r"def _?condition_of\(", *PACKAGES) == {home}
    assert matching(r"for (\w+) in [^()]*conditions if \1\.type ==", *PACKAGES) == {home}


# The log, and pools ---------------------------------------------------------------------------------------------------


def test_the_log_is_read_by_the_store_alone() -> None:
    """All others read it through `manciple.store.event_log`: once, from a position on, as a tail, or as a view."""
    readers = {place for place in matching(r"\b(FROM|JOIN) store_event\b", *PACKAGES) if "/migrations/" not in place}
    outside = {place for place in readers if not place.startswith("manciple/store/")}
    assert outside == {"manciple/processes/keys.py"}  # which stored Secrets are encrypted, before anything starts
    followers = matching(r"^class (Follower|Tail|View)\b", *PACKAGES)
    assert followers - {"manciple/mirror/following.py"} == {"manciple/store/event_log.py"}  # that of another cluster


def test_a_pool_is_identified_in_one_way() -> None:
    assert matching(r"class \w*PoolKey\b", *PACKAGES) == {"inventory/kinds/pools.py"}
