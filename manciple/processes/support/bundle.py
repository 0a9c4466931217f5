"""Packs a support bundle: every member scrubbed, one that cannot be made replaced by why."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from manciple.processes.support.scrubbing import Scrubber

#: Bytes of a log that are told: its end.
LONGEST_LOG: Final = 20 << 20

_README: Final = """\
What somebody who helps needs to know of this installation. Nothing here is a whole document: of objects there are
names, states and messages, no environment of containers, no annotations, no configuration of drivers, no Secrets.
Settings that are secret are masked, and what this installation knows as secret, or what looks like a secret, was
replaced by [removed] in every file. Look through it before you hand it on: names and messages are your users'.
"""


def write(path: Path, members: Mapping[str, Callable[[], Any]], logs: Sequence[Path], scrubber: Scrubber) -> list[str]:
    """The bundle; the names of its members. Readable for its owner alone. Raises: OSError."""
    names = []
    path.touch(mode=0o600)
    path.chmod(0o600)  # one that was there keeps its mode
    with tarfile.open(path, "w:gz") as archive:
        for name, text in [("README.txt", _README), *_texts(members, scrubber), *_logs(logs)]:
            data = scrubber.scrub(text).encode()
            info = tarfile.TarInfo(f"{path.name.partition('.')[0]}/{name}")
            info.size, info.mode = len(data), 0o600
            archive.addfile(info, io.BytesIO(data))
            names.append(name)
    return names


def _texts(members: Mapping[str, Callable[[], Any]], scrubber: Scrubber) -> Iterator[tuple[str, str]]:
    for name, tell in members.items():
        try:
            told = tell()
        except Exception as error:  # a part that is broken is why somebody asks for help
            told = {"error": f"{type(error).__name__}: {error}"}
        yield name, told if isinstance(told, str) else json.dumps(scrubber.scrub_leaves(told), indent=1)


def _logs(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for number, path in enumerate(paths):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LONGEST_LOG))
            yield f"logs/{number}-{path.name}", file.read().decode(errors="replace")
