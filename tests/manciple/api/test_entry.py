"""Who gets in, and how errors look."""

from __future__ import annotations

from datetime import timedelta

import pytest

from manciple.access.authentication import tokens
from manciple.access.models import Token
from manciple.api.answers import warning_header
from tests.manciple.api.requests import CLAIMS, NAMESPACES, PODS, Api, claim

OPEN = ["/version", "/version/", "/healthz", "/livez", "/readyz"]
CLOSED = {
    "/api": 'path "/api"',
    "/apis": 'path "/apis"',
    "/api/v1": 'path "/api/v1"',
    "/apis/resource.k8s.io/v1": 'path "/apis/resource.k8s.io/v1"',
    "/openapi/v3": 'path "/openapi/v3"',
    "/openapi/v2": 'path "/openapi/v2"',
    "/readyz/ping": 'path "/readyz/ping"',
    "/metrics": 'path "/metrics"',
    NAMESPACES: 'resource "namespaces" in API group "" at the cluster scope',
    "/api/v1/x": 'resource "x" in API group "" at the cluster scope',
}


@pytest.mark.parametrize("path", OPEN)
def test_anybody_may_ask_for_health_and_version(api: Api, path: str) -> None:
    assert Api("").get(path).code == 200


@pytest.mark.parametrize("path", CLOSED)
def test_who_shows_no_token_is_anonymous_and_may_hardly_anything(api: Api, path: str) -> None:
    answer = Api("").get(path)
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert 'User "system:anonymous" cannot ' in answer.message
    assert answer.message.endswith(CLOSED[path])


def test_a_strange_token_is_refused(api: Api) -> None:
    answer = Api("not-a-token").get(NAMESPACES)
    assert answer.code == 401
    assert answer.header("WWW-Authenticate").startswith("Bearer")
    assert answer.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }


def test_a_token_lets_in_until_it_is_revoked(api: Api) -> None:
    bob = Api(tokens.issue("bob", ["team"]))
    assert bob.get("/apis").code == 200
    assert tokens.revoke("bob") == 1
    assert bob.get("/apis").code == 401


def test_an_expired_token_is_refused(api: Api) -> None:
    charlie = Api(tokens.issue("charlie", [], lifetime=timedelta(seconds=-1)))
    assert charlie.get(NAMESPACES).code == 401


def test_only_a_digest_of_a_token_is_stored(api: Api) -> None:
    token = tokens.issue("bob", ["team"])
    stored = Token.objects.get(name="bob")
    assert token not in (stored.digest, stored.name)
    assert len(stored.digest) == 64


def test_an_identity_belongs_to_its_groups_and_to_all_who_are_known(api: Api) -> None:
    identity = tokens.identify(tokens.issue("bob", ["team"]))
    assert identity is not None
    assert (identity.name, identity.groups) == ("bob", ("team", "system:authenticated"))


def test_a_used_token_says_when(api: Api) -> None:
    tokens.identify(tokens.issue("bob", []))
    assert Token.objects.get(name="bob").last_used is not None


UNKNOWN = {
    "a resource that nobody serves": "/api/v1/nonsense",
    "a group that nobody serves": "/apis/nonsense.example.com/v1",
    "a version that nobody serves": "/apis/resource.k8s.io/v9/deviceclasses",
    "a cluster's kind in a namespace": "/apis/resource.k8s.io/v1/namespaces/default/deviceclasses",
    "a namespaced object without its namespace": "/api/v1/pods/p",
    "a path below nothing": "/api/v2",
}


