"""kubeconfig files: what kubectl, client-go and the Python client need to reach this API.

The certificate of the authority stands inline, so that the file can be copied to another machine by itself.
"""

from __future__ import annotations

import base64

import yaml

CLUSTER = "manciple"


def render(*, server: str, ca_pem: str, user: str, token: str, namespace: str = "default") -> str:
    """The file as YAML text. `server` is a URL; `ca_pem` the authority's certificate, "" where the system knows it."""
    cluster = {"server": server}
    if ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem.encode()).decode()
    context = f"{user}@{CLUSTER}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CLUSTER, "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": context, "context": {"cluster": CLUSTER, "user": user, "namespace": namespace}}],
        "current-context": context,
    }
    return yaml.safe_dump(document, sort_keys=False)


def read_token(text: str) -> str | None:
    """The token of the current context's user; None where the file holds none or is not a kubeconfig."""
    try:
        document = yaml.safe_load(text)
        contexts = {entry["name"]: entry["context"] for entry in document["contexts"]}
        users = {entry["name"]: entry["user"] for entry in document["users"]}
        token = users[contexts[document["current-context"]]["user"]].get("token")
    except (yaml.YAMLError, KeyError, TypeError):
        return None
    return token if isinstance(token, str) else None
