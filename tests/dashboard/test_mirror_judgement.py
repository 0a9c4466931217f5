"""No page of a mirror concludes anything from a kind that may not be read, or of which one namespace alone may.

Each page is shown of the whole cluster, and of what is left of it without the objects of one kind. Whatever it says
then is said of the whole cluster, too, or that it cannot be judged.
"""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from pytest_django.fixtures import Settings

from claims.causes.causes import NotPlaced, decode
from claims.causes.messages import brief
from claims.causes.next_steps import outside
from claims.controllers import incidents
from claims.devices.cache import read_devices
from claims.devices.states import DeviceState
from claims.kinds.pods import Pod, PodSchedulingGate
from dashboard.workloads.next_steps import StepLine
from insight import notification_texts
from inventory.models import Impairment
from manciple import gaps
from manciple.gaps import Gap
from manciple.per_process import reset_all
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded
from manciple.wire.registry import registry
from manciple.wire.resources import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, QUOTAS, SLICES, TAINT_RULES
from scheduling.cycle.scheduler import SchedulingWorker
from scheduling.models import QueuedPod
from scheduling.queue import hints
from tests.builders import NAMESPACE, make_claim, make_pod, make_request, make_running, make_taint_rule
from tests.dashboard import texts
from tests.dashboard.browsing import member, words
from tests.scheduling.cluster import Cluster

OTHER = "others"
KINDS = (NODES, PODS, NAMESPACES, SLICES, CLASSES, TAINT_RULES, CLAIMS, QUOTAS)
NAMESPACED = (PODS, CLAIMS, QUOTAS)
#: (resource, whether the reader's own namespace may be listed)
GAPS = [(one, False) for one in KINDS] + [(one, True) for one in NAMESPACED]
NEVER = 'device.driver == "nobody.example.com"'
WAITING = ("held", "odd", "plain", "gated", "stray")
UNKNOWN = ("cannot be judged", "cannot be rehearsed", "nothing can be rehearsed", "cannot be told", "unknown")


def why(resource: str) -> str:
    return f"you may not list {resource}"


@pytest.fixture
def pages(cluster: Cluster) -> Client:
    """Nothing is free: a pod of another namespace holds one device of two, and a rule taints the other."""
    cluster.with_gpus("node-1")
    cluster.create(make_claim("one", namespace=OTHER, requests=[make_request()]))
    cluster.create(make_pod("holder", namespace=OTHER, claims={"gpu": "one"}))
    cluster.settle()
    cluster.update(make_running(cluster.get(Pod, "holder", OTHER)))
    cluster.create(make_taint_rule("repair", effect="NoSchedule", device="gpu-1"))
    for name, request in (("held", make_request()), ("odd", make_request(expressions=[NEVER]))):
        cluster.create(make_claim(name, requests=[request]))
        cluster.create(make_pod(name, claims={"gpu": name}))
    cluster.create(make_pod("plain"))
    cluster.create(make_pod("gated", scheduling_gates=(PodSchedulingGate(name="hold"),)))
    cluster.create(make_claim("stray", requests=[make_request(device_class="nothing")]))
    cluster.create(make_pod("stray", claims={"gpu": "stray"}))
    return member("alice")


@contextmanager
def mirrored(cluster: Cluster, settings: Settings, *missing: tuple[str, bool]) -> Iterator[None]:
    """Looked at as a mirror, without the objects of these kinds; afterwards all is as before."""
    further = dict(hints.FURTHER_RULES)
    found = [Gap(one, why(one), but_for=NAMESPACE if own else "", forbidden=True) for one, own in missing]
    with transaction.atomic(), gaps.knowing(*found):
        for resource, own in missing:
            _leave_out(resource, but_for=NAMESPACE if own else "")
        settings.MIRROR_OF, settings.MIRROR, settings.SCHEDULER_NAMES = "prod", True, None
        reset_all()
        revision, worker = latest_revision(), SchedulingWorker(cluster.clock)
        worker.run()
        cluster.later(6)
        worker.sweep()
        worker.run()
        assert latest_revision() == revision
        try:
            yield
        finally:
            settings.MIRROR, settings.SCHEDULER_NAMES = False, frozenset({"default-scheduler"})
            transaction.set_rollback(True)
            reset_all()
            hints.FURTHER_RULES.clear()
            hints.FURTHER_RULES.update(further)


def _leave_out(resource: str, *, but_for: str) -> None:
    kind = registry.by_resource(resource)
    assert kind is not None
    with objects.writing() as writer:
        for stored in objects.list(kind).items:
            if not but_for or stored.namespace != but_for:
                writer.replicate(kind, decoded(stored, kind.type), json.loads(stored.text), gone=True)


# What pages say -------------------------------------------------------------------------------------------------------


def said_by_pages(client: Client) -> dict[str, set[str]]:
    """address -> its statements. Of a page that does not exist there are none."""
    return {
        **{f"/pods/{NAMESPACE}/{name}": _of_pod(client, name) for name in WAITING},
        **{f"/claims/{NAMESPACE}/{name}": _of_claim(client, name) for name in ("held", "odd", "stray")},
        **{f"/what-if?pod={NAMESPACE}/{name}": _of_what_if(client, name) for name in ("held", "plain", "stray")},
        "/overview": _of_overview(client),
        "/classes": _of_classes(client),
        "/claims": _of_claims(client),
        "/namespaces": {f"{row.name} exists: {row.exists}" for row in _rows(client, "/namespaces")},
    }


