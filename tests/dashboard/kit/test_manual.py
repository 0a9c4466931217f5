"""The manual: the documentation as pages, and every link from a page to what a word means leads somewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from dashboard.tools.manual import NAMES, read, slug

ROOT = Path(__file__).resolve().parents[3]
#: The tag `help`, and the parameter of cards.
HELP = re.compile(r'{% (?:help |card [^%]*help=)"([^"]+)"')


def helped() -> list[tuple[str, str]]:
    """(template, place) of each link."""
    found = [(path, HELP.findall(path.read_text())) for path in sorted((ROOT / "templates").rglob("*.html"))]
    return [(str(path.relative_to(ROOT)), place) for path, links in found for place in links]


@pytest.mark.parametrize(("template", "place"), helped())
def test_what_is_explained_stands_in_the_manual(template: str, place: str) -> None:
    name, _, part = place.partition("#")
    page = read(name)
    assert page is not None, template
    assert part in page.ids, f"{template} leads to {place}, which is no heading or word"


def test_hard_words_are_explained_on_several_pages() -> None:
    assert len(helped()) >= 12
    assert len({template for template, _ in helped()}) >= 10


@pytest.mark.parametrize("name", NAMES)
def test_a_document_is_drawn_with_links_that_hold(name: str) -> None:
    page = read(name)
    assert page is not None
    assert page.title
    (source,) = (ROOT / "docs").glob(f"*/{name}.md")
    assert bool(page.parts) == ("\n## " in source.read_text())
    assert "<img" not in page.html
    for target in re.findall(r'href="([^"]*)"', page.html):
        if target.startswith("https://"):
            continue
        assert target.startswith("/manual/"), target
        other, _, part = target.removeprefix("/manual/").partition("#")
        linked = read(other)
        assert linked is not None, target
        assert not part or part in linked.ids, f"{name} links to {target}"


def test_ids_are_those_of_github() -> None:
    assert slug("Wait, and why") == "wait-and-why"
    assert slug("What `CEL` costs") == "what-cel-costs"


def test_what_is_shown_is_in_the_wheel() -> None:
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for name in NAMES:
        (path,) = (ROOT / "docs").glob(f"*/{name}.md")
        place = path.relative_to(ROOT / "docs")
        assert included["force-include"][f"docs/{place}"] == f"manciple/manual/{place}"


def test_whoever_is_signed_in_reads_it(db: None) -> None:
    client = Client()
    assert client.get("/manual").headers["Location"].startswith("/login")
    client.force_login(User.objects.create_user("ann"))
    assert client.get("/manual").headers["Location"] == "/manual/dashboard"
    page = client.get("/manual/glossary").content.decode()
    assert 'aria-current="page">Glossary' in page
    assert '<tr id="device-hour">' in page
    assert client.get("/manual/../settings").status_code == 404
    assert client.get("/manual/architecture").status_code == 404
