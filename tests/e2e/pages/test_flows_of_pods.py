"""A pod is rehearsed, created, found waiting and replaced by one that starts: by keyboard alone."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.e2e.pages.browser import GONE, REFUSED, editor_of, watched_page
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.walking import press, told

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

NAMESPACE = "speech"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
META = {"name": "rehearsed-pod", "namespace": NAMESPACE}
#: More than any node has.
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": META,
    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu-l40s", "count": 40}}]}},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": META,
    "spec": {
        "containers": [{"name": "main", "image": "example.com/main", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "rehearsed-pod"}],
    },
}


def enter(page: Page, editor: Locator, *documents: object) -> None:
    """As if pasted, in the place of what there is."""
    editor.focus()
    press(page, "Control+A")
    page.keyboard.insert_text("\n---\n".join(json.dumps(one) for one in documents))


def test_a_pod_is_rehearsed_created_and_replaced_without_a_mouse(manager: BrowserContext, demo: Demo) -> None:
    with watched_page(manager, allowed=(REFUSED, GONE)) as page:
        page.goto(f"{demo.web}/what-if")
        page.wait_for_function("window.Editors")
        enter(page, page.locator(".cm-content").first, CLAIM)
        page.get_by_role("button", name="Rehearse").press("Enter")
        expect(page.locator("#h-verdict")).to_be_focused()
        press(page, "Tab")
        expect(page.get_by_role("link", name="Create this…")).to_be_focused()
        press(page, "Enter")
        editor = editor_of(page, "YAML")
        enter(page, editor, CLAIM, POD)
        page.get_by_role("button", name="Create", exact=True).press("Enter")
        expect(told(page)).to_contain_text("Created")
        page.goto(f"{demo.web}/pods/{NAMESPACE}/rehearsed-pod")
        expect(page.locator("main")).to_contain_text("It waits because")
        page.get_by_role("link", name=re.compile("^Replace pod")).first.press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("link", name="Cancel")).to_be_focused()
        dialog.get_by_role("button", name=re.compile("^Replace")).press("Enter")
        expect(told(page)).to_contain_text("rehearsed-pod")
    for path in (PODS, CLAIMS):
        for one in demo.get(path)["items"]:
            if one["metadata"]["name"].startswith("rehearsed-pod"):
                demo.api.delete(f"{path}/{one['metadata']['name']}")
