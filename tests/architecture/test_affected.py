"""`make check` finds the tests that a change can affect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.affected import Graph, affected, project_graph

ROOT = Path(__file__).resolve().parents[2]
#: All but this one, which names everything below.
OTHER_TESTS = sorted(
    str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)
)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return project_graph()


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ("scheduling/queue/queue.py", "tests/scheduling/queue/test_queue.py"),
        ("dashboard/capacity/overview.py", "tests/dashboard/capacity/test_overview.py"),
        ("templates/workloads/pods/list.html", "tests/dashboard/workloads/test_pods.py"),
        ("nodeagent/node/slices.py", "tests/nodeagent/node/test_slices.py"),
        ("docs/explanation/scheduling.md", "tests/architecture/test_documentation.py"),
        ("tests/conformance_data/rbac_defaults.json.gz", "tests/manciple/access/test_default_roles.py"),
        ("tests/nodeagent/node/test_slices.py", "tests/nodeagent/node/test_slices.py"),
        ("tests/scheduling/earlier/classic/conftest.py", "tests/scheduling/earlier/classic/test_faults.py"),
    ],
)
def test_the_tests_of_what_changed_come_first(graph: Graph, changed: str, first: str) -> None:
    assert first in affected([changed], graph, OTHER_TESTS)[:8]


def test_an_import_on_demand_is_followed(graph: Graph) -> None:
    found = graph.distances("claims/classic/registration.py")
    assert found["claims/kinds/early.py"] == 1
    assert found["claims/kinds/registration.py"] == 2


def test_an_import_is_followed_through_other_modules_and_the_nearest_comes_first() -> None:
    importers = {
        "a/deep.py": ["a/middle.py"],
        "a/middle.py": ["tests/b/test_middle.py", "tests/b/helper.py"],
        "tests/b/helper.py": ["tests/b/test_far.py"],
    }
    tests = ["tests/b/test_far.py", "tests/b/test_middle.py", "tests/b/test_other.py"]
    assert affected(["a/deep.py"], Graph(importers, {}), tests) == ["tests/b/test_middle.py", "tests/b/test_far.py"]


def test_a_template_is_found_through_the_template_that_includes_it_and_the_view_that_names_that() -> None:
    texts = {
        "templates/workloads/pods/page.html": '{% include "workloads/pods/row.html" %}',
        "a/views.py": 'render(request, "workloads/pods/page.html")',
    }
    graph = Graph({"a/views.py": ["tests/b/test_views.py"]}, texts)
    assert affected(["templates/workloads/pods/row.html"], graph, ["tests/b/test_views.py"]) == [
        "tests/b/test_views.py"
    ]


def test_settings_can_affect_every_test() -> None:
    tests = ["tests/b/test_one.py", "tests/b/test_two.py"]
    assert affected(["manciple/settings.py"], Graph({}, {}), tests) == tests


def test_what_no_test_uses_affects_none() -> None:
    assert affected(["a/new.py"], Graph({}, {}), ["tests/b/test_one.py"]) == []


@pytest.mark.parametrize(("seconds", "said"), [(30.0, "1 passed"), (0.0, "left to `make test`: 1 of the files")])
def test_the_chosen_tests_are_run_until_the_time_is_over(seconds: float, said: str) -> None:
    test = "tests/architecture/test_affected.py::test_what_no_test_uses_affects_none"
    run = f"import pytest; from tests.affected import QuickTests; pytest.main({['-q', test]}, [QuickTests({seconds})])"
    output = subprocess.run([sys.executable, "-c", run], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said in output
