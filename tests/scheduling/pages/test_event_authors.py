"""Events about objects of the cluster: whose word counts, and whose text is shown to whom."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from claims.access.event_authors import may_report
from manciple.access.bootstrap import ensure_roles
from manciple.store import objects
from manciple.store.origins import Actor
from manciple.wire.base import ObjectReference
from manciple.wire.errors import Forbidden
from manciple.wire.identity import AUTHENTICATED, MASTERS, VIEWERS, Identity, controller
from manciple.wire.machinery import Event, EventSource
from scheduling.pages.events.views import HIDDEN
from scheduling.resources import EVENTS, kind
from tests.builders import make_meta, make_namespace, make_node, make_pod
from tests.scheduling.cluster import Cluster
from tests.scheduling.pages.browsing import signed_in

TENANT = Identity("mallory", ("namespace:default", "namespace:team-a", AUTHENTICATED))
AGENT = Identity("system:node:node-1", ("system:nodes", AUTHENTICATED))
#: An agent that NodeRestriction would let write it.
OTHER_AGENT = Identity("system:node:node-2", (MASTERS, AUTHENTICATED))

CONTROLLER = controller("node-controller")


@pytest.fixture
def scene(cluster: Cluster) -> Cluster:
    ensure_roles()
    cluster.create(make_namespace("default"))
    cluster.create(make_namespace("team-a"))
    cluster.create(make_namespace("team-b"))
    cluster.create(make_node("node-1"))
    return cluster


def say(
    who: Identity, reason: str, *, namespace: str = "default", about: str = "Node", name: str = "node-1", text: str = ""
) -> None:
    event = Event(
        api_version="v1",
        kind="Event",
        metadata=make_meta(f"e-{reason.lower()}", namespace),
        involved_object=ObjectReference(kind=about, name=name, namespace="" if namespace == "default" else namespace),
        reason=reason,
        message=text or f"text of {reason}",
        type="Warning",
        reporting_component="kubelet" if who is AGENT else "node-controller",
        reporting_instance="node-1" if who is AGENT else "",
    )
    with objects.writing(identity=who) as writer:
        writer.create(kind(EVENTS), event)


FORGED = {
    "in the default namespace": {},
    "in their own": {"namespace": "team-a"},
    "about a class": {"about": "DeviceClass", "name": "gpu"},
    "about another namespace": {"about": "Namespace", "name": "team-b"},
    "about an unknown kind": {"about": "Cluster", "name": "all"},
}


@pytest.mark.parametrize("given", FORGED.values(), ids=FORGED.keys())
def test_a_tenants_event_about_an_object_of_the_cluster_counts_nowhere(scene: Cluster, given: dict[str, str]) -> None:
    say(TENANT, "Burning", **given)
    for client in (signed_in("ada", staff=True), signed_in("vic", VIEWERS)):
        for path in ("/overview", "/nodes/node-1"):
            assert "Burning" not in client.get(path).content.decode(), path
        page = client.get("/events").content.decode()
        assert "mallory, as node-controller" in page, "the author is named"
        assert 'href="/nodes/node-1">' not in page.partition("<main")[2]
        assert "mallory" in client.get("/events.csv").content.decode()


@pytest.mark.parametrize(("who", "counts"), [(AGENT, True), (OTHER_AGENT, False), (CONTROLLER, True), (TENANT, False)])
def test_whose_word_about_a_node_counts(scene: Cluster, who: Identity, counts: bool) -> None:
    say(who, "Started")
    page = signed_in("ada", staff=True).get("/nodes/node-1").content.decode()
    assert ("text of Started" in page) == counts


def change(who: Identity, reason: str, **changes: Any) -> None:
    with objects.writing(identity=who) as writer:
        stored = writer.get(kind(EVENTS), "default", f"e-{reason.lower()}")
        assert isinstance(stored, Event)
        writer.update(kind(EVENTS), structs.replace(stored, **changes))


#: What takes a report off the page of its node, or changes what it says.
CHANGES: dict[str, dict[str, Any]] = {
    "its count": {"count": 2},
    "its text": {"message": "all is well"},
    "its subject": {"involved_object": ObjectReference(kind="Pod", name="web", namespace="default")},
    "its component": {"reporting_component": "mallory"},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("who", [TENANT, OTHER_AGENT], ids=["a tenant", "another agent"])
def test_a_report_about_a_node_is_changed_by_nobody_who_may_not_report_about_it(
    scene: Cluster, who: Identity, changes: dict[str, Any]
) -> None:
    say(AGENT, "Started")
    with pytest.raises(Forbidden, match='reported by "system:node:node-1"'):
        change(who, "Started", **changes)
    assert "text of Started" in signed_in("ada", staff=True).get("/nodes/node-1").content.decode()


@pytest.mark.parametrize("who", [AGENT, CONTROLLER])
def test_who_may_report_about_a_node_changes_reports_about_it(scene: Cluster, who: Identity) -> None:
    say(AGENT, "Started")
    change(who, "Started", message="started again")
    assert "started again" in signed_in("ada", staff=True).get("/nodes/node-1").content.decode()


def test_who_wrote_an_event_that_is_no_report_may_change_it(scene: Cluster) -> None:
    say(TENANT, "Burning")
    change(TENANT, "Burning", message="more")


def test_the_author_of_an_event_about_a_pod_is_named_unless_it_is_a_part_of_the_system(scene: Cluster) -> None:
    pod = scene.create(make_pod("web", namespace="team-a"))
    for who, reason in ((TENANT, "Burning"), (CONTROLLER, "Sweeping")):
        event = Event(
            api_version="v1",
            kind="Event",
            metadata=make_meta(f"e-{reason.lower()}", "team-a"),
            involved_object=ObjectReference(kind="Pod", name="web", namespace="team-a", uid=pod.metadata.uid),
            reason=reason,
            message=f"text of {reason}",
            reporting_component="default-scheduler",
            source=EventSource(component="default-scheduler"),
        )
        with objects.writing(identity=who) as writer:
            writer.create(kind(EVENTS), event)
    for path in ("/events", "/events.csv", "/pods/team-a/web?tab=events"):
        page = signed_in(f"ada-{len(path)}", staff=True).get(path).content.decode()
        assert page.count("mallory, as default-scheduler") == 1, path
        assert page.count("default-scheduler") == 2, path


@pytest.mark.django_db
def test_who_may_write_the_status_of_an_object_may_report_about_it() -> None:
    assert may_report(Actor(username="detector", groups=(MASTERS,)), kind("nodes"), "node-1")
    assert not may_report(Actor(username="detector", groups=TENANT.groups), kind("nodes"), "node-1")
    assert not may_report(Actor(), kind("nodes"), "node-1"), "whoever wrote it is not known"


def test_many_forged_events_do_not_push_the_real_ones_off_the_overview(scene: Cluster) -> None:
    say(AGENT, "Started")
    for number in range(60):
        say(TENANT, f"Burning{number}", namespace="team-a")
    assert "Started" in signed_in("ada", staff=True).get("/overview").content.decode()


def test_the_text_of_a_nodes_event_is_for_people_who_see_every_namespace(scene: Cluster) -> None:
    """It names what runs there, whoever's that is."""
    say(AGENT, "Evicting", text="ended pod team-b/secret-pod")
    vic = signed_in("vic", VIEWERS)
    for path in ("/nodes/node-1", "/events", "/overview", "/events.csv"):
        assert "secret-pod" in vic.get(path).content.decode(), path
    for number, groups in enumerate([("namespace:team-a",), ("namespace:default",), ("no-rights",)]):
        client = signed_in(f"mia-{number}", *groups)
        for path in ("/nodes/node-1", "/events", "/events?q=secret-pod", "/overview", "/events.csv"):
            page = client.get(path).content.decode()
            assert "secret-pod" not in page.replace("q=secret-pod", "").replace('value="secret-pod"', ""), (
                path,
                groups,
            )
        assert "Evicting" in client.get("/nodes/node-1").content.decode()
        assert HIDDEN.partition(":")[0] in client.get("/nodes/node-1").content.decode()
