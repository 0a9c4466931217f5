"""Asking for tokens of service accounts, showing them, and verifying them elsewhere. Answers are the reference's."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet
from pytest_django.fixtures import Settings

from manciple.access.authentication import tokens
from tests.manciple.api.requests import PODS, Answer, Api, pod

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
TOKEN = f"{ACCOUNTS}/robot/token"
NODES = "/api/v1/nodes"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


@pytest.fixture(autouse=True)
def robot(api: Api) -> Any:
    """The account."""
    return api.made(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})


def asking(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def to_pod(name: str = "p", **more: str) -> dict[str, Any]:
    return {"kind": "Pod", "apiVersion": "v1", "name": name, **more}


def claims(answer: Answer) -> Any:
    assert answer.code == 201, answer.text
    return json.loads(base64.urlsafe_b64decode(answer.json["status"]["token"].split(".")[1] + "=="))


def make_pod(api: Api, name: str = "p", *, node: str = "", account: str = "robot") -> Any:
    document = pod(name)
    document["spec"] |= {"serviceAccountName": account, "nodeName": node}
    return api.made(PODS, document)


def review(api: Api, token: str, *audiences: str) -> Any:
    spec = {"token": token, "audiences": list(audiences)}
    answer = api.post(REVIEWS, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec})
    assert answer.code == 201, answer.text
    return answer.json["status"]


# Asking ---------------------------------------------------------------------------------------------------------------


def test_a_token_is_for_the_api_and_lasts_an_hour_unless_asked_otherwise(api: Api, robot: Any) -> None:
    answer = api.post(TOKEN, asking())
    said = claims(answer)
    assert (said["aud"], said["exp"] - said["iat"]) == (["https://kubernetes.default.svc"], 3600)
    document = answer.json
    meta = document["metadata"]
    assert (meta["name"], meta["namespace"], meta["uid"]) == ("robot", "default", robot["metadata"]["uid"])
    assert document["spec"] == {
        "audiences": ["https://kubernetes.default.svc"],
        "expirationSeconds": 3600,
        "boundObjectRef": None,
    }
    assert document["status"].keys() == {"token", "expirationTimestamp"}
    other = claims(api.post(TOKEN, asking(audiences=["a", "b"], expirationSeconds=700)))
    assert (other["aud"], other["exp"] - other["iat"]) == (["a", "b"], 700)
    assert claims(api.post(TOKEN, {}))["sub"] == "system:serviceaccount:default:robot"


def test_a_token_is_bound_to_a_pod_on_its_node_to_a_secret_or_to_a_node(api: Api) -> None:
    node = api.made(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})["metadata"]["uid"]
    placed = make_pod(api, node="n1")["metadata"]["uid"]
    make_pod(api, "waiting")
    make_pod(api, "lost", node="gone")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    secret = api.made("/api/v1/namespaces/default/secrets", secret)["metadata"]["uid"]

    def bound(reference: dict[str, Any]) -> Any:
        said = claims(api.post(TOKEN, asking(boundObjectRef=reference)))["kubernetes.io"]
        return {key: value for key, value in said.items() if key not in ("namespace", "serviceaccount")}

    assert bound(to_pod(uid=placed)) == {"pod": {"name": "p", "uid": placed}, "node": {"name": "n1", "uid": node}}
    assert bound(to_pod("waiting")).keys() == {"pod"}
    assert bound(to_pod("lost"))["node"] == {"name": "gone"}
    assert bound({"kind": "Node", "name": "n1"}) == {"node": {"name": "n1", "uid": node}}
    assert bound({"kind": "Secret", "apiVersion": "v1", "name": "s"}) == {"secret": {"name": "s", "uid": secret}}


OTHER_UID = (
    'Operation cannot be fulfilled on Pod "p": the UID in the bound object reference (x) does not match the UID in '
    "record. The object might have been deleted and then recreated"
)
OTHER_ACCOUNT = 'cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name.'
REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "too short": (
        asking(expirationSeconds=1),
        422,
        'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 1: '
        "may not specify a duration less than 10 minutes",
    ),
    "too long": (
        asking(expirationSeconds=2**33),
        422,
        'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 8589934592: '
        "may not specify a duration larger than 2^32 seconds",
    ),
    "a pod that is not there": (asking(boundObjectRef=to_pod("nope")), 404, 'pods "nope" not found'),
    "another pod of that name": (asking(boundObjectRef=to_pod(uid="x")), 409, OTHER_UID),
    "a pod of another account": (asking(boundObjectRef=to_pod("other")), 400, OTHER_ACCOUNT),
    "what none can be bound to": (
        asking(boundObjectRef={"kind": "ConfigMap", "apiVersion": "v1", "name": "p"}),
        400,
        "cannot bind token to object of type /v1, Kind=ConfigMap",
    ),
    "another group": (
        asking(boundObjectRef={"kind": "Deployment", "apiVersion": "apps/v1", "name": "p"}),
        400,
        "cannot bind token to object of type apps/v1, Kind=Deployment",
    ),
    "nothing at all": (asking(boundObjectRef={}), 400, "cannot bind token to object of type /, Kind="),
    "another account's name": (
        {**asking(), "metadata": {"name": "other"}},
        422,
        'TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "other": must match the '
        "service account name if specified",
    ),
    "another namespace": (
        {**asking(), "metadata": {"namespace": "other"}},
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
    ),
}


@pytest.mark.parametrize("about", REFUSED)
def test_what_cannot_be_is_refused(api: Api, about: str) -> None:
    make_pod(api)
    make_pod(api, "other", account="default")
    body, code, message = REFUSED[about]
    answer = api.post(TOKEN, body)
    assert (answer.code, answer.message) == (code, message)


def test_there_is_nothing_to_read_at_a_token(api: Api) -> None:
    assert api.post(f"{ACCOUNTS}/nobody/token", asking()).message == 'serviceaccounts "nobody" not found'
    assert (api.get(TOKEN).code, api.put(TOKEN, {}).code, api.delete(TOKEN).code) == (405, 405, 405)


@pytest.mark.parametrize(("extended", "lasts", "warns"), [(False, 3607, None), (True, 365 * 86400, 3607)])
def test_the_tokens_of_pods_last_a_year_where_somebody_wants_that(
    api: Api, settings: Settings, extended: bool, lasts: int, warns: int | None
) -> None:
    settings.EXTEND_POD_TOKENS = extended
    make_pod(api)
    answer = api.post(TOKEN, asking(expirationSeconds=3607, boundObjectRef=to_pod()))
    said = claims(answer)
    assert said["exp"] - said["iat"] == lasts
    warned = said["kubernetes.io"].get("warnafter")
    assert (warned and warned - said["iat"]) == warns
    for other in (asking(expirationSeconds=3607), asking(expirationSeconds=3600, boundObjectRef=to_pod())):
        assert "warnafter" not in claims(api.post(TOKEN, other))["kubernetes.io"]


def test_a_node_asks_for_tokens_of_its_own_pods_alone(api: Api) -> None:
    mine, other = make_pod(api, node="n1")["metadata"]["uid"], make_pod(api, "other", node="n2")["metadata"]["uid"]
    node = Api(tokens.issue("system:node:n1", ["system:nodes"]))
    assert node.post(TOKEN, asking(boundObjectRef=to_pod(uid=mine))).code == 201
    refused = {
        "bound to nothing": asking(),
        "another node's pod": asking(boundObjectRef=to_pod("other", uid=other)),
        "for whom the pod has none": asking(audiences=["vault"], boundObjectRef=to_pod(uid=mine)),
    }
    assert {why: node.post(TOKEN, body).code for why, body in refused.items()} == dict.fromkeys(refused, 403)


def test_a_token_that_never_ends_is_refused_with_what_to_do_instead(api: Api) -> None:
    about = {"name": "old", "annotations": {"kubernetes.io/service-account.name": "robot"}}
    kind = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token"}
    answer = api.post("/api/v1/namespaces/default/secrets", {**kind, "metadata": about})
    assert answer.code == 403
    assert "`kubectl create token robot -n default`" in answer.message


# Showing --------------------------------------------------------------------------------------------------------------


def test_whoever_shows_a_token_is_its_account_until_the_pod_is_gone(api: Api) -> None:
    uid = make_pod(api)["metadata"]["uid"]
    token = api.post(TOKEN, asking(boundObjectRef=to_pod(uid=uid))).json["status"]["token"]
    path, me = "/apis/authentication.k8s.io/v1/selfsubjectreviews", {"kind": "SelfSubjectReview"}
    answer = Api(token).post(path, {"apiVersion": "authentication.k8s.io/v1", **me})
    assert answer.json["status"]["userInfo"]["username"] == "system:serviceaccount:default:robot"

    assert api.delete(f"{PODS}/p").code == 200
    assert Api(token).post(path, {"apiVersion": "authentication.k8s.io/v1", **me}).code == 401
    assert review(api, token)["error"] == "[invalid bearer token, service account token has been invalidated]"


def test_a_review_tells_whose_token_it_is_and_for_whom(api: Api, robot: Any) -> None:
    token = api.post(TOKEN, asking(audiences=["a", "b"])).json["status"]["token"]
    found = review(api, token, "b", "c")
    assert (found["authenticated"], found["audiences"]) == (True, ["b"])
    user = found["user"]
    assert (user["username"], user["uid"]) == ("system:serviceaccount:default:robot", robot["metadata"]["uid"])
    assert user["groups"] == ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
    assert user["extra"].keys() == {"authentication.kubernetes.io/credential-id"}
    refused = (
        '[invalid bearer token, token audiences ["a" "b"] is invalid for the target audiences '
        '["https://kubernetes.default.svc"]]'
    )
    assert review(api, token) == {"user": {}, "error": refused}
    assert Api(token).get(PODS).code == 401


# Elsewhere ------------------------------------------------------------------------------------------------------------


def test_others_find_the_keys_and_verify_with_them(api: Api) -> None:
    token = api.post(TOKEN, asking(audiences=["vault"])).json["status"]["token"]
    found = api.get("/.well-known/openid-configuration")
    assert found.json == {
        "issuer": "https://kubernetes.default.svc",
        "jwks_uri": "https://testserver/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }
    keys = api.get("/openid/v1/jwks")
    assert keys.header("Content-Type") == "application/jwk-set+json"
    read = jwt.decode(token, KeySet.import_key_set(keys.json), algorithms=["ES256"])
    assert read.claims["aud"] == ["vault"]
    assert (api.post("/openid/v1/jwks", {}).code, Api("").get("/openid/v1/jwks").code) == (405, 403)


def test_an_issuer_of_ones_own_is_where_the_keys_are(api: Api, settings: Settings) -> None:
    settings.SERVICE_ACCOUNT_ISSUER = "https://manciple.example.org"
    found = api.get("/.well-known/openid-configuration").json
    assert (found["issuer"], found["jwks_uri"]) == (
        "https://manciple.example.org",
        "https://manciple.example.org/openid/v1/jwks",
    )
    token = api.post(TOKEN, asking()).json["status"]["token"]
    assert review(api, token)["authenticated"] is True
