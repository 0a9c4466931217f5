"""How a container gets variables that hold something of a Secret: nobody sees them in the arguments of a process.

Most stand in a file that podman reads and that is removed when it has. podman reads such files line by line and takes
quotes for its own, so what is no plain text in one line goes through its store of secrets, and is taken out again.
Either is in memory (/run), for the owner alone; what a crash left is removed at the next start.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nodeagent.failures import ContainerFailed
from nodeagent.runtimes.podman.program import Podman
from nodeagent.runtimes.protocol import ContainerRequest

#: What podman reads from a line as it stands there.
_PLAIN_NAME, _PLAIN_VALUE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*"), re.compile(r"[!#-&(-\[\]-_a-~]*")
LONGEST_LINE = 32 * 1024
_STORED = ".stored"


class ConfidentialVariables:
    """`folder`: where the files are, in memory. `mark`: of the agent, in the names of all that is its own."""

    def __init__(self, podman: Podman, folder: Path, *, mark: str) -> None:
        self._podman = podman
        self._folder = folder
        self._prefix = f"manciple-{mark}-"

    @contextmanager
    def given(self, request: ContainerRequest) -> Iterator[tuple[str, ...]]:
        """Options of `podman run`, good within. Raises: ContainerFailed."""
        if not request.confidential:
            yield ()
            return
        values = {name: request.environment[name] for name in request.confidential}
        plain = {name: value for name, value in values.items() if _is_plain(name, value)}
        made: list[Path] = []
        try:
            yield (*self._file(request, plain, made), *self._secrets(request, values.keys() - plain.keys(), made))
        except OSError as error:
            raise ContainerFailed(f"the variables of container {request.name} cannot be given: {error}") from error
        finally:
            for path in made:
                self._remove(path)

    def recover(self) -> None:
        """Remove what an agent that was killed left behind."""
        for path in self._folder.glob(f"{self._prefix}*"):
            self._remove(path)

    def _file(self, request: ContainerRequest, values: dict[str, str], made: list[Path]) -> Iterator[str]:
        if values:
            text = "".join(f"{name}={value}\n" for name, value in values.items())
            yield from ("--env-file", str(self._write(self._name(request, ""), text, made)))

    def _secrets(self, request: ContainerRequest, names: set[str], made: list[Path]) -> Iterator[str]:
        for variable in sorted(names):
            name = self._name(request, variable)
            path = self._write(f"{name}{_STORED}", request.environment[variable], made)
            self._podman("secret", "create", "--", name, str(path))
            yield from ("--secret", f"{name},type=env,target={variable}")

    def _name(self, request: ContainerRequest, variable: str) -> str:
        """At most 64 characters, as podman wants it."""
        identity = f"{request.pod_uid}/{request.name}/{request.attempt}/{variable}"
        return self._prefix + hashlib.sha256(identity.encode()).hexdigest()[:32]

    def _write(self, name: str, text: str, made: list[Path]) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / name
        path.unlink(missing_ok=True)
        made.append(path)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(text.encode())
        return path

    def _remove(self, path: Path) -> None:
        if path.name.endswith(_STORED):
            with suppress(ContainerFailed):  # it may never have been made
                self._podman("secret", "rm", "--", path.name.removesuffix(_STORED))
        path.unlink(missing_ok=True)


def _is_plain(name: str, value: str) -> bool:
    return (
        _PLAIN_NAME.fullmatch(name) is not None
        and _PLAIN_VALUE.fullmatch(value) is not None
        and len(value) <= LONGEST_LINE
    )
