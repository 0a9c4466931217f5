"""Whatever happens to a cluster and to the connection, the copy in the store is what the cluster has at the end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest_django.fixtures import Settings

from claims.controllers import incidents
from claims.devices.cache import read_devices
from inventory.kinds import gates
from inventory.models import Impairment, Incident
from manciple.audit import events, recording
from manciple.audit.models import Entry
from manciple.mirror import received
from manciple.mirror.client import Remote
from manciple.mirror.following import KindFollower
from manciple.mirror.models import RemoteVersion
from manciple.mirror.sources import Source
from manciple.mirror.standing import KindStanding
from manciple.mirror.stored_copy import StoredCopy
from manciple.per_process import reset_all
from manciple.store import objects
from manciple.store.models import Event, OwnerLink
from manciple.wire.registry import registry
from tests.examples import some
from tests.indexes import assert_rebuilt_the_same
from tests.manciple.mirror.clusters import DRIVER, claim, device_class, meta, node, pod, remote_of, slice_of
from tests.manciple.mirror.living import KINDS, Living, with_unknown_fields
from tests.manciple.mirror.replay import Document

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 30, tzinfo=UTC)
#: Those that a history writes.
PLURALS = ("nodes", "resourceslices", "deviceclasses", "resourceclaims", "replicasets", "pods")


class Noting(StoredCopy):
    """Stores at once, and remembers what was said of each resource."""

    __slots__ = ("failing", "standings")

    def __init__(self) -> None:
        super().__init__()
        self.standings: dict[str, KindStanding] = {}
        self.failing: dict[str, str] = {}

    def note(self, standing: KindStanding, *, failing: str = "") -> None:
        self.standings[standing.source.plural] = standing
        self.failing[standing.source.plural] = failing


class Mirror:
    """Followers that take their turns when they are told to."""

    def __init__(
        self,
        remote: Remote,
        *plurals: str,
        versions: Mapping[str, str] | None = None,
        namespace: str = "",
    ) -> None:
        self._remote, self._plurals, self._versions = remote, plurals or PLURALS, versions or {}
        self._namespace = namespace
        self.restart()

    def restart(self) -> None:
        versions = self._versions
        self.copy = Noting()

        def served(source: Source) -> Sequence[str]:
            return (versions.get(source.plural, source.versions[0]),) if versions.get(source.plural) != "" else ()

        self.followers = {
            plural: KindFollower(self._remote, KINDS[plural], self.copy, served=served, namespace=self._namespace)
            for plural in self._plurals
        }

    def turn(self, *plurals: str) -> None:
        for plural in plurals or self.followers:
            self.followers[plural].turn()

    def standing(self, plural: str) -> KindStanding:
        return self.copy.standings[plural]


def stored(plural: str) -> dict[str, Document]:
    """By key."""
    page = objects.list(registry.by_resource(KINDS[plural].resource))
    return {f"{one.namespace}/{one.name}": msgspec.json.decode(one.text) for one in page.items}


def there(cluster: Living, plural: str) -> dict[str, Document]:
    found = cluster.objects.get(plural, [])
    return {f"{one['metadata'].get('namespace', '')}/{one['metadata']['name']}": one for one in found}


def kept(document: Document) -> Any:
    """Of a document, what a copy has of it: nothing that is left out, nothing of ours, no nulls."""
    document = deepcopy(document)
    for name in ("apiVersion", "kind"):
        document.pop(name, None)
    for name in ("managedFields", "resourceVersion"):
        document["metadata"].pop(name, None)
    (document.get("status") or {}).pop("images", None)
    for condition in (document.get("status") or {}).get("conditions") or ():
        condition.pop("lastHeartbeatTime", None)
    template = (document.get("spec") or {}).get("template") or {}
    for part in (document, template):
        ((part.get("metadata") or {}).get("annotations") or {}).pop(
            "kubectl.kubernetes.io/last-applied-configuration", None
        )
        for container in (part.get("spec") or {}).get("containers") or ():
            for variable in container.get("env") or ():
                variable.pop("value", None)
    return without_nulls(document)


def without_nulls(part: Any) -> Any:
    if isinstance(part, list):
        return [without_nulls(one) for one in part]
    if isinstance(part, dict):
        return {name: without_nulls(one) for name, one in part.items() if one is not None}
    return part


def assert_equal(cluster: Living, *plurals: str) -> None:
    for plural in plurals or PLURALS:
        ours, theirs = stored(plural), there(cluster, plural)
        assert ours.keys() == theirs.keys()
        for key, document in theirs.items():
            assert kept(ours[key]) == kept(document)
        kind = registry.by_resource(KINDS[plural].resource)
        assert {(one["apiVersion"], one["kind"]) for one in ours.values()} <= {(kind.api_version, kind.kind)}
        versions = dict(RemoteVersion.objects.filter(resource=kind.resource).values_list("uid", "version"))
        assert versions == {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in theirs.values()}


@contextmanager
def empty_store() -> Iterator[None]:
    """For one example: afterwards the store is as before."""
    with gates.using(), transaction.atomic():
        try:
            yield
        finally:
            transaction.set_rollback(True)
            reset_all()


# Random histories -----------------------------------------------------------------------------------------------------


def owned(document: Document, name: str) -> Document:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"team-a-{name}", "controller": True}
    document["metadata"]["ownerReferences"] = [owner]
    return document


def replica_set(name: str) -> Document:
    template = {"metadata": {"labels": {"app": name}}, "spec": pod(name)["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"metadata": meta(name, "team-a"), "spec": spec, "status": {"replicas": 1}}


def made(plural: str, number: int, chance: random.Random) -> Document:
    """Claims take devices that others hold, too; pods may come before their owners."""
    name = f"{plural[0]}{number}"
    match plural:
        case "nodes":
            document = node(f"n{number}")
            document["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-01T08:00:05Z"
            document["status"]["images"] = [{"names": ["registry/image:1"]}]
        case "resourceslices":
            document = slice_of(f"n{number}", chance.randint(1, 3))
        case "deviceclasses":
            document = device_class(name)
        case "resourceclaims":
            devices = [f"n{chance.randint(0, 2)}/gpu-{chance.randint(0, 2)}"] if chance.random() < 0.7 else []
            document = claim(name, *devices, pod=f"p{chance.randint(0, 2)}" if devices else "")
        case "replicasets":
            document = replica_set(name)
        case _:
            document = owned(pod(name, f"r{number}", on=chance.choice(["", "n1"])), f"r{chance.randint(0, 2)}")
    document["metadata"]["managedFields"] = [{"manager": "kubectl", "time": "2026-11-01T08:00:00Z"}]
    document["metadata"].setdefault("labels", {})["x"] = str(chance.randint(0, 9))
    changed: Document = with_unknown_fields(document, chance)
    return changed


#: What happens to the cluster, to the connection, to the mirror; the frequent ones more than once.
WHAT = (
    *("put", "put", "put", "again", "delete", "heartbeat", "backup", "restore"),
    *("turn", "turn", "turn", "break", "prune", "busy", "other lists", "other servers", "restart"),
)
#: Kinds that belong together.
GROUPS = (("pods", "replicasets"), ("resourceclaims", "pods"), ("nodes", "resourceslices"), ("deviceclasses", "nodes"))
HISTORIES = st.sampled_from(GROUPS).flatmap(
    lambda plurals: st.lists(
        st.tuples(st.sampled_from(WHAT), st.sampled_from(plurals), st.integers(0, 1)), min_size=25, max_size=50
    )
)


def happen(step: tuple[str, str, int], cluster: Living, mirror: Mirror, chance: random.Random) -> None:
    what, plural, number = step
    document = made(plural, number, chance)
    name = document["metadata"]
    if what in ("put", "again"):  # another one of the same name, whose predecessor's end may not have been seen
        name["uid"] += f"-{chance.randint(0, 99)}" if what == "again" else ""
        cluster.put(plural, document)
    elif what == "heartbeat" and (before := cluster.get("nodes", "", f"n{number}")):
        before = deepcopy(before)
        before["status"]["conditions"][0]["lastHeartbeatTime"] = f"2026-11-01T08:{chance.randint(10, 59)}:00Z"
        cluster.put("nodes", before)
    elif what in ("turn", "break"):
        cluster.broken_after = number if what == "break" else None
        mirror.turn(plural)
    otherwise: Mapping[str, Callable[[], None]] = {
        "delete": lambda: cluster.delete(plural, name.get("namespace", ""), name["name"]),
        "prune": cluster.prune,
        "backup": cluster.backup,
        "restore": lambda: restored(cluster, mirror),
        "other servers": lambda: setattr(cluster, "strict", not cluster.strict),
        "restart": mirror.restart,
        "busy": lambda: setattr(cluster, "busy", number),
        "other lists": lambda: setattr(cluster, "watch_lists", not cluster.watch_lists),
    }
    otherwise.get(what, lambda: None)()


def restored(cluster: Living, mirror: Mirror) -> None:
    """And noticed: once the server has passed the point to which we were, nothing tells that it had gone back."""
    cluster.restore()
    cluster.broken_after, cluster.busy = None, 0
    for _ in range(2):
        mirror.turn()


@settings(max_examples=some(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=HISTORIES, seed=st.integers(0, 2**32))
def test_after_any_history_every_document_is_equal_and_reindex_changes_nothing(
    steps: list[tuple[str, str, int]], seed: int
) -> None:
    chance = random.Random(seed)
    with empty_store(), Living() as cluster:
        mirror = Mirror(remote_of(cluster))
        for step in steps:
            happen(step, cluster, mirror, chance)
        cluster.broken_after, cluster.busy = None, 0
        for _ in range(3):  # resumes; finds out that it cannot, and lists; sees what has happened since
            mirror.turn()
        assert_equal(cluster)
        assert_rebuilt_the_same()
        assert not any(mirror.copy.unread.values())


# Single rules ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[Living]:
    with gates.using(), Living() as cluster:
        yield cluster


def entries(plural: str) -> list[tuple[str, str, str]]:
    """(type, name, field manager) of what the log tells of a resource."""
    found = Event.objects.filter(resource=KINDS[plural].resource).order_by("revision")
    return [(one.type, one.name, msgspec.json.decode(one.actor)["manager"]) for one in found]


def test_an_owner_that_comes_after_its_dependents_is_not_gone(cluster: Living) -> None:
    mirror = Mirror(remote_of(cluster))
    cluster.put("pods", owned(pod("p"), "r0"))
    mirror.turn("pods")
    assert OwnerLink.objects.get().gone
    cluster.put("replicasets", replica_set("r0"))
    mirror.turn("replicasets")
    assert not OwnerLink.objects.get().gone
    assert_rebuilt_the_same()


def test_heartbeats_and_field_managers_make_no_entry_of_the_log(cluster: Living) -> None:
    mirror = Mirror(remote_of(cluster), "nodes")
    document = made("nodes", 1, random.Random(1))
    for minute in range(3):
        document["status"]["conditions"][0]["lastHeartbeatTime"] = f"2026-11-01T09:0{minute}:00Z"
        document["metadata"]["managedFields"][0]["time"] = f"2026-11-01T09:0{minute}:00Z"
        document = cluster.put("nodes", document)
        mirror.turn()
    assert entries("nodes") == [("ADDED", "n1", "kubectl")]
    assert RemoteVersion.objects.get().version == document["metadata"]["resourceVersion"]
    document["status"]["conditions"][0]["status"] = "False"
    cluster.put("nodes", document)
    mirror.turn()
    assert entries("nodes") == [("ADDED", "n1", "kubectl"), ("MODIFIED", "n1", "kubectl")]


def by(*managers: tuple[str, int]) -> list[Document]:
    """managedFields of (manager, second)."""
    return [{"manager": name, "time": f"2026-11-01T09:00:{second:02}Z"} for name, second in managers]


def with_managers(document: Document, *managers: tuple[str, int]) -> Document:
    document["metadata"]["managedFields"] = by(*managers)
    return document


def test_the_last_field_manager_is_the_author_but_of_deletions_which_name_none(cluster: Living) -> None:
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    document = cluster.put("pods", with_managers(pod("p"), ("kubelet", 2), ("kubectl", 1)))
    mirror.turn()
    document["spec"]["nodeName"] = "n1"
    document = cluster.put("pods", with_managers(document, ("kubelet", 3), ("kube-scheduler", 3), ("kubectl", 1)))
    mirror.turn()
    document["metadata"]["deletionTimestamp"] = "2026-11-01T09:00:04Z"
    document = cluster.put("pods", document)
    mirror.turn()
    document["status"]["phase"] = "Failed"
    cluster.put("pods", with_managers(document, ("kubelet", 5)))
    mirror.turn()
    cluster.delete("pods", "team-a", "p")
    mirror.turn()
    authors = ["kubelet", "kube-scheduler or kubelet", "", "kubelet", ""]
    assert [manager for _, _, manager in entries("pods")] == authors


def trail() -> list[tuple[str, str, str, bool]]:
    """(verb, name, field manager, found by a listing)"""
    recording.catch_up()
    notes = [(one, events.note_of(one)) for one in Entry.objects.order_by("id")]
    assert all((one.username, one.routine) == ("", True) for one, _ in notes)
    return [(one.verb, one.name, note.manager or "", note.found) for one, note in notes]


def test_the_history_has_what_concerns_devices_and_says_what_a_listing_found(cluster: Living) -> None:
    """That something was there before is no creation, and when it ended while nobody watched is not known."""
    mirror = Mirror(remote_of(cluster), "pods", "resourceclaims")
    cluster.put("resourceclaims", with_managers(claim("before"), ("kubectl", 1)))
    cluster.put("pods", pod("plain"))
    mirror.turn()
    cluster.put("pods", with_managers(pod("train", "before"), ("kubectl", 2)))
    cluster.put("pods", with_managers(pod("plain", on="n1"), ("kubelet", 2)))
    mirror.turn()
    cluster.put("resourceclaims", with_managers(claim("before", "n1/gpu-0"), ("kube-scheduler", 3)))
    cluster.delete("pods", "team-a", "train")
    cluster.prune()
    mirror.restart()
    mirror.turn()
    assert set(trail()) == {
        ("list", "before", "kubectl", True),
        ("create", "train", "kubectl", False),
        ("update", "before", "kube-scheduler", True),
        ("delete", "train", "", True),
    }


def extended() -> Document:
    document = pod("p")
    document["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
    return document


def made_of(spec: Document, *path: str) -> Document:
    """An object whose pods have this spec."""
    made: Document = {"metadata": {}, "spec": spec}
    for name in reversed(path):
        made = {name: made}
    whole = {"selector": {"matchLabels": {"a": "b"}}, "schedule": "* * * * *", **made.get("spec", {})}
    return {"metadata": meta("x", "team-a"), "spec": whole}


@pytest.mark.parametrize(
    ("plural", "document", "expected"),
    [
        ("pods", pod("p"), False),
        ("pods", pod("p", "claim"), True),
        ("pods", extended(), True),
        ("replicasets", made_of(pod("p")["spec"], "spec", "template"), False),
        ("replicasets", made_of(extended()["spec"], "spec", "template"), True),
        ("jobs", made_of(extended()["spec"], "spec", "template"), True),
        ("cronjobs", made_of(extended()["spec"], "spec", "jobTemplate", "spec", "template"), True),
        ("cronjobs", made_of(pod("p")["spec"], "spec", "jobTemplate", "spec", "template"), False),
        ("nodes", node("n1"), True),
    ],
)
def test_what_wants_devices(plural: str, document: Document, expected: bool) -> None:
    kind = registry.by_resource(KINDS[plural].resource)
    obj = received.read(kind, kind.version, msgspec.json.encode(document)).object
    assert received.wants_devices(kind, obj) is expected


def test_unknown_fields_are_in_the_text_and_stay_through_a_deletion_that_was_missed(cluster: Living) -> None:
    mirror = Mirror(remote_of(cluster), "pods")
    document = pod("p")
    document["spec"]["containers"][0]["xNew"] = {"a": [None, 1.5], "b": None}
    cluster.put("pods", document)
    mirror.turn()
    expected = {"a": [None, 1.5], "b": None}
    assert stored("pods")["team-a/p"]["spec"]["containers"][0]["xNew"] == expected
    cluster.delete("pods", "team-a", "p")
    cluster.prune()
    mirror.restart()
    mirror.turn()
    last = msgspec.json.decode(Event.objects.get(type="DELETED").document)
    assert last["spec"]["containers"][0]["xNew"] == expected


def test_what_our_types_cannot_read_is_written_as_they_can_and_the_rest_stays(cluster: Living) -> None:
    document = claim("c")
    document["spec"]["devices"]["constraints"] = None
    document["spec"]["devices"]["requests"][0]["exactly"] |= {"tolerations": None, "xNew": None, "xOther": 7}
    document["status"] = None
    capacity = slice_of("n1", 1)
    capacity["spec"]["devices"][0]["capacity"] = {"memory": {"value": 1024, "xNew": 1}}
    cluster.put("resourceclaims", document)
    cluster.put("resourceslices", capacity)
    mirror = Mirror(remote_of(cluster), "resourceclaims", "resourceslices")
    mirror.turn()
    assert stored("resourceclaims")["team-a/c"]["spec"]["devices"]["requests"][0]["exactly"]["xOther"] == 7
    (device,) = stored("resourceslices")["/n1-slice"]["spec"]["devices"]
    assert device["capacity"] == {"memory": {"value": "1024", "xNew": 1}}
    assert not any(mirror.copy.unread.values())


def test_values_of_environment_variables_are_nowhere(cluster: Living) -> None:
    document, controller = pod("p"), replica_set("r0")
    for one in (document, controller["spec"]["template"]):
        one["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": '"secret-value"'}
        one["spec"]["initContainers"] = deepcopy(one["spec"]["containers"])
        one["spec"]["ephemeralContainers"] = deepcopy(one["spec"]["containers"])
    cluster.put("pods", document)
    cluster.put("replicasets", controller)
    Mirror(remote_of(cluster)).turn()
    assert stored("pods")["team-a/p"]["spec"]["initContainers"][0]["env"] == [{"name": "KEY"}]
    assert "secret-value" not in "".join(Event.objects.values_list("document", flat=True))


def test_an_object_that_cannot_be_understood_is_counted_and_stops_no_other(cluster: Living) -> None:
    wrong = pod("wrong")
    wrong["spec"]["containers"] = "none"
    for document in (pod("a"), wrong, pod("b")):
        cluster.put("pods", document)
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    assert stored("pods").keys() == {"team-a/a", "team-a/b"}
    assert mirror.copy.unread["pods"] == {"team-a-wrong"}
    wrong["spec"]["containers"] = []
    cluster.put("pods", wrong)
    mirror.turn()
    assert not mirror.copy.unread["pods"]
    assert stored("pods").keys() == {"team-a/a", "team-a/b", "team-a/wrong"}


def test_an_object_that_the_database_refuses_is_counted_and_stops_no_other(cluster: Living) -> None:
    """Two objects with one uid, which no real cluster has."""
    twin = pod("twin")
    twin["metadata"]["uid"] = "team-a-a"
    for document in (pod("a"), twin, pod("b")):
        cluster.put("pods", document)
    mirror = Mirror(remote_of(cluster), "pods")
    mirror.turn()
    assert stored("pods").keys() >= {"team-a/b"}
    assert mirror.copy.unread["pods"] == {"team-a-a"}


def holders() -> set[str]:
    (of_pool,) = [one.holders for one in read_devices().pools.values()]
    return {f"{one.namespace}/{one.claim}" for one in of_pool[DRIVER, "n1", "gpu-0", "n1"]}


def test_a_device_that_is_allocated_twice_is_an_incident_until_one_claim_is_left(
    cluster: Living, settings: Settings
) -> None:
    settings.MIRROR = True
    mirror = Mirror(remote_of(cluster))
    cluster.put("resourceslices", slice_of("n1", 2))
    cluster.put("resourceclaims", claim("first", "n1/gpu-0"))
    cluster.put("resourceclaims", claim("admin", "n1/gpu-1"))
    mirror.turn()
    incidents.reconcile(NOW)
    assert not Incident.objects.exists()
    for namespace in ("team-a", "team-b"):
        cluster.put("resourceclaims", claim("second", "n1/gpu-0", namespace=namespace))
    mirror.turn()
    for _ in range(2):
        incidents.reconcile(NOW + incidents.BELIEVED)
    (one,) = Impairment.objects.all()
    assert (one.source, one.driver, one.pool, one.device, one.node) == ("claim", DRIVER, "n1", "gpu-0", "n1")
    assert one.message.startswith("3 claims")
    assert holders() == {"team-a/first", "team-a/second", "team-b/second"}
    assert_rebuilt_the_same()
    for namespace, name in (("team-a", "first"), ("team-b", "second")):
        cluster.delete("resourceclaims", namespace, name)
    mirror.turn()
    incidents.reconcile(NOW + incidents.BELIEVED)
    assert Incident.objects.get().ended_at is not None
    assert holders() == {"team-a/second"}
    assert_rebuilt_the_same()
