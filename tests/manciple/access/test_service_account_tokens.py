"""Tokens of service accounts: what they say, when they are good, and what ends them."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from joserfc import jws
from joserfc.jwk import ECKey, OctKey
from msgspec.structs import replace
from pytest_django.fixtures import Settings

from claims.kinds.registration import POD
from inventory.kinds.registration import NODE
from manciple.access.authentication import service_account_tokens, signing_keys
from manciple.access.authentication.chain import API_AUDIENCES
from manciple.access.authentication.service_account_tokens import Bound, NamedObject, ServiceAccountTokens, issue
from manciple.access.kinds.secrets import SECRET, Secret
from manciple.access.kinds.service_accounts import SERVICE_ACCOUNT, ServiceAccount
from manciple.store import objects, resealing
from manciple.wire.base import ApiObject
from manciple.wire.errors import Unauthorized
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind
from tests.builders import make_meta, make_node, make_pod

pytestmark = pytest.mark.django_db(transaction=True)

NOW = 1_800_000_000


class Clock:
    now = float(NOW)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(clock: Clock) -> ServiceAccountTokens:
    return ServiceAccountTokens(clock)


def create(kind: Kind, obj: ApiObject) -> Any:
    with objects.writing() as writer:
        return writer.create(kind, obj)


def delete(kind: Kind, obj: ApiObject, *, seconds: int | None = 0) -> None:
    with objects.writing() as writer:
        writer.delete(kind, obj.metadata.namespace, obj.metadata.name, grace_seconds=seconds)


@pytest.fixture
def account() -> ServiceAccount:
    return make_account()


def make_account(name: str = "robot") -> ServiceAccount:
    made = ServiceAccount(api_version="v1", kind="ServiceAccount", metadata=make_meta(name, "default"))
    return create(SERVICE_ACCOUNT, made)  # type: ignore[no-any-return]


def named(obj: ApiObject) -> NamedObject:
    return NamedObject(obj.metadata.name, obj.metadata.uid)


def token(account: ServiceAccount, *, seconds: int = 600, audiences: Any = API_AUDIENCES, **bound: NamedObject) -> str:
    return issue(account, audiences=audiences, seconds=seconds, bound=Bound(**bound), now=NOW).text


def parts(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a token says: header and claims."""
    header, claims = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in text.split(".")[:2])
    return header, claims


def refusal(tokens: ServiceAccountTokens, text: str, audiences: Any = API_AUDIENCES) -> str:
    """Why a token is not good; "" where it is."""
    try:
        found = tokens.authenticate(text, audiences, "")
    except Unauthorized as error:
        return error.message.removeprefix("[invalid bearer token, ").removesuffix("]")
    assert found is not None
    return ""


# What they say --------------------------------------------------------------------------------------------------------


def test_a_token_says_what_those_of_kubernetes_say(account: ServiceAccount) -> None:
    pod, node = NamedObject("web", "uid-of-web"), NamedObject("n1", "uid-of-n1")
    issued = issue(account, audiences=["a", "b"], seconds=700, bound=Bound(pod=pod, node=node), now=NOW, warn_after=100)
    header, claims = parts(issued.text)
    assert header == {"alg": "ES256", "kid": signing_keys.public()[0]["kid"]}
    assert claims == {
        "aud": ["a", "b"],
        "exp": NOW + 700,
        "iat": NOW,
        "iss": "https://kubernetes.default.svc",
        "jti": issued.id,
        "kubernetes.io": {
            "namespace": "default",
            "node": {"name": "n1", "uid": "uid-of-n1"},
            "pod": {"name": "web", "uid": "uid-of-web"},
            "serviceaccount": {"name": "robot", "uid": account.metadata.uid},
            "warnafter": NOW + 100,
        },
        "nbf": NOW,
        "sub": "system:serviceaccount:default:robot",
    }


def test_whoever_shows_it_is_the_account_and_what_it_is_bound_to(
    account: ServiceAccount, tokens: ServiceAccountTokens
) -> None:
    pod = create(POD, make_pod("web"))
    text = token(account, pod=named(pod), node=NamedObject("n1", "uid-of-n1"))
    found = tokens.authenticate(text, ["else", *API_AUDIENCES], "")
    assert found is not None
    assert found.audiences == API_AUDIENCES
    assert found.identity == Identity(
        "system:serviceaccount:default:robot",
        ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"),
        uid=account.metadata.uid,
        extra=(
            ("authentication.kubernetes.io/credential-id", (f"JTI={parts(text)[1]['jti']}",)),
            ("authentication.kubernetes.io/node-name", ("n1",)),
            ("authentication.kubernetes.io/node-uid", ("uid-of-n1",)),
            ("authentication.kubernetes.io/pod-name", ("web",)),
            ("authentication.kubernetes.io/pod-uid", (pod.metadata.uid,)),
        ),
    )


