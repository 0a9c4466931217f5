"""OpenID Connect: ID tokens at the API, and signing in to the pages by a provider."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from joserfc import jwk

from manciple.access.authentication import chain, external
from manciple.access.authentication.external import ASK_AGAIN, KEPT, OidcOptions, OidcProvider, TokenRefused
from manciple.access.models import OutsideAccount
from manciple.wire.errors import ServiceUnavailable, Unauthorized
from manciple.wire.identity import Identity
from tests.manciple.access.oidc_provider import CLIENT, SECRET, Provider, running
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import Api

__all__ = ["api"]

pytestmark = pytest.mark.django_db
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with running(tmp_path_factory.mktemp("provider")) as provider:
        yield provider


@pytest.fixture(scope="module")
def first_key(served: Provider) -> Any:
    return served.keys[-1]


@pytest.fixture
def provider(served: Provider, first_key: Any, settings: Any) -> Provider:
    """One that the settings name, as it was at first."""
    served.__init__(served.url, served.ca_file, keys=[first_key])  # type: ignore[misc]
    settings.OIDC_ISSUER, settings.OIDC_CA_FILE = served.url, str(served.ca_file)
    settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = CLIENT, SECRET
    settings.OIDC_USERNAME_PREFIX, settings.OIDC_GROUPS_CLAIM, settings.OIDC_GROUPS_PREFIX = "lab:", "groups", "lab:"
    return served


def identified(token: str) -> Identity:
    found = chain.identify_token(token)
    assert found is not None
    return found.identity


# At the API.


def test_an_id_token_lets_in_under_the_name_and_groups_of_the_provider(provider: Provider, api: Api) -> None:
    token = provider.token(groups=["physics", "gpu"], jti="t-1")
    user = Api(token).made(WHO, {})["status"]["userInfo"]
    assert user["username"] == "lab:u-1"
    assert user["groups"] == ["lab:physics", "lab:gpu", "system:authenticated"]
    assert user["extra"] == {"authentication.kubernetes.io/credential-id": ["JTI=t-1"]}


NAMES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "the subject, after the issuer": ({"OIDC_USERNAME_PREFIX": ""}, {}, "{issuer}#u-1"),
    "no prefix": ({"OIDC_USERNAME_PREFIX": "-"}, {}, "u-1"),
    "another claim": ({"OIDC_USERNAME_CLAIM": "login"}, {"login": "ada"}, "lab:ada"),
    "an address of mail, which needs no prefix": (
        {"OIDC_USERNAME_CLAIM": "email", "OIDC_USERNAME_PREFIX": ""},
        {"email": "ada@example.org", "email_verified": True},
        "ada@example.org",
    ),
}


@pytest.mark.parametrize(("given", "claims", "name"), NAMES.values(), ids=NAMES.keys())
def test_a_name_follows_from_the_claim_that_is_set(
    provider: Provider, settings: Any, given: dict[str, Any], claims: dict[str, Any], name: str
) -> None:
    for key, value in given.items():
        setattr(settings, key, value)
    assert identified(provider.token(**claims)).name == name.format(issuer=provider.url)


GROUPS: dict[str, tuple[dict[str, Any], Any, tuple[str, ...]]] = {
    "a list": ({}, ["a", "b", "a"], ("lab:a", "lab:b")),
    "a single name": ({}, "a", ("lab:a",)),
    "none": ({}, None, ()),
    "a claim that is not asked for": ({"OIDC_GROUPS_CLAIM": ""}, ["a"], ()),
    "those of the system": ({"OIDC_GROUPS_PREFIX": ""}, ["system:masters", "system:nodes", "a"], ("a",)),
    "a prefix that would make them so": ({"OIDC_GROUPS_PREFIX": "system:"}, ["masters"], ()),
    "administrators": ({"ADMINISTRATORS_GROUP": "lab:root"}, ["root"], ("system:masters", "lab:root")),
}


@pytest.mark.parametrize(("given", "claim", "groups"), GROUPS.values(), ids=GROUPS.keys())
def test_groups_follow_from_the_claim_and_none_is_the_systems(
    provider: Provider, settings: Any, given: dict[str, Any], claim: Any, groups: tuple[str, ...]
) -> None:
    for key, value in given.items():
        setattr(settings, key, value)
    assert identified(provider.token(groups=claim)).groups == (*groups, "system:authenticated")


NOW = int(time.time())
REFUSED: dict[str, dict[str, Any]] = {
    "expired": {"exp": NOW - 1},
    "without an end": {"exp": None},
    "with an end that is none": {"exp": "tomorrow"},
    "not valid yet": {"nbf": NOW + 3600},
    "for somebody else": {"aud": "another"},
    "for several others": {"aud": ["a", "b"]},
    "for nobody": {"aud": None},
    "without a subject": {"sub": None},
    "with a subject that is none": {"sub": 7},
    "of a name of the system": {"sub": "admin", "prefix": "system:"},
    "with groups that are none": {"groups": {"a": 1}},
    "with a group that is none": {"groups": ["a", 7]},
    "without what is required": {"hd": None},
    "with another than is required": {"hd": "example.com"},
}


@pytest.mark.parametrize("claims", REFUSED.values(), ids=REFUSED.keys())
def test_a_token_that_does_not_say_what_it_must_lets_nobody_in(
    provider: Provider, settings: Any, claims: dict[str, Any]
) -> None:
    settings.OIDC_REQUIRED_CLAIMS = {"hd": "example.org"}
    settings.OIDC_USERNAME_PREFIX = claims.get("prefix", "lab:")
    said = {"hd": "example.org", **{key: value for key, value in claims.items() if key != "prefix"}}
    with pytest.raises(Unauthorized, match="oidc: "):
        chain.identify_token(provider.token(**said))


def test_an_address_of_mail_that_is_not_verified_is_no_name(provider: Provider, settings: Any) -> None:
    settings.OIDC_USERNAME_CLAIM = "email"
    with pytest.raises(Unauthorized, match="not verified"):
        chain.identify_token(provider.token(email="admin@example.org", email_verified=False))


def encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def forged(provider: Provider, header: dict[str, Any], sign: Any) -> str:
    """A token whose signature is what `sign` makes of its first two parts."""
    claims = encoded({"iss": provider.url, "aud": CLIENT, "exp": NOW + 3600, "sub": "admin"})
    text = f"{encoded(header)}.{claims}"
    return f"{text}.{sign(text)}"


def hmac_with(secret: bytes) -> Any:
    def sign(text: str) -> str:
        digest = hmac.new(secret, text.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    return sign


def public_pem(provider: Provider) -> bytes:
    pem: bytes = provider.keys[0][1].as_pem(private=False)
    return pem


FORGED: dict[str, Any] = {
    "not signed at all": lambda p: forged(p, {"alg": "none"}, lambda _: ""),
    "not signed, in other letters": lambda p: forged(p, {"alg": "NonE", "kid": "first"}, lambda _: ""),
    "without an algorithm": lambda p: forged(p, {"kid": "first"}, lambda _: "AAAA"),
    "with the public key as a secret": lambda p: forged(p, {"alg": "HS256", "kid": "first"}, hmac_with(public_pem(p))),
    "with a secret that the provider tells": lambda p: forged(
        p, {"alg": "HS256", "kid": "secret"}, hmac_with(b"secret")
    ),
    "with a key of their own": lambda p: p.token(key=jwk.RSAKey.generate_key(2048), sub="admin"),
    "with a key in the header": lambda p: p.token(**own_key_in_header()),
    "with an algorithm that is not allowed": lambda p: p.token(header={"alg": "RS512"}, sub="admin"),
    "with another's signature": lambda p: p.token(sub="admin").rpartition(".")[0] + "." + p.token().rpartition(".")[2],
}


def own_key_in_header() -> dict[str, Any]:
    own = jwk.RSAKey.generate_key(2048)
    return {"header": {"jwk": own.as_dict(private=False), "kid": None}, "key": own, "sub": "admin"}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED.keys())
@pytest.mark.parametrize("allowed", [["RS256"], ["RS256", "HS256", "none"]], ids=["as set", "set carelessly"])
def test_a_forged_token_lets_nobody_in(provider: Provider, settings: Any, forge: Any, allowed: list[str]) -> None:
    settings.OIDC_ALGORITHMS = allowed
    with pytest.raises(Unauthorized, match="oidc: "):
        chain.identify_token(forge(provider))


NO_TOKENS = ["a.b.c", "a.b", "..", "e30.e30.e30", f"e30.{'W10'}.e30", f"e30.{'9' * 40}.e30"]


@pytest.mark.parametrize("text", NO_TOKENS)
def test_what_is_no_token_of_the_provider_is_left_to_others_and_nobody_is_asked(provider: Provider, text: str) -> None:
    assert chain.identify_token(text) is None
    assert provider.asked == []


@pytest.mark.parametrize("issuer", ["https://169.254.169.254", "https://localhost:1", "file:///etc/passwd"])
def test_an_issuer_that_a_token_names_is_never_asked(provider: Provider, issuer: str) -> None:
    assert chain.identify_token(provider.token(iss=issuer)) is None
    assert provider.asked == []


def test_without_a_provider_no_id_token_is_one(provider: Provider, settings: Any) -> None:
    settings.OIDC_ISSUER = ""
    assert chain.identify_token(provider.token()) is None
    assert Client().get("/login/oidc").status_code == 404
    assert b"single sign-on" not in Client().get("/login").content


def test_who_is_shut_out_here_does_not_come_in_by_the_provider(provider: Provider) -> None:
    User.objects.create_user("lab:u-1", is_active=False)
    with pytest.raises(Unauthorized, match="may no longer sign in"):
        chain.identify_token(provider.token())


def test_a_token_is_checked_once_in_a_while_and_ends_in_time(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = provider.token()
    identified(token)
    ask = external.OidcTokens().remembered
    assert ask(token) is not None
    later = time.monotonic() + external.REMEMBERED
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert ask(token) is None
    monkeypatch.undo()
    ended = time.time() + 301
    monkeypatch.setattr(time, "time", lambda: ended)
    assert ask(token) is None


# The provider's keys.


def asking(provider: Provider) -> tuple[OidcProvider, list[float]]:
    options, clock = OidcOptions.of_settings(), [1000.0]
    assert options is not None
    return OidcProvider(options, clock=lambda: clock[0]), clock


def test_keys_are_asked_for_once(provider: Provider) -> None:
    known, _ = asking(provider)
    for _ in range(5):
        external.check(known, provider.token())
    assert provider.asked == ["/.well-known/openid-configuration", "/keys"]


def test_a_new_key_is_asked_for_when_a_token_names_it_and_not_again_and_again(provider: Provider) -> None:
    known, clock = asking(provider)
    before = provider.token()
    external.check(known, before)
    provider.new_key("second", "EC")
    unknown = provider.token(header={"kid": "third", "alg": "ES256"})
    with pytest.raises(TokenRefused, match="not allowed"):
        external.check(known, provider.token())
    known.options = replace(known.options, algorithms=("RS256", "ES256"))
    clock[0] += ASK_AGAIN
    external.check(known, provider.token())
    external.check(known, before)
    asked = len(provider.asked)
    for _ in range(5):
        with pytest.raises(TokenRefused):
            external.check(known, unknown)
    assert len(provider.asked) == asked, "a flood of unknown keys asks nobody"


def test_a_key_that_the_provider_took_back_is_forgotten(provider: Provider) -> None:
    known, clock = asking(provider)
    before = provider.token()
    external.check(known, before)
    provider.new_key("second")
    provider.keys.pop()
    external.check(known, before)
    clock[0] += KEPT
    with pytest.raises(TokenRefused):
        external.check(known, before)


def test_while_the_provider_is_away_known_keys_go_on_to_count(provider: Provider) -> None:
    known, clock = asking(provider)
    external.check(known, provider.token())
    provider.broken = {"/.well-known/openid-configuration"}
    clock[0] += KEPT
    external.check(known, provider.token())


def test_a_provider_that_was_never_there_makes_the_api_answer_try_again(provider: Provider) -> None:
    provider.broken = {"/keys"}
    with pytest.raises(ServiceUnavailable, match="/keys"):
        chain.identify_token(provider.token())


def test_a_provider_that_calls_itself_otherwise_is_none(provider: Provider) -> None:
    provider.issuer = "https://evil.example"
    with pytest.raises(ServiceUnavailable, match="its issuer is"):
        chain.identify_token(provider.token())


def test_a_provider_whose_certificate_does_not_hold_is_not_heard(provider: Provider, settings: Any) -> None:
    settings.OIDC_CA_FILE = ""
    with pytest.raises(ServiceUnavailable, match="certificate verify failed"):
        chain.identify_token(provider.token())


# Signing in to the pages.


def sign_in(provider: Provider, client: Client, *, target: str = "", **returned: str) -> Any:
    """What answers the browser when it comes back. returned: what it says otherwise than the provider."""
    begun = client.get("/login/oidc", {"next": target})
    assert begun.status_code == 302, begun.content
    with httpx.Client(verify=ssl.create_default_context(cafile=provider.ca_file)) as browser:
        sent_back = browser.get(begun.headers["Location"]).headers["Location"]
    url = urlsplit(sent_back)
    query = {name: values[0] for name, values in parse_qs(url.query).items()} | returned
    assert url.path == "/login/oidc/return"
    return client.get(url.path, query)


def test_a_person_signs_in_by_the_provider(provider: Provider, settings: Any) -> None:
    provider.claims = {"sub": "u-1", "groups": ["physics"]}
    client = Client()
    assert b"Sign in with single sign-on" in client.get("/login?next=/pods").content
    answer = sign_in(provider, client, target="/pods?ns=a")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/pods?ns=a")
    page = client.get("/account").content.decode()
    assert "lab:u-1" in page
    assert "Change password" not in page
    person = User.objects.get()
    assert (person.username, person.is_staff, person.has_usable_password()) == ("lab:u-1", False, False)
    assert [group.name for group in person.groups.all()] == ["lab:physics"]


def test_the_same_subject_is_the_same_person_with_the_groups_and_name_of_today(
    provider: Provider, settings: Any
) -> None:
    settings.OIDC_USERNAME_CLAIM = "login"
    provider.claims = {"sub": "u-1", "login": "ada", "groups": ["physics", "gpu"]}
    sign_in(provider, Client())
    person = User.objects.get()
    person.groups.add(Group.objects.create(name="given here"))
    provider.claims = {"sub": "u-1", "login": "ada.l", "groups": ["gpu", "chemistry"]}
    sign_in(provider, Client())
    person = User.objects.get()
    assert person.username == "lab:ada.l"
    assert {group.name for group in person.groups.all()} == {"lab:gpu", "lab:chemistry", "given here"}


def test_nobody_comes_into_an_account_by_calling_themselves_so(provider: Provider, settings: Any) -> None:
    settings.OIDC_USERNAME_CLAIM, settings.OIDC_USERNAME_PREFIX = "login", "-"
    User.objects.create_superuser("admin")
    provider.claims = {"sub": "u-666", "login": "admin"}
    client = Client()
    answer = sign_in(provider, client)
    assert answer.status_code == 403
    assert b"There is an account admin already" in answer.content
    assert client.get("/overview").status_code == 302
    provider.claims = {"sub": "u-666", "login": "eve"}
    assert sign_in(provider, client).status_code == 302
    provider.claims = {"sub": "u-666", "login": "admin"}
    assert sign_in(provider, Client()).status_code == 403, "nor by taking the name later"
    assert OutsideAccount.objects.count() == 1


def test_members_of_a_group_administer_as_long_as_they_are(provider: Provider, settings: Any) -> None:
    settings.ADMINISTRATORS_GROUP = "lab:root"
    provider.claims = {"sub": "u-1", "groups": ["root"]}
    sign_in(provider, Client())
    assert User.objects.get().is_staff
    provider.claims = {"sub": "u-1", "groups": []}
    sign_in(provider, Client())
    assert not User.objects.get().is_staff


def test_who_is_shut_out_is_told(provider: Provider) -> None:
    sign_in(provider, Client())
    User.objects.update(is_active=False)
    answer = sign_in(provider, Client())
    assert answer.status_code == 403
    assert b"is closed" in answer.content


WRONG_RETURNS: dict[str, tuple[dict[str, str], str]] = {
    "a state that nobody was given": ({"state": "guessed"}, "expired"),
    "no state": ({"state": ""}, "/login"),
    "another provider": ({"iss": "https://evil.example"}, "Another identity provider"),
    "a refusal": ({"error": "access_denied", "error_description": "<b>no</b>"}, "&lt;b&gt;no&lt;/b&gt;"),
    "a code that nobody was given": ({"code": "guessed"}, "no such code"),
}


@pytest.mark.parametrize(("returned", "told"), WRONG_RETURNS.values(), ids=WRONG_RETURNS.keys())
def test_a_browser_that_comes_back_with_something_else_is_refused(
    provider: Provider, returned: dict[str, str], told: str
) -> None:
    client = Client()
    answer = sign_in(provider, client, **returned)
    assert answer.status_code == 403
    assert told in answer.content.decode()
    assert client.get("/overview").status_code == 302


def test_a_state_is_good_once_and_for_one_browser(provider: Provider) -> None:
    client, other = Client(), Client()
    begun = client.get("/login/oidc").headers["Location"]
    with httpx.Client(verify=ssl.create_default_context(cafile=provider.ca_file)) as browser:
        url = urlsplit(browser.get(begun).headers["Location"])
    assert other.get(f"{url.path}?{url.query}").status_code == 403, "of somebody who was sent the address"
    assert client.get(f"{url.path}?{url.query}").status_code == 302
    assert client.get(f"{url.path}?{url.query}").status_code == 403


def test_a_sign_in_that_took_too_long_is_begun_again(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    begun = client.get("/login/oidc").headers["Location"]
    state = parse_qs(urlsplit(begun).query)["state"][0]
    later = time.time() + 601
    monkeypatch.setattr(time, "time", lambda: later)
    assert client.get("/login/oidc/return", {"state": state, "code": "c"}).status_code == 403


BAD_TOKENS: dict[str, Any] = {
    "of another sign-in": lambda p: p.token(nonce="another"),
    "without a nonce": lambda p: p.token(),
    "given to another client": lambda p: p.token(aud=[CLIENT, "other"], azp="other"),
    "expired": lambda p: p.token(exp=NOW - 1),
    "not signed": lambda p: forged(p, {"alg": "none"}, lambda _: ""),
}


@pytest.mark.parametrize("make", BAD_TOKENS.values(), ids=BAD_TOKENS.keys())
def test_a_token_that_is_not_good_signs_nobody_in(provider: Provider, make: Any) -> None:
    provider.id_token = make(provider)
    client = Client()
    answer = sign_in(provider, client)
    assert answer.status_code == 403
    assert not User.objects.exists()


def test_a_provider_that_is_away_is_told_to_the_person(provider: Provider) -> None:
    provider.broken = {"/keys"}
    answer = Client().get("/login/oidc")
    assert answer.status_code == 503
    assert b"does not answer" in answer.content


def test_the_browser_is_sent_with_a_challenge_a_nonce_and_a_state(provider: Provider) -> None:
    query = parse_qs(urlsplit(Client().get("/login/oidc").headers["Location"]).query)
    assert query["response_type"] == ["code"]
    assert query["scope"] == ["openid profile email groups"]
    assert query["redirect_uri"] == ["http://testserver/login/oidc/return"]
    assert query["code_challenge_method"] == ["S256"]
    assert {len(query[name][0]) >= 43 for name in ("state", "nonce", "code_challenge")} == {True}


@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "javascript:alert(1)"])
def test_signing_in_by_the_provider_leads_to_no_other_site(provider: Provider, target: str) -> None:
    assert sign_in(provider, Client(), target=target).headers["Location"] == "/devices"


def test_a_session_that_was_put_into_the_browser_is_worth_nothing_afterwards(provider: Provider) -> None:
    client = Client()
    client.get("/login/oidc")
    planted = client.session.session_key
    sign_in(provider, client)
    assert client.session.session_key != planted
