"""A pod is rehearsed, created, found waiting and replaced by one that starts: by keyboard; a form by a finger."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.e2e.pages.browser import GONE, REFUSED, editor_of, watched_page
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.manifests import claim, pod
from tests.e2e.pages.walking import expect_focus, press, told

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

NAMESPACE = "speech"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
TEMPLATES = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaimtemplates"


def clear(demo: Demo, name: str) -> None:
    """What was made under this name, and what replaced it."""
    for path in (PODS, CLAIMS, TEMPLATES):
        for one in demo.get(path)["items"]:
            if one["metadata"]["name"].startswith(name):
                # No agent of the demo would confirm that a pod has ended.
                demo.api.delete(f"{path}/{one['metadata']['name']}", params={"gracePeriodSeconds": 0})


def enter(page: Page, editor: Locator, *documents: object) -> None:
    """As if pasted, in the place of what there is."""
    editor.focus()
    press(page, "Control+A")
    page.keyboard.insert_text("\n---\n".join(json.dumps(one) for one in documents))


def test_a_pod_is_rehearsed_created_and_replaced_without_a_mouse(manager: BrowserContext, demo: Demo) -> None:
    wanted = claim("rehearsed-pod", 40, namespace=NAMESPACE, device_class="gpu-l40s")  # more than any node has
    waiting = pod("rehearsed-pod", namespace=NAMESPACE, of_claim="rehearsed-pod")
    with watched_page(manager, allowed=(REFUSED, GONE)) as page:
        page.goto(f"{demo.web}/what-if")
        page.wait_for_function("window.Editors")
        enter(page, page.locator(".cm-content").first, wanted)
        page.get_by_role("button", name="Rehearse").press("Enter")
        expect_focus(page.locator("#h-verdict"))
        press(page, "Tab")
        expect_focus(page.get_by_role("link", name="Create this…"))
        press(page, "Enter")
        editor = editor_of(page, "YAML")
        enter(page, editor, wanted, waiting)
        page.get_by_role("button", name="Create", exact=True).press("Enter")
        expect(told(page)).to_contain_text("Created")
        page.goto(f"{demo.web}/pods/{NAMESPACE}/rehearsed-pod")
        expect(page.locator("#h-why")).to_be_visible()
        page.get_by_role("link", name=re.compile("^Replace pod")).first.press("Enter")
        dialog = page.get_by_role("dialog")
        expect_focus(dialog.get_by_role("link", name="Cancel"))
        dialog.get_by_role("button", name=re.compile("^Replace")).press("Enter")
        expect(told(page)).to_contain_text("rehearsed-pod")
    clear(demo, "rehearsed-pod")
