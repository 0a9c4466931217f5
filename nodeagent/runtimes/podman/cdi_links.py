"""Lets podman find the CDI files of an agent that keeps them elsewhere than where podman looks.

podman (before 5.x, which has an option for it) reads /etc/cdi and /var/run/cdi only. For an agent with another
directory, each file in it gets a link there under a name that carries the agent's mark: its own, and those of drivers
behind sockets that were given the same directory. The link of a file that is gone is removed.
"""

from __future__ import annotations

from pathlib import Path

from nodeagent.cdi.documents import SUFFIXES
from nodeagent.failures import ContainerFailed

#: Where podman looks; links are made in the last one, which a reboot empties.
SEARCHED = (Path("/etc/cdi"), Path("/run/cdi"))


class CdiLinks:
    """`folder`: the agent's CDI directory. `mark`: of the agent."""

    def __init__(self, folder: Path, *, mark: str, searched: tuple[Path, ...] = SEARCHED) -> None:
        self._folder = folder
        self._prefix = f"manciple-{mark}-"
        self._target = searched[-1]
        self._needed = folder.resolve() not in {path.resolve() for path in searched}

    def update(self) -> None:
        """Make the links what they should be. Raises: ContainerFailed."""
        if not self._needed:
            return
        try:
            self._update()
        except OSError as error:
            raise ContainerFailed(f"CDI files cannot be shown to podman in {self._target}: {error}") from error

    def _update(self) -> None:
        files = (path for path in self._folder.glob("[!.]*") if path.suffix in SUFFIXES)
        wanted = {f"{self._prefix}{path.name}": path for path in files}
        self._target.mkdir(parents=True, exist_ok=True)
        present = {path.name for path in self._target.glob(f"{self._prefix}*")}
        for name in present - wanted.keys():
            (self._target / name).unlink(missing_ok=True)
        for name in wanted.keys() - present:
            try:
                (self._target / name).symlink_to(wanted[name])
            except FileExistsError:
                continue  # made by another thread at the same moment
