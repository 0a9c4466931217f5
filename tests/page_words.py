"""Counts the words of the sentences that pages show: `python -m tests.page_words FOLDER [FOLDER]`.

A folder has the answers that `python -m tests.compare_screenshots take FOLDER --answers …` keeps. With two, of an older
and a newer checkout, it compares the pages that both have.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path

from manciple.processes.demolab.pages import is_document

#: Pages of the manual, whose words are those of the documents, and components without a page.
NO_PAGES = ("manual", "kit")
#: So many words are a sentence; fewer are a label.
SENTENCE = 4
_WORD = re.compile(r"(?<![\w/.,:=\"`-])[A-Za-z][a-z']*(?=[\s.,:;?!)]|$)")
#: What has no sentences of its own: tables, labels, names, links to other pages and what is written in code.
_SILENT = {
    *("head", "table", "thead", "pre", "textarea", "select", "button", "label", "legend", "h1", "h2", "h3", "h4", "dt"),
    *("nav", "script", "style", "template", "svg"),
}
_SILENT_ROLES = {"row", "grid", "table", "rowgroup"}
#: Bars with links, and lists of facts and records, which are tables by another name.
_SILENT_CLASSES = {
    *("top", "foot", "skip", "facts", "dots", "meters", "figures", "events", "tl", "history", "diff", "found"),
    *("funnel", "lanes", "axis", "told"),
}
_INLINE = {
    *("a", "abbr", "b", "code", "em", "i", "kbd", "mark", "s", "samp", "small", "span", "strong", "sub", "sup", "time"),
    *("u", "var", "wbr"),
}
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


def sentences(page: str) -> list[str]:
    """The texts of blocks with a sentence."""
    texts = (" ".join(text.split()) for text in _Blocks(page).texts)
    return [text for text in texts if len(_WORD.findall(text)) >= SENTENCE]


def words(page: str) -> int:
    return sum(len(text.split()) for text in sentences(page))


class _Blocks(HTMLParser):
    """Collects the visible text of each block."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = [""]
        self._open: list[str] = []
        #: How many of the open elements the one that silences them is below.
        self._silent_below: int | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in _INLINE:
            self.texts.append("")
        if tag in _VOID:
            return
        given = dict(attributes)
        silent = tag in _SILENT or "hidden" in given or given.get("role") in _SILENT_ROLES
        silent |= not _SILENT_CLASSES.isdisjoint((given.get("class") or "").split())
        if silent and self._silent_below is None:
            self._silent_below = len(self._open)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _INLINE:
            self.texts.append("")
        if tag in self._open:
            while self._open.pop() != tag:
                pass
        if self._silent_below is not None and len(self._open) <= self._silent_below:
            self._silent_below = None

    def handle_data(self, text: str) -> None:
        if self._silent_below is None:
            self.texts[-1] += text


def _pages(folder: Path) -> Iterator[tuple[str, str]]:
    """(name, document) of each kept answer that is a page."""
    for file in sorted(folder.glob("*.txt")):
        _, status, document = file.read_text().split("\n", 2)
        opened = status.startswith("200 ") and is_document("text/html", document)
        if opened and not file.name.startswith(NO_PAGES):
            yield file.stem, document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--show", default="", help="print the sentences of the pages whose name contains it")
    options = parser.parse_args()
    counted: list[Mapping[str, int]] = [
        {name: words(page) for name, page in _pages(folder / "answers")} for folder in options.folders
    ]
    for name in sorted(set.intersection(*map(set, counted)), key=lambda name: -counted[-1][name]):
        print(name, *(count[name] for count in counted))
    both = set.intersection(*map(set, counted))
    totals = [sum(count[name] for name in both) for count in counted]
    print(f"{len(both)} pages", *totals, f"{totals[-1] / totals[0]:.3f}")
    if options.show:
        for name, page in _pages(options.folders[-1] / "answers"):
            if options.show in name:
                print(f"\n## {name}", *sentences(page), sep="\n")


if __name__ == "__main__":
    main()