def _context(client: Client, path: str) -> Any:
    answer = client.get(path)
    assert answer.status_code in (200, 404, 422), path
    return answer.context if answer.status_code != 404 else None


def _of_pod(client: Client, name: str) -> set[str]:
    if (context := _context(client, f"/pods/{NAMESPACE}/{name}")) is None:
        return set()
    why = context["why"]
    funnel = {
        f"{section.request.plan.full_name}: {row.label} {row.left}" for section in why.sections for row in section.rows
    }
    nodes = {f"{line.name}: {line.stops}" for line in why.nodes.lines} if why.nodes else set()
    return {_timeless(why.verdict.title), *_steps(why.verdict.steps), *funnel, *nodes}


def _of_claim(client: Client, name: str) -> set[str]:
    if (context := _context(client, f"/claims/{NAMESPACE}/{name}")) is None:
        return set()
    advice = context["sheet"].advice
    return {_timeless(advice.title), *_steps(advice.steps)} if advice else set()


def _steps(steps: tuple[StepLine, ...]) -> set[str]:
    assert not any(step.dialog for step in steps)  # nothing is written here
    return {f"{step.word}: {step.follows}" for step in steps}


def _of_what_if(client: Client, name: str) -> set[str]:
    if (context := _context(client, f"/what-if?pod={NAMESPACE}/{name}")) is None:
        return set()
    page = context["page"]
    return {page.result.title if page.result else page.error}


def _of_overview(client: Client) -> set[str]:
    context = _context(client, "/overview")
    counts = {f"{one.state}: {one.count}" for one in context["figures"] if one.state == "free"}
    classes = {f"{one.name}: {one.free} free, {one.fits} fit" for one in context["classes"]}
    groups = {f"{_timeless(one.sentence)}" for one in (*context["reasons"], *context["more_reasons"])}
    return counts | classes | groups


def _of_classes(client: Client) -> set[str]:
    return {f"{row.name}: {row.count.free} free, {row.fits} fit" for row in _rows(client, "/classes")}


def _of_claims(client: Client) -> set[str]:
    rows = _rows(client, "/claims")
    return {f"{row.key}: {row.label}" for row in rows} | {_timeless(row.note) for row in rows if row.note}


def _rows(client: Client, path: str) -> Any:
    return _context(client, path)["table"].rows


def _timeless(sentence: str) -> str:
    return sentence.partition(" for ")[0].rstrip(".") if "has not placed it" in sentence else sentence


@pytest.mark.sample(3)
@pytest.mark.parametrize(("resource", "own"), GAPS)
def test_without_a_kind_nothing_is_said_that_is_not_so(
    pages: Client, cluster: Cluster, settings: Settings, resource: str, own: bool
) -> None:
    with mirrored(cluster, settings):
        whole = said_by_pages(pages)
        whole["/overview"] |= {_timeless(brief(decode(one.cause))) for one in QueuedPod.objects.all()}
    assert all(whole.values())
    assert {"free: 0"} <= whole["/overview"]
    with mirrored(cluster, settings, (resource, own)):
        for path, said in said_by_pages(pages).items():
            for one in said - whole[path]:
                assert any(text in one.lower() for text in UNKNOWN), (path, one)
        assert why(resource) in pages.get("/overview").content.decode()


def test_a_pod_that_fits_is_a_finding_on_every_page(pages: Client, cluster: Cluster, settings: Settings) -> None:
    with mirrored(cluster, settings):
        cause = NotPlaced(scheduler="default-scheduler", nodes=("node-1",))
        found = _timeless(brief(cause))
        said = said_by_pages(pages)
        assert found in said[f"/pods/{NAMESPACE}/plain"]
        assert found in said["/overview"]
        listed = pages.get("/pods?state=Waiting").context["table"].rows
        assert [decode(QueuedPod.objects.get(name=row.name).cause) for row in listed if row.name == "plain"] == [cause]
        context = pages.get(f"/pods/{NAMESPACE}/plain").context
        assert context["why"].verdict.next_step == outside(cause)
        assert context["state"] == "Waiting"


def test_a_pool_that_may_not_be_read_is_neither_incomplete_nor_gone(
    pages: Client, cluster: Cluster, settings: Settings
) -> None:
    now = datetime.now(UTC)
    with mirrored(cluster, settings, (SLICES, False)):
        for at in (now, now + 2 * incidents.SETTLING):
            incidents.reconcile(at)
        assert not Impairment.objects.filter(source=Impairment.Source.POOL).exists()
        assert not list(notification_texts.incomplete_pools(now))
        assert {state.counts[DeviceState.UNPUBLISHED] for state in read_devices().pools.values()} <= {0}
        for path in ("/overview", "/wallboard", "/drivers", "/nodes/node-1"):
            said = words(pages, path).lower()
            assert not re.search(texts.NOT_PUBLISHED, said), path


def test_steps_are_shown_as_what_to_type_in_the_cluster(pages: Client, cluster: Cluster, settings: Settings) -> None:
    with mirrored(cluster, settings):
        page = pages.get(f"/pods/{NAMESPACE}/gated")
        (step,) = page.context["why"].verdict.steps
        assert (step.do_url, step.do_word) == ("", "")
        command = shlex.split(step.command)
        assert command[:3] == ["kubectl", "--context", "prod"]
        assert {"patch", NAMESPACE, "gated"} <= set(command)
        assert html.escape(step.command) in page.content.decode()
        held = pages.get(f"/pods/{NAMESPACE}/held").context["why"].verdict.steps
        assert any({"devicetaintrule", "repair"} <= set(shlex.split(one.command)) for one in held)
