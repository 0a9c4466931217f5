"""The parts of a pod's page: tabs, holders with what they say of the end, deletion with its preview, logs, YAML."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from claims import event_recorder
from claims.event_recorder import EventNote
from claims.kinds.pods import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodStatus,
)
from claims.kinds.registration import POD
from dashboard.workloads.pods import queries, why
from manciple.people import Person
from manciple.store import objects
from manciple.wire import codec
from manciple.wire.errors import ApiError
from manciple.wire.identity import SCHEDULER
from tests.builders import (
    make_claim,
    make_class,
    make_container,
    make_devices,
    make_node,
    make_pod,
    make_request,
    make_slice,
    make_template,
)
from tests.dashboard import texts
from tests.dashboard.browsing import close_words, member
from tests.scheduling.cluster import Cluster, with_spec


def _pair(cluster: Cluster) -> None:
    """A pod that holds both devices by a claim of its own, and one that waits for them."""
    cluster.with_gpus("node-1", each=2)
    cluster.create(make_template("two", requests=[make_request(count=2)]))
    cluster.create(make_pod("holds", templates={"gpu": "two"}))
    cluster.settle()
    cluster.create(make_pod("waits", templates={"gpu": "two"}))
    cluster.settle()


PARTS = (
    ("waits", "", "gpu-0, gpu-1 holds"),
    ("waits", "why", "no time limit known"),
    ("waits", "claims", "from template two"),
    ("holds", "", "node-1 / gpu-0 request gpu"),
    ("holds", "why", "Its claims"),  # it does not wait: its first part is shown
    ("holds", "claims", "gpu: node-1 / gpu-0, node-1 / gpu-1"),
    ("waits", "events", "FailedScheduling"),
    ("waits", "logs", "No node yet"),
    ("holds", "yaml", "resourceClaimTemplateName: two"),
)


def test_every_part_has_an_address_and_says_when_devices_come_free_if_their_holder_does(cluster: Cluster) -> None:
    _pair(cluster)
    alice = member("alice")
    for name, tab, says in PARTS:
        assert says in close_words(alice, f"/pods/default/{name}?tab={tab}"), (name, tab)
    pod = with_spec(cluster.pod("holds"), active_deadline_seconds=7_200)
    started = structs.replace(pod.status, start_time=cluster.now.strftime("%Y-%m-%dT%H:%M:%SZ"))
    cluster.update(structs.replace(pod, status=started))
    assert re.search(texts.ENDS_AT_THE_LATEST("(2 h|1 h 59 min)"), close_words(alice, "/pods/default/waits"))


def test_the_object_is_shown_with_fields_that_our_types_do_not_know(cluster: Cluster) -> None:
    made = make_pod("copied")
    meta = structs.replace(made.metadata, uid="copied-uid", creation_timestamp="2026-01-01T00:00:00Z")
    pod = structs.replace(made, metadata=meta)
    document = codec.to_builtins(pod)
    document["spec"]["ofTheNextRelease"] = {"depth": 3}
    with objects.writing() as writer:
        writer.replicate(POD, pod, document)
    assert "ofTheNextRelease: depth: 3" in close_words(member("anna"), "/pods/default/copied?tab=yaml")


def test_a_container_that_was_given_many_devices_folds_them(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=9)
    cluster.create(make_claim("nine", requests=[make_request(count=9)]))
    cluster.create(make_pod("holds", claims={"gpu": "nine"}))
    cluster.settle()
    shown = member("alice").get("/pods/default/holds?tab=claims").content.decode()
    assert re.search(r"gpu:\s*<details>\s*<summary>9 devices</summary>", shown)
    assert shown.count("node-1 / gpu-8</a>") == 2  # of the claim, and in the fold


# Deleting ------------------------------------------------------------------------------------------------------------


def test_deleting_says_first_what_would_follow_and_takes_the_pod_that_was_looked_at(cluster: Cluster) -> None:
    _pair(cluster)
    ann = member("ann", "default")
    text = close_words(ann, "/pods/default/holds/delete")
    assert "Frees 2 devices: gpu-0, gpu-1 of node-1." in text
    assert texts.REMOVES_CREATED_CLAIM("holds-gpu-") in text
    assert texts.WOULD_START_ON("default/waits", "node-1") in text
    uid = cluster.pod("waits").metadata.uid
    for client, given, status in ((member("looker"), uid, 403), (member("mia", "other"), uid, 404), (ann, "x", 409)):
        assert client.post("/pods/default/waits/delete", {"uid": given}).status_code == status
        assert cluster.find(Pod, "waits") is not None
    answer = ann.post("/pods/default/waits/delete", {"uid": uid})
    assert answer.headers["Location"] == "/pods?ns=default"
    assert cluster.find(Pod, "waits") is None
    held = cluster.pod("holds")
    answer = ann.post("/pods/default/holds/delete", {"uid": held.metadata.uid})
    assert answer.headers["Location"] == "/pods?ns=default"
    page = close_words(ann, "/pods/default/holds")
    assert "Deleting" in page  # its containers get time to end
    assert "ends by" in page
    cluster.delete(cluster.pod("holds"))
    cluster.settle()


def test_the_preview_names_no_pod_of_a_namespace_that_is_not_seen(cluster: Cluster) -> None:
    cluster.with_gpus("node-1", each=1)
    cluster.create(make_template("one"))
    cluster.create(make_pod("holds", templates={"gpu": "one"}))
    cluster.create(make_template("one", namespace="other"))
    cluster.settle()
    cluster.create(make_pod("secret", namespace="other", templates={"gpu": "one"}))
    cluster.settle()
    text = close_words(member("ann", "default"), "/pods/default/holds/delete")
    assert texts.PODS_OF_OTHERS_WOULD_START("1 pod") in text
    assert "secret" not in text


# Logs ----------------------------------------------------------------------------------------------------------------


def test_a_log_is_shown_or_why_there_is_none(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    _pair(cluster)
    alice = member("alice")

    async def lines(_place: object) -> str:
        return "epoch 1\nepoch <2>\n"

    def refuse(_request: object) -> None:
        raise ApiError("the agent of node-1 does not answer")

    monkeypatch.setattr(queries, "find", refuse)
    assert texts.AGENT_DOES_NOT_ANSWER("node-1") in close_words(alice, "/pods/default/holds?tab=logs")
    monkeypatch.setattr(queries, "_read", lines)
    monkeypatch.setattr(queries, "find", lambda request: request)
    assert "epoch &lt;2&gt;" in alice.get("/pods/default/holds?tab=logs").content.decode()
    monkeypatch.setattr(Person, "may", lambda _self, _verb, resource, *_where: resource != "pods/log")
    assert "tab=logs" not in alice.get("/pods/default/holds?tab=logs").content.decode()


LOG = "/sessions/api/v1/namespaces/default/pods/holds/log?container=main"
#: what the address asks for -> what the agent is asked for, and the addresses of the growing log and of all of it
LOGS: dict[str, tuple[dict[str, str], str, str]] = {
    "": ({"tailLines": "500"}, "&tailLines=500&follow=true", ""),
    "lines=7": ({"tailLines": "7"}, "&tailLines=7&follow=true", ""),
    "lines=9999999": ({"tailLines": "5000"}, "&tailLines=5000&follow=true", ""),
    "lines=-1&since=-5": ({"tailLines": "500"}, "&tailLines=500&follow=true", ""),
    "lines=0": ({"tailLines": "1"}, "&tailLines=1&follow=true", ""),
    "lines=x&since=x&previous=0&timestamps=0": ({"tailLines": "500"}, "&tailLines=500&follow=true", ""),
    "since=300&timestamps=1": (
        {"tailLines": "500", "sinceSeconds": "300", "timestamps": "true"},
        "&timestamps=true&sinceSeconds=300&tailLines=500&follow=true",
        "&timestamps=true&sinceSeconds=300",
    ),
    "since=99999999999": (
        {"tailLines": "500", "sinceSeconds": "31622400"},
        "&sinceSeconds=31622400&tailLines=500&follow=true",
        "&sinceSeconds=31622400",
    ),
    "previous=1": ({"tailLines": "500", "previous": "true"}, "none: it has ended", "&previous=true"),
    "container=nosuch": ({"tailLines": "500"}, "&tailLines=500&follow=true", ""),
}


def test_of_a_log_is_shown_followed_and_downloaded_what_was_asked_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pair(cluster)
    alice, asked = member("alice"), list[Any]()

    async def none(_place: object) -> str:
        return ""

    monkeypatch.setattr(queries, "_read", none)
    monkeypatch.setattr(queries, "find", asked.append)
    for query, (options, follow, download) in LOGS.items():
        log = alice.get(f"/pods/default/holds?tab=logs&{query}").context["log"]
        assert asked.pop().query == {"container": "main", "limitBytes": str(queries.MOST_BYTES), **options}, query
        assert log.follow_url == ("" if follow.startswith("none") else LOG + follow), query
        assert log.download_url == LOG + download, query
        assert log.lines in log.choices_of_lines
        assert log.since in dict(log.choices_of_time)


# The terminal --------------------------------------------------------------------------------------------------------


def test_the_terminal_is_for_those_who_may_run_commands_there(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pair(cluster)
    tab = "tab=terminal"
    alice, looker = member("alice", "default"), member("vic")
    assert tab in alice.get("/pods/default/holds").content.decode()
    for person in (looker, member("ann", "other")):
        assert tab not in person.get("/pods/default/holds?tab=terminal").content.decode()
    assert tab not in alice.get("/pods/default/waits").content.decode(), "it has no node"
    for missing in ("create", "get"):
        monkeypatch.setattr(
            Person,
            "may",
            lambda _self, verb, resource, *_where: (verb, resource) != (missing, "pods/exec"),  # noqa: B023 - called within the turn
        )
        assert tab not in alice.get("/pods/default/holds").content.decode(), missing


def test_a_terminal_offers_the_containers_that_run(cluster: Cluster) -> None:
    _pair(cluster)
    alice = member("alice", "default")
    page = alice.get("/pods/default/holds?tab=terminal")
    assert page.context["terminal"].containers == ()
    assert "terminal-form" not in page.content.decode()
    pod = cluster.pod("holds")
    statuses = tuple(
        ContainerStatus(name=name, state=state)
        for name, state in {
            "main": ContainerState(running=ContainerStateRunning()),
            "side": ContainerState(running=ContainerStateRunning()),
            "over": ContainerState(terminated=ContainerStateTerminated(exit_code=1)),
        }.items()
    )
    cluster.update(structs.replace(pod, status=structs.replace(pod.status, container_statuses=statuses)))
    for query, chosen in {"": "main", "&container=side": "side", "&container=over": "main"}.items():
        page = alice.get(f"/pods/default/holds?tab=terminal{query}")
        assert page.context["terminal"].containers == ("main", "side")
        assert page.context["terminal"].container == chosen
    assert 'data-url="/sessions/api/v1/namespaces/default/pods/holds/exec?"' in page.content.decode()
    policy = page.headers["Content-Security-Policy"]
    nonce = re.search(r'name="csp-nonce" content="([^"]+)"', page.content.decode())
    assert nonce is not None
    assert f"'nonce-{nonce[1]}'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]


def test_the_list_is_filtered_by_state_node_and_name(cluster: Cluster) -> None:
    _pair(cluster)
    done = cluster.create(make_pod("done"))
    cluster.update(structs.replace(done, status=PodStatus(phase="Succeeded")))
    alice = member("alice")
    for query, names in (
        ("", {"holds", "waits", "done"}),
        ("state=Waiting", {"waits"}),
        ("state=Starting", {"holds"}),
        ("state=Succeeded", {"done"}),
        ("node=node-1", {"holds"}),
        ("q=ait", {"waits"}),
        ("q=nobody", set()),
        ("page=2", {"holds", "waits", "done"}),  # of one page, the last
    ):
        found = {one.name for one in alice.get(f"/pods?{query}").context["table"].rows}
        assert found == names, query


def test_the_page_leads_from_an_extended_resource_to_its_devices(cluster: Cluster) -> None:
    cluster.create(make_class(extended_resource_name="example.com/gpu"))
    cluster.create(make_node())
    cluster.create(make_slice(devices=make_devices(1)))
    for name in ("holds", "waits"):
        cluster.create(make_pod(name, containers=[make_container(limits={"example.com/gpu": "1"})]))
    cluster.settle()
    client = member("alice", "default")
    holds, waits = (close_words(client, f"/pods/default/{name}?tab=claims") for name in ("holds", "waits"))
    served = "for its extended resources"
    chain = "example.com/gpu of main: class gpu.example.com, request container-0-request-0"
    assert "holds-extended-resources-" in holds
    assert served in holds
    assert chain in holds
    assert "example.com/gpu: node-1 / gpu-0" in holds
    assert chain in waits
    assert texts.CLAIM_CREATED_LATER in waits


def test_a_pod_that_does_not_end_says_why_and_is_ended_by_force(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pair(cluster)
    pod = cluster.pod("holds")
    ann, alice = member("ann", "default"), member("alice")
    cluster.delete(pod, grace=30)
    shown = close_words(ann, "/pods/default/holds")
    assert texts.SHOULD_HAVE_ENDED not in shown
    assert "stays until" not in shown
    monkeypatch.setattr(why, "PATIENCE", timedelta(hours=-1))
    shown = close_words(ann, "/pods/default/holds")
    assert texts.SHOULD_HAVE_ENDED in shown
    assert texts.END_NOT_CONFIRMED("node-1") in shown
    assert "Delete by force…" in shown
    assert "by force…" not in close_words(alice, "/pods/default/holds")
    reason = "Failed to unprepare dynamic resources: DRA driver gpu.example.com is not registered on node node-1"
    note = EventNote(regarding=pod, reason="FailedUnprepareDynamicResources", message=reason, component="agent")
    with objects.writing(identity=SCHEDULER) as writer:
        event_recorder.record(writer, note, now=cluster.now)
    assert texts.STAYS_UNTIL_RELEASED(reason) in close_words(alice, "/pods/default/holds"), "its node says so"
    assert "keep running on node-1" in close_words(ann, "/pods/default/holds/delete?force=1")
    ann.post("/pods/default/holds/delete?force=1", {"uid": pod.metadata.uid})
    assert cluster.find(Pod, "holds") is None
    cluster.retry()
    assert cluster.pod("waits").spec.node_name == "node-1"


def test_a_waiting_pod_offers_to_tell_of_its_start_until_somebody_has_asked(cluster: Cluster) -> None:
    _pair(cluster)
    ann = member("ann", "default")
    assert ann.get("/pods/default/holds").context["notify_url"] == "", "it runs"
    url = ann.get("/pods/default/waits").context["notify_url"]
    form = ann.get(url.partition("#")[0]).context["rule_form"]
    asked = {"happening": form["happening"].value(), "scope": form["scope"].value(), "channels": ["browser"]}
    ann.post("/notifications/rules", asked | {"scope": "mine"})
    assert ann.get("/pods/default/waits").context["notify_url"] == url, "others created it"
    ann.post("/notifications/rules", asked)
    assert ann.get("/pods/default/waits").context["notify_url"] == ""
