"""The tour finds what it is there for: a page with a fault is told, though others of its look were compared before."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.e2e.pages.tour import ON_A_PAGE, ON_A_TOUR, Axe

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

PAGE = """<!doctype html><html lang="en"><head><title>Page</title><style>body { background: #fff; color: #111 }</style>
</head><body><main><h1>Page</h1><p>Words that one can read</p>{more}</main></body></html>"""
FAINT = '<p style="color: #ccc">Words that nobody can read</p>'
NAMELESS = "<button></button>"


def test_what_axe_must_find_is_found_on_every_page_but_no_more_often_than_said(chromium: Browser) -> None:
    context = chromium.new_context()
    page = context.new_page()
    axe = Axe(page)

    def rules_broken(more: str) -> list[str]:
        page.set_content(PAGE.replace("{more}", more))
        axe.read()
        return [violation.partition(":")[0] for violation in axe.find()]

    assert rules_broken("") == []
    for _ in range(ON_A_TOUR // ON_A_PAGE):
        assert rules_broken(FAINT * (ON_A_PAGE + 1)) == ["color-contrast"]
    assert rules_broken(FAINT) == [], "compared often enough"
    assert rules_broken(FAINT.replace("#ccc", "#ddd")) == ["color-contrast"], "it is another look"
    assert rules_broken(NAMELESS) == ["button-name"], "only contrasts are compared less often"
    context.close()
