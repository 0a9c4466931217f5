"""Request smuggling: no request hides in another, whatever its head says of where its body ends."""

from __future__ import annotations

import socket
import ssl
import time
from urllib.parse import urlsplit

import pytest

from manciple.api import connections
from tests.manciple.api.server import ApiServer, api_server, server_certificates

__all__ = ["api_server", "server_certificates"]

#: What an attacker wants to be served as a request of its own.
HIDDEN = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
LENGTH = str(len(HIDDEN)).encode()


def head(*lines: bytes, version: bytes = b"1.1") -> bytes:
    return b"\r\n".join((b"POST /livez HTTP/" + version, b"Host: x", *lines, b"", b""))


CHUNKED = b"Transfer-Encoding: chunked"
REFUSED = {
    "length and chunks": head(b"Content-Length: 4", CHUNKED) + b"0\r\n\r\n" + HIDDEN,
    "chunks and length": head(CHUNKED, b"Content-Length: 4") + b"0\r\n\r\n" + HIDDEN,
    "two lengths": head(b"Content-Length: 0", b"Content-Length: " + LENGTH) + HIDDEN,
    "one length twice": head(b"Content-Length: " + LENGTH, b"Content-Length: " + LENGTH) + HIDDEN,
    "a list of lengths": head(b"Content-Length: 0, " + LENGTH) + HIDDEN,
    "a length with a sign": head(b"Content-Length: +" + LENGTH) + HIDDEN,
    "a negative length": head(b"Content-Length: -1") + HIDDEN,
    "a length in another base": head(b"Content-Length: 0x0") + HIDDEN,
    "a blank before the colon": head(b"Content-Length : " + LENGTH) + HIDDEN,
    "another encoding": head(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n" + HIDDEN,
    "identity and a length": head(b"Transfer-Encoding: identity", b"Content-Length: 0") + HIDDEN,
    "an encoding after chunks": head(b"Transfer-Encoding: chunked, identity") + b"0\r\n\r\n" + HIDDEN,
    "two encodings": head(CHUNKED, b"Transfer-Encoding: identity") + b"0\r\n\r\n" + HIDDEN,
    "a control before chunks": head(b"Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n" + HIDDEN,
    "a folded header": head(b"Transfer-Encoding:\r\n chunked") + b"0\r\n\r\n" + HIDDEN,
    "lines without a return": b"POST /livez HTTP/1.1\nHost: x\nContent-Length: 0\n\n" + HIDDEN,
    "a return without a line": b"POST /livez HTTP/1.1\r\nHost: x\rContent-Length: " + LENGTH + b"\r\n\r\n" + HIDDEN,
    "a chunk's extension with a line": head(CHUNKED) + b"0;\nx\r\n\r\n" + HIDDEN,
    "an endless chunk": head(CHUNKED) + b"f" * 17 + b"\r\n" + HIDDEN,
    "a negative chunk": head(CHUNKED) + b"-1\r\n" + HIDDEN,
    "a chunk that does not end": head(CHUNKED) + b"3\r\nabcX\r\n0\r\n\r\n" + HIDDEN,
    "a NUL": head(b"X: a\0b", b"Content-Length: 0") + HIDDEN,
    "no version": b"GET /livez\r\n" + HIDDEN,
}
BODIES = {
    "a body of a GET": b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: " + LENGTH + b"\r\n\r\n" + HIDDEN,
    "an upgrade that is not made": (
        b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: "
        + LENGTH
        + b"\r\n\r\n"
        + HIDDEN
    ),
    "what follows the end of a connection": b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + HIDDEN,
    "chunks in the old version": head(CHUNKED, version=b"1.0") + b"0\r\n\r\n" + HIDDEN,
}


def connect(server: ApiServer) -> ssl.SSLSocket:
    address = urlsplit(server.url)
    assert address.hostname is not None
    context = ssl.create_default_context(cafile=str(server.ca_file))
    raw = socket.create_connection((address.hostname, address.port or 0), timeout=30)
    return context.wrap_socket(raw, server_hostname=address.hostname)


def exchanged(server: ApiServer, content: bytes) -> bytes:
    """All that the server says to `content`. A last request makes it end the connection, where it has not already."""
    with connect(server) as connection:
        answer = b""
        try:
            connection.sendall(content)
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while piece := connection.recv(65536):
                answer += piece
        except OSError:
            pass  # cut off
        return answer


def statuses(answer: bytes) -> list[bytes]:
    return [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]


def test_no_ambiguous_request_is_served(api_server: ApiServer) -> None:
    found = {case: statuses(exchanged(api_server, content))[-1:] for case, content in REFUSED.items()}
    assert found == {case: [b"400"] for case in REFUSED}


def test_nothing_hides_in_a_body(api_server: ApiServer) -> None:
    for case, content in BODIES.items():
        assert b"gitVersion" not in exchanged(api_server, content), case
    assert b"gitVersion" in exchanged(api_server, head(b"Content-Length: 0") + HIDDEN)  # that one may be served


# Heads that take more than they should.


def test_a_head_without_end_is_cut_off(api_server: ApiServer) -> None:
    with connect(api_server) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n")
        sent = 0
        try:
            while sent < 3 * connections.HEAD_BYTES:
                sent += connection.send(b"X-Filler: " + b"x" * 8000 + b"\r\n")
            answer = connection.recv(1000)
        except OSError:  # it was cut off while we sent
            answer = b"HTTP/1.1 431"
    assert answer.startswith(b"HTTP/1.1 431")


def test_a_head_within_the_limit_is_served(api_server: ApiServer) -> None:
    filler = b"X-Filler: " + b"x" * (connections.HEAD_BYTES // 2)
    content = b"\r\n".join((b"GET /livez HTTP/1.1", b"Host: x", filler, b"", b""))
    assert statuses(exchanged(api_server, content + content))[:2] == [b"200", b"200"]


SHORTEST = b"a:b\r\n"
TOO_MANY_HEADERS = {
    "in the head": b"GET /livez HTTP/1.1\r\nHost: x\r\n" + SHORTEST * 200_000 + b"\r\n",
    "one more than allowed": b"GET /livez HTTP/1.1\r\nHost: x\r\n" + SHORTEST * connections.HEADERS + b"\r\n",
    "cookies": b"GET /livez HTTP/1.1\r\nHost: x\r\nCookie: " + b"a=b; " * 200_000 + b"\r\n\r\n",
    "cookies in lines": b"GET /livez HTTP/1.1\r\nHost: x\r\n" + (b"Cookie: " + b"a=b; " * 200 + b"\r\n") * 50 + b"\r\n",
    "behind a body": head(CHUNKED) + b"1\r\nx\r\n0\r\n" + SHORTEST * 200_000 + b"\r\n",
}


@pytest.mark.parametrize("content", TOO_MANY_HEADERS.values(), ids=TOO_MANY_HEADERS.keys())
def test_many_short_headers_are_refused_before_they_cost_anything(api_server: ApiServer, content: bytes) -> None:
    began = time.process_time()
    answer = exchanged(api_server, content)
    assert statuses(answer)[-1:] in ([b"431"], [])  # [] where the connection was cut off while we sent
    assert time.process_time() - began < 1.0


def test_as_many_headers_as_allowed_are_served(api_server: ApiServer) -> None:
    cookie = b"Cookie: " + b"a=b; " * (connections.COOKIE_BYTES // 5) + b"\r\n"
    content = b"GET /livez HTTP/1.1\r\nHost: x\r\n" + cookie + SHORTEST * (connections.HEADERS - 2) + b"\r\n"
    assert statuses(exchanged(api_server, content))[-1:] == [b"200"]


def test_so_many_requests_of_a_connection_may_wait_for_an_earlier_one(api_server: ApiServer) -> None:
    request = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    assert statuses(exchanged(api_server, request * 50)) == [b"200"] * 51
    assert len(statuses(exchanged(api_server, request * 5_000))) < 5_000


CHUNK = b"1\r\nx\r\n"


@pytest.mark.parametrize(("chunks", "code"), [(1_000, b"405"), (connections.CHUNKS + 1, b"400")])
def test_a_body_has_so_many_chunks_and_no_more(api_server: ApiServer, chunks: int, code: bytes) -> None:
    answer = exchanged(api_server, head(CHUNKED) + CHUNK * chunks + b"0\r\n\r\n")
    assert statuses(answer)[:1] in ([code], [])  # [] where the connection was cut off while we sent
