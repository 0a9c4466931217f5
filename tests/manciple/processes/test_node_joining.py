"""A machine joins the cluster, renews its certificate, and is let in by no other way."""

from __future__ import annotations

import hashlib
import stat
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from django.core.management import CommandError, call_command
from django.db import connections

from manciple import layout
from manciple.access.authentication import external as client_certificates
from manciple.access.authentication import tokens
from manciple.api import certificates, kubeconfig
from manciple.api.kubeconfig import Server
from manciple.controllers import certificate_requests
from manciple.processes import node_bootstrap
from manciple.processes.home import Home, write_private
from manciple.store import objects
from manciple.wire.registry import registry
from nodeagent.__main__ import main
from nodeagent.api.client import NODES, Client
from nodeagent.config import read_kubeconfig
from nodeagent.failures import ApiFailure, CredentialRefused, StorageFailed
from nodeagent.node import certificate_maker, credentials, joining
from nodeagent.node.credentials import Acquisition, Renewal, read_certificate
from nodeagent.node.joining import NotJoined, find_authority, join
from nodeagent.storage import Disk
from tests.manciple.access.client_keys import signed
from tests.manciple.api.server import ApiServer, api_server, server_certificates

__all__ = ["api_server", "server_certificates"]

DAY = timedelta(days=1)
#: Clients that a test opened.
OPEN: list[Client] = []


@pytest.fixture
def cluster(api_server: ApiServer, settings: Any) -> Iterator[ApiServer]:
    """A server whose nodes are signed by its authority; it need not wait for connections when it stops."""
    folder = api_server.ca_file.parent
    settings.CA_FILE = settings.CLIENT_CA_FILE = folder / "ca.crt"
    settings.CLIENT_CA_KEY_FILE = folder / "ca.key"
    node_bootstrap.ensure(Server(url=api_server.url, ca_pem=api_server.ca_file.read_text()))
    yield api_server
    while OPEN:
        OPEN.pop().close()


@pytest.fixture
def controller(cluster: ApiServer) -> Iterator[None]:
    """Requests are decided on as they come."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.02):
            certificate_requests.reconcile(datetime.now(UTC))
        connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    yield
    stop.set()
    thread.join(10)


@pytest.fixture(autouse=True)
def _keys_are_made_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent starts a process for each key and each look at a certificate. One test shows that; here it costs most
    of the time.
    """

    def made(what: str, file: str, *node: str) -> dict[str, Any]:
        try:
            return getattr(certificate_maker, what)(Path(file), *node)  # type: ignore[no-any-return]
        except (OSError, TypeError, ValueError) as error:
            raise StorageFailed(f"{file}: {error}") from error

    if request.function is not test_a_machine_becomes_a_node_by_the_command_that_is_printed:
        monkeypatch.setattr(credentials, "_made", made)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "LOOK_AGAIN", 0.02)


def token(node: str = "") -> str:
    return tokens.issue_bootstrap(lifetime=DAY, node=node)


def joined(cluster: ApiServer, folder: Path, *, node: str = "n1", shown: str = "") -> Client:
    join(cluster.url, shown or token(), cluster.ca_file, node=node, folder=folder, wait=20)
    return client_of(folder)


def client_of(folder: Path) -> Client:
    access = read_kubeconfig(folder / "kubeconfig", ca_target=folder / "ca.crt")
    OPEN.append(Client(access.server, token=access.token, certificate=access.certificate, ca_file=access.ca_file))
    return OPEN[-1]


def bootstrapping(cluster: ApiServer, shown: str) -> Client:
    OPEN.append(Client(cluster.url, token=shown, ca_file=cluster.ca_file))
    return OPEN[-1]


def name_of(client: Client) -> str:
    document = client._http.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json={}).json()
    return str(document["status"]["userInfo"]["username"])


# Joining.


