"""The credentials with which an image is pulled: those of a pod's `imagePullSecrets` that fit the image's registry.

A Secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg maps registries to credentials. A registry
may have a port, a path (credentials for what lies below it) and `*` within the labels of its name. Pure.

Source: kubernetes pkg/credentialprovider (keyring.go, config.go, secrets/secrets.go).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from manciple.access.kinds.secrets import Secret

#: Type of a Secret -> the key of its configuration.
CONFIGURATIONS = {"kubernetes.io/dockerconfigjson": ".dockerconfigjson", "kubernetes.io/dockercfg": ".dockercfg"}
#: What images are pulled from that name no registry, and the names under which its credentials are kept.
DEFAULT, DEFAULT_NAMES = "docker.io", ("docker.io", "index.docker.io")
_VERSION_PATH = re.compile(r"/v[12]/")


@dataclass(frozen=True, slots=True)
class PullKey:
    """Who pulls. registry: of the image, as podman looks it up."""

    registry: str
    user: str
    password: str = field(repr=False)

    def document(self) -> bytes:
        """The file that podman reads it from (containers-auth.json(5))."""
        return json.dumps({"auths": {self.registry: {"auth": _encoded(f"{self.user}:{self.password}")}}}).encode()


#: The credentials that fit an image; called only when the image is to be pulled.
PullKeys = Callable[[], Sequence[PullKey]]


def no_keys() -> Sequence[PullKey]:
    """Of a pod without `imagePullSecrets`."""
    return ()


def fitting(secrets: Iterable[Secret], image: str) -> Sequence[PullKey]:
    """The credentials for `image`, the most specific first; each is tried until one succeeds."""
    registry, path = _place_of(image)
    found: dict[str, list[PullKey]] = {}
    for secret in secrets:
        for pattern, user, password in _entries(secret):
            if _matches(pattern, registry, path):
                found.setdefault(pattern, []).append(PullKey(registry, user, password))
    keys = (key for pattern in sorted(found, reverse=True) for key in found[pattern])
    return tuple(dict.fromkeys(keys))


def _place_of(image: str) -> tuple[str, str]:
    """(registry, path below it) of an image's name."""
    first, slash, rest = image.partition("/")
    if not slash or not (first == "localhost" or "." in first or ":" in first):
        return DEFAULT, f"/{image}"
    return (DEFAULT if first in DEFAULT_NAMES else first), f"/{rest}"


def _entries(secret: Secret) -> Iterator[tuple[str, str, str]]:
    """(registry with its path, user, password); what cannot be read is left out."""
    try:
        document = json.loads(base64.b64decode(secret.data[CONFIGURATIONS[secret.type]]))
        entries = document["auths"] if secret.type.endswith("json") else document
        for name, entry in entries.items():
            user, password = entry.get("username", ""), entry.get("password", "")
            if auth := entry.get("auth"):
                padded = auth.rstrip("=") + "=" * (-len(auth.rstrip("=")) % 4)
                user, password = base64.b64decode(padded, validate=True).decode().split(":", 1)
            yield _pattern(name), str(user), str(password)
    except (KeyError, ValueError, TypeError, AttributeError, binascii.Error):
        return


def _pattern(name: str) -> str:
    """The name of a registry without scheme and version."""
    parts = urlsplit(name if name.startswith(("http://", "https://")) else f"https://{name}")
    path = parts.path[3:] if _VERSION_PATH.match(f"{parts.path}/") else parts.path
    return parts.netloc + path.rstrip("/")


def _matches(pattern: str, registry: str, path: str) -> bool:
    host, slash, below = pattern.partition("/")
    if slash and not path.startswith(f"/{below}"):
        return False
    if registry == DEFAULT:
        return host in DEFAULT_NAMES
    (name, _, port), (wanted, _, wanted_port) = host.partition(":"), registry.partition(":")
    labels, wanted_labels = name.split("."), wanted.split(".")
    same = len(labels) == len(wanted_labels) and port == wanted_port
    return same and all(fnmatchcase(one, label) for one, label in zip(wanted_labels, labels, strict=True))


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
