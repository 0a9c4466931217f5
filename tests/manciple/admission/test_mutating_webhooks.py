"""Mutating webhooks: in which order they are asked, what becomes of their patches, and what a hostile one cannot do."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from manciple.access import webhook_client
from manciple.admission import mutation
from manciple.admission import webhooks as at_work
from tests.manciple.admission.documents import (
    MUTATING_WEBHOOKS,
    WEBHOOKS,
    config_map,
    mutating_webhooks,
    rule,
    webhook,
    webhooks,
)
from tests.manciple.admission.test_effect import noted
from tests.manciple.admission.webhook_server import Behaviour, WebhookServer, patching
from tests.manciple.api.requests import CLAIMS, JSON_PATCH, PODS, Api, claim, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ALLOWED = {"response": {"allowed": True}}


def added(path: str, value: Any) -> list[dict[str, Any]]:
    return [{"op": "add", "path": path, "value": value}]


def noting(name: str) -> Behaviour:
    """Writes its name behind those that are there already."""

    def operations(review: Any) -> Any:
        so_far = review["request"]["object"].get("data", {}).get("seen", "")
        return [{"op": "add", "path": "/data/seen", "value": so_far + name}]

    return {"patch": operations}


def installed(
    api: Api, server: WebhookServer, *behaviours: Behaviour, name: str = "guard", hooks: Any = (), **members: Any
) -> None:
    """A configuration with a webhook for each of the behaviours. hooks: what each of them has of its own."""
    found = []
    for number, behaviour in enumerate(behaviours, 1):
        server.behaviours[f"/{name}/{number}"] = behaviour
        own = hooks[number - 1] if hooks else {}
        hook = webhook(server.client_config(f"/{name}/{number}"), name=f"w{number}.example.com", **members | own)
        found.append(hook)
    api.made(MUTATING_WEBHOOKS, mutating_webhooks(*found, name=name))


def asked(server: WebhookServer) -> list[str]:
    return [path.partition("?")[0] for path, _ in server.asked]


# What becomes of a patch ----------------------------------------------------------------------------------------------


def test_what_a_webhook_adds_is_answered_and_stored_and_nobody_owns_it(api: Api, server: WebhookServer) -> None:
    installed(api, server, {"patch": added("/metadata/labels", {"team": "a"})})
    made = api.made(CONFIG_MAPS, config_map(x="1"))
    assert made["metadata"]["labels"] == {"team": "a"}
    stored = api.get(f"{CONFIG_MAPS}/c").json
    assert stored["metadata"]["labels"] == {"team": "a"}
    assert "f:labels" not in json.dumps(stored["metadata"]["managedFields"])
    assert api.patch(f"{CONFIG_MAPS}/c", {"metadata": {"labels": {"team": "b"}}}).json["metadata"]["labels"] == {
        "team": "a"
    }


def test_a_patched_object_is_given_its_defaults(api: Api, server: WebhookServer) -> None:
    sidecar = {"name": "sidecar", "image": "proxy"}
    installed(api, server, {"patch": added("/spec/containers/-", sidecar)}, rules=[rule("pods", "CREATE")])
    made = api.made(PODS, pod())
    first, second = made["spec"]["containers"]
    assert second["name"] == "sidecar"
    assert second["terminationMessagePath"] == first["terminationMessagePath"] != ""
    assert second["imagePullPolicy"] == "Always"
    # The token's volume is mounted in what came later as well, as the reinvocation of Kubernetes' own plugins does.
    assert second.get("volumeMounts") == first.get("volumeMounts")


def test_a_patched_object_is_validated(api: Api, server: WebhookServer) -> None:
    installed(api, server, {"patch": added("/metadata/labels", {"not a key": "x"})})
    refused = api.post(CONFIG_MAPS, config_map())
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert ("FieldValueInvalid", "metadata.labels") in refused.causes
    assert api.get(f"{CONFIG_MAPS}/c").code == 404


def test_a_webhook_may_mend_what_would_be_invalid(api: Api, server: WebhookServer) -> None:
    repaired = {"op": "replace", "path": "/metadata/labels", "value": {"fine": "x"}}
    installed(api, server, {"patch": [repaired]})
    broken = {"metadata": {"labels": {"not a key": "x"}}}
    made = api.made(CONFIG_MAPS, config_map() | {"metadata": {"name": "c", "labels": {"not a key": "x"}}})
    assert made["metadata"]["labels"] == {"fine": "x"}
    assert api.patch(f"{CONFIG_MAPS}/c", broken).json["metadata"]["labels"] == {"fine": "x"}


def test_fields_that_nobody_knows_are_dropped(api: Api, server: WebhookServer) -> None:
    installed(api, server, {"patch": added("/strange", {"a": 1})})
    assert "strange" not in api.made(CONFIG_MAPS, config_map())


def test_validating_webhooks_see_what_the_mutating_ones_left(api: Api, server: WebhookServer) -> None:
    installed(api, server, {"patch": added("/data", {"x": "changed"})})
    server.behaviours["/last"] = ALLOWED
    api.made(WEBHOOKS, webhooks(webhook(server.client_config("/last"))))
    api.made(CONFIG_MAPS, config_map(x="sent"))
    assert [review["request"]["object"]["data"]["x"] for _, review in server.asked] == ["sent", "changed"]


def test_a_patch_is_of_the_version_in_which_the_webhook_is_asked(api: Api, server: WebhookServer) -> None:
    of_claims = rule("resourceclaims", group="resource.k8s.io", versions=("v1beta1",))
    # v1beta1 knows no "exactly".
    installed(api, server, {"patch": added("/spec/devices/requests/0/count", 3)}, rules=[of_claims])
    made = api.made(CLAIMS, claim())
    ((_, review),) = server.asked
    assert review["request"]["object"]["apiVersion"] == "resource.k8s.io/v1beta1"
    assert review["request"]["kind"]["version"] == "v1beta1"
    assert review["request"]["requestKind"]["version"] == "v1"
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 3


def test_exact_rules_are_about_their_own_version_alone(api: Api, server: WebhookServer) -> None:
    of_claims = rule("resourceclaims", group="resource.k8s.io", versions=("v1beta1",))
    installed(api, server, ALLOWED, rules=[of_claims], matchPolicy="Exact")
    api.made(CLAIMS, claim())
    assert server.asked == []


@pytest.mark.parametrize(
    ("operation", "path", "refused"),
    {
        "another namespace": ("replace", "/metadata/namespace", 400),
        "another name on an update": ("replace", "/metadata/name", 422),
        "another uid": ("replace", "/metadata/uid", 409),
    }.values(),
)
def test_a_webhook_cannot_make_it_another_object(
    api: Api, server: WebhookServer, operation: str, path: str, refused: int
) -> None:
    api.made(CONFIG_MAPS, config_map())
    installed(api, server, {"patch": [{"op": operation, "path": path, "value": "other"}]})
    answer = api.patch(f"{CONFIG_MAPS}/c", {"data": {"x": "1"}})
    assert answer.code in (refused, 400, 409, 422), answer.text
    assert "data" not in api.get(f"{CONFIG_MAPS}/c").json


def test_updates_statuses_and_scales_are_patched(api: Api, server: WebhookServer) -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "r"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }
    path = "/apis/apps/v1/namespaces/default/replicasets"
    api.made(path, deployment)
    most = {"op": "replace", "path": "/spec/replicas", "value": 2}
    installed(api, server, {"patch": [most]}, rules=[rule("replicasets/scale", group="apps")])
    answer = api.patch(f"{path}/r/scale", {"spec": {"replicas": 50}})
    assert (answer.code, answer.json["spec"]["replicas"]) == (200, 2)
    assert api.get(f"{path}/r").json["spec"]["replicas"] == 2


# In which order -------------------------------------------------------------------------------------------------------


def test_configurations_go_by_name_and_each_sees_what_those_before_it_left(api: Api, server: WebhookServer) -> None:
    installed(api, server, noting("c"), name="b")
    installed(api, server, noting("a"), noting("b"), name="a")
    made = api.made(CONFIG_MAPS, config_map(seen=""))
    assert made["data"]["seen"] == "abc"
    assert asked(server) == ["/a/1", "/a/2", "/b/1"]


def test_a_webhook_is_chosen_by_what_those_before_it_left(api: Api, server: WebhookServer) -> None:
    hooks = [{}, {"objectSelector": {"matchLabels": {"team": "a"}}}, {"objectSelector": {"matchLabels": {"team": "b"}}}]
    installed(api, server, {"patch": added("/metadata/labels", {"team": "a"})}, noting("x"), noting("y"), hooks=hooks)
    assert api.made(CONFIG_MAPS, config_map(seen=""))["data"]["seen"] == "x"


def test_who_wants_to_is_asked_again_once_somebody_has_changed_the_object_after_it(
    api: Api, server: WebhookServer
) -> None:
    again, never = {"reinvocationPolicy": "IfNeeded"}, {"reinvocationPolicy": "Never"}
    installed(api, server, noting("a"), noting("b"), noting("c"), hooks=[again, never, again])
    made = api.made(CONFIG_MAPS, config_map(seen=""))
    # The last one is asked again because the first changed the object in the second round.
    assert asked(server) == [f"/guard/{number}" for number in (1, 2, 3, 1, 3)]
    assert made["data"]["seen"] == "abcac"


def test_nobody_is_asked_again_because_of_its_own_change(api: Api, server: WebhookServer) -> None:
    installed(api, server, ALLOWED, noting("b"), hooks=[{}, {"reinvocationPolicy": "IfNeeded"}])
    api.made(CONFIG_MAPS, config_map(seen=""))
    assert asked(server) == ["/guard/1", "/guard/2"]


def test_nobody_is_asked_again_where_nothing_changes(api: Api, server: WebhookServer) -> None:
    same = {"op": "test", "path": "/metadata/name", "value": "c"}
    installed(api, server, ALLOWED, {"patch": [same]}, reinvocationPolicy="IfNeeded")
    api.made(CONFIG_MAPS, config_map())
    assert asked(server) == ["/guard/1", "/guard/2"]


def test_who_did_not_match_at_first_is_not_asked_in_the_second_round(api: Api, server: WebhookServer) -> None:
    late = {"objectSelector": {"matchLabels": {"team": "a"}}, "reinvocationPolicy": "IfNeeded"}
    installed(api, server, noting("a"), {"patch": added("/metadata/labels", {"team": "a"})}, hooks=[late, {}])
    api.made(CONFIG_MAPS, config_map(seen=""))
    assert asked(server) == ["/guard/2"]


def test_the_first_refusal_ends_it(api: Api, server: WebhookServer) -> None:
    refusing = {"response": {"allowed": False, "status": {"message": "no"}}}
    installed(api, server, noting("a"), refusing, noting("c"))
    answer = api.post(CONFIG_MAPS, config_map(seen=""))
    assert (answer.code, answer.message) == (400, 'admission webhook "w2.example.com" denied the request: no')
    assert asked(server) == ["/guard/1", "/guard/2"]


# What else is said ----------------------------------------------------------------------------------------------------


def test_warnings_and_annotations_are_passed_on(api: Api, server: WebhookServer) -> None:
    said = {"warnings": ["old"], "auditAnnotations": {"why": "because"}}
    installed(api, server, {"patch": added("/data", {"x": "1"}), "response": said}, ALLOWED)
    answer = api.post(CONFIG_MAPS, config_map())
    assert '299 - "old"' in answer.header("Warning")
    found = noted()
    assert found["w1.example.com/why"] == "because"
    mutations = [json.loads(found[f"mutation.webhook.admission.k8s.io/round_0_index_{at}"]) for at in range(2)]
    assert [one["mutated"] for one in mutations] == [True, False]
    assert mutations[0] | {"mutated": 0} == {"configuration": "guard", "webhook": "w1.example.com", "mutated": 0}


def test_dry_runs_are_mutated_and_forgotten(api: Api, server: WebhookServer) -> None:
    installed(api, server, {"patch": added("/data", {"x": "1"})}, sideEffects="NoneOnDryRun")
    answer = api.post(f"{CONFIG_MAPS}?dryRun=All", config_map())
    assert answer.json["data"] == {"x": "1"}
    ((_, review),) = server.asked
    assert review["request"]["dryRun"] is True
    assert api.get(f"{CONFIG_MAPS}/c").code == 404


def test_deletions_are_refused_but_not_patched(api: Api, server: WebhookServer) -> None:
    api.made(CONFIG_MAPS, config_map())
    installed(api, server, {"patch": added("/data", {"x": "1"})}, rules=[rule("configmaps", "DELETE")])
    answer = api.delete(f"{CONFIG_MAPS}/c")
    assert answer.code == 500
    assert answer.message.endswith(
        'admission webhook "w1.example.com" attempted to modify the object, which is not supported for this operation'
    )
    server.behaviours["/guard/1"] = {"response": {"allowed": False}}
    assert api.delete(f"{CONFIG_MAPS}/c").message.endswith("denied the request without explanation")
    server.behaviours["/guard/1"] = ALLOWED
    assert api.delete(f"{CONFIG_MAPS}/c").code == 200


def test_what_is_posted_below_an_object_is_patched(api: Api, server: WebhookServer) -> None:
    api.made(PODS, pod())
    rules = [rule("pods/binding", "CREATE")]
    installed(api, server, {"patch": added("/metadata/labels", {"bound-by": "hook"})}, rules=rules)
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}}
    assert api.post(f"{PODS}/p/binding", binding).code == 201
    assert api.get(f"{PODS}/p").json["metadata"]["labels"]["bound-by"] == "hook"


# Configurations -------------------------------------------------------------------------------------------------------


def test_a_configuration_is_given_its_defaults_and_judged(api: Api, server: WebhookServer) -> None:
    installed(api, server, ALLOWED)
    (hook,) = api.get(f"{MUTATING_WEBHOOKS}/guard").json["webhooks"]
    assert (hook["reinvocationPolicy"], hook["failurePolicy"], hook["timeoutSeconds"]) == ("Never", "Fail", 10)
    wrong = webhook(server.client_config("/"), name="short", reinvocationPolicy="Always", sideEffects="Some")
    refused = api.post(MUTATING_WEBHOOKS, mutating_webhooks(wrong, name="other"))
    assert (
        'webhooks[0].reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"'
    ) in refused.message
    assert 'webhooks[0].sideEffects: Unsupported value: "Some"' in refused.message
    assert 'webhooks[0].name: Invalid value: "short"' in refused.message


def test_nobody_is_asked_about_configurations(api: Api, server: WebhookServer) -> None:
    everything = [rule("*", "*", group="*", versions=("*",))]
    installed(api, server, {"response": {"allowed": False}}, rules=everything)
    assert api.post(CONFIG_MAPS, config_map()).code == 400
    assert api.delete(f"{MUTATING_WEBHOOKS}/guard").code == 200
    api.made(CONFIG_MAPS, config_map())


# What can go wrong ----------------------------------------------------------------------------------------------------


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


#: what the webhook says -> (how the answer ends, whether failurePolicy Ignore lets the request go on)
WRONG: dict[str, tuple[Behaviour, str, bool]] = {
    "no such path": ({"status": 404}, "status 404", True),
    "a redirect": ({"status": 307, "location": "/elsewhere"}, "status 307", True),
    "no JSON": ({"body": "{"}, "no JSON", True),
    "invalid UTF-8": ({"body": b'{"response": {"allowed": "\xff"}}'}, "no JSON", True),
    "half a character": ({"body": b'{"response": {"allowed": "\\ud800"}}'}, "no JSON", True),
    "a patch without its type": (
        {"response": {"allowed": True, "patch": encoded("[]")}},
        "webhook returned response.patch but not response.patchType",
        True,
    ),
    "a type without a patch": (
        {"response": {"allowed": True, "patchType": "JSONPatch"}},
        "webhook returned response.patchType but not response.patch",
        True,
    ),
    "another type of patch": (
        {"response": {**patching([]), "patchType": "Merge"}},
        'unsupported patch type "Merge"',
        True,
    ),
    "a patch that is no base64": ({"response": {**patching([]), "patch": "%"}}, "undecodable patch", True),
    "a patch that is no list": ({"response": patching({})}, "undecodable patch", True),
    "a patch in broken UTF-8": ({"response": patching(b'[{"op": "\xff"}]')}, "undecodable patch", True),
    "a patch that is a number": ({"response": {**patching([]), "patch": 1}}, "response.patch", True),
    "a patch of what is not there": ({"patch": [{"op": "remove", "path": "/x"}]}, "", False),
    "a test that fails": ({"patch": [{"op": "test", "path": "/kind", "value": "x"}]}, "test failed", False),
    "another kind": ({"patch": [{"op": "replace", "path": "/kind", "value": "Secret"}]}, "", False),
    "no object": ({"patch": [{"op": "replace", "path": "", "value": 1}]}, "", False),
    "a field of another type": ({"patch": added("/data", [1])}, "", False),
    "a deep value": ({"patch": added("/metadata/annotations", json.loads('{"a":' * 70 + "1" + "}" * 70))}, "", True),
    "many operations": ({"patch": added("/data", {}) * 10_001}, "allowed maximum operations", False),
    "a copy bomb": (
        {
            "patch": [
                *added("/data", {"x": "x" * 100_000}),
                *({"op": "copy", "from": "/data/x", "path": f"/data/x{at}"} for at in range(40)),
            ]
        },
        "the accumulated size increase of copy",
        False,
    ),
    "a bomb of copies of copies": (
        {
            "patch": [
                *added("/data", {"x": {}}),
                *({"op": "copy", "from": "/data", "path": f"/data/{at}"} for at in range(40)),
            ]
        },
        "",
        False,
    ),
}


@pytest.mark.parametrize(("behaviour", "words", "may_be_ignored"), WRONG.values(), ids=WRONG.keys())
def test_what_goes_wrong_refuses_the_request(
    api: Api, server: WebhookServer, behaviour: Behaviour, words: str, may_be_ignored: bool
) -> None:
    installed(api, server, behaviour)
    answer = api.post(CONFIG_MAPS, config_map())
    assert (answer.code, answer.reason) == (500, "InternalError"), answer.text
    assert words in answer.message
    assert len(answer.text) < 10_000
    assert api.get(f"{CONFIG_MAPS}/c").code == 404
    api.patch(
        f"{MUTATING_WEBHOOKS}/guard",
        [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}],
        content_type=JSON_PATCH,
    )
    answer = api.post(CONFIG_MAPS, config_map())
    assert answer.code == (201 if may_be_ignored else 500), answer.text
    assert "/elsewhere" not in asked(server)


def test_a_late_webhook_is_not_waited_for(api: Api, server: WebhookServer) -> None:
    installed(api, server, {"late": True}, timeoutSeconds=1)
    answer = api.post(CONFIG_MAPS, config_map())
    assert answer.code == 500
    assert answer.message.endswith("context deadline exceeded")


def test_all_of_them_together_have_a_limited_time(
    api: Api, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutation, "PATIENCE", 0.5)
    installed(api, server, {"late": True}, ALLOWED, failurePolicy="Ignore")
    answer = api.post(CONFIG_MAPS, config_map())
    assert (answer.code, answer.reason) == (504, "Timeout")
    assert "request did not complete within requested timeout" in answer.message
    assert asked(server) == ["/guard/1"]


def test_an_answer_is_read_up_to_a_limit(api: Api, server: WebhookServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_client, "ANSWER_MAX", 1000)
    installed(api, server, {"patch": added("/data", {"x": "x" * 2000})})
    assert api.post(CONFIG_MAPS, config_map()).message.endswith("the answer is longer than 1000 bytes")


def test_a_patch_is_worked_on_for_a_limited_time(
    api: Api, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_work, "PATCH_SECONDS", 0.0)
    installed(api, server, {"patch": added("/data", {"x": "x"})})
    assert api.post(CONFIG_MAPS, config_map()).message.endswith("applying the patch took too long")
