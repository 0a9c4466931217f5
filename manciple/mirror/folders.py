"""The folder of a mirror: one for each way into a cluster, for its owner alone, used by one process at a time.

    folder = Folder(default(access, choice))
    with folder.taken(context, server) as known:    # raises StartRefused where somebody else has it
        folder.announce(running)                    # what other mirrors list in their header (`running_beside`)

`mirror.json` marks a folder as a mirror's: what is copied into a folder replaces what it holds, so no other home is
taken. It keeps what the next start needs while the cluster is away. `running.json` tells where it is served; it counts
while its process holds the lock. Standard library only: Django's settings look into this folder.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from manciple import layout
from manciple.refusals import StartRefused

if TYPE_CHECKING:
    from manciple.mirror.kubeconfig import Access, Choice

_MARK, _RUNNING, _LOCK = "mirror.json", "running.json", "lock"
#: Bytes of a folder's name, of the 255 that file systems allow.
_LONGEST: Final = 200


def root() -> Path:
    """Where mirrors lie unless somebody says otherwise."""
    return layout.data_home() / "manciple" / "mirror"


def name_of(access: Access, choice: Choice) -> str:
    """What a person calls this way into the cluster: its context, and what they chose besides."""
    chosen = {"cluster": choice.cluster, "user": choice.user, "as": choice.acting_as}
    return "+".join([context_name(access), *(f"{word}={value}" for word, value in chosen.items() if value)])


def context_name(access: Access) -> str:
    """What the cluster is called: by its context, or its server where there is none (within a pod)."""
    return access.context or urlsplit(access.cluster.server).netloc


def default(access: Access, choice: Choice) -> Path:
    """Of a context such as `arn:aws:eks:eu-west-1:123:cluster/prod`, too."""
    name = quote(name_of(access, choice), safe="@:+=,")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{sha256(name.encode()).hexdigest()[:8]}"
    return root() / name


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Of whose copy it is. copied: whether the cluster was read once; later it may be away at a start."""

    context: str
    server: str
    copied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A mirror that is served. link: signs its owner in."""

    context: str
    url: str
    link: str


@dataclass(frozen=True, slots=True)
class Folder:
    path: Path

    @contextmanager
    def taken(self, context: str, server: str) -> Iterator[Mark]:
        """Within, no other process may use the folder; it is made where there is none. Yields what it remembers.

        Raises: StartRefused.
        """
        path = self.path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartRefused(f"{path} cannot be used ({error.strerror}): name another with --home DIR") from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StartRefused(self._in_use()) from None
            yield self._marked(context, server)
        finally:
            with suppress(OSError):
                (path / _RUNNING).unlink(missing_ok=True)
            os.close(lock)

    def _in_use(self) -> str:
        where = f" at {running.url}" if (running := self._running()) is not None else ""
        return (
            f"{self.path} is in use: this mirror runs already{where}. Open it, or name another folder with --home DIR"
        )

    def _marked(self, context: str, server: str) -> Mark:
        mark, wanted = _read(self.path / _MARK), Mark(context=context, server=server)
        if mark is None:
            if (self.path / "manciple.sqlite3").exists():
                raise StartRefused(
                    f"{self.path} holds an installation, which a mirror would overwrite: name another folder with "
                    "--home DIR"
                )
            self.remember(wanted)
            return wanted
        if mark.get("context") != context:
            raise StartRefused(
                f"{self.path} is the mirror of {mark.get('context')}, not of {context}: name another folder with "
                "--home DIR"
            )
        return replace(wanted, copied=mark.get("copied") is True)

    def remember(self, mark: Mark) -> None:
        _write(self.path / _MARK, asdict(mark))

    def announce(self, running: Running) -> None:
        _write(self.path / _RUNNING, asdict(running))

    def _running(self) -> Running | None:
        found = _read(self.path / _RUNNING) or {}
        try:
            return Running(**{name: str(found[name]) for name in Running.__slots__})
        except KeyError:
            return None

    def is_taken(self) -> bool:
        try:
            lock = os.open(self.path / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False


def context_of(home: Path) -> str:
    """Of whose copy the folder is; "" where it is no mirror's."""
    return str((_read(home / _MARK) or {}).get("context", ""))


def running_beside(home: Path) -> dict[str, Running]:
    """The other mirrors that run, in folders beside this one and in the usual place, by the folder's name."""
    folders = {path.resolve() for top in (home.parent, root()) for path in top.glob(f"*/{_RUNNING}")}
    found = {}
    for path in sorted(folders):
        folder = Folder(path.parent)
        if path.parent != home.resolve() and folder.is_taken() and (running := folder._running()) is not None:
            found[path.parent.name] = running
    return found


def _read(path: Path) -> dict[str, Any] | None:
    """None where there is none, or none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write(path: Path, document: Mapping[str, Any]) -> None:
    """Never half written, and for its owner alone."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(document, file)
    draft.replace(path)
