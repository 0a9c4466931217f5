"""A proxy that says by headers who asks: believed when it shows that it is the proxy, and otherwise refused."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client

from manciple.access.authentication import chain, tokens
from manciple.access.authentication import external as client_certificates
from manciple.access.authentication.chain import Credentials
from manciple.api import certificates
from manciple.wire.errors import Unauthorized
from tests.manciple.access.client_keys import Pair, signed
from tests.manciple.api.server import ApiServer, api_server, server_certificates

__all__ = ["api_server", "server_certificates"]

pytestmark = pytest.mark.django_db
SECRET = "between us"
PROXY = "10.0.0.7"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture
def proxied(settings: Any) -> Any:
    settings.PROXY_USER_HEADER, settings.PROXY_GROUP_HEADER = "X-Remote-User", "X-Remote-Group"
    settings.PROXY_ADDRESSES, settings.PROXY_SECRET = ["10.0.0.0/29", "fd00::/64", "127.0.0.1"], SECRET
    return settings


def shown(
    name: str = "ada", *, groups: str = "", peer: str = PROXY, secret: str = SECRET, certificate: bytes | None = None
) -> Credentials:
    headers = {"x-remote-user": name, "x-remote-group": groups, "x-manciple-proxy-secret": secret}
    return Credentials(headers=headers, peer=peer, certificate=certificate, address="203.0.113.7")


BELIEVED = [PROXY, "10.0.0.1", "fd00::1", "::ffff:10.0.0.7", "127.0.0.1"]


@pytest.mark.parametrize("peer", BELIEVED)
def test_whom_the_proxy_names_is_let_in(proxied: Any, peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "EPOCH_WINDOW", 3600.0)  # a busy machine may take longer than it lasts
    for ask in (chain.identify, chain.remembered):
        identity = ask(shown(groups="physics, gpu", peer=peer))
        assert identity is not None
        assert (identity.name, identity.groups) == ("ada", ("physics", "gpu", "system:authenticated"))


NOT_BELIEVED: dict[str, dict[str, Any]] = {
    "from elsewhere": {"peer": "10.0.0.8"},
    "from elsewhere, though a header says otherwise": {"peer": "203.0.113.7"},
    "from nowhere": {"peer": ""},
    "without the secret": {"secret": ""},
    "with another secret": {"secret": "guessed"},
    "a name of the system": {"name": "system:admin"},
    "two names": {"name": "ada,admin"},
}


@pytest.mark.parametrize("given", NOT_BELIEVED.values(), ids=NOT_BELIEVED.keys())
def test_the_header_of_anybody_else_is_refused(proxied: Any, given: dict[str, Any]) -> None:
    credentials = shown(**given)
    with pytest.raises(Unauthorized):
        chain.identify(credentials)
    assert chain.remembered(credentials) is None


def test_groups_of_the_system_are_not_the_proxys_to_give(proxied: Any) -> None:
    identity = chain.identify(shown(groups="system:masters,physics"))
    assert identity is not None
    assert identity.groups == ("physics", "system:authenticated")
    proxied.ADMINISTRATORS_GROUP = "physics"
    identity = chain.identify(shown(groups="physics"))
    assert identity is not None
    assert identity.groups == ("system:masters", "physics", "system:authenticated")


def test_without_the_setting_the_header_says_nothing() -> None:
    assert chain.identify(shown()) is None
    credentials = shown("admin")
    token = {"authorization": f"Bearer {tokens.issue('bob', [])}"}
    identity = chain.identify(Credentials(headers={**credentials.headers, **token}, peer=PROXY))
    assert identity is not None
    assert identity.name == "bob"


def test_an_empty_secret_is_no_secret(proxied: Any) -> None:
    proxied.PROXY_SECRET, proxied.PROXY_CERTIFICATE_NAMES = "", ["front"]
    with pytest.raises(Unauthorized):
        chain.identify(shown(secret=""))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("authority")
    certificates.ensure(made)
    return made


def test_a_certificate_in_the_proxys_name_will_do(proxied: Any, folder: Path) -> None:
    proxied.PROXY_SECRET, proxied.PROXY_CERTIFICATE_NAMES = "", ["front"]
    credentials = shown(secret="", certificate=signed(folder, "front").der)
    identity = chain.identify(credentials)
    assert identity is not None
    assert identity.name == "ada"
    with pytest.raises(Unauthorized):
        chain.identify(shown(secret="", certificate=signed(folder, "ada").der))
    client_certificates.revoke_certificates("front")
    with pytest.raises(Unauthorized):
        chain.identify(credentials)


def test_what_a_proxy_may_not_say_is_not_taken_for_its_own_request(proxied: Any, folder: Path) -> None:
    proxied.PROXY_CERTIFICATE_NAMES = ["front"]
    credentials = shown("system:admin", certificate=signed(folder, "front", ["system:masters"]).der)
    chain.identify(shown(certificate=signed(folder, "front").der))  # what may be remembered is
    assert chain.remembered(credentials) is None
    with pytest.raises(Unauthorized):
        chain.identify(credentials)


# Through a real server.


def client_of(server: ApiServer, folder: Path, pair: Pair | None = None) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(server.ca_file))
    if pair is not None:
        context.load_cert_chain(*pair.written(folder))
    return httpx.Client(base_url=server.url, verify=context, timeout=30)


def test_the_address_is_that_of_the_connection_whatever_is_said_of_forwarding(
    api_server: ApiServer, proxied: Any, tmp_path: Path
) -> None:
    headers = {"X-Remote-User": "ada", "X-Manciple-Proxy-Secret": SECRET, "X-Forwarded-For": "203.0.113.7"}
    with client_of(api_server, tmp_path) as client:
        answer = client.post(WHO, json={}, headers=headers)
        assert answer.json()["status"]["userInfo"]["username"] == "ada"
        proxied.PROXY_ADDRESSES = ["203.0.113.7"]
        assert client.post(WHO, json={}, headers=headers).status_code == 401


SMUGGLED = ["X_Remote_User", "x_remote-user", "X-Remote_User"]


@pytest.mark.parametrize("name", SMUGGLED)
def test_a_header_that_only_reads_alike_is_another_one(
    api_server: ApiServer, proxied: Any, tmp_path: Path, name: str
) -> None:
    said = {"X-Manciple-Proxy-Secret": SECRET, name: "admin"}
    with client_of(api_server, tmp_path) as client:
        assert client.get("/api/v1/namespaces", headers=said).status_code in (401, 403)
        both = client.post(WHO, json={}, headers={**said, "X-Remote-User": "ada"})
        assert both.json()["status"]["userInfo"]["username"] == "ada"
        page = client.get("/account", headers=said)
        assert page.headers["Location"].startswith("/login")


def test_a_name_given_twice_is_refused(api_server: ApiServer, proxied: Any, tmp_path: Path) -> None:
    said = [("X-Remote-User", "admin"), ("X-Remote-User", "ada"), ("X-Manciple-Proxy-Secret", SECRET)]
    with client_of(api_server, tmp_path) as client:
        assert client.get("/api/v1/namespaces", headers=said).status_code == 401


# The pages.


def page(client: Client, name: str = "ada", *, groups: str = "", peer: str = PROXY, secret: str = SECRET) -> Any:
    environ = {"manciple.peer": peer, "HTTP_X_REMOTE_USER": name, "HTTP_X_REMOTE_GROUP": groups}
    said: dict[str, Any] = {key: value for key, value in environ.items() if value or key == "manciple.peer"}
    return client.get("/account", HTTP_X_MANCIPLE_PROXY_SECRET=secret, **said)


def test_whom_the_proxy_names_is_signed_in_to_the_pages(proxied: Any) -> None:
    client = Client()
    answer = page(client, groups="physics")
    assert answer.status_code == 200
    assert b"ada" in answer.content
    person = User.objects.get()
    assert (person.has_usable_password(), [group.name for group in person.groups.all()]) == (False, ["physics"])
    key = client.session.session_key
    page(client, groups="physics")
    assert client.session.session_key == key, "one session, not one for each page"


def test_what_the_proxy_says_today_counts(proxied: Any) -> None:
    client = Client()
    page(client, groups="physics,gpu")
    page(client, groups="gpu")
    assert [group.name for group in User.objects.get().groups.all()] == ["gpu"]
    assert b"bob" in page(client, "bob").content
    assert User.objects.count() == 2


def test_the_session_ends_when_the_proxy_names_nobody(proxied: Any) -> None:
    client = Client()
    page(client)
    assert page(client, "").headers["Location"].startswith("/login")


def test_who_is_shut_out_here_does_not_come_in_by_the_proxy(proxied: Any) -> None:
    User.objects.create_user("ada", is_active=False)
    answer = page(Client())
    assert answer.status_code == 403
    assert b"is closed" in answer.content


REFUSED_PAGES = {"from elsewhere": {"peer": "203.0.113.7"}, "without the secret": {"secret": "guessed"}}


@pytest.mark.parametrize("given", REFUSED_PAGES.values(), ids=REFUSED_PAGES.keys())
def test_nobody_else_names_a_person_for_the_pages(proxied: Any, given: dict[str, str]) -> None:
    answer = page(Client(), **given)
    assert answer.status_code == 403
    assert b"did not come from the proxy" in answer.content
    assert not User.objects.exists()


def test_without_the_setting_nobody_is_signed_in_by_a_header() -> None:
    assert page(Client()).headers["Location"].startswith("/login")
    assert not User.objects.exists()
