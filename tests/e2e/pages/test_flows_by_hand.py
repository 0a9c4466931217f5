"""What people do in the dashboard, begun, done and ended by keyboard alone and by a finger on a phone.

Here stand the walks that no other test takes. Files are of this folder. That every page fits a phone, and that what is
tapped there is large enough, is `test_quality`.

| Flow | Keyboard | Phone |
| --- | --- | --- |
| Find devices, act on them, undo | here; `test_grid_of_many` | the preview, finding: here |
| Cordon, drain, taint a node | a taint: here | a drain's preview: here |
| Why a pod waits, replace it | its rehearsal: here; replaced: `test_flows_of_pods` | the preview: here |
| What if, create this | `test_flows_of_pods` | `test_quality` |
| A pod by form; Duplicate | here | Duplicate: here |
| A class in the workbench | here | `test_quality` |
| YAML: check, difference, save, merge | here | `test_quality` |
| A claim's forced release | here | the preview: here |
| Incidents | `test_incidents`; several: `test_choosing` | up to the button: here |
| Taint rules | by a finger alone | made, deleted: here |
| Quotas | made, tried, set, taken back: here | tried: here |
| Rows, columns, density, CSV, views | `test_flows_of_lists` | `test_flows_of_lists` |
| Many at once | `test_choosing`, `test_flows_of_lists` | a preview: `test_flows_of_lists` |
| The box that finds, its verbs, `?`, More | `test_choosing` | `test_choosing` |
| Charts | `test_timeline` | dragging: here |
| Notifications: rules, webhook, browser | `test_flows_of_telling` | `test_quality` |
| Time zone | here | `test_quality` |
| Moves | `test_moves` (on a narrow page) | `test_quality` |
| Roles and bindings | `test_flows_of_access` | `test_quality` |
| Tokens | `test_flows_of_access` | `test_quality` |
| People | here | `test_quality` |
| The wallboard | `test_wallboard` | `test_wallboard` |
| Sign in and out | here | `test_quality` |
| The tour of a first visit | `test_quality` | `test_quality` |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.dashboard import texts
from tests.e2e.pages.browser import GONE, PHONE, REFUSED, editor_of, new_context, watched_page
from tests.e2e.pages.demo import PODS, Demo
from tests.e2e.pages.manifests import claim
from tests.e2e.pages.tour import TOO_WIDE
from tests.e2e.pages.walking import expect_focus, press, tab_to, told

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


# By keyboard ----------------------------------------------------------------------------------------------------------


UNDONE = "(1 change)"


def test_devices_are_tainted_and_taken_back_without_a_mouse(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/devices")
    press(admin, "Tab")
    admin.get_by_role("link", name="Skip to the devices").focus()
    press(admin, "Enter")
    expect(admin.locator(".tile:focus")).to_have_count(1)
    press(admin, "x ArrowRight Shift+X")
    expect(admin.locator("#chosen [data-count]")).to_have_text("2 devices chosen")
    press(admin, "Tab Tab")
    expect_focus(admin.get_by_role("button", name="Taint…", exact=True))
    press(admin, "Enter")
    question = admin.get_by_role("heading", name="Taint 2 devices?")
    expect_focus(question)
    press(admin, "Tab")
    admin.keyboard.type("example.com/walked")
    press(admin, "Enter")
    expect(admin.locator("#preview")).to_contain_text("2 DeviceTaintRules")
    expect_focus(question)
    admin.get_by_role("button", name="Taint 2 devices").press("Enter")
    expect(told(admin)).to_contain_text(texts.DEVICES_ARE_TAINTED("2 devices"))
    press(admin, "Tab")
    expect_focus(admin.get_by_role("button", name="Undo"))
    press(admin, "Enter")
    expect(told(admin)).to_contain_text(re.compile(r"\(2 changes\).*2 devices"))


#: path -> where its answer begins: the next Tab is the first thing to do about it
ANSWERS = {
    "/nodes/gpu-a11?change=cordon": "#h-change",
    "/pods/vision/video-caption-long/delete": "#h-effect",
    "/pods/speech/whisper-ft-large?count.gpus/gpu=6": "#h-why",
    "/quotas/nlp-lab/gpus?try=1&hard.pods=3": "#h-rehearsal",
    "/taint-rules/new?name=x&driver=dra.net&key=example.com/x&effect=None": "[aria-label='What it would do']",
    "/access?user=nora&verb=list&resource=pods&ns=vision": "#h-answer",
}


def test_a_page_that_answers_has_the_focus_on_its_answer(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/overview")  # where an offer to undo what another test did has the focus, once
    for path, answer in ANSWERS.items():
        admin.goto(demo.web + path)
        expect_focus(admin.locator(answer))


@pytest.mark.long
def test_the_field_that_was_refused_has_the_focus_and_is_not_called_wrong_while_it_is_mended(
    manager: BrowserContext, demo: Demo
) -> None:
    with watched_page(manager, allowed=(REFUSED,)) as page:
        page.goto(f"{demo.web}/taint-rules/new?name=x&driver=dra.net&key=no+key&effect=None")
        key = page.get_by_label("Key", exact=True)
        expect_focus(key)
        expect(page.locator(".field-error")).to_contain_text("Invalid value")
        press(page, "Control+A")
        page.keyboard.type("example.com/x")
        expect(page.locator(".field-error")).to_have_count(0)
        expect(key).not_to_have_attribute("aria-invalid", "true")


#: Notes what has the focus and cannot be seen, because something else lies over it.
_NOTE_COVERED = """() => {
  window.covered = [];
  window.stops = 0;
  addEventListener("focusin", ({ target }) => {
    window.stops++;
    const box = target.getBoundingClientRect(), inside = (at, most) => Math.min(Math.max(at, 1), most - 1);
    const top = document.elementFromPoint(inside(box.left + Math.min(box.width / 2, 60), innerWidth), box.top + 6);
    if (top && (target.contains(top) || top.contains(target))) return;
    window.covered.push(`${target.outerHTML.slice(0, 90)} at ${box.top}`);
  });
}"""


@pytest.mark.long
@pytest.mark.parametrize(("path", "phone"), [("/timeline", False), ("/nodes", True)])
def test_going_back_nothing_that_has_the_focus_lies_under_a_bar(
    manager: BrowserContext, demo: Demo, path: str, *, phone: bool
) -> None:
    with watched_page(manager) as page:
        if phone:
            page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        page.goto(demo.web + path)
        page.locator("main :is(.ent, td a):visible").last.focus()
        page.evaluate(_NOTE_COVERED)
        for _ in range(40):
            page.keyboard.press("Shift+Tab")
        assert page.evaluate("window.stops") >= 40
        assert page.evaluate("window.covered") == []


def test_a_pod_is_made_by_form_and_duplicated_without_a_mouse(manager: BrowserContext, demo: Demo) -> None:
    with watched_page(manager, allowed=(REFUSED,)) as page:
        page.goto(f"{demo.web}/pods/new?from=form&ns=climate-ml")
        page.get_by_label("Name", exact=True).focus()
        page.keyboard.type("by-hand")
        press(page, "Enter")  # too early
        expect_focus(page.get_by_role("textbox", name="Image", exact=True))
        page.keyboard.type("registry.example.org/by-hand:1")
        tab_to(page.locator("[name='class']").first)
        press(page, "Space ArrowDown")
        expect_focus(page.get_by_role("radio", name="gpu-a100-mig"))
        expect(page.locator(".cm-content")).to_contain_text("name: by-hand-devices")
        expect(page.locator(".call.good")).to_be_visible()
        press(page, "Enter")
        expect(told(page)).to_contain_text("Created ResourceClaimTemplate by-hand-devices, Pod by-hand.")
        page.get_by_role("link", name="Duplicate").press("Enter")
        expect(page.get_by_role("textbox", name="YAML")).to_contain_text("by-hand-2")
    demo.api.delete(PODS.format(namespace="climate-ml", name="by-hand"))


@pytest.mark.long
def test_the_time_zone_is_set_without_a_mouse(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/account")
    zone = admin.get_by_label("Show times in")
    zone.focus()
    admin.keyboard.type("Europe/Berlin")
    press(admin, "Tab Enter")
    expect(admin.locator(".foot")).to_contain_text("Europe/Berlin")
    zone.focus()
    press(admin, "Home Tab Enter")
    expect(admin.locator(".foot")).not_to_contain_text("Europe/Berlin")


def test_a_quota_is_made_tried_set_and_taken_back_without_a_mouse(manager: BrowserContext, demo: Demo) -> None:
    with watched_page(manager, allowed=(REFUSED,)) as page:
        page.goto(f"{demo.web}/quotas")
        page.locator("#new summary").press("Enter")
        for text in ("speech", "by-keys", "gpu-hopper", "many"):
            press(page, "Tab")
            page.keyboard.type(text)
        press(page, "Enter")
        expect_focus(page.get_by_label("Devices at most"))
        press(page, "Control+A")
        page.keyboard.type("8")
        press(page, "Enter")
        expect(told(page)).to_contain_text("by-keys")
        page.locator("main input.input").first.focus()
        press(page, "Control+A")
        page.keyboard.type("20")
        press(page, "Enter")
        expect_focus(page.get_by_role("heading", name="What these limits would mean"))
        press(page, "Tab Tab Enter")
        expect(told(page)).to_contain_text("by-keys")
        press(page, "Tab Enter")
        expect(told(page)).to_contain_text("(1 change)")
        expect(page.locator("#quota-limits")).to_contain_text("of 8")
    demo.api.delete("/api/v1/namespaces/speech/resourcequotas/by-keys")


def test_one_signs_in_and_out_without_a_mouse(chromium: Browser, demo: Demo) -> None:
    context = new_context(chromium)
    page = context.new_page()
    page.goto(f"{demo.web}/login")
    expect_focus(page.get_by_label("Username"))  # given when the page is drawn, which may be after it is loaded
    page.keyboard.type("visitor")
    press(page, "Tab")
    page.keyboard.type(demo.passwords["visitor"])
    press(page, "Enter")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    press(page, "/")
    expect_focus(page.locator("#finder-q"))
    page.keyboard.type("sign out")
    press(page, "Enter")
    expect_focus(page.get_by_label("Username"))
    context.close()


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/infra-ci/resourceclaims"
#: Of a controller that is gone for good.
FINALIZER = "example.com/by-nobody"


@pytest.fixture
def held(demo: Demo) -> Iterator[str]:
    """The name of a claim that is deleted and does not go."""
    name = "held-by-keys"
    manifest = claim(name, namespace="infra-ci", device_class="gpu-l40s", finalizers=[FINALIZER])
    assert demo.api.post(CLAIMS, json=manifest).is_success
    demo.api.delete(f"{CLAIMS}/{name}")
    yield name
    assert demo.api.get(f"{CLAIMS}/{name}").status_code == 404


def test_a_claim_is_released_by_force_without_a_mouse(manager: BrowserContext, demo: Demo, held: str) -> None:
    with watched_page(manager, allowed=(GONE,)) as page:
        page.goto(f"{demo.web}/claims/infra-ci/{held}")
        page.get_by_role("link", name="Release by force…").press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(FINALIZER)
        expect_focus(dialog.get_by_role("link", name="Cancel"))
        press(page, "Tab")
        expect_focus(dialog.get_by_role("button", name="Release by force"))
        press(page, "Enter")
        expect(told(page)).to_contain_text(held)


CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
DRIVER = 'device.driver == "gpu.nvidia.com"'


def stored(demo: Demo, name: str) -> Any:
    return demo.get(f"{CLASSES}/{name}")["spec"]["selectors"][0]["cel"]["expression"]


def somebody_else_changes(demo: Demo, name: str) -> None:
    demo.patch(f"{CLASSES}/{name}", {"metadata": {"labels": {"team": "theirs"}}})


def test_a_class_is_written_saved_and_saved_over_a_conflict_without_a_mouse(
    manager: BrowserContext, demo: Demo
) -> None:
    with watched_page(manager, allowed=(REFUSED,)) as page:
        page.goto(f"{demo.web}/classes")
        page.get_by_role("link", name="New class").first.press("Enter")
        editor = editor_of(page, "Selector 1")
        expect(editor).to_be_visible()  # it takes the place of a field that could have the focus already
        page.get_by_label("Name", exact=True).focus()
        page.keyboard.type("bench-by-keys")
        press(page, "Tab Tab")
        expect_focus(editor)
        page.keyboard.insert_text(DRIVER)
        expect(page.locator('textarea[name="selector"]')).to_have_value(DRIVER)
        expect(page.locator("#savebar")).to_contain_text("Not saved yet")
        press(page, "Control+Enter")
        expect(told(page)).to_contain_text("bench-by-keys")
        editor.focus()
        press(page, "Control+End")
        page.keyboard.type(" && true")
        press(page, "Escape")
        expect(page.locator("#savebar")).to_contain_text(re.compile("lines? changed"))
        somebody_else_changes(demo, "bench-by-keys")
        press(page, "Control+Enter")
        expect_focus(page.get_by_role("heading", name="Not saved."))
        press(page, "Tab")
        expect_focus(page.get_by_role("link", name="Open it again"))
        press(page, "Enter")
        expect(page.locator("#savebar")).to_contain_text(re.compile("lines? changed"))
        page.get_by_role("button", name="Save class").press("Enter")
        expect(told(page)).to_contain_text("bench-by-keys")
    assert stored(demo, "bench-by-keys") == f"{DRIVER} && true"
    demo.api.delete(f"{CLASSES}/bench-by-keys")


def test_a_node_is_tainted_and_taken_back_without_a_mouse(admin: Page, demo: Demo) -> None:
    admin.goto(f"{demo.web}/nodes/gpu-b05")
    admin.get_by_role("link", name="Add taint…").press("Enter")
    expect_focus(admin.get_by_role("heading", name="Add a taint to gpu-b05"))
    press(admin, "Tab")
    admin.keyboard.type("example.com/by-keys")
    press(admin, "Enter")
    question = admin.get_by_role("heading", name="Taint gpu-b05 with example.com/by-keys")
    expect_focus(question)
    admin.get_by_role("link", name="Cancel").focus()
    press(admin, "Tab")
    expect_focus(admin.get_by_role("button", name="Add taint", exact=True))
    press(admin, "Enter")
    expect(told(admin)).to_contain_text("gpu-b05")
    expect(admin.locator("#node-taints")).to_contain_text("example.com/by-keys")
    press(admin, "Tab Enter")
    expect(told(admin)).to_contain_text(UNDONE)
    expect(admin.locator("#node-taints")).not_to_contain_text("example.com/by-keys")


PASSWORD = "correct horse battery"


def test_somebody_is_invited_shut_out_and_let_in_again_without_a_mouse(manager: BrowserContext, demo: Demo) -> None:
    with watched_page(manager, allowed=(REFUSED,)) as page:
        page.goto(f"{demo.web}/people")
        invitation = page.get_by_role("form", name="Invite somebody")
        invitation.get_by_label("Name", exact=True).focus()
        page.keyboard.type("admin")
        press(page, "Enter")
        expect(page.locator(".field-error")).to_contain_text("name is taken")
        expect_focus(invitation.get_by_label("Name", exact=True))
        press(page, "Control+A")
        page.keyboard.type("keyes")
        press(page, "Enter")
        expect_focus(page.get_by_role("heading", name="A link for keyes"))
        press(page, "Tab")
        expect_focus(page.locator("#link-text"))
        press(page, "Tab")
        expect_focus(page.get_by_role("button", name="Copy link"))
        page.get_by_label("May sign in and use tokens").press("Space")
        page.locator("#person").get_by_role("button", name="Save").press("Enter")
        expect(told(page)).to_contain_text("keyes")
        expect(page.locator("#person")).to_contain_text(texts.ACCOUNT_CLOSED)
        page.get_by_label("May sign in and use tokens").press("Space")
        page.locator("#person").get_by_role("button", name="Save").press("Enter")
        expect(told(page)).to_contain_text("keyes")
        expect(page.locator("#person")).to_contain_text(texts.NO_PASSWORD_YET)


LABEL = "metadata.labels.team"


@pytest.fixture
def shared(demo: Demo) -> Iterator[str]:
    """The name of a class with a label that two will change."""
    name = "yaml-by-keys"
    manifest = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "labels": {"team": "first"}},
        "spec": {},
    }
    assert demo.api.post(CLASSES, json=manifest).is_success
    yield name
    demo.api.delete(f"{CLASSES}/{name}")


def text_of(name: str, team: str) -> str:
    return (
        f"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata:\n  labels:\n    team: {team}\n"
        f"  name: {name}\nspec: {{}}\n"
    )


def team_of(demo: Demo, name: str) -> str:
    team: str = demo.get(f"{CLASSES}/{name}")["metadata"]["labels"]["team"]
    return team


def test_a_conflicting_edit_is_merged_and_saved_without_a_mouse(
    manager: BrowserContext, demo: Demo, shared: str
) -> None:
    with watched_page(manager, allowed=(REFUSED, "409")) as page:
        page.goto(f"{demo.web}/yaml/deviceclasses.resource.k8s.io/{shared}")
        editor_of(page, "DeviceClass").focus()
        press(page, "Control+A")
        page.keyboard.insert_text(text_of(shared, "mine"))
        press(page, "Tab Tab")
        expect_focus(page.get_by_role("button", name="Check"))
        press(page, "Enter")
        expect(page.locator("b:focus")).to_have_text("1 line changes")
        expect(page.locator(".diff .add")).to_contain_text("team: mine")
        somebody_else_changes(demo, shared)
        page.get_by_role("button", name="Save").press("Enter")
        expect_focus(page.get_by_role("heading", name="Somebody has changed it since you opened it"))
        press(page, "Tab")
        expect_focus(page.get_by_role("checkbox", name=f"Take mine of {LABEL}"))
        press(page, "Space Tab")
        expect_focus(page.get_by_role("button", name="Merge"))
        press(page, "Enter")
        expect_focus(page.locator("#h-meanwhile"))
        expect(editor_of(page, "DeviceClass")).to_contain_text("team: mine")
        editor_of(page, "DeviceClass").focus()
        press(page, "Tab Tab Tab")
        expect_focus(page.get_by_role("button", name="Save"))
        press(page, "Enter")
        expect(told(page)).to_contain_text(f"DeviceClass {shared}")
    assert team_of(demo, shared) == "mine"


# On a phone -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_finger_filters_the_grid_sees_the_answer_and_groups(phone: Page, demo: Demo) -> None:
    phone.goto(f"{demo.web}/devices")
    field = phone.get_by_label("Filter devices with a CEL expression")
    assert (field.bounding_box() or {"width": 0})["width"] > PHONE["width"] / 2
    filters, sheet = phone.get_by_role("button", name="Filters"), phone.locator("#asked")
    filters.tap()
    sheet.get_by_role("checkbox", name="Unhealthy").tap()
    sheet.get_by_role("button", name="Done").tap()
    expect(sheet).to_be_hidden()
    expect_focus(filters)
    expect(phone.locator("#filtered")).to_contain_text("2 of 395 match")
    filters.tap()
    sheet.get_by_role("link", name="Node", exact=True).tap()
    expect(phone).to_have_url(re.compile(r"state=bad.*group=node|group=node.*state=bad"))
    expect(phone.locator("#filtered")).to_contain_text("2 of 395 match")


@pytest.mark.long
def test_what_happened_leads_to_its_object_on_a_phone(phone: Page, demo: Demo) -> None:
    phone.goto(f"{demo.web}/overview")
    first = phone.locator("#events li").first
    time, line = first.locator("time").bounding_box(), first.locator(".sev").bounding_box()
    assert time
    assert line
    assert time["height"] < 2 * line["height"], "the time stands on one line"
    link = first.locator(".obj a")
    name = link.inner_text()
    link.tap()
    expect(phone.get_by_role("heading", level=1)).to_contain_text(name.rsplit("/", 1)[-1])


#: page, what is tapped there one after the other, and what is offered then
TAPS = [
    ("/pods/vision/video-caption-long", ["Replace pod: Without selector 1"], "Replace pod"),
    ("/claims/protein-fold/af3-screen-results", ["Release by force…"], "Release by force"),
    ("/nodes/gpu-b02", ["Drain…"], "Drain"),
    ("/devices?at=gpu.nvidia.com/gpu-b05/gpu-0", ["Taint, drain, export…"], "Taint…"),
    ("/pods/nlp-lab/llama-eval-3", ["Delete by force…"], "Delete by force"),
    ("/quotas/nlp-lab/gpus?try=1&hard.pods=3", [], "Set"),
    ("/taint-rules/firmware-gpu-a17", ["Delete…"], "Delete taint rule"),
    ("/incidents", ["8 devices of gpu-c03"], "Acknowledge"),
    ("/pods/vision/clip-eval-9", ["Duplicate"], "Create"),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("path", "taps", "offered"), TAPS, ids=[path.split("/")[1] for path, _, _ in TAPS])
def test_a_finger_comes_to_the_last_button_of_what_it_began(
    phone: Page, demo: Demo, path: str, taps: list[str], offered: str
) -> None:
    phone.goto(demo.web + path)
    for name in taps:
        phone.get_by_role("link", name=name).or_(phone.get_by_role("button", name=name)).first.tap()
    last = phone.get_by_role("button", name=offered).first
    last.tap(trial=True)  # nothing lies over it
    assert (last.bounding_box() or {"height": 0})["height"] >= 28
    assert phone.evaluate(TOO_WIDE, PHONE["width"]) == ""


def test_a_finger_makes_a_taint_rule_and_deletes_it(phone: Page, demo: Demo) -> None:
    phone.goto(f"{demo.web}/taint-rules/new")
    for label, text in {"Name": "by-finger", "Pool": "gpu-a18", "Key": "example.com/x"}.items():
        phone.get_by_label(label, exact=True).fill(text)
    phone.get_by_role("button", name="Preview").tap()
    phone.get_by_role("button", name="Create").tap()
    expect(told(phone)).to_contain_text("by-finger")
    phone.get_by_role("link", name="Delete…").tap()
    phone.get_by_role("button", name="Delete taint rule").tap()
    expect(told(phone)).to_contain_text(texts.TAINT_RULE_DELETED("by-finger"))


@pytest.mark.long
def test_a_finger_drags_over_a_chart_and_sees_that_stretch(phone: Page, demo: Demo) -> None:
    phone.goto(f"{demo.web}/usage")
    chart = phone.get_by_role("slider", name="Moment")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box
    touch = phone.context.new_cdp_session(phone)
    for kind, part in (("touchStart", 0.3), ("touchMove", 0.5), ("touchMove", 0.8)):
        points = [{"x": box["x"] + part * box["width"], "y": box["y"] + box["height"] / 2}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    expect(phone).to_have_url(re.compile("from=.*to="))
    expect_focus(chart)
    expect(chart).to_be_in_viewport()
