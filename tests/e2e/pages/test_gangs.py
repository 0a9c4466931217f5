"""A gang that waits is named on its pods' pages, and what-if says how much of it fits, by keyboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.api_client import Hands
from tests.e2e.pages.test_moves import documents
from tests.e2e.pages.walking import expect_focus
from tests.e2e.processes import Up
from tests.scheduling.pages import texts

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

#: Whole nodes; there are three.
WANTED = 4
VERDICT = texts.GANG_WOULD_NOT_START("train", 3, 4)


@pytest.fixture
def waiting(hands: Hands) -> Iterator[None]:
    names = [f"train-{number}" for number in range(WANTED)]
    for name in names:
        template, pod = documents(name, 8)
        pod["metadata"]["annotations"] = {"manciple.dev/gang": "train", "manciple.dev/gang-size": str(WANTED)}
        hands.apply(template, pod)
    yield
    hands.clear("demo", "Pod", "ResourceClaim")
    for name in names:
        hands.delete(f"/apis/resource.k8s.io/v1/namespaces/demo/resourceclaimtemplates/{name}")


@pytest.mark.usefixtures("waiting")
def test_a_gangs_pod_leads_to_the_rehearsal_of_all_of_it_without_a_mouse(page: Page, up: Up) -> None:
    page.goto(f"{up.web}/pods/demo/train-0")
    expect(page.locator(".facts")).to_contain_text("gang train of 4")
    page.get_by_role("link", name="What if…").press("Enter")
    page.get_by_role("button", name="Rehearse").press("Enter")
    verdict = page.locator("#h-verdict")
    expect(verdict).to_contain_text(VERDICT)
    expect_focus(verdict)
