"""Users of a mirrored cluster: what lets them in, what ends their sessions, and that nothing else lets anybody in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from pytest_django.fixtures import Settings

from manciple.access import authorization, cluster_users, page_sessions
from manciple.access.authentication import chain, tokens
from manciple.access.authentication.chain import Credentials
from manciple.access.authorization import Attributes
from manciple.access.cluster_users import LOOK_EVERY, Looks, account_name
from manciple.access.mirrored import OWNERS
from manciple.access.models import Token
from manciple.access.people import SessionStore
from manciple.api.namespaces import ensure_namespaces
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.reviews import FRESH, SILENCE
from manciple.people import person_of_identity, person_of_user
from manciple.store import objects
from manciple.wire.identity import AUTHENTICATED, MASTERS, NAMESPACE_GROUP, VIEWERS, Identity
from manciple.wire.resources import CLAIMS, NAMESPACES, PODS, kind
from tests.builders import make_claim, make_namespace, make_pod
from tests.manciple.access.oidc_provider import CLIENT, SECRET, Provider, running
from tests.manciple.access.test_oidc import FORGED, sign_in
from tests.manciple.mirror.reviewing import INVENTORY, ReviewingCluster, mirror_of

pytestmark = pytest.mark.django_db
HERE, THERE = "vision", "speech"
AWAY = RemoteFailure("it cannot be reached")


class Clock:
    """Of reviews, and of the world's time, which go together."""

    def __init__(self) -> None:
        self.passed = 0.0
        self._began = time.time()

    def __call__(self) -> float:
        return 1000.0 + self.passed

    def now(self) -> float:
        return self._began + self.passed


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(settings: Settings, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> ReviewingCluster:
    """Ada may read in one of two namespaces."""
    ensure_namespaces()
    with objects.writing() as writer:
        for name in (HERE, THERE):
            writer.create(kind(NAMESPACES), make_namespace(name))
            writer.create(kind(PODS), make_pod(f"{name}-pod", namespace=name))
            writer.create(kind(CLAIMS), make_claim(f"{name}-claim", namespace=name))
    made = ReviewingCluster()
    made.open("ada", HERE)
    mirror_of(made, settings, monkeypatch, clock=clock, now=clock.now)
    monkeypatch.setattr(time, "time", clock.now)
    monkeypatch.setattr(cluster_users, "PATIENCE", 120.0)  # on a busy machine
    return made


def entered(cluster: ReviewingCluster, token: str = "", **more: str) -> Client:
    client = Client()
    answer = client.post("/login", {"token": token or cluster.token_of("ada"), **more})
    assert answer.status_code == 302, answer.content
    return client


def shows(client: Client) -> str:
    answer = client.get("/pods")
    return answer.content.decode() if answer.status_code == 200 else f"refused: {answer.status_code}"


def listed(token: str, namespace: str = HERE, **headers: str) -> int:
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **headers}
    return Client().get(path, headers=headers).status_code


# At the API ----------------------------------------------------------------------------------------------------------


def test_a_token_of_the_cluster_is_one_here_with_the_rights_that_it_has_there(cluster: ReviewingCluster) -> None:
    token = cluster.token_of("ada")
    assert listed(token) == 200
    assert listed(token, THERE) == listed(token, "") == 403
    file = Client().get("/pods.json", headers={"Authorization": f"Bearer {token}"})
    assert f"{HERE}-pod" in file.content.decode()
    assert THERE not in file.content.decode()
    rows = Client().get("/api/inventory/claims/", headers={"Authorization": f"Bearer {token}"})
    assert rows.status_code == 200
    assert {row["namespace"] for row in rows.json()["results"]} == {HERE}


def test_whoever_may_list_everywhere_sees_everything(cluster: ReviewingCluster) -> None:
    cluster.allow("team-a", "list", "*")
    token = cluster.token_of("bob", "team-a")
    assert listed(token, "") == 200
    file = Client().get("/pods.csv", headers={"Authorization": f"Bearer {token}"})
    assert THERE in file.getvalue().decode()


