"""Jobs on the dashboard: how far they are, their time limit, stopping, resuming, running again; CronJobs and theirs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from django.test import Client
from msgspec.structs import replace

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from dashboard.workloads.pods import composer
from dashboard.workloads.pods.composer import limit_of, seconds_of
from insight.start_estimates import latest_ends
from inventory.kinds.devices import DeviceClass
from manciple.api import verbs
from manciple.api.namespaces import ensure_namespaces
from manciple.audit import searching
from manciple.store import objects
from manciple.wire.base import timestamp
from manciple.wire.identity import SYSTEM, VIEWERS
from tests.builders import make_request, make_template
from tests.dashboard import texts
from tests.dashboard.browsing import admin, member, signed_in, viewer, words
from tests.dashboard.workload_scene import gpu_template, grant, let_run, work
from tests.scheduling.cluster import Cluster
from tests.workloads.cluster import make_cron_job, make_job
from workloads.kinds.cron_jobs import CronJob
from workloads.kinds.jobs import JOB, Job
from workloads.models import Workload

__all__ = ["admin", "viewer"]

TRAIN = "/workloads/jobs/default/train"
CLAIM_KINDS = ("resourceclaims", "resourceclaimtemplates")


def trains(cluster: Cluster, name: str = "train", *, gpus: int = 0, **spec: Any) -> Job:
    ensure_namespaces()
    if gpus:
        cluster.create(make_template(name, requests=[make_request(count=gpus)]))
        plain = gpu_template(template=name)
        spec["template"] = replace(plain, spec=replace(plain.spec, restart_policy="Never"))
    cluster.now = datetime.now(UTC)  # a Job begins by the server's clock
    made: Job = verbs.create(JOB, make_job(name, **spec), namespace="default", identity=SYSTEM)
    work(cluster)
    return made


def ends(cluster: Cluster, name: str, phase: str = "Succeeded") -> None:
    cluster.finish(name, phase)
    work(cluster)


def acts(client: Client, path: str = TRAIN) -> list[str]:
    return [key for key, _, _ in client.get(path).context["page"].acts]


def test_an_indexed_job_on_few_devices_shows_how_far_it_is(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=2)
    trains(cluster, gpus=1, completions=5, parallelism=3, completion_mode="Indexed", active_deadline_seconds=3600)
    let_run(cluster)
    page = admin.get(TRAIN).context["page"]
    assert (page.summary.state, page.devices, dict(page.counts)) == ("Running", 2, {"Waiting": 1, "Running": 2})
    assert page.why.waits
    assert (page.place.position, page.place.of) == (1, 1)
    first = next(pod.metadata.name for pod in cluster.all(Pod) if pod.metadata.name.startswith("train-0-"))
    ends(cluster, first)
    progress = admin.get(TRAIN).context["page"].progress
    assert (progress.succeeded, progress.completions, progress.succeeded_indexes, progress.limit) == (1, 5, "0", 3600)
    assert progress.active == 3
    assert 0 < progress.left <= 3600
    row = Workload.objects.get(name="train")
    assert (row.wanted, row.ready, row.time_limit) == (5, 1, 3600)
    text = admin.get(TRAIN).content.decode()
    assert f'href="/pods/default/{first}?tab=logs"' in text


def test_the_time_limit_of_a_job_is_what_its_devices_are_expected_back_by(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    trains(cluster, gpus=1, active_deadline_seconds=600)
    trains(cluster, "later", gpus=1)
    started = cluster.get(Job, "train").status.start_time
    place = admin.get("/workloads/jobs/default/later").context["page"].place
    assert place.starts_at is not None
    assert timestamp(place.starts_at - timedelta(seconds=600)) == started


def test_a_time_limit_is_extended_by_who_may(admin: Client, viewer: Client, cluster: Cluster) -> None:
    made = trains(cluster, active_deadline_seconds=600)
    assert "extend" in acts(admin)
    assert viewer.get(f"{TRAIN}/extend").status_code == 403
    preview = admin.get(f"{TRAIN}/extend").context["preview"]
    assert (preview.asked, "1 h 10 min" in str(preview.effect)) == ("60", True)
    assert admin.get(f"{TRAIN}/extend?minutes=0").status_code == 422
    assert admin.get(f"{TRAIN}/extend?minutes=x").status_code == 422
    admin.post(f"{TRAIN}/extend", {"minutes": "30", "uid": made.metadata.uid})
    assert cluster.get(Job, "train").spec.active_deadline_seconds == 2400


def test_a_job_without_a_time_limit_gets_one_from_who_may_change_it(admin: Client, cluster: Cluster) -> None:
    made = trains(cluster)
    preview = admin.get(f"{TRAIN}/extend").context["preview"]
    assert (preview.word, bool(preview.label), preview.effect.refused) == (texts.SET_TIME_LIMIT, True, "")
    assert "1 h" in str(preview.effect)
    grant("timekeepers", ("patch", "jobs.batch/timelimit"))
    tess = signed_in("tess", VIEWERS, "timekeepers")
    refused = tess.get(f"{TRAIN}/extend").context["preview"]
    assert (bool(refused.effect.refused), refused.label) == (True, "")
    form = {"minutes": "90", "uid": made.metadata.uid}
    assert tess.post(f"{TRAIN}/extend", form).status_code == 409
    assert cluster.get(Job, "train").spec.active_deadline_seconds is None
    assert admin.post(f"{TRAIN}/extend", form).status_code == 302
    assert cluster.get(Job, "train").spec.active_deadline_seconds == 5400
    assert tess.get(f"{TRAIN}/extend").context["preview"].word == "Extend"


def test_what_a_job_cannot_do_now_is_said(admin: Client, cluster: Cluster) -> None:
    made = trains(cluster, active_deadline_seconds=600)
    (pod,) = cluster.all(Pod)
    ends(cluster, pod.metadata.name)
    for act in ("extend", "stop", "resume"):
        preview = admin.get(f"{TRAIN}/{act}").context["preview"]
        assert ("ended" in preview.effect.refused, preview.label) == (True, ""), act
        assert admin.post(f"{TRAIN}/{act}", {"uid": made.metadata.uid, "minutes": "5"}).status_code == 409, act
    assert cluster.get(Job, "train").spec.active_deadline_seconds == 600
    assert admin.get(f"{TRAIN}/scale").status_code == 404, "no Job has that"


def test_a_job_that_may_have_no_pod_says_so(admin: Client, cluster: Cluster) -> None:
    trains(cluster, parallelism=0, completions=3)
    page = admin.get(TRAIN).context["page"]
    assert (page.summary.state, page.why.verdict.title) == ("Paused", page.summary.reason)
    assert "parallelism" in page.summary.reason
    assert Workload.objects.get(name="train").reason == page.summary.reason


# Time limits that run out in the queue --------------------------------------------------------------------------------


def queued(cluster: Cluster, *, limit: int, held_for: int = 600) -> str:
    """A Job that waits for the one GPU, which is held for so many seconds; returns the name of its pod."""
    ensure_namespaces()
    cluster.with_gpus("node-1", each=1)
    trains(cluster, "holds", gpus=1, active_deadline_seconds=held_for)
    trains(cluster, gpus=1, active_deadline_seconds=limit)
    return next(pod.metadata.name for pod in cluster.all(Pod) if not pod.spec.node_name)


@pytest.mark.parametrize(
    ("limit", "words_"),
    [(300, "before the estimated start"), (900, "would be left"), (3600, ""), (2**62, "")],
    ids=["over by then", "little left", "enough left", "endless"],
)
def test_a_time_limit_that_waiting_uses_up_is_warned_of(
    limit: int, words_: str, admin: Client, viewer: Client, cluster: Cluster
) -> None:
    pod = queued(cluster, limit=limit)
    page = admin.get(TRAIN).context["page"]
    assert (bool(words_), words_ in page.place.warning) == (bool(page.place.warning), True)
    context = admin.get(f"/pods/default/{pod}").context
    assert (context["queue_place"].warning, context["extend_url"]) == (page.place.warning, f"{TRAIN}/extend")
    shown = f'href="{TRAIN}/extend"' in admin.get(f"/pods/default/{pod}").content.decode()
    assert shown == bool(words_)
    assert viewer.get(f"/pods/default/{pod}").context["extend_url"] == ""
    assert viewer.get(TRAIN).context["page"].extend_url == ""


def test_the_form_warns_of_a_time_limit_that_the_queue_uses_up(admin: Client, cluster: Cluster) -> None:
    queued(cluster, limit=3600)
    told = {limit: made(admin, name="new", time_limit=limit)["started"].text for limit in ("10m", "75m", "7d", "")}
    assert texts.ENDS_BEFORE_ESTIMATED_START in told["10m"], "it comes after both: 70 min"
    assert "would be left" in told["75m"]
    assert (told["7d"], told[""]) == ("", "")


def test_a_limit_whose_end_nobody_can_foresee_is_told_when_little_is_left(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    trains(cluster, "endless", gpus=1)
    made_ = trains(cluster, gpus=1, active_deadline_seconds=600)
    assert admin.get(TRAIN).context["page"].place.warning == ""
    began = datetime.now(UTC) - timedelta(seconds=400)
    status = replace(cluster.get(Job, "train").status, start_time=timestamp(began))
    with objects.writing() as writer:
        writer.update(JOB, replace(cluster.get(Job, "train"), status=status), subresource="status")
    assert "left" in admin.get(TRAIN).context["page"].place.warning
    assert made_.spec.active_deadline_seconds == 600


def test_a_job_offers_to_tell_of_its_end_until_somebody_has_asked(admin: Client, cluster: Cluster) -> None:
    trains(cluster)
    url = admin.get(TRAIN).context["page"].notify_url
    form = admin.get(url.partition("#")[0]).context["rule_form"]
    assert form["happening"].value() == "job-ended"
    admin.post("/notifications/rules", {"happening": "job-ended", "scope": "", "channels": ["browser"]})
    assert admin.get(TRAIN).context["page"].notify_url == ""
    for pod in cluster.all(Pod):
        ends(cluster, pod.metadata.name)
    assert signed_in("ann", VIEWERS).get(TRAIN).context["page"].notify_url == "", "it has ended"


def test_a_job_whose_limit_ran_out_in_the_queue_never_started(admin: Client, cluster: Cluster) -> None:
    queued(cluster, limit=300)
    cluster.later(300)
    work(cluster)
    page = admin.get(TRAIN).context["page"]
    assert page.summary.state == "Failed"
    assert texts.WAITED_AND_NEVER_STARTED("5 min", "5 min") in page.why.verdict.title
    (row,) = (row for row in admin.get("/workloads?q=train").context["table"].rows)
    assert row.why == page.why.verdict.title
    assert [one.word for one in page.conditions] == ["End"], "what announced it is not repeated"
    condition = next(one for one in cluster.get(Job, "train").status.conditions if one.type == "Failed")
    assert condition.reason == "DeadlineExceeded", "Kubernetes' own words stay in the object"
    assert "waited" not in condition.message
    cluster.later(300)
    work(cluster)
    ran = admin.get("/workloads/jobs/default/holds").context["page"]
    assert (ran.summary.state, ran.why.verdict.title) == ("Failed", ran.summary.reason)
    assert "never" not in ran.why.verdict.title


def test_who_holds_a_device_gives_it_back_by_the_limit_of_its_job(admin: Client, cluster: Cluster) -> None:
    pod = queued(cluster, limit=3600)
    (line,) = admin.get(f"/pods/default/{pod}").context["why"].held.lines
    assert line.free_again.startswith("in ")
    holder = next(one for one in cluster.all(Pod) if one.spec.node_name)
    panel = admin.get("/devices/d/gpu.example.com/node-1/gpu-0").content.decode()
    assert "Free again: by" in panel
    ends_at = admin.get("/workloads/jobs/default/holds").context["page"].progress.ends_at
    assert latest_ends([holder.key]) == {holder.key: ends_at}


def test_a_job_is_stopped_and_resumed(admin: Client, cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    uid = {"uid": trains(cluster, gpus=1).metadata.uid}
    effect = admin.get(f"{TRAIN}/stop").context["preview"].effect
    assert any("1 device" in " ".join(line.sentences) for line in effect.consequences if line.term == "Frees")
    admin.post(f"{TRAIN}/stop", uid)
    work(cluster)
    assert admin.get(TRAIN).context["page"].summary.state == "Suspended"
    assert acts(admin) == ["resume", "extend", "rerun", "delete"]
    admin.post(f"{TRAIN}/resume", uid)
    work(cluster)
    assert acts(admin) == ["stop", "extend", "rerun", "delete"]
    assert cluster.get(Job, "train").spec.suspend is False


def test_a_job_that_has_ended_is_run_again_under_another_name(admin: Client, cluster: Cluster) -> None:
    made = trains(cluster, completions=2, parallelism=2)
    for pod in cluster.all(Pod):
        ends(cluster, pod.metadata.name)
    page = admin.get(TRAIN).context["page"]
    assert (page.summary.state, page.summary.ready) == ("Complete", 2)
    assert acts(admin) == ["rerun", "delete"]
    assert words(admin, f"{TRAIN}/rerun").count("Job") > 1
    answer = admin.post(f"{TRAIN}/rerun", {"uid": made.metadata.uid})
    assert answer["Location"] == "/workloads/jobs/default/train-2"
    again = cluster.get(Job, "train-2")
    assert again.spec.selector != made.spec.selector, "each Job has pods of its own"
    assert (again.spec.completions, again.status.succeeded) == (2, 0)
    work(cluster)
    assert cluster.get(Job, "train-2").status.active == 2


def test_a_failed_job_says_why(admin: Client, cluster: Cluster) -> None:
    trains(cluster, backoff_limit=0)
    (pod,) = cluster.all(Pod)
    ends(cluster, pod.metadata.name, "Failed")
    page = admin.get(TRAIN).context["page"]
    assert (page.summary.state, page.why.verdict.title) == ("Failed", page.summary.reason)
    assert (page.why.of, page.place) == ((pod.metadata.uid, *pod.key), None)
    assert page.summary.finished_at is not None
    assert Workload.objects.get(name="train").reason == page.summary.reason != ""


NIGHTLY = "/workloads/cronjobs/default/nightly"


def test_a_cron_job_shows_its_jobs_and_its_next_runs_and_runs_one_now(admin: Client, cluster: Cluster) -> None:
    made = cluster.create(make_cron_job("nightly", schedule="30 2 * * *", time_zone="Europe/Berlin"))
    work(cluster)
    page = admin.get(NIGHTLY).context["page"]
    assert (page.summary.state, acts(admin, NIGHTLY)) == ("Scheduled", ["suspend", "run", "delete"])
    berlin = [at.astimezone(ZoneInfo("Europe/Berlin")) for at in page.runs.following]
    assert [(at.hour, at.minute) for at in berlin] == [(2, 30)] * 5
    assert [(later - at).days for at, later in pairwise(berlin)] == [1] * 4
    assert berlin[0] > datetime.now(UTC)
    assert (page.runs.last, page.runs.last_success) == (None, None)
    answer = admin.post(f"{NIGHTLY}/run", {"uid": made.metadata.uid})
    work(cluster)
    (job,) = cluster.all(Job)
    assert answer["Location"] == f"/workloads/jobs/default/{job.metadata.name}"
    page = admin.get(NIGHTLY).context["page"]
    assert ([one.row.name for one in page.children], page.number) == ([job.metadata.name], 1)
    assert admin.get(answer["Location"]).context["page"].above.title == "CronJob nightly"


def test_a_cron_job_is_suspended_and_resumed(admin: Client, cluster: Cluster) -> None:
    uid = {"uid": cluster.create(make_cron_job("nightly", schedule="@daily")).metadata.uid}
    assert admin.get(f"{NIGHTLY}/stop").status_code == 404, "its Jobs are not stopped"
    admin.post(f"{NIGHTLY}/suspend", uid)
    assert cluster.get(CronJob, "nightly").spec.suspend
    assert admin.get(NIGHTLY).context["page"].runs.following == []
    assert acts(admin, NIGHTLY) == ["resume", "run", "delete"]
    admin.post(f"{NIGHTLY}/resume", uid)
    assert not cluster.get(CronJob, "nightly").spec.suspend
    assert len(admin.get(NIGHTLY).context["page"].runs.following) == 5


def test_a_schedule_that_is_never_due_again_has_no_next_run(admin: Client, cluster: Cluster) -> None:
    cluster.create(make_cron_job("nightly", schedule="0 0 30 2 *"))
    assert admin.get(NIGHTLY).context["page"].runs.following == []


@pytest.mark.parametrize(("longest", "spec"), [(63, {}), (61, {"completions": 9}), (60, {"completions": 11})], ids=str)
def test_a_job_with_the_longest_name_is_run_again(
    longest: int, spec: dict[str, Any], admin: Client, cluster: Cluster
) -> None:
    name = "j" * longest
    made = trains(cluster, name, **(spec and {"completion_mode": "Indexed", "parallelism": 1, **spec}))
    answer = admin.post(f"/workloads/jobs/default/{name}/rerun", {"uid": made.metadata.uid})
    assert answer["Location"] == f"/workloads/jobs/default/{name[:-2]}-2"


def test_a_role_lets_somebody_extend_time_limits_and_nothing_else(cluster: Cluster) -> None:
    made = trains(cluster, active_deadline_seconds=600)
    tess, form = signed_in("tess", VIEWERS, "timekeepers"), {"minutes": "30", "uid": made.metadata.uid}
    assert (acts(tess), tess.post(f"{TRAIN}/extend", form).status_code) == ([], 403)
    grant("timekeepers", ("patch", "jobs.batch/timelimit"))
    assert acts(tess) == ["extend"]
    answer = tess.post(f"{TRAIN}/extend", form)
    assert answer.status_code == 302, answer.context["preview"].error
    assert cluster.get(Job, "train").spec.active_deadline_seconds == 2400
    for act in ("stop", "rerun", "delete"):
        assert tess.post(f"{TRAIN}/{act}", form).status_code == 403, act


@pytest.mark.parametrize("act", ["stop", "rerun", "delete"])
def test_a_stranger_does_nothing_to_a_job(act: str, cluster: Cluster) -> None:
    made = trains(cluster)
    stranger = signed_in("sam", "namespace:other")
    assert stranger.post(f"{TRAIN}/{act}", {"uid": made.metadata.uid}).status_code == 404
    assert len(cluster.all(Job)) == 1
    mia = member("mia", "default")
    assert mia.post(f"{TRAIN}/{act}", {"uid": made.metadata.uid}).status_code == 302


# The form ------------------------------------------------------------------------------------------------------------

FORM = {
    "from": "form", "kind": "Job", "name": "train", "namespace": "default", "image": "example.com/x",
    "devices": "class", "class": "gpu.example.com", "completions": "50", "parallelism": "8", "time_limit": "2h",
}  # fmt: skip


def made(client: Client, **fields: str) -> Any:
    return client.post("/pods/new/made", {**FORM, **fields}).context


def test_a_job_is_made_by_the_form_with_devices_and_a_time_limit(admin: Client, cluster: Cluster) -> None:
    ensure_namespaces()
    cluster.with_gpus("node-1", each=2)
    context = made(admin)
    assert (context["form"].composed.problem, context["form"].composed.kept) == ("", [])
    assert context["started"].good
    answer = admin.post("/pods/new", FORM)
    assert answer.headers.get("Location") == "/workloads/jobs/default/train", answer.content.decode()
    spec = cluster.get(Job, "train").spec
    assert (spec.completions, spec.parallelism, spec.active_deadline_seconds) == (50, 8, 7200)
    assert spec.template.spec.restart_policy == "Never"
    work(cluster)
    assert len([pod for pod in cluster.all(Pod) if pod.spec.node_name]) == 2
    assert len(cluster.all(Pod)) == 8


def test_a_pod_becomes_a_job_and_back_and_what_it_says_besides_stays(admin: Client, cluster: Cluster) -> None:
    ensure_namespaces()
    cluster.with_gpus("node-1", each=2)
    pod = made(admin, kind="Pod", time_limit="90m")["form"].composed
    assert "activeDeadlineSeconds: 5400" in pod.text
    assert "completions" not in pod.text, "a Pod has none"
    text = pod.text.replace("name: main\n", "name: main\n    workingDir: /srv\n")
    job = made(admin, kind="Job", time_limit="90m", yaml=text, base=text)["form"].composed
    document = next(one for one in yaml.safe_load_all(job.text) if one["kind"] == "Job")
    assert (document["apiVersion"], document["spec"]["activeDeadlineSeconds"]) == ("batch/v1", 5400)
    inner = document["spec"]["template"]["spec"]
    assert (inner["containers"][0]["workingDir"], inner["restartPolicy"]) == ("/srv", "Never")
    assert "activeDeadlineSeconds" not in inner
    assert job.kept == ["spec.template.spec.containers[0].workingDir"]
    back = made(admin, kind="Pod", time_limit="90m", yaml=job.text, base=job.base)["form"].composed
    assert yaml.safe_load_all(back.text) is not None
    assert [*yaml.safe_load_all(back.text)] == [*yaml.safe_load_all(text)]


def test_the_form_follows_a_jobs_yaml(admin: Client, cluster: Cluster) -> None:
    ensure_namespaces()
    first = made(admin)["form"].composed
    text = first.text.replace("completions: 50", "completions: 7").replace("7200", "45")
    values = json.loads(first.in_json)
    followed = admin.post("/pods/new/made", {**values, "yaml": text, "base": first.base}).context["form"].composed
    assert (followed.values["completions"], followed.values["time_limit"], followed.text) == ("7", "45s", text)


def test_an_indexed_job_asks_for_an_extended_resource(admin: Client, cluster: Cluster) -> None:
    ensure_namespaces()
    cluster.with_gpus("node-1", each=2)
    serving = cluster.get(DeviceClass, "gpu.example.com")
    cluster.update(replace(serving, spec=replace(serving.spec, extended_resource_name="example.com/gpu")))
    offers = admin.get("/pods/new?kind=Job").context["page"].form
    assert offers.text("kind") == "Job"
    assert "example.com/gpu" in dict(offers.fields["resource"].widget.choices)
    of_resource = {
        "devices": "resource", "resource": "example.com/gpu", "amount": "1", "completion_mode": "Indexed",
        "backoff_limit": "0", "completions": "2", "parallelism": "2",
    }  # fmt: skip
    context = made(admin, **of_resource)
    assert (context["form"].composed.problem, context["form"].composed.kept) == ("", [])
    assert context["started"].good
    answer = admin.post("/pods/new", FORM | of_resource)
    assert answer.headers.get("Location") == "/workloads/jobs/default/train", answer.content.decode()
    spec = cluster.get(Job, "train").spec
    assert (spec.completion_mode, spec.backoff_limit, spec.completions) == ("Indexed", 0, 2)
    work(cluster)
    assert len([pod for pod in cluster.all(Pod) if pod.spec.node_name]) == 2
    assert len([claim for claim in cluster.all(ResourceClaim) if claim.status.allocation]) == 2


RESOURCES = {
    "a limit": ("limits: {example.com/gpu: 2}", "resource", "example.com/gpu", "2", []),
    "a limit and the same request": (
        "limits: {example.com/gpu: 2}\n      requests: {example.com/gpu: 2}", "resource", "example.com/gpu", "2", []
    ),
    "a class by its name": (
        "limits: {deviceclass.resource.kubernetes.io/gpu: '1'}",
        "resource", "deviceclass.resource.kubernetes.io/gpu", "1", [],
    ),
    "two resources": ("limits: {example.com/gpu: 2, example.com/nic: 1}", "yaml", "", "1", ["gpu", "nic"]),
    "another request": (
        "limits: {example.com/gpu: 2}\n      requests: {example.com/gpu: 1}", "yaml", "", "1", ["gpu", "gpu"]
    ),
    "a request alone": ("requests: {example.com/gpu: 1}", "yaml", "", "1", ["gpu"]),
    "what is no device": ("limits: {ephemeral-storage: 1Gi}", "none", "", "1", ["ephemeral-storage"]),
    "no mapping": ("limits: [example.com/gpu]", "none", "", "1", ["limits"]),
}  # fmt: skip


@pytest.mark.parametrize("case", RESOURCES)
def test_the_form_reads_extended_resources(case: str) -> None:
    resources, source, name, amount, kept = RESOURCES[case]
    text = f"""apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: x
    resources:
      {resources}
