"""Finds CDI devices by their qualified names, as a container runtime does before it starts a container."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from nodeagent.cdi.rules import validate_spec
from nodeagent.cdi.spec import ContainerEdits, Spec, qualified_name

_Stamp = tuple[int, int, int]  # inode, mtime in ns, size: a changed file has another one


class CdiRegistry:
    """The specs in `folders`; a file is parsed again only when it has changed. Not thread-safe."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._specs: dict[Path, tuple[_Stamp, Spec | None]] = {}

    def edits(self, devices: Sequence[str]) -> list[ContainerEdits]:
        """What to do to a container that gets `devices`: each spec's own edits once, then its devices', in order.

        Raises: LookupError naming the devices that no valid file defines.
        """
        known = {qualified_name(spec.kind, d.name): (spec, d) for spec in self._read() for d in spec.devices}
        if missing := [device for device in devices if device not in known]:
            raise LookupError(f"unresolvable CDI devices {', '.join(missing)}")
        specs = {id(spec): spec for spec, _ in (known[device] for device in devices)}
        return [spec.container_edits for spec in specs.values()] + [known[d][1].container_edits for d in devices]

    def _read(self) -> Iterator[Spec]:
        for folder in self._folders:
            for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
                spec = self._spec(path)
                if spec is not None:
                    yield spec

    def _spec(self, path: Path) -> Spec | None:
        try:
            stat = path.stat()
            stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if path not in self._specs or self._specs[path][0] != stamp:
                self._specs[path] = (stamp, _parse(path.read_bytes()))
        except FileNotFoundError:
            self._specs.pop(path, None)
            return None
        return self._specs[path][1]


def _parse(content: bytes) -> Spec | None:
    """A file that breaks the rules defines nothing."""
    try:
        document = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return None
    return None if validate_spec(document) else msgspec.convert(document, Spec)
