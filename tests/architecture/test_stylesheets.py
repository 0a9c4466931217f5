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


# A page has the sheets that it names, and those of the templates that it extends. Whatever is included on several
# pages, and is styled in the sheet of one of them, falls apart on the others.

TEMPLATES = STYLES.parents[1] / "templates"
INCLUDED, EXTENDED = re.compile(r'{% include "([^"]+)"'), re.compile(r'{% extends "([^"]+)"')
SHEET, CLASSES = re.compile(r"{% static 'manciple/([^']+\.css)'"), re.compile(r'class="([^"{]*)')


def with_included(template: str, texts: dict[str, str]) -> set[str]:
    found, ahead = set[str](), [template]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += INCLUDED.findall(texts.get(name, ""))
    return found


def sheets_of(template: str, texts: dict[str, str]) -> set[str]:
    sheets = set(SHEET.findall(texts.get(template, "")))
    above = [one for one in EXTENDED.findall(texts.get(template, "")) if one != template]
    return sheets.union(*(sheets_of(one, texts) for one in above))


def unstyled(texts: dict[str, str], styles: dict[str, str]) -> list[str]:
    """Classes of a page that only sheets of other pages speak of. texts, styles: by the file's name."""
    rules: dict[str, set[str]] = {}
    for sheet, text in styles.items():
        for selector in re.findall(r"([^{};]+){", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)):
            for name in re.findall(r"\.([a-zA-Z][\w-]*)", selector):
                rules.setdefault(name, set()).add(sheet)
    pages = [name for name, text in texts.items() if EXTENDED.search(text)]
    return sorted(
        {
            f"{fragment} on {page}: .{name}"
            for page in pages
            for fragment in with_included(page, texts)
            for attribute in CLASSES.findall(texts.get(fragment, ""))
            for name in attribute.split()
            if name in rules and not rules[name] & sheets_of(page, texts)
        }
    )


def test_a_page_has_the_sheets_that_style_it() -> None:
    texts = {str(path.relative_to(TEMPLATES)): path.read_text() for path in TEMPLATES.rglob("*.html")}
    styles = {str(path.relative_to(STYLES)): path.read_text() for path in STYLES.rglob("*.css")}
    assert unstyled(texts, styles) == []


def test_a_class_that_another_pages_sheet_styles_would_be_found() -> None:
    texts = {
        "base.html": "{% static 'manciple/kit.css' %}",
        "a.html": """{% extends "base.html" %}{% static 'manciple/a.css' %}{% include "part.html" %}""",
        "b.html": """{% extends "base.html" %}<b class="plain hook">{% include "part.html" %}""",
        "part.html": '<ul class="steps plain">',
    }
    styles = {"kit.css": ".plain { }", "a.css": "/* .hook { } */ .call .steps { }"}
    assert unstyled(texts, styles) == ["part.html on b.html: .steps"]
