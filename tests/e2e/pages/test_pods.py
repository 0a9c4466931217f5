"""The pod pages in Chromium, against the running system: they tell why a pod waits, and stop when it does not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.api_client import Hands
from tests.e2e.kubectl import Kubectl
from tests.e2e.pages.browser import new_context
from tests.e2e.processes import Up
from tests.scheduling.pages import texts

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


def _apply(hands: Hands, name: str, **fields: Any) -> None:
    hands.apply(*_manifest(name, **fields)["items"])


@pytest.fixture
def crowd(hands: Hands) -> Iterator[Hands]:
    """Three pods that hold all 24 GPUs; whatever a test leaves in the namespace goes with them.

    Ask for it before the page: an open page would ask for a pod that is gone.
    """
    for number in range(3):
        _apply(hands, f"train-{number}", count=8)
    for number in range(3):
        hands.wait_pods("PodScheduled", "demo", f"train-{number}")
    yield hands
    hands.clear("demo", "Pod", "ResourceClaim")


def test_a_waiting_pod_says_why_and_the_page_follows(crowd: Hands, page: Page, up: Up) -> None:
    _apply(crowd, "eval", count=2)
    page.goto(f"{up.web}/pods")
    row = page.get_by_role("row", name="eval")
    expect(row).to_contain_text(texts.ALL_DEVICES_HELD(24, 24))
    row.get_by_role("link", name="eval").click()
    why = page.locator("#h-why")
    expect(why).to_have_text(f"{texts.WAITS_AS_REQUEST('gpu')}{texts.ALL_DEVICES_HELD(24, 24)}.")
    expect(page.locator(".funnel li.key")).to_contain_text("all 24 held")
    expect(page.locator("section", has_text="Who holds the 24").get_by_role("link", name="train-1")).to_be_visible()
    page.evaluate("window.untouched = true")  # a reload would lose it
    crowd.forget(*_manifest("train-1")["items"])
    expect(why).to_have_count(0)
    expect(page.get_by_text("on node")).to_be_visible()
    assert page.evaluate("window.untouched")


@pytest.mark.long
def test_the_clause_that_refuses_is_shown_and_what_the_devices_have(crowd: Hands, page: Page, up: Up) -> None:
    _apply(crowd, "large", selectors=(MEMORY,))
    page.goto(f"{up.web}/pods/demo/large")
    expect(page.locator("#h-why")).to_contain_text(texts.SELECTOR_REFUSES_ALL("memory >= 200Gi", 24, "80Gi"))
    expect(page.locator("#why")).to_contain_text(texts.NEXT_ASK_FOR_LESS("80Gi"))
    expect(page.locator("pre.code")).to_have_text(MEMORY)
    expect(page.locator("tr", has_text="node-2")).to_contain_text("Selector 1: memory >= 200Gi")


@pytest.mark.long
def test_a_pod_leads_to_its_device_and_back(crowd: Hands, page: Page, up: Up) -> None:
    page.goto(f"{up.web}/pods/demo/train-0")
    page.locator("section", has_text="Its claims").get_by_role("link", name="/ gpu-0").first.click()
    expect(page).to_have_url(re.compile("/devices/d/gpu.example.com/"))
    page.locator("main").get_by_role("link", name=re.compile("train-0$")).first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("train-0")


@pytest.mark.long
def test_a_rehearsal_without_a_selector_replays_the_funnel(page: Page, up: Up, hands: Hands) -> None:
    _apply(hands, "picky", selectors=(MEMORY,))
    page.goto(f"{up.web}/pods/demo/picky")
    page.get_by_role("link", name="Rehearse: Without selector 1").click()
    expect(page.locator("#h-why")).to_contain_text(texts.WOULD_START_WITHOUT_SELECTOR(1, "node-"))
    expect(page.locator(".funnel li.skipped")).to_contain_text(texts.LEFT_OUT_OF_REHEARSAL)
    page.get_by_role("link", name="Back to as written").click()
    expect(page.locator("#h-why")).to_contain_text("It waits because")
    expect(page.locator(".funnel li.skipped")).to_have_count(0)
    page.get_by_role("link", name="Replace pod: Without selector 1").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".diff .del", has_text="selectors:")).to_have_count(1)
    dialog.get_by_role("button", name="Replace pod").click()
    expect(page.locator(".says", has_text="Replaced pod picky.")).to_be_visible()
    hands.wait_pods("PodScheduled", "demo", "picky")
    hands.clear("demo", "Pod", "ResourceClaim")


def test_deleting_previews_its_effect_can_be_cancelled_and_then_happens(crowd: Hands, page: Page, up: Up) -> None:
    _apply(crowd, "eval", count=2)
    crowd.wait_pods("PodScheduled", "demo", "eval", status="False")
    page.goto(f"{up.web}/pods/demo/train-1")
    dialog = page.get_by_role("dialog")
    page.get_by_role("link", name="Delete…").click()
    expect(dialog).to_contain_text("8 devices: gpu-0")
    expect(dialog).to_contain_text("demo/eval on node-")
    dialog.get_by_role("link", name="Cancel").click()
    expect(dialog).to_be_hidden()
    page.get_by_role("link", name="Delete…").click()
    dialog.get_by_role("button", name="Delete pod").click()
    expect(page.locator(".says", has_text="Pod train-1 is being deleted.")).to_be_visible()
    crowd.wait_pods("PodScheduled", "demo", "eval")


def test_a_pod_is_written_in_the_editor_and_its_log_followed(page: Page, up: Up, hands: Hands) -> None:
    page.goto(f"{up.web}/pods/new?example=one-device&ns=demo")
    editor = page.locator(".cm-content")
    expect(editor).to_contain_text("ResourceClaimTemplate")
    assert page.evaluate("() => getComputedStyle(document.querySelector('.cm-line span')).color") != page.evaluate(
        "() => getComputedStyle(document.querySelector('.cm-line')).color"
    ), "keys have a colour of their own"
    example = page.evaluate("document.getElementById('yaml').value")
    page.evaluate("Editors.set(document.getElementById('yaml'), '')")
    editor.press_sequentially("spec:\ncontainers:\n- name: a\nimage: b\nargs: |\none")
    assert page.evaluate("document.getElementById('yaml').value") == (
        "spec:\n  containers:\n    - name: a\n      image: b\n      args: |\n        one"
    )
    page.evaluate("(text) => Editors.set(document.getElementById('yaml'), text)", example)
    page.evaluate("""() => {
      const area = document.getElementById("yaml");
      Editors.set(area, area.value.replace("restartPolicy", "restartPolice"));
    }""")
    expect(page.locator(".cm-bad")).to_be_visible()
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert")).to_contain_text(texts.UNKNOWN_FIELD("restartPolice"))
    expect(editor).to_contain_text("restartPolice")  # the answer is a page of its own, and its editor is there
    page.evaluate("""() => {
      const area = document.getElementById("yaml");
      Editors.set(area, area.value.replace("restartPolice", "restartPolicy"));
    }""")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("trainer")
    expect(page.locator("#pod-head")).to_contain_text("Running")
    page.get_by_role("link", name="Logs").click()
    expect(page.get_by_label("Follow")).to_be_visible()
    hands.remove("Pod", "trainer", "demo")
    hands.remove("ResourceClaimTemplate", "one-device", "demo")
    # The page loads itself anew once its pod is gone; to close it in the midst of that hangs Chromium.
    expect(page.get_by_role("heading", level=1)).to_have_text("Page not found")


def test_the_form_shows_the_yaml_that_it_makes(page: Page, up: Up) -> None:
    page.goto(f"{up.web}/pods/new?from=form&ns=demo")
    page.get_by_label("Name", exact=True).fill("from-the-form")
    expect(page.locator("#made")).to_contain_text("name: from-the-form-devices")
    page.get_by_role("radio", name="gpu.example.com").check()
    expect(page.locator("#made")).to_contain_text(re.compile(f"Starts now on node-|{texts.WAITS_BECAUSE}"))
    page.get_by_role("button", name="Create pod").click()
    expect(page.locator("#f-image-error")).to_have_text(texts.NAME_THE_IMAGE)
    expect(page.get_by_label("Name", exact=True)).to_have_value("from-the-form")


@pytest.mark.long
def test_what_if_says_how_many_fit_and_writes_nothing(page: Page, up: Up, hands: Hands) -> None:
    def written() -> list[str]:
        paths = ("/api/v1/pods", "/apis/resource.k8s.io/v1/resourceclaims")
        return sorted(one["metadata"]["uid"] for path in paths for one in hands.listed(path))

    before = written()
    page.goto(f"{up.web}/what-if")
    page.wait_for_function("window.Editors")
    claim = json.dumps(_manifest("pasted", count=2)["items"][0])
    page.evaluate("(text) => Editors.set(document.getElementById('yaml'), text)", claim)
    page.get_by_label("Replicas", exact=True).fill("15")
    page.get_by_role("button", name="Rehearse").click()
    expect(page.locator("#h-verdict")).to_contain_text(texts.SOME_WOULD_START("12 of 15", "3 nodes", 3))
    expect(page.locator("#result")).to_contain_text("1 more node like node-")
    page.get_by_label("Devices", exact=True).fill("1")
    page.get_by_role("button", name="Rehearse").click()
    expect(page.locator("#h-verdict")).to_have_text(texts.ALL_WOULD_START_ON(15, "2 nodes"))
    expect(page.locator("#result")).to_contain_text("Tried with 1 device.")
    assert written() == before


@pytest.mark.long
def test_the_list_gains_and_loses_pods_by_itself(crowd: Hands, page: Page, up: Up) -> None:
    page.goto(f"{up.web}/pods")
    page.evaluate("window.untouched = true")
    _apply(crowd, "later")
    expect(page.get_by_role("link", name="later", exact=True)).to_be_visible()
    crowd.remove("Pod", "later", "demo")
    expect(page.get_by_role("link", name="later", exact=True)).to_have_count(0)
    assert page.evaluate("window.untouched")


@pytest.mark.long
def test_the_pages_work_without_script(crowd: Hands, chromium: Browser, up: Up, admin_state: Any) -> None:
    _apply(crowd, "small")
    context = new_context(chromium, state=admin_state, script=False)
    plain = context.new_page()
    plain.goto(f"{up.web}/pods")
    plain.get_by_role("link", name="small").click()
    expect(plain.locator("#h-why")).to_contain_text("It waits because")
    context.close()


def test_kubectl_reads_the_explanation(up: Up, crowd: Hands, kubectl: Kubectl) -> None:
    _apply(crowd, "raw")
    for path in ("/api/v1/namespaces/demo/pods/raw", "/apis/resource.k8s.io/v1/namespaces/demo/resourceclaims/raw"):
        found = json.loads(kubectl("get", "--raw", f"{path}/explain"))
        assert found["kind"] == "Explanation"
        assert found["reason"] == f"Request `gpu` {texts.ALL_DEVICES_HELD(24, 24)}."
        assert found["nodes"][0]["requests"][0]["stages"][-1] == {"name": "free", "left": 0}
