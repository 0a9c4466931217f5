"""The pod pages in Chromium, against the running system: they tell why a pod waits, and stop when it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.kubectl import Kubectl
from tests.e2e.processes import Up
from tests.e2e.test_pages import chromium, page

__all__ = ["chromium", "page"]

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

MEMORY = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("200Gi")) >= 0'


def _manifest(name: str, *, count: int = 1, selectors: tuple[str, ...] = ()) -> dict[str, Any]:
    """A pod with a claim of its own for `count` of the simulated GPUs."""
    exactly = {
        "deviceClassName": "gpu.example.com",
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": one}} for one in selectors],
    }
    meta = {"name": name, "namespace": "demo"}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta,
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    container = {"name": "main", "image": "example.com/main", "resources": {"claims": [{"name": "gpu"}]}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimName": name}]},
    }
    return {"apiVersion": "v1", "kind": "List", "items": [claim, pod]}


def _apply(kubectl: Kubectl, name: str, **fields: Any) -> None:
    kubectl("apply", "-f", "-", stdin=json.dumps(_manifest(name, **fields)))


@pytest.fixture
def crowd(kubectl: Kubectl) -> Iterator[Kubectl]:
    """Three pods that hold all 24 GPUs; whatever a test leaves in the namespace goes with them.

    Ask for it before the page: an open page would ask for a pod that is gone.
    """
    for number in range(3):
        _apply(kubectl, f"train-{number}", count=8)
    for number in range(3):
        kubectl("wait", "--for=condition=PodScheduled", f"pod/train-{number}", "-n", "demo", "--timeout=60s")
    yield kubectl
    kubectl("delete", "pods,resourceclaims", "--all", "-n", "demo", "--timeout=60s")


def test_a_waiting_pod_says_why_and_the_page_follows(crowd: Kubectl, page: Page, up: Up) -> None:
    _apply(crowd, "eval", count=2)
    page.goto(f"{up.web}/pods")
    row = page.get_by_role("row", name="eval")
    expect(row).to_contain_text("accepts only 24 devices and all 24 are held", timeout=30_000)
    row.get_by_role("link", name="eval").click()
    why = page.locator("#h-why")
    expect(why).to_have_text("It waits because request gpu accepts only 24 devices and all 24 are held.")
    expect(page.locator(".funnel li.key")).to_contain_text("all 24 held")
    expect(page.locator("section", has_text="Who holds the 24").get_by_role("link", name="train-1")).to_be_visible()
    page.evaluate("window.untouched = true")  # a reload would lose it
    crowd("delete", "pod/train-1", "resourceclaim/train-1", "-n", "demo", "--timeout=60s")
    expect(why).to_have_count(0, timeout=30_000)
    expect(page.get_by_text("on node")).to_be_visible()
    assert page.evaluate("window.untouched")


def test_the_clause_that_refuses_is_shown_and_what_the_devices_have(crowd: Kubectl, page: Page, up: Up) -> None:
    _apply(crowd, "large", selectors=(MEMORY,))
    page.goto(f"{up.web}/pods/demo/large")
    expect(page.locator("#h-why")).to_contain_text("memory >= 200Gi refuses all 24; they have 80Gi.")
    expect(page.locator("#why")).to_contain_text("Next Ask for 80Gi or less")
    expect(page.locator("pre.code")).to_have_text(MEMORY)
    expect(page.locator("tr", has_text="node-2")).to_contain_text("Selector 1: memory >= 200Gi")


def test_a_device_leads_to_the_pod_that_holds_it(crowd: Kubectl, page: Page, up: Up) -> None:
    page.goto(f"{up.web}/devices")
    page.locator('.tile[data-s="reserved"]').first.click()
    page.locator("#panel").get_by_role("link", name="train-").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("train-")
    page.locator("section", has_text="Its devices").get_by_role("link", name="gpu-0").first.click()
    expect(page.locator("#panel")).to_contain_text("Held by")


def test_the_list_gains_and_loses_pods_by_itself(crowd: Kubectl, page: Page, up: Up) -> None:
    page.goto(f"{up.web}/pods")
    page.evaluate("window.untouched = true")
    _apply(crowd, "later")
    expect(page.get_by_role("link", name="later", exact=True)).to_be_visible(timeout=30_000)
    crowd("delete", "pod/later", "-n", "demo", "--timeout=60s")
    expect(page.get_by_role("link", name="later", exact=True)).to_have_count(0, timeout=30_000)
    assert page.evaluate("window.untouched")


def test_the_page_fits_a_phone(crowd: Kubectl, page: Page, up: Up) -> None:
    _apply(crowd, "small", selectors=(MEMORY, MEMORY))
    page.set_viewport_size({"width": 390, "height": 844})
    for path in ("/pods", "/pods/demo/small"):
        page.goto(f"{up.web}{path}")
        expect(page.get_by_text("Waiting").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_pages_work_without_script(crowd: Kubectl, page: Page, chromium: Browser, up: Up) -> None:
    _apply(crowd, "small")
    context = chromium.new_context(java_script_enabled=False, storage_state=page.context.storage_state())
    plain = context.new_page()
    plain.goto(f"{up.web}/pods")
    plain.get_by_role("link", name="small").click()
    expect(plain.locator("#h-why")).to_contain_text("It waits because")
    context.close()


def test_kubectl_reads_the_explanation(up: Up, crowd: Kubectl) -> None:
    _apply(crowd, "raw")
    for path in ("/api/v1/namespaces/demo/pods/raw", "/apis/resource.k8s.io/v1/namespaces/demo/resourceclaims/raw"):
        found = json.loads(crowd("get", "--raw", f"{path}/explain"))
        assert found["kind"] == "Explanation"
        assert found["reason"] == "Request `gpu` accepts only 24 devices and all 24 are held."
        assert found["nodes"][0]["requests"][0]["stages"][-1] == {"name": "free", "left": 0}
