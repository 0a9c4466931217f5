"""The folder that holds everything `manage.py up` keeps: database, keys, kubeconfig files, the nodes' state.

Imported by manage.py before Django's settings are read, because they look into this folder: standard library only.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from manciple.declared_settings import SHORTEST_KEY
from manciple.refusals import StartRefused

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
#: What to do about a key that is lost or spoilt.
RESTORE: Final = "Restore it from the backup of the home (docs/how-to/keys.md, Lost keys), and start again."
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
    def pages_url(self) -> Path:
        """Where the dashboard was last served from this home: other commands print links to it."""
        return self.path / "dashboard-url"

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
    Raises: StartRefused where a key is empty or too short, or lost and still needed.
    """
    home = Home(path.expanduser().resolve())
    home.path.mkdir(parents=True, exist_ok=True)
    if not any(home.path.iterdir()):
        home.path.chmod(0o700)
    (home.path / "static").mkdir(exist_ok=True)  # what collectstatic fills; it is looked for at start
    if with_key:
        check_keys(home)
        for key in (home.secret_key, home.encryption_keys):
            if not key.exists():
                write_private(key, secrets.token_urlsafe(48))
    close_to_others(home.path)
    return home


def check_keys(home: Home) -> None:
    """Raises: StartRefused."""
    for path, why in wrong_keys(home):
        raise StartRefused(f"{path} {why}\n{RESTORE}")


def wrong_keys(home: Home) -> Iterator[tuple[Path, str]]:
    """Key files that cannot be used, and why; those for which the environment has a value are not."""
    for path, setting in (
        (home.secret_key, "MANCIPLE_SECRET_KEY"),
        (home.encryption_keys, "MANCIPLE_ENCRYPTION_KEYS"),
    ):
        if os.environ.get(setting, "").strip(" ,"):
            continue
        if not path.exists():
            if path == home.encryption_keys and _holds_sealed(home.path / DATABASE_FILES[0]):
                yield path, "is missing, and the database holds what was encrypted with it"
            continue
        # Of several encryption keys, one a line, the newest is first; older ones only open.
        keys = path.read_text(errors="replace").split()
        if not keys:
            yield path, "is empty"
        elif len(keys[0]) < SHORTEST_KEY:
            yield path, f"holds a key of {len(keys[0])} characters; it needs {SHORTEST_KEY} at least"


def _holds_sealed(database: Path) -> bool:
    """Whether something in it is encrypted. One that cannot be read is reported elsewhere."""
    if not database.is_file():
        return False
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        for statement in (
            "SELECT 1 FROM access_signingkey LIMIT 1",
            "SELECT 1 FROM store_storedobject WHERE resource = 'secrets' LIMIT 1",
        ):
            with suppress(sqlite3.OperationalError):  # a table of a later version
                if connection.execute(statement).fetchone():
                    return True
    return False


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
