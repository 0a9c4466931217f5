"""An OpenID Connect provider of the tests' own, over TLS: discovery, keys, authorization with PKCE, tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwk, jws

from manciple.api import certificates

CLIENT, SECRET = "manciple", "s3cret"


@dataclass
class Provider:
    """What it says can be changed while it runs. claims: of the next person; broken: paths that it does not serve."""

    url: str
    ca_file: Path
    keys: list[Any] = field(default_factory=list)
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "u-1"})
    issuer: str = ""  # that it tells, where it is another than its own
    id_token: str = ""  # to be given for a code in place of a good one
    broken: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def new_key(self, name: str, kind: str = "RSA") -> None:
        """From now on it signs with this one; the others are still told."""
        made = jwk.RSAKey.generate_key(2048) if kind == "RSA" else jwk.ECKey.generate_key("P-256")
        self.keys.insert(0, (name, made))

    def token(self, *, header: dict[str, Any] | None = None, key: Any = None, **claims: Any) -> str:
        """An ID token; a claim that is None is left out."""
        name, own = self.keys[0]
        now = int(time.time())
        said = {"iss": self.url, "aud": CLIENT, "exp": now + 300, "iat": now, **self.claims, **claims}
        content = json.dumps({key_: value for key_, value in said.items() if value is not None})
        algorithm = "RS256" if own.key_type == "RSA" else "ES256"
        head = {"alg": algorithm, "kid": name, **(header or {})}
        return jws.serialize_compact(
            {key_: value for key_, value in head.items() if value is not None}, content, key or own, [head["alg"]]
        )

    # What it answers.

    def get(self, path: str, query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        if path == "/.well-known/openid-configuration":
            return _json(
                {
                    "issuer": self.issuer or self.url,
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                    "jwks_uri": f"{self.url}/keys",
                }
            )
        if path == "/keys":
            told = [{**key.as_dict(private=False), "kid": name, "use": "sig"} for name, key in self.keys]
            secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret", "alg": "HS256"}
            return _json({"keys": [*told, secret, {"kty": "unheard-of"}]})
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        back = urlencode({"code": code, "state": query["state"], "iss": self.url})
        return 302, {"Location": f"{query['redirect_uri']}?{back}"}, b""

    def exchange(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, str], bytes]:
        begun = self.codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        wanted = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if begun is None or authorization != wanted or form.get("redirect_uri") != begun["redirect_uri"]:
            return _json({"error": "invalid_grant", "error_description": "no such code"}, code=400)
        if begun["code_challenge"] != challenge.rstrip(b"=").decode() or begun["code_challenge_method"] != "S256":
            return _json({"error": "invalid_grant", "error_description": "another verifier"}, code=400)
        token = self.id_token or self.token(nonce=begun["nonce"])
        return _json({"access_token": "a", "token_type": "Bearer", "id_token": token})


def _json(document: Any, *, code: int = 200) -> tuple[int, dict[str, str], bytes]:
    return code, {"Content-Type": "application/json"}, json.dumps(document).encode()


@contextmanager
def running(folder: Path) -> Iterator[Provider]:
    files = certificates.ensure(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            provider.asked.append(url.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            if url.path in provider.broken:
                self._answer(503, {}, b"{}")
            else:
                self._answer(*provider.get(url.path, query))

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            form = {name: values[0] for name, values in parse_qs(self.rfile.read(length).decode()).items()}
            self._answer(*provider.exchange(form, self.headers.get("Authorization", "")))

        def _answer(self, code: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(code)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    provider = Provider(f"https://localhost:{server.server_address[1]}", files.authority)
    provider.new_key("first")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
