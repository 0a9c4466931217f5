"""kubeconfig files: what kubectl, client-go and the Python client need to reach this API.

The certificate of the authority stands inline, so that the file can be copied to another machine by itself.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import yaml

CLUSTER = "manciple"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What a client must know of the API: its URL, and the authority's certificate, "" where the system knows it."""

    url: str
    ca_pem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKey:
    """A client's certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


def render(
    server: Server, *, user: str, token: str = "", client: ClientKey | None = None, namespace: str = "default"
) -> str:
    """The file as YAML text; the user signs in with the token, or with a certificate."""
    credential = {"token": token} if token else {}
    if client is not None:
        credential["client-certificate-data"] = base64.b64encode(client.certificate).decode()
        credential["client-key-data"] = base64.b64encode(client.key).decode()
    context = f"{user}@{CLUSTER}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CLUSTER, "cluster": _cluster(server)}],
        "users": [{"name": user, "user": credential}],
        "contexts": [{"name": context, "context": {"cluster": CLUSTER, "user": user, "namespace": namespace}}],
        "current-context": context,
    }
    return yaml.safe_dump(document, sort_keys=False)


def render_cluster(server: Server) -> str:
    """A file that says where the API is and how it is known, and nothing of users (upstream: cluster-info)."""
    document = {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": _cluster(server)}]}
    return yaml.safe_dump(document, sort_keys=False)


def _cluster(server: Server) -> dict[str, str]:
    authority = base64.b64encode(server.ca_pem.encode()).decode()
    return {"server": server.url, **({"certificate-authority-data": authority} if authority else {})}


def read_token(text: str) -> str | None:
    """The token of the current context's user; None where the file holds none or is not a kubeconfig."""
    try:
        token = _current(text, "user").get("token")
    except (yaml.YAMLError, KeyError, TypeError):
        return None
    return token if isinstance(token, str) else None


def read_server(text: str) -> Server | None:
    """The server of the current context; None where the file names none."""
    try:
        cluster = _current(text, "cluster")
        authority = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
        return Server(url=str(cluster["server"]), ca_pem=authority)
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        return None


def _current(text: str, part: str) -> Any:
    """The "user" or the "cluster" of the current context. Raises: KeyError, TypeError, yaml.YAMLError."""
    document = yaml.safe_load(text)
    context = {entry["name"]: entry["context"] for entry in document["contexts"]}[document["current-context"]]
    return {entry["name"]: entry[part] for entry in document[f"{part}s"]}[context[part]]
