"""The site of the documentation, for Sphinx: `make docs`.

Its sources are all Markdown files that readers of the repository see; docs/index.md is the first page. Warnings end the
build, so each link and anchor holds and each page is in a table of contents.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).resolve().parents[1]

project = "Manciple"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/*/*.md",
    "deploy/README.md",
    "deploy/kubernetes/mirror/README.md",
    "agent/README.md",
]
html_theme = "furo"
html_title = f"Manciple {version}"
# As the dashboard's manual and GitHub name headings.
myst_heading_anchors = 4


def setup(app: Any) -> None:
    """Diagrams are shown as their source."""
    app.add_lexer("mermaid", TextLexer)