@pytest.mark.usefixtures("controller")
def test_a_machine_becomes_a_node_by_the_command_that_is_printed(
    cluster: ApiServer, tmp_path: Path, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.HOME = tmp_path
    own = kubeconfig.render(Server(url=cluster.url, ca_pem=cluster.ca_file.read_text()), user="admin", token="t")
    write_private(Home(tmp_path).kubeconfig, own)
    out = StringIO()
    call_command("node_token", "issue", "--node", "n1", stdout=out)
    program, *arguments = out.getvalue().split()[2:]
    assert program == "nodeagent"

    assert main([*arguments, "--state-dir", str(tmp_path / "n1")]) == 0, capsys.readouterr().err

    assert "Start its agent" in capsys.readouterr().out
    assert name_of(client_of(tmp_path / "n1")) == "system:node:n1"
    for name in ("credential.pem", "kubeconfig"):
        assert stat.S_IMODE((tmp_path / "n1" / name).stat().st_mode) == 0o600
    assert not (tmp_path / "n1" / "credential.next.key").exists()


def test_a_machine_that_is_a_node_asks_for_nothing(cluster: ApiServer, controller: None, tmp_path: Path) -> None:
    joined(cluster, tmp_path)
    before = (tmp_path / "credential.pem").read_bytes()
    joined(cluster, tmp_path, shown="abcdef.0123456789abcdef")
    assert (tmp_path / "credential.pem").read_bytes() == before


def test_a_machine_that_is_one_node_does_not_become_another(
    cluster: ApiServer, controller: None, tmp_path: Path
) -> None:
    joined(cluster, tmp_path)
    with pytest.raises(NotJoined, match="is that of system:node:n1"):
        joined(cluster, tmp_path, node="n2")


@pytest.mark.long
def test_a_second_machine_does_not_get_the_name_of_the_first(
    cluster: ApiServer, controller: None, tmp_path: Path
) -> None:
    joined(cluster, tmp_path / "first")
    with pytest.raises(NotJoined, match=r"certificate revoke"):
        joined(cluster, tmp_path / "second")
    assert not (tmp_path / "second" / "credential.pem").exists()
    client_certificates.revoke_certificates("system:node:n1")
    assert name_of(joined(cluster, tmp_path / "second")) == "system:node:n1"
    with pytest.raises(ApiFailure, match="Unauthorized"):
        client_of(tmp_path / "first").get(NODES, "n1")


def test_a_token_that_is_not_good_lets_nobody_ask(cluster: ApiServer, tmp_path: Path) -> None:
    with pytest.raises(ApiFailure, match="Unauthorized"):
        joined(cluster, tmp_path, shown="abcdef.0123456789abcdef")


def test_who_is_not_approved_in_time_is_told_and_goes_on_from_there(cluster: ApiServer, tmp_path: Path) -> None:
    shown = token()
    with pytest.raises(NotJoined, match="kubectl certificate approve"):
        join(cluster.url, shown, cluster.ca_file, node="n1", folder=tmp_path, wait=0.0)
    certificate_requests.reconcile(datetime.now(UTC))
    join(cluster.url, shown, cluster.ca_file, node="n1", folder=tmp_path, wait=0.0)
    kind = registry.by_resource("certificatesigningrequests.certificates.k8s.io")
    assert len(objects.list(kind).items) == 1, "the request that was made the first time"


class CutOff(BaseException):
    """A kill."""


class Interrupted(Disk):
    """Is killed before or after one of its steps."""

    def __init__(self, step: str, *, after: bool) -> None:
        super().__init__()
        self._step, self._after = step, after

    def _do(self, step: str, act: Callable[[], None]) -> None:
        if step == self._step and not self._after:
            raise CutOff
        act()
        if step == self._step:
            raise CutOff

    def rename(self, source: Path, target: Path) -> None:
        self._do("rename", lambda: Disk.rename(self, source, target))

    def remove(self, path: Path) -> None:
        self._do("remove", lambda: Disk.remove(self, path))


KILLS = [(step, after) for step in ("rename", "remove") for after in (False, True)]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("step", "after"), KILLS)
def test_a_machine_that_is_killed_while_it_joins_goes_on_from_there(
    cluster: ApiServer, tmp_path: Path, step: str, after: bool
) -> None:
    shown = token()
    client = bootstrapping(cluster, shown)
    acquisition = Acquisition(tmp_path, node="n1", disk=Interrupted(step, after=after))
    assert not acquisition.advance(client)
    certificate_requests.reconcile(datetime.now(UTC))
    with pytest.raises(CutOff):
        acquisition.advance(client)

    join(cluster.url, shown, cluster.ca_file, node="n1", folder=tmp_path, wait=0.0)

    assert name_of(client_of(tmp_path)) == "system:node:n1"
    assert sorted(path.name for path in tmp_path.glob("credential*")) == ["credential.pem"]


