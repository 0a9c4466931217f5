"""What a mirror does in its cluster: what is sent, what comes of it there and here, and what is said of it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given
from hypothesis.strategies import text
from msgspec import structs
from pytest_django.fixtures import Settings

from claims.kinds.pods import Pod
from inventory.kinds.devices import CELDeviceSelector, DeviceClass, DeviceSelector
from inventory.kinds.nodes import Taint
from manciple.access.authorization import Attributes
from manciple.access.mirrored import OWNERS
from manciple.api.destination import Successor
from manciple.api.verbs import WriteAnswer
from manciple.mirror.acting import PAUSE
from manciple.mirror.naming import ACCOUNT_EXTRAS, impersonating, not_impersonated, own_credential
from manciple.mirror.own_rights import FAILED_FOR, FRESH
from manciple.mirror.stored_copy import Change
from manciple.store import objects
from manciple.wire import errors
from manciple.wire.errors import ApiError, BadRequest, Conflict, Forbidden, GatewayTimeout, NotFound, PartlyDone
from manciple.wire.identity import AUTHENTICATED, MASTERS, Identity
from manciple.wire.machinery import DeleteOptions, Preconditions
from manciple.wire.registry import Kind
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, TEMPLATES, kind
from tests.acting import OWNER, Scene, acting_mirror
from tests.builders import make_class
from tests.manciple.mirror.clusters import claim, cluster, device_class, meta, node, pod, remote_of
from tests.manciple.mirror.living import KINDS, with_unknown_fields
from tests.manciple.mirror.replay import Answer, Document
from tests.manciple.mirror.writable import Request, Writable

pytestmark = pytest.mark.django_db

FUTURE = {"futureField": {"deep": [1, {"x": None}]}}
TAINTS = [{"key": "a", "effect": "NoSchedule", **FUTURE}, {"key": "b", "effect": "NoExecute"}]


def template(name: str = "gpus", namespace: str = "team-a") -> Document:
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 1}}]}}
    return {"metadata": meta(name, namespace, uid=f"template-{name}"), "spec": {"spec": spec, **FUTURE}}


@pytest.fixture
def server() -> Iterator[Writable]:
    made = cluster(
        ("nodes", {**node("tainted", taints=deepcopy(TAINTS)), **deepcopy(FUTURE)}),
        ("pods", pod("train", template="gpus")),
        ("pods", pod("runs", on="n1")),
        ("resourceclaims", claim("idle")),
        ("resourceclaimtemplates", template()),
    )
    with Writable(made, rules="v1beta2") as server:
        yield server


@pytest.fixture
def scene(server: Writable, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with acting_mirror(server, settings, monkeypatch) as scene:
        yield scene


def cordoned(one: Any) -> Any:
    return structs.replace(one, spec=structs.replace(one.spec, unschedulable=True))


def cordon(scene: Scene, name: str = "n1", **more: Any) -> WriteAnswer:
    return scene.acting.modify(kind(NODES), cordoned, namespace="", name=name, identity=OWNER, **more)


def copy_of(resource: str, name: str, namespace: str = "") -> Any:
    stored = objects.get(kind(resource), namespace, name)
    assert stored is not None
    return objects.decode(kind(resource), stored.text)


def delete(scene: Scene, resource: str, name: str, namespace: str = "", **options: Any) -> Any:
    return scene.acting.delete(
        kind(resource), namespace=namespace, name=name, identity=OWNER, options=DeleteOptions(**options)
    )


# Edits ----------------------------------------------------------------------------------------------------------------


def test_an_edit_is_a_patch_of_the_difference_that_tests_the_version(scene: Scene) -> None:
    version = scene.server.get("nodes", "", "tainted")["metadata"]["resourceVersion"]  # type: ignore[index]
    made = cordon(scene, "tainted").object
    (request,) = scene.server.written
    assert (request.method, request.path) == ("PATCH", "/api/v1/nodes/tainted")
    assert request.headers["Content-Type"] == "application/json-patch+json"
    assert request.query == {"fieldManager": ["manciple"], "fieldValidation": ["Strict"]}
    assert request.body == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/spec/unschedulable", "value": True},
    ]
    assert made == copy_of(NODES, "tainted"), "the copy has it at once, under its own revision"
    assert made.spec.unschedulable
    scene.agree("nodes")
    assert scene.server.get("nodes", "", "tainted")["futureField"] == FUTURE["futureField"]  # type: ignore[index]


def test_an_edit_of_a_list_keeps_what_is_not_known_of_its_elements(scene: Scene) -> None:
    def retainted(one: Any) -> Any:
        taints = (Taint(key="c", effect="NoSchedule"), *reversed(one.spec.taints))
        return structs.replace(one, spec=structs.replace(one.spec, taints=taints))

    scene.acting.modify(kind(NODES), retainted, namespace="", name="tainted", identity=OWNER)
    taints = scene.server.get("nodes", "", "tainted")["spec"]["taints"]  # type: ignore[index]
    assert taints == [{"key": "c", "effect": "NoSchedule"}, TAINTS[1], TAINTS[0]]
    scene.agree("nodes")


def test_an_edit_that_changes_nothing_sends_nothing(scene: Scene) -> None:
    cordon(scene)
    before = copy_of(NODES, "n1").metadata.resource_version
    assert cordon(scene).object.metadata.resource_version == before
    assert len(scene.server.written) == 1


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_cluster_has_besides_stays(settings: Settings, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    made = with_unknown_fields(node("n1", taints=deepcopy(TAINTS)), chance)
    with Writable({"nodes": [made]}) as server, acting_mirror(server, settings, monkeypatch) as scene:
        before = deepcopy(server.get("nodes", "", "n1"))
        assert before is not None
        cordon(scene)
        after = deepcopy(server.get("nodes", "", "n1"))
        assert after is not None
        assert after["spec"].pop("unschedulable") is True
        before["spec"].pop("unschedulable", None)
        for one in (before, after):
            one["metadata"].pop("resourceVersion")
        assert after == before


def test_what_is_not_as_the_copy_has_it_is_not_edited(scene: Scene) -> None:
    there = deepcopy(scene.server.get("nodes", "", "n1"))
    assert there is not None
    there["spec"]["taints"] = [{"key": "new", "effect": "NoSchedule"}]
    scene.server.put("nodes", there)
    with pytest.raises(Conflict):
        cordon(scene)
    assert not scene.server.written
    assert copy_of(NODES, "n1").spec.taints[0].key == "new", "the next page shows what has changed"
    assert cordon(scene).object.spec.unschedulable


def test_a_status_that_goes_on_is_no_conflict(scene: Scene) -> None:
    there = deepcopy(scene.server.get("nodes", "", "n1"))
    assert there is not None
    there["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-30T09:00:00Z"
    scene.server.put("nodes", there)
    assert cordon(scene).object.spec.unschedulable


def test_somebody_who_writes_in_between_wins(scene: Scene) -> None:
    def meanwhile(request: Request) -> None:
        if request.method == "PATCH":
            there = deepcopy(scene.server.get("nodes", "", "n1"))
            assert there is not None
            scene.server.put("nodes", there | {"metadata": there["metadata"] | {"labels": {"theirs": "1"}}})

    scene.server.before = meanwhile
    with pytest.raises(Conflict):
        cordon(scene)
    assert "unschedulable" not in scene.server.get("nodes", "", "n1")["spec"]  # type: ignore[index]
    scene.server.before = lambda _request: None
    with pytest.raises(Conflict):
        cordon(scene)
    assert cordon(scene).object.metadata.labels["theirs"] == "1"


def test_an_edit_of_another_revision_is_a_conflict(scene: Scene) -> None:
    revision = copy_of(CLASSES, "gpu").metadata.resource_version
    edit = lambda one: structs.replace(  # noqa: E731
        one, spec=structs.replace(one.spec, extended_resource_name="example.com/gpu")
    )
    where: dict[str, Any] = {"namespace": "", "name": "gpu", "identity": OWNER}
    scene.acting.modify(kind(CLASSES), edit, revision=revision, **where)
    with pytest.raises(Conflict):
        scene.acting.modify(kind(CLASSES), edit, revision=revision, **where)


def test_an_edit_that_nobody_could_place_is_refused(scene: Scene) -> None:
    there = deepcopy(scene.server.get("deviceclasses", "", "gpu"))
    assert there is not None
    expression = there["spec"]["selectors"][0]["cel"]["expression"]
    there["spec"]["selectors"] = [{"cel": {"expression": expression, **FUTURE}}, {"cel": {"expression": "true"}}]
    scene.server.put("deviceclasses", there)
    scene.look()

    def edit(one: DeviceClass) -> DeviceClass:
        selector = DeviceSelector(cel=CELDeviceSelector(expression="false"))
        return structs.replace(one, spec=structs.replace(one.spec, selectors=(selector,)))

    with pytest.raises(BadRequest, match="kubectl"):
        scene.acting.modify(kind(CLASSES), edit, namespace="", name="gpu", identity=OWNER)
    assert not scene.server.written


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_older_versions_are_written_as_they_are(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    other = {**device_class("other"), **deepcopy(FUTURE)}
    made = cluster(("deviceclasses", other), ("resourceclaims", claim("idle")))
    with Writable(made, dra=version) as server, acting_mirror(server, settings, monkeypatch) as scene:

        def edit(one: DeviceClass) -> DeviceClass:
            return structs.replace(one, metadata=structs.replace(one.metadata, labels={"a": "b"}))

        scene.acting.modify(kind(CLASSES), edit, namespace="", name="other", identity=OWNER)
        scene.acting.create(kind(CLASSES), make_class("mine"), identity=OWNER)
        patch, creation = server.written
        assert patch.path == f"/apis/resource.k8s.io/{version}/deviceclasses/other"
        assert patch.body[1:] == [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
        assert creation.body["apiVersion"] == f"resource.k8s.io/{version}"
        idle = copy_of(CLAIMS, "idle", "team-a")
        wanted = structs.replace(idle, metadata=type(idle.metadata)(name="mine", namespace="team-a"))
        scene.acting.create(kind(CLAIMS), wanted, identity=OWNER)
        (request,) = server.written[2].body["spec"]["devices"]["requests"]
        assert ("exactly" in request) == (version != "v1beta1")
        scene.agree("deviceclasses")


# Creating and deleting ------------------------------------------------------------------------------------------------


def test_what_is_created_is_in_the_copy_at_once(scene: Scene) -> None:
    made = scene.acting.create(kind(CLASSES), make_class("mine"), identity=OWNER)
    (request,) = scene.server.written
    assert (request.method, request.path) == ("POST", "/apis/resource.k8s.io/v1/deviceclasses")
    assert not {"uid", "resourceVersion", "creationTimestamp", "managedFields"} & request.body["metadata"].keys()
    assert "status" not in request.body
    assert made == copy_of(CLASSES, "mine")
    assert made.metadata.uid == scene.server.get("deviceclasses", "", "mine")["metadata"]["uid"]  # type: ignore[index]
    scene.agree("deviceclasses")


def test_only_the_object_that_was_seen_is_deleted(scene: Scene) -> None:
    assert delete(scene, CLASSES, "gpu").gone
    (request,) = scene.server.written
    assert request.body["preconditions"] == {"uid": "-gpu"}
    assert objects.get(kind(CLASSES), "", "gpu") is None
    scene.agree("deviceclasses")
    with pytest.raises(NotFound):
        delete(scene, CLASSES, "gpu")
    there = pod("train")
    scene.server.put("pods", there | {"metadata": there["metadata"] | {"uid": "another"}})
    with pytest.raises(Conflict):
        delete(scene, PODS, "train", "team-a")
    assert scene.server.get("pods", "team-a", "train") is not None


def test_what_is_gone_there_goes_here(scene: Scene) -> None:
    scene.server.delete("deviceclasses", "", "gpu")
    with pytest.raises(NotFound):
        delete(scene, CLASSES, "gpu")
    assert objects.get(kind(CLASSES), "", "gpu") is None
    scene.server.delete("nodes", "", "n1")
    with pytest.raises(NotFound):
        cordon(scene)
    assert objects.get(kind(NODES), "", "n1") is None


def test_a_precondition_on_a_revision_is_one_on_the_version_there(scene: Scene) -> None:
    known = copy_of(CLASSES, "gpu")
    wanted = Preconditions(uid=known.metadata.uid, resource_version=known.metadata.resource_version)
    with pytest.raises(Conflict):
        delete(scene, CLASSES, "gpu", preconditions=structs.replace(wanted, resource_version="1"))
    assert not scene.server.written
    version = scene.server.get("deviceclasses", "", "gpu")["metadata"]["resourceVersion"]  # type: ignore[index]
    assert delete(scene, CLASSES, "gpu", preconditions=wanted).gone
    assert scene.server.written[0].body["preconditions"]["resourceVersion"] == version


def test_an_eviction_is_of_this_pod_and_a_budget_may_refuse_it(scene: Scene) -> None:
    stored = objects.get(kind(PODS), "team-a", "runs")
    assert stored is not None
    runs = objects.decoded(stored, Pod)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "runs", "namespace": "team-a"},
        "deleteOptions": {"preconditions": {"uid": "team-a-runs"}},
    }
    scene.server.refuses = {"eviction": (429, "TooManyRequests", "Cannot evict pod")}
    scene.server.refused_details = {"causes": [{"reason": "DisruptionBudget", "message": "the budget needs 2"}]}
    with pytest.raises(errors.TooManyRequests) as refusal:
        scene.acting.evict(runs, eviction, identity=OWNER)
    assert refusal.value.details == scene.server.refused_details
    scene.server.refuses = {}
    scene.acting.evict(runs, eviction, identity=OWNER)
    assert len(scene.server.written) == 2, "a refused eviction is not tried again"
    assert scene.server.get("pods", "team-a", "runs") is None
    scene.agree("pods")


# Refusals -------------------------------------------------------------------------------------------------------------


ACTS: dict[str, Callable[[Scene], object]] = {
    "PATCH": cordon,
    "POST": lambda scene: scene.acting.create(kind(CLASSES), make_class("mine"), identity=OWNER),
    "DELETE": lambda scene: delete(scene, CLASSES, "gpu"),
}
REFUSALS: list[tuple[int, str, type[ApiError]]] = [
    (403, "Forbidden", Forbidden),
    (409, "Conflict", Conflict),
    (409, "AlreadyExists", errors.AlreadyExists),
    (422, "Invalid", errors.Invalid),
    (400, "BadRequest", BadRequest),
    (429, "TooManyRequests", errors.TooManyRequests),
    (500, "InternalError", ApiError),
    (409, "", Conflict),
    (418, "Teapot", ApiError),
]


@pytest.mark.parametrize("method", ACTS)
def test_a_refusal_is_raised_as_received(scene: Scene, method: str) -> None:
    said = 'admission webhook "policy.example.com" denied the request: not on Fridays'
    causes = [{"reason": "FieldValueInvalid", "message": "not so", "field": "spec.x"}]
    scene.server.refused_details = {"name": "x", "causes": causes}
    before = {plural: scene.server.objects.get(plural) for plural in KINDS}
    for number, (code, reason, type_) in enumerate(REFUSALS, 1):
        scene.server.refuses = {method: (code, reason, said)}
        with pytest.raises(ApiError) as raised:
            ACTS[method](scene)
        refusal = raised.value
        assert type(refusal) is type_
        assert (refusal.code, refusal.message) == (code, said)
        assert refusal.reason == (reason or type_.reason)
        assert (refusal.details or {})["causes"] == causes
        assert not refusal.has_effect
        assert len(scene.server.written) == number, "it is not tried again"
    assert {plural: scene.server.objects.get(plural) for plural in KINDS} == before
    scene.agree("nodes", "deviceclasses")


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"[]", b'{"kind": "Pod"}'])
def test_a_proxy_that_fails_leaves_it_open_whether_it_was_done(scene: Scene, body: bytes) -> None:
    def failing(code: int) -> Callable[[str], Answer | None]:
        return lambda path: (code, {}, body) if "deviceclasses/gpu" in path else None

    for code in (502, 503, 504):
        scene.server.answer = failing(code)
        with pytest.raises(GatewayTimeout) as raised:
            delete(scene, CLASSES, "gpu")
        assert raised.value.has_effect


def test_a_failed_test_of_the_version_is_a_conflict_however_it_is_said(scene: Scene) -> None:
    said = (
        "the server rejected our request due to an error in our request: testing value /metadata/resourceVersion failed"
    )
    scene.server.refuses = {"PATCH": (422, "Invalid", said)}
    with pytest.raises(Conflict):
        cordon(scene)


def test_credentials_that_are_not_accepted_change_nothing(scene: Scene) -> None:
    scene.server.token = "another"
    with pytest.raises(errors.Unauthorized, match="sign in again"):
        cordon(scene)


# No answer ------------------------------------------------------------------------------------------------------------


SILENT = [
    ("PATCH", True, "has been changed as you wanted"),
    ("PATCH", False, "so far it has not been changed"),
    ("POST", True, "there is one of this name now"),
    ("POST", False, "so far there is none"),
    ("DELETE", True, "it is gone"),
    ("DELETE", False, "so far it is still there"),
]


@pytest.mark.parametrize(("method", "done", "said"), SILENT)
def test_without_an_answer_the_object_is_looked_at_and_nothing_is_sent_again(
    scene: Scene, method: str, done: bool, said: str
) -> None:
    setattr(scene.server, "silent_on" if done else "loses", frozenset({method}))
    with pytest.raises(GatewayTimeout) as raised:
        ACTS[method](scene)
    assert raised.value.has_effect
    assert said in raised.value.message
    assert "not known whether" in raised.value.message
    assert [one.method for one in scene.server.written] == [method]
    scene.agree("nodes", "deviceclasses")


def test_what_cannot_be_looked_at_either_is_said(scene: Scene) -> None:
    def breaks(_request: Request) -> None:
        scene.server.answer = lambda path: (503, {}, b"{}") if path.endswith("/n1") else None

    scene.server.loses, scene.server.before = frozenset({"PATCH"}), breaks
    with pytest.raises(GatewayTimeout, match="cannot be looked at"):
        cordon(scene)


def test_after_silence_nothing_is_sent_for_a_while(scene: Scene) -> None:
    scene.server.__exit__(None, None, None)
    for _ in range(3):
        with pytest.raises(errors.ServiceUnavailable, match="nothing was sent"):
            cordon(scene)
    with Writable(scene.server.objects) as again:
        scene.acting._remote = remote_of(again)
        with pytest.raises(errors.ServiceUnavailable, match="nothing was sent"):
            cordon(scene)
        assert not again.asked
        scene.now[0] += PAUSE
        cordon(scene)
    scene.server.__enter__()


def test_a_dry_run_without_an_answer_leaves_nothing_open(scene: Scene) -> None:
    scene.server.write = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(errors.ServiceUnavailable) as raised:
        cordon(scene, dry_run=True)
    assert not raised.value.has_effect


# Dry runs, warnings, the copy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["PATCH", "POST", "DELETE"])
def test_a_dry_run_changes_nothing_anywhere(scene: Scene, method: str) -> None:
    match method:
        case "PATCH":
            assert cordon(scene, dry_run=True).object.spec.unschedulable
        case "POST":
            made = scene.acting.create(kind(CLASSES), make_class("mine"), identity=OWNER, dry_run=True)
            assert made.metadata.resource_version == "0"
        case _:
            assert not delete(scene, CLASSES, "gpu", dry_run=("All",)).gone
    (request,) = scene.server.written
    assert request.dry
    scene.agree("nodes", "deviceclasses")
    assert scene.server.get("deviceclasses", "", "gpu")
    assert scene.server.get("deviceclasses", "", "mine") is None


def change_of(document: Document | None, version: str, uid: str = "", plural: str = "deviceclasses") -> Change:
    source = KINDS[plural]
    if document is None:
        return Change(source, "v1", uid, "", "gpu", "", None, gone=True)
    made = document | {"metadata": document["metadata"] | {"resourceVersion": version}}
    meta_ = made["metadata"]
    return Change(source, "v1", meta_["uid"], "", meta_["name"], version, msgspec.json.encode(made))


def test_a_late_answer_replaces_nothing_newer(scene: Scene) -> None:
    newer, late = device_class(expression="true"), device_class(expression="false")
    scene.mirror.copy.apply([change_of(newer, "2000")])
    scene.keep(change_of(late, "1999"))
    assert copy_of(CLASSES, "gpu").spec.selectors[0].cel.expression == "true"
    scene.keep(change_of(late, "2001"))
    assert copy_of(CLASSES, "gpu").spec.selectors[0].cel.expression == "false"
    scene.keep(change_of(newer, "unordered"))
    assert copy_of(CLASSES, "gpu").spec.selectors[0].cel.expression == "false", "the watch has the last word"


def test_a_late_answer_does_not_bring_back_what_was_deleted(scene: Scene) -> None:
    uid = copy_of(CLASSES, "gpu").metadata.uid
    scene.mirror.copy.apply([change_of(None, "", uid)])
    scene.keep(change_of(device_class(), "3000"))
    assert objects.get(kind(CLASSES), "", "gpu") is None


def test_a_copy_that_is_late_is_said(scene: Scene) -> None:
    scene.acting._keep_copy = lambda _change: False
    with pytest.raises(GatewayTimeout, match="did it"):
        cordon(scene)
    assert scene.server.get("nodes", "", "n1")["spec"]["unschedulable"]  # type: ignore[index]


# Replacing ------------------------------------------------------------------------------------------------------------


def successors(scene: Scene) -> tuple[list[tuple[Kind, Any]], list[Successor]]:
    """The pod goes, and one that names a template of its own comes."""
    old: Pod = copy_of(PODS, "train", "team-a")
    model = copy_of(TEMPLATES, "gpus", "team-a")
    own = structs.replace(model, metadata=structs.replace(model.metadata, name="gpus-2"))
    entries = tuple(structs.replace(one, resource_claim_template_name="gpus-2") for one in old.spec.resource_claims)
    new = structs.replace(old, spec=structs.replace(old.spec, resource_claims=entries))
    return [(kind(PODS), old)], [Successor(kind(TEMPLATES), own, of=model), Successor(kind(PODS), new, of=old)]


def test_a_pod_is_replaced_with_all_that_the_copy_has_not_of_it(scene: Scene) -> None:
    there = deepcopy(scene.server.get("pods", "team-a", "train"))
    assert there is not None
    scene.server.put("pods", there | {"spec": there["spec"] | deepcopy(FUTURE)})
    scene.look()
    scene.acting.replace_all(*successors(scene), identity=OWNER)
    assert [(one.method, one.path.rpartition("/")[2]) for one in scene.server.done] == [
        ("POST", "resourceclaimtemplates"),
        ("DELETE", "train"),
        ("POST", "pods"),
    ]
    made = scene.server.get("pods", "team-a", "train")
    assert made is not None
    assert made["metadata"]["uid"] != there["metadata"]["uid"]
    assert made["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] == "gpus-2"
    assert made["spec"]["containers"][0]["env"] == [{"name": "KEY", "value": "secret-value"}]
    assert made["spec"]["futureField"] == FUTURE["futureField"]
    assert "status" not in made
    own = scene.server.get("resourceclaimtemplates", "team-a", "gpus-2")
    assert own is not None
    assert own["spec"]["futureField"] == FUTURE["futureField"]
    scene.agree("pods", "resourceclaimtemplates")


def test_a_rehearsed_replacement_asks_for_everything_and_changes_nothing(scene: Scene) -> None:
    scene.acting.replace_all(*successors(scene), identity=OWNER, dry_run=True)
    assert {(one.method, one.dry) for one in scene.server.written} == {("POST", True), ("DELETE", True)}
    assert len(scene.server.written) == 3
    scene.server.refuses = {"POST": (422, "Invalid", "spec.x: no")}
    with pytest.raises(errors.Invalid):
        scene.acting.replace_all(*successors(scene), identity=OWNER)
    assert not scene.server.done


def test_a_quota_that_is_full_with_the_old_pod_keeps_no_new_one_away(scene: Scene) -> None:
    def refuse_pods(request: Request) -> None:
        full = (403, "Forbidden", 'pods "x" is forbidden: exceeded quota: course')
        scene.server.refuses = {"POST": full} if request.path.endswith("/pods") else {}

    scene.server.before = refuse_pods
    scene.acting.replace_all(*successors(scene), identity=OWNER, dry_run=True)


def test_a_successor_that_is_refused_after_all_brings_the_old_one_back(scene: Scene) -> None:
    first = [True]

    def refuse_once(request: Request) -> None:
        is_pod = request.method == "POST" and request.path.endswith("/pods") and not request.dry
        scene.server.refuses = {"POST": (403, "Forbidden", "not now")} if is_pod and first else {}
        if is_pod:
            first.clear()

    before = deepcopy(scene.server.get("pods", "team-a", "train"))
    scene.server.before = refuse_once
    with pytest.raises(PartlyDone) as raised:
        scene.acting.replace_all(*successors(scene), identity=OWNER)
    assert raised.value.has_effect
    assert "not now" in raised.value.message
    assert "created again as it was" in raised.value.message
    again = deepcopy(scene.server.get("pods", "team-a", "train"))
    assert again is not None
    assert before is not None
    assert again["spec"] == before["spec"]
    assert scene.server.get("resourceclaimtemplates", "team-a", "gpus-2") is None
    scene.agree("pods", "resourceclaimtemplates")


def test_what_cannot_be_taken_back_is_said(scene: Scene) -> None:
    def refuse_pods(request: Request) -> None:
        is_pod = request.method == "POST" and request.path.endswith("/pods") and not request.dry
        scene.server.refuses = {"POST": (403, "Forbidden", "not now")} if is_pod else {}

    scene.server.before = refuse_pods
    with pytest.raises(PartlyDone, match="could not be created again"):
        scene.acting.replace_all(*successors(scene), identity=OWNER)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_replacement_goes_on_where_a_step_was_done_without_an_answer(scene: Scene, method: str) -> None:
    scene.server.silent_on = frozenset({method})
    scene.acting.replace_all(*successors(scene), identity=OWNER)
    made = scene.server.get("pods", "team-a", "train")
    assert made is not None
    assert made["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] == "gpus-2"
    assert [one.method for one in scene.server.done] == ["POST", "DELETE", "POST"]


def test_what_a_finalizer_holds_is_not_replaced(scene: Scene) -> None:
    there = deepcopy(scene.server.get("pods", "team-a", "train"))
    assert there is not None
    there["metadata"]["finalizers"] = ["example.com/hold"]
    scene.server.put("pods", there)
    scene.look()
    with pytest.raises(Conflict, match="holds it"):
        scene.acting.replace_all(*successors(scene), identity=OWNER)
    assert not scene.server.written


# Who ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", [Identity("eve"), Identity("root", (MASTERS,))], ids=lambda one: one.name)
def test_nobody_but_the_owner_acts_by_their_credential(scene: Scene, identity: Identity) -> None:
    with pytest.raises(Forbidden):
        scene.acting.create(kind(CLASSES), make_class("mine"), identity=identity)
    assert not scene.server.written
    assert own_credential(OWNER) == ()


@pytest.mark.parametrize("resource", ["deployments.apps", "resourcequotas", "namespaces", "secrets"])
def test_what_no_mirror_does_is_not_sent(scene: Scene, resource: str) -> None:
    with pytest.raises(Forbidden, match="kubectl"):
        delete(scene, resource, "x", "team-a")
    with pytest.raises(Forbidden, match="kubectl"):
        scene.acting.modify(kind(NODES), cordoned, namespace="", name="n1", identity=OWNER, subresource="status")
    assert not scene.server.asked or not scene.server.written


def test_somebody_is_named_by_impersonation() -> None:
    extra = (("example.com/a b", ("1", "2")), ("Scope", ("\u00e4",)))
    alice = Identity("alice", ("devs", AUTHENTICATED), uid="u", extra=extra, remote=True)
    assert impersonating(alice) == [
        ("Impersonate-User", "alice"),
        ("Impersonate-Uid", "u"),
        ("Impersonate-Group", "devs"),
        ("Impersonate-Extra-example.com%2Fa%20b", "1"),
        ("Impersonate-Extra-example.com%2Fa%20b", "2"),
        ("Impersonate-Extra-%53cope", "\u00e4"),
    ]


#: What servers and what is between read otherwise than it is written, or not at all.
@pytest.mark.parametrize(
    "text", ["", "a\nb", "a\r\nImpersonate-User: root", " root", "root ", "a\tb\t", "\u2028", "\0"]
)
def test_what_no_header_carries_names_nobody(text: str) -> None:
    for identity in (
        Identity(text, (AUTHENTICATED,), remote=True),
        Identity("a", ("b", text, AUTHENTICATED), remote=True),
        Identity("a", (AUTHENTICATED,), extra=(("k", ("b", text)),), remote=True),
        *([Identity("a", (AUTHENTICATED,), uid=text, remote=True)] if text else []),
    ):
        with pytest.raises(Forbidden):
            impersonating(identity)


@pytest.mark.parametrize(
    "identity",
    [
        Identity("root", (MASTERS, AUTHENTICATED)),
        Identity("root", (OWNERS, AUTHENTICATED)),
        Identity("ann", ("devs",), remote=True),
        Identity("ann", remote=True),
    ],
    ids=str,
)
def test_whom_the_cluster_does_not_vouch_for_is_not_named(identity: Identity) -> None:
    with pytest.raises(Forbidden):
        impersonating(identity)


@given(text(max_size=20), text(min_size=1, max_size=20))
def test_every_extra_key_is_what_a_server_decodes(key: str, value: str) -> None:
    identity = Identity("a", (AUTHENTICATED,), extra=((key, (value,)),), remote=True)
    try:
        ((_, _), (name, sent)) = impersonating(identity)
    except Forbidden:
        return
    assert sent == value
    assert re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name), "RFC 9110, 5.6.2"
    assert unquote(name.removeprefix("Impersonate-Extra-").lower()) == key


def test_who_may_impersonate_is_asked_part_by_part(scene: Scene) -> None:
    assert list(not_impersonated(scene.remote)) == []
    assert {one["verb"] for one in scene.server.reviewed} == {"impersonate"}
    scene.server.may = lambda wanted: wanted["resource"] not in ("groups", "userextras")
    assert list(not_impersonated(scene.remote)) == ["groups", *(f"userextras/{key}" for key in ACCOUNT_EXTRAS)]


def test_requests_are_in_the_name_that_is_told(scene: Scene) -> None:
    scene.acting._named = impersonating
    scene.acting.create(
        kind(CLASSES), make_class("mine"), identity=Identity("älice", ("devs", AUTHENTICATED), remote=True)
    )
    headers = scene.server.written[0].headers
    assert headers["Impersonate-User"].encode("latin-1").decode() == "älice"
    assert headers["Impersonate-Group"] == "devs"


# Rights ---------------------------------------------------------------------------------------------------------------


def may(scene: Scene, verb: str, resource: str = "pods", namespace: str = "") -> bool:
    plural, _, group = resource.partition(".")
    wanted = Attributes(verb=verb, group=group, resource=plural, namespace=namespace)
    return scene.rights.decide(OWNER, wanted).allowed


def test_the_cluster_says_what_its_user_may_do_and_is_asked_again_after_seconds(scene: Scene) -> None:
    scene.server.may = lambda wanted: wanted["verb"] == "patch"
    assert may(scene, "update", "nodes"), "it is sent as a patch"
    assert not may(scene, "create", "nodes")
    assert len(scene.server.reviewed) == 2
    scene.server.may = lambda _wanted: True
    assert not may(scene, "create", "nodes")
    scene.now[0] += FRESH + 1
    assert may(scene, "create", "nodes")


def test_a_right_in_a_namespace_is_asked_for_everywhere_first(scene: Scene) -> None:
    for namespace in ("team-a", "team-b", "team-c"):
        assert may(scene, "create", namespace=namespace)
    assert [one["namespace"] for one in scene.server.reviewed] == [""]
    scene.now[0] += FRESH + 1
    scene.server.reviewed.clear()
    scene.server.may = lambda wanted: wanted["namespace"] == "team-b"
    assert not may(scene, "create", namespace="team-a")
    assert may(scene, "create", namespace="team-b")
    assert [one["namespace"] for one in scene.server.reviewed] == ["", "team-a", "team-b"]


def test_a_slow_cluster_is_not_asked_about_every_namespace(scene: Scene) -> None:
    def slow(_wanted: object) -> bool:
        scene.now[0] += 1.0
        return False

    scene.server.may = slow
    for number in range(20):
        assert not may(scene, "create", namespace=f"n{number}")
    assert len(scene.server.reviewed) < 10


def test_while_the_cluster_is_away_it_is_not_asked(scene: Scene) -> None:
    scene.know(away=True)
    assert not may(scene, "create")
    assert not scene.server.reviewed


def test_a_cluster_that_does_not_say_allows_nothing_and_is_left_alone_for_seconds(scene: Scene) -> None:
    scene.server.answer = lambda path: (500, {}, b"no") if "reviews" in path else None
    assert not may(scene, "create")
    assert not may(scene, "delete")
    scene.server.answer = lambda _path: None
    assert not may(scene, "delete")
    assert not scene.server.reviewed
    scene.now[0] += FAILED_FOR + 1
    assert may(scene, "delete")
