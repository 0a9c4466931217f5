"""The device grid in Firefox: what it is there for, by keyboard and by mouse, and live."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pages.demo import Demo
from tests.e2e.pages.firefox import PROGRAM, FirefoxPage, firefox

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.browser,
    pytest.mark.skipif(not shutil.which(PROGRAM), reason=f"{PROGRAM} is not installed: not every release has it"),
]

AT = "document.activeElement.closest('[data-at]')?.dataset.at"
TILE = '.tile[data-at="gpu.nvidia.com/gpu-b02/gpu-0"]'
STATE = f"document.querySelector('{TILE}').dataset.s"
PANEL = "document.getElementById('panel')"


@contextmanager
def grid(demo: Demo, states: dict[str, Any], home: Path) -> Iterator[FirefoxPage]:
    """The grid, live, as the administrator sees it."""
    with firefox(home) as page:
        page.keep_signed_in(demo.web, states["admin"]["cookies"])
        page.open(f"{demo.web}/devices")
        page.wait("document.getElementById('live')?.dataset.state === 'live'", "the page to be live")
        yield page
        assert page.errors == []


def test_the_grid_is_used_by_keyboard_in_firefox(demo: Demo, states: dict[str, Any], tmp_path: Path) -> None:
    with grid(demo, states, tmp_path) as page:
        assert page.evaluate("document.querySelectorAll('.tile').length") > 300
        assert page.evaluate("document.querySelectorAll('#grid [tabindex=\"0\"]').length") == 1

        # One stop, arrows inside, the panel and back.
        page.evaluate("document.querySelector('#grid [tabindex=\"0\"]').focus()")
        page.press("Right", "Right")
        second = page.evaluate(AT)
        page.press("Left")
        first = page.evaluate(AT)
        assert first
        assert second
        assert first.rpartition("/")[0] == second.rpartition("/")[0]
        page.press("Enter")
        page.wait(f"!{PANEL}.hidden && {PANEL}.contains(document.activeElement)", "the panel to have the focus")
        assert page.evaluate("new URL(location).searchParams.get('at')") == first
        page.press("Escape")
        page.wait(f"{PANEL}.hidden && ({AT}) === {first!r}", "the focus to be back at its device")


@pytest.mark.long
def test_the_grid_is_used_by_mouse_and_stays_live_in_firefox(
    demo: Demo, states: dict[str, Any], tmp_path: Path
) -> None:
    with grid(demo, states, tmp_path) as page:
        # No tile moves when the panel opens.
        box = f"(({{ x, y }}) => [x, y])(document.querySelector('{TILE}').getBoundingClientRect())"
        page.evaluate(f"document.querySelector('{TILE}').scrollIntoView({{ block: 'center' }})")
        before = page.evaluate(box)
        page.click(TILE)
        page.wait(f"!{PANEL}.hidden && {PANEL}.textContent.includes('gpu-0')", "the panel of the device")
        assert page.evaluate(box) == before

        # Live: only its own tile changes, and it is said.
        demo.taint("gpu-b02", 0, tainted=True)
        page.wait(f"{STATE} === 'taint'", "the taint")
        page.wait("document.getElementById('said').textContent.includes('gpu-0 on gpu-b02')", "it to be said")
        demo.taint("gpu-b02", 0, tainted=False)
        page.wait(f"{STATE} === 'free'", "the taint to go")
