"""Templates are given typed values: a dataclass for each page, through one function."""

from __future__ import annotations

from tests.architecture.sources import within

PAGES = "scheduling/pages/"


def test_every_view_hands_its_template_a_typed_context() -> None:
    """Nobody gives a dict to Django's `render`: what a template may use is declared, with its type."""
    views = {place: source for place, source in within("scheduling").items() if place.startswith(PAGES)}
    assert any(call.name == "render_page" for source in views.values() for call in source.calls)
    assert [
        place
        for place, source in views.items()
        for one in source.imports
        if any(name.name == "render" for name in one.names)
    ] == []