def test_a_revoked_token_is_refused_within_seconds_and_a_silent_cluster_is_told_of(
    cluster: ReviewingCluster, clock: Clock
) -> None:
    token = cluster.token_of("ada")
    assert listed(token) == 200
    cluster.failure = AWAY
    assert listed(token) == 200, "what was just allowed stays so"
    clock.passed += FRESH
    assert listed(token) == 503
    clock.passed += SILENCE
    cluster.failure = None
    assert listed(token) == 200
    cluster.tokens.clear()
    clock.passed += FRESH
    assert listed(token) == 401


def shown(name: str) -> tuple[str, dict[str, str]]:
    return "", {name: "ada"}


OTHERS: dict[str, Callable[[ReviewingCluster], tuple[str, dict[str, str]]]] = {
    "nothing": lambda _: ("", {}),
    "a token of this installation": lambda _: (tokens.issue("ada", [MASTERS]), {}),
    "a token of nobody": lambda _: ("x", {}),
    "a user's name in a header": lambda _: shown("X-Remote-User"),
    "a user's name in a header of a proxy": lambda _: shown("X-Forwarded-User"),
    "a user to act as": lambda _: shown("Impersonate-User"),
    "a token, and a user to act as": lambda one: (one.token_of("bob"), {"Impersonate-User": "ada"}),
    "a token, and an administrators' group": lambda one: (
        one.token_of("bob"),
        {"Impersonate-User": "bob", "Impersonate-Group": MASTERS},
    ),
    "another scheme": lambda one: ("", {"Authorization": f"Basic {one.token_of('ada')}"}),
    "a token twice": lambda one: (f"{one.token_of('bob')}, Bearer {one.token_of('ada')}", {}),
}


@pytest.mark.parametrize("case", OTHERS)
@pytest.mark.parametrize("configured", [False, True], ids=["", "with a proxy's header"])
def test_nobody_comes_in_by(cluster: ReviewingCluster, settings: Settings, case: str, configured: bool) -> None:
    if configured:
        settings.PROXY_USER_HEADER, settings.PROXY_ADDRESSES = "X-Remote-User", ["127.0.0.1"]
        settings.PROXY_SECRET = "s"
    token, headers = OTHERS[case](cluster)
    if configured:
        headers["X-Manciple-Proxy-Secret"] = "s"
    assert listed(token, **headers) in (401, 403)


SPECIAL = (MASTERS, OWNERS, VIEWERS, f"{NAMESPACE_GROUP}{THERE}", "system:nodes")


@pytest.mark.parametrize("group", SPECIAL)
@pytest.mark.parametrize("name", ["eve", "system:kube-scheduler", "system:serviceaccount:kube-system:x", "admin"])
def test_no_name_and_no_group_means_anything_here(cluster: ReviewingCluster, name: str, group: str) -> None:
    """It may mean something there, and there it is asked about."""
    User.objects.create_user("admin", is_staff=True)
    token = cluster.token_of(name, group)
    assert listed(token, THERE) == 403
    assert {"user": name, "groups": [group, AUTHENTICATED]}.items() <= cluster.asked[-1][1].items()
    cluster.open(group, THERE)
    assert listed(cluster.token_of(name, group, "more"), THERE) == 200


def test_what_somebody_may_do_is_not_told_from_the_roles_of_this_installation(cluster: ReviewingCluster) -> None:
    held = authorization.rules_of(Identity("ada", (AUTHENTICATED,), remote=True), HERE)
    assert held.incomplete
    assert not held.rules


def test_two_of_one_name_are_kept_apart(cluster: ReviewingCluster) -> None:
    cluster.open("team-a", THERE)
    first, second = cluster.token_of("bob", "team-a"), cluster.token_of("bob", "team-b")
    for _ in range(2):
        assert listed(first, THERE) == 200
        assert listed(second, THERE) == 403
    clients = {token: entered(cluster, token) for token in (first, second)}
    for _ in range(2):
        assert f"{THERE}-pod" in shows(clients[first])
        assert f"{THERE}-pod" not in shows(clients[second])


# Sessions ------------------------------------------------------------------------------------------------------------


def test_a_pasted_token_signs_in_to_what_it_may_see(cluster: ReviewingCluster) -> None:
    page = shows(entered(cluster))
    assert f"{HERE}-pod" in page
    assert THERE not in page


