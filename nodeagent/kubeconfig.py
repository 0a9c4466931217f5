"""Reads who to talk to, and as whom, from a kubeconfig file: the server, its CA and a bearer token."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nodeagent.tokens import Token, TokenFile


@dataclass(frozen=True, slots=True)
class Access:
    """A server and an identity. `ca_file`: the CA to trust, None for the system's."""

    server: str
    token: Token
    ca_file: Path | None


def read_kubeconfig(path: Path, *, ca_target: Path) -> Access:
    """The access of the current context. An inline CA is written to `ca_target`.

    Raises: ValueError naming what is missing in the file; OSError.
    """
    document = yaml.safe_load(path.read_text())
    if not isinstance(document, dict):
        raise TypeError(f"{path} is not a kubeconfig")
    context = _named(document, "contexts", str(document.get("current-context", "")), path)["context"]
    cluster = _named(document, "clusters", str(context.get("cluster", "")), path)["cluster"]
    user = _named(document, "users", str(context.get("user", "")), path)["user"]
    # As client-go has it: the file counts, where there are both, and stands beside the kubeconfig.
    if user.get("tokenFile"):
        token: Token = TokenFile((path.parent / str(user["tokenFile"])).resolve())
    elif user.get("token"):
        token = str(user["token"])
    else:
        raise ValueError(f"{path}: user {context.get('user')} has no token")
    return Access(str(cluster["server"]), token, _ca_file(cluster, path, ca_target))


def _named(document: dict[str, Any], section: str, name: str, path: Path) -> dict[str, Any]:
    found = next((entry for entry in document.get(section) or () if entry.get("name") == name), None)
    if found is None:
        raise ValueError(f'{path}: "{name}" is not among its {section}')
    return dict(found)


def _ca_file(cluster: dict[str, Any], path: Path, target: Path) -> Path | None:
    if inline := cluster.get("certificate-authority-data"):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(base64.b64decode(inline))
        return target
    named = cluster.get("certificate-authority")
    return (path.parent / str(named)).resolve() if named else None