def test_a_machine_whose_request_was_cleared_away_asks_again_with_its_key(cluster: ApiServer, tmp_path: Path) -> None:
    client = bootstrapping(cluster, token())
    acquisition = Acquisition(tmp_path, node="n1")
    acquisition.advance(client)
    key = (tmp_path / "credential.next.key").read_bytes()
    certificate_requests.reconcile(datetime.now(UTC))
    certificate_requests.reconcile(datetime.now(UTC) + 2 * timedelta(hours=1))
    assert not acquisition.advance(client)
    certificate_requests.reconcile(datetime.now(UTC))
    assert acquisition.advance(client)
    assert (tmp_path / "credential.pem").read_bytes().startswith(key)


# The authority.


def spki_hash(authority: Path) -> str:
    key = x509.load_pem_x509_certificate(authority.read_bytes()).public_key()
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def test_the_authority_is_the_one_that_the_hash_vouches_for(cluster: ApiServer, tmp_path: Path) -> None:
    wanted = spki_hash(cluster.ca_file)
    assert certificates.fingerprint(cluster.ca_file) == wanted
    found = find_authority(cluster.url, tmp_path, ca_hash=wanted, ca_file=None)
    assert found == tmp_path / "ca.crt"
    assert found.read_bytes() == cluster.ca_file.read_bytes()


def test_an_authority_that_nobody_vouched_for_is_not_kept(cluster: ApiServer, tmp_path: Path) -> None:
    with pytest.raises(NotJoined, match="names another authority"):
        find_authority(cluster.url, tmp_path / "n1", ca_hash=f"sha256:{'0' * 64}", ca_file=None)
    assert list((tmp_path / "n1").iterdir()) == []


def test_a_second_authority_beside_the_vouched_one_is_refused(cluster: ApiServer, tmp_path: Path) -> None:
    other = certificates.ensure(tmp_path / "other").ca_pem
    both = Server(url=cluster.url, ca_pem=cluster.ca_file.read_text() + other)
    node_bootstrap.ensure(both)
    with pytest.raises(NotJoined, match="does not name one authority"):
        find_authority(cluster.url, tmp_path, ca_hash=spki_hash(cluster.ca_file), ca_file=None)


NO_AUTHORITY = {
    "no TLS": ("http://h:1", f"sha256:{'0' * 64}", "is not an https:// address"),
    "no hash": ("https://h:1", "md5:abc", "is no hash"),
    "nobody there": ("https://127.0.0.1:1", f"sha256:{'0' * 64}", "--ca-file"),
}


@pytest.mark.parametrize(("server", "given", "told"), NO_AUTHORITY.values(), ids=NO_AUTHORITY.keys())
def test_without_an_authority_nothing_is_sent(tmp_path: Path, server: str, given: str, told: str) -> None:
    with pytest.raises(NotJoined, match=told):
        find_authority(server, tmp_path, ca_hash=given, ca_file=None)


def test_a_bootstrap_token_is_shown_to_nobody_whose_certificate_does_not_hold(
    cluster: ApiServer, tmp_path: Path
) -> None:
    stranger = certificates.ensure(tmp_path / "other").authority
    with pytest.raises(ApiFailure, match="certificate"):
        join(cluster.url, token(), stranger, node="n1", folder=tmp_path / "n1", wait=0.0)


# Renewal.


def renewal(folder: Path, client: Client, at: float) -> Renewal:
    return Renewal(folder, node="n1", renewed=client.renew, clock=lambda: at)


