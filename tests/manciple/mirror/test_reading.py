"""Reading a server: pages, compression, busy and unreachable servers, certificates, expired tokens, proxies."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manciple.api import certificates
from manciple.mirror import listing
from manciple.mirror.client import PARALLEL, Remote, is_exempt
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.kubeconfig import Access, Cluster, User
from manciple.mirror.listing import Wanted
from manciple.mirror.sources import CLAIM, DEVICES, NODE, POD, TAINT_RULE, WHY, Reach
from tests.manciple.mirror.clusters import NAMESPACE, cluster, meta, pod, remote_of
from tests.manciple.mirror.replay import Answer, Replay

#: (code, headers, body)


def always(answered: Answer, path: str = "") -> Callable[[str], Answer | None]:
    """What answers at the path, "" for any."""
    return lambda asked: answered if path in ("", asked) else None


def pods(count: int) -> dict[str, Any]:
    return {"pods": [{"metadata": meta(f"p-{number:05}", NAMESPACE)} for number in range(count)]}


def test_lists_come_in_pages() -> None:
    with Replay(pods(1201)) as server:
        found = listing.read(remote_of(server), (POD,), namespace=NAMESPACE)
    assert len(found.pages["pods"]) == 1201
    asked = [path for path in server.asked if path.startswith("/api/v1/pods")]
    assert asked == [
        "/api/v1/pods?limit=500",
        "/api/v1/pods?limit=500&continue=500",
        "/api/v1/pods?limit=500&continue=1000",
    ]


def test_a_kind_is_there_while_others_are_still_listed() -> None:
    arrived = threading.Event()

    def slow(path: str) -> None:
        if path == "/api/v1/pods":
            arrived.wait()

    with Replay(cluster(("pods", pod("a"))), answer=slow) as server, ThreadPoolExecutor(PARALLEL) as pool:
        try:
            found = listing.begin(pool, remote_of(server), (NODE, POD), namespace=NAMESPACE)
            arriving = found.arriving()
            assert next(arriving) == "nodes"
            assert len(found.pages["nodes"]) == 2
            assert "pods" not in found.states
        finally:
            arrived.set()
        assert [*arriving] == ["pods"]
    assert len(found.pages["pods"]) == 1
    assert found.version == "v1.36.2"


def test_a_list_whose_state_is_gone_is_read_again_as_a_whole() -> None:
    with Replay(pods(1201), gone=1) as server:
        found = listing.read(remote_of(server), (POD,), namespace=NAMESPACE)
    assert len(found.pages["pods"]) == 1201
    assert found.states["pods"].reach is Reach.EVERYWHERE


def test_a_busy_server_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    refusals = [429, 503, 429]

    def busy(path: str) -> tuple[int, Mapping[str, str], bytes] | None:
        return (refusals.pop(), {"Retry-After": "2"}, b"") if path == "/api/v1/pods" and refusals else None

    with Replay(pods(3), answer=busy) as server:
        found = listing.read(remote_of(server), (POD,), namespace=NAMESPACE)
    assert len(found.pages["pods"]) == 3
    assert waited == [2.0, 2.0, 2.0]


def test_a_connection_that_breaks_is_not_the_end() -> None:
    broken = ["/api/v1/pods"]
    server = Replay(pods(3))
    answered = server.respond

    def respond(target: str, headers: Any) -> Answer:
        if broken and target.startswith(broken[0]):
            broken.pop()
            raise ConnectionResetError  # the handler ends, and the connection with it
        return answered(target, headers)

    server.respond = respond  # type: ignore[method-assign]  # to break off once
    with server:
        found = listing.read(remote_of(server), (POD,), namespace=NAMESPACE)
    assert not broken
    assert len(found.pages["pods"]) == 3


def test_a_server_that_stays_busy_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    busy: Answer = (429, {"Retry-After": "3600"}, b"")
    with Replay(pods(3), answer=lambda path: busy if path == "/api/v1/pods" else None) as server:
        found = listing.read(remote_of(server), (POD, CLAIM), namespace=NAMESPACE)
    assert found.states["pods"].reach is Reach.FAILED
    assert found.states[CLAIM.resource].reach is Reach.EVERYWHERE


def test_kinds_that_may_not_be_listed_or_do_not_exist_are_told_apart() -> None:
    with Replay(cluster(("pods", pod("a"))), forbidden=frozenset({"pods", "nodes"}), only=NAMESPACE) as server:
        found = listing.read(remote_of(server), WHY, namespace=NAMESPACE)
    reaches = {resource: state.reach for resource, state in found.states.items()}
    assert reaches["pods"] is Reach.NAMESPACE
    assert reaches["nodes"] is Reach.FORBIDDEN
    assert reaches[TAINT_RULE.resource] is Reach.ABSENT
    assert reaches["namespaces"] is Reach.EVERYWHERE
    assert len(found.pages["pods"]) == 1
    assert found.version == "v1.36.2"


def test_who_may_not_discover_is_answered_with_the_versions_that_are_there() -> None:
    forbidden: Answer = (403, {}, b"{}")
    with Replay(cluster(), dra="v1beta1", answer=lambda path: forbidden if path == "/apis" else None) as server:
        found = listing.read(remote_of(server), DEVICES, namespace=NAMESPACE)
    assert found.states[CLAIM.resource].version == "v1beta1"


def test_what_is_no_api_is_told() -> None:
    for body in (b"<html>", b"[]", b'{"groups": 7}', b'{"kind": "APIGroupDiscoveryList"}'):
        page: Answer = (200, {}, body)
        with (
            Replay({}, answer=always(page)) as server,
            pytest.raises(RemoteFailure, match="Kubernetes"),
        ):
            listing.read(remote_of(server), WHY, namespace=NAMESPACE)


def test_a_list_that_cannot_be_read_is_a_kind_that_failed() -> None:
    for body in (b"<html>", b'{"items": 7}'):
        page: Answer = (200, {}, body)
        with Replay(cluster(), answer=always(page, "/api/v1/nodes")) as server:
            found = listing.read(remote_of(server), DEVICES, namespace=NAMESPACE)
        assert found.states["nodes"].reach is Reach.FAILED
        assert not found.states["nodes"].is_whole


def test_an_object_that_does_not_exist_and_one_that_may_not_be_read() -> None:
    with Replay(cluster()) as server, pytest.raises(RemoteFailure, match='"a" not found'):
        listing.read(remote_of(server), WHY, namespace=NAMESPACE, wanted=Wanted(POD, NAMESPACE, "a"))
    body = json.dumps({"message": 'pods "a" is forbidden: User "me" cannot get'}).encode()
    with (
        Replay(cluster(), answer=lambda path: (403, {}, body) if path.endswith("/a") else None) as server,
        pytest.raises(RemoteFailure, match="cannot get"),
    ):
        listing.read(remote_of(server), WHY, namespace=NAMESPACE, wanted=Wanted(POD, NAMESPACE, "a"))
    with Replay(cluster(), dra="") as server, pytest.raises(RemoteFailure, match=r"Kubernetes 1\.31"):
        listing.read(remote_of(server), WHY, namespace=NAMESPACE, wanted=Wanted(CLAIM, NAMESPACE, "a"))


# Who asks -------------------------------------------------------------------------------------------------------------


def json_web_token(**claims: Any) -> str:
    def part(document: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part(claims)}.sig"


@pytest.mark.parametrize(
    ("user", "said"),
    [
        (User(name="me", token=json_web_token(exp=time.time() - 7200)), r'token of user "me" expired 2 h'),
        (User(name="me", token=json_web_token(exp=time.time() + 7200)), "may have expired"),
        (User(name="me", token="opaque"), "may have expired"),
        (User(name="me", token="a.b.c"), "may have expired"),
        (User(name="me"), "has none"),
    ],
)
def test_credentials_that_are_not_accepted_are_told(user: User, said: str) -> None:
    with Replay(cluster(), token="right") as server, pytest.raises(RemoteFailure, match=said):
        listing.read(Remote(Access(cluster=Cluster(server=server.url), user=user)), WHY, namespace=NAMESPACE)


def test_headers_of_impersonation_are_sent_with_every_request() -> None:
    user = User(
        token="t", headers=(("Impersonate-User", "bob"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    )
    seen: list[Any] = []
    server = Replay(cluster())
    answered = server.respond

    def respond(target: str, headers: Any) -> Any:
        seen.append((headers["Impersonate-User"], headers.get_all("Impersonate-Group")))
        return answered(target, headers)

    server.respond = respond  # type: ignore[method-assign]  # to see the headers
    with server:
        listing.read(Remote(Access(cluster=Cluster(server=server.url), user=user)), DEVICES, namespace=NAMESPACE)
    assert set(map(str, seen)) == {"('bob', ['a', 'b'])"}


# Connections ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    return certificates.ensure(tmp_path_factory.mktemp("certificates"))


def tls(files: certificates.Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context


def read_devices(cluster_of: Cluster, **user: Any) -> listing.Found:
    remote = Remote(Access(cluster=cluster_of, user=User(token="t", **user)), timeout=10)
    try:
        return listing.read(remote, DEVICES, namespace=NAMESPACE)
    finally:
        remote.close()


def test_a_server_is_trusted_by_the_authority_of_the_kubeconfig_alone(files: certificates.Certificates) -> None:
    with Replay(cluster(), context=tls(files)) as server:
        trusted = Cluster(server=server.url, authority=files.ca_pem)
        assert read_devices(trusted).states["nodes"].is_whole
        assert read_devices(Cluster(server=server.url, insecure=True)).states["nodes"].is_whole
        with pytest.raises(RemoteFailure, match="is not trusted"):
            read_devices(Cluster(server=server.url))
        with pytest.raises(RemoteFailure, match="is not trusted"):
            read_devices(replace(trusted, tls_name="elsewhere.example.com"))
        with pytest.raises(RemoteFailure, match="authority of the kubeconfig cannot be read"):
            read_devices(Cluster(server=server.url, authority="-----BEGIN CERTIFICATE-----"))
        assert read_devices(replace(trusted, tls_name="localhost")).states["nodes"].is_whole


def test_client_certificates_leave_no_file(
    files: certificates.Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pair = {"certificate": files.certificate.read_text(), "key": files.key.read_text()}
    with Replay(cluster(), context=tls(files)) as server:
        assert read_devices(Cluster(server=server.url, authority=files.ca_pem), **pair).states["nodes"].is_whole
        with pytest.raises(RemoteFailure, match="client certificate"):
            read_devices(Cluster(server=server.url, authority=files.ca_pem), certificate="x", key="y")
    assert not list(tmp_path.iterdir())


def test_a_server_that_is_not_there_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(RemoteFailure, match=f"http://127.0.0.1:{port} cannot be reached"):
        read_devices(Cluster(server=f"http://127.0.0.1:{port}"))
    with pytest.raises(RemoteFailure, match="cannot be reached"):
        read_devices(Cluster(server="https://no-such-host.invalid"))


def test_a_server_that_says_nothing_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        remote = Remote(
            Access(cluster=Cluster(server=f"http://127.0.0.1:{listener.getsockname()[1]}"), user=User()), timeout=0.2
        )
        with pytest.raises(RemoteFailure, match="did not answer in time"):
            listing.read(remote, DEVICES, namespace=NAMESPACE)


def test_a_path_before_the_api_is_kept() -> None:
    server = Replay(cluster())
    answered = server.respond
    server.respond = lambda target, headers: (  # type: ignore[method-assign]  # as behind a gateway
        answered(target.removeprefix("/k8s/clusters/c-1"), headers)
        if target.startswith("/k8s/clusters/c-1/")
        else (404, {}, b"{}")
    )
    with server:
        found = read_devices(Cluster(server=f"{server.url}/k8s/clusters/c-1"))
    assert found.states["nodes"].is_whole


def test_a_proxy_of_the_kubeconfig_is_used_and_one_that_cannot_be_is_told() -> None:
    with Replay(cluster()) as proxy:
        asked = proxy.respond
        proxy.respond = lambda target, headers: asked(  # type: ignore[method-assign]  # whole addresses come to proxies
            target.removeprefix("http://cluster.example.com"), headers
        )
        found = read_devices(Cluster(server="http://cluster.example.com", proxy=proxy.url))
    assert found.states["nodes"].is_whole
    assert all(path.startswith("http://cluster.example.com/") for path in proxy.asked)
    with pytest.raises(RemoteFailure, match="cannot be used"):
        Remote(Access(cluster=Cluster(server="https://a", proxy="gopher://b"), user=User()))


@pytest.mark.parametrize(
    ("server", "named", "expected"),
    [
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://10.1.2.3:6443", "localhost, 10.0.0.0/8", True),
        ("https://192.168.0.1", "10.0.0.0/8", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://api.example.com", "10.0.0.0/8", False),
        ("https://10.1.2.3", "10.0.0.0/99,x/y", False),
        ("https://10.1.2.3", "", False),
    ],
)
def test_networks_without_a_proxy(server: str, named: str, expected: bool) -> None:
    assert is_exempt(server, {"NO_PROXY": named}) is expected
