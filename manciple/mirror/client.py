"""Requests to the API server of a kubeconfig: JSON, compressed, one identity, from any thread.

Every failure is a `RemoteFailure` whose text says what a person can do. A server that is too busy (429, 503 with
Retry-After) is asked again, and credentials that it does not accept any more are renewed, where the caller says how. A
token that stands in a file is read again every minute, as the kubelet replaces it there.
What may write (`send`) is sent once: `RemoteFailure.unknown` says where nobody knows whether it arrived.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import logging
import os
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import msgspec

from manciple.durations import duration
from manciple.mirror.failures import RemoteFailure
from manciple.mirror.json_texts import Malformed, decoded
from manciple.mirror.kubeconfig import Access, Cluster, User
from manciple.per_process import PerProcess

#: Seconds to wait for a connection, and for an answer.
CONNECT_TIMEOUT, READ_TIMEOUT = 10.0, 30.0
#: How often a busy server is asked again, and the most seconds until then.
RETRIES, LONGEST_WAIT = 4, 5.0
#: Seconds in which credentials are not renewed again.
RENEWED_FOR: Final = 5.0
#: Requests at the same time.
PARALLEL: Final = 8
#: Bytes of an answer, and of a line of a watch: pages have 500 objects, of at most some megabytes each.
LARGEST_ANSWER, LONGEST_LINE = 1 << 30, 64 << 20
#: Seconds that a request may take which a person waits for, and the most bytes of its answer.
WRITE_TIMEOUT, MOST_ANSWERED = 20.0, 16 << 20
#: Seconds for which such a connection is used again. A server keeps idle ones for much longer, so it is never one that
#: has been closed meanwhile.
KEPT_FOR: Final = 1.0
#: Seconds after which a token is read from its file again (client-go: transport/token_source.go).
TOKEN_READ_EVERY: Final = 60.0

FORBIDDEN, NOT_FOUND, GONE = httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND, httpx.codes.GONE
_BUSY = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)

# httpx reports every request at INFO.
logging.getLogger("httpx").setLevel(logging.WARNING)


#: What httpx raises before anything of a request was sent.
_NOT_SENT: Final = (
    httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol,
    httpx.LocalProtocolError, httpx.InvalidURL,
)  # fmt: skip


class _Status(msgspec.Struct):
    message: str = ""


_statuses = msgspec.json.Decoder(_Status)

#: Seconds by which the clock of the server was ahead of ours, as of its last answer.
clock_skew = PerProcess(lambda: 0.0)


@dataclass(frozen=True, slots=True)
class Answer:
    """Of a request that may have written. warnings: the headers `Warning`. audit_id: under which the server's audit log
    has the request.
    """

    code: int
    content: bytes
    warnings: tuple[str, ...] = ()
    audit_id: str = ""


class Remote:
    """An API server, with somebody's rights. renew: reads the credentials again, for when they have expired."""

    def __init__(
        self, access: Access, *, timeout: float = READ_TIMEOUT, renew: Callable[[], Access] | None = None
    ) -> None:
        """Raises: RemoteFailure for certificates that cannot be read."""
        self._access = access
        self._timeout, self._renew = timeout, renew
        #: the name that the server's certificate is for, where it is not that of the address
        self._extensions = {"sni_hostname": access.cluster.tls_name} if access.cluster.tls_name else None
        self._renewing, self._renewed_at = threading.Lock(), -RENEWED_FOR
        self._http = _connections(access, timeout)
        self._writing: tuple[Access, httpx.Client] | None = None

    @property
    def server(self) -> str:
        """Its address."""
        return self._access.cluster.server

    def close(self) -> None:
        self._http.close()
        if self._writing is not None:
            self._writing[1].close()

    def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        accept: str = "",
        timeout: float | None = None,
        patient: bool = True,
    ) -> bytes:
        """The body of the answer. patient: ask again where the server is busy. timeout: seconds; as for all requests
        unless given.

        Raises: RemoteFailure, with the code of an answer that is an error.
        """
        for attempt in range(RETRIES + 1):
            used = self._http
            response = self._answer(used, path, params, accept, timeout)
            code = response.status_code
            if code < httpx.codes.BAD_REQUEST:
                return response.content
            if code == httpx.codes.UNAUTHORIZED and self._renewed(used):
                continue
            wait = _retry_after(response) if code in _BUSY else None
            if wait is None or attempt == RETRIES or not patient:
                break
            time.sleep(min(wait, LONGEST_WAIT))
        raise self._refusal(path, response)

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = "application/json",
        headers: Sequence[tuple[str, str]] = (),
        timeout: float = WRITE_TIMEOUT,
    ) -> Answer:
        """What the server answers, a refusal included. It is sent once more only with renewed credentials: whoever
        answers 401 has done nothing.

        headers: whose request it is, where that is not the kubeconfig's user. timeout: seconds for all of it.
        Raises: RemoteFailure where there is no answer.
        """
        given = [*headers, *([("Content-Type", content_type)] if body else [])]
        encoded = [(name.encode("ascii"), value.encode()) for name, value in given]
        used, request = self._http, {"params": params, "content": body or None, "headers": encoded}
        answer = self._sent(method, path, request, timeout)
        if answer.code == httpx.codes.UNAUTHORIZED and self._renewed(used):
            answer = self._sent(method, path, request, timeout)
        if answer.code == httpx.codes.UNAUTHORIZED:
            raise RemoteFailure(_unauthorized(self._access.user), code=answer.code)
        return answer

    def _sent(self, method: str, path: str, request: Mapping[str, Any], timeout: float) -> Answer:
        deadline, content = time.monotonic() + timeout, bytearray()
        patience = httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT))
        try:
            with (
                _failures(self._access.cluster),
                self._for_writing().stream(
                    method, path, timeout=patience, extensions=self._extensions, **request
                ) as response,
            ):
                for part in response.iter_bytes():
                    content += part
                    if time.monotonic() > deadline or len(content) > MOST_ANSWERED:
                        raise httpx.ReadTimeout("the answer does not end")
        except RemoteFailure as failure:
            failure.unknown = not isinstance(failure.__cause__, _NOT_SENT)
            raise
        warnings = tuple(response.headers.get_list("Warning"))
        return Answer(response.status_code, bytes(content), warnings, response.headers.get("Audit-Id", ""))

    def _for_writing(self) -> httpx.Client:
        """Raises: RemoteFailure."""
        with self._renewing:
            if self._writing is None or self._writing[0] is not self._access:
                self._writing = (self._access, _connections(self._access, WRITE_TIMEOUT, kept_for=KEPT_FOR))
            return self._writing[1]

    def review(self, path: str, body: bytes, *, timeout: float) -> bytes:
        """The answer to a question about tokens or rights, which changes nothing. Raises: RemoteFailure."""
        headers = {"Content-Type": "application/json"}
        for _ in range(2):
            used = self._http
            ask = partial(used.post, path, content=body, headers=headers, timeout=timeout, extensions=self._extensions)
            with _failures(self._access.cluster):
                response = _asked_twice(ask)
            if response.status_code < httpx.codes.BAD_REQUEST:
                return response.content
            if response.status_code != httpx.codes.UNAUTHORIZED or not self._renewed(used):
                break
        raise self._refusal(path, response)

    def lines(self, path: str, *, beginning: str, seconds: float) -> Iterator[str]:
        """The lines of a long text that begin so, as far as they come in this time. Raises: RemoteFailure."""
        deadline = time.monotonic() + seconds
        with (
            _failures(self._access.cluster),
            self._http.stream("GET", path, timeout=seconds, extensions=self._extensions) as response,
        ):
            if response.status_code >= httpx.codes.BAD_REQUEST:
                raise RemoteFailure(f"{path} answered {response.status_code}", code=response.status_code)
            for line in response.iter_lines():
                if line.startswith(beginning):
                    yield line
                if time.monotonic() > deadline:
                    return

    @contextmanager
    def watch(self, path: str, params: Mapping[str, str], *, silence: float) -> Iterator[Watch]:
        """A watch that the server has begun. silence: seconds without a line after which the connection counts as dead.

        Raises: RemoteFailure, also from within.
        """
        used = self._http
        timeout = httpx.Timeout(silence, connect=CONNECT_TIMEOUT)
        with (
            _failures(self._access.cluster),
            used.stream("GET", path, params=params, timeout=timeout, extensions=self._extensions) as response,
        ):
            if response.status_code >= httpx.codes.BAD_REQUEST:
                response.read()
                if response.status_code == httpx.codes.UNAUTHORIZED:
                    self._renewed(used)  # for the next attempt
                raise self._refusal(path, response)
            _note_clock(response)
            yield Watch(response)

    def _renewed(self, used: httpx.Client) -> bool:
        """Whether there are credentials now that have not been refused. Raises: RemoteFailure."""
        if self._renew is None:
            return False
        with self._renewing:
            if self._http is used:
                if time.monotonic() - self._renewed_at < RENEWED_FOR:
                    return False
                # By now the kubeconfig may lead to another cluster: it stays this one.
                self._access = replace(self._access, user=self._renew().user)
                # Who still reads through the old connections ends them.
                self._http = _connections(self._access, self._timeout)
                self._renewed_at = time.monotonic()
        return True

    def _answer(
        self, used: httpx.Client, path: str, params: Mapping[str, str] | None, accept: str, timeout: float | None
    ) -> httpx.Response:
        headers = {"Accept": accept} if accept else None

        def ask() -> httpx.Response:
            with used.stream(
                "GET",
                path,
                params=params,
                headers=headers,
                extensions=self._extensions,
                timeout=timeout or httpx.USE_CLIENT_DEFAULT,
            ) as response:
                _note_clock(response)
                parts, size = list[bytes](), 0
                for part in response.iter_bytes():
                    parts.append(part)
                    if (size := size + len(part)) > LARGEST_ANSWER:
                        raise RemoteFailure(f"the answer to GET {path} is longer than {LARGEST_ANSWER >> 20} MiB")
            answered = _plain(response.headers)
            content = b"".join(parts)
            return httpx.Response(response.status_code, headers=answered, content=content, request=response.request)

        with _failures(self._access.cluster):
            return _asked_twice(ask)

    def _refusal(self, path: str, response: httpx.Response) -> RemoteFailure:
        code = response.status_code
        try:
            message = decoded(_statuses.decode, response.content).message
        except Malformed:
            message = ""
        if code == httpx.codes.UNAUTHORIZED:
            return RemoteFailure(_unauthorized(self._access.user), code=code)
        said = message or f"the server answered {code} to {response.request.method} {path}"
        return RemoteFailure(said, code=code, retry_after=_retry_after(response) or 0.0)


