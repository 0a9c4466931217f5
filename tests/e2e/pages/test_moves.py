"""Moves in Chromium, against the running system: proposed on the overview, reviewed, and carried out."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard import texts
from tests.e2e.api_client import Document, Hands
from tests.e2e.pages.browser import PHONE
from tests.e2e.pages.manifests import pod, template
from tests.e2e.pages.walking import expect_focus
from tests.e2e.processes import Up

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

OWNER = {"apiVersion": "example.com/v1", "kind": "Fleet", "name": "web", "uid": "web-uid", "controller": True}


def documents(name: str, count: int, node: str = "") -> list[Document]:
    """A pod with GPUs of a template of its own; with a node, one that rather goes there and is created again."""
    made = pod(name, of_template=name)
    if node:
        there = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
        wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": there}]}
        made["spec"]["affinity"] = {"nodeAffinity": wish}
        made["metadata"]["ownerReferences"] = [OWNER]
    return [template(name, count), made]


@pytest.fixture
def scattered(hands: Hands) -> Iterator[Hands]:
    """Five, three and three GPUs are free, each on a node of its own; and a pod wants eight of one."""
    for at, count in enumerate((3, 5, 5), 1):
        hands.apply(*documents(f"web-{at}", count, f"node-{at}"))
        hands.wait_pods("PodScheduled", "demo", f"web-{at}")
    hands.apply(*documents("large", 8))
    yield hands
    hands.clear("demo", "Pod", "ResourceClaim")
    for name in ("web-1", "web-2", "web-3", "large"):
        hands.delete(f"/apis/resource.k8s.io/v1/namespaces/demo/resourceclaimtemplates/{name}")


def test_a_move_is_proposed_reviewed_and_carried_out_on_a_phone(scattered: Hands, page: Page, up: Up) -> None:
    page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    page.goto(f"{up.web}/overview")
    moves = page.locator("#moves")
    expect(moves).to_contain_text("demo/large")
    expect(moves).to_contain_text(re.compile("demo/web-1.*node-1.*node-", re.DOTALL))
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    moves.get_by_role("link", name="Review the move").press("Enter")
    question = page.get_by_role("heading", level=1)
    expect(question).to_contain_text("large")
    expect_focus(question)
    page.get_by_role("button", name="Move 1 pod").press("Enter")
    expect(page.locator(".says:focus")).to_contain_text(texts.MOVED("1 pod", "large"))
    scattered.wait_pods("PodScheduled", "demo", "large")
    expect(page.locator("#pod-head")).to_contain_text("node-1")
