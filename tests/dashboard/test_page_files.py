"""How many files a reader opens to understand a page; `python -m tests.page_files` lists them."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.page_files import DASHBOARD, EMPTY_PAGE, PAGES, PageFiles, administrator, files_of_page, listing

#: address -> the most files that may run for it, and the most in the dashboard's packages. These only go down.
# One more each since the navigation leads only to pages that somebody may open.
LIMITS = {
    "/devices": (21, 8),
    # Three more since it has its place in the queue, a notification, and in a mirror says what is not known.
    "/pods/climate-ml/downscale-era5-full-1": (40, 11),
    "/classes/c/gpu-h200": (31, 10),
}
#: address -> what runs for it, which is the same on the laboratory of each test
_WARM: dict[str, PageFiles] = {}


def warm(client: Client, path: str) -> PageFiles:
    """Recorded once: it takes half a second or more of GETs."""
    if path not in _WARM:
        _WARM[path] = files_of_page(client, path)
    return _WARM[path]


@pytest.fixture
def client(db: None) -> Client:
    return administrator()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_runs_through_no_more_files_than_before(client: Client, path: str) -> None:
    files = warm(client, path)
    lines = "\n".join(listing(files))
    most, most_of_dashboard = LIMITS[path]
    assert len(files.functions) <= most, lines
    assert len(files.dashboard) <= most_of_dashboard, lines


def test_the_first_get_counts_at_least_the_files_of_a_warm_one(client: Client) -> None:
    first = files_of_page(client, PAGES[0], first=True)
    later = warm(client, PAGES[0])
    assert later.functions.keys() < first.functions.keys()
    assert "kit/base.html" in later.templates


def test_what_every_page_runs_is_no_part_of_a_pages_own_files(client: Client) -> None:
    common = files_of_page(client, EMPTY_PAGE)
    own = warm(client, PAGES[0]).without(common)
    assert own.functions.keys().isdisjoint(common.functions)
    assert any(file.startswith(DASHBOARD[0]) for file in own.functions)
