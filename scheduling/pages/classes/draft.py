"""What is typed into the workbench and not saved, as an address: a link shows what I see. Pure; nothing is stored.

`?name=`, `?selector=` (one for each), `?driver=&parameters=` (one pair for each) and `?extended=` stand for the fields
that differ from the stored class, and replace them when the page is opened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from scheduling.pages.classes.form import ClassForm, ConfigText

#: Characters of a query that every browser, proxy and chat takes.
LONGEST = 6_000


@dataclass(frozen=True, slots=True)
class Draft:
    """query: the address of what is not saved, "" where nothing is, or where it is too long for one."""

    query: str = ""
    too_long: bool = False

    @property
    def unsaved(self) -> bool:
        return bool(self.query) or self.too_long


def draft_of(form: ClassForm, stored: ClassForm) -> Draft:
    """How `form` differs from what is stored (for a new class: from the blank form)."""
    pairs: list[tuple[str, str]] = []
    if form.name != stored.name:
        pairs.append(("name", form.name))
    if _selectors(form) != _selectors(stored):
        pairs += [("selector", text) for text in _selectors(form) or ("",)]
    if _configs(form) != _configs(stored):
        for config in _configs(form) or (ConfigText(),):
            pairs += [("driver", config.driver), ("parameters", config.parameters)]
    if form.extended != stored.extended:
        pairs.append(("extended", form.extended))
    query = urlencode(pairs)
    return Draft(too_long=True) if len(query) > LONGEST else Draft(query)


def from_query(query: Any, stored: ClassForm) -> ClassForm:
    """The form with what the address says (`query`: Django's QueryDict)."""
    form = stored
    if "name" in query and not stored.name:
        form = replace(form, name=query["name"].strip())
    if "selector" in query:
        form = replace(form, selectors=tuple(map(_lines, query.getlist("selector"))))
    if "driver" in query or "parameters" in query:
        typed = zip(query.getlist("driver"), query.getlist("parameters"), strict=False)
        configs = (ConfigText(driver.strip(), _lines(text)) for driver, text in typed)
        form = replace(form, configs=tuple(config for config in configs if not config.blank))
    if "extended" in query:
        form = replace(form, extended=query["extended"].strip())
    return form


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _selectors(form: ClassForm) -> tuple[str, ...]:
    return tuple(text.strip() for text in form.selectors if text.strip())


def _configs(form: ClassForm) -> tuple[ConfigText, ...]:
    return tuple(ConfigText(config.driver, config.parameters.rstrip()) for config in form.configs if not config.blank)
