"""An object's YAML is checked, merged with what somebody else changed, and saved: by keyboard, and by a finger."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.e2e.pages.browser import REFUSED, editor_of, watched_page
from tests.e2e.pages.demo import Demo
from tests.e2e.pages.walking import expect_focus, press, told
from tests.scheduling.pages import texts

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
LABEL = "metadata.labels.team"


@pytest.fixture
def shared(demo: Demo, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a class with a label that two will change."""
    name = f"yaml-{'by-keys' if 'mouse' in request.node.name else 'by-finger'}"
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


def somebody_else_changes(demo: Demo, name: str) -> None:
    demo.patch(f"{CLASSES}/{name}", {"metadata": {"labels": {"team": "theirs"}}})


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
        expect_focus(page.get_by_role("heading", name=texts.MANIFEST_MERGED_BY_CHOICE))
        expect(editor_of(page, "DeviceClass")).to_contain_text("team: mine")
        editor_of(page, "DeviceClass").focus()
        press(page, "Tab Tab Tab")
        expect_focus(page.get_by_role("button", name="Save"))
        press(page, "Enter")
        expect(told(page)).to_contain_text(f"Saved DeviceClass {shared}.")
    assert team_of(demo, shared) == "mine"
