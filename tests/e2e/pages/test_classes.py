"""The class pages in Chromium, against the running system: what a person types is judged at once, and serves a pod."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.dashboard import texts
from tests.e2e.api_client import Hands, documents
from tests.e2e.pages.browser import GONE, REFUSED, editor_of, watched_page
from tests.e2e.pages.walking import expect_focus
from tests.e2e.processes import ROOT, Up

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

EXAMPLE = ROOT / "docs" / "examples" / "two-pods.yaml"
INDEX_0 = 'device.attributes["gpu.example.com"].index == 0'
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu, namespace: form}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: first-gpu}}]}}}
---
"""


@pytest.fixture
def page(administrator: BrowserContext, up: Up) -> Iterator[Page]:
    """A page of the administrator, with nothing opened yet, which asks for nothing that is gone."""
    with watched_page(administrator, allowed=(REFUSED,)) as page:
        yield page


@pytest.fixture
def deleting_page(administrator: BrowserContext, up: Up) -> Iterator[Page]:
    """One that deletes what it shows, and may hear of that before its own form is answered."""
    with watched_page(administrator, allowed=(REFUSED, GONE)) as page:
        yield page


def made(hands: Hands, name: str, expression: str = "true") -> None:
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    manifest = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
    hands.apply(manifest)


def _forget(page: Page, up: Up, hands: Hands, name: str) -> None:
    """Away from its page first: a page whose object goes asks for it and hears 404, as it should."""
    page.goto(f"{up.web}/classes")
    hands.remove("DeviceClass", name)
    expect(page.locator("#classes").get_by_role("link", name=name)).to_have_count(0)


def when_enter_takes(page: Page) -> None:
    """A list that came up under the key is not meant by it: the editor heeds Enter 75 ms after it shows one."""
    page.wait_for_function("""() => {
      const list = document.querySelector(".cm-tooltip-autocomplete");
      if (list) list.since ??= performance.now();
      return list && performance.now() - list.since > 75;
    }""")


def test_a_class_written_with_completions_serves_a_pod(deleting_page: Page, up: Up, hands: Hands) -> None:
    page = deleting_page
    page.goto(f"{up.web}/classes")
    page.get_by_role("link", name="New class").first.click()
    page.get_by_label("Name", exact=True).fill("first-gpu")
    editor_of(page, "Selector 1").click()
    options = page.locator(".cm-tooltip-autocomplete")
    page.keyboard.type("device.attr")
    expect(options).to_contain_text("attributes")
    when_enter_takes(page)
    page.keyboard.press("Enter")  # and the next list opens
    expect(options).to_contain_text("gpu.example.com")
    expect(options).not_to_contain_text("attributes")
    when_enter_takes(page)
    page.keyboard.press("Enter")
    expect(options).to_contain_text("driverVersion")
    page.keyboard.type("index == 0")
    expect(page.locator('textarea[name="selector"]')).to_have_value(INDEX_0)
    page.keyboard.press("Escape")
    expect(page.locator("#match-count")).to_have_text("3")
    expect(page.locator("#verdicts")).to_contain_text("index == 0")
    page.keyboard.press("Tab")  # leaves the editor, as it leaves every field
    expect(editor_of(page, "Selector 1")).not_to_be_focused()
    page.get_by_role("button", name="Add driver config").click()
    page.get_by_label("Driver", exact=True).fill("gpu.example.com")
    page.get_by_role("textbox", name="Parameters").fill(
        "apiVersion: gpu.resource.example.com/v1alpha1\nkind: GpuConfig"
    )
    expect(page.get_by_text("Parses")).to_be_visible()
    page.get_by_role("button", name="Save class").click()
    expect(page.locator(".says", has_text="first-gpu")).to_be_visible()
    text = EXAMPLE.read_text().replace("namespace: demo", "namespace: form").replace("name: demo", "name: form")
    hands.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "form"}}, *documents(TEMPLATE + text))
    hands.wait_pods("Ready", "form", "trainer", "notebook")
    claims = [hands.found("ResourceClaim", name, "form") for name in hands.names("ResourceClaim", "form")]
    devices = [claim["status"]["allocation"]["devices"]["results"][0]["device"] for claim in claims]
    assert devices == ["gpu-0", "gpu-0"]
    expect(page.locator("#users")).to_contain_text("form")  # by itself
    expect(page.locator("#verdicts")).to_contain_text(re.compile(r"3 of 24\D+1 \D+1 "))
    hands.remove("Namespace", "form")
    page.get_by_role("link", name="Delete…").click()
    dialog = page.get_by_role("dialog", name="Delete class first-gpu?")
    expect(dialog).to_contain_text(texts.WAITED_FOR_BY_NONE)
    dialog.get_by_role("button", name="Delete class").click()
    expect(page.get_by_text("Deleted class first-gpu.")).to_be_visible()
    expect(page.locator("#classes").get_by_role("link", name="first-gpu")).to_have_count(0)


