"""The pod pages in Chromium, against the running system: they tell why a pod waits, and stop when it does not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import Error, Page, Route, expect

from tests.dashboard import texts
from tests.e2e.api_client import Document, Hands
from tests.e2e.kubectl import Kubectl
from tests.e2e.pages.manifests import claim, pod
from tests.e2e.processes import Up

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


def documents(name: str, count: int = 1) -> list[Document]:
    """A pod with a claim of its own for `count` of the simulated GPUs."""
    return [claim(name, count), pod(name, of_claim=name)]


@pytest.mark.parametrize(
    ("path", "sign"), [("/pods", "tr:has-text('asked')"), ("/devices", ".tile[aria-label*='asked']")]
)
def test_an_answer_that_never_comes_does_not_end_the_updates(
    hands: Hands, page: Page, up: Up, path: str, sign: str
) -> None:
    """As of a server that was frozen while the page asked it."""
    page.add_init_script("const of = AbortSignal.timeout; AbortSignal.timeout = () => of.call(AbortSignal, 300);")
    page.goto(f"{up.web}{path}")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    hung: list[Route] = []

    def hang_once(route: Route) -> None:
        if hung or route.request.resource_type != "fetch":
            route.continue_()
        else:
            hung.append(route)

    page.route(f"**{path}**", hang_once)
    hands.apply(*documents("asked", 1))
    expect(page.locator(sign)).to_have_count(1)
    assert hung
    hands.forget(*documents("asked"))


@pytest.fixture
def crowd(hands: Hands) -> Iterator[Hands]:
    """Three pods that hold all 24 GPUs; whatever a test leaves in the namespace goes with them.

    Ask for it before the page: an open page would ask for a pod that is gone.
    """
    for number in range(3):
        hands.apply(*documents(f"train-{number}", 8))
    for number in range(3):
        hands.wait_pods("PodScheduled", "demo", f"train-{number}")
    yield hands
    hands.clear("demo", "Pod", "ResourceClaim")


def test_a_waiting_pod_says_why_and_the_page_follows(crowd: Hands, page: Page, up: Up) -> None:
    page.goto(f"{up.web}/pods")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.evaluate("window.untouched = true")  # a reload would lose it
    crowd.apply(*documents("eval", 2))
    row = page.get_by_role("row", name="eval")
    expect(row).to_contain_text(re.compile(r"gpu.*\b24\b", re.DOTALL))
    assert page.evaluate("window.untouched")
    row.get_by_role("link", name="eval").click()
    why = page.locator("#h-why")
    expect(why).to_contain_text(re.compile(r"gpu.*\b24\b", re.DOTALL))
    expect(page.locator(".funnel li.key")).to_contain_text("24")
    expect(page.locator('section[aria-labelledby="h-held"]').get_by_role("link", name="train-1")).to_be_visible()
    page.evaluate("window.untouched = true")
    crowd.forget(*documents("train-1"))
    expect(why).to_have_count(0)
    expect(page.locator("#pod-head")).to_contain_text("node-")
    assert page.evaluate("window.untouched")


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
    expect(page.get_by_role("alert")).to_contain_text("restartPolice")
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
    expect(page.get_by_role("heading", level=1)).to_contain_text("demo/trainer has ended")


def test_kubectl_reads_the_explanation(up: Up, crowd: Hands, kubectl: Kubectl) -> None:
    crowd.apply(*documents("raw"))
    for path in ("/api/v1/namespaces/demo/pods/raw", "/apis/resource.k8s.io/v1/namespaces/demo/resourceclaims/raw"):
        found = json.loads(kubectl("get", "--raw", f"{path}/explain"))
        assert found["kind"] == "Explanation"
        assert found["reason"] == f"Request `gpu` {texts.ALL_DEVICES_HELD(1, 24)}."
        assert found["nodes"][0]["requests"][0]["stages"][-1] == {"name": "free", "left": 0}


def test_a_preview_is_about_the_values_that_stand_in_the_form(page: Page, up: Up) -> None:
    """Also where the server answers late, in another order, or not at all."""
    held: list[Route] = []
    page.goto(f"{up.web}/pods/new?from=form&ns=demo")
    made = page.locator("#written")
    page.get_by_label("Name", exact=True).fill("preview")
    page.locator("input[name=class]").first.check()
    starts = made.get_by_role("heading", name="Starts now on")
    expect(starts).to_be_visible()
    page.route("**/pods/new/made", lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks it
    page.get_by_label("Number", exact=True).fill("2")
    expect(made).to_have_attribute("data-stale", "")
    page.unroute("**/pods/new/made")
    page.get_by_label("Number", exact=True).fill("0")
    expect(made).not_to_have_attribute("data-stale", "")
    expect(starts).to_have_count(0)
    for route in held:  # the answer to 2 comes after that to 0
        with suppress(Error):
            route.continue_()
    page.get_by_label("Number", exact=True).fill("1")
    expect(starts).to_be_visible()
    page.route("**/pods/new/made", lambda route: route.fulfill(status=422, body="broken"))
    page.get_by_label("Number", exact=True).fill("3")
    expect(made.get_by_text("did not answer")).to_be_visible()
    expect(made).to_have_attribute("data-stale", "")
    expect(page.get_by_text(texts.IN_SYNC)).to_be_hidden()
    page.unroute("**/pods/new/made")
    page.get_by_label("Number", exact=True).fill("1")
    expect(made.get_by_text("did not answer")).to_have_count(0)
    expect(made).not_to_have_attribute("data-stale", "")
    expect(page.get_by_text(texts.IN_SYNC)).to_be_visible()