# When they are good ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-61, "service account token is not valid yet"),
        (-60, ""),
        (0, ""),
        (660, ""),
        (661, "service account token has expired"),
    ],
)
def test_a_token_has_its_time(
    account: ServiceAccount, tokens: ServiceAccountTokens, clock: Clock, seconds: int, told: str
) -> None:
    clock.now = NOW + seconds
    assert refusal(tokens, token(account)) == told


def test_a_token_is_good_for_its_audiences_alone(account: ServiceAccount, tokens: ServiceAccountTokens) -> None:
    other = token(account, audiences=["vault", "db"])
    assert refusal(tokens, other) == (
        'token audiences ["vault" "db"] is invalid for the target audiences ["https://kubernetes.default.svc"]'
    )
    assert tokens.remembered(other) is None
    found = tokens.authenticate(other, ["db", "else"], "")
    assert found is not None
    assert found.audiences == ("db",)
    assert tokens.remembered(other) is None


def forged(account: ServiceAccount) -> dict[str, Callable[[], str]]:
    """Tokens that somebody else made, or changed."""
    good = token(account)
    header, claims = parts(good)
    body = json.dumps(claims | {"sub": "system:serviceaccount:kube-system:admin"}).encode()
    head, _, signature = good.split(".")
    encoded = base64.urlsafe_b64encode(body).decode().rstrip("=")
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    public = signing_keys.public()[0]
    return {
        "changed": lambda: f"{head}.{encoded}.{signature}",
        "not signed": lambda: f"{none}.{encoded}.",
        "signed with another key": lambda: jws.serialize_compact(header, body, ECKey.generate_key("P-256")),
        "signed with the public key": lambda: jws.serialize_compact(
            {**header, "alg": "HS256"}, body, OctKey.import_key(json.dumps(public).encode())
        ),
        "signed with a key that nobody knows": lambda: jws.serialize_compact(
            {**header, "kid": "other"}, body, ECKey.generate_key("P-256")
        ),
    }


FORGED = ("changed", "not signed", "signed with another key", "signed with the public key")


@pytest.mark.parametrize("how", FORGED)
def test_nobody_makes_a_token_of_their_own(account: ServiceAccount, tokens: ServiceAccountTokens, how: str) -> None:
    text = forged(account)[how]()
    told = {"not signed": "it is signed with an unknown key", "changed": "its signature is invalid"}
    assert told.get(how, "signature") in refusal(tokens, text)
    assert tokens.remembered(text) is None


def test_what_others_have_issued_is_for_others_to_recognise(account: ServiceAccount, settings: Settings) -> None:
    tokens = ServiceAccountTokens()
    for text in ("", "x", "a.b", "a.b.c", "....", "é.é.é", "mcp_" + "x" * 46):
        assert tokens.authenticate(text, API_AUDIENCES, "") is None
    good = token(account)
    settings.SERVICE_ACCOUNT_ISSUER = "https://elsewhere.example.com"
    assert tokens.authenticate(good, API_AUDIENCES, "") is None


# What ends them -------------------------------------------------------------------------------------------------------


def test_a_token_ends_with_its_account(account: ServiceAccount, tokens: ServiceAccountTokens) -> None:
    text = token(account)
    assert refusal(tokens, text) == ""
    delete(SERVICE_ACCOUNT, account)
    assert tokens.remembered(text) is None
    assert refusal(tokens, text) == 'serviceaccounts "robot" not found'
    other = make_account()
    told = f"service account UID ({other.metadata.uid}) does not match claim ({account.metadata.uid})"
    assert refusal(tokens, text) == told


BOUND: dict[str, tuple[Kind, Callable[[], ApiObject]]] = {
    "pod": (POD, lambda: make_pod("it")),
    "secret": (SECRET, lambda: Secret(api_version="v1", kind="Secret", metadata=make_meta("it", "default"))),
    "node": (NODE, lambda: make_node("it")),
}