"""
    read = composer.read(text)
    shown = tuple(read.values[name] for name in ("devices", "resource", "amount"))
    assert shown == (source, name, amount)
    assert [path.rpartition("/")[2].rpartition(".")[2] for path in read.kept] == kept


CHOICES = (
    "kind",
    "devices",
    "completion_mode",
    "device_class",
    "together",
    "share_of",
    "resource",
    "template",
    "model",
)


@pytest.mark.parametrize("name", sorted(set(composer.FIELDS) - set(CHOICES)))
@pytest.mark.parametrize("junk", ["-3", "abc", "0", "1.5", "'open", "a=b=c:d"])
def test_a_mistake_in_the_form_is_not_called_the_yamls(name: str, junk: str) -> None:
    """Nor what stands beside it, however often the form is read."""
    said = {"kind": "Job", "name": "web", "image": "x", "devices": "class", "device_class": "gpu.example.com"}
    if name == "amount":
        said |= {"devices": "resource", "resource": "example.com/gpu"}
    start = composer.compose(said, TEXT, "", traits=lambda _: None)
    own = [one for one in start.kept if one.endswith("workingDir")]
    assert start.kept == own != []
    first = composer.compose({**start.values, name: junk}, start.text, start.base, traits=lambda _: None)
    again = composer.compose({**start.values, name: junk}, first.text, first.base, traits=lambda _: None)
    assert first.kept == again.kept == own
    assert again.text == first.text


TEXT = """apiVersion: batch/v1
kind: Job
metadata:
  name: web
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: x
        workingDir: /srv
