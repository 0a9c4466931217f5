"""The pages of a mirror: nothing on them changes the cluster, and every one says how current it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import Resolver404, resolve
from pytest_django.fixtures import Settings

from claims.devices.cache import following
from inventory.models import Node
from manciple.access import mirrored
from manciple.access.authorization import Attributes, Decision
from manciple.access.mirrored import OWNERS, ClusterRights
from manciple.audit import events, recording
from manciple.audit.models import Entry
from manciple.controllers.models import Heartbeat
from manciple.live.topics import RETOLD, Relay
from manciple.mirror import standing
from manciple.mirror.folders import Folder, Running
from manciple.mirror.models import KindStatus, RemoteStatus
from manciple.mirror.sources import COPIED, NODE, Reach, Source
from manciple.per_process import PerProcess
from manciple.processes.demolab.pages import every_page
from manciple.processes.demolab.views import save_views
from manciple.renewals import OF_NODES, OF_SCHEDULERS, renewals
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.wire import codec
from manciple.wire.identity import Identity
from manciple.wire.registry import registry
from manciple.wire.resources import CLAIMS
from scheduling.models import UsageSample
from tests.dashboard import texts
from tests.dashboard.browsing import signed_in, words
from tests.laboratory import NOW, furnish
from tests.mirrors import PROD, become_mirror

KEY = "of-this-start"
#: What a page of a mirror may send: what is the reader's own. Each is a route's name.
OWN = frozenset(
    {
        *("account-password", "account-revoke", "account-sessions", "account-tokens", "account-tour", "account-zone"),
        *("logout", "view-change", "view-save"),
        *("incident-acknowledge", "incident-comment", "incident-handle", "incidents-acknowledge"),
        *("notifications-email", "notifications-rule", "notifications-delete", "notifications-webhook"),
        *("notifications-test", "notifications-unsubscribe", "notifications-confirm"),
    }
)
#: Routes that answer a question, and write nothing.
QUESTIONS = frozenset({"class-check", "class-verdicts", "devices-csv", "what-if"})
#: The same, of a route that has others.
READ = frozenset({"/devices/act/list", "/devices/act/selector"})


def stand(*, away: bool = False) -> None:
    RemoteStatus.objects.update_or_create(
        pk=1,
        defaults={
            "context": PROD,
            "server": "https://10.0.0.1:6443",
            "namespace": "default",
            "version": "v1.34.1",
            "gates": {},
            "away_since": NOW if away else None,
            "why": "connection refused" if away else "",
        },
    )
    standing.forget()


def know(reach: Reach, *sources: Source) -> None:
    """How far kinds are known, all where none is named."""
    for source in sources or COPIED:
        KindStatus.objects.update_or_create(
            resource=source.resource,
            defaults={"version": "v1", "reach": reach, "detail": "", "listed_at": NOW, "heard_at": NOW, "unread": 0},
        )
    standing.forget()


@pytest.fixture
def mirror(db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Client]:
    """Of the laboratory."""
    furnish()
    owner = signed_in("ola", OWNERS)
    save_views(User.objects.get(username="ola"))
    become_mirror(settings, monkeypatch)
    settings.MIRROR_OWNER, settings.MIRROR_KEY, settings.HOME = "ola", KEY, tmp_path / "prod"
    stand()
    know(Reach.EVERYWHERE)
    yield owner
    standing.forget()


@dataclass
class Page(HTMLParser):
    """What a page sends, and where it leads."""

    html: str
    sends: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    #: of the form that is open, where it is sent by POST
    action: str | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "form":
            self.action = given.get("action", "") if given.get("method", "").lower() == "post" else None
        if tag in ("button", "input") and given.get("type", "submit") == "submit":
            if "formaction" in given:
                self.sends.add(given["formaction"])
            elif self.action is not None:
                self.sends.add(self.action)
        if tag == "a" and (href := given.get("href", "")).startswith(("/", "?")):
            self.links.add(href)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.action = None


def route(path: str) -> str:
    try:
        return resolve(urlsplit(path).path).url_name or ""
    except Resolver404:
        return ""


def test_no_page_offers_what_would_be_refused(mirror: Client) -> None:
    before = latest_revision()
    refused, offered, leads = set[str](), set[str](), dict[tuple[str, ...], tuple[str, str]]()
    for address in every_page():
        answer = mirror.get(address.path)
        assert answer.status_code in (200, 302, 403, 404, 405), address.path
        if answer.status_code == 403 and f"mirror of {PROD}" in answer.content.decode():
            refused.add(address.route)
        if answer.status_code != 200 or answer.streaming or "text/html" not in answer.headers["Content-Type"]:
            continue
        page = Page(answer.content.decode())
        for form in page.sends - READ:
            if (name := route(form or address.path)) not in OWN | QUESTIONS:
                offered.add(f"{address.path} sends {name or form}")
        for link in page.links:
            target = f"{urlsplit(address.path).path}{link}" if link.startswith("?") else link
            leads.setdefault((route(target), *sorted(parse_qs(urlsplit(target).query))), (target, address.path))
    assert {"pod-new", "class-new", "taint-rule-new", "bulk"} <= refused
    assert {"people", "roles", "autoscalers", "autoscaler"} <= refused, "none of which is copied"
    assert len(leads) > 50
    for key, (target, page_path) in leads.items():
        if key[0] and mirror.get(target).status_code == 403:
            offered.add(f"{page_path} leads to {target}")
    assert not offered, "\n".join(sorted(offered))
    assert latest_revision() == before


class Everything(ClusterRights):
    """Signed in as somebody who may do anything in the cluster."""

    def decide(self, _identity: Identity, _wanted: Attributes) -> Decision:
        return Decision(True)


#: Routes that change what no mirror changes, whatever its user may do in the cluster.
NEVER = frozenset(
    {
        *("workload-act", "pod-move", "claim-release", "quota-change", "role-new", "role-give", "role-take"),
        *("namespaces", "namespace-change", "namespace-tokens", "namespace-delete"),
        *("people-invite", "people-change", "people-revoke"),
    }
)


def test_a_page_of_a_mirror_that_acts_offers_only_what_it_does(mirror: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrored, "_rights", PerProcess[ClusterRights | None](Everything))
    sends, leads, wrong = set[str](), dict[tuple[str, ...], tuple[str, str]](), set[str]()
    for address in every_page():
        answer = mirror.get(address.path)
        if answer.status_code != 200 or answer.streaming or "text/html" not in answer.headers["Content-Type"]:
            continue
        page = Page(answer.content.decode())
        for form in page.sends:
            sends.add(name := route(form or address.path))
            if name in NEVER:
                wrong.add(f"{address.path} sends {name}")
        for link in page.links:
            target = f"{urlsplit(address.path).path}{link}" if link.startswith("?") else link
            leads.setdefault((route(target), *sorted(parse_qs(urlsplit(target).query))), (target, address.path))
    assert {"class-new", "pod-new", "bulk"} <= sends | {key[0] for key in leads}, "it acts"
    for key, (target, page_path) in leads.items():
        if key[0] in NEVER - {"namespaces"} or (key[0] and mirror.get(target).status_code == 403):
            wrong.add(f"{page_path} leads to {target}")
    assert not wrong, "\n".join(sorted(wrong))
    form = mirror.get("/pods/new").content.decode()
    assert '<option value="Pod"' in form
    assert '<option value="Job"' not in form


def test_a_refused_page_says_where_to_change_it(mirror: Client) -> None:
    said = words(mirror, "/classes/new", 403)
    assert f"mirror of {PROD}" in said
    assert "administrator" not in said


def test_nobody_is_sent_to_an_administrator_for_what_a_mirror_does_not_do(mirror: Client) -> None:
    said = words(mirror, "/classes/c/gpu-h200")
    assert PROD in said.partition("Nothing is stored")[2]
    assert "dministrator" not in said


@pytest.mark.parametrize("path", ["/usage?by=class", "/timeline", "/devices/d/gpu.nvidia.com/gpu-b08/gpu-0", "/ended"])
def test_pages_of_the_past_say_what_a_mirror_cannot_know(mirror: Client, settings: Settings, path: str) -> None:
    assert texts.UNSEEN_PAST in words(mirror, path)
    settings.MIRROR = False
    assert texts.UNSEEN_PAST not in words(mirror, path)


def test_what_is_ones_own_can_be_changed(mirror: Client) -> None:
    assert mirror.post("/account/zone", {"zone": "Europe/Berlin"}).status_code == 302
    incident = "09a5c1e07f3b2d64"
    assert "Acknowledge" in words(mirror, f"/incidents/{incident}")


@pytest.mark.parametrize("path", ["/overview", "/devices", "/pods", "/mirror", "/account", "/wallboard"])
def test_every_page_says_since_when_the_cluster_is_away(mirror: Client, path: str) -> None:
    assert PROD in mirror.get(path).content.decode()
    assert "cannot be reached" not in mirror.get(path).content.decode()
    stand(away=True)
    page = mirror.get(path).content.decode()
    assert texts.AWAY in page
    assert f'datetime="{NOW:%Y-%m-%dT%H:%M}' in page
    stand()
    assert "cannot be reached" not in mirror.get(path).content.decode()


def test_open_pages_are_told_at_once_and_those_that_come_then_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relay, heard, now = Relay(7), list[frozenset[str]](), [100.0]
    monkeypatch.setattr("manciple.live.topics.time.monotonic", lambda: now[0])
    relay.join(lambda change: heard.append(change.topics), after=7)
    relay.tell("mirror")
    assert heard == [frozenset({"mirror"})]
    assert relay.join(print, after=7).topics == {"mirror"}
    now[0] += RETOLD
    assert relay.join(print, after=7).topics == set()


STATES = {
    Reach.EVERYWHERE: "Copied",
    Reach.NAMESPACE: "Namespace default only",
    Reach.FORBIDDEN: "You may not list it",
    Reach.FAILED: "Could not be listed: it broke",
    Reach.ABSENT: "The cluster does not have it",
}


@pytest.mark.parametrize("reach", STATES)
def test_the_state_of_each_kind_is_told(mirror: Client, reach: Reach) -> None:
    KindStatus.objects.filter(resource="pods").delete()
    know(reach, NODE)
    KindStatus.objects.filter(resource="nodes").update(detail="it broke")
    said = words(mirror, "/mirror")
    assert STATES[reach] in said
    assert "Not read yet" in said, "of the pods"


def test_health_says_nothing_of_nodes_that_may_not_be_read(mirror: Client) -> None:
    assert "Kubelets" in words(mirror, "/overview")
    know(Reach.FORBIDDEN, NODE)
    assert "Kubelets" not in words(mirror, "/overview")


def test_what_is_late_is_started_with_the_mirror(mirror: Client) -> None:
    UsageSample.objects.filter(at__gt=datetime.now(UTC) - timedelta(hours=1)).delete()
    Heartbeat.objects.all().delete()
    said = words(mirror, "/overview")
    assert "late since" in said
    assert "worker:" not in said
    assert "doctor" not in said


def test_the_kinds_on_which_most_depends_are_named_first(mirror: Client) -> None:
    KindStatus.objects.all().delete()
    know(Reach.FORBIDDEN, *reversed(COPIED))
    said = mirror.get("/overview").content.decode().partition('id="mirror-line"')[2]
    assert "nodes" in said[: said.index("more.")]
    assert "deployments" not in said[: said.index("more.")]


def test_objects_that_were_left_out_are_counted(mirror: Client) -> None:
    KindStatus.objects.filter(resource="pods").update(unread=3)
    assert texts.LEFT_OUT(3) in words(mirror, "/mirror")


def test_the_link_signs_in_and_no_other_does(mirror: Client, settings: Settings) -> None:
    visitor = Client()
    for wrong in ("", "?key=", "?key=another", f"?key={KEY}x"):
        assert visitor.get(f"/enter{wrong}").status_code == 403
        assert "_auth_user_id" not in visitor.session
    assert visitor.get(f"/enter?key={KEY}").status_code == 302
    assert visitor.get("/devices").status_code == 200
    settings.MIRROR_KEY = ""
    assert Client().get("/enter?key=").status_code == 404, "no key is no key"


def test_other_mirrors_are_offered_and_sign_in_by_their_own_link(mirror: Client, tmp_path: Path) -> None:
    other = Running(context="staging", url="http://127.0.0.1:9", link="http://127.0.0.1:9/enter?key=theirs")
    assert "staging" not in mirror.get("/devices").content.decode()
    folder = Folder(tmp_path / "staging")
    with folder.taken("staging", "https://10.0.0.2"):
        folder.announce(other)
        page = mirror.get("/devices").content.decode()
        assert "Mirror of staging" in page
        assert "theirs" not in page
        assert mirror.get("/mirror/other?name=staging").headers["Location"] == other.link
        stranger = signed_in("eve", "manciple:viewers")
        assert stranger.get("/mirror/other?name=staging").headers["Location"] == "/mirror"
    assert mirror.get("/mirror/other?name=staging").headers["Location"] == "/mirror"


def copy(resource: str, namespace: str, name: str, *, author: str, found: bool = False, gone: bool = False) -> None:
    """As if this had been received of the cluster, with another label than before."""
    kind = registry.by_resource(resource)
    stored = objects.get(kind, namespace, name)
    assert stored is not None
    document = json.loads(stored.text)
    document["metadata"].setdefault("labels", {})["seen"] = author or "nobody"
    obj = codec.decode_text(kind.type, json.dumps(document).encode())
    with objects.writing() as writer:
        writer.replicate(kind, obj, document, author=author, recorded=True, found=found, gone=gone)


def test_history_names_field_managers_and_no_person(mirror: Client) -> None:
    page = "/claims/teaching/course-gpu?tab=history"
    copy(CLAIMS, "teaching", "course-gpu", author="kubectl-edit")
    assert "by kubectl-edit" in words(mirror, page)
    assert 'data-k="manager"' in mirror.get(page).content.decode()
    assert texts.WHEN_IS_NOT_KNOWN not in words(mirror, page)
    copy(CLAIMS, "teaching", "course-gpu", author="kube-scheduler or kubelet", found=True)
    said = words(mirror, page)
    assert "by kube-scheduler or kubelet" in said
    assert texts.WHEN_IS_NOT_KNOWN in said
    assert "by kubectl-edit" in words(mirror, "/audit?system=1")
    assert "kubectl-edit" not in words(mirror, "/audit"), "nobody here did that"


def test_what_a_field_manager_wrote_is_nobodys_in_the_audit_trail(mirror: Client) -> None:
    copy(CLAIMS, "teaching", "course-gpu", author="kubectl-edit")
    recording.catch_up()
    entry = Entry.objects.latest("id")
    event = events.event_of(entry)
    assert (event.user.username, event.annotations[events.FIELD_MANAGER]) == ("", "kubectl-edit")
    assert texts.BY_MANAGER("kubectl-edit") in words(mirror, f"/audit?entry={entry.id}")


def test_nodes_whose_leases_are_overdue_are_unreachable_and_a_silent_scheduler_is_a_finding(mirror: Client) -> None:
    heard, begin = renewals.value, datetime.now(UTC) - timedelta(minutes=5)
    names = sorted(Node.objects.exclude(condition="Unknown").values_list("name", flat=True))
    lost, *others = names
    for name in names:
        heard.renew(OF_NODES, name, begin, seconds=40)
    heard.renew(OF_SCHEDULERS, "kube-scheduler", begin, seconds=15)
    for seconds in range(0, 301, 20):
        at = begin + timedelta(seconds=seconds)
        for name in others:
            heard.renew(OF_NODES, name, at, seconds=40)
        for namespace in (OF_NODES, OF_SCHEDULERS):
            heard.hear(namespace, at)
    following.reset()
    said = words(mirror, f"/nodes/{lost}")
    assert f"{lost} is unreachable" in said
    assert "is unreachable" not in words(mirror, f"/nodes/{others[0]}")
    assert lost in words(mirror, "/nodes?state=unreachable")
    assert texts.SCHEDULER_IS_SILENT in words(mirror, "/overview")
    heard.renew(OF_NODES, lost, datetime.now(UTC), seconds=40)
    heard.renew(OF_SCHEDULERS, "kube-scheduler", datetime.now(UTC), seconds=15)
    following.reset()
    assert "is unreachable" not in words(mirror, f"/nodes/{lost}")
    assert texts.SCHEDULER_IS_SILENT not in words(mirror, "/overview")
