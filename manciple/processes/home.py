"""The folder that holds everything `manage.py up` keeps: database, keys, kubeconfig files, the nodes' state.

Imported by manage.py before Django's settings are read, because they look into this folder: standard library only.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

#: Of all our processes: files and folders are for their owner unless somebody sets their mode.
UMASK: Final = 0o077
#: SQLite's database and the files beside it while it is in use.
DATABASE_FILES: Final = tuple(f"manciple.sqlite3{ending}" for ending in ("", "-wal", "-shm", "-journal"))
#: Files of a home that only their owner may read.
PRIVATE_FILES: Final = (
    *("secret-key", "encryption-keys", "ca.key", "server.key", "kubeconfig", "kubeconfig-user"),
    *DATABASE_FILES,
)
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


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
    home.path.mkdir(parents=True, exist_ok=True)
    if not any(home.path.iterdir()):
        home.path.chmod(0o700)
    (home.path / "static").mkdir(exist_ok=True)  # what collectstatic fills; it is looked for at start
    for key in (home.secret_key, home.encryption_keys):
        if with_key and not key.exists():
            write_private(key, secrets.token_urlsafe(48))
    close_to_others(home.path)
    return home


def open_to_others(folder: Path) -> Iterator[Path]:
    """What other users of this machine can read in a home, of what opens the installation; the home itself first.

    A folder that holds nothing of ours is not looked at: somebody may have named one that others use as well.
    """
    private = [path for name in PRIVATE_FILES if (path := folder / name).is_file()]
    for path in [folder, *private] if private else []:
        if path.stat().st_mode & _OTHERS:
            yield path


def close_to_others(folder: Path) -> None:
    """Take the rights of others away, as earlier versions and copies left them; says so in the log."""
    for path in list(open_to_others(folder)):
        mode = stat.S_IMODE(path.stat().st_mode)
        try:
            path.chmod(mode & ~_OTHERS)
        except OSError as error:
            log.warning("%s has mode %04o, so others on this machine can read it: %s", path, mode, error.strerror)
        else:
            log.warning("%s had mode %04o: other users of this machine can no longer read it", path, mode)
