"""The documentation is short: a text that says more has to say something else in fewer words, or link to it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Without CHANGELOG.md, which grows with each release.
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: As `cat README.md CONTRIBUTING.md $(find docs -name '*.md') | tr '|' ' ' | wc -w` counts.
MOST = 40_000


def words(text: str) -> int:
    """The bars of tables are no words."""
    return len(text.replace("|", " ").split())


def test_bars_of_tables_do_not_count() -> None:
    assert words("| a word | and more |\n") == 4


def test_the_documentation_has_no_more_words_than_its_budget() -> None:
    counted = {str(path.relative_to(ROOT)): words(path.read_text()) for path in DOCUMENTS}
    longest = sorted(counted.items(), key=lambda item: -item[1])[:5]
    assert sum(counted.values()) <= MOST, f"{sum(counted.values())} words; the longest: {longest}"
