"""An API server that answers with recorded objects: discovery, lists in pages, single objects, refusals; compressed.

    with Replay(objects) as server: server.kubeconfig(tmp_path)

What is asked for is noted in `asked`. Nothing can be written, but to a `writable.Writable`.
"""

from __future__ import annotations

import gzip
import json
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import yaml

Document = dict[str, Any]
#: (code, headers, body, which may come in parts)
Answer = tuple[int, Mapping[str, str], bytes | Iterator[bytes]]
#: (group, version, plural)
Place = tuple[str, str, str]

CORE = ("pods", "nodes", "namespaces", "resourcequotas", "persistentvolumeclaims", "persistentvolumes")
GROUPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "resource.k8s.io": (
        "v1",
        ("resourceclaims", "resourceslices", "deviceclasses", "resourceclaimtemplates", "devicetaintrules"),
    ),
    "storage.k8s.io": ("v1", ("storageclasses",)),
    "policy": ("v1", ("poddisruptionbudgets",)),
    "scheduling.k8s.io": ("v1", ("priorityclasses",)),
}
CLUSTER_WIDE = frozenset(
    {"nodes", "namespaces", "persistentvolumes", "resourceslices", "deviceclasses", "devicetaintrules"}
    | {"storageclasses", "priorityclasses"}
)


