"""Templates are given typed values: a dataclass for each page, through one function."""

from __future__ import annotations

import ast

from tests.architecture.sources import calls, sources


def test_every_view_hands_its_template_a_typed_context() -> None:
    """Nobody gives a dict to Django's `render`: what a template may use is declared, with its type."""
    views = sources(r"\brender", "dashboard")
    assert any(name == "render_page" for nodes in views.values() for name, _ in calls(nodes))
    assert [
        place
        for place, nodes in views.items()
        if not place.endswith("kit/rendering.py")
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom) and any(name.name == "render" for name in node.names)
    ] == []
