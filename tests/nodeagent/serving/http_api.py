"""The API server in memory behind a real socket, for drivers and agents in processes of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from tests.nodeagent.fake_api import FakeApi


@contextmanager
def listening(api: FakeApi) -> Iterator[str]:
    """Serves `api`; gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            identity = {"Authorization": self.headers.get("Authorization", "")}
            asked = httpx.Request(self.command, f"http://api{self.path}", content=body, headers=identity)
            answer = api.handle_request(asked)
            watch = "watch=" in self.path and answer.status_code == httpx.codes.OK
            self.send_response(answer.status_code)
            self.send_header("Content-Type", "application/json")
            self.send_header(*(("Transfer-Encoding", "chunked") if watch else ("Content-Length", _length(answer))))
            self.end_headers()
            if not watch:
                self.wfile.write(answer.read())
                return
            for chunk in answer.iter_raw():
                self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def __getattr__(self, name: str) -> Callable[[], None]:
            if name.startswith("do_"):
                return self.handle_any
            raise AttributeError(name)

        def log_message(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        api.disconnect()
        server.shutdown()
        server.server_close()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that was killed is part of the test."""


def _length(answer: httpx.Response) -> str:
    return str(len(answer.read()))
