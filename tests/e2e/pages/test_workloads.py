"""Workloads in Chromium, against the running system: their buttons, the form of a Job, a phone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.api_client import Document, Hands
from tests.e2e.pages.browser import PHONE
from tests.e2e.pages.manifests import template
from tests.e2e.pages.tour import TOO_WIDE, Axe
from tests.e2e.processes import Up, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

DEPLOYMENTS, JOBS = "/apis/apps/v1/namespaces/demo/deployments", "/apis/batch/v1/namespaces/demo/jobs"
CRON_JOBS, QUOTAS = "/apis/batch/v1/namespaces/demo/cronjobs", "/api/v1/namespaces/demo/resourcequotas"
#: The longest that names of Deployments and Jobs can be whose pods shall start, and of CronJobs.
LONG, LONG_CRON = "n" * 63, "n" * 52
WIDTHS = (PHONE["width"], 768, 1440, 2560)


def pod_spec(gpus_of: str = "", **more: object) -> Document:
    container: Document = {"name": "main", "image": "example.com/main"}
    spec: Document = {"containers": [container], **more}
    if gpus_of:
        container["resources"] = {"claims": [{"name": "gpus"}]}
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": gpus_of}]
    return spec


def deployment(name: str, replicas: int, gpus_of: str) -> Document:
    labels = {"app": name}
    template_ = {"metadata": {"labels": labels}, "spec": pod_spec(gpus_of)}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template_}
    meta = {"name": name, "namespace": "demo"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def job(name: str, gpus_of: str, **spec: object) -> Document:
    inner = {"template": {"spec": pod_spec(gpus_of, restartPolicy="Never")}, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "demo"}, "spec": inner}


def spec_of(hands: Hands, path: str) -> Document:
    found = hands.find(path)
    assert found is not None, path
    spec: Document = found["spec"]
    return spec


@pytest.fixture
def hall(hands: Hands) -> Iterator[Hands]:
    """Templates of one GPU and of eight; whatever a test leaves goes with them."""
    hands.apply(template("one", 1), template("eight", 8))
    yield hands
    for collection in (DEPLOYMENTS, CRON_JOBS, JOBS, QUOTAS):
        for found in hands.listed(collection):
            hands.delete(f"{collection}/{found['metadata']['name']}")
    hands.clear("demo", "Pod", "ResourceClaim", "ResourceClaimTemplate")


def test_a_deployment_is_scaled_restarted_paused_and_deleted_by_its_buttons(hall: Hands, page: Page, up: Up) -> None:
    hall.made(DEPLOYMENTS, deployment("web", 1, "one"))
    page.goto(f"{up.web}/workloads")
    row = page.get_by_role("row", name="web")
    expect(row).to_contain_text(re.compile(r"Ready.*1/1", re.DOTALL))
    row.get_by_role("link", name="web").click()
    expect(page.get_by_role("heading", name="web", exact=True)).to_be_visible()

    page.get_by_role("link", name="Scale…").click()
    dialog = page.get_by_role("dialog")
    at = page.url
    dialog.get_by_label("Number of pods").fill("many")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("alert")).to_contain_text("whole number")
    dialog.get_by_label("Number of pods").fill("3")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog).to_contain_text("1 become 3")
    assert page.url == at, "the preview is within the dialog"
    dialog.get_by_role("button", name="Scale Deployment").click()
    expect(page.locator("#workload-head")).to_contain_text("3 of 3")
    assert spec_of(hall, f"{DEPLOYMENTS}/web")["replicas"] == 3

    page.get_by_role("link", name="Pause…").click()
    dialog.get_by_role("button", name="Pause Deployment").click()
    expect(page.locator("#workload-head")).to_contain_text("Paused")
    page.get_by_role("link", name="Resume…").click()
    dialog.get_by_role("button", name="Resume Deployment").click()
    expect(page.locator("#workload-head")).to_contain_text("Ready")

    page.get_by_role("link", name="Restart…").click()
    dialog.get_by_role("button", name="Restart Deployment").click()
    page.get_by_role("link", name="Revisions").click()
    expect(page.get_by_role("heading", name="Revision 2")).to_be_visible()
    page.get_by_role("link", name="Roll back to it…").click()
    dialog.get_by_role("button", name="Roll back to revision 1").click()
    expect(page.get_by_role("heading", name="web", exact=True)).to_be_visible()

    page.get_by_role("link", name="Delete…").click()
    expect(dialog).to_contain_text("web-")
    dialog.get_by_role("button", name="Delete Deployment").click()
    expect(page).to_have_url(re.compile("/workloads$"))
    expect(page.get_by_role("row", name="web")).to_have_count(0)


def placed(hall: Hands, job: str) -> int:
    """Of its pods."""
    pods = hall.listed("/api/v1/namespaces/demo/pods")
    return sum(pod["metadata"]["name"].startswith(job) and "nodeName" in pod["spec"] for pod in pods)


def test_a_job_waits_on_a_phone_with_its_place_and_is_stopped(hall: Hands, page: Page, up: Up) -> None:
    page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    for number in range(3):
        hall.made(JOBS, job(f"holds-{number}", "eight", activeDeadlineSeconds=3600))
    wait_for("every device to be held", lambda: placed(hall, "holds-") == 3)
    hall.made(JOBS, job("train", "one", completions=5, parallelism=2, completionMode="Indexed"))
    page.goto(f"{up.web}/workloads/jobs/demo/train")
    place = page.locator("#workload-place")
    expect(place).to_contain_text("1 of 2")
    expect(place).to_contain_text(re.compile("in about|any moment"))
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.get_by_role("link", name="Stop…").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop Job").click()
    expect(page.locator("#workload-head")).to_contain_text("Suspended")
    expect(place).to_be_empty()


def cron_job(name: str) -> Document:
    spec = {"schedule": "30 2 * * *", "timeZone": "Europe/Berlin", "jobTemplate": {"spec": job("x", "")["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name, "namespace": "demo"}, "spec": spec}


def test_a_cron_job_is_run_suspended_and_resumed_by_its_buttons(hall: Hands, page: Page, up: Up) -> None:
    hall.made(CRON_JOBS, cron_job("nightly"))
    page.goto(f"{up.web}/workloads/cronjobs/demo/nightly")
    runs, dialog = page.locator("[aria-labelledby=h-schedule] time"), page.get_by_role("dialog")
    expect(runs).to_have_count(5)
    page.get_by_role("link", name="Run now…").click()
    dialog.get_by_role("button", name="Run now CronJob").click()
    expect(page).to_have_url(re.compile("/workloads/jobs/demo/nightly"))
    page.get_by_role("link", name="CronJob nightly").click()
    expect(page.locator("[aria-labelledby=h-jobs] tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Suspend…").click()
    dialog.get_by_role("button", name="Suspend CronJob").click()
    expect(page.locator("#workload-head")).to_contain_text("Suspended")
    expect(runs).to_have_count(0)
    page.get_by_role("link", name="Resume…").click()
    dialog.get_by_role("button", name="Resume CronJob").click()
    expect(runs).to_have_count(5)


def test_a_quota_that_refuses_pods_is_opened_from_the_deployment(hall: Hands, page: Page, up: Up) -> None:
    few = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "demo"}}
    hall.made(QUOTAS, few | {"spec": {"hard": {"pods": "1"}}})
    hall.made(DEPLOYMENTS, deployment("web", 3, "one"))
    page.goto(f"{up.web}/workloads/deployments/demo/web")
    expect(page.locator("#why")).to_contain_text("few")
    page.get_by_role("link", name="Open quota").click()
    expect(page).to_have_url(re.compile("/quotas/demo/few.*pods=3"))
    expect(page.locator("#live")).to_have_attribute("data-state", "live")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_longest_names_fit_at_every_width(
    scheme: Literal["light", "dark"], hall: Hands, page: Page, up: Up
) -> None:
    hall.made(DEPLOYMENTS, deployment(LONG, 1, "one"))
    hall.made(CRON_JOBS, cron_job(LONG_CRON))
    hall.made(JOBS, job(LONG, "eight", completions=5, parallelism=2))
    web, train = f"/workloads/deployments/demo/{LONG}", f"/workloads/jobs/demo/{LONG}"
    cron = f"/workloads/cronjobs/demo/{LONG_CRON}"
    page.emulate_media(color_scheme=scheme)
    axe = Axe(page)
    for path in ("/workloads", web, f"{web}?tab=rollout", f"{web}/scale?pods=3", train, f"{train}/rerun", cron,
                 "/pods/new?kind=Job"):  # fmt: skip
        page.goto(up.web + path)
        expect(page.locator("#live")).to_have_attribute("data-state", "live")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_function(f"(width) => !({TOO_WIDE})(width)", arg=width)
            if into := os.environ.get("SHOTS"):
                name = path.replace(LONG, "x").replace("n" * 52, "x").strip("/").replace("/", "-").partition("?")[0]
                page.screenshot(path=f"{into}/{name}-{width}-{scheme}.png", full_page=True)
        axe.read()
        assert axe.find() == [], path


def test_the_form_makes_a_job_with_its_yaml_in_step(hall: Hands, page: Page, up: Up) -> None:
    page.goto(f"{up.web}/pods/new?ns=demo")
    expect(page.get_by_label("Completions")).to_be_hidden()
    page.get_by_label("Kind").select_option("Job")
    expect(page.get_by_label("Completions")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("sweep")
    page.get_by_label("Image", exact=True).fill("example.com/sweep")
    page.get_by_label("Completions").fill("4")
    page.get_by_label("Time limit").fill("2h")
    page.get_by_label("Which pods").select_option("Indexed")
    page.get_by_label("Failures allowed").fill("0")
    page.get_by_role("radio", name="gpu", exact=False).first.check()
    yaml = page.locator("#yaml")
    expect(yaml).to_have_value(re.compile("kind: Job"))
    expect(yaml).to_have_value(re.compile("completions: 4"))
    expect(yaml).to_have_value(re.compile("activeDeadlineSeconds: 7200"))
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page).to_have_url(re.compile("/workloads/jobs/demo/sweep$"))
    spec = spec_of(hall, f"{JOBS}/sweep")
    assert (spec["completions"], spec["activeDeadlineSeconds"]) == (4, 7200)
    assert (spec["completionMode"], spec["backoffLimit"]) == ("Indexed", 0)


def test_the_form_asks_for_an_extended_resource_and_follows_the_yaml(hall: Hands, page: Page, up: Up) -> None:
    page.goto(f"{up.web}/pods/new?ns=demo&kind=Job")
    page.get_by_label("Name", exact=True).fill("sweep")
    page.get_by_label("Image", exact=True).fill("example.com/sweep")
    page.get_by_role("radio", name="An extended resource").check()
    resources = page.get_by_label("Resource", exact=True)
    resources.select_option(index=1)
    name = resources.input_value()
    page.get_by_label("Number of it").fill("2")
    yaml = page.locator("#yaml")
    expect(yaml).to_have_value(re.compile(f"{re.escape(name)}: 2"))
    page.get_by_label("CPU").focus()
    page.evaluate(
        """(name) => {
      const area = document.getElementById("yaml");
      Editors.set(area, area.value.replace(`${name}: 2`, `${name}: 3`));
    }""",
        name,
    )
    expect(page.get_by_label("Number of it")).to_have_value("3")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page).to_have_url(re.compile("/workloads/jobs/demo/sweep$"))
    (container,) = spec_of(hall, f"{JOBS}/sweep")["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {name: "3"}
