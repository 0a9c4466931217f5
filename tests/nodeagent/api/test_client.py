"""The client against a real socket with TLS: tokens, errors, and a watch that another thread ends."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from nodeagent.api.client import CONFIG_MAPS, LEASES, NODES, PODS, Client, OpenWatch
from nodeagent.config import TokenFile
from nodeagent.failures import ApiFailure

POD = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","resourceVersion":"7"},"spec":{}}'
ANSWERS: dict[str, tuple[int, bytes]] = {
    "/api/v1/namespaces/default/pods/p": (200, POD),
    "/api/v1/namespaces/default/pods/broken": (200, b"<html>"),
    "/api/v1/namespaces/default/pods/gone": (
        404,
        b'{"kind":"Status","code":404,"reason":"NotFound","message":"pods \\"gone\\" not found"}',
    ),
    "/api/v1/namespaces/default/pods/proxy": (502, b"<html>Bad Gateway</html>"),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    quiet = threading.Event()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if self.headers["Authorization"] != "Bearer secret":
            self._answer(401, b'{"kind":"Status","code":401,"reason":"Unauthorized","message":"Unauthorized"}')
        elif "watch=true" in self.path:
            self._watch()
        else:
            self._answer(*ANSWERS[path])

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self) -> None:
        """One event, then silence."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        line = b'{"type":"ADDED","object":' + POD + b"}\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()
        self.quiet.wait(60)

    def log_message(self, *_: object) -> None:
        pass


def certificate(folder: Path) -> tuple[Path, Path]:
    """(certificate, key) of 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "api")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_path, key_path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """(url, CA file) of a server with TLS."""
    cert, key = certificate(tmp_path_factory.mktemp("tls"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    yield f"https://127.0.0.1:{listening.server_port}", cert
    Handler.quiet.set()
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_an_object_is_decoded_to_its_type(server: tuple[str, Path]) -> None:
    client = Client(server[0], token="secret", ca_file=server[1])

    assert client.get(PODS, "p", namespace="default").metadata.resource_version == "7"


def test_a_token_that_was_renewed_in_its_file_is_the_one_that_is_sent(server: tuple[str, Path], tmp_path: Path) -> None:
    """Kubernetes' tokens for pods are good for an hour."""
    path = tmp_path / "token"
    path.write_text("expired\n")
    client = Client(server[0], token=TokenFile(path), ca_file=server[1])
    with pytest.raises(ApiFailure, match="Unauthorized"):
        client.get(PODS, "p", namespace="default")

    path.write_text("secret\n")
    assert client.get(PODS, "p", namespace="default").metadata.resource_version == "7"
    path.write_text("")  # it is being written
    assert client.get(PODS, "p", namespace="default").metadata.resource_version == "7"
    path.unlink()
    assert client.get(PODS, "p", namespace="default").metadata.resource_version == "7"


FAILURES = {
    "not found": ("gone", 404, "NotFound", 'pods "gone" not found'),
    "not an answer of ours": ("proxy", 502, "Unknown", "the API server answered 502"),
    "not JSON": ("broken", 0, "BadAnswer", "the answer cannot be read"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_every_failure_has_code_reason_and_message(server: tuple[str, Path], case: str) -> None:
    name, code, reason, message = FAILURES[case]
    client = Client(server[0], token="secret", ca_file=server[1])

    with pytest.raises(ApiFailure) as caught:
        client.get(PODS, name, namespace="default")

    assert (caught.value.code, caught.value.reason) == (code, reason)
    assert message in caught.value.message


def test_a_wrong_token_is_unauthorized(server: tuple[str, Path]) -> None:
    with pytest.raises(ApiFailure, match="Unauthorized"):
        Client(server[0], token="guess", ca_file=server[1]).get(PODS, "p", namespace="default")


def test_a_server_that_the_ca_did_not_sign_is_not_spoken_to(server: tuple[str, Path]) -> None:
    with pytest.raises(ApiFailure, match="CERTIFICATE_VERIFY_FAILED") as caught:
        Client(server[0], token="secret").get(PODS, "p", namespace="default")

    assert caught.value.reason == "ConnectionFailed"


def test_a_silent_watch_ends_when_another_thread_says_so(server: tuple[str, Path]) -> None:
    client = Client(server[0], token="secret", ca_file=server[1])
    seen, opened = threading.Event(), threading.Event()
    watches: list[OpenWatch[object]] = []  # type: ignore[type-var]

    def follow() -> None:
        try:
            with client.watch(PODS, field_selector="", resource_version="1", seconds=300) as watch:
                watches.append(watch)  # type: ignore[arg-type]
                opened.set()
                for _ in watch:
                    seen.set()
        except ApiFailure:
            pass

    thread = threading.Thread(target=follow)
    thread.start()
    assert opened.wait(60)
    assert seen.wait(60)

    watches[0].interrupt()

    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("name", ["../../other/secrets/s", "..", ".", "a/b", "/a", "a%2Fb", "%2e%2e"])
@pytest.mark.parametrize("where", ["name", "namespace"])
def test_a_name_that_would_lead_elsewhere_is_not_asked_for(where: str, name: str) -> None:
    client = Client("https://127.0.0.1:1", token="secret")
    names = {"name": "c", "namespace": "default", where: name}
    with pytest.raises(ApiFailure, match="invalid resource name") as caught:
        client.get(CONFIG_MAPS, names["name"], namespace=names["namespace"])
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")


PATHS = {
    "an odd name": (PODS.path(namespace="a", name="p?x=1#y z"), "/api/v1/namespaces/a/pods/p%3Fx%3D1%23y%20z"),
    "a system's name": (NODES.path(name="system:a"), "/api/v1/nodes/system:a"),
    "cluster scoped": (NODES.path(name="n"), "/api/v1/nodes/n"),
    "of a namespace": (PODS.path(namespace="a", name="p", subresource="status"), "/api/v1/namespaces/a/pods/p/status"),
    "of all namespaces": (PODS.path(), "/api/v1/pods"),
    "of a group": (
        LEASES.path(namespace="a", name="l"),
        "/apis/coordination.k8s.io/v1/namespaces/a/leases/l",
    ),
}


@pytest.mark.parametrize("case", PATHS)
def test_paths_are_those_of_kubernetes(case: str) -> None:
    given, expected = PATHS[case]

    assert given == expected