@pytest.mark.parametrize("token", ["", "qzqz", "qz qz", "Bearer qzqz", "qz" * 10_000])
def test_another_token_does_not(cluster: ReviewingCluster, token: str) -> None:
    client = Client()
    answer = client.post("/login", {"token": token})
    assert answer.status_code == 422
    assert not token or token not in answer.content.decode()
    assert client.get("/pods").status_code == 302
    assert not User.objects.exists()


def test_while_the_cluster_is_away_nobody_signs_in(cluster: ReviewingCluster) -> None:
    token = cluster.token_of("ada")
    cluster.failure = AWAY
    answer = Client().post("/login", {"token": token})
    assert answer.status_code == 503
    assert "cannot be reached" in answer.content.decode()


def test_a_token_for_another_audience_does_not_sign_in(
    cluster: ReviewingCluster, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror_of(cluster, settings, monkeypatch, audiences=("manciple",))
    cluster.audiences = ("vault",)
    assert Client().post("/login", {"token": cluster.token_of("ada")}).status_code == 422
    cluster.audiences = ("manciple",)
    entered(cluster)


def test_a_name_and_a_password_sign_nobody_in(cluster: ReviewingCluster) -> None:
    User.objects.create_user("root", password="correct horse", is_staff=True)
    client = Client()
    answer = client.post("/login", {"username": "root", "password": "correct horse"})
    assert answer.status_code == 422
    assert client.get("/pods").status_code == 302


@pytest.mark.parametrize("path", ["/enter?key=", "/welcome/MQ/set"])
def test_no_link_signs_anybody_in(cluster: ReviewingCluster, settings: Settings, path: str) -> None:
    settings.MIRROR_OWNER, settings.MIRROR_KEY = "root", "key"
    User.objects.create_user("root", is_staff=True)
    assert Client().get(f"{path}{'key' if path.endswith('=') else ''}").status_code == 404


def test_a_session_of_before_is_worth_nothing(cluster: ReviewingCluster) -> None:
    """Of an administrator here, or of whoever started a mirror for themselves in the same folder."""
    person = User.objects.create_user("ada", is_staff=True)
    person.groups.add(Group.objects.create(name=OWNERS))
    client = Client()
    client.force_login(person)
    assert client.get("/pods").status_code == 302
    assert not Session.objects.exists()


def test_an_account_of_that_name_here_adds_no_right(cluster: ReviewingCluster) -> None:
    User.objects.create_user("ada", is_staff=True).groups.add(Group.objects.create(name=OWNERS))
    client = entered(cluster)
    assert THERE not in shows(client)
    assert client.get("/people").status_code == 403
    assert client.get("/admin/").status_code == 403


def test_the_session_is_a_new_one_with_nothing_of_the_old(cluster: ReviewingCluster) -> None:
    """Somebody else may have put the old one into the browser, or be signed in by it."""
    for signed_in_before in (False, True):
        client = entered(cluster, cluster.token_of("ada", "earlier")) if signed_in_before else Client()
        session: Any = client.session
        session["planted"] = "x"
        session.save()
        before = session.session_key
        client.post("/login", {"token": cluster.token_of("ada")})
        assert "planted" not in client.session
        assert client.session.session_key != before
        assert not SessionStore().exists(before), "whoever knows its key is not signed in"


def test_signing_in_needs_the_form_of_this_site(cluster: ReviewingCluster) -> None:
    client = Client(enforce_csrf_checks=True)
    assert client.post("/login", {"token": cluster.token_of("ada")}).status_code == 403
    assert not Session.objects.exists()


ELSEWHERE = (
    "https://evil.example/",
    "//evil.example",
    "/\\evil.example",
    "https:///evil.example",
    "javascript:alert(1)",
    "\thttps://evil.example",
    "http://testserver@evil.example",
)


@pytest.mark.parametrize("target", ELSEWHERE)
def test_signing_in_leads_nowhere_else(cluster: ReviewingCluster, target: str) -> None:
    client = Client()
    for _ in range(2):  # who is signed in already is sent on by a GET
        answer = client.post(f"/login?next={target}", {"token": cluster.token_of("ada"), "next": target})
        assert answer.headers["Location"] == "/pods"
        assert client.get("/login", {"next": target}).headers["Location"] == "/pods"


def test_signing_in_leads_on_to_the_page_that_was_asked_for(cluster: ReviewingCluster) -> None:
    asked = Client().get("/pods?q=a").headers["Location"]
    (target,) = parse_qs(urlsplit(asked).query)["next"]
    page = Client().get(asked).content.decode()
    assert 'name="next" value="/pods?q=a"' in page
    answer = Client().post("/login", {"token": cluster.token_of("ada"), "next": target})
    assert answer.headers["Location"] == "/pods?q=a"


def test_who_may_see_devices_begins_there(cluster: ReviewingCluster) -> None:
    cluster.allow("ada", "list", *INVENTORY)
    assert Client().post("/login", {"token": cluster.token_of("ada")}).headers["Location"] == "/devices"


def everything_stored() -> str:
    with connection.cursor() as cursor:
        found = []
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')
            found += [repr(row) for row in cursor.fetchall()]
    return "\n".join(found) + repr([one.get_decoded() for one in Session.objects.all()])


def test_no_token_is_stored_or_logged_as_it_is(cluster: ReviewingCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    token = cluster.token_of("ada")
    client = entered(cluster, token)
    shows(client)
    listed(token)
    Client().post("/login", {"token": "of-nobody-at-all"})
    stored = everything_stored()
    assert "ada" in stored
    for secret in (token, token.split(".")[1], "of-nobody-at-all"):
        assert secret not in stored
        assert secret not in caplog.text


def test_what_a_session_keeps_is_worth_nothing_in_another(cluster: ReviewingCluster) -> None:
    """Whoever can write the database, but lacks the keys, cannot be signed in by another's token."""
    client = entered(cluster)
    for other in ("eve", "ada"):
        thief = entered(cluster, cluster.token_of(other))
        stolen: Any = thief.session
        stolen["cluster_user"] = client.session["cluster_user"]
        stolen.save()
        assert thief.get("/pods").status_code == 302, other


def test_a_revoked_token_loses_the_session_within_seconds(cluster: ReviewingCluster, clock: Clock) -> None:
    client = entered(cluster)
    assert HERE in shows(client)
    cluster.tokens.clear()
    clock.passed += FRESH
    assert client.get("/pods").headers["Location"].startswith("/login")
    assert not Session.objects.exists()


def test_a_session_ends_with_the_token_and_with_the_longest_of_sessions(
    cluster: ReviewingCluster, clock: Clock, settings: Settings
) -> None:
    for expires, lasts in ((120.0, 120.0), (10 * settings.SESSION_COOKIE_AGE, settings.SESSION_COOKIE_AGE)):
        client = entered(cluster, cluster.token_of("ada", expires=expires))
        clock.passed += lasts - 2
        assert HERE in shows(client)
        clock.passed += 3
        assert client.get("/pods").status_code == 302
        clock.passed = 0


def test_groups_are_those_that_the_cluster_says_now(cluster: ReviewingCluster, clock: Clock) -> None:
    token = cluster.token_of("bob", "team-a")
    cluster.open("team-a", THERE)
    client = entered(cluster, token)
    assert f"{THERE}-pod" in shows(client)
    cluster.tokens[token] = {"username": "bob", "groups": [AUTHENTICATED]}
    clock.passed += FRESH
    assert f"{THERE}-pod" not in shows(client)


def test_a_token_that_becomes_somebody_elses_ends_the_session(cluster: ReviewingCluster, clock: Clock) -> None:
    token = cluster.token_of("ada")
    client = entered(cluster, token)
    cluster.tokens[token] = {"username": "eve", "groups": [AUTHENTICATED]}
    clock.passed += FRESH
    assert client.get("/pods").status_code == 302


def test_while_the_cluster_is_away_a_session_sees_nothing_and_stays(cluster: ReviewingCluster, clock: Clock) -> None:
    client = entered(cluster)
    assert HERE in shows(client)
    cluster.failure = AWAY
    assert HERE in shows(client), "for seconds"
    clock.passed += FRESH
    answer = client.get("/pods")
    assert answer.status_code == 503
    assert HERE not in answer.content.decode()
    cluster.failure = None
    clock.passed += SILENCE
    assert HERE in shows(client)


def test_one_may_sign_out_while_the_cluster_is_away(cluster: ReviewingCluster, clock: Clock) -> None:
    client = entered(cluster)
    cluster.failure = AWAY
    clock.passed += FRESH
    client.post("/logout")
    cluster.failure = None
    clock.passed += SILENCE
    assert client.get("/pods").status_code == 302


def test_a_right_that_is_taken_away_counts_within_seconds(cluster: ReviewingCluster, clock: Clock) -> None:
    client = entered(cluster)
    assert f"{HERE}-pod" in shows(client)
    cluster.rights.clear()
    clock.passed += FRESH
    assert f"{HERE}-pod" not in shows(client)


def test_open_pages_and_streams_are_asked_about_again_within_seconds(cluster: ReviewingCluster, clock: Clock) -> None:
    assert chain.asked_again(60.0) <= FRESH
    client = entered(cluster)
    key = client.session.session_key or ""

    def who() -> Identity | None:
        return page_sessions.identity_signed_in(key, Credentials(headers={}))

    identity = who()
    assert identity is not None
    assert identity.remote
    assert identity.name == "ada"
    cluster.failure = AWAY
    clock.passed += FRESH
    silent = who()
    assert silent is not None
    assert not person_of_identity(silent).namespaces, "nothing is told to them meanwhile"
    cluster.failure = None
    cluster.tokens.clear()
    clock.passed += SILENCE
    assert who() is None


def test_without_a_session_nobody_has_any_right(cluster: ReviewingCluster) -> None:
    """As of those who are to be notified of something."""
    cluster.allow("ada", "list", "*")
    entered(cluster)
    person = person_of_user(User.objects.get(username="ada"))
    assert person.namespaces == frozenset()
    assert not person.may("list", "nodes")


def test_nothing_is_kept_for_people_here_that_would_outlive_their_token(cluster: ReviewingCluster) -> None:
    client = entered(cluster)
    account = client.get("/account")
    assert account.status_code == 200
    assert AUTHENTICATED in account.content.decode()
    for path in ("/account/tokens", "/account/password", "/notifications/rules", "/notifications/webhook"):
        assert client.post(path, {"title": "laptop", "days": "7"}).status_code == 403, path
    assert client.get("/notifications").status_code == 403
    assert not Token.objects.exists()


def test_a_name_that_is_longer_than_a_column_is_kept_apart_from_others(cluster: ReviewingCluster) -> None:
    names = [f"system:serviceaccount:{'n' * 63}:{'a' * 180}{end}" for end in ("x", "y")]
    assert len({account_name(name) for name in names}) == 2
    for name in names:
        cluster.open(name, HERE)
        assert HERE in shows(entered(cluster, cluster.token_of(name)))
    assert User.objects.count() == 2


def test_a_closed_account_does_not_come_in(cluster: ReviewingCluster) -> None:
    User.objects.create_user("ada", is_active=False)
    assert Client().post("/login", {"token": cluster.token_of("ada")}).status_code == 422


# By a provider -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    with running(tmp_path_factory.mktemp("provider")) as provider:
        yield provider


@pytest.fixture
def provider(served: Provider, cluster: ReviewingCluster, settings: Settings) -> Provider:
    served.__init__(served.url, served.ca_file, keys=served.keys[-1:])  # type: ignore[misc]
    settings.OIDC_ISSUER, settings.OIDC_CA_FILE = served.url, str(served.ca_file)
    settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = CLIENT, SECRET
    settings.OIDC_USERNAME_PREFIX, settings.OIDC_GROUPS_CLAIM, settings.OIDC_GROUPS_PREFIX = "lab:", "groups", "lab:"
    settings.ADMINISTRATORS_GROUP = "lab:root"
    return served


def test_the_provider_signs_in_with_names_and_groups_as_the_cluster_has_them(
    provider: Provider, cluster: ReviewingCluster
) -> None:
    cluster.open("lab:physics", THERE)
    provider.claims |= {"groups": ["physics", "root"]}
    client = Client()
    answer = sign_in(provider, client, target="/pods")
    assert answer.headers["Location"] == "/pods"
    assert f"{THERE}-pod" in shows(client)
    assert client.get("/people").status_code == 403
    spec = cluster.asked[-1][1]
    assert spec["user"] == "lab:u-1"
    assert set(spec["groups"]) == {"lab:physics", "lab:root", AUTHENTICATED}
    token = provider.token(groups=["physics"])
    assert (listed(token, THERE), listed(token, HERE)) == (200, 403)


def test_that_session_ends_with_the_id_token(provider: Provider, cluster: ReviewingCluster, clock: Clock) -> None:
    cluster.open("lab:u-1", HERE)
    client = Client()
    sign_in(provider, client)
    assert HERE in shows(client)
    clock.passed += 301
    assert client.get("/pods").status_code == 302


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_id_token_lets_nobody_in(provider: Provider, cluster: ReviewingCluster, case: str) -> None:
    cluster.allow("lab:admin", "list", "*")
    cluster.allow("admin", "list", "*")
    assert listed(FORGED[case](provider)) == 401
    provider.id_token = FORGED[case](provider)
    client = Client()
    assert sign_in(provider, client).status_code == 403
    assert client.get("/pods").status_code == 302


WRONG: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example"},
    "another audience": {"aud": "other"},
    "expired": {"exp": int(time.time()) - 1},
    "of the future": {"nbf": int(time.time()) + 4000},
    "without an expiry": {"exp": None},
    "a name of the system's": {"sub": None},
}


@pytest.mark.parametrize("case", WRONG)
def test_an_id_token_is_refused_that_is(provider: Provider, cluster: ReviewingCluster, case: str) -> None:
    cluster.allow("lab:u-1", "list", "*")
    token = provider.token(**WRONG[case])
    assert listed(token) == 401
    provider.id_token = token
    assert sign_in(provider, Client()).status_code == 403


def test_an_id_token_for_another_client_is_the_clusters_to_judge(provider: Provider, cluster: ReviewingCluster) -> None:
    token = provider.token(aud="kubectl")
    assert listed(token) == 401
    cluster.tokens[token] = {"username": "ada", "groups": [AUTHENTICATED]}
    assert listed(provider.token(aud="kubectl", jti="other")) == 401
    assert listed(token) == 401, "a refusal is remembered for a moment"


def test_a_sign_in_that_another_browser_began_is_refused(provider: Provider, cluster: ReviewingCluster) -> None:
    begun = Client().get("/login/oidc").headers["Location"]
    state = parse_qs(urlsplit(begun).query)["state"][0]
    victim = Client()
    for given in (state, "", "x"):
        assert victim.get("/login/oidc/return", {"state": given, "code": "code-0"}).status_code == 403
    assert victim.get("/pods").status_code == 302


def test_the_provider_sends_back_to_the_address_that_people_use(
    provider: Provider, cluster: ReviewingCluster, settings: Settings
) -> None:
    settings.PAGES_URL = "https://devices.example.com"
    begun = Client().get("/login/oidc").headers["Location"]
    assert parse_qs(urlsplit(begun).query)["redirect_uri"] == ["https://devices.example.com/login/oidc/return"]


# Namespaces ----------------------------------------------------------------------------------------------------------


ADA = Identity("ada", (AUTHENTICATED,), remote=True)


@pytest.fixture
def many(cluster: ReviewingCluster) -> list[str]:
    names = [f"ns-{number:03}" for number in range(60)]
    with objects.writing() as writer:
        for name in names:
            writer.create(kind(NAMESPACES), make_namespace(name))
    return names


def looked(looks: Looks, sees: Callable[[str], bool], who: Identity = ADA) -> set[str]:
    return set(looks.of(who, sees).namespaces)


@pytest.fixture
def looks() -> Iterator[Looks]:
    clock = Clock()
    made = Looks(clock=clock)
    made.clock = clock  # type: ignore[attr-defined]
    yield made
    made.stop()


def pass_time(looks: Looks, seconds: float) -> None:
    looks.clock.passed += seconds  # type: ignore[attr-defined]


def finish(looks: Looks) -> None:
    for _, current in looks._of.values():
        assert current is None or current.done.wait(120)


def test_the_namespaces_of_a_person_are_found_among_many_and_lost_at_once(many: list[str], looks: Looks) -> None:
    allowed = {many[3], many[59]}
    assert looked(looks, allowed.__contains__) == allowed
    allowed.discard(many[3])
    assert looked(looks, allowed.__contains__) == {many[59]}


def test_what_is_given_later_is_found_by_the_next_look_or_when_it_is_opened(many: list[str], looks: Looks) -> None:
    allowed = {many[3]}
    looked(looks, allowed.__contains__)
    allowed |= {many[7], many[8]}
    assert looked(looks, allowed.__contains__) == {many[3]}
    looks.add(ADA, many[8])
    assert looked(looks, allowed.__contains__) == {many[3], many[8]}
    pass_time(looks, LOOK_EVERY)
    looked(looks, allowed.__contains__)
    finish(looks)
    assert looked(looks, allowed.__contains__) == allowed


def test_the_looks_of_two_say_nothing_of_each_other(many: list[str], looks: Looks) -> None:
    other = replace(ADA, groups=("team-b", AUTHENTICATED))
    assert looked(looks, {many[1]}.__contains__) == {many[1]}
    assert looked(looks, {many[2]}.__contains__, other) == {many[2]}
    assert looked(looks, {many[1]}.__contains__) == {many[1]}


def test_a_look_asks_once_for_each_namespace_and_not_at_each_request(many: list[str], looks: Looks) -> None:
    asked: list[str] = []
    guard = threading.Lock()

    def sees(name: str) -> bool:
        with guard:
            asked.append(name)
        return name == many[5]

    looked(looks, sees)
    total = len(asked) - 1  # what it found is confirmed
    assert total == len(set(asked)) >= len(many)
    for _ in range(5):
        looked(looks, sees)
    assert len(asked) == total + 6


def test_what_is_not_looked_through_is_told(many: list[str], looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks.of(ADA, {many[0]}.__contains__).lack == ""
    monkeypatch.setattr(cluster_users, "MOST_LOOKED", 10)
    lack = looks.of(replace(ADA, name="bob"), {many[0]}.__contains__).lack
    assert "10 of" in lack
    monkeypatch.setattr(cluster_users, "MOST_LOOKED", 5000)
    monkeypatch.setattr(cluster_users, "MOST_SHOWN", 5)
    sight = looks.of(replace(ADA, name="eve"), lambda _: True)
    assert len(sight.namespaces) == 5
    assert "5" in sight.lack


def test_a_look_while_the_cluster_is_away_takes_nothing_from_anybody(
    many: list[str], looks: Looks, cluster: ReviewingCluster, clock: Clock
) -> None:
    allowed = {many[3]}
    looked(looks, allowed.__contains__)
    pass_time(looks, LOOK_EVERY)
    cluster.failure = AWAY
    authorization.decide(ADA, Attributes(verb="list", resource="pods", namespace="x"))
    assert cluster_users.silence()
    assert looked(looks, lambda _: False) == set()
    finish(looks)
    assert looked(looks, allowed.__contains__) == allowed, "as soon as it answers again"


def test_an_open_namespace_is_seen_though_no_look_has_found_it(cluster: ReviewingCluster, clock: Clock) -> None:
    client = entered(cluster)
    assert f"{THERE}-pod" not in shows(client)
    assert client.get(f"/pods/{THERE}/{THERE}-pod").status_code == 404
    cluster.open("ada", THERE)
    clock.passed += FRESH
    assert client.get(f"/pods/{THERE}/{THERE}-pod").status_code == 200
    assert f"{THERE}-pod" in shows(client)


def test_a_person_without_any_namespace_is_told_so(cluster: ReviewingCluster) -> None:
    answer = entered(cluster, cluster.token_of("eve")).get("/pods")
    assert answer.status_code == 403
    assert "namespace" in answer.content.decode()