@pytest.mark.long
def test_what_does_not_compile_is_told_under_the_caret_and_mended(page: Page, up: Up, hands: Hands) -> None:
    made(hands, "mended")
    page.goto(f"{up.web}/classes/c/mended")
    page.get_by_role("button", name="Add selector").click()
    editor = editor_of(page, "Selector 2")
    expect_focus(editor)
    editor.fill('device.attributes["gpu.example.com"].driverVersion\n  .isGreaterThan("9.0.0")')
    expect(page.locator("#selector-1-diagnostics")).to_contain_text(re.compile(r"\b2\b.*\b18\b.*isGreaterThan"))
    expect(page.locator(".cm-bad")).to_have_text('"9.0.0"')
    expect(editor).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#save-class")).to_have_attribute("aria-disabled", "true")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.is_navigation_request() else None)
    page.get_by_role("button", name="Save class").click(force=True)
    page.get_by_role("button", name="Apply fix").click()
    expect(page.locator("#count-1")).to_contain_text("0 of 24")
    assert sent == []  # it could not be saved, and was not
    expect(page.locator("#impact")).to_contain_text("24 → 0")
    page.get_by_role("button", name="Show diff").click()
    expect(page.locator("#diff .add").first).to_be_visible()
    editor.fill('device.attributes["gpu.example.com"].rack == "a"')
    page.get_by_role("button", name="Insert guard").click()
    expect(editor).to_contain_text('"rack" in device.attributes["gpu.example.com"] &&')
    expect(page.get_by_role("heading", name="Raise an error")).to_have_count(0)
    editor.fill('device.attributes["gpu.example.com"].indx == 0')
    expect(page.locator("#misspelt")).to_contain_text(texts.DID_YOU_MEAN_ATTRIBUTE("index", "indx", "24 devices"))
    expect(page.locator("#savebar")).to_contain_text(texts.RAISES_ERROR_ON("24 devices"))
    expect(page.get_by_role("button", name="Insert guard")).to_have_count(0)
    page.get_by_role("button", name="Use index").click()
    expect(editor).to_contain_text(".index == 0")
    expect(page.locator("#misspelt")).to_have_count(0)
    expect(page.locator("#savebar")).not_to_contain_text("Raises an error")
    page.get_by_role("link", name="Discard").click()
    expect(page.locator("#savebar")).to_contain_text("No change")
    _forget(page, up, hands, "mended")


@pytest.mark.long
def test_verdicts_follow_the_cluster_while_somebody_types(page: Page, up: Up, hands: Hands) -> None:
    made(hands, "followed")
    page.goto(f"{up.web}/classes/c/followed")
    editor = editor_of(page, "Selector 1")
    editor.fill('device.driver == "fenced.example.com"')
    expect(page.locator("#match-count")).to_have_text("0")
    page.locator("#miss-1 summary").click()
    editor.click()
    page.keyboard.press("End")
    published = hands.found("ResourceSlice", hands.names("ResourceSlice")[0])["spec"]
    pool = {"name": "fenced", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "fenced.example.com", "pool": pool, "allNodes": True, "devices": [{"name": "card-0"}]}
    assert published["devices"]
    manifest = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "fenced"},
        "spec": spec,
    }
    hands.apply(manifest)
    expect(page.locator("#match-count")).to_have_text("1")
    expect(page.locator("#miss-1")).to_have_attribute("open", "")
    expect_focus(editor)
    page.keyboard.type(" && true")
    expect(page.locator('textarea[name="selector"]')).to_have_value('device.driver == "fenced.example.com" && true')
    hands.remove("ResourceSlice", "fenced")
    expect(page.locator("#match-count")).to_have_text("0")
    _forget(page, up, hands, "followed")
