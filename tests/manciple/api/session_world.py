"""A pod on a node whose agent runs its commands on this machine, and clients that open sessions with it."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from websocket import WebSocket, create_connection
from websockets.sync.client import ClientConnection, connect

from claims.kinds.pods import Pod
from manciple.access.authentication import tokens
from manciple.wire import channels
from manciple.wire.channels import CLOSE, ERROR, STDERR, STDOUT, Subprotocol
from nodeagent.http import server as https
from nodeagent.http.routes import Streams
from nodeagent.http.server import Endpoint, HttpsAnswer, Request, Upgraded
from nodeagent.http.sessions import SessionCount
from tests.manciple.api.server import ApiServer
from tests.manciple.wire.spdy_client import RST_STREAM, Frame, SpdyClient, control, data_frame
from tests.nodeagent.local_runtime import LocalRuntime
from tests.nodeagent.objects import container, pod

PODS = "/api/v1/namespaces/default/pods"
TIMEOUT = 60.0


class LocalAgent:
    """An agent without a loop: it answers for the pods p and two (with containers a and b)."""

    def __init__(self) -> None:
        self.runtime = LocalRuntime()
        self.requests: list[Request] = []
        pods = [msgspec.convert(pod("p", container()), Pod), msgspec.convert(pod("two", *map(container, "ab")), Pod)]
        runtime: Any = self.runtime  # a part of one
        self._streams = Streams(lambda: pods, runtime, SessionCount())

    def respond(self, request: Request) -> HttpsAnswer | Upgraded:
        self.requests.append(request)
        match request.path:
            case (("exec" | "attach") as what, namespace, name, one):
                return self._streams.enter(namespace, name, one, request, attach=what == "attach")
            case ("portForward", namespace, name):
                return self._streams.connect(namespace, name, request)
        return HttpsAnswer(code=404, body="404 page not found")


@contextmanager
def serving(agent: LocalAgent, certificate: https.Certificate) -> Iterator[Endpoint]:
    endpoint = Endpoint("127.0.0.1", 0, certificate.context(), agent.respond)
    endpoint.start()
    try:
        yield endpoint
    finally:
        endpoint.stop()


def place(api_server: ApiServer, *, port: int, fingerprint: str) -> None:
    """The node alpha with its agent, and its pods, which run."""
    with api_server.client() as http:
        meta = {"name": "alpha", "annotations": {"manciple.dev/agent-certificate-sha256": fingerprint}}
        made = http.post("/api/v1/nodes", json={"apiVersion": "v1", "kind": "Node", "metadata": meta})
        assert made.status_code == 201, made.text
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        assert http.put("/api/v1/nodes/alpha/status", json={**made.json(), "status": status}).status_code == 200
        for name, *names in (("p", "main"), ("two", "a", "b")):
            make_pod(api_server, name, *names, node="alpha", phase="Running")


def make_pod(api_server: ApiServer, name: str, *names: str, node: str, phase: str, namespace: str = "default") -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with api_server.client() as http:
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "containers": [{"name": one, "image": "busybox"} for one in names or ("main",)],
                **({"nodeName": node} if node else {}),
            },
        }
        made = http.post(pods, json=document)
        assert made.status_code == 201, made.text
        statuses = [
            {"name": one, "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}
            for one in names or ("main",)
        ]
        status = {"phase": phase, "containerStatuses": statuses if phase == "Running" else []}
        answer = http.put(f"{pods}/{name}/status", json={**made.json(), "status": status})
        assert answer.status_code == 200, answer.text


# Clients --------------------------------------------------------------------------------------------------------------


def path_of(subresource: str, *command: str, pod: str = "p", namespace: str = "default", **options: Any) -> str:
    """Of a session. options: flags, or texts."""
    words = [("command", word) for word in command]
    words += [(name, "true" if value is True else str(value)) for name, value in options.items() if value]
    return f"/api/v1/namespaces/{namespace}/pods/{pod}/{subresource}?{urlencode(words)}"


def threaded_context(api_server: ApiServer) -> ssl.SSLContext:
    """Of a client that reads in a thread of its own. Before 3.13 Python lets two threads into one TLS connection at
    once; with TLS 1.3 the server's tickets come while the request is written.
    """
    context = ssl.create_default_context(cafile=str(api_server.ca_file))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def websocket(
    api_server: ApiServer, path: str, protocol: str = channels.V5, *, token: str | None = None, **options: Any
) -> ClientConnection:
    """Raises: websockets.exceptions.InvalidStatus where it is refused."""
    return connect(
        api_server.url.replace("https:", "wss:") + path,
        ssl=threaded_context(api_server),
        additional_headers={"Authorization": f"Bearer {token or api_server.token}"},
        subprotocols=[protocol] if protocol else None,  # type: ignore[list-item]  # a NewType of str
        open_timeout=TIMEOUT,
        **options,
    )


def plain_websocket(
    api_server: ApiServer, path: str, protocol: str = channels.V5, *, token: str | None = None
) -> WebSocket:
    """By a client that reads when it is told to, and sends no pings."""
    return create_connection(
        api_server.url.replace("https:", "wss:") + path,
        header=[f"Authorization: Bearer {token or api_server.token}"],
        subprotocols=[protocol],
        sslopt={"ca_certs": str(api_server.ca_file)},
        timeout=TIMEOUT,
    )


class Heard:
    """All that a session said, by channel. status: its last word."""

    def __init__(self) -> None:
        self.bytes = {STDOUT: b"", STDERR: b"", ERROR: b""}

    @property
    def out(self) -> bytes:
        return self.bytes[STDOUT]

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.bytes[ERROR])
        return found


def heard(session: ClientConnection, protocol: str = channels.V5) -> Heard:
    """Until the server ends the session."""
    found, how = Heard(), Subprotocol(protocol)
    for message in session:
        channel, data = how.read(message)
        found.bytes[channel] += data
    return found


def until(session: ClientConnection, text: bytes, protocol: str = channels.V5) -> bytes:
    """Standard output until it contains `text`."""
    out = b""
    while text not in out:
        channel, data = Subprotocol(protocol).read(session.recv(timeout=TIMEOUT))
        assert channel == STDOUT, data
        out += data
    return out


END_OF_STDIN = bytes((CLOSE, 0))


def person(name: str, api_server: ApiServer, *verbs: str, namespace: str = "default") -> str:
    """The token of somebody who may do this with the sessions of a namespace's pods."""
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    with api_server.client() as http:
        if verbs:
            rule = {
                "apiGroups": [""],
                "resources": ["pods/exec", "pods/attach", "pods/portforward"],
                "verbs": list(verbs),
            }
            made = http.post(f"{rights}/roles", json={"metadata": {"name": name}, "rules": [rule]})
            assert made.status_code == 201, made.text
            binding = {
                "metadata": {"name": name},
                "roleRef": {"kind": "Role", "name": name},
                "subjects": [{"kind": "User", "name": name}],
            }
            assert http.post(f"{rights}/rolebindings", json=binding).status_code == 201
    return tokens.issue(name, [])


