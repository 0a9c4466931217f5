"""A webhook's server over HTTPS: answers by path what a test has told it to, and keeps what it was asked."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Review = dict[str, Any]
#: How to answer: {"response": the response of the review} or {"review": all of it}, "UID" standing for the request's;
#: or {"patch": operations of a JSON patch, or a function of the review that makes them};
#: or {"convert": a function of an object and the wanted apiVersion}, for conversion reviews;
#: or "status", "body", "location"; and "late": answer only when the server is closed; "together": only when as many
#: are asked at once.
Behaviour = Mapping[str, Any]

#: Seconds after which calls that should be made at once are known not to be.
MEETING_TIMEOUT = 4.0


class WebhookServer:
    """url: https://127.0.0.1:PORT. ca_bundle: as a configuration has it.

    asked: (path with query, review), in order; hosts: under which names.
    """

    def __init__(self, folder: Path) -> None:
        pem = folder / "webhook.pem"
        certificate, key = self_signed()
        pem.write_bytes(certificate + key)
        self.ca_bundle = base64.b64encode(certificate).decode()
        self.behaviours: dict[str, Behaviour] = {}
        self.asked: list[tuple[str, Review]] = []
        self.hosts: list[str] = []
        self.closing = threading.Event()
        self._meetings: dict[int, threading.Barrier] = {}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        self.listening = _Listening(("127.0.0.1", 0), _handler(self))
        self.listening.socket = context.wrap_socket(
            self.listening.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://127.0.0.1:{self.listening.server_port}"

    def meeting(self, parties: int) -> threading.Barrier:
        return self._meetings.setdefault(parties, threading.Barrier(parties))

    def client_config(self, path: str) -> dict[str, str]:
        return {"url": self.url + path, "caBundle": self.ca_bundle}


class _Listening(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Callers that do not trust it, or do not wait, are what the tests are about."""


@contextmanager
def serving(folder: Path) -> Iterator[WebhookServer]:
    server = WebhookServer(folder)
    thread = threading.Thread(target=server.listening.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.listening.shutdown()
        thread.join()
        server.listening.server_close()


def _handler(server: WebhookServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.asked.append((self.path, review))
            server.hosts.append(self.headers["Host"])
            behaviour = server.behaviours.get(self.path.partition("?")[0], {"status": 404, "body": "no such hook"})
            if behaviour.get("late"):
                server.closing.wait()
            if "together" in behaviour:
                server.meeting(behaviour["together"]).wait(MEETING_TIMEOUT)
            self.send_response(behaviour.get("status", 200))
            if "location" in behaviour:
                self.send_header("Location", server.url + behaviour["location"])
            content = _answer(behaviour, review)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def patching(operations: Any) -> Review:
    """A response that patches; of operations, or of the patch's bytes."""
    content = operations if isinstance(operations, bytes) else json.dumps(operations).encode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(content).decode()}


def _answer(behaviour: Behaviour, asked: Review) -> bytes:
    uid = asked["request"]["uid"]
    if "convert" in behaviour:
        wanted = asked["request"]["desiredAPIVersion"]
        found = [behaviour["convert"](one, wanted) for one in asked["request"]["objects"]]
        response = {"uid": uid, "result": {"status": "Success"}, "convertedObjects": found}
        return json.dumps({name: asked[name] for name in ("apiVersion", "kind")} | {"response": response}).encode()
    if "body" in behaviour:
        body = behaviour["body"]
        return body if isinstance(body, bytes) else str(body).encode()
    review = behaviour.get("review")
    if review is None:
        patch = behaviour.get("patch")
        response = {} if patch is None else patching(patch(asked) if callable(patch) else patch)
        response = {"uid": "UID", **response, **behaviour.get("response", {})}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return json.dumps(review).replace('"UID"', json.dumps(uid)).encode()


def self_signed() -> tuple[bytes, bytes]:
    """(certificate of 127.0.0.1 and of the Service default/hook, its key) in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "webhook")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("hook.default.svc")]
    addresses = x509.SubjectAlternativeName(names)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(addresses, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding, private = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return signed.public_bytes(encoding), key.private_bytes(encoding, private, serialization.NoEncryption())
