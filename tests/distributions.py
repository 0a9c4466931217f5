"""The files of the distribution `manciple-agent`: what the node agent imports, and no more.

python -m tests.distributions      writes their list into agent/pyproject.toml, and what `manciple` leaves out into
                                   pyproject.toml
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PROJECT, AGENT_PROJECT = ROOT / "pyproject.toml", ROOT / "agent" / "pyproject.toml"
PACKAGES = (
    "manciple",
    "inventory",
    "claims",
    "networking",
    "workloads",
    "scheduling",
    "insight",
    "dashboard",
    "nodeagent",
)
#: The part of the agent's package that is in the distribution `manciple`: its kinds are those of an API server.
NOT_FOR_NODES = "nodeagent.driver_check"
_FORCED = re.compile(r"(?<=\[tool\.hatch\.build\.targets\.wheel\.force-include\]\n).*", re.DOTALL)
_EXCLUDED = re.compile(r"(?<=\nexclude = \[\n)[^]]*(?=\]\n)")


def import_graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)


def imported_by_agent(graph: grimp.ImportGraph) -> set[str]:
    """Modules, those of other distributions too, with the packages that hold them.

    Imports inside functions are among them. What `nodeagent.early` names is in the agent's own package.
    """
    waiting = [name for name in graph.modules if is_of_agent(name)]
    modules = set(waiting)
    while waiting:
        name = waiting.pop()
        needed = {*graph.find_modules_directly_imported_by(name), *([name.rpartition(".")[0]] if "." in name else [])}
        waiting += needed - modules
        modules |= needed
    return modules


def is_of_agent(module: str) -> bool:
    return f"{module}.".startswith("nodeagent.") and not f"{module}.".startswith(f"{NOT_FOR_NODES}.")


def files_of_agent(graph: grimp.ImportGraph) -> list[str]:
    """Paths: what is directly in `nodeagent`, and single files of the other packages."""
    own = {f"nodeagent/{path.name}" for path in (ROOT / "nodeagent").iterdir() if path.name != "__pycache__"}
    own.remove(NOT_FOR_NODES.replace(".", "/"))
    modules = [
        name for name in imported_by_agent(graph) if name.partition(".")[0] in PACKAGES and not is_of_agent(name)
    ]
    typed = {f"{package}/py.typed" for package in {name.partition(".")[0] for name in modules}}
    return sorted(own | typed | {_path_of(name) for name in modules})


def _path_of(module: str) -> str:
    path = module.replace(".", "/")
    return f"{path}/__init__.py" if (ROOT / path).is_dir() else f"{path}.py"


def lists(files: list[str]) -> Iterator[tuple[Path, re.Pattern[str], str]]:
    """In which file, where in it, and the text that belongs there."""
    yield AGENT_PROJECT, _FORCED, "".join(f'"../{path}" = "{path}"\n' for path in files)
    names = " ".join(f'"/{path}",' for path in files)
    wrapped = textwrap.fill(names, 116, break_long_words=False, break_on_hyphens=False)
    yield PROJECT, _EXCLUDED, textwrap.indent(wrapped, "    ") + "\n"


if __name__ == "__main__":
    for file, place, listed in lists(files_of_agent(import_graph())):
        text = file.read_text()
        if (match := place.search(text)) is None:
            raise SystemExit(f"{file} has no list of files")
        file.write_text(text[: match.start()] + listed + text[match.end() :])
