"""The guard's HTTPS endpoint: what API servers get, and what others cannot do to it."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from manciple.api.certificates import ServingCertificate
from manciple.mirror.guard import listener
from manciple.mirror.guard.judging import Answer, Guard, Unavailable, Verdict
from manciple.mirror.guard.listener import GuardListener
from manciple.mirror.guard.reviews import Question
from manciple.processes.listeners import Address, bind
from tests.manciple.admission.webhook_server import self_signed
from tests.manciple.mirror.clusters import claim
from tests.manciple.mirror.guarded import review

TOKEN = "a-token-of-enough-characters"
GOOD = json.dumps(review(claim("a"), claim("a", "n1/gpu-0"))).encode()
UID = json.loads(GOOD)["request"]["uid"]


class Deaf(Guard):
    """Answers as it is told; nobody else is asked."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.next: Answer | Exception = Answer(Verdict.ADMITTED)

    def answer(self, question: Question) -> Answer:
        self.questions.append(question)
        if isinstance(self.next, Exception):
            raise self.next
        return self.next


class Endpoint:
    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.renew()
        self.guard = Deaf()
        serving = ServingCertificate(self.certificate, self.key)
        self.listener = GuardListener(bind(Address("127.0.0.1", 0)), serving, self.guard, token=TOKEN)

    def renew(self) -> bytes:
        certificate, key = self_signed()
        self.certificate.write_bytes(certificate)
        self.key.write_bytes(key)
        return certificate

    def connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.certificate))
        return http.client.HTTPSConnection("127.0.0.1", self.listener.port, timeout=20, context=context)

    def post(self, body: bytes = GOOD, *, path: str = f"/guard/{TOKEN}", **headers: str) -> tuple[int, bytes]:
        connection = self.connect()
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def get(self, path: str) -> int:
        connection = self.connect()
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def raw(self) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(self.certificate))
        plain = socket.create_connection(("127.0.0.1", self.listener.port), timeout=20)
        return context.wrap_socket(plain, server_hostname="127.0.0.1")


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    made = Endpoint(tmp_path)
    made.listener.start()
    yield made
    made.listener.stop()


def test_a_review_is_answered_with_its_uid_over_one_connection(endpoint: Endpoint) -> None:
    connection = endpoint.connect()
    for number in range(3):
        endpoint.guard.next = Answer(Verdict.REFUSED, refusal="why") if number == 1 else Answer(Verdict.ADMITTED)
        connection.request("POST", f"/guard/{TOKEN}?timeout=3s", GOOD, {"Content-Type": "application/json"})
        response = connection.getresponse()
        found = json.loads(response.read())
        assert (response.status, found["response"]["uid"]) == (200, UID)
        assert found["response"]["allowed"] is (number != 1)
    connection.close()
    assert {one.uid for one in endpoint.guard.questions} == {UID}


def test_it_is_ready_once_the_copy_was_read(endpoint: Endpoint) -> None:
    assert [endpoint.get(path) for path in ("/livez", "/readyz", "/metrics")] == [200, 503, 404]
    endpoint.listener.ready()
    assert endpoint.get("/readyz") == 200


REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "without the token": ({"path": "/guard"}, 404),
    "with another token": ({"path": f"/guard/{TOKEN[:-1]}x"}, 404),
    "another path": ({"path": f"/{TOKEN}"}, 404),
    "no JSON": ({"body": b"\x00\x01"}, 400),
    "no review": ({"body": b"{}"}, 400),
    "another type": ({"Content-Type": "application/x-protobuf"}, 415),
    "without a length": ({"Content-Length": ""}, 411),
    "a length that is none": ({"Content-Length": "-1"}, 411),
    "a length of odd digits": ({"Content-Length": "\uff11\uff12"}, 411),
    "too large": ({"Content-Length": str(listener.MOST_BYTES + 1)}, 413),
    "far too large": ({"Content-Length": "9" * 400}, 413),
    "in pieces": ({"Transfer-Encoding": "chunked"}, 411),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_question_is_refused_and_the_next_one_answered(
    endpoint: Endpoint, case: tuple[dict[str, Any], int]
) -> None:
    sent, status = case
    headers = {name: value for name, value in sent.items() if name[0].isupper()}
    body, path = sent.get("body", GOOD), sent.get("path", f"/guard/{TOKEN}")
    with endpoint.raw() as connection:
        lines = {"Host": "guard", "Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
        if "Transfer-Encoding" in lines:
            del lines["Content-Length"]
        head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        connection.sendall(head.encode() + b"\r\n" + body)
        assert int(connection.recv(1000).split()[1]) == status
    assert endpoint.guard.questions == []
    assert endpoint.post()[0] == 200


FAULTS = {"in time": (Unavailable("no judgement within 3 s"), 503), "at all": (RuntimeError("secret"), 500)}


@pytest.mark.parametrize("case", FAULTS.values(), ids=FAULTS.keys())
def test_without_a_judgement_the_failure_policy_decides(endpoint: Endpoint, case: tuple[Exception, int]) -> None:
    endpoint.guard.next, status = case
    found, body = endpoint.post()
    assert found == status
    assert b"secret" not in body
    endpoint.guard.next = Answer(Verdict.ADMITTED)
    assert endpoint.post()[0] == 200


GARBAGE = {
    "no TLS": b"POST /guard HTTP/1.1\r\n\r\n",
    "zeros": b"\x00" * 10_000,
    "a broken handshake": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 600,
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_disturbs_nobody(endpoint: Endpoint, garbage: bytes) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", endpoint.listener.port), timeout=20) as connection:
            connection.sendall(garbage)
            with suppress(OSError):
                connection.recv(100)
    assert endpoint.post()[0] == 200


def test_garbage_within_tls_disturbs_nobody(endpoint: Endpoint) -> None:
    for garbage in (b"\xff\xfe\n\r\n\r\n", b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", b"A" * 70_000 + b"\r\n"):
        with endpoint.raw() as connection, suppress(OSError):
            connection.sendall(garbage)
            connection.recv(100)
    assert endpoint.post()[0] == 200


def test_clients_that_only_connect_or_stop_in_the_middle_make_room(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        for number in range(listener.CONNECTIONS):
            connection = stack.enter_context(endpoint.raw())
            if number % 2:
                connection.sendall(f"POST /guard/{TOKEN} HTTP/1.1\r\nContent-Length: {len(GOOD)}\r\n".encode())
        assert endpoint.post()[0] == 200


def test_a_body_that_does_not_come_ends_the_connection(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REQUEST_SECONDS", 0.2)
    with endpoint.raw() as connection:
        head = f"POST /guard/{TOKEN} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(GOOD)}\r\n\r\n"
        connection.sendall(head.encode() + GOOD[:100])
        with suppress(OSError):
            assert connection.recv(100) == b""
    assert endpoint.guard.questions == []


def test_a_renewed_certificate_is_presented_at_once_and_a_broken_one_never(endpoint: Endpoint) -> None:
    assert endpoint.post()[0] == 200
    open_before = endpoint.connect()
    open_before.request("GET", "/livez")
    open_before.getresponse().read()
    endpoint.renew()
    assert endpoint.post()[0] == 200, "trusted by the new one alone"
    open_before.request("GET", "/livez")
    assert open_before.getresponse().status == 200, "open connections stay"
    open_before.close()
    trusted = endpoint.certificate.read_bytes()
    endpoint.key.write_bytes(b"half a key")
    endpoint.certificate.write_bytes(b"half a certificate")
    context = ssl.create_default_context(cadata=trusted.decode())
    connection = http.client.HTTPSConnection("127.0.0.1", endpoint.listener.port, timeout=20, context=context)
    connection.request("GET", "/livez")
    assert connection.getresponse().status == 200
    connection.close()


def test_many_ask_at_the_same_time(endpoint: Endpoint) -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(endpoint.post()[0])) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200] * 16
