"""Where the browser is that looks at the dashboard for tests, benchmarks and pictures."""

from __future__ import annotations

import os
import shutil

#: Best first. The headless shell draws the same pages without a browser's window around them, for two thirds of the
#: processor time.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
MISSING = f"none of {', '.join(PROGRAMS)} is installed; MANCIPLE_CHROMIUM names one elsewhere"


def find_browser() -> str | None:
    """MANCIPLE_CHROMIUM, or the path of the first of PROGRAMS that is installed."""
    found = (shutil.which(name) for name in PROGRAMS)
    return os.environ.get("MANCIPLE_CHROMIUM") or next((path for path in found if path), None)
