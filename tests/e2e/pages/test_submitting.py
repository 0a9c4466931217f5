"""The form of a new pod and its YAML in Chromium: each follows the other, by keyboard, on a phone, without a script."""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.e2e.api_client import Hands
from tests.e2e.pages.browser import new_context
from tests.e2e.pages.demo import Demo
from tests.e2e.processes import Up

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


def _yaml(page: Page) -> str:
    found: str = page.evaluate("document.getElementById('yaml').value")
    return found


def test_the_form_and_its_yaml_follow_each_other_and_the_pod_runs(page: Page, up: Up, hands: Hands) -> None:
    page.goto(f"{up.web}/pods")
    page.get_by_role("link", name="Submit a pod").click()
    editor = page.locator(".cm-content")
    page.get_by_label("Name", exact=True).fill("by-form")
    page.get_by_label("Namespace", exact=True).select_option("demo")
    page.get_by_label("Image", exact=True).fill("example.com/trainer:1")
    page.locator("#f-class").get_by_role("radio").first.check()
    page.get_by_label("Number", exact=True).fill("2")
    page.get_by_label("Where", exact=True).select_option(label="On the same PCIe root")
    expect(editor).to_contain_text("matchAttribute: resource.kubernetes.io/pcieRoot")
    expect(editor).to_contain_text("name: by-form-devices")
    page.evaluate("""() => {
      const area = document.getElementById("yaml");
      const changed = area.value.replace("example.com/trainer:1", "example.com/trainer:2  # newer");
      Editors.set(area, changed.replace("- name: main", "- name: main\\n    workingDir: /srv"));
    }""")
    expect(page.get_by_label("Image", exact=True)).to_have_value("example.com/trainer:2")
    expect(page.locator("#composed")).to_contain_text("spec.containers[0].workingDir")
    page.get_by_label("CPU").fill("1")
    expect(editor).to_contain_text("cpu: '1'")
    assert "# newer" in _yaml(page)
    assert "workingDir: /srv" in _yaml(page)
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", name="by-form", level=1)).to_be_visible()
    hands.wait_pods("PodScheduled", "demo", "by-form")
    hands.clear("demo", "Pod", "ResourceClaimTemplate")


def test_on_a_phone_and_without_a_script_one_may_submit_as_well(
    pocket: BrowserContext, chromium: Browser, demo: Demo, states: dict[str, object]
) -> None:
    page = pocket.new_page()
    page.goto(f"{demo.web}/pods/new")
    expect(page.locator(".cm-content")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if into := os.environ.get("SHOTS"):
        page.screenshot(path=f"{into}/phone.png", full_page=True)
    page.close()
    context = new_context(chromium, state=states["admin"], script=False)
    page = context.new_page()
    page.goto(f"{demo.web}/pods/new?ns=climate-ml")
    page.get_by_label("Name", exact=True).fill("plain")
    page.get_by_label("Image", exact=True).fill("example.com/x")
    page.get_by_role("radio", name="gpu-hopper").check()
    page.get_by_role("button", name="Sync form and YAML").click()
    yaml = page.get_by_role("textbox", name="YAML", exact=True)
    assert "name: plain-devices" in yaml.input_value()
    yaml.fill(yaml.input_value().replace("example.com/x", "example.com/y"))
    page.get_by_role("button", name="Sync form and YAML").click()
    expect(page.get_by_label("Image", exact=True)).to_have_value("example.com/y")
    if into := os.environ.get("SHOTS"):
        page.set_viewport_size({"width": 1440, "height": 900})
        page.screenshot(path=f"{into}/plain.png", full_page=True)
    context.close()
