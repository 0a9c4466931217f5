"""A claim that does not go is released by force, to the end, by keyboard alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.e2e.pages.browser import GONE, watched_page
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.walking import expect_focus, press, told
from tests.scheduling.pages import texts

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/infra-ci/resourceclaims"
#: Of a controller that is gone for good.
FINALIZER = "example.com/by-nobody"


@pytest.fixture
def held(demo: Demo) -> Iterator[str]:
    """The name of a claim that is deleted and does not go."""
    name = "held-by-keys"
    exactly = {"deviceClassName": "gpu-l40s", "count": 1}
    manifest = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "finalizers": [FINALIZER]},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    assert demo.api.post(CLAIMS, json=manifest).is_success
    demo.api.delete(f"{CLAIMS}/{name}")
    yield name
    assert demo.api.get(f"{CLAIMS}/{name}").status_code == 404


def test_a_claim_is_released_by_force_without_a_mouse(manager: BrowserContext, demo: Demo, held: str) -> None:
    with watched_page(manager, allowed=(GONE,)) as page:
        page.goto(f"{demo.web}/claims/infra-ci/{held}")
        page.get_by_role("link", name="Release by force…").press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(texts.WITHOUT_FINALIZERS_OWNER(FINALIZER))
        expect_focus(dialog.get_by_role("link", name="Cancel"))
        press(page, "Tab")
        expect_focus(dialog.get_by_role("button", name="Release by force"))
        press(page, "Enter")
        expect(told(page)).to_have_text(texts.REMOVED_BY_FORCE(held))