@pytest.mark.parametrize("path", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_an_unknown_path_is_a_status(api: Api, path: str) -> None:
    answer = api.get(path)
    assert (answer.code, answer.reason) == (404, "NotFound")
    assert answer.message == "the server could not find the requested resource"
    assert answer.json["details"] == {}, "kubectl debug reads the name in it"


@pytest.mark.parametrize("subresource", ["proxy", "run"])
def test_a_subresource_that_is_not_served_is_named(api: Api, subresource: str) -> None:
    answer = api.get(f"{PODS}/p/{subresource}")
    assert (answer.code, answer.reason, answer.json["details"]) == (404, "NotFound", {})
    assert answer.message == f"the server could not find the requested resource: it does not serve pods/{subresource}"


WRONG_METHODS = {
    "create across namespaces": ("post", "/apis/resource.k8s.io/v1/resourceclaims"),
    "create on an object": ("post", f"{CLAIMS}/c"),
    "replace a collection": ("put", CLAIMS),
    "patch a collection": ("patch", CLAIMS),
    "delete a collection across namespaces": ("delete", "/apis/resource.k8s.io/v1/resourceclaims"),
    "delete all namespaces": ("delete", NAMESPACES),
    "delete a status": ("delete", f"{CLAIMS}/c/status"),
}


@pytest.mark.parametrize(("method", "path"), WRONG_METHODS.values(), ids=WRONG_METHODS.keys())
def test_a_method_that_is_not_served_is_405(api: Api, method: str, path: str) -> None:
    answer = getattr(api, method)(path, claim())
    assert (answer.code, answer.reason) == (405, "MethodNotAllowed")


BROKEN = {
    "no JSON at all": (b"{", "application/json", 400),
    "a list where an object belongs": (b"[]", "application/json", 400),
    "text where a number belongs": (b'{"metadata":{"generation":"x"}}', "application/json", 400),
    "another kind": (b'{"kind":"Pod","apiVersion":"v1"}', "application/json", 400),
    "a media type that nobody reads": (b"x", "text/html", 415),
    "protobuf without its prefix": (b"abc", "application/vnd.kubernetes.protobuf", 400),
    "too much nesting": (b'{"a":' * 2000 + b"1" + b"}" * 2000, "application/json", 400),
}


@pytest.mark.parametrize(("body", "media", "code"), BROKEN.values(), ids=BROKEN.keys())
def test_a_body_that_cannot_be_read_is_a_status(api: Api, body: bytes, media: str, code: int) -> None:
    answer = api.post(CLAIMS, body, content_type=media)
    assert answer.code == code, answer.text
    assert answer.json["kind"] == "Status"


def test_a_body_over_the_limit_is_413(api: Api) -> None:
    answer = api.post(CLAIMS, b" " * (3 * 1024 * 1024 + 1))
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")


ACCEPTED = {
    "protobuf first, as client-go asks": ("application/vnd.kubernetes.protobuf,application/json", 200),
    "protobuf only": ("application/vnd.kubernetes.protobuf", 200),
    "anything": ("*/*", 200),
    "a browser": ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", 200),
    "only what is not offered": ("text/html", 406),
    "an unknown shape only": ("application/json;as=Poem;v=v1;g=meta.k8s.io", 406),
}


@pytest.mark.parametrize(("accept", "code"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_the_accept_header_is_honoured(api: Api, accept: str, code: int) -> None:
    answer = api.get(NAMESPACES, accept=accept)
    assert answer.code == code
    only = "application/vnd.kubernetes.protobuf"
    assert answer.header("Content-Type") == (only if accept == only else "application/json")


def test_yaml_is_answered_where_it_is_asked_for(api: Api) -> None:
    answer = api.get(f"{NAMESPACES}/default", accept="application/yaml")
    assert answer.header("Content-Type") == "application/yaml"
    assert "\nkind: Namespace\n" in answer.text


def test_pretty_answers_are_indented(api: Api) -> None:
    assert '\n  "metadata": {' in api.get(f"{NAMESPACES}/default?pretty=true").text


def test_warnings_are_one_safe_header_of_limited_length() -> None:
    assert warning_header(['unknown field "a"', "b\r\nSet-Cookie: x"]) == (
        '299 - "unknown field \\"a\\"", 299 - "b  Set-Cookie: x"'
    )
    assert len(warning_header([f"unknown field {number}" for number in range(10_000)])) < 5000


def test_a_patch_of_too_much_nesting_is_refused(api: Api) -> None:
    api.made(CLAIMS, claim())
    assert api.patch(f"{CLAIMS}/c", b'{"a":' * 500 + b"1" + b"}" * 500).code == 400


@pytest.mark.parametrize("path", [PODS, "/version", "/readyz"])
def test_an_address_with_too_many_fields_is_answered_with_a_status(api: Api, path: str) -> None:
    answer = api.get(f"{path}?{'&'.join(['x='] * 2000)}")
    if path == PODS:
        assert (answer.code, answer.reason) == (400, "BadRequest")
        assert "exceeded" in answer.message
    else:
        assert answer.code in (200, 400)
