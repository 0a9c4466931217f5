"""What `GET /version` says: the Kubernetes release whose behaviour the API follows, and which Manciple this is."""

from __future__ import annotations

import platform
from importlib import metadata

#: The Kubernetes release that kinds, defaults and messages are taken from.
KUBERNETES_MAJOR, KUBERNETES_MINOR, KUBERNETES_PATCH = "1", "36", "0"
#: Where no distribution is installed (a checkout), the version in pyproject.toml at the time of writing.
UNINSTALLED = "0.1.0"


def own_version() -> str:
    try:
        return metadata.version("manciple")
    except metadata.PackageNotFoundError:
        return UNINSTALLED


def document() -> dict[str, str]:
    """version.Info of apimachinery."""
    release = f"v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}.{KUBERNETES_PATCH}+manciple.{own_version()}"
    return {
        "major": KUBERNETES_MAJOR,
        "minor": KUBERNETES_MINOR,
        "gitVersion": release,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
