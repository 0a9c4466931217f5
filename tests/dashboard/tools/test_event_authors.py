"""Events about objects of the cluster: whose word counts, and whose text is shown to whom."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from claims.access.event_authors import may_report
from dashboard.tools.events import HIDDEN
from manciple.access.bootstrap import ensure_roles
from manciple.store import objects
from manciple.store.records import Actor
from manciple.wire.base import ObjectReference
from manciple.wire.errors import Forbidden
from manciple.wire.identity import AUTHENTICATED, MASTERS, VIEWERS, Identity, controller
from manciple.wire.machinery import Event, EventSource
from manciple.wire.resources import EVENTS, kind
from tests.builders import make_meta, make_namespace, make_node, make_pod
from tests.dashboard.browsing import signed_in
from tests.scheduling.cluster import Cluster

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


def test_a_tenants_event_about_an_object_of_the_cluster_counts_nowhere(scene: Cluster) -> None:
    say(AGENT, "Started")
    for case, given in FORGED.items():
        say(TENANT, f"Burning-{case.replace(' ', '-')}", **given)
    for number in range(60):
        say(TENANT, f"Burning{number}", namespace="team-a")
    for client in (signed_in("ada", staff=True), signed_in("vic", VIEWERS)):
        for path in ("/overview", "/nodes/node-1"):
            page = client.get(path).content.decode()
            assert ("Started" in page, "Burning" in page) == (True, False), path
        page = client.get("/events").content.decode()
        assert "mallory, as node-controller" in page, "the author is named"
        assert page.partition("<main")[2].count('href="/nodes/node-1">') <= 1, "only the agent's leads there"
        assert client.get("/events.csv").content.decode().count("mallory") >= 60 + len(FORGED)


def test_whose_word_about_a_node_counts(scene: Cluster) -> None:
    for who, reason in ((AGENT, "Started"), (OTHER_AGENT, "Lied"), (CONTROLLER, "Swept"), (TENANT, "Burning")):
        say(who, reason)
    page = signed_in("ada", staff=True).get("/nodes/node-1").content.decode()
    assert [one for one in ("Started", "Lied", "Swept", "Burning") if f"text of {one}" in page] == ["Started", "Swept"]


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


def test_a_report_about_a_node_is_changed_by_those_alone_who_may_report_about_it(scene: Cluster) -> None:
    say(AGENT, "Started")
    ada = signed_in("ada", staff=True)
    for who in (TENANT, OTHER_AGENT):
        for changes in CHANGES.values():
            with pytest.raises(Forbidden, match='reported by "system:node:node-1"'):
                change(who, "Started", **changes)
    assert "text of Started" in ada.get("/nodes/node-1").content.decode()
    for who in (AGENT, CONTROLLER):
        change(who, "Started", message=f"changed by {who.name}")
        assert f"changed by {who.name}" in ada.get("/nodes/node-1").content.decode()
    say(TENANT, "Burning")
    change(TENANT, "Burning", message="more")  # it is their own, and no report


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