@dataclass
class Replay:
    """objects: plural -> documents, without apiVersion and kind, as lists have them.

    dra: the version of resource.k8s.io that is served; rules: that of DeviceTaintRules. forbidden: plurals that may not
    be listed, in `only` at most. token: that the server wants. answer: (path) -> (code, headers, body) instead.
    """

    objects: Mapping[str, Iterable[Document]]
    dra: str = "v1"
    rules: str = ""
    git_version: str = "v1.36.2"
    forbidden: frozenset[str] = frozenset()
    only: str = ""
    token: str = ""
    aggregated: bool = True
    metrics: str | None = None
    answer: Callable[[str], Answer | None] = lambda _path: None
    context: ssl.SSLContext | None = None
    asked: list[str] = field(default_factory=list)
    #: pages that are answered with 410, once
    gone: int = 0

    def __enter__(self) -> Self:
        replay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                replay.asked.append(self.path)
                self._tell(*replay.respond(self.path, self.headers))

            def _take(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = replay.write(self.command, self.path, self.headers, body)
                if answer is None:
                    self.close_connection = True
                    return
                self._tell(*answer)

            do_POST = do_PATCH = do_DELETE = _take  # noqa: N815 - the library's names

            def _tell(self, code: int, headers: Mapping[str, str], body: bytes | Iterator[bytes]) -> None:
                if not isinstance(body, bytes):
                    self._stream(body)
                    return
                if "gzip" in self.headers.get("Accept-Encoding", "") and len(body) > 1000:
                    body, headers = gzip.compress(body, 1), {**headers, "Content-Encoding": "gzip"}
                self.send_response(code)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _stream(self, lines: Iterator[bytes]) -> None:
                """Parts of a body that end with the connection: not even its last line may be whole."""
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Connection", "close")
                self.end_headers()
                with suppress(OSError):  # whoever asked is gone
                    for line in lines:
                        self.wfile.write(line)
                        self.wfile.flush()

            def log_message(self, *_args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if self.context is not None:
            self._server.socket = self.context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self._server.server_address[1]}"

    def kubeconfig(self, folder: Path, **user: Any) -> Path:
        """One with a current context, in `folder`."""
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig(self.url, user or {"token": self.token or "t"})))
        return path

    # Answers ---------------------------------------------------------------------------------------------------------

    def respond(self, target: str, headers: Any) -> Answer:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if (special := self.answer(path)) is not None:
            return special
        if self.token and headers.get("Authorization") != f"Bearer {self.token}":
            return self._status(401, "Unauthorized")
        if path == "/metrics":
            return (200, {}, self.metrics.encode()) if self.metrics is not None else self._status(403, "no metrics")
        if path in ("/version", "/apis"):
            wants = self.aggregated and "APIGroupDiscoveryList" in headers.get("Accept", "")
            groups = self._aggregated() if wants else self._groups()
            return 200, {}, json.dumps({"gitVersion": self.git_version} if path == "/version" else groups).encode()
        return self._resource(path, query)

    def write(self, _method: str, _target: str, _headers: Any, _body: bytes) -> Answer | None:
        """None: the connection ends without an answer."""
        return self._status(405, "it only reads")

    def _resource(self, path: str, query: Mapping[str, list[str]]) -> Answer:
        parts = path.strip("/").split("/")
        if parts[0] == "apis" and len(parts) == 3:
            listed = [{"name": one[2]} for one in self.places() if one[:2] == (parts[1], parts[2])]
            return 200, {}, json.dumps({"kind": "APIResourceList", "resources": listed}).encode()
        group, rest = ("", parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
        version, rest = rest[0], rest[1:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name = rest[0], rest[1] if len(rest) > 1 else ""
        if (group, version, plural) not in self.places():
            return self._status(404, "the server could not find the requested resource")
        return self._objects(plural, namespace, name, query)

    def _objects(self, plural: str, namespace: str, name: str, query: Mapping[str, list[str]]) -> Answer:
        found = [one for one in self.objects.get(plural, ()) if namespace in ("", one["metadata"].get("namespace", ""))]
        if name:
            one = next((one for one in found if one["metadata"]["name"] == name), None)
            return (200, {}, json.dumps(one).encode()) if one else self._status(404, f'{plural} "{name}" not found')
        if plural in self.forbidden and (not namespace or namespace != self.only):
            return self._status(403, f'{plural} is forbidden: User "me" cannot list resource "{plural}"')
        start, limit = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["0"])[0])
        if start and self.gone:
            self.gone -= 1
            return self._status(410, "The provided continue parameter is too old")
        end = start + limit if limit else len(found)
        meta = {"resourceVersion": "7", **({"continue": str(end)} if end < len(found) else {})}
        return 200, {}, json.dumps({"kind": "List", "metadata": meta, "items": found[start:end]}).encode()

    def places(self) -> list[Place]:
        made = [("", "v1", plural) for plural in CORE]
        for group, (version, plurals) in GROUPS.items():
            for plural in plurals:
                served = self.dra if group == "resource.k8s.io" else version
                if plural == "devicetaintrules":
                    served = self.rules
                if served:
                    made.append((group, served, plural))
        return made

    def _aggregated(self) -> Document:
        groups: dict[str, dict[str, list[Document]]] = {}
        for group, version, plural in self.places():
            if group:
                groups.setdefault(group, {}).setdefault(version, []).append({"resource": plural})
        items = [
            {
                "metadata": {"name": name},
                "versions": [{"version": one, "resources": two} for one, two in versions.items()],
            }
            for name, versions in groups.items()
        ]
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items}

    def _groups(self) -> Document:
        groups: dict[str, set[str]] = {}
        for group, version, _ in self.places():
            if group:
                groups.setdefault(group, set()).add(version)
        items = [
            {"name": name, "versions": [{"groupVersion": f"{name}/{one}", "version": one} for one in sorted(versions)]}
            for name, versions in groups.items()
        ]
        return {"kind": "APIGroupList", "groups": items}

    def _status(self, code: int, message: str) -> Answer:
        return code, {}, json.dumps({"kind": "Status", "status": "Failure", "message": message, "code": code}).encode()


def kubeconfig(url: str, user: Mapping[str, Any], **cluster: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me", "namespace": "team-a"}}],
        "clusters": [{"name": "lab", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "me", "user": dict(user)}],
    }


def copied(objects: Mapping[str, Iterable[Document]]) -> dict[str, list[Document]]:
    return {plural: [deepcopy(one) for one in those] for plural, those in objects.items()}
