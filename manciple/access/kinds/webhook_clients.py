"""Where a webhook is: by URL, or as a Service; and what is wrong with that. PURE.

Admission webhooks and conversion webhooks say it alike, in types of their own groups.
Source: apiserver/pkg/util/webhook/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from urllib.parse import urlsplit

from manciple.wire.errors import invalid, required
from manciple.wire.validation import Errors, Path, check_dns_subdomain

HTTPS_PORT = 443
_PORT_MAX = 65535


class ServiceAddress(Protocol):
    """A Service. port: 443 where it says none."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str | None: ...
    @property
    def port(self) -> int | None: ...


class ClientConfig(Protocol):
    """ca_bundle: base64 of PEM; "" where the system vouches. Exactly one of service and url is set."""

    @property
    def service(self) -> ServiceAddress | None: ...
    @property
    def ca_bundle(self) -> str: ...
    @property
    def url(self) -> str | None: ...


def validate_client(config: ClientConfig, path: Path) -> Errors:
    if (config.url is None) is (config.service is None):
        return [required(path, "exactly one of url or service is required")]
    if config.service is not None:
        return _validate_service(config.service, path.child("service"))
    return _validate_url(config.url or "", path.child("url"))


def _validate_service(service: ServiceAddress, path: Path) -> Errors:
    found: Errors = []
    if not service.name:
        found.append(required(path.child("name"), "service name is required"))
    if not service.namespace:
        found.append(required(path.child("namespace"), "service namespace is required"))
    port = HTTPS_PORT if service.port is None else service.port
    if not 1 <= port <= _PORT_MAX:
        message = f"port is not valid: must be between 1 and {_PORT_MAX}, inclusive"
        found.append(invalid(path.child("port"), port, message))
    text = service.path or ""
    return found + [invalid(path.child("path"), text, why) for why in _path_faults(text)]


def _path_faults(text: str) -> Iterator[str]:
    if text in ("", "/"):
        return
    if text == "//":
        yield "segment[0] may not be empty"
        return
    if not text.startswith("/"):
        yield "must start with a '/'"
    for position, segment in enumerate(text[1:].removesuffix("/").split("/")):
        if not segment:
            yield f"segment[{position}] may not be empty"
            continue
        yield from (f"segment[{position}]: {why}" for why in check_dns_subdomain(segment))


_FORM = "; desired format: https://host[/path]"


def _validate_url(text: str, path: Path) -> Errors:
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError as error:
        return [required(path, f"url must be a valid URL: {error}{_FORM}")]
    found: Errors = []
    userinfo, at, host = url.netloc.rpartition("@")
    if url.scheme != "https":
        found.append(invalid(path, url.scheme, f"'https' is the only allowed URL scheme{_FORM}"))
    if not host:
        found.append(invalid(path, host, f"host must be specified{_FORM}"))
    if at:
        found.append(invalid(path, userinfo, "user information is not permitted in the URL"))
    if url.fragment:
        found.append(invalid(path, url.fragment, "fragments are not permitted in the URL"))
    if url.query:
        found.append(invalid(path, url.query, "query parameters are not permitted in the URL"))
    return found