class Watch:
    """The lines of a watch as they come, until the server ends it. One that is too long must be listed."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        rest, size = list[bytes](), 0
        # Not `iter_lines`, which also splits at what counts as the end of a line within a JSON text.
        for part in self._response.iter_bytes():
            first, *others = part.split(b"\n")
            rest.append(first)
            size += len(first)
            if size > LONGEST_LINE:
                raise RemoteFailure(f"a line of a watch is longer than {LONGEST_LINE >> 20} MiB", code=GONE)
            if others:
                yield from filter(None, (b"".join(rest), *others[:-1]))
                rest, size = [others[-1]], len(others[-1])

    def end(self) -> None:
        """From any thread: whoever waits for a line gets none."""
        connection: socket.socket | None = self._response.extensions["network_stream"].get_extra_info("socket")
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _note_clock(response: httpx.Response) -> None:
    with suppress(ValueError, TypeError):
        said = parsedate_to_datetime(response.headers.get("Date", ""))
        clock_skew.value = (said - datetime.now(UTC)).total_seconds()


def _plain(headers: httpx.Headers) -> list[tuple[str, str]]:
    """Those that still hold once the content is decompressed."""
    return [pair for pair in headers.multi_items() if pair[0] not in ("content-encoding", "content-length")]


def _asked_twice(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """A connection that was kept for later may be closed by then."""
    try:
        return ask()
    except (httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError):
        return ask()


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds; None where the server does not want to be asked again."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 1.0 if response.status_code == httpx.codes.TOO_MANY_REQUESTS else None


def _unauthorized(user: User) -> str:
    whose = f'user "{user.name}"' if user.name else "this user"
    if user.plugin is not None:
        return f"the server does not accept the credentials that the plugin `{user.plugin.command}` printed"
    if not (user.token or user.certificate or user.password):
        return f"the server wants credentials, and {whose} of the kubeconfig has none"
    expired = expiry_of(user.token)
    now = datetime.now(UTC)
    if expired is not None and expired < now:
        return f"the token of {whose} expired {duration((now - expired).total_seconds())} ago; sign in again"
    return f"the server does not accept the credentials of {whose}; they may have expired, so sign in again"


def expiry_of(token: str) -> datetime | None:
    """Of a JSON web token; None for another one."""
    _, _, rest = token.partition(".")
    payload = rest.partition(".")[0]
    try:
        claims: Any = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return datetime.fromtimestamp(float(claims["exp"]), UTC)
    except (binascii.Error, msgspec.MsgspecError, KeyError, TypeError, ValueError, OverflowError, OSError):
        return None


# Connections ----------------------------------------------------------------------------------------------------------


class TokenFile(httpx.Auth):
    """Shows the token of a file, as it is there now. A file that cannot be read for a moment costs nothing."""

    def __init__(self, path: Path, token: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._token, self._clock = path, token, clock
        self._read_at = clock()

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        now = self._clock()
        if now - self._read_at >= TOKEN_READ_EVERY:
            self._read_at = now
            with suppress(OSError, UnicodeDecodeError):
                self._token = self._path.read_text(encoding="utf-8").strip() or self._token
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


def _connections(access: Access, timeout: float, *, kept_for: float | None = 5.0) -> httpx.Client:
    """kept_for: seconds for which an idle connection stays open. Raises: RemoteFailure."""
    cluster, user = access.cluster, access.user
    headers = [("Accept", "application/json"), ("User-Agent", "manciple"), *user.headers]
    auth: httpx.Auth | tuple[str, str] | None = None
    if user.token_file is not None:
        auth = TokenFile(user.token_file, user.token)
    elif user.token:
        headers.append(("Authorization", f"Bearer {user.token}"))
    elif user.password:
        auth = user.password
    try:
        return httpx.Client(
            base_url=cluster.server,
            headers=headers,
            auth=auth,
            verify=_verification(cluster, user) if cluster.server.startswith("https:") else False,
            proxy=cluster.proxy or None,
            trust_env=not cluster.proxy and not is_exempt(cluster.server, os.environ),
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT)),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=kept_for),
        )
    except (ValueError, ImportError) as error:  # a proxy of a kind that it does not know
        raise RemoteFailure(f"the proxy {cluster.proxy or 'of the environment'} cannot be used: {error}") from error


def _verification(cluster: Cluster, user: User) -> ssl.SSLContext:
    """Raises: RemoteFailure."""
    try:
        context = ssl.create_default_context(cadata=cluster.authority or None)
    except (ssl.SSLError, ValueError) as error:
        raise RemoteFailure(f"the certificate authority of the kubeconfig cannot be read: {error}") from error
    # Python 3.13 wants extensions that the authorities of many clusters do not have.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cluster.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if user.certificate:
        # Python reads certificates from files only; this one is gone at once.
        with tempfile.TemporaryDirectory(prefix="manciple-") as folder:
            pair = Path(folder) / "client.pem"
            with os.fdopen(os.open(pair, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(f"{user.certificate.rstrip()}\n{user.key}")
            try:
                context.load_cert_chain(pair)
            except (ssl.SSLError, ValueError) as error:
                raise RemoteFailure(f'the client certificate of user "{user.name}" cannot be read: {error}') from error
    return context


def is_exempt(server: str, environment: Mapping[str, str]) -> bool:
    """Whether NO_PROXY names a network that the server's address is in. httpx knows names and single addresses."""
    try:
        address = ipaddress.ip_address(urlsplit(server).hostname or "")
    except ValueError:
        return False
    for part in (environment.get("NO_PROXY") or environment.get("no_proxy") or "").split(","):
        try:
            if "/" in part and address in ipaddress.ip_network(part.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False


@contextmanager
def _failures(cluster: Cluster) -> Iterator[None]:
    """What httpx raises, as a RemoteFailure."""
    try:
        yield
    except httpx.ConnectError as error:
        reason = str(error)
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            why = reason.partition("certificate verify failed: ")[2].partition(" (_ssl")[0] or reason
            raise RemoteFailure(
                f"the certificate of {cluster.server} is not trusted ({why}): check certificate-authority-data and the "
                "server's address in the kubeconfig",
                unreachable=True,
            ) from error
        if "WRONG_VERSION_NUMBER" in reason:
            reason = "it does not speak TLS; check the port, or write http:// in the kubeconfig"
        raise RemoteFailure(f"{cluster.server} cannot be reached: {reason}", unreachable=True) from error
    except httpx.TimeoutException as error:
        raise RemoteFailure(f"{cluster.server} did not answer in time", unreachable=True) from error
    except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise RemoteFailure(f"{cluster.server} broke off the connection: {reason}", unreachable=True) from error