def test_a_certificate_is_renewed_in_time_with_another_key(
    cluster: ApiServer, controller: None, tmp_path: Path
) -> None:
    client = joined(cluster, tmp_path)
    first = read_certificate(tmp_path / "credential.pem")
    assert 0.7 <= (first.renewal - first.begins) / (first.ends - first.begins) <= 0.9
    assert renewal(tmp_path, client, first.renewal - 60).step(client) == pytest.approx(60)

    due = renewal(tmp_path, client, first.renewal)
    assert due.step(client) == credentials.LOOK_AGAIN
    until(lambda: due.step(client) != credentials.LOOK_AGAIN)

    second = read_certificate(tmp_path / "credential.pem")
    assert (second.name, second.key != first.key) == (first.name, True)
    assert name_of(client) == "system:node:n1"


def test_connections_are_opened_with_the_certificate_that_is_there(
    cluster: ApiServer, controller: None, tmp_path: Path
) -> None:
    client = joined(cluster, tmp_path)
    assert name_of(client) == "system:node:n1"
    other = signed(cluster.ca_file.parent, "system:node:other", ["system:nodes"])
    (tmp_path / "credential.pem").write_bytes(other.key + other.certificate)
    assert name_of(client) == "system:node:n1", "the connection is kept"
    client.renew()
    assert name_of(client) == "system:node:other"
    (tmp_path / "credential.pem").unlink()
    with pytest.raises(FileNotFoundError):
        client.renew()
    assert name_of(client) == "system:node:other"


@pytest.mark.long
def test_a_renewal_that_is_refused_leaves_the_certificate_and_is_tried_again(
    cluster: ApiServer, controller: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = joined(cluster, tmp_path)
    first = read_certificate(tmp_path / "credential.pem")

    def refuse(_self: Acquisition, _client: Client) -> bool:
        raise CredentialRefused("request r was denied: no")

    monkeypatch.setattr(Acquisition, "advance", refuse)
    assert renewal(tmp_path, client, first.renewal).step(client) == credentials.AFTER_REFUSAL
    assert read_certificate(tmp_path / "credential.pem") == first


def test_a_node_whose_certificate_has_ended_says_what_to_do(
    cluster: ApiServer, controller: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = joined(cluster, tmp_path)
    ended = read_certificate(tmp_path / "credential.pem").ends
    renewal(tmp_path, client, ended).step(client)
    assert "join again: python -m nodeagent join" in caplog.text


def test_a_certificate_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "credential.pem").write_text("nothing")
    with pytest.raises(StorageFailed, match="credential"):
        read_certificate(tmp_path / "credential.pem")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


# manage.py node_token.


@pytest.mark.django_db
def test_an_installed_system_prints_the_installed_command(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.HOME, settings.CA_FILE = tmp_path, tmp_path / "none"
    monkeypatch.setattr(layout, "NODE_COMMAND", "manciple-agent")
    out = StringIO()
    call_command("node_token", "issue", "--server", "https://api:6443", stdout=out)
    assert out.getvalue().startswith("manciple-agent join https://api:6443 --token ")


@pytest.mark.django_db
def test_bootstrap_tokens_are_listed_by_their_ids_and_revoked(tmp_path: Path, settings: Any) -> None:
    settings.HOME, settings.CA_FILE = tmp_path, tmp_path / "none"
    out = StringIO()
    call_command("node_token", "issue", "--server", "https://api:6443", "--description", "rack 7", stdout=out)
    text = out.getvalue().split()[-1]
    assert out.getvalue().strip() == f"python -m nodeagent join https://api:6443 --token {text}"
    listing = StringIO()
    call_command("node_token", "list", stdout=listing)
    key, _, secret = text.partition(".")
    assert key in listing.getvalue()
    assert "for any node" in listing.getvalue()
    assert "rack 7" in listing.getvalue()
    assert secret not in listing.getvalue()
    call_command("node_token", "revoke", key, stdout=StringIO())
    with pytest.raises(CommandError, match=key):
        call_command("node_token", "revoke", key, stdout=StringIO())
    with pytest.raises(CommandError, match="more than 0"):
        call_command("node_token", "issue", "--server", "https://api:6443", "--hours", "0", stdout=StringIO())


def test_the_kubeconfig_of_a_node_names_its_files(cluster: ApiServer, controller: None, tmp_path: Path) -> None:
    joined(cluster, tmp_path)
    document = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    assert document["users"][0]["user"] == {"client-certificate": "credential.pem", "client-key": "credential.pem"}
