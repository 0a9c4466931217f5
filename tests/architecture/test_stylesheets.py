"""What rules of the stylesheets cost a browser."""

from __future__ import annotations

import re
from pathlib import Path

STYLES = Path(__file__).resolve().parents[2] / "static" / "manciple"
#: What the page as a whole has: Chromium looks through all of it after every change, 4 to 8 ms with 5,000 devices.
OF_THE_PAGE = re.compile(r"(?:^|[\s,{}>+~])(?:html|body|:root|main)\b[^\s,{}>+~]*:has\(")

#: A rule that positions tiles, whichever: each would be a layer, and to tell what is under a mouse a page with 5,000
#: goes through all of them, 3 to 5 ms. What stands in front of others says so by z-index, as an item of a flex box may.
POSITIONED = re.compile(r"(?:^|[\s,{}>])(\.tile(?![\w-])[^\s,{}]*) \{[^{}]*position: (?:relative|absolute|sticky)")

#: Of `url("../fonts/a.woff2")` in a stylesheet, and of `import … from "./page.js"` in a module.
LOADED = re.compile(r"""(?:url\(["']?|(?:from|import) ")(\.[^"')]+)""")


def test_no_rule_asks_what_the_page_as_a_whole_has() -> None:
    """Pages say it by a class (`edges` in templates/kit/base.html)."""
    found = {path.name: OF_THE_PAGE.findall(path.read_text()) for path in STYLES.rglob("*.css")}
    assert found
    assert {name: rules for name, rules in found.items() if rules} == {}


def test_such_a_rule_would_be_found() -> None:
    rules = ("html:has(main.page) { }", "a, body.x:has(.savebar) b { }", "@media print {main:has(.gantt) {}}")
    assert [rule for rule in rules if not OF_THE_PAGE.search(rule)] == []
    assert not OF_THE_PAGE.search(".facets label:has(:checked) { }")


def test_a_tile_is_not_a_layer() -> None:
    found = {path.name: POSITIONED.findall(path.read_text()) for path in STYLES.rglob("*.css")}
    assert found
    assert {name: rules for name, rules in found.items() if rules} == {}


def test_a_rule_that_makes_layers_of_tiles_would_be_found() -> None:
    rules = (
        ".tile { position: relative; }",
        ".grid .tile:hover { color: red; position: absolute; }",
        "a {} .x > .tile[data-s] { position: sticky; }",
    )
    assert [rule for rule in rules if not POSITIONED.search(rule)] == []
    assert not POSITIONED.search(
        ".tile b { position: relative; } .tile { position: static; } .tiles { position: sticky; }"
    )


def test_every_file_that_a_stylesheet_or_script_loads_is_there() -> None:
    loads = [
        (path, target)
        for path in (*STYLES.rglob("*.css"), *STYLES.rglob("*.js"))
        for target in LOADED.findall(path.read_text())
    ]
    assert len(loads) > 10
    assert [f"{path.name}: {target}" for path, target in loads if not (path.parent / target).resolve().is_file()] == []
