"""Who may come in: the dashboard's administrator, and tokens with kubeconfig files for admin, user and nodes.

Made once; a later start on the same home finds them again. A kubeconfig whose token the database no longer knows (a
removed database, a revoked token) is written anew.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from django.contrib.auth import get_user_model

from manciple.access.authentication import tokens
from manciple.api import kubeconfig
from manciple.api.kubeconfig import Server
from manciple.processes.home import Home, write_private

ADMIN = "admin"
USER = "user"


def sign_in(home: Home) -> tuple[str, str]:
    """The administrator's name and password for the dashboard, made at the first start."""
    users = get_user_model().objects
    if not home.admin_password.exists():
        write_private(home.admin_password, secrets.token_urlsafe(9) + "\n")
    password = home.admin_password.read_text().strip()
    if not users.filter(username=ADMIN).exists():
        users.create_superuser(ADMIN, password=password)
    return ADMIN, password


def node_identity(node: str) -> tuple[str, tuple[str, ...]]:
    """The name and groups that Kubernetes gives a node."""
    return f"system:node:{node}", ("system:nodes", "system:authenticated")


def write_kubeconfigs(home: Home, *, server: Server, nodes: list[str]) -> None:
    """One file each for the administrator, an ordinary user, and every node."""
    _write(home.kubeconfig, server=server, name=ADMIN, groups=("system:masters", "system:authenticated"))
    _write(home.kubeconfig_user, server=server, name=USER, groups=("system:authenticated",))
    for node in nodes:
        name, groups = node_identity(node)
        _write(home.node_kubeconfig(node), server=server, name=name, groups=groups)


def _write(path: Path, *, server: Server, name: str, groups: tuple[str, ...]) -> None:
    token = _kept_token(path, name) or tokens.issue(name, groups)
    write_private(path, kubeconfig.render(server, user=name, token=token))


def _kept_token(path: Path, name: str) -> str | None:
    """The token in an existing kubeconfig, if the database still knows it as `name`'s."""
    token = kubeconfig.read_token(path.read_text()) if path.exists() else None
    known = tokens.identify(token) if token else None
    return token if known and known.name == name else None