@pytest.mark.parametrize("what", BOUND)
def test_a_token_ends_with_what_it_is_bound_to(
    account: ServiceAccount, tokens: ServiceAccountTokens, what: str
) -> None:
    kind, make = BOUND[what]
    bound = create(kind, make())
    to = Bound(**{what: named(bound)})
    text = issue(account, audiences=API_AUDIENCES, seconds=600, bound=to, now=NOW).text
    assert refusal(tokens, text) == ""
    delete(kind, bound)
    assert tokens.remembered(text) is None
    assert refusal(tokens, text) == "service account token has been invalidated"
    again = create(kind, make())
    assert f"{what} UID ({again.metadata.uid}) does not match" in refusal(tokens, text)


def test_a_pods_token_outlives_the_node_that_it_names(account: ServiceAccount, tokens: ServiceAccountTokens) -> None:
    node, pod = create(NODE, make_node("n1")), create(POD, make_pod("web"))
    text = token(account, pod=named(pod), node=named(node))
    delete(NODE, node)
    assert refusal(tokens, text) == ""


def test_a_pod_that_is_held_beyond_its_end_has_no_token_any_more(account: ServiceAccount) -> None:
    clock = Clock()
    tokens = ServiceAccountTokens(clock)
    clock.now = time.time()
    pod = make_pod("web", node="n1")
    pod = create(POD, replace(pod, metadata=replace(pod.metadata, finalizers=("example.com/hold",))))
    text = issue(account, audiences=API_AUDIENCES, seconds=3600, bound=Bound(pod=named(pod)), now=int(clock.now)).text
    delete(POD, pod, seconds=30)
    assert refusal(tokens, text) == ""
    clock.now += 30 + 62
    service_account_tokens._cache.reset()
    assert refusal(tokens, text) == "service account token has been invalidated"


def test_a_token_that_is_known_costs_nothing_until_something_is_written(
    account: ServiceAccount, tokens: ServiceAccountTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_account_tokens, "POLL_INTERVAL", 60.0)

    def queries(text: str) -> int:
        with CaptureQueriesContext(connection) as found:
            tokens.authenticate(text, API_AUDIENCES, "")
        return len(found)

    plain = token(account)
    bound = token(account, pod=named(create(POD, make_pod("web"))))
    assert (queries(plain), queries(bound)) == (1, 1)
    assert (queries(plain), queries(bound)) == (0, 0)
    assert tokens.remembered(plain) is not None
    create(POD, make_pod("other"))
    assert (queries(plain), queries(bound)) == (0, 1)


# Keys -----------------------------------------------------------------------------------------------------------------


def test_a_new_key_signs_and_the_old_one_verifies_until_it_is_removed(
    account: ServiceAccount, tokens: ServiceAccountTokens
) -> None:
    old = token(account)
    call_command("signing_keys", "--add", stdout=io.StringIO())
    new = token(account)
    assert parts(old)[0]["kid"] != parts(new)[0]["kid"]
    assert [key["kid"] for key in signing_keys.public()] == [parts(new)[0]["kid"], parts(old)[0]["kid"]]
    assert (refusal(tokens, old), refusal(tokens, new)) == ("", "")

    told = io.StringIO()
    call_command("signing_keys", "--remove", parts(old)[0]["kid"], stdout=told)
    assert told.getvalue().split()[0] == parts(new)[0]["kid"]
    assert told.getvalue().endswith("signs\n")
    assert refusal(tokens, old)
    assert refusal(tokens, new) == ""
    with pytest.raises(CommandError, match="there is no signing key other"):
        call_command("signing_keys", "--remove", "other")


def test_the_database_holds_no_key_that_signs(account: ServiceAccount, settings: Settings) -> None:
    token(account)
    with connection.cursor() as cursor:
        cursor.execute("SELECT sealed FROM access_signingkey")
        ((sealed,),) = cursor.fetchall()
    assert sealed.startswith("sealed:")
    assert {key for one in signing_keys.public() for key in one} == {"alg", "crv", "kid", "kty", "use", "x", "y"}

    settings.ENCRYPTION_KEYS = ("new", *settings.ENCRYPTION_KEYS)
    assert resealing.reseal() == 1
    settings.ENCRYPTION_KEYS = ("new",)
    signing_keys._ring.reset()
    assert refusal(ServiceAccountTokens(Clock()), token(account)) == ""
