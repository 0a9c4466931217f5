"""Serves a `CheckApi` over HTTP, for a driver in a process of its own, and writes the kubeconfig that names it.

Plain HTTP on loopback: client-go and every other client take that from a kubeconfig, and no certificate has to be made.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from manciple.wire.errors import ApiError, BadRequest
from nodeagent.driver_check.api import ApiRequest, CheckApi

#: A driver shows some credential; nobody looks at it.
TOKEN = "driver-check"  # noqa: S105 - it opens nothing


class ServedApi:
    """Serves `api` from `start` to `stop`."""

    def __init__(self, api: CheckApi, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Raises: OSError where nobody can listen there."""
        self._api = api
        self._server = _Server((host, port), _handler(api))
        self.url = f"http://{host}:{self._server.server_address[1]}"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="driver-check-api", daemon=True).start()

    def stop(self) -> None:
        self._api.close()
        self._server.shutdown()
        self._server.server_close()

    def write_kubeconfig(self, path: Path) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "check", "cluster": {"server": self.url}}],
            "users": [{"name": "driver", "user": {"token": TOKEN}}],
            "contexts": [{"name": "check", "context": {"cluster": "check", "user": "driver"}}],
            "current-context": "check",
        }
        path.write_text(yaml.safe_dump(document, sort_keys=False))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A driver that was killed is part of the check."""


def _handler(api: CheckApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            url = urlsplit(self.path)
            request = ApiRequest(
                method=self.command,
                path=url.path,
                query=dict(parse_qsl(url.query, keep_blank_values=True)),
                body=self.rfile.read(int(self.headers.get("Content-Length", 0))),
                content_type=self.headers.get("Content-Type", ""),
            )
            try:
                if request.method == "GET" and request.query.get("watch") in ("true", "1"):
                    self._stream(request)
                else:
                    self._answer(201 if request.method == "POST" else 200, api.answer(request))
            except ApiError as error:
                self._answer(error.code, error.status())
            except (KeyError, TypeError, ValueError) as error:
                # Of a document that is too strange to be judged.
                refusal = BadRequest(f"{request.method} {request.path}: {error!r}")
                api.refusals.append(refusal.message)
                self._answer(refusal.code, refusal.status())

        def _answer(self, code: int, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _stream(self, request: ApiRequest) -> None:
            events = api.watch(request)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.flush()
            for event in events:
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def __getattr__(self, name: str) -> Callable[[], None]:
            if name.startswith("do_"):
                return self.handle_any
            raise AttributeError(name)

        def log_message(self, *_: object) -> None:
            """The terminal is for the report."""

    return Handler
