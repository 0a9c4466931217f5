"""A registry of images that lets in one user only: as much of the protocol as a pull needs.

Source: https://github.com/opencontainers/distribution-spec, /image-spec.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_LAYER, _CONFIG = "application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.oci.image.config.v1+json"


class Registry:
    """Serves `team/app:1`, made of a directory. asked: who asked for its manifest, "" for nobody."""

    def __init__(self, rootfs: Path, *, user: str, password: str) -> None:
        tar = subprocess.run(["tar", "-C", str(rootfs), "-c", "."], capture_output=True, check=True).stdout
        self._blobs: dict[str, tuple[str, bytes]] = {}
        layer = self._add(_LAYER, gzip.compress(tar, 1))
        shown = {"architecture": "amd64", "os": "linux", "config": {"Cmd": ["echo", "from the registry"]}}
        digest = f"sha256:{hashlib.sha256(tar).hexdigest()}"
        config = self._add(_CONFIG, json.dumps(shown | {"rootfs": {"type": "layers", "diff_ids": [digest]}}).encode())
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": [layer]}
        self._manifest = json.dumps(manifest).encode()
        self._key = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def image(self) -> str:
        return f"{self.host}/team/app:1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _add(self, media: str, content: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self._blobs[digest] = (media, content)
        return {"mediaType": media, "digest": digest, "size": len(content)}

    def answer(self, path: str, authorization: str) -> tuple[int, str, bytes]:
        """(HTTP status, type, body)"""
        if "/manifests/" in path:
            self.asked.append(authorization)
        if authorization != self._key:
            return 401, "application/json", b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}'
        if "/manifests/" in path:
            return 200, _MANIFEST, self._manifest
        return (200, *self._blobs[path.rpartition("/")[2]]) if "/blobs/" in path else (200, "application/json", b"{}")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                code, media, body = registry.answer(self.path, self.headers.get("Authorization", ""))
                self.send_response(code)
                if code == 401:
                    self.send_header("WWW-Authenticate", 'Basic realm="test"')
                self.send_header("Content-Type", media)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def do_HEAD(self) -> None:
                self.do_GET()

            def log_message(self, format: str, *args: Any) -> None:
                """Tests are quiet."""

        return Handler