"""


@pytest.mark.parametrize("source", ["class", "none", "template"])
def test_whatever_asked_for_devices_goes_when_they_come_from_elsewhere(source: str) -> None:
    def step(text: str, **values: str) -> composer.Composed:
        return composer.compose(values, text, text, traits=lambda _: None)

    start = step("", name="web", image="x", kind="Job", devices="resource", resource="example.com/gpu", amount="3")
    assert "example.com/gpu: 3" in start.text
    renamed = step(start.text, resource="example.com/other")
    assert ("example.com/other: 3" in renamed.text, "example.com/gpu" in renamed.text) == (True, False)
    gone = step(renamed.text, devices=source, device_class="gpu", template="one")
    assert "example.com/other" not in gone.text
    assert gone.values["devices"] == source
    back = step(gone.text, devices="resource", resource="example.com/gpu", amount="1")
    assert ("resourceClaims" in back.text, "example.com/gpu: 1" in back.text) == (False, True)
    assert [one["kind"] for one in yaml.safe_load_all(back.text)] == ["Job"]


def test_the_dashboard_s_jobs_are_those_of_the_person_who_made_them(cluster: Cluster) -> None:
    """Notifications of the Jobs that somebody created tell of these."""
    ensure_namespaces()
    cluster.with_gpus("node-1", each=2)
    mia = member("mia", "default")
    mia.post("/pods/new", FORM)
    again = member("max", "default")
    again.post(f"{TRAIN}/rerun", {"uid": cluster.get(Job, "train").metadata.uid})
    uids = {name: cluster.get(Job, name).metadata.uid for name in ("train", "train-2")}
    creators = searching.creators(list(uids.values()))
    assert {name: creators[uid] for name, uid in uids.items()} == {"train": "mia", "train-2": "max"}


def test_whoever_may_make_pods_but_no_jobs_makes_none_by_the_form(cluster: Cluster) -> None:
    ensure_namespaces()
    cluster.with_gpus("node-1", each=2)
    grant("podders", ("*", "pods"), ("*", "events"), *((("*", f"{one}.resource.k8s.io")) for one in CLAIM_KINDS))
    pat = signed_in("pat", "podders")
    answer = pat.post("/pods/new", FORM)
    assert (answer.status_code, cluster.all(Job)) == (422, [])
    assert "namespace" in answer.context["page"].form.errors
    assert pat.post("/pods/new", FORM | {"kind": "Pod"}).status_code == 302


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"time_limit": "soon"}, "time_limit"),
        ({"time_limit": "0"}, "time_limit"),
        ({"completions": "many"}, "completions"),
        ({"parallelism": "-1"}, "parallelism"),
        ({"completions": "99999999999"}, "completions"),
        ({"name": "Not A Name"}, "name"),
        ({"backoff_limit": "some"}, "backoff_limit"),
        ({"backoff_limit": "-1"}, "backoff_limit"),
        ({"completion_mode": "Sometimes"}, "completion_mode"),
        ({"completion_mode": "Indexed", "completions": ""}, "completions"),
        ({"devices": "resource", "resource": ""}, "resource"),
        ({"devices": "resource", "resource": "example.com/gpu", "amount": "0"}, "amount"),
        ({"devices": "resource", "resource": "example.com/gpu", "amount": "1.5"}, "amount"),
    ],
)
def test_mistakes_in_a_job_stand_at_their_fields(
    fields: dict[str, str], field: str, admin: Client, cluster: Cluster
) -> None:
    ensure_namespaces()
    cluster.with_gpus("node-1", each=2)
    answer = admin.post("/pods/new", {**FORM, **fields})
    assert answer.status_code == 422
    errors = answer.context["page"].form.errors
    assert field in errors, errors
    assert cluster.all(Job) == []


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("90", 90, "90s"),
        ("90m", 5400, "90m"),
        ("1h30m", 5400, "90m"),
        ("2h", 7200, "2h"),
        ("1d 12h", 129_600, "36h"),
        ("7d", 604_800, "7d"),
        ("", None, ""),
        ("h", None, ""),
        ("1x", None, ""),
        ("-5m", None, ""),
        ("0s", None, ""),
    ],
)
def test_time_limits_as_people_write_them(text: str, seconds: int | None, shown: str) -> None:
    assert seconds_of(text) == seconds
    assert (limit_of(seconds) if seconds else "") == shown
