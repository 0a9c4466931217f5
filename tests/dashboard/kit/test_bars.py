"""Stacked bars: each mark knows what stands before it."""

from __future__ import annotations

from django.template import Context, Template


def drawn(source: str, **values: object) -> str:
    return Template(source).render(Context(values))


def test_a_mark_knows_its_count_and_what_stands_before_it() -> None:
    html = drawn("{% bar parts label='2 held, 5 free' %}", parts=[("reserved", 2), ("free", 5)])
    assert html == (
        '<div class="bar" role="img" aria-label="2 held, 5 free" style="--of:7;--n:2">'
        '<span class="mark" data-s="reserved" style="--v:2;--b:0;--i:0"></span>'
        '<span class="mark" data-s="free" style="--v:5;--b:2;--i:1"></span></div>'
    )


def test_a_bar_beside_words_says_nothing_itself() -> None:
    assert 'aria-hidden="true"' in drawn("{% bar parts %}", parts=[("free", 1)])


def test_a_mark_with_a_word_tells_it_to_who_points_at_it() -> None:
    assert 'title="3 &lt;free&gt;"' in drawn("{% bar parts %}", parts=[("free", "<free>", 3)])
