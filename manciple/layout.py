"""Where the files of this program lie: beside the packages in a checkout, within this package once it is installed.

Read before Django's settings: standard library only. Of what it names, a node has nothing but the agent.
"""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent
#: Whether this is an installed package, as `pip install` makes one.
INSTALLED: Final = not (_PACKAGE.parent / "static" / "manciple").is_dir()
#: Holds `templates`, `static` and `deploy`.
RESOURCES: Final = _PACKAGE if INSTALLED else _PACKAGE.parent
#: Manifests to try.
EXAMPLES: Final = RESOURCES / ("examples" if INSTALLED else "docs/examples")
#: Holds, in folders, the documents that the dashboard shows as its manual.
MANUAL: Final = RESOURCES / ("manual" if INSTALLED else "docs")
#: The version in pyproject.toml, where no distribution is installed to tell it (a checkout).
UNINSTALLED: Final = "0.2.0"
#: How a person types a command of this program.
COMMAND: Final = "manciple" if INSTALLED else "manage.py"
#: The same of the programs of a node, which has no Django.
NODE_COMMAND: Final = "manciple-agent" if INSTALLED else "python -m nodeagent"
#: The same of a worker, which is Celery's and no command of Django's.
WORKER_COMMAND: Final = "manciple worker" if INSTALLED else "python -m manciple worker"


def default_home() -> Path:
    """Where everything is kept unless somebody says otherwise: ./var of a checkout, else a folder of the user's."""
    if not INSTALLED:
        return RESOURCES / "var"
    return data_home() / "manciple"


def data_home() -> Path:
    """Where a user's programs keep what they need."""
    if data := os.environ.get("XDG_DATA_HOME", ""):
        return Path(data)
    try:
        home = Path.home()
    except RuntimeError:  # a container's user without a name
        home = Path("/")
    return home / ".local/share"


def example(name: str) -> str:
    """The path of an example, as it is typed."""
    return str(EXAMPLES / name) if INSTALLED else f"docs/examples/{name}"


def version() -> str:
    """Of this program, by its distribution for nodes: the other one needs it in the same version."""
    try:
        return metadata.version("manciple-agent")
    except metadata.PackageNotFoundError:
        return UNINSTALLED