class SpdyConnection:
    """A connection upgraded to SPDY. answer: the head of the server's answer."""

    def __init__(self, api_server: ApiServer, path: str, *protocols: str, token: str | None = None) -> None:
        url = urlsplit(api_server.url)
        plain = socket.create_connection((url.hostname, url.port), timeout=TIMEOUT)
        context = ssl.create_default_context(cafile=str(api_server.ca_file))
        self._socket = context.wrap_socket(plain, server_hostname=url.hostname)
        lines = [
            f"POST {path} HTTP/1.1",
            f"Host: {url.netloc}",
            f"Authorization: Bearer {token or api_server.token}",
            "Connection: Upgrade",
            "Upgrade: SPDY/3.1",
            *(f"X-Stream-Protocol-Version: {one}" for one in protocols),
            "Content-Length: 0",
        ]
        self._socket.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        received = b""
        while b"\r\n\r\n" not in received:
            data = self._socket.recv(65536)
            assert data, received
            received += data
        head, _, self._rest = received.partition(b"\r\n\r\n")
        self.answer = head.decode()
        self._spdy = SpdyClient()

    @property
    def code(self) -> int:
        return int(self.answer.split(" ")[1])

    def status(self) -> dict[str, Any]:
        """The Status of a refusal."""
        body = self._rest
        while data := self._socket.recv(65536):
            body += data
        found: dict[str, Any] = json.loads(body)
        return found

    def begin(self, type_: str, *, port: str = "", number: str = "", last: bool = False) -> int:
        headers = {"streamType": type_, **({"port": port, "requestID": number} if port or number else {})}
        stream, frame = self._spdy.begin(headers, last=last)
        self._socket.sendall(frame)
        return stream

    def send(self, stream: int, data: bytes, *, last: bool = False) -> None:
        self._socket.sendall(data_frame(stream, data, last=last))

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frames(self) -> Iterator[Frame]:
        yield from self._spdy.feed(self._rest)
        self._rest = b""
        while data := self._socket.recv(65536):
            yield from self._spdy.feed(data)

    def read_all(self, *streams: int) -> dict[int, bytes]:
        """What comes on these streams until all of them have ended."""
        found, left = dict.fromkeys(streams, b""), set(streams)
        for frame in self.frames():
            if frame.kind == 0 and frame.stream in left:
                found[frame.stream] += frame.data
                if frame.last:
                    left.discard(frame.stream)
            if not left:
                return found
        raise AssertionError(f"the connection ended before the streams {left}, after {found}")

    @staticmethod
    def reset(stream: int) -> bytes:
        return control(RST_STREAM, struct.pack("!II", stream, 5))

    def close(self) -> None:
        self._socket.close()


def little_endian(port: int) -> bytes:
    return struct.pack("<H", port)
