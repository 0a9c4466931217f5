"""The folder that holds everything `manage.py up` keeps: database, keys, kubeconfig files, the nodes' state.

Imported by manage.py before Django's settings are read, because they look into this folder: standard library only.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Home:
    """Where things lie under the home folder."""

    path: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.path / "kubeconfig"

    @property
    def kubeconfig_user(self) -> Path:
        """An ordinary user's."""
        return self.path / "kubeconfig-user"

    @property
    def secret_key(self) -> Path:
        return self.path / "secret-key"

    @property
    def encryption_keys(self) -> Path:
        """What Secrets are encrypted with, one a line, the newest first."""
        return self.path / "encryption-keys"

    @property
    def cdi(self) -> Path:
        """One folder a node, holding its CDI files."""
        return self.path / "cdi"

    def node_state(self, node: str) -> Path:
        """What the node's agent must remember across restarts: checkpoint, token, kubeconfig."""
        return self.path / "nodes" / node

    def node_kubeconfig(self, node: str) -> Path:
        return self.node_state(node) / "kubeconfig"


def write_private(path: Path, text: str) -> None:
    """Replace `path` by a file that only its owner can read, never half written.

    A link stays: the file to which it leads is replaced. What is no file (/dev/stdout, a pipe) is written to.
    """
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    draft.replace(path)


def prepare(path: Path, *, with_key: bool = True) -> Home:
    """Make the folder and the keys in it; a home that exists is continued.

    with_key: False in production, whose keys are in the environment of every process.
    """
    home = Home(path.expanduser().resolve())
    (home.path / "static").mkdir(parents=True, exist_ok=True)  # what collectstatic fills; it is looked for at start
    for key in (home.secret_key, home.encryption_keys):
        if key.exists():
            key.chmod(0o600)  # it may have come from a copy
        elif with_key:
            write_private(key, secrets.token_urlsafe(48))
    return home
